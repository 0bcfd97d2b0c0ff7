"""When the next request is due: no hot loop, no stampede, no news lost."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.client import HttpReply
from wirewatch.kubernetes.apiserver import (
    LONGEST,
    LONGEST_FOR_PEOPLE,
    LONGEST_WAIT,
    MESSAGE_INTERVAL,
    SPREAD,
    ConditionReport,
    Outcome,
    Pace,
    RequestResult,
    begin,
    changed,
    failed,
    outcome_of,
    retry_after,
    samples,
    succeeded,
)
from wirewatch.kubernetes.condition import Condition, ConditionStatus

CHANCE = st.floats(0, 1, exclude_max=True)
BAD = st.sampled_from([result for result in RequestResult if result is not RequestResult.OK])


@each(
    ("status", "result"),
    [(200, "ok"), (201, "ok"), (301, "strange"), (307, "strange"), (400, "rejected"), (401, "unauthorized"),
     (403, "forbidden"), (404, "not_found"), (409, "conflict"), (415, "rejected"), (422, "rejected"),
     (429, "throttled"), (500, "server_error"), (503, "server_error"), (504, "server_error"), (0, "strange")],
)  # fmt: skip
def test_each_status_has_its_result(status: int, result: str) -> None:
    assert outcome_of(HttpReply(status, {}, b""), 0.0).result.value == result


def test_what_the_server_says_is_reported() -> None:
    outcome = outcome_of(
        HttpReply(403, {"retry-after": "7"}, b'{"message": "nodes \\"gpu-1\\" is forbidden"}'), 0.0
    )
    assert outcome == Outcome(RequestResult.FORBIDDEN, '403: nodes "gpu-1" is forbidden', 7.0)


@each(
    ("text", "seconds"),
    [("30", 30.0), (" 1.5 ", 1.5), ("-5", 0.0), ("1e9", LONGEST_WAIT), ("nan", None), ("inf", None),
     ("soon", None), ("", None), ("Sat, 21 Nov 2026 01:05:00 GMT", 10.0), ("\xff", None),
     ("Sat, 21 Nov 2026 01:00:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_within_an_hour(text: str, seconds: float | None) -> None:
    assert retry_after(text, 1_795_223_090.0) == seconds


def test_a_server_that_is_away_for_an_hour_is_asked_less_and_less() -> None:
    pace, times = begin(0.0, 0.5), list[float]()
    while pace.latest < 3600:
        times.append(pace.latest)
        pace = failed(pace, pace.latest, Outcome(RequestResult.UNREACHABLE), 0.5)
    waits = [later - one for one, later in pairwise(times)]
    assert waits[:6] == [1.5, 3, 6, 12, 24, 45]
    assert set(waits[6:]) == {45}
    assert len(times) < 90


@given(st.lists(st.tuples(BAD, CHANCE, st.none() | st.floats(0, LONGEST_WAIT)), min_size=1, max_size=40))
def test_a_failure_waits_and_never_for_ever_and_never_less_than_asked(
    failures: list[tuple[RequestResult, float, float | None]],
) -> None:
    pace = begin(0.0, 0.0)
    for result, chance, asked in failures:
        now = pace.latest
        pace = failed(pace, now, Outcome(result, "", asked), chance)
        wait = pace.latest - now
        assert wait >= 1.0
        assert wait >= (asked or 0.0) - 1e-6
        assert wait <= max(LONGEST_FOR_PEOPLE, (asked or 0.0) + SPREAD) + 1e-6
        # News does not bring forward what has to wait.
        assert changed(pace, now, 0.0, status=True).latest == pace.latest


def test_what_people_must_repair_is_asked_for_less_often() -> None:
    pace = Pace(0, 0, failures=50)
    assert failed(pace, 0, Outcome(RequestResult.FORBIDDEN), 1.0).latest == LONGEST_FOR_PEOPLE
    assert failed(pace, 0, Outcome(RequestResult.SERVER_ERROR), 1.0).latest == LONGEST


@given(CHANCE)
def test_a_heartbeat_comes_in_its_time_give_or_take_a_tenth(chance: float) -> None:
    pace = succeeded(failed(begin(0, 0), 0, Outcome(RequestResult.CONFLICT), 0), 100.0, 300.0, chance)
    assert 100 + 270 <= pace.latest <= 100 + 330
    assert pace.failures == 0


def test_a_node_that_wrote_nothing_yet_waits_for_no_minute() -> None:
    away = failed(begin(0.0, 0.0), 0.0, Outcome(RequestResult.THROTTLED, "", 500.0), 0.0)
    assert changed(replace(away, earliest=0.0), 7.0, 0.5, status=False).latest == 12.0


def test_the_pace_in_seconds() -> None:
    """Each figure by itself, and not by its name."""
    assert begin(100.0, 0.5).latest == 105.0
    wrote = succeeded(begin(0.0, 0.0), 100.0, 300.0, 0.5)
    assert (wrote.earliest, wrote.latest, wrote.wrote) == (100.0, 400.0, 100.0)
    assert changed(wrote, 110.0, 0.5, status=True).latest == 115.0
    assert changed(wrote, 110.0, 0.5, status=False).latest == 160.0
    assert changed(wrote, 170.0, 0.5, status=False).latest == 175.0
    assert changed(wrote, 399.0, 0.5, status=False).latest == 400.0
    assert changed(replace(wrote, earliest=130.0), 110.0, 0.5, status=True).latest == 130.0
    asked = failed(wrote, 0.0, Outcome(RequestResult.THROTTLED, "", 20.0), 0.5)
    assert (asked.latest, asked.earliest, asked.failures) == (25.0, 25.0, 1)
    assert retry_after("4000", 0.0) == 3600.0


@pytest.mark.parametrize(
    ("condition", "statuses", "since"),
    [
        (None, [0, 0, 0], 0.0),
        (Condition(ConditionStatus.FALSE, "NvlinkLinkDown", "words", 7.0), [0, 1, 0], 7.0),
    ],
)
def test_the_series_of_a_condition_and_of_none(
    condition: Condition | None, statuses: list[int], since: float
) -> None:
    report = ConditionReport(condition, 9.0, {RequestResult.OK: 3, RequestResult.FORBIDDEN: 2})
    assert [one.value for one in samples(report)] == [*statuses, since, 9.0, 3, 2]


@given(CHANCE)
def test_a_new_status_goes_out_within_seconds_and_words_at_most_once_a_minute(chance: float) -> None:
    pace = succeeded(begin(0, 0), 100.0, 300.0, 0.5)
    assert 105 <= changed(pace, 105.0, chance, status=True).latest <= 105 + SPREAD
    words = changed(pace, 105.0, chance, status=False).latest
    assert 100 + MESSAGE_INTERVAL <= words <= 105 + MESSAGE_INTERVAL


def test_five_thousand_nodes_that_start_or_come_back_at_once_are_spread() -> None:
    draws = [number / 5000 for number in range(5000)]
    starts = [begin(0.0, chance).latest for chance in draws]
    assert max(starts[n + 600] - starts[n] for n in range(4400)) > 1  # at most 600 a second
    away = Pace(0, 0, failures=10)
    back = [failed(away, 0, Outcome(RequestResult.UNREACHABLE), chance).latest for chance in draws]
    assert min(back) >= LONGEST / 2
    assert sum(30 <= at < 31 for at in back) < 200
    beats = [succeeded(away, 0, 300.0, chance).latest for chance in draws]
    assert sum(300 <= at < 301 for at in beats) < 100
