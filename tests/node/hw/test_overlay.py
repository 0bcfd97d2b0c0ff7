"""Overlays: each action, when and where it applies, and what is refused."""

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from tests.node.hw.recordings import Time, Told, one_change, overlay_file, player, recording
from tests.rows import each
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Health, Json, Subject, Why
from wirewatch.hw.nvml.protocol import Source
from wirewatch.hw.overlay import (
    AnswerChange,
    Expected,
    NotRecorded,
    Overlay,
    OverlayError,
    Player,
    ReplayNvml,
    is_counter,
    load_overlay,
    open_player,
)
from wirewatch.hw.recording import Key

POWER: Key = ("nvml", "gpu0/PowerUsage()")
BYTES: Key = ("nvml", "gpu0/Field(138,all)")
NAME: Key = ("nvml", "gpu0/Name()")
BROKEN: Key = ("nvml", "gpu0/FanSpeed()")
RATE: Key = ("sysfs", "read /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data")
LOST = Absent(Why.LOST, "GPU has fallen off the bus or is otherwise inaccessible (NVML error 15)", 15)
SMALL = recording(
    [0.0, 100.0],
    {
        POWER: {0: 100, 1: 200},
        BYTES: {0: 5},
        NAME: {0: "NVIDIA H200"},
        BROKEN: {0: LOST},
        RATE: {0: "1000"},
    },
)


def play(overlay: str, key: Key = POWER, seconds: float = 0.0) -> Json | Absent:
    return player(SMALL, Time(seconds), overlay).answer(key).value


def _absent(value: Json | Absent) -> Absent:
    assert isinstance(value, Absent)
    return value


@pytest.mark.parametrize(
    ("line", "value"), [("set = 7", 7), ('set = "text"', "text"), ("set = [1, 2]", [1, 2])]
)
def test_set_says_another_value(tmp_path: Path, line: str, value: Json) -> None:
    assert play(one_change(tmp_path, line)) == value


def test_set_answers_a_question_that_was_never_recorded(tmp_path: Path) -> None:
    overlay = one_change(tmp_path, "set = 3", "gpu0/NoSuchCall()")
    assert play(overlay, ("nvml", "gpu0/NoSuchCall()")) == 3


def test_add_says_more_of_what_was_recorded(tmp_path: Path) -> None:
    overlay = one_change(tmp_path, "add = 7")
    assert [play(overlay, seconds=s) for s in (0, 100)] == [107, 207]


def test_add_adds_to_a_number_in_a_file(tmp_path: Path) -> None:
    assert play(one_change(tmp_path, "add = 7", RATE[1], "sysfs"), RATE) == "1007"


@pytest.mark.parametrize(("key", "value"), [(NAME, "NVIDIA H200"), (BROKEN, LOST)])
def test_nothing_is_added_to_what_is_no_number(tmp_path: Path, key: Key, value: Json | Absent) -> None:
    assert play(one_change(tmp_path, "add = 7", key[1]), key) == value


def test_ramp_says_more_with_each_second_since_it_began(tmp_path: Path) -> None:
    overlay = one_change(tmp_path, "ramp = 10\nfrom = 20", BYTES[1])
    assert [play(overlay, BYTES, s) for s in (0, 20, 21, 50)] == [5, 5, 15, 305]


def test_code_fails_with_an_nvml_code(tmp_path: Path) -> None:
    assert play(one_change(tmp_path, "code = 15")) == LOST


def test_errno_fails_as_a_file_does(tmp_path: Path) -> None:
    absent = _absent(play(one_change(tmp_path, 'errno = "EINVAL"', RATE[1], "sysfs"), RATE))
    assert (absent.why, absent.code) == (Why.UNSUPPORTED, errno.EINVAL)


def test_slow_answers_the_same_and_not_before_its_time(tmp_path: Path) -> None:
    overlay = one_change(tmp_path, "slow = 0.05")
    started = time.monotonic()
    assert play(overlay) == 100
    assert time.monotonic() - started >= 0.05


def test_raise_breaks_with_its_text(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of cheese"):
        play(one_change(tmp_path, 'raise = "out of cheese"'))


def test_a_change_applies_from_its_beginning_until_before_its_end(tmp_path: Path) -> None:
    overlay = one_change(tmp_path, "set = 1\nfrom = 10\nuntil = 20")
    assert [play(overlay, seconds=s) for s in (0, 9.9, 10, 19.9, 20, 50)] == [100, 100, 1, 1, 100, 100]


@pytest.mark.parametrize(
    ("match", "applies"),
    [
        ("gpu0/PowerUsage()", True),
        ("gpu0/*", True),
        ("gpu?/PowerUsage()", True),
        ("*", True),
        ("gpu1/*", False),
        ("PowerUsage()", False),
        ("gpu0/powerusage()", False),
        ("gpu[0-3]/PowerUsage()", True),
        ("gpu[4-7]/PowerUsage()", False),
    ],
)
def test_a_pattern_matches_the_whole_question_as_a_shell_would(
    tmp_path: Path, match: str, *, applies: bool
) -> None:
    assert play(one_change(tmp_path, "set = 1", match)) == (1 if applies else 100)


def test_a_change_applies_to_its_own_port_only(tmp_path: Path) -> None:
    assert play(one_change(tmp_path, "set = 1", "*", "sysfs")) == 100


def test_changes_of_one_question_follow_one_another_in_order(tmp_path: Path) -> None:
    first = one_change(tmp_path, "set = 1000")
    second = overlay_file(
        tmp_path,
        """
        about = "two changes"
        [[change]]
        port = "nvml"
        match = "gpu0/*"
        add = 1
        [[change]]
        port = "nvml"
        match = "gpu0/PowerUsage()"
        add = 10
        """,
        "second",
    )
    both = player(SMALL, Time(), first, second)
    assert both.answer(POWER).value == 1011
    assert both.answer(BYTES).value == 6


def test_an_overlay_is_named_after_its_file_and_says_what_it_is_about(tmp_path: Path) -> None:
    path = overlay_file(tmp_path, 'about = "link 7 of GPU 2 dies"\nchange = []', "link-dies")
    overlay = load_overlay(path)
    assert (overlay.name, overlay.about, overlay.changes) == ("link-dies", "link 7 of GPU 2 dies", ())


def _refusal(path: str) -> str:
    with pytest.raises(OverlayError) as caught:
        load_overlay(path)
    text = str(caught.value)
    assert "\n" not in text
    assert path in text
    return text


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", "set"),
        ("set = 1\nadd = 2", "set"),
        ("set = 1\nunless = 3", "unless"),
        ("sett = 1", "sett"),
        ('errno = "EBANANA"', "EBANANA"),
        ("errno = 5", "5"),
    ],
)
def test_a_change_that_is_not_understood_is_refused_and_named(tmp_path: Path, line: str, named: str) -> None:
    assert named in _refusal(one_change(tmp_path, line))


@pytest.mark.parametrize(
    "text",
    [
        "this is not TOML",
        "",
        'about = "no change"',
        "change = 3",
        "change = []\nversion = 2",
        '[[change]]\nmatch = "*"\nset = 1',
        '[[change]]\nport = "nvml"\nset = 1',
    ],
)
def test_a_file_that_is_no_overlay_is_refused(tmp_path: Path, text: str) -> None:
    _refusal(overlay_file(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    _refusal(str(tmp_path / "nothing.toml"))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    _refusal(str(tmp_path))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fault.toml"
    path.write_bytes(b"\xff\xfe\x00")
    _refusal(str(path))


@pytest.mark.parametrize(
    "line",
    [
        'set = 1\nfrom = "noon"',
        "set = 1\nuntil = []",
        'add = "many"',
        'ramp = "steep"',
        'code = "lost"',
        'slow = "very"',
        "slow = -1",
        'errno = "errorcode"',
        "code = 1.5",
        "code = true",
        "add = true",
        "hang = false",
        "crash = 1",
        "raise = 5",
        "set = 1\nat = 3",
        'ramp = 1\nat = "a/b"',
    ],
)
def test_a_change_with_a_value_of_the_wrong_kind_is_refused_when_it_is_loaded(
    tmp_path: Path, line: str
) -> None:
    _refusal(one_change(tmp_path, line))


def test_a_change_that_is_no_table_is_refused(tmp_path: Path) -> None:
    _refusal(overlay_file(tmp_path, "change = [1]"))


def test_a_change_of_a_port_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    _refusal(one_change(tmp_path, "set = 1", port="nvlm"))


def changed(
    action: str, argument: Any, value: Json | Absent, at: str = "", key: Key = POWER
) -> Json | Absent:
    """The answer as one change makes it."""
    overlay = Overlay("drawn", "", (AnswerChange("nvml", "*", action, argument, at=at),))
    return Player(recording([0.0], {POWER: {0: value}}), lambda: 0.0, [overlay]).answer(key).value


@each(
    ("action", "argument", "value", "told"),
    [
        ("scale", 0.5, 101, 50),
        ("scale", 0.5, 101.0, 50.5),
        ("scale", 0.5, "1001", "500"),
        ("add", 1.5, 100, 101.5),
        ("add", 1.5, "100", "101"),
        ("add", 1, True, True),
        ("add", 1, "12 W", "12 W"),
        ("add", 1, [1], [1]),
    ],
)
def test_numbers_are_changed_and_whole_ones_stay_whole_when_they_are_scaled(
    action: str, argument: float, value: Json, told: Json
) -> None:
    assert changed(action, argument, value) == told


def test_members_of_an_answer_are_changed_where_it_has_them() -> None:
    value: Json = {"links": [{"rate": 2, "up": True}, {"rate": 4}], "rate": 1}
    assert changed("scale", 2, value, "links/*/rate") == {
        "links": [{"rate": 4, "up": True}, {"rate": 8}], "rate": 1,
    }  # fmt: skip
    assert changed("set", 9, value, "links/1/rate") == {
        "links": [{"rate": 2, "up": True}, {"rate": 9}], "rate": 1,
    }  # fmt: skip
    assert changed("add", 1, value, "links/0/up/rate") == value
    others: Json = {"links": [{"rate": 2}], "others": [{"rate": 3}]}
    assert changed("scale", 2, others, "links/*/rate") == {
        "links": [{"rate": 4}], "others": [{"rate": 3}],
    }  # fmt: skip
    assert changed("set", 9, LOST, "links/1/rate") == LOST
    assert _absent(changed("set", 1, {}, "a", NAME)).why is Why.MISSING


def test_a_hurried_fault_begins_after_the_lead_and_then_twenty_times_as_fast() -> None:
    times: tuple[tuple[float, float], ...] = ((0.0, 1e9), (60.0, 120.0), (160.0, 1e9), (0.0, 30.0))
    overlay = Overlay("drawn", "", tuple(AnswerChange("nvml", "*", "set", 1, *one) for one in times))
    hurried = overlay.hurried(10.0)
    assert [(one.start, one.until) for one in hurried.changes] == [
        (0.0, 1e9), (10.0, 13.0), (15.0, 1e9), (0.0, 8.5),
    ]  # fmt: skip
    assert (overlay.begun, hurried.begun, Overlay("x", "", ()).begun) == (160.0, 15.0, 0.0)
    assert [one.until for one in overlay.hurried(0.5).changes] == [1e9, 3.5, 1e9, 0.0]


@pytest.mark.parametrize(
    ("start", "until", "steady"),
    [(0.0, 1e9, 100.0), (160.0, 1e9, 160.0), (0.0, 240.0, 240.0), (20.0, 30.0, 100.0)],
)
def test_a_play_is_steady_once_all_has_begun_and_ended(start: float, until: float, steady: float) -> None:
    changes = (AnswerChange("nvml", "*", "set", 1, start, until),)
    assert Player(SMALL, lambda: 0.0, (Overlay("drawn", "", changes),)).steady == steady


@each(
    ("key", "grows"),
    [
        (BYTES, True),
        (RATE, True),
        (POWER, False),
        (("nvml", "gpu0/Field(165,7)"), False),
        (("nvml", "gpu0/PcieReplayCounter()"), True),
        (("nvml", "PcieReplayCounter()"), False),
        (("sysfs", "read /sys/class/net/eth0/carrier"), False),
        (("kmsg", "gpu0/PcieReplayCounter()"), True),
    ],
)
def test_what_grows_in_a_loop_is_known_by_its_question(key: Key, grows: bool) -> None:  # noqa: FBT001
    assert is_counter(key) is grows


def test_a_change_of_a_member_is_loaded(tmp_path: Path) -> None:
    (one,) = load_overlay(one_change(tmp_path, 'scale = 2\nat = "a/b"\nfrom = 0\nuntil = 5')).changes
    assert (one.at, one.start, one.until, one.argument) == ("a/b", 0.0, 5.0, 2)


@pytest.mark.parametrize("action", ["add", "scale", "ramp"])
def test_what_was_never_recorded_and_what_failed_are_only_set(action: str) -> None:
    assert answered(action, 1, NAME).value == Absent(Why.MISSING, f"not in recording small: {NAME[1]}")
    assert answered(action, 1) == Answer(LOST, 1.0)
    assert answered("set", 1) == Answer(1)


def answered(action: str, argument: Any, key: Key = POWER) -> Answer:
    """The answer of a GPU that is lost, with one change, five seconds into the play."""
    overlay = Overlay("drawn", "", (AnswerChange("nvml", "*", action, argument),))
    return Player(recording([0.0], {POWER: {0: LOST}}), lambda: 5.0, [overlay]).answer(key)


FILE: Key = ("sysfs", "read /sys/class/dmi/id/product_name")


@each(
    ("why", "key", "strict", "answer"),
    [
        ("a file that recordings did not ask for at first", FILE, True, "not in recording small"),
        ("any other file", ("sysfs", "read /sys/other"), True, None),
        ("a file's name on another port", ("host", FILE[1]), True, None),
        ("any file where nothing is strict", ("sysfs", "read /sys/other"), False, "not in recording small"),
        ("a port of later", ("kubelet", "Pods()"), True, "recording small has nothing of kubelet"),
    ],
)
def test_what_is_not_recorded_is_an_absence_or_an_error(
    why: str, key: Key, answer: str | None, *, strict: bool
) -> None:
    played = player(SMALL, Time(), strict=strict)
    if answer is None:
        with pytest.raises(NotRecorded):
            played.answer(key)
    else:
        assert answer in str(played.answer(key).value), why


def test_a_later_port_that_a_recording_has_must_have_the_question() -> None:
    played = player(recording([0.0], {("kubelet", "Pods()"): {0: []}}), Time())
    assert played.answer(("kubelet", "Pods()")).value == []
    with pytest.raises(NotRecorded):
        played.answer(("kubelet", "Other()"))


def test_counters_go_on_in_a_loop_and_nothing_else_changes_before_it() -> None:
    time = Time()
    played = player(recording([0.0, 10.0], {RATE: {0: "007", 1: "009"}}), time, loop=True, strict=False)
    assert played.answer(RATE).value == "007"
    time.seconds = 10.0
    assert played.answer(RATE).value == "9"
    assert isinstance(played.answer(("sysfs", f"{RATE[1]}2")).value, Absent)
    odd = player(recording([0.0, 10.0], {RATE: {0: "none", 1: "none"}}), time, loop=True)
    assert odd.answer(RATE).value == "none"


NEWS: Key = ("rings", "Rings()")


@each(
    ("why", "seconds", "loop", "came"),
    [
        ("at first", 0.0, False, [(0, 0, 1)]),
        ("later", 20.0, False, [(0, 0, 1), (0, 1, 2)]),
        ("in the first play of a loop", 20.0, True, [(0, 0, 1), (0, 1, 2)]),
        ("in the second", 30.0, True, [(0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 1)]),
        ("in the third", 70.0, True, [(1, 0, 1), (1, 1, 2), (1, 2, 3), (2, 0, 1), (2, 1, 2)]),
    ],
)
def test_what_came_until_now(
    why: str, seconds: float, came: list[tuple[int, int, int]], *, loop: bool
) -> None:
    small = recording([0.0, 10.0, 30.0], {NEWS: {0: 1, 1: 2, 2: 3}})
    found = player(small, Time(seconds), loop=loop).came(NEWS)
    assert [(one.cycle, one.moment, one.answer.value) for one in found] == came, why
    assert not any(one.changed for one in found)
    assert player(small, Time(seconds)).came(POWER) == ()


@each(
    ("why", "one", "values"),
    [
        ("a value, from its time on", AnswerChange("rings", "*", "add", 5, start=10.0), [1, 7]),
        ("until its time", AnswerChange("rings", "*", "add", 5, until=10.0), [6, 2]),
        ("of another port", AnswerChange("nvml", "*", "add", 5), [1, 2]),
        ("grows with the time at which it came", AnswerChange("rings", "*", "ramp", 2), [1, 22]),
        ("what hangs changes no value", AnswerChange("rings", "*", "hang", argument=True), [1, 2]),
    ],
)
def test_what_came_is_as_overlays_changed_it_then(why: str, one: AnswerChange, values: list[int]) -> None:
    small = recording([0.0, 10.0], {NEWS: {0: 1, 1: 2}})
    found = Player(small, lambda: 100.0, (Overlay("drawn", "", (one,)),)).came(NEWS)
    assert [came.answer.value for came in found] == values, why
    assert [came.changed for came in found] == [
        value != was for value, was in zip(values, (1, 2), strict=True)
    ]


def test_a_gpu_is_known_by_the_uuid_that_nvml_gave_it() -> None:
    told: dict[Key, Told] = {
        ("nvml", "gpu3/UUID()"): {0: "GPU-3"}, ("nvml", "gpu4/Name()"): {0: "GPU-4"},
        ("host", "gpu5/UUID()"): {0: "GPU-5"}, ("nvml", "gpu3/Name()"): {0: "H200"},
    }  # fmt: skip
    nvml = ReplayNvml(player(recording([0.0], told), Time()))
    assert [one.value for one in nvml.answer("GPU-3", [Question("Name")])] == ["H200"]
    for uuid in ("GPU-4", "GPU-5"):
        assert [one.value for one in nvml.answer(uuid, [Question("Name")])] == [LOST]


@pytest.mark.parametrize(("lead", "start"), [(None, 60.0), (5.0, 5.0)])
def test_a_source_hurries_its_overlays_only_with_a_lead(
    tmp_path: Path, lead: float | None, start: float
) -> None:
    path = one_change(tmp_path, "set = 1\nfrom = 60")
    opened = open_player(Source("h200x1-idle", (path,), lead=lead))
    assert opened.overlays[0].changes[0].start == start


FINDING = 'rule = "gpu.lost"\nhealth = "FAILED"\nevidence = "XID"\naction = "drain"\ngpu = "3"'


def test_a_fault_may_say_what_it_makes(tmp_path: Path) -> None:
    overlay = load_overlay(overlay_file(tmp_path, f"change = []\n[[finding]]\n{FINDING}"))
    assert overlay.findings == (Expected("gpu.lost", Health.FAILED, Subject(gpu="3"), "XID", "drain"),)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"FAILED"', '"failed"'), ('"3"', "3"), ("gpu =", "host ="), ('action = "drain"', ""), ('"XID"', "[]")],
)
def test_a_finding_that_is_not_understood_is_refused(tmp_path: Path, old: str, new: str) -> None:
    assert "a finding has" in _refusal(overlay_file(tmp_path, "change = []\nfinding = [1]", "odd"))
    assert "a finding has" in _refusal(
        overlay_file(tmp_path, f"change = []\n[[finding]]\n{FINDING.replace(old, new)}")
    )
