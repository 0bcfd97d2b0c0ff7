"""Time work in the queues of GPUs, whatever library drives them."""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from wirewatch.core.probe import Copy, Launch, Micro, Plan, rounds

Event = Any
"""A mark in a queue, of the library's own."""
PRODUCTS, COPIES = 10, 60
"""Runs of the matrix product and of the copy within a GPU's memory. Each takes some 9 ms on an H200: several
of the time slices that a GPU gives to each process on it."""


class Queue(ABC):
    """A GPU's queue of work; `seconds` is the time in which it had some."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.seconds = 0.0
        self._spans: list[tuple[Event, Event]] = []

    @abstractmethod
    def event(self) -> Event:
        """A mark at this place in the queue."""

    @abstractmethod
    def wait(self) -> None:
        """Until all work is done."""

    @staticmethod
    @abstractmethod
    def span(first: Event, second: Event) -> float:
        """Seconds between two marks that have been passed."""

    def begin(self) -> None:
        """Work begins here; the time to the matching `end` counts as the GPU's."""
        self._begun = self.event()

    def end(self) -> None:
        self._spans.append((self._begun, self.event()))

    def settle(self) -> None:
        """Wait for all work and count its time."""
        self.wait()
        self.seconds += sum(self.span(*both) for both in self._spans)
        self._spans.clear()

    def spans(self, marks: Sequence[Event]) -> list[float]:
        """Seconds between each mark and the next."""
        return [self.span(first, second) for first, second in pairwise(marks)]


Q = TypeVar("Q", bound=Queue)


class Taken(NamedTuple):
    """The document's times of a collective."""

    launch: Launch
    iterations: int
    runs: int
    seconds: float
    low: float
    median: float
    high: float


def in_queue(members: Sequence[Queue], one: Callable[[], object], warmup: int, count: int) -> Taken:
    """Time warm-up and timed runs in one queue, so that launches hide behind longer runs.

    The time is the slowest member's, of all runs together; single runs are the first member's. The host waits
    for each warm-up run but the last: the first connects a communicator and loads kernels, and on H200 the
    GPUs begin the second late too. Otherwise later launches run ahead, and their time is not seen.
    """
    for queue in members:
        queue.begin()
    for run in range(warmup):
        one()
        if run < warmup - 1:
            for queue in members:
                queue.wait()
    first = [queue.event() for queue in members]
    marks = [first[0]]
    for _ in range(count - 1):
        one()
        marks.append(members[0].event())
    one()
    last = [queue.event() for queue in members]
    for queue in members:
        queue.end()
        queue.settle()
    single = members[0].spans([*marks, last[0]])
    seconds = slowest(members, first, last) / count
    spread = (min(single), statistics.median(single), max(single))
    return Taken("stream", count, count + warmup, seconds, *spread)


def slowest(members: Sequence[Queue], first: Sequence[Event], last: Sequence[Event]) -> float:
    """Seconds from the first to the last mark of the member that took longest."""
    return max(q.span(a, b) for q, a, b in zip(members, first, last, strict=True))


def micro(position: int, size: int, products: Sequence[float], copies: Sequence[float]) -> Micro:
    """Return the results of a GPU alone, from the seconds of each run; copies of `size` bytes."""
    return Micro(
        gpu=position, gemm_seconds=statistics.median(products), gemm_low=min(products),
        gemm_high=max(products), copy_bytes=size, copy_seconds=statistics.median(copies),
        copy_low=min(copies), copy_high=max(copies), gemm_mean=statistics.mean(products),
        copy_mean=statistics.mean(copies),
    )  # fmt: skip


def copy_all(
    gpus: Sequence[Q], plan: Plan, copy: Callable[[Q, Q, int], None], direct: Callable[[Q, Q], bool]
) -> list[Copy]:
    """Every directed pair: disjoint pairs at once, both directions together."""
    found: list[Copy] = []
    for pairs in rounds(len(gpus)):
        ways = [(gpus[a], gpus[b]) for pair in pairs for a, b in (pair, reversed(pair))]
        marks = []
        for source, destination in ways:
            source.begin()
            # The first copy brings all pairs of the round to work; the others are timed.
            copy(source, destination, plan.copy_bytes)
            first = source.event()
            for _ in range(plan.copies):
                copy(source, destination, plan.copy_bytes)
            marks.append((first, source.event()))
            source.end()
        for source, _ in ways:
            source.settle()
        found += [
            Copy(
                source=a.rank, destination=b.rank, size_bytes=plan.copy_bytes,
                seconds=a.span(*mark) / plan.copies, runs=plan.copies + 1, direct=direct(a, b),
            )
            for (a, b), mark in zip(ways, marks, strict=True)
        ]  # fmt: skip
    return found
