"""The rules in deploy/prometheus as values, and what is made of them: `make rules`.

Grafana's alerts (deploy/grafana/provisioning/alerting/wirewatch.yml), and the index of the runbooks
(docs/runbooks/README.md).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RECORDING, ALERTS = PROMETHEUS / "wirewatch-recording.yml", PROMETHEUS / "wirewatch-alerts.yml"
GRAFANA = ROOT / "deploy" / "grafana" / "provisioning" / "alerting" / "wirewatch.yml"
RUNBOOKS = ROOT / "docs" / "runbooks"
INDEX, HEADINGS = RUNBOOKS / "README.md", ("Meaning", "Confirm", "Do", "When it lies")
MARK = "<!-- alerts -->"
SEVERITIES = ("critical", "ticket", "info")
DATASOURCE = "prometheus"
"""The data source's uid in Grafana."""
_MADE = "# Made by `make rules` from deploy/prometheus/wirewatch-alerts.yml: do not edit.\n"
_VALUE = re.compile(r"\$value\b")


@dataclass(frozen=True)
class Alert:
    """One alerting rule; `hold` is its `for`, `keep` its `keep_firing_for`, both empty where not given."""

    name: str
    severity: str
    group: str
    interval: str
    expr: str
    hold: str
    keep: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Record:
    """One recording rule."""

    name: str
    group: str
    expr: str
    labels: Mapping[str, str]


@cache
def alerts() -> tuple[Alert, ...]:
    return tuple(_alert(group, rule) for group, rule in _rules(ALERTS))


@cache
def records() -> tuple[Record, ...]:
    return tuple(
        Record(rule["record"], group["name"], rule["expr"], rule.get("labels", {}))
        for group, rule in _rules(RECORDING)
    )


def groups() -> list[str]:
    """Names of all groups, in the order in which one rule leans on another."""
    return list(dict.fromkeys(group["name"] for path in (RECORDING, ALERTS) for group, _ in _rules(path)))


def _rules(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for group in yaml.safe_load(path.read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            yield group, rule


def _alert(group: Mapping[str, Any], rule: Mapping[str, Any]) -> Alert:
    return Alert(
        rule["alert"], rule["labels"]["severity"], group["name"], group["interval"], rule["expr"].strip(),
        rule.get("for", ""), rule.get("keep_firing_for", ""), rule["labels"], rule["annotations"],
    )  # fmt: skip


def sections(page: Path) -> dict[str, str]:
    """The text of a runbook's page by heading."""
    parts = re.split(r"^## (.+)\n", page.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (text.strip("\n") for text in parts[1::2]), strict=True))


def index() -> str:
    """docs/runbooks/README.md."""
    head, _, tail = (RUNBOOKS / "README.in.md").read_text("utf-8").partition(MARK)
    return head + "\n".join(_rows()) + tail


def _rows() -> Iterator[str]:
    yield "| alert | severity, and after how long | meaning |"
    yield "|---|---|---|"
    for name in dict.fromkeys(alert.name for alert in alerts()):
        mine = [alert for alert in alerts() if alert.name == name]
        when = "; ".join(f"{one.severity}, {one.hold or 'at once'}" for one in mine)
        meaning = " ".join(sections(RUNBOOKS / f"{name}.md")["Meaning"].split())
        yield f"| [{name}]({name}.md) | {when} | {meaning.partition('. ')[0].rstrip('.')}. |"


def grafana() -> str:
    """The same alerts for Grafana's own alerting, as a file to be provisioned.

    A folder for each severity: Grafana takes an alert's name from its title, which a folder may have once.
    """
    made = [
        {"orgId": 1, "name": name, "folder": f"wirewatch {severity}", "interval": mine[0].interval,
         "rules": [_grafana_rule(one) for one in mine]}
        for severity in SEVERITIES
        for name in dict.fromkeys(one.group for one in alerts())
        if (mine := [one for one in alerts() if (one.group, one.severity) == (name, severity)])
    ]  # fmt: skip
    document = {"apiVersion": 1, "groups": made}
    return _MADE + yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def _grafana_rule(alert: Alert) -> dict[str, Any]:
    """A result of the query is an alert, whatever its value, and none is none: as in Prometheus."""
    rule = {
        "uid": f"{alert.name.lower()}-{alert.severity}",
        "title": alert.name,
        "condition": "C",
        "data": [
            _node("A", DATASOURCE, {"expr": f"{alert.expr}\n" if "\n" in alert.expr else alert.expr,
                                    "instant": True, "range": False}),
            _node("B", "__expr__", {"type": "math",
                                    "expression": "is_number($A) || is_nan($A) || is_inf($A)"}),
            _node("C", "__expr__", {"type": "threshold", "expression": "B", "conditions": [
                {"type": "query", "evaluator": {"type": "gt", "params": [0]}}]}),
        ],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": alert.hold or "0s",
        "missing_series_evals_to_resolve": 1,
        "annotations": {key: _VALUE.sub("$values.A.Value", text) for key, text in alert.annotations.items()},
        "labels": dict(alert.labels),
    }  # fmt: skip
    return {**rule, "keepFiringFor": alert.keep} if alert.keep else rule


def _node(ref: str, source: str, model: Mapping[str, Any]) -> dict[str, Any]:
    kind = "__expr__" if source == "__expr__" else "prometheus"
    about = {"refId": ref, "datasource": {"type": kind, "uid": source}}
    return {
        "refId": ref, "relativeTimeRange": {"from": 600, "to": 0}, "datasourceUid": source,
        "model": {**about, **model},
    }  # fmt: skip


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines as blocks, so that they can be read."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)

if __name__ == "__main__":
    GRAFANA.parent.mkdir(parents=True, exist_ok=True)
    GRAFANA.write_text(grafana(), "utf-8")
    INDEX.write_text(index(), "utf-8")
