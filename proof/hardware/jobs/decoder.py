"""A toy tensor-parallel transformer, a process a GPU: how long its all-reduces take, in it and by themselves.

python -m proof.hardware.jobs.decoder RANKS [--sizes BYTES ...]     TIMED {...} each, then DONE, and it ends

Each layer has two pairs of matrices, split by columns and by rows, and an all-reduce after each pair, as
attention and feed-forward have in tensor parallelism. `curve`: one all-reduce of each of `--sizes`, in a row
of as many as a pass has. Of each shape: `step` is a whole pass, `compute` the same without its all-reduces,
`sequence` these alone, one after another, on the same buffer. Events around each all-reduce of a captured
pass are no measure of it: as nodes of the graph they take some 10 us each
(proof/hardware/2026-11-26-h200.md).

All by CUDA events, in bfloat16, one by one (`eager`) and as one CUDA graph, on one stream (torch 2.8 puts
collectives on the current one). Repeats take turns: every one of a round is measured before any of the next,
so that all see the same clocks and the same moods of the host. Seconds are those repeats, each of the slowest
rank.
"""

import argparse
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from proof.hardware.jobs.graphs import Work, captured
from proof.hardware.jobs.layers import Layers, in_a_row
from proof.hardware.jobs.listening import say
from proof.hardware.jobs.tokens import LAYERS, REDUCTIONS, SHAPES

REPEATS, WARM_UP = 9, 3
SECONDS = 0.02
"""A repeat lasts so long at least, so that the clocks are those under load."""


@dataclass
class Measured:
    """What is measured; `parts`: of how many like it the seconds are, `found`: the repeats so far."""

    what: str
    launch: str
    size: int
    run: Work
    parts: int = 1
    count: int = 1
    found: list[float] = field(default_factory=list)

    def prepare(self) -> None:
        """Warm, and so often that a repeat lasts long enough."""
        for _ in range(WARM_UP):
            self.run()
        once = _lasts(self.run, 1)
        self.count = max(1, round(_greatest(SECONDS / max(once, 1e-6))))

    def repeat(self) -> None:
        self.found.append(_greatest(_lasts(self.run, self.count) / self.count) / self.parts)


def measured(launch: str, what: str, size: int, plain: Work, parts: int = 1) -> Measured:
    """One of what is measured, as it is launched."""
    run = captured(plain, plain, WARM_UP) if launch == "graph" else plain
    return Measured(what, launch, size, run, parts)


def everything(launch: str, sizes: list[int], ranks: int, device: torch.device) -> Iterator[Measured]:
    """All that is measured with one launch."""
    for size in sizes:
        row = partial(in_a_row, torch.zeros(size // 2, dtype=torch.bfloat16, device=device))
        yield measured(launch, "curve", size, row, parts=REDUCTIONS)
    for hidden, tokens in SHAPES:
        layers, size = Layers(hidden, tokens, ranks, device), 2 * hidden * tokens
        for what in ("step", "compute", "sequence"):
            yield measured(launch, what, size, getattr(layers, what))


def in_turns(all_of: list[Measured]) -> None:
    """Every one once a round, each round beginning with another."""
    for one in all_of:
        one.prepare()
    for turn in range(REPEATS):
        for place in range(len(all_of)):
            all_of[(turn + place) % len(all_of)].repeat()


def with_launch(launch: str, sizes: list[int], ranks: int, device: torch.device) -> list[dict[str, Any]]:
    """What is to be told; no graph outlives this, since NCCL waits for them at its end."""
    all_of = list(everything(launch, sizes, ranks, device))
    in_turns(all_of)
    return [{"what": one.what, "launch": launch, "size": one.size, "seconds": one.found} for one in all_of]


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
            for found in with_launch(launch, sizes, ranks, device):
                tell(**found)
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
