"""The rings port: the folder in which jobs leave the rings of their communicators.

Anybody may write there, so that a file is opened without following links or waiting for anybody, and read
with pread: a mapped file that its owner cuts would end the agent with SIGBUS. Whoever owns the folder removes
rings whose writers are gone; the sticky bit keeps others from it.
"""

import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wirewatch.core.jobs import RefusedRing, Ring, RingReading, RingsReading, RingState
from wirewatch.core.ports import Rings
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import absent_errno
from wirewatch.jobs.tap.ringfile import (
    HEADER_BYTES,
    RECORD_BYTES,
    RECORDS,
    RING_BYTES,
    RingHeader,
    RingSlice,
    parse_header,
    read_records,
)

RINGS, OF_ONE_OWNER = 512, 256
"""Rings that are read, in all and of one user, who must not be able to hide those of others."""
OPEN = 128
"""Rings that are kept open between two polls; of more, what they wrote after the last poll is lost."""
RECORDS_OF_ONE_OWNER = 16 * RECORDS
"""Records of one user that are read in a poll, in 0.3 s; of more, the oldest are missed."""
LISTED = 4096
"""Names of a folder that are looked at."""
REFUSED = 64
"""Files that are refused by name; the last one says how many there are besides."""
FRESH = 5.0
"""Seconds in which a file may still become a ring."""
KEPT = 120.0
"""Seconds for which a ring stays there after nobody writes it any more, for other readers."""
LOCKS = Path("/proc/locks")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LOCK = re.compile(r"\d+: FLOCK +ADVISORY +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.ASCII)
_LOCKS_BYTES = 1 << 20
_MEANS: Mapping[int | None, Absent] = {
    errno.ELOOP: Absent(Why.MALFORMED, "a symbolic link", errno.ELOOP),
    errno.ENXIO: Absent(Why.MALFORMED, "a socket or a device", errno.ENXIO),
    errno.EWOULDBLOCK: Absent(Why.DENIED, "its owner has a lease on it", errno.EWOULDBLOCK),
    errno.EACCES: Absent(Why.DENIED, "the agent may not read it", errno.EACCES),
}
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that are not the fault of a file."""
_GONE = Absent(Why.LOST, "its process is gone")
_Inode = tuple[int, int]


@contextmanager
def closed(handle: int) -> Iterator[int]:
    """Close a file or folder at the end."""
    try:
        yield handle
    finally:
        os.close(handle)


@dataclass
class RingsPoll:
    """One poll of a folder: who holds locks, what was read and refused so far.

    `before`, `left`: since when a ring has had no writer, in monotonic seconds, by the last poll and by this.
    """

    folder: int
    before: Mapping[_Inode, float] = field(default_factory=dict)
    left: dict[_Inode, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    owners: Counter[int] = field(default_factory=Counter)
    taken: Counter[int] = field(default_factory=Counter)
    rings: list[RingReading] = field(default_factory=list)
    refused: list[RefusedRing] = field(default_factory=list)
    more: int = 0
    holders: Mapping[_Inode, int] | None = None

    def refuse(self, name: str, why: Absent) -> None:
        if len(self.refused) < REFUSED:
            self.refused.append(RefusedRing(ascii(name)[1:-1][:128], why))
        else:
            self.more += 1

    def open(self, name: str, folder: int) -> int | None:
        """Open a file that anybody may have put there; None where it is refused, or was removed meanwhile."""
        try:
            return os.open(name, _FLAGS, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _OURS:
                raise
            self.refuse(name, _MEANS.get(error.errno) or absent_errno(error.errno, name))
            return None

    @contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Refuse a file that cannot be read."""
        try:
            yield
        except OSError as error:
            self.refuse(name, absent_errno(error.errno, name))

    def reading(self) -> RingsReading:
        """Return all that was read and refused."""
        why = Absent(Why.MALFORMED, f"{self.more} more files are not rings, or too many")
        refused = (*self.refused, *([RefusedRing("...", why)] if self.more else []))
        return RingsReading(tuple(sorted(self.rings, key=lambda one: one.ring.name)), refused)

    def holder(self, inode: _Inode) -> int | Absent:
        """The process of this machine that holds the lock on a file, where it can be seen."""
        if self.holders is None:
            self.holders = lock_holders(LOCKS)
        return self.holders.get(inode, Absent(Why.MISSING, "who holds its lock cannot be seen from here"))


class FileRings:
    """The rings in a folder. Any thread may poll; `close` ends it.

    Rings whose writers live are kept open: the tap removes its file with the communicator, and what it wrote
    since the last poll is read from there.
    """

    def __init__(self, folder: str | Path, mono: Callable[[], float] = time.monotonic) -> None:
        self._folder = Path(folder)
        self._mono = mono
        self._left: dict[_Inode, float] = {}
        self._open: dict[str, int] = {}
        self._turn = threading.Lock()

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        """Every ring with its records after the number given for its name; MISSING: no such folder."""
        with self._turn:
            try:
                folder = os.open(self._folder, FOLDER)
            except OSError as error:
                self._close()
                return absent_errno(error.errno, str(self._folder))
            try:
                return self._read_all(folder, after)
            except OSError as error:
                return absent_errno(error.errno, str(self._folder))
            finally:
                os.close(folder)

    def close(self) -> None:
        """Let go of what is kept open; a later poll opens it again."""
        with self._turn:
            self._close()

    def _close(self) -> None:
        for handle in self._open.values():
            os.close(handle)
        self._open = {}

    def _read_all(self, folder: int, after: Mapping[str, int]) -> RingsReading:
        poll = RingsPoll(folder, before=self._left)
        for name, handle in list(self._open.items()):
            # First those that were read before: new files cannot crowd them out.
            if not self._read(poll, name, handle, after):
                os.close(self._open.pop(name))
        for name in _names(folder, after):
            if name not in self._open:
                self._try(poll, name, after)
        self._left = poll.left
        return poll.reading()

    def _try(self, poll: RingsPoll, name: str, after: Mapping[str, int]) -> None:
        """Open a file and read it; whatever it is, others are read too."""
        if name in poll.seen:
            return
        if not _NAME.fullmatch(name):
            poll.refuse(name, Absent(Why.MALFORMED, "not a name that the tap gives"))
            return
        if (handle := poll.open(name, poll.folder)) is None:
            return
        if self._read(poll, name, handle, after) and len(self._open) < OPEN:
            self._open[name] = handle
        else:
            os.close(handle)

    def _read(self, poll: RingsPoll, name: str, handle: int, after: Mapping[str, int]) -> bool:
        """Read a file that is open into the poll; returns whether more may come through this descriptor."""
        poll.seen.add(name)
        try:
            about = os.fstat(handle)
            header = _header(handle, about)
            if isinstance(header, Absent):
                if not 0 <= time.time() - about.st_ctime < FRESH:
                    poll.refuse(name, header)
                return False
            if len(poll.rings) >= RINGS or poll.owners[about.st_uid] >= OF_ONE_OWNER:
                poll.refuse(name, Absent(Why.MALFORMED, f"one ring too many of user {about.st_uid}"))
                return False
            live = _locked(handle)
            poll.owners[about.st_uid] += 1
            poll.rings.append(_reading(poll, name, handle, about, header, after.get(name, 0), live=live))
        except OSError as error:
            poll.refuse(name, absent_errno(error.errno, name))
            return False
        if not live:
            self._clear(poll, name, (about.st_dev, about.st_ino))
        return live and not header.finalized

    def _clear(self, poll: RingsPoll, name: str, inode: _Inode) -> None:
        """Remove a ring that nobody has written for a while, if the folder is ours."""
        since = poll.before.get(inode, self._mono())
        if self._mono() - since < KEPT or not _ours(poll.folder):
            poll.left[inode] = since
            return
        try:
            os.unlink(name, dir_fd=poll.folder)
        except OSError:
            # A file system that is read-only to us; somebody else removes it, or nobody.
            poll.left[inode] = since


@dataclass(frozen=True, slots=True)
class SeveralRings:
    """Two rings ports as one; what cannot be read is among the refused, and hides not the other."""

    first: Rings
    second: Rings

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        """All rings of both; Absent where neither can be read."""
        found = (self.first.poll(after), self.second.poll(after))
        one, two = sorted(found, key=lambda one: isinstance(one, Absent))
        if isinstance(one, Absent):
            return two if one.why is Why.MISSING else one
        if isinstance(two, Absent):
            two = RingsReading(refused=(RefusedRing("...", two),) * (two.why is not Why.MISSING))
        return RingsReading(one.rings + two.rings, one.refused + two.refused)


def _reading(
    poll: RingsPoll,
    name: str,
    handle: int,
    about: os.stat_result,
    header: RingHeader,
    after: int,
    *,
    live: bool,
) -> RingReading:
    state = RingState.FINALIZED if header.finalized else RingState.LIVE if live else RingState.DEAD
    inode = (about.st_dev, about.st_ino)
    ring = Ring(
        name, header.communicator, header.ranks, header.rank, header.nodes, header.gpu, header.pid,
        poll.holder(inode) if live else _GONE, about.st_uid, header.created, state, header.counts,
        header.comm_name, header.nccl, header.interface, header.tap, header.on, header.period,
        header.untimed,
    )  # fmt: skip
    # A number beyond what was written is of a ring that had this name before.
    begin = after if after <= header.counts.written else 0
    most = min(RECORDS, RECORDS_OF_ONE_OWNER - poll.taken[about.st_uid])
    poll.taken[about.st_uid] += min(most, header.counts.written - begin)
    new = _slice(handle, header, begin, most, open_end=state is RingState.LIVE)
    return RingReading(ring, new.calls, new.missed, new.implausible, new.last)


def lock_holders(path: Path) -> dict[_Inode, int]:
    """Process by (device, inode) of each file with an exclusive flock; empty where that cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_LOCKS_BYTES).decode("ascii", "replace")
    except OSError:
        return {}
    return {
        (os.makedev(int(major, 16), int(minor, 16)), int(inode)): int(pid)
        for pid, major, minor, inode in _LOCK.findall(text)
        if int(pid)
    }


def _names(folder: int, known: Mapping[str, int]) -> Iterator[str]:
    """Names in the folder, those first that were read before: new files cannot crowd them out."""
    with os.scandir(folder) as entries:
        here = {entry.name for entry in islice(entries, LISTED)}
    yield from sorted(known)
    yield from sorted(here - known.keys())


def _header(handle: int, about: os.stat_result) -> RingHeader | Absent:
    if not stat.S_ISREG(about.st_mode):
        return Absent(Why.MALFORMED, "not a regular file")
    if about.st_nlink > 1:
        return Absent(Why.MALFORMED, f"{about.st_nlink} names for one file")
    if about.st_size != RING_BYTES:
        return Absent(Why.MALFORMED, f"{about.st_size} bytes; a ring has {RING_BYTES}")
    return parse_header(os.pread(handle, HEADER_BYTES, 0))


def _locked(handle: int) -> bool:
    """Whether its writer holds the lock. Ours is shared, and given back at once: nobody waits for it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(handle, fcntl.LOCK_UN)
    return False


def _slice(handle: int, header: RingHeader, after: int, most: int, *, open_end: bool) -> RingSlice:
    """The newest records after a number; only those of the ring's last turn are still there."""
    written = header.counts.written
    begin = max(after, written - most)
    numbers = range(begin + 1, written + 1)
    first, second = _record_bytes(handle, numbers), _record_bytes(handle, numbers)
    if len(first) + len(second) != 2 * len(numbers) * RECORD_BYTES:
        # Cut by its owner since its size was read.
        return RingSlice((), after, 0, 0)
    new = read_records(first, second, numbers, header.ranks, open_end=open_end)
    return RingSlice(new.calls, new.last, new.missed + begin - after, new.implausible)


def _record_bytes(handle: int, numbers: range) -> bytes:
    """The bytes of records with these numbers, of which there are at most as many as the ring holds."""
    first, count = (numbers.start - 1) % RECORDS, len(numbers)
    here = min(count, RECORDS - first)
    data = os.pread(handle, here * RECORD_BYTES, HEADER_BYTES + first * RECORD_BYTES)
    return data + os.pread(handle, (count - here) * RECORD_BYTES, HEADER_BYTES)


def _ours(folder: int) -> bool:
    """Whether the sticky bit lets us remove the files of others there: the folder is ours, or we are root."""
    user = os.geteuid()
    return user in {0, os.fstat(folder).st_uid}
