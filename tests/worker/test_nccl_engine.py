"""The engines for GPUs as far as a machine without any can tell: that they load, and what they would send.

NCCL, CUDA and torch are stand-ins here that write down what they were asked.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Case, Plan, Timed
from wirewatch.worker.__main__ import ENGINES

PLAN = Plan("nccl", ("a", "b", "c", "d"), ((0, 1, 2, 3),), latency_sizes=(8,), bandwidth=((64, 3),), warmup=2)
OURS = ("nccl_engine", "gpu", "peers", "torch_engine", "torch_gpu", "torch_values")


class Anything(ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


class Nccl(ModuleType):
    """NCCL's bindings; `asked`: name and arguments of each call."""

    NCCLError = type("NCCLError", (Exception,), {})

    def __init__(self) -> None:
        super().__init__("nccl.bindings.nccl")
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments: self.asked.append((name, *arguments))

    def get_version(self) -> int:
        return 22809


class Member:
    """A GPU whose buffer is at an address; its events are so many seconds apart."""

    def __init__(self, rank: int, wrong: int = 0, steps: Iterable[float] = repeat(1.0)) -> None:
        self.rank, self.data, self.handle = rank, (rank + 1) * 10_000, f"stream {rank}"
        self.device = SimpleNamespace(set_current=lambda: None)
        self._wrong, self._at, self._steps = wrong, 0.0, iter(steps)
        self.checks: list[tuple[Any, ...]] = []

    def event(self) -> float:
        self._at += next(self._steps)
        return self._at

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def settle(self) -> None: ...

    def fill(self, count: int, rank: int) -> None:
        self.checks.append(("fill", count, rank))

    def check(self, *arguments: Any) -> None:
        self.checks.append(arguments)

    def wrong(self) -> int:
        return self._wrong

    @staticmethod
    def span(first: float, second: float) -> float:
        return second - first

    def spans(self, marks: list[float]) -> list[float]:
        return [b - a for a, b in pairwise(marks)]


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nccl]:
    """NCCL's stand-in, with our modules as they are imported over it; all as before afterwards."""
    bindings, cuda = Nccl(), Anything("cuda.bindings")
    driver = Anything("cuda.bindings.driver")
    graphs = ("Launch", "ExecDestroy", "Instantiate", "Destroy")
    calls = (*(f"cuGraph{name}" for name in graphs), "cuStreamBeginCapture", "cuStreamEndCapture")
    vars(driver).update(dict.fromkeys(calls, lambda *_: (0, "graph")))
    vars(driver).update(
        CUresult=SimpleNamespace(
            CUDA_SUCCESS=0, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED=704, CUDA_ERROR_TOO_MANY_PEERS=711
        ),
        CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1),
        cuDriverGetVersion=lambda: (0, 13000),
    )
    vars(cuda)["driver"] = driver
    standing = {
        "cuda": Anything("cuda"), "cuda.bindings": cuda, "cuda.core": Anything("cuda.core"),
        "cuda.bindings.driver": driver, "nccl": Anything("nccl"), "nccl.bindings": Anything("nccl.bindings"),
        "nccl.bindings.nccl": bindings, "torch": Anything("torch"), "torch.cuda": Anything("torch.cuda"),
        "torch.cuda.nccl": Anything("torch.cuda.nccl"),
    }  # fmt: skip
    vars(standing["nccl.bindings"])["nccl"] = bindings
    vars(standing["torch"])["_C"] = SimpleNamespace(_nccl_all_reduce=None)
    for name, module in standing.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in OURS:
        monkeypatch.delitem(sys.modules, f"wirewatch.worker.{name}", raising=False)
    yield bindings
    for name in OURS:
        sys.modules.pop(f"wirewatch.worker.{name}", None)


def collective(gpus: Sequence[Member], op: str, size: int, *, latency: bool = False) -> Timed:
    engine = ENGINES["nccl"](PLAN)
    vars(engine).update(_gpus=gpus, _comms=[[f"comm {gpu.rank}" for gpu in gpus]])
    case = Case(0, op, size, "graph", PLAN.latency_iterations) if latency else Case(0, op, size, "stream", 3)
    return engine.collective(case)


@pytest.mark.usefixtures("nccl")
@pytest.mark.parametrize("name", ["nccl", "torch"])
def test_an_engine_for_gpus_can_be_imported_and_made(name: str) -> None:
    assert ENGINES[name](PLAN).leads


@pytest.mark.usefixtures("nccl")
def test_versions_are_written_as_people_write_them() -> None:
    assert ENGINES["nccl"](PLAN).versions() == {"nccl": "2.28.9", "cuda_driver": "13.0"}


@pytest.mark.parametrize(
    ("op", "sent"),
    [
        (ALL_REDUCE, lambda gpu, n: ("all_reduce", gpu.data, gpu.data, 16, 7, 0, n, gpu.handle)),
        (ALL_GATHER, lambda gpu, n: ("all_gather", gpu.data + gpu.rank * 16, gpu.data, 4, 7, n, gpu.handle)),
        (
            REDUCE_SCATTER,
            lambda gpu, n: ("reduce_scatter", gpu.data, gpu.data + gpu.rank * 16, 4, 7, 0, n, gpu.handle),
        ),
    ],
)
def test_a_collective_in_place_counts_in_elements_and_each_rank_has_its_own_piece(
    nccl: Nccl, op: str, sent: Any
) -> None:
    gpus = [Member(rank) for rank in range(4)]
    collective(gpus, op, 64)
    calls = [sent(gpu, f"comm {gpu.rank}") for gpu in gpus]
    assert nccl.asked == [("group_start",), *calls, ("group_end",)] * 6


def test_wrong_elements_of_all_ranks_count_and_the_run_that_is_checked_too(nccl: Nccl) -> None:
    gpus = [Member(rank, wrong=rank) for rank in range(4)]
    timed = collective(gpus, REDUCE_SCATTER, 64)
    assert timed.wrong == 0 + 1 + 2 + 3
    assert (timed.iterations, timed.runs) == (3, 2 + 3 + 1)
    assert [call[0] for call in nccl.asked].count("group_start") == 6
    assert [gpu.checks for gpu in gpus] == [
        [("fill", 16, rank), ("check_sum", rank * 4, 4, rank * 4, 4)] for rank in range(4)
    ]


@pytest.mark.usefixtures("nccl")
def test_small_messages_are_timed_by_their_graphs_after_the_first_launch() -> None:
    launches = chain.from_iterable((1.0, seconds) for seconds in (100.0, 5.0, 7.0))
    gpus = [Member(0, steps=launches), *(Member(rank) for rank in range(1, 4))]
    timed, count = collective(gpus, ALL_REDUCE, 8, latency=True), PLAN.latency_iterations
    seconds = [6.0 / count, 5.0 / count, 7.0 / count]
    assert [timed.seconds, timed.low, timed.high] == pytest.approx(seconds)
    assert (timed.iterations, timed.runs) == (2 * count, 3 * count + 1)


def test_the_stand_ins_leave_nothing_behind() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("nccl.bindings.nccl")
