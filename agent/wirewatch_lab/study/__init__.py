"""Tools around the probe: sweeps, other tools' measurements, and the curves of both."""
