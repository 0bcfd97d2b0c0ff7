"""The rings port: the folders in which jobs leave the rings of their communicators.

Whoever writes there may write anything. So a file is opened without following links or blocking. It is read
with pread: a mapped file that its owner cuts would end the agent with SIGBUS. A poll reads a bounded amount,
shared fairly among jobs, then among users at the shared level, then among rings. Rings whose writers are gone
are removed, and so are the folders of pods that are gone.
"""

import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wirewatch.core.jobs import NOT_READ, RefusedRing, Ring, RingReading, RingsReading, RingState, asker
from wirewatch.core.ports import Rings
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import absent_errno
from wirewatch.jobs.shares import Path as Asker
from wirewatch.jobs.shares import fair
from wirewatch.jobs.tap.folders import (
    GONE,
    KINDS,
    LISTED,
    OLD,
    RingFolder,
    opened,
    owners_here,
    removable,
    remove_folder,
    ring_folders,
)
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

RINGS = 512
"""Rings that are read in a poll, and files that are open meanwhile."""
OPEN = 128
"""Rings that are kept open between two polls; of more, what they wrote after the last poll is lost."""
RECORDS_IN_ALL = 2 * RECORDS
"""Records that are read in a poll, in 0.05 s; of more, the oldest are missed. Of a ring 512 are joined."""
REFUSED = 64
"""Files that are refused by name; the last entry says how many more there are."""
FRESH = 5.0
"""Seconds in which a file may still become a ring."""
KEPT = 120.0
"""Seconds for which a ring stays there after nobody writes it any more, for other readers."""
LOCKS, PROC = Path("/proc/locks"), Path("/proc")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LOCK = re.compile(r"\d+: FLOCK +ADVISORY +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.ASCII)
_LOCKS_BYTES = 8 << 20
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

    `held`: bytes by folder. `before`, `left`: since when a ring has had no writer, in monotonic seconds, by
    the last poll and by this.
    """

    folder: int
    before: Mapping[_Inode, float] = field(default_factory=dict)
    left: dict[_Inode, float] = field(default_factory=dict)
    owners: Counter[int] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    rings: list[RingReading] = field(default_factory=list)
    refused: list[RefusedRing] = field(default_factory=list)
    more: int = 0
    holders: Mapping[_Inode, int] | None = None

    def refuse(self, name: str, why: Absent) -> None:
        if len(self.refused) < REFUSED:
            self.refused.append(RefusedRing(ascii(name)[1:-1][:128], why))
        else:
            self.more += 1

    def refuse_old(self, name: str, about: os.stat_result, why: Absent) -> None:
        """Refuse a file, unless it is so new that it may still become a ring."""
        if not 0 <= time.time() - about.st_ctime < FRESH:
            self.refuse(name, why)

    def refuse_full(self) -> None:
        """Say who holds most where no other ring has room."""
        about = os.fstatvfs(self.folder)
        if about.f_files and not about.f_ffree:
            self.refuse(".", Absent(Why.EXHAUSTED, "no other file can be made, and so no ring: none is free"))
        if self.held and about.f_bavail * about.f_frsize < RING_BYTES:
            ((at, held),) = self.held.most_common(1)
            why = f"no room for another ring, most is held here: {held >> 10} KiB"
            self.refuse(at, Absent(Why.EXHAUSTED, why))

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

    def holder(self, inode: _Inode, uid: int) -> int | Absent:
        """Return the process that holds the lock on a user's file, where it can be seen.

        The kernel names who took the lock: that process may be gone, and its number another user's by now.
        """
        if self.holders is None:
            self.holders = lock_holders(LOCKS)
        pid = self.holders.get(inode)
        if pid is None or _user_of(pid) not in {uid, None}:
            return Absent(Why.MISSING, "who holds its lock cannot be seen from here")
        return pid


@dataclass(slots=True)
class _Found:
    """A file that may be a ring: `handle` while it is open, then what it is and what it holds."""

    name: str
    owner: str
    about: os.stat_result
    known: bool
    handle: int = -1
    header: RingHeader | Absent = NOT_READ
    live: bool = False
    after: int = 0

    @property
    def asker(self) -> Asker:
        """Return for whom it asks; what was read before comes first."""
        return (*asker(self.owner, self.about.st_uid), (not self.known, self.name))

    def close(self) -> None:
        """Let go of it, if it is open."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    @property
    def goes_on(self) -> bool:
        """Tell whether more may come through this descriptor."""
        return self.live and isinstance(self.header, RingHeader) and not self.header.finalized

    @property
    def unread(self) -> int:
        """Return how many of its records were not read; records before the ring's last turn are gone."""
        return 0 if isinstance(self.header, Absent) else min(RECORDS, self.header.counts.written - self.after)


class FileRings:
    """The rings in a folder and the folders in it. Any thread may poll; `close` ends it.

    Rings whose writers live are kept open: the tap removes its file with the communicator, and the open file
    still gives its last records.
    """

    def __init__(
        self, folder: str | Path, mono: Callable[[], float] = time.monotonic, proc: Path = PROC
    ) -> None:
        self._folder = Path(folder)
        self._mono, self._proc = mono, proc
        self._left: dict[_Inode, float] = {}
        self._open: dict[str, _Found] = {}
        self._empty: dict[str, float] = {}
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
        for one in self._open.values():
            one.close()
        self._open = {}

    def _read_all(self, folder: int, after: Mapping[str, int]) -> RingsReading:
        poll = RingsPoll(folder, before=self._left)
        folders = tuple(ring_folders(folder, poll.refuse))
        found = list(self._open.values())
        try:
            for place in folders:
                found += _files(poll, place, after, self._open)
            poll.refuse_full()
            chosen = _chosen(RINGS, found)
            for one in found:
                if one.name not in chosen:
                    who = one.owner or f"user {one.about.st_uid}"
                    poll.refuse(one.name, Absent(Why.MALFORMED, f"one ring too many of {who}"))
            read = [one for one in found if one.name in chosen and _look(poll, one, after)]
            shares = fair(RECORDS_IN_ALL, {one.asker: one.unread for one in read})
            for one in read:
                self._read(poll, one, shares[one.asker])
            self._remove_gone(folder, folders, {one.name.rpartition("/")[0] for one in read})
            going = [one for one in read if one.goes_on]
            kept = _chosen(OPEN, going)
            self._left, self._open = poll.left, {one.name: one for one in going if one.name in kept}
        finally:
            for one in found:
                if self._open.get(one.name) is not one:
                    one.close()
        return poll.reading()

    def _read(self, poll: RingsPoll, one: _Found, most: int) -> None:
        """Read a ring into the poll; a ring that stayed unwritten for a while is removed, where we may."""
        if isinstance(one.header, Absent):
            return
        with poll.refusing(one.name):
            poll.rings.append(_reading(poll, one, one.header, most))
        inode, now = (one.about.st_dev, one.about.st_ino), self._mono()
        if one.live:
            return
        poll.left[inode] = since = poll.before.get(inode, now)
        if now - since >= KEPT:
            # Elsewhere somebody else removes it, or nobody: a file system may be read-only to us.
            with suppress(OSError):
                above = os.stat(one.name.rpartition("/")[0] or ".", dir_fd=poll.folder)
                if removable(above):
                    os.unlink(one.name, dir_fd=poll.folder)
                    del poll.left[inode]

    def _remove_gone(self, root: int, folders: Iterable[RingFolder], used: set[str]) -> None:
        """Remove the folders of pods that had no ring for an hour and no process on this machine."""
        pods = [one for one in folders if one.at.startswith("pods/")]
        now, before = self._mono(), self._empty
        self._empty = {one.at: before.get(one.at, now) for one in pods if one.at.rstrip("/") not in used}
        due = [one for one in pods if now - self._empty.get(one.at, now) >= GONE]
        here = owners_here(self._proc) if due else None
        for one in due:
            if here is not None and one.owner not in here:
                remove_folder(root, one.at)
            self._empty[one.at] = now  # the next look at all processes is an hour away


def _chosen(total: int, found: Sequence[_Found]) -> set[str]:
    """Return the names of rings that may be read, or kept open; the others are beyond their share."""
    shares = fair(total, {one.asker: 1 for one in found})
    return {one.name for one in found if shares[one.asker]}


def _files(
    poll: RingsPoll, folder: RingFolder, after: Mapping[str, int], kept: Mapping[str, _Found]
) -> Iterator[_Found]:
    """Find the files of a folder that may be rings; the others are refused."""
    with opened(poll.folder, folder.at, poll.refuse) as handle:
        names = _names(handle) if handle is not None else []
        if len(names) > LISTED:
            poll.refuse(f"{folder.at}...", Absent(Why.MALFORMED, f"more than {LISTED} names"))
        # Whatever comes first in a folder of too many names, those that were read before are looked at.
        before = {one.removeprefix(folder.at) for one in after if one.startswith(folder.at)}
        for name in sorted({*names[:LISTED], *(one for one in before if "/" not in one)}):
            whole = f"{folder.at}{name}"
            if whole in {OLD, *KINDS}:
                continue
            if whole in kept:
                poll.held[folder.at or "."] += RING_BYTES
                continue
            if not _NAME.fullmatch(name):
                poll.refuse(whole, Absent(Why.MALFORMED, "not a name that the tap gives"))
                continue
            with poll.refusing(whole), suppress(FileNotFoundError):
                about = os.stat(name, dir_fd=handle, follow_symlinks=False)
                poll.held[folder.at or "."] += 512 * about.st_blocks
                if (wrong := _no_ring(about)) is None:
                    yield _Found(whole, folder.owner, about, whole in after)
                else:
                    poll.refuse_old(whole, about, wrong)


def _look(poll: RingsPoll, one: _Found, after: Mapping[str, int]) -> bool:
    """Open a file, and look at what it is now; False where it is no ring."""
    if one.handle < 0:
        handle = poll.open(one.name, poll.folder)
        one.handle = -1 if handle is None else handle
    one.header = NOT_READ
    if one.handle >= 0:
        with poll.refusing(one.name):
            one.about = os.fstat(one.handle)
            one.header = _no_ring(one.about) or parse_header(os.pread(one.handle, HEADER_BYTES, 0))
            one.live = _locked(one.handle)
            if isinstance(one.header, Absent):
                poll.refuse_old(one.name, one.about, one.header)
    if isinstance(one.header, Absent):
        return False
    begin = after.get(one.name, 0)
    # A number beyond what was written is of a ring that had this name before.
    one.after, one.known = begin if begin <= one.header.counts.written else 0, True
    return True


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


def _reading(poll: RingsPoll, one: _Found, header: RingHeader, most: int) -> RingReading:
    about, inode = one.about, (one.about.st_dev, one.about.st_ino)
    state = RingState.FINALIZED if header.finalized else RingState.LIVE if one.live else RingState.DEAD
    ring = Ring(
        one.name, header.communicator, header.ranks, header.rank, header.nodes, header.gpu, header.pid,
        poll.holder(inode, about.st_uid) if one.live else _GONE, about.st_uid, header.created, state,
        header.counts, header.comm_name, header.nccl, header.interface, header.tap, header.on, header.period,
        header.untimed, owner=one.owner, budget=header.budget, stride=header.stride,
    )  # fmt: skip
    new = _slice(one.handle, header, one.after, most, open_end=state is RingState.LIVE)
    return RingReading(ring, new.calls, new.missed, new.implausible, new.last)


def _user_of(pid: int) -> int | None:
    """Return the user of a process; None where it cannot be seen."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None


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


def _names(folder: int) -> list[str]:
    """Return the names in a folder, one more than are looked at where there are as many."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, LISTED + 1))


def _no_ring(about: os.stat_result) -> Absent | None:
    """Say why a file is no ring by its shape; None: it may be one."""
    if stat.S_ISLNK(about.st_mode):
        return _MEANS[errno.ELOOP]
    if not stat.S_ISREG(about.st_mode):
        return Absent(Why.MALFORMED, "not a regular file")
    if about.st_nlink > 1:
        return Absent(Why.MALFORMED, f"{about.st_nlink} names for one file")
    if about.st_size != RING_BYTES:
        return Absent(Why.MALFORMED, f"{about.st_size} bytes; a ring has {RING_BYTES}")
    return None


def _locked(handle: int) -> bool:
    """Tell whether its writer holds the lock. Ours is shared, and given back at once: nobody waits for it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(handle, fcntl.LOCK_UN)
    return False


def _slice(handle: int, header: RingHeader, after: int, most: int, *, open_end: bool) -> RingSlice:
    """Return the newest records after a number; only records of the ring's last turn are still there."""
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
