"""Writes docs/METRICS.md and docs/schemas from the code, so that they cannot differ: `make docs`.

The text around the tables is in docs/METRICS.in.md.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from wirewatch.collectors import discover
from wirewatch.core.types import Metric
from wirewatch.export import node
from wirewatch.export.documents import DOCUMENTS

DOCS = Path(__file__).parents[2] / "docs"
MARK = "<!-- tables -->"


def page() -> str:
    """The whole page."""
    text = (DOCS / "METRICS.in.md").read_text("utf-8")
    head, _, tail = text.partition(MARK)
    return head + "\n".join(_tables()) + tail


def _tables() -> Iterator[str]:
    yield from _table(
        "The daemon itself", "verdict, findings, and how the collectors are doing", node.METRICS
    )
    for collector in discover():
        options = collector.options
        about = f"{collector.about}; every {options.interval:g} s, overdue after {options.deadline:g} s"
        yield from _table(f"Collector `{collector.name}`", about, collector.metrics)


def _table(title: str, about: str, metrics: tuple[Metric, ...]) -> Iterator[str]:
    yield f"## {title}\n\n{about[0].upper()}{about[1:]}.\n"
    yield "| metric | type | labels | meaning | unproven on hardware |"
    yield "|---|---|---|---|---|"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        cells = (f"`wirewatch_{metric.name}`", metric.kind.value, labels, metric.help, metric.unproven)
        yield f"| {' | '.join(cells)} |"
    yield ""


def schemas() -> dict[str, str]:
    """File names in docs/schemas, with their JSON Schema."""
    documents = {name: adapter.json_schema(mode="serialization") for name, adapter in DOCUMENTS.items()}
    return {f"{name}.json": json.dumps(schema, indent=1) + "\n" for name, schema in documents.items()}


if __name__ == "__main__":
    for name, text in schemas().items():
        (DOCS / "schemas" / name).write_text(text, "utf-8")
    (DOCS / "METRICS.md").write_text(page(), "utf-8")
