"""Which metrics a fault changes, by the series of a node without it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tools.faults.daemon import ReplayedDaemon
from tools.faults.height import LONGEST, RECORDING, Found, Height, healthy
from wirewatch.catalogue import components
from wirewatch.core.types import Metric

_SAME = 1e-9
Key = tuple[str, tuple[str, ...]]
"""Name of a metric, and the values of its labels."""
Series = Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class Changed:
    """Names of metrics, those of the findings' collectors first.

    `changed`: a fault changed or made series of these; `vanished`: they lost some, and that is all.
    `primary`: the one that shows the worst finding best, empty where none does.
    """

    changed: tuple[str, ...]
    vanished: tuple[str, ...]
    primary: str


def changed(height: Height) -> Changed:
    """The metrics whose series are others than on a node without the fault."""
    usual, now = _usual(height), _series(height.daemon)
    moved = _differing(usual, now) - _unsteady()
    owners = dict.fromkeys(one.collector for one in height.found)
    every = components()
    ranked = [*(one for name in owners for one in every if one.name == name), *every]
    touched = {name for name, _ in moved}
    metrics = {one.name: one for part in ranked for one in part.metrics if one.name in touched}
    there = {name for name, labels in moved if (name, labels) in now}
    best = max(metrics.values(), key=lambda one: _fits(one, moved, height.found), default=None)
    return Changed(
        tuple(name for name in metrics if name in there),
        tuple(name for name in metrics if name not in there),
        best.name if best and height.found else "",
    )


def _series(daemon: ReplayedDaemon) -> Series:
    return {
        (one.metric.name, one.labels): one.value
        for component in daemon.state.components.values()
        for one in component.samples
    }


def _differing(one: Series, other: Series) -> frozenset[Key]:
    """The series that only one of the two has, or that have another value."""
    same = (key for key in one.keys() & other.keys() if abs(one[key] - other[key]) <= _SAME)
    return frozenset(one.keys() | other.keys()) - frozenset(same)


@cache
def _unsteady() -> frozenset[Key]:
    """Series of the healthy node that are others after a while, as times and counts of probes."""
    later = healthy().fork()
    later.play(LONGEST / 2)
    return _differing(_series(healthy()), _series(later))


def _usual(height: Height) -> Series:
    """Series of the healthy node, of a daemon as old as that of the fault where this began with it."""
    if height.began > 0:
        return _series(healthy())
    twin = ReplayedDaemon.on(RECORDING, [])
    twin.play(height.daemon.seconds)
    return _series(twin)


def _fits(metric: Metric, moved: Iterable[Key], found: Sequence[Found]) -> tuple[bool, int, bool]:
    """How well a metric shows the worst finding: of its collector, with labels of its part, and drawn."""
    if not found:
        return (False, 0, False)
    own = any(one.name == found[0].collector and metric in one.metrics for one in components())
    part = set(found[0].subject.levels().values())
    best = max(len(part & set(labels)) for name, labels in moved if name == metric.name)
    return (own, best, not metric.undrawn)
