"""runningjobs: what the daemon says of jobs with the tap: who is late, which wire is slow, else nobody.

A late rank 20 times (10 % more work, or 10 % slower), P2P off, Tree and LL 20 times, and healthy jobs of
every shape for two minutes each, watched by everything that accuses jobs: the tap, the look for hangs with
its threshold at 10 s, the look for the GPU that never waits. Some 40 minutes of two GPUs, less with --kinds,
--trials, --each, --shapes. With `--inspector LIB`, jobs load that build of NCCL Inspector instead of the tap.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

from proof.hardware.daemon import DEFAULTS, Daemon
from proof.hardware.inspected import Inspected
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.probing import probing
from proof.hardware.scrape import Scrape
from proof.hardware.tap import HOWS, READY, TMPFS, WIRES, Taps
from wirewatch.jobs.explain.evidence import Wall

TRIALS = 20
WITHIN = 30.0
"""Seconds in which a late rank or a slow wire is named."""
CLEARED_WITHIN = 60.0
KINDS = ("healthy", "late", "wire")
HEALTHY = ("data_parallel", "tensor_parallel", "sharded", "memory_bound", "ddp", "fsdp")
WATCHED = """
[collectors.lockstep]
enabled = true
[collectors.hangs]
interval = 2.0
[policy.hangs]
after = 10.0
again = 4.0
"""
LATE_IN = ("data_parallel", "tensor_parallel")
SLOW_IN = "data_parallel"
LOOK = 0.5
PAIR = 2
SETTLED = 12.0
"""Seconds after which a healthy job has windows."""
UNWALLED = ("data_parallel", "sharded", "ddp", "fsdp")
"""Healthy jobs that hit no wall at all."""
ALONE = 40.0
"""Seconds after which no window holds anything from before the job."""
WIRE, LATE = Wall.SLOW_WIRE.value, Wall.LATE_RANK.value
ACCUSED = frozenset({WIRE, LATE, Wall.UNEVEN_WORK.value, Wall.HANG.value})
OF_JOBS = ("hangs.", "jobs.", "straggler.")
"""Findings that a job can be the cause of."""
Answer = Mapping[str, Any]


@dataclass
class JobTrial:
    """`after`: seconds until the wall was named, None for never; `others`: what else was named meanwhile."""

    what: str
    after: float | None
    others: list[str]
    sentence: str

    @property
    def right(self) -> bool:
        return self.after is not None and not self.others


def walls(document: Mapping[str, Any]) -> list[Answer]:
    """The answers of all jobs in the daemon's document; raises KitError where it holds none."""
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise KitError(f"not a document of jobs: {str(document)[:200]}")
    return [one["answer"] for one in jobs]


def look(daemon: Daemon) -> list[Answer]:
    answer = daemon.get("/api/v1/jobs")
    if answer.status != 200:
        raise KitError(f"/api/v1/jobs: {answer.status} {answer.body[:200]!r}")
    return walls(json.loads(answer.body))


def findings_of(daemon: Daemon) -> list[Answer]:
    """All findings of the daemon, of whatever rule."""
    listed = json.loads(daemon.get("/api/v1/findings").body).get("findings")
    if not isinstance(listed, list):
        raise KitError("/api/v1/findings holds no findings")
    return listed


def watch(
    answers: Callable[[], Sequence[Answer]], what: str, wall: str, words: Sequence[str], within: float
) -> JobTrial:
    """Wait until this wall is named with all of these words; other accusations meanwhile are kept."""
    began, others, last = time.monotonic(), list[str](), ""
    while time.monotonic() - began < within:
        for one in answers():
            last = str(one["sentence"])
            text = " ".join((last, *one["causes"], *one["because"]))
            if one["wall"] == wall and all(word in text for word in words):
                return JobTrial(what, time.monotonic() - began, others, last)
            if one["wall"] in ACCUSED and one["wall"] != wall:
                others.append(one["wall"])
        time.sleep(LOOK)
    return JobTrial(what, None, others, last)


def run(report: Report, options: argparse.Namespace) -> None:
    count = TRIALS if options.trials is None else options.trials
    shapes = options.shapes or HEALTHY
    kinds = chosen(options.kinds, KINDS)
    trials: list[JobTrial] = []
    with probing(report) as here, tempfile.TemporaryDirectory(prefix="wirewatch-jobs-", dir=TMPFS) as folder:
        source = (
            Inspected(Path(folder), options.inspector)
            if options.inspector
            else Taps(Path(folder), follow=False)
        )
        report.note(gpus=[gpu.uuid for gpu in here.gpus], source=source.config)
        config = f"{DEFAULTS}[jobs]\n{source.config}\n"
        if "healthy" in kinds:
            with Daemon(f"{config}{WATCHED}") as daemon:
                for shape in shapes:
                    report.attempt(shape, partial(_healthy, report, daemon, source, shape, options.each))
        if set(kinds) <= {"healthy"}:
            return
        with Daemon(config) as daemon:
            cases = list(islice(_cases(len(here.gpus)), count)) if "late" in kinds else []
            for shape in LATE_IN:
                mine = [case for case in cases if case[0] == shape]
                if mine:
                    report.attempt(f"late in {shape}", partial(_late, report, daemon, source, mine, trials))
            wires = slow_wires(len(here.gpus), options.shapes)
            for number in range(count) if "wire" in kinds else ():
                what = wires[number % len(wires)]
                report.attempt(what, partial(_wire, report, daemon, source, what, WIRES[what], trials))
    judge(report, trials, {kind: count for kind in kinds if kind != "healthy" and count})


def slow_wires(gpus: int, wanted: Sequence[str] | None) -> list[str]:
    """Those that are tried, of `wanted` where it names some.

    Between two GPUs Tree is no slow wire: on H200 it reached 319 GB/s, and Ring 305.
    """
    made = [what for what in WIRES if what != "Tree" or gpus > PAIR]
    return [what for what in made if what in (wanted or ())] or made


def _cases(gpus: int) -> Sequence[tuple[str, int, str]]:
    """Shape, GPU and how, in turns."""
    turns = [(shape, gpu, how) for how, gpu, shape in product(HOWS, range(gpus), LATE_IN)]
    return turns * TRIALS


def judge(report: Report, trials: Sequence[JobTrial], counts: Mapping[str, int]) -> None:
    """A trial that could not be done is one that is missing, and fails. `counts`: how many of each kind."""
    late = [one for one in trials if one.what.startswith("late")]
    kinds = {
        "late": ("a late rank", late),
        "wire": ("a slow wire", [one for one in trials if one not in late]),
    }
    for kind, count in counts.items():
        what, mine = kinds[kind]
        right = sum(one.right for one in mine)
        name = f"{what} is named within {WITHIN:g} s and never as anything else"
        report.check(name, ok=right == len(mine) == count, told=f"{right} of {count}")


@dataclass
class HealthySeen:
    """What was seen of a healthy job: `named`, all accusations; the others show that somebody looked at it.

    `measured`: kinds of collectives; `windows`: of the GPUs in lockstep; `looks`: how often RAS was asked;
    `walls`: how often each was answered once all windows were of this job alone, and `sentences`: how.
    """

    named: set[str] = field(default_factory=set)
    walls: Counter[str] = field(default_factory=Counter)
    sentences: dict[str, str] = field(default_factory=dict)
    measured: int = 0
    windows: set[float] = field(default_factory=set)
    looks: float = 0.0

    @property
    def good(self) -> bool:
        return not self.named and self.measured > 0 and bool(self.windows)

    @property
    def unwalled(self) -> bool:
        """No wall is said, and that there is none most of the time; it may start, or not be known between."""
        quiet = (Wall.NOTHING, Wall.COMPUTING, Wall.NOT_KNOWN, Wall.STARTING)
        nothing, *others = (self.walls.get(wall.value, 0) for wall in quiet)
        return nothing > sum(others) and nothing + sum(others) == sum(self.walls.values())

    def add(self, answers: Sequence[Answer], findings: Sequence[Answer], scrape: Scrape) -> None:
        """One look at what the daemon says."""
        self.named |= {str(one["sentence"]) for one in answers if one["wall"] in ACCUSED}
        self.named |= {f"{of['rule']}: {of['evidence']}" for of in findings if of["rule"].startswith(OF_JOBS)}
        for name in ("straggler_hint", "job_uneven_work_ratio"):
            self.named |= {f"{name}: GPU {of['gpu']}" for of, value in scrape.find(name) if value}
        self.measured = max(self.measured, len(scrape.find("job_busbw_bytes_per_second")))
        polled = scrape.polled("lockstep")
        if polled and scrape.find("gpu_sm_busy_ratio"):
            self.windows.add(polled)
        self.looks = scrape.value("job_ras_looks_total") or 0.0


def _healthy(report: Report, daemon: Daemon, source: Taps | Inspected, shape: str, seconds: float) -> None:
    seen = HealthySeen()
    with Job("shapes", shape, settings=source.settings()) as job:
        job.wait("READY", READY)
        began = time.monotonic()
        while (ran := time.monotonic() - began) < seconds:
            answers = look(daemon)
            seen.add(answers, findings_of(daemon), daemon.scrape())
            if ran > ALONE:
                seen.walls.update(str(one["wall"]) for one in answers)
                seen.sentences |= {str(one["wall"]): str(one["sentence"]) for one in answers}
            time.sleep(LOOK)
        job.must_run()
    told = (
        f"{seconds:g} s, {seen.measured} kinds measured, {len(seen.windows)} windows, "
        f"RAS asked {seen.looks:g} times in all, said {sorted(seen.named)}, walls {dict(seen.walls)}"
    )
    report.check(f"healthy {shape}: nobody is named", ok=seen.good, told=told)
    if shape in UNWALLED:
        each = (f"{wall}, {times} times: {seen.sentences[wall]}" for wall, times in seen.walls.items())
        report.check(f"healthy {shape}: no wall", ok=seen.unwalled, told="; ".join(each))


def _late(
    report: Report,
    daemon: Daemon,
    source: Taps | Inspected,
    cases: Sequence[tuple[str, int, str]],
    trials: list[JobTrial],
) -> None:
    with Job("shapes", cases[0][0], settings=source.settings()) as job:
        job.wait("READY", READY)
        time.sleep(SETTLED)
        for shape, gpu, how in cases:
            job.send(f"slow {gpu} {source.percent} {how}")
            what = f"late, {shape}, {source.percent} % {how} on {gpu}"
            _keep(report, watch(lambda: look(daemon), what, LATE, [f"GPU {gpu}"], WITHIN), trials)
            job.send("healthy")
            _cleared(daemon)
        job.must_run()


def _cleared(daemon: Daemon) -> None:
    end = time.monotonic() + CLEARED_WITHIN
    while any(one["wall"] in ACCUSED for one in look(daemon)) and time.monotonic() < end:
        time.sleep(LOOK)


def _wire(
    report: Report, daemon: Daemon, source: Taps | Inspected, what: str, settings: Mapping[str, str],
    trials: list[JobTrial],
) -> None:  # fmt: skip
    words = [next(iter(settings))] if what == "P2P off" else [what]
    with Job("shapes", SLOW_IN, settings=source.settings(settings)) as job:
        job.wait("READY", READY)
        _keep(report, watch(lambda: look(daemon), what, WIRE, words, WITHIN), trials)
        job.must_run()
    _cleared(daemon)


def _keep(report: Report, trial: JobTrial, trials: list[JobTrial]) -> None:
    trials.append(trial)
    report.note(trials=[asdict(one) for one in trials])
    report.progress(json.dumps(asdict(trial)))
