"""What the kit does with processes, tried with real ones: workers in trouble, and who sees their end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proof.hardware import processes, trouble
from proof.hardware.jobs.observer import Look, watch
from proof.hardware.kit import KitError, Report
from proof.hardware.probing import Probing
from tests.node.collectors.drawn import Gpus, Watched
from tests.patience import HANGS
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Json

MARK = f"worker-of-the-kit's-tests-{os.getpid()}"
SLEEPER = ("-c", "import sys, time; sys.stdin.readline(); time.sleep(60)", MARK)
GPUS = 2


@dataclass
class Shared(Gpus):
    """GPUs on which the workers of this test compute; what they hold is theirs while they live."""

    held: int = 1 << 30
    asked: list[str] = field(default_factory=list)

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        pids = processes.with_argument(MARK)
        told: dict[str, Json] = {
            "ComputeRunningProcesses": [{"pid": pid} for pid in pids],
            "MemoryInfo": {"used": len(pids) * self.held, "free": self.held},
        }
        answers = super().ask(gpu, questions)
        return [
            Answer(told[q.call]) if gpu is not None and q.call in told else answer
            for q, answer in zip(questions, answers, strict=True)
        ]


@pytest.fixture
def here(tmp_path: Path) -> Probing:
    gpus = Shared([f"0000:{n}0:00.0" for n in range(GPUS)])
    watched = Watched("topology", gpus=gpus)
    listed = gpus.gpus()
    assert isinstance(listed, list)
    return Probing(Report("kit", tmp_path), watched.hardware, tuple(listed), SLEEPER, MARK)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", MARK]) as process:
        try:
            # Between fork and exec it still has our arguments.
            while process.pid not in processes.with_argument(MARK):
                time.sleep(0.001)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        (trouble.killed, "failed"),
        (trouble.late, "timeout"),
        (trouble.garbage, "garbage"),
    ],
)
def test_a_worker_in_trouble(here: Probing, case: trouble.Case, outcome: str) -> None:
    case(here)
    assert here.report.ok, here.report.checks
    assert [probe["outcome"] for probe in here.report.data["probes"]] == [outcome]
    assert processes.with_argument(MARK) == []


def test_a_worker_that_hangs(here: Probing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "SOON", 0.1)
    monkeypatch.setattr(trouble, "HANGING", 1.5)
    trouble.hanging(here)
    assert here.report.ok, here.report.checks


def test_another_end_than_expected_fails(here: Probing) -> None:
    trouble.ends(here, "late", ("ok",), deadline=0.3)
    assert [check["ok"] for check in here.report.checks] == [False, True, True]


def test_what_is_left_behind_is_reported(here: Probing, sleeper: subprocess.Popen[bytes]) -> None:
    before = [0] * GPUS
    assert str(sleeper.pid) in here.left(before, within=0.0)
    assert here.pid() == sleeper.pid
    sleeper.kill()
    assert here.left(before) == ""
    with pytest.raises(KitError, match="no worker was started"):
        here.pid(within=0.05)


def test_a_process_from_its_life_to_its_end(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.dying(sleeper.pid) == ""
    assert processes.with_argument(MARK) == [sleeper.pid]
    sleeper.kill()
    end = time.monotonic() + HANGS
    while processes.dying(sleeper.pid) != "dead" and time.monotonic() < end:
        time.sleep(0.001)
    assert processes.dying(sleeper.pid) == "dead"
    sleeper.wait()
    assert processes.dying(sleeper.pid) == "dead"


def test_the_witness_sees_who_comes_and_who_goes(sleeper: subprocess.Popen[bytes]) -> None:
    foreign = 1 << 30
    came: list[float] = []
    up = threading.Event()

    def look() -> Look:
        alive = processes.alive(sleeper.pid)
        pids = {sleeper.pid} if alive else set()
        return [pids, pids | ({foreign} if came else set())], [2 * alive, 2 * alive]

    def come() -> None:
        assert up.wait(HANGS)
        time.sleep(0.1)
        came.append(time.monotonic())
        time.sleep(0.05)
        os.kill(sleeper.pid, signal.SIGKILL)

    thread = threading.Thread(target=come)
    thread.start()
    seen = watch(3, sleeper.pid, foreign, look, up.set)
    thread.join()
    assert seen.up is not None
    assert seen.unseen is not None
    assert seen.visible is not None
    assert seen.killed is not None
    assert seen.dead is not None
    assert seen.up < seen.unseen < seen.visible < seen.killed <= seen.dead
    assert came[0] < seen.visible
    assert [used for _, used in seen.used] == [[2, 2], [0, 0]]


def test_the_witness_does_not_wait_for_who_never_comes(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proof.hardware.jobs.observer.ALONE", 0.2)
    sleeper.kill()
    seen = watch(0, sleeper.pid, 1, lambda: ([set()], [0]), lambda: None)
    assert (seen.up, seen.visible) == (None, None)
    assert seen.dead is not None
