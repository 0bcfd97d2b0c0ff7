"""Medians and spreads that a few wild values do not move."""

from collections.abc import Iterable, Sequence

NORMAL = 1.4826
"""Standard deviations in a median absolute deviation of normal noise: 1 / 0.6745."""


def low_median(values: Iterable[float]) -> float:
    """The middle value, of an even number the lower of both; always one of them.

    Raises:
        ValueError: no values.
    """
    return _middle(sorted(values), upper=False)


def high_median(values: Iterable[float]) -> float:
    """The middle value, of an even number the higher of both.

    Raises:
        ValueError: no values.
    """
    return _middle(sorted(values), upper=True)


def _middle(values: Sequence[float], *, upper: bool) -> float:
    if not values:
        raise ValueError("no median of nothing")
    return values[len(values) // 2 if upper else (len(values) - 1) // 2]


def spread(values: Sequence[float], center: float) -> float:
    """Standard deviation of the noise around `center`, by the median absolute deviation; 0 for no values."""
    return NORMAL * low_median(abs(value - center) for value in values) if values else 0.0
