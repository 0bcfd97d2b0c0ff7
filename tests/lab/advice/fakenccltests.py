"""A program that prints the table of nccl-tests: `fakenccltests.py OPERATION -b ... -e ... -f ...`.

As theirs do, each share of the ranks is rounded down to 16 bytes. Every size takes 10 us and its bytes at
300 GB/s. Operations named in FAILING end with 3.
"""

import os
import sys
from pathlib import Path

HEAD = """\
# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: {op}_perf
# nThread 1 nGpus 1 minBytes {first} maxBytes {last} step: {factor}(factor) warmup iters: 5 iters: 20
# Using devices"""
COLUMNS = """\
#                                         out-of-place                in-place
# size count type redop root time algbw busbw #wrong time algbw busbw #wrong
# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)"""


def main(op: str, *options: str) -> int:
    given = dict(zip(options[::2], options[1::2], strict=True))
    rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    each = int(os.environ["SLURM_NTASKS_PER_NODE"])
    log = os.environ["NCCL_DEBUG_FILE"].replace("%h", os.environ["SLURMD_NODENAME"])
    Path(log.replace("%p", str(os.getpid()))).write_text("NCCL INFO Bootstrap\n", "utf-8")
    if op in os.environ.get("FAILING", "").split():
        return 3
    if rank == 0:
        size, last, factor = (int(given[name]) for name in ("-b", "-e", "-f"))
        print(HEAD.format(op=op, first=size, last=last, factor=factor))
        for n in range(ranks):
            at = f"node{n // each} device {n % each:2} [0000:0{n % each}:00]"
            print(f"#  Rank {n:2} Group  0 Pid {100 + n} on {at} NVIDIA H200")
        print(COLUMNS)
        while size <= last:
            print(row(op, size, ranks))
            size *= factor
        print("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1")
    return 0


def row(op: str, size: int, ranks: int) -> str:
    shares = 1 if op == "all_reduce" else ranks
    count = size // 4 if shares == 1 else size // 4 // shares // 4 * 4
    moved = count * 4 * shares
    us = round(10 + moved / 300e3, 2)
    rate, factor = moved / us / 1e3, (2 if shares == 1 else 1) * (ranks - 1) / ranks
    half = f"{us:.2f} {rate:.2f} {factor * rate:.2f} 0"
    redop = "none" if op == "all_gather" else "sum"
    return f"{moved} {count} float {redop} -1 {half} {half}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
