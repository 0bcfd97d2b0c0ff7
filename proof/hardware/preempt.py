"""preempt: who comes to a GPU has it at once, and who is there already is left alone."""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from proof.hardware import busynode, startup
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.preemption import Comer, Ended, Trial, judge, trial
from proof.hardware.probing import LONG, Probing, probing

LATEST = 3.0
"""Seconds after the worker's contexts are up until which a foreign process starts its own."""
TRIALS = 50
BATCH = 10
SEED = 20261121
GIVE_UP = 3
"""Trials that cannot be done, after which no more are tried."""


@dataclass(frozen=True)
class Waiting:
    """A foreign process that has done all but make its context, which it will `moment` seconds late."""

    number: int
    job: Job
    pid: int
    gpu: int
    moment: float


def run(report: Report, options: argparse.Namespace) -> None:
    with probing(report) as here:
        report.note(gpus=[gpu.uuid for gpu in here.gpus], seed=SEED)
        pieces = _pieces(here, options)
        for name in chosen(options.kinds, pieces):
            report.attempt(name, pieces[name])


def _pieces(here: Probing, options: argparse.Namespace) -> Mapping[str, Callable[[], None]]:
    """Return the pieces by name; --kinds chooses among them."""
    return {
        "foreign processes": lambda: foreign(here, options.trials or TRIALS),
        "a busy node": lambda: busynode.run(here),
        "start-ups": lambda: startup.run(here, options.startups, SEED),
        "start-ups under a hold": lambda: startup.run(here, options.startups, SEED, held=True),
    }


def foreign(here: Probing, count: int) -> None:
    before = here.used()
    trials: list[Trial] = []
    try:
        with Job("observer") as observer:
            observer.wait("READY", 60)
            _all(here, observer, count, trials)
    finally:
        judge(here.report, trials, count)
    left = here.left(before)
    here.report.check("after all trials: no worker is left, memory is as before", ok=not left, told=left)


def _all(here: Probing, observer: Job, count: int, trials: list[Trial]) -> None:
    """Fill `trials` as they are made, so that those before a failure still count."""
    dice = random.Random(SEED)  # noqa: S311 - moments, not secrets
    failed = 0
    for first in range(0, count, BATCH):
        with _waiting(here, dice, range(first, min(first + BATCH, count))) as others:
            before = here.used()
            for other in others:
                try:
                    made = _trial(here, observer, other, before)
                except KitError as error:
                    here.report.check(f"trial {other.number} could be done", ok=False, told=str(error))
                    failed += 1
                    if failed >= GIVE_UP:
                        raise KitError(f"{failed} trials could not be done") from error
                    continue
                trials.append(made)
                here.report.data.setdefault("trials", []).append(asdict(made))
                here.report.progress(made.line())


@contextmanager
def _waiting(here: Probing, dice: random.Random, numbers: Sequence[int]) -> Iterator[list[Waiting]]:
    gpus = [dice.randrange(len(here.gpus)) for _ in numbers]
    with ExitStack() as stack:
        jobs = [stack.enter_context(Job("foreign", str(gpu))) for gpu in gpus]
        yield [
            Waiting(number, job, int(job.wait("READY", 60)), gpu, dice.uniform(0, LATEST))
            for number, job, gpu in zip(numbers, jobs, gpus, strict=True)
        ]


def _trial(here: Probing, observer: Job, other: Waiting, before: Sequence[int | None]) -> Trial:
    """Raises KitError when the worker or the other process was not seen where it has to be."""
    number = other.number
    prober = here.prober()
    order = here.order(prober, **LONG)

    def come() -> Comer:
        observer.send(json.dumps({"trial": number, "worker": here.pid(), "foreign": other.pid}))
        observer.wait(f"UP{number}", 20)
        time.sleep(other.moment)
        other.job.send("go")
        began, ready, _ = map(float, other.job.wait("UP", 20).split(" "))
        return Comer(other.pid, other.gpu, other.moment, began, ready)

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(come)
        probed = prober.run(order)
    here.keep(f"trial {number}", probed)
    ended = Ended(probed.outcome, probed.why, probed.document is not None)
    try:
        comer = coming.result()
    except KitError as error:
        raise KitError(f"{error}; {ended}") from error
    seen = json.loads(observer.wait(f"SEEN{number}", 60))
    here.report.data.setdefault("seen", []).append(seen)
    other.job.stop()
    here.left(before)
    return trial(number, comer, ended, seen, before)
