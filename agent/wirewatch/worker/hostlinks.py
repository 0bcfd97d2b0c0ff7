"""Host links: copies between each GPU and pinned memory of the host, each GPU alone and all at once.

A GPU's memory of the host is made by a thread on the CPUs near it, since the kernel then takes memory there.
A copy is timed by events around several in a row, so that no launch is waited for.
"""

import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from wirewatch.core.hostlink import HostCopies
from wirewatch.core.probe import KIB, Plan
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import Queue, in_queue

TO_DEVICE, FROM_DEVICE, BOTH = "to_device", "from_device", "both"
WARMUP, RUNS = 2, 5
"""Copies before the timed copies, and timed copies: an idle link trains up during the first copies."""
COPIED = 2 * (WARMUP + RUNS) + 1 + RUNS
"""Copies each way in all: alone, in both directions, and beside the copies of the other GPUs."""
SHARE = 2
"""Divisor of free memory: at most this part is pinned, since nobody else gets pinned memory."""
_CGROUPS = Path("/sys/fs/cgroup")
_NODES = Path("/sys/devices/system/node")


class HostQueue(Queue):
    """A GPU's queue that can copy from and to pinned memory of the host."""

    @abstractmethod
    def pin(self, size: int) -> None:
        """Make so many bytes of pinned memory, by the calling thread; raises EngineError where refused."""

    @abstractmethod
    def move(self, way: str, size: int) -> None:
        """Put a copy of so many bytes into the queue, or one each way at once."""


def host_copies(gpus: Sequence[HostQueue], plan: Plan) -> list[HostCopies] | str:
    """Return the copies of every GPU, or why the host's memory was not given."""
    size = plan.host_bytes
    needed, free = 2 * size * len(gpus), free_bytes()
    if needed > free // SHARE:
        return f"{needed} bytes of the host's memory are to be pinned, and {free} are free"
    lists = plan.near or ("",) * len(gpus)
    roomy = [has_room(parse_cpus(cpus), SHARE * needed) for cpus in lists]
    try:
        with ThreadPoolExecutor(len(gpus)) as pool:
            pinned = list(pool.map(partial(_pin, 2 * size), gpus, lists))
    except EngineError as error:
        return f"{needed} bytes of the host's memory could not be pinned: {error}"
    ways = (TO_DEVICE, FROM_DEVICE, BOTH)
    alone = [[in_queue([g], partial(g.move, way, size), WARMUP, RUNS) for way in ways] for g in gpus]
    together = [_together(gpus, way, size) for way in (TO_DEVICE, FROM_DEVICE)]
    return [
        HostCopies(
            gpu=gpu.rank, size_bytes=size, to_device=to.seconds, to_device_low=to.low,
            from_device=back.seconds, from_device_low=back.low, both=both.seconds, all_to_device=all_to,
            all_from_device=all_back, runs=COPIED, near=None if here and not room else here,
        )
        for gpu, (to, back, both), all_to, all_back, here, room in zip(
            gpus, alone, *together, pinned, roomy, strict=True
        )
    ]  # fmt: skip


@contextmanager
def near(cpus: str) -> Iterator[bool | None]:
    """Run this thread on these CPUs; yields whether it may, None where no CPUs are given."""
    may, wanted = os.sched_getaffinity(0), parse_cpus(cpus)
    if not wanted & may:
        yield False if wanted else None
        return
    os.sched_setaffinity(0, wanted & may)
    try:
        yield True
    finally:
        os.sched_setaffinity(0, may)


def parse_cpus(text: str) -> set[int]:
    """The numbers of a list such as `0-3,8`; none where it is no such list."""
    found: set[int] = set()
    with suppress(ValueError):
        for part in text.split(","):
            first, _, last = part.partition("-")
            found |= {*range(int(first), int(last or first) + 1)}
    return found


def has_room(cpus: set[int], size: int) -> bool:
    """Whether each NUMA node of these CPUs has so many free bytes; else the kernel takes another node's."""
    with suppress(OSError):
        theirs = (node for node in _NODES.glob("node[0-9]*") if cpus & parse_cpus(_text(node / "cpulist")))
        return all(_number(r"MemFree: +(\d+) kB", node / "meminfo") * KIB >= size for node in theirs)
    return False


def _text(file: Path) -> str:
    return file.read_text("ascii")


def _number(pattern: str, file: Path) -> int:
    """The number in a file, 0 where it has none; raises OSError."""
    found = re.search(pattern, _text(file))
    return int(found[1]) if found else 0


def free_bytes() -> int:
    """Memory of this machine, or of this process's control group, to be had without ending a process."""
    free = _number(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo")) * KIB
    with suppress(OSError):
        own = _text(Path("/proc/self/cgroup")).rpartition("::/")[2].strip()
        for group in (_CGROUPS / own, *(_CGROUPS / own).parents):
            with suppress(OSError, ValueError):
                limit, used = (int(_text(group / name)) for name in ("memory.max", "memory.current"))
                # What was read from files and is not in use goes when memory is asked for.
                free = min(free, limit - used + _number(r"inactive_file (\d+)", group / "memory.stat"))
    return free


def _pin(size: int, gpu: HostQueue, cpus: str) -> bool | None:
    with near(cpus) as here:
        gpu.pin(size)
        return here


def _together(gpus: Sequence[HostQueue], way: str, size: int) -> list[float]:
    """Seconds of a copy of each GPU while all copy."""
    for gpu in gpus:
        gpu.begin()
        gpu.move(way, size)
    for gpu in gpus:
        gpu.wait()
    first = []
    for gpu in gpus:
        first.append(gpu.event())
        gpu.move(way, size)
    for _ in range(RUNS - 1):
        for gpu in gpus:
            gpu.move(way, size)
    last = [gpu.event() for gpu in gpus]
    for gpu in gpus:
        gpu.end()
        gpu.settle()
    return [gpu.span(a, b) / RUNS for gpu, a, b in zip(gpus, first, last, strict=True)]
