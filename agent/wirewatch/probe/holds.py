"""Holds: a scheduler keeps probes off the GPUs of a job before the job's first process.

A hold is an empty file in a folder of root's. Its name has all its data, so that it is never half written and
needs no room on a disk: OWNER.UNTIL.GPUS, such as `slurm:4711.18249.0,3`. UNTIL is in seconds since the boot,
by a clock that nobody sets. GPUS are numbers as Slurm counts them, or `all`. A probe has a shared lock on the
file `lock` of that folder while its worker lives. The maker of a hold waits for that lock alone.
"""

import errno
import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IWGRP, S_IWOTH

from wirewatch.core.ports import Hold
from wirewatch.core.types import Absent, Why, whole
from wirewatch.hw.files import absent_errno

log = logging.getLogger(__name__)
FOLDER = "/run/wirewatch-holds"
LOCK = "lock"
LONGEST = 86400 + 60
"""Most seconds of a hold, a day and a minute of tolerance; a longer hold is of another boot."""
MOST = 256
"""Most holds at a time; a further hold would keep off no probe that these do not."""
_NAME = re.compile(r"((?:slurm|pod):[A-Za-z0-9_-]{1,64})\.([0-9]{1,10})\.([^/.]{1,150})", re.ASCII)
_POLL_SECONDS = 0.01


class HoldStarting(Exception):
    """The maker of a new hold waits for the probes to end."""


class HoldFolder:
    """The holds of this node; without a folder there are none, and none can be made."""

    def __init__(self, path: str = FOLDER) -> None:
        self._path = path

    def active(self) -> tuple[Hold, ...] | Absent:
        """The holds whose time is not over. DENIED: users may write there, so no hold is believed."""
        if not self._path:
            return ()
        try:
            found, named = Path(self._path).stat(), self._named()
        except FileNotFoundError:
            return ()
        except OSError as error:
            return absent_errno(error.errno, self._path)
        if found.st_uid not in {0, os.geteuid()} or found.st_mode & (S_IWGRP | S_IWOTH):
            return Absent(Why.DENIED, f"{self._path}: others than root can write there")
        now = since_boot()
        return tuple(one for one in named.values() if now < one.until <= now + LONGEST)

    @contextmanager
    def probing(self) -> Iterator[int | None]:
        """Keep the lock of a probe: yield its descriptor, which the worker inherits to keep the lock as long.

        None, and a line in the log, where it cannot be opened: nobody waits for such a probe. Raises
        HoldStarting.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            handle = os.open(self._at(LOCK), flags)
        except OSError as error:
            if self._path and Path(self._path).is_dir():
                log.warning("who makes a hold does not wait for this probe to end: %s", error)
            yield None
            return
        try:
            _share(handle)
            yield handle
        finally:
            # To unlock it would take the lock from a worker that outlives us.
            os.close(handle)

    def make(self, owner: str, seconds: float, gpus: tuple[int, ...] | None) -> None:
        """Hold probes off for an owner; raises OSError where it cannot be written, or there are MOST."""
        now, named = since_boot(), self._named()
        past = [name for name, one in named.items() if not now < one.until <= now + LONGEST]
        for name in past:
            self._at(name).unlink(missing_ok=True)
        if len(named) - len(past) >= MOST:
            raise OSError(errno.EDQUOT, f"there are {MOST} holds already", self._path)
        which = "all" if gpus is None else ",".join(map(str, gpus))
        self._at(f"{owner}.{int(now + seconds) + 1}.{which}").touch(mode=0o644)

    def end(self, owner: str) -> int:
        """End all holds of an owner and return how many there were; raises OSError."""
        ended = [name for name, one in self._named().items() if one.owner == owner]
        for name in ended:
            self._at(name).unlink(missing_ok=True)
        return len(ended)

    def quiet(self, seconds: float) -> bool:
        """Wait up to this time until no worker of a probe lives; raises OSError where that is not known."""
        with os.fdopen(os.open(self._at(LOCK), os.O_RDONLY | os.O_CLOEXEC)) as lock:
            end = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > end:
                        return False
                    time.sleep(_POLL_SECONDS)
                else:
                    return True

    def _named(self) -> dict[str, Hold]:
        found = ((name, hold_named(name)) for name in os.listdir(self._path))  # noqa: PTH208 - names alone
        return {name: one for name, one in found if one is not None}

    def _at(self, name: str) -> Path:
        return Path(self._path, name)


def _share(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HoldStarting("a scheduler holds probes off at this moment") from None


def since_boot() -> float:
    """Seconds since the boot, as in /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def hold_named(name: str) -> Hold | None:
    """Return the hold in a file name, of all GPUs where their numbers are unclear; None for no hold."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    numbers = [whole(one) for one in match[3].split(",")]
    known = tuple(one for one in numbers if one is not None)
    return Hold(match[1], float(match[2]), known if len(known) == len(numbers) else None)
