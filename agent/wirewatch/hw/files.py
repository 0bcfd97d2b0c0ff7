"""The ports that read files: sysfs, with one system call a file, and the kernel's log in /dev/kmsg."""

import errno
import os
import threading
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from wirewatch.core.kernellog import parse_record, vital, wanted
from wirewatch.core.ports import KernelLog
from wirewatch.core.types import Absent, Why

LIMIT = 65536
"""Bytes read of a file; kernel attributes are one page, and some drivers make a second read poll for ever."""
_WHY = {
    errno.ENOENT: Why.MISSING,
    errno.ENODEV: Why.LOST,
    errno.ENXIO: Why.LOST,
    errno.EACCES: Why.DENIED,
    errno.EPERM: Why.DENIED,
    errno.EINVAL: Why.UNSUPPORTED,
    errno.EOPNOTSUPP: Why.UNSUPPORTED,
    errno.ETIMEDOUT: Why.TIMEOUT,
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM), Why.EXHAUSTED),
}
KEPT = 4096
"""Most records about XIDs, and as many others: a card that floods the log drives out no XID."""
_RECORD_BYTES = 8192


class SystemSysfs:
    """Files below `root`, `/` on a real machine; paths are absolute, as the host names them."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self, path: str) -> str | Absent:
        data = self.data(path)
        return data if isinstance(data, Absent) else data.decode("utf-8", "replace").rstrip()

    def data(self, path: str) -> bytes | Absent:
        try:
            handle = os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return absent_errno(error.errno, path)
        try:
            return os.read(handle, LIMIT)
        except OSError as error:
            return absent_errno(error.errno, path)
        finally:
            os.close(handle)

    def entries(self, path: str) -> Sequence[str] | Absent:
        try:
            return sorted(entry.name for entry in self._at(path).iterdir())
        except OSError as error:
            return absent_errno(error.errno, path)

    def link(self, path: str) -> str | Absent:
        try:
            resolved = self._at(path).resolve(strict=True)
        except OSError as error:
            return absent_errno(error.errno, path)
        return "/" + str(resolved.relative_to(self._root.resolve())).removeprefix(".")

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")


class SystemKmsg:
    """The kernel's log of this machine, for any thread; reading may need CAP_SYSLOG."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._path = path
        self._handle: int | None = None
        self._kept: deque[tuple[int, str]] = deque()
        self._noise: deque[tuple[int, str]] = deque()
        self._next: int | None = None
        self._last = -1
        self._missed = 0
        self._turn = threading.Lock()

    def records(self, after: int) -> KernelLog | Absent:
        with self._turn:
            try:
                if self._handle is None:
                    self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._drain(self._handle)
            except OSError as error:
                if self._handle is not None:
                    os.close(self._handle)
                    self._handle = None
                return absent_errno(error.errno, str(self._path))
            kept = sorted((one for one in (*self._kept, *self._noise) if one[0] > after), key=itemgetter(0))
            return KernelLog(tuple(raw for _, raw in kept), self._missed)

    def _drain(self, handle: int) -> None:
        while True:
            try:
                data = os.read(handle, _RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                # Records were overwritten before they were read: the next read gives the oldest that is left.
                if error.errno == errno.EPIPE:
                    continue
                raise
            if not data:
                return
            self._take(data.decode("utf-8", "replace"))

    def _take(self, raw: str) -> None:
        record = parse_record(raw)
        number = record.sequence if record else self._next or 0
        if record is not None:
            if record.sequence <= self._last:
                return  # read before, until reading failed
            self._last = record.sequence
        self._missed += max(0, number - self._next) if self._next is not None else 0
        self._next = number + 1
        if wanted(raw):
            records = self._kept if vital(raw) else self._noise
            records.append((number, raw.rstrip("\n")))
            if len(records) > KEPT:
                records.popleft()
                self._missed += vital(raw)


def absent_errno(number: int | None, path: str) -> Absent:
    """Return why a file could not be read, from the errno; MALFORMED without one."""
    number = number or 0
    why = _WHY.get(number, Why.MALFORMED)
    return Absent(why, f"{path}: {errno.errorcode.get(number, 'errno')} {os.strerror(number)}", number)
