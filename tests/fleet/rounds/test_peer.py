"""One node's part in a pair: what its worker is asked, when the gate refuses, and what follows from times."""

from dataclasses import replace

import pytest

from tests.node.collectors.drawn import Watched
from tests.node.probe.idle import idle_gpus
from wirewatch.core.account import Account, Comm, Connection
from wirewatch.core.ports import Hold, Order, SlurmJob
from wirewatch.core.probe import (
    ALL_REDUCE,
    PROBED_SCHEMA,
    SEND,
    Document,
    Moved,
    Outcome,
    Part,
    Probed,
    ProbedGpu,
    Timed,
)
from wirewatch.core.types import Absent, Why
from wirewatch.probe.model import ProbeOptions
from wirewatch_fleet.rounds.peer import PeerRequest, take_part, worker_plan
from wirewatch_fleet.rounds.plan import PairWork, pair_plan

WORK = PairWork("distributed", ranks=2, size_bytes=1 << 20, iterations=4, environment={"NCCL_IB_HCA": "mlx5"})
PLAN = pair_plan("a", "b", "10.0.0.1:28700", WORK)
VERSIONS = {"nccl": "2.28.9"}
PORT = "/sys/class/infiniband/mlx5_0/ports/1"


class Node(Watched):
    """A node with idle GPUs; `outcome` and `wrong` make what comes of its worker."""

    def __init__(self, gpus: int = 2) -> None:
        super().__init__("probe", gpus=idle_gpus(gpus))
        self.probes.name = "distributed"
        self.probes.result = self._run
        self.outcome: Outcome = "ok"
        self.wrong = 0
        self.transports = ["NET/IB/0/GDRDMA", "P2P/CUMEM"]
        self.files.texts |= {
            f"{PORT}/counters/port_xmit_data": "1000", f"{PORT}/counters/symbol_error": "5",
            f"{PORT}/counters/port_rcv_data": "100", f"{PORT}/counters/link_downed": "4",
            "/sys/class/net/eth0/statistics/rx_bytes": "60",
            "/sys/class/net/eth0/statistics/tx_bytes": "50", "/sys/class/net/lo/statistics/tx_bytes": "9",
        }  # fmt: skip

    def _run(self, order: Order) -> Probed:
        self.files.texts[f"{PORT}/counters/port_xmit_data"] = "3000"
        self.files.texts[f"{PORT}/counters/symbol_error"] = "7"
        self.files.texts[f"{PORT}/counters/port_rcv_data"] = "600"
        self.files.texts[f"{PORT}/counters/link_downed"] = "0"
        # Each later case takes 1 ms more than the one before it.
        timed = tuple(
            Timed(
                one.group, one.op, one.size_bytes, "stream", 4, 7, 1e-3 * place, 1e-3, 1e-3, 1e-3, self.wrong
            )
            for place, one in enumerate(order.plan.cases, 1)
        )
        good = self.outcome == "ok"
        links = tuple(Connection(0, 2, one, 1) for one in self.transports)
        comm = Comm("c", 4, {}, (), Absent(Why.MISSING, ""), 2, Absent(Why.MISSING, ""), links, ())
        return Probed(
            PROBED_SCHEMA, 1e9, "command", forced=False, outcome=self.outcome, why="" if good else "as drawn",
            plan=order.plan, gpus=tuple(ProbedGpu(gpu.index, gpu.uuid) for gpu in order.gpus), conditions=(),
            settings={}, seconds=9.0, held_seconds=5.0,
            document=Document("wirewatch.worker/1", "distributed", VERSIONS, timed) if good else None,
            account=Account("2.28.9", (comm,), (), (), (), (), 0, "IB") if self.transports else None,
            parts=(Part("cases", 1.0, (Moved(1, 5, 5, {"crc": 3, "replay": 0}),)),) if order.gpus[1:] else (),
        )  # fmt: skip


def part(node: Node, name: str = "a", owner: str | None = None) -> tuple[str, str]:
    answer = take_part(node.hardware, PeerRequest(PLAN, name, owner), ProbeOptions())
    return answer.cause, answer.why


def test_both_nodes_run_the_same_cases_of_one_world() -> None:
    first, second = (worker_plan(PLAN, name, ("x", "y")) for name in ("a", "b"))
    assert first.meeting is not None
    assert second.meeting == replace(first.meeting, node=1)
    assert replace(second, meeting=first.meeting) == first
    assert first.groups == ((0, 1, 2, 3), (2, 3, 0, 1), (0, 2), (2, 0), (1, 3), (3, 1))
    assert [(case.group, case.op) for case in first.cases] == [
        (2, SEND), (3, SEND), (4, SEND), (5, SEND), (0, SEND), (1, SEND), (0, ALL_REDUCE)
    ]  # fmt: skip
    assert (first.ranks, first.first_rank, second.first_rank) == (4, 0, 2)
    assert first.environment == (("NCCL_IB_HCA", "mlx5"),)


def test_one_gpu_a_node_has_no_rails() -> None:
    plan = worker_plan(PLAN, "a", ("x",))
    assert [(case.group, case.op) for case in plan.cases] == [(0, SEND), (1, SEND), (0, ALL_REDUCE)]


def test_rates_follow_from_times_and_what_grew_is_reported() -> None:
    node = Node()
    answer = take_part(node.hardware, PeerRequest(PLAN, "a"), ProbeOptions())
    size = 1 << 20
    assert answer.cause == ""
    assert list(answer.rails) == ["0", "1"]
    assert answer.rails["0"] == pytest.approx((size / 1e-3, size / 2e-3))
    assert answer.rails["1"] == pytest.approx((size / 3e-3, size / 4e-3))
    assert answer.sends == pytest.approx(2 * size / 5e-3)
    assert answer.receives == pytest.approx(2 * size / 6e-3)
    assert answer.all_reduce == pytest.approx(2 * 3 / 4 * size / 7e-3)
    assert (answer.end.transport, answer.end.gpudirect) == ("NET/IB", True)
    assert (answer.end.sent, answer.end.received) == ({"mlx5_0:1": 8000}, {"mlx5_0:1": 2000})
    assert answer.end.versions == VERSIONS
    assert answer.end.errors == {"mlx5_0:1 symbol_error": 2, "GPU 1 NVLink crc": 3}
    assert (answer.seconds, answer.gpu_seconds) == (9.0, 10.0)
    (order,) = node.probes.ordered
    assert (order.deadline, [gpu.uuid for gpu in order.gpus]) == (WORK.seconds, ["GPU-0", "GPU-1"])


def test_one_connection_beside_gpudirect_is_reported() -> None:
    node = Node()
    node.transports = ["NET/IB/0/GDRDMA", "NET/IB/1"]
    answer = take_part(node.hardware, PeerRequest(PLAN, "a"), ProbeOptions())
    assert (answer.end.transport, answer.end.gpudirect) == ("NET/IB", False)


@pytest.mark.parametrize("transports", [[], ["P2P/CUMEM", "SHM"]])
def test_without_a_network_in_nccls_log_none_is_named(transports: list[str]) -> None:
    node = Node()
    node.transports = transports
    answer = take_part(node.hardware, PeerRequest(PLAN, "a"), ProbeOptions())
    assert (answer.cause, answer.end.transport, answer.end.gpudirect) == ("", "", None)


def test_processors_take_no_gpu_and_ask_about_none() -> None:
    node = Node()
    node.probes.name, node.transports = "gloo", []
    node.gpus.table["GPU-1", "ComputeRunningProcesses()"] = [{"pid": 4711, "usedGpuMemory": 1}]
    plan = replace(PLAN, work=replace(WORK, engine="gloo"))
    answer = take_part(node.hardware, PeerRequest(plan, "a"), ProbeOptions())
    assert (answer.cause, answer.end.transport, answer.end.gpudirect) == ("", "gloo", None)
    (order,) = node.probes.ordered
    assert (order.gpus, order.plan.gpus) == ((), ("cpu:0", "cpu:1"))


def test_of_one_gpu_a_node_only_the_whole_is_measured() -> None:
    node = Node(1)
    plan = replace(PLAN, work=replace(WORK, ranks=1))
    answer = take_part(node.hardware, PeerRequest(plan, "a"), ProbeOptions())
    assert (answer.cause, len(answer.rails)) == ("", 0)
    assert answer.sends == pytest.approx((1 << 20) / 1e-3)


def test_gpus_that_cannot_be_listed_are_refused() -> None:
    node = Node()
    node.gpus.absent = Absent(Why.LOST, "no driver")
    cause, why = part(node)
    assert (cause, why.startswith("blind: the GPUs cannot be listed: ")) == ("refused", True)


def test_gpus_that_others_use_are_refused_with_the_reason() -> None:
    node = Node()
    node.gpus.table["GPU-1", "ComputeRunningProcesses()"] = [{"pid": 4711, "usedGpuMemory": 1}]
    assert part(node) == ("refused", "busy: GPU 1 is used by process 4711")
    assert not node.probes.ordered


def test_gpus_of_a_job_are_for_that_job_alone() -> None:
    node = Node(4)
    node.jobs.told = (SlurmJob("7", "RUNNING", (2, 3)),)
    assert part(node)[0] == "refused"
    assert part(node, owner="slurm:7") == ("", "")
    assert [gpu.uuid for gpu in node.probes.ordered[0].gpus] == ["GPU-2", "GPU-3"]


def test_a_pair_gives_way_to_holds_but_to_that_of_its_own_job() -> None:
    node = Node()
    node.jobs.told = [SlurmJob("7", "RUNNING", (0, 1))]
    own, other = (Hold(f"slurm:{job}", 1e9, None) for job in (7, 8))
    node.probes.held = [own]
    assert part(node, owner="slurm:7") == ("", "")
    order = node.probes.ordered[0]
    assert order.unwanted() is None
    node.probes.held = [own, other]
    assert (order.unwanted() or "").startswith("slurm:8 was given GPUs")
    cause, why = part(node, owner="slurm:7")
    assert (cause, why.startswith("hold: slurm:8 holds GPUs")) == ("refused", True)


def test_fewer_gpus_than_the_plan_takes_are_refused() -> None:
    plan = replace(PLAN, work=replace(WORK, ranks=4))
    answer = take_part(Node(2).hardware, PeerRequest(plan, "a"), ProbeOptions())
    assert (answer.cause, answer.why) == ("refused", "few_gpus: 2 of the 4 GPUs that are asked for")


def test_a_lock_that_is_held_and_an_engine_that_is_missing() -> None:
    node = Node()
    node.probes.holder = "another probe"
    assert part(node) == ("refused", "locked: another probe")
    node.probes.holder, node.probes.name = None, Absent(Why.MISSING, "no torch")
    assert part(node) == ("refused", "no_engine: no torch")


@pytest.mark.parametrize(
    ("outcome", "cause", "why"),
    [
        ("preempted", "preempted", "as drawn"),
        ("timeout", "failed", "timeout: as drawn"),
        ("failed", "failed", "as drawn"),
    ],
)
def test_what_ended_it_early_is_the_answer(outcome: Outcome, cause: str, why: str) -> None:
    node = Node()
    node.outcome = outcome
    assert part(node) == (cause, why)


def test_wrong_data_is_no_measurement() -> None:
    node = Node()
    node.wrong = 2
    assert part(node) == ("failed", "wrong data: 14 elements did not come as they were sent")
