"""Panels as Grafana's SDK builds them. Only panel types of Grafana's core: stat, timeseries, table, text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.parts import (
    Label, Limit, Limits, Matrix, NoLimit, Panel, Series, Stat, Table, Text, Value, Words, queries,
)  # fmt: skip

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
NEUTRAL = "text"
"""The theme's own colour of text: readable on dark and light."""
_NARROWEST = 50
"""Pixels of a cell of a matrix, so that eight GPUs fit in a third of the page; and of a table's column, which has
more where there is room."""
_NOTHING = model.SpecialValueMap(
    model.DashboardSpecialValueMapOptions(
        model.SpecialValueMatch.NULL, model.ValueMappingResult(text="", color="transparent")
    )
)
"""A GPU has no wire to itself."""


def drawn(panel: Panel | Text) -> Any:
    """The SDK's builder of a panel, without its id and place."""
    match panel:
        case Stat():
            return _stat(panel)
        case Series():
            return _series(panel)
        case Table():
            return _table(panel)
        case Matrix():
            return _matrix(panel)
        case Text():
            made = text.Panel().title(panel.title).description(panel.about)
            return made.mode("markdown").content(panel.text)  # type: ignore[arg-type]


def about(panel: Panel) -> str:
    """What is shown when somebody asks what a panel means."""
    why = f" {panel.blank.value}" if panel.blank else ""
    return panel.about + why


def _stat(panel: Stat) -> stat.Panel:
    made = (
        stat.Panel().title(panel.title).description(about(panel)).datasource(DATASOURCE)
        .with_target(_now("A", queries(panel)[0], PromQueryFormat.TIME_SERIES))
        .unit(panel.unit).thresholds(_steps(panel.limits)).mappings(_mappings(panel.words))
        .color_mode(looks.BigValueColorMode.VALUE).graph_mode(looks.BigValueGraphMode.NONE)
        .color_scheme(_by_thresholds())
        .text_mode(looks.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )  # fmt: skip
    return made if panel.decimals is None else made.decimals(panel.decimals)


def _series(panel: Series) -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True)
    if panel.legend == "bottom":
        legend = legend.display_mode(looks.LegendDisplayMode.LIST).placement(looks.LegendPlacement.BOTTOM)
    else:
        legend = (
            legend.display_mode(looks.LegendDisplayMode.TABLE).placement(looks.LegendPlacement.RIGHT)
            .calcs(["lastNotNull"]).sort_by("Last *").sort_desc(panel.legend == "highest")
        )  # fmt: skip
    made = (
        timeseries.Panel().title(panel.title).description(about(panel)).datasource(DATASOURCE)
        .unit(panel.unit).thresholds(_steps(panel.limits))
        .color_scheme(sdk.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1).fill_opacity(40 if panel.stacked else 0).show_points(looks.VisibilityMode.AUTO)
        .span_nulls(False).legend(legend)
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(_drawn_limit(panel.limits)))
    )  # fmt: skip
    for ref, query, expr in zip(_refs(), panel.queries, queries(panel), strict=False):
        made.with_target(
            prometheus.Dataquery().ref_id(ref).expr(expr).legend_format(query.legend).range()
            .format(PromQueryFormat.TIME_SERIES)
        )  # fmt: skip
    if panel.stacked:
        made.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if panel.stepped:
        made.line_interpolation(looks.LineInterpolation.STEP_AFTER)
    if panel.reach is not None:
        made.axis_soft_max(panel.reach)
    if panel.lowest is not None:
        made.min(panel.lowest)
    if panel.highest is not None:
        made.max(panel.highest)
    for name, colour in panel.colours.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        made.override_by_name(name, [model.DynamicConfigValue("color", fixed)])
    if panel.dashed:
        dash = {"fill": "dash", "dash": [8, 6]}
        made.override_by_regexp(panel.dashed, [model.DynamicConfigValue("custom.lineStyle", dash)])
    return made


def _table(panel: Table) -> table.Panel:
    made = _any_table(panel)
    several = len(panel.values) > 1
    for ref, expr in zip(_refs(), queries(panel), strict=False):
        made.with_target(_now(ref, expr, PromQueryFormat.TABLE))
    if several:
        made.with_transformation(model.DataTransformerConfig("merge", options={}))
    made.with_transformation(_organized(panel, several=several))
    numbers = [column.shown for column in panel.columns if isinstance(column, Label) and column.unit]
    if numbers:
        wanted = [{"targetField": name, "destinationType": "number"} for name in numbers]
        made.with_transformation(model.DataTransformerConfig("convertFieldType", options={"conversions": wanted}))
    made.sort_by([common.TableSortByFieldState().display_name(by).desc(desc) for by, desc in panel.order])
    for column in panel.columns:
        particular = list(_cells(column))
        if particular and column.shown:
            made.override_by_name(column.shown, particular)
    return made


def _organized(panel: Table, *, several: bool) -> model.DataTransformerConfig:
    """The columns in the order in which they are told, by their headers; whatever else a frame has is left out."""
    refs = iter(_refs())
    names, headers = [], {}
    for column in panel.columns:
        if isinstance(column, Label):
            names.append(column.name)
            if column.header:
                headers[column.name] = column.header
        else:
            name = f"Value #{next(refs)}" if several else "Value"
            names.append(name)
            headers[name] = column.header
    hidden = [name for name, header in headers.items() if not header]
    options = {
        "excludeByName": {"Time": True} | dict.fromkeys(hidden, True),
        "includeByName": {},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": {name: header for name, header in headers.items() if header},
    }
    return model.DataTransformerConfig("organize", options=options)


def _matrix(panel: Matrix) -> table.Panel:
    expr, head = queries(panel)[0], f"{panel.row}\\{panel.column}"
    options = {
        "rowField": panel.row, "columnField": panel.column, "valueField": panel.shows or "Value", "emptyValue": "null",
    }  # fmt: skip
    made = (
        _any_table(panel).with_target(_now("A", expr, PromQueryFormat.TABLE))
        .with_transformation(model.DataTransformerConfig("groupingToMatrix", options=options))
        .with_transformation(model.DataTransformerConfig("sortBy", options={"sort": [{"field": head}]}))
        .unit(panel.unit).thresholds(_steps(panel.limits)).mappings([*_mappings(panel.words), _NOTHING])
        .align(looks.FieldTextAlignment.CENTER)
    )  # fmt: skip
    if panel.words or isinstance(panel.limits, Limits):
        made.cell_options(_background())
    if panel.decimals is not None:
        made.decimals(panel.decimals)
    plain: dict[str, object] = {"custom.cellOptions": looks.TableAutoCellOptions(), "unit": "string", "mappings": []}
    if panel.first:
        plain["custom.width"] = panel.first
    return made.override_by_name(head, [model.DynamicConfigValue(name, value) for name, value in plain.items()])


def _any_table(panel: Table | Matrix) -> table.Panel:
    return (
        table.Panel().title(panel.title).description(about(panel)).datasource(DATASOURCE)
        .show_header(True).cell_height(looks.TableCellHeight.SM).filterable(isinstance(panel, Table))
        .color_scheme(_by_thresholds()).thresholds(_steps(Limits(NEUTRAL)))
        .footer(common.TableFooterOptions().show(False)).min_width(_NARROWEST)
    )  # fmt: skip


def _cells(column: Label | Value) -> Iterator[model.DynamicConfigValue]:
    """What is particular to a column."""
    if column.width:
        yield model.DynamicConfigValue("custom.width", column.width)
    if column.words:
        yield model.DynamicConfigValue("mappings", _mappings(column.words))
    if isinstance(column, Label):
        if column.unit:
            yield model.DynamicConfigValue("unit", column.unit)
        if column.whole:
            yield model.DynamicConfigValue("custom.inspect", value=True)
        if column.goes:
            link = {"title": column.leads, "url": column.goes, "targetBlank": column.goes.startswith("http")}
            yield model.DynamicConfigValue("links", [link])
        return
    yield model.DynamicConfigValue("unit", column.unit)
    if column.decimals is not None:
        yield model.DynamicConfigValue("decimals", column.decimals)
    yield model.DynamicConfigValue("thresholds", _steps(_quiet(column.limits)).build())
    if isinstance(column.limits, Limits) or column.words:
        yield model.DynamicConfigValue("custom.cellOptions", _background())


def _quiet(limits: Limit) -> Limit:
    """In a table what is well has no colour: forty green cells hide the red one."""
    if isinstance(limits, NoLimit):
        return limits
    steps = tuple((value, "transparent" if colour == "green" else colour) for value, colour in limits.steps)
    return Limits("transparent" if limits.base == "green" else limits.base, steps)


def _background() -> looks.TableColoredBackgroundCellOptions:
    return looks.TableColoredBackgroundCellOptions(mode=looks.TableCellBackgroundDisplayMode.BASIC)


def _now(ref: str, expr: str, form: PromQueryFormat) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(ref).expr(expr).instant().format(form)


def _refs() -> Sequence[str]:
    return "ABCDEFGHIJKLMNOP"


def _by_thresholds() -> sdk.FieldColor:
    return sdk.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def _steps(limits: Limit) -> sdk.ThresholdsConfig:
    steps: Iterable[tuple[float | None, str]] = [(None, NEUTRAL)]
    if isinstance(limits, Limits):
        steps = [(None, limits.base), *limits.steps]
    made = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return sdk.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _drawn_limit(limits: Limit) -> looks.GraphThresholdsStyleMode:
    shown = not isinstance(limits, NoLimit) and limits.line
    return looks.GraphThresholdsStyleMode.DASHED if shown else looks.GraphThresholdsStyleMode.OFF


def _mappings(words: Words) -> list[model.ValueMapping]:
    """Values by name in one mapping, then the patterns."""
    named = {
        value: model.ValueMappingResult(text=told, color=colour or None, index=index)
        for index, (value, (told, colour)) in enumerate(words.items())
        if "*" not in value
    }
    made: list[model.ValueMapping] = [model.ValueMap(named)] if named else []
    for value, (told, colour) in words.items():
        if "*" in value:
            pattern = "^" + value.replace(".", "\\.").replace("*", ".*") + "$"
            result = model.ValueMappingResult(text=told, color=colour or None)
            made.append(model.RegexMap(model.DashboardRegexMapOptions(pattern, result)))
    return made
