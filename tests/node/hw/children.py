"""An NVML client with real child processes, a clock of our own, and everything ended afterwards."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.node.hw.recordings import Time
from tests.patience import HANGS
from wirewatch.core.ports import Answer, Gpu, Question
from wirewatch.core.types import Absent
from wirewatch.hw.nvml.client import Limits, NvmlClient
from wirewatch.hw.nvml.process import Child, Delay, Kill
from wirewatch.hw.nvml.protocol import Source

LIMITS = Limits(
    job=2.0,
    start=30.0,
    restart=Delay(1.0, 30.0),
    leave_out=Delay(10.0, 600.0),
    lost=Delay(60.0, 600.0),
)
NAME, POWER, HEAT = Question("Name"), Question("PowerUsage"), Question("Temperature", (0,))
SOON = HANGS
"""Seconds in which anything that shall happen has happened, also on a slow machine."""


class Rig:
    """A client of a recording with an overlay; its waiting times pass when `waits` says so."""

    def __init__(self, source: Source, kill: Kill = os.kill, limits: Limits = LIMITS) -> None:
        self.children: list[Child] = []
        self._kill = kill
        self._time = Time(1000.0)
        self.nvml = NvmlClient(source, limits, self._start, self._time)

    def _start(self, source: Source) -> Child:
        child = Child(source, self._kill)
        self.children.append(child)
        return child

    def wait(self, seconds: float) -> None:
        self._time.seconds += seconds

    def gpus(self) -> list[Gpu]:
        told = self.nvml.gpus()
        assert not isinstance(told, Absent), str(told)
        return list(told)

    def key(self, index: int) -> str:
        return self.gpus()[index].key

    def ask(self, gpu: str | None, *questions: Question) -> list[Answer]:
        return list(self.nvml.ask(gpu, questions))

    def name(self, gpu: str) -> object:
        return self.ask(gpu, NAME)[0].value

    def pid(self) -> int:
        pid = self.nvml.cost().pid
        assert pid is not None
        return pid

    def end(self) -> None:
        """End every process, also one that the client believes it cannot kill."""
        self.nvml.close()
        for child in self.children:
            if not child.gone():
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
            child.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it is not, and has had the time.
    """
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def is_dead(pid: int) -> bool:
    """Whether a process has ended with all its threads; one that was not waited for yet has."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
        threads = list((process / "task").iterdir())
    except OSError:
        return True
    return state in {"Z", "X"} and len(threads) <= 1
