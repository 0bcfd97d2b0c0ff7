"""The node's verdict of a few components: what is watched, what is worst, and what may start."""

import pytest

from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Finding, Health, Ok, Subject
from wirewatch.verdict.node import judge_node

D, U, F = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
READ = Ok(None, 1.0, 1.0)


def node(*components: Component) -> NodeState:
    return NodeState({one.name: one for one in components})


def read(name: str, *findings: Health, applicable: bool = True) -> Component:
    """A component that was read, with findings of these healths."""
    told = tuple(
        Finding(f"{name}.{n}", health, Subject(), "evidence", "action") for n, health in enumerate(findings)
    )
    return Component(name, None, outcome=READ, applicable=applicable, findings=told)


@pytest.mark.parametrize(
    "state",
    [node(), node(read("nvlink", applicable=False)), node(*(read(n, applicable=False) for n in ("a", "b")))],
)
def test_a_node_on_which_nothing_is_watched_is_unknown_and_starts_no_job(state: NodeState) -> None:
    assert judge_node(state).health is U
    assert not judge_node(state).job_ready


def test_what_does_not_apply_takes_no_part_beside_what_does() -> None:
    assert judge_node(node(read("nvlink"), read("infiniband", applicable=False))).health is Health.OK


def test_a_fault_of_what_does_not_apply_counts_and_knowing_nothing_else_is_unknown() -> None:
    assert judge_node(node(read("agent", D, applicable=False))).health is U
    assert judge_node(node(read("agent", F, applicable=False))).health is F
    assert judge_node(node(read("nvlink"), read("agent", D, applicable=False))).health is D


def test_a_component_that_was_never_read_is_unknown() -> None:
    assert judge_node(node(read("nvlink"), Component("gpu", None))).health is U


@pytest.mark.parametrize(("health", "ready"), [(Health.OK, True), (D, True), (U, False), (F, False)])
def test_a_job_may_start_on_what_is_ok_or_degraded_alone(health: Health, ready: bool) -> None:  # noqa: FBT001
    state = node(read("nvlink", *([health] if health else [])))
    verdict = judge_node(state)
    assert (verdict.health, verdict.job_ready) == (health, ready)


def test_the_worst_finding_stands_first_whichever_component_it_is_of() -> None:
    verdict = judge_node(node(read("a", D), read("b", U, F), read("c", D)))
    assert [finding.health for finding in verdict.findings] == [F, U, D, D]
    assert verdict.findings[0].rule == "b.1"
