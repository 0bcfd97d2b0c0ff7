"""Who shares a fingerprint and who does not."""

from collections.abc import Callable

import pytest

from tests.verdict.drift import edits as told
from tests.verdict.drift.drawn import A100_SXM, Box, Edit, below, bridged, meshed, switched, uuid
from wirewatch.core.types import Absent
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.graph import fingerprint, identity

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
