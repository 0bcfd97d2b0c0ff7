"""What the changes since the baseline amount to, word by word."""

from collections.abc import Callable

import pytest

from tests.node.verdict.drift.drawn import NOWHERE, Box, Edit, bridged, renumbered, switched
from tests.node.verdict.drift.edits import (
    bridge_lost,
    clustering,
    driver,
    gpu_lost,
    gpu_moved,
    gpu_new,
    gpu_product,
    gpu_replaced,
    link_lost,
    link_new,
    nic_firmware,
    nic_lost,
    nic_model,
    nic_new,
    nic_ports,
    nic_replaced,
    no_nics,
    other_socket,
    peers_swapped,
)
from tests.node.verdict.drift.readings import (
    POLICY,
    SAID,
    STEP,
    accepted,
    compared,
    drawn,
    rules,
    since,
    told,
)
from tests.rows import each
from wirewatch.core.types import Finding, Health, Subject
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import IMPROVEMENT, SEVERITY, ChangeKind, TopologyChange, severity
from wirewatch.verdict.drift.watch import DriftPolicy, DriftWatch, findings

FAILED, DEGRADED = Health.FAILED, Health.DEGRADED
BASIS = "; since the baseline of 1970-01-02 by ada"


def gpu(number: int, last: str = "") -> Subject:
    return Subject(gpu=str(number), uuid=f"GPU-00000000-0000-4000-8000-{last or number:0>12}")


def nic(number: int) -> Subject:
    return Subject(device=f"mlx5_{number}")


ALONE: dict[str, tuple[Callable[[], Box], Edit, Health, Subject, str]] = {
    "gpu_lost": (switched, gpu_lost, FAILED, gpu(3), "GPU 3 (...0003) is gone: NVIDIA H200 at 0000:46:00.0"),
    "nvlink_lost": (
        switched, link_lost, FAILED, gpu(3), "GPU 3 (...0003): NVLink 18 -> 17 links up, link 7 down",
    ),
    "nvlink_peer": (
        bridged, peers_swapped, DEGRADED, gpu(0),
        "GPU 0 (...0000): NVLink links 0, 1 go to the switch instead of GPU 1 (...0001)",
    ),
    "island": (
        bridged, bridge_lost, FAILED, gpu(0),
        "NVLink island broke up into GPU 0 (...0000) | GPU 1 (...0001): 12 links down",
    ),
    "nic_lost": (
        switched, nic_lost, FAILED, nic(4),
        "mlx5_4 is gone: MT4129 at 0000:53:00.0, GUID 0000:00c0:ffee:0004",
    ),
    "nic_ports": (switched, nic_ports, FAILED, nic(6), "mlx5_6: port 1 InfiniBand -> Ethernet"),
    "pcie_place": (
        no_nics(switched), other_socket, DEGRADED, gpu(2),
        "GPU 2 (...0002) moved from NUMA node 0 to NUMA node 1",
    ),
    "numa": (switched, clustering, DEGRADED, Subject(), "node: 2 -> 4 NUMA nodes"),
    "gpu_replaced": (
        switched, gpu_replaced, DEGRADED, gpu(3, "9999"), "GPU 3 (...9999) replaced GPU 3 (...0003)",
    ),
    "nic_replaced": (
        switched, nic_replaced, DEGRADED, nic(5),
        "mlx5_5: GUID 0000:00c0:ffee:0005 replaced by 0000:00c0:ffee:0099",
    ),
}  # fmt: skip


@each("kind", ALONE)
def test_each_kind_alone(kind: str) -> None:
    make, edit, health, subject, text = ALONE[kind]
    base = accepted(make=make)
    graph = drawn(edit, make=make)
    action = next(one.action for of, one in SEVERITY.items() if of.value == kind)
    since = SAID.at + STEP
    wanted = Finding(f"topology.{kind}", health, subject, text + BASIS, action, since=since)
    assert told(compared(base, [graph, graph]), base, since + STEP) == (wanted,)


def test_a_part_that_moved_is_reported() -> None:
    base = accepted()
    (found,) = told(compared(base, [drawn(gpu_moved)] * 2), base)
    assert (found.rule, found.health, found.subject) == ("topology.pcie_path", DEGRADED, gpu(1))


@pytest.mark.parametrize(
    "edit",
    [gpu_new, gpu_product, link_new, nic_new, nic_model, nic_firmware, driver],
    ids=lambda e: e.__name__,
)
def test_information_is_no_finding(edit: Edit) -> None:
    base = accepted()
    memory = compared(base, [drawn(edit)] * 3)
    assert memory.seen
    assert told(memory, base) == ()


@pytest.mark.parametrize("edit", [gpu_replaced, nic_replaced])
def test_a_replaced_part_is_degraded_for_a_day(edit: Edit) -> None:
    base = accepted()
    memory = compared(base, [drawn(edit)] * 2)
    start = since(memory)[0]
    for later, degraded in ((0.0, True), (POLICY.replaced_for - 1, True), (POLICY.replaced_for, False)):
        assert bool(findings(memory, base, POLICY, start + later)) is degraded
    # The clock may be set back.
    assert findings(memory, base, POLICY, start - 1e6)


def test_a_lost_part_does_not_stop_being_lost() -> None:
    base = accepted()
    memory = compared(base, [drawn(gpu_lost)] * 2)
    assert findings(memory, base, POLICY, 1e10)


def test_parts_go_by_what_they_are_called_now_and_lost_ones_by_what_they_were() -> None:
    box = switched()
    for edit in (link_lost, nic_lost):
        edit(box)
    topology = renumbered(box.build(), 3)
    now = next(one for one in topology.gpus if one.uuid.endswith("0003"))
    base = accepted()
    found = told(compared(base, [graph_of(topology)] * 2), base)
    assert {(one.rule, one.subject) for one in found} == {
        ("topology.nvlink_lost", Subject(str(now.index), now.uuid)),
        ("topology.nic_lost", nic(4)),
    }


def test_a_gpu_without_a_name_goes_by_its_index() -> None:
    def nameless(box: Box) -> None:
        box.gpu(2, uuid="index:2")

    base = accepted(nameless)
    (found,) = told(compared(base, [drawn(nameless, lambda box: box.cut(2, 5))] * 2), base)
    assert (found.subject, found.rule) == (Subject(gpu="2"), "topology.nvlink_lost")


def test_a_new_part_that_hides_is_reported_by_its_lasting_name() -> None:
    """The card that replaced another does not tell its GUID any more, nor a GPU its UUID."""
    base = accepted()
    sure = compared(base, [drawn(gpu_replaced, nic_replaced)] * 2)
    before = told(sure, base, since(sure)[0])

    def silent(box: Box) -> None:
        gpu_replaced(box)
        nic_replaced(box)
        box.gpu(3, uuid="index:3")
        box.nic(5, guid="")

    after = told(compared(base, [drawn(silent)] * 2, sure), base, since(sure)[0])
    assert {one.subject.uuid for one in after} == {one.subject.uuid for one in before}
    assert {one.rule for one in after} == {"topology.gpu_replaced", "topology.nic_replaced"}
    assert Subject(device="0000:00c0:ffee:0099") in {one.subject for one in after}


def test_worst_and_first_of_what_is_joined() -> None:
    base = accepted(make=no_nics(switched))
    everything = drawn(gpu_lost, lambda box: box.cut(5, 1, 2), driver, make=no_nics(switched))
    first = compared(base, [drawn(gpu_lost, make=no_nics(switched))])
    memory = compared(base, [everything, everything], first)
    assert rules(told(memory, base)) == {
        ("topology.gpu_lost", gpu(3).uuid, ""),
        ("topology.nvlink_lost", gpu(5).uuid, ""),
    }
    by_rule = {one.rule: one.since for one in told(memory, base)}
    assert by_rule["topology.gpu_lost"] < by_rule["topology.nvlink_lost"]


def test_nothing_was_read_yet() -> None:
    assert findings(DriftWatch(), accepted(), POLICY, 0.0) == ()


def test_the_defaults_can_be_meant() -> None:
    policy = DriftPolicy()
    assert policy.wrong() == ""
    assert (policy.confirm, policy.learn, policy.replaced_for) == (2, 3, 86400.0)


@each(
    ("policy", "wrong"),
    [
        (DriftPolicy(replaced_for=-1.0), "must not be below 0: 'replaced_for'"),
        (DriftPolicy(replaced_for=float("nan")), "must not be below 0: 'replaced_for'"),
        (DriftPolicy(replaced_for=float("inf")), "must not be below 0: 'replaced_for'"),
        (DriftPolicy(confirm=0), "confirm must be at least 1"),
        (DriftPolicy(confirm=0, learn=0), "confirm must be at least 1; learn must be at least 1"),
        (DriftPolicy(confirm=1, learn=1, replaced_for=0.0), ""),
    ],
)
def test_what_cannot_be_meant(policy: DriftPolicy, wrong: str) -> None:
    assert policy.wrong() == wrong


def test_every_kind_has_a_severity_with_what_to_do() -> None:
    assert set(SEVERITY) == set(ChangeKind)
    assert all(one.action for one in (*SEVERITY.values(), IMPROVEMENT))
    assert not any(one.health is Health.UNKNOWN for one in SEVERITY.values())


def test_what_is_lost_fails_and_what_is_new_or_replaced_informs() -> None:
    for kind, one in SEVERITY.items():
        if kind.value.endswith("_lost"):
            assert one.health is Health.FAILED
        if kind.value.endswith(("_new", "_replaced", "_firmware")) or kind is ChangeKind.VERSION:
            assert one.health is Health.OK
        assert one.probation is kind.value.endswith("_replaced")


def test_nothing_that_got_better_alarms() -> None:
    for kind in ChangeKind:
        better = severity(TopologyChange(kind, "", "", "", "", worse=False))
        assert better.health is Health.OK
        assert better.probation is SEVERITY[kind].probation


def test_labels_are_fit_for_a_metric() -> None:
    assert all(kind.value == kind.name.lower() for kind in ChangeKind)
    assert len(ChangeKind) <= 20


def test_a_change_of_the_node_is_of_no_nic_without_a_name_and_a_place() -> None:
    def nameless(box: Box) -> None:
        box.nic(5, guid="", place=NOWHERE)

    base = accepted(nameless)
    memory = compared(base, [drawn(nameless, clustering)] * 2)
    assert [(one.rule, one.subject) for one in told(memory, base)] == [("topology.numa", Subject())]
