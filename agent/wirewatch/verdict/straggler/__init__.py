"""Finds the GPU, pair or link that is slow: pure functions over probes."""
