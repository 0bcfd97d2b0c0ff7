"""The documents of drift: changes that count now, and each baseline with what was accepted in it."""

from dataclasses import replace

from tests.node.verdict.drift.drawn import H200, Box
from tests.support import EPOCH
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Absent, Health, OperatorNote
from wirewatch.documents.drift import AcceptedChange, difference, drift_of, drift_of_state, worst
from wirewatch.verdict.drift.baseline import Accepted, Baseline
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.change import severity
from wirewatch.verdict.drift.component import NAME, DriftMemory
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.watch import DriftWatch, WatchedChange, name_of
from wirewatch.verdict.drift.wiring import fingerprint

SAID = OperatorNote("night-shift", "new card", EPOCH - 99)


def box(*numbers: int) -> Box:
    made = Box()
    for number in numbers:
        made.add_gpu(number, H200)
        made.add_nic(number)
    return made


BEFORE, AFTER = box(0, 1).build(), box(0).build()
OLD, NEW = graph_of(BEFORE), graph_of(AFTER)
CHANGES = tuple(diff(OLD, NEW))
BASELINE = Baseline(OLD, SAID, "learned")
FIRST = CHANGES[0]
ACCEPTED = Accepted(FIRST.kind.value, FIRST.part, FIRST.before, FIRST.after, FIRST.text, SAID)


def test_without_a_baseline_nothing_has_changed() -> None:
    found = drift_of(DriftWatch(NEW, learning="two polls more"), None, EPOCH)
    assert (found.baseline, found.changes, found.health, found.learning) == (None, [], "ok", "two polls more")
    assert drift_of(DriftWatch(), BASELINE, EPOCH).changes == []


def test_a_baseline_that_is_newer_than_the_reading_is_compared_anew() -> None:
    """What was seen against another baseline does not count, and has its time from now."""
    seen = (WatchedChange(replace(FIRST, part="else"), 1, EPOCH - 5),)
    found = drift_of(DriftWatch(NEW, seen), BASELINE, EPOCH)
    assert [(one.id, one.since) for one in found.changes] == [(name_of(one), EPOCH) for one in CHANGES]
    assert found.health == "failed"
    rest = drift_of(DriftWatch(NEW, seen), replace(BASELINE, accepted=(ACCEPTED,)), EPOCH)
    assert [one.id for one in rest.changes] == [name_of(one) for one in CHANGES[1:]]


def test_what_was_seen_against_this_baseline_has_its_own_time() -> None:
    seen = (WatchedChange(FIRST, 3, EPOCH - 5),)
    watch = DriftWatch(NEW, seen, against=(OLD, SAID))
    (one,) = drift_of(watch, BASELINE, EPOCH).changes
    assert (one.id, one.since, one.text) == (name_of(FIRST), EPOCH - 5, FIRST.text)
    assert drift_of(watch, replace(BASELINE, accepted=(ACCEPTED,)), EPOCH).changes == []


def test_a_baseline_has_its_size_its_shape_and_what_was_accepted() -> None:
    found = drift_of(DriftWatch(), replace(BASELINE, accepted=(ACCEPTED,)), EPOCH).baseline
    assert found is not None
    assert (found.gpus, found.nics, found.shape) == (2, 2, fingerprint(OLD))
    assert (found.by, found.why, found.at) == ("night-shift", "new card", EPOCH - 99)
    assert found.accepted == [
        AcceptedChange(FIRST.kind.value, FIRST.part, FIRST.text, "night-shift", "new card", EPOCH - 99)
    ]
    split = box(0, 1)
    split.unread.add(1)
    blind = graph_of(split.build())
    assert isinstance(fingerprint(blind), Absent)
    unknown = drift_of(DriftWatch(blind), replace(BASELINE, graph=blind), EPOCH)
    assert unknown.baseline is not None
    assert unknown.baseline.shape is None
    assert len(unknown.unknown) == len(blind.unknown) > 0


def test_two_topologies_are_compared_by_their_names() -> None:
    found = difference(("old", BEFORE), ("new", AFTER), EPOCH)
    assert (found.before, found.after, found.health) == ("old", "new", "failed")
    assert [one.text for one in found.changes] == [one.text for one in CHANGES]
    assert worst([]) is Health.OK
    better = replace(FIRST, worse=False)
    assert severity(better).health is not Health.FAILED
    assert worst([better, FIRST]) is worst([FIRST, better]) is Health.FAILED
    assert drift_of_state(NodeState(), EPOCH) == drift_of(DriftWatch(), None, EPOCH)
    held = Component(NAME, DriftMemory(DriftWatch(NEW), BASELINE))
    assert drift_of_state(NodeState({NAME: held}), EPOCH) == drift_of(DriftWatch(NEW), BASELINE, EPOCH)
