"""What must hold of any history of readings."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.verdict.drift import edits as told
from tests.node.verdict.drift.drawn import Box, Edit, bridged, meshed, renumbered, switched
from tests.node.verdict.drift.edits import Make
from tests.node.verdict.drift.omissions import OF_GPUS, OF_NICS
from tests.node.verdict.drift.readings import (
    SAID,
    WORD,
    accepted,
    all_accepted,
    changes,
    compared,
    followed,
    rules,
)
from tests.node.verdict.drift.readings import told as findings_of
from wirewatch.core.types import Health, worst
from wirewatch.verdict.drift.baseline import Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import ChangeKind
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.watch import DriftWatch, accept_all, counts
from wirewatch.verdict.drift.wiring import Graph

EDITS: dict[Make, tuple[Edit, ...]] = {
    switched: (
        told.gpu_lost, told.gpu_new, told.gpu_product, told.link_new, told.link_lost, told.nic_lost,
        told.nic_new, told.nic_replaced, told.nic_firmware, told.nic_ports, told.gpu_moved, told.clustering,
        told.driver, told.retimer, lambda box: box.gpu(6, uuid="GPU-new"),
    ),
    bridged: (
        told.bridge_lost, told.nic_lost, told.driver, told.nic_moved, lambda box: box.cut(2, 5),
        lambda box: box.nic(1, guid="0000:0000:0000:0099"),
    ),
    meshed: (told.gpu_lost, lambda box: box.cut(0, 1, 5), told.driver, told.gpu_moved),
}  # fmt: skip


@dataclass(frozen=True)
class Story:
    """A node with some edits; `made` builds it with more of them, in order, each where it can be."""

    make: Make
    edits: tuple[Edit, ...]

    def made(self, *more: Edit, seed: int | None = None) -> Graph:
        box = self.make()
        for edit in (*self.edits, *more):
            try:
                edit(box)
            except KeyError:
                continue
        topology = box.build()
        return graph_of(topology if seed is None else renumbered(topology, seed))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    make = draw(st.sampled_from(list(EDITS)))
    return Story(make, tuple(draw(st.lists(st.sampled_from(EDITS[make]), unique=True, max_size=5))))


SEEDS = st.integers(0, 2**32)
OMISSIONS = st.sets(
    st.tuples(st.sampled_from([*OF_GPUS, *OF_NICS]), st.integers(0, 7)), min_size=1, max_size=6
)


def without(omissions: set[tuple[str, int]]) -> Edit:
    def omit(box: Box) -> None:
        for what, number in sorted(omissions):
            if what in OF_GPUS and number in box.gpus:
                OF_GPUS[what](box, number)
            elif what in OF_NICS and number in box.nics:
                OF_NICS[what](box, number)

    return omit


def seen_of(memory: DriftWatch) -> set[tuple[ChangeKind, str]]:
    return {(change.kind, change.part) for change in changes(memory)}


@pytest.mark.parametrize("what", [*OF_GPUS, *OF_NICS])
def test_nothing_that_is_not_known_clears_any_kind_of_change(what: str) -> None:
    for make, edits in EDITS.items():
        base = accepted(make=make)
        for edit in edits:
            story = Story(make, (edit,))
            sure = compared(base, [story.made()] * 2)
            for number in {*range(8)} & make().gpus.keys():
                blind = compared(base, [story.made(without({(what, number)}))] * 3, sure)
                assert seen_of(blind) >= seen_of(sure), (edit, number)


@given(stories(), OMISSIONS, st.integers(1, 4))
def test_a_lost_reading_clears_no_finding(story: Story, omissions: set[tuple[str, int]], times: int) -> None:
    base = accepted(make=story.make)
    sure = compared(base, [story.made()] * 2)
    blind = compared(base, [story.made(without(omissions))] * times, sure)
    assert seen_of(blind) >= seen_of(sure)
    health = worst(findings_of(blind, base, SAID.at))
    assert health >= worst(findings_of(sure, base, SAID.at))


@given(stories(), OMISSIONS, st.integers(1, 4))
def test_a_lost_reading_confirms_nothing_that_it_does_not_show(
    story: Story, omissions: set[tuple[str, int]], times: int
) -> None:
    base = accepted(make=story.make)
    graph = story.made(without(omissions))
    shown = {(change.kind, change.part) for change in diff(base.graph, graph)}
    once = compared(base, [story.made()])
    later = compared(base, [graph] * times, once)
    for one in later.seen:
        if one.key not in shown:
            assert one.streak == 1


@given(stories(), SEEDS)
def test_after_all_is_accepted_there_is_no_change(story: Story, seed: int) -> None:
    base = accepted(make=story.make)
    memory = compared(base, [story.made()] * 2)
    baseline = accept_all(memory, WORD)
    assert isinstance(baseline, Baseline)
    after = compared(baseline, [story.made(seed=seed)] * 2, memory)
    assert not any(counts(after).values())
    assert findings_of(after, baseline) == ()


@given(stories(), SEEDS)
def test_what_is_accepted_one_by_one_stays_accepted_however_parts_are_numbered(
    story: Story, seed: int
) -> None:
    base = accepted(make=story.make)
    memory = compared(base, [story.made()] * 2)
    baseline = all_accepted(base, memory)
    after = compared(baseline, [story.made(seed=seed)] * 2, memory)
    assert changes(after) == ()
    assert changes(compared(baseline, [story.made()], memory)) == ()
    lost = without({(what, 3) for what in (*OF_GPUS, *OF_NICS)})
    assert followed(baseline, [story.made(lost)] * 4, memory)[1] is baseline


@given(stories())
def test_what_was_accepted_and_is_over_is_reported_when_it_happens_again(story: Story) -> None:
    base = accepted(make=story.make)
    memory = compared(base, [story.made()] * 2)
    before, after = [story.made()] * 2, [graph_of(story.make().build())] * 2
    over, baseline = followed(all_accepted(base, memory), [*before, *after], memory)
    assert baseline == base
    again = compared(baseline, before, over)
    assert changes(again) == changes(memory)
    assert findings_of(again, baseline) == findings_of(compared(base, before), base)


def losing(sort: str, number: int) -> Edit:
    def lose(box: Box) -> None:
        if sort == "gpu":
            box.drop_gpu(number)
        elif sort == "nic":
            del box.nics[number]
        else:
            box.cut(number, 2, 3)

    return lose


@given(stories(), st.data())
@settings(max_examples=examples(300))
def test_one_more_lost_part_never_lowers_the_worst_health(story: Story, data: st.DataObject) -> None:
    box = story.make()
    kinds = [(sort, number) for sort in ("gpu", "links") for number in box.gpus]
    kinds += [("nic", number) for number in box.nics]
    lost = losing(*data.draw(st.sampled_from(kinds)))
    base = accepted(make=story.make)
    memory = compared(base, [story.made()] * 2)
    before = worst(findings_of(memory, base, SAID.at))
    for _ in range(4):
        memory = compared(base, [story.made(lost)], memory)
        assert worst(findings_of(memory, base, SAID.at)) >= before


@given(stories(), SEEDS)
def test_numbers_make_no_finding_and_no_difference_to_one(story: Story, seed: int) -> None:
    base = accepted(make=story.make)
    plain = compared(base, [story.made()] * 2)
    other = compared(base, [story.made(), story.made(seed=seed)])
    named = [{(rule, uuid) for rule, uuid, _ in rules(findings_of(one, base))} for one in (plain, other)]
    assert named[0] == named[1]


@given(st.lists(stories().filter(lambda story: story.make is switched), max_size=6))
def test_healthy_readings_end_everything(history: list[Story]) -> None:
    base = accepted()
    memory = compared(base, [story.made() for story in history])
    assert changes(compared(base, [switched_graph()] * 2, memory)) == ()
    assert worst(findings_of(memory, replace(base, said=WORD))) is Health.OK


def switched_graph() -> Graph:
    return graph_of(switched().build())
