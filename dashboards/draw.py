"""Panels as Grafana's SDK builds them. Only panel types of Grafana's core: stat, timeseries, table, text."""

from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, stat, text, timeseries
from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from dashboards import why
from dashboards.parts import Limit, Matrix, NoLimit, Panel, Series, Stat, Table, Text, queries
from dashboards.sdk import DATASOURCE, REFS, WHY, about, by_thresholds, mappings, now, steps
from dashboards.tables import drawn_matrix, drawn_table


def drawn(panel: Panel | Text) -> Any:
    """The SDK's builder of a panel, without its id and place; one that may be empty says why."""
    made = _drawn(panel)
    # In the place of one number there is no room for a sentence.
    blank = None if isinstance(panel, Text | Stat) else panel.blank
    return made if blank is None else made.no_value(blank.value.replace("`", ""))


def _drawn(panel: Panel | Text) -> Any:
    match panel:
        case Stat():
            return _stat(panel)
        case Series():
            return _series(panel)
        case Table():
            return drawn_table(panel)
        case Matrix():
            return drawn_matrix(panel)
        case Text():
            made = text.Panel().title(panel.title).description(panel.about)
            return made.mode(TextMode.MARKDOWN).content(panel.text)


def _stat(panel: Stat) -> stat.Panel:
    expr = f"{queries(panel)[0]} or on () {why.coded(panel)}"
    made = (
        stat.Panel().title(panel.title).description(about(panel)).datasource(DATASOURCE)
        .with_target(now("A", expr, PromQueryFormat.TIME_SERIES))
        .unit(panel.unit).thresholds(steps(panel.limits)).mappings(mappings({**panel.words, **why.SHORT}))
        .color_mode(looks.BigValueColorMode.VALUE).graph_mode(looks.BigValueGraphMode.NONE)
        .color_scheme(by_thresholds())
        .text_mode(looks.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )  # fmt: skip
    return made if panel.decimals is None else made.decimals(panel.decimals)


def _series(panel: Series) -> timeseries.Panel:
    made = (
        timeseries.Panel().title(panel.title).description(about(panel)).datasource(DATASOURCE)
        .unit(panel.unit).thresholds(steps(panel.limits))
        .color_scheme(sdk.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1).fill_opacity(40 if panel.stacked else 0).show_points(looks.VisibilityMode.AUTO)
        .span_nulls(False).legend(_legend(panel))
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(_drawn_limit(panel.limits)))
    )  # fmt: skip
    for ref, query, expr in zip(REFS, panel.queries, queries(panel), strict=False):
        made.with_target(
            prometheus.Dataquery().ref_id(ref).expr(expr).legend_format(query.legend).range()
            .format(PromQueryFormat.TIME_SERIES)
        )  # fmt: skip
    # A point of now that is named by the reason and drawn nowhere.
    made.with_target(
        prometheus.Dataquery().ref_id(WHY).expr(f"({why.worded(panel)}) * 0")
        .legend_format(f"{{{{{why.WHY}}}}}").instant().format(PromQueryFormat.TIME_SERIES)
    )  # fmt: skip
    made.override_by_query(WHY, list(_unseen()))
    _axis(made, panel)
    if panel.stacked:
        made.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if panel.stepped:
        made.line_interpolation(looks.LineInterpolation.STEP_AFTER)
    for name, colour in panel.colours.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        made.override_by_name(name, [model.DynamicConfigValue("color", fixed)])
    if panel.dashed:
        dash = {"fill": "dash", "dash": [8, 6]}
        made.override_by_regexp(panel.dashed, [model.DynamicConfigValue("custom.lineStyle", dash)])
    return made


def _unseen() -> Iterator[model.DynamicConfigValue]:
    """A line that stands in the legend alone, without a value."""
    yield model.DynamicConfigValue("custom.lineWidth", 0)
    yield model.DynamicConfigValue("custom.fillOpacity", 0)
    yield model.DynamicConfigValue("custom.showPoints", looks.VisibilityMode.NEVER)
    yield model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "transparent"})
    yield model.DynamicConfigValue("mappings", mappings({"0": ("", "")}))


def _legend(panel: Series) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True)
    if panel.legend == "bottom":
        return legend.display_mode(looks.LegendDisplayMode.LIST).placement(looks.LegendPlacement.BOTTOM)
    return (
        legend.display_mode(looks.LegendDisplayMode.TABLE).placement(looks.LegendPlacement.RIGHT)
        .calcs(["lastNotNull"]).sort_by("Last *").sort_desc(panel.legend == "highest")
    )  # fmt: skip


def _axis(made: timeseries.Panel, panel: Series) -> None:
    if panel.lowest is not None:
        made.min(panel.lowest)
    if panel.highest is not None:
        made.max(panel.highest)
    if panel.reach is not None:
        made.axis_soft_max(panel.reach)


def _drawn_limit(limits: Limit) -> looks.GraphThresholdsStyleMode:
    shown = not isinstance(limits, NoLimit) and limits.line
    return looks.GraphThresholdsStyleMode.DASHED if shown else looks.GraphThresholdsStyleMode.OFF
