"""The report of a study: one HTML file with plots, tables and plain words, complete in itself."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wirewatch import __version__
from wirewatch.cli.output import write_whole
from wirewatch.core import words
from wirewatch.core.extras import install
from wirewatch.core.types import Absent
from wirewatch.core.words import GB, count
from wirewatch_lab.study.compare import Contest, Placing, contests, groups
from wirewatch_lab.study.curve import AUTO, Configuration, Curve, CurvePoint, KnownRates, Study
from wirewatch_lab.study.spread import usable
from wirewatch_lab.study.summary import (
    CLOSE,
    CurveSummary,
    gigabytes,
    group_lines,
    in_words,
    microseconds,
    rates_of,
    remarks,
    setting,
    size_text,
    span,
    summarize,
    title,
)

if TYPE_CHECKING:
    from wirewatch_lab.study.plots import DrawnPlots

NOT_INSTALLED = f"the report takes matplotlib: {install('report')}"


class ReportError(Exception):
    """The report cannot be made; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of texts; the first cell of a row is its head, and columns from `numbers` on are numbers."""

    id: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: int


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """Two plots of the same curves, with a description."""

    id: str
    caption: str
    words: tuple[str, ...]
    busbw: Markup
    time: Markup


@dataclass(frozen=True, slots=True)
class Chapter:
    """The curves of one operation with the same ranks, dtype and placement."""

    id: str
    title: str
    panels: tuple[PlotPanel, ...]
    figures: Sheet
    winners: Sheet
    points: Sheet


def write_report(study: Study, path: Path, known: Sequence[KnownRates] = ()) -> None:
    """Write the report; an error leaves no half of it.

    Raises ReportError: matplotlib is missing, or the file cannot be written.
    """
    if find_spec("matplotlib") is None:
        raise ReportError(NOT_INSTALLED)
    text = page(study, known)
    try:
        write_whole(path, text)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror or error}") from error


def page(study: Study, known: Sequence[KnownRates] = ()) -> str:
    """Return the report as HTML."""
    made = [_chapter(f"c{n}", group, study.curves, known) for n, group in enumerate(groups(study))]
    style = _environment().get_template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Nothing but this style, by its hash.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    rows = tuple(study.environment.items())
    return _environment().get_template("report.html").render(
        source=study.source, at=words.utc(study.at) if study.at else "", version=__version__,
        groups=list(group_lines(study)), remarks=remarks(study),
        curves=count(len(study.curves), "curve"), chapters=made,
        environment=Sheet("environment-table", "Machine and software", ("Name", "Value"), rows, 2),
        style=Markup(style), policy=policy,  # noqa: S704 - our own sheet
    )  # fmt: skip


def _chapter(
    name: str, group: Sequence[Curve], all_curves: Sequence[Curve], known: Sequence[KnownRates]
) -> Chapter:
    curves = sorted(group, key=lambda curve: _order(curve.configuration))
    summaries = [(curve, summarize(curve)) for curve in curves]
    first = curves[0]
    of = first.op, first.configuration.ranks
    rates = next((one for one in known if (one.op, one.ranks) == of), None)
    return Chapter(
        name, title(first), tuple(_panels(name, summaries, rates)), _figures(name, summaries),
        _winners(name, curves, all_curves), _points(name, curves),
    )  # fmt: skip


def _order(one: Configuration) -> tuple[object, ...]:
    """Return a sort key: NCCL's own choice first, then by number: a setting of 8 comes before 16."""
    settings = tuple((name, len(value), value) for name, value in one.settings)
    chosen = one.algorithm == one.protocol == AUTO
    return not chosen, one.ranks, one.algorithm, one.protocol, one.launch, one.registered, settings


def _panels(
    name: str, summaries: Sequence[tuple[Curve, CurveSummary]], known: KnownRates | None
) -> Iterator[PlotPanel]:
    """Yield as few plots as hold all curves, equally full."""
    from wirewatch_lab.study.plots import LINES, draw

    plots = -(-len(summaries) // LINES)
    for place in range(plots):
        some = summaries[place * len(summaries) // plots : (place + 1) * len(summaries) // plots]
        ident = f"{name}-{place}"
        drawn: DrawnPlots = draw(ident, some, known)
        words = tuple(f"{setting(curve.configuration)}: {in_words(found)}." for curve, found in some)
        caption = f"Plot {place + 1} of {plots}" if plots > 1 else "Busbw and time against message size"
        # Drawn by ourselves, with every text of others escaped.
        yield PlotPanel(ident, caption, words, Markup(drawn.busbw), Markup(drawn.time))  # noqa: S704


def _figures(name: str, summaries: Sequence[tuple[Curve, CurveSummary]]) -> Sheet:
    rows = []
    for curve, found in summaries:
        least = "at least " if found.bound else ""
        repeats = max((len(point.seconds) for point in curve.points), default=0)
        texts = microseconds(found.floor), least + size_text(found.knee), least + gigabytes(found.plateau)
        figures = zip((found.floor, found.knee, found.plateau), texts, strict=True)
        cells = ["-" if isinstance(one, Absent) else text for one, text in figures]
        at = words.size(found.plateau_bytes) if found.plateau_bytes else "-"
        rows.append((setting(curve.configuration), *cells, at, f"{repeats}"))
    columns = ("Setting", "Latency floor", "Knee", "Plateau", "Plateau at", "Repeats")
    caption = "Latency floor, knee and plateau of each setting"
    return Sheet(f"{name}-figures", caption, columns, tuple(rows), 1)


def _winners(name: str, curves: Sequence[Curve], all_curves: Sequence[Curve]) -> Sheet:
    """Return a row for each setting, a column for each regime; no rows where there is nothing to compare."""
    found = list(contests(curves, others=all_curves))
    cells = [{one.configuration: _place(contest, one) for one in contest.placings} for contest in found]
    rows = tuple(
        (setting(curve.configuration), *(some.get(curve.configuration, "-") for some in cells))
        for curve in curves
        if found
    )
    heads = (f"{one.regime.value}, {span(one.sizes[0], one.sizes[-1])}" for one in found)
    caption = "Which setting wins where: time more than the fastest, with the spread in brackets"
    return Sheet(f"{name}-winners", caption, ("Setting", *heads), rows, 1)


def _place(contest: Contest, one: Placing) -> str:
    if one.spread is None:
        return f"+{one.behind:.1%} (not judged)"
    if one is not contest.placings[0]:
        close = "tied, " if (one.noise or 0.0) <= CLOSE else "may be noise: "
        return f"{close if one.tied else ''}+{one.behind:.1%} ({one.spread:.2%})"
    tied = [other for other in contest.placings[1:] if other.tied]
    return f"{'first' if tied else 'fastest'} ({one.spread:.2%})"


def _points(name: str, curves: Sequence[Curve]) -> Sheet:
    rows = tuple(_row(curve, point) for curve in curves for point in curve.points)
    columns = ("Setting", "Ran as", "Size", "Time us", "Lowest", "Highest", "Busbw GB/s", "Repeats", "Wrong")
    return Sheet(f"{name}-points", "Every size", columns, rows, 2)


def _row(curve: Curve, point: CurvePoint) -> tuple[str, ...]:
    wrong = "not checked" if point.wrong is None else f"{point.wrong}"
    head = (setting(curve.configuration), ", ".join(point.ran) or "-", words.size(point.size_bytes))
    if not usable(point):
        return (*head, "-", "-", "-", "-", f"{len(point.seconds)}", wrong)
    times = (f"{one(point.seconds) * 1e6:,.2f}" for one in (median, min, max))
    return (*head, *times, f"{median(rates_of(curve, point)) / GB:.2f}", f"{len(point.seconds)}", wrong)


def _printable(value: object) -> object:
    """Return foreign text without characters that end a page or control a terminal."""
    if type(value) is str and not value.isprintable():
        return "".join(one if one.isprintable() else " " for one in value)
    return value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("wirewatch_lab.study"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False, finalize=_printable,
    )  # fmt: skip
    made.filters["breakable"] = _breakable
    return made


def _breakable(text: str) -> Markup:
    """Return a name with possible breaks after its underscores, for narrow columns."""
    plain = "".join(one if one.isprintable() else " " for one in text)
    return Markup("_<wbr>").join(plain.split("_"))
