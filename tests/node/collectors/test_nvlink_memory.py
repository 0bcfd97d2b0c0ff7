"""Links that were active before the agent started, and links that bridges and siblings say are missing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.node.collectors.test_nvlink_boards import links
from tests.rows import each
from tests.support import Node
from wirewatch.collectors.nvlink import COLLECTOR
from wirewatch.collectors.nvlink.judge import LINK_DOWN, LINK_SLOW, _fabric_faults, _merge, forget, keep
from wirewatch.collectors.nvlink.model import ActiveLinks, Fabric, GpuLinks, LinkDetail, NvlinkMemory, _due
from wirewatch.core.collector import AnyCollector, Component, GpuMemory
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Health, Why

FAILED, OK = Health.FAILED, Health.OK
CONFIRMED = 3
A100, H100_NVL = "NVIDIA A100 80GB PCIe", "NVIDIA H100 NVL"
IDLE = (4, 5, 10, 11, 16, 17)


def cards(name: str, active: Sequence[int], reported: int = 18, gpus: int = 2) -> Node:
    """Cards of a product of which so many links are active: the first ones, or those of three bridges."""
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("Count()", "set", gpus)
    node.change("gpu*/Name()", "set", name)
    rate = 26562 if name == H100_NVL else 25000
    node.change("gpu*/Field(164,*)", "set", rate)
    for link in range(reported, 19):
        node.change(f"gpu*/Field(165,{link})", "code", 3)
        node.change(f"gpu*/NvLinkState({link})", "code", 3)
        node.change(f"gpu*/Field(164,{link})", "code", 3)
    idle = IDLE if reported == 18 else ()
    wired = [link for link in range(reported) if link not in idle]
    for gpu, count in enumerate(active):
        for link in range(reported):
            if link not in wired[:count]:
                node.change(f"gpu{gpu}/Field(165,{link})", "set", 0)
    return node


def restarted(node: Node, collector: AnyCollector = COLLECTOR) -> Node:
    """The same node after a reboot: what outlives the process, and no more."""
    assert collector.lasting is not None
    kept = collector.lasting.keep(node.state.components[collector.name].memory)
    start = collector.lasting.recall(kept)
    node.state = node.state.with_component(Component(collector.name, start))
    return node


@pytest.mark.parametrize(("name", "reported"), [(A100, 12), (H100_NVL, 18)])
def test_bridges_that_are_all_there_or_not_are_healthy(name: str, reported: int) -> None:
    for count in (0, 4, 8, 12):
        node = cards(name, (count, count), reported)
        node.poll(times=CONFIRMED)
        assert node.findings() == (), count


@pytest.mark.parametrize(
    ("name", "reported", "active", "found"),
    [
        (A100, 12, (11, 12), {("nvlink.link_down", "0", "11", FAILED)}),
        (A100, 12, (11, 11), {("nvlink.link_down", g, "11", FAILED) for g in "01"}),
        (H100_NVL, 18, (12, 11), {("nvlink.link_down", "1", "15", FAILED)}),
        (H100_NVL, 18, (11, 11), {("nvlink.links_missing", g, "", FAILED) for g in "01"}),
        (H100_NVL, 18, (12, 8), {("nvlink.link_down", "1", str(n), FAILED) for n in (12, 13, 14, 15)}),
        (H100_NVL, 18, (7, 8), {("nvlink.link_down", "0", "9", FAILED)}),
    ],
)
def test_a_number_of_links_that_no_bridges_make_is_a_link_that_is_missing(
    name: str, reported: int, active: tuple[int, ...], found: set[object]
) -> None:
    """Before: OK, since the number that was seen was the number to expect."""
    node = cards(name, active, reported)
    node.poll(times=CONFIRMED)
    assert node.rules() == found


def test_eleven_links_are_one_too_few_on_a_gpu_alone() -> None:
    node = cards(A100, (11,), 12, gpus=1)
    node.poll(times=CONFIRMED)
    assert node.rules() == {("nvlink.link_down", "0", "11", FAILED)}
    node = cards(H100_NVL, (11,), gpus=1)
    node.poll(times=CONFIRMED)
    assert node.rules() == {("nvlink.links_missing", "0", "", FAILED)}
    assert node.findings()[0].evidence == "11 of 18 reported links up, 12 expected"


@each(
    ("counts", "due"),
    [
        ((12, 12, 0, 0), (12, 12, 0, 0)),
        ((12, 12, 8, 0), (12, 12, 8, 8)),
        ((12, 0), (12, 12)),
        ((12,), (12,)),
        ((12, 12, 0), (12, 12, 0)),
        ((12, 0, 0, 0), (12, 0, 0, 0)),
        ((12, 11, 4, 4), (12, 12, 4, 4)),
        ((18, 18, 18, 18), (18, 18, 18, 18)),
    ],
)
def test_two_gpus_share_a_bridge(counts: tuple[int, ...], due: tuple[int, ...]) -> None:
    assert tuple(_due(H100_NVL, {str(i): n for i, n in enumerate(counts)}).values()) == due


@each(
    ("counts", "due"),
    [
        ((4, 4, 4, 3), (4, 4, 4, 4)),
        ((4, 4, 0, 0), (4, 4, 0, 0)),
        ((4, 4, 4, 4, 0, 0), (4, 4, 4, 4, 0, 0)),
        ((18, 17), (18, 17)),
        ((17,), (17,)),
    ],
)
def test_most_gpus_of_a_product_that_is_not_listed_decide(
    counts: tuple[int, ...], due: tuple[int, ...]
) -> None:
    assert tuple(_due("NVIDIA X999", {str(i): n for i, n in enumerate(counts)}).values()) == due


@pytest.mark.parametrize("name", [H100_NVL, "NVIDIA X999"])
def test_links_that_were_active_before_a_boot_are_named(name: str) -> None:
    """Before: OK, since only links that this process had seen active were judged."""
    node = cards(name, (12, 12))
    node.poll(times=CONFIRMED)
    assert node.findings() == ()
    for gpu in (0, 1):
        for link in (12, 13, 14, 15):
            node.change(f"gpu{gpu}/Field(165,{link})", "set", 0)
    restarted(node).poll(times=CONFIRMED)
    assert node.rules() == {
        ("nvlink.link_down", gpu, str(link), FAILED) for gpu in "01" for link in (12, 13, 14, 15)
    }


def test_a_product_that_is_not_listed_runs_as_fast_as_before_a_boot() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu*/Name()", "set", "NVIDIA X999")
    node.poll(times=2)
    node.change("gpu*/Field(164,*)", "set", 13000)
    node.change("gpu*/Field(164,18)", "code", 3)
    restarted(node).poll(times=CONFIRMED)
    assert node.rules() == {("nvlink.slow", gpu, "", FAILED) for gpu in "01"}


def test_a_node_as_it_was_is_healthy_after_a_restart() -> None:
    node = Node(only=("nvlink",))
    node.poll(times=2)
    restarted(node).poll(times=CONFIRMED)
    assert node.findings() == ()


def test_the_memory_of_a_gpu_that_is_not_here_says_nothing() -> None:
    """Whether it is missing, the inventory knows: it may have been replaced."""
    node = Node(only=("nvlink",))
    node.poll(times=2)
    restarted(node)
    node.change("Count()", "set", 7)
    node.poll(times=CONFIRMED)
    assert node.findings() == ()


def test_links_are_remembered_through_mig() -> None:
    node = cards(H100_NVL, (12, 12))
    node.poll(times=2)
    split = node.change("gpu0/MigMode()", "set", [1, 1])
    node.poll(times=2)
    restarted(node)
    node.undo(split)
    node.change("gpu0/Field(165,15)", "set", 0)
    node.poll(times=CONFIRMED)
    assert node.rules() == {("nvlink.link_down", "0", "15", FAILED)}


def test_a_bridge_that_is_lost_while_both_its_gpus_are_split_is_missed() -> None:
    node = cards(H100_NVL, (12, 12))
    node.poll(times=2)
    split = [node.change(f"gpu{gpu}/MigMode()", "set", [1, 1]) for gpu in (0, 1)]
    node.poll(times=2)
    restarted(node)
    for gpu in (0, 1):
        node.undo(split[gpu])
        for link in (12, 13, 14, 15):
            node.change(f"gpu{gpu}/Field(165,{link})", "set", 0)
    node.poll(times=CONFIRMED)
    assert {(rule, gpu) for rule, gpu, _, _ in node.rules()} == {("nvlink.link_down", gpu) for gpu in "01"}


def test_bridges_that_were_taken_off_are_forgotten() -> None:
    node = cards(H100_NVL, (12, 12))
    node.poll(times=2)
    for gpu in (0, 1):
        for link in (12, 13, 14, 15):
            node.change(f"gpu{gpu}/Field(165,{link})", "set", 0)
    node.poll(times=CONFIRMED)
    assert len(node.findings()) == 8
    assert COLLECTOR.forget is not None
    component = node.state.components["nvlink"]
    node.state = node.state.with_component(replace(component, memory=COLLECTOR.forget(component.memory)))
    node.poll(times=CONFIRMED)
    assert node.findings() == ()


CHIPS = [
    ("Field(170)", 2),
    ("Field(171,0)", 1),
    ("Field(171,1)", 1),
    ("Field(172,0)", 25000),
    ("Field(172,1)", 25000),
]


def grace(*gpus: int) -> Node:
    node = Node("h200x2-idle", only=("nvlink",))
    for gpu in gpus:
        for question, value in CHIPS:
            node.change(f"gpu{gpu}/{question}", "set", value)
    return node


def test_chip_to_chip_links_that_are_not_reported_any_more_are_down() -> None:
    """Before: OK, since no link was no link to judge."""
    node = grace(0, 1)
    node.poll(times=2)
    assert node.findings() == ()
    node.change("gpu*/Field(170)", "set", 1)
    restarted(node).poll(times=CONFIRMED)
    assert node.rules() == {("c2c.link_down", gpu, "1", FAILED) for gpu in "01"}


@pytest.mark.parametrize("field", [165, 164])
def test_a_fault_of_a_link_is_neither_confirmed_nor_cleared_while_it_cannot_be_read(field: int) -> None:
    node = Node(only=("nvlink",))
    node.poll()
    node.change(
        "gpu2/Field(165,7)" if field == 165 else "gpu2/Field(164,7)", "set", 0 if field == 165 else 1562
    )
    node.poll()
    rule = LINK_DOWN if field == 165 else LINK_SLOW
    assert node.rules() == {(rule.name, "2", "7", Health.DEGRADED)}
    node.change(f"gpu2/Field({field},7)", "code", 10)
    node.poll(times=4)
    assert node.rules() == {(rule.name, "2", "7", Health.DEGRADED), ("nvlink.blind", "2", "", Health.UNKNOWN)}


def test_a_chip_to_chip_link_that_cannot_be_read_is_neither_up_nor_down() -> None:
    node = grace(0)
    node.poll()
    node.change("gpu0/Field(171,1)", "set", 0)
    node.poll()
    node.change("gpu0/Field(171,1)", "code", 10)
    node.poll(times=4)
    assert node.rules() == {
        ("c2c.link_down", "0", "1", Health.DEGRADED),
        ("nvlink.blind", "0", "", Health.UNKNOWN),
    }


def test_errors_name_the_link_also_where_single_links_are_read_seldom() -> None:
    node = Node(only=("nvlink",))
    node.options("nvlink", link_detail=True, link_detail_interval=6000.0)
    node.poll(times=2)
    node.change("gpu2/Field(162,all)", "set", 3)
    node.change("gpu2/Field(162,14)", "set", 3)
    node.poll()
    assert node.findings()[0].evidence.endswith("link 14: 3")


def test_single_links_are_not_asked_for_their_bytes_unless_that_is_wanted() -> None:
    node = Node(only=("nvlink",))
    node.poll(times=2)
    node.change("gpu2/Field(162,all)", "set", 3)
    node.change("gpu2/Field(162,14)", "set", 3)
    node.poll()
    assert node.series("nvlink_link_transmit_bytes_total") == []
    assert node.series("nvlink_link_errors_total", gpu="2", link="14") == [3]


def test_nothing_that_is_known_of_single_links_is_lost_by_a_look_at_errors_alone() -> None:
    old = LinkDetail(1.0, {0: 5}, {0: 6}, {"crc": {0: 1}, "replay": {0: 2}})
    new = LinkDetail(2.0, {}, {}, {"crc": {0: 9}})
    assert _merge(old, None) is old
    assert _merge(old, Absent(Why.TIMEOUT, "no answer")) is None
    assert _merge(None, new) is new
    assert _merge(old, new) == replace(old, errors={"crc": {0: 9}, "replay": {0: 2}})
    whole = replace(new, transmit={0: 7})
    assert _merge(old, whole) is whole


def test_only_gpus_with_a_name_and_a_link_outlive_the_process() -> None:
    node = cards(H100_NVL, (12, 0))
    node.poll()
    assert COLLECTOR.lasting is not None
    kept = COLLECTOR.lasting.keep(node.state.components["nvlink"].memory)
    assert [one.index for one in kept.gpus.values()] == [0]
    assert [one.rate for one in kept.gpus.values()] == [26.562e9]


def test_chip_to_chip_links_alone_outlive_the_process() -> None:
    node = grace(0, 1)
    node.change("gpu*/Field(165,*)", "set", 0)
    node.poll()
    assert COLLECTOR.lasting is not None
    kept = COLLECTOR.lasting.keep(node.state.components["nvlink"].memory)
    assert [one.c2c for one in kept.gpus.values()] == [(0, 1), (0, 1)]


def test_a_gpu_that_was_not_read_since_the_start_keeps_its_links_when_others_are_forgotten() -> None:
    node = cards(H100_NVL, (12, 12))
    node.poll()
    restarted(node)
    node.change("gpu0/*", "code", 10)
    node.poll()
    assert COLLECTOR.forget is not None
    component = node.state.components["nvlink"]
    left = COLLECTOR.forget(component.memory)
    assert {len(one.memory.seen_active) for one in left.values()} == {12}


@each(
    ("state", "status", "faults"),
    [
        (0, 5, []),
        (1, 0, ["fabric.state"]),
        (2, 5, ["fabric.state"]),
        (3, 0, []),
        (3, 5, ["fabric.status"]),
    ],
)
def test_a_status_counts_once_the_registration_is_completed(
    state: int, status: int, faults: list[str]
) -> None:
    assert [f.rule for f in _fabric_faults(Fabric(state, status, 0, None, 0, ""))] == faults


def test_errors_of_which_no_link_can_be_named_are_reported() -> None:
    node = Node(only=("nvlink",))
    node.poll()
    node.change("gpu2/Field(162,all)", "set", 3)
    for link in range(18):
        node.change(f"gpu2/Field(162,{link})", "code", 10)
    node.poll()
    evidence = {f.rule: f.evidence for f in node.findings()}
    assert evidence["nvlink.recovery_errors"] == "errors: 3 in 3600 s, 3 since reset"


def test_links_that_are_missing_without_a_name_are_degraded_at_first_sight() -> None:
    node = cards(H100_NVL, (8, 8))
    node.poll(times=5)
    assert node.findings() == ()
    for gpu in (0, 1):
        for link in (12, 13, 14):
            node.change(f"gpu{gpu}/Field(165,{link})", "set", 1)
    node.poll()
    assert node.rules() == {("nvlink.links_missing", gpu, "", Health.DEGRADED) for gpu in "01"}


def memory(seen: Sequence[int] = (), c2c: Sequence[int] = (), last: GpuLinks | None = None) -> NvlinkMemory:
    return NvlinkMemory(seen_active=frozenset(seen), c2c_active=frozenset(c2c), last=last)


@pytest.mark.parametrize(
    ("uuid", "known", "kept"),
    [
        ("GPU-0", memory(seen=(1, 0)), ActiveLinks(0, "NVIDIA X999", (0, 1))),
        ("GPU-0", memory(c2c=(3,)), ActiveLinks(0, "NVIDIA X999", (), c2c=(3,))),
        ("GPU-0", memory(), None),
        ("", memory(seen=(0,)), None),
    ],
)
def test_a_gpu_with_a_name_and_with_links_of_one_kind_outlives_the_process(
    uuid: str, known: NvlinkMemory, kept: ActiveLinks | None
) -> None:
    gpu = Gpu(0, uuid, name="NVIDIA X999")
    assert keep({"0": GpuMemory(gpu, known)}).gpus == ({uuid: kept} if kept else {})


def test_links_that_are_not_up_now_are_forgotten() -> None:
    last = replace(links((1, 26e9), (0, 26e9)), c2c=links((0, 25e9), (1, 25e9)).links)
    known = GpuMemory(Gpu(0, "GPU-0"), memory((0, 1, 2), (0, 1), last))
    left = forget({"GPU-0": known})["GPU-0"].memory
    assert left.seen_active == {0}
    assert left.c2c_active == {1}
