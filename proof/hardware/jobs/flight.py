"""A job whose ranks leave dumps of PyTorch's Flight Recorder, started with CASE DIR RANKS ENGINE.

Rank 1 differs. The case `timeout` leaves the dumps to torch itself, when a collective's time-out passes.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch._C import _distributed_c10d as c10d

ODD, SETTLES, TIMES_OUT = 1, 3.0, 12.0
COUNT = 1 << 20


def rank(number: int, case: str, folder: str, ranks: int, engine: str) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29517"
    device = f"cuda:{number}" if engine == "nccl" else "cpu"
    if engine == "nccl":
        torch.cuda.set_device(number)
    limit = timedelta(seconds=TIMES_OUT if case == "timeout" else 600)
    dist.init_process_group(engine, rank=number, world_size=ranks, timeout=limit)
    pairs = [dist.new_group([n, n + 1], group_desc="TP") for n in range(0, ranks - 1, 2)]
    data = torch.ones(COUNT, device=device)
    for _ in range(3):
        dist.all_reduce(data)
        if number // 2 < len(pairs):
            dist.all_reduce(data, group=pairs[number // 2])
    if engine == "nccl":
        torch.cuda.synchronize()
    _ = called(case, number, data, ranks)
    time.sleep(SETTLES if case != "timeout" else 4 * TIMES_OUT)
    if case != "timeout":
        dump = getattr(c10d, "_dump_nccl_trace", None) or c10d._dump_fr_trace  # noqa: SLF001
        Path(folder, f"comm_lib_trace_rank_{number}").write_bytes(dump())
        time.sleep(SETTLES)
    os._exit(0)


def gpus() -> int:
    return int(torch.cuda.device_count())


def called(case: str, number: int, data: torch.Tensor, ranks: int) -> object:
    odd = number == ODD
    if case == "healthy" or (odd and case in {"missing", "timeout"}):
        return None
    if case == "send":
        return dist.isend(data, ODD) if number == 0 else None
    if odd and case == "operation":
        return dist.all_gather_into_tensor(data.new_empty(ranks * COUNT), data, async_op=True)
    if odd and case == "size":
        return dist.all_reduce(data[: COUNT // 2], async_op=True)
    return dist.all_reduce(data.int() if odd and case == "type" else data, async_op=True)


def main() -> None:
    case, folder, ranks, engine = sys.argv[1:]
    prefix = f"{folder}/comm_lib_trace_rank_"
    os.environ |= {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix, "TORCH_FR_DUMP_TEMP_FILE": prefix,
    }  # fmt: skip
    mp.spawn(rank, (case, folder, int(ranks), engine), nprocs=int(ranks))


if __name__ == "__main__":
    main()
