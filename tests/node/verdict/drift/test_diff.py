"""Each kind of change alone and ten at once: the sentences, word by word."""

from dataclasses import replace

import pytest

from tests.node.verdict.drift.drawn import (
    NOWHERE,
    Box,
    Edit,
    below,
    bridged,
    changes,
    guid,
    meshed,
    switched,
    uuid,
)
from tests.node.verdict.drift.edits import (
    MIRROR,
    Make,
    bridge_lost,
    clique,
    clustering,
    driver,
    gpu_lost,
    gpu_moved,
    gpu_new,
    gpu_product,
    gpu_replaced,
    link_lost,
    link_new,
    nic_firmware,
    nic_lost,
    nic_model,
    nic_moved,
    nic_new,
    nic_ports,
    nic_replaced,
    no_nics,
    other_socket,
    peers_swapped,
    retimer,
    wire_lost,
)
from tests.rows import each
from wirewatch.core.pci import Place
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER
from wirewatch.core.types import Health
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import ChangeKind, severity
from wirewatch.verdict.drift.diff import diff


def racked() -> Box:
    box = switched()
    for n in range(8):
        box.gpu(n, clique="b1f3/2")
    return box


FAILED, DEGRADED, OK = Health.FAILED, Health.DEGRADED, Health.OK
ALONE = {
    "gpu_lost": (switched, gpu_lost, FAILED, "GPU 3 (...0003) is gone: NVIDIA H200 at 0000:46:00.0"),
    "gpu_new": (switched, gpu_new, OK, "GPU 8 (...0008) is new: NVIDIA H200 at 0000:18:00.0"),
    "gpu_replaced": (switched, gpu_replaced, OK, "GPU 3 (...9999) replaced GPU 3 (...0003)"),
    "gpu_product": (switched, gpu_product, OK, "GPU 3 (...0003): product NVIDIA H200 -> NVIDIA H200 NVL"),
    "nvlink_lost": (switched, link_lost, FAILED, "GPU 3 (...0003): NVLink 18 -> 17 links up, link 7 down"),
    "nvlink_new": (switched, link_new, OK, "GPU 2 (...0002): NVLink 18 -> 20 links up, links 18, 19 came up"),
    "nvlink_lost between two": (
        bridged, wire_lost, FAILED,
        "GPU 0 (...0000): NVLink 12 -> 11 links up, link 3 down (with link 3 of GPU 1 (...0001))",
    ),
    "nvlink_peer": (
        bridged, peers_swapped, DEGRADED,
        "GPU 0 (...0000): NVLink links 0, 1 go to the switch instead of GPU 1 (...0001)",
    ),
    "island": (
        bridged, bridge_lost, FAILED,
        "NVLink island broke up into GPU 0 (...0000) | GPU 1 (...0001): 12 links down",
    ),
    "clique": (racked, clique, DEGRADED, "GPUs 0-3: fabric clique b1f3/2 -> b1f3/7"),
    "clique that is new": (switched, clique, OK, "GPUs 0-3: fabric clique none -> b1f3/7"),
    "nic_lost": (
        switched, nic_lost, FAILED, "mlx5_4 is gone: MT4129 at 0000:53:00.0, GUID 0000:00c0:ffee:0004",
    ),
    "nic_new": (
        switched, nic_new, OK, "mlx5_10 is new: MT4129 at 0000:29:00.0, GUID 0000:00c0:ffee:0010",
    ),
    "nic_replaced": (
        switched, nic_replaced, OK, "mlx5_5: GUID 0000:00c0:ffee:0005 replaced by 0000:00c0:ffee:0099",
    ),
    "nic_model": (switched, nic_model, OK, "mlx5_5: model MT4129 -> MT4131"),
    "nic_firmware": (switched, nic_firmware, OK, "mlx5_6: firmware 28.41.1000 -> 28.44.1036"),
    "nic_ports": (switched, nic_ports, FAILED, "mlx5_6: port 1 InfiniBand -> Ethernet"),
    "pcie_path": (
        switched, nic_moved, DEGRADED,
        ("mlx5_4 moved from PIX to SYS for GPU 4; from NODE to SYS for GPUs 5-7; "
         "from SYS to NODE for GPUs 1-3; from SYS to PIX for GPU 0"),
    ),
    "pcie_path of a GPU": (
        switched, gpu_moved, DEGRADED,
        ("GPU 1 (...0001) moved from PIX to SYS for mlx5_1; from NODE to SYS for mlx5_0, mlx5_2, mlx5_3; "
         "from SYS to NODE for mlx5_4, mlx5_5, mlx5_6; from SYS to PIX for mlx5_7"),
    ),
    "pcie_place": (
        no_nics(switched), other_socket, DEGRADED, "GPU 2 (...0002) moved from NUMA node 0 to NUMA node 1",
    ),
    "numa": (switched, clustering, DEGRADED, "node: 2 -> 4 NUMA nodes"),
    "version": (switched, driver, OK, "driver 580.1 -> 590.2"),
}  # fmt: skip


@each("name", ALONE)
def test_each_change_alone_is_reported_once_in_these_words(name: str) -> None:
    make, edit, health, text = ALONE[name]
    (change,) = changes(make, edit)
    assert (change.kind.value, change.text) == (name.split(maxsplit=1)[0], text)
    assert severity(change).health is health


def test_every_kind_is_tried_alone() -> None:
    assert {name.split(maxsplit=1)[0] for name in ALONE} == {kind.value for kind in ChangeKind}


@each("name", ALONE)
def test_the_way_back_is_the_mirror(name: str) -> None:
    make, edit, *_ = ALONE[name]
    (there,) = changes(make, edit)
    (back,) = changes(make, edit, back=True)
    assert back.kind is MIRROR.get(there.kind, there.kind)
    assert (back.before, back.after) == (there.after, there.before)
    if there.kind not in {ChangeKind.GPU_REPLACED, ChangeKind.NIC_REPLACED}:
        assert back.part == there.part


TEN = (
    gpu_replaced, link_lost, link_new, nic_lost, nic_new, nic_replaced, nic_firmware, driver,
    lambda box: box.nic(7, place=below(0, 7)),
    lambda box: box.drop_gpu(5),
)  # fmt: skip


def test_ten_changes_at_once_are_ten_sentences() -> None:
    assert [change.text for change in changes(switched, *TEN)] == [
        "GPU 5 (...0005) is gone: NVIDIA H200 at 0000:66:00.0",
        "GPU 3 (...9999) replaced GPU 3 (...0003)",
        "GPU 3 (...9999): NVLink 18 -> 17 links up, link 7 down",
        "GPU 2 (...0002): NVLink 18 -> 20 links up, links 18, 19 came up",
        "mlx5_4 is gone: MT4129 at 0000:53:00.0, GUID 0000:00c0:ffee:0004",
        "mlx5_10 is new: MT4129 at 0000:29:00.0, GUID 0000:00c0:ffee:0010",
        "mlx5_5: GUID 0000:00c0:ffee:0005 replaced by 0000:00c0:ffee:0099",
        "mlx5_6: firmware 28.41.1000 -> 28.44.1036",
        (
            "mlx5_7 moved from PIX to SYS for GPU 7; from NODE to SYS for GPUs 4, 6; "
            "from SYS to NODE for GPUs 1-3; from SYS to PIX for GPU 0"
        ),
        "driver 580.1 -> 590.2",
    ]


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    "edit",
    [
        lambda box: box.nic(6, firmware=""),
        lambda box: box.nic(6, model=""),
        lambda box: box.gpu(3, name=""),
        lambda box: box.nic(6, ports=(("1", ""),)),
        lambda box: box.nic(6, ports=()),
        lambda box: box.gpu(3, clique=None),
        lambda box: setattr(box, "numa_nodes", None),
        lambda box: box.shift(2, lambda place: replace(place, numa=None)),
    ],
    ids=["firmware", "model", "product", "link layer", "ports", "clique", "NUMA nodes", "NUMA node"],
)
def test_what_one_of_both_does_not_know_is_no_change(edit: Edit, back: bool) -> None:  # noqa: FBT001
    assert changes(switched, edit, back=back) == ()


FAILED, DEGRADED, OK = Health.FAILED, Health.DEGRADED, Health.OK


def kinds(make: Make, *edits: Edit) -> list[tuple[str, str]]:
    return [(change.kind.value, change.part) for change in changes(make, *edits)]


def test_a_lost_gpu_explains_its_wires_and_its_island() -> None:
    assert kinds(bridged, lambda box: box.drop_gpu(1)) == [("gpu_lost", uuid(1))]
    assert kinds(meshed, lambda box: box.drop_gpu(1)) == [("gpu_lost", uuid(1))]


def test_a_lost_gpu_does_not_hide_what_it_does_not_explain() -> None:
    found = changes(meshed, lambda box: box.drop_gpu(1), lambda box: box.cut(0, 5), lambda box: box.cut(2, 5))
    assert [change.text for change in found] == [
        "GPU 1 (...0001) is gone: NVIDIA A100-SXM4-80GB at 0000:26:00.0",
        "GPU 0 (...0000): NVLink 8 -> 7 links up, link 5 down (with link 5 of GPU 2 (...0002))",
    ]


def test_changes_are_in_the_order_of_their_kinds() -> None:
    assert [kind for kind, _ in kinds(racked, clique, link_lost)] == ["nvlink_lost", "clique"]


def test_links_of_a_gpu_that_got_another_product_name_are_compared() -> None:
    assert kinds(switched, gpu_product, link_lost) == [("gpu_product", uuid(3)), ("nvlink_lost", uuid(3))]


def test_of_a_pair_that_broke_up_the_end_that_lost_more_is_counted_and_no_wire_of_another_pair() -> None:
    def one_end() -> Box:
        box = bridged()
        box.cut(1, 11)
        return box

    assert [one.text for one in changes(one_end, bridge_lost, lambda box: box.cut(2, 3))] == [
        "GPU 2 (...0002): NVLink 12 -> 11 links up, link 3 down",
        "NVLink island broke up into GPU 0 (...0000) | GPU 1 (...0001): 12 links down",
    ]


def test_a_wire_inside_a_piece_of_a_broken_island_is_told_beside_it() -> None:
    def leave(box: Box) -> None:
        for link, peer in list(box.links[0].items()):
            box.cut(int(peer[-1]), link)
        box.cut(0, *list(box.links[0]))

    inside, broken = changes(meshed, leave, lambda box: box.cut(2, 1), lambda box: box.cut(3, 1))
    assert (inside.kind, inside.part, inside.before) == (
        ChangeKind.NVLINK_LOST, uuid(2), f"{uuid(2)}: 1; {uuid(3)}: 1",
    )  # fmt: skip
    assert broken.text.endswith(": 12 links down")


def test_what_is_known_of_a_lost_part_is_said() -> None:
    def sparse() -> Box:
        box = switched()
        box.gpu(3, name="")
        box.gpu(5, place=NOWHERE)
        box.nic(4, model="", place=NOWHERE)
        return box

    def lose(box: Box) -> None:
        box.drop_gpu(3)
        box.drop_gpu(5)
        del box.nics[4]

    assert [one.text for one in changes(sparse, lose)] == [
        "GPU 3 (...0003) is gone: GPU at 0000:46:00.0",
        "GPU 5 (...0005) is gone: NVIDIA H200",
        "mlx5_4 is gone: NIC, GUID 0000:00c0:ffee:0004",
    ]


def test_pieces_of_an_island_are_in_the_order_of_their_first_gpu() -> None:
    def halves(box: Box) -> None:
        for one, other in ((0, 1), (0, 2), (3, 1), (3, 2)):
            for number, peer in ((one, uuid(other)), (other, uuid(one))):
                box.cut(number, *[link for link, far in box.links[number].items() if far == peer])

    (change,) = changes(meshed, halves)
    assert change.text == (
        "NVLink island broke up into GPU 0 (...0000), GPU 3 (...0003) | GPU 1 (...0001), GPU 2 (...0002): "
        "16 links down"
    )


def test_a_mesh_without_one_bundle_of_wires_is_still_one_island() -> None:
    (change,) = changes(meshed, lambda box: box.cut(0, 0, 1, 2, 3), lambda box: box.cut(1, 0, 1, 2, 3))
    assert change.text == (
        "GPU 0 (...0000): NVLink 12 -> 8 links up, links 0-3 down (with links 0-3 of GPU 1 (...0001))"
    )


def test_a_gpu_that_left_the_mesh_is_one_change() -> None:
    def leave(box: Box) -> None:
        for link, peer in list(box.links[0].items()):
            box.cut(int(peer[-1]), link)
        box.cut(0, *list(box.links[0]))

    (change,) = changes(meshed, leave)
    assert change.text == (
        "NVLink island broke up into GPU 0 (...0000) | GPU 1 (...0001), GPU 2 (...0002), GPU 3 (...0003): "
        "12 links down"
    )
    (back,) = changes(meshed, leave, back=True)
    assert back.text == (
        "NVLink island grew together from GPU 0 (...0000) | GPU 1 (...0001), GPU 2 (...0002), "
        "GPU 3 (...0003): 12 links came up"
    )
    assert (severity(change).health, severity(back).health) == (FAILED, OK)


def test_a_gpu_without_a_link_to_the_switch_gives_its_links() -> None:
    (change,) = changes(switched, lambda box: box.cut(3, *range(18)))
    assert change.text == "GPU 3 (...0003): NVLink 18 -> 0 links up, links 0-17 down"


def test_bridges_put_on_other_pairs_are_reported_by_their_wires() -> None:
    def rewired(box: Box) -> None:
        box.links = {n: {} for n in range(4)}
        box.join(0, 2, range(12))
        box.join(1, 3, range(12))

    assert [change.text for change in changes(bridged, rewired)] == [
        "GPU 0 (...0000): NVLink links 0-11 go to GPU 2 (...0002) instead of GPU 1 (...0001)",
        "GPU 1 (...0001): NVLink links 0-11 go to GPU 3 (...0003) instead of GPU 0 (...0000)",
        "GPU 2 (...0002): NVLink links 0-11 go to GPU 0 (...0000) instead of GPU 3 (...0003)",
        "GPU 3 (...0003): NVLink links 0-11 go to GPU 1 (...0001) instead of GPU 2 (...0002)",
    ]


OLD, NEW, LEFT = uuid(1), uuid(5), uuid(2)


@each(
    ("was", "now", "told"),
    [
        (OLD, NEW, False), (OLD, LEFT, True), (LEFT, NEW, True), (LEFT, SWITCH, True),
        (OLD, SWITCH, True), (SWITCH, NEW, True), (UNKNOWN_PEER, LEFT, False), (LEFT, UNKNOWN_PEER, False),
    ],
)  # fmt: skip
def test_a_link_from_a_lost_gpu_to_a_new_one_has_not_moved_and_any_other_has(
    was: str, now: str, *, told: bool
) -> None:
    def made(box: Box, peer: str) -> Box:
        box.links = {number: {} for number in box.gpus}
        box.links[0][0] = peer
        return box

    before, after = made(meshed(), was), meshed()
    after.drop_gpu(1)
    after.add_gpu(5, "NVIDIA X1", below(7, 3))
    found = diff(graph_of(before.build()), graph_of(made(after, now).build()))
    assert [one.part for one in found if one.kind is ChangeKind.NVLINK_PEER] == [uuid(0)] * told


def test_a_wire_whose_far_end_was_not_read_is_told_from_this_one() -> None:
    def lost(box: Box) -> None:
        wire_lost(box)
        box.unread.add(1)

    (change,) = changes(bridged, lost)
    assert change.text == "GPU 0 (...0000): NVLink 12 -> 11 links up, link 3 down"


def test_a_replaced_gpu_keeps_its_wires_and_one_of_another_product_is_not_compared() -> None:
    def card(box: Box) -> None:
        peer = box.links[1]
        box.gpu(0, uuid=uuid(77))
        box.links[1] = dict.fromkeys(peer, uuid(77))

    def other_card(box: Box) -> None:
        card(box)
        box.gpu(0, name="NVIDIA H100 NVL")
        box.cut(0, 0)

    assert kinds(bridged, card) == [("gpu_replaced", uuid(77))]
    (change,) = changes(bridged, other_card)
    assert change.text == (
        "GPU 0 (...0077) replaced GPU 0 (...0000), NVIDIA H100 NVL instead of NVIDIA A100 80GB PCIe"
    )


def test_a_replaced_part_goes_on_probation() -> None:
    for edit in (gpu_replaced, nic_replaced):
        (change,) = changes(switched, edit)
        assert severity(change).probation


def test_a_replaced_nic_that_speaks_ethernet_is_two_faults() -> None:
    found = changes(switched, nic_replaced, lambda box: box.nic(5, ports=(("1", "Ethernet"), ("2", ""))))
    assert [change.text for change in found][1:] == ["mlx5_5: port 1 InfiniBand -> Ethernet; port 2 is new"]


def test_a_port_that_went_and_one_that_came() -> None:
    def split(box: Box) -> None:
        box.nic(6, ports=(("1", "InfiniBand"), ("2", "InfiniBand")))

    (came,) = changes(switched, split)
    (went,) = changes(switched, split, back=True)
    assert (came.text, severity(came).health) == ("mlx5_6: port 2 is new", OK)
    assert (went.text, severity(went).health) == ("mlx5_6: port 2 is gone", FAILED)


def test_a_nic_elsewhere_with_another_guid_is_lost_and_new() -> None:
    shallow = replace(below(5, 0), bridges=("0000:60:01.0",))
    for place in (below(1, 7), shallow):
        found = kinds(switched, lambda box, place=place: box.nic(5, guid=guid(99), place=place))  # type: ignore[misc]
        assert found == [("nic_lost", guid(5)), ("nic_new", guid(99))]


def test_parts_swapped_without_new_numbers_are_reported_by_the_names_that_stayed() -> None:
    def swap(box: Box) -> None:
        box.nic(0, place=below(4, 0))
        box.nic(4, place=below(0, 0))

    assert kinds(switched, swap) == [("pcie_path", guid(0)), ("pcie_path", guid(4))]


def test_parts_that_hang_deeper_without_another_path_are_reported_by_place() -> None:
    found = changes(switched, retimer)
    assert [(change.kind, change.part) for change in found] == [
        (ChangeKind.PCIE_PLACE, uuid(2)), (ChangeKind.PCIE_PLACE, guid(2)),
    ]  # fmt: skip
    assert found[0].text == (
        "GPU 2 (...0002) moved from pci0000:30 > 0000:30:01.0 > 0000:31:00.0 > 0000:32:03.0 "
        "to pci0000:30 > 0000:30:01.0 > 0000:fd:00.0 > 0000:fe:00.0 > 0000:31:00.0 > 0000:32:03.0"
    )
    # For machines a place has the names of what is beside the part, and no numbers of buses.
    assert [change.before for change in found] == [
        f"root of {guid(2)}.0 > 01.0 > 00.0 > 03.0", f"root of {uuid(2)} > 01.0 > 00.0 > 00.0",
    ]  # fmt: skip


def test_a_numa_node_that_is_not_known_is_not_told() -> None:
    def unknown(box: Box) -> None:
        retimer(box)
        box.shift(2, lambda place: replace(place, numa=None))

    for back in (False, True):
        assert "NUMA" not in "".join(one.text for one in changes(switched, unknown, back=back))


@pytest.mark.parametrize("back", [False, True])
def test_a_part_that_is_known_by_its_address_alone_has_not_moved(back: bool) -> None:  # noqa: FBT001
    def nameless(box: Box) -> None:
        box.nics.clear()
        box.gpu(2, uuid="index:2", place=replace(box.gpus[2].place, numa=1))
        box.unread.add(2)

    assert changes(no_nics(switched), nameless, back=back) == ()


def test_beside_other_numa_nodes_a_part_that_moved_is_told_by_its_paths() -> None:
    found = changes(switched, clustering, lambda box: box.nic(4, place=replace(below(7, 6), numa=3)))
    assert [one.text for one in found] == [
        "mlx5_4 moved from PIX to SYS for GPU 4; from NODE to SYS for GPU 5; from NODE to PIX for GPU 7",
        "node: 2 -> 4 NUMA nodes",
    ]


def test_a_place_is_known_again_by_the_first_name_beside_it() -> None:
    def more() -> Box:
        box = switched()
        for number in (8, 9):
            box.add_gpu(number, "NVIDIA H200", below(2, number))
        return box

    (change,) = changes(no_nics(more), other_socket)
    assert change.before == f"root of {uuid(8)} > 01.0 > 00.0 > 03.0, NUMA node 0"


def test_a_better_path_is_information() -> None:
    def near() -> Box:
        box = switched()
        for n in (*range(4), *range(5, 8)):
            del box.gpus[n], box.links[n]
        return box

    def far(box: Box) -> None:
        box.nic(4, place=below(0, 1))

    (there,), (back,) = changes(near, far), changes(near, far, back=True)
    assert (there.text, severity(there).health) == ("mlx5_4 moved from PIX to SYS for GPU 4", DEGRADED)
    assert (back.text, severity(back).health) == ("mlx5_4 moved from SYS to PIX for GPU 4", OK)


def test_a_card_replaced_where_no_bridge_is_shown_is_known_by_its_address() -> None:
    def guest() -> Box:
        box = switched()
        for n in range(8):
            box.gpu(n, place=replace(NOWHERE, address=f"0000:00:{n + 5:02x}.0", root="pci0000:00"))
        return box

    assert kinds(guest, gpu_replaced) == [("gpu_replaced", uuid(9999))]


def test_the_only_gpu_of_a_node_is_replaced_though_no_part_is_left_that_has_a_name() -> None:
    def single() -> Box:
        box = Box()
        box.add_gpu(0, "NVIDIA H200")
        return box

    assert kinds(single, lambda box: box.gpu(0, uuid=uuid(9999))) == [("gpu_replaced", uuid(9999))]


def nowhere(box: Box) -> None:
    box.nic(7, place=NOWHERE)
    box.gpu(7, place=NOWHERE)


def all_nameless(box: Box) -> None:
    for number in box.gpus:
        box.gpu(number, uuid=f"index:{number}")
        box.nic(number, guid="")
    box.unread.update(box.gpus)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    ("besides", "known"),
    [
        (lambda _box: None, True), (nowhere, True), (lambda box: box.nic(7, place=below(0, 7)), False),
        (all_nameless, False),
    ],
)  # fmt: skip
def test_a_part_without_a_name_is_known_by_address_while_each_part_with_a_name_has_kept_its_own(
    besides: Edit, *, known: bool, back: bool
) -> None:
    def make() -> Box:
        box = switched()
        box.nic(3, guid="")
        if besides is all_nameless:
            all_nameless(box)
        return box

    def edit(box: Box) -> None:
        besides(box)
        box.nic(3, firmware="28.44.1036")

    found = [one.kind for one in changes(make, edit, back=back)]
    assert (ChangeKind.NIC_FIRMWARE in found) is known


def test_a_replaced_gpu_is_known_by_its_slot_when_the_buses_are_others() -> None:
    def other_buses(place: Place) -> Place:
        """What hangs below the root port has other numbers, since one more bus was found."""
        bridges = (place.bridges[0], *(bridge.replace(":4", ":c") for bridge in place.bridges[1:]))
        return replace(place, bridges=bridges, address=place.address.replace(":4", ":c"))

    assert kinds(switched, gpu_replaced, lambda box: box.shift(3, other_buses)) == [
        ("gpu_replaced", uuid(9999))
    ]
