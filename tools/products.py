"""Writes docs/products.md from the product matrix of the tests: `make generated`."""

from pathlib import Path

from tests.node.products.rows import NONE, ROWS, Row
from tools.prose import formatted

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "products.md"
_MARK = "<!-- rows -->"
_MODES = {1: "virtual machine", 2: "vGPU"}


def page() -> str:
    """The whole page."""
    head, _, tail = (DOCS / "products.in.md").read_text("utf-8").partition(_MARK)
    columns = ("product", "GPUs", "links up, each GPU", "GB/s each way, each link", "joined by", "seen")
    table = [columns, *(_cells(row) for row in ROWS)]
    lines = [f"| {' | '.join(cells)} |" for cells in table]
    rule = "|---" * len(columns) + "|"
    sources = [f"- `{row.id}`, {row.name}: {_source(row)}" for row in ROWS]
    parts = [lines[0], rule, *lines[1:], "", "## Sources", "", *sources]
    return formatted(head + "\n".join(parts) + tail)


def _cells(row: Row) -> tuple[str, ...]:
    rate = f"{row.rate / 1000:g}" if row.active else ""
    links = f"{len(row.active)} of {row.links}" if row.links else "none"
    joined = "" if row.wires == NONE or not row.active else row.wires
    return (f"{row.name}{_about(row)}", str(row.gpus), links, rate, joined, row.proof)


def _about(row: Row) -> str:
    words = [_MODES[row.virtual]] if row.virtual else []
    if row.mig:
        words.append("all split by MIG" if len(row.mig) == row.gpus else f"{len(row.mig)} split by MIG")
    if row.c2c:
        words.append(f"{row.c2c} chip-to-chip links")
    return f" ({', '.join(words)})" if words else ""


def _source(row: Row) -> str:
    if row.recording:
        return f"recording `{row.recording}`; drawn: {row.drawn}"
    return f"{row.listing}; drawn: {row.drawn}" if row.listing else row.drawn
