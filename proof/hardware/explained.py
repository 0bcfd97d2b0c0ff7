"""explained: the first line of `wirewatch explain` for jobs with one known cause each.

The jobs are a transformer trained with DDP or FSDP and one served with CUDA graphs, but for Tree and launch
gaps. All causes that the tests draw are made here but one, since this kit throttles no GPU. Healthy jobs are
in `runningjobs`. A case takes some 70 s of two GPUs; --shapes for some of them by name.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from proof.hardware import lane
from proof.hardware.daemon import DEFAULTS, Daemon
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report
from proof.hardware.runningjobs import ALONE, slow_wires
from proof.hardware.tap import READY, TMPFS, WIRES, Taps
from wirewatch.jobs.explain.evidence import Wall

WITHIN = 90.0
"""Seconds until the right line must stand."""
SETTLED, EVEN = 20.0, 50.0
"""Seconds of healthy work: before a rank is stopped, and before work is uneven, which two GPUs may have been
made for unless they were even before."""
EVERY = 3.0
CONFIG = """
[collectors.lockstep]
enabled = true
[collectors.hangs]
interval = 2.0
[policy.lockstep]
settle = 10.0
[policy.hangs]
after = 10.0
again = 4.0
"""
ACCUSED = frozenset(one.value for one in Wall if one not in {Wall.NOTHING, Wall.COMPUTING, Wall.NOT_KNOWN})


@dataclass(frozen=True)
class ExplainCase:
    """A job with one cause: its shape, settings and order, and what the first line must be.

    `stopped`: the process of this rank is stopped once the job runs, -1 for none. `healthy`: seconds before
    anything happens. `words` of the sentence or of what shows it.
    """

    name: str
    shape: str
    wall: Wall
    words: tuple[str, ...] = ()
    order: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    stopped: int = -1
    healthy: float = 0.0


CASES = (
    ExplainCase("late rank", "ddp", Wall.LATE_RANK, ("rank 1", "GPU 1"), "slow 1 10 same"),
    ExplainCase("late rank of FSDP", "fsdp", Wall.LATE_RANK, ("rank 0", "GPU 0"), "slow 0 10 same"),
    ExplainCase("P2P off", "ddp", Wall.SLOW_WIRE, ("NCCL_P2P_DISABLE",), settings=WIRES["P2P off"]),
    ExplainCase("Tree", "data_parallel", Wall.SLOW_WIRE, ("Tree",), settings=WIRES["Tree"]),
    ExplainCase("LL", "ddp", Wall.SLOW_WIRE, ("LL",), settings=WIRES["LL"]),
    ExplainCase("memory", "served", Wall.MEMORY, healthy=ALONE),
    ExplainCase("launch gaps", "launches", Wall.LAUNCH_GAPS, healthy=ALONE),
    ExplainCase("loader of all ranks", "ddp_pauses", Wall.HOST, healthy=ALONE),
    ExplainCase("loader of one rank", "ddp_stalls", Wall.HOST, ("wait for rank",), healthy=ALONE),
    ExplainCase("uneven work", "ddp", Wall.UNEVEN_WORK, ("GPU 1",), "slow 1 10 more", healthy=EVEN),
    ExplainCase("stopped rank", "served", Wall.HANG, stopped=1, healthy=SETTLED),
)
Explained = Mapping[str, Any]


@dataclass
class ExplainTrial:
    """`after`: seconds until the right line stood, None for never; `others`: walls that were said before.

    `last`: all that was said at the end, where the line never was right.
    """

    name: str
    after: float | None
    others: list[str]
    sentence: str
    last: Explained = field(default_factory=dict)


def right(case: ExplainCase, found: Explained) -> bool:
    """Whether this document names the wall of the case, with all of its words."""
    answer = found["answer"]
    text = " ".join((answer["sentence"], *answer["causes"], *answer["because"]))
    return answer["wall"] == case.wall.value and all(word in text for word in case.words)


def watched(ask: Callable[[], Explained], case: ExplainCase, within: float, every: float) -> ExplainTrial:
    """Ask until the line is right; other walls meanwhile are kept."""
    began, others, found = time.monotonic(), list[str](), ask()
    while time.monotonic() - began < within:
        if right(case, found):
            return ExplainTrial(case.name, time.monotonic() - began, others, str(found["sentence"]))
        wall = str(found["answer"]["wall"])
        if wall in ACCUSED and wall not in others:
            others.append(wall)
        time.sleep(every)
        found = ask()
    return ExplainTrial(case.name, None, others, str(found["sentence"]), found)


def run(report: Report, options: argparse.Namespace) -> None:
    wanted = options.shapes or [case.name for case in CASES]
    trials: list[ExplainTrial] = []
    wires = slow_wires(lane.here(), None)
    cases = [case for case in CASES if case.name in wanted and (case.name not in WIRES or case.name in wires)]
    with tempfile.TemporaryDirectory(prefix="wirewatch-explain-", dir=TMPFS) as folder:
        taps, path = Taps(Path(folder), follow=False), f"{folder}/w.sock"
        config = DEFAULTS.replace('socket = ""', f'socket = "{path}"')
        with Daemon(f'{config}[jobs]\nrings = "{taps.rings}"\n{CONFIG}'):
            for case in cases:
                report.attempt(case.name, partial(_case, report, taps, path, case, trials))
    good = sum(one.after is not None for one in trials)
    name = "the first line is right for each cause"
    report.check(name, ok=good == len(cases) > 0, told=f"{good} of {len(cases)}")


def explained(path: str, pid: int) -> Explained:
    """What the command says of the job of this process.

    Raises:
        KitError: it says nothing.
    """
    command = [sys.executable, "-m", "wirewatch", "explain", str(pid), "--socket", path, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 64:
        # The daemon has not seen the job yet.
        return {"sentence": done.stderr.strip(), "answer": {"wall": Wall.NOT_KNOWN.value, "sentence": "",
                "causes": [], "because": []}}  # fmt: skip
    if done.returncode:
        raise KitError(f"explain {pid}: {done.returncode}: {done.stderr}")
    document: Explained = json.loads(done.stdout)
    return document


def _case(
    report: Report, taps: Taps, path: str, case: ExplainCase, trials: list[ExplainTrial]
) -> None:  # fmt: skip
    with Job("shapes", case.shape, settings=taps.settings(case.settings)) as job:
        pids = _pids(job.wait("READY", READY))
        time.sleep(case.healthy)
        if case.order:
            job.send(case.order)
        if case.stopped >= 0:
            os.kill(pids[case.stopped], signal.SIGSTOP)
        try:
            trial = watched(lambda: explained(path, pids[0]), case, WITHIN, EVERY)
        finally:
            if case.stopped >= 0:
                os.kill(pids[case.stopped], signal.SIGCONT)
    trials.append(trial)
    report.note(trials=[asdict(one) for one in trials])
    report.progress(json.dumps(asdict(replace(trial, last={}))))


def _pids(ready: str) -> Sequence[int]:
    return [int(word) for word in ready.split()]
