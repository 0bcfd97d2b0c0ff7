"""What must hold of any node: numbers are no change, the unknown is no change, and the way back mirrors."""

from collections import Counter
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.verdict.drift import edits as told
from tests.node.verdict.drift.drawn import (
    BOXES,
    Box,
    Edit,
    below,
    bridged,
    meshed,
    renumbered,
    switched,
)
from tests.node.verdict.drift.omissions import OF_GPUS, OF_NICS
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import ChangeKind, TopologyChange
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.wiring import Aspect, fingerprint, identity

Make = Callable[[], Box]


def exchanged(box: Box) -> None:
    box.gpu(7, uuid="GPU-new")


def nic_taken(box: Box) -> None:
    box.nics.pop(1, None)


EDITS: dict[Make, tuple[Edit, ...]] = {
    switched: (
        told.gpu_lost, told.gpu_new, told.gpu_product, told.link_new, told.nic_lost, told.nic_new,
        told.nic_replaced, told.nic_firmware, told.nic_ports, told.gpu_moved, told.driver,
        lambda box: box.cut(6, 1, 2), lambda box: box.drop_gpu(0), exchanged,
        told.nic_moved, told.retimer, nic_taken,
        lambda box: box.gpu(6, place=below(2, 6)), lambda box: box.nic(2, place=below(6, 1)),
    ),
    bridged: (told.peers_swapped, told.bridge_lost, told.driver, lambda box: box.cut(2, 5)),
    meshed: (lambda box: box.drop_gpu(3), lambda box: box.cut(0, 1, 5), told.driver),
}  # fmt: skip
"""Edits that can be made together."""
SEEDS = st.integers(0, 2**32)


def edited_by(make: Make, *edits: Edit) -> tuple[Box, Box]:
    """A node, and the same one with these edits."""
    before, after = make(), make()
    for edit in edits:
        edit(after)
    return before, after


@st.composite
def edited(draw: st.DrawFn) -> tuple[Box, Box]:
    """A node, and the same one with some edits."""
    make = draw(st.sampled_from(BOXES))
    edits = draw(st.lists(st.sampled_from(EDITS[make]), unique=True))
    return edited_by(make, *edits)


OMISSIONS = st.sets(st.tuples(st.sampled_from([*OF_GPUS, *OF_NICS]), st.integers(0, 7)))


def without(make: Make, omissions: set[tuple[str, int]]) -> Topology:
    """A node of which some things are not told."""
    box = make()
    for what, number in sorted(omissions):
        if what in OF_GPUS and number in box.gpus:
            OF_GPUS[what](box, number)
        elif what in OF_NICS and number in box.nics:
            OF_NICS[what](box, number)
    return box.build()


def facts(changes: tuple[TopologyChange, ...]) -> Counter[tuple[ChangeKind, str, str, str]]:
    """All but the words."""
    return Counter((c.kind, c.part, c.before, c.after) for c in changes)


@given(edited(), SEEDS)
def test_a_node_numbered_again_is_the_same_node(boxes: tuple[Box, Box], seed: int) -> None:
    topology = boxes[1].build()
    one, other = graph_of(topology), graph_of(renumbered(topology, seed))
    assert (one, hash(one)) == (other, hash(other))
    for name in (fingerprint, identity):
        names = [name(graph) for graph in (one, other)]
        assert names[0] == names[1] or all(isinstance(told, Absent) for told in names)
    assert diff(one, other) == diff(other, one) == ()


MOVED = edited_by(switched, told.gpu_lost, told.gpu_new, told.gpu_moved, told.link_new, exchanged)
CHANCE = 24
"""A numbering in which the switch that GPU 1 moved to is called as the one that it left."""


@example(MOVED, CHANCE)
@given(edited(), SEEDS)
def test_changes_are_the_same_in_whatever_order_things_are_listed(boxes: tuple[Box, Box], seed: int) -> None:
    before, after = boxes[0].build(), boxes[1].build()
    plain = diff(graph_of(before), graph_of(after))
    assert facts(plain) == facts(diff(graph_of(before), graph_of(renumbered(after, seed))))


@given(edited(), SEEDS)
def test_the_way_back_mirrors_any_set_of_changes(boxes: tuple[Box, Box], seed: int) -> None:
    before, after = graph_of(boxes[0].build()), graph_of(renumbered(boxes[1].build(), seed))
    there = [(told.MIRROR.get(c.kind, c.kind), c.after, c.before) for c in diff(before, after)]
    back = [(c.kind, c.before, c.after) for c in diff(after, before)]
    assert Counter(there) == Counter(back)


@given(st.sampled_from(BOXES), OMISSIONS, OMISSIONS, SEEDS)
@settings(max_examples=examples(200))
def test_what_is_not_known_is_no_change(
    make: Make, one: set[tuple[str, int]], other: set[tuple[str, int]], seed: int
) -> None:
    before, after = without(make, one), renumbered(without(make, other), seed)
    assert diff(graph_of(before), graph_of(after)) == ()


@given(st.sampled_from(BOXES), st.sampled_from([*OF_GPUS, *OF_NICS]), st.integers(0, 3), SEEDS)
def test_what_is_not_known_is_listed_and_only_a_whole_graph_has_a_name(
    make: Make, what: str, number: int, seed: int
) -> None:
    whole, part = graph_of(make().build()), graph_of(renumbered(without(make, {(what, number)}), seed))
    told_nothing = part == whole
    new = set(part.unknown) - set(whole.unknown)
    assert bool(new) is not told_nothing
    assert {one.part for one in part.unknown} <= {"", *(p.key for p in part.parts), *dict(part.versions)}
    harmless = {Aspect.VERSION, Aspect.FIRMWARE, Aspect.PATHS}
    for name, free in ((fingerprint, {*harmless, Aspect.NAME}), (identity, harmless)):
        if {one.what for one in new} <= free:
            assert name(part) == name(whole)
        else:
            assert isinstance(name(part), Absent)
