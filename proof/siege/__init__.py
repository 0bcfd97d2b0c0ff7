"""The daemon under siege: attacks on loopback, what it served meanwhile, and what was left: `make siege`."""
