"""A training job, a process a GPU, that hangs or only looks so when its input says so.

python -m proof.hardware.jobs.hang      READY pids; lines of input, each answered by `DOES word` once it
    happens and, where it ends, by `DID word`:

stop RANK        the rank is stopped by a signal
skip RANK        the rank leaves out an all-reduce and never comes back
stuck            every rank broadcasts as if it were the root: all send, none receives
loader S         no rank gets its data for so many seconds
checkpoint S     rank 0 writes files for so long while the others wait in a barrier
decode S         CUDA graphs of small all-reduces
idle S           every rank waits for a request
end S            the job ends: its communicators are destroyed, its processes stay for so long
"""

import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from proof.hardware.jobs.listening import say
from proof.hardware.jobs.shapes import MIB, SHAPES, Orders, Rank

AHEAD = 40
"""Steps from an order to its beginning, of some 30 ms each: no rank is further than one from another."""
REPLAYS = 200
"""Of a graph, between two questions whether to go on."""
KEPT = 1 << 30
"""Bytes of a checkpoint's file, which is written again and again."""
WARM_UP = 10


class Plan:
    """What all ranks do at the same step, in shared memory: at which, what, who, for how many seconds."""

    def __init__(self, context: Any) -> None:
        self.at = context.Value("q", -1)
        self.what = context.Value("i", 0)
        self.who = context.Value("i", -1)
        self.seconds = context.Value("d", 0.0)
        self.step = context.Value("q", 0)

    def order(self, what: str, who: int, seconds: float) -> None:
        """To happen soon, at a step that no rank has reached."""
        self.what.value, self.who.value, self.seconds.value = NAMES.index(what), who, seconds
        self.at.value = self.step.value + AHEAD


def skip(r: Rank, plan: Plan) -> None:
    while plan.who.value == r.rank:
        time.sleep(1)


def stuck(r: Rank, _plan: Plan) -> None:
    dist.broadcast(r.big, src=r.rank)


def loader(_r: Rank, plan: Plan) -> None:
    time.sleep(plan.seconds.value)


def checkpoint(r: Rank, plan: Plan) -> None:
    if r.rank == 0:
        data, end = bytes(64 * MIB), time.monotonic() + plan.seconds.value
        with tempfile.TemporaryFile() as file:
            while time.monotonic() < end:
                if file.tell() >= KEPT:
                    file.seek(0)
                file.write(data)
                file.flush()
    dist.barrier()


def decode(r: Rank, plan: Plan) -> None:
    end = time.monotonic() + plan.seconds.value
    more = torch.ones(1, device=r.device)
    while more.item() > 0:
        for step in range(REPLAYS):
            SHAPES["decode"](r, step)
        more.fill_(float(time.monotonic() < end))
        dist.broadcast(more, src=0)


def idle(_r: Rank, plan: Plan) -> None:
    threading.Event().wait(plan.seconds.value)


def end(r: Rank, plan: Plan) -> None:
    dist.barrier()
    torch.cuda.synchronize()
    # NCCL destroys no communicator while a graph holds its collectives: it waits for the graph for ever.
    r.graph = None
    dist.destroy_process_group()
    time.sleep(plan.seconds.value)
    if r.rank == 0:
        say("DID", "end")
    raise SystemExit(0)


HAPPENS: Mapping[str, Callable[[Rank, Plan], None]] = {
    "skip": skip, "stuck": stuck, "loader": loader, "checkpoint": checkpoint, "decode": decode, "idle": idle,
    "end": end,
}  # fmt: skip
NAMES = tuple(HAPPENS)


def work(rank: int, ranks: int, port: int, plan: Plan, ready: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    me, step = Rank(rank, ranks, Orders()), 0
    while True:
        if step == plan.at.value:
            what = NAMES[plan.what.value]
            if rank == 0:
                say("DOES", what)
            HAPPENS[what](me, plan)
            # All of them: else whoever goes on would launch more than who waits.
            torch.cuda.synchronize()
            if rank == 0:
                say("DID", what)
        SHAPES["data_parallel"](me, step)
        torch.cuda.current_stream().synchronize()
        step += 1
        if rank == 0:
            plan.step.value = step
        if step == WARM_UP:
            ready.release()


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = torch.cuda.device_count()
    plan, ready = Plan(context), context.Semaphore(0)
    started = [
        context.Process(target=work, args=(rank, ranks, port, plan, ready), daemon=True)
        for rank in range(ranks)
    ]
    for one in started:
        one.start()
    pids = [one.pid or 0 for one in started]
    try:
        for _ in started:
            if not ready.acquire(timeout=120):
                raise SystemExit("the ranks did not begin")
        say("READY", " ".join(map(str, pids)))
        _listen(plan, pids)
    finally:
        for one in started:
            # A stopped one too, and one whose kernel never ends.
            one.kill()
        for one in started:
            one.join(20)


def _listen(plan: Plan, pids: list[int]) -> None:
    while True:
        try:
            word, number, *_ = [*input().split(), "0"]
        except EOFError:
            return
        if word == "stop":
            os.kill(pids[int(number)], signal.SIGSTOP)
            say("DOES", word)
        else:
            plan.order(word, int(number) if word == "skip" else -1, float(number))


if __name__ == "__main__":
    main()
