"""A job in lockstep, one process a GPU, in one of several shapes; one GPU of it can be made slow meanwhile.

python -m proof.hardware.jobs.shapes SHAPE     READY pids; lines `slow GPU PERCENT [HOW]` and `healthy`, each
    answered by DONE; `STEP monotonic-seconds milliseconds` of rank 0 until the input ends

HOW: `same` does the same work more slowly, as a GPU with a low clock does; `more` does more work, as an
uneven job does; `memory` copies within the GPU's memory beside the work.
"""

import argparse
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch
from torch.distributed.fsdp import fully_shard

from proof.hardware.jobs.graphs import Captured, captured
from proof.hardware.jobs.layers import Layers
from proof.hardware.jobs.listening import say

MATRIX = 8192
WARM_UP = 10
MIB = 1 << 20
SMALL, TINY = 32, 8192
"""Short messages of a step, and bytes of each."""
LAUNCHES = 4000
"""Of a step of that shape."""
WIDTH, LAYERS = 2048, 12
SERVED_WIDTH, SERVED_BATCH, SERVED_PASSES = 16384, 16, 20
"""Of a served transformer: weights of 8.6 GB on each of two GPUs, read once a pass."""
SLEEPER = r"""
extern "C" __global__ void hold(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    __nanosleep(500);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}
"""
HOWS = ("same", "more", "memory")


class Orders:
    """What all ranks shall do, in shared memory: the slow rank or -1, per cent, how, and whether to end."""

    def __init__(self) -> None:
        self.slow = mp.Value("i", -1)
        self.percent = mp.Value("d", 0.0)
        self.how = mp.Value("i", 0)
        self.end = mp.Value("i", 0)


class Rank:
    """One GPU of the job with its operands."""

    def __init__(self, rank: int, ranks: int, orders: Orders) -> None:
        self.rank, self.ranks, self.orders = rank, ranks, orders
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        self.left = self._matrix()
        self.right = self._matrix()
        self.product = torch.empty_like(self.left)
        self.big = torch.zeros(256 * MIB // 4, dtype=torch.float32, device=self.device)
        self.small = torch.zeros(32 * MIB // 4, dtype=torch.float32, device=self.device)
        self.tiny = torch.zeros(TINY // 2, dtype=torch.bfloat16, device=self.device)
        self.side = torch.cuda.Stream(self.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.passes: Captured | None = None
        self.model: Any = None
        self._hold = _sleeper(self.device)
        self.step = 0.0
        """Seconds of the shortest whole step, before anybody is slow: the first ones prepare much."""
        self._owed = 0.0
        self._each = self._time_one()

    def _matrix(self) -> torch.Tensor:
        return torch.randn((MATRIX, MATRIX), dtype=torch.bfloat16, device=self.device)

    def _time_one(self) -> float:
        """Seconds of one product."""
        for _ in range(5):
            torch.matmul(self.left, self.right, out=self.product)
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(20):
            torch.matmul(self.left, self.right, out=self.product)
        torch.cuda.synchronize()
        return (time.monotonic() - began) / 20

    def gemms(self, count: int, rows: int = MATRIX) -> None:
        """So many products; more slowly, or more of them, when this rank is the slow one."""
        share = rows / MATRIX
        for _ in range(count):
            torch.matmul(self.left[:rows], self.right, out=self.product[:rows])
            self.drag(share)

    def drag_step(self) -> None:
        """What the slow rank has to bear for the work of a whole step."""
        self.drag(self.step / self._each)

    def drag(self, share: float) -> None:
        """What the slow rank has to bear for work of so many products."""
        if self.orders.slow.value != self.rank:
            return
        part, how = self.orders.percent.value / 100 * share, HOWS[self.orders.how.value]
        if how == "same":
            self._hold(int(part * self._each * 1e9))
        elif how == "more":
            self._owed += part
            while self._owed >= 0.125:
                rows = MATRIX // 8
                torch.matmul(self.left[:rows], self.right, out=self.product[:rows])
                self._owed -= 0.125
        else:
            with torch.cuda.stream(self.side):
                self.big[: len(self.big) // 2].copy_(self.big[len(self.big) // 2 :], non_blocking=True)


def _sleeper(device: torch.device) -> Callable[[int], None]:
    """A kernel that holds every SM for so many nanoseconds and does nothing there."""
    place = Device(device.index)
    place.set_current()
    program = Program(SLEEPER, "c++", ProgramOptions(arch=f"sm_{place.arch}"))
    kernel = program.compile("cubin").get_kernel("hold")
    config = LaunchConfig(grid=torch.cuda.get_device_properties(device).multi_processor_count, block=128)

    def hold(nanoseconds: int) -> None:
        stream = Stream.from_handle(torch.cuda.current_stream(device).cuda_stream)
        launch(stream, config, kernel, nanoseconds)

    return hold


def data_parallel(r: Rank, _step: int) -> None:
    r.gemms(20)
    dist.all_reduce(r.big)


def tensor_parallel(r: Rank, _step: int) -> None:
    for _ in range(16):
        r.gemms(1, MATRIX // 2)
        dist.all_reduce(r.small)


def sharded(r: Rank, _step: int) -> None:
    """Parameters gathered and gradients scattered while the products of another layer run."""
    piece = r.big[: len(r.big) // r.ranks]
    for _ in range(4):
        r.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(r.side):
            dist.all_gather_into_tensor(r.big, piece)
        r.gemms(5)
        torch.cuda.current_stream().wait_stream(r.side)
        dist.reduce_scatter_tensor(piece, r.big)


def memory_bound(r: Rank, _step: int) -> None:
    for _ in range(40):
        r.big.mul_(1.0001)
        r.drag(0.1)
    r.gemms(2)
    dist.all_reduce(r.small)


def pipeline(r: Rank, _step: int) -> None:
    """Stages with a third more work in each than in the one before; activations there, gradients back."""
    work = 4 + (4 * r.rank) // max(1, r.ranks - 1) // 3
    for _ in range(4):
        if r.rank:
            dist.recv(r.small, r.rank - 1)
        r.gemms(work)
        if r.rank < r.ranks - 1:
            dist.send(r.small, r.rank + 1)
    for _ in range(4):
        if r.rank < r.ranks - 1:
            dist.recv(r.small, r.rank + 1)
        r.gemms(work)
        if r.rank:
            dist.send(r.small, r.rank - 1)


def experts(r: Rank, step: int) -> None:
    """Tokens go to experts, more of them to that of rank 0, who computes the longer."""
    even = len(r.small) // r.ranks
    to_first = even + even // 3
    rest = (len(r.small) - to_first) // max(1, r.ranks - 1)
    sends = [to_first, *[rest] * (r.ranks - 1)]
    mine = sends[r.rank]
    for _ in range(8):
        out = torch.empty(mine * r.ranks, dtype=torch.float32, device=r.device)
        dist.all_to_all_single(out, r.small[: sum(sends)], [mine] * r.ranks, sends)
        r.gemms(1, MATRIX * mine // len(r.small) // 64 * 64)
        dist.all_to_all_single(r.small[: sum(sends)], out, sends, [mine] * r.ranks)
    if step % 4 == 0:
        dist.all_reduce(r.big)


def checkpoints(r: Rank, step: int) -> None:
    """Rank 0 writes its state now and then while the others wait for it."""
    data_parallel(r, step)
    if step % 200 == 199 and r.rank == 0:
        for _ in range(20):
            r.big.cpu()


def stalls(r: Rank, step: int) -> None:
    """The last rank's loader is late."""
    if r.rank == r.ranks - 1:
        time.sleep(0.010)
    data_parallel(r, step)


def bursts(r: Rank, step: int) -> None:
    """Steps with pauses in which everybody waits for the host."""
    data_parallel(r, step)
    torch.cuda.synchronize()
    time.sleep(0.015)


def launches(r: Rank, _step: int) -> None:
    """Kernels that are shorter than it takes to launch one."""
    for _ in range(LAUNCHES):
        r.tiny.mul_(1.0)
    dist.all_reduce(r.small)


def series(r: Rank, _step: int) -> None:
    """Each collective of two sizes, several in a row, and nothing else."""
    for data in (r.big[: 64 * MIB // 4], r.big):
        piece = data[: len(data) // r.ranks]
        for _ in range(8):
            dist.all_reduce(data)
        for _ in range(8):
            dist.all_gather_into_tensor(data, piece)
        for _ in range(8):
            dist.reduce_scatter_tensor(piece, data)


def apart(r: Rank, _step: int) -> None:
    """The same collectives, each behind the products of a layer."""
    for data in (r.big[: 64 * MIB // 4], r.big):
        piece = data[: len(data) // r.ranks]
        r.gemms(4)
        dist.all_reduce(data)
        r.gemms(4)
        dist.all_gather_into_tensor(data, piece)
        r.gemms(4)
        dist.reduce_scatter_tensor(piece, data)


def small(r: Rank, _step: int) -> None:
    """Many short messages, one by one."""
    for _ in range(SMALL):
        dist.all_reduce(r.tiny)


def decode(r: Rank, _step: int) -> None:
    """The same as one CUDA graph."""
    if r.graph is None:
        r.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(r.side):
            dist.all_reduce(r.tiny)
        torch.cuda.synchronize()
        r.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(r.graph, capture_error_mode="thread_local"):
            for _ in range(SMALL):
                dist.all_reduce(r.tiny)
    r.graph.replay()


def ddp(r: Rank, _step: int) -> None:
    """A transformer whose gradients are reduced in buckets while the rest is computed."""
    if r.model is None:
        r.model = torch.nn.parallel.DistributedDataParallel(_transformer(r.device), device_ids=[r.device])
    _train(r, r.model)


def fsdp(r: Rank, _step: int) -> None:
    """The same, its parameters gathered and its gradients scattered layer by layer."""
    if r.model is None:
        r.model = _transformer(r.device)
        for layer in r.model.layers:
            fully_shard(layer)
        fully_shard(r.model)
    _train(r, r.model)


def ddp_stalls(r: Rank, step: int) -> None:
    """The loader of the last rank is late."""
    if r.rank == r.ranks - 1:
        time.sleep(0.020)
    ddp(r, step)


def ddp_pauses(r: Rank, step: int) -> None:
    """Everybody waits for the host after each step."""
    ddp(r, step)
    torch.cuda.synchronize()
    time.sleep(0.030)


def served(r: Rank, _step: int) -> None:
    """Tokens of a tensor-parallel transformer for a small batch, each pass a CUDA graph."""
    if r.passes is None:
        layers = Layers(SERVED_WIDTH, SERVED_BATCH, r.ranks, r.device)
        r.passes = captured(layers.step, layers.step)
    for _ in range(SERVED_PASSES):
        r.passes()


def _transformer(device: torch.device) -> Any:
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, 16, 4 * WIDTH, dropout=0.0, batch_first=True, device=device, dtype=torch.bfloat16
    )
    return torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)


def _train(r: Rank, model: Any) -> None:
    states = torch.randn((8, 1024, WIDTH), device=r.device, dtype=torch.bfloat16)
    model(states).float().pow(2).mean().backward()
    r.drag_step()
    model.zero_grad(set_to_none=True)


SHAPES: dict[str, Callable[[Rank, int], None]] = {
    "data_parallel": data_parallel, "tensor_parallel": tensor_parallel, "sharded": sharded,
    "memory_bound": memory_bound, "pipeline": pipeline, "experts": experts, "checkpoints": checkpoints,
    "stalls": stalls, "bursts": bursts, "launches": launches, "series": series,
    "apart": apart, "small": small, "decode": decode,
    "ddp": ddp, "fsdp": fsdp, "ddp_stalls": ddp_stalls, "ddp_pauses": ddp_pauses, "served": served,
}  # fmt: skip


def work(rank: int, ranks: int, shape: str, port: int, orders: Orders, ready: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    me, step = Rank(rank, ranks, orders), 0
    end = torch.zeros(1, device=me.device)
    while True:
        began = time.monotonic()
        SHAPES[shape](me, step)
        torch.cuda.current_stream().synchronize()
        step += 1
        if step <= WARM_UP:
            took = time.monotonic() - began
            me.step = min(me.step or took, took)
        if step == WARM_UP:
            ready.release()
        if rank == 0 and step > WARM_UP:
            say("STEP", f"{time.monotonic():.6f} {1e3 * (time.monotonic() - began):.4f}")
        if step % 10 == 0:
            # All ranks leave at the same step.
            end.fill_(orders.end.value)
            dist.all_reduce(end)
            if end.item() > 0:
                return


def _listen(orders: Orders) -> None:
    while True:
        try:
            words = input().split()
        except EOFError:
            orders.end.value = 1
            return
        if words and words[0] == "slow":
            orders.percent.value = float(words[2])
            orders.how.value = HOWS.index(words[3] if len(words) > 3 else "same")
            orders.slow.value = int(words[1])
        else:
            orders.slow.value = -1
        say("DONE", " ".join(words))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    shape = parser.parse_args().shape
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.set_start_method("spawn")
    ranks, orders, ready = torch.cuda.device_count(), Orders(), mp.Semaphore(0)
    processes = [
        mp.Process(target=work, args=(rank, ranks, shape, port, orders, ready), daemon=True)
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    say("READY", " ".join(str(process.pid) for process in processes))
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
