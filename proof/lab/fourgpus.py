"""Four H200 that were measured, beside times that are fitted to three sizes of two of them.

`h200x4.json` has the repeats of sweeps on three machines, in microseconds; proof/hardware/2026-11-26-h200.md
says how those of the second and third were taken, proof/hardware/2026-11-27-h200.md those of the fifth, whose
graphs alone are here. Of `two` GPUs the smallest size, 64 and 256 MiB are given; `all` four are predicted by
structure, without a table of four. What the structure says of LL was chosen with the `second` machine in
view, what it says of launches with all of them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

from proof.hardware.predicted import PredictedTime, predictions, three_sizes
from proof.lab.times import machine, others
from proof.lab.twogpus import cells, study
from wirewatch.core.probe import ALL_REDUCE, OPS
from wirewatch_lab.advice.times.estimate import LAUNCHES, CollectiveTimes
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.grid import EAGER, GRAPH

RECORDED = Path(__file__).parent / "h200x4.json"
MACHINES = {"second": LAUNCHES, "third": LAUNCHES, "fifth": (GRAPH,)}
MEASURED = [(which, launch) for which, launches in MACHINES.items() for launch in launches]
FIRST = 8
"""Bytes of the first case of each process: launches ran ahead of the GPUs there, which was mended after."""


@cache
def sweep(name: str, ranks: int) -> Study:
    """A sweep without what its processes measured first one by one."""
    whole = study(name, RECORDED, ranks)
    curves = tuple(
        replace(one, points=tuple(point for point in one.points if point.size_bytes != FIRST))
        if (one.op, one.configuration.launch) == (ALL_REDUCE, EAGER)
        else one
        for one in whole.curves
    )
    return replace(whole, curves=curves)


@cache
def predicted(which: str, op: str, launch: str) -> tuple[PredictedTime, ...]:
    """Every size."""
    given = three_sizes(sweep(f"{which}_two", 2))
    times = CollectiveTimes(machine(4, given), others(4))
    return tuple(predictions(times, given, sweep(f"{which}_all", 4), op, launch))


HEADER = (
    "| predicted | to 64 KiB | to 2 MiB | to 32 MiB | to 1 GiB "
    "| sizes whose repeats differ by more than 15 % | within the limits, or as repeats differ |\n"
    "| -- | -- | -- | -- | -- | -- | -- |"
)


def rows() -> Iterator[str]:
    """A row for each machine, collective and launch: the worst error of each range, in per cent."""
    for which, launches in MACHINES.items():
        for op, launch in product(OPS, launches):
            yield f"| {which} machine, {op}, {launch} | {cells(predicted(which, op, launch))} |"


def table() -> str:
    """All of them."""
    return "\n".join([HEADER, *rows()])


if __name__ == "__main__":
    print(table())
