"""The file of a sweep: what is in it stays, a torn end is measured again, and one process alone writes it."""

import os
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.study.sweeps import CURVES, Node, header, measured
from tests.node.cli.schemas import complaints
from wirewatch_lab.study.curve import Configuration
from wirewatch_lab.study.export import SWEEP, document, export, read_study, table
from wirewatch_lab.study.records import (
    NAME,
    GivenUp,
    Measurement,
    RanAs,
    RecordsError,
    SweepFile,
    keys,
    read_records,
    study_of,
)

SMALL = header(CURVES[:2], options=replace(header().options, repeats=2))
ALL = sorted(keys(SMALL))
ROW = Measurement("measured", 0, 0, 64, 1e-3, 1e-3, 1e-3, 1e-3, 5, 0, 1.0)


@cache
def whole() -> bytes:
    """The file of a small sweep that is complete."""
    with TemporaryDirectory() as folder:
        Node(Path(folder) / "sweep").sweep(SMALL)
        return (Path(folder) / "sweep" / NAME).read_bytes()


def holding(folder: Path, data: bytes) -> Path:
    made = folder / "sweep"
    made.mkdir()
    (made / NAME).write_bytes(data)
    return made


@given(st.integers(0, 1 << 30), st.sampled_from([b"", b"\x00" * 40, b"\x00" * 8 + b"\n"]))
def test_wherever_the_file_is_torn_exactly_the_rest_is_measured(cut: int, rest: bytes) -> None:
    data = whole()
    begins = data.index(b"\n") + 1
    with TemporaryDirectory() as folder:
        node = Node(holding(Path(folder), data[: begins + cut % (len(data) - begins + 1)] + rest))
        before = measured(node.folder)
        assert node.sweep().how == "complete"
        assert sorted(measured(node.folder)) == ALL
        assert measured(node.folder)[: len(before)] == before
        assert read_records(node.folder).complete


@given(st.integers(0, 1 << 30))
def test_without_a_whole_header_there_is_no_sweep(cut: int) -> None:
    data = whole()
    with TemporaryDirectory() as folder:
        made = holding(Path(folder), data[: cut % (data.index(b"\n") + 1)])
        for read in (SweepFile.resume, read_records):
            with pytest.raises(
                RecordsError, match=r"holds no sweep: sweep\.jsonl does not begin with its header"
            ):
                read(made)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "line 2: not understood: "),
        (b'{"line": "measured", "curve": 0}', "line 2: not understood: "),
        (b'{"line": "given_up", "curve": 7, "size_bytes": 64, "why": ""}', "line 2: it is of no curve"),
        (
            b'{"line": "ran", "curve": 0, "repeat": 0, "size_bytes": 65, "ran": []}',
            "line 2: it is of no curve",
        ),
    ],
)
def test_a_line_in_the_middle_that_is_none_of_ours_is_named(tmp_path: Path, line: bytes, why: str) -> None:
    first, _, others = whole().partition(b"\n")
    made = holding(tmp_path, first + b"\n" + line + b"\n" + others)
    with pytest.raises(RecordsError, match=why):
        SweepFile.resume(made)


def test_a_measurement_that_stands_twice_is_named(tmp_path: Path) -> None:
    lines = whole().splitlines(keepends=True)
    made = holding(tmp_path, b"".join([*lines[:3], lines[1], *lines[3:]]))
    with pytest.raises(RecordsError, match="line 4: it is measured twice"):
        read_records(made)


@pytest.mark.parametrize(
    ("good", "bad"),
    [(b'"op":"all_reduce"', b'"op":"all_to_all"'), (b'"ranks":2', b'"ranks":0'), (b"[64,", b"[-64,")],
)
def test_a_header_with_a_curve_that_nothing_can_measure_is_refused(
    tmp_path: Path, good: bytes, bad: bytes
) -> None:
    first, _, _ = whole().partition(b"\n")
    assert good in first
    made = holding(tmp_path, first.replace(good, bad, 1) + b"\n")
    with pytest.raises(RecordsError, match="its header has a curve that nothing can measure"):
        read_records(made)


def test_a_header_with_a_message_of_one_byte_is_read(tmp_path: Path) -> None:
    first, _, _ = whole().partition(b"\n")
    found = read_records(holding(tmp_path, first.replace(b"[64,", b"[1,", 1) + b"\n"))
    assert found.header.curves[0].sizes[0] == 1


def test_no_file_stays_open(tmp_path: Path) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    with SweepFile.create(tmp_path / "new") as file:
        file.begin(SMALL)
        assert opened() == before + 1
    assert opened() == before
    with pytest.raises(RecordsError):
        SweepFile.resume(holding(tmp_path, b"no header\n"))
    assert opened() == before


def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(RecordsError, match="is not empty; --resume goes on"):
        SweepFile.create(tmp_path)
    with pytest.raises(RecordsError, match=r"holds no sweep: sweep\.jsonl: No such file"):
        SweepFile.resume(tmp_path)
    with pytest.raises(RecordsError, match="cannot be written: Not a directory"):
        SweepFile.create(tmp_path / "mine" / "below")


def test_two_processes_never_write_one_file(tmp_path: Path) -> None:
    with SweepFile.create(tmp_path / "new") as file:
        begun = [file.begun]
        file.begin(SMALL)
        assert [*begun, file.begun] == [False, True]
        file.add(ROW)
        with pytest.raises(RecordsError, match="another process is writing this sweep"):
            SweepFile.resume(tmp_path / "new")
        with pytest.raises(RecordsError, match="is not empty"):
            SweepFile.create(tmp_path / "new")
        file.drain()
        assert read_records(tmp_path / "new").measured == {ROW.key: ROW}
    with SweepFile.resume(tmp_path / "new") as file:
        assert file.records.measured == {ROW.key: ROW}


def test_a_folder_in_which_nothing_was_begun_is_as_before(tmp_path: Path) -> None:
    with SweepFile.create(tmp_path / "new"):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with SweepFile.create(tmp_path / "there"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert list((tmp_path / "there").iterdir()) == []


def test_after_what_cannot_be_written_nothing_more_is(tmp_path: Path) -> None:
    place = tmp_path / NAME
    place.write_bytes(b"torn")
    with SweepFile(place, os.open(place, os.O_RDONLY), None) as file:
        for _ in range(2):
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.begin(SMALL)
        assert file.trouble == f"{place} cannot be written: Bad file descriptor"
    assert place.read_bytes() == b"torn"


def test_what_is_given_up_is_not_left_and_the_smallest_size_counts(tmp_path: Path) -> None:
    with SweepFile.create(tmp_path / "new") as file:
        file.begin(SMALL)
        file.add(GivenUp("given_up", 0, 1024, "no"))
        file.add(GivenUp("given_up", 0, 1 << 20, "again"))
        file.add(RanAs("ran", 0, 0, 64, ("Ring LL",)))
    records = read_records(tmp_path / "new")
    assert [key for key in records.left() if key[0] == 0] == [(0, 0, 64), (0, 1, 64)]
    assert not records.complete


def test_the_document_is_its_schemas_and_says_the_same_as_the_file(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep")
    node.sweep(SMALL)
    study = export(read_records(node.folder), node.folder)
    text = (node.folder / "sweep.json").read_text("utf-8")
    assert complaints("wirewatch.sweep.1", text) == []
    again = read_study(node.folder / "sweep.json")
    assert replace(again, source=study.source) == study == read_study(node.folder)
    (node.folder / "sweep.jsonl").rename(tmp_path / "records")
    assert read_study(node.folder) == replace(study, source=str(node.folder))
    (tmp_path / "records").rename(node.folder / "sweep.jsonl")
    assert SWEEP.validate_json(text).complete
    rows = (node.folder / "sweep.csv").read_text("utf-8").splitlines()
    assert len(rows) == 1 + len(ALL)
    assert rows[1].split(",")[:5] == ["all_reduce", "2", "Ring", "auto", "eager"]
    assert sorted(path.name for path in node.folder.iterdir()) == ["sweep.csv", "sweep.json", NAME]


def test_busbw_and_settings_are_in_the_document(tmp_path: Path) -> None:
    varied = replace(CURVES[0], configuration=Configuration(4, settings=(("NCCL_A", "x,y"), ("NCCL_B", "1"))))
    with SweepFile.create(tmp_path / "new") as file:
        file.begin(replace(SMALL, curves=(varied,)))
        file.add(replace(ROW, wrong=3))
        made = document(file.records, study_of(file.records, ""))
        (curve,) = made.curves
        assert asdict(curve.points[0])["busbw"] == [pytest.approx(1.5 * 64 / 1e-3)]
        assert (curve.settings, curve.points[0].wrong) == ({"NCCL_A": "x,y", "NCCL_B": "1"}, 3)
        assert not made.complete
        assert '"NCCL_A=x,y NCCL_B=1"' in table(file.records)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no sweep.json of a sweep: : Invalid JSON"),
        ("{}", "is no sweep.json of a sweep: "),
        ("\x00", "is no sweep.json of a sweep: "),
    ],
)
def test_what_is_no_document_of_a_sweep_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(text, "utf-8")
    with pytest.raises(RecordsError, match=why) as raised:
        read_study(file)
    assert "\n" not in str(raised.value)
    with pytest.raises(RecordsError, match="No such file"):
        read_study(tmp_path / "none")


def test_a_document_of_another_operation_is_one_line(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep")
    node.sweep(SMALL)
    export(read_records(node.folder), node.folder)
    file = node.folder / "sweep.json"
    file.write_text(file.read_text("utf-8").replace("all_reduce", "all_to_all"), "utf-8")
    with pytest.raises(RecordsError, match="no operation is called 'all_to_all'"):
        read_study(file)


def test_what_nccl_has_out_of_place_alone_is_labelled_so(tmp_path: Path) -> None:
    curves = tuple(replace(CURVES[0], op=op) for op in ("all_reduce", "alltoall", "sendrecv"))
    node = Node(tmp_path / "sweep")
    node.sweep(header(curves, options=replace(header().options, ops=("all_reduce", "alltoall", "sendrecv"))))
    records = read_records(node.folder)
    assert {curve.op: curve.in_place for curve in study_of(records, "here").curves} == {
        "all_reduce": True, "alltoall": False, "sendrecv": False,
    }  # fmt: skip
    rows = [line.split(",") for line in table(records).splitlines()]
    place = rows[0].index("in_place")
    assert {(row[0], row[place]) for row in rows[1:]} == {
        ("all_reduce", "1"), ("alltoall", "0"), ("sendrecv", "0"),
    }  # fmt: skip


def test_a_measurement_of_a_repeat_that_was_not_asked_for_is_named(tmp_path: Path) -> None:
    with SweepFile.create(tmp_path / "new") as file:
        file.begin(SMALL)
        for repeat in (-1, 2):
            with pytest.raises(RecordsError, match="in a repeat that was not asked for"):
                file.add(replace(ROW, repeat=repeat))


def test_a_file_that_cannot_be_used_stays_open_nowhere(tmp_path: Path) -> None:
    made = holding(tmp_path, b"nonsense\n")
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(RecordsError):
            SweepFile.resume(made)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


def test_after_an_error_a_disk_that_takes_more_gets_nothing(tmp_path: Path) -> None:
    """A torn line may stand at the end: whatever followed it would be lost with it."""
    place = tmp_path / NAME
    place.write_bytes(b"torn")
    handle = os.open(place, os.O_RDONLY)
    with SweepFile(place, handle, None) as file:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.begin(SMALL)
        well = os.open(place, os.O_WRONLY)
        os.dup2(well, handle)
        os.close(well)
        with pytest.raises(OSError, match="cannot be written: Bad file descriptor"):
            file.begin(SMALL)
    assert place.read_bytes() == b"torn"


def test_a_folder_with_records_is_read_by_them_and_not_by_an_older_document(tmp_path: Path) -> None:
    node = Node(tmp_path / "sweep")
    node.sweep(SMALL)
    export(read_records(node.folder), node.folder)
    lines = (node.folder / NAME).read_bytes().splitlines(keepends=True)
    (node.folder / NAME).write_bytes(lines[0])
    assert read_study(node.folder).curves == ()
    (node.folder / NAME).unlink()
    assert len(read_study(node.folder).curves) == 2
    (node.folder / "sweep.json").unlink()
    with pytest.raises(RecordsError, match=r"holds no sweep: sweep\.jsonl"):
        read_study(node.folder)


@pytest.mark.parametrize("sizes", [(1024, 1 << 20), (1 << 20, 1024)])
def test_a_curve_is_given_up_from_the_smallest_of_all_sizes_on(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    with SweepFile.create(tmp_path / "new") as file:
        file.begin(SMALL)
        for size in sizes:
            file.add(GivenUp("given_up", 0, size, "no"))
        assert file.records.given_up[0].size_bytes == 1024


def test_what_is_begun_and_added_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header with the name of its file, and each line once it is waited for."""
    synced: list[str] = []
    sync = os.fsync

    def noted(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    folder = tmp_path / "sweep"
    with SweepFile.create(folder) as file:
        file.begin(header())
        assert synced == [str(folder / "sweep.jsonl"), str(folder)]
        curve = CURVES[0]
        file.add(GivenUp("given_up", 0, curve.sizes[0], "no"))
        file.drain()
        assert synced[2:] == [str(folder / "sweep.jsonl")]
        assert b"given_up" in (folder / "sweep.jsonl").read_bytes()
