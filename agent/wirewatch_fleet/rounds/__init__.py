"""Rounds of pairs that are run: what a pair measures, on whose engine, until when (ADR 0066)."""
