"""Metrics that have no panel written by hand, each drawn as its collector declares."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dashboards.parts import (
    Blank,
    Dashboard,
    Label,
    Limit,
    Limits,
    NoLimit,
    Query,
    Row,
    Series,
    Table,
    Text,
    Value,
    queries,
    selected,
)
from wirewatch.catalogue import components
from wirewatch.core.declared import UNITS, unit_of
from wirewatch.core.types import Kind, Metric

_LEFT_OUT = frozenset({"uuid"})
"""A label that another label stands for, on one node."""
_FACT = NoLimit("a fact")


def others(boards: Iterable[Dashboard]) -> tuple[Row, ...]:
    """A row with a panel for each metric that none of these dashboards asks for; no row if there is none."""
    shown = {name for board in boards for name in _asked(board)}
    panels = tuple(
        _panel(metric)
        for one in components()
        for metric in one.metrics
        if not metric.undrawn and metric.exposed not in shown
    )
    if not panels:
        return ()
    *most, last = panels
    fills = replace(last, width=24 if len(panels) % 2 else 12)
    return (Row("Other collectors", (*most, fills), collapsed=True),)


def _asked(board: Dashboard) -> Iterator[str]:
    drawn = (panel for row in board.rows for panel in row.panels if not isinstance(panel, Text))
    texts = [text for panel in drawn for text in queries(panel)]
    for text in (*texts, *(selected(event.expr) for event in board.events)):
        yield from re.findall(r"\bwirewatch_\w+", text)


def _panel(metric: Metric) -> Series | Table:
    labels = tuple(label for label in metric.labels if label not in _LEFT_OUT)
    asked = f"wirewatch_{metric.name}{{{'GPUS' if 'gpu' in labels else 'HERE'}}}"
    words = metric.name.removesuffix("_total").replace("_", " ").capitalize().replace("Gpu", "GPU")
    title = metric.panel.title or words
    if metric.kind is Kind.INFO:
        value = Value("", _most(labels, asked), "none", _FACT)
        return Table(title, metric.help, (value, *map(Label, labels)), blank=Blank.OTHER)
    expr = _most(labels, f"rate({asked}[$__rate_interval])" if metric.kind is Kind.COUNTER else asked)
    legend = " ".join(f"{label} {{{{{label}}}}}" for label in labels)
    limits = _limits(metric)
    return Series(title, metric.help, (Query(expr, legend),), _unit(metric), limits, blank=Blank.OTHER)


def _most(labels: Iterable[str], asked: str) -> str:
    by = ",".join(labels)
    return f"max by ({by}) ({asked})" if by else f"max({asked})"


def _unit(metric: Metric) -> str:
    """Grafana's name of the unit; a unit that Grafana does not know stands behind the number."""
    unit, counts = unit_of(metric), metric.kind is Kind.COUNTER
    if metric.unit and unit not in UNITS:
        return f"suffix: {unit.replace('_', ' ')}{'/s' if counts else ''}"
    known = UNITS.get(unit, "none")
    return {"bytes": "Bps", "s": "percentunit"}.get(known, known) if counts else known


def _limits(metric: Metric) -> Limit:
    if not metric.panel.limits:
        return NoLimit("its collector names none")
    (_, base), *steps = metric.panel.limits
    return Limits(base, tuple(steps))
