"""Asking one GPU, and taking typed values out of the answers."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.core.scripted import ScriptedNvml
from tests.node.core.strategies import ABSENT, JSON
from tests.rows import each
from wirewatch.core.nvml import (
    COUNT,
    FABRIC_STATES,
    FABRIC_SUMMARIES,
    Asked,
    MigMode,
    Supported,
    as_float,
    as_int,
    as_ints,
    as_mig_mode,
    as_process_memory,
    as_str,
    ask_gpu,
    ber,
    count_gpus,
    fabric_troubles,
    identify,
    member,
    whole_failure,
)
from wirewatch.core.ports import Answer, Gpu, Question
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


def test_what_never_changes_is_asked_until_it_was_reported() -> None:
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


def test_a_gpu_that_only_gave_what_never_changes_earlier_is_lost_all_the_same() -> None:
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


@each(
    ("answer", "memory"),
    [
        ([{"pid": 7, "usedGpuMemory": 5}, {"pid": 8, "usedGpuMemory": 0}], {7: 5, 8: 0}),
        ([{"pid": 7, "usedGpuMemory": 2**64 - 1}, {"pid": 8, "usedGpuMemory": 1}], {8: 1}),
        ([{"pid": 7}, {"usedGpuMemory": 1}, {"pid": True, "usedGpuMemory": 1}, None, 3], {}),
        ([{"pid": 7, "usedGpuMemory": None}, {"pid": 8, "usedGpuMemory": -1}], {}),
        ([], {}),
        (Absent(Why.DENIED), {}),
        ({"pid": 7}, {}),
    ],
)
def test_memory_of_processes_is_known_where_the_driver_gives_a_number(
    answer: Json | Absent, memory: dict[int, int]
) -> None:
    assert as_process_memory(answer) == memory


@given(JSON)
def test_any_answer_has_memory_of_processes_or_none(value: Json) -> None:
    assert all(type(used) is int and used >= 0 for used in as_process_memory(value).values())


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


class Node:
    """Three GPUs; `broken` holds answers that a GPU gives instead of its own."""

    def __init__(self) -> None:
        self.broken: dict[tuple[int, str], Json | Absent] = {}

    def ask(self, scope: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        if scope is None:
            assert list(questions) == [COUNT]
            return [Answer(3)]
        index = int(scope.removeprefix("index:"))
        return [Answer(self.broken.get((index, q.call), self._own(index, q.call))) for q in questions]

    def lose(self, index: int) -> None:
        self.broken |= {(index, call): LOST for call in ("UUID", "PciInfo", "Name")}

    def gpus(self, known: Sequence[Gpu] = ()) -> list[Gpu]:
        count = count_gpus(self.ask)
        assert isinstance(count, int)
        return [identify(self.ask, i, known[i] if known else None) for i in range(count)]

    @staticmethod
    def _own(index: int, call: str) -> Json:
        values: dict[str, Json] = {
            "UUID": f"GPU-{index}",
            "PciInfo": {"busId": f"00000000:{0x1B + index:02X}:00.0"},
            "Name": "NVIDIA H200",
        }
        return values[call]


def test_every_gpu_gives_its_uuid_its_name_and_its_address_as_the_kernel_writes_it() -> None:
    assert Node().gpus() == [
        Gpu(0, "GPU-0", "0000:1b:00.0", "NVIDIA H200"),
        Gpu(1, "GPU-1", "0000:1c:00.0", "NVIDIA H200"),
        Gpu(2, "GPU-2", "0000:1d:00.0", "NVIDIA H200"),
    ]


def test_a_lost_gpu_in_the_middle_hides_no_other_and_keeps_its_known_name() -> None:
    node = Node()
    before = node.gpus()
    node.lose(1)
    now = node.gpus(before)
    assert [g.key for g in now] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [g.pci for g in now] == [g.pci for g in before]
    assert [g.absent for g in now] == [None, LOST, None]


def test_a_gpu_lost_from_the_first_look_on_goes_by_its_index() -> None:
    node = Node()
    node.lose(1)
    gpu = node.gpus()[1]
    assert gpu.key == "index:1"
    assert gpu.absent == LOST


def test_a_gpu_that_answers_again_is_not_lost_any_more() -> None:
    node = Node()
    node.lose(1)
    lost = node.gpus()
    node.broken.clear()
    assert node.gpus(lost) == Node().gpus()


def test_another_gpu_in_the_same_place_is_another_gpu() -> None:
    node = Node()
    before = node.gpus()
    node.broken[1, "UUID"] = "GPU-new"
    assert node.gpus(before)[1].key == "GPU-new"


@each(
    ("told", "kernel"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1B:00.0", "0000:1b:00.0"),
        ("0000000A:AF:10.1", "000a:af:10.1"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("", ""),
        ("nonsense", ""),
        ("xyz:00:00.0", ""),
        (7, ""),
    ],
)
def test_a_pci_address_is_normalised_and_nonsense_is_none(told: Json, kernel: str) -> None:
    node = Node()
    node.broken[0, "PciInfo"] = {"busId": told}
    assert node.gpus()[0].pci == kernel


@pytest.mark.parametrize("told", [None, [], "text", LOST])
def test_a_gpu_without_a_readable_address_is_still_a_gpu(told: Json | Absent) -> None:
    node = Node()
    node.broken[0, "PciInfo"] = told
    assert node.gpus()[0] == Gpu(0, "GPU-0", "", "NVIDIA H200")


@each("count", [LOST, "8", True, None, -1, 2**32 - 1])
def test_a_count_that_is_no_number_of_gpus_is_absent(count: Json | Absent) -> None:
    told = count_gpus(lambda _scope, _questions: [Answer(count)])
    assert isinstance(told, Absent)


def test_an_address_and_a_name_that_cannot_be_read_now_are_taken_from_when_they_were() -> None:
    node = Node()
    before = node.gpus()
    slow = Absent(Why.TIMEOUT, "the driver timed out", 10)
    node.broken |= {(1, "PciInfo"): slow, (1, "Name"): slow}
    assert node.gpus(before)[1] == before[1]


HEALTHY = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8


def _packed(mantissa: int, exponent: int) -> int:
    return mantissa << 8 | exponent


def test_a_raw_error_rate_of_zero_is_zero() -> None:
    assert ber(0) == 0.0


def test_the_sentinel_for_nothing_measured_is_zero() -> None:
    assert ber(_packed(15, 255)) == 0.0


@pytest.mark.parametrize(
    ("mantissa", "exponent", "rate"), [(1, 0, 1.0), (5, 8, 5e-8), (1, 15, 1e-15), (15, 12, 15e-12)]
)
def test_an_error_rate_is_its_mantissa_times_ten_to_minus_its_exponent(
    mantissa: int, exponent: int, rate: float
) -> None:
    assert ber(_packed(mantissa, exponent)) == pytest.approx(rate, rel=1e-12)


@given(st.integers(0, 2**64 - 1))
def test_an_error_rate_is_a_number_from_zero_to_fifteen_for_any_raw_value(raw: int) -> None:
    assert 0.0 <= ber(raw) <= 15.0


def test_a_fabric_mask_that_supports_nothing_complains_of_nothing() -> None:
    assert fabric_troubles(0) == ()


def test_a_healthy_fabric_mask_is_not_zero_and_complains_of_nothing() -> None:
    assert HEALTHY != 0
    assert fabric_troubles(HEALTHY) == ()


@pytest.mark.parametrize(
    ("shift", "name"),
    [
        (0, "degraded_bandwidth"),
        (2, "route_recovery"),
        (4, "route_unhealthy"),
        (6, "access_timeout_recovery"),
    ],
)
def test_each_bad_yes_or_no_field_is_named_alone(shift: int, name: str) -> None:
    assert fabric_troubles(HEALTHY & ~(3 << shift) | 1 << shift) == (name,)


@each(
    ("configuration", "name"),
    [
        (2, "incorrect_sysguid"),
        (3, "incorrect_chassis"),
        (4, "no_partition"),
        (5, "insufficient_nvlinks"),
        (6, "incompatible_firmware"),
        (7, "invalid_location"),
    ],
)
def test_each_wrong_configuration_is_named(configuration: int, name: str) -> None:
    assert fabric_troubles(HEALTHY & 0xFF | configuration << 8) == (name,)


def test_a_wrong_configuration_of_next_year_is_still_named_by_its_number() -> None:
    (told,) = fabric_troubles(HEALTHY & 0xFF | 14 << 8)
    assert "14" in told


@given(st.integers(0, 2**32 - 1))
def test_any_mask_is_understood_and_a_trouble_never_hides_another(mask: int) -> None:
    troubles = fabric_troubles(mask)
    fields = [mask >> shift & 3 for shift in (0, 2, 4, 6)]
    assert len(set(troubles)) == len(troubles) == fields.count(1) + (mask >> 8 & 0xF > 1)


@pytest.mark.parametrize("names", [FABRIC_STATES, FABRIC_SUMMARIES])
def test_names_of_states_can_be_label_values(names: tuple[str, ...]) -> None:
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.islower() for name in names)


@each(
    ("answer", "mode"),
    [
        ([0, 0], MigMode(now=False, later=False)), ([1, 0], MigMode(now=True, later=False)),
        ([0, 1], MigMode(now=False, later=True)), ([1, 1], MigMode(now=True, later=True)),
        (Absent(Why.UNSUPPORTED, "knows no MIG", 3), MigMode(now=False, later=False)),
    ],
)  # fmt: skip
def test_mig_is_read_for_now_and_for_later(answer: Json | Absent, mode: MigMode) -> None:
    assert as_mig_mode(answer) == mode


@each("answer", [[1], [1, 0, 0], 1, None, ["1", "0"], Absent(Why.TIMEOUT, "hangs")])
def test_a_mig_mode_that_cannot_be_read_is_not_known(answer: Json | Absent) -> None:
    assert isinstance(as_mig_mode(answer), Absent)
