"""Where parts hang after a renumbering, in tables; in each row a single difference decides."""

from collections.abc import Mapping

import pytest

from tests.node.verdict.drift.drawn import Box, bridged, changes, guid, meshed, switched, uuid
from tests.rows import each
from wirewatch.core.pci import Place
from wirewatch.core.topology import UNKNOWN_PEER
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import ChangeKind
from wirewatch.verdict.drift.wiring import Aspect, Renaming, TreePlace, Unknown, Voter, match, unknown_text

NAMES = {"pci0000:10": "pci0000:20", "0000:10:01.0": "0000:20:01.0"}
TAKEN = {**NAMES, "pci0000:30": "pci0000:40"}


def at(address: str = "", *chain: str, numa: int | None = 0) -> TreePlace:
    root, *bridges = chain or ("",)
    return TreePlace((), numa, root, tuple(bridges), address)


OLD = at("0000:11:00.0", "pci0000:10", "0000:10:01.0")


@each(
    ("after", "kept"),
    [
        (at("0000:21:00.0", "pci0000:20", "0000:20:01.0"), True),
        (at("0000:21:00.0", "pci0000:20", "0000:20:02.0"), False),
        (at("0000:21:00.0", "pci0000:30", "0000:20:01.0"), False),
        (at("0000:21:00.0", "pci0000:20", "0000:20:01.0", "0000:22:00.0"), False),
        (at("0000:21:00.0"), True),
    ],
)
def test_a_part_hangs_where_it_hung_when_root_and_all_bridges_are_the_same(
    after: TreePlace, *, kept: bool
) -> None:
    renaming = Renaming(NAMES, steady=False, lasting=False)
    assert renaming.kept(OLD, after) is kept
    assert renaming.kept(at(), after)


STEADY, LASTING, NEITHER = (True, True), (False, True), (False, False)
ROOT, OTHER = "pci0000:10", "pci0000:30"


@each(
    ("why", "kind", "names", "before", "after", "same"),
    [
        ("one address, no place known", STEADY, {}, at("a"), at("a"), True),
        ("another address", STEADY, {}, at("a"), at("b"), False),
        ("addresses mean nothing", LASTING, {}, at("a"), at("a"), False),
        ("no address known", STEADY, {}, at(), at(), False),
        ("no place known before", STEADY, {}, at("a"), at("a", ROOT), True),
        ("no place known after", STEADY, {}, at("a", ROOT), at("a"), True),
        ("a root alone, at one address", STEADY, {}, at("a", ROOT), at("a", ROOT), True),
        ("a root alone, addresses mean nothing", LASTING, {}, at("a", ROOT), at("a", ROOT), False),
        ("another root alone, the same number", NEITHER, NAMES, at("0000:10:05.0", ROOT),
         at("0000:20:05.0", "pci0000:20"), True),
        ("another root alone, another number", NEITHER, NAMES, at("0000:10:05.0", ROOT),
         at("0000:20:06.0", "pci0000:20"), False),
        ("the bridge is known", NEITHER, NAMES, OLD, at("0000:21:00.0", "pci0000:20", "0000:20:01.0"), True),
        ("another bridge than is known", NEITHER, NAMES, OLD,
         at("0000:21:00.0", "pci0000:20", "0000:23:01.0"), False),
        ("the bridge of another", NEITHER, NAMES, at("0000:11:00.0", ROOT, "0000:14:01.0"),
         at("0000:21:00.0", "pci0000:20", "0000:20:01.0"), False),
        ("a bridge of the same number", NEITHER, NAMES, at("0000:11:00.0", ROOT, "0000:10:02.0"),
         at("0000:21:00.0", "pci0000:20", "0000:20:02.0"), True),
        ("a bridge of another number", NEITHER, NAMES, at("0000:11:00.0", ROOT, "0000:10:02.0"),
         at("0000:21:00.0", "pci0000:20", "0000:20:03.0"), False),
        ("one more bridge", NEITHER, NAMES, OLD,
         at("0000:21:00.0", "pci0000:20", "0000:20:01.0", "0000:22:00.0"), False),
        ("names last", LASTING, {}, OLD, OLD, True),
        ("names do not last", NEITHER, {}, OLD, OLD, False),
        ("names last, another root", LASTING, {}, OLD, at("0000:11:00.0", OTHER, "0000:10:01.0"), False),
        ("names last, the root is another's", LASTING, {OTHER: ROOT}, OLD, OLD, False),
        ("names last, the root is elsewhere", LASTING, {ROOT: OTHER}, OLD, OLD, False),
    ],
)  # fmt: skip
def test_which_two_parts_sat_in_one_slot(
    why: str, kind: tuple[bool, bool], names: Mapping[str, str], before: TreePlace, after: TreePlace, *,
    same: bool,
) -> None:  # fmt: skip
    steady, lasting = kind
    assert Renaming(names, steady, lasting).same_slot(before, after) is same, why


@pytest.mark.parametrize(
    ("after", "settled"),
    [
        (at("0000:21:00.0", "pci0000:20", "0000:20:01.0"), True),
        (at("0000:21:00.0", "pci0000:20", "0000:20:01.0", numa=None), True),
        (at("0000:21:00.0", "pci0000:20", "0000:20:01.0", numa=1), False),
        (at("0000:21:00.0", "pci0000:20", "0000:20:02.0"), False),
    ],
)
def test_a_part_has_hardly_moved_when_its_numa_node_and_its_ports_are_the_same(
    after: TreePlace, *, settled: bool
) -> None:
    assert Voter(OLD, after, (0, "GPU-a")).settled is settled


@each(
    ("why", "moves", "names"),
    [
        ("more votes", [("gpu", "a", "y", 0), ("gpu", "a", "x", 0), ("gpu", "a", "x", 0)], {"a": "x"}),
        ("two roots are not one", [("gpu", "a", "x", 0), ("gpu", "a", "x", 0), ("gpu", "b", "x", 0)],
         {"a": "x"}),
        ("one has hardly moved", [("gpu", "a", "y", 1), ("gpu", "a", "x", 0)], {"a": "x"}),
        ("one of several has hardly moved",
         [("gpu", "a", "y", 1), ("gpu", "a", "y", 1), ("gpu", "a", "x", 1), ("gpu", "a", "x", 0)],
         {"a": "x"}),
        ("no other choice", [("gpu", "a", "x", 0), ("gpu", "a", "y", 0), ("gpu", "b", "x", 0)],
         {"a": "y", "b": "x"}),
        ("a GPU's vote", [("nic", "a", "y", 0), ("gpu", "a", "x", 0)], {"a": "x"}),
        ("the vote of the first GPU",
         [("gpu", "a", "x", 0), ("gpu", "a", "y", 0), ("gpu", "a", "y", 0), ("nic", "a", "x", 0)],
         {"a": "x"}),
    ],
)  # fmt: skip
def test_which_root_is_which_by_vote(
    why: str, moves: list[tuple[str, str, str, int]], names: Mapping[str, str]
) -> None:
    before, after = Box(), Box()
    for number, (kind, old, new, numa) in enumerate(moves):
        for box, place in (
            (before, Place(f"0000:0{number}:00.0", old, (), 0)),
            (after, Place(f"0000:1{number}:00.0", new, (), numa)),
        ):
            box.add_gpu(number, "NVIDIA H200", place) if kind == "gpu" else box.add_nic(number, place)
    assert match(graph_of(before.build()), graph_of(after.build()))[2].names == names, why


@pytest.mark.parametrize(("stayed", "name"), [(True, "a"), (False, "x")])
def test_of_two_votes_the_name_that_stayed_counts_while_names_last(name: str, *, stayed: bool) -> None:
    before, after = Box(), Box()
    for number, new, address in (
        (0, "x", "0000:10:00.0"),
        (1, "a", "0000:01:00.0" if stayed else "0000:11:00.0"),
    ):
        before.add_gpu(number, "NVIDIA H200", Place(f"0000:0{number}:00.0", "a", (), 0))
        after.add_gpu(number, "NVIDIA H200", Place(address, new, (), 0))
    assert match(graph_of(before.build()), graph_of(after.build()))[2].names == {"a": name}


def test_below_a_root_only_those_vote_that_are_below_it_still() -> None:
    before, after = Box(), Box()
    moves = (("1", "x", "3"), ("1", "x", "3"), ("2", "y", "4"))
    for number, (bridge, root, new) in enumerate(moves):
        before.add_gpu(number, "NVIDIA H200", Place(f"0000:0{number}:00.0", "a", (bridge,), 0))
        after.add_gpu(number, "NVIDIA H200", Place(f"0000:1{number}:00.0", root, (new,), 0))
    renaming = match(graph_of(before.build()), graph_of(after.build()))[2]
    assert renaming.names == {"a": "x", "1": "3"}


def test_why_something_is_off_is_said_of_links_of_a_gpu_alone() -> None:
    box = switched()
    box.split.add(3)
    graph = graph_of(box.build())
    said = [
        unknown_text(graph, Unknown(part, what))
        for part, what in (
            (uuid(3), Aspect.NVLINK), (uuid(3), Aspect.PRODUCT), (uuid(2), Aspect.NVLINK),
            (guid(3), Aspect.NVLINK), ("", Aspect.NODES), ("driver", Aspect.VERSION),
        )
    ]  # fmt: skip
    assert said == [
        "GPU 3 (...0003): NVLink links, off in MIG mode", "GPU 3 (...0003): product",
        "GPU 2 (...0002): NVLink links", "mlx5_3: NVLink links", "node: number of NUMA nodes",
        "driver: version",
    ]  # fmt: skip


def apart(box: Box) -> None:
    """GPU 0 lost all its wires."""
    for number in range(4):
        box.cut(
            number, *(link for link, peer in box.links[number].items() if uuid(0) in {peer, uuid(number)})
        )


def unread(box: Box) -> None:
    box.unread.add(3)


def elsewhere(box: Box) -> None:
    """A link of GPU 0 goes to GPU 2 instead."""
    box.links[0][0] = uuid(2)
    box.links[2][12] = uuid(0)


def unknown(box: Box) -> None:
    box.links[0][12] = UNKNOWN_PEER


def kinds(*found: ChangeKind) -> set[ChangeKind]:
    return set(found)


LOST, NEW, PEER, ISLAND = (
    ChangeKind.NVLINK_LOST, ChangeKind.NVLINK_NEW, ChangeKind.NVLINK_PEER, ChangeKind.ISLAND,
)  # fmt: skip


def test_an_island_breaks_up_only_where_all_of_it_is_known_and_no_link_moved() -> None:
    assert {one.kind for one in changes(meshed, apart)} == kinds(ISLAND)
    assert {one.kind for one in changes(meshed, apart, unread)} == kinds(LOST)
    assert {one.kind for one in changes(bridged, apart)} == kinds(ISLAND)
    assert {one.kind for one in changes(bridged, apart, elsewhere)} == kinds(LOST, NEW, PEER)
    for back, lost in ((False, LOST), (True, NEW)):
        found = {one.kind for one in changes(bridged, apart, unknown, back=back)}
        assert lost in found
        assert ISLAND not in found
