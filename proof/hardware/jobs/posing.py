"""Ranks on one GPU that pose as nodes of their own: NCCL takes each other's data over sockets then.

python -m proof.hardware.jobs.posing RANKS EACH BYTES...

READY pids; then of every op and size so many collectives, one by one, `EAGER {"rank", "op", "size",
"seconds"}` of each rank by CUDA events; small ones in a CUDA graph and some launched after it by the same
communicator, `GRAPH {"captured", "replays", "after", "size"}`; then by a second one `CALLS {"median"}`,
seconds of a call without its work, and STEADY while steps go on until the input ends.
"""

import json
import os
import socket
import sys
import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from proof.hardware.jobs.listening import ended, say

FLOAT32 = 4
IN_A_GRAPH, REPLAYS, AFTER = 8, 20, 30
CALLS, ROUNDS = 50, 20
SMALL, STEADY, BEHIND = 16 << 10, 2 << 20, 512 << 10


def works(size: int, ranks: int, device: torch.device) -> dict[str, Any]:
    """Each op over a message of so many bytes, as nccl-tests counts them."""
    whole = torch.zeros(size // FLOAT32, device=device)
    part = torch.zeros(size // FLOAT32 // ranks, device=device)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
    }


def eager(rank: int, ranks: int, each: int, sizes: list[int], device: torch.device) -> None:
    for size in sizes:
        for op, work in works(size, ranks, device).items():
            marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(each)]
            for begin, end in marks:
                begin.record()
                work()
                end.record()
                # One at a time: the kernels of two processes share one GPU in turns.
                end.synchronize()
            seconds = [begin.elapsed_time(end) * 1e-3 for begin, end in marks]
            say("EAGER", json.dumps({"rank": rank, "op": op, "size": size, "seconds": seconds}))


def graphed(rank: int, device: torch.device) -> None:
    """Small all-reduces as one CUDA graph, replayed; then some of another size, launched by the host."""
    data = torch.zeros(SMALL // FLOAT32, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(IN_A_GRAPH):
            dist.all_reduce(data)
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    behind = torch.zeros(BEHIND // FLOAT32, device=device)
    for _ in range(AFTER):
        dist.all_reduce(behind)
        torch.cuda.synchronize()
    if rank == 0:
        said = {"captured": IN_A_GRAPH, "replays": REPLAYS, "after": AFTER, "size": BEHIND}
        say("GRAPH", json.dumps(said))


def called(rank: int, device: torch.device, group: dist.ProcessGroup) -> None:
    """What a call takes the host, without waiting for what it starts."""
    data, taken = torch.zeros(SMALL // FLOAT32, device=device), []
    for _ in range(ROUNDS):
        for _ in range(CALLS):
            began = time.perf_counter()
            dist.all_reduce(data, group=group)
            taken.append(time.perf_counter() - began)
        torch.cuda.synchronize()
    if rank == 0:
        say("CALLS", json.dumps({"median": median(taken)}))


def work(rank: int, ranks: int, port: int, each: int, sizes: list[int], ready: Any) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_HOSTID": f"posing-{rank}",
        "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket",
    }  # fmt: skip
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=device)
    ready.release()
    eager(rank, ranks, each, sizes, device)
    graphed(rank, device)
    # A communicator with a captured call is not timed any more.
    fresh = dist.new_group(list(range(ranks)))
    called(rank, device, fresh)
    if rank == 0:
        say("STEADY")
    data = torch.zeros(STEADY // FLOAT32, device=device)
    while True:
        dist.all_reduce(data, group=fresh)
        torch.cuda.synchronize()
        time.sleep(0.02)


def main() -> None:
    ranks, each, *sizes = map(int, sys.argv[1:])
    gone = ended()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ready = mp.get_context("spawn").Semaphore(0)
    job = mp.spawn(work, args=(ranks, port, each, sizes, ready), nprocs=ranks, join=False)
    for _ in range(ranks):
        ready.acquire()
    say("READY", " ".join(str(one.pid) for one in job.processes))
    while not job.join(timeout=0.2):
        if gone.is_set():
            for one in job.processes:
                # A stopped one too.
                one.kill()
            return


if __name__ == "__main__":
    main()
