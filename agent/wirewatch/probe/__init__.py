"""When a probe may run, how it is run, and what its results mean."""
