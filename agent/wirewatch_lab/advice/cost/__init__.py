"""What collectives cost a token or a training step."""
