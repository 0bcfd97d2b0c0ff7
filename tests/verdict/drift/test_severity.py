"""The table of severities is whole and says why."""

from wirewatch.core.types import Health
from wirewatch.verdict.drift.change import BETTER, SEVERITY, Change, Kind, severity


def test_every_kind_has_a_severity_with_its_reason_and_what_to_do() -> None:
    assert set(SEVERITY) == set(Kind)
    assert all(one.reason and one.action for one in (*SEVERITY.values(), BETTER))
    assert not any(one.health is Health.UNKNOWN for one in SEVERITY.values())


def test_what_is_lost_fails_and_what_is_new_or_replaced_informs() -> None:
    for kind, one in SEVERITY.items():
        if kind.value.endswith("_lost"):
            assert one.health is Health.FAILED
        if kind.value.endswith(("_new", "_replaced", "_firmware")) or kind is Kind.VERSION:
            assert one.health is Health.OK
        assert one.probation is kind.value.endswith("_replaced")


def test_nothing_that_got_better_alarms() -> None:
    for kind in Kind:
        better = severity(Change(kind, "", "", "", "", worse=False))
        assert better.health is Health.OK
        assert better.probation is SEVERITY[kind].probation


def test_labels_are_fit_for_a_metric() -> None:
    assert all(kind.value == kind.name.lower() for kind in Kind)
    assert len(Kind) <= 20
