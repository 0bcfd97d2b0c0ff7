"""The style of the pictures in docs/architecture.md: boxes of rooms, lines, bands and texts, as SVG."""

from html import escape

BOX, WIDTH, MARGIN = 30, 132, 16
"""Pixels: a room's height and width, and the space around a picture."""
BANDS = ("#f2f5f9", "#e4eaf2")
LINE, INK, FILL, EDGE = "#8a99ad", "#1f2937", "#ffffff", "#33507a"
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
ARROW = "marker-end='url(#end)'"
_HEAD = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
    "viewBox='0 0 {width} {height}' role='img' aria-label='{label}'>\n"
    "<rect width='{width}' height='{height}' fill='#ffffff'/>\n"
    "<defs><marker id='end' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7' "
    f"orient='auto'><path d='M0 0L10 5L0 10z' fill='{LINE}'/></marker></defs>"
)


def begin(width: int, height: int, label: str) -> str:
    """Return the first lines of a picture; `label` says what it shows."""
    return _HEAD.format(width=width, height=height, label=escape(label, quote=True))


def band(top: int, width: int, height: int, number: int) -> str:
    """Return a shaded band over the whole width; the shade follows from its number."""
    return f"<rect x='0' y='{top}' width='{width}' height='{height}' fill='{BANDS[number % 2]}'/>"


def line(x1: int, y1: int, x2: int, y2: int, more: str = "") -> str:
    """Return a line, with an arrow at its end where `more` is ARROW."""
    return f"<path d='M{x1} {y1}L{x2} {y2}' stroke='{LINE}' stroke-width='1.4' fill='none' {more}/>"


def box(name: str, left: int, middle: int, width: int = WIDTH, fill: str = FILL, ink: str = INK) -> str:
    """Return a box with its name; `middle`: the height of its middle."""
    return (
        f"<rect x='{left}' y='{middle - BOX // 2}' width='{width}' height='{BOX}' rx='5' fill='{fill}' "
        f"stroke='{EDGE}' stroke-width='1.5'/>"
        + text(name, left + width // 2, middle + 5, 14, "text-anchor='middle' ", ink)
    )


def text(words: str, x: int, y: int, size: int = 13, more: str = "", ink: str = INK) -> str:
    """Return a line of text that begins at x, or has its middle there."""
    return f"<text x='{x}' y='{y}' {FONT} font-size='{size}' {more}fill='{ink}'>{escape(words)}</text>"
