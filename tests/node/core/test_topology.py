"""Which links a product has when nothing is wrong."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.busbw.nodes import (
    A100,
    A100_CARD,
    H100,
    H100_NVL,
    H200,
    L40S,
    V100,
    bridged,
    cube,
    meshed,
    node,
    parted,
    sockets,
    switched,
    uuid,
)
from tests.rows import each
from tests.support import Node
from wirewatch.core.pci import Path
from wirewatch.core.topology import (
    NVLINK_PRODUCTS,
    SWITCH,
    UNKNOWN_PEER,
    Group,
    Island,
    Topology,
    WireKind,
    due_links,
    groups,
    islands,
    nvlink_product,
)
from wirewatch.core.types import Absent, Ok


@each(
    ("name", "links"),
    [
        ("NVIDIA H100 80GB HBM3", 18),
        ("NVIDIA H200", 18),
        ("NVIDIA H20", 18),
        ("NVIDIA H20-3e", 18),
        ("NVIDIA H800", 8),
        ("NVIDIA A100-SXM4-40GB", 12),
        ("NVIDIA A100-SXM4-80GB", 12),
        ("NVIDIA A800-SXM4-80GB", 8),
        ("NVIDIA B200", 18),
        ("NVIDIA GB200", 18),
        ("NVIDIA B300 SXM6 AC", 18),
        ("NVIDIA GB300", 18),
        ("Tesla V100-SXM2-16GB", 6),
    ],
)
def test_a_product_on_a_baseboard_has_one_right_number_of_links(name: str, links: int) -> None:
    product = nvlink_product(name)
    assert product is not None
    assert product.counts == (links,)


@each(
    "name",
    [
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA A800 80GB PCIe",
        "NVIDIA A40",
        "NVIDIA A30",
        "NVIDIA RTX A6000",
    ],
)
def test_a_card_that_takes_bridges_is_healthy_with_and_without_them(name: str) -> None:
    product = nvlink_product(name)
    assert product is not None
    assert {0, 12} <= set(product.counts)


def test_an_h100_card_with_three_bridges_and_six_idle_links_is_healthy() -> None:
    product = nvlink_product("NVIDIA H100 NVL")
    assert product is not None
    assert {12, 18} <= set(product.counts)


@each(
    "name",
    ["NVIDIA L40S", "NVIDIA L4", "NVIDIA A10", "NVIDIA A16", "Tesla T4", "NVIDIA GeForce RTX 4090", ""],
)
def test_a_product_without_nvlink_has_no_entry(name: str) -> None:
    assert nvlink_product(name) is None


def test_a_product_that_is_not_listed_yet_has_no_entry() -> None:
    assert nvlink_product("NVIDIA R100") is None


@pytest.mark.parametrize(
    ("name", "both_ways"),
    [("NVIDIA A100-SXM4-80GB", 600e9), ("NVIDIA H100 80GB HBM3", 900e9), ("NVIDIA B200", 1800e9)],
)
def test_links_times_rate_is_what_the_product_is_sold_with(name: str, both_ways: float) -> None:
    product = nvlink_product(name)
    assert product is not None
    assert 2 * product.link_rate * product.counts[0] == pytest.approx(both_ways, rel=0.07)


def test_every_entry_says_where_it_comes_from() -> None:
    assert all(product.source and product.link_rate > 0 for product in NVLINK_PRODUCTS)


def test_a_single_grace_hopper_without_switches_is_not_expected_to_have_18_links() -> None:
    """GH200 is not H200: standalone it has C2C to its processor and no link to any GPU.

    The same mistake in another tool: https://github.com/leptonai/gpud/pull/1206.
    """
    product = nvlink_product("NVIDIA GH200 480GB")
    assert product is None or 0 in product.counts


@pytest.mark.parametrize("name", ["NVIDIA RTX A4000", "NVIDIA RTX A400", "NVIDIA RTX A3000 Laptop GPU"])
def test_a_workstation_card_without_nvlink_is_not_taken_for_an_a40_or_a30(name: str) -> None:
    assert nvlink_product(name) is None


def ranks_of(found: Sequence[Island | Group]) -> list[tuple[WireKind, tuple[int, ...]]]:
    return [(one.kind, tuple(gpu.index for gpu in one.gpus)) for one in found]


def tried(topology: Topology) -> tuple[Group, ...]:
    return groups(topology, islands(topology))


@each(
    ("topology", "expected"),
    [
        (switched(H200, 8), [(WireKind.SWITCH, (0, 1, 2, 3, 4, 5, 6, 7))]),
        (switched(H200, 1), [(WireKind.ALONE, (0,))]),
        (bridged(H100_NVL, 2), [(WireKind.PAIR, (0, 1)), (WireKind.PAIR, (2, 3))]),
        (meshed(A100, 4, 4), [(WireKind.MESH, (0, 1, 2, 3))]),
        (cube(), [(WireKind.PARTIAL, (0, 1, 2, 3, 4, 5, 6, 7))]),
        (node([L40S] * 3, {}), [(WireKind.ALONE, (0,)), (WireKind.ALONE, (1,)), (WireKind.ALONE, (2,))]),
        (node([A100_CARD] * 3, {0: {2: 4}, 2: {0: 4}}), [(WireKind.PAIR, (0, 2)), (WireKind.ALONE, (1,))]),
        (node([], {}), []),
    ],
)
def test_islands(topology: Topology, expected: list[tuple[WireKind, tuple[int, ...]]]) -> None:
    assert ranks_of(islands(topology)) == expected


@pytest.mark.parametrize("recording", ["h200x4-idle", "demo-dgx-h200"])
def test_recorded_gpus_are_one_island_on_the_switch(recording: str) -> None:
    watched = Node(recording)
    watched.poll("topology")
    outcome = watched.state.components["topology"].outcome
    assert isinstance(outcome, Ok)
    (island,) = islands(outcome.value)
    (group,) = tried(outcome.value)
    assert island.kind is group.kind is WireKind.SWITCH
    assert group.ranks == len(outcome.value.gpus)
    assert group.links == (18,) * group.ranks
    assert group.whole


@given(
    st.permutations(range(6)), st.lists(st.booleans(), min_size=15, max_size=15), st.sets(st.integers(0, 5))
)
def test_islands_do_not_depend_on_how_gpus_are_numbered(
    order: list[int], present: list[bool], switch: set[int]
) -> None:
    """Renumbering a node renumbers its islands and changes nothing else."""
    edges = [pair for pair, there in zip(combinations(range(6), 2), present, strict=True) if there]

    def build(name: Sequence[int]) -> Topology:
        links: dict[int, dict[int | str, int]] = {
            name[i]: {SWITCH: 12} if i in switch else {} for i in range(6)
        }
        for a, b in edges:
            links[name[a]][name[b]] = links[name[b]][name[a]] = 4
        return node([A100_CARD] * 6, links)

    plain = {(one.kind, frozenset(gpu.index for gpu in one.gpus)) for one in islands(build(range(6)))}
    other = islands(build(order))
    back = {new: old for old, new in enumerate(order)}
    assert {(one.kind, frozenset(back[gpu.index] for gpu in one.gpus)) for one in other} == plain
    listed = [gpu.index for one in other for gpu in one.gpus]
    assert sorted(listed) == list(range(6))
    assert [one.gpus[0].index for one in other] == sorted(one.gpus[0].index for one in other)


@given(st.permutations(range(8)))
def test_the_order_in_which_parts_were_read_does_not_matter(order: list[int]) -> None:
    plain = bridged(H100_NVL, 4)
    mixed = replace(
        plain,
        gpus=tuple(plain.gpus[i] for i in order),
        nvlink=tuple(plain.nvlink[i] for i in reversed(order)),
    )
    assert islands(mixed) == islands(plain)
    assert tried(mixed) == tried(plain)


def test_one_end_that_reports_a_link_is_enough() -> None:
    assert ranks_of(islands(node([H100_NVL] * 2, {0: {1: 12}}))) == [(WireKind.PAIR, (0, 1))]


def test_a_gpu_that_lost_all_its_links_stays_where_its_likes_are() -> None:
    """Else it would look like a card without NVLink, of which little is expected."""
    topology = switched(H200, 8, lost=18, of=5)
    (island,) = islands(topology)
    assert island.kind is WireKind.SWITCH
    assert island.links == (18, 18, 18, 18, 18, 0, 18, 18)


def test_a_card_without_nvlink_beside_a_switch_is_alone() -> None:
    topology = node([H200, H200, L40S], {0: {SWITCH: 18}, 1: {SWITCH: 18}})
    assert ranks_of(islands(topology)) == [(WireKind.SWITCH, (0, 1)), (WireKind.ALONE, (2,))]


def test_a_mesh_whose_gpus_lost_the_links_between_them_is_a_mesh_still() -> None:
    links = {i: {j: 4 for j in range(4) if j != i and {i, j} != {1, 2}} for i in range(4)}
    (island,) = islands(node([A100] * 4, links))
    assert island.kind is WireKind.MESH
    assert island.links == (12, 8, 8, 12)


def test_a_cube_is_no_mesh_whatever_it_lost() -> None:
    whole = cube()
    one_less = [replace(w, links=w.links[1:]) if w.uuid == uuid(0) else w for w in whole.nvlink]
    (island,) = islands(replace(whole, nvlink=tuple(one_less)))
    assert island.kind is WireKind.PARTIAL


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (node([H200] * 4, {i: {SWITCH: 18} for i in range(3)}, unread=[3]), "could not be read"),
        (node([H200] * 4, {i: {UNKNOWN_PEER: 18} for i in range(4)}), "where its links go"),
        (node([H200] * 2, {}), "none of the links is up"),
    ],
)
def test_wires_that_are_not_known_make_no_islands_to_probe(topology: Topology, why: str) -> None:
    (group,) = tried(topology)
    assert group.kind is WireKind.UNKNOWN
    assert group.whole
    assert group.ranks == len(topology.gpus)
    assert why in group.why


def test_one_gpu_and_none_have_nothing_to_probe() -> None:
    assert tried(switched(H200, 1)) == tried(node([], {})) == ()


@pytest.mark.parametrize("topology", [switched(H100, 8), meshed(A100, 4, 4), bridged(H100_NVL, 1), cube()])
def test_one_island_is_the_whole_node_and_no_other_group(topology: Topology) -> None:
    (group,) = tried(topology)
    assert group.whole
    assert group.crossing is None
    assert group.ranks == len(topology.gpus)


def test_of_several_islands_each_of_two_and_more_is_a_group_beside_the_whole() -> None:
    topology = node([A100_CARD] * 5, {0: {1: 12}, 1: {0: 12}, 3: {4: 12}, 4: {3: 12}})
    assert ranks_of(tried(topology)) == [
        (WireKind.PCIE, (0, 1, 2, 3, 4)),
        (WireKind.PAIR, (0, 1)),
        (WireKind.PAIR, (3, 4)),
    ]


def test_two_switches_of_four_are_three_groups() -> None:
    topology = switched(H200, 8)
    assert ranks_of(groups(topology, parted(topology, 4))) == [
        (WireKind.PCIE, tuple(range(8))), (WireKind.SWITCH, (0, 1, 2, 3)), (WireKind.SWITCH, (4, 5, 6, 7)),
    ]  # fmt: skip


@each(
    ("count", "each", "crossing"),
    [(2, 2, Path.PIX), (4, 2, Path.NODE), (8, 2, Path.SYS), (4, 4, Path.PIX), (3, 1, Path.SYS)],
)
def test_the_wire_that_a_ring_must_cross_is_the_worst_of_the_best(
    count: int, each: int, crossing: Path
) -> None:
    topology = node([L40S] * count, {}, sockets(count, each))
    (group,) = tried(topology)
    assert (group.kind, group.crossing) == (WireKind.PCIE, crossing)


def test_bridges_join_what_pci_would_part() -> None:
    """Bridges between sockets: GPUs 0 and 2 share one, 1 and 3 the other; a ring needs no wire between."""
    near = sockets(8)
    topology = bridged(A100_CARD, 2, places=(near[0], near[4], near[2], near[6]))
    assert tried(topology)[0].crossing is Path.NODE


def test_a_crossing_is_not_known_where_the_hypervisor_hides_the_places() -> None:
    assert isinstance(tried(bridged(A100_CARD, 2))[0].crossing, Absent)


@each(
    ("name", "live", "links"),
    [
        (H200, 18, 18), (H200, 17, 18), (H200, 0, 18), (H100_NVL, 11, 12), (H100_NVL, 12, 12),
        (H100_NVL, 0, 0), (A100_CARD, 7, 8), (V100, 5, 6), (L40S, 0, 0), ("NVIDIA R100", 5, 5),
        (A100, 13, 13),
    ],
)  # fmt: skip
def test_links_that_are_due(name: str, live: int, links: int) -> None:
    assert due_links(name, live) == links
