"""All panels of all dashboards asked of a Prometheus as Grafana would ask, variables chosen."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.boards import BOARDS
from dashboards.build import document
from dashboards.parts import Blank, Dashboard, Panel, Stat, Text
from dashboards.sdk import WHY as REF
from dashboards.why import WHY
from tests.dashboards.grafana import Asked, Variables, asked, put_in
from tests.dashboards.promserver import Prometheus
from tests.patience import HANGS

STEP = 2.0
BACK = HANGS
"""Seconds between points and of the time shown."""


@dataclass(frozen=True)
class Answered:
    """How many series each query of a panel gave, and the slowest one's seconds."""

    board: str
    panel: str
    blank: Blank | None
    series: tuple[int, ...]
    table: bool
    seconds: float

    @property
    def full(self) -> bool:
        return all(self.series)


def panels_of(board: Dashboard) -> Iterator[Panel]:
    for row in board.rows:
        yield from (panel for panel in row.panels if not isinstance(panel, Text))


def chosen(board: Dashboard, cluster: str, node: str) -> Variables:
    """The node on dashboards of one node, all nodes on the others."""
    return {"cluster": [cluster], "node": ".*" if "node" in board.many else [node], "gpu": ".*"}


def answers(prometheus: Prometheus, cluster: str, node: str) -> Iterator[Answered]:
    """Every panel of every dashboard; raises PromError for a query that is refused."""
    for board in BOARDS:
        numbers = {panel.title for panel in panels_of(board) if isinstance(panel, Stat)}
        found: dict[str, list[tuple[int, float, bool]]] = {}
        variables = chosen(board, cluster, node)
        for one in asked(document(board)):
            if one.ref == REF:
                continue
            began = time.monotonic()
            count = _series(prometheus, one, put_in(one.expr, variables), number=one.panel in numbers)
            found.setdefault(one.panel, []).append((count, time.monotonic() - began, one.table))
        for panel in panels_of(board):
            counts, seconds, tables = zip(*found[panel.title], strict=True)
            yield Answered(board.uid, panel.title, panel.blank, counts, any(tables), max(seconds))


def _series(prometheus: Prometheus, one: Asked, expr: str, *, number: bool) -> int:
    """How many series there are; a reason for their absence is none."""
    now = time.time()
    if not one.instant:
        return len(prometheus.between(expr, now - BACK, now, STEP))
    found = [series for series in prometheus.instant(expr, now) if WHY not in series["metric"]]
    return sum(not number or float(series["value"][1]) >= 0 for series in found)
