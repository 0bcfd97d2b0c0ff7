"""Two H200 that were measured on 2026-11-23, beside times that are fitted to three sizes of theirs.

`h200x2.json` has the repeats of two sweeps of one machine, in microseconds. How they were taken is in
proof/hardware/2026-11-23-h200-advice.md. `two` gives the smallest size, 64 and 256 MiB, and `all` is
predicted. The table of two GPUs among the references is of another machine, on the same day. Times are
predicted without it, by structure alone, and with it.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

from proof.hardware.predicted import LIMITS, WITHIN, PredictedTime, judged, predictions, three_sizes
from proof.lab.times import PARTS, machine, others, worst
from wirewatch.busbw.curves import CURVES
from wirewatch.core.probe import OPS
from wirewatch_lab.advice.times.estimate import LAUNCHES, CollectiveTimes
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study

RECORDED = Path(__file__).parent / "h200x2.json"
WITHOUT, WITH = "without", "with"


@cache
def study(name: str, file: Path = RECORDED, ranks: int = 2) -> Study:
    """One of a file's sweeps, as our own workers made it."""
    recorded = json.loads(file.read_text("utf-8"))[name]
    curves = tuple(
        Curve(op, Configuration(ranks, launch=launch), tuple(
            CurvePoint(int(size), tuple(us * 1e-6 for us in repeats)) for size, repeats in sizes.items()
        ))
        for op, launches in recorded.items() for launch, sizes in launches.items()
    )  # fmt: skip
    return Study(0.0, f"{ranks} H200, {name}", {"engine": "nccl"}, curves)


@cache
def predicted(op: str, launch: str, shape: str) -> tuple[PredictedTime, ...]:
    """Every size, `shape` with or without the references of two GPUs."""
    given = three_sizes(study("two"))
    published = CURVES if shape == WITH else others(2)
    times = CollectiveTimes(machine(2, given), published)
    return tuple(predictions(times, given, study("all"), op, launch))


HEADER = (
    "| predicted | table of two GPUs | to 64 KiB | to 2 MiB | to 32 MiB | to 1 GiB "
    "| sizes whose repeats differ by more than 15 % | within the limits, or as repeats differ |\n"
    "| -- | -- | -- | -- | -- | -- | -- | -- |"
)


def rows() -> Iterator[str]:
    """A row for each collective, launch and table: the worst error of each range, in per cent."""
    for op, launch, shape in product(OPS, LAUNCHES, (WITHOUT, WITH)):
        yield f"| {op}, {launch} | {shape} | {cells(predicted(op, launch, shape))} |"


def cells(found: Sequence[PredictedTime]) -> str:
    """The worst errors of each range, how many sizes are not reproducible, and whether the limits hold."""
    errors = {one.size_bytes: one.off for one in found}
    spreads = [one.spread for one in found if one.spread > WITHIN]
    apart = f", up to {100 * max(spreads):.0f} % apart" if spreads else ""
    held = "yes" if all(holds(found)) else "no"
    parts = (worst(errors, low, high) for low, high in PARTS)
    return " | ".join((*parts, f"{len(spreads)} of {len(found)}{apart}", held))


def holds(found: Sequence[PredictedTime]) -> list[bool]:
    """Each limit."""
    return [judged([one for one in found if one.size_bytes >= least], limit)[0] for _, least, limit in LIMITS]


def table() -> str:
    """All of them."""
    return "\n".join([HEADER, *rows()])


if __name__ == "__main__":
    print(table())
