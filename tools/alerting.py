"""The rules in deploy/prometheus as values, and what is made of them: `make generated`.

The alerts of rules that none by hand reports, and their test; Grafana's alerts
(deploy/grafana/provisioning/alerting/wirewatch.yml); the table of alerts in docs/runbook.md.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import yaml

from tools.yamlfile import load_yaml
from wirewatch.catalogue import rules as declared
from wirewatch.core.collector import Rule
from wirewatch.core.types import Health

ROOT = Path(__file__).parents[1]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RECORDING, ALERTS = PROMETHEUS / "wirewatch-recording.yml", PROMETHEUS / "wirewatch-alerts.yml"
GRAFANA = ROOT / "deploy" / "grafana" / "provisioning" / "alerting" / "wirewatch.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"
PARTS = ("Meaning", "Confirm", "Do", "When it is wrong")
"""The parts of an alert's text in the runbook; the first has no label."""
SEVERITIES = ("critical", "ticket", "info")
DATASOURCE = "prometheus"
"""The data source's uid in Grafana."""
_MADE = "# Made by `make generated` from deploy/prometheus/wirewatch-alerts.yml: do not edit.\n"
_NUMBERS = "`wirewatch findings list` has the numbers."
_UUID = "GPU-00000000-0000-4000-8000-000000000002"
_VALUE = re.compile(r"\$value\b")
_LOOKED_UP = re.compile(r"\{\{ with printf `(.*?)` .*? \| query \}\}(.*?)\{\{ end \}\}")
HELD = "wirewatch:finding_severity:held"
ANSWERING = (
    "{{ with printf `cluster:wirewatch_answering:info{cluster=%q}` $labels.cluster | query }}"
    'http://{{ . | first | label "node" }}:9410/{{ end }}'
)
"""The address of an agent that answers, in an annotation; the chart puts what it knows in its place."""
OF_NODE = '{__name__=~"node:wirewatch_worst:state|wirewatch:finding_since:held",cluster=%q,node=%q}'
OF_FLEET = "sort_desc(node:wirewatch_worst:state{cluster=%q})"
NODE_DASHBOARD = (
    f"{{{{ $externalURL }}}}{{{{ printf `{OF_NODE}` $labels.cluster $labels.node | tableLink }}}}"
)
FLEET_DASHBOARD = f"{{{{ $externalURL }}}}{{{{ printf `{OF_FLEET}` $labels.cluster | tableLink }}}}"
"""`dashboard_url` where Grafana's address is not known: the node's state and findings, or the fleet's table.

In the Prometheus that evaluates the alert, whose address every message has already.
"""
GRAFANA_DASHBOARD = (
    '{{ reReplaceAll "/+\\\\z" "" externalURL }}/d/wirewatch-'
    "{{ if $labels.node }}node{{ else }}fleet{{ end }}?"
    "{{ with $labels.cluster }}var-cluster={{ urlquery . }}&{{ end }}"
    "{{ with $labels.node }}var-node={{ urlquery . }}{{ end }}"
)
"""The same in Grafana's own alerting, which knows its own address; that ends with a slash or not."""
CASES = PROMETHEUS / "tests" / "collectors.yml"
_WHERE = (
    "{{ $labels.node }}{{ with $labels.cluster }} ({{ . }}){{ end }}:"
    "{{ if $labels.uuid }} GPU {{ $labels.gpu }} ({{ $labels.uuid }}){{ end }}"
    "{{ with $labels.link }} link {{ . }}{{ end }}"
    "{{ with $labels.device }} {{ . }}{{ end }}"
    "{{ with $labels.port }} port {{ . }}{{ end }}"
)
_BEGIN = "      # Made by `make generated` from the rules that the collectors declare: do not edit.\n"
_XIDS = r"s?xid\\..+"
_END = "      # End of what is made.\n"
_BLOCK = re.compile(re.escape(_BEGIN) + "(.*?)" + re.escape(_END), re.DOTALL)
_REST = re.compile(r'(?<=held\{rule!~")[^"]*(?="\})')
_RULE = re.compile(rf'{HELD}\{{rule(=~?)"([^"]+)"')


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
    """Every alert, those that are made included."""
    return tuple(_alert(group, rule) for group, rule in _rules(alerts_text()))


@cache
def records() -> tuple[Record, ...]:
    return tuple(
        Record(rule["record"], group["name"], rule["expr"], rule.get("labels", {}))
        for group, rule in _rules(RECORDING.read_text("utf-8"))
    )


def groups() -> list[str]:
    """Names of all groups, in the order in which one rule leans on another."""
    texts = (RECORDING.read_text("utf-8"), alerts_text())
    return list(dict.fromkeys(group["name"] for text in texts for group, _ in _rules(text)))


@cache
def alerts_text() -> str:
    """The file of alerts, with those that are made, and with what is left to the alert for the rest."""
    text = ALERTS.read_text("utf-8")
    made = "".join(_made(name, of_it) for name, of_it in made_alerts().items())
    text = _BLOCK.sub(lambda _: f"{_BEGIN}{made}{_END}", text)
    return _REST.sub(lambda _: "|".join(_heard(text)), text)


@cache
def made_alerts() -> Mapping[str, tuple[Rule, ...]]:
    """Return the alerts that are not written by hand, by their names, with the rules that each reports.

    Raises:
        ValueError: a rule has no text for an alert of its own.
    """
    by_hand = set(re.findall(r"- alert: (\w+)", _BLOCK.sub("", ALERTS.read_text("utf-8"))))
    every = [rule for rule in declared() if rule.reported not in by_hand]
    for rule in every:
        if not rule.do:
            raise ValueError(f"rule {rule.name!r}: give it means and do, or an alert that {ALERTS.name} has")
    names = dict.fromkeys(rule.reported for rule in every)
    return {name: tuple(rule for rule in every if rule.reported == name) for name in names}


def _made(name: str, of_it: Sequence[Rule]) -> str:
    pattern = json.dumps("|".join(expression(rule.name) for rule in of_it))
    return "".join(
        f"      - alert: {name}\n"
        f"        expr: {HELD}{{rule=~{pattern}}} == {2 if one.severity == 'critical' else 1}\n"
        f"        for: {one.hold}\n"
        + (f"        keep_firing_for: {one.keep}\n" if one.keep else "")
        + f"        labels:\n          severity: {one.severity}\n        annotations:\n"
        f"          summary: {_quoted(f'{_WHERE} {{{{ $labels.rule }}}} is {one.word}')}\n"
        f"          description: {_quoted(_description(of_it))}\n"
        f"          runbook_url: {_quoted(runbook_url(name))}\n"
        f"          dashboard_url: {_quoted(NODE_DASHBOARD)}\n\n"
        for one in _severities(of_it)
    )


class _Severity(NamedTuple):
    severity: str
    hold: str
    keep: str
    word: str


def _severities(of_it: Sequence[Rule]) -> Iterator[_Severity]:
    """A page for what is FAILED, and a ticket for what is DEGRADED or on probation."""
    failed = any(rule.worst is Health.FAILED for rule in of_it)
    if failed:
        yield _Severity("critical", of_it[0].hold, "", "FAILED")
    yield _Severity("ticket", "15m", "10m", f"DEGRADED{', or resolved and on probation' if failed else ''}")


def _description(of_it: Sequence[Rule]) -> str:
    """What to do; where the alert reports several rules, that of the one that it is about."""
    texts = {rule.name: _action(rule) for rule in of_it}
    if len({*texts.values()}) == 1:
        return f"{_action(of_it[0])} {_NUMBERS}"
    assert not any("*" in name for name in texts), "a rule of several is looked for by its whole name"
    branches = (f'{{{{ if eq $labels.rule "{name}" }}}}{text} {{{{ end }}}}' for name, text in texts.items())
    return f"{''.join(branches)}{_NUMBERS}"


def _action(rule: Rule) -> str:
    return f"{rule.do[:1].upper()}{rule.do[1:].rstrip('.')}."


def cases() -> str:
    """The test for promtool of the alerts that are made: quiet before a fault, firing an hour after it."""
    document = {
        "rule_files": [f"../{RECORDING.name}", f"../{ALERTS.name}"],
        "evaluation_interval": "1m",
        "group_eval_order": groups(),
        "tests": [
            _case(name, of_it, one) for name, of_it in made_alerts().items() for one in _severities(of_it)
        ],
    }
    return f"# Made by `make generated`: do not edit.\n{yaml.dump(document, sort_keys=False, width=10_000)}"


def _case(name: str, of_it: Sequence[Rule], one: _Severity) -> dict[str, Any]:
    where = {"cluster": "lab", "node": "gpu-17"}
    part = {"rule": of_it[0].name.replace("*", "x"), "gpu": "2", "uuid": _UUID}
    scraped = where | {"instance": "10.0.0.17:9410", "job": "wirewatch"}
    none = {"link": "", "device": "", "port": ""}
    fired = {
        "exp_labels": {"severity": one.severity, **where, **part},
        "exp_annotations": {
            "summary": f"gpu-17 (lab): GPU 2 ({_UUID}) {part['rule']} is {one.word}",
            "description": f"{_action(of_it[0])} {_NUMBERS}",
            "runbook_url": f"docs/runbook.md#{anchor(name)}",
            "dashboard_url": f"/graph?g0.expr={_encoded(OF_NODE, 'lab', 'gpu-17')}&g0.tab=1",
        },
    }
    level = 2 if one.severity == "critical" else 1
    return {
        "name": f"{name}, {one.severity}",
        "interval": "1m",
        "input_series": [
            {"series": _series("up", scraped), "values": "1x75"},
            {"series": _series("wirewatch_job_ready", scraped), "values": "0x75"},
            {
                "series": _series("wirewatch_finding_severity", scraped | part | none),
                "values": f"_ {level}x74",
            },
        ],
        "alert_rule_test": [
            {"eval_time": "0m", "alertname": name, "exp_alerts": []},
            {"eval_time": "1h", "alertname": name, "exp_alerts": [fired]},
        ],
    }


def _encoded(query: str, *texts: str) -> str:
    """A query with these texts in place of %q, as it stands in an address."""
    return quote_plus(query.replace("%q", '"%s"') % texts)


def _series(metric: str, labels: Mapping[str, str]) -> str:
    return f"{metric}{{{','.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"


def runbook_url(name: str) -> str:
    """The annotation: an alert's text at an agent that answers; where none does, its place here."""
    return f"{ANSWERING}docs/runbook.md#{anchor(name)}"


def anchor(name: str) -> str:
    """The heading of an alert in the runbook: its own, or that of the first rule of a made alert."""
    of_it = made_alerts().get(name)
    return slug(of_it[0].name if of_it else name)


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def expression(rule: str) -> str:
    """A rule's name or pattern as a regular expression."""
    return re.escape(rule).replace(r"\*", ".+")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _heard(text: str) -> Iterator[str]:
    """What some alert reports, as it stands within quotes: every XID is, by its number or as the rest."""
    found: dict[str, None] = {}
    for sign, value in _RULE.findall(text):
        pattern = value if sign == "=~" else re.escape(value).replace("\\", "\\\\")
        for part in re.findall(r"(?:[^|()]|\([^)]*\))+", pattern):
            found[_XIDS if re.match(r"s?xid\\", part) else part] = None
    return iter(found)


def _rules(text: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for group in load_yaml(text)["groups"]:
        for rule in group["rules"]:
            yield group, rule


def _alert(group: Mapping[str, Any], rule: Mapping[str, Any]) -> Alert:
    return Alert(
        rule["alert"], rule["labels"]["severity"], group["name"], group["interval"], rule["expr"].strip(),
        rule.get("for", ""), rule.get("keep_firing_for", ""), rule["labels"], rule["annotations"],
    )  # fmt: skip


def texts(page: str) -> dict[str, dict[str, str]]:
    """The text of each alert that has a heading of its own in the runbook, by its parts."""
    found = re.findall(r"^### (Wirewatch\w+)\n(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL)
    return {name: _parts(text) for name, text in found}


def _parts(text: str) -> dict[str, str]:
    meaning, *rest = re.split(r"^\*\*([\w ]+):\*\*\n", text, flags=re.MULTILINE)
    told = {"Meaning": meaning, **dict(zip(rest[::2], rest[1::2], strict=True))}
    return {label: part.strip("\n") for label, part in told.items()}


def table() -> str:
    """The table of alerts in docs/runbook.md."""
    return "".join(f"{row}\n" for row in _rows())


def _rows() -> Iterator[str]:
    yield "| alert | severity, and after how long |"
    yield "|---|---|"
    for name in dict.fromkeys(alert.name for alert in alerts()):
        mine = [alert for alert in alerts() if alert.name == name]
        when = "; ".join(f"{one.severity}, {one.hold or 'at once'}" for one in mine)
        yield f"| [{name}](#{anchor(name)}) | {when} |"


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
    """Each result of the query is an alert, whatever its value, as in Prometheus; no result, no alert."""
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
        "annotations": {
            **{key: grafana_text(text) for key, text in alert.annotations.items()},
            "dashboard_url": GRAFANA_DASHBOARD,
        },
        "labels": dict(alert.labels),
    }  # fmt: skip
    return {**rule, "keepFiringFor": alert.keep} if alert.keep else rule


def grafana_text(text: str) -> str:
    """A template for Grafana, which asks for nothing: what it says where nothing was found."""
    without = _LOOKED_UP.sub(lambda found: found[2].partition("{{ else }}")[2], text)
    return _VALUE.sub("$values.A.Value", without)


def looked_up(alert: Alert) -> tuple[str, ...]:
    """What its annotations ask Prometheus for while it fires, with empty labels."""
    found = (one for text in alert.annotations.values() for one in _LOOKED_UP.finditer(text))
    return tuple(one[1].replace("%q", '""') for one in found)


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
