"""What is declared wrongly is refused at construction, by the one guard that it breaks, in one sentence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.node.core.linkcollector import LINKS
from tests.rows import each
from wirewatch.core.collector import (
    CONFIRMED,
    DEGRADED,
    UNKNOWN,
    AnyCollector,
    NoPolicy,
    Options,
    Rule,
    blind_rule,
)
from wirewatch.core.declared import (
    BASE,
    TAKEN,
    UNITS,
    collector_faults,
    faults_together,
    metric_faults,
    refuse,
    rule_faults,
    unit_of,
)
from wirewatch.core.types import Health, Kind, Metric, Panel

SPEED = Metric("gpu_fan_speed_rpm", Kind.GAUGE, ("gpu", "uuid"), "How fast the fan turns.", unit="rpm")
TURNS = Metric("gpu_fan_turns_total", Kind.COUNTER, (), "Turns of all fans.")
FANS = Metric("gpu_fan_info", Kind.INFO, ("model",), "1 for each model.")
SLOW = Rule("fan_speed.too_slow", CONFIRMED, means="a fan is slow", do="clean it")
NAMED = Rule("fan_speed.too_slow", CONFIRMED, "Fans")
FAN_SPEED = replace(LINKS, name="fan_speed", metrics=(SPEED,), rules=(SLOW,))


def faults_of(find: Callable[[Any], Iterator[str]], value: Any, **changes: Any) -> list[str]:
    """Every fault of the value with these changes, as if its constructor refused nothing."""
    for name, change in changes.items():
        object.__setattr__(value, name, change)
    return list(find(value))


@each(
    ("metric", "changes", "said"),
    [
        (SPEED, {"name": "gpu_Fan_rpm"}, "lower-case words joined by _"),
        (SPEED, {"name": "gpu__fan_rpm"}, "lower-case words joined by _"),
        (SPEED, {"name": "wirewatch_gpu_fan_rpm"}, "without wirewatch_ in front"),
        (SPEED, {"name": "gpu_fan_rpm_total"}, "let the name of each counter, and no other name, end with"),
        (TURNS, {"name": "gpu_fan_turns"}, "let the name of each counter, and no other name, end with"),
        (FANS, {"name": "gpu_fan_model"}, "let the name of each info, and no other name, end with"),
        (TURNS, {"name": "gpu_fan_info", "kind": Kind.GAUGE, "unit": "info"}, "let the name of each info"),
        (SPEED, {"unit": ""}, r"declare its own: unit='rpm'"),
        (SPEED, {"name": "gpu_fan_speed_max", "unit": ""}, r"end with a unit \(bytes_per_second, bytes, "),
        (SPEED, {"name": "gpu_fan_speed"}, "let it end with its unit, as in speed_rpm"),
        (SPEED, {"name": "gpu_fan_speedrpm"}, "let it end with its unit, as in speed_rpm"),
        (SPEED, {"name": "gpu_fan_speed_percent", "unit": "percent"}, "write ratio in place of percent"),
        (SPEED, {"name": "gpu_fan_gb_per_second", "unit": "per_second"}, "write bytes in place of gb"),
        (TURNS, {"name": "gpu_fan_ms_total"}, "write seconds in place of ms"),
        (SPEED, {"labels": ("node",)}, "leave out the label node, since the scrape adds it"),
        (SPEED, {"labels": ("pid",)}, "leave out the label pid, since its values have no end"),
        (SPEED, {"labels": ("fan-number",)}, "write the label 'fan-number' as lower-case words"),
        (SPEED, {"labels": ("fan", "fan")}, "name the label fan once"),
        (SPEED, {"labels": ("gpu",)}, "give it both labels of a GPU, gpu and uuid"),
        (SPEED, {"labels": ("uuid",)}, "give it both labels of a GPU, gpu and uuid"),
        (SPEED, {"help": "Fan speed"}, "one line that ends with a full stop"),
        (SPEED, {"help": ""}, "one line that ends with a full stop"),
        (SPEED, {"help": "Fast | slow."}, r"has no \|"),
        (SPEED, {"help": "Fast.\nSlow."}, "one line"),
        (SPEED, {"panel": Panel(limits=((0, "green"),))}, "no limit, or two and more that rise"),
        (SPEED, {"panel": Panel(limits=((1, "green"), (0, "red")))}, "no limit, or two and more that rise"),
        (SPEED, {"panel": Panel("Fans"), "undrawn": "why"}, "a panel or a reason in undrawn"),
    ],
)
def test_a_metric_is_refused_by_the_guard_that_it_breaks(
    metric: Metric, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        replace(metric, **changes)
    assert len(faults_of(metric_faults, replace(metric), **changes)) == 1


@each("label", TAKEN)
def test_a_label_that_the_scrape_adds_or_that_has_no_end_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match=rf"^metric 'gpu_fan_speed_rpm': leave out the label {label}, since"):
        replace(SPEED, labels=("gpu", "uuid", label))


@each("odd", BASE)
def test_another_unit_than_a_base_unit_is_refused_with_the_base_unit(odd: str) -> None:
    with pytest.raises(ValueError, match=f"write {BASE[odd]} in place of {odd}$"):
        Metric(f"gpu_fan_{odd}", Kind.GAUGE, (), "A number.", unit=odd)
    assert BASE[odd] in UNITS


@each(
    ("name", "kind", "unit", "found"),
    [
        ("gpu_fan_speed_rpm", Kind.GAUGE, "rpm", "rpm"),
        ("rpm", Kind.GAUGE, "rpm", "rpm"),
        ("fan_bytes_per_second", Kind.GAUGE, "", "bytes_per_second"),
        ("fan_seconds_total", Kind.COUNTER, "", "seconds"),
        ("fan_turns_total", Kind.COUNTER, "turns", "turns"),
        ("fan_turns_total", Kind.COUNTER, "", ""),
        ("fan_info", Kind.INFO, "", ""),
        ("fan_up", Kind.GAUGE, "", ""),
        ("fan_links_expected", Kind.GAUGE, "", ""),
        ("fan_width_max", Kind.GAUGE, "", ""),
    ],
)
def test_a_unit_is_that_of_the_name_or_declared(name: str, kind: Kind, unit: str, found: str) -> None:
    assert unit_of(Metric(name, kind, (), "A number.", unit=unit)) == found


@each(
    ("rule", "changes", "said"),
    [
        (SLOW, {"name": "too_slow"}, r"write family\.fault"),
        (SLOW, {"name": "fan-speed.slow"}, r"write family\.fault"),
        (SLOW, {"name": "fan__speed.slow"}, r"write family\.fault"),
        (SLOW, {"name": "fan_speed.Slow"}, r"write family\.fault"),
        (SLOW, {"healths": ()}, "from mild to grave, without OK"),
        (SLOW, {"healths": CONFIRMED[::-1]}, "from mild to grave, without OK"),
        (SLOW, {"healths": DEGRADED * 2}, "from mild to grave, without OK"),
        (SLOW, {"healths": (Health.OK, Health.DEGRADED)}, "from mild to grave, without OK"),
        (SLOW, {"do": ""}, "give it both means and do"),
        (NAMED, {"means": "a fan is slow"}, "give it both means and do"),
        (SLOW, {"means": "a fan\nis slow"}, "as one line"),
        (SLOW, {"do": "clean | replace"}, r"without \| and {{"),
        (SLOW, {"look": "{{ $value }}"}, r"without \| and {{"),
        (SLOW, {"rehearse": "a\nb"}, "as one line"),
        (SLOW, {"do": "x" * 301}, "in 300 characters; it has 301"),
        (SLOW, {"hold": "two minutes"}, "a number and s, m, h or d, such as 2m"),
        (SLOW, {"hold": "0m"}, "a number and s, m, h or d, such as 2m"),
        (SLOW, {"alert": "fans"}, "write its alert as FanSlow"),
        (SLOW, {"alert": "Fan_Slow"}, "write its alert as FanSlow"),
        (SLOW, {"alert": "WirewatchFans"}, "without Wirewatch in front"),
        (SLOW, {"name": "fan_speed.*"}, "name the alert that reports this pattern"),
        (NAMED, {"alert": ""}, "give it means and do, or name the alert that reports it"),
        (
            SLOW,
            {"name": "fan_speed.at_most_for_hours1"},
            "name an alert; WirewatchFanSpeedAtMostForHours1 has more than 31",
        ),
        (NAMED, {"alert": "F" * 23}, "name an alert; WirewatchF{23} has more than 31"),
    ],
)
def test_a_rule_is_refused_by_the_guard_that_it_breaks(
    rule: Rule, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        replace(rule, **changes)
    assert len(faults_of(rule_faults, replace(rule), **changes)) == 1


def test_a_rule_of_what_is_not_known_needs_neither_text_nor_alert() -> None:
    assert Rule("fan_speed.*", UNKNOWN).reported == "WirewatchNodeUnknown"
    assert Rule("fan_speed.*", CONFIRMED, "Fans").reported == "WirewatchFans"
    assert SLOW.reported == "WirewatchFanSpeedTooSlow"


@dataclass(frozen=True)
class Lax:
    """A policy that takes every key."""


@each(
    ("changes", "said"),
    [
        ({"name": "fan-speed"}, "lower-case words joined by _"),
        ({"name": "fan_"}, "lower-case words joined by _"),
        ({"name": "verdict"}, "choose another name"),
        ({"name": "daemon"}, "choose another name"),
        ({"about": ""}, "let about be one line"),
        ({"about": "fans | pumps"}, "let about be one line"),
        ({"about": "fans\npumps"}, "let about be one line"),
        ({"about": "fan speeds."}, "without a full stop"),
        ({"lane": "fans"}, "choose its lane among nvml, files, kernel, .*; it has 'fans'"),
        ({"series": 7}, "let series be 8 or more"),
        ({"series": 0, "metrics": (TURNS,)}, "let series be 1 or more"),
        ({"rules": (Rule("fan_speed.blind", UNKNOWN),)}, r"leave out the rule fan_speed\.blind"),
        ({"start": {}}, "give it forget=forget_gone"),
        ({"policy": Lax()}, "derive Lax from Strict, so that it refuses unknown keys"),
        ({"options": Lax()}, "derive Lax from Strict, so that it refuses unknown keys"),
    ],
)
def test_a_collector_is_refused_by_the_guard_that_it_breaks(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(FAN_SPEED, **changes)
    assert len(faults_of(collector_faults, replace(FAN_SPEED), **changes)) == 1


OTHER = replace(FAN_SPEED, name="fans", metrics=(TURNS,), rules=())


@each(
    ("other", "said"),
    [
        (replace(OTHER, name="fan_speed"), "collector 'fan_speed': declare it once"),
        (replace(OTHER, metrics=(SPEED,)), "metric 'gpu_fan_speed_rpm': declare it once"),
        (replace(OTHER, metrics=(TURNS, TURNS)), "metric 'gpu_fan_turns_total': declare it once"),
        (replace(OTHER, rules=(SLOW,)), "rule 'fan_speed.too_slow': declare it once"),
        (replace(OTHER, options=Options(interval=5.0)), "let its deadline be above 0 and at most 5$"),
        (replace(OTHER, options=Options(deadline=0.0)), "let its deadline be above 0 and at most 15$"),
    ],
)
def test_what_two_collectors_claim_is_refused(other: AnyCollector, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        refuse(faults_together((FAN_SPEED, other)))
    assert len(list(faults_together((FAN_SPEED, other)))) == 1


def test_what_is_declared_well_is_not_refused() -> None:
    refuse(faults_together((FAN_SPEED, OTHER)))
    assert replace(FAN_SPEED, policy=NoPolicy()).rules == (SLOW,)
    assert Rule(blind_rule("fan_speed"), UNKNOWN).healths == UNKNOWN
