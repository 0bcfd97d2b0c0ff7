"""Looks of the waiting ledger in memory: GPUs, processes, rings and windows, folded one after the other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wirewatch.core.collector import GpuReading
from wirewatch.core.jobs import RingState
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Expect, Ok, Why, value_or
from wirewatch.jobs.ledger.fold import judge
from wirewatch.jobs.ledger.model import (
    CountedCommunicator,
    GpuActivity,
    GpuSight,
    LedgerMemory,
    LedgerPolicy,
    LedgerReading,
    LedgerSurroundings,
    ProcessSight,
    TimedJob,
)
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, Spent
from wirewatch.jobs.ledger.split import JobNow
from wirewatch.jobs.times import GpuTime, JobRank

EVERY = 2.0
BEGIN = 1000.0
LIMIT = 700.0
UNREAD = Absent(Why.LOST, "gone")
DENIED = Absent(Why.DENIED, "/proc")
POLICY = LedgerPolicy()


def gpu(number: int) -> str:
    return f"GPU-{number}"


def pid(number: int) -> int:
    """The process of a GPU."""
    return 100 + number


def sight(busy: float | Absent, power: float | Absent, *pids: int | None) -> GpuSight:
    return GpuSight(frozenset(pids), busy, power, LIMIT)


def works(number: int) -> GpuSight:
    return sight(1.0, 690.0, pid(number))


def spinning(number: int) -> GpuSight:
    """All busy at the power of a GPU that waits in a collective: 125 W were measured."""
    return sight(1.0, 125.0, pid(number))


def idle(number: int) -> GpuSight:
    return sight(0.0, 123.0, pid(number))


def process(state: str = "S", cpu: float | Absent = 0.0, **values: Any) -> ProcessSight:
    return replace(ProcessSight(state, 10.0, cpu, 0, 0), **values)


def rank(number: int, enqueued: int, event: float, **values: Any) -> JobRank:
    """A rank on the GPU of the same number."""
    made = JobRank(
        number, gpu(number), str(number), pid(number), pid(number), "2.28.9", RingState.LIVE, {},
        enqueued=enqueued, event=event,
    )  # fmt: skip
    return replace(made, **values)


def comm(*ranks: JobRank, name: str = "c0") -> CountedCommunicator:
    return CountedCommunicator(name, ranks)


def time_of(number: int, inside: float, waiting: float = 0.0, **values: Any) -> GpuTime:
    return replace(GpuTime(gpu(number), str(number), inside, waiting, 0.0, measured=True), **values)


def tapped(
    *times: GpuTime, comms: Iterable[CountedCommunicator] = (), numbers: Iterable[int] = (0, 1),
    span: tuple[float, float] = (BEGIN - 8.0, BEGIN - 2.0), name: str = "slurm:7",
) -> TimedJob:  # fmt: skip
    """A job with the tap on GPUs of these numbers; those without times were never timed."""
    every = {gpu(n): GpuTime(gpu(n), str(n), 0.0, 0.0, 0.0) for n in numbers}
    every |= {one.gpu: one for one in times}
    return TimedJob(
        name, tuple(pid(n) for n in numbers), tuple(comms), every, {one.gpu: span for one in times},
        linked=(tuple(every),),
    )  # fmt: skip


def around(*jobs: TimedJob, counted: float = BEGIN, **values: Any) -> LedgerSurroundings:
    return replace(LedgerSurroundings(jobs, counted), **values)


def active(sm: float, numbers: Iterable[int] = (0, 1), graphics: float = 1.0) -> dict[str, GpuActivity]:
    return {gpu(n): GpuActivity(7.5, graphics, sm) for n in numbers}


def job(
    *sights: GpuSight | Absent, known: LedgerSurroundings | None = None, timed: TimedJob | None = None,
    **values: Any,
) -> JobNow:  # fmt: skip
    """A job on GPU 0 and those after it, at BEGIN, whose processes are known to communicate."""
    known = known or LedgerSurroundings()
    every = {gpu(n): one for n, one in enumerate(sights)}
    pids = tuple(pid(n) for n in range(len(sights)))
    timed = timed or next(iter(known.jobs), None)
    worked = frozenset(every)
    made = JobNow(
        "slurm:7", tuple(every), pids, BEGIN, every, known, POLICY, worked=worked, timed=timed,
        bound=(tuple(every),),
    )  # fmt: skip
    return replace(made, **values)


@dataclass
class Looks:
    """Folds looks; `around` is handed to each.

    `worked`: all GPUs have worked before the second look. `sending`: they have sent bytes over NVLink, and
    the processes of each owner have one parent.
    """

    around: LedgerSurroundings = field(default_factory=LedgerSurroundings)
    policy: LedgerPolicy = POLICY
    mono: float = BEGIN - EVERY
    memory: LedgerMemory = field(default_factory=LedgerMemory)
    worked: bool = True
    sending: bool = True

    def parent(self, number: int) -> int:
        owners = self.around.owners
        return 50 + sorted(owners.values()).index(owners[number]) if number in owners and self.sending else 0

    def look(
        self, *sights: GpuSight | Absent, processes: Mapping[int, ProcessSight | Absent] | None = None,
        after: float = EVERY, looked: bool = True,
    ) -> tuple[JobLedger, ...]:  # fmt: skip
        self.mono += after
        every = (value_or(one.processes, ()) for one in sights if isinstance(one, GpuSight))
        listed = {p for some in every for p in some if p}
        seen = {p: process(parent=self.parent(p)) for p in listed} | dict(processes or {})
        gpus = tuple(GpuReading(Gpu(n, gpu(n)), one) for n, one in enumerate(sights))
        reading = LedgerReading(gpus, seen, looked, self.around)
        self.memory, findings = judge(
            self.memory, Ok(reading, self.mono + 1e9, self.mono), self.policy, Expect()
        )
        assert findings == ()
        if looked:
            known = {
                key: replace(one, worked=self.worked or one.worked, moved=self.sending or one.moved)
                for key, one in self.memory.gpus.items()
            }
            self.memory = replace(self.memory, gpus=known)
        return self.memory.jobs

    def times(self, count: int, *sights: GpuSight | Absent, **values: Any) -> tuple[JobLedger, ...]:
        found: tuple[JobLedger, ...] = ()
        for _ in range(count):
            found = self.look(*sights, **values)
        return found


def shares(one: GpuLedger) -> dict[Spent, float]:
    """The shares that are not 0, rounded."""
    return {kind: round(part, 3) for kind, part in one.shares.items() if round(part, 3)}
