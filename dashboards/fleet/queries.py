"""Queries that several rows of the fleet dashboard use."""

from wirewatch_fleet import worst

RATIO_OF = "min by (cluster,node) (wirewatch_probe_busbw_ratio{HERE})"
KNOWN = worst.heard("HERE")
"""All nodes that are targets, or were within a day."""
BAD = worst.bad("HERE")
NOW = "max by (cluster,node) (wirewatch_build_info{HERE})"
SILENT = f"count({KNOWN} unless on (cluster,node) {NOW}) or count({KNOWN}) * 0"
"""Agents that were heard within a day and are not now; no value where none ever was."""


def in_state(value: int) -> str:
    """How many nodes are in a state of the table of bad nodes; no value where no node is known."""
    return f"count({BAD} == {value}) or count({KNOWN}) * 0"
