"""`wirewatch parse DUMPS`: files and folders of the flight recorder, exit codes, and files that are none."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.study.flights import REAL, waits, world
from tests.node.cli.schemas import complaints
from tests.processes import run_wirewatch

OK, FAILED, UNKNOWN, USAGE = 0, 2, 3, 64


def answer(*words: object) -> tuple[int, dict[str, Any]]:
    done = run_wirewatch("parse", *map(str, words), "--json")
    assert complaints("wirewatch.flight-recorder.1", done.stdout) == [], done.stderr
    return done.returncode, json.loads(done.stdout)


def test_files_and_a_folder_say_the_same() -> None:
    folder = REAL / "missing"
    files = sorted(folder.iterdir())
    found = [answer(*words) for words in ([folder], files, files[::-1])]
    assert [code for code, _ in found] == [FAILED] * 3
    first, *others = [{**document, "at": 0} for _, document in found]
    assert others == [first, first]
    assert [fault["ranks"] for fault in first["faults"]] == [[2]]


def test_json_of_the_flight_recorder_is_read_too() -> None:
    code, document = answer(REAL / "missing-json")
    assert (code, document["faults"][0]["ranks"]) == (FAILED, [2])


def test_the_text_has_the_verdict_first_and_each_rank() -> None:
    done = run_wirewatch("parse", str(REAL / "missing"))
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (FAILED, "")
    assert lines[0].startswith("FAILED: rank 2 did not call all_reduce of 1024 Float, number 4 of group 0")
    assert [line.split()[0] for line in lines[3:7]] == ["0", "1", "2", "3"]
    assert lines[5].split()[-1] == "/srv/job/train.py:15"
    assert "group 1 (TP): ranks 0, 1; collectives up to 3" in lines


def test_a_job_in_order_is_ok_and_one_dump_alone_shows_little(tmp_path: Path) -> None:
    world().write(tmp_path)
    assert answer(tmp_path)[0] == OK
    code, document = answer(tmp_path / "nccl_trace_rank_3")
    assert (code, document["no_dump"]) == (UNKNOWN, [0, 1, 2])


def test_hosts_are_folders_and_pipes_and_other_files_are_left_out(tmp_path: Path) -> None:
    job = waits(world(), (0, 1, 3), seq=4)
    for host, ranks in (("n0", (0, 1)), ("n1", (2, 3))):
        (tmp_path / host).mkdir()
        job.write(tmp_path / host, *ranks)
        os.mkfifo(tmp_path / host / "nccl_trace_rank_0.pipe")
        (tmp_path / host / "log.txt").write_text("NCCL INFO rank 9")
    _, document = answer(tmp_path)
    assert [(one["host"], one["gpu"]) for one in document["ranks"]] == [
        ("n0", 0), ("n0", 1), ("n1", 0), ("n1", 1)
    ]  # fmt: skip
    assert document["why"].startswith("rank 2 (n1, GPU 0) did not call")
    assert document["not_read"] == []


def test_what_cannot_be_read_is_listed_and_leaves_the_rest(tmp_path: Path) -> None:
    job = waits(world(), (0, 1, 3), seq=4)
    job.write(tmp_path)
    cut = tmp_path / "nccl_trace_rank_3"
    cut.write_bytes(cut.read_bytes()[:-10])
    again = tmp_path / "old_nccl_trace_rank_0"
    again.write_bytes((tmp_path / "nccl_trace_rank_0").read_bytes())
    nameless = tmp_path / "trace"
    nameless.write_bytes(again.read_bytes())
    code, document = answer(tmp_path)
    assert (code, document["faults"][0]["ranks"], document["no_dump"]) == (FAILED, [2], [3])
    assert sorted(document["not_read"]) == sorted([
        f"{cut}: it stops in the middle",
        f"{again}: rank 0 is read from {tmp_path / 'nccl_trace_rank_0'}",
        f"{nameless}: its name does not end with a rank",
    ])  # fmt: skip
    text = run_wirewatch("parse", str(tmp_path)).stdout
    assert f"not read: {cut}: it stops in the middle" in text


@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        ({"a_0": b"\x80\x02cos\nsystem\n."}, (), "a_0: its pickle does not build plain containers"),
        ({"a_0": b"\x80\x02X\xff\xff\xff\xff."}, (), "a_0: it stops in the middle"),
        ({"a_0": b"text", "a_1": b"text"}, (), "no dump is in it"),
        ({"a_0": b"\x80\x02N."}, ("--op", "all_reduce"), "take no option but --json and --explain"),
        ({"a_0": b"\x80\x02N."}, ("--openmetrics",), "take no option but --json and --explain"),
        ({"a_0": b"\x80\x02N."}, ("--replay", "h200x8"), "take no option but --json and --explain"),
        ({"a_0": b"\x80\x02N."}, ("nowhere",), "nowhere: it is no file or folder"),
    ],
)
def test_one_line_and_64(tmp_path: Path, files: dict[str, bytes], words: Sequence[str], said: str) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    target = tmp_path if len(files) > 1 or words == ("nowhere",) else tmp_path / "a_0"
    done = run_wirewatch("parse", str(target), *words)
    assert (done.returncode, done.stdout) == (USAGE, "")
    (line,) = done.stderr.splitlines()
    assert said in line


def test_several_files_of_which_none_is_known_are_refused(tmp_path: Path) -> None:
    for name in ("a_0", "a_1"):
        (tmp_path / name).write_text("# nccl-tests")
    done = run_wirewatch("parse", str(tmp_path / "a_0"), str(tmp_path / "a_1"))
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "a_1: nothing of nccl-tests or of NCCL's log in 2 lines" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_name_cannot_command_the_terminal(tmp_path: Path) -> None:
    job = waits(world(), (0, 1, 3), seq=4)
    job.groups = {"0": ("\x1b[2J\nx", (0, 1, 2, 3))}
    job.write(tmp_path)
    done = run_wirewatch("parse", str(tmp_path))
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[0].startswith("FAILED: rank 2 did not call")
