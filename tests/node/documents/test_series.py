"""What the node's `_info` series says before and after a probe and a baseline."""

import pytest

from tests.node.probe.drawn import broken, drawn, on_switch
from tests.support import Node
from wirewatch.collectors.inventory import NODE
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Absent, Finding, Health, Ok, Subject
from wirewatch.documents import judged
from wirewatch.documents import series as nodeinfo
from wirewatch.probe.model import ProbeMemory
from wirewatch.server.exposition import Exposition
from wirewatch.verdict.drift.component import DriftMemory
from wirewatch.verdict.drift.wiring import fingerprint
from wirewatch.verdict.node import LATCHED, Judged, Standing, Verdict, judge_state


def info_labels(node: Node) -> list[dict[str, str]]:
    return [dict(zip(s.metric.labels, s.labels, strict=True)) for s in nodeinfo.node_info(node.state)]


def test_it_has_nothing_of_what_is_not_known_yet() -> None:
    node = Node("demo-dgx-h200")
    node.poll(times=1)
    (labels,) = info_labels(node)
    assert labels == {
        "product": "NVIDIA H200", "gpus": "8", "driver": "580.159.04", "nccl": "", "fingerprint": "",
    }  # fmt: skip


def test_the_probe_gives_nccl_and_the_baseline_the_shape() -> None:
    node = Node("demo-dgx-h200")
    node.options("probe", settle=0.0)
    node.poll(times=4)
    (labels,) = info_labels(node)
    shape = fingerprint(node.state.components["drift"].memory.baseline.graph)
    assert not isinstance(shape, Absent)
    assert (labels["nccl"], labels["fingerprint"]) == ("2.28.9", shape)
    text = Exposition("replay").render(judge_state(node.state)).text
    assert text.decode().count("\nwirewatch_node_info{") == 1
    assert f'fingerprint="{shape}",gpus="8",nccl="2.28.9"' in text.decode()
    (inventory,) = [
        c
        for c in judged.state(judge_state(node.state), 0.0, "replay").collectors
        if c.collector == "inventory"
    ]
    (series,) = [s for s in inventory.samples if s.name == "wirewatch_node_info"]
    assert series.labels == labels


def daemon(judged: Judged) -> list[tuple[str, tuple[str, ...], float]]:
    return [(one.metric.name, one.labels, one.value) for one in nodeinfo.samples(judged, "live")]


@pytest.mark.parametrize(
    ("health", "told"),
    [
        (Health.OK, []),
        (Health.UNKNOWN, [("finding_since_timestamp_seconds", 7.0)]),
        (Health.DEGRADED, [("finding_severity", 1), ("finding_since_timestamp_seconds", 7.0)]),
        (Health.FAILED, [("finding_severity", 2), ("finding_since_timestamp_seconds", 7.0)]),
    ],
)
def test_a_finding_has_a_severity_where_it_is_known(health: Health, told: list[tuple[str, float]]) -> None:
    finding = Finding("nvlink.link_down", health, Subject("2", "GPU-2"), "evidence", "action", 7.0)
    judged = Judged(NodeState(), Verdict(health, (finding,), (Standing(finding, LATCHED, "nvlink"),)))
    found = daemon(judged)
    labels = ("nvlink.link_down", "2", "GPU-2", "", "", "")
    assert [(name, value) for name, of, value in found if of == labels] == told
    assert {of[0]: value for name, of, value in found if name == "health"} == {
        one.name.lower(): one is health for one in Health
    }
    stages = {of[0]: value for name, of, value in found if name == "findings"}
    assert {stage for stage, number in stages.items() if number} == {LATCHED}


@pytest.mark.parametrize(("applicable", "told"), [(None, []), (False, [0]), (True, [1])])
def test_a_collector_says_whether_it_has_something_to_watch_once_that_is_known(
    applicable: bool | None,  # noqa: FBT001
    told: list[float],
) -> None:
    one = Component("gpu", None, Ok(None, 5.0, 0.0), applicable=applicable, last_success=5.0, duration=0.1)
    found = daemon(Judged(NodeState({"gpu": one}), Verdict(Health.OK, ())))
    assert [value for name, _, value in found if name == "collector_applicable"] == told
    assert [value for name, of, value in found if of == ("gpu",)][:5] == [1, 0.1, 0.0, 5.0, 0]


@pytest.mark.parametrize(
    ("why", "probe", "drift"),
    [
        ("neither collector", None, None),
        ("no probe yet", ProbeMemory(), DriftMemory()),
        ("a probe without versions", ProbeMemory(last=broken(drawn(on_switch(2)), "timeout")), DriftMemory()),
    ],
)
def test_a_label_that_is_not_known_yet_is_empty(
    why: str, probe: ProbeMemory | None, drift: DriftMemory | None
) -> None:
    here = [Component("inventory", None, samples=(NODE.sample(1, "H200", "8", "580", "", ""),))]
    here += [Component("probe", probe)] if probe else []
    here += [Component("drift", drift)] if drift else []
    state = NodeState({one.name: one for one in here})
    other = nodeinfo.JOB_READY.sample(1)
    assert list(nodeinfo.with_node_labels([other], state)) == [other]
    (sample,) = nodeinfo.node_info(state)
    assert sample.labels == ("H200", "8", "580", "", ""), why
