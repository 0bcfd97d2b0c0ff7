"""Changes over readings: when they are sure, when they are over, and who accepts them."""

from dataclasses import replace

import pytest

from tests.node.verdict.drift.drawn import Box, Edit, bridged, meshed, renumbered, switched
from tests.node.verdict.drift.edits import (
    driver,
    gpu_lost,
    gpu_replaced,
    link_lost,
    link_new,
    nic_firmware,
    nic_lost,
    nic_moved,
    nic_ports,
)
from tests.node.verdict.drift.omissions import OF_GPUS, OF_NICS
from tests.node.verdict.drift.readings import (
    POLICY,
    SAID,
    STEP,
    WORD,
    accepted,
    all_accepted,
    changes,
    compared,
    drawn,
    followed,
    rules,
    since,
    streaks,
    told,
)
from tests.rows import each
from wirewatch.verdict.drift.baseline import Accepted, Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import ChangeKind, TopologyChange
from wirewatch.verdict.drift.watch import (
    DriftPolicy,
    DriftWatch,
    accept_all,
    accept_one,
    counts,
    fold_drift,
    name_of,
)

BASE = accepted()
GPU_3 = "GPU-00000000-0000-4000-8000-000000000003"


def test_a_change_is_a_finding_when_two_readings_in_a_row_show_it() -> None:
    good, bad = drawn(), drawn(link_lost)
    once = compared(BASE, [good, bad])
    assert (streaks(once), [change.kind for change in changes(once)]) == ((1,), [ChangeKind.NVLINK_LOST])
    assert told(once, BASE) == ()
    assert told(compared(BASE, [good, bad, good, bad]), BASE) == ()
    twice = compared(BASE, [good, bad, bad])
    assert (streaks(twice), since(twice)) == ((2,), since(once))
    assert rules(told(twice, BASE)) == {("topology.nvlink_lost", GPU_3, "")}
    at_once = compared(BASE, [bad], policy=DriftPolicy(confirm=1))
    assert streaks(at_once) == (1,)


def test_a_change_that_is_not_there_is_over() -> None:
    memory = compared(BASE, [drawn(link_lost), drawn(link_lost), drawn()])
    assert (changes(memory), streaks(memory), since(memory)) == ((), (), ())
    again = compared(BASE, [drawn(link_lost)], memory)
    assert (streaks(again), told(again, BASE)) == ((1,), ())


def test_links_that_go_one_after_the_other_are_one_fault() -> None:
    more = drawn(link_lost, lambda box: box.cut(3, 8))
    memory = compared(BASE, [drawn(link_lost), more])
    assert streaks(memory) == (2,)
    assert changes(memory)[0].text == "GPU 3 (...0003): NVLink 18 -> 16 links up, links 7, 8 down"


def test_what_cannot_be_seen_neither_confirms_nor_clears() -> None:
    bad, blind = drawn(link_lost), drawn(lambda box: box.unread.add(3))
    once = compared(BASE, [bad])
    hidden = compared(BASE, [blind] * 5, once)
    assert (changes(hidden), streaks(hidden), since(hidden)) == (changes(once), streaks(once), since(once))
    assert streaks(compared(BASE, [bad], hidden)) == (2,)
    sure = compared(BASE, [bad, blind, bad, blind, blind])
    assert rules(told(sure, BASE)) == {("topology.nvlink_lost", GPU_3, "")}
    assert changes(compared(BASE, [drawn()], sure)) == ()


def test_a_blind_spot_elsewhere_hides_nothing() -> None:
    elsewhere = drawn(lambda box: box.unread.add(5))
    assert changes(compared(BASE, [drawn(link_lost), drawn(link_lost), elsewhere])) == ()


@pytest.mark.parametrize(
    ("change", "hiding"),
    [
        (link_lost, lambda box: box.gpu(3, clique=None)),
        (link_lost, lambda box: OF_NICS["guid"](box, 5)),
        (nic_lost, lambda box: OF_GPUS["uuid"](box, 6)),
        (nic_ports, lambda box: OF_NICS["firmware"](box, 6)),
    ],
)
def test_what_has_nothing_to_do_with_a_change_does_not_hide_that_it_is_over(
    change: Edit, hiding: Edit
) -> None:
    sure = compared(BASE, [drawn(change), drawn(change)])
    assert len(told(sure, BASE)) == 1
    assert changes(compared(BASE, [drawn(hiding)], sure)) == ()


def test_a_nic_that_does_not_give_its_name_may_be_the_lost_one() -> None:
    def nameless(box: Box) -> None:
        nic_lost(box)
        OF_NICS["guid"](box, 6)

    sure = compared(BASE, [drawn(nic_lost), drawn(nic_lost), drawn(nameless)])
    assert rules(told(sure, BASE)) == {("topology.nic_lost", "", "mlx5_4")}


def test_a_lost_gpu_stays_lost_while_one_does_not_give_its_name() -> None:
    def nameless(box: Box) -> None:
        gpu_lost(box)
        OF_GPUS["uuid"](box, 6)

    sure = compared(BASE, [drawn(gpu_lost), drawn(gpu_lost), drawn(nameless)])
    assert rules(told(sure, BASE)) == {("topology.gpu_lost", GPU_3, "")}


def test_what_was_never_known_hides_nothing() -> None:
    def untold(box: Box) -> None:
        OF_GPUS["gpu place"](box, 1)

    base = accepted(untold)
    moved = drawn(untold, nic_moved)
    assert changes(compared(base, [moved, moved]))
    assert changes(compared(base, [moved, moved, drawn(untold)])) == ()


def test_a_fault_stands_until_the_loss_of_its_part_is_sure() -> None:
    fewer = compared(BASE, [drawn(link_lost), drawn(link_lost), drawn(gpu_lost)])
    assert rules(told(fewer, BASE)) == {("topology.nvlink_lost", GPU_3, "")}
    assert counts(fewer)[ChangeKind.GPU_LOST] == 1
    sure = compared(BASE, [drawn(gpu_lost)], fewer)
    assert rules(told(sure, BASE)) == {("topology.gpu_lost", GPU_3, "")}
    assert counts(sure)[ChangeKind.NVLINK_LOST] == 0


def test_an_unsure_change_does_not_hold_another_that_was_never_sure() -> None:
    memory = compared(BASE, [drawn(link_lost), drawn(nic_lost)])
    assert [change.kind for change in changes(memory)] == [ChangeKind.NIC_LOST]


def test_beside_an_unsure_change_a_fault_that_goes_on_is_told_once() -> None:
    more = drawn(link_lost, nic_lost, lambda box: box.cut(3, 8))
    memory = compared(BASE, [drawn(link_lost), drawn(link_lost), more])
    assert [change.kind for change in changes(memory)] == [ChangeKind.NVLINK_LOST, ChangeKind.NIC_LOST]
    assert changes(memory)[0].text == "GPU 3 (...0003): NVLink 18 -> 16 links up, links 7, 8 down"


def test_every_kind_is_counted_with_information() -> None:
    assert counts(DriftWatch()) == dict.fromkeys(ChangeKind, 0)
    graph = drawn(driver, nic_firmware, link_new, link_lost, gpu_replaced)
    memory = compared(BASE, [graph])
    told_kinds = {kind.value: n for kind, n in counts(memory).items() if n}
    assert told_kinds == {
        "gpu_replaced": 1,
        "nvlink_lost": 1,
        "nvlink_new": 1,
        "nic_firmware": 1,
        "version": 1,
    }
    assert len(counts(memory)) == len(ChangeKind) == 19


def test_another_baseline_is_compared_from_the_start() -> None:
    memory = compared(BASE, [drawn(link_lost), drawn(link_lost)])
    other = Baseline(drawn(nic_lost), SAID, "accepted")
    assert told(memory, other) == ()
    memory = compared(other, [drawn(link_lost)], memory)
    assert set(streaks(memory)) == {1}
    later = replace(BASE, said=WORD)
    assert streaks(compared(later, [drawn(link_lost)], compared(BASE, [drawn(link_lost)]))) == (1,)


def test_without_a_baseline_learning_starts_again() -> None:
    memory = compared(BASE, [drawn(link_lost), drawn()])
    memory, learned = fold_drift(memory, None, drawn(), 0.0, (), POLICY)
    assert (memory.same, changes(memory), memory.against, learned) == (1, (), None, None)


def test_all_is_accepted() -> None:
    graph = drawn(link_lost, driver)
    memory = compared(BASE, [graph, graph])
    baseline = accept_all(memory, WORD)
    assert baseline == Baseline(graph, WORD, "accepted")
    assert isinstance(baseline, Baseline)
    assert told(memory, baseline) == ()
    assert changes(compared(baseline, [graph, graph], memory)) == ()
    assert rules(told(compared(baseline, [drawn(gpu_lost)] * 2), baseline)) == {
        ("topology.gpu_lost", GPU_3, "")
    }


@each(
    ("memory", "why"),
    [
        (DriftWatch(), "the topology was not read yet"),
        (DriftWatch(drawn(make=Box)), "no GPU is here"),
        (DriftWatch(drawn(lambda box: box.unread.add(3))), "not known now: GPU 3 (...0003): NVLink links"),
        (
            DriftWatch(drawn(lambda box: OF_GPUS["product"](box, 3))),
            "not known now: GPU 3 (...0003): product",
        ),
        (DriftWatch(drawn(lambda box: box.nic(2, ports=()))), "not known now: mlx5_2: ports"),
        (
            DriftWatch(drawn(lambda box: OF_GPUS["uuid"](box, 3))),
            "not known now: GPU 3: NVLink links and 2 more",
        ),
    ],
)
def test_why_all_cannot_be_accepted(memory: DriftWatch, why: str) -> None:
    assert accept_all(memory, WORD) == why


def test_peers_that_are_out_of_sight_can_be_accepted() -> None:
    """In a virtual machine with some of the GPUs of a mesh they never come into sight."""
    memory = DriftWatch(drawn(lambda box: OF_GPUS["peers"](box, 0), make=meshed))
    assert isinstance(accept_all(memory, WORD), Baseline)


def test_one_change_is_accepted_and_no_other() -> None:
    graph = drawn(link_lost, nic_lost)
    memory = compared(BASE, [graph, graph])
    lost = next(change for change in changes(memory) if change.kind is ChangeKind.NVLINK_LOST)
    baseline = accept_one(BASE, memory, name_of(lost), WORD)
    assert isinstance(baseline, Baseline)
    assert (baseline.graph, baseline.said, baseline.origin) == (BASE.graph, BASE.said, BASE.origin)
    assert [(one.text, one.said) for one in baseline.accepted] == [(lost.text, WORD)]
    assert rules(told(memory, baseline)) == {("topology.nic_lost", "", "mlx5_4")}
    after = compared(baseline, [graph], memory)
    assert ([change.kind for change in changes(after)], streaks(after)) == ([ChangeKind.NIC_LOST], (3,))
    again = graph_of(renumbered(_box(link_lost, nic_lost).build(), 7))
    assert [change.kind for change in changes(compared(baseline, [again]))] == [ChangeKind.NIC_LOST]
    worse = drawn(link_lost, nic_lost, lambda box: box.cut(3, 8))
    assert counts(compared(baseline, [worse], after))[ChangeKind.NVLINK_LOST] == 1


def _box(*edits: object) -> Box:
    box = switched()
    for edit in edits:
        edit(box)  # type: ignore[operator]
    return box


def test_what_is_accepted_twice_or_is_not_there_is_refused() -> None:
    memory = compared(BASE, [drawn(link_lost)])
    name = name_of(changes(memory)[0])
    assert accept_one(BASE, memory, "00000000", WORD) == f"there is no change 00000000; there are {name}"
    baseline = accept_one(BASE, memory, name, WORD)
    assert isinstance(baseline, Baseline)
    assert accept_one(baseline, memory, name, WORD) == f"there is no change {name}, and no other"


def test_names_distinguish_changes() -> None:
    change = TopologyChange(ChangeKind.NIC_LOST, "a", "b", "", "text", worse=True)
    others = [replace(change, **{field: "x"}) for field in ("part", "before", "after")]  # type: ignore[arg-type]
    others += [replace(change, kind=ChangeKind.NIC_NEW), replace(change, part="", before="a", after="b")]
    names = {name_of(one) for one in (change, *others)}
    assert len(names) == 6
    assert name_of(change) == name_of(replace(change, text="in other words", worse=False))
    assert all(len(name) == 8 and int(name, 16) >= 0 for name in names)


def test_what_goes_between_two_pairs_of_a_mesh_is_one_finding() -> None:
    def two_wires(box: Box) -> None:
        for one, other, link in ((0, 1, 0), (0, 2, 4)):
            box.cut(one, link)
            box.cut(other, link)

    base = accepted(make=meshed)
    memory = compared(base, [drawn(two_wires, make=meshed)] * 2)
    assert (len(changes(memory)), streaks(memory)) == (2, (2, 2))
    (found,) = told(memory, base)
    assert found.evidence.count("NVLink 12 -> 10 links up") == 2
    assert found.since == SAID.at + STEP


def test_the_bridge_of_a_pair_that_cannot_be_read_any_more_stays_lost() -> None:
    base = accepted(make=bridged)

    def fell_off(box: Box) -> None:
        box.cut(0, *range(12))
        box.cut(1, *range(12))

    memory = compared(base, [drawn(fell_off, make=bridged)] * 2)
    assert counts(memory)[ChangeKind.ISLAND] == 1
    blind = drawn(fell_off, lambda box: box.unread.add(1), make=bridged)
    assert counts(compared(base, [blind] * 3, memory))[ChangeKind.ISLAND] == 1


def test_what_was_accepted_and_is_over_is_reported_when_it_happens_again() -> None:
    good, bad = drawn(), drawn(link_lost)
    baseline = all_accepted(BASE, compared(BASE, [bad] * 2))
    memory, still = followed(baseline, [bad, good, bad, good])
    assert still is baseline
    memory, over = followed(still, [good], memory)
    assert over == BASE
    assert rules(told(compared(over, [bad, bad], memory), over)) == {("topology.nvlink_lost", GPU_3, "")}


def test_what_cannot_be_seen_ends_no_acceptance() -> None:
    baseline = all_accepted(BASE, compared(BASE, [drawn(link_lost)] * 2))
    blind = drawn(lambda box: box.unread.add(3))
    gone, other = drawn(gpu_lost), drawn(nic_lost)
    for hiding in (blind, gone, other):
        assert followed(baseline, [hiding] * 5)[1] is baseline
    memory, still = followed(baseline, [drawn(), *[blind] * 5])
    assert still is baseline
    assert followed(still, [drawn()], memory)[1] == BASE


def test_a_part_whose_loss_was_accepted_as_well_ends_no_acceptance() -> None:
    baseline = all_accepted(BASE, compared(BASE, [drawn(link_lost)] * 2))
    baseline = all_accepted(baseline, compared(baseline, [drawn(gpu_lost)] * 2))
    assert len(baseline.accepted) == 2
    assert followed(baseline, [drawn(gpu_lost)] * 5)[1] is baseline


def test_a_nic_that_was_given_away_ends_no_acceptance() -> None:
    baseline = all_accepted(BASE, compared(BASE, [drawn(nic_ports)] * 2))
    (nic,) = {one.part for one in baseline.accepted}
    assert followed(baseline, [drawn()] * 5, away={nic})[1] is baseline
    assert followed(baseline, [drawn()] * 2)[1] == BASE


def test_an_acceptance_of_a_later_agent_is_kept() -> None:
    later = Accepted("cable_colour", "mlx5_4", "red", "blue", "mlx5_4: red -> blue", WORD)
    baseline = replace(BASE, accepted=(later,))
    assert followed(baseline, [drawn()] * 5)[1] is baseline
