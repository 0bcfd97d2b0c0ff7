"""Jobs on several GPUs as the collector `lockstep` reads them: measured windows, and stories made of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import EPOCH
from wirewatch.core.collector import GpuReading
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Expect, Ok, Why
from wirewatch.jobs.lockstep.judge import judge
from wirewatch.jobs.lockstep.model import (
    GpuUse,
    GpuWindow,
    LockstepMemory,
    LockstepPolicy,
    LockstepReading,
)

FILE = Path(__file__).parent / "gpm-h200x2.json"
"""Two H200 on 2026-11-21; the windows were 2 s long and are taken as of an interval."""
EVERY, SECONDS = 7.5, 7.4
LOCKSTEP = ("data_parallel", "tensor_parallel", "sharded", "memory_bound")
OTHERS = ("pipeline", "experts", "checkpoints", "stalls", "bursts")
NOT_ASKED = Absent(Why.MISSING, "not asked: there is no job to look at")
LOST = Absent(Why.LOST, "GPU has fallen off the bus")

Row = tuple[GpuWindow, ...]
"""One window of each GPU."""


@cache
def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))["windows"]
    return rows


def shapes() -> set[str]:
    return {row["shape"] for row in _rows()}


def measured(shape: str, how: str = "healthy", gpu: int | None = None) -> list[Row]:
    """The measured windows of a job; `gpu` is the one that something was done to."""
    found = [r["gpus"] for r in _rows() if (r["shape"], r["how"], r["gpu"]) == (shape, how, gpu)]
    assert found, (shape, how, gpu)
    return [tuple(window(told) for told in gpus) for gpus in found]


def window(told: Mapping[str, float]) -> GpuWindow:
    math = {unit: told[unit] for unit in ("tensor", "fp64", "fp32", "fp16")}
    return GpuWindow(
        SECONDS, told["graphics"], told["sm"], told["dram"], told["received"], told["sent"], math,
        told["clock"],
    )  # fmt: skip


def processes_of(shape: str, how: str, gpu: int) -> list[list[int]]:
    """How many processes computed on each GPU in those windows."""
    rows = [r for r in _rows() if (r["shape"], r["how"], r["gpu"]) == (shape, how, gpu)]
    return [[told["processes"] for told in row["gpus"]] for row in rows]


def use(window: GpuWindow | Absent, *processes: int) -> GpuUse:
    return GpuUse(offers=True, mig=False, processes=frozenset(processes), window=window)


def reading(uses: Sequence[GpuUse | Absent]) -> LockstepReading:
    return tuple(GpuReading(Gpu(i, f"GPU-{i}"), one) for i, one in enumerate(uses))


class Story:
    """A job on so many GPUs, watched from its start; each method is one reading or several."""

    def __init__(self, gpus: int = 2, policy: LockstepPolicy | None = None) -> None:
        self.gpus, self.policy = gpus, policy or LockstepPolicy()
        self.memory = LockstepMemory()
        self.mono = 1000.0

    def begin(self) -> "Story":
        """The job has run for long enough to be looked at."""
        self.idle(after=self.policy.settle)
        return self.idle()

    def idle(self, after: float = EVERY) -> "Story":
        """One reading of the job without a window."""
        return self.read([use(NOT_ASKED, 100 + i) for i in range(self.gpus)], after)

    def see(self, *rows: Row) -> "Story":
        """Windows of the job, one reading each."""
        for row in rows:
            self.read([use(one, 100 + i) for i, one in enumerate(row)])
        return self

    def read(self, uses: Sequence[GpuUse | Absent], after: float = EVERY) -> "Story":
        """One reading; the next comes `after` so many seconds."""
        ok = Ok(reading(uses), EPOCH + self.mono, self.mono)
        self.memory, findings = judge(self.memory, ok, self.policy, Expect())
        assert findings == ()
        self.mono += after
        return self

    def hint(self) -> str | None:
        """The GPU that is hinted at now."""
        return None if self.memory.hint is None else self.memory.hint.gpu

    def uneven(self) -> str | None:
        """The GPU that is said to have more work than the others now."""
        return None if self.memory.uneven is None else self.memory.uneven.gpu


def spread_over(row: Row, gpus: int, slow: int | None = None) -> Row:
    """A window of two GPUs as one of many: the second is that of `slow`, all others are the first."""
    first, second = row
    return tuple(second if i == slow else replace(first) for i in range(gpus))
