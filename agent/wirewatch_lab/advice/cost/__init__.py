"""Costs of collectives for each token or training step."""
