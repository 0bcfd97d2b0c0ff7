"""How many series there are, and how many there may be: each collector says its number."""

import pytest

from tests.support import Node
from tools.pages import OF_EACH_COLLECTOR, OF_THE_DAEMON
from wirewatch.catalogue import components
from wirewatch.core.collector import AnyCollector, NodeState
from wirewatch.server.exposition import Exposition
from wirewatch.server.reload import WebReport
from wirewatch.verdict.node import judge_state

HOPPER_DETAIL, BLACKWELL_DETAIL = 1140, 2380
"""Series of NVLink with link detail."""
LINKS = 18
PORTS = 8


def eight_of_each(*also: str) -> Node:
    """The demo node without the two ports that are not for the GPUs, probed."""
    node = Node("demo-dgx-h200", also=also)
    node.options("probe", settle=0.0)
    node.options("infiniband", exclude=("mlx5_[89]",))
    node.options("gpudirect", exclude=("mlx5_[89]",))
    return node


def count(state: NodeState) -> int:
    text = Exposition("replay").render(judge_state(state), web=WebReport(reloaded=True)).text
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines), "a series twice"
    return len(lines)


def made(node: Node, collector: str) -> int:
    return len(node.state.components[collector].samples)


@pytest.fixture(scope="module")
def polled() -> Node:
    node = eight_of_each(*(one.name for one in components()))
    node.poll(times=2)
    return node


@pytest.mark.parametrize("collector", components(), ids=lambda one: one.name)
def test_a_collector_makes_no_more_series_than_it_says(collector: AnyCollector, polled: Node) -> None:
    assert made(polled, collector.name) <= collector.series


def test_the_daemon_adds_a_few_and_some_for_each_collector(polled: Node) -> None:
    assert len(polled.series("rdma_port_rate_bytes_per_second")) == PORTS
    assert len(polled.series("peer_bandwidth_bytes_per_second")) == 8 * 7
    own = count(polled.state) - sum(made(polled, name) for name in polled.state.components)
    assert own <= OF_THE_DAEMON + OF_EACH_COLLECTOR * len(polled.state.components)


def test_the_hint_of_a_job_on_every_gpu_is_within_the_budget_too() -> None:
    node = eight_of_each("lockstep")
    node.change("gpu*/GpmSupported()", "set", True)  # noqa: FBT003
    node.poll(times=2)
    node.change("gpu*/ComputeRunningProcesses()", "set", [{"pid": 4711}])
    shares = dict.fromkeys(("1", "2", "5", "10", "11", "12", "13"), 90.0)
    looked = {"seconds": 7.4, "metrics": {**shares, "60": 4000.0, "61": 4000.0}}
    node.change("gpu*/GpmSince(*)", "set", looked)
    node.poll("lockstep", times=9, every=7.5)
    assert node.series("straggler_hint") == [0] * 8
    assert node.series("gpu_sm_busy_ratio") == [0.9] * 8
    assert made(node, "lockstep") == node.collectors["lockstep"].series


def test_link_detail_on_hopper() -> None:
    node = eight_of_each()
    node.options("nvlink", link_detail=True)
    node.poll("nvlink", times=2)
    assert len(node.series("nvlink_link_up")) == 8 * LINKS
    for metric in ("transmit_bytes", "receive_bytes", "errors"):
        # The 8-GPU recording holds single counters for every link at its first moment only.
        assert len(node.series(f"nvlink_link_{metric}_total")) >= 8 * LINKS
    assert made(node, "nvlink") <= HOPPER_DETAIL


def test_link_detail_with_the_error_kinds_of_blackwell() -> None:
    node = eight_of_each()
    node.options("nvlink", link_detail=True)
    node.change("gpu*/Field(1[46][0-3],*)", "code", 3)
    for field in (201, 202, 203, 204, *range(206, 215), 219, 221):
        node.change(f"gpu*/Field({field},*)", "set", 0)
    node.change("gpu*/Field(220,*)", "set", 15 << 8 | 255)
    node.poll("nvlink", times=2)
    kinds = len(node.series("nvlink_link_errors_total", gpu="0", link="0"))
    assert kinds == 11
    assert made(node, "nvlink") <= BLACKWELL_DETAIL


def test_findings_on_every_part_at_once_stay_bounded() -> None:
    node = Node()
    healthy = Node()
    healthy.poll(times=3)
    node.change("gpu*/Field(165,[0-9])", "set", 0)
    node.change("gpu*/CurrPcieLinkWidth()", "set", 1)
    node.change("gpu*/RemappedRows()", "set", [1, 1, 1, 1])
    node.change("gpu*/Field(230)", "set", 1)
    node.poll(times=3)
    assert count(node.state) - count(healthy.state) <= 2 * 8 * (10 + 4)
