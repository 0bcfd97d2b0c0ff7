"""Every product with a part less, starting, or in another fabric: what all witnesses together say of it."""

from dataclasses import dataclass, replace

import pytest

from tests.node.collectors.test_nvlink_memory import restarted
from tests.node.products.machine import address, draw
from tests.node.products.plays import files, log, refused, unbound, up, vanished
from tests.node.products.rows import ROWS, Row
from tests.rows import each
from tests.support import EPOCH, Node
from wirewatch.collectors.inventory import COLLECTOR
from wirewatch.core.topology import nvlink_product
from wirewatch.core.types import Expect, Health
from wirewatch.hw.overlay import AnswerChange

OK, DEGRADED, UNKNOWN, FAILED = Health.OK, Health.DEGRADED, Health.UNKNOWN, Health.FAILED
PCI = "/sys/bus/pci/devices"
DRAWN = [row for row in ROWS if not row.recording]
SEVERAL = [row for row in DRAWN if row.gpus > 1]
BY_ID = {row.id: row for row in ROWS}
GRACE = 300.0
WATCHED = ("nvlink", "pcie", "inventory", "gpu")


def named(row: object) -> str:
    return getattr(row, "id", "")


def gpus(node: Node) -> set[tuple[str, Health]]:
    """Where and how bad each missing GPU is."""
    node.poll("inventory", times=3)
    assert {f.rule for f in node.findings()} <= {"gpu.missing"}
    return {(f.subject.device, f.health) for f in node.findings()}


@each("row", SEVERAL, ids=named)
def test_a_gpu_that_its_driver_refused_at_boot_is_failed_with_its_slot(row: Row) -> None:
    last = address(row.gpus - 1)
    node = Node(draw(row), [*unbound(row), refused(last)])
    assert gpus(node) == {(last[:-2], FAILED)}


@each("row", SEVERAL, ids=named)
def test_a_gpu_without_a_driver_and_without_a_word_is_failed_where_a_board_needs_it(row: Row) -> None:
    """Two cards are no board: the second may be kept out."""
    sure = row.gpus > 2 and row.links
    expected = {(address(row.gpus - 1)[:-2], FAILED if sure else UNKNOWN)}
    assert gpus(Node(draw(row), unbound(row))) == expected


@pytest.mark.parametrize("row", SEVERAL, ids=named)
@pytest.mark.parametrize("remembered", [False, True], ids=["new", "remembered"])
def test_a_gpu_without_a_driver_is_starting_while_the_machine_does(row: Row, *, remembered: bool) -> None:
    """The agent may look before the driver has all of them; what the driver refused is known at once."""
    node = Node(draw(row))
    if remembered:
        node.poll("inventory")
        restarted(node, COLLECTOR)
    last = address(row.gpus - 1)
    node.changes += unbound(row)
    node.changes.append(AnswerChange("host", "BootTime()", "set", EPOCH + node.clock.seconds - 60.0))
    node.poll("inventory", times=14)
    assert {(f.subject.device, f.health) for f in node.findings()} == {(last[:-2], UNKNOWN)}
    assert "it may still be starting" in node.findings()[0].evidence
    refusal = refused(last)
    node.changes.append(refusal)
    node.poll("inventory")
    assert {f.health for f in node.findings()} == {FAILED}
    node.undo(refusal)
    node.poll("inventory")
    assert {f.health for f in node.findings()} == {UNKNOWN}
    node.poll("inventory")
    sure = remembered or (row.gpus > 2 and row.links)
    assert {f.health for f in node.findings()} == {FAILED if sure else UNKNOWN}


@each("row", SEVERAL, ids=named)
def test_a_gpu_that_nobody_sees_is_unknown_where_no_node_has_so_few(row: Row) -> None:
    expected = {("", UNKNOWN)} if row.gpus > 2 and row.links else set()
    node = Node(draw(row), vanished(row))
    assert gpus(node) == expected
    stated = Node(draw(row), vanished(row), Expect(gpus=row.gpus - 1))
    assert gpus(stated) == set()


@each("row", SEVERAL, ids=named)
def test_a_gpu_that_was_there_and_is_not_is_failed(row: Row) -> None:
    node = Node(draw(row))
    node.poll("inventory")
    node.changes.extend(vanished(row))
    node.poll("inventory", times=3)
    assert {(f.rule, f.health) for f in node.findings()} == {("gpu.lost", FAILED)}


def test_a_board_that_was_accepted_with_seven_is_whole_from_then_on() -> None:
    row = BY_ID["h100-sxm"]
    node = Node(draw(row), vanished(row))
    assert gpus(node) == {("", UNKNOWN)}
    component = node.state.components["inventory"]
    assert COLLECTOR.forget is not None
    assert COLLECTOR.lasting is not None
    kept = COLLECTOR.lasting.keep(COLLECTOR.forget(component.memory))
    started = replace(component, memory=COLLECTOR.lasting.recall(kept))
    node.state = node.state.with_component(started)
    assert gpus(node) == set()


INVALID = "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:"
OPEN = (
    "NVRM: The NVIDIA GPU {at} (PCI ID: 10de:1cb3) installed in this system is\\x0aNVRM: not supported by "
    "open nvidia.ko because it does not include the required GPU System Processor (GSP)."
)
"""kernel-open/nvidia/nv.c: of a card for a screen, from before Turing."""


def test_a_card_for_a_screen_that_the_driver_refuses_is_no_missing_gpu() -> None:
    row = BY_ID["h100-sxm"]
    screen = "0000:03:00.0"
    text = {"class": "0x030000", "vendor": "0x10de", "device": "0x1cb3"}
    probe = f"nvidia {screen}: probe with driver nvidia failed with error -1"
    changes = [
        files(f"list {PCI}", "set", [screen, *map(address, range(8))]),
        *(files(f"read {PCI}/{screen}/{name}", "set", value) for name, value in text.items()),
        log(OPEN.format(at=screen), probe),
    ]
    node = Node(draw(row), changes)
    assert gpus(node) == {(screen[:-2], UNKNOWN)}
    component = node.state.components["inventory"]
    assert COLLECTOR.forget is not None
    accepted = replace(component, memory=COLLECTOR.forget(component.memory))
    node.state = node.state.with_component(accepted)
    assert gpus(node) == set()


@pytest.mark.parametrize("driver", ["/sys/bus/pci/drivers/vfio-pci", None])
def test_a_card_for_a_screen_makes_no_board_whole(driver: str | None) -> None:
    """Seven GPUs and a card for a screen, which a guest has or nobody, are eight of something else."""
    row = BY_ID["h100-sxm"]
    screen, last = "0000:03:00.0", address(7)
    text = {"class": "0x030000", "vendor": "0x10de", "device": "0x1cb3"}
    changes = [
        *unbound(row),
        files(f"list {PCI}", "set", [screen, *map(address, range(8))]),
        *(files(f"read {PCI}/{screen}/{name}", "set", value) for name, value in text.items()),
        *([files(f"link {PCI}/{screen}/driver", "set", driver)] if driver else []),
    ]
    assert gpus(Node(draw(row), changes)) == {(last[:-2], FAILED)}
    gone = files(f"list {PCI}", "set", [screen, *map(address, range(7))])
    assert gpus(Node(draw(row), [*changes, gone])) == {("", UNKNOWN)}


@dataclass(frozen=True)
class Start:
    """A line of the kernel's log about a GPU, and how bad that is."""

    line: str
    source: str
    health: Health


RES = "Linux drivers/pci/setup-res.c"
BARS = {
    "memory, 6.9 and later": Start(
        "pci {at}: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space", RES, FAILED
    ),
    "memory, before": Start("pci {at}: BAR 1: no space for [mem size 0x2000000000 64bit pref]", RES, FAILED),
    "memory, failed": Start(
        "pci {at}: BAR 3: failed to assign [mem size 0x02000000 64bit pref]", RES, FAILED
    ),
    "memory, the driver's": Start(
        f"{INVALID}\\x0aNVRM: BAR0 is 0M @ 0x0 (PCI:{{at}})",
        "NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-pci.c",
        FAILED,
    ),
    "ports, which no GPU needs": Start(
        "pci {at}: BAR 5 [io  size 0x0080]: can't assign; no space", RES, UNKNOWN
    ),
    "the ROM": Start("pci {at}: BAR 6 [mem size 0x00080000 pref]: can't assign; no space", RES, UNKNOWN),
}


@each("start", BARS.values(), ids=[*BARS])
def test_a_gpu_whose_memory_was_not_assigned_is_missing(start: Start) -> None:
    """Of two cards, so that no board says it."""
    row = BY_ID["h100-pcie"]
    last = address(1)
    node = Node(draw(row), [*unbound(row), log(start.line.format(at=last))])
    assert gpus(node) == {(last[:-2], start.health)}


def test_memory_that_was_assigned_at_the_second_try_is_no_failed_start() -> None:
    row = BY_ID["h100-pcie"]
    last = address(1)
    lines = (
        BARS["memory, before"].line,
        "pci {at}: BAR 1: assigned [mem 0x2000000000-0x3fffffffff 64bit pref]",
    )
    node = Node(draw(row), [*unbound(row), log(*(line.format(at=last) for line in lines))])
    assert gpus(node) == {(last[:-2], UNKNOWN)}


def test_a_card_that_waits_for_a_virtual_machine_is_lent() -> None:
    """The driver lets go of it before vfio-pci takes it: Documentation/ABI/testing/sysfs-bus-pci."""
    row = BY_ID["h100-sxm"]
    wait = files(f"read {PCI}/{address(7)}/driver_override", "set", "vfio-pci")
    assert gpus(Node(draw(row), [*unbound(row), wait])) == set()


@dataclass(frozen=True)
class Fabric:
    """What is changed of the registration of a row's GPUs, `later` than the start, and what is said of it."""

    row: str
    source: str
    changes: dict[str, object]
    health: Health
    rule: str = "fabric.state"
    gpu: str = "*"
    later: bool = False


NONE = {"state": 0, "status": 0, "cliqueId": 0, "clusterUuid": "0" * 32}
MEMORY, SIBLINGS = "it was in one before", "the others here are in one"
IMEX = "NVIDIA/k8s-device-plugin internal/lm/imex.go: one clique and one cluster for each node"
NO_SWITCH = "only GPUs on an NVSwitch register (nvml.h)"
FABRICS = {
    "a tray in no fabric": Fabric("gb200", "leptonai/gpud#1108", NONE, UNKNOWN),
    "a tray of GB300 in no fabric": Fabric("gb300", "leptonai/gpud#1108", NONE, UNKNOWN),
    "a tray that was in one": Fabric("gb200", MEMORY, NONE, FAILED, later=True),
    "one of a tray in no fabric": Fabric("gb200", SIBLINGS, NONE, FAILED, gpu="3"),
    "one of eight in no fabric": Fabric("h100-sxm", SIBLINGS, NONE, FAILED, gpu="5"),
    "eight that were in one": Fabric("h100-sxm", MEMORY, NONE, FAILED, later=True),
    "eight in none": Fabric("b200", "Fabric Manager guide DU-09883", NONE, UNKNOWN),
    "one in another clique": Fabric("gb200", IMEX, {"cliqueId": 9}, UNKNOWN, gpu="2"),
    "one in another cluster": Fabric(
        "gb200", IMEX, {"clusterUuid": "c0ffee".ljust(32, "1")}, UNKNOWN, gpu="0"
    ),
    "a tray in no cluster": Fabric("gb200", IMEX, {"clusterUuid": "0" * 32}, UNKNOWN),
    "a tray that moved to another clique": Fabric("gb200", IMEX, {"cliqueId": 9}, OK, later=True),
    "a mesh of four": Fabric("h100-4", NO_SWITCH, NONE, OK),
    "one in a virtual machine": Fabric("h100-vm-1", "recording h200x1-idle", NONE, OK),
    "cards": Fabric("h100-pcie", NO_SWITCH, NONE, OK),
    "cards without bridges": Fabric("h100-pcie-alone", NO_SWITCH, NONE, OK),
    "one GH200": Fabric("gh200", NO_SWITCH, NONE, OK),
    "before fabrics registered": Fabric("a100-sxm", "nvml.h: GpuFabricInfo is of Hopper and later", NONE, OK),
}


@pytest.mark.parametrize("case", FABRICS.values(), ids=FABRICS)
def test_a_place_in_a_fabric_is_judged_by_product_siblings_and_memory(case: Fabric) -> None:
    node = Node(draw(BY_ID[case.row]))
    if case.later:
        node.poll("nvlink")
    had = {"healthMask": 0, "healthSummary": 0, "state": 3, "status": 0, "cliqueId": 7}
    cluster = {"clusterUuid": BY_ID[case.row].cluster.ljust(32, "b") or "0" * 32}
    node.change(f"gpu{case.gpu}/GpuFabricInfoV()", "set", {**had, **cluster, **case.changes})
    node.poll("nvlink", times=3)
    told = {(f.rule, f.health) for f in node.findings()}
    assert told == ({(case.rule, case.health)} if case.health is not OK else set())
    count = BY_ID[case.row].gpus if case.gpu == "*" else 1
    assert len(node.findings()) == count * bool(told)


def test_a_tray_whose_driver_knows_no_fabric_is_not_known() -> None:
    node = Node(draw(BY_ID["gb200"]))
    node.change("gpu*/GpuFabricInfoV()", "code", 3)
    node.poll("nvlink", times=3)
    assert {(f.rule, f.health) for f in node.findings()} == {("fabric.state", UNKNOWN)}


WIRED = [row for row in DRAWN if row.watched and row.gpus > len(row.mig)]


@pytest.mark.parametrize("row", WIRED, ids=named)
@pytest.mark.parametrize("all_links", [False, True], ids=["two links", "all links"])
@pytest.mark.parametrize("remembered", [False, True], ids=["new", "remembered"])
def test_links_that_train_after_boot_are_starting(row: Row, *, all_links: bool, remembered: bool) -> None:
    """NVSentinel#1701: 214 of 288 nodes at planned reboots."""
    node = Node(draw(row))
    if remembered:
        node.poll("nvlink")
        restarted(node)
    node.changes.append(AnswerChange("host", "BootTime()", "set", EPOCH + node.clock.seconds - 60.0))
    late = row.active if all_links else row.active[-2:]
    gpu = "*" if all_links else str(row.faulty)
    changes = [node.change(f"gpu{gpu}/{up(row, link)}", "set", 0) for link in late]
    node.poll("nvlink", times=10)
    assert {f.health for f in node.findings()} <= {UNKNOWN}
    product = nvlink_product(row.name)
    assert product is not None
    # Without bridges no link is up either.
    assert node.findings() != () or (all_links and not remembered and 0 in product.counts)
    for change in changes:
        node.undo(change)
    node.poll("nvlink")
    assert node.findings() == ()


@pytest.mark.parametrize("row", [row for row in WIRED if len(row.active) == row.links], ids=named)
def test_links_that_never_train_are_failed_when_the_grace_is_over(row: Row) -> None:
    node = Node(draw(row))
    node.changes.append(AnswerChange("host", "BootTime()", "set", EPOCH - 60.0))
    node.change(f"gpu{row.faulty}/{up(row, row.active[-1])}", "set", 0)
    node.poll("nvlink", times=16)
    assert {f.health for f in node.findings()} == {UNKNOWN}
    node.poll("nvlink")
    assert {f.health for f in node.findings()} == {FAILED}


def pairs(*active: int) -> Node:
    """Four A100 of PCIe, of which so many links are up."""
    node = Node(draw(replace(BY_ID["a100-pcie"], gpus=4)))
    for gpu, count in enumerate(active):
        for link in range(count, 12):
            node.change(f"gpu{gpu}/NvLinkState({link})", "set", 0)
    return node


@pytest.mark.parametrize(
    ("active", "found"),
    [
        ((12, 12, 8, 8), {"2", "3"}),
        ((4, 4, 12, 12), {"0", "1"}),
        ((12, 12, 12, 12), set()),
        ((8, 8, 8, 8), set()),
        ((12, 12, 0, 0), set()),
    ],
)
def test_pairs_of_cards_know_what_a_pair_should_have(active: tuple[int, ...], found: set[str]) -> None:
    """All three bridges are to be installed (product brief of the A100 PCIe), but fewer may be meant."""
    node = pairs(*active)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.links_missing", gpu, "", UNKNOWN) for gpu in found}


def test_a_pair_that_had_more_links_has_lost_them() -> None:
    node = pairs()
    node.poll("nvlink")
    for gpu in (2, 3):
        for link in range(8, 12):
            node.change(f"gpu{gpu}/NvLinkState({link})", "set", 0)
    node.poll("nvlink", times=3)
    assert {(rule, health) for rule, _, _, health in node.rules()} == {("nvlink.link_down", FAILED)}
