"""Draws the matrix of all runs. Importing this module needs matplotlib, from the extra `report`."""

import io
import math
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from wirewatch.core.pairs import PartKind
from wirewatch_fleet.pairs.document import PairsDocument, RoundsDocument, fleet_of, measured_of
from wirewatch_fleet.pairs.model import PairRun
from wirewatch_fleet.pairs.observations import across

Axes = Any
"""matplotlib's."""
SIDE = 7.5
"""Inches."""
SLOWEST = 40
"""Percent slower than typical from which on the colour stays the same."""
LABELLED = 40
"""Most members that each have their name at the axes."""
SEEN = 5
"""Percent slower from which on a point is enlarged to be visible."""
NAMED = 12
"""Most named parts with a label."""
APART = 0.028
"""Least distance between two labels, as a share of the matrix's height."""


def draw_matrix(made: RoundsDocument, result: PairsDocument, path: Path) -> None:
    """Draw each run as two points, sender by receiver, coloured by percent slower than typical.

    `path` ends in .svg or .png. The bytes are the same each time, for the same matplotlib.

    Raises:
        OSError: it cannot be written.
    """
    settings = {"svg.fonttype": "none", "svg.hashsalt": "pairs", "font.size": 9, "text.parse_math": False}
    with rc_context(settings):
        text = io.BytesIO()
        metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {}
        figure_of(made, result).savefig(text, format=path.suffix[1:], metadata=metadata, dpi=110)
    path.write_bytes(text.getvalue())


def figure_of(made: RoundsDocument, result: PairsDocument) -> Figure:
    """Return the drawing of `draw_matrix`."""
    order = sorted(made.members, key=lambda one: (one.leaf, one.name))
    places = {one.name: place for place, one in enumerate(order)}
    figure = Figure(figsize=(SIDE + 1.2, SIDE), layout="constrained")
    axes = figure.add_subplot()
    drawn = _matrix(axes, places, _points(made))
    axes.set_title(
        f"{len(order)} nodes, {result.rounds} rounds: {len(result.named)} named, "
        f"{len(result.suspects)} suspected", loc="left", fontsize=10,
    )  # fmt: skip
    _axes(axes, [one.name for one in order], [one.leaf for one in order])
    _labels(axes, result, places)
    figure.colorbar(drawn, label=f"slower than typical (%; {SLOWEST} and more alike)", shrink=0.7)
    return figure


def _matrix(axes: Axes, places: dict[str, int], points: list[tuple[str, str, float]]) -> Any:
    """Draw the points, each a square at its place, with slow points large enough to be seen."""
    side = max(1, len(places))
    size = max(2.0, min(300.0, (SIDE * 60 / side) ** 2))
    axes.set(xlim=(-0.5, side - 0.5), ylim=(side - 0.5, -0.5), xlabel="receives", ylabel="sends")
    axes.set_aspect("equal")
    return axes.scatter(
        [places[b] for _, b, _ in points], [places[a] for a, _, _ in points],
        c=[min(SLOWEST, max(0.0, slow)) for _, _, slow in points],
        s=[max(size, 14.0) if slow >= SEEN else size for _, _, slow in points],
        cmap="viridis_r", vmin=0, vmax=SLOWEST, marker="s", linewidths=0,
    )  # fmt: skip


def _points(made: RoundsDocument) -> list[tuple[str, str, float]]:
    """Return sender, receiver, and percent slower than the median of similar runs; the slowest come last."""
    leafs = fleet_of(made).leafs()
    rates = [
        (a, b, across(leafs, a, b), rate)
        for one in measured_of(made) for run in one.runs
        for a, b, rate in ((run.first, run.second, _rate(run, 0)), (run.second, run.first, _rate(run, 1)))
        if rate is not None
    ]  # fmt: skip
    typical = {
        kind: median(rate for _, _, its, rate in rates if its is kind)
        for kind in {its for _, _, its, _ in rates}
    }
    found = ((a, b, 100 * -math.expm1(math.log(rate / typical[kind]))) for a, b, kind, rate in rates)
    return sorted(found, key=lambda one: one[2])


def _rate(run: PairRun, way: int) -> float | None:
    """Return a direction's rate: the slowest rail, else the send, else the all_reduce of both."""
    rails = [rate for two in run.rails.values() if (rate := two[way]) is not None]
    if rails:
        return min(rails)
    send = run.receives if way else run.sends
    return run.all_reduce if send is None else send


def _axes(axes: Axes, names: list[str], leafs: list[str]) -> None:
    if len(names) <= LABELLED:
        axes.set_xticks(range(len(names)), [_plain(one) for one in names], rotation=90)
        axes.set_yticks(range(len(names)), [_plain(one) for one in names])
    for place in range(1, len(leafs)):
        if leafs[place] != leafs[place - 1]:
            for line in (axes.axhline, axes.axvline):
                line(place - 0.5, color="lightgray", linewidth=0.5, zorder=0)


def _labels(axes: Axes, result: PairsDocument, places: dict[str, int]) -> None:
    """Write names at the right edge, apart from each other, and draw circles for pairs."""
    labels: dict[str, list[str]] = {}
    for one in result.named:
        if one.kind is PartKind.PAIR:
            at = ([places[one.peer]], [places[one.name]])
            axes.scatter(*at, s=160, facecolors="none", edgecolors="red")
        if one.kind in {PartKind.NODE, PartKind.PAIR}:
            what = f"rail {one.rail}" if one.kind is PartKind.NODE and one.rail else ""
            labels.setdefault(one.name, []).append(f"to {one.peer}" if one.peer else what)
    below = -math.inf
    for name in sorted(labels, key=places.__getitem__)[:NAMED]:
        below = max(places[name], below + APART * len(places))
        what = ", ".join(one for one in labels[name] if one)
        axes.annotate(
            _plain(f"{name} {what}".strip()), (len(places) - 0.5, places[name]),
            (len(places) * 1.03, below), color="red", va="center", fontsize=8, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "red", "linewidth": 0.5},
        )  # fmt: skip


def _plain(text: str) -> str:
    """Return text that any font can show, cut where it needs too much room."""
    return "".join(one if " " <= one <= "~" else "?" for one in text)[:36]
