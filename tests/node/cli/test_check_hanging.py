"""Whatever hangs, there is an answer by the deadline, and nothing that outlives it holds the caller."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.node.cli.checks import NOWHERE, check, check_machine, overlay
from tests.node.cli.replies import Behaviour, health, holding, reply, replying, server, trickling
from tests.node.daemon.process import FAST, Daemon
from tests.node.hw.children import until
from tests.patience import HANGS
from tests.processes import Process
from wirewatch.hw.recording import BUNDLED

INTERNAL = 70
WHOLE = reply(json.dumps(health(time.time(), "ok")).encode())
DEADLINE = 0.8
SECONDS = ("--deadline", f"{DEADLINE:g}s")
LONG = 4.0
LATER = ("--deadline", f"{LONG:g}s")
SOON = HANGS
"""Seconds in which a process that is told to end has ended, half the time that it was given."""


@pytest.mark.parametrize(
    "behave",
    [
        holding(), holding(WHOLE[:20]), holding(WHOLE[:-1]), trickling(WHOLE, 0.05), replying(b""),
        replying(WHOLE[:-1]), replying(b"\0" * 100_000), replying(reply(b"[" * 10_000)),
    ],
    ids=["silent", "half a head", "but a byte", "slowly", "hangs up", "a byte short", "garbage", "brackets"],
)  # fmt: skip
def test_a_daemon_that_does_not_answer(tmp_path: Path, behave: Behaviour) -> None:
    with server(tmp_path, behave) as path:
        done = check("--socket", path, "--cached", *SECONDS, "--fail-on", "unknown", "--json")
    assert (done.code, done.document["health"], done.document["source"]) == (3, "unknown", "none")
    assert (done.document["why"] != "", done.err) == (True, "")


def test_a_slow_daemon_is_waited_for_as_long_as_there_is_time(tmp_path: Path) -> None:
    body = reply(json.dumps(health(time.time(), "ok")).encode())
    with server(tmp_path, trickling(body, 0.5 / len(body))) as path:
        assert check("--socket", path, "--cached", "--deadline", "20s").line == "OK"


@pytest.fixture
def dead(tmp_path: Path) -> str:
    """The socket file of a daemon that is gone."""
    path = str(tmp_path / "dead.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
    assert Path(path).is_socket()
    return path


def test_a_daemon_that_is_gone(dead: str) -> None:
    done = check("--socket", dead, "--cached", "--deadline", "1h")
    assert (done.code, done.line) == (3, f"UNKNOWN; {dead}: nothing listens there; the daemon is not running")


def test_a_socket_whose_queue_is_full(tmp_path: Path) -> None:
    path = str(tmp_path / "full.sock")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(path)
        listening.listen(0)
        first.connect(path)
        done = check("--socket", path, "--cached", *SECONDS)
    assert (done.code, done.line.partition(";")[0]) == (3, "UNKNOWN")


def test_a_configuration_that_cannot_be_read_to_its_end(tmp_path: Path) -> None:
    config = tmp_path / "wirewatch.toml"
    os.mkfifo(config)
    done = check("--config", str(config), *SECONDS, "--fail-on", "unknown")
    assert (done.code, done.line) == (3, "UNKNOWN; the configuration could not be read in time")


def test_a_file_of_the_state_folder_that_never_answers(tmp_path: Path) -> None:
    config = tmp_path / "wirewatch.toml"
    config.write_text(f'[state]\ndirectory = "{tmp_path}"\n', "utf-8")
    os.mkfifo(tmp_path / "latches.json")
    done = check("--config", str(config), "--replay", "h200x8", *LATER, "--json")
    told = [one["evidence"] for one in done.document["findings"] if one["rule"] == "verdict.latches"]
    assert len(told) == 1
    assert "latches.json: not a file" in told[0]


def test_a_recording_that_cannot_be_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes((BUNDLED / "h200x8" / "manifest.json").read_bytes())
    os.mkfifo(tmp_path / "moments.jsonl.gz")
    done = check("--replay", str(tmp_path), *SECONDS, "--fail-on", "unknown")
    assert (done.code, done.line) == (3, f"UNKNOWN; a poll of recording {tmp_path}; it did not begin in time")


def test_hardware_that_hangs(tmp_path: Path) -> None:
    """The process that hangs in NVML holds none of the caller's pipes: they are read to their end here."""
    hangs = overlay(tmp_path, ("nvml", "gpu5/*", "hang = true"))
    done = check_machine("h200x8", hangs, *LATER, "--json")
    told = done.document
    assert (done.code, told["health"], told["source"]) == (3, "unknown", "own")
    assert told["why"].endswith("did not end in time")
    rules = [one["rule"] for f in told["findings"] for one in (f, *f["same_cause"])]
    assert "gpu.blind" in rules


def test_what_was_seen_before_something_hung_counts(tmp_path: Path) -> None:
    """A look that did not end makes nothing better."""
    down = ("nvml", "gpu2/Field(165,7)", "set = 0")
    hangs = ("sysfs", "*infiniband*", "hang = true")
    config = tmp_path / "wirewatch.toml"
    config.write_text("[policy.nvlink]\nconfirm = 1\n", "utf-8")
    # All the rest must be seen before the deadline, on a busy machine too.
    long = 3 * LONG
    changes = overlay(tmp_path, down, hangs)
    done = check_machine("demo-dgx-h200", changes, "--config", str(config), "--deadline", f"{long:g}s")
    assert (done.code, done.line.split()[:2]) == (2, ["FAILED", "nvlink.link_down"])


def test_one_that_is_stopped_gives_no_verdict_and_leaves_nothing_behind(tmp_path: Path) -> None:
    hangs = overlay(tmp_path, ("nvml", "gpu5/*", "hang = true"))
    words = ("tests.node.cli.unplayed", "h200x8", hangs[1], "check", *NOWHERE, "--deadline", "1m")
    with Process(words, subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task")
        end = time.monotonic() + SOON
        while not (found := _children(children)) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON) == INTERNAL
        assert process.stdout is not None
        assert process.stdout.read() == b""
    until(lambda: not Path(f"/proc/{found[0]}").exists())


def _children(tasks: Path) -> list[str]:
    """Of all threads: each knows those that it started."""
    found: list[str] = []
    for task in tasks.iterdir():
        # A thread may end between the two looks.
        with suppress(FileNotFoundError):
            found += (task / "children").read_text("utf-8").split()
    return found


def test_the_real_daemon_answering_stopped_and_killed(tmp_path: Path) -> None:
    path = tmp_path / "wirewatch.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"')
    with Daemon(["--replay", "h200x8"], tmp_path, config) as daemon:
        daemon.ready()
        asked = ("--config", str(tmp_path / "wirewatch.toml"), "--cached", "--fail-on", "unknown", "--json")
        done = check(*asked)
        told = daemon.get("/health").json()
        assert (done.code, done.document["source"], done.document["health"]) == (0, "daemon", told["health"])
        assert (done.document["why"], done.err) == ("", "")
        daemon.process.send_signal(signal.SIGSTOP)
        done = check(*asked, *SECONDS)
        assert (done.code, done.document["source"]) == (3, "none")
        daemon.process.kill()
        daemon.process.wait()
        assert path.is_socket()
        done = check(*asked)
        assert (done.code, "nothing listens there" in done.document["why"]) == (3, True)


def test_what_hangs_in_a_recording_that_is_played_takes_no_time(tmp_path: Path) -> None:
    """Files that never answer stop the collectors of their lane, and the others go on."""
    hangs = overlay(tmp_path, ("sysfs", "*infiniband*", "hang = true"))
    done = check("--replay", "demo-dgx-h200", *hangs, "--json", "--deadline", "1h")
    told = done.document
    assert (done.code, told["health"]) == (3, "unknown")
    assert "infiniband.blind" in {one["rule"] for f in told["findings"] for one in (f, *f["same_cause"])}
    assert "played for" in told["why"]
