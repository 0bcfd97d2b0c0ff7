"""Tables and matrices as Grafana's SDK builds them."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards import why
from dashboards.parts import Label, Limit, Limits, Matrix, NoLimit, Table, Value, queries
from dashboards.sdk import DATASOURCE, NEUTRAL, REFS, WHY, about, by_thresholds, mappings, now, steps

NARROWEST = 50
"""Pixels of a cell of a matrix, so that eight GPUs fit in a third of the page; and of a table's column,
which has
more where there is room."""
_LETTER, _AROUND = 7, 26
"""Pixels of a letter of a header at most, and of what is around it: padding, the arrow of a sorted column."""
_REASON = 270
"""Pixels of a reason for an empty table, which stands in a column of its own."""
_NOTHING = model.SpecialValueMap(
    model.DashboardSpecialValueMapOptions(
        model.SpecialValueMatch.NULL, model.ValueMappingResult(text="", color="transparent")
    )
)
"""A GPU has no wire to itself, and the row of a reason has no values."""


def drawn_table(panel: Table) -> table.Panel:
    made = _any_table(panel)
    for ref, expr in zip(REFS, queries(panel), strict=False):
        made.with_target(now(ref, expr, PromQueryFormat.TABLE))
    made.with_target(now(WHY, why.worded(panel), PromQueryFormat.TABLE))
    made.with_transformation(model.DataTransformerConfig("merge", options={}))
    made.with_transformation(_organized(panel))
    numbers = [column.shown for column in panel.columns if isinstance(column, Label) and column.unit]
    if numbers:
        wanted = [{"targetField": name, "destinationType": "number"} for name in numbers]
        made.with_transformation(
            model.DataTransformerConfig("convertFieldType", options={"conversions": wanted})
        )
    made.mappings([_NOTHING]).override_by_name(
        why.WHY, [model.DynamicConfigValue("custom.minWidth", _REASON)]
    )
    made.sort_by([common.TableSortByFieldState().display_name(by).desc(desc) for by, desc in panel.order])
    for column in panel.columns:
        particular = list(_cells(column))
        if particular and column.shown:
            made.override_by_name(column.shown, particular)
    return made


def _organized(panel: Table) -> model.DataTransformerConfig:
    """The columns in the order in which they are given, by their headers; values without one left out."""
    refs = iter(REFS)
    names, headers = [why.WHY], {}
    for column in panel.columns:
        if isinstance(column, Label):
            names.append(column.name)
            if column.header:
                headers[column.name] = column.header
        else:
            name = f"Value #{next(refs)}"
            names.append(name)
            headers[name] = column.header
    hidden = [name for name, header in headers.items() if not header]
    options = {
        "excludeByName": {"Time": True, f"Value #{WHY}": True} | dict.fromkeys(hidden, True),
        "includeByName": {},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": {name: header for name, header in headers.items() if header},
    }
    return model.DataTransformerConfig("organize", options=options)


def drawn_matrix(panel: Matrix) -> table.Panel:
    reason = why.worded(panel)
    names = {panel.row: why.WHY, panel.column: "$1", **({panel.shows: "-1"} if panel.shows else {})}
    for label, text in names.items():
        reason = f'label_replace({reason}, "{label}", "{text}", "{why.WHY}", "(.+)")'
    reason = f"{reason} * 0 - 1"
    expr, head = f"({queries(panel)[0]}) or ({reason})", f"{panel.row}\\{panel.column}"
    options = {
        "rowField": panel.row, "columnField": panel.column, "valueField": panel.shows or "Value",
        "emptyValue": "null",
    }  # fmt: skip
    words = [*mappings({**panel.words, "-1": ("", "transparent")}), _NOTHING]
    made = (
        _any_table(panel).with_target(now("A", expr, PromQueryFormat.TABLE))
        .with_transformation(_sorted(panel.column))
        .with_transformation(model.DataTransformerConfig("groupingToMatrix", options=options))
        .with_transformation(_sorted(head))
        .unit(panel.unit).thresholds(steps(panel.limits)).mappings(words)
        .align(looks.FieldTextAlignment.CENTER)
    )  # fmt: skip
    if panel.words or isinstance(panel.limits, Limits):
        made.cell_options(_background())
    if panel.decimals is not None:
        made.decimals(panel.decimals)
    plain: dict[str, object] = {
        "custom.cellOptions": looks.TableAutoCellOptions(),
        "unit": "string",
        "mappings": [],
    }
    if panel.first:
        plain["custom.width"] = panel.first
    return made.override_by_name(
        head, [model.DynamicConfigValue(name, value) for name, value in plain.items()]
    )


def _sorted(field: str) -> model.DataTransformerConfig:
    """Prometheus promises no order, and columns of a matrix come in that in which they are met."""
    return model.DataTransformerConfig("sortBy", options={"sort": [{"field": field}]})


def _any_table(panel: Table | Matrix) -> table.Panel:
    return (
        table.Panel().title(panel.title).description(about(panel)).datasource(DATASOURCE)
        .show_header(True).cell_height(_high(panel)).filterable(isinstance(panel, Table))
        .color_scheme(by_thresholds()).thresholds(steps(Limits(NEUTRAL)))
        .footer(common.TableFooterOptions().show(False)).min_width(NARROWEST)
    )  # fmt: skip


def _high(panel: Table | Matrix) -> looks.TableCellHeight:
    """Two lines where a cell is wrapped: Grafana reckons with the value, which is shorter than its words."""
    several = isinstance(panel, Table) and any(isinstance(c, Label) and c.wrapped for c in panel.columns)
    return looks.TableCellHeight.LG if several else looks.TableCellHeight.SM


def _cells(column: Label | Value) -> Iterator[model.DynamicConfigValue]:
    """What is particular to a column. What a panel says when it is empty is not for its empty cells."""
    yield model.DynamicConfigValue("noValue", "")
    if column.width:
        yield model.DynamicConfigValue("custom.width", max(column.width, header_of(column.shown)))
    else:
        yield model.DynamicConfigValue("custom.minWidth", max(NARROWEST, header_of(column.shown)))
    if column.words:
        yield model.DynamicConfigValue("mappings", [*mappings(column.words), _NOTHING])
    if isinstance(column, Label):
        if column.unit:
            yield model.DynamicConfigValue("unit", column.unit)
        if column.whole:
            yield model.DynamicConfigValue("custom.inspect", value=True)
        if column.wrapped:
            wrapped = looks.TableAutoCellOptions(wrap_text=True)
            yield model.DynamicConfigValue("custom.cellOptions", wrapped)
        if column.goes:
            links = [
                {"title": title, "url": url, "targetBlank": url.startswith("http")}
                for title, url in ((column.leads, column.goes), *column.also)
            ]
            yield model.DynamicConfigValue("links", links)
        return
    yield model.DynamicConfigValue("unit", column.unit)
    if column.decimals is not None:
        yield model.DynamicConfigValue("decimals", column.decimals)
    yield model.DynamicConfigValue("thresholds", steps(_quiet(column.limits)).build())
    if isinstance(column.limits, Limits) or column.words:
        yield model.DynamicConfigValue("custom.cellOptions", _background())


def header_of(text: str) -> int:
    """Pixels at which a header is not cut."""
    return _LETTER * len(text) + _AROUND


def _quiet(limits: Limit) -> Limit:
    """In a table what is well has no colour: forty green cells hide the red one."""
    if isinstance(limits, NoLimit):
        return limits
    steps = tuple((value, "transparent" if colour == "green" else colour) for value, colour in limits.steps)
    return Limits("transparent" if limits.base == "green" else limits.base, steps)


def _background() -> looks.TableColoredBackgroundCellOptions:
    return looks.TableColoredBackgroundCellOptions(mode=looks.TableCellBackgroundDisplayMode.BASIC)
