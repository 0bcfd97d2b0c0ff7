"""Queries that several rows of the fleet dashboard use."""

RATIO_OF = "min by (cluster,node) (wirewatch_probe_busbw_ratio{HERE})"
SEEN = "max by (cluster,node) (last_over_time(wirewatch_build_info{HERE}[1d]))"
NOW = "max by (cluster,node) (wirewatch_build_info{HERE})"
SILENT = f"count({SEEN}) - (count({NOW}) or vector(0))"
"""Agents that were scraped within a day and are not now; no value where none ever was."""
