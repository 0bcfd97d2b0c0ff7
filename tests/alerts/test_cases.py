"""The unit tests of deploy/prometheus/tests, which promtool runs in the system tests, leave out no alert."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.rows import each
from tools import promql
from tools.alerting import PROMETHEUS, ROOT, Alert, alerts, groups, records
from tools.yamlfile import load_yaml

FILES = sorted((PROMETHEUS / "tests").glob("*.yml"))


@cache
def cases() -> list[dict[str, Any]]:
    return [test for path in FILES for test in load_yaml(path.read_text("utf-8"))["tests"]]


def severities(test: dict[str, Any], name: str) -> list[list[str]]:
    """Which severities of this alert a test expects, time by time."""
    return [
        [alert["exp_labels"]["severity"] for alert in case["exp_alerts"]]
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == name
    ]


@each("alert", alerts(), ids=lambda one: f"{one.name}-{one.severity}")
def test_an_alert_fires_and_is_quiet_in_one_and_the_same_test(alert: Alert) -> None:
    fires = ({alert.severity in one for one in severities(test, alert.name)} for test in cases())
    assert {True, False} in fires, f"no test in which {alert.name} fires at one time and not at another"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_groups_run_in_the_order_in_which_they_lean_on_each_other(path: Path) -> None:
    """promtool takes them in any order otherwise, and a test is right or wrong by chance."""
    assert load_yaml(path.read_text("utf-8"))["group_eval_order"] == groups()


def test_each_file_has_a_name_for_each_test() -> None:
    names = [test["name"] for test in cases()]
    assert len(names) == len(set(names))


def test_every_recorded_series_is_used_by_an_alert_a_dashboard_or_a_command() -> None:
    asked = [alert.expr for alert in alerts()]
    used = {one.name for query in asked for one in promql.selectors(query) if one.name} | _elsewhere()
    fresh = set(used)
    while fresh:
        made = [record.expr for record in records() if record.name in fresh]
        fresh = {one.name for query in made for one in promql.selectors(query) if one.name} - used
        used |= fresh
    assert {record.name for record in records()} <= used


def _elsewhere() -> set[str]:
    """Recorded series that dashboards, commands or texts of alerts ask for."""
    asked = [*(ROOT / "dashboards" / "json").glob("*.json"), *(ROOT / "agent").rglob("*.py")]
    texts = [path.read_text("utf-8") for path in asked]
    texts += [text for alert in alerts() for text in alert.annotations.values()]
    return {record.name for record in records() if any(record.name in text for text in texts)}
