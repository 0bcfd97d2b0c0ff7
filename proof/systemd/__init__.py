"""The unit under a real systemd, which is process 1 of a container: `make e2e-systemd`."""
