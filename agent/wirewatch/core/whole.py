"""Whole numbers out of texts that anybody may have written."""

DIGITS = 20
"""No counter of 64 bits has more; Python refuses to turn thousands of digits into a number."""


def whole(text: str) -> int | None:
    """The number that a text of plain digits is, None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None
