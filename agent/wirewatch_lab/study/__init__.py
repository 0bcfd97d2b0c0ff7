"""Tools around the probe: sweeps, what others measured, and the curves of both."""
