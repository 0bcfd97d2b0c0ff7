"""A sweep beside the published study of four H100, figure by figure, as a page of Markdown.

    python -m tools.published FOLDER > docs/studies/NAME.md

FOLDER is that of a sweep of 2 and 4 GPUs. The figures are those of waynehacking8/nccl-collectives-bench, MIT:
README.md and results/report.md (plateaus, floors, knees, algorithms, protocols, numbers of GPUs), and
results/symmetric/report.md (eager and graph).
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.prose import formatted
from wirewatch.busbw.expected import GB, human
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from wirewatch.core.types import Absent, Why
from wirewatch.study.curve import AUTO, Configuration, Curve, Study
from wirewatch.study.export import read_study
from wirewatch.study.spread import usable
from wirewatch.study.summary import RepeatedFigure, estimate, rates_of, setting, summarize

MIB, GIB = 1 << 20, 1 << 30
CLOSE = 0.03
"""A difference up to this share takes no explanation: published figures are rounded, and machines vary."""
PUBLISHED: Mapping[str, str] = {
    "product": "4 of 8 H100 80GB SXM5 on NVSwitch, 18 links of 26.562 GB/s: 478 GB/s each way",
    "driver": "580.159.03",
    "NCCL": "2.29.2 by its log (its text says 2.18.3, which is the version of nccl-tests)",
    "how": "nccl-tests 2.18.3, one process, float32, out of place, 5 warm-up runs and 50 timed",
    "nvls": "multicast offered",
}
_FLOOR = "theirs is the least of the sizes up to 256 B, ours the median of those up to 4 KiB"
_GRAPH = "theirs in bfloat16 through PyTorch on a quiet machine, ours float32 through NCCL alone"
_NVLS = "not repeated: NVLink multicast is off on our machines"
Find = Callable[[Curve], RepeatedFigure | Absent]


@dataclass(frozen=True)
class PublishedFigure:
    """One figure: what it is, its value in seconds, bytes or bytes per second, and where a study has it.

    `note`: what is different in how it was measured.
    """

    name: str
    value: float
    unit: str
    find: Find
    op: str = ALL_REDUCE
    ranks: int = 4
    algorithm: str = AUTO
    protocol: str = AUTO
    launch: str = "eager"
    note: str = ""

    def of(self, study: Study) -> tuple[RepeatedFigure | Absent, str]:
        """The same figure of a study, and the setting that it is of where that was not the published one."""
        for place, way in enumerate(self._ways()):
            wanted = Configuration(self.ranks, *way, self.launch)
            for curve in study.curves:
                if (curve.op, curve.configuration) == (self.op, wanted):
                    return self.find(curve), setting(wanted) if place else ""
        return Absent(Why.MISSING, _NVLS if self.algorithm == "NVLS" else "not measured"), ""

    def _ways(self) -> Iterator[tuple[str, str]]:
        """Algorithm and protocol: as published, else as NCCL chooses on four GPUs of one switch."""
        yield self.algorithm, self.protocol
        algorithm = "Ring" if self.algorithm == AUTO else self.algorithm
        yield algorithm, self.protocol
        if self.unit == "GB/s" and self.protocol == AUTO:
            yield algorithm, "Simple"


def plateau(curve: Curve) -> RepeatedFigure | Absent:
    return summarize(curve).plateau


def floor(curve: Curve) -> RepeatedFigure | Absent:
    return summarize(curve).floor


def knee(curve: Curve) -> RepeatedFigure | Absent:
    return summarize(curve).knee


def at(size: int) -> Find:
    """Busbw at one size."""

    def find(curve: Curve) -> RepeatedFigure | Absent:
        points = [point for point in curve.points if point.size_bytes == size and usable(point)]
        missing = Absent(Why.MISSING, f"{human(size)} was not measured")
        return estimate(rates_of(curve, points[0])) if points else missing

    return find


def figures() -> Iterator[PublishedFigure]:
    """All of them, in the order of the published text."""
    for op, most, least, half in (
        (ALL_REDUCE, 366, 22.7, 8), (ALL_GATHER, 344, 16.8, 16), (REDUCE_SCATTER, 350, 21.4, 16),
    ):  # fmt: skip
        yield PublishedFigure(f"{op}, plateau", most * GB, "GB/s", plateau, op)
        yield PublishedFigure(f"{op}, latency floor", least * 1e-6, "us", floor, op, note=_FLOOR)
        yield PublishedFigure(f"{op}, half of the plateau from", half * MIB, "size", knee, op)
    for algorithm, rates in {
        "Ring": (340, 356, 366),
        "Tree": (236, 250, 259),
        "NVLS": (359, 372, 376),
    }.items():
        for size, rate in zip((256 * MIB, GIB, 8 * GIB), rates, strict=True):
            name = f"all_reduce, {algorithm}, {human(size)}"
            note = _NVLS if algorithm == "NVLS" else ""
            yield PublishedFigure(name, rate * GB, "GB/s", at(size), algorithm=algorithm, note=note)
    for protocol, rate in (("Simple", 340), ("LL128", 313), ("LL", 147)):
        name = f"all_reduce, {protocol}, 256 MiB"
        yield PublishedFigure(name, rate * GB, "GB/s", at(256 * MIB), protocol=protocol)
    for launch, least in (("eager", 23.1), ("graph", 13.7)):
        name = f"all_reduce, {launch}, small messages"
        yield PublishedFigure(name, least * 1e-6, "us", floor, launch=launch, note=_GRAPH)
    yield PublishedFigure("all_reduce of 2 GPUs, plateau", 347 * GB, "GB/s", plateau, ranks=2)


def page(study: Study) -> str:
    """The whole page, not formatted yet."""
    lines = [
        "# Beside the published study of four H100",
        "",
        f"Written by `python -m tools.published` from {_cell(study.source)}. Published:",
        "waynehacking8/nccl-collectives-bench (MIT). A range goes from the lowest repeat to the highest.",
        "",
        "| | published | found |",
        "|---|---|---|",
        *_environment(study),
        "",
        "| figure | published | found | difference | why |",
        "|---|---|---|---|---|",
        *(_row(figure, *figure.of(study)) for figure in figures()),
    ]
    return "\n".join(lines) + "\n"


def _environment(study: Study) -> Iterator[str]:
    known = {name.casefold(): value for name, value in study.environment.items()}
    for name, value in PUBLISHED.items():
        yield f"| {name} | {value} | {_cell(known.pop(name.casefold(), ''))} |"
    yield from (f"| {_cell(name)} | | {_cell(value)} |" for name, value in known.items())


def _row(figure: PublishedFigure, found: RepeatedFigure | Absent, way: str) -> str:
    value = _text(figure.value, figure.unit)
    if isinstance(found, Absent):
        return f"| {figure.name} | {value} | - | - | {_cell(found.detail)} |"
    ranged = _text(found.value, figure.unit)
    if found.has_spread and (low := _text(found.low, figure.unit)) != (
        high := _text(found.high, figure.unit)
    ):
        ranged += f" ({low} to {high})"
    ranged += f", {way}" if way else ""
    difference = found.value / figure.value - 1
    why = figure.note if abs(difference) > CLOSE else "the same within 3 %"
    return f"| {figure.name} | {value} | {ranged} | {difference:+.1%} | {why or 'not explained'} |"


def _text(value: float, unit: str) -> str:
    if unit == "size":
        return human(round(value))
    return f"{value * 1e6:.1f} us" if unit == "us" else f"{value / GB:.0f} GB/s"


def _cell(text: str) -> str:
    """A text of others in one cell of a table."""
    plain = "".join(one if one.isprintable() else " " for one in text)
    return plain.replace("\\", "\\\\").replace("|", "\\|")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 64
    print(formatted(page(read_study(Path(sys.argv[1])))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
