"""The rules ask for what exists, group by cluster and node, and tell of everything that the agent finds."""

import re
from collections.abc import Iterator
from itertools import product

import promql_parser
import pytest

from tests.alerts.coverage import REST, alerts_for, known_rules, levels_of, selection
from tests.rows import each
from tools import alerting, promql
from tools.alerting import HELD, RECORDING, SEVERITIES, Alert, alerts, alerts_text, records
from tools.yamlfile import load_yaml
from wirewatch.catalogue import rule_of

MOST_SAMPLES = 240
"""Of one series in one range: an hour of scrapes. A day of scrapes of 2,000 nodes is 11 million samples."""
SCRAPE = 15
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SERIES = promql.recorded((one.name, one.expr, one.labels) for one in records())

each_alert = each("alert", alerts(), ids=lambda one: f"{one.name}-{one.severity}")


def test_there_are_rules() -> None:
    assert len(alerts()) > 50
    assert len(records()) > 15


@each_alert
def test_an_alert_asks_for_what_exists_and_is_known_by_cluster_and_node(alert: Alert) -> None:
    labels = promql.labels_of(alert.expr, SERIES)
    assert "instance" not in labels
    assert "instance" not in alert.expr
    assert labels & {"cluster", "node"} or "absent(" in alert.expr
    asked = set(re.findall(r"\$labels\.(\w+)", " ".join(alert.annotations.values())))
    assert asked <= labels, "its text names a label that it does not have"


@each_alert
def test_what_its_text_looks_up_exists_and_is_one_number(alert: Alert) -> None:
    *numbers, answering = alerting.looked_up(alert)
    assert answering == 'cluster:wirewatch_answering:info{cluster=""}'
    for query in numbers:
        assert not promql.labels_of(query, SERIES) or query.startswith("node:"), query
        (selector,) = promql.selectors(query)
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert {"cluster", "node"} <= asked, "of this node alone"


def test_numbers_are_looked_up_for_what_fires_alone() -> None:
    """Not joined: a join selects the series of all nodes, and most have no such finding."""
    assert sum(len(alerting.looked_up(alert)) - 1 for alert in alerts()) >= 15


@each("record", records(), ids=lambda one: one.name)
def test_a_recording_rule_groups_by_no_address(record: alerting.Record) -> None:
    assert not SERIES[record.name] & {"instance", "job"}
    assert re.fullmatch(r"[a-z_]+:wirewatch_[a-z_]+:[a-z0-9_]+|wirewatch:[a-z_]+:[a-z_]+", record.name)
    assert "instance" not in record.expr


@each(
    "query",
    [
        "wirewatch_no_such_metric",
        'wirewatch_health{color="red"}',
        "sum by (colour) (wirewatch_health)",
        "max by (cluster) (wirewatch_health) and on (cluster, node) max by (cluster, node) (up)",
        "max by (cluster) (wirewatch_job_ready) / max by (node) (wirewatch_job_ready)",
        "up * on (node) group_left (driver) max by (node) (wirewatch_node_info)",
        'label_replace(up, "a", "$1", "b", "(.*)")',
        "rate(wirewatch_gone_total[5m])",
    ],
)
def test_a_query_about_nothing_is_reported(query: str) -> None:
    with pytest.raises(promql.BadQueryError):
        promql.labels_of(query, SERIES)


def test_a_rule_that_makes_other_labels_than_it_reads_of_itself_is_reported() -> None:
    query = "max by (cluster, node) (up) or max by (cluster) (a:b:c)"
    promql.recorded([("a:b:c", query, ())])
    with pytest.raises(promql.BadQueryError):
        promql.recorded([("a:b:c", query, ("more",))])


@each_alert
def test_an_alert_is_whole(alert: Alert) -> None:
    assert re.fullmatch(r"Wirewatch[A-Z]\w+", alert.name)
    # A silent agent is no finding, and begins together with others by a rule of its own.
    rule = {"rule": "agent.down"} if alert.name == "WirewatchAgentDown" else {}
    assert alert.labels == {"severity": alert.severity, **rule}
    assert alert.severity in SEVERITIES
    assert set(alert.annotations) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert alert.annotations["runbook_url"] == alerting.runbook_url(alert.name)
    of_node = "node" in promql.labels_of(alert.expr, SERIES)
    wanted = alerting.NODE_DASHBOARD if of_node else alerting.FLEET_DASHBOARD
    assert alert.annotations["dashboard_url"] == wanted
    assert (
        not re.search(r"rate\(|increase\(|changes\(|delta\(", alert.expr)
        or alert.name == "WirewatchThrottled"
    )


@pytest.mark.parametrize("query", [alerting.OF_NODE, alerting.OF_FLEET])
def test_a_dashboard_in_prometheus_shows_what_is_recorded(query: str) -> None:
    shown = set(re.findall(r"\w+:\w+:\w+", query))
    assert shown
    assert shown <= {one.name for one in records()}
    assert "node:wirewatch_worst:state" in promql_parser.parse(query.replace("%q", '"x"')).prettify()


@each_alert
def test_a_summary_says_which_node(alert: Alert) -> None:
    labels = promql.labels_of(alert.expr, SERIES)
    assert ("$labels.node" in alert.annotations["summary"]) == ("node" in labels)
    assert "$labels.cluster" in alert.annotations["summary"]


def test_one_name_is_one_alert_of_each_severity() -> None:
    told = [(one.name, one.severity) for one in alerts()]
    assert len(told) == len(set(told))


@each("rule", sorted(known_rules()))
def test_the_alert_that_a_rule_names_reports_it_at_each_severity_it_can_have(rule: str) -> None:
    declared = rule_of(rule)
    assert declared is not None
    for level in levels_of(rule):
        told = alerts_for(rule, level)
        assert [one.name for one in told] == [declared.reported]
        assert told[0].severity == ("critical" if level == 2 else "ticket")


@each(("rule", "level"), list(product(("nobody.off", "nvlink.new", "xidlike.1", "gpu.new"), (1, 2))))
def test_the_rest_route_gets_what_no_other_knows(rule: str, level: int) -> None:
    assert [one.name for one in alerts_for(rule, level)] == [REST]


def test_rules_without_severity_are_those_that_are_unknown() -> None:
    silent = {rule for rule in known_rules() if not levels_of(rule)}
    assert {rule for rule in silent if not rule.endswith(".blind")} >= {
        "agent.nvml_stuck", "pairs.kept", "probe.failed", "topology.baseline", "verdict.latches",
    }  # fmt: skip
    (unknown,) = [one for one in alerts() if one.name == "WirewatchNodeUnknown"]
    assert 'health="unknown"' in unknown.expr


@each_alert
def test_each_part_of_a_pattern_is_a_rule_that_there_is(alert: Alert) -> None:
    selects = selection(alert)
    if selects is None or alert.name == REST:
        return
    for matcher in selects.matchers:
        for part in _parts(matcher.value):
            assert any(re.fullmatch(part, rule) for rule in known_rules()), part


def _parts(pattern: str) -> list[str]:
    """`a\\.(b|c)|d` as `a\\.b`, `a\\.c`, `d`."""
    grouped = re.findall(r"(?:[^|()]|\([^)]*\))+", pattern)
    parts = []
    for one in grouped:
        head, bracket, rest = one.partition("(")
        inner, _, tail = rest.partition(")")
        parts += [f"{head}{name}{tail}" for name in inner.split("|")] if bracket else [one]
    return parts


def test_what_a_number_becomes_says_what_it_is() -> None:
    """A value below 0 is the severity itself, and only where a text asks for it."""
    for alert in alerts():
        negative = f"-({HELD}" in alert.expr.replace("\n", "")
        assert negative == ("ge $value 0.0" in alert.annotations["summary"])


def test_the_routes_name_alerts_that_there_are() -> None:
    text = (alerting.PROMETHEUS / "alertmanager.yml").read_text("utf-8")
    patterns = set(re.findall(r'alertname!?=~?"([^"]+)"', text))
    assert len(patterns) > 5
    for pattern in patterns:
        for part in _parts(pattern):
            assert any(re.fullmatch(part, one.name) for one in alerts()), part
    assert set(re.findall(r'severity=~?"([^"]+)"', text)) <= {*SEVERITIES, "ticket|info"}


def _keep_quiet(alert: Alert) -> bool:
    """Whether a rule of inhibition names it as the one that is heard, for others than itself."""
    text = (alerting.PROMETHEUS / "alertmanager.yml").read_text("utf-8")
    for rule in load_yaml(text)["inhibit_rules"]:
        named = dict(re.findall(r'(alertname|severity)=~?"([^"]+)"', " ".join(rule["source_matchers"])))
        if "alertname" in rule["equal"] or named["alertname"] == "Wirewatch.+":
            continue
        if (
            re.fullmatch(named["alertname"], alert.name)
            and named.get("severity", alert.severity) == alert.severity
        ):
            return True
    return False


@pytest.mark.parametrize("alert", [one for one in alerts() if _keep_quiet(one)], ids=lambda one: one.name)
def test_who_keeps_others_quiet_outlasts_them(alert: Alert) -> None:
    """Prometheus looks at each group at another moment: what ends with it may end half a minute later."""
    assert alert.keep
    assert _seconds(alert.keep) >= 2 * _seconds(alert.interval)


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * _UNITS[duration[-1]]


def _ranges() -> Iterator[tuple[str, str, float]]:
    """Each range of each rule: the rule, the range, and how many samples of a series it has.

    Without those of the controller, of which a cluster has one or two.
    """
    groups = [*load_yaml(RECORDING.read_text("utf-8"))["groups"], *load_yaml(alerts_text())["groups"]]
    every = {r["record"]: _seconds(g["interval"]) for g in groups for r in g["rules"] if "record" in r}
    for rule in (rule for group in groups for rule in group["rules"]):
        for name, labels, asked in re.findall(r"([a-z_:]+)(\{[^}]*\})?\[(\w+)\]", rule["expr"]):
            if 'job="wirewatch-controller"' in labels:
                continue
            yield rule.get("record") or rule["alert"], asked, _seconds(asked) / every.get(name, SCRAPE)


def test_no_rule_reads_more_of_a_series_than_many_nodes_allow() -> None:
    found = list(_ranges())
    assert len(found) >= 10
    assert {asked for _, asked, _ in found} >= {"7d", "14d", "1h"}
    assert not [one for one in found if one[2] > MOST_SAMPLES]
