"""What the canonical form holds, how parts without a name of their own go, and how parts are called."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
from pydantic import TypeAdapter

from tests.node.verdict.drift import edits as told
from tests.node.verdict.drift.drawn import (
    A100_SXM,
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
from wirewatch.core.pci import Place
from wirewatch.core.types import Absent
from wirewatch.verdict.drift.canonical import graph_of, with_away
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.wiring import (
    Aspect,
    GpuIsland,
    Graph,
    PciPath,
    PeerLinks,
    Unknown,
    fingerprint,
    identity,
    links,
    numbers,
)


def test_a_graph_holds_what_was_read() -> None:
    graph = graph_of(bridged().build())
    assert graph.gpus[0].wires == (PeerLinks(uuid(1), tuple(range(12))),)
    assert graph.islands == (GpuIsland("pair", (uuid(0), uuid(1))), GpuIsland("pair", (uuid(2), uuid(3))))
    assert graph.nics[0].paths[:2] == (PciPath(uuid(0), "PIX"), PciPath(uuid(1), "NODE"))
    assert [gpu.spot.branch for gpu in graph.gpus] == [(n, 0, 0, 1) for n in range(4)]
    assert (graph.numa_nodes, graph.versions, graph.unknown) == (2, (("driver", "580.1"),), ())


@pytest.mark.parametrize("make", [switched, bridged, meshed])
def test_a_graph_survives_json(make: type[Box]) -> None:
    graph = graph_of(make().build())
    again = TypeAdapter(Graph).validate_json(json.dumps(asdict(graph)))
    assert again == graph
    assert [gpu.index for gpu in again.gpus] == [gpu.index for gpu in graph.gpus]


def two_functions(box: Box) -> None:
    """A card with two functions that share the GUID of NIC 0."""
    place = box.nics[0].place
    box.add_nic(20, replace(place, address=place.address.replace(".0", ".1")))
    box.nic(20, guid=guid(0))


def test_functions_of_one_card_go_by_guid_and_function() -> None:
    box = switched()
    two_functions(box)
    keys = [nic.key for nic in graph_of(box.build()).nics]
    assert keys[:3] == [f"{guid(0)}.0", f"{guid(0)}.1", guid(1)]


def test_a_lost_function_leaves_the_other_what_it_was() -> None:
    (change,) = changes(switched, two_functions, back=True)
    assert change.text == f"mlx5_20 is gone: MT4129 at 0000:13:00.1, GUID {guid(0)}"


def test_cards_with_the_same_guid_go_by_address() -> None:
    box = switched()
    box.nic(1, guid=guid(0))
    graph = graph_of(box.build())
    assert [nic.key for nic in graph.nics if nic.guid == guid(0)] == ["0000:13:00.0", "0000:23:00.0"]
    assert {Unknown("0000:13:00.0", Aspect.NAME), Unknown("0000:23:00.0", Aspect.NAME)} <= set(graph.unknown)
    assert isinstance(fingerprint(graph), str)
    assert isinstance(identity(graph), Absent)
    box.nic(1, firmware="28.44.1036")
    assert [change.text for change in diff(graph, graph_of(box.build()))] == [
        "mlx5_1: firmware 28.41.1000 -> 28.44.1036"
    ]


def test_a_nic_that_gives_no_guid_is_the_one_at_its_address() -> None:
    def silent(box: Box) -> None:
        box.nic(3, guid="", firmware="28.44.1036")

    for back, words in ((False, "28.41.1000 -> 28.44.1036"), (True, "28.44.1036 -> 28.41.1000")):
        assert [change.text for change in changes(switched, silent, back=back)] == [
            f"mlx5_3: firmware {words}"
        ]


def test_parts_without_a_name_go_by_their_address_wherever_they_are_named() -> None:
    box = bridged()
    box.gpu(1, uuid="index:1")
    box.links[0] = dict.fromkeys(range(12), "index:1")
    box.nic(1, guid="")
    graph, address = graph_of(box.build()), box.gpus[1].place.address
    assert graph.islands[0] == GpuIsland("pair", (address, uuid(0)))
    assert [wire.peer for gpu in graph.gpus if gpu.uuid == uuid(0) for wire in gpu.wires] == [address]
    assert {reach.gpu for nic in graph.nics for reach in nic.paths} == {address, uuid(0), uuid(2), uuid(3)}
    assert [nic.key for nic in graph.nics if not nic.guid] == [box.nics[1].place.address]
    assert fingerprint(graph) == fingerprint(graph_of(bridged().build()))


def test_roots_are_counted_in_the_order_of_the_least_key_below_and_a_part_nowhere_is_below_none() -> None:
    box = Box()
    for number, slot in ((0, 2), (1, 1), (2, 1), (3, 2), (4, 0)):
        box.add_gpu(number, A100_SXM, below(slot, number))
    assert [gpu.spot.branch[0] for gpu in graph_of(box.build()).gpus] == [0, 1, 1, 0, 2]
    box.gpu(0, place=NOWHERE)
    assert [gpu.spot.branch[:1] for gpu in graph_of(box.build()).gpus] == [(), (0,), (0,), (1,), (2,)]


def test_a_single_path_or_port_that_is_not_known_is_listed() -> None:
    box = switched()
    box.nic(2, ports=(("1", "InfiniBand"), ("2", "")))
    assert graph_of(box.build()).unknown == (
        Unknown(guid(2), Aspect.PORTS), Unknown("nvidia_peermem", Aspect.VERSION),
    )  # fmt: skip
    box.gpu(1, place=replace(box.gpus[1].place, root=""))
    assert {one.part for one in graph_of(box.build()).unknown if one.what is Aspect.PATHS} == {
        guid(n) for n in range(8)
    }


def test_parts_that_are_away_and_here_all_the_same_are_as_they_are_now() -> None:
    """Given away between two readings of a start: the first still shows them."""
    now, before = graph_of(meshed().build()), graph_of(bridged().build())
    box = bridged()
    box.nic(1, firmware="28.44.1036")
    box.cut(1, 3)
    here, away = graph_of(box.build()), frozenset({uuid(1), guid(1)})
    assert with_away(here, before, away) == here
    assert with_away(now, before, frozenset()) == now
    lent = with_away(now, before, away)
    assert (lent.gpus, [nic.key for nic in lent.nics]) == (now.gpus, [guid(1)])


def test_a_loss_beside_a_part_without_a_name_is_reported_when_the_part_is_known_by_address() -> None:
    def lost(box: Box) -> None:
        box.nic(3, guid="")
        del box.nics[5]

    assert [change.part for change in changes(switched, lost)] == [guid(5)]


def test_what_could_be_any_of_the_missing_is_none_of_them() -> None:
    def moved(box: Box) -> None:
        """No GUID and no address: it may be NIC 3 or NIC 5."""
        box.nic(3, guid="", place=NOWHERE)
        del box.nics[5]

    assert changes(switched, moved) == ()


def test_a_lost_part_that_never_had_a_name_is_lost() -> None:
    def nameless() -> Box:
        box = switched()
        for number in range(8):
            box.nic(number, guid="")
        return box

    def lost(box: Box) -> None:
        del box.nics[2]

    (change,) = changes(nameless, lost)
    assert change.text == "mlx5_2 is gone: MT4129 at 0000:33:00.0"
    assert change.part == "0000:33:00.0"


def test_numa_nodes_that_no_part_gives_are_a_fact_and_those_that_some_give_are_not() -> None:
    box = bridged()
    places = {n: box.gpus[n].place for n in box.gpus}

    def told(*numbers: int) -> str | Absent:
        for n, place in places.items():
            box.gpu(n, place=replace(place, numa=place.numa if n in numbers else None))
            box.nic(n, place=replace(below(n, 0), numa=None))
        return fingerprint(graph_of(box.build()))

    assert isinstance(told(), str)
    assert isinstance(told(0, 1), Absent)


def test_with_one_numa_node_it_does_not_matter_which_part_gives_it() -> None:
    def alone(place: Place) -> Place:
        return replace(place, numa=None)

    one, other = bridged(), bridged()
    for box in (one, other):
        box.numa_nodes = 1
    other.shift(2, alone)
    graphs = [graph_of(box.build()) for box in (one, other)]
    assert graphs[1].unknown == ()
    assert fingerprint(graphs[0]) == fingerprint(graphs[1])


def test_lists_are_written_short() -> None:
    assert numbers([7, 0, 1, 2, 3, 9, 10]) == "0-3, 7, 9, 10"
    assert (links([7]), links([1, 0])) == ("link 7", "links 0, 1")


Make = Callable[[], Box]


def names(make: Make, *edits: Edit) -> tuple[str | Absent, str | Absent]:
    box = make()
    for edit in edits:
        edit(box)
    graph = graph_of(box.build())
    return fingerprint(graph), identity(graph)


def other_node(box: Box) -> None:
    """Another node of the product: all names differ, and so does where the firmware counts its buses from."""
    for n in list(box.gpus):
        box.gpu(n, uuid=uuid(100 + n))
        box.nic(n, guid=f"1111:0000:0000:{n:04d}")
        box.links[n] = {
            link: uuid(100 + int(peer[-1])) if peer.startswith("GPU") else peer
            for link, peer in box.links[n].items()
        }


@pytest.mark.parametrize("make", [switched, bridged, meshed])
def test_nodes_of_one_product_share_the_fingerprint_and_not_the_identity(make: Make) -> None:
    one, other = names(make), names(make, other_node, told.driver)
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert all(isinstance(name, str) and len(name) == 16 for name in (*one, *other))


@pytest.mark.parametrize("edit", [told.driver, told.nic_firmware])
def test_software_changes_neither(edit: Edit) -> None:
    assert names(switched, edit) == names(switched)


@pytest.mark.parametrize("edit", [told.gpu_replaced, told.nic_replaced])
def test_a_replaced_part_changes_the_identity_alone(edit: Edit) -> None:
    one, other = names(switched), names(switched, edit)
    assert (one[0] == other[0], one[1] == other[1]) == (True, False)


SHAPES = (
    told.gpu_lost, told.gpu_new, told.gpu_product, told.link_lost, told.nic_lost, told.nic_model,
    told.nic_ports, told.nic_moved, told.gpu_moved, told.retimer, told.clustering,
)  # fmt: skip


def nested() -> Box:
    """A NIC hangs right below a bridge, and a GPU one bridge deeper."""
    box = Box(numa_nodes=1)
    box.add_gpu(0, A100_SXM)
    upper = below(0, 3)
    box.add_nic(0, replace(upper, bridges=upper.bridges[:1]))
    return box


def test_a_fingerprint_is_the_same_in_every_release() -> None:
    """Those of other nodes and of older results were made by an older one."""
    assert [names(make)[0] for make in (switched, bridged, meshed, nested)] == [
        "14aff307bb54803a", "4566f77beaf74738", "a01c9dfb813bc4a3", "dca7f6f5a37b6702",
    ]  # fmt: skip


def test_every_other_shape_has_another_fingerprint() -> None:
    found = {names(switched, edit)[0] for edit in SHAPES}
    assert len(found | {names(switched)[0]}) == len(SHAPES) + 1


def ring(*around: int) -> Edit:
    def join(box: Box) -> None:
        for n, number in enumerate(around):
            box.join(number, around[(n + 1) % len(around)], [n, n + 20])

    return join


def flat() -> Box:
    """Eight GPUs below one switch, so that only wires tell them apart."""
    box = Box()
    for n in range(8):
        box.add_gpu(n, A100_SXM, below(0, n))
    return box


def moebius(box: Box) -> None:
    """A ring of eight with each GPU wired to the one across."""
    ring(*range(8))(box)
    for n in range(4):
        box.join(n, n + 4, [40])


def prism(box: Box) -> None:
    """Two rings of four, each GPU wired to its twin in the other: every GPU has three peers here as well."""
    ring(*range(4))(box)
    ring(*range(4, 8))(box)
    for n in range(4):
        box.join(n, n + 4, [40])


def test_wirings_that_look_alike_from_every_gpu_are_told_apart() -> None:
    assert names(flat, ring(*range(8)))[0] != names(flat, ring(0, 1, 2, 3), ring(4, 5, 6, 7))[0]
    assert names(flat, moebius)[0] != names(flat, prism)[0]
    assert names(flat, ring(0, 3, 6, 1, 4, 7, 2, 5))[0] == names(flat, ring(*range(8)))[0]
