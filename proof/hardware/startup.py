"""Start-ups that refuse memory that moves, while probes run back to back: how many of them survive?

Once as they come, and once after a hold, as a prolog makes it before the first process of a job.

An inference server reads what is free on its GPU when it starts and once more when it has loaded. More the
second time means that somebody gave memory back meanwhile, less that somebody took it; either way it ends.
"""

import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, quantile
from proof.hardware.probing import Probing
from wirewatch.core.types import Expect
from wirewatch.probe.holds import LOCK, HoldFolder
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.request import ProbeOverrides, probe_now

BATCH = 5
LATEST = 2.5
"""Seconds: longer than a probe with the pause behind it."""
PAUSES = (0.1, 0.4)
OTHERS = 512 << 20
"""Bytes by which memory may shrink for what loads with the first kernels."""


@dataclass(frozen=True)
class Turn:
    """One attempt to probe: moments of the monotonic clock, and how it ended or why it did not begin."""

    began: float
    ended: float
    told: str


@dataclass(frozen=True)
class Start:
    """A start-up: bytes free at first and afterwards; `met`: whether a probe was running when it began.

    `waited`: seconds of the hold before it, until no worker was there any more.
    """

    number: int
    gpu: int
    met: bool
    first: int
    second: int
    own: int
    refused: str
    context_seconds: float
    waited: float = 0.0


def run(here: Probing, count: int, seed: int, *, held: bool = False) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / LOCK).touch()
        _run(here, count, seed, name if held else "")


def _run(here: Probing, count: int, seed: int, holds: str) -> None:
    """`holds`: the folder of holds, "" for none."""
    dice = random.Random(seed)  # noqa: S311 - moments, not secrets
    before = here.used()
    starts: list[Start] = []
    turns: list[Turn] = []
    try:
        with _back_to_back(here, dice, turns, holds):
            for first in range(0, count, BATCH):
                _batch(here, dice, range(first, min(first + BATCH, count)), starts, turns, holds)
    finally:
        kept = {"start_ups": [asdict(one) for one in starts], "turns": [asdict(one) for one in turns]}
        here.report.note(**{f"{name}_held" if holds else name: value for name, value in kept.items()})
        judge(here.report, starts, turns, count, held=bool(holds))
    left = here.left(before)
    here.report.check("after all start-ups: no worker is left, memory is as before", ok=not left, told=left)


@contextmanager
def _back_to_back(here: Probing, dice: random.Random, turns: list[Turn], holds: str) -> Iterator[None]:
    """Probes as often as the gate allows, with no waiting for stillness: far more than any daemon runs."""
    hardware = replace(here.hardware, probe=here.prober(holds=holds))
    pauses = random.Random(dice.random())  # noqa: S311 - a generator of its own for the thread
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(pauses.uniform(*PAUSES)):
            began = time.monotonic()
            asked = probe_now(hardware, ProbeOptions(), ProbePolicy(), Expect(), ProbeOverrides(), None)
            if asked.probed is not None:
                here.keep("back to back", asked.probed)
            refused = asked.refusal.reason.value if asked.refusal else ""
            turns.append(Turn(began, time.monotonic(), asked.probed.outcome if asked.probed else refused))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _batch(
    here: Probing, dice: random.Random, numbers: Sequence[int], starts: list[Start], turns: Sequence[Turn],
    holds: str,
) -> None:  # fmt: skip
    """Servers that have imported all they need and begin one after the other, each at a random moment."""
    with ExitStack() as stack:
        gpus = [dice.randrange(len(here.gpus)) for _ in numbers]
        jobs = [stack.enter_context(Job("server", str(gpu))) for gpu in gpus]
        for job in jobs:
            job.wait("READY", 120)
        for number, gpu, job in zip(numbers, gpus, jobs, strict=True):
            time.sleep(dice.uniform(0, LATEST))
            began = time.monotonic()
            with _held(f"slurm:{number + 1}", holds) as waited:
                job.send("go")
                told = json.loads(job.wait("DONE", 60))
                job.stop()
            met = _met(began if holds else told["began"], told["second_at"], turns)
            starts.append(replace(start(number, gpu, told, met), waited=waited))
            here.report.progress(f"start-up {number}: {starts[-1]}")


@contextmanager
def _held(owner: str, holds: str) -> Iterator[float]:
    """Hold probes off as a prolog does, where there is a folder for it; seconds until no worker is there."""
    if not holds:
        yield 0.0
        return
    folder, began = HoldFolder(holds), time.monotonic()
    folder.make(owner, 600.0, None)
    if not folder.quiet(10.0):
        raise KitError("10 s after the hold a worker is still there")
    yield time.monotonic() - began
    folder.end(owner)


def _met(began: float, ended: float, turns: Sequence[Turn]) -> bool:
    """Whether it ended a probe: one that was preempted after it had begun."""
    return any(t.told == "preempted" and t.began <= ended and t.ended >= began for t in turns)


def start(number: int, gpu: int, told: dict[str, Any], met: bool) -> Start:  # noqa: FBT001 - a field
    return Start(
        number, gpu, met, int(told["first"]), int(told["second"]), int(told["own"]),
        refusal(int(told["first"]), int(told["second"]), int(told["own"])),
        told["first_at"] - told["began"],
    )  # fmt: skip


def refusal(first: int, second: int, own: int) -> str:
    """Why such a server ends, empty when it goes on; bytes free at first, afterwards, taken by itself."""
    if second > first:
        return f"{(second - first) >> 20} MiB were given back by others"
    missing = first - own - second
    return f"{missing >> 20} MiB were taken by others" if missing > OTHERS else ""


def judge(
    report: Report, starts: Sequence[Start], turns: Sequence[Turn], count: int, *, held: bool = False
) -> None:
    met = [one for one in starts if one.met]
    fine = [one for one in starts if not one.refused]
    rows = [
        ["all", len(starts), len(fine)],
        ["met a probe", len(met), sum(not one.refused for one in met)],
        ["met none", len(starts) - len(met), sum(not one.refused for one in starts if not one.met)],
    ]
    under = " under a hold" if held else ""
    report.table(f"start-ups that refuse memory that moves{under}", ["which", "tried", "survived"], rows)
    ended = {name: sum(t.told == name for t in turns) for name in dict.fromkeys(t.told for t in turns)}
    told = {"turns_by_end": ended, "survived": len(fine), "of": count}
    report.note(**{f"{name}_held" if held else name: value for name, value in told.items()})
    bad = "; ".join(f"{one.number}: {one.refused}" for one in starts if one.refused)
    report.check(
        f"every start-up survives probes back to back{under}", ok=len(fine) == count,
        told=f"{len(fine)} of {count}, {len(met)} met a probe{'; ' if bad else ''}{bad}",
    )  # fmt: skip
    if held and starts:
        waited = [1e3 * one.waited for one in starts]
        row = [quantile(waited, 0.5), quantile(waited, 0.95), max(waited)]
        report.table("from the hold until no worker is there, ms", ["p50", "p95", "worst"], [row])
    report.check(
        f"start-ups and probes did meet{under}", ok=bool(met), told=f"{len(met)}; turns ended {ended}"
    )
