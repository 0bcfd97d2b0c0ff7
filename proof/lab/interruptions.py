"""A sweep that is ended at random moments: nothing measured is lost, nothing is measured twice.

    make interruptions

First a sweep of this machine's processors by engine gloo that nobody ends, then the same one, ended by
SIGINT, SIGTERM and SIGKILL in turn and resumed each time: its list of measurements must be the same. Then
jobs that come to GPUs which are drawn, with workers that are processes: how long until the worker is gone.
Some three minutes.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.lab.study.sweeps import WorkerNode, measured, small
from wirewatch_lab.study.records import NAME, keys, read_records

SEED = 20261123
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
ENDS_WITHIN = 4.5
"""Seconds from a signal to the end of the command: its own limit, and some for a busy machine."""
GIVES_WAY = 0.1
INTERNAL = 70
WANTED = ("--engine", "gloo", "--gpus", "2,4", "--size", "8:64K:4", "--repeats", "4", "--seed", "7")
JOBS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description="A sweep that is ended at random moments.")
    parser.add_argument("--moments", type=int, default=10)
    options = parser.parse_args()
    # It is ignored by what a script starts in its background, and by what that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="wirewatch-interruptions-") as folder:
        good = _signals(Path(folder), options.moments)
        good = _jobs(Path(folder)) and good
    print("PASS" if good else "FAIL")
    return 0 if good else 1


def _signals(folder: Path, count: int) -> bool:
    began = time.monotonic()
    if _run(folder, "--out", str(folder / "whole"), *WANTED).wait():
        print((folder / "log").read_text("utf-8"))
        return False
    took = time.monotonic() - began
    whole = measured(folder / "whole")
    print(f"nobody ends it: {len(whole)} measurements in {took:.1f} s")
    dice = random.Random(SEED)  # noqa: S311 - moments, no secrets
    wrong: list[str] = (
        [] if sorted(whole) == sorted(keys(read_records(folder / "whole").header)) else ["part"]
    )
    ended = folder / "ended"
    process, before = _run(folder, "--out", str(ended), *WANTED), b""
    for number in range(count):
        sent = SIGNALS[number % len(SIGNALS)]
        # At any moment of the start, or after some more measurements.
        due = len(measured(ended)) + dice.randrange(2 * len(whole) // count) if before else 1
        moment = _wait(process, ended, due if number % 3 else 0, dice.uniform(0, 2))
        late, status = _end(process, sent)
        data = (ended / NAME).read_bytes() if (ended / NAME).exists() else b""
        found = measured(ended) if data else []
        wrong += _wrong(before, data, found, status, sent, late)
        print(
            f"{number + 1:3}. {sent.name} after {moment:5.2f} s: status {status}, gone after {late:.2f} s, "
            f"{len(found)} of {len(whole)} are there"
        )
        before = data[: data.rfind(b"\n") + 1]
        again = ("--resume", str(ended)) if before else ("--out", str(ended), *WANTED)
        process = _run(folder, *again)
    status = process.wait()
    same = measured(ended) == whole
    print(f"resumed to its end: status {status}, the same list of {len(whole)} measurements: {same}")
    for text in wrong:
        print(f"wrong: {text}")
    if wrong:
        print((folder / "log").read_text("utf-8")[-5000:])
    return same and status == 0 and not wrong


def _run(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    state = folder / "state"
    state.mkdir(exist_ok=True)
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "wirewatch_lab", "sweep", *arguments], stdout=log, stderr=log,
            env={**os.environ, "STATE_DIRECTORY": str(state)}, start_new_session=True,
        )  # fmt: skip


def _wait(process: "subprocess.Popen[bytes]", folder: Path, count: int, more: float) -> float:
    """Wait for so many measurements, and some seconds more; returns how long that took."""
    began = time.monotonic()
    while (
        count and process.poll() is None and not ((folder / NAME).exists() and len(measured(folder)) >= count)
    ):
        time.sleep(0.02)
    time.sleep(more / 8 if count else more)
    return time.monotonic() - began


def _end(process: "subprocess.Popen[bytes]", sent: signal.Signals) -> tuple[float, int]:
    """Seconds until it was gone, and its status."""
    if process.poll() is None:
        process.send_signal(sent)
    began = time.monotonic()
    status = process.wait()
    return time.monotonic() - began, status


def _wrong(
    before: bytes, data: bytes, found: Sequence[object], status: int, sent: signal.Signals, late: float
) -> list[str]:
    """What is not as it should be after one end."""
    wrong = [] if data.startswith(before) else ["what was there has changed"]
    wrong += [f"{key} twice" for key, count in Counter(found).items() if count > 1]
    # Before its first line runs, a signal does what it does by default.
    due = {-sent} if sent is signal.SIGKILL else {-sent, INTERNAL}
    wrong += [] if status in due else [f"status {status} after {sent.name}"]
    return wrong + ([] if late < ENDS_WITHIN else [f"gone {late:.1f} s after {sent.name}"])


def _jobs(folder: Path) -> bool:
    """Jobs that come while a worker measures."""
    dice = random.Random(SEED)  # noqa: S311
    took = []
    for number in range(JOBS):
        place = folder / f"job{number}"
        place.mkdir()
        node = Comer(place, dice.randrange(1, 30))
        end = node.sweep(small())
        took.append(node.waited())
        node.leave()
        complete = node.sweep().how == "complete"
        if end.how != "gave_way" or not complete or sorted(measured(node.folder)) != sorted(keys(small())):
            print(f"wrong: job {number}: {end}")
            return False
    worst = max(took)
    print(
        f"{JOBS} jobs came: the worker was gone after {1e3 * sorted(took)[JOBS // 2]:.0f} ms in the median, "
        f"{1e3 * worst:.0f} ms in the worst case; each was resumed to its end"
    )
    return worst <= GIVES_WAY


class Comer(WorkerNode):
    """Notes when a job came, and from a thread of its own when the worker was gone."""

    def __init__(self, folder: Path, when: int) -> None:
        super().__init__(folder)
        self.came = self.dead = 0.0
        self.job = when
        self._watch = threading.Thread(target=self._until_dead)

    def _moves(self, seconds: float) -> None:
        super()._moves(seconds)
        if self.job == 0 and not self.came:
            self.came = time.monotonic()
            self._watch.start()

    def _until_dead(self) -> None:
        stat = Path(f"/proc/{self.pid_file.read_text('utf-8')}/stat")
        with suppress(FileNotFoundError, ProcessLookupError):
            while stat.read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX":
                time.sleep(0.001)
        self.dead = time.monotonic()

    def waited(self) -> float:
        """Seconds from the job to the end of the worker."""
        self._watch.join()
        return self.dead - self.came


if __name__ == "__main__":
    sys.exit(main())
