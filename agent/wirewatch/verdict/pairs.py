"""A campaign's result about this node, as a component; an operator's step reports it here.

Nothing here was measured by this node alone. A finding ends when a newer result clears the named part, when
an operator acknowledges it, or when the result is old.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Protocol

from annotated_types import Ge, Gt, Le, Len

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import CONFIRMED, DEGRADED, UNKNOWN, Collector, Options, Rule, Strict
from wirewatch.core.pairs import FAILED_LOSS, Measure, PartKind, Way
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Expect, Finding, Health, Ok, Sample, Subject, family
from wirewatch.core.words import count, utc
from wirewatch.verdict.ledger import DAY

NAME = "pairs"
MOST_PARTS, MOST_PARTNERS = 32, 100
LATER = 300.0
"""Seconds by which a result may lie in the future: the clocks of two machines differ."""
_NEWER = "once it is repaired, let the fleet's pairs run again; a newer result clears the finding"
SLOW = Rule(
    "pairs.slow",
    CONFIRMED,
    means="measurements between pairs of nodes show that this node, or one of its rails, sends or receives "
    "more slowly than the fleet typically does, with several partners. A loss of 30 % or more "
    "(`[policy.pairs] failed`) is FAILED; a smaller one, and one of a clique that ran as one, is DEGRADED. "
    "The result came by `wirewatch fleet tell` and lasts a day (`[policy.pairs] lasts`), or until a newer "
    "result",
    look="the direction, rail, loss and partners in `wirewatch findings show ID`; the node's NICs alone, "
    "without a second node (`wirewatch probe --transport net`); `wirewatch topology diff` and the ports of "
    "the rail",
    do=f"check its ports, cables and PCIe, first with `wirewatch probe --transport net`; {_NEWER}",
    rehearse="it takes a second node: `wirewatch fleet tell RESULT.json --node NAME` beside a demo",
)
ROUTE = Rule(
    "pairs.route",
    DEGRADED,
    means="measurements between pairs of nodes show that the path between this node and another, or from "
    "its leaf to others, is slow, while the node is fast with others. The node itself is not at fault",
    look="the other end, or the leaf, in `wirewatch findings show ID`",
    do=f"check the route: switches, uplinks and cables between the two; {_NEWER}",
    rehearse="it takes other nodes: `wirewatch fleet tell RESULT.json --node NAME` beside a demo",
)
KEPT = Rule(
    "pairs.kept",
    UNKNOWN,
    means="the result of pairs of nodes about this node can no longer be read from the state folder",
    look="the file that the finding names, and where it was put",
    do="see the file named here; let the fleet's pairs run again, or restart the agent to go on without the "
    "result",
    rehearse="write nonsense to `pairs.json` of the state folder and restart the agent",
)
LOSS = family(
    "pairs_loss_ratio", ("kind", "way"),
    "The greatest share of the fleet's typical speed that pairs of nodes found lost, by what is slow (this "
    "node, a pair that it is in, its leaf) and direction; no series where nothing is.",
    "every fabric but Ethernet", undrawn="each loss is a finding, and findings are drawn",
)  # fmt: skip
AGE = family(
    "pairs_result_timestamp_seconds",
    (),
    "When the newest result of pairs of nodes that this node knows was measured.",
    undrawn="a time that is of use beside the findings alone",
)
Share = Annotated[float, Ge(0), Le(1)]
PartName = Annotated[str, Len(0, 253)]
RailName = Annotated[str, Len(0, 64)]
Moment = Annotated[float, Gt(0), Le(2.5e11)]
"""Unix seconds, before the year 9892."""


@dataclass(frozen=True, slots=True)
class _Reported:
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class PairsLoss(_Reported):
    """How slow in one direction: the share lost, its lower and upper bound, in how many runs and partners."""

    way: Way
    loss: Share
    low: Annotated[float, Ge(-1), Le(1)]
    high: Annotated[float, Ge(-1), Le(2)]
    slow: Annotated[int, Ge(0), Le(1000)]
    runs: Annotated[int, Ge(0), Le(1000)]
    partners: Annotated[int, Ge(0), Le(1000)]


@dataclass(frozen=True, slots=True)
class PairsPart(_Reported):
    """A slow part: this node, a pair that it is in (`name` sends to `peer`), or its leaf.

    `rail`: on this rail alone. `across`: of a leaf, towards other leafs alone. `at`: when it was measured.
    """

    kind: PartKind
    name: PartName
    peer: PartName
    rail: RailName
    across: bool
    measure: Measure
    losses: Annotated[tuple[PairsLoss, ...], Len(1, len(Way))]
    at: Moment

    @property
    def key(self) -> tuple[object, ...]:
        """The key by which two of them are the same part, whenever it was measured."""
        return (self.kind, self.name, self.peer, self.rail, self.across, self.measure)

    @property
    def finds(self) -> tuple[str, Subject]:
        """Rule and subject of its finding; a rail that is only a number is not the name of a device."""
        rule = SLOW if self.kind is PartKind.NODE else ROUTE
        return (rule.name, Subject(device=f"rail{self.rail}" if self.rail.isdigit() else self.rail))


@dataclass(frozen=True, slots=True)
class PairsResult(_Reported):
    """One campaign's word on this node; `at`: when it was measured, Unix seconds.

    `member`: under which name it took part, `nodes`: how many nodes that name stands for. `judged`: all that
    was measured is known to be well but for `parts`; else it only adds them. `measured`: what every pair
    measured, each with whether across leafs, None where leafs are not known. `partners`: of this member.
    """

    at: Moment
    member: Annotated[str, Len(1, 253)]
    nodes: Annotated[int, Ge(1), Le(1000)]
    judged: bool
    parts: Annotated[tuple[PairsPart, ...], Len(0, MOST_PARTS)]
    measured: Annotated[tuple[tuple[Measure, bool | None], ...], Len(0, 16)]
    partners: Annotated[tuple[PartName, ...], Len(0, MOST_PARTNERS)]

    def clears(self, part: PairsPart) -> bool:
        """Tell whether this result, which does not name an earlier part, says that it is well."""
        kinds = [across for measure, across in self.measured if measure is part.measure]
        if part.kind is PartKind.PAIR and not {part.name, part.peer} & {*self.partners}:
            return False
        far = any(across is not False for across in kinds)
        return self.judged and bool(kinds) and (far or not part.across)


def after(known: PairsResult | None, new: PairsResult) -> PairsResult:
    """Return the result that holds after a newer result: parts that it neither names nor clears stay."""
    named = {part.key for part in new.parts}
    stay = () if known is None else known.parts
    kept = (part for part in stay if part.key not in named and not new.clears(part))
    return replace(new, parts=(*(replace(part, at=new.at) for part in new.parts), *kept)[:MOST_PARTS])


def without(known: PairsResult, finds: tuple[str, Subject]) -> PairsResult:
    """The result that holds once an operator has acknowledged the finding with this rule and subject."""
    return replace(known, parts=tuple(part for part in known.parts if part.finds != finds))


def unfit(result: PairsResult) -> str:
    """Say what is wrong with a result of the right types; empty for nothing."""
    words = (word for part in result.parts for word in (part.name, part.peer, part.rail))
    if not all(name.isprintable() for name in (result.member, *result.partners, *words)):
        return "a name that cannot be printed"
    if any(part.kind is PartKind.RAIL for part in result.parts):
        return "a rail of the whole fleet concerns no node"
    return ""


@dataclass(frozen=True, slots=True)
class PairsOptions(Options):
    """Whether this node takes what pairs of nodes found out about it."""

    interval: Seconds = 60.0
    """Time between two looks at how old the result is; a new one is judged at once. [seconds]"""


@dataclass(frozen=True, slots=True)
class PairsPolicy(Strict):
    """Limits by which a result of pairs of nodes makes this node FAILED, or is too old."""

    failed: float = FAILED_LOSS
    """Loss of the node's speed from which on it is FAILED, above 0 and at most 1. [share]"""
    lasts: Seconds = DAY
    """How long a result holds, from when it was measured. [seconds]"""

    def wrong(self) -> str:
        """Say what cannot be meant; empty when all can."""
        if not 0 < self.failed <= 1:
            return "must be above 0 and at most 1: 'failed'"
        return "" if 0 < self.lasts < math.inf else "must be above 0: 'lasts'"


class PairsResultHolder(Protocol):
    """Keeps the reported result over restarts; `trouble` says why what was kept cannot be used, if so."""

    @property
    def result(self) -> PairsResult | None: ...

    @property
    def trouble(self) -> str: ...


@dataclass(frozen=True, slots=True)
class HeldResult:
    """The result that is held; `trouble`: why what was kept cannot be used, empty where it can."""

    result: PairsResult | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class PairsMemory:
    """The parts that count now, and for how many seconds a result does."""

    parts: tuple[PairsPart, ...] = ()
    lasts: float = DAY


NOTHING_HELD = HeldResult()


def pairs_component(
    options: PairsOptions, policy: PairsPolicy, holder: PairsResultHolder = NOTHING_HELD
) -> Collector[HeldResult, PairsMemory, PairsOptions, PairsPolicy]:
    return Collector(
        name=NAME,
        about="what pairs of nodes found out about this node",
        lane="files",
        options=options,
        policy=policy,
        metrics=(LOSS, AGE),
        start=PairsMemory(),
        read=lambda _hardware, _memory, _options: HeldResult(holder.result, holder.trouble),
        samples=samples,
        judge=judge,
        applicable=lambda reading: reading.result is not None,
        rules=(SLOW, ROUTE, KEPT),
        series=3 * len(Way) + 1,
    )


def judge(
    _memory: PairsMemory, ok: Ok[HeldResult], policy: PairsPolicy, _expect: Expect
) -> tuple[PairsMemory, tuple[Finding, ...]]:
    """A finding for the node, each of its rails and its routes, from what is not older than `lasts`."""
    reading = ok.value
    lost = (KEPT.finding(Subject(), reading.trouble),) if reading.trouble else ()
    if reading.result is None:
        return PairsMemory((), policy.lasts), lost
    parts = tuple(part for part in reading.result.parts if ok.at - part.at < policy.lasts)
    by_finding = grouped((part.finds, part) for part in parts)
    found = (_finding(some, reading.result, policy) for some in by_finding.values())
    return PairsMemory(parts, policy.lasts), (*found, *lost)


def samples(reading: HeldResult, memory: PairsMemory) -> Iterator[Sample]:
    """The greatest loss by kind and direction, and when the newest result was measured (Unix seconds)."""
    losses = grouped(((part.kind, one.way), one.loss) for part in memory.parts for one in part.losses)
    for (kind, way), lost in losses.items():
        yield LOSS.sample(max(lost), kind.value, way.value)
    if reading.result is not None:
        yield AGE.sample(reading.result.at)


def _finding(parts: list[PairsPart], result: PairsResult, policy: PairsPolicy) -> Finding:
    """Return the finding of parts with one rule and subject: an event, which an operator can acknowledge."""
    rule = SLOW if parts[0].kind is PartKind.NODE else ROUTE
    loss = max(one.loss for part in parts for one in part.losses)
    failed = rule is SLOW and result.nodes == 1 and loss >= policy.failed
    evidence = "; ".join(_evidence(part, result) for part in parts)
    made = rule.finding(parts[0].finds[1], evidence, Health.FAILED if failed else Health.DEGRADED)
    newest = max(part.at for part in parts)
    # The time of its measurement distinguishes results, whatever clock this machine has.
    return replace(made, last=newest, stamp=newest)


_MEASURES: Mapping[Measure, str] = {
    Measure.RAILS: "sends on one rail", Measure.SEND: "sends on all rails",
    Measure.ALL_REDUCE: "an all_reduce of a pair",
}  # fmt: skip
_WAYS: Mapping[Way, str] = {Way.SENDS: "sends", Way.RECEIVES: "receives", Way.TOGETHER: "collectives are"}


def _evidence(part: PairsPart, result: PairsResult) -> str:
    ways = " and ".join(_loss(part, one) for one in part.losses)
    rail = f" on rail {part.rail}" if part.rail else ""
    return f"{_what(part, result)}{ways}{rail}, by {_MEASURES[part.measure]} of {utc(part.at)}"


def _loss(part: PairsPart, one: PairsLoss) -> str:
    way = "" if part.kind is PartKind.PAIR else f"{_WAYS[one.way]} "
    runs = f"{one.slow} of {one.runs} runs with {count(one.partners, 'partner')}"
    return f"{way}{one.loss:.1%} slower ({one.low:.1%} to {one.high:.1%}) in {runs}"


def _what(part: PairsPart, result: PairsResult) -> str:
    if part.kind is PartKind.PAIR:
        return f"{part.name} to {part.peer}: "
    if part.kind is PartKind.LEAF:
        return f"leaf {part.name}{' to other leafs' if part.across else ''}: "
    clique = f", a clique of {result.nodes} nodes that ran as one" if result.nodes > 1 else ""
    return f"as {result.member}{clique}: "
