"""The dashboards: Grafana's schema knows all of them, and they are whole."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard as Schema

from dashboards import why
from dashboards.boards import BOARDS
from dashboards.build import PAGES, WIDTH, document
from dashboards.parts import (
    YES_NO,
    Blank,
    Dashboard,
    Label,
    Limits,
    Matrix,
    NoLimit,
    Panel,
    Row,
    Stat,
    Table,
    Text,
    Value,
    queries,
    selected,
)  # fmt: skip
from dashboards.shared import COLOURED
from dashboards.tables import NARROWEST, header_of
from dashboards.wrong import what_to_do
from tests.dashboards.grafana import panels
from wirewatch.catalogue import rules
from wirewatch.core.types import Health, Tier
from wirewatch_fleet import worst

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
CORE = {"row", "stat", "table", "text", "timeseries"}
"""Panel types of Grafana itself that proof/grafana can draw."""
UNITS = {unit for name, unit in vars(units).items() if not name.startswith("_")}
OF_PROMETHEUS = {"titleFormat", "step", "useValueForTime"}
"""What an annotation has for its data source, which the schema of all dashboards does not name."""
PIXELS, SCREEN = 1440, 1080
"""Width of a page, and height of a usual screen."""
UNIT, GAP = 38, 8
"""Pixels of a line of Grafana's grid, and of what is between two panels."""
SCREENS = {"wirewatch-fleet": 2, "wirewatch-node": 3, "wirewatch-links": 3, "wirewatch-agent": 3}
LONGEST, LONGEST_REASON = 800, 1000
"""Characters of a panel's own query, and of one for its reason."""
register_default_plugins()


def panels_of(board: Dashboard) -> list[Panel]:
    return [panel for row in board.rows for panel in row.panels if not isinstance(panel, Text)]


@each_board
def test_the_schema_knows_all_of_it(board: Dashboard) -> None:
    before = document(board)
    after = json.loads(JSONEncoder().encode(Schema.from_json(before)))
    strange = {path for path in lost(before, after) if path.rpartition(".")[2] not in OF_PROMETHEUS}
    assert strange == set()


def test_what_the_schema_does_not_know_is_found() -> None:
    before = document(BOARDS[0]) | {"refrsh": "1m"}
    after = json.loads(JSONEncoder().encode(Schema.from_json(before)))
    assert ".refrsh" in set(lost(before, after))


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where the second lacks, or has otherwise, what the first has."""
    if isinstance(before, dict):
        for key, value in before.items():
            if isinstance(after, dict) and key in after:
                yield from lost(value, after[key], f"{path}.{key}")
            elif value is not None:
                yield f"{path}.{key}"
    elif isinstance(before, list):
        for place, value in enumerate(before):
            other = after[place] if isinstance(after, list) and place < len(after) else None
            yield from lost(value, other, f"{path}[{place}]")
    elif before != after:
        yield path


def test_they_lead_to_each_other() -> None:
    assert [board.uid for board in BOARDS] == list(PAGES)
    for board in BOARDS:
        for link in document(board)["links"]:
            address = link["url"]
            assert address == "http://${node}:9410/" or address.removeprefix("/d/") in PAGES


@each_board
def test_ids_and_titles_are_its_own(board: Dashboard) -> None:
    made = [one for panel in document(board)["panels"] for one in (panel, *panel.get("panels", ()))]
    assert len({panel["id"] for panel in made}) == len(made)
    titles = [panel["title"] for panel in made]
    assert sorted(titles) == sorted(set(titles))


@each_board
def test_panels_lie_beside_each_other_and_fill_their_lines(board: Dashboard) -> None:
    made = document(board)["panels"]
    for beside in (made, *(row["panels"] for row in made if row.get("panels"))):
        squares = [
            {(x, y) for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])}
            for p in (panel["gridPos"] for panel in beside)
        ]
        assert all(not one & other for one, other in combinations(squares, 2))
        assert all(0 <= x < WIDTH for square in squares for x, _ in square)
    for row in board.rows:
        assert sum(panel.width for panel in row.panels) % WIDTH == 0, (
            f"{row.title}: a hole at the end of a line"
        )


@each_board
def test_panels_are_of_grafanas_core_and_ask_the_chosen_data_source(board: Dashboard) -> None:
    made = document(board)
    variables = [one for one in made["templating"]["list"] if one["type"] == "query"]
    assert {panel["type"] for panel in made["panels"]} <= CORE
    for asker in [*panels(made), *made["annotations"]["list"], *variables]:
        if asker.get("type") != "text":
            assert asker["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert made["templating"]["list"][0]["name"] == "datasource"


@each_board
def test_every_panel_says_what_it_means_in_which_unit_and_from_when_on_it_is_bad(board: Dashboard) -> None:
    for panel, drawn in zip(
        panels_of(board), [p for p in panels(document(board)) if p["type"] != "text"], strict=True
    ):
        assert panel.about.endswith("."), panel.title
        assert drawn["description"].startswith(panel.about)
        if panel.blank is not None:
            told_there = not isinstance(panel, Stat)  # In the place of one number there is no room for it.
            assert not told_there or drawn["fieldConfig"]["defaults"]["noValue"] == panel.blank.value.replace(
                "`", ""
            )
            assert drawn["description"].endswith(panel.blank.value)
        for part in panel.values if isinstance(panel, Table) else (panel,):
            assert part.unit in UNITS or part.unit.startswith("suffix: "), panel.title
            if isinstance(part.limits, NoLimit):
                assert part.limits.why, panel.title
            else:
                assert isinstance(part.limits, Limits)
                assert part.limits.steps, panel.title
                values = [value for value, _ in part.limits.steps]
                assert values == sorted(values)
        if isinstance(panel, Stat) and panel.words:
            assert panel.limits == COLOURED or panel.words == YES_NO or panel.unit != "none", panel.title
        assert drawn["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None


@each_board
def test_a_dashboard_fits_its_screens(board: Dashboard) -> None:
    places = [panel["gridPos"] for panel in document(board)["panels"]]
    height = max(place["y"] + place["h"] for place in places) * UNIT - GAP
    assert height <= SCREENS[board.uid] * SCREEN


@each_board
def test_no_query_is_longer_than_a_person_reads(board: Dashboard) -> None:
    for panel in panels_of(board):
        assert max(map(len, queries(panel))) <= LONGEST, f"{panel.title}: record it in wirewatch-boards"
        assert len(why.coded(panel)) <= LONGEST_REASON


@each_board
def test_a_panel_is_of_one_tier_and_a_number_of_core(board: Dashboard) -> None:
    """Else it would be half empty in tier core, or a number of nothing."""
    for panel in panels_of(board):
        tiers = {metric.tier for _, metric in why.asked(panel)}
        assert len(tiers) <= 1, panel.title
        assert not isinstance(panel, Stat) or tiers <= {Tier.CORE}, panel.title


@each_board
def test_what_is_of_core_asks_for_values_that_core_has(board: Dashboard) -> None:
    """A family of states is in core with some of them alone: no panel may ask for the others."""
    for panel in panels_of(board):
        for query in queries(panel):
            for _, metric in why.asked(panel):
                if metric.core:
                    named = re.findall(
                        rf'wirewatch_{metric.name}{{[^}}]*{metric.labels[-1]}=~?"([^"]+)"', query
                    )
                    assert all(set(one.split("|")) <= set(metric.core) for one in named), panel.title
                    assert named or f"wirewatch_{metric.name}" not in query, panel.title


@each_board
def test_every_panel_knows_why_it_may_be_empty(board: Dashboard) -> None:
    for panel in panels_of(board):
        made = list(why.reasons(panel))
        assert len({one.code for one in made}) == len(made), panel.title
        assert made, panel.title


@each_board
def test_what_a_job_alone_fills_is_collapsed_and_nothing_else_is_hidden(board: Dashboard) -> None:
    made = [panel for panel in document(board)["panels"] if panel["type"] == "row"]
    assert [row["collapsed"] for row in made] == [row.collapsed for row in board.rows]
    for row, source in zip(made, board.rows, strict=True):
        assert len(row["panels"]) == (len(source.panels) if source.collapsed else 0)


@each_board
def test_every_panel_says_what_it_shows_of_a_node_that_is_silent(board: Dashboard) -> None:
    drawn = [panel for panel in panels(document(board)) if panel["type"] != "text"]
    assert all("Silent: " in panel["description"] for panel in drawn)
    held = {panel["title"] for panel in drawn if "what it said last" in panel["description"]}
    if board.uid == "wirewatch-fleet":
        assert {"Bad nodes, worst first", "FAILED", "UNKNOWN", "Silent", "DEGRADED"} <= held


@each_board
def test_no_header_is_cut(board: Dashboard) -> None:
    """Seven pixels a letter and what is around it, as measured in Grafana's table; and all columns fit."""
    for panel in panels(document(board)):
        if panel["type"] != "table":
            continue
        # A reason stands in the place of the columns.
        overrides = [one for one in panel["fieldConfig"]["overrides"] if one["matcher"]["options"] != why.WHY]
        for override in overrides:
            set_to = {one["id"]: one["value"] for one in override["properties"]}
            least = set_to.get("custom.width", set_to.get("custom.minWidth"))
            if least is not None and "unit" in set_to:
                assert least >= 7 * len(override["matcher"]["options"]) + 20, (panel["title"], override)
        least = [
            one["value"]
            for override in overrides
            for one in override["properties"]
            if one["id"] in {"custom.width", "custom.minWidth"}
        ]
        assert sum(least) <= PIXELS * panel["gridPos"]["w"] / WIDTH - 30, (panel["title"], sum(least))


@each_board
def test_no_column_reaches_over_the_edge_of_its_panel(board: Dashboard) -> None:
    """Columns without a width share what the others leave, each as much as another."""
    for panel in panels_of(board):
        room = PIXELS * panel.width / WIDTH - 26
        if isinstance(panel, Matrix):
            # Eight GPUs, the most that a node has.
            assert panel.first + 8 * NARROWEST <= room, panel.title
        if isinstance(panel, Table):
            columns = [one for one in panel.columns if one.shown]
            fixed = sum(max(one.width, header_of(one.shown)) for one in columns if one.width)
            shared = [max(NARROWEST, header_of(one.shown)) for one in columns if not one.width]
            assert room - fixed >= len(shared) * max(shared, default=0), panel.title


@each_board
def test_how_long_ago_something_was_is_not_cut(board: Dashboard) -> None:
    """`13 minutes ago`, or `a few seconds ago`."""
    columns = [c for p in panels_of(board) if isinstance(p, Table) for c in p.columns if isinstance(c, Value)]
    ago = [one.width for one in columns if one.unit == "dateTimeFromNow"]
    assert all(not width or width >= 130 for width in ago)


def test_titles_say_what_is_listed() -> None:
    """A title with a limit is of a query with that limit."""
    for board in BOARDS:
        for panel in panels_of(board):
            if "nder 70 %" in panel.title:
                assert "< bool 0.7" in queries(panel)[0]
            if re.search(r"\b(down|missing|fail)\b", panel.title) and isinstance(panel, Table):
                assert re.search(r"== [01]|> 0|FAILING", queries(panel)[0]), panel.title


def test_the_first_thing_on_fleet_is_the_table_of_all_bad_nodes() -> None:
    first = BOARDS[0].rows[0].panels[0]
    assert isinstance(first, Table)
    for asked, query in zip(
        queries(first), (worst.state, worst.since, worst.heard, worst.findings), strict=True
    ):
        assert selected(query("HERE")) in asked


@each_board
def test_a_cell_leads_by_columns_that_its_table_has(board: Dashboard) -> None:
    for panel in panels_of(board):
        if isinstance(panel, Table):
            columns = {column.shown for column in panel.columns}
            for column in panel.columns:
                if isinstance(column, Label) and column.goes:
                    named = {part.split("}")[0] for part in column.goes.split("${__data.fields.")[1:]}
                    assert named <= columns, (panel.title, named)
            assert {by for by, _ in panel.order} <= columns, panel.title


def test_every_reason_for_an_empty_panel_is_some_panels() -> None:
    assert {panel.blank for board in BOARDS for panel in panels_of(board)} - {None} >= set(Blank) - {
        Blank.OTHER
    }


def test_there_is_something_to_do_for_every_rule_that_has_a_series() -> None:
    actions = what_to_do()
    assert max(len(text) for text, _ in actions.values()) <= 300, "two lines of a table on a small screen"
    for rule in rules():
        # Not knowing has no severity: wirewatch_health reports it.
        known = rule.worst is Health.UNKNOWN or any(fits(rule.name, name) for name in actions)
        assert known, f"no action for {rule.name} in docs/runbook.md"
    assert all(0 < len(text) <= 310 for text, _ in actions.values())


def fits(rule: str, name: str) -> bool:
    return fnmatchcase(name, rule) or fnmatchcase(rule, name)


def test_rows_name_what_they_hold() -> None:
    rows: list[Row] = [row for board in BOARDS for row in board.rows]
    assert all(row.title and row.panels for row in rows)
