"""Every part of a release installed, run, upgraded and removed on clean machines: `make e2e-release`."""
