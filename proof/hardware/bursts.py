"""bursts: what looks at NVLink counters show of a running job, beside its own CUDA events; and their cost.

Under two minutes of two GPUs. Nothing is compared here that NVLink SHARP carries: it is off in jobs of ours.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from proof.hardware import processes
from proof.hardware.daemon import NO_PROBE, Daemon
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report
from wirewatch.busbw.formulas import busbw
from wirewatch.core.nvml import BURST
from wirewatch.core.ports import Gpu
from wirewatch.core.probe import MIB
from wirewatch.core.types import Absent
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.jobs.bursts.estimate import LONG_ENOUGH, BurstFigures, figures
from wirewatch.jobs.bursts.read import reads_of

SIZES = (512 * MIB, 1024 * MIB, 2048 * MIB, 4096 * MIB)
STEPS_FOR, LOOKS = 3.5, 6
"""Seconds of each case of the job, and looks at it."""
SETTLE = 0.5
"""Seconds from the first step of a case to the first look: clocks have to find their level."""
PLATEAU, PERIOD, DUTY = 0.10, 0.03, 0.10
COST, EVERY = 0.005, 60.0
"""Most of a core, with a look so often."""
READY, CASE, DONE = 100.0, 30.0, 10.0
WATCHING = (
    f'[listen]\nsocket = ""\n{NO_PROBE}'
    "[collectors.bursts]\nenabled = true\ninterval = 2.0\ndeadline = 2.0\n[policy.bursts]\nsettle = 0.0\n"
)
"""The daemon looks every 2 s, so that it has seen every GPU of the job within the part's time."""
WATCHED_SIZE, WATCHED_FOR = 2048 * MIB, 24.0


@dataclass(frozen=True)
class TimedCase:
    """What the job says of one case: seconds of a collective and of a step, and when its steps ran."""

    launch: str
    size: int
    ranks: int
    began: float
    ended: float
    steps: int
    period: float
    seconds: float

    @property
    def busbw(self) -> float:
        return busbw("all_reduce", self.ranks, self.size, self.seconds)

    @property
    def name(self) -> str:
        return f"{self.size // MIB} MiB {self.launch}"


@dataclass
class Look:
    """One look: when, in monotonic seconds; CPU seconds of NVML's process, and of our `own` arithmetic."""

    gpu: int
    began: float
    ended: float
    reads: int
    plateau: float | None
    long: bool
    duty: float | None
    period: float | None
    cpu: float
    own: float


@dataclass
class Seen:
    """The job's cases, and the looks at each by its number."""

    cases: list[TimedCase] = field(default_factory=list)
    looks: dict[int, list[Look]] = field(default_factory=dict)


def run(report: Report, _options: argparse.Namespace) -> None:
    seen = Seen()
    client = NvmlClient()
    try:
        gpus = client.gpus()
        if isinstance(gpus, Absent):
            raise KitError(str(gpus))
        report.note(gpus=len(gpus))
        report.attempt("the cases", lambda: _measure(report, client, gpus, seen))
    finally:
        client.stop()
    judge(report, seen)
    report.attempt("the daemon", lambda: _watched(report))


def _measure(report: Report, client: NvmlClient, gpus: Sequence[Gpu], seen: Seen) -> None:
    with Job("reductions", str(STEPS_FOR), *map(str, SIZES)) as job:
        job.wait("READY", READY)
        count = len(SIZES) * 2
        for number in range(count):
            _nth(job, "BEGIN", number, CASE)
            time.sleep(SETTLE)
            seen.looks[number] = [_look(client, gpus[k % len(gpus)]) for k in range(LOOKS)]
            told = _nth(job, "TIMED", number, CASE)
            seen.cases.append(TimedCase(**json.loads(told)))
            report.progress(f"{seen.cases[-1].name}: {seen.cases[-1].busbw / 1e9:.1f} GB/s")
        job.wait("DONE", DONE)


def _nth(job: Job, word: str, number: int, within: float) -> str:
    """What the job said behind this word, the so-manieth time; raises KitError when it does not in time."""
    end = time.monotonic() + within
    while True:
        said = [line for line in job.lines() if line.split(" ")[0] == word]
        if len(said) > number:
            return said[number].removeprefix(word).strip()
        job.must_run()
        if time.monotonic() > end:
            raise KitError(f"no {word} {number} within {within:g} s: {job.errors()}")
        time.sleep(0.02)


def _look(client: NvmlClient, gpu: Gpu) -> Look:
    pid = client.cost().pid
    if pid is None:
        raise KitError("no process talks to NVML")
    before, began = processes.cpu(pid), time.monotonic()
    reads = reads_of(client.ask(gpu.key, (BURST,))[0].value)
    ended, spent = time.monotonic(), processes.cpu(pid).since(before).seconds
    if isinstance(reads, Absent):
        raise KitError(f"GPU {gpu.index}: {reads}")
    own = time.thread_time()
    found = figures(reads)
    own = time.thread_time() - own
    if not isinstance(found, BurstFigures):
        raise KitError(f"GPU {gpu.index}: {found}")
    return Look(
        gpu.index, began, ended, found.reads, _known(found.plateau), found.long, _known(found.duty),
        _known(found.period), spent, own,
    )  # fmt: skip


def _known(value: float | Absent) -> float | None:
    return None if isinstance(value, Absent) else value


def judge(report: Report, seen: Seen) -> None:
    """Each case's looks beside its events; a case that was not timed or looked at fails."""
    report.check("every case", ok=len(seen.cases) == 2 * len(SIZES), told=f"{len(seen.cases)}")
    rows: list[list[object]] = []
    for number, case in enumerate(seen.cases):
        looks = seen.looks[number]
        report.data.setdefault("cases", []).append(
            {**asdict(case), "busbw": case.busbw, "looks": [asdict(look) for look in looks]}
        )
        inside = all(case.began < look.began and look.ended < case.ended for look in looks)
        report.check(f"{case.name}: looks are of its steps", ok=inside and len(looks) == LOOKS)
        plateaus = [look.plateau for look in looks if look.plateau is not None]
        off = [plateau / case.busbw - 1 for plateau in plateaus]
        rows.append(_row(case, looks, off))
        _judge_case(report, case, looks, off)
    header = ["case", "ms", "GB/s", "plateau, median", "worst", "long", "period ms", "seen", "duty", "seen"]
    report.table("one GPU's counters beside CUDA events", header, rows)
    _judge_cost(report, [look for looks in seen.looks.values() for look in looks])


def _row(case: TimedCase, looks: Sequence[Look], off: Sequence[float]) -> list[object]:
    periods = [look.period for look in looks if look.period is not None]
    duties = [look.duty for look in looks if look.duty is not None]
    return [
        case.name, 1e3 * case.seconds, case.busbw / 1e9,
        (1 + median(off)) * case.busbw / 1e9 if off else None,
        f"{max(off, key=abs):+.1%}" if off else None, sum(look.long for look in looks), 1e3 * case.period,
        1e3 * median(periods) if periods else None, case.seconds / case.period,
        median(duties) if duties else None,
    ]  # fmt: skip


def _judge_case(report: Report, case: TimedCase, looks: Sequence[Look], off: Sequence[float]) -> None:
    told = " ".join(f"{one:+.1%}" for one in off) + f" of {case.busbw / 1e9:.1f} GB/s"
    if case.seconds < LONG_ENOUGH:
        ok = bool(off) and max(off) <= PLATEAU and not any(look.long for look in looks)
        report.check(f"{case.name} ({1e3 * case.seconds:.2f} ms): at most a lower bound", ok=ok, told=told)
        return
    ok = len(off) == LOOKS and max(map(abs, off)) <= PLATEAU
    report.check(f"{case.name}: the plateau of every look within {PLATEAU:.0%}", ok=ok, told=told)
    periods = [look.period for look in looks if look.period is not None]
    ok = bool(periods) and abs(median(periods) / case.period - 1) <= PERIOD
    told = f"{[round(1e3 * one, 2) for one in periods]} of {1e3 * case.period:.2f} ms"
    report.check(f"{case.name}: the step's period within {PERIOD:.0%}", ok=ok, told=told)
    duties = [look.duty for look in looks if look.duty is not None]
    share = case.seconds / case.period
    ok = len(duties) == LOOKS and abs(median(duties) / share - 1) <= DUTY
    report.check(
        f"{case.name}: duty within {DUTY:.0%}",
        ok=ok,
        told=f"{[round(one, 3) for one in duties]} of {share:.3f}",
    )


def _judge_cost(report: Report, looks: Sequence[Look]) -> None:
    spent = [look.cpu + look.own for look in looks]
    most = max(spent, default=float("inf"))
    report.check(
        f"a look each {EVERY:g} s costs at most {COST:.1%} of a core", ok=most / EVERY <= COST,
        told=f"{most:.3f} s at most, {median(spent) / EVERY:.2%} in the median" if spent else "no look",
    )  # fmt: skip
    if spent:
        report.note(
            reads=[look.reads for look in looks], cpu_seconds=median(look.cpu for look in looks),
            arithmetic_seconds=median(look.own for look in looks),
        )  # fmt: skip


def _watched(report: Report) -> None:
    """The daemon's own series of a job that runs."""
    with Daemon(WATCHING) as daemon, Job("reductions", str(WATCHED_FOR), str(WATCHED_SIZE)) as job:
        job.wait("READY", READY)
        _nth(job, "BEGIN", 0, CASE)
        time.sleep(WATCHED_FOR - 2.0)
        scrape = daemon.scrape()
        case = TimedCase(**json.loads(_nth(job, "TIMED", 0, CASE)))
    found = {told["gpu"]: value for told, value in scrape.find("job_burst_plateau_bytes_per_second")}
    hints = [value for _, value in scrape.find("job_burst_hint")]
    ok = len(found) == case.ranks and all(abs(v / case.busbw - 1) <= PLATEAU for v in found.values())
    told = f"{found} of {case.busbw / 1e9:.1f} GB/s"
    report.check(f"the daemon's plateau of each GPU within {PLATEAU:.0%}", ok=ok, told=told)
    report.check("no hint of a healthy job", ok=len(hints) == case.ranks and not any(hints), told=str(hints))
