"""The condition as a fold over what is judged: held, never flickering, the same after a restart."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.kubernetes.views import HOLDS, changes, knowing, seen, view
from tests.support import EPOCH
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Health
from wirewatch.kubernetes.condition import (
    LONGEST_GAP,
    RELEASED,
    Condition,
    ConditionMemory,
    ConditionStatus,
    learned,
    status_of,
    view_of,
    watch,
)
from wirewatch.verdict.node import Judged, Verdict

OK, DEGRADED, UNKNOWN, FAILED = Health.OK, Health.DEGRADED, Health.UNKNOWN, Health.FAILED


@pytest.mark.parametrize("fail_on", [{FAILED}, {FAILED, UNKNOWN}, {FAILED, DEGRADED}, {*Health} - {OK}])
@pytest.mark.parametrize("health", Health)
def test_true_is_what_lets_a_job_start(health: Health, fail_on: set[Health]) -> None:
    judged = Judged(NodeState(), Verdict(health, (), fail_on=frozenset(fail_on)), polled_at=1.0)
    status = status_of(view_of(judged, 1.0, 1.0, turning=True))
    assert (status is ConditionStatus.TRUE) == judged.verdict.job_ready
    if not judged.verdict.job_ready:
        assert status is (ConditionStatus.UNKNOWN if health is UNKNOWN else ConditionStatus.FALSE)


def test_a_new_node_is_reported_after_a_minute_and_failed_stays_failed_for_a_minute_first() -> None:
    assert changes(seen([(OK, 600)])) == [(60, "True")]
    assert changes(seen([(FAILED, 600)])) == [(60, "False")]
    assert changes(seen([(UNKNOWN, 600)])) == [(300, "Unknown")]


def test_a_fault_is_reported_after_it_held_and_over_after_five_minutes_without_it() -> None:
    found = seen([(OK, 100), (FAILED, 200), (DEGRADED, 1000)])
    assert changes(found) == [(60, "True"), (160, "False"), (600, "True")]


def test_one_look_that_is_better_begins_the_hold_anew() -> None:
    found = seen([(OK, 100), (FAILED, 55), (OK, 5), (FAILED, 55), (OK, 5), (FAILED, 100)])
    assert changes(found) == [(60, "True"), (280, "False")]


def test_not_knowing_for_five_minutes_is_reported_and_a_short_time_is_not() -> None:
    assert changes(seen([(OK, 100), (UNKNOWN, 290), (OK, 600)])) == [(60, "True")]
    found = seen([(OK, 100), (UNKNOWN, 400), (OK, 600)])
    assert changes(found) == [(60, "True"), (400, "Unknown"), (800, "True")]


def test_going_blind_does_not_end_a_fault_before_its_time() -> None:
    found = seen([(FAILED, 100), (UNKNOWN, 290), (FAILED, 100), (UNKNOWN, 310)])
    assert changes(found) == [(60, "False"), (790, "Unknown")]


def test_failed_and_blind_in_turn_are_not_healthy() -> None:
    found = seen([(OK, 100), *[(FAILED, 30), (UNKNOWN, 30)] * 8])
    assert changes(found) == [(60, "True"), (430, "Unknown")]


def test_the_words_are_those_of_the_last_verdict_that_agreed() -> None:
    found = dict(seen([(OK, 100), (FAILED, 100), (OK, 100)]))
    assert (found[95] or 0) == Condition(ConditionStatus.TRUE, "Ok", "at 95", EPOCH + 60)
    assert (found[120] or 0) == Condition(ConditionStatus.TRUE, "Ok", "at 95", EPOCH + 60)
    assert (found[195] or 0) == Condition(ConditionStatus.FALSE, "Failed", "at 195", EPOCH + 160)
    assert (found[295] or 0) == Condition(ConditionStatus.FALSE, "Failed", "at 195", EPOCH + 160)


def test_new_words_do_not_move_the_transition() -> None:
    found = dict(seen([(OK, 100), (DEGRADED, 100)]))
    assert (found[195] or 0) == Condition(ConditionStatus.TRUE, "Degraded", "at 195", EPOCH + 60)


def test_a_release_is_told_at_once_and_a_minute_after_it_the_node_is_back() -> None:
    found = seen([(OK, 100), (RELEASED, 600), (UNKNOWN, 10), (OK, 600)])
    assert changes(found) == [(60, "True"), (100, "Unknown"), (770, "True")]
    assert (dict(found)[695] or 0) == Condition(ConditionStatus.UNKNOWN, RELEASED, "at 695", EPOCH + 100)


@pytest.mark.parametrize(
    ("why", "spans", "back"),
    [
        ("ready a minute after the release", [(RELEASED, 100), (UNKNOWN, 55), (OK, 600)], 315.0),
        ("ready later than that", [(RELEASED, 100), (UNKNOWN, 65), (OK, 600)], 565.0),
        ("unknown without a release", [(UNKNOWN, 400), (OK, 600)], 800.0),
        ("failed meanwhile", [(RELEASED, 20), (FAILED, 70), (OK, 600)], 490.0),
    ],
)
def test_only_what_follows_a_release_at_once_is_back_sooner(
    why: str, spans: list[tuple[Health | str, float]], back: float
) -> None:
    assert changes(seen([(OK, 100), *spans]))[-1] == (back, "True"), why


def test_a_release_of_a_node_that_stays_failed_changes_nothing() -> None:
    assert changes(seen([(FAILED, 1000)])) == [(60, "False")]


def test_what_nobody_looked_at_was_not_held() -> None:
    memory = knowing(Condition(ConditionStatus.TRUE, "Healthy", "", EPOCH))
    for seconds in (0.0, 20.0, 20.0 + LONGEST_GAP + 1, 40.0 + LONGEST_GAP + 1):
        memory = watch(memory, view(FAILED, seconds), HOLDS)
    assert memory.condition is not None
    assert memory.condition.status is ConditionStatus.TRUE
    assert memory.failed == 1020.0 + LONGEST_GAP + 1


@pytest.mark.parametrize(("gap", "since"), [(30.0, 1000.0), (30.5, 1030.5)])
def test_a_gap_of_half_a_minute_is_still_held(gap: float, since: float) -> None:
    memory = watch(watch(knowing(None), view(FAILED, 0), HOLDS), view(FAILED, gap), HOLDS)
    assert memory.failed == since


def test_a_clock_that_goes_back_holds_nothing() -> None:
    memory = watch(knowing(None), view(FAILED, 100), HOLDS)
    memory = watch(memory, view(FAILED, 40), HOLDS)
    assert memory.failed == 1040.0


@pytest.mark.parametrize("status", list(ConditionStatus))
def test_a_restart_changes_nothing_by_itself(status: ConditionStatus) -> None:
    """Not known for some seconds, then what was known before."""
    before = Condition(status, "Before", "words", EPOCH - 5000)
    verdict = {
        ConditionStatus.TRUE: DEGRADED,
        ConditionStatus.FALSE: FAILED,
        ConditionStatus.UNKNOWN: UNKNOWN,
    }[status]
    found = seen([(UNKNOWN, 60), (verdict, 1000)], knowing(before))
    assert changes(found) == [(0, status.value)]
    assert found[-1][1] is not None
    assert found[-1][1].transition == EPOCH - 5000


def test_nothing_is_decided_before_it_is_known_what_was_told_before() -> None:
    memory = ConditionMemory()
    for seconds in range(0, 400, 5):
        memory = watch(memory, view(OK, seconds), HOLDS)
    assert memory.condition is None
    bad = Condition(ConditionStatus.FALSE, "NvlinkLinkDown", "", EPOCH - 60)
    # It has been looked at for long enough, and that counts.
    memory = watch(learned(memory, bad), view(OK, 400), HOLDS)
    assert memory.condition is not None
    assert (memory.condition.status, memory.condition.transition) == (ConditionStatus.TRUE, EPOCH + 400)


HEALTHS = st.sampled_from(list(Health))
SPANS = st.lists(st.tuples(HEALTHS, st.integers(1, 80).map(lambda n: n * 5.0)), min_size=1, max_size=30)
BEFORE = st.none() | st.sampled_from(list(ConditionStatus)).map(
    lambda s: Condition(s, "Before", "", EPOCH - 1000)
)


@given(SPANS, BEFORE)
def test_false_only_after_failed_was_held(
    spans: list[tuple[Health, float]], before: Condition | None
) -> None:
    found = seen(spans, knowing(before))
    healths = [health for health, seconds in spans for _ in range(int(seconds / 5))]
    was = before.status if before else None
    for number, (at, condition) in enumerate(found):
        if condition is not None and condition.status is not was:
            was = condition.status
            span = healths[: number + 1]
            if was is ConditionStatus.FALSE:
                assert set(span[-int(HOLDS.failed / 5) - 1 :]) == {FAILED}
                assert at >= HOLDS.failed
            elif was is ConditionStatus.TRUE:
                hold = HOLDS.failed if before is None and number * 5 < HOLDS.recovered else HOLDS.recovered
                assert not {FAILED, UNKNOWN} & set(span[-int(hold / 5) - 1 :]) or before is None
            else:
                assert not {OK, DEGRADED} & set(span[-int(HOLDS.unknown / 5) - 1 :]) or (
                    FAILED not in span[-int(HOLDS.unknown / 5) - 1 :]
                )


@given(SPANS, BEFORE)
def test_it_never_changes_faster_than_its_holds(
    spans: list[tuple[Health, float]], before: Condition | None
) -> None:
    found = changes(seen(spans, knowing(before)))
    for (first, _), (second, status) in pairwise(found):
        hold = {"False": HOLDS.failed, "True": HOLDS.recovered, "Unknown": HOLDS.unknown}[status]
        assert second - first >= hold if status != "Unknown" else second - first >= HOLDS.failed
    # There and back: a node that is drained is not drained again sooner than this.
    bad = [at for at, status in found if status == "False"]
    assert all(later - at >= HOLDS.failed + HOLDS.unknown for at, later in pairwise(bad))


@given(SPANS, BEFORE)
def test_the_transition_moves_with_the_status_only(
    spans: list[tuple[Health, float]], before: Condition | None
) -> None:
    was = before
    for at, condition in seen(spans, knowing(before)):
        if was is not None and condition is not None:
            same = condition.status is was.status
            assert condition.transition == (was.transition if same else EPOCH + at)
        was = condition


@given(SPANS)
def test_a_node_that_is_never_ready_is_never_true(spans: list[tuple[Health, float]]) -> None:
    worse = [(max(health, UNKNOWN), seconds) for health, seconds in spans]
    assert "True" not in {status for _, status in changes(seen(worse))}
