"""What is known of an operation without measuring it: the wire, and the expected busbw at each size."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from wirewatch.busbw.expected import expect, wire
from wirewatch.core.probe import Conditions
from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class KnownRates:
    """Of one operation with so many ranks, in bytes per second.

    `wire`: what one GPU can send each way, None where that is not known. `expected`: sizes in bytes, each
    with the busbw that is expected of NCCL's defaults.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    op: str
    ranks: int
    wire: float | None
    expected: tuple[tuple[int, float], ...] = ()


def known_rates(conditions: Conditions, op: str, sizes: Iterable[int]) -> KnownRates:
    """Of the group of GPUs in `conditions`; sizes of which nothing is expected are left out."""
    rail = wire(conditions)
    found = ((size, expect(conditions, op, size)) for size in sorted(set(sizes)))
    expected = tuple((size, one.busbw) for size, one in found if not isinstance(one, Absent))
    rate = None if isinstance(rail, Absent) else rail.rate
    return KnownRates(op, conditions.group.ranks, rate, expected)
