"""A signal ends every process of ours in time and with its exit code, whatever it does at that moment."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.examples import SHARE
from tests.node.daemon.process import FAST, SOON, Daemon
from tests.node.hw.children import until
from tests.node.moments import TAKES
from tests.processes import ROOT, Process

"""Seconds: three times what an idle machine may take."""
INTERNAL = 70
SERVE = ("wirewatch", "serve", "--listen", "127.0.0.1:0", "--replay", "h200x8")
HANGING = '[[change]]\nport = "nvml"\nmatch = "*"\nhang = true\n'
SWALLOWING = """
import sys
from wirewatch import signals
from wirewatch.__main__ import main

signals.LIMIT = 3600.0

class Odd:
    def __del__(self):
        sys.stdout.write("inside\\n")
        sys.stdout.flush()
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass

import time, wirewatch.cli

def run(*_):
    one = Odd()
    del one
    time.sleep(60)

wirewatch.cli.run = run
sys.argv = ["wirewatch", *sys.argv[1:]]
main()
"""
DEAF = """
import sys, time, wirewatch.cli
from wirewatch.__main__ import main
from wirewatch import signals

signals.LIMIT = 0.5

def run(*_):
    told = False
    while True:
        try:
            told = told or not print("inside", flush=True)
            time.sleep(60)
        except BaseException:
            pass

wirewatch.cli.run = run
sys.argv = ["wirewatch", *sys.argv[1:]]
main()
"""


WRAPPING = """
import sys, time, wirewatch.cli
from wirewatch.__main__ import main

def run(*_):
    try:
        print("inside", flush=True)
        time.sleep(60)
    except BaseException:
        return 70

wirewatch.cli.run = run
sys.argv = ["wirewatch", *sys.argv[1:]]
main()
"""


def program(text: str, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)


def children(pid: int) -> list[str]:
    """Of all its threads: each knows those that it started."""
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end between the two looks.
        with suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "children").read_text("utf-8").split()
    return found


def ended(process: "subprocess.Popen[bytes]", number: int) -> tuple[int, float]:
    assert process.stdout is not None
    assert process.stdout.readline() == b"inside\n"
    began = time.monotonic()
    process.send_signal(number)
    code = process.wait(SOON)
    process.communicate()
    return code, time.monotonic() - began


@pytest.mark.parametrize(("command", "code"), [("serve", 0), ("check", INTERNAL)])
def test_an_exception_that_a_destructor_swallows_is_raised_again(command: str, code: int) -> None:
    """It comes in the destructor, which lasts a second; a sleep of a minute would follow."""
    with program(SWALLOWING, command) as process:
        assert ended(process, signal.SIGTERM)[0] == code


@pytest.mark.parametrize(("command", "code"), [("serve", 0), ("check", INTERNAL)])
def test_a_library_that_makes_another_error_of_it_changes_no_daemons_exit_code(
    command: str, code: int
) -> None:
    with program(WRAPPING, command) as process:
        assert ended(process, signal.SIGTERM)[0] == code


def test_one_that_swallows_everything_is_ended_all_the_same() -> None:
    with program(DEAF, "probe") as process:
        found, took = ended(process, signal.SIGTERM)
    assert found == INTERNAL
    assert took > 0.4


def test_a_signal_that_was_blocked_at_the_start_comes() -> None:
    """As process 1 of a container may be started, so that none is lost before it can take any."""
    script = "import os, signal, sys\n"
    script += "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    script += "os.kill(os.getpid(), signal.SIGTERM)\n"
    script += "os.execv(sys.executable, [sys.executable, '-m', 'wirewatch', 'serve', '--replay', 'h200x8'])\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, b"listen" in done.stderr) == (0, False)


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    ("every", "words", "codes"),
    [
        # Some moments come after the answer, which is UNKNOWN.
        (10 if SHARE < 1 else 1, ("check", "--cached", "--socket", ""), {INTERNAL, 3}),
        (0 if SHARE < 1 else 10, ("serve", "--socket", "", "--listen", "127.0.0.1:0", *SERVE[4:]), {0}),
    ],
    ids=["check", "serve"],
)
def test_at_whichever_moment_of_its_start_a_signal_comes(
    number: str, every: int, words: tuple[str, ...], codes: set[int]
) -> None:
    """It ends with its exit code, and says nothing of errors that came of the signal."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.node.moments", number, str(every), *words],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, check=False,
    )  # fmt: skip
    moments = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"[")]
    assert not every or any("__set_name__" in place for place, *_ in moments)
    early = {-signal.Signals[number], *codes}
    assert {code for place, code, _ in moments if place.startswith(TAKES)} == early - {3}
    wrong = [
        (place, code, said)
        for place, code, said in moments
        if code not in (early if place.startswith(TAKES) else codes)
        or "Traceback" in said or "UNKNOWN" in said
    ]  # fmt: skip
    assert wrong == []


def test_children_get_signals_as_they_were(tmp_path: Path) -> None:
    """Once they run their own program: until then, all are blocked for a moment."""
    ours = sum(1 << number - 1 for number in (signal.SIGTERM, signal.SIGHUP))

    def is_free(pid: str) -> bool:
        status = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
        masks = {line[:6]: int(line[7:], 16) for line in status if line.startswith(("SigBlk", "SigIgn"))}
        return masks["SigBlk"] & ours == masks["SigIgn"] & ours == 0

    with Daemon(("--replay", "h200x8"), tmp_path, forks=False) as daemon:
        until(lambda: bool(children(daemon.process.pid)))
        child = children(daemon.process.pid)[0]
        until(lambda: is_free(child))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_daemon_ends_while_its_driver_hangs_and_nobody_reads_its_log(tmp_path: Path, number: int) -> None:
    """The pipe of the log is full from the start, and more signals come while it ends."""
    overlay = tmp_path / "hanging.toml"
    overlay.write_text(HANGING, "utf-8")
    config = tmp_path / "wirewatch.toml"
    config.write_text(FAST, "utf-8")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filled = 0
    while True:
        try:
            filled += os.write(writing, b"\n" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writing, True)
    words = (*SERVE, "--overlay", str(overlay), "--config", str(config))
    state = {"STATE_DIRECTORY": str(tmp_path / "state")}
    with open(writing, "wb", 0) as errors:  # noqa: PTH123
        process = Process(words, stderr=errors, env={**os.environ, **state})
    try:
        until(lambda: bool(children(process.pid)))
        for again in (number, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.send_signal(again)
        assert process.wait(SOON) == 0
    finally:
        process.kill()
        process.wait(SOON)
        os.close(reading)


def test_sighup_reads_the_configuration_again(tmp_path: Path) -> None:
    with Daemon(("--replay", "h200x8"), tmp_path) as daemon:
        file = tmp_path / "wirewatch.toml"

        def hang_up(text: str, told: str) -> str:
            file.write_text(text, "utf-8")
            daemon.process.send_signal(signal.SIGHUP)
            until(lambda: told in daemon.log)
            return daemon.log

        def success() -> float:
            return daemon.get("/metrics").series()["wirewatch_config_last_reload_success", frozenset()]

        daemon.wait("/health", '"health":"ok"')
        assert success() == 1
        hang_up(f"{FAST}[expect]\ngpus = 9\n[page]\nrunbook = 'http://x/y'\n", "read again")
        assert "configuration: the change of page.runbook needs a restart" in daemon.log
        daemon.wait("/health", "gpu.missing")
        hang_up(f"{FAST}[expect]\ngpu = 9\n", "nothing was changed")
        assert "wirewatch.toml: unknown key 'expect.gpu'; did you mean 'gpus'" in daemon.log
        assert success() == 0
        assert "gpu.missing" in daemon.get("/health").text
        file.write_text(
            f"{FAST}enabled = false\n[policy.verdict]\nfail_on = ['failed', 'degraded']\n", "utf-8"
        )
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: success() == 1)
        state = daemon.get("/api/v1/state").json()
        assert "pcie" not in {one["collector"] for one in state["collectors"]}
        assert daemon.get("/livez").status == 200
        assert daemon.terminate()[0] == 0
