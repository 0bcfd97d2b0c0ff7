"""Rounds of pairs over drawn fleets: what is named, what is missed, what it costs."""
