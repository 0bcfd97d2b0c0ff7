"""Which findings an alert takes: their rules and how bad they must be; and the rules that exist."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import promql_parser as ast

from dashboards.runbook import entries
from tools import promql
from tools.alerting import HELD, Alert, alerts
from wirewatch.catalogue import rule_of
from wirewatch.core.types import Health
from wirewatch.core.xids import XIDS, Severity

REST = "WirewatchFinding"
"""The alert for all rules that no other alert names."""
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "xid.*": (
        *(f"xid.{n}" for n, xid in XIDS.items() if xid.severity is not Severity.NOTED), "xid.154", "xid.999",
    ),
    "sxid.*": ("sxid.1", "sxid.12028"),
    "fabric.configuration_*": ("fabric.configuration_9",),
}  # fmt: skip
"""What the runbook names by a pattern."""
_LEVEL = re.compile(rf"{HELD}\{{[^}}]+\}}\s*(==|>)\s*(\d)")


@dataclass(frozen=True)
class Selection:
    """At which severities (1 DEGRADED, 2 FAILED) an alert takes a finding, and what its rule must match."""

    levels: frozenset[int]
    matchers: tuple[ast.Matcher, ...]

    def takes(self, rule: str) -> bool:
        return all(_matches(one, rule) for one in self.matchers)


def selection(alert: Alert) -> Selection | None:
    """None for an alert that is not about findings."""
    chosen = [one for one in promql.selectors(alert.expr) if one.name == HELD]
    if not chosen:
        return None
    said = set(_LEVEL.findall(alert.expr))
    assert len(said) == 1, f"{alert.name}: its parts differ in severity"
    assert len({str(one) for one in chosen}) == 1, f"{alert.name}: its parts differ in rules"
    ((sign, number),) = said
    levels = {int(number)} if sign == "==" else {level for level in (1, 2) if level > int(number)}
    return Selection(frozenset(levels), tuple(m for m in chosen[0].matchers.matchers if m.name == "rule"))


def alerts_for(rule: str, level: int) -> list[Alert]:
    return [alert for alert, one in _selections() if level in one.levels and one.takes(rule)]


@cache
def _selections() -> tuple[tuple[Alert, Selection], ...]:
    return tuple((alert, one) for alert in alerts() if (one := selection(alert)) is not None)


@cache
def known_rules() -> frozenset[str]:
    """Every rule that a finding can carry; docs/runbook.md names them all (tests/alerts/test_runbook.py)."""
    named = {name for entry in entries() for name in entry.names}
    return frozenset(rule for name in named for rule in EXAMPLES.get(name, (name,)))


def levels_of(rule: str) -> set[int]:
    """How bad it can be: 1, 2, both, or none for what is UNKNOWN and has no severity.

    What was FAILED is DEGRADED on probation.
    """
    declared = rule_of(rule)
    assert declared is not None, f"no collector declares {rule}"
    return {Health.FAILED: {1, 2}, Health.DEGRADED: {1}}.get(declared.worst, set())


def _matches(matcher: ast.Matcher, rule: str) -> bool:
    match matcher.op:
        case ast.MatchOp.Equal:
            return rule == matcher.value
        case ast.MatchOp.NotEqual:
            return rule != matcher.value
        case ast.MatchOp.Re:
            return re.fullmatch(matcher.value, rule) is not None
        case _:
            return re.fullmatch(matcher.value, rule) is None
