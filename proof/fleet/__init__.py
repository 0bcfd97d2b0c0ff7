"""Proof of the fleet: what scrapes cost, the controller, rounds of pairs, and what a fault sends."""
