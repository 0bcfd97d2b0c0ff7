"""wirewatch: a per-node daemon that watches the wires between a node's GPUs."""

__version__ = "0.2.0"
