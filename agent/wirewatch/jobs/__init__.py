"""Running jobs: how fast their collectives are, who waits for whom, and why. They never gate the node."""
