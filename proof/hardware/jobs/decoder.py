"""A toy tensor-parallel transformer, a process a GPU: how long its all-reduces take, in it and by themselves.

python -m proof.hardware.jobs.decoder RANKS [--sizes BYTES ...]     TIMED {...} each, then DONE, and it ends

Each layer has two pairs of matrices, split by columns and by rows, and an all-reduce after each pair, as
attention and feed-forward have in tensor parallelism. `curve`: one all-reduce of each of `--sizes`, many in
a row. Of each shape: `step` is a whole pass, `compute` the same without its all-reduces, `sequence` these
alone, one after another, on the same buffer. All by CUDA events, in bfloat16, one by one (`eager`) and as one
CUDA graph; seconds are the median of repeats, of the slowest rank.
"""

import argparse
import json
import os
import socket
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from proof.hardware.jobs.listening import say
from proof.hardware.jobs.tokens import LAYERS, REDUCTIONS, SHAPES

REPEATS, WARM_UP = 9, 3
IN_A_ROW, LARGE_IN_A_ROW, LARGE = 50, 10, 16 << 20
SECONDS = 0.02
"""A repeat lasts so long at least, so that the clocks are those under load."""
Work = Callable[[], None]


class Layers:
    """One rank's part of all layers for a hidden size, and a state of so many tokens."""

    def __init__(self, hidden: int, tokens: int, ranks: int, device: torch.device) -> None:
        part = hidden // ranks
        scale = hidden**-0.5

        def matrix(rows: int, columns: int) -> torch.Tensor:
            return scale * torch.randn((rows, columns), dtype=torch.bfloat16, device=device)

        self.pairs = [(matrix(hidden, part), matrix(part, hidden)) for _ in range(REDUCTIONS)]
        self.state = torch.randn((tokens, hidden), dtype=torch.bfloat16, device=device)
        self.inner = torch.empty((tokens, part), dtype=torch.bfloat16, device=device)
        self.outer = torch.empty_like(self.state)

    def step(self) -> None:
        self._pass(reduced=True)

    def compute(self) -> None:
        self._pass(reduced=False)

    def sequence(self) -> None:
        for _ in range(REDUCTIONS):
            dist.all_reduce(self.outer)

    def _pass(self, *, reduced: bool) -> None:
        for columns, rows in self.pairs:
            torch.matmul(self.state, columns, out=self.inner)
            torch.matmul(self.inner, rows, out=self.outer)
            if reduced:
                dist.all_reduce(self.outer)


def captured(work: Work) -> Work:
    """The work as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog of torch asks about events from another thread meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()

    def replay() -> None:
        graph.replay()

    return replay


def timed(work: Work, launch: str) -> float:
    """Seconds of the work on the slowest rank, the median of repeats."""
    run = captured(work) if launch == "graph" else work
    for _ in range(WARM_UP):
        run()
    once = _lasts(run, 1)
    count = max(1, round(_greatest(SECONDS / max(once, 1e-6))))
    return _greatest(median(_lasts(run, count) / count for _ in range(REPEATS)))


def _lasts(run: Work, count: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


def _greatest(value: float) -> float:
    """Of all ranks, so that all do the same."""
    held = torch.tensor([value], dtype=torch.float64, device="cuda")
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    return float(held.item())


def curve(size_bytes: int, launch: str, device: torch.device) -> float:
    """Seconds of one all-reduce among many in a row."""
    data = torch.zeros(size_bytes // 2, dtype=torch.bfloat16, device=device)
    count = LARGE_IN_A_ROW if size_bytes >= LARGE else IN_A_ROW

    def many() -> None:
        for _ in range(count):
            dist.all_reduce(data)

    return timed(many, launch) / count


def work(rank: int, ranks: int, port: int, sizes: list[int]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=device)

    def tell(**found: Any) -> None:
        if rank == 0:
            say("TIMED", json.dumps({"ranks": ranks, **found}))

    with torch.no_grad():
        for launch in ("eager", "graph"):
            for size in sizes:
                tell(what="curve", launch=launch, size=size, seconds=curve(size, launch, device))
        for hidden, tokens in SHAPES:
            layers = Layers(hidden, tokens, ranks, device)
            for launch in ("eager", "graph"):
                for what in ("step", "compute", "sequence"):
                    seconds = timed(getattr(layers, what), launch)
                    tell(what=what, launch=launch, size=2 * hidden * tokens, seconds=seconds)
            del layers
            torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    if rank == 0:
        say("DONE", LAYERS)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ranks", type=int)
    parser.add_argument("--sizes", nargs="*", type=int, default=[])
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(options.ranks, port, options.sizes), nprocs=options.ranks)


if __name__ == "__main__":
    main()
