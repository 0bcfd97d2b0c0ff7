"""CPU time of the waiting ledger for eight busy GPUs and three communicators of eight ranks each.

GPUs answer from memory: what NVML itself takes is measured on hardware. Processes are this one, by its id,
so that /proc is read as on a node. `apart`: as in the daemon, where another process reads and folds.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import psutil

from wirewatch.catalogue import discover
from wirewatch.core.collector import AnyCollector, Component, NodeState
from wirewatch.core.fold import after
from wirewatch.core.jobs import RingState
from wirewatch.core.ports import Answer, Gpu, Hardware, NoRas, NoRings, NvmlCost, Question
from wirewatch.core.types import Expect, Json, Ok
from wirewatch.daemon.board import Board
from wirewatch.daemon.schedule import Job
from wirewatch.hw.files import SystemSysfs
from wirewatch.hw.host import SystemClock
from wirewatch.jobs import ledger
from wirewatch.jobs.apart.messages import JobPlaces
from wirewatch.jobs.apart.process import Watcher
from wirewatch.jobs.hangs import HangFacts
from wirewatch.jobs.lockstep import GpuWindow, LockstepFacts
from wirewatch.jobs.surroundings import with_surroundings
from wirewatch.jobs.times import (
    CommunicatorTimes,
    CommunicatorWindow,
    GpuTime,
    JobRank,
    JobsFacts,
    RunningJob,
)
from wirewatch.verdict.node import Judged, judge_state

GPUS, COMMUNICATORS, LOOKS, WARM_UP = 8, 3, 400, 20
PID = os.getpid()
UUIDS = tuple(f"GPU-00000000-0000-4000-8000-{number:012d}" for number in range(GPUS))
ANSWERS: dict[str, Json] = {
    "ComputeRunningProcesses()": [{"pid": PID, "usedGpuMemory": 1 << 30}], "MigMode()": [0, 0],
    "UtilizationRates()": {"gpu": 99, "memory": 30}, "PowerUsage()": 690_000,
    "PowerManagementDefaultLimit()": 700_000,
}  # fmt: skip


class BusyGpus:
    """The NVML port of GPUs that are all busy."""

    def session(self) -> int:
        return 1

    def gpus(self) -> Sequence[Gpu]:
        return [Gpu(number, uuid) for number, uuid in enumerate(UUIDS)]

    def ask(self, _gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        return [Answer(ANSWERS[str(question)]) for question in questions]

    def seek(self) -> None:
        """There is nothing to look for."""

    def cost(self) -> NvmlCost:
        return NvmlCost(None, 0.0, 0, 0)


def job_facts(mono: float) -> JobsFacts:
    """One job over all GPUs, timed a moment ago."""
    ranks = tuple(
        JobRank(n, uuid, str(n), PID, PID, "2.28.9", RingState.LIVE, {}, 0.1, 9_000 + n % 2, mono - 1.0)
        for n, uuid in enumerate(UUIDS)
    )
    window = CommunicatorWindow(mono - 8.0, 6.0, (), ())
    comms = tuple(
        CommunicatorTimes(f"c{n}", "", GPUS, 1, ranks, (window,), fresh=True) for n in range(COMMUNICATORS)
    )
    times = tuple(
        GpuTime(uuid, str(n), 0.3, 0.1, 0.1, measured=True, waits={UUIDS[0]: 0.05}, beyond=0.02)
        for n, uuid in enumerate(UUIDS)
    )
    return JobsFacts(
        0.0, mono, (RunningJob("slurm:1", (), 0, 0.0, live=True, communicators=comms, gpus=times),)
    )


def state_at(mono: float) -> NodeState:
    """The other collectors of jobs, as they have just read."""
    windows = {uuid: GpuWindow(7.5, 0.99, 0.9, 0.3, 1e9, 1e9) for uuid in UUIDS}
    known: dict[str, object] = {
        "jobs": job_facts(mono), "hangs": HangFacts((), (), {PID: "slurm:1"}),
        "lockstep": LockstepFacts(None, None, windows, in_step=True),
    }  # fmt: skip
    outcome = Ok(None, 0.0, mono)
    return NodeState({name: Component(name, None, outcome, facts=facts) for name, facts in known.items()})


class Stepping(SystemClock):
    """The machine's clock, which each look moves on by the ledger's interval."""

    ahead = 0.0

    def mono(self) -> float:
        return super().mono() + self.ahead


def looks(collector: AnyCollector, hardware: Hardware, clock: Stepping, times: int) -> float:
    """Milliseconds of this process's CPU that a look took, the median."""
    component, spent = Component(collector.name, collector.start), []
    for _ in range(times):
        clock.ahead += collector.options.interval
        began = time.process_time()
        step = Job(collector, hardware, Expect()).run(component.memory)
        spent.append((time.process_time() - began) * 1e3)
        component = after(component, step)
        assert component.succeeding, step.outcome
    return statistics.median(spent)


def apart(hardware: Hardware, clock: Stepping, node: Callable[[], Judged]) -> tuple[float, float]:
    """Milliseconds of a look in the agent, the median, and in the process that watches jobs, the mean."""
    watcher = Watcher(JobPlaces(live=True, rings=""), [ledger.COLLECTOR.lane])
    try:
        far = with_surroundings(ledger.COLLECTOR, node, None, {}, watcher)
        looks(far, hardware, clock, WARM_UP)
        before = psutil.Process(watcher.pid).cpu_times()
        agent = looks(far, hardware, clock, LOOKS)
        now = psutil.Process(watcher.pid).cpu_times()
        return agent, (now.user + now.system - before.user - before.system) * 1e3 / LOOKS
    finally:
        watcher.close()


def published(clock: Stepping) -> float:
    """Milliseconds in which the board judges the node again, the median."""
    board, times = Board(discover(), clock), []
    for number in range(LOOKS):
        component = replace(Component(ledger.NAME, None), duration=float(number))
        began = time.process_time()
        board.publish(component)
        times.append((time.process_time() - began) * 1e3)
    return statistics.median(times)


def main() -> None:
    clock = Stepping()
    none: Any = None
    hardware = Hardware(
        BusyGpus(), SystemSysfs(), none, none, none, none, none, clock, none, rings=NoRings(), ras=NoRas()
    )
    interval = ledger.COLLECTOR.options.interval

    def node() -> Judged:
        return judge_state(state_at(clock.mono()))

    here = looks(with_surroundings(ledger.COLLECTOR, node, None, {}), hardware, clock, LOOKS)
    agent, beside = apart(hardware, clock, node)
    board = published(clock)
    print(f"{'CPU of the ledger, 8 busy GPUs, 3 communicators':<52}{'ms a look':>10}{'% of a core':>13}")
    for name, spent in (
        ("read and fold in one process", here), ("apart: the agent's part", agent),
        ("apart: the process that watches jobs", beside), ("the board judges the node again", board),
        ("apart, together", agent + beside + board),
    ):  # fmt: skip
        print(f"{name:<52}{spent:>10.2f}{spent / interval / 10:>13.3f}")


if __name__ == "__main__":
    main()
