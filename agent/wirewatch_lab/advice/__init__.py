"""Advice: what a collective costs, where to place a job's groups, what to set, and how to measure more."""
