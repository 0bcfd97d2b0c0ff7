"""All-reduces of known sizes, with other calls of NCCL before and between them, each timed by CUDA events.

python -m proof.hardware.jobs.mixed [PHASE ...]     `CALLS {...}` of rank 0 for each phase, then DONE

A phase is a list of calls between which something else happens: nothing, broadcasts, gathers of uneven
parts, sends and receives, another communicator, or replays of a CUDA graph. Before the first phase come
10,000 small calls. `CALLS` holds for each all-reduce: bytes, monotonic seconds before and after the call, and
seconds by CUDA events.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from proof.hardware.jobs.listening import say

MIB = 1 << 20
SIZES = (4 * MIB, 32 * MIB, 256 * MIB)
"""No two of them take nearly the same time."""
ROUNDS, PAUSE = 24, 0.04
"""Calls of each size in a phase, and seconds between two: several periods of the tap long."""
AHEAD = 4_000_000
"""Cycles for which the GPU waits, some 2 ms, so that both events and the call are there when they run."""
UNCOUNTED, SMALL, REPLAYS = 10_000, 8192, 100
PLAIN, BROADCASTS, UNEVEN, SENDS, OTHER, GRAPH = "plain", "broadcasts", "uneven", "sends", "other", "graph"


class Between:
    """Calls that happen between two timed ones, by the name of a phase."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.held = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
        self.parts = [
            torch.zeros(SMALL * (1 + one), dtype=torch.uint8, device="cuda") for one in range(ranks)
        ]
        self.second: Any = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.of: Mapping[str, Callable[[], None]] = {
            PLAIN: lambda: None, BROADCASTS: self.broadcast, UNEVEN: self.uneven, SENDS: self.send,
            OTHER: self.other, GRAPH: self.replay,
        }  # fmt: skip

    def broadcast(self) -> None:
        dist.broadcast(self.held, 0)

    def uneven(self) -> None:
        """Gather parts of several sizes: NCCL gets a group of broadcasts, and newer ones an AllGatherV."""
        own = torch.zeros_like(self.parts[self.rank])
        dist.all_gather(self.parts, own)

    def send(self) -> None:
        to, source = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        both = [
            dist.P2POp(dist.isend, self.held, to),
            dist.P2POp(dist.irecv, torch.empty_like(self.held), source),
        ]
        for one in dist.batch_isend_irecv(both):
            one.wait()

    def other(self) -> None:
        self.second = self.second or dist.new_group(list(range(self.ranks)))
        dist.all_reduce(self.held, group=self.second)

    def replay(self) -> None:
        if self.graph is None:
            self.graph = _captured(self.held)
        for _ in range(REPLAYS):
            self.graph.replay()


def _captured(held: torch.Tensor) -> torch.cuda.CUDAGraph:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        dist.all_reduce(held)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(4):
                dist.all_reduce(held)
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def phase(between: Callable[[], None]) -> list[Sequence[float]]:
    """Bytes, seconds before and after, and seconds on the GPU, of each all-reduce."""
    big = torch.zeros(max(SIZES), dtype=torch.uint8, device="cuda")
    found: list[Sequence[float]] = []
    for count in range(ROUNDS * len(SIZES)):
        size = SIZES[count % len(SIZES)]
        between()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        torch.cuda._sleep(AHEAD)  # noqa: SLF001 - nothing else holds a stream for so many cycles
        before = time.monotonic()
        begin.record()
        dist.all_reduce(big[:size].view(torch.float32))
        end.record()
        after = time.monotonic()
        torch.cuda.synchronize()
        found.append((size, before, after, float(begin.elapsed_time(end)) * 1e-3))
        time.sleep(PAUSE)
    return found


def work(rank: int, ranks: int, port: int, names: Sequence[str]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    between = Between(rank, ranks)
    small = torch.zeros(SMALL // 4, device="cuda")
    for _ in range(UNCOUNTED):
        dist.all_reduce(small)
    torch.cuda.synchronize()
    if rank == 0:
        say("READY", os.getpid())
    for name in names:
        calls = phase(between.of[name])
        if rank == 0:
            say("CALLS", json.dumps({"phase": name, "calls": calls}))
    dist.barrier()
    between.graph = None
    dist.destroy_process_group()


def main() -> None:
    names = sys.argv[1:] or [PLAIN, BROADCASTS, UNEVEN, SENDS, OTHER, GRAPH]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = torch.cuda.device_count()
    mp.spawn(work, (ranks, port, names), ranks)
    say("DONE", time.monotonic())


if __name__ == "__main__":
    main()
