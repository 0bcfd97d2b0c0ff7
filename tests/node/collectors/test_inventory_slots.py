"""GPUs that never came: NVML's list against the PCI tree, the kernel log and what was in the slots before."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.node.collectors.drawn import PCI, Files, Gpus, Log, Watched
from tests.support import Node
from wirewatch.collectors.inventory import COLLECTOR, GpuSlots, InventoryFacts, SlotGpu
from wirewatch.core.ports import KernelLog
from wirewatch.core.types import Absent, Finding, Health, Why
from wirewatch.hw.overlay import AnswerChange

UNKNOWN, FAILED = Health.UNKNOWN, Health.FAILED
LISTED = "/proc/driver/nvidia/gpus"
SLOTS = tuple(f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x43, 0x52, 0x61))
LAST = SLOTS[3]
INIT = f"NVRM: GPU {LAST}: RmInitAdapter failed! (0x22:0x56:897)"


def tree(*slots: str, driver: str = "nvidia", kind: str = "0x030200") -> Files:
    files = Files()
    for slot in slots:
        at = {"vendor": "0x10de", "class": kind, "device": "0x2335"}
        files.device(slot, "pci0000:00/0000:00:01.0", driver=driver, **at)
    files.device(
        "0000:07:00.0", "pci0000:00", driver="nvidia-nvswitch", vendor="0x10de", **{"class": "0x068000"}
    )
    return files


def answering(count: int) -> Gpus:
    """GPUs that NVML lists, in the first slots."""
    gpus = Gpus(SLOTS[:count])
    gpus.table |= {(f"GPU-{i}", "UUID()"): f"GPU-{i}" for i in range(count)}
    return gpus


def node(files: Files, gpus: Gpus, kept: GpuSlots | None = None) -> Watched:
    made = Watched("inventory", files, gpus)
    if kept is not None:
        assert COLLECTOR.lasting is not None
        made.component = replace(made.component, memory=COLLECTOR.lasting.recall(kept))
    return made


def kept(count: int = 4) -> GpuSlots:
    return GpuSlots({at: SlotGpu(f"GPU-{i}", "NVIDIA H100") for i, at in enumerate(SLOTS[:count])})


def only(made: Watched) -> Finding:
    (finding,) = made.component.findings
    return finding


def test_a_gpu_that_the_driver_could_not_start_is_missing_by_the_name_of_its_slot() -> None:
    """Before: OK, and the topology of the others was learned."""
    made = node(tree(*SLOTS), answering(3))
    made.log = Log([INIT])
    made.hardware = replace(made.hardware, kmsg=made.log)
    made.poll()
    assert made.rules() == {("gpu.missing", "0000:61:00"): UNKNOWN}
    made.poll()
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}
    assert only(made).evidence == (
        f"{LAST}: the PCI tree shows it with driver nvidia, NVML does not list it; {INIT}"
    )


@pytest.mark.parametrize("kind", ["0x030000", "0x030200"])
def test_the_pci_tree_alone_is_enough(kind: str) -> None:
    made = node(tree(*SLOTS, kind=kind), answering(3))
    made.poll(2)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}


def test_what_was_in_the_slot_before_is_named() -> None:
    made = node(tree(*SLOTS), answering(3), kept())
    made.poll(2)
    finding = only(made)
    assert (finding.health, finding.subject.uuid, finding.subject.device) == (FAILED, "GPU-3", "0000:61:00")
    assert "NVIDIA H100 (...PU-3) was here" in finding.evidence


def test_a_gpu_that_the_pci_tree_does_not_show_any_more_is_missing_by_memory() -> None:
    made = node(tree(*SLOTS[:3]), answering(3), kept())
    made.poll(2)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}
    assert "no longer shows it" in only(made).evidence


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau", ""])
def test_a_gpu_that_another_driver_or_none_has_was_never_ours(driver: str) -> None:
    """Two of the product are a whole node without it, and it is of another product."""
    files = tree(*SLOTS[:2])
    files.device(LAST, "pci0000:00", driver=driver, vendor="0x10de", **{"class": "0x030200"})
    assert node(files, answering(2)).poll(3) == ()


@pytest.mark.parametrize(("driver", "health"), [("vfio-pci", None), ("nouveau", FAILED), ("", FAILED)])
def test_a_gpu_without_which_a_board_is_not_whole_is_missing(driver: str, health: Health | None) -> None:
    files = tree(*SLOTS[:3])
    files.device(LAST, "pci0000:00", driver=driver, vendor="0x10de", **{"class": "0x030200"})
    made = node(files, answering(3))
    made.poll(3)
    assert made.rules() == ({("gpu.missing", "0000:61:00"): health} if health else {})


def test_a_gpu_that_a_virtual_machine_got_is_not_missing_though_it_was_ours() -> None:
    files = tree(*SLOTS[:3])
    files.device(LAST, "pci0000:00", driver="vfio-pci", vendor="0x10de", **{"class": "0x030200"})
    assert node(files, answering(3), kept()).poll(3) == ()


def test_a_gpu_that_lost_its_driver_is_missing_when_it_was_ours() -> None:
    """A driver that finds a GPU dead while it probes it lets go of it."""
    files = tree(*SLOTS[:3])
    files.device(LAST, "pci0000:00", vendor="0x10de", **{"class": "0x030200"})
    made = node(files, answering(3), kept())
    made.poll(2)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}
    assert "without a driver" in only(made).evidence


def test_a_gpu_that_another_driver_took_is_missing_when_it_was_ours() -> None:
    files = tree(*SLOTS[:3])
    files.device(LAST, "pci0000:00", driver="nouveau", vendor="0x10de", **{"class": "0x030200"})
    made = node(files, answering(3), kept())
    made.poll(2)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}
    assert "with driver nouveau" in only(made).evidence


@pytest.mark.parametrize(("driver", "health"), [("nouveau", UNKNOWN), ("", UNKNOWN), ("pci-stub", None)])
def test_a_card_like_the_others_that_no_board_needs_may_be_kept_out(
    driver: str, health: Health | None
) -> None:
    files = tree(*SLOTS[:2])
    like = {"vendor": "0x10de", "class": "0x030200", "device": "0x2335"}
    files.device(LAST, "pci0000:00", driver=driver, **like)
    made = node(files, answering(2))
    made.poll(3)
    assert made.rules() == ({("gpu.missing", "0000:61:00"): health} if health else {})


def test_a_card_whose_driver_cannot_be_read_is_not_judged_by_its_like() -> None:
    files = tree(*SLOTS[:2], LAST)
    files.links[f"{PCI}/{LAST}/driver"] = Absent(Why.DENIED, "driver", 13)
    assert node(files, answering(2)).poll(3) == ()


def test_a_virtual_function_is_a_guests() -> None:
    files = tree(*SLOTS[:2], LAST)
    files.links[f"{PCI}/{LAST}/physfn"] = f"/sys/devices/pci0000:00/{SLOTS[0]}"
    assert node(files, answering(2)).poll(3) == ()


@pytest.mark.parametrize(
    "shown",
    [
        {f"{LISTED}/{SLOTS[0]}/information": "Model: x"},
        {f"{LISTED}/{LAST}/information": "Model: \t NVIDIA H100\nGPU Excluded:\t Yes"},
    ],
    ids=["not given to this container", "excluded by the driver's settings"],
)
def test_a_gpu_that_the_driver_withholds_is_not_missing(shown: dict[str, str]) -> None:
    files = tree(*SLOTS)
    files.texts |= shown
    assert node(files, answering(3)).poll(3) == ()


def test_another_gpu_in_the_slot_and_one_that_moved_are_no_loss() -> None:
    gpus = answering(4)
    was = GpuSlots({LAST: SlotGpu("GPU-old", "NVIDIA H100"), "0000:99:00.0": SlotGpu("GPU-1", "NVIDIA H100")})
    made = node(tree(*SLOTS), gpus, was)
    assert made.poll(3) == ()
    assert COLLECTOR.lasting is not None
    assert COLLECTOR.lasting.keep(made.component.memory) == kept()


def test_a_new_gpu_elsewhere_takes_the_place_of_one_that_is_gone() -> None:
    was = GpuSlots({**kept(3).slots, "0000:99:00.0": SlotGpu("GPU-old", "NVIDIA H100")})
    assert node(tree(*SLOTS), answering(4), was).poll(3) == ()


@pytest.mark.parametrize("unsaid", [{"uuid": "", "pci": ""}, {"uuid": ""}, {"pci": ""}])
def test_a_gpu_that_has_not_said_its_name_may_be_the_one_that_is_missed(unsaid: dict[str, Any]) -> None:
    made = node(tree(*SLOTS), answering(3), kept())
    listed = made.gpus.gpus()
    assert not isinstance(listed, Absent)
    nameless = replace(listed[2], absent=Absent(Why.TIMEOUT, "no answer", 10), **unsaid)
    made.gpus.gpus = lambda: [*listed[:2], nameless]  # type: ignore[method-assign]
    made.poll(3)
    rules = {rule for rule, _ in made.rules()}
    assert rules == {"inventory.blind", "gpu.missing"}
    assert len(made.rules()) == 2, "of two that are not listed one may be the nameless"


def test_a_pci_tree_that_cannot_be_read_repairs_nothing() -> None:
    made = node(tree(*SLOTS), answering(3))
    made.poll(2)
    made.files.texts[PCI] = Absent(Why.TIMEOUT, "no answer", 110)
    made.poll(3)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED, ("inventory.blind", "node"): UNKNOWN}


def test_memory_is_enough_where_the_pci_tree_cannot_be_read() -> None:
    made = node(Files(), answering(3), kept())
    made.poll(2)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}


def test_what_was_taken_out_on_purpose_is_forgotten_for_good() -> None:
    made = node(tree(*SLOTS[:3]), answering(3), kept())
    made.poll(2)
    assert COLLECTOR.forget is not None
    made.component = replace(made.component, memory=COLLECTOR.forget(made.component.memory))
    assert made.poll(3) == ()
    facts = made.component.facts
    assert isinstance(facts, InventoryFacts)
    assert facts.forgotten == {"GPU-3"}
    made.gpus.addresses = SLOTS
    made.gpus.table["GPU-3", "UUID()"] = "GPU-3"
    made.poll()
    facts = made.component.facts
    assert isinstance(facts, InventoryFacts)
    assert facts.forgotten == frozenset()


def test_the_node_is_failed_and_its_topology_is_not_learned_without_the_missing_gpu() -> None:
    made = Node("demo-dgx-h200", [AnswerChange("nvml", "Count()", "set", 7)])
    made.poll(times=4)
    assert made.health() is FAILED
    assert ("gpu.missing", "", "", FAILED) in made.rules()
    found = next(f for f in made.findings() if f.rule == "gpu.missing")
    assert found.evidence.startswith("0000:df:00.0: the PCI tree shows it")


def test_a_gpu_that_was_exchanged_in_its_slot_is_not_missed() -> None:
    old = GpuSlots({**kept().slots, LAST: SlotGpu("GPU-9", "NVIDIA H100")})
    made = node(tree(*SLOTS), answering(4), old)
    made.poll()
    assert made.rules() == {}


def test_a_gpu_that_changed_its_slot_does_not_stand_for_another_that_is_gone() -> None:
    moved = GpuSlots(
        {**kept(2).slots, "0000:98:00.0": SlotGpu("GPU-2", "NVIDIA H100"), LAST: SlotGpu("GPU-3", "x")}
    )
    made = node(tree(*SLOTS[:3]), answering(3), moved)
    made.poll(2)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}


def test_a_gpu_that_was_replaced_in_its_slot_does_not_stand_for_another_that_is_gone() -> None:
    replaced = GpuSlots({**kept().slots, SLOTS[0]: SlotGpu("GPU-old", "NVIDIA H100")})
    made = node(tree(*SLOTS[:3]), answering(3), replaced)
    made.poll(2)
    assert made.rules() == {("gpu.missing", "0000:61:00"): FAILED}


def test_a_version_that_could_not_be_read_is_asked_for_again() -> None:
    gpus = answering(1)
    calls = ("SystemGetDriverVersion()", "SystemGetNVMLVersion()")
    gpus.table |= {(None, call): "580.1" for call in calls}
    gpus.table[None, "SystemGetCudaDriverVersion_v2()"] = Absent(Why.TIMEOUT, "no answer", 10)
    made = node(tree(SLOTS[0]), gpus)
    made.poll()
    gpus.table[None, "SystemGetCudaDriverVersion_v2()"] = 13010
    made.poll()
    facts = made.component.facts
    assert isinstance(facts, InventoryFacts)
    assert facts.versions == {"driver": "580.1", "nvml": "580.1", "cuda_driver": "13.1"}
    gpus.table[None, "SystemGetDriverVersion()"] = "590.1"
    made.poll()
    assert isinstance(made.component.facts, InventoryFacts)
    assert made.component.facts.versions["driver"] == "580.1", "asked once a session"
    gpus.number += 1
    made.poll()
    assert isinstance(made.component.facts, InventoryFacts)
    assert made.component.facts.versions["driver"] == "590.1"


def test_a_number_is_text_and_a_truth_value_is_none() -> None:
    gpus = answering(2)
    gpus.table |= {("GPU-0", "ModuleId()"): 7, ("GPU-1", "ModuleId()"): True}
    made = node(tree(*SLOTS[:2]), gpus)
    made.poll()
    facts = made.component.facts
    assert isinstance(facts, InventoryFacts)
    assert facts.gpus["GPU-0"].texts["module_id"] == "7"
    assert isinstance(facts.gpus["GPU-1"].texts["module_id"], Absent)


def test_a_node_of_no_gpu_has_no_series_of_its_gpus() -> None:
    made = node(Files(), Gpus())
    made.poll()
    assert made.component.samples == ()


def test_the_log_is_read_only_if_a_gpu_is_not_listed() -> None:
    made = node(tree(*SLOTS), answering(4))
    made.log = Log(absent=Absent(Why.DENIED, "no", 1))
    made.hardware = replace(made.hardware, kmsg=made.log)
    assert made.poll(2) == ()
    made.gpus.addresses = SLOTS[:3]
    made.poll(2)
    assert ("gpu.lost", "GPU 3") in made.rules()


@pytest.mark.parametrize("missing", [{"uuid": ""}, {"pci": ""}])
def test_only_gpus_with_a_name_and_a_place_are_remembered_by_their_slot(missing: dict[str, Any]) -> None:
    made = node(tree(*SLOTS[:3]), answering(3))
    listed = made.gpus.gpus()
    assert not isinstance(listed, Absent)
    half = replace(listed[2], absent=Absent(Why.TIMEOUT, "no answer", 10), **missing)
    made.gpus.gpus = lambda: [*listed[:2], half]  # type: ignore[method-assign]
    made.poll()
    assert COLLECTOR.lasting is not None
    assert COLLECTOR.lasting.keep(made.component.memory) == kept(2)


def test_a_gpu_that_was_lost_is_forgotten_and_the_others_are_not() -> None:
    made = node(tree(*SLOTS[:3]), answering(4))
    made.poll()
    made.gpus.addresses = SLOTS[:3]
    made.poll(2)
    assert COLLECTOR.forget is not None
    memory = COLLECTOR.forget(made.component.memory)
    assert set(memory.identities) == {"GPU-0", "GPU-1", "GPU-2"}
    assert memory.slots == kept(3).slots
    assert memory.forgotten == {"GPU-3"}
    made.component = replace(made.component, memory=memory)
    assert made.poll(2) == ()


@pytest.mark.parametrize(("numa", "shown"), [("0", "0"), ("1", "1"), ("-1", "")])
def test_the_numa_node_of_a_gpu_is_shown_where_there_are_some(numa: str, shown: str) -> None:
    files = tree(SLOTS[0])
    files.texts[f"{PCI}/{SLOTS[0]}/numa_node"] = numa
    made = node(files, answering(1))
    made.poll()
    assert made.series("gpu_info", numa=shown) == [1]


FAILED_START = f"NVRM: GPU {LAST}: rm_init_adapter failed, device minor number 7"


@pytest.mark.parametrize(
    ("known", "lines", "health"),
    [
        (False, [], None),
        (True, [], UNKNOWN),
        (False, [FAILED_START], FAILED),
        (True, [FAILED_START], FAILED),
    ],
    ids=["not given", "not given any more", "not started", "started before"],
)
def test_a_gpu_that_a_container_does_not_see_is_not_missing_unless_the_log_or_memory_says_so(
    *, known: bool, lines: list[str], health: Health | None
) -> None:
    """The container's runtime shows the driver's list of the GPUs that it was given, and of no other."""
    files = tree(*SLOTS)
    for slot in SLOTS[:3]:
        files.texts[f"{LISTED}/{slot}/information"] = "Model: NVIDIA H100\n"
    made = node(files, answering(3), kept() if known else None)
    made.log = Log(lines)
    made.hardware = replace(made.hardware, kmsg=made.log)
    made.poll(3)
    assert made.rules() == ({("gpu.missing", "0000:61:00"): health} if health else {})
    assert all(("drain" in one.action) is (one.health is FAILED) for one in made.component.findings)


@dataclass
class Counted(Log):
    """A kernel log that counts how often it is read."""

    read: int = 0

    def records(self, after: int) -> KernelLog | Absent:
        self.read += 1
        return super().records(after)


def test_what_is_known_is_not_read_again() -> None:
    made = node(tree(*SLOTS), answering(4))
    log = Counted()
    made.hardware = replace(made.hardware, kmsg=log)
    made.poll()
    made.files.opened.clear()
    made.poll()
    assert made.files.opened == [PCI]
    assert log.read == 0


def test_a_gpu_whose_own_name_is_lost_is_blind_and_not_gone() -> None:
    """The driver calls a GPU lost by an error of its own; our own word for it has none."""
    for lost in (Absent(Why.TIMEOUT, "no answer", 10), Absent(Why.LOST, "its process died")):
        made = node(tree(*SLOTS[:2]), answering(2))
        made.gpus.table["GPU-1", "Serial()"] = "1"
        made.poll()
        made.gpus.table["GPU-1", "UUID()"] = lost
        made.poll(3)
        assert made.rules() == {("inventory.blind", "GPU 1"): UNKNOWN}
        assert only(made).evidence.endswith(lost.detail)


def test_a_gpu_that_is_lent_was_looked_at_so_that_its_loss_is_over() -> None:
    files = tree(*SLOTS)
    made = node(files, answering(3), kept())
    made.poll(2)
    lost = only(made).subject
    assert not made.component.observed.covers(lost)
    files.links[f"{PCI}/{LAST}/driver"] = "/sys/bus/pci/drivers/vfio-pci"
    assert made.poll() == ()
    assert made.component.observed.covers(lost)


@pytest.mark.parametrize(
    ("slots", "listed", "driver", "polls", "sought"),
    [
        (4, 4, "nvidia", 3, 0),
        (4, 3, "nvidia", 1, 1),
        (3, 3, "", 3, 2),
        (4, 3, "vfio-pci", 3, 0),
    ],
    ids=["all are listed", "its driver has it", "it is gone by memory", "a virtual machine has it"],
)
def test_nvml_is_initialised_again_for_a_gpu_that_is_due_alone(
    slots: int, listed: int, driver: str, polls: int, sought: int
) -> None:
    """On GPUs: a list that was made without a GPU stays without it, though the GPU is back."""
    files = tree(*SLOTS[:3])
    if slots > 3:
        files.device(LAST, "pci0000:00", driver=driver, vendor="0x10de", **{"class": "0x030200"})
    gpus = answering(listed)
    node(files, gpus, kept()).poll(polls)
    assert gpus.sought == sought


def test_nvml_is_initialised_again_for_a_gpu_that_was_listed_before_and_is_lost() -> None:
    gpus = answering(4)
    made = node(Files(), gpus)
    made.poll(1)
    gpus.addresses = SLOTS[:3]
    made.poll(1)
    assert (made.component.memory.lost.keys(), gpus.sought) == ({"GPU-3"}, 0)
    made.poll(1)
    assert gpus.sought == 1
