"""Rounds of pairs of nodes: which to run next, and which node, pair, rail or leaf is slow. Pure (ADR 0064)."""
