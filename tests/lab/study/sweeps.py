"""A sweep over idle GPUs that are drawn, with workers in memory that behave as a test wants."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.node.probe import workers
from tests.node.probe.idle import Idle
from tests.support import EPOCH
from wirewatch.core.account import Account, Call
from wirewatch.core.ports import Order
from wirewatch.core.probe import (
    DOCUMENT_SCHEMA,
    PROBED_SCHEMA,
    Case,
    Cost,
    Document,
    ErrorKind,
    Outcome,
    Probed,
    Timed,
    WorkerError,
)
from wirewatch.hw.host import SystemClock
from wirewatch.nccl.log import logged_size
from wirewatch.probe.gate import Stillness
from wirewatch.probe.runner import ProbeRunner, RunnerPorts
from wirewatch.probe.setup import ProbeRequest, prepare
from wirewatch_lab.study.curve import Configuration
from wirewatch_lab.study.grid import EAGER, GRAPH, GridCurve, SweepOptions
from wirewatch_lab.study.records import SCHEMA, Key, SweepFile, SweepHeader
from wirewatch_lab.study.sweep import Batch, SweepEnd, SweepRun, SweepView

OPTIONS = SweepOptions("nccl", ("all_reduce", "all_gather"), repeats=3)
SIZES = (64, 1024, 1 << 20)
CURVES = tuple(
    GridCurve(op, Configuration(ranks, algorithm, "auto", launch), SIZES)
    for op, algorithm in (("all_reduce", "Ring"), ("all_gather", "Ring"), ("all_reduce", "Tree"))
    for ranks in (2, 4)
    for launch in (EAGER, GRAPH)
)


def header(
    curves: tuple[GridCurve, ...] = CURVES, seed: int = 1, options: SweepOptions = OPTIONS
) -> SweepHeader:
    return SweepHeader(SCHEMA, "0.0", EPOCH, seed, options, {"driver": "580"}, curves, ("PAT: no",))


def seconds(case: Case) -> float:
    return 1e-5 + case.size_bytes / 1e11


@dataclass(frozen=True)
class Failure:
    """How a worker ends before a case; `started`: what of its start it has behind it then."""

    outcome: Outcome = "failed"
    why: str = "NCCL says no"
    document: bool = True
    contexts: float = 1.0
    communicators: float = 2.0


NO_START = Failure("failed", "the worker ended with status 1 and wrote nothing", document=False)
REFUSED = Failure("failed", "NCCL says ncclInvalidUsage", communicators=0.0)
NO_ROOM = Failure("out_of_memory", "GPU 1: no memory", contexts=0.0, communicators=0.0)


@dataclass
class Node:
    """GPUs that are idle; `fails` says how a worker of an order ends before a case, None for well.

    `stops` counts down with each measurement: at 0 the sweep is told to end. `ran`: all orders so far.
    """

    folder: Path
    fails: Callable[[Order, Case], Failure | None] = lambda _order, _case: None
    stops: int | None = None
    comes: int | None = None
    hangs: Callable[[Case], bool] = lambda _case: False
    answered: Callable[[Timed], Timed] = lambda timed: timed
    ran: list[Order] = field(default_factory=list)
    began: list[Batch] = field(default_factory=list)
    moved: float = 0.0

    def __post_init__(self) -> None:
        self.idle = Idle(4, settle=0.0)
        self.idle.probes.result = self.run

    def stop(self) -> str | None:
        return "ended by SIGINT" if self.stops == 0 else None

    def sweep(self, made: SweepHeader | None = None) -> SweepEnd:
        """Begin, or go on."""
        with SweepFile.create(self.folder) if made else SweepFile.resume(self.folder) as file:
            if made is not None:
                file.begin(made)
            order = prepare(self.idle.hardware, ProbeRequest(self.idle.made, "command"), Stillness()).order
            assert isinstance(order, Order)
            view = SweepView(self.began.append, self._moves, self.stop)
            return SweepRun(self.idle.hardware, order, file, view).run()

    def _moves(self, seconds: float) -> None:
        self.moved += seconds

    def run(self, order: Order) -> Probed:
        """The worker, as the runner shows it."""
        self.ran.append(order)
        done: list[Timed] = []
        for case in order.plan.cases:
            if self.hangs(case):
                self.idle.clock.seconds += 1e6
            why = "GPU 0 has a process" if self.comes == 0 else order.unwanted()
            failure = Failure("preempted", why, document=False) if why else self.fails(order, case)
            if failure is not None:
                return probed(order, tuple(done), failure)
            done.append(self.answered(timed(case)))
            self.stops = self.stops and self.stops - 1
            self.comes = self.comes and self.comes - 1
            order.heard(done[-1])
        return probed(order, tuple(done), None)


class WorkerNode(Node):
    """GPUs that are drawn, with workers that are processes; a job comes after so many measurements."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "sweep")
        self.job: int | None = None
        self.pid_file = folder / "pid"
        inherited = {**os.environ, workers.WHICH: "reporting", workers.PID_FILE: str(self.pid_file)}
        around = RunnerPorts(self.idle.gpus, self.idle.files, SystemClock())
        self.idle.probes.result = ProbeRunner(around, None, inherited, workers.COMMAND).run

    def _moves(self, seconds: float) -> None:
        super()._moves(seconds)
        self.job = self.job and self.job - 1
        if self.job == 0:
            self.idle.busy(3, 4242)

    def leave(self) -> None:
        """The job ends."""
        self.job = None
        self.idle.busy(3)


def small() -> SweepHeader:
    return header(CURVES[:4])


def timed(case: Case) -> Timed:
    took = seconds(case)
    return Timed(0, case.op, case.size_bytes, case.launch, 5, 8, took, took, took, took, 0)


def probed(order: Order, done: tuple[Timed, ...], failure: Failure | None) -> Probed:
    """With the log of an NCCL that does what it is told, or else takes Ring with LL."""
    around = dict(order.plan.environment)
    algorithm, protocol = around.get("NCCL_ALGO", "Ring").lower(), around.get("NCCL_PROTO", "LL").lower()
    calls = tuple(
        Call(
            one.op,
            logged_size(one.op, one.size_bytes, len(order.plan.gpus), "2.28.9"),
            algorithm,
            protocol,
            None,
            1,
        )
        for one in done
    )
    kind: ErrorKind = "out_of_memory" if failure and failure.outcome == "out_of_memory" else "nccl"
    document = Document(
        DOCUMENT_SCHEMA, "nccl", {"nccl": "2.28.9"}, done,
        cost=Cost(0.5, failure.contexts, failure.communicators, 0.0) if failure else Cost(0.5, 1.0, 2.0, 3.0),
        error=WorkerError(kind, failure.why) if failure else None,
    )  # fmt: skip
    return Probed(
        PROBED_SCHEMA, EPOCH, "command", forced=False, outcome=failure.outcome if failure else "ok",
        why=failure.why if failure else "",
        plan=order.plan, gpus=(), conditions=(), settings={}, seconds=1.0, held_seconds=1.0,
        document=document if failure is None or failure.document else None,
        account=Account("2.28.9", (), calls, (), (), (), 0, ""),
    )  # fmt: skip


def measured(folder: Path) -> list[Key]:
    """The keys of all measurements in the order of the file, torn lines left out."""
    found = []
    for line in (folder / "sweep.jsonl").read_bytes().split(b"\n")[1:]:
        with suppress(ValueError):
            row = json.loads(line)
            if row["line"] == "measured":
                found.append((row["curve"], row["repeat"], row["size_bytes"]))
    return found
