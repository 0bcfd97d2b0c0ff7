"""Ports beside their siblings since the first start: fewer lanes, and another link layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from tests.node.collectors.drawn import PCI, RDMA, Files, Watched
from tests.support import Node
from wirewatch.collectors.infiniband import COLLECTOR
from wirewatch.core.types import Expect, Health
from wirewatch.hw.overlay import AnswerChange

DEGRADED, UNKNOWN, FAILED = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
ONE, TWO, WHOLE = "100 Gb/sec (1X NDR)", "200 Gb/sec (2X NDR)", "400 Gb/sec (4X NDR)"
SLOW, LAYER = "infiniband.port_slow", "infiniband.port_layer"
ETHERNET = {"link_layer": "Ethernet", "lid": "0x0"}
DARK = {**ETHERNET, "state": "1: DOWN", "phys_state": "3: Disabled"}
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}
OFF = {"state": "1: DOWN", "phys_state": "3: Disabled"}
HDR = "200 Gb/sec (4X HDR)"
STORAGE = {"board_id": "MT_STORAGE"}


@dataclass(frozen=True)
class Row:
    """`ports`: files of ports that are not whole; `beside`: cards that share a switch with a GPU."""

    what: str
    source: str
    ports: Mapping[int, Mapping[str, str]]
    right: Mapping[int, tuple[str, Health]] = field(default_factory=dict)
    cards: int = 8
    gpus: int = 8
    beside: Sequence[int] = range(8)
    flat: bool = False
    function: int = 0


DGX = "NVIDIA DGX H100/H200 user guide, table 6 (network modules): one of eight ConnectX-7 for each GPU"
SPLIT = (
    "docs.nvidia.com/networking/display/mca7j60nxxx800pub/overview: 200G is two channels of a splitter; "
    "openucx/ucx#6553: HDR100 is 2X"
)
TYPE = (
    "docs.nvidia.com/networking/display/XLIOv3212, VPI cards: ports of a ConnectX-7 are InfiniBand unless "
    "mlxconfig says otherwise"
)
WIDTHS = "ibportstate: LinkWidthSupported 1X or 4X; a link that trains badly falls to 1X"
AZURE = "learn.microsoft.com, ND-H100-v5: eight NDR ports, one for each GPU, and one for Ethernet"
EVERY: Mapping[int, Mapping[str, str]] = {n: {"rate": TWO} for n in range(8)}
SLOWER, NARROW, OTHER = (SLOW, DEGRADED), (SLOW, FAILED), (LAYER, DEGRADED)
CAMP, UNUSED = (SLOW, UNKNOWN), ("infiniband.port_inactive", UNKNOWN)
SPEEDS = "Linux, drivers/infiniband/core/sysfs.c: rate_show names the speed that a port has agreed on"
DUAL = "NVIDIA ConnectX-7 user manual: cards with two ports, of which the second may be unused"

ROWS = (
    # What is certain.
    Row("one of eight at 1X", f"{DGX}; {WIDTHS}", {6: {"rate": ONE}}, {6: NARROW}),
    Row("two of eight at 1X", WIDTHS, {n: {"rate": ONE} for n in (0, 6)}, {0: NARROW, 6: NARROW}),
    Row("one of four HDR ports at 1X", WIDTHS, {
        **{n: {"rate": "200 Gb/sec (4X HDR)"} for n in (0, 1, 2)}, 3: {"rate": "50 Gb/sec (1X HDR)"},
    }, {3: NARROW}, cards=4, gpus=4, beside=range(4)),
    Row("1X at the whole rate", WIDTHS, {
        **{n: {"rate": "100 Gb/sec (4X EDR)"} for n in range(7)}, 7: {"rate": ONE},
    }, {7: NARROW}),
    Row("one of eight compute ports at 2X", f"{DGX}; {SPLIT}", {6: {"rate": TWO}}, {6: NARROW}),
    Row("1X without a GPU that is shown", WIDTHS, {6: {"rate": ONE}}, {6: NARROW}, gpus=0),
    # What may be meant.
    Row("all split", SPLIT, EVERY),
    Row("all split, and one lane of one", SPLIT, {**EVERY, 3: {"rate": ONE}}, {3: NARROW}),
    Row("all at one lane", WIDTHS, {n: {"rate": ONE} for n in range(8)}, dict.fromkeys(range(8), SLOWER)),
    Row("half of them split", SPLIT, {n: {"rate": TWO} for n in range(4)}, dict.fromkeys(range(4), CAMP)),
    Row("half of them slow", SPEEDS, {n: {"rate": HDR} for n in range(4)}, dict.fromkeys(range(4), CAMP)),
    Row("seven slow", SPEEDS, {n: {"rate": HDR} for n in range(1, 8)}, dict.fromkeys(range(1, 8), CAMP)),
    Row("half of the second ports slow", SPEEDS, {n: {"rate": HDR} for n in range(4)}, function=1),
    Row("four slow cards of nine", SPEEDS, {n: {"rate": HDR} for n in range(4)},
        dict.fromkeys(range(4), SLOWER), cards=9, beside=range(9)),
    Row("slow and fast, and no GPU is shown", SPEEDS, {n: {"rate": HDR} for n in range(4)}, gpus=0),
    Row("slow cards for storage beside no GPU", SPEEDS, {n: {"rate": HDR} for n in range(4)}, beside=()),
    Row("two slow of four, of another board", SPEEDS, {n: {"rate": HDR, **STORAGE} for n in (0, 1)}, cards=4),
    # The rate decides as the lanes do.
    Row("one of eight at SDR", f"{DGX}; {SPEEDS}", {6: {"rate": "10 Gb/sec (4X SDR)"}}, {6: NARROW}),
    Row("a quarter without a GPU", SPEEDS, {6: {"rate": "100 Gb/sec (4X EDR)"}}, {6: NARROW}, gpus=0),
    Row("half, in a machine without a GPU", SPEEDS, {6: {"rate": HDR}}, {6: SLOWER}, gpus=0),
    Row("one of eight at half the rate", f"{DGX}; {SPEEDS}", {6: {"rate": HDR}}, {6: NARROW}),
    Row("eight lanes", "rate of sysfs, lanes of a 2x port", {6: {"rate": "400 Gb/sec (8X HDR)"}}),
    # Dark since the first start.
    Row("one of eight looks for a signal", DGX, {3: DOWN}, {3: UNUSED}),
    Row("half look for a signal", DGX, dict.fromkeys(range(4), DOWN), dict.fromkeys(range(4), UNUSED)),
    Row("half of them are switched off", DGX, dict.fromkeys(range(4), OFF), dict.fromkeys(range(4), UNUSED)),
    Row("all but one are switched off", DGX, dict.fromkeys(range(7), OFF), dict.fromkeys(range(7), UNUSED)),
    Row("half of the second ports are switched off", DUAL, dict.fromkeys(range(4), OFF), function=1),
    Row("all second ports are switched off", DUAL, dict.fromkeys(range(8), OFF), function=1),
    Row("all second ports look for a signal", DUAL, dict.fromkeys(range(8), DOWN), function=1),
    Row("cards for storage, switched off", DGX, {8: OFF, 9: OFF}, cards=10),
    Row("half of them are Ethernet and switched off", TYPE, dict.fromkeys(range(4), DARK)),
    Row("a ninth for storage, split", SPLIT, {8: {"rate": TWO}}, {8: SLOWER}, cards=9),
    Row("a ninth for storage below a switch of a GPU, split", SPLIT, {8: {"rate": TWO}}, {8: SLOWER}, cards=9,
        beside=range(9)),
    Row("the same while a port for compute is down", SPLIT, {3: DOWN, 8: {"rate": TWO}},
        {3: ("infiniband.port_inactive", DEGRADED), 8: SLOWER}, cards=9, beside=range(9)),
    Row("two ports say too little of a third", SPLIT, {2: {"rate": ONE}}, {2: SLOWER}, cards=3),
    # Another network.
    Row("one of eight came up as Ethernet", f"{DGX}; {TYPE}", {4: ETHERNET}, {4: OTHER}),
    Row("two of eight came up as Ethernet", TYPE, {4: ETHERNET, 5: ETHERNET}, {4: OTHER, 5: OTHER}),
    Row("in a virtual machine that shows no switch", TYPE, {4: ETHERNET}, {4: OTHER}, flat=True),
    Row("Ethernet of another board, for storage", AZURE, {8: {**ETHERNET, **STORAGE}}, cards=9,
        beside=range(9)),
    Row("Ethernet for management, of the same board", DGX, {8: ETHERNET}, cards=9),
    Row("the same below a switch of a GPU", DGX, {8: ETHERNET}, cards=9, beside=range(9)),
    Row("the same in a virtual machine", AZURE, {8: ETHERNET}, cards=9, flat=True),
    Row("four for compute and one for storage", "HGX with a NIC for two GPUs", {4: ETHERNET}, cards=5,
        beside=range(5)),
    Row("half of them are Ethernet", "a mixed machine", dict.fromkeys(range(4), ETHERNET)),
    Row("no GPU is shown", TYPE, {4: ETHERNET}, gpus=0),
)  # fmt: skip


def board(row: Row) -> Files:
    """Cards in the order of their numbers, the first below one switch with a GPU each."""
    files = Files()
    files.texts["/sys/module/ib_core/parameters/netns_mode"] = "Y"
    at = "pci0000:00" if row.flat else "pci0000:{0}0/0000:{0}0:01.0/0000:{0}1:00.0"
    for n in range(row.gpus):
        files.device(
            f"0000:{n}3:00.0", at.format(n), "0", "nvidia", **{"class": "0x030200", "vendor": "0x10de"}
        )
    for n in range(row.cards):
        place = at.format(n % max(row.gpus, 1)) if n in row.beside else f"pci0000:f{n}/0000:f{n}:01.0"
        files.nic(f"mlx5_{n}", f"0000:{n}2:00.{row.function}", place)
        told = dict(row.ports.get(n, {}))
        if "board_id" in told:
            files.texts[f"{RDMA}/mlx5_{n}/board_id"] = told.pop("board_id")
        files.set(f"mlx5_{n}", **told)
    return files


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_port_is_judged_by_siblings_of_one_board_and_role(row: Row) -> None:
    assert row.source
    node = Watched("infiniband", board(row))
    node.poll(4)
    assert node.rules() == {(rule, f"mlx5_{n} port 1"): health for n, (rule, health) in row.right.items()}


def test_fewer_lanes_are_failed_once_confirmed_and_over_with_the_next_training() -> None:
    node = Watched("infiniband", board(ROWS[0]))
    found = []
    for _ in range(3):
        node.poll()
        found.append(node.rules()[SLOW, "mlx5_6 port 1"])
    assert found == [DEGRADED, DEGRADED, FAILED]
    node.files.set("mlx5_6", rate=WHOLE)
    assert node.poll() == ()


def test_while_a_card_is_lent_nobody_knows_which_ports_the_gpus_share() -> None:
    node = Watched("infiniband", board(Row("", SPLIT, {8: {"rate": TWO}}, cards=9, beside=range(9))))
    node.poll()
    node.files.forget(f"{RDMA}/mlx5_3")
    node.files.links[f"{PCI}/0000:32:00.0/driver"] = "/sys/bus/pci/drivers/vfio-pci"
    node.poll(4)
    assert node.rules() == {(SLOW, "mlx5_8 port 1"): DEGRADED}


def test_a_rate_that_the_operator_expects_makes_two_lanes_right() -> None:
    row = Row("pinned", SPLIT, EVERY)
    node = Watched("infiniband", board(row), expect=Expect(rdma_rate_bytes_per_second=25e9))
    assert node.poll(4) == ()


def test_a_port_that_is_ethernet_on_a_switch_for_infiniband_has_no_link_and_is_named_for_both() -> None:
    node = Watched("infiniband", board(Row("", TYPE, {4: DARK})))
    node.poll(4)
    part = "mlx5_4 port 1"
    assert node.rules() == {(LAYER, part): DEGRADED, ("infiniband.port_inactive", part): DEGRADED}


def test_the_evidence_of_another_layer_names_board_and_command() -> None:
    node = Watched("infiniband", board(Row("", TYPE, {4: ETHERNET})))
    (found,) = node.poll(3)
    assert found.evidence == "Ethernet, while 7 of 8 ports of cards MT_0000000838 are InfiniBand"
    assert "LINK_TYPE_P1=1" in found.action


GONE = "/sys/class/infiniband/mlx5_6/ports/1"


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({f"{GONE}/rate": ONE}, NARROW),
        ({f"{GONE}/link_layer": "Ethernet", f"{GONE}/lid": "0x0"}, OTHER),
    ],
    ids=["1X", "Ethernet"],
)  # fmt: skip
def test_on_the_demo_it_is_so_from_the_first_start(
    changes: Mapping[str, str], right: tuple[str, Health]
) -> None:
    told = [AnswerChange("sysfs", f"read {path}", "set", text) for path, text in changes.items()]
    node = Node("demo-dgx-h200", told, only=("infiniband",))
    node.options("infiniband", ibstat=False)
    node.poll(times=4)
    assert [(one.rule, one.subject.device, one.health) for one in node.findings()] == [
        (right[0], "mlx5_6", right[1])
    ]


def test_a_card_that_is_gone_after_a_boot_is_failed_by_memory_alone() -> None:
    before = Node("demo-dgx-h200", only=("infiniband",))
    before.poll()
    assert COLLECTOR.lasting is not None
    kept = COLLECTOR.lasting.keep(before.state.components["infiniband"].memory)
    names = [f"mlx5_{n}" for n in range(10) if n != 4]
    gone = [AnswerChange("sysfs", match, "errno", "ENOENT") for match in ("*mlx5_4*", "*0000:9a:00.0*")]
    listed = AnswerChange("sysfs", "list /sys/class/infiniband", "set", names)
    now = Node("demo-dgx-h200", [listed, *gone], only=("infiniband",))
    now.options("infiniband", ibstat=False)
    fresh = now.state.components["infiniband"]
    for memory, rules in (
        (fresh.memory, set()),
        (COLLECTOR.lasting.recall(kept), {"infiniband.device_gone"}),
    ):
        now.state = now.state.with_component(replace(fresh, memory=memory))
        now.poll(times=4)
        found = {
            one.rule for one in now.findings() if one.health is FAILED and one.subject.device == "mlx5_4"
        }
        assert found == rules


def test_all_dark_ports_that_the_gpus_share_are_one_finding_of_the_node() -> None:
    for files in (OFF, DOWN):
        node = Watched("infiniband", board(Row("", DGX, dict.fromkeys(range(8), files))))
        (found,) = node.poll(4)
        assert (found.rule, found.health, str(found.subject)) == (*UNUSED, "node")
        assert "so are all 8 ports of cards MT_0000000838" in found.evidence


@pytest.mark.parametrize("files", [OFF, DOWN])
def test_dark_ports_are_meant_where_the_operator_expects_so_many(files: Mapping[str, str]) -> None:
    four = board(Row("", DGX, dict.fromkeys(range(4), files)))
    (searching,) = {DEGRADED} if files is DOWN else {Health.OK}
    for ports, worst in ((4, searching), (5, FAILED)):
        node = Watched("infiniband", four, expect=Expect(rdma_ports=ports))
        assert max((one.health for one in node.poll(4)), default=Health.OK) == worst
    none = Watched(
        "infiniband", board(Row("", DGX, dict.fromkeys(range(8), OFF))), expect=Expect(rdma_ports=0)
    )
    assert none.poll(4) == ()


def test_two_camps_are_right_at_a_rate_that_the_operator_expects() -> None:
    row = Row("", SPEEDS, {n: {"rate": HDR} for n in range(4)})
    assert Watched("infiniband", board(row), expect=Expect(rdma_rate_bytes_per_second=25e9)).poll(4) == ()


@pytest.mark.parametrize(
    ("changed", "before", "after"),
    [({"rate": HDR}, CAMP, None), (OFF, UNUSED, (UNUSED[0], DEGRADED))],
    ids=["two camps", "dark"],
)
def test_what_an_operator_accepted_is_no_question_any_more(
    changed: Mapping[str, str], before: tuple[str, Health], after: tuple[str, Health] | None
) -> None:
    """Also after a restart; a port that falls below its accepted rate is slow all the same."""
    files = board(Row("", SPEEDS, dict.fromkeys(range(4), changed)))
    node = Watched("infiniband", files)
    assert {(one.rule, one.health) for one in node.poll(4)} == {before}
    assert node.collector.forget is not None
    assert node.collector.lasting is not None
    kept = node.collector.lasting.keep(node.collector.forget(node.component.memory))
    again = Watched("infiniband", files)
    again.component = replace(again.component, memory=node.collector.lasting.recall(kept))
    assert {(one.rule, one.health) for one in again.poll(4)} == ({after} if after else set())
    if after is None:
        slower = board(
            Row("", SPEEDS, {0: {"rate": "100 Gb/sec (2X HDR)"}, **dict.fromkeys(range(1, 4), changed)})
        )
        again.files.texts |= slower.texts
        again.poll(4)
        assert again.rules() == {("infiniband.port_slow", "mlx5_0 port 1"): FAILED}


def test_a_gpu_whose_card_is_not_on_pci_is_named() -> None:
    files = board(Row("", DGX, {}))
    take_card(files, 4)
    (found,) = Watched("infiniband", files).poll(4)
    assert (found.rule, found.health) == ("infiniband.ports_missing", UNKNOWN)
    assert "7 of 8 GPUs have 1 network cards" in found.evidence
    assert "0000:43:00.0" in found.evidence


def take_card(files: Files, number: int) -> None:
    files.forget(f"{RDMA}/mlx5_{number}")
    files.forget(f"{PCI}/0000:{number}2:00.0")


@pytest.mark.parametrize(
    ("row", "taken", "expect"),
    [
        (Row("every second GPU has a card", DGX, {}), (1, 3, 5, 7), Expect()),
        (Row("so many are expected", DGX, {}), (4,), Expect(rdma_ports=7)),
        (Row("two of three", DGX, {}, gpus=3, cards=3), (2,), Expect()),
        (Row("a virtual machine", AZURE, {}, flat=True), (4,), Expect()),
    ],
    ids=lambda value: value.what if isinstance(value, Row) else None,
)
def test_gpus_without_a_card_may_be_meant(row: Row, taken: Sequence[int], expect: Expect) -> None:
    files = board(row)
    for number in taken:
        take_card(files, number)
    assert Watched("infiniband", files, expect=expect).poll(4) == ()


def test_an_excluded_card_and_a_virtual_function_are_cards_of_their_gpus() -> None:
    files = board(Row("", DGX, {}))
    files.links[f"{PCI}/0000:42:00.0/physfn"] = "/sys/devices/pci0000:40/0000:42:00.1"
    assert Watched("infiniband", files).poll(4) == ()
