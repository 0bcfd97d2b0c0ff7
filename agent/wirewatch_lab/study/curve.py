"""Time against size of a collective in one configuration, however it was measured: what studies work on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.busbw.expected import expect, wire
from wirewatch.core.probe import Conditions
from wirewatch.core.types import Absent

Settings = tuple[tuple[str, str], ...]
"""Environment variables and their values, sorted by name."""
AUTO = "auto"
"""The algorithm or protocol is NCCL's choice."""


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """How a collective ran. Algorithm and protocol are `auto` or NCCL's names, such as `Tree` and `LL128`.

    `launch`: one by one from the host (`eager`), or many as one CUDA graph (`graph`). `registered`: its
    buffers were registered with the communicator. `settings`: those that the study itself gave to NCCL.
    """

    ranks: int
    algorithm: str = AUTO
    protocol: str = AUTO
    launch: str = "eager"
    registered: bool = False
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One message size in bytes (nccl-tests' S) with the mean seconds of an operation, once for each repeat.

    `wrong`: elements that were not what they should be, over all repeats; None where values were not checked.
    `ran`: the algorithms and protocols that NCCL's log names for it, such as `Ring Simple`.
    """

    size_bytes: int
    seconds: tuple[float, ...]
    wrong: int | None = 0
    ran: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """All sizes of one collective, the smallest first. `dtype` and `in_place` as in the probe's plan."""

    op: str
    configuration: Configuration
    points: tuple[CurvePoint, ...]
    dtype: str = "float32"
    in_place: bool = True


@dataclass(frozen=True, slots=True)
class Study:
    """A set of curves from one machine.

    `environment`: what was known of the machine and its software, by name. `not_offered`: what was asked for
    and does not exist, in words. `problems`: what went wrong, in words.
    """

    at: float
    source: str
    environment: dict[str, str]
    curves: Sequence[Curve]
    not_offered: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default_factory=tuple)


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
