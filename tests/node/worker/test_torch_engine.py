"""The torch engine's own arithmetic, on the CPU, against the kernels' formula in plain Python."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.node.worker.elements import total, value
from tests.node.worker.workerprocess import ROOT, WorkerProcess, document_of, torch_python
from tests.patience import HANGS
from wirewatch.core.probe import BROADCAST, DTYPES, OPS, PRIMITIVES, REDUCE, Document, Plan, encode_plan
from wirewatch.worker.layout import modulus

pytestmark = pytest.mark.system

Ask = Callable[..., Any]
PLAN = Plan(
    "torch", ("GPU-a", "GPU-b", "GPU-c"), ((0, 1, 2), (2, 0)), latency_sizes=(8, 1024),
    bandwidth=((1 << 16, 3),), latency_iterations=4, copy_bytes=1 << 12, host_bytes=1 << 13,
)  # fmt: skip


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    command = [torch_python(), "-m", "tests.node.worker.in_torch"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:

        def question(*told: object) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{json.dumps(told)}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield question
        assert process.stdin is not None
        process.stdin.close()


@given(st.integers(0, 2**34), st.integers(1, 40), st.integers(0, 15), st.integers(1, 254))
@example(2**31 - 3, 6, 0, 254)
@example(2**32 - 3, 6, 7, 31)
@example(0, 600, 3, 254)
def test_values_and_sums_are_those_of_the_formula(
    ask: Ask, first: int, count: int, rank: int, modulus: int
) -> None:
    indices = range(first, first + count)
    assert ask("values", first, count, rank, modulus) == [value(i, rank, modulus) for i in indices]
    assert ask("totals", first, count, rank + 1, modulus) == [total(i, rank + 1, modulus) for i in indices]


def test_a_buffer_that_is_longer_than_a_part_is_filled_like_a_short_one(ask: Ask) -> None:
    assert ask("filled", (1 << 22) + 5, 3)
    assert ask("filled", 7, 0)


@given(st.data())
def test_every_wrong_element_of_every_type_is_counted_once(ask: Ask, data: st.DataObject) -> None:
    dtype, ranks = data.draw(st.sampled_from(sorted(DTYPES))), data.draw(st.integers(1, 8))
    mod, each, first = modulus(dtype, ranks), data.draw(st.integers(1, 50)), data.draw(st.integers(0, 999))
    stride, rank = data.draw(st.sampled_from([0, each])), data.draw(st.integers(0, ranks - 1))
    ask("chunk", data.draw(st.sampled_from([1, 3, 16, 1 << 22])))
    expected: dict[str, int] | int = first
    told: list[int | None] = [total(first + i, ranks, mod) for i in range(each)]
    if data.draw(st.booleans()):
        expected = {"each": each, "first": first, "stride": stride, "rank": rank}
        told = [
            value(first + piece * stride + i, rank + piece, mod) for piece in range(3) for i in range(each)
        ]
    assert ask("wrong", dtype, told, expected, ranks, mod) == 0
    spoilt = data.draw(st.sets(st.integers(0, len(told) - 1)))
    for position in spoilt:
        kept = told[position]
        assert kept is not None
        told[position] = data.draw(st.sampled_from([None, kept - 1, kept // 2, 0]))
    assert ask("wrong", dtype, told, expected, ranks, mod) == len(spoilt)


@given(st.permutations(["GPU-aa-1", "GPU-bb-2", "GPU-cc-3"]), st.integers(1, 3))
def test_gpus_are_found_by_uuid_whatever_their_number(ask: Ask, wanted: list[str], count: int) -> None:
    seen = {"AA-1": 2, "bb-2": 0, "GPU-cc-3": 1}
    numbers = {"GPU-aa-1": 2, "GPU-bb-2": 0, "GPU-cc-3": 1}
    assert ask("matching", wanted[:count], seen) == [numbers[uuid] for uuid in wanted[:count]]


@given(st.text(min_size=1))
def test_a_gpu_that_is_not_there_is_named(ask: Ask, uuid: str) -> None:
    assume(uuid.lower().removeprefix("gpu-") != "aa-1")
    told = ask("matching", ["GPU-aa-1", uuid], {"aa-1": 0})
    assert told.startswith(f"no_device: torch does not show {uuid}")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "nccl"),
        ("CUDA error: out of memory\nCUDA kernel errors might be ...", "out_of_memory"),
        ("CUDA out of memory. Tried to allocate 512.00 MiB.", "out_of_memory"),
        ("No CUDA GPUs are available", "no_device"),
        ("Found no NVIDIA driver on your system.", "no_device"),
        ("CUDA error: an illegal memory access was encountered", "driver"),
        ("", "driver"),
    ],
)
def test_errors_of_torch_are_reported_by_their_first_line(ask: Ask, text: str, kind: str) -> None:
    assert ask("kind", text) == kind
    told_kind, told = ask("told", "runtime", text)
    assert told_kind == kind
    assert told == f"torch says {text.splitlines()[0] if text else 'RuntimeError'}"


def test_errors_of_other_classes_are_reported_too_and_ours_stay_as_they_are(ask: Ask) -> None:
    assert ask("told", "memory", "CUDA out of memory.")[0] == "out_of_memory"
    assert ask("told", "deferred", "CUDA call failed lazily")[0] == "driver"
    assert ask("told", "ours", "NCCL") == ["internal", "NCCL"]


def on_cpu(*spoils: str, plan: Plan = PLAN) -> Document:
    ended = subprocess.run(
        [torch_python(), "-m", "tests.node.worker.cuda_on_cpu", *spoils], cwd=ROOT, check=True, timeout=HANGS,
        input=f"{encode_plan(plan)}\n".encode(), stdout=subprocess.PIPE,
    )  # fmt: skip
    return document_of(ended.stdout)


@pytest.fixture(scope="module")
def whole() -> Document:
    return on_cpu()


def test_every_collective_is_timed_and_right(whole: Document) -> None:
    assert whole.error is None
    assert [(t.group, t.op, t.size_bytes) for t in whole.collectives] == [
        (group, op, size) for group in (0, 1) for op in OPS for size in PLAN.sizes()
    ]
    for timed in whole.collectives:
        assert timed.launch == "stream"
        assert timed.iterations == (3 if timed.size_bytes == 1 << 16 else 4)
        assert timed.runs == timed.iterations + PLAN.warmup + 1
        assert 0 < timed.low <= timed.median <= timed.high
        assert timed.low <= timed.seconds
        assert timed.wrong == 0


def test_every_pair_copies_both_ways_and_every_gpu_works_alone(whole: Document) -> None:
    ways = {(copy.source, copy.destination) for copy in whole.copies}
    assert ways == {(a, b) for a in range(3) for b in range(3) if a != b}
    assert len(whole.copies) == 6
    assert all(copy.seconds > 0 and copy.runs == PLAN.copies + 1 and copy.direct for copy in whole.copies)
    assert [micro.gpu for micro in whole.micros] == [0, 1, 2]
    for micro in whole.micros:
        assert 0 < micro.gemm_low <= micro.gemm_seconds <= micro.gemm_high
        assert 0 < micro.copy_low <= micro.copy_seconds <= micro.copy_high
        assert micro.copy_bytes == PLAN.copy_bytes
    assert all(seconds > 0 for seconds in whole.cost.kernel_seconds)
    assert len(whole.cost.kernel_seconds) == 3
    assert whole.versions["nccl"] == "2.28.9"


def test_every_gpu_copies_to_and_from_the_host(whole: Document) -> None:
    assert whole.no_hosts == ""
    assert [(one.gpu, one.size_bytes, one.near) for one in whole.hosts] == [
        (n, 1 << 13, None) for n in range(3)
    ]
    for one in whole.hosts:
        assert 0 < one.to_device_low <= one.to_device
        assert 0 < one.from_device_low <= one.from_device
        assert min(one.both, one.all_to_device, one.all_from_device) > 0


def test_one_wrong_element_of_one_rank_is_seen() -> None:
    plan = replace(PLAN, ops=(*OPS, BROADCAST, REDUCE))
    spoilt = [timed for timed in on_cpu(*plan.ops, plan=plan).collectives if timed.size_bytes > 8]
    assert len(spoilt) == 2 * len(plan.ops) * 2
    assert {timed.wrong for timed in spoilt} == {1}


@pytest.mark.parametrize(
    ("dtype", "in_place"),
    [("float32", False), *((dtype, True) for dtype in DTYPES), ("bfloat16", False)],
)
def test_what_torch_has_is_right_by_value_and_what_it_has_not_is_said(dtype: str, in_place: bool) -> None:  # noqa: FBT001
    plan = replace(PLAN, ops=PRIMITIVES, dtype=dtype, in_place=in_place, copy_bytes=0, micro=False)
    offered = (*OPS, BROADCAST, REDUCE) if in_place else (*OPS, REDUCE)
    document = on_cpu(plan=plan)
    assert document.error is None
    assert set(document.not_offered) == set(PRIMITIVES) - set(offered)
    assert [t.op for t in document.collectives if t.group == 0] == [op for op in offered for _ in range(3)]
    assert {timed.wrong for timed in document.collectives} == {0}


@pytest.mark.parametrize("engine", ["torch", "distributed"])
def test_a_torch_without_cuda_is_no_engine(engine: str) -> None:
    with WorkerProcess(replace(PLAN, engine=engine), (torch_python(), "-m", "wirewatch.worker")) as worker:
        document = worker.document()
        assert document.error is not None
        assert document.error.kind == "no_engine"
        assert "without CUDA" in document.error.text
