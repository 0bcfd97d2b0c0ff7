"""`wirewatch probe` as a process, on recordings: what it says, and its exit code."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.node.hw.children import is_dead, until
from tests.node.probe import recordings
from tests.node.probe.recordings import Change, with_probe
from tests.patience import HANGS
from tests.processes import Process, run_wirewatch
from tests.rows import each
from wirewatch.cli.options import Size

OK, DEGRADED, FAILED, UNKNOWN = 0, 1, 2, 3
INTERNAL = 70
SLURM = '[[change]]\nport = "slurm"\nmatch = "Jobs()"\nset = [{id = "7", state = "RUNNING", gpus = [0]}]\n'
BUSY = '[[change]]\nport = "nvml"\nmatch = "gpu3/ComputeRunningProcesses()"\nset = [{pid = 4242}]\n'


def probe(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_wirewatch("probe", *arguments)


def answer(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document, which is as its schema says."""
    done = probe(*arguments, "--json")
    assert complaints("wirewatch.probe.1", done.stdout) == [], done.stderr
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def overlay(folder: Path, text: str) -> tuple[str, str]:
    file = folder / "overlay.toml"
    file.write_text(text, "utf-8")
    return ("--overlay", str(file))


def config(folder: Path, text: str) -> tuple[str, str]:
    file = folder / "wirewatch.toml"
    file.write_text(text, "utf-8")
    return ("--config", str(file))


def test_where_there_is_nothing_to_probe_with_it_is_unknown() -> None:
    done = probe("--replay", "h200x4-idle")
    assert (done.returncode, done.stdout.splitlines()[0]) == (UNKNOWN, "UNKNOWN")
    assert "skipped: no_engine: " in done.stdout


@pytest.mark.parametrize(
    ("changes", "code", "health", "rules"),
    [
        ((), OK, "ok", {}),
        ((recordings.uneven,), DEGRADED, "degraded", {"probe.uneven": "degraded"}),
        ((recordings.wrong,), FAILED, "failed", {"probe.wrong_data": "failed"}),
    ],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, changes: tuple[Change, ...], code: int, health: str, rules: dict[str, str]
) -> None:
    status, document = answer("--replay", with_probe(tmp_path / "node", *changes))
    assert (status, document["health"], document["outcome"]) == (code, health, "ok")
    assert {f["rule"]: f["health"] for f in document["findings"]} == rules
    assert (document["by"], document["forced"], document["engine"]) == ("recording", False, "nccl")
    assert len(document["results"]) == 3 * 7
    assert len(document["gpus"]) == 8
    assert abs(document["at"] - time.time()) < 60


def test_a_probe_that_could_not_be_done_says_nothing_of_the_node(tmp_path: Path) -> None:
    code, document = answer("--replay", with_probe(tmp_path / "node", recordings.failed))
    assert (code, document["health"], document["outcome"]) == (UNKNOWN, "unknown", "failed")
    assert (document["why"], document["results"]) == ("the driver said no", [])


def test_a_recorded_probe_that_is_none_is_nothing_to_probe_with(tmp_path: Path) -> None:
    code, document = answer("--replay", with_probe(tmp_path / "node", recordings.malformed))
    assert (code, document["outcome"]) == (UNKNOWN, "skipped")
    assert document["why"].startswith("no_engine: not a recorded probe: ")


def test_people_get_the_verdict_first_then_tables_and_how_it_follows(tmp_path: Path) -> None:
    """What was found is confirmed as often as the policy says."""
    thrice = config(tmp_path, "[policy.probe]\nconfirm = 3\n")
    done = probe("--replay", with_probe(tmp_path / "node", recordings.slow), "--explain", *thrice)
    assert done.returncode == FAILED
    lines = done.stdout.splitlines()
    assert lines[0] == "FAILED"
    assert lines[1].strip() == "FAILED probe.busbw"
    assert "(3 probes in a row)" in lines[2]
    assert any(line.startswith("copies between GPUs") for line in lines)
    assert any("NVLink links x" in line for line in lines)


def test_explain_says_where_nothing_is_expected_and_what_judges_there(tmp_path: Path) -> None:
    node = ("--replay", with_probe(tmp_path / "node"), "--overlay", "probe-unknown-product")
    done = probe(*node, "--explain")
    assert done.returncode == FAILED
    assert "FAILED probe.implausible" in done.stdout.splitlines()[1]
    assert "  no expectation here: missing: the architecture of NVIDIA R100 is not known" in done.stdout
    assert "  18 NVLink links x 26.562 GB/s = 478.1 GB/s each way" in done.stdout
    assert "  this node's accepted probes and the wire judge it" in done.stdout
    code, document = answer(*node)
    assert code == FAILED
    assert {one["peak_ratio"] is None for one in document["results"] if one["size_bytes"] > 1 << 20} == {
        False
    }


def test_busy_gpus_are_left_alone_but_for_a_labelled_probe(tmp_path: Path) -> None:
    node = ("--replay", with_probe(tmp_path / "node"), *overlay(tmp_path, BUSY))
    code, document = answer(*node)
    assert (code, document["why"]) == (UNKNOWN, "busy: GPU 3 is used by process 4242")
    done = probe(*node, "--force")
    assert done.returncode == OK
    assert done.stdout.splitlines()[0] == "OK (forced: no verdict about the node)"


def test_gpus_of_a_job_are_idle_for_that_job_alone(tmp_path: Path) -> None:
    jobs = SLURM.replace("[0]", str(list(range(8))))
    node = ("--replay", with_probe(tmp_path / "node"), *overlay(tmp_path, jobs))
    code, document = answer(*node, "--owner", "pod:7")
    assert (code, document["outcome"]) == (UNKNOWN, "skipped")
    assert document["why"].startswith("allocated: slurm:7 holds GPUs")
    assert answer(*node, "--owner", "slurm:7")[0] == OK


def test_an_owner_of_one_gpu_has_nothing_to_send_to(tmp_path: Path) -> None:
    node = ("--replay", with_probe(tmp_path / "node"), *overlay(tmp_path, SLURM))
    code, document = answer(*node, "--owner", "slurm:7")
    assert (code, document["why"]) == (UNKNOWN, "few_gpus: 1 GPU")


def test_another_engine_than_the_recorded_one_is_not_there(tmp_path: Path) -> None:
    code, document = answer("--replay", with_probe(tmp_path / "node"), "--engine", "torch")
    assert (code, document["outcome"]) == (UNKNOWN, "skipped")
    assert "not of engine torch" in document["why"]


@pytest.mark.parametrize("seconds", [0.0, 0.5], ids=["while it starts NVML", "later"])
def test_one_that_is_stopped_gives_no_verdict(tmp_path: Path, seconds: float) -> None:
    """A process for NVML that was just started may see only by itself that nobody is there any more."""
    recording = with_probe(tmp_path / "node", seconds=60.0)
    with Process(("wirewatch", "probe", "--replay", recording), subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        end = time.monotonic() + HANGS
        while not (child := children.read_text("utf-8").split()) and time.monotonic() < end:
            time.sleep(0.01)
        # It reads what it needs; the probe itself sleeps for a minute.
        time.sleep(seconds)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS) == INTERNAL
        assert process.stdout is not None
        assert process.stdout.read() == b""
    until(lambda: is_dead(int(child[0])))


def test_with_no_driver_it_is_unknown_and_keeps_its_state_where_it_is_reported(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver; the test is about one that has none")
    state = tmp_path / "state"
    environment = {**os.environ, "STATE_DIRECTORY": str(state)}
    for there in (False, True):
        if there:
            state.mkdir(exist_ok=True)
        done = run_wirewatch("probe", "--json", env=environment)
        assert (done.returncode, complaints("wirewatch.probe.1", done.stdout)) == (UNKNOWN, [])
        assert json.loads(done.stdout)["outcome"] == "skipped"
        # Whose folder it is to be is not for a command of root's to decide.
        lost = os.geteuid() == 0 and not there
        assert state.is_dir() is not lost
        assert ("this probe is not kept" in done.stderr) is lost


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--size", "1.5X"), "'1.5X' is not a size: a multiple of 4 bytes, such as 16KiB"),
        (("--op", "allgather"), "allgather"),
        (("--owner", "slurm:"), " is neither slurm:ID nor pod:UID"),
        (("--owner", "user:7"), " is neither slurm:ID nor pod:UID"),
        (("--overlay", "gpu-lost"), "give --replay too"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(USAGE, "probe", *arguments)


@each(
    ("text", "size"),
    [
        ("4", 4),
        ("8", 8),
        ("1k", 1024),
        ("256M", 256 << 20),
        ("2G", 2 << 30),
        ("007K", 7 << 10),
        ("1.5G", 3 << 29),
        ("1 M", 1 << 20),
        ("4KB", 4000),
        ("64MiB", 64 << 20),
    ],
)
def test_sizes_have_the_grammar_of_the_configuration(text: str, size: int) -> None:
    assert Size(4).convert(text, None, None) == size


@each("text", ["", "0", "3", "-8", "M", "2000T", "0G", "1MM", "4KBit", "0x10", "4²"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a size"):
        Size(4).convert(text, None, None)


@given(st.text())
def test_any_text_is_a_size_or_refused(text: str) -> None:
    try:
        assert Size(4).convert(text, None, None) % 4 == 0
    except click.BadParameter:
        return


def test_wrong_configuration_and_recordings_are_reported_in_one_line(tmp_path: Path) -> None:
    assert "no recording 'h100x3'" in refused(78, "probe", "--replay", "h100x3")
    bad = config(tmp_path, "[probe]\nbudget = 2.0\n")
    assert "budget must be above 0 and at most 1" in refused(78, "probe", "--replay", "h200x8", *bad)
