"""Every bundled fault on the demo node: which findings it makes, of what, with which numbers and advice."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache

import pytest

from tests.rows import each
from tests.support import Node
from wirewatch.catalogue import rule_of
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Finding, Health
from wirewatch.hw.overlay import AnswerChange, bundled_overlays, load_overlay
from wirewatch.hw.recording import Key

DEMO = "demo-dgx-h200"
ROUNDS, EVERY, RARELY = 20, 15.0, 60.0
"""Rounds of so many seconds; the faults begin after 20 s, the last has shown itself after 4 minutes.

Collectors run in them as in service; those of five minutes, and ibstat, run each minute.
"""
OF_THE_DRIVER = frozenset({"gpu-hang", "gpu-slow", "driver-crash"})
"""These need a process that hangs or dies: tests/node/daemon/test_service_driver_faults.py."""
U = Health.UNKNOWN


def watch(node: Node, rounds: int = ROUNDS) -> None:
    for _ in watching(node, rounds):
        pass


def watching(node: Node, rounds: int = ROUNDS, untouched: Collection[str] = ()) -> Iterator[None]:
    """Poll it round by round, for whoever has seen enough before the last.

    Args:
        untouched: collectors that are not polled, since they are as on the healthy demo.
    """
    if "infiniband" in node.collectors:
        node.options("infiniband", ibstat_interval=RARELY)
    for number in range(rounds):
        for name in _due(node, number):
            if name not in untouched:
                node.poll(name, every=0.0)
        for name in untouched:
            node.state = node.state.with_component(_healthy().states[number].components[name])
        node.clock.seconds += EVERY
        yield


def _due(node: Node, number: int) -> list[str]:
    return [
        name
        for name, collector in node.collectors.items()
        if number * EVERY % max(EVERY, min(collector.options.interval, RARELY)) == 0
    ]


class Healthy:
    """The demo without a fault: its state after each round, and what each collector asks in all of them."""

    def __init__(self) -> None:
        node = Node(DEMO)
        node.options("infiniband", ibstat_interval=RARELY)
        node.nvml.gpus()
        self.of_all = frozenset(node.asked)
        self.asked: dict[str, set[Key]] = defaultdict(set)
        self.states: list[NodeState] = []
        for number in range(max(ROUNDS, *LATER.values())):
            for name in _due(node, number):
                node.asked.clear()
                node.poll(name, every=0.0)
                self.asked[name] |= node.asked
            self.states.append(node.state)
            node.clock.seconds += EVERY

    def untouched(self, changes: Sequence[AnswerChange]) -> frozenset[str]:
        """The collectors that ask nothing which these change: what each makes follows from its answers."""

        def touched(keys: Iterable[Key]) -> bool:
            return any(one.of(key) for one in changes for key in keys)

        return (
            frozenset()
            if touched(self.of_all)
            else frozenset(n for n, k in self.asked.items() if not touched(k))
        )


_healthy = cache(Healthy)


def playing(name: str) -> Iterator[Node]:
    """The demo with a bundled fault, after each round."""
    node = Node(DEMO, load_overlay(name).changes)
    for _ in watching(node, LATER.get(name, ROUNDS), _healthy().untouched(node.changes)):
        yield node


def played(name: str) -> Node:
    """The demo at the end of all rounds with a bundled fault."""
    *_, node = playing(name)
    return node


LATER = {"fabric-not-registered": 24}
"""Rounds of faults that show themselves only after a grace."""
AFTER_HALF_AN_HOUR = frozenset({"probe-fails"})
"""These show themselves only after several probes."""


HARMLESS = frozenset({"gpu-busy", "gpu-mig", "nic-moved", "peermem-unloaded"})
TABLE = {
    name: load_overlay(name).findings
    for name in bundled_overlays()
    if name not in OF_THE_DRIVER | AFTER_HALF_AN_HOUR
}
"""What each fault makes, by its own file."""


def without_blind(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, but for those that only say that a GPU which is lost cannot be read either."""
    every = list(findings)
    lost = {one.subject for one in every if one.rule == "gpu.lost"}
    return [one for one in every if not (one.subject in lost and one.rule.endswith(".blind"))]


def test_every_bundled_fault_says_what_it_makes() -> None:
    assert {name for name, findings in TABLE.items() if not findings} == HARMLESS
    assert len(TABLE) >= 25
    assert all(load_overlay(name).about for name in bundled_overlays())


@each("name", TABLE)
def test_what_a_fault_makes_is_declared_by_a_collector(name: str) -> None:
    for told in TABLE[name]:
        rule = rule_of(told.rule)
        assert rule is not None, f"no collector declares {told.rule}"
        assert told.health in rule.healths


def test_the_healthy_demo_has_no_finding() -> None:
    node = Node(DEMO)
    watch(node)
    assert node.findings() == ()
    assert node.health() is Health.OK
    assert all(c.applicable or not c.samples for c in node.state.components.values())


@pytest.mark.parametrize("name", TABLE)
def test_a_fault_makes_its_findings_and_no_other(name: str) -> None:
    node = played(name)
    found = {(f.rule, str(f.subject)): f for f in without_blind(node.shown())}
    assert {(*key, f.health) for key, f in found.items()} == {
        (t.rule, str(t.subject), t.health) for t in TABLE[name]
    }
    for told in TABLE[name]:
        finding = found[told.rule, str(told.subject)]
        assert told.evidence in finding.evidence
        assert told.action in finding.action


@pytest.mark.parametrize("name", ["ib-port-down", "nvlink-link-down", "probe-slow"])
def test_collectors_that_a_fault_does_not_touch_are_as_if_they_were_polled(name: str) -> None:
    node = Node(DEMO, load_overlay(name).changes)
    assert 0 < len(_healthy().untouched(node.changes)) < len(node.collectors)
    watch(node)
    assert node.state == played(name).state


def test_who_reads_gpus_is_blind_about_one_that_is_lost() -> None:
    node = played("gpu-lost")
    found = (f for one in node.state.components.values() for f in one.findings)
    blind = {f.rule for f in found if f.health is U and f.subject.gpu == "5"}
    assert blind >= {"gpu.blind", "nvlink.blind", "pcie.blind"}


def test_a_probe_that_cannot_be_done_is_reported_after_three_and_is_no_fault_of_the_hardware() -> None:
    node = Node(DEMO, load_overlay("probe-fails").changes, only=("inventory", "probe"))
    watch(node, 70)
    assert node.findings() == ()
    watch(node, 35)
    (told,) = node.findings()
    assert (told.rule, told.health) == ("probe.failed", U)
    assert "3 probes in a row failed" in told.evidence
    assert node.series("probe_runs_total", result="failed") == [3]


def test_a_busy_node_is_not_probed_and_says_why() -> None:
    node = played("gpu-busy")
    assert node.series("probe_skips_total", reason="busy") == [1]
    assert node.series("probe_last_success_timestamp_seconds") == [0]
    assert node.series("probe_busbw_ratio") == []


def test_mig_has_nothing_to_probe() -> None:
    node = played("gpu-mig")
    assert node.state.components["probe"].applicable is False
    assert node.state.components["probe"].health is None


def test_a_card_that_a_pod_has_is_reported_as_away() -> None:
    node = played("nic-moved")
    assert node.series("rdma_device_away_info", device="mlx5_4") == [1]


def test_without_peermem_dma_buf_is_likely() -> None:
    node = Node(DEMO, load_overlay("peermem-unloaded").changes)
    node.poll(times=2)
    assert node.series("gpudirect_info", peer_memory="dma-buf likely") == [1]
    assert node.series("gpudirect_check_state", check="peer_memory", state="passed") == [1]
