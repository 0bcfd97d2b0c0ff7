"""The nccl engine over GPUs that are memory of this process: what it asks of NCCL and counts as wrong."""

import importlib
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.node.worker.compiled import CompiledKernels
from tests.node.worker.elements import decode, encode, total, value
from tests.node.worker.gpus import Gpus, Memory, Result
from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    DTYPES,
    GATHER,
    OPS,
    PRIMITIVES,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SEND,
    SENDRECV,
    Case,
    Document,
    Plan,
    Timed,
    wrong_in_document,
)
from wirewatch.worker import kernels
from wirewatch.worker.__main__ import ENGINES
from wirewatch.worker.hostlinks import COPIED
from wirewatch.worker.layout import modulus
from wirewatch.worker.run import EngineError, Run
from wirewatch.worker.timing import COPIES, PRODUCTS

OURS = ("nccl_engine", "torch_engine", "torch_gpu")
NAMES = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
EVERYBODY = (0, 1, 2, 3)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """The stand-ins, with our modules as they are imported over them; all as before afterwards."""
    made = Gpus()
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in OURS:
        monkeypatch.delitem(sys.modules, f"wirewatch.worker.{name}", raising=False)
    yield made
    for name in OURS:
        sys.modules.pop(f"wirewatch.worker.{name}", None)


def plan(*cases: Case, **changes: Any) -> Plan:
    nothing = {"ops": (), "latency_sizes": (), "bandwidth": (), "warmup": 0, "copy_bytes": 0, "micro": False}
    given = {"engine": "nccl", "gpus": NAMES, "groups": (EVERYBODY,), **nothing, "cases": cases, **changes}
    return Plan(**given)


def measured(wanted: Plan) -> Document:
    run = Run(wanted, lambda _: None, 0.0)
    engine = ENGINES["nccl"](wanted)
    run.measure(engine)
    return run.document(engine, None)


def of(op: str, size: int = 64, launch: Any = "stream") -> Case:
    return Case(0, op, size, launch, 1)


def only(document: Document) -> Timed:
    (timed,) = document.collectives
    return timed


class Anything(ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


@pytest.mark.usefixtures("gpus")
def test_the_torch_engine_can_be_imported_and_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "torch.cuda", "torch.cuda.nccl"):
        monkeypatch.setitem(sys.modules, name, Anything(name))
    vars(sys.modules["torch"])["_C"] = SimpleNamespace(_nccl_all_reduce=None)
    assert ENGINES["torch"](plan()).leads


@pytest.mark.usefixtures("gpus")
def test_versions_are_written_as_people_write_them() -> None:
    assert ENGINES["nccl"](plan()).versions() == {"nccl": "2.28.9", "cuda_driver": "13.0"}


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_primitive_of_every_type_is_right_by_value(dtype: str, in_place: bool) -> None:  # noqa: FBT001
    """Sizes of which each rank's share is less than an element, not whole 16 bytes, and whole."""
    cases = [
        Case(group, op, size, "graph" if size == 200 else "stream", 1)
        for group in (0, 1)
        for op in PRIMITIVES
        for size in (8, 200, 256)
    ]
    document = measured(plan(*cases, groups=(EVERYBODY, (1, 3)), dtype=dtype, in_place=in_place))
    asked = [(case.group, case.op, case.size_bytes, case.launch) for case in cases]
    assert [(t.group, t.op, t.size_bytes, t.launch) for t in document.collectives] == asked
    assert {timed.wrong for timed in document.collectives} == {0}
    assert document.not_offered == ()


def everything(op: str) -> int:
    """Elements that all ranks together receive of a message of 64 bytes."""
    return {REDUCE: 16, GATHER: 16, SCATTER: 16, REDUCE_SCATTER: 16}.get(op, 64)


@pytest.mark.parametrize("op", PRIMITIVES)
def test_what_never_comes_is_missed_in_every_element(gpus: Gpus, op: str) -> None:
    """Out of place, where nothing may have been there before."""
    gpus.spoil = lambda *_: None
    assert only(measured(plan(of(op), in_place=False))).wrong == everything(op)


@pytest.mark.parametrize("op", PRIMITIVES)
def test_in_place_what_never_comes_is_missed_but_for_a_rank_s_own_share(gpus: Gpus, op: str) -> None:
    gpus.spoil = lambda *_: None
    own = {ALL_GATHER: 16, GATHER: 4, BROADCAST: 16, SCATTER: 4}.get(op, 0)
    assert only(measured(plan(of(op)))).wrong == everything(op) - own


@pytest.mark.parametrize("op", PRIMITIVES)
def test_what_an_earlier_run_left_is_not_taken_for_what_came(gpus: Gpus, op: str) -> None:
    """The second case is the same, and nothing of it comes."""

    def spoil(_name: str, _rank: int, at: int, data: bytes) -> tuple[int, bytes] | None:
        return (at, data) if gpus.asked.count(("group_end",)) <= 2 else None

    gpus.spoil = spoil
    cases = (of(op), of(op))
    assert [t.wrong for t in measured(plan(*cases, in_place=False)).collectives] == [0, everything(op)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", PRIMITIVES)
def test_a_wrong_bit_is_a_wrong_element(gpus: Gpus, op: str, dtype: str) -> None:
    def spoil(_name: str, rank: int, at: int, data: bytes) -> tuple[int, bytes]:
        return at, bytes([data[0] ^ (rank == 0), *data[1:]])

    gpus.spoil = spoil
    pieces = {ALL_GATHER: 4, GATHER: 4, ALLTOALL: 4}.get(op, 1)
    assert only(measured(plan(of(op), dtype=dtype, in_place=False))).wrong == pieces


@pytest.mark.parametrize("op", [ALL_GATHER, GATHER, ALLTOALL])
def test_pieces_that_changed_places_are_wrong(gpus: Gpus, op: str) -> None:
    """All that a rank receives comes one place further on."""
    written: dict[int, list[int]] = {}

    def spoil(_name: str, rank: int, at: int, data: bytes) -> tuple[int, bytes]:
        begin = min(written.setdefault(rank, [at]))
        written[rank].append(at)
        return begin + (at - begin + len(data)) % (4 * len(data)), data

    gpus.spoil = spoil
    assert only(measured(plan(of(op), in_place=False))).wrong == everything(op)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [ALL_REDUCE, REDUCE, REDUCE_SCATTER])
def test_a_sum_without_the_smallest_part_is_wrong_everywhere(gpus: Gpus, op: str, dtype: str) -> None:
    def spoil(_name: str, _rank: int, at: int, data: bytes) -> tuple[int, bytes]:
        return at, encode([number - 1 for number in decode(data, dtype)], dtype)

    gpus.spoil = spoil
    count = {ALL_REDUCE: 4, REDUCE: 1, REDUCE_SCATTER: 1}[op] * 64 // DTYPES[dtype]
    assert only(measured(plan(of(op), dtype=dtype))).wrong == count


@pytest.mark.parametrize("op", OPS)
def test_the_three_of_a_probe_are_asked_in_place_rank_by_rank_and_nothing_else_is(
    gpus: Gpus, op: str
) -> None:
    document = measured(plan(Case(0, op, 64, "stream", 3), warmup=2))
    timed = only(document)
    assert (timed.iterations, timed.runs) == (3, 2 + 3 + 1)
    once = gpus.asked[: len(gpus.asked) // 6]
    assert gpus.asked == once * 6
    start, *calls, end = once
    assert (start, end) == (("group_start",), ("group_end",))
    for rank, (name, sending, receiving, *others) in enumerate(calls):
        assert name == op
        middle = [] if op == ALL_GATHER else [0]
        assert others == [16 if op == ALL_REDUCE else 4, 7, *middle, (EVERYBODY, rank), 1000 + rank]
        offset = {ALL_REDUCE: 0, ALL_GATHER: -16 * rank, REDUCE_SCATTER: 16 * rank}[op]
        assert receiving - sending == offset


def test_send_and_receive_go_to_the_right_and_come_from_the_left(gpus: Gpus) -> None:
    measured(plan(of(SENDRECV)))
    calls = gpus.asked[1:9]
    assert [(call[0], call[4], call[5][1]) for call in calls] == [
        (name, peer % 4, rank) for rank in range(4) for name, peer in (("send", rank + 1), ("recv", rank - 1))
    ]
    assert {call[2:4] for call in calls} == {(16, 7)}


@pytest.mark.parametrize(
    ("op", "dtype", "size", "count"),
    [
        (ALL_GATHER, "float32", 1000, 60), (ALL_GATHER, "int8", 1000, 240), (ALLTOALL, "float64", 1000, 30),
        (SCATTER, "float16", 1000, 120), (REDUCE_SCATTER, "float32", 63, 3), (GATHER, "float64", 8, 1),
        (BROADCAST, "float32", 1000, 250), (SENDRECV, "float64", 1000, 125), (ALL_REDUCE, "float64", 4, 1),
    ],
)  # fmt: skip
def test_a_message_is_divided_as_nccl_tests_do(
    gpus: Gpus, op: str, dtype: str, size: int, count: int
) -> None:
    measured(plan(of(op, size), dtype=dtype))
    counts = {call[2 if op == SENDRECV else 3] for call in gpus.asked if len(call) > 1}
    assert counts == {count}


def test_registered_buffers_are_ncclmemalloc_s_and_registered_whole_with_each_communicator(
    gpus: Gpus,
) -> None:
    cases = (of(ALL_REDUCE, 256), of(ALLTOALL, 64))
    measured(plan(*cases, groups=(EVERYBODY, (0, 1)), registered=True))
    assert sorted(size for _, size in gpus.registrable) == [64] * 4 + [256] * 4
    by_comm = {
        comm: [size for other, _, size in gpus.registered if other == comm] for comm, _, _ in gpus.registered
    }
    assert by_comm == {(EVERYBODY, rank): [256, 64] for rank in range(4)} | {
        ((0, 1), r): [256, 64] for r in (0, 1)
    }


def sizes(gpus: Gpus) -> list[int]:
    """Bytes of the buffers of one GPU, but for the counter of wrong elements."""
    made = sorted((len(buffer) for buffer in gpus.memory.buffers), reverse=True)
    return [size for size in made[::4] if size != 8]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (plan(of(ALL_REDUCE, 4096)), [4096]), (plan(of(ALL_REDUCE, 4096), in_place=False), [4096, 4096]),
        (plan(of(ALL_GATHER, 4096), in_place=False), [4096, 1024]), (plan(of(SENDRECV, 100)), [112, 112]),
        (plan(of(ALL_REDUCE, 4096), of(SENDRECV, 64)), [4096, 64]), (plan(of(ALL_GATHER, 8)), [16]),
        (plan(of(ALL_REDUCE, 64), copy_bytes=8192, copies=0), [16384]),
    ],
)  # fmt: skip
def test_buffers_are_as_large_as_the_plan_needs_and_no_larger(
    gpus: Gpus, wanted: Plan, expected: list[int]
) -> None:
    engine = ENGINES["nccl"](wanted)
    engine.contexts()
    assert sizes(gpus) == expected


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.usefixtures("gpus")
def test_a_size_for_which_there_is_no_memory_is_named(registered: bool) -> None:  # noqa: FBT001
    wanted = plan(of(ALL_REDUCE), of(BROADCAST, 1 << 40), registered=registered)
    with pytest.raises(
        EngineError, match=r"bytes; the largest is for broadcast of 1099511627776 bytes"
    ) as told:
        measured(wanted)
    assert told.value.kind == "out_of_memory"


def test_small_messages_are_timed_by_their_graphs_after_the_first_launch(gpus: Gpus) -> None:
    """Each launch of 50 runs takes GPU 0 so many seconds, and the others one."""
    launches = chain(
        chain.from_iterable((0.0, 0.0, seconds, 0.0) for seconds in (100.0, 5.0, 7.0)), repeat(1.0)
    )
    clocks = [0.0] * 4

    def now(device: int) -> float:
        clocks[device] += next(launches) if device == 0 else 1.0
        return clocks[device]

    gpus.now = now  # type: ignore[method-assign, assignment]
    timed = only(measured(plan(Case(0, ALL_REDUCE, 8, "graph", 50))))
    assert [timed.seconds, timed.low, timed.high] == pytest.approx([6.0 / 50, 5.0 / 50, 7.0 / 50])
    assert (timed.iterations, timed.runs) == (100, 151)
    # The first graph has the calls of all four.
    assert gpus.launched == [(1000, 50), (1001, 0), (1002, 0), (1003, 0)] * 3
    assert gpus.alive == []


@pytest.mark.parametrize(("launch", "seconds"), [("stream", 3.0 + 1.0), ("graph", 3 * 3.0 + 1.0)])
def test_the_time_of_the_runs_and_of_their_check_is_a_gpu_s_busy_time(
    gpus: Gpus, launch: str, seconds: float
) -> None:
    """Each mark comes a second after the one before it: begin, first, last and end, and two of the check."""
    clocks = [0.0] * 4

    def now(device: int) -> float:
        clocks[device] += 1.0
        return clocks[device]

    gpus.now = now  # type: ignore[method-assign, assignment]
    assert measured(plan(of(ALL_REDUCE, launch=launch))).cost.kernel_seconds == (seconds,) * 4


@pytest.mark.usefixtures("gpus")
def test_a_gpu_that_cuda_does_not_show_is_named() -> None:
    with pytest.raises(EngineError, match="CUDA does not show GPU-9"):
        measured(plan(gpus=("GPU-0", "GPU-9")))


def test_without_nvrtc_it_says_what_is_missing(gpus: Gpus) -> None:
    def missing(_memory: Memory, _dtype: str) -> Any:
        raise RuntimeError('Failure finding "libnvrtc.so.13"\nmore')

    gpus.kernels = missing
    with pytest.raises(EngineError, match=r'is NVRTC installed\? Failure finding "libnvrtc.so.13"$') as told:
        measured(plan(of(ALL_REDUCE)))
    assert told.value.kind == "driver"


def test_wrong_elements_are_counted_anew_for_each_case(gpus: Gpus) -> None:
    """Nothing comes of the first case, and all of the second."""

    def spoil(_name: str, _rank: int, at: int, data: bytes) -> tuple[int, bytes] | None:
        return (at, data) if gpus.asked.count(("group_end",)) > 2 else None

    gpus.spoil = spoil
    document = measured(plan(of(ALL_REDUCE), of(ALL_REDUCE), in_place=False))
    assert [timed.wrong for timed in document.collectives] == [64, 0]


@pytest.fixture
def small(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Of matrix products that take Python a moment."""
    for name, side in (("GEMM_SIDE", 16), ("GEMM_SIDE_OLD", 8), ("TILE", 4)):
        monkeypatch.setattr(kernels, name, side)
    engine = importlib.import_module("wirewatch.worker.nccl_engine")
    monkeypatch.setattr(engine, "SMALLEST_BUFFER", 3 * 16 * 16 * 4)
    return gpus


@pytest.mark.parametrize(("capability", "side"), [((7, 5), 8), ((8, 0), 16), ((9, 0), 16)])
def test_what_each_gpu_does_alone_is_timed_run_by_run(
    small: Gpus, capability: tuple[int, int], side: int
) -> None:
    """Each mark comes a second after the one before it."""
    for device in small.devices:
        device.compute_capability = capability
    clocks = [0.0] * 4

    def now(device: int) -> float:
        clocks[device] += 1.0
        return clocks[device]

    small.now = now  # type: ignore[method-assign, assignment]
    document = measured(plan(micro=True))
    assert small.sides == [side] * 4 * (1 + PRODUCTS)
    assert sorted(small.copied) == [(gpu, gpu, 1536) for gpu in range(4) for _ in range(1 + COPIES)]
    for number, one in enumerate(document.micros):
        assert (one.gpu, one.gemm_seconds, one.copy_seconds, one.copy_bytes) == (number, 1.0, 1.0, 1536)
    # From before the untimed run to after the last: one mark more than there are runs, and the end.
    assert document.cost.kernel_seconds == (PRODUCTS + COPIES + 4.0,) * 4


def test_a_gpu_s_own_copies_are_as_large_as_those_between_gpus(small: Gpus) -> None:
    document = measured(plan(micro=True, copy_bytes=64))
    assert {one.copy_bytes for one in document.micros} == {64}
    assert {size for *_, size in small.copied} == {64}


def test_copies_go_both_ways_between_all_pairs(gpus: Gpus) -> None:
    document = measured(plan(copy_bytes=64, copies=2))
    ways = [(one.source, one.destination) for one in document.copies]
    assert sorted(ways) == [(a, b) for a in range(4) for b in range(4) if a != b]
    assert sorted(gpus.copied) == sorted((*way, 64) for way in ways for _ in range(3))
    assert all(one.direct and one.seconds > 0 for one in document.copies)


@pytest.mark.parametrize(
    ("told", "direct"),
    [
        (Result.CUDA_SUCCESS, True), (Result.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, True),
        (Result.CUDA_ERROR_TOO_MANY_PEERS, False), (None, False),
    ],
)  # fmt: skip
def test_a_copy_is_direct_where_the_driver_lets_one_gpu_reach_the_other(
    gpus: Gpus, *, told: Result | None, direct: bool
) -> None:
    gpus.reach = lambda one, other: told if (one, other) == (2, 0) else Result.CUDA_SUCCESS
    found = {(one.source, one.destination): one.direct for one in measured(plan(copy_bytes=64)).copies}
    assert found == {way: way != (2, 0) or direct for way in found}


def test_another_error_of_the_driver_is_its_own(gpus: Gpus) -> None:
    gpus.reach = lambda *_: Result.CUDA_ERROR_UNKNOWN
    with pytest.raises(EngineError, match=r"^the CUDA driver says CUDA_ERROR_UNKNOWN$") as told:
        measured(plan(copy_bytes=64))
    assert told.value.kind == "driver"


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(("seen", "said"), [("", "GPU-9"), ("0,1", "GPU-9; CUDA_VISIBLE_DEVICES is 0,1")])
def test_what_limits_cuda_is_said_beside_a_gpu_that_it_does_not_show(
    monkeypatch: pytest.MonkeyPatch, seen: str, said: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    with pytest.raises(EngineError, match=rf"^CUDA does not show {said}$") as told:
        measured(plan(gpus=("gpu-1", "GPU-9")))
    assert told.value.kind == "no_device"


def test_buffers_that_need_not_be_registered_are_cuda_s_own(gpus: Gpus) -> None:
    measured(plan(of(ALL_REDUCE)))
    assert (gpus.registrable, gpus.registered) == ([], [])


@pytest.mark.usefixtures("gpus")
def test_what_nccl_has_no_call_for_is_not_offered() -> None:
    assert not ENGINES["nccl"](plan()).offers(SEND)


@pytest.mark.usefixtures("gpus")
def test_an_error_of_the_driver_while_it_gives_memory_is_not_called_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = sys.modules["cuda.bindings.driver"]
    monkeypatch.setitem(vars(driver), "cuMemAlloc", lambda _size: (Result.CUDA_ERROR_UNKNOWN, 0))
    with pytest.raises(EngineError, match=r"^the CUDA driver says CUDA_ERROR_UNKNOWN$") as told:
        measured(plan(of(ALL_REDUCE)))
    assert told.value.kind == "driver"


@pytest.mark.usefixtures("gpus")
def test_the_matrix_product_fills_the_smallest_buffer() -> None:
    engine = importlib.import_module("wirewatch.worker.nccl_engine")
    assert vars(engine)["SMALLEST_BUFFER"] == 3 * 4 * kernels.GEMM_SIDE**2


def test_the_matrix_product_is_launched_with_the_tile_and_the_threads_that_it_is_written_for() -> None:
    assert f"bs[{kernels.TILE}][40]" in kernels.SOURCE
    assert f"piece += {kernels.THREADS})" in kernels.SOURCE
    assert kernels.GEMM_SIDE % kernels.TILE == kernels.GEMM_SIDE_OLD % kernels.TILE == 0


@pytest.mark.usefixtures("gpus")
def test_the_bindings_do_not_import_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    importlib.import_module("wirewatch.worker.nccl_engine")
    assert "torch" in sys.modules
    with pytest.raises(ImportError):
        importlib.import_module("torch")


@pytest.mark.system
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernels_make_and_count_the_same_values_when_they_are_compiled(gpus: Gpus, dtype: str) -> None:
    gpus.kernels = CompiledKernels
    cases = [of(op, size) for op in PRIMITIVES for size in (8, 200)]
    for in_place in (True, False):
        document = measured(plan(*cases, dtype=dtype, in_place=in_place))
        assert {timed.wrong for timed in document.collectives} == {0}
        gpus.spoil = lambda *_: None
        missed = measured(plan(*(of(op, 256) for op in PRIMITIVES), dtype=dtype, in_place=False))
        assert [t.wrong for t in missed.collectives] == [
            everything(t.op) * 16 // DTYPES[dtype] for t in missed.collectives
        ]
        gpus.spoil = Gpus.spoil


@pytest.mark.system
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 16, 100, 254])
def test_the_compiled_values_and_sums_are_those_of_the_formula(dtype: str, ranks: int) -> None:
    memory, many = Memory(), 300
    made, mod = CompiledKernels(memory, dtype), modulus(dtype, ranks)
    data, wrong = memory.make(many * DTYPES[dtype]), memory.make(8)
    for first in (0, 2**32 - 150):
        for rank in {0, ranks // 2, ranks - 1}:
            made.fill(data, many, first, rank, mod)
            right = encode([value(first + i, rank, mod) for i in range(many)], dtype)
            assert memory.read(data, many * DTYPES[dtype]) == right
            made.check_pieces(data, many, many, first, 0, rank, mod, wrong)
        sums = [total(first + i, ranks, mod) for i in range(many)]
        memory.write(data, encode(sums, dtype))
        assert decode(memory.read(data, many * DTYPES[dtype]), dtype) == sums or dtype == "int8"
        made.check_sums(data, many, first, ranks, mod, wrong)
    assert memory.read(wrong, 8) == bytes(8)


def test_the_stand_ins_leave_nothing_behind() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("nccl.bindings.nccl")


def test_host_links_copy_pinned_memory_both_ways_and_at_once_in_two_streams(gpus: Gpus) -> None:
    document = measured(plan(host_bytes=256))
    assert [one.gpu for one in document.hosts] == [0, 1, 2, 3]
    assert document.no_hosts == ""
    assert [size for _, size in gpus.pinned] == [512] * 4
    assert {size for _, _, size in gpus.moved} == {256}
    for rank in range(4):
        mine = [(way, stream) for way, stream, _ in gpus.moved if stream % 1000 == rank]
        assert len(mine) == 2 * COPIED
        # What goes back at the same time is in a stream of its own, and each waits for the other.
        assert {stream for way, stream in mine if way == "to_device"} == {1000 + rank}
        assert {stream for way, stream in mine if way == "from_device"} == {1000 + rank, 2000 + rank}
        assert (2000 + rank, 1000 + rank) in gpus.waited
        assert (1000 + rank, 2000 + rank) in gpus.waited


def test_host_memory_that_the_driver_refuses_keeps_all_else(gpus: Gpus) -> None:
    gpus.free_host = 511
    document = measured(plan(of(ALL_REDUCE), host_bytes=256))
    assert document.hosts == ()
    assert "could not be pinned: the CUDA driver says CUDA_ERROR_OUT_OF_MEMORY" in document.no_hosts
    assert only(document).wrong == 0
    assert wrong_in_document(document, plan(of(ALL_REDUCE), host_bytes=256)) == ""
