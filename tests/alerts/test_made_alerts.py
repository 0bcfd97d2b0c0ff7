"""The alerts that are generated from declared rules: a page for what is FAILED, a ticket for the rest."""

import pytest

from tests.alerts.declared import also_declared
from tools import alerting, runbook
from wirewatch.core.collector import CONFIRMED, DEGRADED, FAILED, Rule


@pytest.mark.parametrize(
    ("rule", "severities"),
    [
        (Rule("fans.slow", DEGRADED, means="slow", do="clean it"), ["ticket"]),
        (Rule("fans.slow", CONFIRMED, means="slow", do="clean it", hold="5m"), ["critical", "ticket"]),
        (Rule("fans.slow", FAILED, means="slow", do="clean it"), ["critical", "ticket"]),
    ],
)
def test_a_rule_that_can_be_failed_is_a_page(rule: Rule, severities: list[str]) -> None:
    with also_declared(rule):
        made = [alert for alert in alerting.alerts() if alert.name == "WirewatchFansSlow"]
        page = runbook.pages()[alerting.RUNBOOKS / "WirewatchFansSlow.md"]
    assert [alert.severity for alert in made] == severities
    assert [alert.hold for alert in made] == [*([rule.hold] if "critical" in severities else []), "15m"]
    levels = ["== 2" if one == "critical" else "== 1" for one in severities]
    assert [alert.expr[-4:] for alert in made] == levels
    assert ("no job may start here" in page) == ("critical" in severities)
    assert "WirewatchFansSlow" not in {alert.name for alert in alerting.alerts()}
