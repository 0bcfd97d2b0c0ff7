"""How many series there are, and how many there may be.

The budgets are for the finished agent on 8 GPUs and 8 ports. What later collectors will need is set aside
here by name, so that what exists today must leave it free.
"""

from collections.abc import Sequence

from tests.support import Node
from wirewatch.core.component import NodeState
from wirewatch.export.prometheus import Exposition
from wirewatch.export.web.counts import Told
from wirewatch.verdict.node import judged

BUDGET, HOPPER_DETAIL, BLACKWELL_DETAIL = 1200, 2200, 3500
SET_ASIDE = {
    "stragglers that are named": 8,
    "XIDs that happen": 16,
}
LINKS = 18
PORTS = 8


def eight_of_each(also: Sequence[str] = ()) -> Node:
    """The demo node without the two ports that are not for the GPUs, probed."""
    node = Node("demo-dgx-h200", also=also)
    node.options("probe", settle=0.0)
    node.options("infiniband", exclude=("mlx5_[89]",))
    node.options("gpudirect", exclude=("mlx5_[89]",))
    return node


def count(state: NodeState) -> int:
    text, _ = Exposition("replay").render(judged(state), "", Told(reloaded=True))
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines), "a series twice"
    return len(lines)


def test_eight_gpus_and_ports_leave_room_for_what_is_to_come() -> None:
    node = eight_of_each()
    node.poll(times=2)
    assert len(node.series("rdma_port_rate_bytes_per_second")) == PORTS
    assert len(node.series("peer_bandwidth_bytes_per_second")) == 8 * 7
    assert count(node.state) + sum(SET_ASIDE.values()) <= BUDGET


def test_the_hint_of_a_job_on_every_gpu_is_within_the_budget_too() -> None:
    node = eight_of_each(also=("lockstep",))
    node.change("gpu*/GpmSupported()", "set", True)  # noqa: FBT003
    node.poll(times=2)
    without = count(node.state)
    node.change("gpu*/ComputeRunningProcesses()", "set", [{"pid": 4711}])
    shares = dict.fromkeys(("1", "2", "5", "10", "11", "12", "13"), 90.0)
    looked = {"seconds": 7.4, "metrics": {**shares, "60": 4000.0, "61": 4000.0}}
    node.change("gpu*/GpmSince(*)", "set", looked)
    node.poll("lockstep", times=9, every=7.5)
    assert node.series("straggler_hint") == [0] * 8
    assert node.series("gpu_sm_busy_ratio") == [0.9] * 8
    assert count(node.state) == without + 16
    # Switched on, it is the collector that something was set aside for.
    later = sum(number for what, number in SET_ASIDE.items() if what != "a collector")
    assert count(node.state) + later <= BUDGET


def test_link_detail_on_hopper() -> None:
    node = eight_of_each()
    node.options("nvlink", link_detail=True)
    node.poll(times=2)
    assert len(node.series("nvlink_link_up")) == 8 * LINKS
    for metric in ("transmit_bytes", "receive_bytes", "errors"):
        # The 8-GPU recording holds single counters for every link at its first moment only.
        assert len(node.series(f"nvlink_link_{metric}_total")) >= 8 * LINKS
    assert count(node.state) + sum(SET_ASIDE.values()) <= HOPPER_DETAIL


def test_link_detail_with_the_error_kinds_of_blackwell() -> None:
    node = eight_of_each()
    node.options("nvlink", link_detail=True)
    node.change("gpu*/Field(1[46][0-3],*)", "code", 3)
    for field in (201, 202, 203, 204, *range(206, 215), 219, 221):
        node.change(f"gpu*/Field({field},*)", "set", 0)
    node.change("gpu*/Field(220,*)", "set", 15 << 8 | 255)
    node.poll(times=2)
    kinds = len(node.series("nvlink_link_errors_total", gpu="0", link="0"))
    assert kinds == 11
    assert count(node.state) + sum(SET_ASIDE.values()) <= BLACKWELL_DETAIL


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
