"""Writers of rings that are a tenant's: they run until their standard input ends.

    python -m proof.siege.ringwriters MODE FOLDER [COMMUNICATOR]

A tenant is root in its container, with docker's usual capabilities: it gives its files to whom it likes.
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.node.jobs.ringfiles import COUNTERS, RingWriter, Written, later
from wirewatch.jobs.tap.ringfile import HEADER_BYTES, RECORDS, RING_BYTES

USERS, FIRST = 512, 100_000
FLOODING = 16
"""Rings that are filled with nonsense, truncated and made again."""
NAMES = 10_000
BETWEEN = 0.2
"""Seconds between two rounds of a writer."""
GPU = "GPU-00000000-0000-4000-8000-00000000dead"
Step = Callable[[int], None]


def _ring(
    stack: ExitStack, folder: Path, number: int, *, ranks: int = 2, communicator: int = 0
) -> RingWriter:
    """A ring of a user of its own, whose GPU is made up."""
    made = RingWriter(
        folder / f"{os.getpid():08x}{number:08x}.ring", communicator or 0xE0000000 + number, ranks,
        rank=ranks - 1, uuid=GPU, name=f"tenant {number}",
    )  # fmt: skip
    ring = stack.enter_context(made)
    os.fchown(ring.handle, FIRST + number, FIRST + number)
    return ring


def _full(number: int) -> bytes:
    """The records of the round after so many."""
    first = number * RECORDS + 1
    return b"".join(later(Written(), first + n).packed(first + n) for n in range(RECORDS))


def crowd(folder: Path, stack: ExitStack) -> Step:
    """512 rings of 512 users, each with a whole turn of new records in every round."""
    rings = [_ring(stack, folder, number) for number in range(USERS)]

    def step(number: int) -> None:
        records = _full(number)
        for ring in rings:
            os.pwrite(ring.handle, records, HEADER_BYTES)
            ring.count((number + 1) * RECORDS)

    return step


def nonsense(folder: Path, stack: ExitStack) -> Step:
    """Rings whose records and counters are any bytes."""
    rings = [_ring(stack, folder, number) for number in range(FLOODING)]

    def step(_: int) -> None:
        for ring in rings:
            os.pwrite(ring.handle, os.urandom(RING_BYTES - COUNTERS), COUNTERS)

    return step


def truncating(folder: Path, stack: ExitStack) -> Step:
    """Every file of the folder is cut and grows again, whoever made it."""
    for number in range(FLOODING):
        _ring(stack, folder, number)

    def step(_: int) -> None:
        for size in (0, RING_BYTES):
            for path in folder.iterdir():
                with suppress(OSError):
                    os.truncate(path, size)
            time.sleep(BETWEEN)

    return step


def names(folder: Path, _stack: ExitStack) -> Step:
    """10,000 names that come and go: rings, links, pipes, and texts that are no names of rings."""
    kinds: tuple[Callable[[Path], object], ...] = (
        lambda path: path.write_bytes(b"WWRING1\0" * 64),
        lambda path: path.symlink_to("/dev/zero"),
        os.mkfifo,
        lambda path: path.with_name(f"{path.name}\n\x1b[2J").touch(),
    )

    def step(_: int) -> None:
        for number in range(NAMES):
            kinds[number % len(kinds)](folder / f"{number:016x}.ring")
        for path in folder.iterdir():
            if path.name[:10] == "0" * 10:
                path.unlink(missing_ok=True)

    return step


def forged(folder: Path, stack: ExitStack, communicator: int) -> Step:
    """A second rank of another's communicator, in files of each user that is asked for."""
    rings = [_ring(stack, folder, number, communicator=communicator) for number in range(2)]
    for ring, user in zip(rings, (0, 4001), strict=True):
        os.fchown(ring.handle, user, user)

    def step(number: int) -> None:
        for ring in rings:
            ring.put(later(Written(), number))

    return step


def _steps(mode: str, folder: Path, stack: ExitStack, communicator: int) -> Iterator[Step]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * USERS, 4 * USERS))
    if mode == "forged":
        yield forged(folder, stack, communicator)
    for made in (crowd, nonsense, truncating, names):
        if mode == made.__name__:
            yield made(folder, stack)


def main() -> None:
    mode, folder, *more = sys.argv[1:]
    over = threading.Event()

    def end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=end, daemon=True).start()
    with ExitStack() as stack:
        (step,) = _steps(mode, Path(folder), stack, int((*more, "0")[0]))
        step(0)
        print("ready", flush=True)
        number = 0
        while not over.wait(BETWEEN):
            number += 1
            step(number)


if __name__ == "__main__":
    main()
