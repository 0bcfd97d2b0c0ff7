"""What holds for every collector, today's and the next one's."""

import ast
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wirewatch
from tests.examples import examples
from tests.support import Node
from wirewatch.catalogue import components
from wirewatch.collectors.inventory import InventoryFacts
from wirewatch.core.collector import AnyCollector, NodeState, Rule, blind_rule, subject
from wirewatch.core.ports import Gpu
from wirewatch.core.types import FAIL_ON, Health, Ok, Subject
from wirewatch.hw.overlay import AnswerChange, load_overlay
from wirewatch.verdict.ledger import Entry, Stage
from wirewatch.verdict.observation import observed_at

COLLECTORS = {c.name: c for c in components()}
FAULTS = st.sampled_from([1, 4, 10, 15, 16, 999])
PATTERNS = st.sampled_from(
    [
        "gpu2/*",
        "gpu*/Field(165,7)",
        "gpu2/Field(*)",
        "gpu*/UUID()",
        "gpu*/GpuFabricInfoV()",
        "*",
        "Count()",
        "gpu2/Curr*",
        "gpu2/Field(16[123],all)",
        "gpu2/RemappedRows()",
        "gpu[0-4]/*",
        "gpu7/Name()",
    ]
)


@pytest.fixture(params=COLLECTORS)
def collector(request: pytest.FixtureRequest) -> AnyCollector:
    return COLLECTORS[request.param]


def test_samples_are_of_declared_metrics_and_no_series_comes_twice() -> None:
    node = Node("demo-dgx-h200")
    node.options("nvlink", link_detail=True)
    node.poll(times=2)
    for name, component in node.state.components.items():
        declared = set(COLLECTORS[name].metrics)
        assert component.samples or not component.applicable, name
        assert {s.metric for s in component.samples} <= declared
        series = [(s.metric.name, s.labels) for s in component.samples]
        assert len(series) == len(set(series)), name


def test_facts_are_frozen_and_of_a_type_that_no_other_collector_offers() -> None:
    node = Node("demo-dgx-h200")
    node.poll()
    facts = [one.facts for one in node.state.components.values() if one.facts is not None]
    assert len({type(one) for one in facts}) == len(facts)
    for one in facts:
        assert one.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_no_other_room_imports_a_collectors_memory_or_a_private_name() -> None:
    package = Path(wirewatch.__file__).parent
    rooms = [
        path
        for path in package.rglob("*.py")
        if not {package / "collectors", package / "jobs"} & set(path.parents)
    ]
    taken = [
        f"{path.relative_to(package)}: {alias.name}"
        for path in rooms
        for found in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(found, ast.ImportFrom) and (found.module or "").startswith("wirewatch.collectors")
        for alias in found.names
        if alias.name.startswith("_") or alias.name.endswith(("Memory", "Reading"))
    ]
    assert taken == []


@pytest.mark.parametrize("collector", [one for one in COLLECTORS.values() if one.rules], ids=lambda c: c.name)
def test_a_fault_of_any_rule_ends_once_its_part_is_read_again(collector: AnyCollector) -> None:
    """The verdict asks the reading which parts it looked at; series have no say."""
    node = Node("demo-dgx-h200", also=(collector.name,))
    node.poll(times=2)
    state = NodeState({name: replace(one, samples=()) for name, one in node.state.components.items()})
    component = state.components[collector.name]
    assert isinstance(component.outcome, Ok)
    assert component.findings == ()
    known = state.facts(InventoryFacts)
    gpus = [] if known is None else [one.gpu for one in known.gpus.values()]
    seen = component.observed
    parts = [Subject(), *(map(subject, gpus) if seen.gpus is None else seen.gpus)]
    parts += [Subject(device=gpus[0].pci.partition(".")[0])] if seen.devices is None else seen.devices
    for rule in (*collector.rules, Rule(blind_rule(collector.name), (Health.UNKNOWN,))):
        for part in parts:
            entry = Entry(rule.name, part, collector.name, Health.FAILED, Stage.ACTIVE, "", "", 0.0, 0.0)
            assert observed_at(state, entry, probes=1) == component.outcome.mono, (rule.name, part)


def test_what_reads_gpus_or_ports_does_not_speak_for_those_that_it_did_not_read() -> None:
    node = Node("demo-dgx-h200")
    node.poll(times=2)
    node.change("gpu2/*", "code", 15)
    node.changes.append(AnswerChange("sysfs", "*/infiniband/mlx5_2/ports/1/state", "errno", "EIO"))
    node.poll(times=2)
    lost = Subject(gpu="2", uuid=gpu_of(node, 2).uuid)
    for name in ("inventory", "nvlink", "gpu", "pcie"):
        entry = Entry(f"{name}.x", lost, name, Health.FAILED, Stage.ACTIVE, "", "", 0.0, 0.0)
        assert observed_at(node.state, entry, probes=0) is None, name
    port = Subject(device="mlx5_2", port="1")
    entry = Entry("infiniband.port_slow", port, "infiniband", Health.FAILED, Stage.ACTIVE, "", "", 0.0, 0.0)
    assert observed_at(node.state, entry, probes=0) is None


def gpu_of(node: Node, index: int) -> Gpu:
    known = node.state.facts(InventoryFacts)
    assert known is not None
    return next(one.gpu for one in known.gpus.values() if one.gpu.index == index)


@pytest.mark.parametrize("code", [1, 3, 10, 15, 999])
def test_whatever_cannot_be_read_makes_findings_of_declared_rules_alone(
    collector: AnyCollector, code: int
) -> None:
    node = Node("demo-dgx-h200", also=(collector.name,))
    node.poll(collector.name, times=2)
    for match in ("gpu2/*", "gpu[0-4]/*", "*"):
        lost = node.change(match, "code", code)
        node.poll(collector.name, times=3)
        found = node.state.components[collector.name].findings
        declared = {blind_rule(collector.name), *(rule.name for rule in collector.rules)}
        assert all(any(fnmatchcase(one.rule, name) for name in declared) for one in found)
        node.undo(lost)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(PATTERNS, FAULTS), min_size=1, max_size=4))
def test_a_lost_reading_never_makes_a_node_ready_that_was_not(faults: list[tuple[str, int]]) -> None:
    node = Node()
    node.change("gpu2/Field(165,7)", "set", 0)
    node.change("gpu7/RemappedRows()", "set", [0, 0, 0, 1])
    node.poll(times=3)
    assert node.health() is Health.FAILED
    node.changes.extend(AnswerChange("nvml", match, "code", code) for match, code in faults)
    for _ in range(3):
        node.poll()
        assert node.health() in FAIL_ON


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(PATTERNS, FAULTS), min_size=1, max_size=4))
def test_a_fault_that_shows_with_readings_lost_from_the_start_is_not_ready_either(
    faults: list[tuple[str, int]],
) -> None:
    node = Node()
    node.change("gpu2/Field(165,7)", "set", 0)
    node.changes.extend(AnswerChange("nvml", match, "code", code) for match, code in faults)
    node.poll(times=4)
    assert node.health() in FAIL_ON


STANDING: dict[str, list[tuple[str, str, Any]]] = {
    "link down": [("gpu2/Field(165,7)", "set", 0)],
    "link slow": [("gpu2/Field(164,7)", "set", 1562)],
    "all links down": [("gpu2/Field(165,1[0-7])", "set", 0), ("gpu2/Field(165,[0-9])", "set", 0)],
    "fabric": [("gpu2/GpuFabricInfoV()", "set", {"state": 3, "status": 3, "healthMask": 0, "cliqueId": 0})],
    "recovery action": [("gpu2/Field(230)", "set", 2)],
    "row remap failed": [("gpu2/RemappedRows()", "set", [0, 0, 0, 1])],
    "pcie width": [("gpu2/CurrPcieLinkWidth()", "set", 8)],
    "pcie generation": [
        ("gpu2/CurrPcieLinkGeneration()", "set", 3),
        ("gpu2/UtilizationRates()", "set", {"gpu": 97, "memory": 1}),
    ],
    "chip-to-chip link": [
        ("gpu2/Field(170)", "set", 1), ("gpu2/Field(171,0)", "set", 0), ("gpu2/Field(172,0)", "set", 9),
    ],
}  # fmt: skip
OWN = {
    "link down": "gpu2/Field(165,7)",
    "link slow": "gpu2/Field(164,7)",
    "all links down": "gpu2/Field(165,*)",
    "fabric": "gpu2/GpuFabricInfoV()",
    "recovery action": "gpu2/Field(230)",
    "row remap failed": "gpu2/RemappedRows()",
    "pcie width": "gpu2/CurrPcieLinkWidth()",
    "pcie generation": "gpu2/CurrPcieLinkGeneration()",
    "chip-to-chip link": "gpu2/Field(171,0)",
}


@pytest.mark.parametrize("fault", STANDING)
@pytest.mark.parametrize("code", [10, 15, 999])
def test_a_fault_stays_while_it_cannot_be_read_and_is_no_milder_afterwards(fault: str, code: int) -> None:
    node = Node()
    for match, action, argument in STANDING[fault]:
        node.change(match, action, argument)
    node.poll(times=3)
    assert node.health() is Health.FAILED
    failed = {f.key for f in node.findings() if f.health is Health.FAILED}
    lost = node.change(OWN[fault], "code", code)
    for _ in range(2):
        node.poll()
        assert {f.key for f in node.findings() if f.health is Health.FAILED} >= failed
        assert any(f.rule.endswith(".blind") and f.subject.gpu == "2" for f in node.findings())
    node.undo(lost)
    node.poll()
    assert {f.key for f in node.findings() if f.health is Health.FAILED} == failed


def test_what_was_seen_once_and_not_read_again_is_not_confirmed_by_that() -> None:
    node = Node()
    node.poll()
    for fault in ("link down", "fabric", "recovery action", "pcie width"):
        for match, action, argument in STANDING[fault]:
            node.change(match, action, argument)
    node.poll()
    for fault in ("link down", "fabric", "recovery action", "pcie width"):
        node.change(OWN[fault], "code", 999)
    node.poll(times=5)
    assert node.health() is Health.UNKNOWN
    assert {f.rule for f in node.findings() if f.health is Health.DEGRADED} == {
        "nvlink.link_down", "fabric.status", "gpu.recovery_action", "pcie.width",
    }  # fmt: skip


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(STANDING)), st.lists(st.tuples(PATTERNS, FAULTS), min_size=1, max_size=3))
def test_a_reading_lost_for_one_poll_never_makes_a_node_ready_that_was_not(
    fault: str, losses: list[tuple[str, int]]
) -> None:
    node = Node()
    for match, action, argument in STANDING[fault]:
        node.change(match, action, argument)
    node.poll(times=3)
    passing = [node.change(match, "code", code) for match, code in losses]
    node.poll()
    assert node.health() in FAIL_ON
    for one in passing:
        node.undo(one)
    for _ in range(3):
        node.poll()
        assert node.health() in FAIL_ON


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("gpu2/Field(164,7)", 1562), ("gpu2/Field(165,7)", 0)),
        (("gpu2/Field(230)", 1), ("gpu2/Field(230)", 2)),
    ],
    ids=["a slow link goes down", "another recovery action"],
)
def test_a_fault_that_turns_into_a_worse_one_is_not_looked_at_again(
    first: tuple[str, int], then: tuple[str, int]
) -> None:
    node = Node()
    node.change(first[0], "set", first[1])
    node.poll(times=3)
    assert node.health() is Health.FAILED
    node.change(then[0], "set", then[1])
    node.poll()
    assert node.health() is Health.FAILED


FILES = st.sampled_from(
    [
        "*",
        "read *",
        "list /sys/class/infiniband",
        "list /sys/class/infiniband/mlx5_2/ports",
        "link /sys/class/infiniband/*",
        "link /sys/bus/pci/devices/*",
        "read /sys/class/infiniband/*",
        "read /sys/class/infiniband/mlx5_2/ports/1/state",
        "read /sys/class/infiniband/mlx5_2/ports/1/phys_state",
        "read /sys/class/infiniband/*/ports/1/rate",
        "read /sys/module/*",
    ]
)
ERRNOS = st.sampled_from(["EIO", "ETIMEDOUT", "EACCES", "ENODEV", "ENOENT", "EINVAL"])
FILE_FAULTS = {
    "port down": "ib-port-down",
    "port slow": "ib-port-slow",
    "card gone": "ib-device-gone",
    "XID": "xid-79",
}


@settings(max_examples=examples(40))
@given(st.sampled_from(sorted(FILE_FAULTS)), st.lists(st.tuples(FILES, ERRNOS), min_size=1, max_size=3))
def test_files_that_cannot_be_read_never_make_a_node_ready_that_was_not(
    fault: str, losses: list[tuple[str, str]]
) -> None:
    node = Node("demo-dgx-h200", load_overlay(FILE_FAULTS[fault]).changes)
    node.poll("infiniband", "xid", times=6)
    assert node.health() is Health.FAILED
    lost = [AnswerChange("sysfs", match, "errno", errno) for match, errno in losses]
    node.changes.extend([*lost, AnswerChange("kmsg", "*", "errno", "EACCES")])
    for _ in range(3):
        node.poll("infiniband", "xid")
        assert node.health() in FAIL_ON
    for one in lost:
        node.undo(one)
    node.poll("infiniband", "xid", times=2)
    assert node.health() is Health.FAILED


@settings(max_examples=examples(40))
@given(st.integers(1, 40), st.floats(1, 100))
def test_a_healthy_history_of_any_length_has_no_finding(polls: int, every: float) -> None:
    node = Node()
    node.poll("nvlink", "inventory", times=polls, every=every)
    assert node.findings() == ()
