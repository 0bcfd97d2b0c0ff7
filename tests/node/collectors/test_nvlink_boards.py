"""Links by what the node itself shows: rates that our table has otherwise, and parts of a board."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rows import each
from tests.support import EPOCH, Node
from wirewatch.collectors.nvlink import observed
from wirewatch.collectors.nvlink.judge import LINK_ACTION, applicable
from wirewatch.collectors.nvlink.model import (
    Fabric,
    GpuLinks,
    NvlinkLink,
    NvlinkTraffic,
    Siblings,
    find_siblings,
    usual_rate,
)
from wirewatch.core.collector import GpuReading
from wirewatch.core.nvml import FABRIC_STATES, NOT_ASKED, Supported
from wirewatch.core.ports import Gpu
from wirewatch.core.topology import nvlink_product
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.hw.overlay import AnswerChange

DEGRADED, UNKNOWN, FAILED = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
A6000, BRIDGED = 14062, 4
NO_FABRIC = {"clusterUuid": "", "status": 0, "cliqueId": 0, "healthMask": 0, "healthSummary": 0}


def card(name: str, rate: int, links: int, recording: str = "h200x2-idle") -> Node:
    """GPUs that have so many links, all up at this rate in MB/s."""
    node = Node(recording)
    node.change("gpu*/Name()", "set", name)
    node.change("gpu*/Field(91)", "set", links)
    node.change("gpu*/Field(164,*)", "set", rate)
    node.change("gpu*/GpuFabricInfoV()", "code", 3)
    return node


def active(node: Node, count: int, gpu: str = "*") -> None:
    """Only the first so many of the links of a GPU are up."""
    for link in range(count, 18):
        node.change(f"gpu{gpu}/Field(165,{link})", "set", 0)


@each(
    ("name", "rate", "links"),
    [
        ("NVIDIA RTX A6000", A6000, 4),
        ("NVIDIA A40", A6000, 4),
        ("NVIDIA GeForce RTX 3090", A6000, 4),
        ("NVIDIA RTX A5000", A6000, 4),
        ("NVIDIA A30", 25000, 4),
        ("Quadro RTX 8000", 25781, 2),
        ("NVIDIA GeForce RTX 2080 Ti", 25781, 2),
    ],
)
def test_a_bridged_pair_runs_at_the_rate_of_its_product(name: str, rate: int, links: int) -> None:
    """RTX A6000 and A40 were FAILED before."""
    node = card(name, rate, links)
    node.poll("nvlink", times=5)
    assert node.findings() == ()
    node.change("gpu1/Field(164,0)", "set", rate // 2)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_slow", "1", "0", FAILED)}


def test_half_the_rate_of_one_link_from_the_start_is_named() -> None:
    node = card("NVIDIA RTX A6000", A6000, BRIDGED)
    node.change("gpu1/Field(164,3)", "set", 7031)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_slow", "1", "3", FAILED)}


def test_a_rate_that_only_our_table_has_is_no_proof() -> None:
    node = card("NVIDIA H200", 17000, 18)
    node.poll("nvlink", times=30)
    assert node.rules() == {("nvlink.slow", "0", "", DEGRADED), ("nvlink.slow", "1", "", DEGRADED)}
    assert "26.562 GB/s by wirewatch's product table" in node.findings()[0].evidence


def test_a_rate_that_the_node_has_shown_is_proof() -> None:
    node = card("NVIDIA H200", 26562, 18)
    node.poll("nvlink")
    node.change("gpu*/Field(164,*)", "set", 13281)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.slow", "0", "", FAILED), ("nvlink.slow", "1", "", FAILED)}


def test_one_link_at_the_rate_of_our_table_proves_it() -> None:
    node = card("NVIDIA H200", 13281, 18)
    node.change("gpu0/Field(164,0)", "set", 26562)
    node.poll("nvlink", times=3)
    assert {(r[0], r[3]) for r in node.rules()} == {("nvlink.link_slow", FAILED), ("nvlink.slow", FAILED)}


def test_a_single_gpu_without_links_has_nothing_to_be_joined_with() -> None:
    """One SXM GPU of a board, given to a virtual machine, was FAILED before."""
    node = card("NVIDIA H200", 0, 18, "h200x1-idle")
    node.change("gpu*/Field(165,*)", "set", 0)
    node.poll("nvlink", times=30)
    assert node.findings() == ()
    assert node.series("nvlink_links_expected") == []


def test_a_single_gpu_whose_links_were_up_has_lost_them() -> None:
    node = card("NVIDIA H200", 26562, 18, "h200x1-idle")
    up = node.change("gpu*/Field(165,*)", "set", 1)
    node.poll("nvlink")
    assert node.findings() == ()
    node.undo(up)
    node.change("gpu*/Field(165,*)", "set", 0)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.down", "0", "", FAILED)}


@pytest.mark.parametrize("count", [0, 10, 17])
def test_a_virtual_machine_with_fewer_links_on_all_its_gpus_may_be_meant_so(count: int) -> None:
    node = Node("h200x2-idle")
    if not count:
        node.change("gpu*/GpuFabricInfoV()", "set", {**NO_FABRIC, "state": 0})
    active(node, count)
    node.poll("nvlink", times=40)
    assert {r[3] for r in node.rules()} == {DEGRADED}
    assert "[expect] nvlink_links" in node.findings()[0].action


def test_gpus_that_are_registered_with_a_fabric_are_meant_to_have_links() -> None:
    node = Node("h200x2-idle")
    active(node, 0)
    node.poll("nvlink", times=20)
    assert {(r[0], r[3]) for r in node.rules()} == {("nvlink.down", UNKNOWN)}
    node.poll("nvlink")
    assert {(r[0], r[3]) for r in node.rules()} == {("nvlink.down", FAILED)}


def test_the_operator_says_what_a_partition_has() -> None:
    node = Node("h200x2-idle", expect=Expect(nvlink_links=10))
    active(node, 10)
    node.poll("nvlink", times=3)
    assert node.findings() == ()
    active(node, 9, gpu="1")
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_down", "1", "9", FAILED)}


def test_one_gpu_of_a_partition_with_fewer_links_than_the_other_has_lost_them() -> None:
    node = Node("h200x2-idle")
    active(node, 10)
    active(node, 9, gpu="1")
    node.poll("nvlink", times=3)
    assert ("nvlink.link_down", "1", "9", FAILED) in node.rules()


@pytest.mark.parametrize("recording", ["h200x8", "h200x4-idle"])
def test_the_same_links_down_on_all_gpus_of_a_whole_board_or_of_no_virtual_machine(recording: str) -> None:
    node = Node(recording)
    if recording != "h200x8":
        node.change("gpu*/VirtualizationMode()", "set", 0)
    active(node, 17)
    node.changes.append(AnswerChange("host", "BootTime()", "set", EPOCH - 3600.0))
    node.poll("nvlink", times=3)
    assert {(r[0], r[2], r[3]) for r in node.rules()} == {("nvlink.link_down", "17", FAILED)}


def test_one_gpu_of_a_whole_board_without_links_is_failed_from_the_start() -> None:
    node = Node()
    active(node, 0, gpu="5")
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.down", "5", "", FAILED)}


def test_links_of_gpus_that_are_not_split_are_watched_beside_those_that_are() -> None:
    node = Node()
    for gpu in (0, 1):
        node.change(f"gpu{gpu}/MigMode()", "set", [1, 1])
        active(node, 0, gpu=str(gpu))
    node.poll("nvlink", times=5)
    assert node.findings() == ()
    node.change("gpu4/Field(165,3)", "set", 0)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_down", "4", "3", FAILED)}


def rates(node: Node, gpu: str, rate: int, links: range) -> None:
    for link in links:
        node.change(f"gpu{gpu}/Field(164,{link})", "set", rate)


def test_one_slow_link_of_a_product_that_is_not_listed_is_named_from_the_start() -> None:
    node = Node("h200x2-idle")
    node.change("gpu*/Name()", "set", "NVIDIA X999")
    rates(node, "1", 13000, range(3, 4))
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_slow", "1", "3", FAILED)}


def test_of_two_rates_that_are_as_common_the_higher_is_usual() -> None:
    value = links(*[(1, 26e9)] * 9, *[(1, 13e9)] * 9)
    assert usual_rate(value) == 26e9
    assert usual_rate(links(*[(1, 13e9)] * 10, *[(1, 26e9)] * 8)) == 13e9


UNREAD = Absent(Why.TIMEOUT, "no answer", 10)


def links(*states: tuple[int | Absent, float | Absent]) -> GpuLinks:
    """A GPU with links of these states and speeds."""
    traffic = NvlinkTraffic(NOT_ASKED, NOT_ASKED)
    known = tuple(NvlinkLink(number, state, speed) for number, (state, speed) in enumerate(states))
    return GpuLinks(False, known, traffic, {}, NOT_ASKED, NOT_ASKED, (), None, len(known), Supported())  # noqa: FBT003


@each(
    ("states", "rate"),
    [
        ([(1, 26e9), (0, 13e9), (0, 13e9)], 26e9),
        ([(1, 26e9), (1, UNREAD), (1, UNREAD)], 26e9),
        ([(2, 26e9)], 26e9),
        ([(UNREAD, 26e9)], 0.0),
        ([], 0.0),
    ],
    ids=[
        "links that are down have none",
        "unread rates do not count",
        "asleep",
        "state not known",
        "no link",
    ],
)
def test_the_usual_rate_is_of_links_that_are_up_and_were_read(
    states: list[tuple[int | Absent, float | Absent]], rate: float
) -> None:
    assert usual_rate(links(*states)) == rate


def test_links_whose_rate_cannot_be_read_are_neither_slow_nor_a_measure() -> None:
    node = Node("h200x2-idle")
    for link in range(12):
        node.change(f"gpu0/Field(164,{link})", "code", 10)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.blind", "0", "", UNKNOWN)}


def unlinked(node: Node, gpu: str) -> None:
    """A GPU whose driver shows no NVLink at all."""
    for question in ("Field(165,*)", "Field(164,*)", "NvLinkState(*)", "Field(91)", "Field(90)"):
        node.change(f"gpu{gpu}/{question}", "code", 3)


def test_a_card_without_any_link_is_no_partner_of_a_bridge() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu*/Name()", "set", "NVIDIA H100 NVL")
    active(node, 12)
    unlinked(node, "1")
    node.poll("nvlink", times=3)
    assert not [rule for rule in node.rules() if rule[1] == "1"]


def test_a_gpu_of_a_board_without_any_link_misses_them() -> None:
    node = Node()
    unlinked(node, "3")
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.links_missing", "3", "", FAILED)}
    assert node.findings()[0].evidence == "0 of 0 reported links up, 18 expected"


def test_a_part_of_a_board_is_judged_by_gpus_that_are_not_split() -> None:
    node = Node("h200x2-idle")
    active(node, 17)
    node.change("gpu1/MigMode()", "set", [1, 1])
    active(node, 0, gpu="1")
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_down", "0", "17", DEGRADED)}


@each(
    ("changes", "partition"),
    [
        ({}, True),
        ({"counts": (17, 16)}, False),
        ({"counts": (18, 18)}, False),
        ({"node": 8}, False),
        ({"virtual": False}, False),
        ({"counts": (0, 0)}, True),
        ({"counts": (0, 0), "registered": True}, False),
        ({"registered": True}, True),
    ],
)
def test_a_partition_is_all_of_these_at_once(changes: dict[str, Any], *, partition: bool) -> None:
    part = Siblings(26e9, 26e9, (17, 17), node=2, dark=False, virtual=True, registered=False)
    product = nvlink_product("NVIDIA H200")
    assert replace(part, **changes).partition(product) is partition
    assert not replace(part, **changes).partition(None)


@pytest.mark.parametrize(("dark", "gpus", "alone"), [(True, 1, True), (True, 2, False), (False, 1, False)])
def test_a_gpu_is_alone_without_others_and_without_links(*, dark: bool, gpus: int, alone: bool) -> None:
    one = Siblings(0.0, 0.0, (0,), node=gpus, dark=dark, virtual=True, registered=False)
    assert one.alone is alone


def test_a_link_that_a_partition_had_before_is_for_the_node_to_repair() -> None:
    node = Node("h200x2-idle")
    node.poll("nvlink")
    active(node, 0)
    node.poll("nvlink", times=3)
    assert {(f.rule, f.health) for f in node.findings()} == {("nvlink.down", FAILED)}
    assert all("[expect] nvlink_links" not in f.action for f in node.findings())


def test_one_link_that_is_down_from_the_start_among_links_that_went_down_later() -> None:
    node = Node("h200x2-idle")
    active(node, 17)
    node.poll("nvlink")
    node.change("gpu0/Field(165,3)", "set", 0)
    node.poll("nvlink", times=3)
    found = {f.subject.link: f for f in node.findings() if f.subject.gpu == "0"}
    assert {link: f.health for link, f in found.items()} == {"3": FAILED, "17": DEGRADED}
    assert "[expect] nvlink_links" in found["17"].action
    assert "[expect] nvlink_links" not in found["3"].action


def test_a_partition_whose_links_all_went_down_is_not_what_the_host_meant() -> None:
    node = Node("h200x2-idle")
    active(node, 17)
    node.poll("nvlink")
    active(node, 0)
    node.poll("nvlink")
    node.poll("nvlink", times=2)
    assert {(f.rule, f.health, f.action) for f in node.findings()} == {("nvlink.down", FAILED, LINK_ACTION)}


def test_links_of_a_whole_board_that_went_down_are_for_the_node_to_repair_at_first_sight() -> None:
    node = Node()
    node.poll("nvlink")
    active(node, 0, gpu="5")
    node.poll("nvlink")
    assert {(f.rule, f.health, f.action) for f in node.findings()} == {("nvlink.down", DEGRADED, LINK_ACTION)}


def test_siblings_are_those_that_have_links_and_are_whole() -> None:
    whole = links((1, 26e9), (1, 26e9))
    values: list[GpuLinks | Absent] = [whole, replace(links((0, 13e9)), mig=True), links(), UNREAD]
    gpus = [Gpu(index, f"GPU-{index}", name="NVIDIA X999") for index in range(4)]
    reading = tuple(GpuReading(gpu, value) for gpu, value in zip(gpus, values, strict=True))
    found, due = find_siblings(reading, {})
    assert found["NVIDIA X999"].counts == (2,)
    assert due.counts == {"GPU-0": 2}
    assert found["NVIDIA X999"].node == 4


def reading(*values: GpuLinks | Absent) -> tuple[GpuReading[GpuLinks], ...]:
    gpus = (Gpu(index, f"GPU-{index}", name="NVIDIA X999") for index in range(len(values)))
    return tuple(map(GpuReading, gpus, values))


@pytest.mark.parametrize(
    ("values", "here"),
    [
        ([links((1, 26e9))], True),
        ([UNREAD, links(), replace(links((1, 26e9)), mig=True)], False),
        ([UNREAD, links(), links((1, 26e9))], True),
        ([], False),
    ],
)
def test_there_is_something_to_watch_where_one_whole_gpu_has_links(
    values: list[GpuLinks | Absent],
    here: bool,  # noqa: FBT001
) -> None:
    assert applicable(reading(*values)) is here


def test_links_are_observed_on_gpus_that_were_read_and_are_whole() -> None:
    seen = observed(reading(UNREAD, replace(links((1, 26e9)), mig=True), links((1, 26e9)), links()), {})
    assert seen.gpus is not None
    assert {part.gpu for part in seen.gpus} == {"2", "3"}


REGISTERED = Fabric(len(FABRIC_STATES) - 1, 0, 0, None, 0, "")


@each(
    ("first", "second", "virtual", "registered", "dark"),
    [
        ({"virtual": True}, {"virtual": True}, True, False, False),
        ({"virtual": True}, {}, False, False, False),
        ({"fabric": REGISTERED}, {}, False, True, False),
        ({"fabric": replace(REGISTERED, state=2)}, {}, False, False, False),
        ({"links": links((0, 1e9)).links}, {}, False, False, False),
        ({"links": links((0, 1e9)).links}, {"links": links((0, 1e9)).links}, False, False, True),
    ],
)
def test_siblings_are_as_all_or_one_of_them(
    first: dict[str, Any],
    second: dict[str, Any],
    *,
    virtual: bool,
    registered: bool,
    dark: bool,
) -> None:
    whole = links((1, 26e9))
    found, _ = find_siblings(reading(replace(whole, **first), replace(whole, **second)), {})
    one = found["NVIDIA X999"]
    assert (one.virtual, one.registered, one.dark) == (virtual, registered, dark)


def test_one_link_below_what_the_node_has_shown_makes_all_slow_links_of_a_gpu_failed() -> None:
    node = card("NVIDIA H200", 17000, 18)
    rates(node, "0", 10000, range(1))
    node.poll("nvlink", times=3)
    assert {r[:2] + r[3:] for r in node.rules()} == {
        ("nvlink.slow", "0", FAILED),
        ("nvlink.slow", "1", DEGRADED),
    }
    assert "all 18 active links at 17.000 GB/s or less" in node.findings()[0].evidence


def test_a_driver_that_shows_no_nvlink_on_any_gpu_says_nothing_of_a_listed_product() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    unlinked(node, "*")
    node.poll(times=3)
    assert node.findings() == ()


def test_fewer_links_than_the_operator_says_are_no_partition() -> None:
    node = Node("h200x2-idle", expect=Expect(nvlink_links=10), only=("nvlink",))
    active(node, 9)
    node.poll(times=3)
    assert node.rules() == {("nvlink.links_missing", gpu, "", FAILED) for gpu in "01"}
