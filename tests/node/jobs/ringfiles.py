"""Rings as the tap writes them, made without it: a file, its lock, and a writer of records."""

import fcntl
import os
import struct
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from wirewatch.jobs.tap.ringfile import HEADER_BYTES, MAGIC, RECORD_BYTES, RECORDS, RING_BYTES

HEADER, COUNTERS, RECORD = struct.Struct("=8s4IQ4I48s64sq2Q16siI2I3I28x"), 256, struct.Struct("=6QI8BI")
UUID = "GPU-5d8fa1c2-0000-4000-8000-000000000001"
MILLISECOND = 10**6


@dataclass(frozen=True)
class Written:
    """One record; `function` and the like are the numbers of ring.h."""

    collective: int = 1
    count: int = 1 << 26
    started: int = 10**15
    stopped: int = 10**15 + MILLISECOND
    enqueued: int = 5 * 10**9
    longest: int = MILLISECOND
    function: int = 2
    datatype: int = 8
    algorithm: int = 2
    protocol: int = 3
    channels: int = 24
    ended: int = 24
    flags: int = 1
    root: int = 255

    def packed(self, number: int) -> bytes:
        return RECORD.pack(
            number, self.collective, self.count, self.started, self.stopped, self.enqueued, self.longest,
            self.function, self.datatype, self.algorithm, self.protocol, self.channels, self.ended,
            self.flags, self.root, 0,
        )  # fmt: skip


@dataclass
class RingWriter:
    """One ring in a folder, held open with its lock as the tap does, until it is left."""

    path: Path
    communicator: int = 0xABCDEF
    ranks: int = 4
    rank: int = 0
    nodes: int = 1
    interface: int = 5
    uuid: str = UUID
    name: str = "default_pg"
    pid: int = field(default_factory=os.getpid)
    nccl: int = 22809
    version: int = 1
    stride: int = 4
    magic: bytes = MAGIC
    written: int = 0
    handle: int = -1

    def __enter__(self) -> Self:
        self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        os.posix_fallocate(self.handle, 0, RING_BYTES)
        os.pwrite(self.handle, self.header(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the lock back, as the kernel does when the process dies."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def header(self) -> bytes:
        return HEADER.pack(
            self.magic, self.version, HEADER_BYTES, RECORD_BYTES, RECORDS, self.communicator, self.ranks,
            self.rank, self.nodes, self.interface, self.uuid.encode(), self.name.encode(), self.pid,
            time.time_ns(), time.monotonic_ns(), b"1", self.nccl, 0, 200, 2000, 50, 32, self.stride,
        )  # fmt: skip

    def put(self, record: Written, *, sequence: int | None = None) -> None:
        """Write the next record, and count it; `sequence` 0 for one that is not complete."""
        number = self.written + 1
        data = record.packed(number if sequence is None else sequence)
        os.pwrite(self.handle, data, HEADER_BYTES + (number - 1) % RECORDS * RECORD_BYTES)
        self.count(number)

    def count(self, written: int) -> None:
        self.written = written
        self.counter(0, written)

    def counter(self, place: int, value: int) -> None:
        """One of the counters from `written` on, all of 64 bits."""
        os.pwrite(self.handle, struct.pack("=Q", value), COUNTERS + 8 * place)

    def finalize(self) -> None:
        os.pwrite(self.handle, struct.pack("=I", 2), COUNTERS + 7 * 8)

    def by_function(self, table: int, function: int, value: int) -> None:
        """Of calls, bytes and unsized (0 to 2) the number of one function."""
        os.pwrite(self.handle, struct.pack("=Q", value), COUNTERS + 64 + 8 * (16 * table + function))


def later(record: Written, number: int) -> Written:
    """The collective that comes so many places after another one."""
    shift = number * 10 * MILLISECOND
    return replace(
        record,
        collective=record.collective + number,
        started=record.started + shift,
        stopped=record.stopped + shift,
    )
