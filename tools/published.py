"""Sweeps beside the published study of four H100, figure by figure, as a page of Markdown.

    python -m tools.published FOLDER... > docs/studies/NAME.md

Each FOLDER is that of a sweep; of a curve that several have, the first counts. Of two GPUs alone the same
figures are shown beside the published ones of four, and are compared with the published run of two. The
figures are those of waynehacking8/nccl-collectives-bench, MIT: README.md and results/report.md (plateaus,
floors, knees, algorithms, protocols, numbers of GPUs), and results/symmetric/report.md (eager and graph).
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.prose import formatted
from wirewatch.busbw.curves import CURVES, H100_SCALING
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import GB
from wirewatch.core.words import size as human
from wirewatch_lab.study.compare import Key, key_of
from wirewatch_lab.study.curve import AUTO, Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.export import read_study
from wirewatch_lab.study.spread import usable
from wirewatch_lab.study.summary import RepeatedFigure, estimate, rates_of, setting, summarize

MIB, GIB = 1 << 20, 1 << 30
RANKS, TWO = 4, 2
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
_TREE = "a tree of two GPUs is a chain, which sends as a ring does"
_NO_TWO = "there is no published run of so few"
_FEWER = "each of 2 sends two thirds of what each of 4 does, so what a message costs at any size weighs more"
NEAR = 2
"""A size stands for another that was not measured within this factor, and is named."""
Find = Callable[[Curve], RepeatedFigure | Absent]


@dataclass(frozen=True)
class FoundFigure:
    """What a study has of a published figure. `how`: in what it was measured otherwise, for people."""

    figure: RepeatedFigure
    ranks: int
    how: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedFigure:
    """One figure: what it is, its value in seconds, bytes or bytes per second, and where a study has it.

    `size`: of the message in bytes where it is of a single one, else `find` takes it from the curve. `note`:
    what is different in how it was measured. `of_two`: the same as published of two GPUs, 0 if it is not.
    `fewer`: why it differs with the number of GPUs.
    """

    name: str
    value: float
    unit: str
    find: Find | None = None
    op: str = ALL_REDUCE
    size: int = 0
    ranks: int = RANKS
    algorithm: str = AUTO
    protocol: str = AUTO
    launch: str = "eager"
    note: str = ""
    of_two: float = 0.0
    fewer: str = ""

    def of(self, study: Study) -> FoundFigure | Absent:
        """The same of a study: of as many GPUs if it can be, else of the most that are fewer."""
        fewer = {one.configuration.ranks for one in study.curves if one.configuration.ranks < self.ranks}
        for ranks in (self.ranks, *sorted(fewer, reverse=True)):
            for factor in (1, NEAR) if self.size else (1,):
                for way in self._ways():
                    found = self._found(study, Configuration(ranks, *way, self.launch), factor)
                    if found is not None:
                        return found
        return Absent(Why.MISSING, _NVLS if self.algorithm == "NVLS" else "not measured")

    def _found(self, study: Study, wanted: Configuration, factor: int) -> FoundFigure | None:
        """`factor`: by which a size may be another."""
        published = (wanted.algorithm, wanted.protocol) == (self.algorithm, self.protocol)
        how = () if published else (setting(wanted),)
        for curve in study.curves:
            if (curve.op, curve.configuration) == (self.op, wanted):
                return self._at_size(curve, how, factor) if self.size else self._of_curve(curve, how)
        return None

    def _ways(self) -> Iterator[tuple[str, str]]:
        """Algorithm and protocol: as published; as NCCL chooses; as it chooses on GPUs of one switch."""
        yield self.algorithm, self.protocol
        if self.algorithm == "NVLS":
            return
        if self.algorithm != AUTO or self.protocol != AUTO:
            yield AUTO, AUTO
        algorithm = "Ring" if self.algorithm == AUTO else self.algorithm
        yield algorithm, self.protocol
        if self.unit == "GB/s" and self.protocol == AUTO:
            yield algorithm, "Simple"

    def _of_curve(self, curve: Curve, how: tuple[str, ...]) -> FoundFigure | None:
        found = self.find(curve) if self.find else Absent(Why.MISSING)
        return None if isinstance(found, Absent) else FoundFigure(found, curve.configuration.ranks, how)

    def _at_size(self, curve: Curve, how: tuple[str, ...], factor: int) -> FoundFigure | None:
        """Of the nearest size, the smaller of two."""
        low, high = self.size / factor, self.size * factor
        near = [
            one for one in curve.points
            if usable(one) and self._ran(curve, one) and low <= one.size_bytes <= high
        ]  # fmt: skip
        if not near:
            return None
        point = min(near, key=lambda one: (abs(math.log(one.size_bytes / self.size)), one.size_bytes))
        at = () if point.size_bytes == self.size else (f"at {human(point.size_bytes)}",)
        return FoundFigure(estimate(rates_of(curve, point)), curve.configuration.ranks, how + at)

    def _ran(self, curve: Curve, point: CurvePoint) -> bool:
        """Whether a point of NCCL's own choice is of what was published."""
        asked = {self.algorithm, self.protocol} - {AUTO}
        own = curve.configuration.algorithm == curve.configuration.protocol == AUTO
        return not (own and asked) or (len(point.ran) == 1 and asked <= set(point.ran[0].split()))


def plateau(curve: Curve) -> RepeatedFigure | Absent:
    return summarize(curve).plateau


def floor(curve: Curve) -> RepeatedFigure | Absent:
    return summarize(curve).floor


def knee(curve: Curve) -> RepeatedFigure | Absent:
    return summarize(curve).knee


def figures() -> Iterator[PublishedFigure]:
    """All of them, in the order of the published text."""
    two = published_of_two()
    for op, most, least, half in (
        (ALL_REDUCE, 366.0, 22.7, 8), (ALL_GATHER, 344, 16.8, 16), (REDUCE_SCATTER, 350, 21.4, 16),
    ):  # fmt: skip
        of_two = max(two.values()) if op == ALL_REDUCE else 0.0
        yield PublishedFigure(f"{op}, plateau", most * GB, "GB/s", plateau, op, of_two=of_two, fewer=_NO_TWO)
        yield PublishedFigure(
            f"{op}, latency floor", least * 1e-6, "us", floor, op, note=_FLOOR, fewer=_FLOOR
        )
        yield PublishedFigure(f"{op}, half of the plateau from", half * MIB, "size", knee, op, fewer=_FEWER)
    for algorithm, rates in {
        "Ring": (340.0, 356.0, 366.0),
        "Tree": (236.0, 250.0, 259.0),
        "NVLS": (359.0, 372.0, 376.0),
    }.items():
        for size, rate in zip((256 * MIB, GIB, 8 * GIB), rates, strict=True):
            name = f"all_reduce, {algorithm}, {human(size)}"
            note = _NVLS if algorithm == "NVLS" else ""
            yield PublishedFigure(
                name, rate * GB, "GB/s", size=size, algorithm=algorithm, note=note,
                of_two=two[size] if algorithm == "Ring" else 0.0,
                fewer=_TREE if algorithm == "Tree" else _FEWER,
            )  # fmt: skip
    for protocol, rate in (("Simple", 340.0), ("LL128", 313.0), ("LL", 147.0)):
        yield PublishedFigure(
            f"all_reduce, {protocol}, 256 MiB", rate * GB, "GB/s", size=256 * MIB, protocol=protocol,
            of_two=two[256 * MIB] if protocol == "Simple" else 0.0,
        )  # fmt: skip
    for launch, least in (("eager", 23.1), ("graph", 13.7)):
        name = f"all_reduce, {launch}, small messages"
        yield PublishedFigure(name, least * 1e-6, "us", floor, launch=launch, note=_GRAPH, fewer=_GRAPH)
    for size, rate in two.items():
        yield PublishedFigure(f"all_reduce of 2 GPUs, {human(size)}", rate, "GB/s", size=size, ranks=TWO)


def published_of_two() -> dict[int, float]:
    """Busbw of two H100 by size, from their run that changes the number of GPUs."""
    return next(dict(one.printed) for one in CURVES if (one.ranks, one.source) == (TWO, H100_SCALING))


def page(study: Study) -> str:
    """The whole page, not formatted yet."""
    lines = [
        "# Beside the published study of four H100",
        "",
        f"Written by `python -m tools.published {_cell(study.source)}`. Published:",
        "waynehacking8/nccl-collectives-bench (MIT). A range goes from the lowest repeat to the highest.",
        *_fewer(study),
        "",
        "| | published | found |",
        "|---|---|---|",
        *_environment(study),
        "",
        "| figure | published | found | difference | why |",
        "|---|---|---|---|---|",
        *(_row(figure, figure.of(study), study) for figure in figures()),
    ]
    return "\n".join(lines) + "\n"


def _environment(study: Study) -> Iterator[str]:
    known = {"how": _how(study)} if study.curves else {}
    known |= {name.casefold(): value for name, value in study.environment.items()}
    for name, value in PUBLISHED.items():
        yield f"| {name} | {value} | {_cell(known.pop(name.casefold(), ''))} |"
    yield from (f"| {_cell(name)} | | {_cell(value)} |" for name, value in known.items())


def _how(study: Study) -> str:
    """How the curves were measured."""
    repeats = sorted({len(one.seconds) for curve in study.curves for one in curve.points if one.seconds})
    places = sorted({"in place" if one.in_place else "out of place" for one in study.curves})
    types = sorted({one.dtype for one in study.curves})
    counts = " or ".join(map(str, repeats))
    return f"wirewatch sweep, {', '.join((*types, *places))}, {counts} processes one after the other"


def _fewer(study: Study) -> Iterator[str]:
    """What to know of a study of fewer GPUs."""
    most = max((one.configuration.ranks for one in study.curves), default=RANKS)
    if most < RANKS:
        yield ""
        yield f"Found are figures of {most} GPUs: more were not to be had. Published ones are of {RANKS},"
        yield "unless the row says otherwise, so only the rows of 2 GPUs compare like with like."


def _row(figure: PublishedFigure, found: FoundFigure | Absent, study: Study) -> str:
    value = _text(figure.value, figure.unit)
    if isinstance(found, Absent):
        return f"| {figure.name} | {value} | - | - | {_cell(found.detail)} |"
    one = found.figure
    ranged = _text(one.value, figure.unit)
    if one.has_spread and (low := _text(one.low, figure.unit)) != (high := _text(one.high, figure.unit)):
        ranged += f" ({low if figure.unit == 'size' else low.partition(' ')[0]} to {high})"
    gpus = (f"{found.ranks} GPUs",) if found.ranks != figure.ranks else ()
    ranged = ", ".join((ranged, *gpus, *found.how))
    difference = one.value / figure.value - 1
    why = _why(figure, found, difference, study)
    return f"| {figure.name} | {value} | {ranged} | {difference:+.1%} | {why} |"


def _why(figure: PublishedFigure, found: FoundFigure, difference: float, study: Study) -> str:
    """Why they differ, as far as it is known."""
    if abs(difference) <= CLOSE:
        return "the same within 3 %"
    if found.ranks == figure.ranks:
        return figure.note or "not explained"
    if found.ranks == TWO and figure.of_two:
        left = found.figure.value / figure.of_two - 1
        return f"the published run of 2 GPUs has {_text(figure.of_two, figure.unit)}: {left:+.1%}"
    graph = replace(figure, launch="graph").of(study) if figure.find is floor else None
    why = f"{found.ranks} GPUs: {figure.fewer or 'not explained'}"
    if figure.launch == "eager" and isinstance(graph, FoundFigure) and graph.ranks == found.ranks:
        share = 1 - graph.figure.value / found.figure.value
        why += f"; {share:.0%} of ours is the host's launches: as a graph {_text(graph.figure.value, 'us')}"
    return why


def _text(value: float, unit: str) -> str:
    if unit == "size":
        return human(round(value))
    return f"{value * 1e6:.1f} us" if unit == "us" else f"{value / GB:.0f} GB/s"


def _cell(text: str) -> str:
    """A text of others in one cell of a table."""
    plain = "".join(one if one.isprintable() else " " for one in text)
    return plain.replace("\\", "\\\\").replace("|", "\\|")


def merged(studies: Sequence[Study], names: Sequence[str]) -> Study:
    """All curves, each of the first study that has it; of the environments what all agree on.

    The GPUs themselves may be others: each loan of the same machines has its own.
    """
    curves: dict[Key, Curve] = {}
    for study in studies:
        for curve in study.curves:
            curves.setdefault(key_of(curve), curve)
    first, *rest = (study.environment for study in studies)
    same = {name: value for name, value in first.items() if all(one.get(name) == value for one in rest)}
    return Study(studies[0].at, " ".join(names), same, tuple(curves.values()))


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 64
    studies = [read_study(Path(one)) for one in sys.argv[1:]]
    print(formatted(page(merged(studies, sys.argv[1:]))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
