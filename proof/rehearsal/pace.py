"""How long an alert may take from fault to web hook, by the agent's intervals and the rules' own times.

The same sum on two clocks: that of service, and that of a rehearsal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proof.rehearsal.expected import CRITICAL, Alert, Ending, Row
from proof.rehearsal.rules import Rule, Rules, seconds
from proof.rehearsal.squeeze import squeezed
from wirewatch.catalogue import discover
from wirewatch.collectors.gpudirect.read import GpudirectOptions
from wirewatch.collectors.infiniband.model import InfinibandOptions
from wirewatch.probe.collector import CONFIRM_SECONDS
from wirewatch.probe.model import ProbeOptions
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.ledger import VerdictPolicy

SCRAPE = 15.0
"""Seconds, as deploy/prometheus/prometheus.yml has it."""
GROUP_WAIT, GROUP_INTERVAL = 180.0, 300.0
"""Seconds that Alertmanager waits before the first word of a node, and between two, in service."""
PROBING = 5.0
"""Seconds of the recorded probe; nothing squeezes them."""
HELD = "wirewatch:finding_severity:held"

_probe, _verdict = ProbeOptions(), VerdictPolicy()
INTERVALS: Mapping[str, float] = {
    **{collector.name: collector.options.interval for collector in discover()},
    "drift": DriftOptions().interval,
    "ibstat": InfinibandOptions().ibstat_interval,
    "acs": GpudirectOptions().acs_interval,
    "probe": _probe.probe_interval * (1 + _probe.jitter) + _probe.interval,
}
"""Seconds between two looks, at most."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds in service of an alerting rule: until it fires, how long it goes on, between evaluations."""

    holds: float
    keeps: float
    every: float


def waits_of(files: Sequence[Rules]) -> Mapping[tuple[str, str], Waits]:
    """By name and severity of the alert; the interval is that of the series it is built on and its own."""
    recorded = {
        rule["record"]: seconds(group["interval"])
        for file in files
        for group in file.groups()
        for rule in group["rules"]
        if "record" in rule
    }
    return {
        (rule["alert"], rule["labels"]["severity"]): Waits(
            _seconds(rule, "for"), _seconds(rule, "keep_firing_for"),
            recorded[HELD] + seconds(group["interval"]),
        )
        for file in files
        for group in file.groups()
        for rule in group["rules"]
        if "alert" in rule
    }  # fmt: skip


def _seconds(rule: Rule, name: str) -> float:
    return seconds(rule[name]) if name in rule else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds at most, with every second of service made to what `clock` says."""

    waits: Mapping[tuple[str, str], Waits]
    clock: Callable[[float], float]
    notify: float = 0.0
    notify_again: float = 0.0

    def fires(self, row: Row, alert: Alert) -> float:
        """From the beginning of the fault, or from its end for what comes later."""
        waits = self.waits[alert.name, alert.severity]
        seen = self._over(row) if alert in row.later else self._seen(row)
        return seen + self._told(waits) + self.clock(waits.holds) + self.notify

    def clears(self, row: Row, alert: Alert) -> float:
        """From the end of the fault, or from what the operator did then."""
        waits = self.waits[alert.name, alert.severity]
        over = self._over(row)
        if alert in row.later:
            over += max(
                self.clock(_verdict.probation), _verdict.clean_probes * (self._every("probe") + PROBING)
            )
        return over + self._told(waits) + self.clock(waits.keeps) + self.notify_again

    def _every(self, collector: str) -> float:
        return self.clock(INTERVALS[collector])

    def _seen(self, row: Row) -> float:
        """Until the agent says so. A second probe a minute later is not squeezed: that is no setting."""
        looks = row.looks * self._every(row.collector)
        again = row.again * (min(CONFIRM_SECONDS, self._every("probe")) + self.clock(_probe.interval))
        return looks + again + (row.looks + row.again) * self._probing(row) + row.real

    def _over(self, row: Row) -> float:
        settles = self.clock(_verdict.settle) if any(a.severity == CRITICAL for a in row.alerts) else 0.0
        if row.ending is Ending.LATCHED:
            settles = 0.0
        told = self.clock(row.told)
        return 2 * self._every(row.collector) + self._probing(row) + settles + told + row.real

    def _told(self, waits: Waits) -> float:
        return self.clock(SCRAPE) + 2 * self.clock(waits.every)

    def _probing(self, row: Row) -> float:
        return PROBING if row.collector == "probe" else 0.0


def in_service(waits: Mapping[tuple[str, str], Waits]) -> Pace:
    return Pace(waits, lambda real: real, GROUP_WAIT, GROUP_INTERVAL)


def here(waits: Mapping[tuple[str, str], Waits]) -> Pace:
    return Pace(waits, squeezed)
