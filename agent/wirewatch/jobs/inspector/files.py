"""The files of NCCL Inspector as rings: a folder, and the folders in it, in which jobs leave them.

Inspector makes its files with the mode 0666, lets them grow without bound and leaves them behind. So the
reader opens a file without following links or blocking. It reads a bounded amount, from where the last poll
ended. It never writes or removes a file.
"""

import os
import re
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingsReading, RingState, TimedCollective
from wirewatch.core.ports import NoRings, Rings
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import count, printable
from wirewatch.jobs.inspector.lines import (
    GPU_CLOCK,
    LINE_BYTES,
    InspectedCollective,
    InspectedLine,
    parse_line,
)
from wirewatch.jobs.tap.ringfile import UNKNOWN
from wirewatch.jobs.tap.rings import FOLDER, FileRings, RingsPoll, SeveralRings, closed
from wirewatch.jobs.times import INSPECTOR_CPU, INSPECTOR_FORMAT, INSPECTOR_SHIFTED, INSPECTOR_SPARSE

FILES, OF_ONE_OWNER, COMMUNICATORS = 128, 64, 64
"""Files that are read, in all and of one user; communicators of a file, the last to write."""
BYTES, BYTES_IN_ALL = 256 << 10, 4 << 20
"""Bytes of a file and of all that are read in a poll, the newest: some 700 and 10,000 lines."""
LISTED, FOLDERS = 4096, 64
"""Names of a folder that are looked at, and folders that are looked into."""
OLD, KEPT = 60.0, 120.0
"""Seconds after which a line says nothing of now, and a file whose process is not seen has no writer."""
LATELY, ENOUGH = 256, 16
"""How many of the newest lines decide whether a communicator is sparse, and the fewest that can."""
SEARCHED, SLACK = 30.0, 2.0
"""Seconds between two looks at all processes, and by which clocks of files and of processes may differ."""
_NAME = re.compile(r".+-pid[1-9]\d{0,6}\.log", re.DOTALL | re.ASCII)
_WHO = re.compile(rb"^Uid:\s+(\d+).*^NSpid:[^\n]*\s(\d+)$", re.MULTILINE | re.DOTALL)
"""User of a process in /proc/PID/status, and its number as it sees itself."""
_BOOTED = re.compile(rb"^btime (\d+)$", re.MULTILINE)
_STARTED = re.compile(rb".*\)(?: \S+){19} (\d+) ", re.DOTALL)
"""The 20th number behind the name in /proc/PID/stat, which may hold anything."""
_TICKS = os.sysconf("SC_CLK_TCK")
_UNSAID = Absent(Why.MISSING, "NCCL Inspector does not say which GPU it is")
_UNSEEN = Absent(Why.MISSING, "its process cannot be seen from here")
_Numbers = tuple[int, ...]


@dataclass
class _Told:
    """A communicator as its lines describe it so far, with the new collectives."""

    first: InspectedLine
    event: float = 0.0
    sends: int = 0
    number: int = 0
    shifted: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    unsized: Counter[str] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)
    next_to: deque[bool] = field(default_factory=lambda: deque(maxlen=LATELY))
    by_gpu: deque[bool] = field(default_factory=lambda: deque(maxlen=LATELY))
    new: list[TimedCollective] = field(default_factory=list)

    def take(self, call: InspectedCollective | None, at: float) -> None:
        """Count a line, and keep the time of a collective by the GPU's clock."""
        self.event = at
        if call is None:
            self.sends += 1
            return
        op, size = call.op, call.size(self.first.header.n_ranks)
        self.calls[op] += 1
        if op == UNKNOWN:
            self.shifted = True  # NCCL may count this operation on the GPU alone
            return
        self.bytes[op] += size or 0
        self.unsized[op] += size is None
        if op in self.last:
            self.next_to.append(0 <= call.coll_sn - self.last[op] <= 1)
        self.last[op] = call.coll_sn
        self.by_gpu.append(call.coll_timing_source == GPU_CLOCK)
        if self.by_gpu[-1]:
            self.number += 1
            seconds = call.coll_exec_time_us / 1e6
            started, stopped = (at - seconds, at) if self.first.at_once else (None, None)
            self.new.append(
                TimedCollective(
                    self.number, op, call.coll_sn, size, dtype="", algorithm="", protocol="", channels=0,
                    seconds=seconds, started=started, stopped=stopped, enqueued=at,
                )
            )  # fmt: skip

    def reading(self, file: "_File", writer: int | Absent) -> RingReading:
        """Return the communicator as a ring, without times where they say nothing."""
        header, by_cpu = self.first.header, _mostly_not(self.by_gpu, 1)
        reasons = (
            (INSPECTOR_FORMAT, not self.first.proven), (INSPECTOR_SHIFTED, self.shifted),
            (INSPECTOR_CPU, by_cpu), (INSPECTOR_SPARSE, _mostly_not(self.next_to, ENOUGH)),
        )  # fmt: skip
        untimed = next((code for code, holds in reasons if holds), 0)
        counts = RingCounts(
            written=self.number, enqueued=self.calls.total(), sends=self.sends, event=self.event,
            calls=dict(self.calls), bytes=dict(+self.bytes), unsized=dict(+self.unsized),
        )  # fmt: skip
        named = "" if header.comm_name in {None, "unknown"} else printable(str(header.comm_name))[:64]
        ring = Ring(
            f"inspector-{file.what[1]}-{header.id}-{header.rank}", int(header.id, 16), header.n_ranks,
            header.rank, header.nnodes, _UNSAID, file.pid, writer, file.what[2], self.first.written,
            RingState.LIVE, counts, named, untimed=untimed,
            source=f"NCCL Inspector, {self.first.nccl}, {'CPU' if by_cpu else 'GPU'} clock",
        )  # fmt: skip
        calls, self.new = (() if untimed else tuple(self.new)), []
        return RingReading(ring, calls, last=self.number)


@dataclass
class _File:
    """A file as far as it was read, or `inside` a line that is passed over; `writer`: with its start.

    `what`: device, inode and owner. `grew`, `ended`: when it last grew, and was found to have no writer.
    """

    what: tuple[int, int, int]
    pid: int
    ours: bool
    grew: float
    offset: int = 0
    inside: bool = False
    writer: tuple[int, _Numbers] | None = None
    ended: float | None = None
    bad: int = 0
    why: str = ""
    passed: int = 0
    told: dict[tuple[str, int], _Told] = field(default_factory=dict)

    def read(self, handle: int, size: int, most: int, now: tuple[float, float]) -> int:
        """Take the newest lines, of at most so many bytes; returns the bytes. `now`: Unix, monotonic."""
        if size == self.offset:
            return 0
        self.grew = now[1]
        if size - self.offset > most:
            self.passed += size - most - self.offset
            self.offset, self.inside = size - most, True
        data = os.pread(handle, min(most, size - self.offset), self.offset)
        *lines, rest = data.split(b"\n")
        self.offset += len(data) - len(rest)
        if lines and self.inside:
            lines, self.inside = lines[1:], False
        for line in filter(None, lines):
            self._take(parse_line(line), now)
        if self.inside or len(rest) > LINE_BYTES:
            if not self.inside:
                self._take(parse_line(rest), now)
            self.offset, self.inside = self.offset + len(rest), True
        return len(data)

    def _take(self, line: InspectedLine | Absent, now: tuple[float, float]) -> None:
        if wrong := line.detail if isinstance(line, Absent) else self._unfit(line, now[0]):
            self.bad, self.why = self.bad + 1, wrong
        elif not isinstance(line, Absent):
            told = self.told.setdefault((line.header.id, line.header.rank), _Told(line))
            age = now[0] - line.written
            if age <= OLD:
                told.take(line.coll_perf, now[1] - age)
            if len(self.told) > COMMUNICATORS:
                del self.told[min(self.told, key=lambda key: self.told[key].event)]

    def _unfit(self, line: InspectedLine, now: float) -> str:
        known = self.told.get((line.header.id, line.header.rank))
        if line.metadata.pid != self.pid:
            return f"of process {line.metadata.pid} in the file of process {self.pid}"
        if line.written > now + SLACK:
            return "of a time that is not yet"
        other = known is not None and (known.first.header, known.first.nccl) != (line.header, line.nccl)
        return "its communicator had another shape before" if other else ""


@dataclass
class _Poll(RingsPoll):
    """One poll of all folders, at these Unix and monotonic seconds; `room`: bytes that may still be read."""

    now: tuple[float, float] = (0.0, 0.0)
    room: int = BYTES_IN_ALL
    files: dict[tuple[str, str], _File] = field(default_factory=dict)


class InspectorFiles(FileRings):
    """The communicators in a folder of Inspector's files, with what came since the last poll."""

    def __init__(
        self, folder: str | Path, proc: Path = Path("/proc"), host: str = "",
        now: Callable[[], float] = time.time, mono: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        super().__init__(folder, mono)
        self._proc, self._host, self._now = proc, host or os.uname().nodename, now
        self._files: dict[tuple[str, str], _File] = {}
        self._everybody: dict[_Numbers, list[int]] = {}
        self._searched = -SEARCHED

    def _close(self) -> None:
        self._files = {}

    def _read_all(self, folder: int, after: Mapping[str, int]) -> RingsReading:  # noqa: ARG002
        poll = _Poll(folder, now=(self._now(), self._mono()))
        before = {where for where, _ in self._files}
        found = self._read_folder(poll, folder, "")
        for _, name in sorted(found, key=lambda one: (one[1] not in before, -one[0], one[1]))[:FOLDERS]:
            with poll.refusing(name), closed(os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)) as below:
                self._read_folder(poll, below, name)
        self._files = poll.files
        if foreign := sum(not one.ours and one.writer is None for one in poll.files.values()):
            files = f"{count(foreign, 'file')} of other machines, or of containers that cannot be seen"
            poll.refuse("*.log", Absent(Why.UNSUPPORTED, files))
        return poll.reading()

    def _read_folder(self, poll: _Poll, folder: int, at: str) -> list[tuple[float, str]]:
        """Read the files of a folder, the known files first; returns the folders in it."""
        names, below, begun = set[str](), list[tuple[float, str]](), poll.now[0] - KEPT
        with os.scandir(folder) as entries:
            for entry in islice(entries, LISTED):
                with suppress(OSError):
                    since = entry.stat(follow_symlinks=False).st_mtime
                    if entry.is_dir(follow_symlinks=False):
                        below.append((since, entry.name))
                    elif since >= begun and _NAME.fullmatch(entry.name):
                        names.add(entry.name)
        known = {name for where, name in self._files if where == at}
        for name in (*sorted(known), *sorted(names - known)):
            if (handle := poll.open(name, folder)) is not None:
                with poll.refusing(name), closed(handle):
                    self._follow(poll, (at, name), handle)
        return below

    def _follow(self, poll: _Poll, key: tuple[str, str], handle: int) -> None:
        about, mono, name = os.fstat(handle), poll.now[1], key[1]
        odd = not stat.S_ISREG(about.st_mode) or about.st_nlink > 1
        if odd or len(poll.files) >= FILES or poll.owners[about.st_uid] >= OF_ONE_OWNER:
            many = f"one file too many of user {about.st_uid}"
            poll.refuse(name, Absent(Why.MALFORMED, "not a regular file with one name" if odd else many))
            return
        file = poll.files[key] = self._file(key, about, mono)
        poll.owners[about.st_uid] += 1
        file.writer = file.writer or self._writer(file, about, mono)
        if file.writer is None and not file.ours:
            return
        poll.room -= file.read(handle, about.st_size, min(BYTES, poll.room), poll.now)
        if file.bad:
            why = f"{count(file.bad, 'line')} not of Inspector, the last one: {file.why}"
            poll.refuse(name, Absent(Why.MALFORMED, why))
        if file.passed:
            poll.refuse(name, Absent(Why.LOST, f"{file.passed} bytes passed over, which came too fast"))
        pid, since = file.writer or (_UNSEEN, ())
        same = file.writer is not None and _found(_STARTED, self._proc / f"{pid}/stat") == since
        lives = same or (file.writer is None and mono - file.grew <= KEPT)
        file.ended = None if lives else mono if file.ended is None else file.ended
        if file.ended is None:
            poll.rings += [told.reading(file, pid) for told in file.told.values()]
        elif file.grew > file.ended:
            del poll.files[key]  # another process has taken it over

    def _file(self, key: tuple[str, str], about: os.stat_result, mono: float) -> _File:
        """Return the file as far as it was read; new where it was replaced, or written anew."""
        file, what = self._files.get(key), (about.st_dev, about.st_ino, about.st_uid)
        if file is not None and file.what == what and file.offset <= about.st_size:
            return file
        host, _, pid = key[1].removesuffix(".log").rpartition("-pid")
        return _File(what, int(pid), host == self._host, mono)

    def _writer(self, file: _File, about: os.stat_result, mono: float) -> tuple[int, _Numbers] | None:
        """Return the process that writes a file, with its start: it has the file open.

        Where open files cannot be listed, the user, the number and the machine's name must match. The process
        must also have started before the last line.
        """
        for pid in self._alike(who := (about.st_uid, file.pid), mono):
            started = _found(_STARTED, self._proc / f"{pid}/stat")
            if _found(_WHO, self._proc / f"{pid}/status") == who and self._writes(pid, started, file, about):
                return pid, started
        return None

    def _alike(self, who: _Numbers, mono: float) -> Iterator[int]:
        """Return the processes of a user that see themselves under a number; first without containers."""
        yield who[1]
        if mono - self._searched >= SEARCHED:
            pids = sorted(int(one.name) for one in self._proc.iterdir() if one.name.isdecimal())
            self._searched = mono
            self._everybody = grouped((_found(_WHO, self._proc / f"{pid}/status"), pid) for pid in pids)
        yield from self._everybody.get(who, [])

    def _writes(self, pid: int, started: _Numbers, file: _File, about: os.stat_result) -> bool:
        try:
            opened = (self._proc / f"{pid}/fd").iterdir()
            return any(os.path.samestat(one.stat(), about) for one in opened)
        except OSError:
            since = sum(_found(_BOOTED, self._proc / "stat")) + sum(started) / _TICKS
            return file.ours and pid == file.pid and bool(started) and since <= about.st_mtime + SLACK


def _mostly_not(some: deque[bool], least: int) -> bool:
    return len(some) >= least and 2 * sum(some) < len(some)


def _found(pattern: re.Pattern[bytes], path: Path) -> _Numbers:
    """Return the numbers that a pattern finds in a file, none where it cannot be read."""
    found = None
    with suppress(OSError), path.open("rb") as file:
        found = pattern.search(file.read(1 << 16))
    return tuple(map(int, found.groups())) if found else ()


def job_rings(tap: str, inspector: str) -> Rings:
    """Return the port of this machine: folders of the tap and of Inspector, empty for none."""
    beside = FileRings(tap) if tap else NoRings()
    return SeveralRings(beside, InspectorFiles(inspector)) if inspector else beside
