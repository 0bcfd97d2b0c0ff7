"""The rings of a job, byte by byte as agent/tap/ring.h lays them out, as they grow while the job runs."""

import fcntl
import os
import random
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from proof.model.job import GROUPED, Group, Rank, Timed
from tests.node.jobs.tap.pacing import BLOCK, Paced, Process

HEADER_BYTES, RECORD_BYTES, RECORDS = 4096, 64, 4096
HEADER = struct.Struct("=8s4IQ4I48s64sq2Q16siI5I28x")
"""From `magic` to `pad0`; the counters follow at byte 256."""
COUNTERS_AT = 256
STRIDE_AT = COUNTERS_AT - 32
"""The last word before `pad0`."""
COUNTERS = struct.Struct("=7Q2I48Q")
RECORD = struct.Struct("=6QI8BI")
NUMBERS: Mapping[str, int] = {
    "all_gather": 1, "all_reduce": 2, "alltoall": 3, "recv": 6, "reduce_scatter": 8, "send": 11,
}  # fmt: skip
SINGLE, HALF, RING, SIMPLE, SAME = 8, 10, 2, 3, 1
"""Of ring.h: two types, an algorithm, a protocol and a flag."""
FUNCTIONS = 16
LONGEST = 0xFFFFFFFF
"""Of a channel that took longer than this can hold."""
CAPTURED = 4
PROXY = 0.002
"""Seconds until NCCL's progress thread has reported the last channel."""


class Sampling(Protocol):
    """How the taps of one process choose what they time. It is asked once for each call, in their order."""

    def times(self, communicator: int, mono: float) -> bool:
        """Tell whether a call that is enqueued at this monotonic second is timed."""

    def stride(self, communicator: int) -> int:
        """Of so many blocks one is timed now; 0 where there are no blocks."""


@dataclass
class ByClock:
    """So many milliseconds of every period; all calls where the two are equal."""

    on: int
    period: int

    def times(self, communicator: int, mono: float) -> bool:  # noqa: ARG002
        return mono * 1e3 % self.period < self.on

    def stride(self, communicator: int) -> int:  # noqa: ARG002
        return 0


@dataclass
class ByBudget:
    """So many calls a second, in blocks that a hash chooses, as agent/tap/pace.c does."""

    process: Process
    known: dict[int, Paced] = field(default_factory=dict)

    def times(self, communicator: int, mono: float) -> bool:
        now = int(mono * 1e3)
        if communicator not in self.known:
            self.known[communicator] = self.process.communicator(communicator, now)
        return self.known[communicator].call(now)

    def stride(self, communicator: int) -> int:
        return 1 << self.known[communicator].halvings


DEFAULT = "50 calls a second"
SAMPLINGS: Mapping[str, tuple[Callable[[], Sampling], tuple[int, int, int, int]]] = {
    DEFAULT: (lambda: ByBudget(Process()), (2000, 2000, Process.budget, BLOCK)),
    "0.2 s of 2 s": (lambda: ByClock(200, 2000), (200, 2000, 0, 0)),
    "all": (lambda: ByClock(2000, 2000), (2000, 2000, 0, 0)),
}
"""Rules with what a ring says of them: `on_ms`, `period_ms`, `budget` and `block`."""


@dataclass(frozen=True)
class Clocks:
    """What the clocks say at a second of the job: Unix, monotonic, and each GPU's own, in nanoseconds."""

    unix: float
    mono: float
    offsets: Mapping[int, int]
    drifts: Mapping[int, float]
    resolution: int

    def gpu(self, number: int, second: float) -> int:
        found = self.offsets[number] + round(second * (1 + self.drifts[number]) * 1e9)
        return found - found % self.resolution


@dataclass
class RingFile:
    """One ring on disk, held open with its lock while its process lives."""

    path: Path
    header: bytes
    calls: Sequence[tuple[float, str, int]]
    records: Sequence[tuple[float, bytes]]
    created: float
    ranks: int
    ends: float
    mono: float
    captured: int = 0
    strides: Sequence[tuple[float, int]] = ()
    handle: int = -1
    _counted: int = 0
    _written: int = 0
    _by: list[int] = field(default_factory=lambda: [0] * (3 * FUNCTIONS))
    _enqueued: int = 0
    _sends: int = 0
    _windows: int = 0
    _event: float = 0.0

    def grow(self, second: float) -> None:
        """Write what has happened by this second."""
        if self.handle < 0:
            if not self.created <= second < self.ends:
                return
            self._open()
        second = min(self.ends, second)
        while self._counted < len(self.calls) and self.calls[self._counted][0] <= second:
            self._count(*self.calls[self._counted])
            self._counted += 1
        end = bisect_right(self.records, second, key=lambda one: one[0])
        self._put(range(self._written, end))
        os.pwrite(self.handle, self._counters(), COUNTERS_AT)
        if (at := bisect_right(self.strides, (second, 1 << 32)) - 1) >= 0:
            os.pwrite(self.handle, struct.pack("=I", self.strides[at][1]), STRIDE_AT)
        if second >= self.ends:
            self.close()

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def _open(self) -> None:
        self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        os.posix_fallocate(self.handle, 0, HEADER_BYTES + RECORDS * RECORD_BYTES)
        os.pwrite(self.handle, self.header, 0)

    def _count(self, second: float, op: str, size: int) -> None:
        self._event = second
        if op == GROUPED:
            for half in ("send", "recv"):
                self._by[NUMBERS[half]] += self.ranks
                self._by[FUNCTIONS + NUMBERS[half]] += size
            self._sends += 2 * self.ranks
            return
        if op in {"send", "recv"}:
            self._sends += 1
        else:
            self._enqueued += 1
        self._by[NUMBERS[op]] += 1
        self._by[FUNCTIONS + NUMBERS[op]] += size

    def _put(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            data = struct.pack("=Q", number + 1) + self.records[number][1]
            os.pwrite(self.handle, data, HEADER_BYTES + number % RECORDS * RECORD_BYTES)
            self._written = number + 1

    def _counters(self) -> bytes:
        event = round((self.mono + self._event) * 1e9)
        return COUNTERS.pack(
            self._written, 0, self._enqueued, self._sends, event, self.captured, 1, 1, 0, *self._by
        )


@dataclass(frozen=True)
class Writer:
    """What makes rings: where, by which clocks, and by which rule a call is timed."""

    folder: Path
    clocks: Clocks
    draw: random.Random
    sampling: str = DEFAULT
    captured: bool = False

    def rings(
        self, groups: Sequence[Group], number: int, rank: Rank, gpu: int, pid: int, ends: float
    ) -> Iterator[RingFile]:
        """The rings of one process: one for each communicator that it ever called."""
        timed, strides = self._timed(groups, rank, pid - number)
        for group in groups:
            calls = [(at, op, size) for at, of, op, size in rank.enqueued if of == group.id]
            if not calls or number not in group.members:
                continue
            identity, created = self.communicator(group, pid - number), calls[0][0] - 0.2
            header = HEADER.pack(
                b"WWRING1\0", 1, HEADER_BYTES, RECORD_BYTES, RECORDS, identity, group.ranks,
                group.number(number), group.nodes, 5, uuid(gpu).encode(), group.name.encode(), pid,
                round((self.clocks.unix + created) * 1e9), round((self.clocks.mono + created) * 1e9),
                b"0.3.0", 22809, CAPTURED if self.captured else 0, *SAMPLINGS[self.sampling][1], 0,
            )  # fmt: skip
            yield RingFile(
                self.folder / f"{identity & 0xFFFFFFFF:08x}{pid:08x}.ring", header, calls,
                [self._record(group, gpu, one) for one in timed.get(group.id, ())], created, group.ranks,
                ends, self.clocks.mono, captured=80 if self.captured else 0,
                strides=strides.get(group.id, ()),
            )  # fmt: skip

    def _timed(
        self, groups: Sequence[Group], rank: Rank, first: int
    ) -> tuple[dict[int, list[Timed]], dict[int, list[tuple[float, int]]]]:
        """The calls that the tap of a process times and the strides from a second on, by communicator."""
        sampling = SAMPLINGS[self.sampling][0]()
        found, strides = dict[int, list[Timed]](), dict[int, list[tuple[float, int]]]()
        identities = {group.id: self.communicator(group, first) for group in groups}
        for one in [] if self.captured else rank.timed:
            identity = identities[one.group]
            if sampling.times(identity, self.clocks.mono + one.enqueued):
                found.setdefault(one.group, []).append(one)
            known, stride = strides.setdefault(one.group, []), sampling.stride(identity)
            if not known or known[-1][1] != stride:
                known.append((one.enqueued, stride))
        return found, strides

    def communicator(self, group: Group, first: int) -> int:
        return random.Random(f"{first} {group.id}").getrandbits(64)  # noqa: S311

    def _record(self, group: Group, gpu: int, one: Timed) -> tuple[float, bytes]:
        """A timed call: when it is written, and all of its record but the number."""
        clocks = self.clocks
        begin, end = clocks.gpu(gpu, one.start), clocks.gpu(gpu, one.end)
        longest = max(0, end - begin - self.draw.randrange(1500))
        longest = min(longest - longest % clocks.resolution, LONGEST)
        divided = group.ranks if one.op in {"all_gather", "reduce_scatter", "alltoall"} else 1
        count, kind = (1, SINGLE) if one.size == 4 else (one.size // 2 // divided, HALF)
        record = RECORD.pack(
            0, one.sequence, count, begin, end, round((clocks.mono + one.enqueued) * 1e9), longest,
            NUMBERS[one.op], kind, RING, SIMPLE, 24, 24, SAME, 255, 0,
        )  # fmt: skip
        return one.end + PROXY, record[8:]


def uuid(gpu: int) -> str:
    return f"GPU-{gpu:08x}-0000-4000-8000-00000000abcd"
