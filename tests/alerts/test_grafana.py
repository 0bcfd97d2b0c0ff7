"""Grafana's own alerting is given the same alerts. Not run in Grafana: no server of it is to be had here."""

import re

import promql_parser
from grafana_foundation_sdk.models import alerting as schema

from tests.rows import each
from tools.alerting import GRAFANA, GRAFANA_DASHBOARD, Alert, alerts, grafana_text, looked_up
from tools.yamlfile import load_yaml

RULES = [
    (group, rule) for group in load_yaml(GRAFANA.read_text("utf-8"))["groups"] for rule in group["rules"]
]
BESIDE = {"keepFiringFor", "missing_series_evals_to_resolve"}
"""Keys of provisioning files that the library's model, which is that of the API, does not have."""
KNOWN = {
    "if", "else", "end", "with", "ge", "gt", "lt", "eq", "printf", "humanizePercentage", "humanizeDuration",
    "humanizeTimestamp", "reReplaceAll", "externalURL", "urlquery",
}  # fmt: skip
"""Functions that both template languages have; `query`, `first` and `value` are Prometheus' alone."""


def test_every_alert_is_there_once() -> None:
    told = [(rule["title"], rule["labels"]["severity"]) for _, rule in RULES]
    assert sorted(told) == sorted((one.name, one.severity) for one in alerts())
    assert len({rule["uid"] for _, rule in RULES}) == len(RULES)
    assert len({(group["folder"], rule["title"]) for group, rule in RULES}) == len(RULES)


@each(("group", "rule"), RULES, ids=lambda one: one.get("uid", ""))
def test_a_rule_fits_the_schema(group: dict[str, object], rule: dict[str, object]) -> None:
    assert set(group) == {"orgId", "name", "folder", "interval", "rules"}
    told = {key: value for key, value in rule.items() if key not in BESIDE}
    told |= {"folderUID": "x", "orgID": 1, "ruleGroup": group["name"]}
    read = schema.Rule.from_json(told)
    assert set(told) == set(read.to_json()), "a key that the schema does not know is lost on the way"
    assert read.no_data_state in {"Alerting", "NoData", "OK"}
    assert read.exec_err_state in {"OK", "Alerting", "Error"}
    assert re.fullmatch(r"[a-z0-9-]{1,40}", str(rule["uid"]))
    assert read.condition == [query.ref_id for query in read.data][-1]


@each("alert", alerts(), ids=lambda one: f"{one.name}-{one.severity}")
def test_query_time_and_texts_are_those_of_the_alert(alert: Alert) -> None:
    (rule,) = [r for _, r in RULES if (r["title"], r["labels"]["severity"]) == (alert.name, alert.severity)]
    asked = rule["data"][0]["model"]["expr"]
    assert promql_parser.parse(asked).prettify() == promql_parser.parse(alert.expr).prettify()
    assert rule["for"] == (alert.hold or "0s")
    assert rule.get("keepFiringFor", "") == alert.keep
    assert rule["labels"] == alert.labels
    back = {key: text.replace("$values.A.Value", "$value") for key, text in rule["annotations"].items()}
    assert back.pop("dashboard_url") == GRAFANA_DASHBOARD
    if not looked_up(alert):
        assert back == {key: text for key, text in alert.annotations.items() if key in back}
    for key, text in back.items():
        rest = iter(alert.annotations[key])
        assert all(letter in rest for letter in text), "the same text, without what is looked up"


@each("alert", alerts(), ids=lambda one: f"{one.name}-{one.severity}")
def test_texts_need_nothing_that_grafana_does_not_have(alert: Alert) -> None:
    own = {key: text for key, text in alert.annotations.items() if key != "dashboard_url"}
    for text in (*map(grafana_text, own.values()), GRAFANA_DASHBOARD):
        inside = " ".join(re.findall(r"{{(.*?)}}", text))
        words = re.findall(r"(?<![$.\w%\"\\])[A-Za-z]\w*", re.sub(r'"[^"]*"', "", inside))
        assert set(words) <= KNOWN, alert.name
        # What Grafana would take for a variable of its own environment.
        assert "${" not in text
