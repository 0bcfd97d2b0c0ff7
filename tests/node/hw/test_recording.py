"""Recordings: what is written is what is read, and what is damaged says so in one line."""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.core.strategies import JSON, QUESTIONS
from tests.rows import each
from wirewatch.core.ports import Answer
from wirewatch.core.types import Absent, Json, Why
from wirewatch.hw import recording as recordings
from wirewatch.hw.files import absent_errno
from wirewatch.hw.nvml.protocol import absent_code
from wirewatch.hw.recording import (
    LONGEST,
    WHOLE,
    Key,
    Recording,
    RecordingError,
    _rows,
    append,
    bundled_names,
    load_recording,
    number,
    pack,
    unpack,
    write,
)
from wirewatch.hw.recording import _lines as _lines_of

MANIFEST = {"moments": [{"moment": 0, "seconds": 0.0}, {"moment": 1, "seconds": 5.5}]}
ROWS = [
    pack(0, "nvml", "Count()", Answer(8, 7.6)),
    pack(0, "nvml", "gpu0/UUID()", Answer("GPU-00000000-0000-4000-8000-000000000000", 42.0)),
    pack(1, "nvml", "gpu0/PowerUsage()", Answer(absent_code(15), 1.0)),
    pack(1, "sysfs", "list /sys/class/net", Answer(["eth0", "lo"], 20.0)),
]


def _small(folder: Path) -> Path:
    write(folder, MANIFEST, ROWS)
    return folder


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def _lines(folder: Path, *lines: str) -> None:
    with gzip.open(folder / "moments.jsonl.gz", "wt", encoding="utf-8") as packed:
        packed.writelines(f"{line}\n" for line in lines)


def _refusal(folder: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        load_recording(str(folder))
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) in text
    return text


TIMES = st.floats(0, 1e6).map(lambda us: round(us, 1))
REASONS = st.builds(Absent, st.sampled_from(Why), st.text(max_size=20))
NVML = st.tuples(
    st.tuples(st.just("nvml"), QUESTIONS.map(lambda q: f"gpu0/{q}")),
    st.builds(Answer, st.one_of(JSON, REASONS, st.integers(1, 999).map(absent_code)), TIMES),
)
SYSFS = st.sampled_from(["/sys/class/net", "/proc/driver/nvidia/version"]).flatmap(
    lambda path: st.tuples(
        st.tuples(st.just("sysfs"), st.just(f"read {path}")),
        st.builds(
            Answer, st.one_of(JSON, REASONS, st.integers(1, 133).map(lambda n: absent_errno(n, path))), TIMES
        ),
    )
)
MOMENTS = st.lists(st.lists(st.one_of(NVML, SYSFS), max_size=5).map(dict), min_size=1, max_size=4)


@given(moments=MOMENTS)
def test_what_was_written_is_what_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, moments: list[Mapping[Key, Answer]]
) -> None:
    folder = tmp_path_factory.mktemp("recording")
    manifest = {"moments": [{"moment": n, "seconds": float(n)} for n in range(len(moments))]}
    rows = [pack(n, *key, answer) for n, told in enumerate(moments) for key, answer in told.items()]
    assert write(folder, manifest, rows) == len(rows)
    loaded = load_recording(str(folder))
    assert loaded.times == tuple(map(float, range(len(moments))))
    latest: dict[Key, Answer] = {}
    for moment, told in enumerate(moments):
        latest |= told
        assert {key: loaded.at(key, moment) for key in latest} == latest
    assert set(loaded.answers) == set(latest)


def test_a_question_that_was_not_asked_yet_has_no_answer() -> None:
    loaded = load_recording("h200x8")
    assert loaded.at(("nvml", "gpu0/NoSuchCall()"), 0) is None


def test_an_answer_holds_until_it_changes(tmp_path: Path) -> None:
    loaded = load_recording(str(_small(tmp_path)))
    count, power = ("nvml", "Count()"), ("nvml", "gpu0/PowerUsage()")
    assert loaded.at(count, 0) == loaded.at(count, 1) == Answer(8, 7.6)
    assert loaded.at(power, 0) is None
    assert loaded.at(power, 1) == Answer(absent_code(15), 1.0)


def test_equal_answers_make_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _small(tmp_path / name)
    for file in ("manifest.json", "moments.jsonl.gz"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_the_packed_answers_carry_no_time_and_no_name_of_a_file(tmp_path: Path) -> None:
    header = (_small(tmp_path) / "moments.jsonl.gz").read_bytes()[:10]
    assert header[3] == 0, "a gzip flag says that something besides the data is inside"
    assert header[4:8] == bytes(4)


def test_a_line_is_readable_without_this_program(tmp_path: Path) -> None:
    _small(tmp_path)
    with gzip.open(tmp_path / "moments.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert rows[0] == {"moment": 0, "port": "nvml", "question": "Count()", "answer": 8, "us": 7.6}
    assert rows[2] == {"moment": 1, "port": "nvml", "question": "gpu0/PowerUsage()", "code": 15, "us": 1.0}


def test_no_recording_at_a_path_names_the_command_that_lists_the_bundled_ones(tmp_path: Path) -> None:
    assert "`wirewatch demo recordings`" in _refusal(tmp_path / "nothing")


def test_another_schema_is_refused(tmp_path: Path) -> None:
    _edit(_small(tmp_path), schema="wirewatch.recording/2")
    assert "wirewatch.recording/2" in _refusal(tmp_path)


def test_a_manifest_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (_small(tmp_path) / "manifest.json").write_text("moments:\n- 0\n", "utf-8")
    _refusal(tmp_path)


@pytest.mark.parametrize("manifest", ["[]", "{}", '"text"', '{"schema": "wirewatch.recording/1"}'])
def test_a_manifest_without_its_members_is_refused(tmp_path: Path, manifest: str) -> None:
    (_small(tmp_path) / "manifest.json").write_text(manifest, "utf-8")
    _refusal(tmp_path)


def test_missing_answers_are_refused(tmp_path: Path) -> None:
    (_small(tmp_path) / "moments.jsonl.gz").unlink()
    _refusal(tmp_path)


def test_answers_that_were_never_packed_are_refused(tmp_path: Path) -> None:
    (_small(tmp_path) / "moments.jsonl.gz").write_text("not a gzip file", "utf-8")
    _refusal(tmp_path)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = _small(tmp_path) / "moments.jsonl.gz"
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        _refusal(tmp_path)


def test_moments_out_of_order_are_refused(tmp_path: Path) -> None:
    _edit(_small(tmp_path), moments=[{"moment": 0, "seconds": 5.5}, {"moment": 1, "seconds": 0.0}])
    assert "order" in _refusal(tmp_path)


def test_a_recording_without_moments_is_refused(tmp_path: Path) -> None:
    _edit(_small(tmp_path), moments=[])
    _refusal(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        "{}",
        '{"moment":0,"port":"nvml","question":"Count()","us":1.0}',
        '{"moment":0,"port":"nvml","question":"Count()","answer":8}',
        '{"moment":0,"port":"nvml","question":"Count()","why":"bored","detail":"","us":1.0}',
        '{"moment":0,"port":"sysfs","question":"read /sys/x","errno":"ENOENT","us":1.0}',
    ],
)
def test_a_line_that_is_no_answer_is_refused(tmp_path: Path, line: str) -> None:
    _lines(_small(tmp_path), line)
    _refusal(tmp_path)


def test_a_long_line_waits_for_no_other_and_short_ones_for_some() -> None:
    long, short = (b'"%b"' % (b"x" * (size - 2)) for size in (32769, 32768))
    for lines, taken in (([long, b"2", b"3"], 1), ([short, b"2"], 2), ([b"1"] * 600, 512)):
        rest = iter(lines)
        next(_rows(rest))
        assert len(list(rest)) == len(lines) - taken
    assert list(_rows([b"1", b"2"])) == [1, 2]
    assert list(_rows([b"1"] * 600)) == [1] * 600


def test_a_line_and_a_file_may_be_as_long_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "LONGEST", 4)
    monkeypatch.setattr(recordings, "WHOLE", 8)

    def read(text: bytes) -> list[bytes]:
        return list(_lines_of(gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(text)))))

    assert read(b"123\n456\n") == [b"123\n", b"456\n"]
    for long in (b"1234\n", b"123\n456\n7\n"):
        with pytest.raises(ValueError, match="a line of more than 4 bytes"):
            read(long)


@each(("value", "found"), [("12", 12), ("1.5", None), (12, 12), (True, None), (1.5, None), (None, None)])
def test_a_whole_number_is_one_as_text_too(value: Any, found: int | None) -> None:
    assert number(value) == found


def test_a_counter_grows_by_its_steps_without_resets() -> None:
    values: list[Json | Absent] = [5, "9", True, 2, absent_code(15), 4]
    answers = tuple((n, Answer(value, 1.0)) for n, value in enumerate(values))
    one = Recording("x", {}, (0.0,), {("nvml", "x"): answers})
    assert one.growth(("nvml", "x")) == 4 + 2 + 2
    assert one.growth(("nvml", "y")) == 0


@pytest.mark.parametrize(
    ("manifest", "at", "synthetic"),
    [
        ({}, 0.0, False),
        ({"moments": []}, 0.0, False),
        ({"moments": [{}], "source": "live"}, 0.0, False),
        ({"moments": [{"at": 7}, {"at": 8}], "source": "synthetic"}, 7.0, True),
    ],
)
def test_a_manifest_says_when_it_was_and_what_was_made_up(
    manifest: dict[str, Any], at: float, *, synthetic: bool
) -> None:
    one = Recording("x", manifest, (0.0,), {})
    assert (one.at_unix, one.synthetic) == (at, synthetic)


@pytest.mark.parametrize(
    ("port", "absent", "told"),
    [
        ("nvml", absent_code(15), {"code": 15}),
        ("sysfs", absent_errno(2, "/x"), {"errno": 2}),
        ("host", Absent(Why.MISSING, "no file", 2), {"why": "missing", "detail": "no file"}),
        ("nvml", Absent(Why.LOST, "gone"), {"why": "lost", "detail": "gone"}),
    ],
)
def test_an_absence_has_its_number_where_the_port_numbers_them(
    port: str, absent: Absent, told: dict[str, Any]
) -> None:
    found = pack(0, port, "q /x", Answer(absent, 1.0))
    assert found == {"moment": 0, "port": port, "question": "q /x", "us": 1.0, **told}
    if "errno" in told or "code" in told or port == "nvml":
        assert unpack(found).value == absent


def test_a_folder_that_is_no_recording_is_told_from_a_name_that_is_none(tmp_path: Path) -> None:
    assert "is a folder without manifest.json" in _refusal(tmp_path)
    with pytest.raises(RecordingError, match="no recording ''"):
        load_recording("")
    with pytest.raises(RecordingError, match="no recording 'nothing'"):
        load_recording("nothing")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    def broken() -> Iterator[Mapping[str, Any]]:
        yield ROWS[0]
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write(tmp_path, MANIFEST, broken())
    assert list(tmp_path.iterdir()) == []


def test_rows_are_added_all_or_none(tmp_path: Path) -> None:
    _small(tmp_path)
    size = (tmp_path / "moments.jsonl.gz").stat().st_size
    with pytest.raises(TypeError):
        append(tmp_path, MANIFEST, [ROWS[0], {"odd": object()}], len(ROWS))
    assert (tmp_path / "moments.jsonl.gz").stat().st_size == size
    assert append(tmp_path, MANIFEST, [pack(1, "nvml", "Count()", Answer(9, 1.0))], len(ROWS)) == 5
    assert load_recording(str(tmp_path)).at(("nvml", "Count()"), 1) == Answer(9, 1.0)
    assert json.loads((tmp_path / "manifest.json").read_text("utf-8"))["lines"] == 5


@pytest.mark.parametrize("name", bundled_names())
def test_every_bundled_recording_loads_and_gives_its_product(name: str) -> None:
    loaded = load_recording(name)
    assert loaded.name == name
    assert loaded.manifest["masked"] is True
    for index in range(loaded.manifest["gpus"]):
        told = loaded.at(("nvml", f"gpu{index}/Name()"), 0)
        assert told is not None
        assert told.value == loaded.manifest["product"]


def test_the_recording_of_eight_h200_comes_with_the_program() -> None:
    assert "h200x8" in bundled_names()
    loaded = load_recording("h200x8")
    assert (loaded.manifest["gpus"], loaded.manifest["product"]) == (8, "NVIDIA H200")
    assert len(loaded.times) >= 2


def test_the_bundled_recording_holds_no_two_gpus_of_one_name() -> None:
    loaded = load_recording("h200x8")
    uuids = [loaded.at(("nvml", f"gpu{index}/UUID()"), 0) for index in range(8)]
    assert len({str(a.value) for a in uuids if a is not None}) == 8


@given(data=st.data())
def test_a_recording_with_a_damaged_byte_is_refused_and_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte in the header may be harmless; a byte in the packed data is not always seen by json."""
    folder = _small(tmp_path_factory.mktemp("recording"))
    path = folder / "moments.jsonl.gz"
    packed = bytearray(path.read_bytes())
    packed[data.draw(st.integers(0, len(packed) - 1), "place")] ^= data.draw(st.integers(1, 255), "change")
    path.write_bytes(packed)
    try:
        load_recording(str(folder))
    except RecordingError as error:
        assert "\n" not in str(error)  # noqa: PT017 - it may also load


@pytest.mark.parametrize(
    "lines",
    [
        [f'{{"port": "nvml", "question": "Name()", "moment": 0, "answer": "{"x" * LONGEST}", "us": 1}}'],
        ["[" * 200_000],
    ],
    ids=["a line without end", "a pit"],
)
def test_one_that_would_take_our_memory_is_refused(tmp_path: Path, lines: list[str]) -> None:
    folder = _small(tmp_path / "r")
    _lines(folder, *lines)
    assert (folder / "moments.jsonl.gz").stat().st_size < 1 << 20
    assert "damaged recording" in _refusal(folder)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    folder = _small(tmp_path / "r")
    row = {"port": "x", "question": "x" * (LONGEST // 2), "moment": 0, "answer": 0, "us": 1}
    packed = gzip.compress(f"{json.dumps(row)}\n".encode())
    moments = folder / "moments.jsonl.gz"
    moments.write_bytes(packed * (WHOLE // (LONGEST // 2) + 1))
    assert moments.stat().st_size < 1 << 20
    assert "damaged recording" in _refusal(folder)
