"""advice: times that are fitted to two GPUs and three sizes, beside what all GPUs then take.

By the command, `wirewatch sweep`: two GPUs at the smallest size, 64 and 256 MiB, one by one and as CUDA
graphs; then all GPUs from 8 B to 1 GiB. And a toy tensor-parallel transformer in torch, a process a GPU: what
its all-reduces take for a token, at five sizes, with two and with four GPUs, beside what is predicted from
one all-reduce of two GPUs at 8 B, 64 and 256 MiB in the same program.

The transformer's collective time is the pass with its all-reduces less the same pass without them, where both
are one CUDA graph. Launched one by one, the host launches ahead while the GPUs compute, and that difference
is no time of a collective: there it is the same sequence of all-reduces alone. Both figures are printed.
Some six minutes of four GPUs; --trials for other repeats than three.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from proof.hardware.job import Job
from proof.hardware.jobs.tokens import REDUCTIONS, SHAPES
from proof.hardware.kit import KitError, Report
from proof.hardware.probing import Probing, probing
from proof.hardware.sweep import Sweeping
from wirewatch.advice.machine import AdvisedMachine
from wirewatch.advice.times.estimate import LAUNCHES, CollectiveTimes, Ranks
from wirewatch.core.probe import ALL_REDUCE, MIB, OPS
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.probe.setup import read_scene
from wirewatch.study.curve import Configuration, Curve, CurvePoint, Study
from wirewatch.study.export import read_study

SECONDS = 420.0
"""Of both sweeps."""
REPEATS = 3
LARGE, MOST = 64 * MIB, 1024 * MIB
GIVEN = (LARGE, 256 * MIB)
"""Besides the smallest: 8 B, and 16 B for each rank where ranks share the message."""
WITHIN, LARGE_WITHIN = 0.15, 0.10
FIT = ("--gpus", "2", "--size", "8,32,64M,256M", "--launch", "eager,graph")
WHOLE = ("--size", "8:1G", "--launch", "eager,graph")
DEGREES = (2, 4)
DECODER_WITHIN = 240.0
JOB_SIZES = (8, *GIVEN)


@dataclass(frozen=True)
class Compared:
    """One figure that was predicted and measured; in seconds."""

    what: str
    size_bytes: int
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """As a share of what was measured."""
        return self.predicted / self.measured - 1


def run(report: Report, options: argparse.Namespace) -> None:
    end = time.monotonic() + SECONDS
    repeats = ("--repeats", str(options.trials or REPEATS), "--seed", "1")
    with probing(report) as here, tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as state:
        report.note(gpus=[gpu.uuid for gpu in here.gpus])
        machine = machine_of(here)
        two, all_of = (Sweeping(here, report.out / name, state, end) for name in ("two", "all"))
        report.attempt("two GPUs at three sizes", lambda: _swept(two, *FIT, *repeats))
        gpus = ("--gpus", str(len(here.gpus)))
        report.attempt("all GPUs at all sizes", lambda: _swept(all_of, *gpus, *WHOLE, *repeats))
        report.attempt(
            "collectives",
            lambda: collectives(report, machine, read_study(two.folder), read_study(all_of.folder)),
        )
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


def collectives(report: Report, machine: AdvisedMachine, two: Study, whole: Study) -> None:
    """Every size of every collective, by three sizes of two GPUs."""
    times = CollectiveTimes(replace(machine, measured=(three_sizes(two),)))
    for op in OPS:
        for launch in LAUNCHES:
            found = list(_predicted(times, whole, op, launch))
            rows = [[one.size_bytes, 1e6 * one.predicted, 1e6 * one.measured, percent(one)] for one in found]
            report.table(f"{op}, {launch}", ["bytes", "predicted us", "measured us", "off"], rows)
            judge(report, f"{op}, {launch}", found)


def judge(report: Report, what: str, found: Sequence[Compared]) -> None:
    """Both limits; nothing to compare is a limit that fails."""
    large = [one for one in found if one.size_bytes >= LARGE]
    for name, part, limit in (("all sizes", found, WITHIN), ("from 64 MiB on", large, LARGE_WITHIN)):
        worst = max(part, key=lambda one: abs(one.off), default=None)
        told = "nothing to compare" if worst is None else f"{worst.size_bytes} B: {percent(worst)}"
        title = f"{what}: {name} within {100 * limit:g} %"
        report.check(title, ok=worst is not None and abs(worst.off) <= limit, told=told)


def three_sizes(two: Study) -> Study:
    """A study with the smallest size of each curve and the given ones alone.

    Raises:
        KitError: one of them was not measured.
    """
    curves = []
    for curve in two.curves:
        points = [point for point in curve.points if point.seconds]
        kept = [*points[:1], *(point for point in points[1:] if point.size_bytes in GIVEN)]
        if len(kept) != 1 + len(GIVEN):
            raise KitError(f"{curve.op}: {[point.size_bytes for point in points]} of two GPUs")
        curves.append(replace(curve, points=tuple(kept)))
    return replace(two, curves=tuple(curves))


def per_token(
    machine: AdvisedMachine,
    curve: Study,
    timed: Sequence[Mapping[str, float | str]],
    launch: str,
    degree: int,
) -> list[tuple[Compared, float, float]]:
    """What the all-reduces of one token take, with the two figures it could be: in the pass, and alone."""
    times = CollectiveTimes(replace(machine, measured=(curve,)))
    held = {
        (str(one["what"]), int(one["size"])): float(one["seconds"])
        for one in timed
        if one["launch"] == launch
    }
    found = []
    for hidden, tokens in SHAPES:
        size = 2 * hidden * tokens
        inside, alone = held["step", size] - held["compute", size], held["sequence", size]
        one = times.estimate(ALL_REDUCE, Ranks(degree), size, launch)
        if isinstance(one, Absent):
            raise KitError(f"nothing is predicted of {size} B: {one}")
        measured = inside if launch == "graph" else alone
        if measured <= 0:
            raise KitError(f"{size} B, {launch}: the pass with all-reduces takes no longer than without")
        title = f"TP {degree}, {launch}"
        found.append((Compared(title, size, REDUCTIONS * one.seconds, measured), inside, alone))
    return found


def job_curve(timed: Sequence[Mapping[str, float | str]]) -> Study:
    """One all-reduce of two GPUs, as the program itself measures it."""
    curves = []
    for launch in LAUNCHES:
        sizes = {
            int(one["size"]): float(one["seconds"])
            for one in timed if (one["what"], one["launch"]) == ("curve", launch)
        }  # fmt: skip
        if sorted(sizes) != sorted(JOB_SIZES):
            raise KitError(f"{launch}: {sorted(sizes)} B of two GPUs")
        points = tuple(CurvePoint(size, (sizes[size],)) for size in sorted(sizes))
        curves.append(Curve(ALL_REDUCE, Configuration(2, launch=launch), points, "bfloat16"))
    return Study(time.time(), "two GPUs in the same program", {"engine": "distributed"}, tuple(curves))


def percent(one: Compared) -> str:
    return f"{100 * one.off:+.1f} %"


def _swept(one: Sweeping, *arguments: str) -> None:
    status = one.run("--out", str(one.folder), *arguments)
    study = read_study(one.folder)
    told = f"status {status}; {'; '.join(study.problems[:3])}"
    one.here.report.check(
        f"{one.folder.name}: measured without problems", ok=status == 0 and not study.problems, told=told
    )
    one.here.report.note(**{f"{one.folder.name}_environment": study.environment})


def _predicted(times: CollectiveTimes, whole: Study, op: str, launch: str) -> Iterable[Compared]:
    for curve in whole.curves:
        if (curve.op, curve.configuration.launch) != (op, launch):
            continue
        for point in curve.points:
            span = Ranks(curve.configuration.ranks)
            found = times.estimate(op, span, point.size_bytes, launch, one_process=True)
            if isinstance(found, Absent) or not point.seconds:
                raise KitError(f"{op}, {launch}, {point.size_bytes} B: {found}, measured {point.seconds}")
            if point.size_bytes <= MOST:
                yield Compared(
                    op, point.size_bytes, found.seconds, sorted(point.seconds)[len(point.seconds) // 2]
                )


def _decoders(report: Report, machine: AdvisedMachine, gpus: int) -> None:
    timed = {degree: _decoded(report, degree) for degree in DEGREES if degree <= gpus}
    report.note(decoders=timed)
    curve = job_curve(timed[DEGREES[0]])
    for degree, found in timed.items():
        for launch in LAUNCHES:
            made = per_token(machine, curve, found, launch, degree)
            rows = [
                [
                    one.size_bytes,
                    1e3 * one.predicted,
                    1e3 * one.measured,
                    percent(one),
                    1e3 * inside,
                    1e3 * alone,
                ]
                for one, inside, alone in made
            ]
            header = ["bytes", "predicted ms", "measured ms", "off", "in the pass ms", "alone ms"]
            report.table(f"a token's all-reduces, TP {degree}, {launch}", header, rows)
            worst = max((one for one, _, _ in made), key=lambda one: abs(one.off))
            title = f"TP {degree}, {launch}: {len(made)} sizes within {100 * WITHIN:g} %"
            told = f"{worst.size_bytes} B: {percent(worst)}"
            report.check(title, ok=abs(worst.off) <= WITHIN, told=told)
    missing = [degree for degree in DEGREES if degree > gpus]
    report.check("TP 2 and 4 were measured", ok=not missing, told=f"{gpus} GPUs")


def _decoded(report: Report, degree: int) -> list[dict[str, float | str]]:
    report.progress(f"the toy transformer on {degree} GPUs")
    sizes = [str(size) for size in JOB_SIZES] if degree == DEGREES[0] else []
    with Job("decoder", str(degree), *(["--sizes", *sizes] if sizes else [])) as job:
        job.wait("DONE", DECODER_WITHIN)
        return [json.loads(line.removeprefix("TIMED ")) for line in job.lines() if line.startswith("TIMED ")]
