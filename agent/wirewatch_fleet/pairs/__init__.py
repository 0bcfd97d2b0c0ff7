"""Rounds of pairs of nodes: which to run next, and what is slow. Pure but for the documents (ADR 0064)."""
