"""Rules on a squeezed clock: all their times, and nothing else."""

import re
from collections.abc import Sequence

import promql_parser as promql
import pytest

from proof.rehearsal.fleet import shipped_rules
from proof.rehearsal.rules import Rules, expression, recorded_ages, seconds, shorter
from proof.rehearsal.squeeze import squeezed
from tests.rows import each

DAY = 86400.0
FILE = """
groups:
  - name: one
    interval: 30s
    rules:
      - record: node:age:seconds
        expr: time() - max by (node) (seen > 0)
      - alert: Old
        expr: node:age:seconds > 2 * 86400
        for: 5m
        keep_firing_for: 1h30m
        labels: {severity: ticket}
        annotations: {summary: 'for 5m'}
"""


@each(
    ("before", "after"),
    [
        ("rate(x[5m])", "rate(x[20000ms])"),
        ("rate(x[5m] offset 1m)", "rate(x[20000ms] offset 4000ms)"),
        ("max_over_time(x[10m:1m])", "max_over_time(x[40000ms:4000ms])"),
        ("max_over_time(x[1h30m])", f"max_over_time(x[{squeezed(5400) * 1000:.0f}ms])"),
        ('x{window="5m"} == 2', 'x{window="5m"} == 2'),
        ("x{window=~'5m|\\\\[1h\\\\]'} > 0", "x{window=~'5m|\\\\[1h\\\\]'} > 0"),
        ("node:rate5m:ratio < 0.9", "node:rate5m:ratio < 0.9"),
        ("x / 1e9 > 900", "x / 1e9 > 900"),
        ("time() - x > 900", "time() - x > 60.000"),
        ("time() - max by (node) (x > 0) > 600", "time() - max by (node) (x > 0) > 40.000"),
        ("(time() - x) >= bool 10 * 60 unless y == 900", "(time() - x) >= bool 40.000 unless y == 900"),
        ("max by (node) (time() - x) > 900 and z > 900", "max by (node) (time() - x) > 60.000 and z > 900"),
        ("z > 900 or time() - x > 900", "z > 900 or time() - x > 60.000"),
        ("age:seconds > 900", "age:seconds > 60.000"),
        ("time() - x > 1.7e9", "time() - x > 1.7e9"),
        ("time() > x", "time() > x"),
    ],
)
def test_times_of_an_expression_are_squeezed_and_other_numbers_are_not(before: str, after: str) -> None:
    assert expression(before, frozenset({"age:seconds"})) == after


def test_what_is_no_promql_is_refused() -> None:
    with pytest.raises(ValueError, match="paren"):
        expression("rate(x[5m]")


@pytest.mark.parametrize(("before", "after"), [("15s", "1000ms"), ("1m30s", "6000ms"), ("1ms", "1ms")])
def test_durations(before: str, after: str) -> None:
    assert shorter(before) == after


def test_a_file_keeps_everything_but_its_times() -> None:
    rules = Rules.read(FILE)
    ages = recorded_ages([rules])
    assert ages == {"node:age:seconds"}
    (group,) = Rules.read(rules.squeezed(ages)).groups()
    assert group["interval"] == "2000ms"
    record, alert = group["rules"]
    assert record == {"record": "node:age:seconds", "expr": "time() - max by (node) (seen > 0)"}
    assert alert == {
        "alert": "Old",
        "expr": f"node:age:seconds > {squeezed(2 * DAY):.3f}",
        "for": "20000ms",
        "keep_firing_for": f"{squeezed(5400) * 1000:.0f}ms",
        "labels": {"severity": "ticket"},
        "annotations": {"summary": "for 5m"},
    }


def _shipped() -> tuple[Sequence[Rules], Sequence[Rules]]:
    before = shipped_rules()
    ages = recorded_ages(before)
    return before, [Rules.read(file.squeezed(ages)) for file in before]


def test_the_shipped_rules_are_the_same_but_for_their_times() -> None:
    before, after = _shipped()
    for one, other in zip(before, after, strict=True):
        for rule, quick in zip(one.rules(), other.rules(), strict=True):
            promql.parse(quick["expr"])
            assert _without_times(rule["expr"]) == _without_times(quick["expr"])
            for name in {*rule, *quick} - {"expr", "for", "keep_firing_for"}:
                assert rule[name] == quick[name]
            for name in ("for", "keep_firing_for"):
                assert (name in rule) == (name in quick)
                if name in rule:
                    assert seconds(quick[name]) == pytest.approx(squeezed(seconds(rule[name])), abs=0.001)


def test_no_duration_of_a_day_and_no_age_is_left_in_the_shipped_rules() -> None:
    _, after = _shipped()
    left = [rule["expr"] for file in after for rule in file.rules()]
    assert left
    # What was a duration is in milliseconds now, and an age has three decimals.
    assert not [text for text in left if re.search(r"\[\d+[smhdwy]\b|offset \d+[smhdwy]\b|\d \* 86400", text)]


def _without_times(text: str) -> str:
    told = re.sub(r"((\[|:|offset )\d\w*)", r"\2T", text)
    return re.sub(r"([<>]=?) [\d.]+(?: \* \d+)?(?![\w.])", r"\1 N", told)
