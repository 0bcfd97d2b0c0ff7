"""One size of fleet, measured: series, samples, memory and time of Prometheus, and its rule groups."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proof.fleet.scrape.history import fill
from proof.fleet.scrape.services import Watched, watched

EVALUATIONS = 20
EVERY = 15
"""Seconds between two evaluations of each group: how long one takes does not depend on it."""
FAULTS = {
    "nvlink-link-down": 0.01,
    "xid-94": 0.01,
    "probe-slow": 0.005,
    "ib-port-down": 0.005,
    "silent": 0.01,
}
"""Faults and the share of nodes that have them."""
SCRAPES = 4
LONGEST = 1800.0
"""Seconds for one step of a measurement, at most."""


@dataclass(frozen=True)
class RuleGroupTimes:
    """Seconds of a group's evaluations; `slowest` is the rule that takes most of them, and its own median."""

    median: float
    p95: float
    longest: float
    slowest: str
    slowest_seconds: float


@dataclass(frozen=True)
class Measured:
    """What so many nodes cost one Prometheus.

    `node_series`: of one node that answers. `series` of the head; `samples_per_second` appended;
    `memory_bytes`, resident, and `cores`, processor seconds a second, of Prometheus; `simulator_cores`;
    `load`: what else the machine did, the 1-minute load average at the end; `past_samples`: written before.
    """

    nodes: int
    tier: str
    node_series: int
    series: int
    samples_per_second: float
    memory_bytes: int
    cores: float
    simulator_cores: float
    cpus: int
    load: float
    past_samples: int
    groups: Mapping[str, RuleGroupTimes]

    def document(self) -> dict[str, Any]:
        return asdict(self)


def measure(nodes: int, tier: str) -> Measured:
    """One size, from an empty Prometheus to the last of EVALUATIONS of each group."""
    faults = [f"{name}={max(1, round(nodes * share))}" for name, share in FAULTS.items()]
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as name,
        watched(Path(name), nodes, tier, faults, EVERY) as fleet,
    ):
        began = time.time()
        _wait(fleet, nodes)
        past = fill(fleet, Path(name), began)
        print(f"{nodes} nodes: past {past}", flush=True)
        before = _counted(fleet), _cpu(fleet), time.monotonic()
        groups = _evaluations(fleet)
        took = time.monotonic() - before[2]
        after = _counted(fleet), _cpu(fleet)
        return Measured(
            nodes, tier, node_series=_node_series(fleet),
            series=int(after[0]["prometheus_tsdb_head_series"]),
            samples_per_second=(after[0][_APPENDED] - before[0][_APPENDED]) / took,
            memory_bytes=fleet.process.memory_info().rss,
            cores=(after[1][0] - before[1][0]) / took,
            simulator_cores=(after[1][1] - before[1][1]) / took,
            cpus=os.cpu_count() or 0, load=os.getloadavg()[0], past_samples=sum(past.values()), groups=groups,
        )  # fmt: skip


_APPENDED = "prometheus_tsdb_head_samples_appended_total"


def _wait(fleet: Watched, nodes: int) -> None:
    """Until each node that answers was scraped SCRAPES times, and all groups were evaluated."""
    expected = nodes - round(nodes * FAULTS["silent"])
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        found = fleet.prometheus.instant(f"count(count_over_time(wirewatch_job_ready[5m]) >= {SCRAPES})")
        if found and int(found[0]["value"][1]) >= expected and all(_lasts(fleet).values()):
            return
        time.sleep(5)
    raise AssertionError(f"{nodes} nodes were not scraped in {LONGEST:g} s")


def _node_series(fleet: Watched) -> int:
    found = fleet.prometheus.instant("quantile(0.5, scrape_samples_scraped > 0)")
    return int(float(found[0]["value"][1]))


def _rule_groups(fleet: Watched) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fleet.prometheus.get("/api/v1/rules")["data"]["groups"]
    return found


def _lasts(fleet: Watched) -> dict[str, bool]:
    return {one["name"]: not one["lastEvaluation"].startswith("0001") for one in _rule_groups(fleet)}


def _evaluations(fleet: Watched) -> dict[str, RuleGroupTimes]:
    """The time of each evaluation, as Prometheus has it (prometheus_rule_group_last_duration_seconds)."""
    seen: dict[str, dict[str, float]] = {}
    rules: dict[str, dict[str, list[float]]] = {}
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        for group in _rule_groups(fleet):
            times = seen.setdefault(group["name"], {})
            if group["lastEvaluation"] in times:
                continue
            times[group["lastEvaluation"]] = group["evaluationTime"]
            for name, took in _by_rule(group):
                rules.setdefault(group["name"], {}).setdefault(name, []).append(took)
        # The first of each is one that may have been before the past was there.
        if min(len(times) for times in seen.values()) > EVALUATIONS:
            return {name: _times([*times.values()][1:], rules[name]) for name, times in seen.items()}
        time.sleep(EVERY / 5)
    raise AssertionError(f"not {EVALUATIONS} evaluations in {LONGEST:g} s")


def _by_rule(group: dict[str, Any]) -> Iterator[tuple[str, float]]:
    found: dict[str, float] = {}
    for rule in group["rules"]:
        found[rule["name"]] = found.get(rule["name"], 0.0) + rule["evaluationTime"]
    yield from found.items()


def _times(times: list[float], rules: Mapping[str, list[float]]) -> RuleGroupTimes:
    ranked = sorted(times)
    medians = {name: statistics.median(took) for name, took in rules.items()}
    slowest = max(medians, key=lambda name: medians[name])
    p95 = statistics.quantiles(ranked, n=20, method="inclusive")[-1]
    return RuleGroupTimes(statistics.median(ranked), p95, ranked[-1], slowest, medians[slowest])


def _counted(fleet: Watched) -> dict[str, float]:
    text = fleet.metrics()
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    found: dict[str, float] = {}
    for name, _, value in lines:
        family = name.partition("{")[0]
        found[family] = found.get(family, 0.0) + float(value)
    return found


def _cpu(fleet: Watched) -> tuple[float, float]:
    found = (one.cpu_times() for one in (fleet.process, fleet.simulator))
    prometheus, simulator = (times.user + times.system for times in found)
    return prometheus, simulator
