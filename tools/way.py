"""Draws the way of the data through the rooms, docs/way.svg, from hardware to text: `make generated`.

A dark box is a value. Between two values stand the rooms whose work leads from the first to the second.
tests/tools/test_architecture.py holds that every room has its place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.drawing import ARROW, BOX, EDGE, FILL, MARGIN, WIDTH, band, begin, box, line, text

LABEL = "The way of the data from hardware to text, and the rooms on it"
VALUE, ROOMS, GAP = 204, 252, 10
"""Pixels: the width of a value's column, where the rooms begin, and between two boxes."""
ROW, WORK = 42, 78
"""Pixels: the height of a row with a value, and of one with work."""
MOST = 5
"""Rooms beside each other."""


@dataclass(frozen=True, slots=True)
class Value:
    """One step of the way: its names, side by side, and what they hold."""

    names: tuple[str, ...]
    about: str


@dataclass(frozen=True, slots=True)
class Work:
    """The rooms that lead from a value to the next, and how. `pure`: without I/O."""

    rooms: tuple[str, ...]
    about: str
    pure: bool = False


WAY: Sequence[Value | Work] = (
    Value(("hardware",), "GPUs, NVLink, PCIe, network ports, the kernel's log, the kubelet, running jobs"),
    Work(
        ("hw", "worker"),
        "Each port asks one source, or a recording. The worker measures on idle GPUs.",
    ),
    Value(("reading",), "the answers of one poll; an unknown value is an Absent with its reason"),
    Work(
        ("collectors", "probe", "jobs", "busbw", "nccl"),
        "Each collector makes samples of its reading and judges it, with a memory of its own.",
        pure=True,
    ),
    Value(("samples", "findings"), "numbers with labels; rule, health, subject, evidence and action"),
    Work(
        ("core",),
        "Reading, samples and findings become one value. Types and ports of all steps are here.",
        pure=True,
    ),
    Value(("component",), "the knowledge from one collector, with its facts for other rooms"),
    Work(
        ("verdict", "daemon"),
        "The ledger remembers faults over restarts. One assignment publishes the new state.",
        pure=True,
    ),
    Value(("node state",), "all components, and whether a job may start"),
    Work(
        ("documents", "page", "kubernetes", "server", "cli"),
        "The state becomes JSON, a page, a node condition, metrics, or the answer of a command.",
    ),
    Value(("text",), "for Prometheus, Kubernetes, Slurm and people"),
    Work(
        ("wirewatch_fleet",),
        "The texts of many nodes become one table; a controller takes bad nodes out of use.",
    ),
)
BESIDE = Work(
    ("__main__", "client", "config", "catalogue", "signals", "statefolder", "wirewatch_lab"),
    "Beside the way: how the program starts, ends and is configured; the lab's studies and advice.",
)


def placed() -> tuple[str, ...]:
    """Return the rooms in the picture, in the order of the way."""
    return tuple(room for step in (*WAY, BESIDE) if isinstance(step, Work) for room in step.rooms)


def picture() -> str:
    """Return the way as SVG."""
    width = ROOMS + MOST * (WIDTH + GAP) - GAP + MARGIN
    height = 2 * MARGIN + sum(map(_height, (*WAY, BESIDE)))
    parts = [begin(width, height, LABEL), *_bands(width), *_steps(), *_work(BESIDE, height - MARGIN - WORK)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _height(step: Value | Work) -> int:
    return ROW if isinstance(step, Value) else WORK


def _bands(width: int) -> Iterator[str]:
    """Shade the part of the way that does I/O otherwise than the pure one, from value to value."""
    tops = [MARGIN]
    for step in WAY:
        tops.append(tops[-1] + _height(step))
    pure = [number for number, step in enumerate(WAY) if isinstance(step, Work) and step.pure]
    first, last = tops[pure[0] - 1], tops[pure[-1] + 2]
    for top, end, number, words in (
        (MARGIN, first, 1, "I/O"),
        (first, last, 0, "pure functions of frozen values"),
        (last, tops[-1], 1, "I/O"),
    ):
        yield band(top, width, end - top, number)
        yield text(words, width - MARGIN, end - 10, 12, "text-anchor='end' font-style='italic' ")


def _steps() -> Iterator[str]:
    top = MARGIN
    for number, step in enumerate(WAY):
        if isinstance(step, Value):
            yield from _value(step, top + ROW // 2)
        else:
            yield from _work(step, top)
            if number + 1 < len(WAY):
                yield from _arrows(number, top)
        top += _height(step)


def _value(step: Value, middle: int) -> Iterator[str]:
    for name, left, width in _boxes(step):
        yield box(name, left, middle, width, EDGE, FILL)
    yield text(step.about, ROOMS, middle + 5)


def _boxes(step: Value) -> Iterator[tuple[str, int, int]]:
    """Name, left edge and width of each box of a value."""
    width = (VALUE - GAP * (len(step.names) - 1)) // len(step.names)
    for number, name in enumerate(step.names):
        yield name, MARGIN + number * (width + GAP), width


def _arrows(number: int, top: int) -> Iterator[str]:
    """Lead from each box of the value before to the nearest of the value after."""
    before, after = WAY[number - 1], WAY[number + 1]
    assert isinstance(before, Value)
    assert isinstance(after, Value)
    more = max(before, after, key=lambda one: len(one.names))
    for _, left, width in _boxes(more):
        x = left + width // 2
        yield line(x, top - (ROW - BOX) // 2, x, top + WORK + (ROW - BOX) // 2, ARROW)


def _work(step: Work, top: int) -> Iterator[str]:
    for number, name in enumerate(step.rooms):
        yield box(name, ROOMS + number * (WIDTH + GAP), top + 25)
    yield text(step.about, ROOMS, top + 61)
