"""gloo through torch.distributed: no GPU, one process a rank, TCP over the loopback interface.

It proves the way from a plan to a verdict where there are no GPUs; its times say nothing about wires.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

# Before torch is imported: threads of its libraries would not survive the fork.
for _name, _value in (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"), ("GLOO_SOCKET_IFNAME", "lo")):
    os.environ.setdefault(_name, _value)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from wirewatch.core.probe import (  # noqa: E402
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    Case,
    Copy,
    ErrorKind,
    Micro,
    Plan,
    Timed,
    rounds,
)
from wirewatch.worker.process import fork_ranks  # noqa: E402
from wirewatch.worker.run import EngineError  # noqa: E402
from wirewatch.worker.timing import micro  # noqa: E402
from wirewatch.worker.torch_gpu import FLOAT32_BYTES, elements, fill, pieces, wrong_elements  # noqa: E402

GEMM_SIDE = 256
SMALLEST_BUFFER = 2 * GEMM_SIDE**2 * FLOAT32_BYTES
"""Bytes that the two factors of the matrix product need."""
MICRO_RUNS = 10
NAN = float("nan")
# Newer torch warns of the old names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn torch's errors into EngineError; a peer that died shows as a closed connection."""
    try:
        yield
    except RuntimeError as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        kind: ErrorKind = "out_of_memory" if "allocate memory" in text else "internal"
        raise EngineError(kind, f"gloo says {text[:300]}") from error


class GlooEngine:
    """One rank. Its constructor forks: afterwards there is one process for each name of the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ranks = len(plan.gpus)
        self._buffer = max(SMALLEST_BUFFER, plan.copy_bytes, *plan.sizes())
        self._busy = [0.0] * self._ranks
        self._groups: list[dist.ProcessGroup] = []
        self._held = -1
        # A file without a name, through which the ranks meet: nothing is left of it, however they end.
        self._store = os.memfd_create("wirewatch-ranks")
        # Last, since every rank would report an error after it.
        self._rank = fork_ranks(self._ranks)
        self.leads = self._rank == 0

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__}

    @engine_errors()
    def contexts(self) -> None:
        torch.set_num_threads(1)
        count = self._buffer // FLOAT32_BYTES
        self._send, self._receive = (torch.empty(count, dtype=torch.float32) for _ in range(2))
        self._hold(self._rank)

    def _hold(self, rank: int) -> None:
        """Fill the sending buffer with the values of a rank, unless it holds them."""
        if self._held != rank:
            fill(self._send, rank)
            self._held = rank

    @engine_errors()
    def communicators(self) -> None:
        store = dist.FileStore(f"/proc/self/fd/{self._store}", self._ranks)
        dist.init_process_group("gloo", store=store, rank=self._rank, world_size=self._ranks)
        self._groups = [dist.new_group(list(group)) for group in self._plan.groups]

    @engine_errors()
    def collective(self, case: Case) -> Timed:
        group, op, size_bytes, count = case.group, case.op, case.size_bytes, case.iterations
        members = self._plan.groups[group]
        taken = self._take_part(self._groups[group], op, size_bytes, count) if self._rank in members else None
        rows = self._share(taken or [0.0] * (3 + count))
        for rank, (_, busy, *_) in enumerate(rows):
            self._busy[rank] += busy
        single = rows[members[0]][3:]
        return Timed(
            group=group, op=op, size_bytes=size_bytes, launch="host", iterations=count,
            runs=self._plan.warmup + count + 1, seconds=max(row[0] for row in rows) / count, low=min(single),
            median=statistics.median(single), high=max(single), wrong=int(sum(row[2] for row in rows)),
        )  # fmt: skip

    def _take_part(self, group: dist.ProcessGroup, op: str, size_bytes: int, count: int) -> list[float]:
        """Seconds of all timed runs and of all work, wrong elements, seconds of each timed run."""
        place, ranks = dist.get_rank(group), dist.get_world_size(group)
        _, received = elements(op, size_bytes, ranks)
        self._hold(place)
        send, _ = pieces(op, self._send, size_bytes, ranks, place)
        receive = self._receive[:received]
        one = _operation(op, group, send, receive)
        # all_reduce has no other form than in place: sums of sums would leave the range of float32.
        receive.zero_()
        dist.barrier(group)
        began = time.perf_counter()
        for _ in range(self._plan.warmup):
            one()
        dist.barrier(group)
        marks = [time.perf_counter()]
        for _ in range(count):
            one()
            marks.append(time.perf_counter())
        receive.fill_(NAN)
        if op == ALL_REDUCE:
            receive.copy_(send)
        one()
        wrong = float(wrong_elements(op, receive, ranks, place).item())
        return [marks[-1] - marks[0], time.perf_counter() - began, wrong, *_spans(marks)]

    def _share(self, row: Sequence[float]) -> list[list[float]]:
        """The rows of all ranks, by rank; all rows have the same length."""
        rows = torch.empty(self._ranks * len(row), dtype=torch.float64)
        _all_gather(rows, torch.tensor(row, dtype=torch.float64))
        return [[float(value) for value in one] for one in rows.view(self._ranks, -1).tolist()]

    @engine_errors()
    def copies(self) -> Sequence[Copy]:
        """Disjoint pairs at once, both directions together; the time of a copy is that of its receiver."""
        size, count = self._plan.copy_bytes, self._plan.copies
        found: list[Copy] = []
        for pairs in rounds(self._ranks):
            peers = dict(way for a, b in pairs for way in ((a, b), (b, a)))
            dist.barrier()
            rows = self._share([self._exchange(peers[self._rank]) if self._rank in peers else 0.0])
            for destination, source in sorted(peers.items()):
                (seconds,) = rows[destination]
                self._busy[destination] += seconds
                found.append(Copy(source, destination, size, seconds / count, runs=count + 1, direct=False))
        return found

    def _exchange(self, peer: int) -> float:
        """Seconds in which this rank and another send each other all that is to be timed."""
        count = self._plan.copy_bytes // FLOAT32_BYTES
        send, receive = self._send[:count], self._receive[:count]
        # The first makes the pair meet; the others are timed.
        _swap(send, receive, peer)
        began = time.perf_counter()
        for _ in range(self._plan.copies):
            _swap(send, receive, peer)
        return time.perf_counter() - began

    @engine_errors()
    def micros(self) -> Sequence[Micro]:
        size = self._plan.copy_bytes or self._buffer
        side = GEMM_SIDE
        one, other = (self._send[n * side * side : (n + 1) * side * side].view(side, side) for n in range(2))
        product = self._receive[: side * side].view(side, side)
        count = size // FLOAT32_BYTES
        dist.barrier()
        began = time.perf_counter()
        gemm = _times(lambda: torch.matmul(one, other, out=product))
        copied = _times(lambda: self._receive[:count].copy_(self._send[:count]))
        took = time.perf_counter() - began
        rows = self._share([took, *gemm, *copied])
        for rank, (busy, *_) in enumerate(rows):
            self._busy[rank] += busy
        return [
            micro(rank, size, seconds[:MICRO_RUNS], seconds[MICRO_RUNS:])
            for rank, (_, *seconds) in enumerate(rows)
        ]

    def kernel_seconds(self) -> Sequence[float]:
        return self._busy


def _operation(
    op: str, group: dist.ProcessGroup, send: torch.Tensor, receive: torch.Tensor
) -> Callable[[], object]:
    """One rank's part in a collective; all_reduce takes what `receive` holds."""
    return {
        ALL_REDUCE: lambda: dist.all_reduce(receive, group=group),
        ALL_GATHER: lambda: _all_gather(receive, send, group=group),
        REDUCE_SCATTER: lambda: _reduce_scatter(receive, send, group=group),
    }[op]


def _swap(send: torch.Tensor, receive: torch.Tensor, peer: int) -> None:
    """Send to and receive from a rank at the same time."""
    for work in (dist.isend(send, peer), dist.irecv(receive, peer)):
        work.wait()


def _times(work: Callable[[], object]) -> list[float]:
    """Seconds of each run, after one that is not counted."""
    work()
    marks = [time.perf_counter()]
    for _ in range(MICRO_RUNS):
        work()
        marks.append(time.perf_counter())
    return _spans(marks)


def _spans(marks: Sequence[float]) -> list[float]:
    return [b - a for a, b in pairwise(marks)]
