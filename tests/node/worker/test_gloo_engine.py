"""The gloo engine: real torch, real processes, the loopback interface."""

import os
import re
import signal
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.groups import dies as gone
from tests.node.worker.workerprocess import WorkerProcess, torch_python
from tests.patience import HANGS
from tests.waiting import until
from wirewatch.core.probe import (
    ALL_REDUCE,
    BROADCAST,
    DTYPES,
    GATHER,
    KIB,
    MIB,
    OPS,
    PRIMITIVES,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SENDRECV,
    Case,
    Document,
    Plan,
    wrong_in_document,
)

pytestmark = pytest.mark.system

GROUPS = {1: ((0,),), 2: ((0, 1),), 4: ((0, 1, 2, 3), (3, 1))}


def plan_of(ranks: int) -> Plan:
    return Plan(
        "gloo", tuple(f"rank {n}" for n in range(ranks)), GROUPS[ranks], latency_sizes=(8, KIB),
        bandwidth=((MIB, 3), (4 * MIB, 2)), latency_iterations=5, copy_bytes=256 * KIB,
    )  # fmt: skip


def working(plan: Plan, spoilt: str = "") -> WorkerProcess:
    module = "tests.node.worker.spoilt" if spoilt else "wirewatch.worker"
    return WorkerProcess(plan, (torch_python(), "-m", module), {"SPOILT": spoilt})


def measured(plan: Plan, spoilt: str = "") -> Document:
    with working(plan, spoilt) as worker:
        return worker.document()


def of_all_primitives(**changes: Any) -> Plan:
    """Of sizes of which a rank's share is less than 16 bytes, not whole 16 bytes, and whole."""
    cases = [
        Case(group, op, size, "graph", 2)
        for group in (0, 1)
        for op in PRIMITIVES
        for size in (8, 1000, 1 << 16)
    ]
    return replace(
        plan_of(4),
        ops=(),
        latency_sizes=(),
        bandwidth=(),
        cases=tuple(cases),
        copy_bytes=0,
        micro=False,
        **changes,
    )


@pytest.fixture(scope="module", params=[1, 2, 4])
def run(request: pytest.FixtureRequest) -> tuple[Plan, Document]:
    plan = plan_of(request.param)
    with working(plan) as worker:
        document = worker.document()
        assert worker.process.returncode == 0
        assert gone(worker.process.pid)
    return plan, document


def test_every_collective_of_every_group_is_timed_and_right(run: tuple[Plan, Document]) -> None:
    plan, document = run
    assert document.error is None
    assert document.engine == "gloo"
    assert [(t.group, t.op, t.size_bytes) for t in document.collectives] == [
        (group, op, size) for group in range(len(plan.groups)) for op in OPS for size in plan.sizes()
    ]
    for timed in document.collectives:
        assert timed.wrong == 0
        assert timed.launch == "host"
        expected = 5 if timed.size_bytes in plan.latency_sizes else plan.runs(timed.size_bytes)
        assert timed.iterations == expected
        assert timed.runs == expected + plan.warmup + 1
        assert 0 < timed.low <= timed.median <= timed.high
        assert timed.low <= timed.seconds


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_primitive_of_every_type_is_right_by_value(dtype: str) -> None:
    plan = of_all_primitives(dtype=dtype)
    document = measured(plan)
    assert (document.error, document.not_offered) == (None, ())
    asked = [(case.group, case.op, case.size_bytes, "host") for case in plan.cases]
    assert [(t.group, t.op, t.size_bytes, t.launch) for t in document.collectives] == asked
    assert {timed.wrong for timed in document.collectives} == {0}


IN_PLACE_ALONE = {ALL_REDUCE, BROADCAST, REDUCE}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_out_of_place_is_what_torch_has_so_and_the_others_are_said_to_be_missing(dtype: str) -> None:
    document = measured(of_all_primitives(dtype=dtype, in_place=False))
    assert document.error is None
    assert set(document.not_offered) == IN_PLACE_ALONE
    assert {timed.op for timed in document.collectives} == set(PRIMITIVES) - IN_PLACE_ALONE
    assert {timed.wrong for timed in document.collectives} == {0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_one_wrong_element_of_one_rank_is_seen_in_every_primitive(dtype: str) -> None:
    document = measured(of_all_primitives(dtype=dtype), "element")
    large = [timed for timed in document.collectives if timed.size_bytes > 8]
    assert {timed.op for timed in large} == set(PRIMITIVES)
    assert {timed.wrong for timed in large} == {1}


def test_what_is_never_sent_is_missed_in_every_element() -> None:
    document = measured(of_all_primitives(in_place=False), "nothing")
    for timed in document.collectives:
        if (timed.group, timed.size_bytes) == (0, 1 << 16):
            whole = 1 << 14
            wrong = {GATHER: whole, REDUCE_SCATTER: whole, SCATTER: whole}.get(timed.op, 4 * whole)
            assert (timed.op, timed.wrong) == (timed.op, wrong)


def test_a_size_for_which_there_is_no_memory_is_named() -> None:
    plan = replace(of_all_primitives(), cases=(Case(0, ALL_REDUCE, 1 << 50, "stream", 1),))
    document = measured(plan)
    assert document.error is not None
    assert document.error.kind == "out_of_memory"
    assert "all_reduce of 1125899906842624 bytes" in document.error.text


def test_one_rank_alone_has_nobody_to_send_to() -> None:
    document = measured(replace(plan_of(1), ops=(*OPS, SENDRECV)))
    assert (document.error, document.not_offered) == (None, (SENDRECV,))


def test_registered_buffers_are_refused() -> None:
    document = measured(replace(plan_of(2), registered=True))
    assert document.error is not None
    assert (document.error.kind, "register" in document.error.text) == ("no_engine", True)


def test_every_pair_copies_both_ways(run: tuple[Plan, Document]) -> None:
    plan, document = run
    ranks = range(len(plan.gpus))
    ways = [(copy.source, copy.destination) for copy in document.copies]
    assert sorted(ways) == [(a, b) for a in ranks for b in ranks if a != b]
    for copy in document.copies:
        assert copy.seconds > 0
        assert copy.runs == plan.copies + 1
        assert copy.size_bytes == plan.copy_bytes
        assert not copy.direct


def test_every_rank_says_what_it_does_alone(run: tuple[Plan, Document]) -> None:
    plan, document = run
    assert [micro.gpu for micro in document.micros] == list(range(len(plan.gpus)))
    for micro in document.micros:
        assert 0 < micro.gemm_low <= micro.gemm_seconds <= micro.gemm_high
        assert 0 < micro.copy_low <= micro.copy_seconds <= micro.copy_high
        assert micro.copy_bytes == plan.copy_bytes


def test_processors_have_no_host_link_and_say_so() -> None:
    plan = replace(plan_of(2), ops=(), copy_bytes=0, micro=False, host_bytes=1 << 20)
    with working(plan) as worker:
        document = worker.document()
    assert document.error is None
    assert document.hosts == ()
    assert document.no_hosts == "the engine gloo measures no host links; nccl and torch do"
    assert wrong_in_document(document, plan) == ""


def test_the_cost_is_that_of_all_ranks(run: tuple[Plan, Document]) -> None:
    plan, document = run
    cost = document.cost
    assert len(cost.kernel_seconds) == len(plan.gpus)
    assert all(0 < seconds < cost.done for seconds in cost.kernel_seconds)
    assert 0 < cost.imported < cost.contexts < cost.communicators < cost.done
    assert cost.cpu_seconds > 0.1
    assert cost.host_bytes > 100 * MIB
    assert document.versions["torch"].startswith("2.")


def test_while_it_pauses_nothing_is_lost_and_the_ranks_wait() -> None:
    with working(replace(plan_of(2), pauses=True)) as worker:
        worker.until("all_gather.0")
        time.sleep(1.0)
        assert len(worker.living()) == 2
        worker.say()
        worker.until("end")
        worker.say()
        document = worker.document()
        assert document.error is None
        # Waiting for a leader that waits for somebody to read counters is not work.
        leader, other = document.cost.kernel_seconds
        assert abs(leader - other) < 0.8


def test_killing_its_group_leaves_no_process() -> None:
    with working(replace(plan_of(4), pauses=True)) as worker:
        worker.until("all_reduce.0")
        assert len(worker.living()) == 4
        os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait(HANGS)
        assert gone(worker.process.pid)


def test_the_ranks_die_with_their_leader() -> None:
    with working(replace(plan_of(4), pauses=True)) as worker:
        worker.until("all_gather.0")
        worker.process.kill()
        worker.process.wait(HANGS)
        assert gone(worker.process.pid, 2.0)


def test_nothing_is_left_when_nobody_listens_any_more() -> None:
    with working(replace(plan_of(2), pauses=True)) as worker:
        worker.until("copies")
        worker.stdin.close()
        assert worker.data(5) == b""
        assert gone(worker.process.pid)


def test_a_rank_that_dies_is_an_error_and_not_a_hang() -> None:
    with working(replace(plan_of(4), pauses=True)) as worker:
        worker.until("reduce_scatter.0")
        others = worker.living() - {worker.process.pid}
        os.kill(max(others), signal.SIGKILL)
        worker.say()
        document = worker.document()
        assert document.error is not None
        assert document.error.kind == "internal"
        assert [t.op for t in document.collectives] == ["all_reduce"] * 4 + ["all_gather"] * 4
        assert gone(worker.process.pid)


def test_a_rank_that_dies_before_the_ranks_have_met_is_an_error_and_not_a_hang() -> None:
    """Where nothing of gloo notices it: the others wait in the file through which they meet."""
    with working(plan_of(4), "late") as worker:
        alive = until("four ranks", lambda: ranks if len(ranks := worker.living()) == 4 else None, every=0.02)
        os.kill(max(alive - {worker.process.pid}), signal.SIGKILL)
        document = worker.document()
        assert document.error is not None
        assert document.error.kind == "internal"
        assert re.search(r"the process of a rank, \d+, ended by SIGKILL$", document.error.text)
        assert gone(worker.process.pid)
