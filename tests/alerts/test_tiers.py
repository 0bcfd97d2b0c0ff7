"""Tiers of /metrics: `core` has what alerts, rules and the dashboard Fleet ask for, in 600 series a node."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards import files
from dashboards.fleet import FLEET
from tests.dashboards.grafana import put_in
from tests.dashboards.labels import catalogue
from tests.node.daemon.process import FAST, Daemon
from tests.node.goldens.made import played
from tests.support import Node
from tools.alerting import alerts, looked_up, records
from tools.pages import CORE_SERIES, DOCS
from tools.promql import selectors
from wirewatch.catalogue import components
from wirewatch.core.types import Tier
from wirewatch.documents.process import ProcessReport
from wirewatch.jobs.running.metrics import MOST_SERIES
from wirewatch.kubernetes.apiserver import ConditionReport
from wirewatch.server.exposition import Exposition
from wirewatch.server.reload import WebReport
from wirewatch.verdict.node import Judged, judge_state
from wirewatch_fleet.cli.simulate import page_of

OPENMETRICS = "application/openmetrics-text"
NUMBERS = {"wirewatch_straggler_score": "WirewatchStraggler"}
"""What the text of an alert looks up and can do without: 56 series of a node for one number in it."""
_ASKED = frozenset({"expr", "query"})
_LISTED = re.compile(r"label_values\((?P<of>.+), *\w+\)|query_result\((?P<all>.+)\)")


def queries() -> Iterator[tuple[str, str]]:
    """Everything that asks, by who asks, from the rules and from the dashboard as Grafana gets it."""
    yield from ((one.name, one.expr) for one in records())
    yield from ((one.name, query) for one in alerts() for query in (one.expr, *looked_up(one)))
    board = json.loads(files()[f"{FLEET.uid}.json"])
    for query in _texts(board):
        listed = _LISTED.fullmatch(query)
        inner = listed["of"] or listed["all"] if listed else query
        yield FLEET.title, put_in(inner, {"cluster": ".*", "node": ".*"})


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key in _ASKED and isinstance(value, str) and "wirewatch" in value and "://" not in value:
                yield value
            else:
                yield from _texts(value)
    elif isinstance(part, list):
        for one in part:
            yield from _texts(one)


def left_out(asked: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Metrics that are asked for and are not in `core`, with who asks."""
    known = catalogue()
    names = ((selector.name or "", who) for who, query in asked for selector in selectors(query))
    return {name: who for name, who in names if name in known and known[name].tier is not Tier.CORE}


def test_what_alerts_rules_and_the_fleet_ask_for_is_core() -> None:
    missing = left_out(queries())
    assert missing == NUMBERS, "give these metrics tier=Tier.CORE where they are declared"


def test_a_family_of_states_is_asked_for_by_what_core_has_of_it() -> None:
    known, found = catalogue(), 0
    for who, query in queries():
        for selector in selectors(query):
            metric = known.get(selector.name or "")
            if metric is not None and metric.core:
                named = [one.value for one in selector.matchers.matchers if one.name == metric.labels[-1]]
                assert named, f"{who}: {selector.name} of any {metric.labels[-1]}"
                assert {word for text in named for word in text.split("|")} <= set(metric.core), who
                found += 1
    assert found


def test_what_is_asked_for_is_found() -> None:
    asked = {selector.name for _, query in queries() for selector in selectors(query)}
    assert {"wirewatch_health", "wirewatch_finding_severity", "wirewatch_probe_busbw_ratio"} <= asked
    assert len(asked & set(catalogue())) > 25
    assert sum(who == FLEET.title for who, _ in queries()) > 20
    assert left_out(iter([("an alert", "rate(wirewatch_rdma_port_errors_total[5m]) > 0")])) == {
        "wirewatch_rdma_port_errors_total": "an alert"
    }


def text(judged: Judged, tier: Tier | None = None, *, exposition: Exposition | None = None) -> str:
    made = (exposition or Exposition("replay")).render(
        judged, "", WebReport(reloaded=True), ConditionReport(), ProcessReport(), tier=tier
    )
    return made.text.decode()


def series(page: str) -> list[str]:
    return [line for line in page.splitlines() if not line.startswith("#")]


def test_a_node_of_eight_gpus_and_ten_ports_is_within_the_budget_when_much_is_wrong() -> None:
    node = Node("demo-dgx-h200", also=tuple(one.name for one in components()))
    node.options("probe", settle=0.0)
    node.change("gpu*/GpmSupported()", "set", False)  # noqa: FBT003
    node.change("gpu*/CurrPcieLinkWidth()", "set", 1)
    node.change("gpu*/RemappedRows()", "set", [1, 1, 1, 1])
    node.poll(times=3)
    assert len(node.series("rdma_port_rate_bytes_per_second")) == 10
    found = series(text(judge_state(node.state), Tier.CORE))
    assert sum(line.startswith("wirewatch_finding_severity") for line in found) >= 2 * 8
    assert 300 < len(found) + MOST_SERIES <= CORE_SERIES
    assert len(series(text(judge_state(node.state)))) > CORE_SERIES, "there is something to leave out"


def test_the_page_says_how_many_series_a_healthy_node_has() -> None:
    told = re.search(
        r"has (\d+) series in `core` and ([\d,]+) in `full`", (DOCS / "METRICS.md").read_text("utf-8")
    )
    assert told is not None
    found = [page_of("demo-dgx-h200", (), tier).series for tier in (Tier.CORE, Tier.FULL)]
    # A collector more needs no new page.
    assert found == pytest.approx([int(text.replace(",", "")) for text in told.groups()], rel=0.02)


@pytest.fixture(scope="module")
def judged() -> Judged:
    *_, node = played("h200x8")
    return judge_state(node.state)


def test_core_is_part_of_full_and_has_every_series_of_a_core_metric(judged: Judged) -> None:
    core, full = text(judged, Tier.CORE), text(judged, Tier.FULL)
    known = catalogue()

    def wanted(line: str) -> bool:
        metric = known[re.split(r"[ {]", line)[0]]
        here = not metric.core or any(f'{metric.labels[-1]}="{value}"' in line for value in metric.core)
        return metric.tier is Tier.CORE and here

    assert series(core) == [line for line in series(full) if wanted(line)]
    assert 'wirewatch_nvlink_links{gpu="0",state="inactive"' in full
    assert 'wirewatch_nvlink_links{gpu="0",state="inactive"' not in core
    assert set(core.splitlines()) < set(full.splitlines())


def test_one_scrape_asks_for_another_tier_than_the_next(judged: Judged) -> None:
    exposition = Exposition("replay", Tier.CORE)
    sizes = [len(text(judged, tier, exposition=exposition)) for tier in (None, Tier.FULL, Tier.CORE, None)]
    assert sizes[0] == sizes[2] == sizes[3] < sizes[1]
    packed = exposition.render(judged, OPENMETRICS, tier=Tier.CORE).text.decode()
    assert "wirewatch_health" in packed
    assert "wirewatch_rdma_port_errors" not in packed


def test_the_configuration_chooses_and_the_scrape_has_the_last_word(tmp_path: Path) -> None:
    with Daemon(("--replay", "h200x8"), tmp_path, FAST + '[metrics]\ntier = "core"\n') as daemon:
        daemon.ready()
        daemon.wait("/metrics", "wirewatch_nvlink_links{")
        core, full = daemon.get("/metrics"), daemon.get("/metrics?tier=full")
        assert "wirewatch_collector_cpu_seconds_total" not in core.text
        assert "wirewatch_collector_cpu_seconds_total" in full.text
        assert "wirewatch_collector_cpu_seconds_total" not in daemon.get("/metrics?tier=core").text
        refused = daemon.get("/metrics?tier=most")
        assert refused.status == 422
        assert "'core' or 'full'" in refused.text
