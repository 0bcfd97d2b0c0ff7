"""What a probe starts from: groups, wires and settings, read from a drawn node."""

import pytest

from tests.node.probe.idle import DENIED, Idle
from wirewatch.busbw.expected import Expectation, GroupWire, expect, wire
from wirewatch.core.hostlink import Pcie
from wirewatch.core.nvml import link_speed
from wirewatch.core.pci import Path
from wirewatch.core.ports import Question
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.setup import CONF, Scene, cpu_scene, plan_of, read_scene

LARGE = 256 << 20


def scene(node: Idle, *only: int, expected: Expect | None = None) -> Scene:
    gpus = [gpu for gpu in node.listed() if not only or gpu.index in only]
    found = read_scene(node.hardware, gpus, node.probes.environment, expected or Expect(), {})
    assert isinstance(found, Scene)
    return found


def bridge(node: Idle, one: int, other: int, links: int) -> None:
    """All that these two have are `links` to each other."""
    for a, b in ((one, other), (other, one)):
        key = f"GPU-{a}"
        for link in range(18):
            node.gpus.table[key, str(Question("Field", (165, link)))] = int(link < links)
            node.gpus.table[key, str(Question("NvLinkRemoteDeviceType", (link,)))] = 0
            bus = f"0000{node.gpus.addresses[b].upper()}"
            node.gpus.table[key, str(Question("NvLinkRemotePciInfo", (link,)))] = {"busId": bus}


def placed(node: Idle, *roots: int) -> None:
    """Each GPU below a host bridge of this number, on the NUMA node of the same number."""
    for address, root in zip(node.gpus.addresses, roots, strict=True):
        node.files.device(address, f"pci00{root:02x}:00/00{root:02x}:00:01.0", numa=str(root))
        node.files.texts[f"/sys/devices/system/node/node{root}/cpulist"] = "0"


def test_gpus_on_a_switch_are_one_group() -> None:
    found = scene(Idle(4))
    assert found.ranks == tuple(f"GPU-{n}" for n in range(4))
    assert found.groups == ((0, 1, 2, 3),)
    (conditions,) = found.conditions
    assert (conditions.group.kind, conditions.group.links) == (WireKind.SWITCH, (18,) * 4)
    assert conditions.link_rate == 26.562e9
    assert conditions.pcie == Pcie(5, 16)
    assert isinstance(expect(conditions, "all_reduce", LARGE), Expectation)


def test_a_part_of_the_gpus_is_ranked_from_nought() -> None:
    found = scene(Idle(4), 1, 3)
    assert found.ranks == ("GPU-1", "GPU-3")
    assert found.groups == ((0, 1),)
    assert [gpu.index for gpu in found.gpus] == [1, 3]


def test_bridged_pairs_are_islands_and_the_whole_crosses_pcie() -> None:
    node = Idle(4)
    bridge(node, 0, 2, 12)
    bridge(node, 1, 3, 12)
    placed(node, 0, 0, 1, 1)
    found = scene(node)
    assert found.groups == ((0, 1, 2, 3), (0, 2), (1, 3))
    kinds = [one.group.kind for one in found.conditions]
    assert kinds == [WireKind.PCIE, WireKind.PAIR, WireKind.PAIR]
    assert found.conditions[0].group.crossing is Path.PIX
    far = Idle(4)
    bridge(far, 0, 1, 12)
    bridge(far, 2, 3, 12)
    placed(far, 0, 0, 1, 1)
    assert scene(far).conditions[0].group.crossing is Path.SYS


def test_a_plan_has_the_scenes_groups_and_the_options_sizes() -> None:
    node = Idle(4)
    bridge(node, 0, 2, 12)
    bridge(node, 1, 3, 12)
    options = ProbeOptions(copies=False, micro=False, ops=("all_gather",), latency_sizes=(64,))
    plan = plan_of(options, "torch", scene(node))
    assert plan.groups == ((0, 1, 2, 3), (0, 2), (1, 3))
    assert (plan.engine, plan.ops, plan.latency_sizes) == ("torch", ("all_gather",), (64,))
    assert (plan.copy_bytes, plan.micro) == (0, False)
    assert plan_of(ProbeOptions(), "nccl", scene(node)).copy_bytes == LARGE


def test_links_that_cannot_be_read_leave_a_group_of_unknown_wires() -> None:
    node = Idle(2)
    for link in range(18):
        node.gpus.table["GPU-1", str(Question("Field", (165, link)))] = DENIED
    (conditions,) = scene(node).conditions
    assert conditions.group.kind is WireKind.UNKNOWN
    told = expect(conditions, "all_reduce", LARGE)
    assert isinstance(told, Absent)
    assert "could not be read" in told.detail


def test_a_lost_link_lowers_nothing_that_is_expected() -> None:
    node = Idle(4)
    whole = expect(scene(node).conditions[0], "all_reduce", LARGE)
    node.gpus.table["GPU-2", str(Question("Field", (165, 7)))] = 0
    (conditions,) = scene(node).conditions
    assert conditions.group.links == (18, 18, 17, 18)
    lowered = expect(conditions, "all_reduce", LARGE)
    assert isinstance(whole, Expectation)
    assert isinstance(lowered, Expectation)
    assert lowered.busbw == whole.busbw
    assert any("GPU 2 shows 17 of 18 links up" in line for line in lowered.derivation)


def test_the_operators_links_count_and_pins_are_passed_on() -> None:
    found = scene(Idle(2), expected=Expect(nvlink_links=16))
    assert found.conditions[0].links == 16
    rail = wire(found.conditions[0])
    assert isinstance(rail, GroupWire)
    assert rail.rate == pytest.approx(16 * 26.562e9)
    node = Idle(2)
    pinned = read_scene(node.hardware, node.listed(), {}, Expect(), {"all_reduce": 1e11})
    assert isinstance(pinned, Scene)
    assert pinned.conditions[0].pins == {"all_reduce": 1e11}


def test_the_rate_is_that_of_most_links_and_pcie_that_of_the_slowest_card() -> None:
    node = Idle(3)
    node.gpus.table["GPU-1", str(link_speed(4))] = 0
    node.gpus.table["GPU-1", str(link_speed(5))] = 10_000
    node.answer(2, "MaxPcieLinkWidth", 8)
    node.answer(1, "MaxPcieLinkGeneration", 4)
    (conditions,) = scene(node).conditions
    assert (conditions.link_rate, conditions.pcie) == (26.562e9, Pcie(4, 16))
    node.answer(0, "MaxPcieLinkWidth", DENIED)
    assert isinstance(scene(node).conditions[0].pcie, Absent)
    for n in range(3):
        for link in range(18):
            node.gpus.table[f"GPU-{n}", str(link_speed(link))] = DENIED
    assert isinstance(scene(node).conditions[0].link_rate, Absent)


# --- settings


def test_the_environment_wins_over_nccl_conf_and_only_nccls_are_reported() -> None:
    node = Idle(2)
    node.files.texts[CONF] = (
        "# ours\nNCCL_ALGO=Tree\nNCCL_NVLS_ENABLE=1\nNCCL_DEBUG=TRACE\n"
        "CUDA_X=1\nNCCL_PROFILER_PLUGIN=/tap.so\n"
    )
    node.probes.environment = {
        "NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO", "NCCL_RAS_ENABLE": "1", "PATH": "/bin",
        "NCCL_DEBUG_FILE": "/tmp/x", "NCCL_DEBUG_SUBSYS": "ALL", "NCCL_PROFILER_PLUGIN": "inspector",
    }  # fmt: skip
    found = scene(node)
    assert found.settings == {"NCCL_ALGO": "Tree", "NCCL_NVLS_ENABLE": "0"}
    assert found.conditions[0].settings == found.settings


def test_an_environment_that_is_no_unicode_can_be_reported() -> None:
    node = Idle(2)
    node.probes.environment = {"NCCL_TOPO_FILE": "/tmp/\udcff.xml"}
    assert scene(node).settings == {"NCCL_TOPO_FILE": "/tmp/?.xml"}


def test_without_nccl_conf_there_is_the_environment_alone() -> None:
    node = Idle(2)
    node.probes.environment = {"NCCL_P2P_LEVEL": "NVL"}
    assert scene(node).settings == {"NCCL_P2P_LEVEL": "NVL"}


# --- none


def test_one_gpu_and_an_nvml_that_does_not_answer_are_no_scene() -> None:
    node = Idle(2)
    assert isinstance(read_scene(node.hardware, node.listed()[:1], {}, Expect(), {}), Absent)
    listed = node.listed()
    node.gpus.absent = Absent(Why.TIMEOUT, "no answer")
    assert read_scene(node.hardware, listed, {}, Expect(), {}) == node.gpus.absent


def test_ranks_of_the_processors_are_one_group_without_conditions() -> None:
    found = cpu_scene(3)
    assert found == Scene(("cpu:0", "cpu:1", "cpu:2"), (), ((0, 1, 2),), (), {})
    assert plan_of(ProbeOptions(), "gloo", found).gpus == found.ranks
