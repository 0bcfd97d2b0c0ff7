"""Time against size of a collective in a configuration, from any measurement; studies work on this."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.busbw.expected import expect, wire
from wirewatch.core.probe import Conditions
from wirewatch.core.types import Absent

Settings = tuple[tuple[str, str], ...]
"""Environment variables and their values, sorted by name."""
AUTO = "auto"
"""Marks NCCL's own choice of algorithm or protocol."""


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

    `wrong`: wrong elements, over all repeats; None where values were not checked. `ran`: the algorithms and
    protocols that NCCL's log names for it, such as `Ring Simple`.
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

    `environment`: machine and software as known, by name. `not_offered`: requested parts that do not exist,
    in words. `problems`: faults, in words.
    """

    at: float
    source: str
    environment: dict[str, str]
    curves: Sequence[Curve]
    not_offered: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class KnownRates:
    """Rates of an operation with so many ranks, in bytes per second.

    `wire`: rate of a GPU each way, None where not known. `expected`: sizes in bytes, each with the expected
    busbw of NCCL's defaults.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    op: str
    ranks: int
    wire: float | None
    expected: tuple[tuple[int, float], ...] = ()


def known_rates(conditions: Conditions, op: str, sizes: Iterable[int]) -> KnownRates:
    """Return rates of the GPUs in `conditions`; sizes without an expectation are left out."""
    rail = wire(conditions)
    found = ((size, expect(conditions, op, size)) for size in sorted(set(sizes)))
    expected = tuple((size, one.busbw) for size, one in found if not isinstance(one, Absent))
    rate = None if isinstance(rail, Absent) else rail.rate
    return KnownRates(op, conditions.group.ranks, rate, expected)
