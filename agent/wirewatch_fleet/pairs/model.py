"""The parts and measurements of rounds, as values. Rates are in bytes per second, losses are shares."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, ClassVar

from annotated_types import Gt, Le, Len

from wirewatch.core.pairs import FAILED_LOSS, Measure, PartKind, Way

Name = Annotated[str, Len(1, 253)]
Rate = Annotated[float, Gt(0), Le(1e15)]
"""Bytes per second."""
Rails = Mapping[Name, tuple[Rate | None, Rate | None]]


@dataclass(frozen=True, slots=True)
class StrictPart:
    """A part of a document that refuses unknown keys and non-finite numbers."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}


class RoundPurpose(StrEnum):
    """For what the pairs of a round were chosen."""

    RANDOM = "random"
    ACROSS = "across"
    INSIDE = "inside"
    CONFIRM = "confirm"
    ALONE = "alone"
    QUEUES = "queues"


@dataclass(frozen=True, slots=True)
class PairMember(StrictPart):
    """A node, or a clique of `nodes` (NVL72) that runs as one. `leaf`: its leaf or rack, "" if not known."""

    name: Name
    leaf: str = ""
    nodes: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class PairFleet:
    """All members, in any order, each name once."""

    members: tuple[PairMember, ...]

    def leafs(self) -> dict[str, str]:
        """Return the known leafs of members."""
        return {one.name: one.leaf for one in self.members if one.leaf}


@dataclass(frozen=True, slots=True)
class PairRound:
    """What to run at once: pairs of names, each name at most once. `resting`: idle, and in no pair.

    `queue_pairs`: of each connection; 0 for as many as the work has.
    """

    number: int
    purpose: RoundPurpose
    pairs: tuple[tuple[str, str], ...]
    resting: tuple[str, ...] = ()
    queue_pairs: int = 0

    def alone(self, leafs: Mapping[str, str]) -> frozenset[tuple[str, str]]:
        """Return the pairs whose routes no other pair of the round can share, as far as is known.

        In a known leaf only one pair may run, with no other from or to it; else one pair at a time.
        """
        if len(self.pairs) == 1:
            return frozenset(self.pairs)
        used = Counter(leaf for pair in self.pairs for leaf in {leafs.get(name, "") for name in pair})
        if used[""]:
            return frozenset()
        return frozenset(pair for pair in self.pairs if all(used[leafs[name]] == 1 for name in pair))


@dataclass(frozen=True, slots=True)
class PairEnd(StrictPart):
    """What one node of a pair saw around the run.

    `transport`: of NCCL's log, or gloo. `gpudirect`: whether all of it went from GPU to NIC; null where the
    log does not say. `sent`, `received`: bytes by port. `errors`: what grew, by port or GPU and kind.
    `congestion`: signs of a full network, by port and kind, also those that did not grow.
    """

    transport: str = ""
    gpudirect: bool | None = None
    versions: dict[str, str] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    congestion: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairRun(StrictPart):
    """A pair in one round, bytes per second: `sends` from the first to the second, `receives` back.

    `rails`: the same two for each rail alone. What was not measured is null, or not in `rails`; `failed` says
    why where nothing was: a pair that did not start, ended early, or gave no answer. `ends`: what each of the
    two saw, by its name.
    """

    first: Name
    second: Name
    sends: Rate | None = None
    receives: Rate | None = None
    all_reduce: Rate | None = None
    rails: Rails = field(default_factory=dict)
    failed: str = ""
    ends: Mapping[Name, PairEnd] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Return whether it measured anything."""
        every = [self.sends, self.receives, self.all_reduce, *(x for two in self.rails.values() for x in two)]
        return not self.failed and any(one is not None for one in every)


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """A completed round, with a value for each of its pairs, or for each pair with an answer."""

    round: PairRound
    runs: Sequence[PairRun]


@dataclass(frozen=True, slots=True)
class SlowPlace:
    """A part of the fleet. `peer`: the receiver of a pair. `rail`: where it is slow on this one alone.

    `across`: of a leaf, only towards other leafs: its uplinks.
    """

    kind: PartKind
    name: str
    peer: str = ""
    rail: str = ""
    across: bool = False


@dataclass(frozen=True, slots=True)
class WayLoss:
    """How slow in one direction: a share of what is typical; `low`, `high`: two standard deviations from it.

    `slow` of `runs` runs with `partners` partners showed it; `deviations`: in those of healthy parts. In
    `alone` runs no other pair of the round could share its routes, and `alone_slow` of them were slow.
    """

    way: Way
    loss: float
    low: float
    high: float
    slow: int
    runs: int
    partners: int
    deviations: float
    alone: int = 0
    alone_slow: int = 0


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part that is named, or suspected: where, in which directions, and in what it was seen."""

    place: SlowPlace
    measure: Measure
    losses: tuple[WayLoss, ...]

    @property
    def loss(self) -> float:
        """Return the greatest loss of its directions."""
        return max(one.loss for one in self.losses)


@dataclass(frozen=True, slots=True)
class PairLimits:
    """Limits for naming a part. `least`: the smallest loss to name, as a share.

    `error`: how often a healthy fleet may have a part named. `failed`: least loss of a FAILED part. `first`:
    rounds in which all idle members run; `most`: rounds in all, plus at most `quiet` rounds in which pairs
    run alone. `alone`: runs alone needed to name a node or pair. `queue_pairs`: of a connection, tried where
    routes are shared; 0 to try none.
    """

    least: float = 0.03
    error: float = 0.0005
    failed: float = FAILED_LOSS
    first: int = 3
    most: int = 8
    quiet: int = 12
    alone: int = 3
    queue_pairs: int = 0


DEFAULT_LIMITS = PairLimits()


def asked_limits(percent: float, rounds: int, queue_pairs: int = 0) -> PairLimits:
    """Return the limits of a command: name parts so many percent slower, after so many rounds at most.

    With fewer rounds than a suspicion needs, no rounds of pairs alone follow.
    """
    usual, enough = DEFAULT_LIMITS, rounds >= DEFAULT_LIMITS.first
    return replace(
        usual, least=percent / 100, first=min(rounds, usual.first), most=rounds,
        quiet=usual.quiet if enough else 0, queue_pairs=queue_pairs if enough else 0,
    )  # fmt: skip
