"""The straggler detector over drawn nodes, whose noise is that of real healthy probes: `make simulation`."""
