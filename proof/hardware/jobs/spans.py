"""Collectives of many sizes in a row, behind products, and beside products, on two GPUs and on all.

python -m proof.hardware.jobs.spans SECONDS     READY; `CASE {...}` of rank 0 for each, then DONE

`began` and `ended` of a case are monotonic seconds. Rings of the tap hold what its collectives took.
"""

import json
import os
import socket
import sys
import time
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from proof.hardware.jobs.listening import say

MIB = 1 << 20
SIZES = tuple(MIB << power for power in range(1, 10))
OPS = ("all_reduce", "all_gather", "reduce_scatter")
HOWS = ("series", "behind", "beside")
MATRIX, PRODUCTS = 8192, 3
LEAST, MOST = 12, 200


class Case:
    """One operation of one size in one surrounding, for one rank."""

    def __init__(self, group: Any, ranks: int) -> None:
        self.group, self.ranks = group, ranks
        self.big = torch.zeros(max(SIZES) // 4, dtype=torch.float32, device="cuda")
        shape = (MATRIX, MATRIX)
        self.left, self.right = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        self.out = torch.empty_like(self.left)
        self.side = torch.cuda.Stream()

    def call(self, op: str, size: int) -> None:
        whole = self.big[: size // 4]
        part = whole[: len(whole) // self.ranks]
        if op == "all_reduce":
            dist.all_reduce(whole, group=self.group)
        elif op == "all_gather":
            dist.all_gather_into_tensor(whole, part, group=self.group)
        else:
            dist.reduce_scatter_tensor(part, whole, group=self.group)

    def products(self) -> None:
        for _ in range(PRODUCTS):
            torch.matmul(self.left, self.right, out=self.out)

    def once(self, op: str, size: int, how: str) -> None:
        if how == "behind":
            self.products()
        if how == "beside":
            with torch.cuda.stream(self.side):
                self.products()
        self.call(op, size)

    def run(self, op: str, size: int, how: str, seconds: float) -> dict[str, Any]:
        for _ in range(4):
            self.once(op, size, how)
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(4):
            self.once(op, size, how)
        torch.cuda.synchronize()
        each = torch.tensor([(time.monotonic() - began) / 4], dtype=torch.float64, device="cuda")
        dist.all_reduce(each, op=dist.ReduceOp.MAX, group=self.group)
        times = min(MOST, max(LEAST, round(seconds / each.item())))
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(times):
            self.once(op, size, how)
        torch.cuda.synchronize()
        return {
            "ranks": self.ranks, "op": op, "size": size, "how": how, "times": times, "began": began,
            "ended": time.monotonic(),
        }  # fmt: skip


def work(rank: int, ranks: int, port: int, seconds: float) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    pair = dist.new_group([0, 1]) if ranks > 2 else None
    dist.barrier()
    if rank == 0:
        say("READY", os.getpid())
    for size_of, group in ((2, pair), (ranks, None)) if pair is not None else ((ranks, None),):
        if rank < size_of:
            case = Case(group, size_of)
            for op, how, size in product(OPS, HOWS, SIZES):
                found = case.run(op, size, how, seconds)
                if rank == 0:
                    say("CASE", json.dumps(found))
            del case
            torch.cuda.empty_cache()
        dist.barrier()
        torch.cuda.synchronize()
    time.sleep(1.0)
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = torch.cuda.device_count()
    mp.spawn(work, (ranks, port, float(sys.argv[1])), ranks)
    say("DONE")


if __name__ == "__main__":
    main()
