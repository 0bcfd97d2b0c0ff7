"""A transformer of six layers of 2,048 in one of several ways, on the GPUs that this process may see.

python -m proof.hardware.jobs.trainer WAY [--batch N] [--accumulate N]
    READY pids; `STEP number monotonic-seconds milliseconds` of rank 0 until the input ends
    Orders, each answered by `DONE order`: `more RANK PERCENT`, `loader RANK MS`, `stall RANK SECONDS EVERY`,
    `sleep RANK`, `file RANK SECONDS`, `healthy`

`more` gives a rank more work; `loader` holds it up before each step, `stall` before each so many steps.
`sleep` stops it for good; `file` has it write to a disk for so long. `healthy` ends what may be ended.
"""

import argparse
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard

from proof.hardware.jobs.listening import say

WIDTH, LAYERS, HEADS, TOKENS = 2048, 6, 16, 1024
WARM_UP = 5
EXPERTS_HOT = 1.5
PIECES = 4
MIB = 1 << 20
DISK = "/var/tmp"
"""A disk, not memory."""
FAULTS = ("healthy", "more", "loader", "stall", "sleep", "file")


class TrainerOrders:
    """What shall happen, in shared memory: which fault, to which rank, how much, how often; and the end."""

    def __init__(self) -> None:
        self.fault = mp.Value("i", 0)
        self.rank = mp.Value("i", -1)
        self.amount = mp.Value("d", 0.0)
        self.every = mp.Value("i", 1)
        self.end = mp.Value("i", 0)


class Trainer:
    """One rank: its model, its groups, and what it has to bear."""

    def __init__(self, rank: int, ranks: int, way: str, options: argparse.Namespace, orders: Any) -> None:
        self.rank, self.ranks, self.way, self.options, self.orders = rank, ranks, way, options, orders
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.batch = options.batch
        self.extra = torch.randn((8192, 8192), dtype=torch.bfloat16, device=self.device)
        self.product = torch.empty_like(self.extra)
        self.each = 0.0
        self.whole = 0.0
        self.step: Callable[[], None] = getattr(self, f"_{way}")()
        self.layer_time()

    def layer_time(self) -> None:
        """Seconds of one product."""
        for _ in range(4):
            torch.matmul(self.extra, self.extra, out=self.product)
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(10):
            torch.matmul(self.extra, self.extra, out=self.product)
        torch.cuda.synchronize()
        self.each = (time.monotonic() - began) / 10

    def layer(self) -> Any:
        return torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, device=self.device, dtype=torch.bfloat16
        )

    def model(self, layers: int = LAYERS) -> Any:
        return torch.nn.TransformerEncoder(self.layer(), layers, enable_nested_tensor=False)

    def tokens(self) -> torch.Tensor:
        return torch.randn((self.batch, TOKENS, WIDTH), device=self.device, dtype=torch.bfloat16)

    def bear(self, number: int) -> None:
        """Bear what this rank was ordered to, before a step."""
        if self.orders.rank.value != self.rank:
            return
        fault, amount = FAULTS[self.orders.fault.value], self.orders.amount.value
        if fault == "more":
            for _ in range(round(amount / 100 * self.whole / self.each)):
                torch.matmul(self.extra, self.extra, out=self.product)
        elif fault == "loader":
            time.sleep(amount / 1000)
        elif fault == "stall" and number % self.orders.every.value == 0:
            time.sleep(amount)
        elif fault == "sleep":
            while True:
                time.sleep(3600)
        elif fault == "file":
            _write(amount)
            self.orders.rank.value = -1

    def _ddp(self) -> Callable[[], None]:
        wrapped = torch.nn.parallel.DistributedDataParallel(self.model(), device_ids=[self.device])

        def step() -> None:
            for piece in range(self.options.accumulate):
                last = piece == self.options.accumulate - 1
                wrapped.require_backward_grad_sync = last
                wrapped(self.tokens()).float().pow(2).mean().backward()
            wrapped.zero_grad(set_to_none=True)

        return step

    def _fsdp(self) -> Callable[[], None]:
        model = self.model()
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)

        def step() -> None:
            model(self.tokens()).float().pow(2).mean().backward()
            norm = torch.stack([p.grad.to_local().float().norm() for p in model.parameters()]).norm()
            dist.all_reduce(norm)
            norm.item()
            model.zero_grad(set_to_none=True)

        return step

    def _tpdp(self) -> Callable[[], None]:
        """Pairs of ranks share each layer; gradients are reduced between the pairs."""
        pairs = [[first, first + 1] for first in range(0, self.ranks, 2)]
        across = [[one for one in range(self.ranks) if one % 2 == part] for part in range(2)]
        tensor = [dist.new_group(pair) for pair in pairs][self.rank // 2]
        data = [dist.new_group(group) for group in across][self.rank % 2]
        columns = [self.extra[: 4 * WIDTH // 2, :WIDTH].clone() for _ in range(LAYERS)]
        gradients = torch.zeros(32 * MIB, dtype=torch.bfloat16, device=self.device)

        def step() -> None:
            state = self.tokens().reshape(-1, WIDTH)
            for _ in range(2):
                for weights in columns:
                    for _ in range(PIECES):
                        part = torch.matmul(torch.matmul(state, weights.T), weights)
                    dist.all_reduce(part, group=tensor)
                    state = part * 0.001
            if self.ranks > 2:
                dist.all_reduce(gradients, group=data)

        return step

    def _pipeline(self) -> Callable[[], None]:
        """Stages, four pieces there and back; the ends share an embedding."""
        stage = self.model(max(1, LAYERS // self.ranks)).eval()
        held = self.tokens()
        ends = dist.new_group([0, self.ranks - 1])
        embedding = torch.zeros(16 * MIB, dtype=torch.bfloat16, device=self.device)

        def step() -> None:
            with torch.no_grad():
                for there in (True, False):
                    before, behind = (
                        (self.rank - 1, self.rank + 1) if there else (self.rank + 1, self.rank - 1)
                    )
                    for _ in range(PIECES):
                        if 0 <= before < self.ranks:
                            dist.recv(held, before)
                        out = stage(held)
                        if 0 <= behind < self.ranks:
                            dist.send(out, behind)
                if self.rank in {0, self.ranks - 1}:
                    dist.all_reduce(embedding, group=ends)

        return step

    def _moe(self) -> Callable[[], None]:
        """Tokens go to experts; that of rank 0 has half as many again; gradients of the rest are reduced."""
        layer = self.model(2).eval()
        weights = self.extra[:WIDTH, :WIDTH].clone()
        gradients = torch.zeros(16 * MIB, dtype=torch.bfloat16, device=self.device)

        def step() -> None:
            with torch.no_grad():
                state = self.tokens().reshape(-1, WIDTH)
                hot = round(EXPERTS_HOT * len(state) / (self.ranks - 1 + EXPERTS_HOT))
                rest = (len(state) - hot) // (self.ranks - 1)
                sends = [len(state) - rest * (self.ranks - 1), *[rest] * (self.ranks - 1)]
                for _ in range(PIECES):
                    mine = sends[self.rank]
                    got = torch.empty((mine * self.ranks, WIDTH), dtype=state.dtype, device=self.device)
                    dist.all_to_all_single(got, state, [mine] * self.ranks, sends)
                    for _ in range(PIECES):
                        got = torch.matmul(got, weights) * 0.01
                    dist.all_to_all_single(state, got, sends, [mine] * self.ranks)
                    layer(state.reshape(self.batch, TOKENS, WIDTH))
                dist.all_reduce(gradients)

        return step

    def _decode(self) -> Callable[[], None]:
        """Eighty small all-reduces with products between, as one CUDA graph."""
        small = torch.zeros((16, WIDTH), dtype=torch.bfloat16, device=self.device)
        weights = self.extra[:WIDTH, :WIDTH].clone()

        def once() -> None:
            for _ in range(80):
                torch.matmul(small, weights, out=small.clone())
                dist.all_reduce(small)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            once()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            once()

        def step() -> None:
            for _ in range(20):
                graph.replay()

        return step


def _write(seconds: float) -> None:
    """Write a file to the disk, flushed all the time."""
    block, end = os.urandom(4 * MIB), time.monotonic() + seconds
    with tempfile.NamedTemporaryFile(dir=DISK) as file:
        while time.monotonic() < end:
            for _ in range(16):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            if file.tell() > 2048 * MIB:
                file.seek(0)


def work(rank: int, ranks: int, way: str, options: Any, port: int, orders: Any, ready: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    trainer, number = Trainer(rank, ranks, way, options, orders), 0
    store = torch.zeros(1)
    gloo = dist.new_group(backend="gloo")
    while True:
        began = time.monotonic()
        trainer.bear(number)
        trainer.step()
        torch.cuda.current_stream().synchronize()
        took = time.monotonic() - began
        number += 1
        if number <= WARM_UP:
            trainer.whole = min(trainer.whole or took, took)
        if number == WARM_UP:
            ready.release()
        if rank == 0 and number > WARM_UP:
            say("STEP", f"{number} {time.monotonic():.3f} {1e3 * took:.3f}")
        if number % 10 == 0:
            store.fill_(orders.end.value)
            dist.all_reduce(store, group=gloo)
            if store.item() > 0:
                return


def _listen(orders: TrainerOrders, processes: list[Any]) -> None:
    while True:
        try:
            words = input().split()
        except EOFError:
            orders.end.value = 1
            time.sleep(8)
            for process in processes:
                process.kill()
            return
        fault, *numbers = words
        orders.rank.value = -1
        if fault != "healthy":
            orders.amount.value = float(numbers[1]) if len(numbers) > 1 else 0.0
            orders.every.value = int(numbers[2]) if len(numbers) > 2 else 1
            orders.fault.value = FAULTS.index(fault)
            orders.rank.value = int(numbers[0])
        say("DONE", " ".join(words))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("ddp", "fsdp", "tpdp", "pipeline", "moe", "decode"))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.set_start_method("spawn")
    ranks, orders, ready = torch.cuda.device_count(), TrainerOrders(), mp.Semaphore(0)
    processes = [
        mp.Process(target=work, args=(rank, ranks, options.way, options, port, orders, ready), daemon=True)
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    say("READY", " ".join(str(process.pid) for process in processes))
    threading.Thread(target=_listen, args=(orders, processes), daemon=True).start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
