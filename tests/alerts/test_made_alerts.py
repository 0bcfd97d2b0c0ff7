"""The alerts that are generated from declared rules: a page for what is FAILED, a ticket for the rest."""

import pytest

from tests.alerts.declared import also_declared
from tools import alerting, runbook
from wirewatch.core.collector import CONFIRMED, DEGRADED, FAILED, UNKNOWN, Rule


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
        anchor = alerting.anchor("WirewatchFansSlow")
    assert [alert.severity for alert in made] == severities
    assert [alert.hold for alert in made] == [*([rule.hold] if "critical" in severities else []), "15m"]
    levels = ["== 2" if one == "critical" else "== 1" for one in severities]
    assert [alert.expr[-4:] for alert in made] == levels
    assert anchor == "fansslow"
    assert {alert.annotations["runbook_url"].partition("#")[2] for alert in made} == {anchor}
    assert "WirewatchFansSlow" not in {alert.name for alert in alerting.alerts()}


def test_an_alert_of_several_rules_says_what_to_do_about_the_one_that_it_is_about() -> None:
    rules = [
        Rule("fans.slow", DEGRADED, "Fans", means="slow", do="clean it"),
        Rule("fans.loud", DEGRADED, "Fans", means="loud", do="replace it"),
    ]
    with also_declared(*rules):
        (made,) = [alert for alert in alerting.alerts() if alert.name == "WirewatchFans"]
    assert made.annotations["description"] == (
        '{{ if eq $labels.rule "fans.slow" }}Clean it. {{ end }}'
        '{{ if eq $labels.rule "fans.loud" }}Replace it. {{ end }}'
        "`wirewatch findings list` has the numbers."
    )


def test_a_rule_without_a_text_is_refused_unless_an_alert_by_hand_reports_it() -> None:
    with also_declared(Rule("fans.slow", DEGRADED, "NoSuchAlert")), pytest.raises(ValueError, match="means"):
        alerting.made_alerts()
    with also_declared(Rule("fans.slow", DEGRADED, "Throttled")):
        assert "WirewatchThrottled" not in alerting.made_alerts()


@pytest.mark.parametrize(
    ("rule", "entry"),
    [
        (Rule("fans.slow", DEGRADED, "Throttled"), "fans.slow"),
        (Rule("fans.stuck", UNKNOWN), "fans.*"),
    ],
)
def test_a_rule_without_a_text_is_refused_unless_the_runbook_has_an_entry(
    rule: Rule, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = runbook.PAGE.read_text("utf-8")
    monkeypatch.setattr(runbook, "rules", lambda: (rule,))
    with pytest.raises(ValueError, match=rf"^rule '{rule.name}': give it means and do, or an entry"):
        runbook.page(text)
    runbook.page(text.replace("<!-- rules -->", f"### `{entry}`\n\n- **Means:** x\n\n<!-- rules -->"))
