"""What the controller publishes: series, words, Events, and its port."""

import asyncio
from typing import Any

import pytest

from tests.fleet.controller.drawn import NOW, OURS, RACK, mark, node, settings
from tests.rows import each
from wirewatch.config import BudgetSection
from wirewatch.kubernetes.apiserver import RequestResult
from wirewatch.kubernetes.condition import LIMIT
from wirewatch.server.api import ControllerView, controller_application
from wirewatch_fleet.controller.decide import MEANING, Ground, NodeDecision, NodeStep, decide
from wirewatch_fleet.controller.node import NodeMeasure
from wirewatch_fleet.controller.report import METRICS, WORDS, ControllerReport, event, samples, words

FLEET = (
    node("a", "failed", taints=[OURS], marked=mark()), node("b"), node("c", since=700.0),
    node("d", "ok", taints=[OURS], marked=mark()), node("e", "failed", since=90.0),
)  # fmt: skip
PLAN = decide(FLEET, settings(budget=BudgetSection(cluster=3, pool=9, rack=9, stock=1000)), NOW)


def series(report: ControllerReport) -> dict[str, float]:
    return {f"{one.metric.name}{list(one.labels) or ''}": one.value for one in samples(report)}


def test_a_leader_reports_what_is_out_due_and_refused() -> None:
    failures = {("event", RequestResult.FORBIDDEN): 3}
    report = ControllerReport(dry_run=False, leader=True, plan=PLAN, synced_at=NOW, failures=failures)
    told = series(report)
    assert told["controller_request_failures_total['event', 'forbidden']"] == 3
    assert told["controller_frozen"] == 0
    assert {one.metric for one in samples(report)} == set(METRICS)
    assert told["controller_nodes"] == 5
    assert told["controller_nodes_out"] == 2
    assert (told["controller_steps_due['take_out']"], told["controller_steps_due['give_back']"]) == (1, 1)
    assert told["controller_refused['budget_cluster']"] == 1
    assert told["controller_refused['unconfirmed']"] == 1
    assert (
        told["controller_budget_used['cluster', '']"] == told["controller_budget_limit['cluster', '']"] == 3
    )
    assert (told["controller_stock_used['cluster', '']"], told["controller_stock_limit"]) == (3, 1000)


def test_only_what_stands_is_out_and_only_a_rack_in_use_has_a_budget() -> None:
    """A measure that a person took back is out no more, and a thousand racks without a fault say nothing."""
    fleet = (
        node("a", "failed", marked=mark(), labels={RACK: "r1"}), node("b", "failed", labels={RACK: "r2"}),
        node("c", "ok", labels={RACK: "r3"}), node("d", "ok", since=90.0, marked=mark()),
    )  # fmt: skip
    steps = {(NodeStep.FORGET, RequestResult.FORBIDDEN): 2}
    plan = decide(fleet, settings(budget=BudgetSection(cluster=9, pool=9, rack=1, stock=1000)), NOW)
    told = series(ControllerReport(dry_run=False, leader=True, plan=plan, steps=steps))
    assert told["controller_nodes_out"] == 0
    assert told["controller_refused['overruled']"] == 1
    assert {name for name in told if "'rack'" in name} == {
        "controller_budget_used['rack', 'r2']", "controller_budget_limit['rack', 'r2']",
        "controller_stock_used['rack', 'r2']",
    }  # fmt: skip
    assert {name: value for name, value in told.items() if name.startswith("controller_steps_total")} == {
        "controller_steps_total['take_out', 'ok']": 0,
        "controller_steps_total['give_back', 'ok']": 0,
        "controller_steps_total['forget', 'ok']": 0,
        "controller_steps_total['forget', 'forbidden']": 2,
    }


OUT = node("g1", "failed", taints=[OURS], marked=mark())


@each(
    ("decision", "told"),
    [
        (
            NodeDecision(OUT, NodeStep.GIVE_BACK, Ground.UNDO),
            (
                "Normal", "InterconnectGivenBack",
                f"back in use, was {WORDS[NodeMeasure.TAINT]}: everything is undone",
            ),
        ),
        (
            NodeDecision(OUT, NodeStep.GIVE_BACK, Ground.FIT, "ok"),
            (
                "Normal", "InterconnectGivenBack",
                f"back in use, was {WORDS[NodeMeasure.TAINT]}: InterconnectHealthy is True again",
            ),
        ),
        (
            NodeDecision(OUT, NodeStep.FORGET, Ground.FIT, "ok"),
            ("Normal", "InterconnectForgotten", "without our mark: what it said was taken back before"),
        ),
        (
            NodeDecision(OUT, None, Ground.OVERRULED),
            ("Warning", "InterconnectLeft", f"FAILED, and not taken out: {MEANING[Ground.OVERRULED]}"),
        ),
        (
            NodeDecision(OUT, None, Ground.BUDGET_RACK, "rack r1: full"),
            (
                "Warning", "InterconnectBudgetUsed",
                f"FAILED, and not taken out: {MEANING[Ground.BUDGET_RACK]} (rack r1: full)",
            ),
        ),
    ],
)  # fmt: skip
def test_each_decision_has_its_words(decision: NodeDecision, told: tuple[str, str, str]) -> None:
    assert words(decision, NodeMeasure.TAINT, dry_run=False) == told


def test_an_event_of_a_long_name_fits() -> None:
    """Kubernetes takes 253 characters, and adds some of its own."""
    long = NodeDecision(node("n" * 253), None, Ground.OVERRULED)
    made = event(long, ("Warning", "InterconnectLeft", "m" * 5000), "pod-1", NOW)
    assert len(made["metadata"]["generateName"].encode()) == 201
    assert len(made["message"].encode()) <= LIMIT
    assert made["count"] == 1


def test_a_process_that_waits_for_the_lease_reports_no_node() -> None:
    told = series(ControllerReport(dry_run=True))
    assert told["controller_leader"] == told["controller_last_sync_timestamp_seconds"] == 0
    assert not [name for name in told if name.startswith(("controller_nodes", "controller_refused"))]


def test_an_event_says_what_is_done_or_in_a_dry_run_what_would_be() -> None:
    said = {one.node.name: words(one, NodeMeasure.TAINT, dry_run=False) for one in PLAN.decisions}
    assert said["c"][1] == "InterconnectTakenOut"
    assert said["c"][2].startswith(
        "tainted wirewatch.io/interconnect:NoSchedule: NvlinkLinkDown: nvlink.link_down"
    )
    assert said["d"][:2] == ("Normal", "InterconnectGivenBack")
    assert said["b"][1] == "InterconnectBudgetUsed"
    assert "cluster: 3 of 5 nodes taken out within an hour, 3 may be" in said["b"][2]
    (due,) = [one for one in PLAN.decisions if one.node.name == "c"]
    dry = words(due, NodeMeasure.TAINT, dry_run=True)
    assert dry[2].startswith("dry run: would be tainted")
    made = event(due, dry, "pod-1", NOW)
    assert made["metadata"]["namespace"] == "default"
    assert (made["involvedObject"]["kind"], made["involvedObject"]["uid"]) == ("Node", "uid-c")


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 200), ("/livez", 200), ("/readyz", 503), ("/else", 404)]
)
def test_the_port_answers(path: str, status: int) -> None:
    report = ControllerReport(dry_run=False, leader=True, plan=PLAN, synced_at=NOW)
    view = ControllerView(lambda: samples(report), lambda: True, lambda: False)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": path, "headers": []}

    async def ask() -> None:
        await controller_application(view)(scope, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == status
    if path == "/metrics":
        assert b'wirewatch_controller_refused{reason="budget_cluster"} 1.0' in sent[1]["body"]
