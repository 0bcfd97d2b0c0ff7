"""Makes docs/architecture.md and its picture from imports, layers and docstrings: `make generated`.

The prose is in docs/architecture.in.md. The picture has a box for each room, on a diagonal in the order of
the layers: right of a box is what the room imports, above it are the rooms that import it.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from tools.imports import PACKAGE, PACKAGES, ROOT, graph, room
from tools.prose import formatted

ROOMS, PICTURE = "<!-- rooms -->", "docs/architecture.svg"
NAMED = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9]*(?:\.py)?)`")
"""Files and folders of the agent that the prose names."""
BOX, STEP, COLUMN, RADIUS, MARGIN = 30, 44, 46, 12, 16
"""Pixels: a box's height, from row to row and column to column, a count's circle, and around it all."""
WIDTH, TAIL = 132, 24
"""Pixels of a box, and of its part right of the line that ends on it."""
BANDS = ("#f2f5f9", "#e4eaf2")
LINE, INK, FILL, EDGE, UPWARD = "#8a99ad", "#1f2937", "#ffffff", "#33507a", "#c0392b"
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
LEGEND = (
    "A band is a layer.",
    "Right of a room is what it imports,",
    "above it the rooms that import it.",
    "Numbers count pairs of modules.",
)
_HEAD = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
    "viewBox='0 0 {width} {height}' role='img' aria-label='Rooms of the agent and their imports'>\n"
    "<rect width='{width}' height='{height}' fill='#ffffff'/>\n"
    "<defs><marker id='end' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7' "
    f"orient='auto'><path d='M0 0L10 5L0 10z' fill='{LINE}'/></marker></defs>"
)


def files(root: Path = ROOT) -> dict[Path, str]:
    """The files that are made from the code of a checkout, with what they hold."""
    layers = rooms_in_layers(root)
    return {
        root / PICTURE: picture(layers, crossings(root)),
        root / "docs/architecture.md": page(root, layers),
    }


def missing(root: Path = ROOT) -> list[str]:
    """Files and folders that the prose names and the agent does not have; `.py` may be left out."""
    names = sorted(set(NAMED.findall(_prose(root))))
    places = [root / "agent" / PACKAGE, root / "agent", root]
    return [n for n in names if not any((at / f"{n}{end}").exists() for at in places for end in ("", ".py"))]


def rooms_in_layers(root: Path) -> Sequence[Sequence[str]]:
    """Return the other packages, then the node's rooms, as import-linter holds them: highest layer first."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (contract,) = [
        one for one in settings["contracts"] if one["type"] == "layers" and one["containers"] == [PACKAGE]
    ]
    named = [[name.strip(" ()") for name in re.split(r"[|:]", layer)] for layer in contract["layers"]]
    beside = [name for name in PACKAGES if name != PACKAGE]
    there = [[name for name in layer if _file(root, name).exists()] for layer in (beside, *named)]
    return [layer for layer in there if layer]


def crossings(root: Path) -> Mapping[tuple[str, str], int]:
    """How many modules of one room import modules of another: pairs of modules."""
    imports = graph(root)
    pairs = (
        (room(importer), room(imported))
        for importer in imports.modules
        for imported in imports.find_modules_directly_imported_by(importer)
    )
    return Counter((one, other) for one, other in pairs if one and other and one != other)


def picture(layers: Sequence[Sequence[str]], counts: Mapping[tuple[str, str], int]) -> str:
    """The rooms and their imports as SVG."""
    rooms = [name for layer in layers for name in layer]
    places = {name: number for number, name in enumerate(rooms)}
    width, height = _x(len(rooms) - 1) + TAIL + MARGIN, len(rooms) * STEP + 2 * MARGIN
    shown = {pair: count for pair, count in sorted(counts.items()) if set(pair) <= places.keys()}
    parts = [
        _HEAD.format(width=width, height=height),
        *_bands(layers, width),
        *_lines(places, shown),
        *(_box(name, number) for name, number in places.items()),
        *(_count(places[one], places[other], count) for (one, other), count in shown.items()),
        *_legend(len(rooms)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def page(root: Path, layers: Sequence[Sequence[str]]) -> str:
    """The prose, with a line for each room where it is marked."""
    head, _, tail = _prose(root).partition(ROOMS)
    lines = [f"| `{_place(root, name)}` | {_about(root, name)} |" for layer in layers for name in layer]
    return formatted(head + "\n".join(["| room | what it holds |", "|---|---|", *lines]) + tail)


def _prose(root: Path) -> str:
    return (root / "docs/architecture.in.md").read_text("utf-8")


def _file(root: Path, name: str) -> Path:
    """The file that describes a room: its package's, or the module that it is."""
    parent = root / "agent" if name in PACKAGES else root / "agent" / PACKAGE
    package = parent / name / "__init__.py"
    return package if package.exists() else root / "agent" / PACKAGE / f"{name}.py"


def _place(root: Path, name: str) -> str:
    return f"{name}/" if _file(root, name).name == "__init__.py" else f"{name}.py"


def _about(root: Path, name: str) -> str:
    """The first paragraph of a room's docstring."""
    text = ast.get_docstring(ast.parse(_file(root, name).read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _x(place: int) -> int:
    """The middle of a column, where lines end on a box."""
    return MARGIN + WIDTH - TAIL + place * COLUMN


def _y(place: int) -> int:
    """The middle of a row."""
    return MARGIN + place * STEP + STEP // 2


def _bands(layers: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    top = MARGIN
    for number, layer in enumerate(layers):
        height = len(layer) * STEP
        yield f"<rect x='0' y='{top}' width='{width}' height='{height}' fill='{BANDS[number % 2]}'/>"
        top += height


def _lines(places: Mapping[str, int], counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """For each room a line past all that it imports, and one from its importers to its box."""
    for name, place in places.items():
        others = [places[other] for one, other in counts if one == name]
        importers = [places[one] for one, other in counts if other == name]
        if any(other > place for other in others):
            yield _line(_x(place) + TAIL, _y(place), _x(max(others)), _y(place))
        if any(importer < place for importer in importers):
            yield _line(
                _x(place), _y(min(importers)), _x(place), _y(place) - BOX // 2, "marker-end='url(#end)'"
            )


def _line(x1: int, y1: int, x2: int, y2: int, more: str = "") -> str:
    return f"<path d='M{x1} {y1}L{x2} {y2}' stroke='{LINE}' stroke-width='1.4' fill='none' {more}/>"


def _box(name: str, place: int) -> str:
    left, top = _x(place) - WIDTH + TAIL, _y(place) - BOX // 2
    return (
        f"<rect x='{left}' y='{top}' width='{WIDTH}' height='{BOX}' rx='5' fill='{FILL}' stroke='{EDGE}' "
        f"stroke-width='1.5'/><text x='{left + WIDTH // 2}' y='{_y(place) + 5}' {FONT} font-size='14' "
        f"text-anchor='middle' fill='{INK}'>{escape(name)}</text>"
    )


def _count(row: int, column: int, count: int) -> str:
    """Where the lines of the importing and the imported room meet; red where it goes up the layers."""
    edge = LINE if column > row else UPWARD
    return (
        f"<circle cx='{_x(column)}' cy='{_y(row)}' r='{RADIUS}' fill='{FILL}' stroke='{edge}'/>"
        f"<text x='{_x(column)}' y='{_y(row) + 4}' {FONT} font-size='11' text-anchor='middle' "
        f"fill='{INK}'>{count}</text>"
    )


def _legend(rows: int) -> Iterator[str]:
    """In the corner below the boxes, which is always empty."""
    bottom = MARGIN + rows * STEP - 12
    for number, line in enumerate(reversed(LEGEND)):
        y = bottom - 20 * number
        yield f"<text x='{MARGIN}' y='{y}' {FONT} font-size='13' fill='{INK}'>{escape(line)}</text>"
