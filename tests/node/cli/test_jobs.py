"""`wirewatch jobs install | uninstall | status` as a process, and the lines that it prints."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.node.cli.schemas import complaints
from tests.node.jobs.inspector.writing import line
from tests.node.jobs.ringfiles import UUID, RingWriter, Written
from tests.node.jobs.taplibraries import compiler, library, place
from tests.processes import run_wirewatch
from tests.rows import each
from wirewatch.cli.jobs import tap
from wirewatch.documents.jobs import JobsStatusDocument, RefusedFile, RingStatus
from wirewatch.jobs.tap.carriers import Carriers, CarrierStatus
from wirewatch.jobs.tap.tapfile import LIBRARY, Installed

OK, USAGE, INTERNAL, CONFIG = 0, 64, 70, 78


def jobs(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_wirewatch("jobs", *arguments)


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    folder = tmp_path / "rings"
    folder.mkdir()
    folder.chmod(0o3773)
    return folder


@pytest.fixture
def config(tmp_path: Path, rings: Path) -> str:
    file = tmp_path / "wirewatch.toml"
    file.write_text(f'[jobs]\nrings = "{rings}"\n')
    return str(file)


@pytest.fixture
def job(rings: Path) -> Iterator[None]:
    """Two ranks of a communicator in this process; one of them was killed."""
    with RingWriter(rings / "0123456789abcdef.ring", rank=0, pid=7) as ring:
        ring.put(Written())
        ring.counter(1, 2)
        ring.counter(2, 40)
        with RingWriter(rings / "fedcba9876543210.ring", rank=1):
            pass
        yield


def document(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert complaints("wirewatch.jobs-status.1", done.stdout) == []
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("job")
def test_status_shows_what_nccl_inspector_times_beside_it(rings: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    made = lines / f"{os.uname().nodename}-pid{os.getpid()}.log"
    made.write_bytes(line(time.time(), pid=os.getpid()) + b"rubbish\n")
    config = tmp_path / "both.toml"
    config.write_text(f'[jobs]\nrings = "{rings}"\ninspector = "{lines}"\n')
    done = jobs("status", "--config", str(config))
    assert done.returncode == OK
    assert f"3 rings in {rings} and {lines}" in done.stdout
    assert "1 ring by NCCL Inspector, 2.30, GPU clock" in done.stdout
    assert f"refused: {made.name}: malformed: 1 line not of Inspector" in done.stdout
    (found,) = [
        one for one in document(jobs("status", "--config", str(config), "--json"))["rings"] if one["source"]
    ]
    assert (found["rank"], found["ranks"], found["gpu"], found["pid"]) == (0, 2, None, os.getpid())


@pytest.mark.usefixtures("job")
def test_status_shows_who_carries_it(config: str, rings: Path) -> None:
    done = jobs("status", "--config", config)
    assert (done.returncode, done.stderr) == (OK, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == f"2 rings in {rings}"
    assert lines[1].split()[:4] == ["communicator", "rank", "gpu", "pid"]
    live, dead = (line.split() for line in lines[2:4])
    assert live[:4] == ["0xabcdef", "default_pg", "0/4", "GPU-5d8fa1c2"]
    assert "(7 inside)" in lines[2]
    assert live[-7:-2] == ["live", "40", "1", "2.5%", "2"]
    assert "dead" in dead


@pytest.mark.usefixtures("job")
def test_status_is_one_document(config: str, rings: Path) -> None:
    (rings / "junk").mkdir()
    told = document(jobs("status", "--config", config, "--json"))
    live, dead = told["rings"]
    assert (told["folder"], told["read"], told["why"]) == (str(rings), True, "")
    assert (live["communicator"], live["rank"], live["ranks"], live["gpu"]) == ("0xabcdef", 0, 4, UUID)
    assert (live["collectives"], live["timed"], live["dropped"], live["nccl"]) == (40, 1, 2, "2.28.9")
    assert (live["pid"], live["host_pid"] != 7, dead["host_pid"]) == (7, True, None)
    assert (live["state"], dead["state"]) == ("live", "dead")
    assert (live["timing_on_seconds"], live["timing_period_seconds"]) == (0.2, 2.0)
    assert (live["timing_budget"], live["timing_share"]) == (50, 0.025)


def test_without_a_folder_no_job_is_timed_and_that_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text(f'[jobs]\nrings = "{tmp_path}/none"\n')
    done = jobs("status", "--config", str(file))
    assert done.returncode == OK
    assert f"no folder of rings at {tmp_path}/none" in done.stdout
    told = document(jobs("status", "--config", str(file), "--json"))
    assert (told["read"], told["why"], told["rings"]) == (False, "missing", [])


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text(f'[jobs]\nrings = "{file}"\n')
    done = jobs("status", "--config", str(file))
    assert done.returncode == INTERNAL
    assert "cannot be read" in done.stdout


def test_an_empty_folder_and_what_is_wrong_with_it_are_said(config: str, rings: Path) -> None:
    rings.chmod(0o777)
    done = jobs("status", "--config", config)
    assert done.returncode == OK
    assert "no communicator of a running job carries the tap" in done.stdout
    assert "not sticky" in done.stdout


def test_a_recording_without_rings_has_none() -> None:
    told = document(jobs("status", "--replay", "h200x8", "--json"))
    assert (told["read"], told["why"], told["folder"]) == (False, "missing", "recording h200x8")


def test_an_overlay_needs_its_recording() -> None:
    done = jobs("status", "--overlay", "any")
    assert (done.returncode, done.stdout) == (USAGE, "")


def test_the_configuration_names_the_folder_or_none(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text('[jobs]\nrings = ""\n')
    told = document(jobs("status", "--config", str(file), "--json"))
    assert (told["read"], told["folder"]) == (False, "")
    file.write_text("[jobs]\nrings = 3\n")
    done = jobs("status", "--config", str(file))
    assert done.returncode == CONFIG
    assert "jobs.rings" in done.stderr


def test_it_is_installed_with_what_to_set_and_removed_with_who_still_has_it(
    tmp_path: Path, config: str
) -> None:
    made, folder = compiler(tmp_path / "bin", library()), tmp_path / "opt"
    done = jobs("install", str(folder), "--compiler", str(made / "cc"), "--config", config)
    assert (done.returncode, done.stderr) == (OK, "")
    assert (folder / LIBRARY).read_bytes() == library()
    setting = f"NCCL_PROFILER_PLUGIN={folder / LIBRARY}"
    assert done.stdout.count(setting) == 3
    assert "/etc/nccl.conf" in done.stdout
    assert f"WIREWATCH_TAP_DIR={tmp_path}/rings" in done.stdout, (
        "the agent does not read where the tap writes"
    )
    done = jobs("uninstall", str(folder))
    assert done.returncode == OK
    assert setting in done.stdout
    # Another test's job may carry a library of its own meanwhile.
    assert re.search(r"(?m)^no process that can be seen maps it$|^process \d+ .* maps /", done.stdout)
    assert not (folder / LIBRARY).exists()


def test_what_is_not_ours_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = place(tmp_path / "opt", b"another")
    made = compiler(tmp_path / "bin", library())
    for done in (
        jobs("install", str(folder), "--compiler", str(made / "cc")), jobs("uninstall", str(folder)),
        jobs("uninstall", str(tmp_path)),
    ):  # fmt: skip
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (USAGE, "", 1)
    assert (folder / LIBRARY).read_bytes() == b"another"


@pytest.mark.usefixtures("job")
def test_what_was_recorded_of_jobs_is_shown_again_masked(tmp_path: Path, config: str) -> None:
    done = run_wirewatch("record", str(tmp_path / "node"), "--moments", "1", "--config", config)
    assert done.returncode == OK, done.stderr
    told = document(jobs("status", "--replay", str(tmp_path / "node"), "--json"))
    live, dead = told["rings"]
    assert (live["state"], live["collectives"], live["timed"], dead["state"]) == ("live", 40, 1, "dead")
    assert live["communicator_name"] not in {"", "default_pg"}
    assert live["gpu"] != UUID


# --- lines of text


def ring(**changes: Any) -> RingStatus:
    known = {
        "name": "a.ring", "state": "live", "communicator": "0xa", "communicator_name": "", "rank": 1,
        "ranks": 8, "nodes": 1, "gpu": None, "pid": 7, "host_pid": 7, "uid": 1000, "tap": "", "nccl": "",
        "profiler_interface": 4, "created": 0.0, "quiet_seconds": 2.4, "collectives": 40, "timed": 3,
        "dropped": 0, "captured": 0, "sends": 0, "timing_on_seconds": 0.2, "timing_period_seconds": 2.0,
    }  # fmt: skip
    return RingStatus(**{**known, **changes})


def status_lines(**changes: Any) -> list[str]:
    known = {
        "schema": "wirewatch.jobs-status/1", "at": 0.0, "folder": "/r", "read": True, "why": "",
        "remarks": [], "rings": [], "refused": [], "carriers": [], "unread_processes": 0, "late": False,
    }  # fmt: skip
    return list(vars(tap)["_text"](JobsStatusDocument(**{**known, **changes})))


NONE = "no rings in /r: no communicator of a running job carries the tap"
CARRIER, OLD = (
    CarrierStatus(7, 1000, "/lib.so", replaced=False),
    CarrierStatus(8, 0, "/lib.so", replaced=True),
)


@each(
    ("changes", "lines"),
    [
        ({}, [NONE]),
        ({"read": False, "why": "missing"}, ["no folder of rings at /r: no job of this node is timed"]),
        ({"read": False, "why": "denied: x"}, ["/r cannot be read: denied: x"]),
        ({"remarks": ["not sticky"]}, [NONE, "/r: not sticky"]),
        ({"refused": [RefusedFile("a", "b")]}, [NONE, "refused: a: b"]),
        ({"carriers": [CARRIER]}, [NONE, "process 7 of user 1000 maps /lib.so and has no ring here"]),
        (
            {"carriers": [OLD]},
            [
                NONE,
                "process 8 of user 0 maps /lib.so and has no ring here",
                "with a tap that has been replaced or removed since, until they end: 8",
            ],
        ),
        ({"unread_processes": 2}, [NONE, "not looked into, which root may: 2 of the processes"]),
        ({"late": True}, [NONE, "not all processes could be looked into in time"]),
    ],
)
def test_a_status_has_a_line_for_what_there_is_and_none_for_what_is_not(
    changes: dict[str, Any], lines: list[str]
) -> None:
    assert status_lines(**changes) == lines


def test_rings_are_counted_by_why_they_have_no_times_and_by_who_timed_them() -> None:
    rings = [ring(), ring(untimed="off"), ring(untimed="off"), ring(source="Inspector", host_pid=9)]
    lines = status_lines(rings=rings, carriers=[CARRIER, OLD])
    assert lines[0] == "4 rings in /r"
    assert lines[6:8] == ["2 rings without times: off", "1 ring by Inspector"]
    assert [line for line in lines if "no ring here" in line] == [
        "process 8 of user 0 maps /lib.so and has no ring here"
    ]


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, ("0xa", "1/8", "-", "7", "-", "1000", "-", "-", "live", "40", "3", "-", "0", "2 s")),
        ({"state": "dead", "host_pid": None, "timing_share": 1.0},
         ("0xa", "1/8", "-", "-", "-", "1000", "-", "-", "dead", "40", "3", "100%", "0", "-")),
        ({"communicator_name": "pg", "owner": "pod:b", "gpu": UUID, "host_pid": 9, "tap": "1", "nccl": "2",
          "timing_share": 1 / 32},
         ("0xa pg", "1/8", UUID[:12], "9 (7 inside)", "pod:b", "1000", "1", "2", "live", "40", "3", "3.12%",
          "0", "2 s")),
    ],
)  # fmt: skip
def test_the_row_of_a_ring(changes: dict[str, Any], cells: tuple[str, ...]) -> None:
    assert vars(tap)["_row"](ring(**changes)) == cells


@pytest.mark.parametrize(
    ("rings", "last"),
    [
        ("", "The agent reads no rings: [jobs] rings is empty in its configuration"),
        (tap.DEFAULT, "What it costs"),
        ("/proc", "and WIREWATCH_TAP_DIR=/proc in the same place"),
    ],
)
def test_who_installs_the_tap_hears_where_the_agent_reads(rings: str, last: str) -> None:
    lines = list(
        vars(tap)["_installed"](Installed(Path("/l.so"), "x86_64", 34_900, "as shipped", ("odd",)), rings)
    )
    assert lines[:2] == ["/l.so is there: x86_64, 34 kB, as shipped", "but odd"]
    said = [line for line in lines[6:] if not line.startswith(f"{rings}: ") or not rings]
    assert said[-1].startswith(last)
    assert any(line.startswith("/proc: ") for line in lines) is (rings == "/proc")


def test_who_removes_the_tap_hears_who_still_has_it() -> None:
    assert list(vars(tap)["_carrying"](Carriers())) == ["no process that can be seen maps it"]
    assert list(vars(tap)["_carrying"](Carriers([CARRIER, OLD], 1))) == [
        "process 7 of user 1000 maps /lib.so, until it ends",
        "process 8 of user 0 maps /lib.so, a file that has been replaced or removed since, until it ends",
        "not looked into, which root may: 1 of the processes",
    ]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--replay", "h200x8"), 0, "no folder of rings at recording h200x8"),
        (("--replay", "h200x8", "--overlay", "gpu-busy"), 0, "no folder of rings"),
        (("--overlay", "gpu-busy"), 2, "give --replay too"),
        (("--config", "empty.toml"), 0, "no folder of rings at : no job"),
        (("--config", "denied.toml"), 70, "cannot be read"),
    ],
)
def test_the_exit_code_of_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.toml").write_text('[jobs]\nrings = ""\n')
    Path("denied.toml").write_text(f'[jobs]\nrings = "{tmp_path}/empty.toml"\n')
    done = CliRunner().invoke(tap.status, words)
    assert (done.exit_code, text in done.output) == (code, True), done.output
    assert "sticky" not in done.output
    if code != 2:
        assert CliRunner().invoke(tap.status, (*words, "--json")).output.startswith("{")
