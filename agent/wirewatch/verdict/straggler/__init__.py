"""Which GPU, pair or link is slow: pure functions over probes."""
