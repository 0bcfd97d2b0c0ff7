"""Grafana's JSON of a dashboard, by Grafana's own SDK, in the schema of 11.6, which later ones migrate."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards.draw import drawn
from dashboards.parts import Dashboard, Event, Row, selected
from dashboards.sdk import DATASOURCE

REFRESH = "1m"
ALL = ".*"
"""What `All` stands for: also nodes whose scrape adds no such label."""
_KNOWN = "wirewatch_build_info"
_ASKED = {
    "cluster": f"label_values({_KNOWN}, cluster)",
    "node": f'label_values({_KNOWN}{{cluster=~"$cluster"}}, node)',
    "gpu": 'label_values(wirewatch_gpu_info{cluster=~"$cluster",node=~"$node"}, gpu)',
}
_HELP = {
    "agent": "A node whose agent answers: links to the runbook lead to the one that it serves.",
    "cluster": "The label `cluster` of the scrape.",
    "node": "The label `node` of the scrape.",
    "gpu": "The GPU's index of today.",
}
PAGES = {
    "wirewatch-fleet": "Fleet",
    "wirewatch-node": "Node",
    "wirewatch-links": "Links",
    "wirewatch-agent": "Agent",
}
WIDTH = 24


def text(board: Dashboard) -> str:
    """The file's text: keys sorted, so that a change of the code shows as the change that it is."""
    return json.dumps(document(board), indent=1, sort_keys=True) + "\n"


def document(board: Dashboard) -> dict[str, Any]:
    """The dashboard as JSON values; what is not set is left out, as Grafana does."""
    made = (
        sdk.Dashboard(board.title).uid(board.uid).description(board.about).tags(["wirewatch"])
        .refresh(REFRESH).time(board.since, "now").timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
    )  # fmt: skip
    made.with_variable(sdk.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for name in board.variables:
        made.with_variable(_variable(name, several=name in board.many))
    made.with_variable(_answering())
    for uid, title in PAGES.items():
        if uid != board.uid:
            made.link(_page(uid, title))
    if "node" not in board.many:
        made.link(_status_page())
    for event in board.events:
        made.annotation(_annotation(event))
    built = made.build()
    built.panels = list(_laid_out(board.rows))
    return _finished(json.loads(JSONEncoder().encode(built)), board)


def _variable(name: str, *, several: bool) -> sdk.QueryVariable:
    made = (
        sdk.QueryVariable(name).label(name).description(_HELP[name]).query(_ASKED[name]).datasource(DATASOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.NATURAL_ASC)
        .multi(several).include_all(several)
    )  # fmt: skip
    every = model.VariableOption(selected=True, text="All", value="$__all")
    return made.all_value(ALL).current(every) if several else made


def _answering() -> sdk.QueryVariable:
    """Some node whose agent answers, for links; nobody chooses it."""
    return (
        sdk.QueryVariable("agent").description(_HELP["agent"]).query(f"query_result(topk(1, {_KNOWN}))")
        .regex('/node="([^"]+)"/').datasource(DATASOURCE).hide(model.VariableHide.HIDE_VARIABLE)
        .refresh(model.VariableRefresh.ON_DASHBOARD_LOAD)
    )  # fmt: skip


def _page(uid: str, title: str) -> sdk.DashboardLink:
    return (
        sdk.DashboardLink(title).type(model.DashboardLinkType.LINK).url(f"/d/{uid}")
        .include_vars(True).keep_time(True).icon("dashboard")
    )  # fmt: skip


def _status_page() -> sdk.DashboardLink:
    """For nodes whose names resolve and whose agents listen there; the series have no address."""
    return (
        sdk.DashboardLink("Status page").type(model.DashboardLinkType.LINK).url("http://${node}:9410/")
        .target_blank(True).icon("external link")
        .tooltip("The agent's own page, with the numbers behind each finding")
    )  # fmt: skip


def _annotation(event: Event) -> sdk.AnnotationQuery:
    return (
        sdk.AnnotationQuery().name(event.name).datasource(DATASOURCE).enable(event.shown)
        .expr(selected(event.expr)).icon_color(event.colour)
    )  # fmt: skip


def _laid_out(rows: Iterable[Row]) -> Iterator[model.Panel | model.RowPanel]:
    """Panels in lines as wide as the page, each line as high as its highest panel; ids in reading order."""
    number, y = 0, 0
    for row in rows:
        number += 1
        head = sdk.Row(row.title).id(number).grid_pos(model.GridPos(h=1, w=WIDTH, x=0, y=y))
        place_of_head, y, x, high = y, y + 1, 0, 0
        panels = []
        for part in row.panels:
            if x + part.width > WIDTH:
                x, y, high = 0, y + high, 0
            number += 1
            place = model.GridPos(h=part.height, w=part.width, x=x, y=y)
            panels.append(drawn(part).id(number).grid_pos(place).build())
            x, high = x + part.width, max(high, part.height)
        y = place_of_head + 1 if row.collapsed else y + high
        made = head.collapsed(row.collapsed).build()
        # Grafana keeps the panels of a row inside it while it is collapsed, and beside it else.
        made.panels = panels if row.collapsed else []
        yield made
        yield from [] if row.collapsed else panels


def _finished(made: dict[str, Any], board: Dashboard) -> dict[str, Any]:
    """Without what is null, and with the words that the Prometheus data source reads in an annotation.

    The SDK's schema of annotations is that of all data sources and does not have them.
    """
    kept: dict[str, Any] = _without_null(made)
    for annotation, event in zip(kept["annotations"]["list"], board.events, strict=True):
        annotation |= {"titleFormat": event.title, "step": "60s"}
        if event.at:
            annotation["useValueForTime"] = True
    return kept


def _without_null(value: Any) -> Any:
    """All but the null of a threshold's first step, which stands for no bound below."""
    if isinstance(value, dict):
        step = set(value) == {"color", "value"}
        return {key: _without_null(one) for key, one in value.items() if one is not None or step}
    return [_without_null(one) for one in value] if isinstance(value, list) else value
