"""How each GPU reaches the host's memory, by sysfs and the driver; and what PCIe shows around the copies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.core.test_pci import express
from tests.node.probe.idle import Idle
from wirewatch.core.hostlink import HostMoved, HostPath, Pcie
from wirewatch.core.pci import most_payload
from wirewatch.core.ports import Question
from wirewatch.core.tree import DEVICES, ONLINE_NODES
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.probe.counters import WRAPS, host_moved
from wirewatch.probe.hostpaths import HOST_BYTES, read_paths
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.setup import _without_hosts, plan_of, read_scene
from wirewatch.worker.hostlinks import COPIED

FAST, GEN4 = "32.0 GT/s PCIe", "16.0 GT/s PCIe"


def linked(
    node: Idle, address: str, above: str, speed: str = FAST, lanes: str = "16", numa: str = "0"
) -> None:
    node.files.device(address, above, numa, max_link_speed=speed, max_link_width=lanes, local_cpulist="0-31")


def behind_a_switch(node: Idle, **port: str) -> None:
    """GPU 0 behind root port, and a switch's two ports; `port`: the root port's own speed and lanes."""
    root, up, down = "0000:16:01.0", "0000:17:00.0", "0000:18:03.0"
    linked(node, root, "pci0000:16", **port)
    linked(node, up, f"pci0000:16/{root}")
    linked(node, down, f"pci0000:16/{root}/{up}")
    linked(node, node.gpus.addresses[0], f"pci0000:16/{root}/{up}/{down}")
    node.files.texts[ONLINE_NODES] = "0-1"


def way(node: Idle) -> HostPath:
    return read_paths(node.hardware, node.listed())[0]


def test_the_narrowest_link_is_that_of_both_ends() -> None:
    node = Idle(2)
    behind_a_switch(node)
    assert way(node) == HostPath(Pcie(5, 16), None, False, 0.0, "0000:16:01.0", "0-31", 2)  # noqa: FBT003


@pytest.mark.parametrize(
    ("port", "found"),
    [
        ({"speed": GEN4}, Pcie(4, 16)), ({"lanes": "8"}, Pcie(5, 8)), ({"speed": "Unknown"}, Pcie(5, 16)),
        ({"speed": GEN4, "lanes": "8"}, Pcie(4, 8)),
        ({"speed": "64.0 GT/s PCIe", "lanes": "32"}, Pcie(5, 16)),
    ],
)  # fmt: skip
def test_a_link_above_the_switch_may_be_the_narrowest(port: dict[str, str], found: Pcie) -> None:
    node = Idle(2)
    behind_a_switch(node, **port)
    assert way(node).pcie == found


def test_the_driver_s_own_figure_counts_too() -> None:
    """NVML knows GPU and slot; a slot of eight lanes by design is what is expected of it."""
    node = Idle(2)
    behind_a_switch(node)
    node.answer(0, "MaxPcieLinkWidth", 8)
    assert way(node).pcie == Pcie(5, 8)


@pytest.mark.parametrize(("vendor", "hides"), [("0x1b36", True), ("0x15ad", True), ("0x8086", False)])
def test_ports_that_a_hypervisor_draws_show_no_way(vendor: str, hides: bool) -> None:  # noqa: FBT001
    """A GPU of a virtual machine below a drawn port may sit in a slot of four lanes."""
    node = Idle(2)
    behind_a_switch(node)
    node.files.texts[f"{DEVICES}/0000:16:01.0/vendor"] = vendor
    found = way(node)
    assert (found.hidden, found.uplink) == ((True, "") if hides else (False, "0000:16:01.0"))
    assert (found.pcie, found.cpus) == (Pcie(5, 16), "0-31")


def test_a_virtual_machine_hides_the_way_and_the_node() -> None:
    node = Idle(2)
    linked(node, node.gpus.addresses[0], "pci0000:00", numa="-1")
    node.files.texts[ONLINE_NODES] = "0"
    assert way(node) == HostPath(Pcie(5, 16), nodes=1)
    linked(node, node.gpus.addresses[0], "pci0000:00", numa="1")
    assert way(node) == HostPath(Pcie(5, 16), cpus="0-31", nodes=1)


def test_a_place_that_cannot_be_read_is_hidden_too() -> None:
    assert way(Idle(2)) == HostPath(Pcie(5, 16))


@pytest.mark.parametrize("answer", [Absent(Why.UNSUPPORTED, "no"), -1, 10**9, "five", None, 4.5])
def test_an_odd_generation_is_none(answer: Any) -> None:
    node = Idle(2)
    node.answer(0, "MaxPcieLinkGeneration", answer)
    assert isinstance(way(node).pcie, Absent)


def test_chip_to_chip_links_are_a_way_of_their_own() -> None:
    node = Idle(2)
    node.gpus.table["GPU-0", str(Question("Field", (170,)))] = 10
    for link in range(10):
        node.gpus.table["GPU-0", str(Question("Field", (172, link)))] = 45_000
    assert way(node).c2c == 450e9
    assert read_paths(node.hardware, node.listed())[1].c2c == 0.0


@pytest.mark.parametrize(("code", "payload"), [(0, 128), (1, 256), (2, 512)])
def test_the_payload_is_the_one_of_the_port_above_where_it_may_be_read(code: int, payload: int) -> None:
    node = Idle(2)
    behind_a_switch(node)
    at = "/sys/bus/pci/devices/0000:18:03.0/config"
    node.files.texts[at] = express(code)
    assert way(node).payload == payload
    node.files.texts[at] = express(code)[:64]
    assert way(node).payload is None, "a process without rights reads 64 bytes"
    node.files.texts[at] = Absent(Why.DENIED, "no", 13)
    assert way(node).payload is None


@given(st.binary(max_size=300))
def test_any_configuration_space_gives_a_payload_or_none(config: bytes) -> None:
    assert most_payload(config) in {None, *(128 << code for code in range(8))}


def test_a_plan_asks_for_host_links_with_the_cpus_near_unless_switched_off() -> None:
    node = Idle(2)
    behind_a_switch(node)
    scene = read_scene(node.hardware, node.listed(), {}, Expect(), {})
    assert not isinstance(scene, Absent)
    plan = plan_of(ProbeOptions(), "nccl", scene)
    assert (plan.host_bytes, plan.near) == (HOST_BYTES, ("0-31", ""))
    off = plan_of(ProbeOptions(host_links=False), "nccl", scene)
    assert (off.host_bytes, off.near) == (0, ())
    assert _without_hosts(plan) == _without_hosts(off), "older probes stay comparable"


# --- around the copies


def test_counters_wrap_and_one_that_stands_still_is_no_measurement() -> None:
    node = Idle(2)
    gpus = node.listed()
    for gpu, (sent, received) in enumerate([(WRAPS - 10, 5), (7, 7)]):
        node.gpus.table[f"GPU-{gpu}", "Field(197)"] = sent
        node.gpus.table[f"GPU-{gpu}", "Field(198)"] = received
        node.answer(gpu, "CurrPcieLinkGeneration", 4)
        node.answer(gpu, "CurrPcieLinkWidth", 8)
    before = host_moved(node.gpus, gpus)
    node.gpus.table["GPU-0", "Field(197)"] = 90
    node.gpus.table["GPU-0", "Field(198)"] = 25
    node.gpus.table["GPU-1", "Field(198)"] = Absent(Why.UNSUPPORTED, "no")
    node.answer(1, "CurrPcieLinkWidth", Absent(Why.LOST, "gone"))
    first, second = host_moved(node.gpus, gpus, before)
    assert first == HostMoved(0, 100, 20, Pcie(4, 8))
    assert (second.sent, second.received, second.pcie) == (None, None, Absent(Why.LOST, "gone"))


def test_the_copies_of_one_probe_do_not_wrap_a_counter() -> None:
    assert 2 * COPIED * HOST_BYTES < WRAPS
