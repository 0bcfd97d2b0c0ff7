"""Steps of four jobs one after another, one process a GPU: what a step takes, with whatever watches it.

python -m proof.hardware.jobs.costs [JOB ...]     `TIMED {"shape", "median", "steps"}` in seconds, then DONE
"""

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from proof.hardware.jobs.listening import say
from proof.hardware.jobs.shapes import SHAPES, Orders, Rank

STEPS: Mapping[str, int] = {"data_parallel": 150, "sharded": 150, "decode": 300, "small": 800}
"""Some 5, 5, 3 and 2 seconds."""
AT_ONCE: Mapping[str, int] = {"decode": 30}
"""Steps between two looks at the clock: what one look takes differs by more than the tap may cost."""
WARM_UP = 0.15


def work(rank: int, ranks: int, port: int, shapes: Sequence[str]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    me = Rank(rank, ranks, Orders())
    for shape in shapes:
        count = STEPS[shape]
        seconds = []
        for step in range(count):
            began = time.perf_counter()
            for _ in range(AT_ONCE.get(shape, 1)):
                SHAPES[shape](me, step)
            torch.cuda.current_stream().synchronize()
            seconds.append((time.perf_counter() - began) / AT_ONCE.get(shape, 1))
        if rank == 0:
            kept = seconds[int(WARM_UP * count) :]
            say("TIMED", json.dumps({"shape": shape, "median": median(kept), "steps": len(kept)}))
    dist.barrier()
    # NCCL destroys no communicator while a graph holds its collectives: it waits for the graph for ever.
    me.graph = None
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = torch.cuda.device_count()
    mp.spawn(work, (ranks, port, sys.argv[1:] or list(STEPS)), ranks)
    say("DONE")


if __name__ == "__main__":
    main()
