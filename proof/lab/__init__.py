"""Proof of the lab: predicted times beside measured ones, sweeps that are ended, comparisons that err."""
