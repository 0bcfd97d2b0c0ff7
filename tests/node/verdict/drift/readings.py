"""Readings of drawn nodes, one after the other."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from tests.node.verdict.drift.drawn import Edit, switched
from tests.node.verdict.drift.edits import Make
from wirewatch.core.types import Finding, OperatorNote
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import TopologyChange
from wirewatch.verdict.drift.watch import DriftPolicy, DriftWatch, accept_one, findings, fold_drift, name_of
from wirewatch.verdict.drift.wiring import Graph

POLICY = DriftPolicy()
SAID = OperatorNote("ada", "as delivered", 86400.0)
WORD = OperatorNote("eve", "meant", 1e9)
STEP = 300.0


def changes(memory: DriftWatch) -> tuple[TopologyChange, ...]:
    return tuple(one.change for one in memory.seen)


def streaks(memory: DriftWatch) -> tuple[int, ...]:
    return tuple(one.streak for one in memory.seen)


def since(memory: DriftWatch) -> tuple[float, ...]:
    return tuple(one.since for one in memory.seen)


def drawn(*edits: Edit, make: Make = switched) -> Graph:
    """A node with some edits."""
    box = make()
    for edit in edits:
        edit(box)
    return graph_of(box.build())


def accepted(*edits: Edit, make: Make = switched) -> Baseline:
    return Baseline(drawn(*edits, make=make), SAID, "accepted")


def compared(
    baseline: Baseline,
    graphs: Iterable[Graph],
    memory: DriftWatch | None = None,
    policy: DriftPolicy = POLICY,
) -> DriftWatch:
    """After these readings, `STEP` apart."""
    memory, now = followed(baseline, graphs, memory, policy)
    assert now is baseline
    return memory


def followed(
    baseline: Baseline, graphs: Iterable[Graph], memory: DriftWatch | None = None,
    policy: DriftPolicy = POLICY, away: AbstractSet[str] = frozenset(),
) -> tuple[DriftWatch, Baseline]:  # fmt: skip
    """The same, with what the baseline is then."""
    memory = memory or DriftWatch()
    for graph in graphs:
        at = (since(memory)[-1] if since(memory) else SAID.at) + STEP
        wrong = ("nvlink.link_down",)
        memory, new = fold_drift(memory, baseline, graph, at, wrong, policy, away)
        assert new is None or (new.graph, new.said) == (baseline.graph, baseline.said)
        assert (memory.same, memory.learning) == (0, "")
        baseline = new or baseline
    return memory, baseline


def all_accepted(baseline: Baseline, memory: DriftWatch) -> Baseline:
    """Each change by itself."""
    for change in changes(memory):
        new = accept_one(baseline, memory, name_of(change), WORD)
        assert isinstance(new, Baseline)
        assert len(new.accepted) == len(baseline.accepted) + 1
        baseline = new
    return baseline


def rules(found: Iterable[Finding]) -> set[tuple[str, str, str]]:
    """Rule and part by its lasting name."""
    return {(one.rule, one.subject.uuid, one.subject.device) for one in found}


def told(memory: DriftWatch, baseline: Baseline, at: float = SAID.at) -> tuple[Finding, ...]:
    found = findings(memory, baseline, POLICY, at)
    assert len({one.key for one in found}) == len(found)
    return found
