"""Makes docs/architecture.md and its pictures from imports, layers and docstrings: `make generated`.

The prose is in docs/architecture.in.md. tools/way.py draws its first picture. The second has a box for each
room, on a diagonal in the order of the layers: right of a box is what the room imports, above it are the
rooms that import it.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools import way
from tools.drawing import ARROW, BOX, FILL, LINE, MARGIN, WIDTH, band, begin, box, line, text
from tools.imports import PACKAGE, PACKAGES, ROOT, graph, room
from tools.prose import formatted

ROOMS, PICTURE, WAY = "<!-- rooms -->", "docs/architecture.svg", "docs/way.svg"
LABEL = "Rooms of the agent and their imports"
NAMED = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9]*(?:\.py)?)`")
"""Files and folders of the agent that the prose names."""
STEP, COLUMN, RADIUS = 44, 46, 12
"""Pixels: from row to row and column to column, and a count's circle."""
TAIL = 24
"""Pixels of a box right of the line that ends on it."""
UPWARD = "#c0392b"
LEGEND = (
    "A band is a layer.",
    "Right of a room is what it imports,",
    "above it the rooms that import it.",
    "Numbers count pairs of modules.",
)


def files(root: Path = ROOT) -> dict[Path, str]:
    """The files that are made from the code of a checkout, with what they hold."""
    layers = rooms_in_layers(root)
    return {
        root / WAY: way.picture(),
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
        begin(width, height, LABEL),
        *_bands(layers, width),
        *_lines(places, shown),
        *(box(name, _x(place) - WIDTH + TAIL, _y(place)) for name, place in places.items()),
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
        yield band(top, width, height, number)
        top += height


def _lines(places: Mapping[str, int], counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """For each room a line past all that it imports, and one from its importers to its box."""
    for name, place in places.items():
        others = [places[other] for one, other in counts if one == name]
        importers = [places[one] for one, other in counts if other == name]
        if any(other > place for other in others):
            yield line(_x(place) + TAIL, _y(place), _x(max(others)), _y(place))
        if any(importer < place for importer in importers):
            yield line(_x(place), _y(min(importers)), _x(place), _y(place) - BOX // 2, ARROW)


def _count(row: int, column: int, count: int) -> str:
    """Where the lines of the importing and the imported room meet; red where it goes up the layers."""
    edge = LINE if column > row else UPWARD
    circle = f"<circle cx='{_x(column)}' cy='{_y(row)}' r='{RADIUS}' fill='{FILL}' stroke='{edge}'/>"
    return circle + text(str(count), _x(column), _y(row) + 4, 11, "text-anchor='middle' ")


def _legend(rows: int) -> Iterator[str]:
    """In the corner below the boxes, which is always empty."""
    bottom = MARGIN + rows * STEP - 12
    for number, words in enumerate(reversed(LEGEND)):
        yield text(words, MARGIN, bottom - 20 * number)
