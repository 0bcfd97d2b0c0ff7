"""A fold over readings: which changes are findings, and when a topology is learned. Pure."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import Strict
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Finding, Health, OperatorNote, Subject
from wirewatch.core.words import day
from wirewatch.verdict.drift.baseline import Accepted, Baseline, unread
from wirewatch.verdict.drift.change import ChangeKind, TopologyChange, severity
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.wiring import Aspect, Graph, NicNode, listed
from wirewatch.verdict.ledger import DAY


@dataclass(frozen=True, slots=True)
class DriftPolicy(Strict):
    """When a change of the topology is a finding, and when a topology is learned."""

    confirm: int = 2
    """Readings in a row that must show a change: a single one while the driver starts raises no alarm."""
    learn: int = 3
    """Readings in a row that must be alike, with nothing wrong, before they are the baseline."""
    replaced_for: Seconds = DAY
    """How long a replaced part is DEGRADED, unless an operator accepts it. [seconds]"""

    def wrong(self) -> str:
        """Say what cannot be meant; empty when all can."""
        if not 0 <= self.replaced_for < math.inf:
            return "must not be below 0: 'replaced_for'"
        counts = {"confirm": self.confirm, "learn": self.learn}
        return "; ".join(f"{name} must be at least 1" for name, count in counts.items() if count < 1)


LEARNER = "wirewatch"
"""The name under which a learned baseline is accepted."""


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """One change, in how many readings in a row it was seen, and since when (Unix seconds)."""

    change: TopologyChange
    streak: int
    since: float

    @property
    def key(self) -> tuple[ChangeKind, str]:
        """A GPU that loses one more link goes on losing links."""
        return (self.change.kind, self.change.part)


_WIRES = frozenset({Aspect.NVLINK, Aspect.PEERS, Aspect.PRODUCT})
_GPU, _NIC = frozenset({"gpu"}), frozenset({"nic"})
HIDES: Mapping[ChangeKind, tuple[frozenset[Aspect], frozenset[str]]] = {
    **dict.fromkeys((ChangeKind.GPU_LOST, ChangeKind.GPU_NEW), (frozenset(), _GPU)),
    ChangeKind.GPU_REPLACED: (frozenset({Aspect.PLACE}), _GPU),
    ChangeKind.GPU_PRODUCT: (frozenset({Aspect.PRODUCT}), _GPU),
    **dict.fromkeys((ChangeKind.NVLINK_LOST, ChangeKind.NVLINK_NEW), (_WIRES, _GPU)),
    **dict.fromkeys((ChangeKind.NVLINK_PEER, ChangeKind.ISLAND), (_WIRES, _GPU)),
    ChangeKind.CLIQUE: (frozenset({Aspect.CLIQUE}), _GPU),
    **dict.fromkeys((ChangeKind.NIC_LOST, ChangeKind.NIC_NEW), (frozenset(), _NIC)),
    ChangeKind.NIC_REPLACED: (frozenset({Aspect.PLACE}), _NIC),
    ChangeKind.NIC_MODEL: (frozenset({Aspect.PRODUCT}), _NIC),
    ChangeKind.NIC_FIRMWARE: (frozenset({Aspect.FIRMWARE}), _NIC),
    ChangeKind.NIC_PORTS: (frozenset({Aspect.PORTS}), _NIC),
    ChangeKind.PCIE_PATH: (frozenset({Aspect.PATHS, Aspect.PLACE, Aspect.NUMA, Aspect.NODES}), _GPU | _NIC),
    ChangeKind.PCIE_PLACE: (frozenset({Aspect.PLACE, Aspect.NUMA, Aspect.NODES}), _GPU | _NIC),
    ChangeKind.NUMA: (frozenset({Aspect.NODES}), frozenset()),
    ChangeKind.VERSION: (frozenset({Aspect.VERSION}), frozenset()),
}
"""Aspects that must be known of a change's parts to see that it is over; for some parts, all names."""
Undone = tuple[tuple[Accepted, int], ...]
"""Accepted changes, each with how many readings in a row showed its part as it was before."""


@dataclass(frozen=True, slots=True)
class DriftWatch:
    """The newest `graph`, and changes `seen` that are not accepted; changes that cannot be seen now stay.

    `same`: readings in a row that were alike and well; `learning`: why nothing is learned yet. `against`: the
    graph and statement of the baseline. `back`: accepted changes that are not seen any more.
    """

    graph: Graph | None = None
    seen: tuple[WatchedChange, ...] = ()
    same: int = 0
    learning: str = ""
    against: tuple[Graph, OperatorNote] | None = None
    back: Undone = ()


_KINDS = frozenset(kind.value for kind in ChangeKind)
"""A file of a later agent may know more."""
_LOST = frozenset({ChangeKind.GPU_LOST, ChangeKind.NIC_LOST})


def fold_drift(
    memory: DriftWatch,
    baseline: Baseline | None,
    graph: Graph,
    at: float,
    doubts: Sequence[str],
    policy: DriftPolicy,
    away: AbstractSet[str] = frozenset(),
) -> tuple[DriftWatch, Baseline | None]:
    """Fold one more reading (at Unix seconds); `baseline` None: learn one, but not while there are `doubts`.

    `away`: keys of parts in `graph` that a pod or a guest was given, which are taken to be as they were.
    Returns the new memory, and another baseline where it changes. It was learned just now, or it lacks
    accepted changes that are over: the same change is then found when it happens again.
    """
    if baseline is not None:
        new = _compared(memory, baseline, graph, at, policy, away)
        over = {one for one, count in new.back if count >= policy.confirm}
        kept = tuple(one for one in baseline.accepted if one not in over)
        return new, None if kept == baseline.accepted else replace(baseline, accepted=kept)
    alike = memory.same + 1 if memory.graph == graph else 1
    same = 0 if doubts else alike
    if same < policy.learn:
        reason = "; ".join(doubts) or f"{same} of {policy.learn} readings alike, nothing wrong"
        return DriftWatch(graph, same=same, learning=reason), None
    said = OperatorNote(LEARNER, f"learned: {same} readings alike, nothing wrong", at)
    return DriftWatch(graph, against=(graph, said)), Baseline(graph, said, "learned")


def standing(memory: DriftWatch, baseline: Baseline) -> Iterator[WatchedChange]:
    """Changes that were seen against this baseline and are not accepted in it."""
    if memory.against == (baseline.graph, baseline.said):
        yield from (one for one in memory.seen if not is_accepted(baseline, one.change))


def is_accepted(baseline: Baseline, change: TopologyChange) -> bool:
    return any(one.covers(change) for one in baseline.accepted)


def counts(memory: DriftWatch) -> Mapping[ChangeKind, int]:
    """Return how many changes are not accepted, information included, by kind."""
    return {kind: sum(one.change.kind is kind for one in memory.seen) for kind in ChangeKind}


def name_of(change: TopologyChange) -> str:
    """Eight hexadecimal digits by which a person names a change."""
    return _name(change.kind.value, change.part, change.before, change.after)


def name_of_accepted(one: Accepted) -> str:
    """The same of a change that was accepted."""
    return _name(one.kind, one.part, one.before, one.after)


def _name(*words: str) -> str:
    return hashlib.blake2s("|".join(map(repr, words)).encode(), digest_size=4).hexdigest()


def accept_all(memory: DriftWatch, said: OperatorNote) -> Baseline | str:
    """The newest reading as the baseline; or why it cannot be, in words."""
    if memory.graph is None:
        return "the topology was not read yet"
    if not memory.graph.gpus:
        return "no GPU is here"
    missing = unread(memory.graph)
    if missing:
        return f"not known now: {listed(memory.graph, missing)}"
    return Baseline(memory.graph, said, "accepted")


def accept_one(baseline: Baseline, memory: DriftWatch, name: str, said: OperatorNote) -> Baseline | str:
    """The baseline with one change accepted, by `name_of`; or why not, in words."""
    found = next((one.change for one in standing(memory, baseline) if name_of(one.change) == name), None)
    if found is None:
        names = ", ".join(name_of(one.change) for one in standing(memory, baseline))
        return f"there is no change {name}{f'; there are {names}' if names else ', and no other'}"
    accepted = Accepted(found.kind.value, found.part, found.before, found.after, found.text, said)
    return replace(baseline, accepted=(*baseline.accepted, accepted))


def take_back(baseline: Baseline, name: str) -> Baseline | str:
    """Return the baseline without an accepted change, or the baseline before, without a name; or why not."""
    if not name:
        return baseline.before or "no baseline is known that held before this one"
    left = tuple(one for one in baseline.accepted if name_of_accepted(one) != name)
    if left == baseline.accepted:
        return f"no change {name} was accepted"
    return replace(baseline, accepted=left)


def counting(memory: DriftWatch, baseline: Baseline, new: Baseline) -> Iterator[TopologyChange]:
    """Yield changes against this baseline that the new baseline no longer counts."""
    after = () if memory.graph is None else diff(new.graph, memory.graph)
    for one in (each.change for each in standing(memory, baseline)):
        stays = new.graph == baseline.graph or one in after
        if not stays or is_accepted(new, one):
            yield one


def accepted_losses(memory: DriftWatch, baseline: Baseline) -> Iterator[Accepted]:
    """Accepted changes that are there now, and would be FAILED without that word."""
    if memory.graph is None or not baseline.accepted:
        return
    for change in diff(baseline.graph, memory.graph):
        if severity(change).health is Health.FAILED:
            yield from (one for one in baseline.accepted if one.covers(change))


def is_hidden(change: TopologyChange, before: Graph, after: Graph) -> bool:
    """Whether something is not known now, and was before, without which the change would not be found."""
    new = set(after.unknown) - set(before.unknown)
    whats, names = HIDES[change.kind]
    # The lasting names of other parts stand in `before` and `after`; that of the node is empty.
    parts, gpus = f"{change.part} {change.before} {change.after}", {gpu.key for gpu in after.gpus}
    return any(
        (one.what in whats and one.part in parts)
        or (one.what is Aspect.NAME and ("gpu" if one.part in gpus else "nic") in names)
        for one in new
    )


def findings(memory: DriftWatch, baseline: Baseline, policy: DriftPolicy, at: float) -> tuple[Finding, ...]:
    """Return one finding for each rule and part; a replaced part is DEGRADED for `replaced_for` seconds."""
    graphs = [graph for graph in (memory.graph, baseline.graph) if graph]
    groups = grouped(
        ((one.change.kind.value, _subject(one.change, graphs), health), one)
        for one in standing(memory, baseline)
        if one.streak >= policy.confirm and (health := _health(one, policy, at)) is not Health.OK
    )
    basis = f"since the baseline of {day(baseline.said.at)} by {baseline.said.by}"
    return tuple(
        Finding(
            f"topology.{kind}",
            health,
            subject,
            "; ".join((*(one.change.text for one in group), basis)),
            severity(group[0].change).action,
            since=group[0].since,
        )
        for (kind, subject, health), group in groups.items()
    )


def _compared(
    memory: DriftWatch, baseline: Baseline, graph: Graph, at: float, policy: DriftPolicy,
    away: AbstractSet[str],
) -> DriftWatch:  # fmt: skip
    past = list(standing(memory, baseline))
    known = {one.key: one for one in past}
    changes = diff(baseline.graph, graph)
    now = []
    for new in (WatchedChange(one, 1, at) for one in changes if not is_accepted(baseline, one)):
        one = known.get(new.key)
        now.append(new if one is None else replace(one, change=new.change, streak=one.streak + 1))
    here = {one.key for one in now}
    # A part that is lost takes its other changes with it: those stand until the loss is sure as well.
    unsure = any(one.streak < policy.confirm for one in now)
    now += [
        one
        for one in past
        if one.key not in here
        and ((unsure and one.streak >= policy.confirm) or is_hidden(one.change, baseline.graph, graph))
    ]
    order = list(ChangeKind)
    ordered = tuple(sorted(now, key=lambda one: order.index(one.change.kind)))
    gone = _back(memory.back, baseline, changes, graph, away)
    return DriftWatch(graph, ordered, against=(baseline.graph, baseline.said), back=gone)


def _back(
    before: Undone, baseline: Baseline, changes: Sequence[TopologyChange], graph: Graph,
    away: AbstractSet[str],
) -> Undone:  # fmt: skip
    """Count after one more reading; a reading that does not show it neither counts nor starts again."""
    # A change that is not accepted may stand in the place of one that was.
    plain = all(is_accepted(baseline, change) for change in changes)
    gone = [one for one in baseline.accepted if not any(map(one.covers, changes))]
    known = dict(before)
    counts = {one: known.get(one, 0) + (plain and _shown(one, baseline.graph, graph, away)) for one in gone}
    return tuple((one, count) for one, count in counts.items() if count)


def _shown(one: Accepted, before: Graph, now: Graph, away: AbstractSet[str]) -> bool:
    """Tell whether the change would be among the changes if it were still there."""
    if one.kind not in _KINDS:
        return False
    had, have = ({part.key for part in graph.parts} for graph in (before, now))
    change = TopologyChange(ChangeKind(one.kind), one.part, one.before, one.after, one.text, worse=False)
    is_here = one.part in have or one.part not in had
    lent = any(key in f"{one.part} {one.before} {one.after}" for key in away)
    return is_here and not lent and not is_hidden(change, before, now)


def _health(seen: WatchedChange, policy: DriftPolicy, at: float) -> Health:
    how = severity(seen.change)
    on_probation = how.probation and at - seen.since < policy.replaced_for
    return max(how.health, Health.DEGRADED) if on_probation else how.health


def _subject(change: TopologyChange, graphs: Sequence[Graph]) -> Subject:
    """Return the part as the newest graph, the first, calls it; a lost part as it was called."""
    if not change.part:
        return Subject()
    ordered = reversed(graphs) if change.kind in _LOST else graphs
    part = next((part for graph in ordered for part in graph.parts if part.key == change.part), None)
    if part is None:
        is_nic = change.kind.value.startswith("nic_")
        return Subject(device=change.part) if is_nic else Subject(uuid=change.part)
    if isinstance(part, NicNode):
        return Subject(device=part.device)
    return Subject(gpu=str(part.index), uuid=part.uuid)
