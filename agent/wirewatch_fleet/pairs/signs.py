"""Uses counters at the ends of runs to distinguish a full network from a bad wire.

They are compared with runs of healthy members.

Unproven on hardware: no fabric with other tenants has been measured. So the answer stands beside the named
parts, and decides nothing. A receiver that drains slowly also fills the network, whatever is broken in it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from wirewatch.core.pairs import PartKind
from wirewatch_fleet.pairs.alone import CollisionLoss
from wirewatch_fleet.pairs.model import MeasuredRound, NamedPart, PairEnd, PairRun
from wirewatch_fleet.pairs.observations import across

WIRE = re.compile(
    "symbol|link_error_recovery|link_downed|port_rcv_errors|local_link_integrity|crc_err|frame_err"
)
"""Names of counters that grow with a bad wire, and not with a full network."""
FEW, TIMES, LEAST = 4, 4.0, 100
"""Thresholds: the least number of healthy ends for a comparison, the factor over their upper quartile, and
the events that mean a full network."""
MORE = 0.1
"""Share of extra bytes at a node's ports from which on they belong to others."""
MOSTLY = 0.75
"""Share of the runs that must show a sign before it counts for the part."""


class CounterSays(StrEnum):
    """What the counters say of a part; `nothing`: none of them grew more than where all is well."""

    WIRE = "wire"
    OTHERS = "others"
    FULL = "full"
    MIXED = "mixed"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class PartCounters:
    """Counters in the runs of a part that is slow, or of all where they collide (`kind` empty).

    Of `runs` with counters: `wire`, in which errors of a wire grew; `full`, in which signs of a full network
    did, by `kinds` of the kernel's names; `others`, in which a node carried more bytes than the pair's.
    """

    kind: PartKind | None
    name: str
    peer: str
    rail: str
    runs: int
    wire: int
    full: int
    others: int
    kinds: tuple[str, ...]
    says: CounterSays


def counters_of(
    parts: Sequence[NamedPart], collided: Sequence[CollisionLoss], rounds: Sequence[MeasuredRound],
    leafs: Mapping[str, str],
) -> Iterator[PartCounters]:  # fmt: skip
    """Yield the counters' result for each slow part, and for collisions, where both ends have counters."""
    bad = {name for part in parts for name in _members(part, leafs)}
    alone, shared = list[PairRun](), list[PairRun]()
    for one in rounds:
        quiet = one.round.alone(leafs)
        for run in one.runs:
            if run.answered:
                (alone if (run.first, run.second) in quiet else shared).append(run)
    for part in parts:
        mine = _members(part, leafs)
        for some in (alone, [*alone, *shared]):
            told = [run for run in some if _touches(part, mine, run)]
            found = _compared(told, [run for run in some if not bad & {run.first, run.second}])
            if found is not None:
                yield PartCounters(part.place.kind, part.place.name, part.place.peer, part.place.rail, *found)
                break
    for kind in {one.across for one in collided}:
        told, well = (
            [run for run in some if across(leafs, run.first, run.second) is kind
             and not bad & {run.first, run.second}]
            for some in (shared, alone)
        )  # fmt: skip
        if (found := _compared(told, well)) is not None:
            yield PartCounters(None, "", "", "", *found)


def _members(part: NamedPart, leafs: Mapping[str, str]) -> set[str]:
    place = part.place
    if place.kind is PartKind.LEAF:
        return {name for name, leaf in leafs.items() if leaf == place.name}
    return set() if place.kind is PartKind.RAIL else {place.name, *([place.peer] if place.peer else [])}


def _touches(part: NamedPart, mine: Collection[str], run: PairRun) -> bool:
    ends = {run.first, run.second}
    return ends == set(mine) if part.place.kind is PartKind.PAIR else bool(ends & set(mine))


_Compared = tuple[int, int, int, int, tuple[str, ...], CounterSays]


def _compared(some: Sequence[PairRun], well: Sequence[PairRun]) -> _Compared | None:
    """Return which counters grew in some runs beside healthy runs; None without a comparison."""
    usual = [end for run in well for end in _counted(run)]
    counted = [run for run in some if _counted(run)]
    if not counted or len(usual) < FEW:
        return None
    limits, told = _limits(usual), [_counted(run) for run in counted]
    # In a run that takes longer, more of what always comes goes by.
    seconds, most = median(map(_seconds, well)), (1 + MORE) * median(map(_bytes, usual))
    longer = [max(1.0, _seconds(run) / seconds) if seconds else 1.0 for run in counted]
    wire = sum(
        any(WIRE.search(name) and n for end in ends for name, n in end.errors.items()) for ends in told
    )
    seen = [{kind for end in ends for kind, n in _kinds(end).items() if n > limits.get(kind, LEAST)}
            for ends in told]  # fmt: skip
    full = sum(map(bool, seen))
    others = sum(
        any(_bytes(end) > most * more for end in ends) for ends, more in zip(told, longer, strict=True)
    )
    kinds = tuple(sorted(set().union(*seen)))
    return len(told), wire, full, others, kinds, _says(len(told), wire, full, others)


def _says(runs: int, wire: int, full: int, others: int) -> CounterSays:
    often = {
        what for what, count in (
            (CounterSays.WIRE, wire), (CounterSays.OTHERS, others), (CounterSays.FULL, full),
        ) if count >= MOSTLY * runs
    }  # fmt: skip
    if CounterSays.WIRE in often:
        return CounterSays.WIRE if len(often) == 1 else CounterSays.MIXED
    if often:
        return CounterSays.OTHERS if CounterSays.OTHERS in often else CounterSays.FULL
    return CounterSays.MIXED if wire or full or others else CounterSays.NOTHING


def _counted(run: PairRun) -> list[PairEnd]:
    """Return the ends of a run with counters of bytes and of a full network."""
    return [end for end in run.ends.values() if end.congestion and (end.sent or end.received)]


def _seconds(run: PairRun) -> float:
    """Return the relative duration of a run among runs of the same work, without a unit."""
    return sum(1 / rate for rate in (run.sends, run.receives, run.all_reduce) if rate)


def _bytes(end: PairEnd) -> int:
    return sum(end.sent.values()) + sum(end.received.values())


def _kinds(end: PairEnd) -> dict[str, int]:
    """Return the growth of each sign of a full network, at the port with the most."""
    most: dict[str, int] = {}
    for name, count in end.congestion.items():
        kind = name.rpartition(" ")[2]
        most[kind] = max(most.get(kind, 0), count)
    return most


def _limits(usual: Sequence[PairEnd]) -> dict[str, float]:
    values: dict[str, list[int]] = {}
    for end in usual:
        for kind, count in _kinds(end).items():
            values.setdefault(kind, []).append(count)
    return {kind: max(LEAST, TIMES * sorted(counts)[3 * len(counts) // 4]) for kind, counts in values.items()}
