"""What may still be starting: a fabric that registers, links before their first signal, ports to be swept."""

import pytest

from tests.node.collectors.drawn import Watched
from tests.node.collectors.test_infiniband import watched
from tests.support import Node
from wirewatch.core.types import Health
from wirewatch.hw.overlay import AnswerChange

OK, DEGRADED, UNKNOWN, FAILED = Health.OK, Health.DEGRADED, Health.UNKNOWN, Health.FAILED
FABRIC = {"clusterUuid": "", "status": 0, "cliqueId": 0, "healthMask": 0, "healthSummary": 0}
GRACE, POLL = 300, 15


def registering(node: Node, state: int = 2, gpu: str = "*") -> AnswerChange:
    return node.change(f"gpu{gpu}/GpuFabricInfoV()", "set", {**FABRIC, "state": state})


@pytest.mark.parametrize("state", [1, 2])
def test_a_fabric_that_registers_slowly_at_boot_is_unknown_and_then_well(state: int) -> None:
    """75 s of it were FAILED before."""
    node = Node()
    change = registering(node, state)
    for _ in range(5):
        node.poll("nvlink")
        assert {r[0] for r in node.rules()} == {"fabric.state"}
        assert node.health_of("nvlink") is UNKNOWN
    node.undo(change)
    node.poll("nvlink")
    assert node.health_of("nvlink") is OK


def test_a_fabric_that_never_registers_is_failed_when_its_grace_is_over() -> None:
    node = Node()
    registering(node, gpu="3")
    node.poll("nvlink", times=GRACE // POLL)
    assert node.rules() == {("fabric.state", "3", "", UNKNOWN)}
    unfinished = "registration with the fabric manager: in_progress"
    assert node.findings()[0].evidence == f"{unfinished}; it may take up to 300 s"
    node.poll("nvlink")
    assert node.rules() == {("fabric.state", "3", "", FAILED)}
    assert node.findings()[0].evidence == unfinished


def test_the_grace_of_the_fabric_is_the_operators() -> None:
    node = Node()
    node.policy("nvlink", fabric_grace=0.0)
    registering(node, gpu="3")
    node.poll("nvlink", times=3)
    assert node.rules() == {("fabric.state", "3", "", FAILED)}


def test_a_slow_registration_is_never_failed_for_how_often_it_comes() -> None:
    node = Node()
    node.poll("nvlink")
    found = []
    for _ in range(8):
        change = registering(node, gpu="3")
        node.poll("nvlink", times=4)
        found.append(node.health_of("nvlink"))
        node.undo(change)
        node.poll("nvlink", times=8)
        assert node.health_of("nvlink") is OK
    assert found == [UNKNOWN] * 8


def test_a_grace_is_given_again_after_a_day() -> None:
    node = Node()
    change = registering(node, gpu="3")
    node.poll("nvlink", times=30)
    assert node.health_of("nvlink") is FAILED
    node.undo(change)
    node.poll("nvlink", times=2, every=90_000)
    registering(node, gpu="3")
    node.poll("nvlink", times=5)
    assert node.health_of("nvlink") is UNKNOWN


def test_another_fault_of_the_fabric_has_no_grace() -> None:
    node = Node()
    node.change("gpu3/GpuFabricInfoV()", "set", {**FABRIC, "state": 2, "healthMask": 5 << 8})
    node.poll("nvlink", times=3)
    assert ("fabric.insufficient_nvlinks", "3", "", FAILED) in node.rules()


def test_a_link_that_was_up_has_no_grace_while_its_gpu_registers() -> None:
    node = Node()
    node.poll("nvlink")
    registering(node, gpu="3")
    node.change("gpu3/Field(165,7)", "set", 0)
    node.poll("nvlink", times=3)
    assert node.rules() == {("fabric.state", "3", "", UNKNOWN), ("nvlink.link_down", "3", "7", FAILED)}


def dark(node: Node) -> list[AnswerChange]:
    """No link of any GPU is up, as before a fabric manager has started."""
    return [
        node.change("gpu*/Field(165,*)", "set", 0),
        node.change("gpu*/Field(165,18)", "code", 3),
    ]


def test_links_before_the_fabric_manager_are_unknown_and_then_well() -> None:
    node = Node()
    changes = dark(node)
    node.poll("nvlink", times=10)
    assert {(r[0], r[3]) for r in node.rules()} == {("nvlink.down", UNKNOWN)}
    for change in changes:
        node.undo(change)
    node.poll("nvlink")
    assert node.findings() == ()


def test_links_that_never_come_up_are_failed_when_the_grace_is_over() -> None:
    node = Node()
    dark(node)
    node.poll("nvlink", times=GRACE // POLL + 1)
    assert {(r[0], r[3]) for r in node.rules()} == {("nvlink.down", FAILED)}


def test_links_that_were_up_and_all_go_down_have_no_grace() -> None:
    node = Node()
    node.poll("nvlink")
    dark(node)
    node.poll("nvlink", times=3)
    assert {(r[0], r[3]) for r in node.rules()} == {("nvlink.down", FAILED)}


@pytest.mark.parametrize(
    ("state", "physical"),
    [("2: INIT", "5: LinkUp"), ("3: ARMED", "5: LinkUp"), ("1: DOWN", "4: PortConfigurationTraining")],
)
def test_a_port_that_waits_for_the_sweep_is_unknown_for_a_minute(state: str, physical: str) -> None:
    """The third poll was FAILED before."""
    node = watched(8)
    node.poll()
    node.files.set("mlx5_2", state=state, phys_state=physical)
    node.poll(4)
    assert node.rules() == {("infiniband.port_down", "mlx5_2 port 1"): UNKNOWN}
    node.poll()
    assert node.rules() == {("infiniband.port_down", "mlx5_2 port 1"): FAILED}
    node.files.set("mlx5_2", state="4: ACTIVE", phys_state="5: LinkUp")
    node.poll()
    assert node.component.health is OK


def sweep(node: Watched, times: int, polls: int) -> None:
    """The subnet manager takes a port through INIT so many times, for so many polls each way."""
    for _ in range(times):
        for state in ("2: INIT", "4: ACTIVE"):
            node.files.set("mlx5_2", state=state)
            node.poll(polls)


def test_sweeps_are_no_flapping_of_the_port() -> None:
    node = watched(8)
    node.policy(port_grace=600.0)
    node.poll()
    sweep(node, times=4, polls=3)
    assert node.component.health is OK


def test_a_port_that_is_swept_again_and_again_is_never_failed_for_that() -> None:
    node = watched(8)
    node.poll()
    sweep(node, times=6, polls=3)
    assert node.component.health is OK
    node.files.set("mlx5_2", state="2: INIT")
    node.poll(4)
    assert node.component.health is UNKNOWN
    node.poll()
    assert node.component.health is FAILED


def test_a_port_that_trains_again_and_again_flaps() -> None:
    node = watched(8)
    node.poll()
    for _ in range(6):
        node.files.set("mlx5_2", state="1: DOWN", phys_state="4: PortConfigurationTraining")
        node.poll(3)
        node.files.set("mlx5_2", state="4: ACTIVE", phys_state="5: LinkUp")
        node.poll()
    assert node.rules() == {("infiniband.port_flapping", "mlx5_2 port 1"): FAILED}


def test_a_port_that_never_comes_up_between_two_trainings_has_one_grace() -> None:
    node = watched(8)
    node.poll()
    for physical in ("4: PortConfigurationTraining", "2: Polling", "4: PortConfigurationTraining"):
        node.files.set("mlx5_2", state="1: DOWN", phys_state=physical)
        node.poll(3)
    assert node.rules() == {("infiniband.port_down", "mlx5_2 port 1"): FAILED}


def test_expected_ports_that_wait_for_the_sweep_are_not_missing_yet() -> None:
    node = watched(8, rdma_ports=8)
    for name in ("mlx5_1", "mlx5_2"):
        node.files.set(name, state="2: INIT")
    node.poll(4)
    assert node.rules()["infiniband.ports_missing", "node"] is UNKNOWN
    node.files.set("mlx5_5", state="1: DOWN", phys_state="2: Polling")
    node.poll(3)
    assert node.rules()["infiniband.ports_missing", "node"] is FAILED


def switched_off(carrier: str | None) -> Watched:
    """An Ethernet port that was active and reads as disabled, and the signal of its network device."""
    node = watched(2)
    node.files.set("mlx5_1", link_layer="Ethernet")
    netdev = next(p for p in node.files.texts if "mlx5_1/device/net/" in p).split("/net/")[1].split("/")[0]
    node.poll()
    node.files.set("mlx5_1", state="1: DOWN", phys_state="3: Disabled")
    if carrier is not None:
        node.files.texts[f"/sys/class/net/{netdev}/carrier"] = carrier
    return node


@pytest.mark.parametrize("carrier", [None, "1"])
def test_an_ethernet_port_that_is_switched_off_is_no_fault(carrier: str | None) -> None:
    """It was FAILED before."""
    node = switched_off(carrier)
    node.poll(20)
    assert node.rules() == {("infiniband.port_disabled", "mlx5_1 port 1"): DEGRADED}
    node.files.set("mlx5_1", state="4: ACTIVE", phys_state="5: LinkUp")
    node.poll()
    assert node.component.health is OK


def test_an_ethernet_port_without_signal_reads_as_disabled_too_and_is_down() -> None:
    """mlx5 reports a pulled cable as disabled; its network device is switched on and has no carrier."""
    node = switched_off("0")
    node.poll(3)
    assert node.rules() == {("infiniband.port_down", "mlx5_1 port 1"): FAILED}
    carrier = next(p for p in node.files.texts if p.endswith("/carrier"))
    del node.files.texts[carrier]
    node.poll()
    assert node.rules() == {("infiniband.port_down", "mlx5_1 port 1"): FAILED}


def test_an_infiniband_port_that_is_switched_off_is_no_fault_but_one_that_is_expected() -> None:
    node = watched(8, rdma_ports=8)
    node.poll()
    node.files.set("mlx5_1", state="1: DOWN", phys_state="3: Disabled")
    node.poll(3)
    assert node.rules() == {
        ("infiniband.port_disabled", "mlx5_1 port 1"): DEGRADED,
        ("infiniband.ports_missing", "node"): FAILED,
    }


def test_a_port_that_is_switched_off_and_on_does_not_flap() -> None:
    node = watched(2)
    node.poll()
    for _ in range(4):
        node.files.set("mlx5_1", state="1: DOWN", phys_state="3: Disabled")
        node.poll(4)
        node.files.set("mlx5_1", state="4: ACTIVE", phys_state="5: LinkUp")
        node.poll(2)
    assert node.component.health is OK
