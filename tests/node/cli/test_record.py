"""`wirewatch record`: it looks first, writes as it goes, and what it wrote can be played whenever it ends."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.node.cli.test_recorder import hardware, node
from tests.node.hw.children import until
from tests.node.hw.recordings import Time
from tests.patience import HANGS
from tests.processes import Process, run_wirewatch
from wirewatch.cli.recorder import Recorder
from wirewatch.hw.recording import load_recording

USAGE, INTERNAL = 64, 70
OFTEN = ("--moments", "1000", "--every", "0.2")
SOON = HANGS


@pytest.mark.parametrize("place", ["/proc/nothing/here", "file/below", "full"])
def test_a_folder_that_cannot_be_used_is_refused_before_anything_is_read(tmp_path: Path, place: str) -> None:
    """Before: all moments were read, and lost with a traceback."""
    (tmp_path / "file").write_text("", "utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "of.this").write_text("", "utf-8")
    done = run_wirewatch("record", str(tmp_path / place) if place[0] != "/" else place)
    assert (done.returncode, done.stderr.count("\n"), "Traceback" in done.stderr) == (USAGE, 1, False)
    assert "moment 0" not in done.stderr


def test_a_recording_that_is_whole_ends_well(tmp_path: Path) -> None:
    done = run_wirewatch("record", str(tmp_path / "r"), "--moments", "2", "--every", "0")
    assert done.returncode == 0
    assert "2 moments" in done.stdout
    assert len(load_recording(str(tmp_path / "r")).times) == 2
    assert sorted(one.name for one in (tmp_path / "r").iterdir()) == ["manifest.json", "moments.jsonl.gz"]


@pytest.mark.parametrize(("number", "why"), [(signal.SIGINT, "by Ctrl-C"), (signal.SIGTERM, "by SIGTERM")])
def test_what_was_read_before_a_signal_can_be_played(tmp_path: Path, number: int, why: str) -> None:
    folder = tmp_path / "r"
    words = ("wirewatch", "record", str(folder), *OFTEN)
    with Process(words, subprocess.PIPE, subprocess.PIPE) as process:
        until((folder / "manifest.json").exists)
        process.send_signal(number)
        out, err = process.communicate(SOON)
        assert process.wait() == INTERNAL
    assert (out, "Traceback" in err) == ("", False)
    last = err.splitlines()[-1]
    assert last.startswith(f"wirewatch: {folder}: ")
    assert last.endswith(
        f"of 1000 moments, {load_lines(folder)} answers, names masked; it ended before, {why}"
    )
    assert f": {len(load_recording(str(folder)).times)} of 1000" in last


def load_lines(folder: Path) -> int:
    lines = load_recording(str(folder)).manifest["lines"]
    assert isinstance(lines, int)
    return lines


@contextmanager
def full(more: int) -> Iterator[None]:
    """No file of this process can grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 100, 5000])
def test_a_full_disk_leaves_what_was_written(tmp_path: Path, room: int) -> None:
    time, folder = Time(), tmp_path / "r"
    recorder = Recorder(hardware(load_recording("h200x2-idle"), time, node(tmp_path / "node"))[0])
    recorder.take()
    recorder.write(folder, "1.2.3")
    size = (folder / "moments.jsonl.gz").stat().st_size
    time.seconds = 140.0
    recorder.take()
    with full(size + room if room < 1000 else room), pytest.raises(OSError, match="File too large"):
        recorder.write(folder, "1.2.3")
    assert len(load_recording(str(folder)).times) == 1
    assert (folder / "moments.jsonl.gz").stat().st_size == size
    assert recorder.write(folder, "1.2.3") == recorder.lines
    assert len(load_recording(str(folder)).times) == 2


def test_moments_written_one_by_one_are_those_written_at_once(tmp_path: Path) -> None:
    def recorded(folder: Path, *, often: bool) -> Path:
        time = Time()
        recorder = Recorder(hardware(load_recording("h200x2-idle"), time, node(folder / "node"))[0])
        for seconds in (0.0, 70.0, 140.0):
            time.seconds = seconds
            recorder.take()
            if often or seconds == 140.0:
                recorder.write(folder / "r", "1.2.3")
        return folder / "r"

    once, often = (load_recording(str(recorded(tmp_path / n, often=n == "often"))) for n in ("once", "often"))
    values = [{k: [(n, a.value) for n, a in told] for k, told in r.answers.items()} for r in (once, often)]
    assert values[0] == values[1]
    assert once.manifest["lines"] == often.manifest["lines"]


def test_a_name_that_is_known_later_is_masked_in_what_was_written_before(tmp_path: Path) -> None:
    recorder = Recorder(hardware(load_recording("h200x2-idle"), Time(), node(tmp_path / "node"))[0])
    recorder.take()
    secret = "1654321987654"  # noqa: S105 - a serial number
    recorder.rows.append({"moment": 0, "port": "command", "question": "x()", "answer": secret, "us": 0.0})
    recorder.write(tmp_path / "r", "1.2.3")
    recorder.rows.append(
        {"moment": 0, "port": "nvml", "question": "gpu0/Serial()", "answer": secret, "us": 0.0}
    )
    recorder.write(tmp_path / "r", "1.2.3")
    answers = load_recording(str(tmp_path / "r")).answers.values()
    assert secret not in {str(a.value) for told in answers for _, a in told}
