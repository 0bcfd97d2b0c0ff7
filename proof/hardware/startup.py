"""Start-ups that refuse memory that moves, while probes run back to back: how many of them survive?

An inference server reads what is free on its GPU when it starts and once more when it has loaded. More the
second time means that somebody gave memory back meanwhile, less that somebody took it; either way it ends.
"""

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from proof.hardware.job import Job
from proof.hardware.kit import Report
from proof.hardware.probing import Probing
from wirewatch.core.types import Expect
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
    """A start-up: bytes free at first and afterwards; `met`: whether a probe was running when it began."""

    number: int
    gpu: int
    met: bool
    first: int
    second: int
    own: int
    refused: str
    context_seconds: float


def run(here: Probing, count: int, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - moments, not secrets
    before = here.used()
    starts: list[Start] = []
    turns: list[Turn] = []
    try:
        with _back_to_back(here, dice, turns):
            for first in range(0, count, BATCH):
                _batch(here, dice, range(first, min(first + BATCH, count)), starts, turns)
    finally:
        here.report.note(start_ups=[asdict(one) for one in starts], turns=[asdict(one) for one in turns])
        judge(here.report, starts, turns, count)
    left = here.left(before)
    here.report.check("after all start-ups: no worker is left, memory is as before", ok=not left, told=left)


@contextmanager
def _back_to_back(here: Probing, dice: random.Random, turns: list[Turn]) -> Iterator[None]:
    """Probes as often as the gate allows, with no waiting for stillness: far more than any daemon runs."""
    hardware = replace(here.hardware, probe=here.prober())
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
    here: Probing, dice: random.Random, numbers: Sequence[int], starts: list[Start], turns: Sequence[Turn]
) -> None:
    """Servers that have imported all they need and begin one after the other, each at a random moment."""
    with ExitStack() as stack:
        gpus = [dice.randrange(len(here.gpus)) for _ in numbers]
        jobs = [stack.enter_context(Job("server", str(gpu))) for gpu in gpus]
        for job in jobs:
            job.wait("READY", 120)
        for number, gpu, job in zip(numbers, gpus, jobs, strict=True):
            time.sleep(dice.uniform(0, LATEST))
            job.send("go")
            told = json.loads(job.wait("DONE", 60))
            job.stop()
            starts.append(start(number, gpu, told, _met(told, turns)))
            here.report.progress(f"start-up {number}: {starts[-1]}")


def _met(told: dict[str, Any], turns: Sequence[Turn]) -> bool:
    """Whether it ended a probe: one that was preempted after it had begun."""
    return any(
        t.told == "preempted" and t.began <= told["second_at"] and t.ended >= told["began"] for t in turns
    )


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


def judge(report: Report, starts: Sequence[Start], turns: Sequence[Turn], count: int) -> None:
    met = [one for one in starts if one.met]
    fine = [one for one in starts if not one.refused]
    rows = [
        ["all", len(starts), len(fine)],
        ["met a probe", len(met), sum(not one.refused for one in met)],
        ["met none", len(starts) - len(met), sum(not one.refused for one in starts if not one.met)],
    ]
    report.table("start-ups that refuse memory that moves", ["which", "tried", "survived"], rows)
    ended = {name: sum(t.told == name for t in turns) for name in dict.fromkeys(t.told for t in turns)}
    report.note(turns_by_end=ended, survived=len(fine), of=count)
    bad = "; ".join(f"{one.number}: {one.refused}" for one in starts if one.refused)
    report.check(
        "every start-up survives probes back to back", ok=len(fine) == count,
        told=f"{len(fine)} of {count}, {len(met)} met a probe{'; ' if bad else ''}{bad}",
    )  # fmt: skip
    report.check("start-ups and probes did meet", ok=bool(met), told=f"{len(met)}; turns ended {ended}")
