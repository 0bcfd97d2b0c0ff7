"""Times of collectives on a machine."""
