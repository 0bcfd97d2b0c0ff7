"""What a collector is: a value with functions, read by the daemon, tests and docs alike."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from wirewatch.core.ports import Hardware
from wirewatch.core.rules import Rule
from wirewatch.core.types import Absent, Expect, Finding, Metric, Ok, Sample

R = TypeVar("R")
M = TypeVar("M")
O = TypeVar("O", bound="Options")  # noqa: E741
P = TypeVar("P")

APART = 3.0
"""Seconds between a run of a collector and those of the ones that it must be `apart` from.

Measured on H200: while GPM samples were taken, 2 of 32 NVLink byte counters stood still over 3 s (ADR 0013).
"""


@dataclass(frozen=True, slots=True)
class Options:
    """How a collector runs; `interval` and `deadline` in seconds."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    enabled: bool = True
    interval: float = 15.0
    deadline: float = 10.0


@dataclass(frozen=True, slots=True)
class NoPolicy:
    """For collectors that judge nothing, or nothing that a threshold decides."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True)
class Collector(Generic[R, M, O, P]):
    """One thing that is watched.

    `read` is the only function that touches the world, and only through the ports. It sees the memory, so
    that it can choose what to ask, and returns Absent when nothing at all could be read. `judge`, `samples`
    and `facts` are pure: `judge` folds a reading into the memory and says what is wrong now; `samples` turns
    the reading and that new memory into series.

    The memory is the collector's alone. `facts` turns it and the reading into one frozen value for other
    rooms, of a type that no other collector offers; None where samples and findings say it all.

    `apart` names collectors whose runs this one disturbs: it runs only in the gaps that they leave, APART
    seconds from each, and never delays them.

    `rules` are all that its findings can carry but `<name>.blind`, which every collector has; `series` is the
    most series that it makes on a node of 8 GPUs and 8 ports, as it is by default.
    """

    name: str
    about: str
    lane: str
    options: O
    policy: P
    metrics: tuple[Metric, ...]
    start: M
    read: Callable[[Hardware, M, O], R | Absent]
    samples: Callable[[R, M], Iterable[Sample]]
    judge: Callable[[M, Ok[R], P, Expect], tuple[M, tuple[Finding, ...]]]
    applicable: Callable[[R], bool]
    apart: tuple[str, ...] = ()
    facts: Callable[[R, M], object] | None = None
    rules: tuple[Rule, ...] = ()
    series: int = 40


AnyCollector = Collector[Any, Any, Any, Any]
