"""waits: the first line of `explain`, second by second, for jobs that stall, hang, wait or are healthy.

Jobs of two GPUs go on beside each other on four: those with a fault on two, healthy ones on the others; then
jobs of all GPUs. On two or three GPUs all go on one after the other. Default configuration, default tap.
--kinds for lanes (pair, beside, whole), --shapes for cases by name, --each for the seconds of a healthy job.
Each case takes about a minute.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from proof.hardware import processes
from proof.hardware.daemon import DEFAULTS, Daemon
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.probing import probing
from proof.hardware.tap import READY, TMPFS, Taps

WITHIN, SELDOM_WITHIN = 30.0, 60.0
"""Seconds from the fault to the first right line, and where a stall comes more rarely than each 10 s."""
LOOK = 1.0
LANES = ("pair", "beside", "whole")
PAIR = 2
ACCUSING = frozenset({"hang", "slow wire", "late rank", "uneven work", "host", "launch gaps", "memory"})
"""Walls that no healthy job hits here."""
ENDS = 12.0
"""Seconds after its end for which a job's last line may still be shown."""


@dataclass(frozen=True)
class WaitCase:
    """A job of some `way` and what `order` does to its rank `rank` after `healthy` seconds.

    `right`: alternatives, each of words that the first line has all; `{gpu}` is the GPU of `rank`. None are
    right for a healthy job but lines that accuse nobody.
    """

    name: str
    way: str
    order: str = ""
    rank: int = 1
    healthy: float = 20.0
    watch: float = 40.0
    within: float = WITHIN
    right: tuple[tuple[str, ...], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


GPU = ("{gpu}",)
CASES: Mapping[str, tuple[WaitCase, ...]] = {
    "pair": (
        WaitCase("hang", "ddp", "sleep {rank}", right=(GPU,)),
        WaitCase("checkpoint", "ddp", "file {rank} 45", rank=0, watch=50.0, right=(GPU,)),
        WaitCase("stall of 4 s", "ddp", "stall {rank} 4 25", watch=60.0, right=(GPU,),
                 options=("--batch", "32")),
        WaitCase("stall of 1.5 s", "ddp", "stall {rank} 1.5 10", watch=60.0, right=(GPU,),
                 options=("--batch", "160")),
        WaitCase("late in ddp", "ddp", "more {rank} 18", right=(GPU,)),
        WaitCase("late loader of fsdp", "fsdp", "loader {rank} 20", right=(GPU,)),
        WaitCase("late loader, long steps", "ddp", "loader {rank} 150", right=(GPU,), watch=50.0,
                 options=("--batch", "160")),
        WaitCase("P2P off", "ddp", healthy=0.0, right=(("NCCL_P2P_DISABLE",),),
                 settings={"NCCL_P2P_DISABLE": "1"}),
        WaitCase("one channel", "ddp", healthy=0.0, right=(("NCCL_MAX_NCHANNELS",),),
                 settings={"NCCL_MAX_NCHANNELS": "1"}),
        WaitCase("LL", "ddp", healthy=0.0, right=(("LL",),), settings={"NCCL_PROTO": "LL"}),
    ),
    "beside": tuple(WaitCase(f"healthy {way}", way) for way in ("ddp", "moe", "fsdp", "decode")),
    "whole": (
        WaitCase("late in tp x dp", "tpdp", "more {rank} 25", right=(GPU,)),
        WaitCase("hang of four", "ddp", "sleep {rank}", rank=2, right=(GPU,)),
        WaitCase("healthy pipeline", "pipeline"),
        WaitCase("Tree", "ddp", healthy=0.0, right=(("Tree",),), settings={"NCCL_ALGO": "Tree"}),
        WaitCase("stall of 4 s, four", "ddp", "stall {rank} 4 25", rank=3, watch=60.0, right=(GPU,),
                 options=("--batch", "32")),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class WaitLine:
    """What was answered for a job at `at` (monotonic seconds)."""

    at: float
    gpus: tuple[str, ...]
    wall: str
    certainty: str
    sentence: str


@dataclass
class WaitRun:
    """A case as it went; times are monotonic seconds."""

    case: WaitCase
    gpus: tuple[int, ...]
    ready: float = 0.0
    ordered: float = 0.0
    ended: float = 0.0
    steps: list[str] = field(default_factory=list)


class Watch:
    """Asks the daemon all the time, in a thread of its own; what cannot be asked is a line, too."""

    def __init__(self, daemon: Daemon) -> None:
        self.lines: list[WaitLine] = []
        self.ledgers: list[Any] = []
        self._daemon, self._over = daemon, threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(LOOK):
            try:
                document = json.loads(self._daemon.get("/api/v1/jobs").body)
                at = time.monotonic()
                self.lines += [line_of(at, one) for one in document["jobs"]]
                if len(self.ledgers) * 10 < len(self.lines):
                    self.ledgers.append([at, [one["evidence"].get("ledger") for one in document["jobs"]]])
            except Exception as error:  # noqa: BLE001 - what was not seen is evidence against us
                self.lines.append(WaitLine(time.monotonic(), (), "no answer", "", repr(error)))


@dataclass(frozen=True)
class Used:
    """CPU seconds of the daemon and of each of its processes at `at` (monotonic seconds)."""

    at: float
    seconds: Mapping[int, float]

    @classmethod
    def now(cls, daemon: Daemon) -> Self:
        found = {pid: processes.cpu(pid) for pid in (daemon.pid, *processes.children(daemon.pid))}
        return cls(time.monotonic(), {pid: one.seconds for pid, one in found.items()})

    def until(self, later: "Used") -> dict[str, Any]:
        """Return the share of a core of each process since then, and of all that were there all the time."""
        shares = {
            pid: (later.seconds[pid] - spent) / (later.at - self.at)
            for pid, spent in self.seconds.items()
            if pid in later.seconds
        }
        return {"seconds": later.at - self.at, "shares": list(shares.values()), "all": sum(shares.values())}


def line_of(at: float, job: Mapping[str, Any]) -> WaitLine:
    answer, gpus = job["answer"], job["evidence"]["gpus"]
    indexes = tuple(sorted(str(gpu["index"]) for gpu in gpus))
    return WaitLine(at, indexes, answer["wall"], answer["certainty"], answer["sentence"])


def is_right(run: WaitRun, line: WaitLine) -> bool:
    """Tell whether a line has all words of one of the alternatives."""
    name = f"GPU {run.gpus[run.case.rank]}"
    return any(all(word.format(gpu=name) in line.sentence for word in words) for words in run.case.right)


def mine(run: WaitRun, lines: Sequence[WaitLine], since: float, until: float) -> list[WaitLine]:
    """Return the lines about this case's GPUs in a span of time."""
    here = {str(gpu) for gpu in run.gpus}
    return [one for one in lines if since <= one.at <= until and one.gpus and here >= set(one.gpus)]


def changes(lines: Sequence[WaitLine], since: float) -> list[list[object]]:
    """Return the lines where the wall or what stands before the first number changes."""
    found: list[list[object]] = []
    last: tuple[str, str] | None = None
    for one in lines:
        key = (one.wall, one.sentence[:24])
        if key != last:
            found.append([round(one.at - since, 1), one.wall, one.certainty, one.sentence])
        last = key
    return found


def judged(run: WaitRun, lines: Sequence[WaitLine]) -> dict[str, Any]:
    """Judge one case: seconds to the first right line, and lines that accuse wrongly."""
    case = run.case
    began = run.ordered or run.ready
    before = mine(run, lines, run.ready, run.ordered) if run.ordered else []
    after = mine(run, lines, began, run.ended)
    first = next((one.at - began for one in after if is_right(run, one)), None) if case.right else None
    named = [
        one for one in after if case.right and "GPU" in one.sentence and not is_right(run, one)
        and one.wall in ACCUSING and any(f"GPU {gpu}" in one.sentence for gpu in run.gpus)
    ]  # fmt: skip
    denied = [one for one in after if case.right and one.wall == "nothing" and one.at - began > case.within]
    wrong = [one for one in before if one.wall in ACCUSING]
    if not case.right:
        wrong += [one for one in after if one.wall in ACCUSING]
    false = [*wrong, *named, *denied]
    return {
        "case": case.name, "way": case.way, "gpus": list(run.gpus), "ordered": bool(run.ordered),
        "lines": len(after), "first_right": None if first is None else round(first, 1),
        "false_lines": len(false), "false": sorted({one.sentence for one in false})[:6],
        "before": changes(before, began), "after": changes(after, began), "steps": run.steps[-2:],
    }  # fmt: skip


def run(report: Report, options: argparse.Namespace) -> None:
    with probing(report) as here, tempfile.TemporaryDirectory(prefix="wirewatch-waits-", dir=TMPFS) as folder:
        taps = Taps(Path(folder), follow=False)
        gpus = list(range(len(here.gpus)))
        enough = len(gpus) >= 2 * PAIR
        places = {"pair": gpus[:PAIR], "beside": gpus[-PAIR:] if enough else gpus[:PAIR], "whole": gpus}
        lanes = chosen(options.kinds, LANES)
        with Daemon(f"{DEFAULTS}[jobs]\n{taps.config}\n") as daemon:
            watch, runs, began = Watch(daemon), list[WaitRun](), Used.now(daemon)
            together = [lane for lane in lanes if enough and lane != "whole"]
            threads = [
                threading.Thread(target=_lane, args=(report, taps, lane, places[lane], options, runs, watch))
                for lane in together
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for lane in lanes:
                if lane not in together:
                    _lane(report, taps, lane, places[lane], options, runs, watch)
            watch.close()
            report.note(used=began.until(Used.now(daemon)))
            report.note(ledgers=watch.ledgers[-40:])
        told = [judged(one, watch.lines) for one in runs]
        report.note(cases=told)
        _checks(report, runs, told)


def _lane(
    report: Report, taps: Taps, lane: str, gpus: Sequence[int], options: argparse.Namespace,
    runs: list[WaitRun], watch: Watch,
) -> None:  # fmt: skip
    for case in CASES[lane]:
        if options.shapes and case.name not in options.shapes:
            continue
        seconds = case.watch if case.right else options.each
        one = WaitRun(case, tuple(gpus))
        runs.append(one)
        report.attempt(case.name, _case(taps, one, seconds))
        one.ended = one.ended or time.monotonic()
        report.note(**{case.name: judged(one, list(watch.lines))})


def _case(taps: Taps, one: WaitRun, seconds: float) -> Callable[[], None]:
    case = one.case
    shown = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, one.gpus))}

    def work() -> None:
        job = Job("trainer", case.way, *case.options, settings=taps.settings({**case.settings, **shown}))
        with job:
            job.wait("READY", READY)
            one.ready = time.monotonic()
            if case.order:
                time.sleep(case.healthy)
                one.ordered = time.monotonic()
                job.send(case.order.format(rank=case.rank))
            time.sleep(seconds)
            one.steps = [line for line in job.lines() if line.startswith("STEP")]
            if not job.running():
                raise KitError(f"{case.name}: the job has ended: {job.errors()}")
            one.ended = time.monotonic()
            job.stop(ENDS)

    return work


def _checks(report: Report, runs: Sequence[WaitRun], told: Sequence[Mapping[str, Any]]) -> None:
    for one, said in zip(runs, told, strict=True):
        name, first, text = one.case.name, said["first_right"], json.dumps(said["after"][:8])
        report.check(f"{name}: no false line", ok=said["lines"] > 0 and not said["false_lines"],
                     told=f"{said['false_lines']} of {said['lines']}: {said['false'][:3]}")  # fmt: skip
        if one.case.right:
            ok = first is not None and first <= one.case.within
            report.check(f"{name}: right within {one.case.within:g} s", ok=ok, told=f"{first} s; {text}")
