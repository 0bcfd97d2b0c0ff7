"""advice: times that are fitted to two GPUs and three sizes, beside what all GPUs then take.

By the command, `wirewatch sweep`: two GPUs at the smallest size, 64 and 256 MiB; then all GPUs from 8 B to 1
GiB. Once as CUDA graphs, and once one by one with a process for each GPU, as jobs launch: what one process
takes to launch on all GPUs differs by half from process to process on a virtual machine. And a toy
tensor-parallel transformer in torch, a process a GPU: what its all-reduces take for a token, at five sizes,
with two and with four GPUs, beside what is predicted from one all-reduce of two GPUs at 8 B, 64 and 256 MiB
in the same program.

The transformer's collective time, where the pass is one CUDA graph, is that between events before and after
each all-reduce; so is that of the given sizes, in a row of as many. The pass less the same pass without
all-reduces is none: products run faster where all-reduces let the GPUs rest, and gaps between kernels vanish
(16 MiB took 63 us less so, and 76 us by themselves). Launched one by one, the host launches ahead while the
GPUs compute: there it is the same sequence of all-reduces alone. All these figures are printed. Everything is
repeated in turns. Some five minutes of four GPUs; --trials for other repeats than three.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

from proof.hardware.job import Job
from proof.hardware.jobs.tokens import REDUCTIONS, SHAPES
from proof.hardware.kit import KitError, Report
from proof.hardware.predicted import (
    GIVEN,
    WITHIN,
    PredictedTime,
    differ,
    judge,
    judged,
    percent,
    predictions,
    stands_on,
    three_sizes,
)
from proof.hardware.probing import Probing, probing
from proof.hardware.sweep import Sweeping
from wirewatch.busbw.curves import CURVES
from wirewatch.core.probe import ALL_REDUCE, OPS
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.probe.setup import read_scene
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.times.estimate import LAUNCHES, CollectiveTimes, Ranks
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.export import read_study
from wirewatch_lab.study.grid import EAGER, GRAPH

SECONDS = 420.0
"""Of all sweeps."""
REPEATS = 3
HOW: Mapping[str, tuple[str, ...]] = {
    GRAPH: ("--launch", GRAPH, "--engine", "nccl"),
    EAGER: ("--launch", EAGER, "--engine", "distributed", "--iterations", "200"),
}
"""A launch of the host differs from the next: of 200 it is the mean."""
FIT = ("--gpus", "2", "--size", "8,32,64M,256M")
WHOLE = ("--size", "8:1G")
HEADER = ["bytes", "predicted us", "measured us", "off", "repeats differ %", "given differ %"]
DEGREES = (2, 4)
DECODER_WITHIN = 240.0
JOB_SIZES = (8, *GIVEN)
TimedLine = Mapping[str, Any]
"""One of the job's: `what`, `launch`, `size` in bytes, `seconds` of each repeat."""


def run(report: Report, options: argparse.Namespace) -> None:
    end = time.monotonic() + SECONDS
    repeats = ("--repeats", str(options.trials or REPEATS), "--seed", "1")
    with probing(report) as here, tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as state:
        report.note(gpus=[gpu.uuid for gpu in here.gpus])
        machine = machine_of(here)
        whole = ("--gpus", str(len(here.gpus)), *WHOLE)
        swept: dict[tuple[str, str], Sweeping] = {}
        for (name, sizes), launch in product((("two", FIT), ("all", whole)), LAUNCHES):
            one = swept[name, launch] = Sweeping(here, report.out / f"{name}-{launch}", state, end)
            report.attempt(f"{name}, {launch}", partial(_swept, one, *sizes, *HOW[launch], *repeats))

        def studies(name: str) -> dict[str, Study]:
            return {launch: read_study(swept[name, launch].folder) for launch in LAUNCHES}

        report.attempt("collectives", lambda: collectives(report, machine, studies("two"), studies("all")))
        report.attempt("the toy transformer", lambda: _decoders(report, machine, len(here.gpus)))


def machine_of(here: Probing) -> AdvisedMachine:
    """This machine with nothing measured.

    Raises:
        KitError: its topology cannot be read.
    """
    scene = read_scene(here.hardware, here.gpus, here.prober().settings(), Expect(), {})
    if isinstance(scene, Absent):
        raise KitError(f"the topology cannot be read: {scene}")
    return AdvisedMachine("this node", Absent(Why.MISSING, "not asked for"), scene.conditions)


def collectives(
    report: Report, machine: AdvisedMachine, two: Mapping[str, Study], whole: Mapping[str, Study]
) -> None:
    """Every size of every collective, by three sizes of two GPUs and no table of as many as are predicted.

    Both have a study for each launch.
    """
    given = {launch: three_sizes(study) for launch, study in two.items()}
    ranks = {curve.configuration.ranks for study in whole.values() for curve in study.curves}
    published = [curve for curve in CURVES if curve.ranks not in ranks]
    times = CollectiveTimes(replace(machine, measured=tuple(given.values())), published)
    for op, launch in product(OPS, LAUNCHES):
        found = list(predictions(times, given[launch], whole[launch], op, launch))
        report.table(f"{op}, {launch}", HEADER, [row(one) for one in found])
        judge(report, f"{op}, {launch}", found)


def row(one: PredictedTime) -> list[object]:
    """A line of a table, with what repeats of the measured and of the given points differ by, in per cent."""
    return [
        one.size_bytes, 1e6 * one.predicted, 1e6 * one.measured, percent(one), 100 * one.repeats,
        100 * one.given,
    ]  # fmt: skip


@dataclass(frozen=True)
class TokenTime:
    """What the all-reduces of one token take, predicted and measured, beside the other figures it could be.

    Compared is their sequence by itself. `less`: seconds of the pass less those without all-reduces.
    """

    compared: PredictedTime
    less: float


def per_token(
    machine: AdvisedMachine, curve: Study, timed: Sequence[TimedLine], launch: str, degree: int
) -> list[TokenTime]:
    """Each shape.

    Raises:
        KitError: one was not measured, or nothing is predicted of it.
    """
    times = CollectiveTimes(replace(machine, measured=(curve,)))
    held = {
        (str(one["what"]), int(one["size"])): middle(one["seconds"])
        for one in timed
        if one["launch"] == launch
    }
    found = []
    for hidden, tokens in SHAPES:
        size = 2 * hidden * tokens
        try:
            repeats = held["sequence", size]
            step, compute = (median(held[what, size]) for what in ("step", "compute"))
        except KeyError as missing:
            raise KitError(f"{launch}, TP {degree}: {missing} was not measured") from missing
        if min(repeats) <= 0:
            raise KitError(f"{size} B, {launch}: all-reduces that take no time")
        seconds, on_gpus = (_predicted(times, degree, size, how) for how in (launch, GRAPH))
        held_by = stands_on(curve, ALL_REDUCE, launch, size, seconds, on_gpus)
        given = max(differ(one.seconds) for one in held_by)
        compared = PredictedTime(
            f"TP {degree}, {launch}", size, REDUCTIONS * seconds, median(repeats), differ(repeats), given
        )
        found.append(TokenTime(compared, step - compute))
    return found


def middle(repeats: Sequence[float]) -> list[float]:
    """Repeats in one process without the highest and the lowest quarter.

    Raises:
        KitError: there are none.
    """
    if not repeats:
        raise KitError("nothing was repeated")
    out = len(repeats) // 4
    return sorted(repeats)[out : len(repeats) - out]


def job_curve(timed: Sequence[TimedLine], ranks: int) -> Study:
    """One all-reduce of so many GPUs, as the program itself measures it.

    Raises:
        KitError: one of its sizes is missing.
    """
    curves = []
    for launch in LAUNCHES:
        sizes = {
            int(one["size"]): middle(one["seconds"])
            for one in timed if (one["what"], one["launch"]) == ("curve", launch)
        }  # fmt: skip
        if sorted(sizes) != sorted(JOB_SIZES):
            raise KitError(f"{launch}: {sorted(sizes)} B of {ranks} GPUs")
        points = tuple(CurvePoint(size, tuple(sizes[size])) for size in sorted(sizes))
        curves.append(Curve(ALL_REDUCE, Configuration(ranks, launch=launch), points, "bfloat16"))
    return Study(time.time(), f"{ranks} GPUs in the same program", {"engine": "distributed"}, tuple(curves))


def _predicted(times: CollectiveTimes, degree: int, size: int, launch: str) -> float:
    one = times.estimate(ALL_REDUCE, Ranks(degree), size, launch)
    if isinstance(one, Absent):
        raise KitError(f"nothing is predicted of {size} B: {one}")
    return one.seconds


def _swept(one: Sweeping, *arguments: str) -> None:
    status = one.run("--out", str(one.folder), *arguments)
    study = read_study(one.folder)
    told = f"status {status}; {'; '.join(study.problems[:3])}"
    one.here.report.check(
        f"{one.folder.name}: measured without problems", ok=status == 0 and not study.problems, told=told
    )
    one.here.report.note(**{f"{one.folder.name}_environment": study.environment})


def _decoders(report: Report, machine: AdvisedMachine, gpus: int) -> None:
    timed = {degree: _decoded(report, degree) for degree in DEGREES if degree <= gpus}
    report.note(decoders=timed)
    for degree, found in timed.items():
        curve = job_curve(found, degree)
        for launch in LAUNCHES:
            made = per_token(machine, curve, found, launch, degree)
            rows = [[*row(one.compared), 1e6 * one.less] for one in made]
            header = [*HEADER, "pass less compute us"]
            report.table(f"a token's all-reduces, TP {degree}, {launch}", header, rows)
            ok, line = judged([one.compared for one in made], WITHIN)
            title = f"TP {degree}, {launch}: {len(made)} sizes within {100 * WITHIN:g} %"
            report.check(f"{title}, or as repeats differ where that is more", ok=ok, told=line)
    missing = [degree for degree in DEGREES if degree > gpus]
    report.check("TP 2 and 4 were measured", ok=not missing, told=f"{gpus} GPUs")


def _decoded(report: Report, degree: int) -> list[TimedLine]:
    report.progress(f"the toy transformer on {degree} GPUs")
    with Job("decoder", str(degree), "--sizes", *(str(size) for size in JOB_SIZES)) as job:
        job.wait("DONE", DECODER_WITHIN)
        return [json.loads(line.removeprefix("TIMED ")) for line in job.lines() if line.startswith("TIMED ")]
