"""The engine with a process a GPU, as far as a machine without any can tell: gloo stands in for NCCL."""

from dataclasses import replace
from typing import Any

import pytest

from tests.groups import dies as gone
from tests.node.worker.workerprocess import WorkerProcess, torch_python
from wirewatch.core.probe import KIB, MIB, OPS, PRIMITIVES, Case, Document, Plan

pytestmark = pytest.mark.system

PLAN = Plan(
    "distributed", ("GPU-a", "GPU-b", "GPU-c", "GPU-d"), ((0, 1, 2, 3), (1, 3)), latency_sizes=(8, KIB),
    bandwidth=((MIB, 3),), latency_iterations=5, copy_bytes=64 * KIB,
)  # fmt: skip


def measured(full: str = "", **changes: Any) -> Document:
    command = (torch_python(), "-m", "tests.node.worker.ranks_on_cpu")
    with WorkerProcess(replace(PLAN, **changes), command, {"FULL": full}) as worker:
        document = worker.document()
        assert gone(worker.process.pid)
    return document


def test_a_whole_probe_from_the_host_with_copies_and_what_each_gpu_does_alone() -> None:
    document = measured()
    assert document.error is None
    assert document.engine == "distributed"
    assert (document.versions["nccl"], document.versions["cuda_driver"]) == ("2.28.9", "13.0")
    assert [(t.group, t.op, t.size_bytes, t.launch) for t in document.collectives] == [
        (group, op, size, "stream") for group in (0, 1) for op in OPS for size in PLAN.sizes()
    ]
    for timed in document.collectives:
        assert timed.wrong == 0
        assert 0 < timed.low <= timed.median <= timed.high
    ways = sorted((copy.source, copy.destination) for copy in document.copies)
    assert ways == [(a, b) for a in range(4) for b in range(4) if a != b]
    assert [micro.gpu for micro in document.micros] == [0, 1, 2, 3]
    assert all(0 < micro.gemm_low <= micro.gemm_mean for micro in document.micros)
    assert all(0 < seconds < document.cost.done for seconds in document.cost.kernel_seconds)


def test_every_primitive_is_right_by_value() -> None:
    cases = tuple(Case(g, op, size, "graph", 2) for g in (0, 1) for op in PRIMITIVES for size in (8, 1 << 16))
    document = measured(ops=(), cases=cases, copy_bytes=0, micro=False, dtype="bfloat16")
    assert (document.error, document.not_offered) == (None, ())
    assert [(t.op, t.size_bytes, t.wrong) for t in document.collectives] == [
        (case.op, case.size_bytes, 0) for case in cases
    ]


@pytest.mark.parametrize("full", ["0", "2"])
def test_one_gpu_without_memory_is_an_error_of_all_and_no_hang(full: str) -> None:
    document = measured(full)
    assert document.error is not None
    assert document.error.kind == "out_of_memory"
    assert document.error.text.startswith(f"rank {full}: torch says out of memory: no room for buffers of")
    assert not document.collectives
