"""Every query of the dashboards: it parses, and asks for metrics and labels that the agent has."""

import re

import pytest

from dashboards import why
from dashboards.boards import BOARDS
from dashboards.build import document
from dashboards.parts import Dashboard, Label, Matrix, Panel, Series, Table, Text, queries, selected
from tests.dashboards.grafana import put_in
from tests.dashboards.labels import QueryError, catalogue, labels_of, metrics_of
from tools.pages import DOCS

NOWHERE = {"cluster": ".*", "node": ".*", "gpu": ".*"}
_LABEL = re.compile(r"\{\{(\w+)\}\}")
PANELS = [
    pytest.param(panel, id=f"{board.uid}: {panel.title}")
    for board in BOARDS
    for row in board.rows
    for panel in row.panels
    if not isinstance(panel, Text)
]
LEFT_OUT = {name for name, metric in catalogue().items() if metric.undrawn}
"""Metrics that no dashboard shows, and that say why."""


def given(query: str) -> str:
    return put_in(query, NOWHERE)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_what_there_is(panel: Panel) -> None:
    asked = queries(panel)
    assert asked
    assert labels_of(given(why.worded(panel))) == {why.WHY}
    assert labels_of(given(why.coded(panel))) == frozenset()
    for query in asked:
        labels_of(given(query))
        assert "instance" not in query
    match panel:
        case Series():
            for line in panel.queries:
                has = labels_of(given(selected(line.expr)))
                assert set(_LABEL.findall(line.legend)) == has, (
                    "a line is named by each label that tells it apart"
                )
        case Table():
            wanted = {column.name for column in panel.columns if isinstance(column, Label)}
            has = frozenset[str]().union(*(labels_of(given(query)) for query in asked))
            assert has == wanted, "each label is a column"
            first = labels_of(given(asked[0]))
            for query in asked[1:]:
                assert labels_of(given(query)) <= wanted
            assert first
        case Matrix():
            has = labels_of(given(asked[0]))
            assert {panel.row, panel.column} | ({panel.shows} - {""}) <= has
        case _:
            assert labels_of(given(asked[0])) == frozenset(), "one number, whatever is chosen"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_events_ask_for_what_there_is(board: Dashboard) -> None:
    for event in board.events:
        has = labels_of(given(selected(event.expr)))
        assert set(_LABEL.findall(event.title)) <= has


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_variables_ask_for_labels_that_there_are(board: Dashboard) -> None:
    found = 0
    for variable in document(board)["templating"]["list"]:
        if variable["name"] == "agent":
            assert variable["hide"] == 2
            (expr,) = re.fullmatch(r"query_result\((.+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            assert "node" in labels_of(given(expr))
        elif variable["type"] == "query":
            expr, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            assert label in labels_of(given(expr))
            assert label == variable["name"]
            found += 1
    assert found == len(board.variables)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_no_panel_reads_more_than_an_hour_for_one_number(board: Dashboard) -> None:
    """A day of scrapes of 2,000 nodes is 11 million samples."""
    asked = [q for row in board.rows for p in row.panels if not isinstance(p, Text) for q in queries(p)]
    ranges = {found for query in asked for found in re.findall(r"\[(\w+)\]", query)}
    assert ranges <= {"1m", "2m", "5m", "10m", "15m", "30m", "1h"}


def test_the_list_of_metrics_is_that_of_the_docs() -> None:
    """Else a metric could be new and known to no dashboard."""
    told = (DOCS / "METRICS.md").read_text("utf-8")
    rows = re.findall(r"^\| `(wirewatch_[a-z0-9_]+)` \| (?:gauge|counter|info) \|", told, re.MULTILINE)
    assert len(rows) > 100
    assert set(rows) <= set(catalogue())


def test_every_metric_is_shown_or_there_is_a_reason_why_not() -> None:
    shown = {
        name
        for board in BOARDS
        for query in [
            *(q for row in board.rows for p in row.panels if not isinstance(p, Text) for q in queries(p)),
            *(selected(event.expr) for event in board.events),
        ]
        for name in metrics_of(given(query))
    }
    assert shown | LEFT_OUT == set(catalogue())
    assert not shown & LEFT_OUT


@pytest.mark.parametrize(
    "query",
    [
        "wirewatch_no_such_metric",
        'wirewatch_health{state="ok"}',
        "sum by (uuid) (wirewatch_health)",
        "rate(wirewatch_gpu_power_watts[1m])",
        "deriv(wirewatch_pcie_replays_total[1m])",
        "wirewatch_health * wirewatch_job_ready",
        "wirewatch_health * on (gpu) wirewatch_job_ready",
        "sum without (gpu) (wirewatch_gpu_power_watts)",
        'label_replace(wirewatch_health, "a", "$1", "b", "(.+)")',
    ],
)
def test_a_query_for_what_is_not_there_is_found(query: str) -> None:
    with pytest.raises(QueryError):
        labels_of(query)


def test_what_is_no_promql_is_found() -> None:
    with pytest.raises(ValueError, match=r"."):
        labels_of("sum(wirewatch_health")
