"""Every query of every dashboard against Debian's Prometheus and demo nodes, well and not."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards import BOARDS
from dashboards.parts import Blank, Table, queries, selected
from tests.dashboards.fleet import CLUSTER, many, wait
from tests.dashboards.grafana import put_in
from tests.dashboards.panels import answers
from tests.dashboards.rig import CALM, MACHINES, STORM, Rig, running
from tests.processes import run_wirewatch

pytestmark = pytest.mark.system

SOON = 150.0
NODE = "wirewatch-node"
EVERYTHING = {"cluster": ".*", "node": ".*", "gpu": ".*"}
MANY = 60
ROWS, LINES = 50, 40
"""At most, however many nodes: fewer than there are here."""
MORE = {
    "Versions by product": 100,
    "Path from GPU to NIC": 16 * 10,
    "Sent by single link": 16 * 18,
    "Lowest bus bandwidth of expected, by node": MANY,  # All of them are wanted.
    "Bad nodes, worst first": MANY,
    # Of one node.
    "Findings and what to do": 100,
    "Straggler scores": 8 * 7,
    "Peer matrix, of its median": 8 * 7,
}

NEVER_RECORDED = {"NICs one by one, by NCCL"}
"""Panels that no recording fills: a probe of NICs is off by default, and none was made on hardware yet."""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("rig")) as made:
        nodes = sum(machine.cluster == STORM for machine in MACHINES)
        made.prometheus.wait(f'count(wirewatch_job_ready{{cluster="storm"}}) == {nodes}', SOON)
        made.prometheus.wait('wirewatch:finding_severity:held{node="storm-3"} == 2', SOON)
        made.strike()
        yield made


def test_fleets_first_table_names_each_bad_node_once(rig: Rig) -> None:
    """One died while FAILED, one left service discovery, one hangs in NVML: as the command says it too."""
    first = BOARDS[0].rows[0].panels[0]
    assert isinstance(first, Table)
    wanted = {("storm-3", "failed"), ("storm-6", "unknown"), ("storm-7", "silent")}

    def rows() -> list[dict[str, Any]]:
        done = run_wirewatch("fleet", "status", "--prometheus", rig.prometheus.url, "--json")
        found: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
        return found

    def missing() -> list[str]:
        told, shown = rows(), rig.prometheus.instant(put_in(queries(first)[0], EVERYTHING))
        assert len({one["node"] for one in told}) == len(told)
        # On a busy machine a scrape is late now and then, and its node silent for as long.
        strange = {one["node"] for one in told} & {"calm-1", "calm-2"}
        apart = {one["metric"]["node"] for one in shown} ^ {one["node"] for one in told}
        left = wanted - {(one["node"], one["state"]) for one in told}
        return sorted({*strange, *apart, *(node for node, _ in left)})

    assert until_empty(missing) == []
    by_node = {one["node"]: one for one in rows()}
    assert by_node["storm-7"]["rule"] == "removed"
    assert by_node["storm-6"]["rule"].endswith(".blind")
    assert by_node["storm-6"]["subject"]["gpu"] == "5"
    assert by_node["storm-3"]["findings"] > 1


def test_on_healthy_nodes_every_panel_has_data_or_says_why_not(rig: Rig) -> None:
    def missing() -> list[str]:
        told = list(answers(rig.prometheus, CALM, "calm-1"))
        return [
            f"{one.board}: {one.panel} {one.series}"
            for one in told
            if one.blank in (None, Blank.PROBE) and not one.full
        ]

    assert until_empty(missing) == []


def test_what_may_be_empty_has_data_where_its_reason_does_not_hold(rig: Rig) -> None:
    storm = [machine.node for machine in MACHINES if machine.cluster == STORM]

    def missing() -> list[str]:
        full = {(o.board, o.panel) for node in storm for o in answers(rig.prometheus, STORM, node) if o.full}
        told = answers(rig.prometheus, STORM, storm[0])
        return [
            f"{one.board}: {one.panel}"
            for one in told
            if (one.board, one.panel) not in full and one.panel not in NEVER_RECORDED
        ]

    assert until_empty(missing) == []


def test_on_healthy_nodes_the_reasons_hold(rig: Rig) -> None:
    def full() -> list[str]:
        # A collector's panel asks for what is beside the failing ones too.
        return [
            one.panel
            for one in answers(rig.prometheus, CALM, "calm-1")
            if one.blank not in (None, Blank.PROBE, Blank.OTHER) and one.series[0]
        ]

    assert until_empty(full) == []


def test_a_busy_node_shows_no_results_of_probes(rig: Rig) -> None:
    told = [o for o in answers(rig.prometheus, STORM, "storm-2") if (o.board, o.blank) == (NODE, Blank.PROBE)]
    assert len(told) == 7
    assert [one.panel for one in told if one.series[0]] == []


def test_each_kind_of_event_happened(rig: Rig) -> None:
    seen, wanted = set(), set()
    for board in BOARDS:
        for event in board.events:
            wanted.add(event.name)
            query = put_in(selected(event.expr), EVERYTHING)
            if rig.prometheus.between(query, rig.began, time.time(), 5):
                seen.add(event.name)
    # No agent is restarted here, and no GPU is released; test_queries.py reads those. A ticket may wait.
    never = {"Agent restarted", "GPUs released"}
    assert never <= wanted - seen <= never | {"Alerts: tickets"}


def test_variables_offer_what_is_scraped(rig: Rig) -> None:
    for label, wanted in (("cluster", {CALM, STORM}), ("node", {m.node for m in MACHINES})):
        told = rig.prometheus.get(f"/api/v1/label/{label}/values?match[]=wirewatch_build_info")
        assert set(told["data"]) == wanted


def test_nothing_grows_with_the_number_of_nodes(rig: Rig, tmp_path: Path) -> None:
    page = rig.daemons["storm-1"].get("/metrics").text.encode()
    with many(tmp_path, page, MANY, 2) as prometheus:
        wait(prometheus, MANY, 3)
        told = list(answers(prometheus, CLUSTER, "n000"))
        most = {one.panel: MORE.get(one.panel, ROWS if one.table else LINES) for one in told}
        assert {one.panel: one.series for one in told if max(one.series) > most[one.panel]} == {}
        assert {one.blank for one in told if one.full} >= {Blank.FINDING, Blank.XID, Blank.GPUDIRECT}


def until_empty(missing: Callable[[], list[str]]) -> list[str]:
    """What is missing in the end; faults take a while to show."""
    end = time.monotonic() + SOON
    while (left := missing()) and time.monotonic() < end:
        time.sleep(3)
    return left
