"""What the changes since the baseline amount to."""

from collections.abc import Iterator
from datetime import UTC, datetime

from wirewatch.core.types import Finding, Health, Subject
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.change import Change, Kind
from wirewatch.verdict.drift.graph import Graph, NicNode, Node
from wirewatch.verdict.drift.policy import DriftPolicy
from wirewatch.verdict.drift.severity import severity
from wirewatch.verdict.drift.watch import Memory, Seen, standing

_LOST = frozenset({Kind.GPU_LOST, Kind.NIC_LOST})


def findings(memory: Memory, baseline: Baseline, policy: DriftPolicy, at: float) -> tuple[Finding, ...]:
    """One for each rule and part, `topology.<kind>`; none for what is information or not yet sure.

    A replaced part is DEGRADED for `policy.replaced_for` seconds, and information after that.
    """
    groups: dict[tuple[str, Subject], list[tuple[Seen, Health]]] = {}
    for one in standing(memory, baseline):
        health = _health(one, policy, at)
        if one.streak >= policy.confirm and health is not Health.OK:
            key = (f"topology.{one.change.kind.value}", _subject(one.change, memory.graph, baseline.graph))
            groups.setdefault(key, []).append((one, health))
    return tuple(
        Finding(
            rule,
            max(health for _, health in told),
            subject,
            "; ".join((*(one.change.text for one, _ in told), _basis(baseline))),
            severity(told[0][0].change).action,
            since=min(one.since for one, _ in told),
        )
        for (rule, subject), told in groups.items()
    )


def _health(seen: Seen, policy: DriftPolicy, at: float) -> Health:
    how = severity(seen.change)
    on_probation = how.probation and at - seen.since < policy.replaced_for
    return max(how.health, Health.DEGRADED) if on_probation else how.health


def _basis(baseline: Baseline) -> str:
    said = baseline.said
    day = datetime.fromtimestamp(said.at, UTC).strftime("%Y-%m-%d")
    return f"since the baseline of {day} by {said.by}"


def _subject(change: Change, now: Graph | None, before: Graph) -> Subject:
    """The part as it is called now; a lost one as it was called."""
    if not change.part:
        return Subject()
    part = next((part for part in _parts(change, now, before) if part.key == change.part), None)
    if part is None:
        is_nic = change.kind.value.startswith("nic_")
        return Subject(device=change.part) if is_nic else Subject(uuid=change.part)
    if isinstance(part, NicNode):
        return Subject(device=part.device)
    return Subject(gpu=str(part.index), uuid=part.uuid)


def _parts(change: Change, now: Graph | None, before: Graph) -> Iterator[Node]:
    newest = now.parts if now is not None else ()
    yield from (*before.parts, *newest) if change.kind in _LOST else (*newest, *before.parts)
