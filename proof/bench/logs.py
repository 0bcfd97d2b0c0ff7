"""What 100 MB of NCCL's log cost to read: `python -m proof.bench.logs [MEGABYTES]`.

Each kind is a log that is made while it is read, in a process of its own: seconds of CPU, the most memory
that the process held, what was read and what was left out.
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context

from wirewatch_lab.study.nccllog import read_log

MEGABYTES = 100


def collectives(n: int) -> str:
    """What a job writes all day: calls of some sizes."""
    return (
        f"node7:4711:4711 [0] NCCL INFO AllReduce: {8 << n % 28} Bytes -> Algo RING proto SIMPLE "
        "channel{Lo..Hi}={0..23}\n"
    )


def program(n: int) -> str:
    """Another program's output, with a line of NCCL's in a hundred."""
    return collectives(n) if n % 100 == 0 else f"step {n} loss 0.1234 tokens {n * 7919 % 1000003}\n"


def connections(n: int) -> str:
    """More connections than any job has, each another."""
    return (
        f"node{n % 128}:{n % 1024}:{n % 1024} [{n % 8}] NCCL INFO Channel {n % 24:02}/0 : {n}[{n % 8}] -> "
        f"{n + 1}[{(n + 1) % 8}] via P2P/CUMEM\n"
    )


def hops(n: int) -> str:
    """More hops between nodes than any job has, each end by its own rank."""
    a, b = n // 2, n // 2 + 8
    rank, way = (b, "receive") if n % 2 else (a, "send")
    return (
        f"node{rank // 8}:{rank % 1024}:{rank % 1024} [{rank % 8}] NCCL INFO Channel {n % 24 // 2:02}/0 : "
        f"{a}[{a % 8}] -> {b}[{b % 8}] [{way}] via NET/IB/{rank % 8}/GDRDMA\n"
    )


def calls(n: int) -> str:
    """Each rank's calls, which no two are the same."""
    return (
        f"node7:{n % 8}:4711 [{n % 8}] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x{n:x} recvbuff 0x{n:x} "
        f"count {1 << n % 28} datatype 9 op 0 root 0 comm 0x55aa{n % 8}0 [nranks=8] stream 0x11\n"
    )


def communicators(n: int) -> str:
    """A communicator of eight ranks after the other."""
    return (
        f"node{n % 128}:{n % 1024}:{n % 1024} [{n % 8}] NCCL INFO ncclCommInitRankConfig comm 0x{n:x} rank "
        f"{n % 8} nranks 8 cudaDev {n % 8} nvmlDev {n % 8} busId 60 commId 0x{n // 8:x} - Init START\n"
    )


def warnings(n: int) -> str:
    """Warnings of which no two are the same."""
    return f"node7:4711:4711 [0] transport/net.cc:1 NCCL WARN call {n} failed with {n * 31}\n"


KINDS: Mapping[str, Callable[[int], str]] = {
    "calls of some sizes": collectives,
    "a program's output": program,
    "connections, all different": connections,
    "hops between nodes, all different": hops,
    "communicators, all different": communicators,
    "calls of each rank (COLL)": calls,
    "warnings, all different": warnings,
}


def made(line: Callable[[int], str], megabytes: int) -> Iterator[str]:
    size = number = 0
    while size < megabytes * 1_000_000:
        text = line(number)
        size, number = size + len(text), number + 1
        yield text


def measure(kind: str, megabytes: int) -> str:
    """One kind in a line."""
    began = time.process_time()
    log = read_log(made(KINDS[kind], megabytes))
    seconds = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    left = sum(log.left_out.values())
    return f"{kind:<34}{seconds:>8.1f}{most:>10.0f}{log.line_count:>12,}{left:>12,}"


def main(megabytes: int) -> None:
    print(f"{f'{megabytes} MB of NCCL log':<34}{'CPU s':>8}{'MiB most':>10}{'lines':>12}{'left out':>12}")
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for kind in KINDS:
            print(pool.apply(measure, (kind, megabytes)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES)
