"""Readings of drawn nodes, one after the other."""

from collections.abc import Iterable

from tests.verdict.drift.drawn import Edit, switched
from tests.verdict.drift.edits import Make
from wirewatch.core.types import Expect, Finding
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.findings import findings
from wirewatch.verdict.drift.graph import Graph
from wirewatch.verdict.drift.policy import DriftPolicy
from wirewatch.verdict.drift.watch import Memory, see
from wirewatch.verdict.ledger import Word

POLICY = DriftPolicy()
SAID = Word("ada", "as delivered", 86400.0)
STEP = 300.0


def drawn(*edits: Edit, make: Make = switched) -> Graph:
    """A node with some edits."""
    box = make()
    for edit in edits:
        edit(box)
    return graph_of(box.build())


def accepted(*edits: Edit, make: Make = switched) -> Baseline:
    return Baseline(drawn(*edits, make=make), SAID, "accepted")


def compared(
    baseline: Baseline, graphs: Iterable[Graph], memory: Memory | None = None, policy: DriftPolicy = POLICY
) -> Memory:
    """After these readings, `STEP` apart."""
    memory = memory or Memory()
    for graph in graphs:
        at = (memory.since[-1] if memory.since else SAID.at) + STEP
        memory, learned = see(memory, baseline, graph, at, ("nvlink.link_down",), Expect(gpus=99), policy)
        assert learned is None
        assert (memory.same, memory.learning) == (0, "")
    return memory


def rules(found: Iterable[Finding]) -> set[tuple[str, str, str]]:
    """Rule and part by its lasting name."""
    return {(one.rule, one.subject.uuid, one.subject.device) for one in found}


def told(memory: Memory, baseline: Baseline, at: float = SAID.at) -> tuple[Finding, ...]:
    found = findings(memory, baseline, POLICY, at)
    assert len({one.key for one in found}) == len(found)
    return found
