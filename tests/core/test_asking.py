"""Asking one GPU, and taking typed values out of the answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.scripted import ScriptedNvml
from tests.core.strategies import ABSENT, JSON
from wirewatch.core.nvml import (
    Asked,
    Supported,
    as_float,
    as_int,
    as_ints,
    as_str,
    ask_gpu,
    member,
    whole_failure,
)
from wirewatch.core.ports import Question
from wirewatch.core.types import Absent, Json, Why

POWER, NAME, FAN = Question("PowerUsage"), Question("Name"), Question("FanSpeed")
ALL = (POWER, NAME, FAN)
TABLE: dict[Question, Json | Absent] = {POWER: 78_251, NAME: "NVIDIA H200"}
LOST = Absent(Why.LOST, "fallen off the bus", 15)
UNSUPPORTED = Absent(Why.UNSUPPORTED, "not supported by this device", 3)


def _ask(nvml: ScriptedNvml, known: Supported) -> Asked:
    asked = ask_gpu(nvml, "GPU-0", ALL, known)
    assert isinstance(asked, Asked)
    return asked


def test_answers_come_back_with_their_questions() -> None:
    asked = _ask(ScriptedNvml(TABLE), Supported())
    assert asked.whole(POWER) == asked.number(POWER) == asked.json(POWER) == 78_251
    assert asked.text(NAME) == "NVIDIA H200"


def test_an_unsupported_question_is_asked_once_in_a_session_and_reads_as_unsupported_ever_after() -> None:
    nvml = ScriptedNvml(TABLE)
    first = _ask(nvml, Supported())
    second = _ask(nvml, first.supported)
    third = _ask(nvml, second.supported)
    assert nvml.asked == [ALL, (POWER, NAME), (POWER, NAME)]
    for asked in (first, second, third):
        fan = asked.whole(FAN)
        assert isinstance(fan, Absent)
        assert fan.why is Why.UNSUPPORTED


def test_a_new_session_asks_everything_again() -> None:
    nvml = ScriptedNvml(TABLE)
    first = _ask(nvml, Supported())
    nvml.number += 1
    nvml.table[FAN] = 30
    second = _ask(nvml, first.supported)
    assert nvml.asked[1] == ALL
    assert second.whole(FAN) == 30


def test_only_unsupported_questions_are_left_out_next_time() -> None:
    nvml = ScriptedNvml(TABLE | {FAN: Absent(Why.TIMEOUT, "the driver timed out", 10)})
    _ask(nvml, _ask(nvml, Supported()).supported)
    assert nvml.asked == [ALL, ALL]


def test_a_gpu_of_which_nothing_could_be_read_is_one_failure() -> None:
    assert ask_gpu(ScriptedNvml(dict.fromkeys(ALL, LOST)), "GPU-0", ALL, Supported()) == LOST


def test_a_gpu_that_answers_one_question_is_not_lost() -> None:
    asked = _ask(ScriptedNvml({POWER: 1, NAME: LOST}), Supported())
    assert asked.text(NAME) == LOST


def test_a_gpu_that_supports_none_of_the_questions_is_not_lost() -> None:
    asked = _ask(ScriptedNvml({}), Supported())
    assert asked.whole(POWER) == UNSUPPORTED


LIMIT = Question("PowerManagementLimit")
ONCE = (LIMIT,)


def _ask_once(nvml: ScriptedNvml, known: Supported) -> Asked:
    asked = ask_gpu(nvml, "GPU-0", (POWER,), known, once=ONCE)
    assert isinstance(asked, Asked)
    return asked


def test_what_never_changes_is_asked_once_a_session_and_known_in_every_poll() -> None:
    nvml = ScriptedNvml(TABLE | {LIMIT: 700_000})
    known, limits = Supported(), []
    for _ in range(3):
        asked = _ask_once(nvml, known)
        known = asked.supported
        limits.append(asked.whole(LIMIT))
    assert nvml.asked == [(POWER, LIMIT), (POWER,), (POWER,)]
    assert limits == [700_000] * 3


def test_what_never_changes_is_asked_again_in_a_new_session() -> None:
    nvml = ScriptedNvml(TABLE | {LIMIT: 700_000})
    known = _ask_once(nvml, Supported()).supported
    nvml.number += 1
    nvml.table[LIMIT] = 500_000
    assert _ask_once(nvml, known).whole(LIMIT) == 500_000


def test_what_never_changes_is_asked_until_it_was_told() -> None:
    slow = Absent(Why.TIMEOUT, "the driver timed out", 10)
    nvml = ScriptedNvml(TABLE | {LIMIT: slow})
    first = _ask_once(nvml, Supported())
    assert first.whole(LIMIT) == slow
    nvml.table[LIMIT] = 700_000
    assert _ask_once(nvml, first.supported).whole(LIMIT) == 700_000


def test_what_never_changes_and_is_not_supported_is_not_asked_again() -> None:
    nvml = ScriptedNvml(TABLE)
    known = Supported()
    for _ in range(3):
        asked = _ask_once(nvml, known)
        known = asked.supported
        limit = asked.whole(LIMIT)
        assert isinstance(limit, Absent)
        assert limit.why is Why.UNSUPPORTED
    assert nvml.asked == [(POWER, LIMIT), (POWER,), (POWER,)]


def test_a_gpu_that_only_told_what_never_changes_earlier_is_lost_all_the_same() -> None:
    nvml = ScriptedNvml(TABLE | {LIMIT: 700_000})
    known = _ask_once(nvml, Supported()).supported
    nvml.table = dict.fromkeys((POWER, LIMIT), LOST)
    assert ask_gpu(nvml, "GPU-0", (POWER,), known, once=ONCE) == LOST


VALUES = st.lists(st.one_of(JSON, ABSENT), max_size=8)


@given(VALUES)
def test_the_whole_failed_when_something_failed_and_nothing_was_read(values: list[Json | Absent]) -> None:
    failures = [v for v in values if isinstance(v, Absent) and v.why is not Why.UNSUPPORTED]
    read = [v for v in values if not isinstance(v, Absent)]
    whole = whole_failure(values)
    if failures and not read:
        assert whole in failures
    else:
        assert whole is None


@given(JSON)
def test_only_a_whole_number_passes_for_one(value: Json) -> None:
    told = as_int(value)
    if type(value) is int:
        assert told == value
    else:
        assert isinstance(told, Absent)
        assert told.why is Why.MALFORMED


@given(JSON)
def test_only_a_number_passes_for_a_number(value: Json) -> None:
    told = as_float(value)
    if type(value) in {int, float}:
        assert isinstance(told, float)
        assert told == pytest.approx(value)
    else:
        assert isinstance(told, Absent)
        assert told.why is Why.MALFORMED


@given(JSON)
def test_only_a_text_passes_for_a_text(value: Json) -> None:
    told = as_str(value)
    assert told == value if isinstance(value, str) else isinstance(told, Absent)


@given(st.one_of(JSON, st.lists(st.integers(), max_size=4)), st.integers(0, 4))
def test_only_exactly_so_many_whole_numbers_pass_for_a_list_of_them(value: Json, length: int) -> None:
    told = as_ints(value, length)
    fits = isinstance(value, list) and len(value) == length and all(type(n) is int for n in value)
    if fits:
        assert told == value
    else:
        assert isinstance(told, Absent)
        assert told.why is Why.MALFORMED


@pytest.mark.parametrize("value", [True, False])
def test_yes_and_no_are_not_one_and_zero(*, value: bool) -> None:
    assert isinstance(as_int(value), Absent)
    assert isinstance(as_float(value), Absent)
    assert isinstance(as_ints([value], 1), Absent)


@given(ABSENT)
def test_a_value_that_is_not_there_keeps_its_own_reason(absent: Absent) -> None:
    told = (
        as_int(absent),
        as_float(absent),
        as_str(absent),
        as_ints(absent, 2),
        member(absent, "x"),
    )
    assert all(t is absent for t in told)


def test_a_member_is_taken_out_of_a_structure_and_a_missing_one_is_named() -> None:
    assert member({"busId": "0000:1b:00.0"}, "busId") == "0000:1b:00.0"
    told = member({"busId": "0000:1b:00.0"}, "bus")
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED
    assert "'bus'" in told.detail


@given(JSON.filter(lambda value: not isinstance(value, dict)))
def test_what_is_no_structure_has_no_members(value: Json) -> None:
    told = member(value, "x")
    assert isinstance(told, Absent)
    assert told.why is Why.MALFORMED
