"""Rounds of pairs of nodes: what to run next, and what is slow. Pure except for documents (ADR 0064)."""
