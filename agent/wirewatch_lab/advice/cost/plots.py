"""The bandwidth cliff as a drawing. Importing this module takes matplotlib, from the extra `report`."""

import io
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

from wirewatch.core.words import GB
from wirewatch_lab.advice.cost.cliff import CliffStep

WIDTH, HEIGHT, ROW = 7.0, 1.2, 0.55
"""Inches: of the drawing, and what each step adds."""
INK, FILL, GUESS = "#1b2733", "#2f6f9f", "#9fb8c9"


def draw_cliff(steps: Sequence[CliffStep], of: str) -> str:
    """One bar for each step, from the fastest down, as an SVG document; pale: not known of this machine.

    The rates are linear, since on a logarithmic axis a cliff is a slope.
    """
    settings = {"svg.fonttype": "none", "svg.hashsalt": "cliff", "font.size": 10, "text.parse_math": False}
    with rc_context(settings):
        figure = Figure(figsize=(WIDTH, HEIGHT + ROW * len(steps)), layout="constrained")
        axes = figure.add_subplot()
        rates = [step.rate / GB for step in steps]
        names = [step.name for step in steps]
        bars = axes.barh(names, rates, color=[FILL if step.known else GUESS for step in steps])
        axes.bar_label(bars, [_label(step) for step in steps], padding=4, color=INK)
        axes.invert_yaxis()
        axes.set_xlim(0, max(rates, default=1.0) * 1.45)
        axes.set_xlabel("GB/s of one GPU, one way")
        axes.set_title(_plain(of), fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _label(step: CliffStep) -> str:
    below = "" if step.below is None else f", {step.below:.1f}x less" if step.below >= 1 else ""
    return f"{step.rate / GB:,.0f}{below}"


def _plain(text: str) -> str:
    """What any font has."""
    return "".join(one if " " <= one <= "~" else "?" for one in text)
