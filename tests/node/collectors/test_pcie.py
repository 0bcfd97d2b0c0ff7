"""PCIe of GPUs: what says something only under load, what is a rate, and what the kernel counts."""

from dataclasses import replace

import pytest

from tests.node.collectors.drawn import PCI, Files, Gpus, Watched
from tests.support import Node
from wirewatch.collectors.pcie import NARROW, SLOW
from wirewatch.core.collector import Component
from wirewatch.core.types import Absent, Health, Json, Why

DEGRADED, UNKNOWN, FAILED = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
ADDRESSES = ("0000:03:00.0", "0000:04:00.0", "0000:05:00.0", "0000:06:00.0")
AER = "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0"


def watched(**options: bool) -> Watched:
    files = Files()
    if options.get("aer", True):
        for address in ADDRESSES:
            files.texts |= {
                f"{PCI}/{address}/aer_dev_correctable": AER,
                f"{PCI}/{address}/aer_dev_nonfatal": "DLP 0\nTOTAL_ERR_NONFATAL 0",
                f"{PCI}/{address}/aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 0",
            }
    node = Watched("pcie", files, Gpus(ADDRESSES))
    for index in range(len(ADDRESSES)):
        answer_with(node, index, generation=5, most=5, width=16, most_width=16, replays=0, state=0, use=0)
    return node


CALLS = {
    "generation": "CurrPcieLinkGeneration()",
    "most": "MaxPcieLinkGeneration()",
    "width": "CurrPcieLinkWidth()",
    "most_width": "MaxPcieLinkWidth()",
    "replays": "PcieReplayCounter()",
    "state": "PerformanceState()",
}


def answer_with(node: Watched, index: int, **values: Json | Absent) -> None:
    for name, value in values.items():
        key = (f"GPU-{index}", CALLS.get(name, "UtilizationRates()"))
        node.gpus.table[key] = (
            value if name != "use" or isinstance(value, Absent) else {"gpu": value, "memory": 0}
        )


def test_a_healthy_node_has_every_number_and_no_finding() -> None:
    node = watched()
    assert node.poll(5) == ()
    assert node.series("pcie_errors_total", severity="correctable") == [0] * 4
    assert node.series("pcie_generation") == [5] * 4


def test_an_idle_gpu_may_let_its_link_sleep() -> None:
    node = watched()
    answer_with(node, 1, generation=1, state=8, use=0)
    assert node.poll(10) == ()
    answer_with(node, 1, generation=1, state=0, use=0)
    assert node.poll(10) == ()
    assert node.series("pcie_generation", gpu="1") == [1]


def test_a_generation_that_is_low_under_load_is_failed_once_confirmed_and_until_it_is_high_again() -> None:
    node = watched()
    answer_with(node, 1, generation=3, use=97)
    node.poll()
    assert node.rules() == {("pcie.generation", "GPU 1"): DEGRADED}
    answer_with(node, 1, generation=1, state=8, use=0)
    node.poll(5)
    assert node.rules() == {("pcie.generation", "GPU 1"): DEGRADED}
    answer_with(node, 1, generation=3, state=0, use=97)
    node.poll(2)
    assert node.rules() == {("pcie.generation", "GPU 1"): FAILED}
    answer_with(node, 1, generation=1, state=8, use=0)
    node.poll(3)
    assert node.rules() == {("pcie.generation", "GPU 1"): FAILED}
    assert "generation 3 of 5" in node.component.findings[0].evidence
    answer_with(node, 1, generation=5, state=0, use=97)
    assert node.poll() == ()


def test_a_gpu_that_does_not_tell_whether_it_works_is_not_judged_by_its_generation() -> None:
    node = watched()
    answer_with(node, 1, generation=1, state=Absent(Why.UNSUPPORTED, "no", 3))
    assert node.poll(5) == ()
    answer_with(node, 1, state=Absent(Why.TIMEOUT, "no", 10))
    node.poll()
    assert node.rules() == {("pcie.blind", "GPU 1"): UNKNOWN}


@pytest.mark.parametrize(("generation", "width", "limit"), [(5, 16, 31), (4, 16, 16), (3, 8, 4), (1, 1, 1)])
def test_replays_are_a_fault_above_the_rate_of_the_link_and_only_when_they_go_on(
    generation: int, width: int, limit: int
) -> None:
    node = watched()
    answer_with(node, 2, generation=generation, most=generation, width=width, most_width=width, replays=1000)
    node.poll()
    answer_with(node, 2, replays=1000 + limit)
    assert not [rule for rule, _ in (node.poll(3) and node.rules()) or {} if rule == "pcie.replays"]
    count = 1000 + limit
    for _ in range(6):
        count += limit
        answer_with(node, 2, replays=count)
        node.poll()
    assert node.rules()["pcie.replays", "GPU 2"] is DEGRADED
    node.poll(5)
    assert ("pcie.replays", "GPU 2") not in node.rules()


def test_a_gpu_in_a_lesser_slot_than_its_peers_is_reported() -> None:
    node = watched()
    answer_with(node, 3, generation=4, most=4)
    node.poll()
    assert node.rules() == {("pcie.slot", "GPU 3"): DEGRADED}
    assert node.component.findings[0].evidence.endswith("the other GPUs here support 5")


def test_errors_that_were_not_corrected_are_reported_for_a_day_and_old_ones_are_not() -> None:
    node = watched()
    node.files.texts[f"{PCI}/{ADDRESSES[0]}/aer_dev_fatal"] = "DLP 3\nTOTAL_ERR_FATAL 3"
    node.files.texts[f"{PCI}/{ADDRESSES[0]}/aer_dev_correctable"] = "RxErr 90000\nTOTAL_ERR_COR 90000"
    assert node.poll(3) == ()
    node.files.texts[f"{PCI}/{ADDRESSES[0]}/aer_dev_fatal"] = "DLP 4\nTOTAL_ERR_FATAL 4"
    node.files.texts[f"{PCI}/{ADDRESSES[0]}/aer_dev_correctable"] = "RxErr 99999\nTOTAL_ERR_COR 99999"
    node.poll()
    assert node.rules() == {("pcie.aer", "GPU 0"): DEGRADED}
    assert "1 fatal" in node.component.findings[0].evidence
    node.poll(2, every=86400.0)
    assert node.rules() == {}


def test_where_the_kernel_counts_no_errors_it_is_asked_once() -> None:
    node = watched(aer=False)
    assert node.poll(10) == ()
    assert node.series("pcie_errors_total") == []
    assert len([p for p in node.files.opened if "aer_dev" in p]) == 3 * len(ADDRESSES)


def test_an_error_count_that_is_not_understood_is_reported() -> None:
    node = watched()
    node.files.texts[f"{PCI}/{ADDRESSES[0]}/aer_dev_fatal"] = "what is this"
    node.poll()
    assert node.rules() == {("pcie.blind", "GPU 0"): UNKNOWN}


def test_replays_are_measured_by_the_rate_at_which_the_link_works() -> None:
    node = watched()
    count = 0
    for _ in range(8):
        answer_with(node, 0, replays=count, generation=1, state=8)
        assert node.poll(every=30.0) == ()
        count += 5


def test_slots_of_two_kinds_in_equal_number_say_nothing_of_each_other() -> None:
    node = watched()
    for index in (2, 3):
        answer_with(node, index, generation=4, most=4)
    assert node.poll(3) == ()


def test_errors_are_asked_for_again_once_the_place_of_a_gpu_is_known() -> None:
    node = watched()
    node.gpus.addresses = ("", *ADDRESSES[1:])
    node.poll()
    node.gpus.addresses = ADDRESSES
    node.poll()
    assert node.series("pcie_errors_total", gpu="0", severity="fatal") == [0]


def test_a_narrow_pcie_link_is_found() -> None:
    node = Node()
    node.change("gpu4/CurrPcieLinkWidth()", "set", 8)
    node.poll("pcie")
    assert node.rules() == {("pcie.width", "4", "", Health.DEGRADED)}
    node.poll("pcie", times=2)
    assert node.rules() == {("pcie.width", "4", "", Health.FAILED)}
    assert node.findings()[0].evidence == "x8 of x16 lanes"


def test_a_low_generation_is_power_management_and_no_finding() -> None:
    node = Node()
    node.change("gpu*/CurrPcieLinkGeneration()", "set", 1)
    node.poll("pcie", times=5)
    assert node.findings() == ()
    assert node.series("pcie_generation") == [1] * 8
    assert node.series("pcie_generation_max") == [5] * 8


def restarted(node: Watched) -> Watched:
    """The same node after a reboot: what outlives the process, and no more."""
    lasting = node.collector.lasting
    assert lasting is not None
    start = lasting.recall(lasting.keep(node.component.memory))
    node.component = Component("pcie", start)
    return node


def test_a_gpu_that_trained_with_fewer_lanes_since_a_boot_had_more_before() -> None:
    """Before: OK, where the slot itself shows no more."""
    node = watched()
    node.poll(2)
    answer_with(node, 1, width=8, most_width=8)
    answer_with(node, 2, most=4, generation=4)
    restarted(node).poll(3)
    assert node.rules() == {("pcie.width", "GPU 1"): FAILED, ("pcie.slot", "GPU 2"): DEGRADED}
    assert node.component.findings[0].evidence == "x8 of x16 lanes"


@pytest.mark.parametrize("odd", [-1, 2**32 - 1])
def test_lanes_and_generations_that_no_slot_has_are_not_remembered(odd: int) -> None:
    """Before: FAILED from then on, over restarts and boots."""
    node = watched()
    node.poll(2)
    answer_with(node, 1, most_width=odd, most=odd)
    node.gpus.number += 1
    node.poll()
    assert node.rules() == {("pcie.blind", "GPU 1"): UNKNOWN}
    answer_with(node, 1, most_width=16, most=5)
    node.gpus.number += 1
    assert node.poll(3) == ()


def test_another_slot_begins_again_and_what_was_accepted_is_what_a_slot_can() -> None:
    node = watched()
    node.poll(2)
    answer_with(node, 1, width=8, most_width=8)
    node.gpus.addresses = (ADDRESSES[0], "0000:99:00.0", *ADDRESSES[2:])
    restarted(node).poll(3)
    assert node.rules() == {("pcie.slot", "GPU 1"): DEGRADED}
    answer_with(node, 0, width=8, most_width=8)
    node.poll(3)
    assert node.rules() == {("pcie.width", "GPU 0"): FAILED, ("pcie.slot", "GPU 1"): DEGRADED}
    assert node.collector.forget is not None
    node.component = replace(node.component, memory=node.collector.forget(node.component.memory))
    assert node.poll(3) == ()


UNREAD = Absent(Why.TIMEOUT, "no answer", 10)


@pytest.mark.parametrize("lost", ["width", "most_width"])
def test_lanes_that_cannot_be_read_confirm_nothing(lost: str) -> None:
    node = watched()
    answer_with(node, 1, width=8)
    node.poll()
    assert node.rules() == {(NARROW.name, "GPU 1"): DEGRADED}
    answer_with(node, 1, **{lost: UNREAD})
    for _ in range(3):
        node.gpus.number += 1
        node.poll()
    assert node.rules() == {(NARROW.name, "GPU 1"): DEGRADED, ("pcie.blind", "GPU 1"): UNKNOWN}


@pytest.mark.parametrize(
    ("lost", "found"),
    [
        ({"width": UNREAD}, {("pcie.blind", "GPU 1"): UNKNOWN}),
        ({"most": UNREAD}, {("pcie.blind", "GPU 1"): UNKNOWN}),
        ({"generation": 7, "most": 7}, {}),
    ],
    ids=["lanes", "generation", "a generation that has no limit yet"],
)
def test_replays_are_not_judged_while_the_link_is_not_known(
    lost: dict[str, Json | Absent], found: dict[tuple[str, str], Health]
) -> None:
    node = watched()
    for count in range(0, 8000, 1000):
        answer_with(node, 1, replays=count, **lost)
        node.poll()
    assert node.rules() == found


def test_a_rate_of_replays_is_neither_confirmed_nor_cleared_while_they_cannot_be_read() -> None:
    node = watched()
    for count in (0, 1000, 2000):
        answer_with(node, 1, replays=count)
        node.poll()
    answer_with(node, 1, replays=UNREAD)
    node.poll(5)
    assert node.rules() == {("pcie.blind", "GPU 1"): UNKNOWN}, "seen twice, and not confirmed"
    answer_with(node, 1, replays=9000)
    node.poll()
    assert node.rules() == {("pcie.replays", "GPU 1"): DEGRADED}, "the third poll that shows it"
    answer_with(node, 1, replays=UNREAD)
    node.poll()
    assert ("pcie.replays", "GPU 1") in node.rules()


def test_error_counts_that_could_not_be_read_at_first_are_asked_for_again() -> None:
    node = watched()
    files = {p: t for p, t in node.files.texts.items() if ADDRESSES[1] in p}
    node.files.texts |= dict.fromkeys(files, UNREAD)
    node.poll()
    assert node.rules() == {("pcie.blind", "GPU 1"): UNKNOWN}
    node.files.texts |= files
    assert node.poll() == ()
    assert node.series("pcie_errors_total", gpu="1", severity="fatal") == [0]


def test_a_kernel_that_counts_only_some_errors_is_asked_for_those() -> None:
    node = watched()
    for severity in ("correctable", "nonfatal"):
        del node.files.texts[f"{PCI}/{ADDRESSES[1]}/aer_dev_{severity}"]
    node.poll(2)
    assert node.series("pcie_errors_total", gpu="1", severity="fatal") == [0]


@pytest.mark.parametrize(("state", "use", "works"), [(0, 97, True), (0, 0, False), (2, 97, False)])
def test_a_gpu_works_at_full_clocks_and_with_something_to_do(state: int, use: int, works: bool) -> None:  # noqa: FBT001
    node = watched()
    answer_with(node, 1, generation=3, state=state, use=use)
    node.poll()
    assert ((SLOW.name, "GPU 1") in node.rules()) is works


@pytest.mark.parametrize("lost", ["state", "use", "generation", "most"])
def test_a_slow_link_is_neither_confirmed_nor_cleared_by_what_cannot_be_read(lost: str) -> None:
    node = watched()
    answer_with(node, 1, generation=3, use=97)
    node.poll()
    answer_with(node, 1, **{lost: UNREAD})
    for _ in range(4):
        node.gpus.number += 1
        node.poll()
    assert node.rules() == {(SLOW.name, "GPU 1"): DEGRADED, ("pcie.blind", "GPU 1"): UNKNOWN}
    assert "generation 3 of 5" in node.component.findings[0].evidence


def test_a_single_gpu_in_a_lesser_slot_has_nothing_to_be_compared_with() -> None:
    node = watched()
    node.gpus.addresses = ADDRESSES[:1]
    answer_with(node, 0, generation=4, most=4)
    assert node.poll(2) == ()


def test_a_slot_that_was_better_before_is_named_by_that() -> None:
    node = watched()
    node.gpus.addresses = ADDRESSES[:1]
    node.poll()
    answer_with(node, 0, generation=4, most=4)
    node.gpus.number += 1
    node.poll()
    assert node.rules() == {("pcie.slot", "GPU 0"): DEGRADED}
    assert node.component.findings[0].evidence.endswith("before, they supported 5")


def test_only_gpus_with_a_name_outlive_the_process() -> None:
    node = watched()
    listed = node.gpus.gpus()
    assert not isinstance(listed, Absent)
    node.gpus.gpus = lambda: [replace(listed[0], uuid="")]  # type: ignore[method-assign]
    node.gpus.table |= {
        ("0", call): value for (gpu, call), value in node.gpus.table.items() if gpu == "GPU-0"
    }
    node.poll()
    lasting = node.collector.lasting
    assert lasting is not None
    assert lasting.keep(node.component.memory).gpus == {}


def test_a_gpu_whose_address_is_not_known_now_is_in_the_slot_of_before() -> None:
    node = watched()
    node.poll()
    node.gpus.addresses = (ADDRESSES[0], "", *ADDRESSES[2:])
    answer_with(node, 1, width=8, most_width=8)
    for address in ("", ADDRESSES[1]):
        node.gpus.addresses = (ADDRESSES[0], address, *ADDRESSES[2:])
        node.gpus.number += 1
        node.poll()
        assert node.rules()[NARROW.name, "GPU 1"] is DEGRADED


def test_the_most_lanes_of_a_slot_that_were_never_read_are_not_known() -> None:
    node = watched()
    answer_with(node, 1, most_width=UNREAD)
    node.poll(2)
    assert node.rules() == {("pcie.blind", "GPU 1"): UNKNOWN}


def test_a_gpu_that_never_answered_is_blind_alone_and_outlives_no_process() -> None:
    node = watched()
    answer_with(node, 1, **dict.fromkeys((*CALLS, "use"), UNREAD))
    node.poll()
    assert node.rules() == {("pcie.blind", "GPU 1"): UNKNOWN}
    assert node.component.findings[0].evidence.endswith("no answer")
    lasting = node.collector.lasting
    assert lasting is not None
    assert set(lasting.keep(node.component.memory).gpus) == {"GPU-0", "GPU-2", "GPU-3"}


def test_error_counts_that_a_kernel_did_not_have_are_asked_for_in_a_new_session() -> None:
    node = watched(aer=False)
    node.poll(2)
    node.files.texts |= watched().files.texts
    node.gpus.number += 1
    node.poll()
    assert node.series("pcie_errors_total", gpu="1", severity="fatal") == [0]


@pytest.mark.parametrize(("most", "known"), [(15, True), (16, False)])
def test_a_generation_has_four_bits(most: int, known: bool) -> None:  # noqa: FBT001
    node = watched()
    answer_with(node, 1, most=most)
    node.poll()
    assert node.series("pcie_generation_max", gpu="1") == ([most] if known else [])


def test_errors_between_two_readings_are_of_the_time_between_them() -> None:
    node = watched()
    node.poll(every=3 * 86400.0)
    node.files.texts[f"{PCI}/{ADDRESSES[0]}/aer_dev_fatal"] = "DLP 1\nTOTAL_ERR_FATAL 1"
    node.poll()
    assert node.component.findings[0].evidence == "1 fatal PCIe errors in 3 days"
