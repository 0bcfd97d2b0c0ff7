"""How far times are off that advice.times.fit fits to few sizes, on machines whose whole tables are known.

    PYTHONPATH=agent:. python3 -m proof.lab.times

Prints the tables of proof/lab/times.md. A machine is given a few sizes of some of its GPUs, and no other
reference of its own takes part: what is predicted follows from these sizes and NCCL's structure alone. That
structure's own figures were chosen on the same recordings, for all of them at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from wirewatch.busbw.curves import CURVES, H200_PROBE, ReferenceCurve, table_of
from wirewatch.busbw.formulas import factor
from wirewatch.busbw.references import REFERENCES
from wirewatch.core.pci import Place
from wirewatch.core.probe import KIB, MIB, OPS, Conditions
from wirewatch.core.topology import GpuPart, Group, WireKind
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import size as human
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Estimate, Ranks
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.grid import GRAPH

LARGE, MOST = 64 * MIB, 1024 * MIB
GIVEN = (LARGE, 256 * MIB)
"""Besides the smallest."""
UNSEEN: tuple[ReferenceCurve, ...] = tuple(
    ReferenceCurve(
        OPS[0], 8, tuple((size * KIB, us * 1e-6) for size, us in sizes), source, GRAPH, one_process=False
    )
    for source, sizes in (
        (
            "8 H100 (torch.distributed, ByteDance-Seed/Triton-distributed#57)",
            (
                (1, 19.50), (16, 20.71), (32, 22.65), (64, 23.05), (128, 23.71), (256, 24.76), (512, 25.24),
                (1024, 32.42), (4096, 59.43), (8192, 90.51), (16384, 135.68),
            ),
        ),
        (
            "8 H20 (nccl-tests 2.19.7, NCCL 2.30.4, kvcache-ai/Mooncake#3484)",
            (
                (32, 18.66), (64, 18.95), (128, 19.25), (256, 19.54), (512, 20.39), (1024, 27.76),
                (2048, 40.66), (4096, 53.24), (8192, 81.16), (16384, 121.33), (32768, 195.40),
                (131072, 700.25), (262144, 1366.17), (524288, 2671.60), (1048576, 5252.64),
            ),
        ),
    )
)  # fmt: skip
"""all_reduce of machines that nothing is fitted to; of the model's figures LL's step alone was chosen with a
view to them. A process for each GPU launches faster than the GPUs work here: times are as of a graph. Of the
first without 2 MiB, an outlier of 291 us."""
LIMIT, LARGE_LIMIT = 0.15, 0.10
PARTS = ((0, 64 * KIB), (128 * KIB, 2 * MIB), (4 * MIB, 32 * MIB), (LARGE, MOST))


@dataclass(frozen=True)
class Trial:
    """Sizes that are given, and the curve that is predicted."""

    given: str
    study: Study
    truth: ReferenceCurve
    published: tuple[ReferenceCurve, ...] = CURVES
    """References that take part."""

    @cached_property
    def errors(self) -> dict[int, float]:
        """How far each size up to 1 GiB is off, as a share of what was measured."""
        times = CollectiveTimes(machine(self.truth.ranks, self.study), self.published)
        return {
            size: _seconds(times, self.truth, size) / seconds - 1
            for size, seconds in self.truth.sizes
            if size <= MOST
        }


@cache
def trials() -> tuple[Trial, ...]:
    """All of them, with what they once showed."""
    return tuple(_trials())


def _trials() -> Iterator[Trial]:
    for op in OPS:
        four, eight = table_of(op, 4), table_of(op, 8)
        for truth in (four, eight):
            yield Trial("2 H200 at 8 B (a graph), 64 and 256 MiB", two(op), truth)
        graph = [c for c in CURVES if (c.op, c.ranks, c.launch) == (op, 4, GRAPH)]
        yield from (Trial("2 H200 at 8 B (a graph), 64 and 256 MiB", two(op), one) for one in graph)
        yield Trial("4 H100 at 3 sizes", three(four), four, others(4))
        yield Trial("8 H200 at 3 sizes", three(eight), eight, others(8))
        yield Trial("4 H100 at 3 sizes", three(four), eight)
        yield Trial("8 H200 at 3 sizes", three(eight), four)
    yield from (Trial("2 H200 at 8 B (a graph), 64 and 256 MiB", two(OPS[0]), one) for one in UNSEEN)
    scaling = {c.ranks: c for c in CURVES if c.sizes[0][0] == 256 * MIB}
    yield Trial("2 H100 at 256 MiB", _study(scaling[2], (256 * MIB,)), table_of(OPS[0], 4))
    yield Trial("2 H100 at 256 MiB", _study(scaling[2], (256 * MIB,)), scaling[6])


def others(ranks: int) -> tuple[ReferenceCurve, ...]:
    """References of other numbers of GPUs."""
    return tuple(one for one in CURVES if one.ranks != ranks)


def machine(ranks: int, *studies: Study) -> AdvisedMachine:
    """So many H200 on a switch, without NVLS, and what was measured on them."""
    gpus = tuple(GpuPart(f"gpu-{n}", n, "NVIDIA H200", Place("", "", (), None)) for n in range(ranks))
    group = Group(gpus, WireKind.SWITCH, (18,) * ranks, whole=True)
    conditions = Conditions(group, settings={"NCCL_NVLS_ENABLE": "0"})
    return AdvisedMachine(f"{ranks} H200", Absent(Why.MISSING, "drawn"), (conditions,), studies)


def two(op: str) -> Study:
    """Two H200: the smallest message in a graph, as a probe measures it, and two large ones."""
    small = next(c for c in CURVES if (c.op, c.source) == (op, H200_PROBE))
    large = next(r for r in REFERENCES if (r.op, r.ranks) == (op, 2) and r.source.startswith("2xH200"))
    sizes = {size: factor(op, 2) * size / busbw for size, busbw in large.points if size in GIVEN}
    graph = Curve(op, Configuration(2, launch=GRAPH), (_point(*small.sizes[0]),))
    eager = Curve(op, Configuration(2), tuple(_point(size, sizes[size]) for size in sorted(sizes)))
    return Study(0.0, "two H200", {}, (graph, eager))


def three(table: ReferenceCurve) -> Study:
    """The smallest size of a table, and two large ones."""
    return _study(table, (table.sizes[0][0], *GIVEN))


def _study(table: ReferenceCurve, given: Sequence[int]) -> Study:
    points = tuple(_point(size, seconds) for size, seconds in table.sizes if size in given)
    return Study(0.0, "three sizes", {}, (Curve(table.op, Configuration(table.ranks), points),))


def _point(size: int, seconds: float) -> CurvePoint:
    return CurvePoint(size, (seconds,))


def _seconds(times: CollectiveTimes, truth: ReferenceCurve, size: int) -> float:
    found = times.estimate(truth.op, Ranks(truth.ranks), size, truth.launch, one_process=truth.one_process)
    assert isinstance(found, Estimate)
    return found.seconds


def worst(errors: dict[int, float], low: int, high: int) -> str:
    """The error farthest from 0 of sizes from `low` to `high` bytes, in per cent."""
    inside = [error for size, error in errors.items() if low <= size <= high]
    return f"{100 * max(inside, key=abs):+.1f}" if inside else "-"


def summary() -> str:
    """A table with a row for each trial."""
    lines = [
        "| given | predicted | to 64 KiB | to 2 MiB | to 32 MiB | to 1 GiB |",
        "| -- | -- | -- | -- | -- | -- |",
    ]
    for one in trials():
        errors, truth = one.errors, one.truth
        how = "graph" if truth.launch == GRAPH else "eager"
        cells = " | ".join(worst(errors, low, high) for low, high in PARTS)
        gpus = f"{truth.ranks} {'H200' if truth.ranks == 8 else 'H100'}, {how}"
        gpus = truth.source if truth in UNSEEN else gpus
        lines.append(f"| {one.given} | {truth.op}, {gpus} | {cells} |")
    return "\n".join(lines)


def by_size() -> str:
    """The errors of four GPUs by two, size by size."""
    found = [Trial("", two(op), table_of(op, 4)) for op in OPS]
    errors = [one.errors for one in found]
    lines = [f"| size | {' | '.join(OPS)} |", "| -- | -- | -- | -- |"]
    for size, _ in table_of(OPS[0], 4).sizes:
        if size <= MOST:
            cells = " | ".join(f"{100 * each[size]:+.1f}" if size in each else "-" for each in errors)
            lines.append(f"| {human(size)} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(summary(), by_size(), sep="\n\n")
