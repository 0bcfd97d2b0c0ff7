"""Plots of curves as SVG inside a page: drawn by matplotlib, coloured by the page's style sheet.

A colour is a class of the style sheet, so a drawing suits light, dark and paper. A drawing has no style of
its own, so a page can forbid all styles except its sheet. Importing this module needs matplotlib, from the
extra `report`.
"""

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from xml.etree import ElementTree as ET

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from wirewatch.core.types import Absent
from wirewatch.core.words import GB
from wirewatch_lab.study.curve import Curve, CurvePoint, KnownRates
from wirewatch_lab.study.spread import usable
from wirewatch_lab.study.summary import FLOOR_BYTES, CurveSummary, rates_of, setting

STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", (0, (5, 1, 1, 1))), ("P", (0, (8, 2))))
"""Marker and line of each curve, which distinguish curves without colour."""
LINES = len(STYLES)
"""Most curves in a plot."""
NAMES = ("ink", "soft", "rule", *(f"line{number}" for number in range(LINES)))
"""Classes of the style sheet; during drawing a colour stands for each."""
COLOURS = {name: f"#0a0b{place:02x}" for place, name in enumerate(NAMES)}
_CLASSES = {colour: name for name, colour in COLOURS.items()}
WIDTH, HEIGHT, ROW = 4.0, 2.7, 0.2
"""Inches of a plot, and of each line of its legend. 4.0 are 288 units, a phone's width."""
BARS_WIDTH, BARS_HEIGHT, BAR = 7.0, 1.2, 0.55
"""Inches of a bar drawing, and of each further bar."""
INK, FILL, PALE = "#1b2733", "#2f6f9f", "#9fb8c9"
LABEL = 42
"""Most characters of a setting in a legend."""
TICKS = 6
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_FIGURES = re.compile(r"\d+\.\d{2,}")
"""Coordinates with several decimals; a tenth of a unit is a fifth of a pixel. A report has thousands of
them."""
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


Axes = Any
"""matplotlib's."""


@dataclass(frozen=True, slots=True)
class DrawnPlots:
    """Busbw and time against size of the same curves, as SVG elements."""

    busbw: str
    time: str


def draw(name: str, curves: Sequence[tuple[Curve, CurveSummary]], known: KnownRates | None) -> DrawnPlots:
    """Draw at most `LINES` curves of an operation. Each id in a drawing begins with `name`.

    The page must have an element with the id `name`-words, which describes the drawing.
    """
    return DrawnPlots(
        _svg(name, "busbw", lambda axes: _busbw(axes, curves, known)),
        _svg(name, "time", lambda axes: _time(axes, curves)),
    )


def draw_bars(title: str, axis: str, bars: Sequence[tuple[str, float, str, bool]]) -> str:
    """Return bars as an SVG document, the first at the top: names, values, labels, and which are pale.

    The axis is linear: on a logarithmic one a cliff is a slope.
    """
    names, values, labels, pale = zip(*bars, strict=True) if bars else ((), (), (), ())
    settings = {"svg.fonttype": "none", "svg.hashsalt": "cliff", "font.size": 10, "text.parse_math": False}
    with rc_context(settings):
        figure = Figure(figsize=(BARS_WIDTH, BARS_HEIGHT + BAR * len(bars)), layout="constrained")
        axes = figure.add_subplot()
        drawn = axes.barh(names, values, color=[PALE if one else FILL for one in pale])
        axes.bar_label(drawn, labels, padding=4, color=INK)
        axes.invert_yaxis()
        axes.set_xlim(0, max(values, default=1.0) * 1.45)
        axes.set_xlabel(axis)
        axes.set_title(_plain(title), fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _svg(name: str, what: str, fill: Callable[[Axes], None]) -> str:
    settings = {
        "svg.fonttype": "none", "svg.hashsalt": what, "font.size": 10, "text.parse_math": False,
        "axes.edgecolor": COLOURS["soft"], "axes.labelcolor": COLOURS["soft"], "text.color": COLOURS["ink"],
        "xtick.color": COLOURS["soft"], "ytick.color": COLOURS["soft"], "grid.color": COLOURS["rule"],
    }  # fmt: skip
    with rc_context(settings):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        axes.grid(linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        fill(axes)
        figure.set_figheight(HEIGHT + ROW * len(axes.get_legend_handles_labels()[0]))
        figure.legend(loc="outside lower left", frameon=False, handlelength=3, borderpad=0.2)
        text = io.StringIO()
        without = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=without)
    return _inline(text.getvalue(), name, what)


def _busbw(axes: Axes, curves: Sequence[tuple[Curve, CurveSummary]], known: KnownRates | None) -> None:
    for place, (curve, summary) in enumerate(curves):
        colour = COLOURS[NAMES[3 + place]]
        _line(axes, place, curve, lambda point, curve=curve: [x / GB for x in rates_of(curve, point)])  # type: ignore[misc]
        rates = {p.size_bytes: median(rates_of(curve, p)) / GB for p in curve.points if usable(p)}
        if not isinstance(summary.knee, Absent) and summary.knee.value in rates:
            knee = round(summary.knee.value)
            axes.plot(knee, rates[knee], "d", markersize=11, color=colour, fillstyle="none", zorder=4)
        if summary.plateau_bytes in rates:
            best = summary.plateau_bytes
            axes.plot(best, rates[best], "*", markersize=12, color=colour, fillstyle="none", zorder=4)
    soft = COLOURS["soft"]
    if known is not None and known.expected:
        sizes, rates_ = zip(*known.expected, strict=True)
        expected = [x / GB for x in rates_]
        axes.plot(sizes, expected, color=soft, dashes=(6, 3), linewidth=1, label="expected busbw")
    if known is not None and known.wire is not None:
        label = "one GPU's wire, each way"
        axes.axhline(known.wire / GB, color=soft, dashes=(1, 2), linewidth=1.2, label=label)
    axes.plot([], [], "d", markersize=8, color=soft, fillstyle="none", label="knee: half of the plateau")
    axes.plot([], [], "*", markersize=8, color=soft, fillstyle="none", label="plateau")
    axes.set_ylabel("busbw (GB/s)")
    axes.set_ylim(bottom=0)
    _sizes(axes, [curve for curve, _ in curves])


def _time(axes: Axes, curves: Sequence[tuple[Curve, CurveSummary]]) -> None:
    floors = 0
    for place, (curve, summary) in enumerate(curves):
        _line(axes, place, curve, lambda point: [x * 1e6 for x in point.seconds])
        small = [p.size_bytes for p in curve.points if usable(p) and p.size_bytes <= FLOOR_BYTES]
        if small and not isinstance(summary.floor, Absent):
            floor = summary.floor.value * 1e6
            ends = (min(small), max(small))
            axes.plot(ends, (floor, floor), color=COLOURS[NAMES[3 + place]], linewidth=6, alpha=0.3)
            floors += 1
    if floors:
        axes.plot([], [], color=COLOURS["soft"], linewidth=6, alpha=0.3, label="latency floor")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_ylabel("time (us)")
    _sizes(axes, [curve for curve, _ in curves])


def _line(axes: Axes, place: int, curve: Curve, values: Callable[[CurvePoint], Sequence[float]]) -> None:
    """Draw the medians over repeats, with a band from the lowest to the highest."""
    points = [point for point in curve.points if usable(point)]
    sizes = [point.size_bytes for point in points]
    each = [values(point) for point in points]
    marker, style = STYLES[place]
    colour, label = COLOURS[NAMES[3 + place]], _label(setting(curve.configuration))
    axes.plot(
        sizes, [median(x) for x in each], marker=marker, markersize=3.6, linestyle=style, linewidth=1.3,
        color=colour, fillstyle="none", label=label,
    )  # fmt: skip
    if any(len(x) > 1 for x in each):
        low, high = [min(x) for x in each], [max(x) for x in each]
        axes.fill_between(sizes, low, high, color=colour, alpha=0.22, linewidth=0)


def _label(text: str) -> str:
    """Return a label with characters that any font has and that matplotlib accepts."""
    plain = _plain(text).lstrip("_")
    return plain if len(plain) <= LABEL else f"{plain[: LABEL - 3]}..."


def _plain(text: str) -> str:
    return "".join(one if " " <= one <= "~" else "?" for one in text)


def _sizes(axes: Axes, curves: Sequence[Curve]) -> None:
    """Draw the axis of sizes: powers of two, at most TICKS steps of them."""
    axes.set_xscale("log", base=2)
    axes.set_xlabel("message size (B; K, M, G are powers of 1024)")
    every = [p.size_bytes for curve in curves for p in curve.points if usable(p)] or [8]
    first, last = (round(math.log2(size)) for size in (min(every), max(every)))
    step = max(1, math.ceil((last - first) / TICKS))
    powers = range(first, last + 1, step)
    axes.set_xticks([2.0**power for power in powers], [_short(1 << power) for power in powers])
    axes.set_xticks([], minor=True)


def _short(size: int) -> str:
    for power, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >> power:
            return f"{size >> power}{unit}"
    return f"{size}"


def _inline(text: str, panel: str, what: str) -> str:
    """Return a drawing without styles and namespaces, with unique ids."""
    name = f"{panel}-{what}"
    root = ET.fromstring(text)  # noqa: S314 - matplotlib wrote it, just now
    parts = list(root.iter())
    used = {one.get(f"{_LINK}href", "")[1:] for one in parts} | set(_REFERENCE.findall(text))
    for element in parts:
        element.tag = element.tag.removeprefix(_SVG)
        element.tail = None
        if not (element.text or "").strip():
            element.text = None
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            for new, made in _attributes(key, value, name, used):
                element.set(new, made)
        for child in list(element):
            if child.tag in {f"{_SVG}style", f"{_SVG}metadata"}:
                element.remove(child)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"role": "img", "class": "plot"}
    root.attrib |= {"aria-labelledby": f"{name}-title", "aria-describedby": f"{panel}-words"}
    heading = ET.Element("title", {"id": f"{name}-title"})
    heading.text = f"{what} against message size"
    root.insert(0, heading)
    return ET.tostring(root, encoding="unicode", short_empty_elements=False)


def _attributes(key: str, value: str, name: str, used: set[str]) -> Iterator[tuple[str, str]]:
    """Yield a matplotlib attribute as attributes of the page."""
    if key == "style":
        yield from _properties(value)
    elif key == f"{_LINK}href":
        yield "href", f"#{name}-{value[1:]}"
    elif key == "id":
        if value in used:
            yield key, f"{name}-{value}"
    else:
        value = _REFERENCE.sub(lambda match: f"url(#{name}-{match[1]})", value)
        value = _FIGURES.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value)
        yield key, " ".join(value.split())


def _properties(style: str) -> Iterator[tuple[str, str]]:
    classes = []
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if value in _CLASSES:
            classes.append(f"{key}-{_CLASSES[value]}")
        elif key in {"font", "font-size"}:
            yield "font-size", value.split()[0]
        elif key and key != "font-family":
            yield key, value
    if classes:
        yield "class", " ".join(classes)
