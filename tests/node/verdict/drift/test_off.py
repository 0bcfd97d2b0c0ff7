"""GPUs in MIG mode, with a guest, released or out of sight: no link of theirs is lost or new."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.collectors.drawn import Files
from tests.node.verdict.drift.drawn import BOXES, Box, bridged, meshed, renumbered, uuid
from tests.node.verdict.drift.edits import Make
from tests.node.verdict.drift.readings import accepted, compared, drawn, rules, told
from tests.support import Node
from wirewatch.collectors.topology import read_topology
from wirewatch.core.tree import rdma_strays
from wirewatch.core.types import Absent, Health, OperatorNote
from wirewatch.hw.overlay import AnswerChange
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import ChangeKind
from wirewatch.verdict.drift.component import (
    BaselineInMemory,
    DriftContext,
    DriftMemory,
    DriftOptions,
    drift_component,
)
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.watch import DriftPolicy, accept_all
from wirewatch.verdict.drift.wiring import Graph

DEMO, EIGHT = "demo-dgx-h200", range(8)
LINKS = "Field(165,*)"
WORD = OperatorNote("eve", "meant", 1e9)


class Drifting(Node):
    """The demo node with drift alone, which begins with a baseline that it has learned."""

    def __init__(self, *changes: AnswerChange, learn: bool = True) -> None:
        super().__init__(DEMO, only=("drift",))
        self.kept = BaselineInMemory()
        self.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), DriftContext(self.kept))
        if learn:
            self.poll("drift", times=4, every=1.0)
            assert self.kept.baseline is not None
        self.changes += changes

    @property
    def memory(self) -> DriftMemory:
        state = self.state.components["drift"].memory
        assert isinstance(state, DriftMemory)
        return state

    def found(self, times: int = 3) -> dict[str, Health]:
        """Rules and healths after some more readings."""
        self.poll("drift", times=times, every=1.0)
        return {one.rule: one.health for one in self.state.components["drift"].findings}


def mig(gpu: object, *modes: int) -> AnswerChange:
    return AnswerChange("nvml", f"gpu{gpu}/MigMode()", "set", list(modes))


def down(gpu: object) -> AnswerChange:
    return AnswerChange("nvml", f"gpu{gpu}/{LINKS}", "set", 0)


# Before: {"topology.nvlink_lost": FAILED} for each of these.
@pytest.mark.parametrize("gpu", ["*", 3])
@pytest.mark.parametrize("modes", [(1, 1), (0, 1), (1, 0)])
def test_links_of_a_gpu_in_mig_mode_are_not_lost(gpu: object, modes: tuple[int, int]) -> None:
    node = Drifting(mig(gpu, *modes), down(gpu))
    before = node.kept.baseline
    assert node.found() == {}
    assert not any(node.series("topology_drift"))
    assert node.kept.baseline is before
    node.changes.clear()
    assert node.found() == {}
    assert not any(node.series("topology_drift"))
    assert node.kept.baseline is before


def test_a_link_that_is_lost_is_found_beside_a_gpu_in_mig_mode() -> None:
    node = Drifting(mig(3, 1, 1), down(3), down(5))
    assert node.found() == {"topology.nvlink_lost": Health.FAILED}
    assert {f.subject.gpu for f in node.state.components["drift"].findings} == {"5"}


def test_mig_mode_repairs_nothing() -> None:
    node = Drifting(AnswerChange("nvml", "gpu3/Field(165,7)", "set", 0))
    assert node.found() == {"topology.nvlink_lost": Health.FAILED}
    node.changes += [mig(3, 1, 1), down(3)]
    assert node.found() == {"topology.nvlink_lost": Health.FAILED}
    node.changes.clear()
    assert node.found() == {}


@pytest.mark.parametrize("gpu", ["*", 3])
def test_nothing_is_learned_or_accepted_in_mig_mode(gpu: object) -> None:
    node = Drifting(mig(gpu, 1, 1), down(gpu), learn=False)
    node.found(times=6)
    assert node.memory.baseline is None
    number = 3 if gpu == 3 else 0
    assert f"GPU {number} (...000{number}): NVLink links, off in MIG mode" in node.memory.watch.learning
    refusal = accept_all(node.memory.watch, WORD)
    assert isinstance(refusal, str)
    assert "off in MIG mode" in refusal
    node.changes.clear()
    node.found()
    assert node.memory.baseline is not None


def test_while_the_mode_cannot_be_read_the_links_are_not_known() -> None:
    node = Drifting(AnswerChange("nvml", "gpu3/MigMode()", "code", 999), down(3))
    assert node.found() == {}
    node.changes[:] = [AnswerChange("nvml", "gpu3/MigMode()", "code", 3), down(3)]
    assert node.found() == {"topology.nvlink_lost": Health.FAILED}


def place_of(node: Node, index: int) -> str:
    topology = read_topology(node.hardware)
    assert not isinstance(topology, Absent)
    return topology.gpus[index].place.address


def without_the_last(node: Node, driver: str) -> tuple[AnswerChange, ...]:
    """NVML lists seven GPUs; the eighth is in the PCI tree with this driver, or with none."""
    link = f"link /sys/bus/pci/devices/{place_of(node, 7)}/driver"
    bound = AnswerChange("sysfs", link, "set", f"/sys/bus/pci/drivers/{driver}")
    nobody = AnswerChange("sysfs", link, "errno", "ENOENT")
    return AnswerChange("nvml", "Count()", "set", 7), bound if driver else nobody


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace_gpu_vfio_pci", "pci-stub"])
def test_a_gpu_that_a_guest_was_given_is_not_lost(driver: str) -> None:
    node = Drifting()
    node.changes += without_the_last(node, driver)
    assert node.found() == {}
    assert not any(node.series("topology_drift"))
    node.changes.clear()
    assert node.found() == {}


@pytest.mark.parametrize("driver", ["nvidia", ""])
def test_a_gpu_that_nvml_does_not_list_any_more_is_lost(driver: str) -> None:
    node = Drifting()
    node.changes += without_the_last(node, driver)
    assert node.found() == {"topology.gpu_lost": Health.FAILED}


def test_another_device_that_a_guest_was_given_is_not_the_gpu_that_was_at_its_address() -> None:
    node = Drifting()
    node.changes += without_the_last(node, "vfio-pci")
    device = f"/sys/bus/pci/devices/{place_of(Node(DEMO), 7)}"
    node.changes.append(AnswerChange("sysfs", f"read {device}/class", "set", "0x010802"))
    assert node.found() == {"topology.gpu_lost": Health.FAILED}


# Before: each of these was learned as the node, with seven GPUs or NICs.
@pytest.mark.parametrize(
    ("driver", "told"),
    [
        ("nvidia", "nvidia is bound to it, and NVML does not list it"),
        ("", "no driver is bound to it"),
        ("vfio-pci", "vfio-pci: with a guest"),
    ],
)
def test_nothing_is_learned_while_the_pci_tree_shows_another_gpu(driver: str, told: str) -> None:
    node = Drifting(learn=False)
    node.changes += without_the_last(node, driver)
    node.found(times=6)
    assert node.memory.baseline is None
    assert f"GPU at {place_of(Node(DEMO), 7)}: {told}" in node.memory.watch.learning
    assert node.memory.doubts


@pytest.mark.parametrize(
    ("what", "change", "told"),
    [
        ("driver", ("errno", "EACCES"), "denied: "),
        ("physfn", ("set", "/sys/bus/pci/devices/0000:01:00.0"), None),
    ],
)
def test_a_gpu_of_the_pci_tree_is_told_unless_it_is_a_virtual_function(
    what: str, change: tuple[str, str], told: str | None
) -> None:
    node = Drifting(learn=False)
    at = place_of(node, 7)
    node.changes += [
        *without_the_last(node, "nvidia"),
        AnswerChange("sysfs", f"link /sys/bus/pci/devices/{at}/{what}", *change),
    ]
    node.found(times=1)
    assert (f"GPU at {at}: {told}" in node.memory.watch.learning) is (told is not None)
    assert (f"GPU at {at}" in node.memory.watch.learning) is (told is not None)


def test_seven_gpus_on_a_switch_are_not_learned() -> None:
    """Also where the eighth is not even in the PCI tree."""
    node = Drifting(learn=False)
    at = place_of(node, 7)
    node.changes += [
        AnswerChange("nvml", "Count()", "set", 7),
        AnswerChange("sysfs", f"read /sys/bus/pci/devices/{at}/class", "errno", "ENOENT"),
    ]
    node.found(times=6)
    assert node.memory.baseline is None
    assert "7 NVIDIA H200 are on the NVLink switch" in node.memory.watch.learning


def listing(*without: str) -> AnswerChange:
    names = [f"mlx5_{n}" for n in range(10) if f"mlx5_{n}" not in without]
    return AnswerChange("sysfs", "list /sys/class/infiniband", "set", names)


def test_nothing_is_learned_while_a_card_has_its_driver_and_no_rdma_device() -> None:
    node = Drifting(listing("mlx5_4"), learn=False)
    node.found(times=6)
    assert node.memory.baseline is None
    assert "NIC at 0000:9a:00.0: mlx5_core is bound" in node.memory.watch.learning


@pytest.mark.parametrize(
    ("path", "action", "value"),
    [
        # Given to a pod: it is not known when it comes back.
        ("read /sys/module/ib_core/parameters/netns_mode", "set", "N"),
        # An Ethernet card of the vendor that is used without RDMA.
        ("link /sys/bus/pci/devices/0000:9a:00.0/driver", "set", "/sys/bus/pci/drivers/ena"),
    ],
)
def test_a_card_that_is_in_use_elsewhere_keeps_nothing_from_being_learned(
    path: str, action: str, value: str
) -> None:
    ethernet = AnswerChange("sysfs", "read /sys/bus/pci/devices/0000:9a:00.0/class", "set", "0x020000")
    node = Drifting(listing("mlx5_4"), ethernet, AnswerChange("sysfs", path, action, value), learn=False)
    node.found(times=6)
    assert node.memory.baseline is not None


@pytest.mark.parametrize(
    ("device", "kind", "core", "missing"),
    [
        ("mlx5_0", "0x020000", "Y", True),
        # A bond of both ports of a card is one RDMA device.
        ("mlx5_bond_0", "0x020000", "Y", False),
        # The RDMA core is not loaded: an Ethernet card does without, an InfiniBand card has no other use.
        ("mlx5_0", "0x020000", "", False),
        ("mlx5_0", "0x020700", "", True),
    ],
)
def test_a_function_without_an_rdma_device_is_missing_or_in_use(
    device: str, kind: str, core: str, *, missing: bool
) -> None:
    files = Files()
    files.nic(device, "0000:29:00.0", "pci0000:20")
    files.device("0000:29:00.1", "pci0000:20", driver="mlx5_core", **{"class": kind})
    if core:
        files.texts["/sys/module/ib_core/parameters/netns_mode"] = core
    assert bool(rdma_strays(files, {device: "0000:29:00.0"})) is missing


def learned_graph(node: Drifting) -> Graph:
    assert node.kept.baseline is not None
    return node.kept.baseline.graph


@pytest.mark.parametrize("fault", ["mig", "guest"])
def test_a_baseline_of_the_product_lacks_nothing_of_a_gpu_that_is_off(fault: str) -> None:
    node = Drifting()
    around = DriftContext(BaselineInMemory(), learned_graph(node))
    node.collectors["drift"] = drift_component(DriftOptions(), DriftPolicy(), around)
    node.changes += [mig("*", 1, 1), down("*")] if fault == "mig" else without_the_last(node, "vfio-pci")
    assert node.found(times=1) == {}
    node.changes += [AnswerChange("nvml", "Count()", "set", 6)]
    assert node.found(times=1) == {"topology.shape": Health.FAILED}


def dark(box: Box, *numbers: int) -> None:
    """These GPUs are in MIG mode: the driver shows the links of both ends as down."""
    names = {uuid(number) for number in numbers}
    box.split.update(numbers)
    for number, peers in box.links.items():
        for link in [link for link, peer in peers.items() if number in numbers or peer in names]:
            del peers[link]


@pytest.mark.parametrize("make", BOXES)
@pytest.mark.parametrize("numbers", [(1,), (0, 1), (0, 1, 2, 3)])
def test_the_other_end_of_a_link_that_is_off_lost_nothing(make: Make, numbers: tuple[int, ...]) -> None:
    off = drawn(lambda box: dark(box, *numbers), make=make)
    assert diff(drawn(make=make), off) == diff(off, drawn(make=make)) == ()


def test_another_link_of_the_other_end_is_lost_all_the_same() -> None:
    def cut(box: Box) -> None:
        dark(box, 3)
        box.cut(0, 0)
        box.cut(1, 0)

    (change,) = diff(drawn(make=meshed), drawn(cut, make=meshed))
    assert (
        change.text == "GPU 0 (...0000): NVLink 8 -> 7 links up, link 0 down (with link 0 of GPU 1 (...0001))"
    )


def test_a_bridge_that_was_lost_before_stays_lost() -> None:
    def gone(box: Box) -> None:
        box.cut(0, *range(12))
        box.cut(1, *range(12))

    base = accepted(make=bridged)
    lost, off = drawn(gone, make=bridged), drawn(lambda box: dark(box, 1), make=bridged)
    memory = compared(base, [lost, lost, off, off, off])
    assert {rule for rule, _, _ in rules(told(memory, base))} == {"topology.island"}
    assert told(compared(base, [drawn(make=bridged)], memory), base) == ()


OF_LINKS = frozenset(
    {ChangeKind.NVLINK_LOST, ChangeKind.NVLINK_NEW, ChangeKind.NVLINK_PEER, ChangeKind.ISLAND}
)
OF_GPU = OF_LINKS | {ChangeKind.GPU_LOST, ChangeKind.GPU_NEW, ChangeKind.GPU_PRODUCT, ChangeKind.CLIQUE}
CODES = (999, 15, 3, 2)
"""NVML: unknown error, GPU is lost, not supported, invalid argument."""
Fault = tuple[str, str, object]
OF_ONE: tuple[Fault, ...] = (
    ("MigMode()", "set", [1, 1]), ("MigMode()", "set", [0, 1]), ("MigMode()", "set", [1, 0]),
    ("MigMode()", "set", "nonsense"), ("MigMode()", "code", 999), ("*", "code", 15), ("*", "code", 999),
    ("UUID()", "code", 15), ("Field(165,*)", "set", 0), ("Field(165,5)", "set", 0),
    ("Field(165,5)", "code", 999), ("Field(165,*)", "code", 3), ("Field(91)", "set", 0),
    ("Field(91)", "code", 999), ("NvLinkRemoteDeviceType(*)", "code", 999),
    ("GpuFabricInfoV()", "code", 999), ("NvLinkState(*)", "set", 0), ("PciInfo()", "code", 999),
)  # fmt: skip
FAULTS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(OF_ONE)), max_size=6)


@example([(3, OF_ONE[0]), (3, ("Field(165,*)", "set", 0))], [])
@example([], [(0, ("MigMode()", "code", 999)), (0, ("Field(165,*)", "set", 0))])
@settings(max_examples=examples(300))
@given(FAULTS, FAULTS)
def test_no_faults_make_a_change_of_a_part_that_is_not_read(
    before: list[tuple[int, Fault]], after: list[tuple[int, Fault]]
) -> None:
    graphs = []
    node = Node(DEMO, only=("drift",))
    node.nvml.gpus()  # The client knows the GPUs by name before any of them fails.
    for faults in (before, after):
        node.changes[:] = [AnswerChange("nvml", f"gpu{gpu}/{match}", *rest) for gpu, (match, *rest) in faults]  # type: ignore[arg-type]
        topology = read_topology(node.hardware)
        assert not isinstance(topology, Absent)
        graphs.append(graph_of(topology))
    in_mig = {uuid(gpu) for gpu, fault in (*before, *after) if fault[0] == "MigMode()" and fault[1] == "set"}
    unread = {gpu.key for graph in graphs for gpu in graph.gpus if not gpu.read}
    assert in_mig <= unread
    for one, other in (graphs, graphs[::-1]):
        for change in diff(one, other):
            named = f"{change.part} {change.before} {change.after}"
            assert change.kind not in OF_GPU or not any(part in named for part in unread)


NUMBERS = st.sets(st.integers(0, 3))


@given(
    st.sampled_from(BOXES), NUMBERS, NUMBERS, NUMBERS,
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 17)), max_size=8), st.integers(0, 2**32),
)  # fmt: skip
def test_no_loss_makes_a_change_of_a_gpu_in_mig_mode(
    make: Make, before: set[int], after: set[int], unread: set[int], cuts: list[tuple[int, int]], seed: int
) -> None:
    def off(box: Box) -> None:
        dark(box, *after)
        box.unread.update(unread)
        for number, link in cuts:
            box.cut(number, link)

    box = make()
    off(box)
    one, other = drawn(lambda box: dark(box, *before), make=make), graph_of(renumbered(box.build(), seed))
    for change in (*diff(one, other), *diff(other, one)):
        assert change.kind in OF_LINKS
        named = f"{change.part} {change.before} {change.after}"
        assert not any(uuid(number) in named for number in before | after)
        assert change.part not in map(uuid, unread)
