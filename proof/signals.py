"""Signals at random moments: `python -m proof.signals [--moments 500] [--seed 1]`, five minutes.

Each moment is a real process of wirewatch that gets a signal after a random time, more often early, while it
is imported and starts. It has to end within LIMIT seconds with its exit code, and to leave no process behind.
What it prints is a Markdown table. Signals that come before the first line of our code are counted apart:
SIGTERM ends the interpreter by itself, and SIGINT as the interpreter takes it while it starts.
"""

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 5.0
"""Seconds from the signal to the end."""
AT_ONCE = 4
"""Processes at the same time: they wait more than they compute."""
LEFT = 3.0
"""Seconds after that in which all that it started is gone."""
MARK = "WIREWATCH_PROOF"
HANGING = '[[change]]\nport = "nvml"\nmatch = "*"\nhang = true\n'
CONFIG = '[listen]\nsocket = ""\n[probe]\nengine = "gloo"\nranks = 2\nsettle = 0.0\n'
SERVE = ("serve", "--listen", "127.0.0.1:0", "--config", "wirewatch.toml")
RECORDING = ("--replay", "h200x8")


@dataclass(frozen=True, slots=True)
class Case:
    """A command line, its exit code after a signal, the seconds in which signals come, and its log."""

    about: str
    words: Sequence[str]
    code: int
    within: float
    log_is_full: bool = False


CASES = (
    Case("serve, imports and start", (*SERVE, *RECORDING), 0, 0.6),
    Case("serve, first polls and after", (*SERVE, *RECORDING), 0, 4.0),
    Case("serve, a driver that hangs", (*SERVE, *RECORDING, "--overlay", "hanging.toml"), 0, 4.0),
    Case("serve, nobody reads the log", (*SERVE, *RECORDING), 0, 4.0, log_is_full=True),
    Case("serve, without a recording, a probe running", SERVE, 0, 4.0),
    Case("prober", ("prober", "--socket", "prober.sock", *RECORDING), 0, 2.0),
    Case("check", ("check", "--socket", "", *RECORDING), 70, 1.5),
    Case("check, a driver that hangs", ("check", *RECORDING, "--overlay", "hanging.toml"), 70, 2.0),
    Case("probe", ("probe", "--engine", "gloo", "--config", "wirewatch.toml"), 70, 3.0),
    Case("record", ("record", "recording", "--moments", "1000"), 70, 2.0),
    Case("topology", ("topology", "show", *RECORDING), 70, 1.0),
)


@dataclass
class Tally:
    """What became of the moments of one case."""

    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)
    left_behind: int = 0
    before: int = 0


def main() -> int:
    """Send the signals and print the table; 1 when one was lost, late, answered wrongly or left a process."""
    parser = argparse.ArgumentParser(prog="proof.signals")
    parser.add_argument("--moments", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    # What is ignored here, as in a shell's job in the background, would be ignored there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    counts = [len(range(number, given.moments, len(CASES))) for number in range(len(CASES))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(_case, CASES, counts, (given.seed + number for number in range(len(CASES))))
        tallies = dict(zip(CASES, done, strict=True))
    sys.stdout.write("\n".join(_table(tallies)) + "\n")
    return int(any(one.wrong or one.left_behind for one in tallies.values()))


def _case(case: Case, moments: int, seed: int) -> Tally:
    chance, tally = random.Random(seed), Tally()  # noqa: S311 - moments, no secrets
    for _ in range(moments):
        with tempfile.TemporaryDirectory(prefix="wirewatch-signals-") as folder:
            _moment(case, Path(folder), chance, tally)
    return tally


def _end_left(token: str) -> int:
    """How many processes of a moment are left after a while; they are killed."""
    until = time.monotonic() + LEFT
    while (left := list(_marked(token))) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _moment(case: Case, folder: Path, chance: random.Random, tally: Tally) -> None:
    number = chance.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGINT))
    after = chance.random() ** 1.5 * case.within
    (folder / "hanging.toml").write_text(HANGING, "utf-8")
    (folder / "wirewatch.toml").write_text(CONFIG, "utf-8")
    token = secrets.token_hex(8)
    environment = {**os.environ, MARK: token, "STATE_DIRECTORY": str(folder / "state")}
    reading, writing = os.pipe()
    if case.log_is_full:
        _fill(writing)
    else:
        os.close(reading)
        os.close(writing)
        reading, writing = -1, os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "wirewatch", *case.words], cwd=folder, env=environment, stderr=writing,
        stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    time.sleep(after)
    ours = _takes_signals(process.pid)
    began = time.monotonic()
    process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(2 * LIMIT)
    took, code = time.monotonic() - began, process.poll()
    if ours:
        log = "" if case.log_is_full else (folder / "log").read_text("utf-8", "replace")[-600:]
        _judge(case, tally, code, took, f"{number.name} after {after:.3f} s", log)
    else:
        process.kill()
        tally.before += 1
    tally.left_behind += _end_left(token)
    process.wait()
    if reading >= 0:
        os.close(reading)


def _judge(case: Case, tally: Tally, code: int | None, took: float, when: str, log: str) -> None:
    tally.slowest = max(tally.slowest, took)
    if code is None or took > LIMIT:
        tally.wrong.append(f"{case.about}: {when}: {took:.1f} s")
    tally.ends[str(code)] += 1
    # A command may have had its answer already.
    if code != case.code and (case.code == 0 or code not in {0, 1, 2, 3}):
        tally.wrong.append(f"{case.about}: {when}: exit code {code}: {log}")


def _takes_signals(pid: int) -> bool:
    """Whether the process has said what happens at SIGTERM: before, it is the interpreter alone."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    caught = next(int(line[7:], 16) for line in status if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def _fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n" * 4096)
    os.set_blocking(pipe, True)


def _marked(token: str) -> Iterator[int]:
    wanted = f"{MARK}={token}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _table(tallies: dict[Case, Tally]) -> Iterator[str]:
    yield "| what it does | moments | exit codes | before our code | slowest | wrong | left behind |"
    yield "|---|---|---|---|---|---|---|"
    for case, tally in tallies.items():
        ends = ", ".join(f"{code}: {n}" for code, n in sorted(tally.ends.items()))
        yield (
            f"| {case.about} | {tally.ends.total() + tally.before} | {ends} | {tally.before} "
            f"| {tally.slowest:.2f} s | {len(tally.wrong)} | {tally.left_behind} |"
        )
    for tally in tallies.values():
        yield from tally.wrong


if __name__ == "__main__":
    sys.exit(main())
