"""Products, then a large all-reduce, step after step, a process a GPU; CUDA events say how long each took.

python -m proof.hardware.jobs.reductions SECONDS BYTES...

READY pids; then for each size, one by one (`eager`) and as CUDA graphs (`graph`), for so many seconds:
    BEGIN {...} once its steps run, TIMED {...} when they have ended; DONE and the end of the input end it.
Seconds of a collective are the median over the steps of the shortest of all ranks: the others waited.
"""

import json
import os
import socket
import sys
import threading
import time
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from proof.hardware.jobs.graphs import Work, captured
from proof.hardware.jobs.listening import ended, say

MATRIX, PRODUCTS = 8192, 6
"""About 10 ms of a GPU's time a step."""
WARM_UP = 8


def step_parts(data: torch.Tensor, launch: str) -> tuple[Work, Work]:
    """The products of a step, and its collective."""
    shape = (MATRIX, MATRIX)
    left, right = (torch.randn(shape, dtype=torch.bfloat16, device=data.device) for _ in range(2))
    product = torch.empty_like(left)

    def compute() -> None:
        for _ in range(PRODUCTS):
            torch.matmul(left, right, out=product)

    def reduce() -> None:
        dist.all_reduce(data)

    return (captured(compute, compute), captured(reduce, reduce)) if launch == "graph" else (compute, reduce)


def timed(compute: Work, reduce: Work, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of each collective, and from each step to the next, on this rank."""
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(steps)]
    for begin, wire, end in marks:
        begin.record()
        compute()
        wire.record()
        reduce()
        end.record()
    torch.cuda.synchronize()
    wires = [wire.elapsed_time(end) * 1e-3 for _, wire, end in marks]
    periods = [a[0].elapsed_time(b[0]) * 1e-3 for a, b in pairwise(marks)]
    return wires, periods


def case(rank: int, ranks: int, size: int, launch: str, seconds: float) -> None:
    device = torch.device("cuda", rank)
    data = torch.zeros(size // 2, dtype=torch.bfloat16, device=device)
    compute, reduce = step_parts(data, launch)
    _, periods = timed(compute, reduce, WARM_UP)
    longest = torch.tensor([median(periods)], dtype=torch.float64, device=device)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    steps = max(WARM_UP, round(seconds / longest.item()))
    about: dict[str, Any] = {"launch": launch, "size": size, "ranks": ranks}
    began = time.monotonic()
    if rank == 0:
        say("BEGIN", json.dumps(about))
    wires, periods = timed(compute, reduce, steps)
    ended_at = time.monotonic()
    shortest = torch.tensor(wires, dtype=torch.float64, device=device)
    dist.all_reduce(shortest, op=dist.ReduceOp.MIN)
    if rank == 0:
        about |= {"began": began, "ended": ended_at, "steps": steps, "period": median(periods)}
        say("TIMED", json.dumps({**about, "seconds": median(shortest.tolist())}))


def work(rank: int, ranks: int, port: int, seconds: float, sizes: list[int], ready: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    dist.barrier()
    ready.release()
    with torch.no_grad():
        for size in sizes:
            for launch in ("eager", "graph"):
                case(rank, ranks, size, launch, seconds)
                torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    if rank == 0:
        say("DONE")
    dist.destroy_process_group()


def main() -> None:
    seconds, sizes = float(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    gone = ended()
    ranks = torch.cuda.device_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ready = mp.get_context("spawn").Semaphore(0)
    job = mp.spawn(work, args=(ranks, port, seconds, sizes, ready), nprocs=ranks, join=False)

    def announce() -> None:
        for _ in range(ranks):
            ready.acquire()
        say("READY", " ".join(str(one.pid) for one in job.processes))

    threading.Thread(target=announce, daemon=True).start()
    while not job.join(timeout=0.2):
        if gone.is_set():
            # Whoever asked has seen enough: nobody is left to run to the end.
            for one in job.processes:
                one.terminate()
            return


if __name__ == "__main__":
    main()
