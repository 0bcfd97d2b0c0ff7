"""What all panels have in the SDK's terms: queries, limits, words."""

from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.parts import Limit, Limits, Panel, Words, silence

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
REFS = "ABCDEFGHIJKLMNOP"
"""What queries of one panel go by."""
WHY = "Z"
"""What the query for the reason of an empty panel goes by."""
NEUTRAL = "text"
"""The theme's own colour of text: readable on dark and light."""


def about(panel: Panel) -> str:
    """What is shown when a reader asks what a panel means."""
    misleads = f"Misleading: {panel.misleads}" if panel.misleads else ""
    words = (panel.about, misleads, silence(panel), panel.blank.value if panel.blank else "")
    return " ".join(filter(None, words))


def now(ref: str, expr: str, form: PromQueryFormat) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(ref).expr(expr).instant().format(form)


def by_thresholds() -> sdk.FieldColor:
    return sdk.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def steps(limits: Limit) -> sdk.ThresholdsConfig:
    steps: list[tuple[float | None, str]] = [(None, NEUTRAL)]
    if isinstance(limits, Limits):
        steps = [(None, limits.base), *limits.steps]
    made = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return sdk.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def mappings(words: Words) -> list[model.ValueMapping]:
    """Values by name in one mapping, then the patterns."""
    named = {
        value: model.ValueMappingResult(text=word, color=colour or None, index=index)
        for index, (value, (word, colour)) in enumerate(words.items())
        if "*" not in value
    }
    made: list[model.ValueMapping] = [model.ValueMap(named)] if named else []
    for value, (word, colour) in words.items():
        if "*" in value:
            pattern = "^" + value.replace(".", "\\.").replace("*", ".*") + "$"
            result = model.ValueMappingResult(text=word, color=colour or None)
            made.append(model.RegexMap(model.DashboardRegexMapOptions(pattern, result)))
    return made
