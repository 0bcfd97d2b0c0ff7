"""Queries that several rows of the agent dashboard use."""

OF_NODE = "cluster,node"


def per_hour(counter: str, by: str) -> str:
    """How often in an hour, by a label."""
    return f"sum by ({by}) (rate({counter}[$__rate_interval])) * 3600"
