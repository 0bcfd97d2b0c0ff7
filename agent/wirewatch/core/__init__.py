"""Types, ports and pure functions. Standard library only, no I/O."""
