"""Running rounds of pairs: their measurements, engine and end (ADR 0066)."""
