"""The sysfs port: small files, read with one system call each."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

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
}


def absent_errno(number: int, path: str) -> Absent:
    """Why a file could not be read, from the errno."""
    why = _WHY.get(number, Why.MALFORMED)
    return Absent(why, f"{path}: {errno.errorcode.get(number, 'errno')} {os.strerror(number)}", number)


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
            return absent_errno(error.errno or 0, path)
        try:
            return os.read(handle, LIMIT)
        except OSError as error:
            return absent_errno(error.errno or 0, path)
        finally:
            os.close(handle)

    def entries(self, path: str) -> Sequence[str] | Absent:
        try:
            return sorted(entry.name for entry in self._at(path).iterdir())
        except OSError as error:
            return absent_errno(error.errno or 0, path)

    def link(self, path: str) -> str | Absent:
        try:
            resolved = self._at(path).resolve(strict=True)
        except OSError as error:
            return absent_errno(error.errno or 0, path)
        return "/" + str(resolved.relative_to(self._root.resolve())).removeprefix(".")

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")
