"""Many nodes at once: the worst-first table and what else is asked of a fleet's Prometheus or cluster."""
