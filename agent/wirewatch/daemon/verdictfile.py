"""Keeps the verdict in a file beside the daemon's socket, for gates that cannot wait for Python."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from wirewatch.core.ports import Clock
from wirewatch.daemon.board import ReportSource
from wirewatch.daemon.persistence import StateWriter, write
from wirewatch.documents.health import HealthDocument
from wirewatch.documents.verdictfile import EVERY, NAME, FileVerdict, Stamp, encoded

OFTEN = 1.0
"""Seconds between two looks at the verdict: one that changes is in the file after that."""
SOON = 0.2
"""Seconds between two looks whether the first polls have ended."""
MODE = 0o644
"""For every user, as the socket is: a job's own script may read it."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_UPTIME = Path("/proc/uptime")


class VerdictFile:
    """Writes the verdict when it changes and every EVERY seconds; only the event loop uses it, a lane writes.

    The time in the file is that at which the verdict was taken. So a file goes out of date by itself whatever
    hangs or stops this process. `taken` makes the file's verdict of a health document; `clock` plays in real
    time.
    """

    def __init__(self, path: Path, taken: Callable[[HealthDocument], FileVerdict], clock: Clock) -> None:
        self._path, self._taken, self._clock = path, taken, clock
        self._boot = _BOOT.read_text("ascii").strip()
        loss = "gates without Python know nothing of this node"
        self._writer = StateWriter(path, self._save, loss, clock)
        self._newest: tuple[FileVerdict, Stamp] | None = None
        # Between the lane that writes and the end that removes.
        self._lock = threading.Lock()
        self._ended = False

    async def run(self, source: ReportSource) -> None:
        """Keep the file until cancelled, from the end of the first polls on."""
        # What another agent has left behind says nothing any more.
        self._path.unlink(missing_ok=True)
        while not source.ready():  # noqa: ASYNC110 - no event is set when that changes
            await asyncio.sleep(SOON)
        written: FileVerdict | None = None
        at = 0.0
        while True:
            stamp, mono = self._stamp(), self._clock.mono()
            verdict = self._taken(source.health())
            if written is None or replace(verdict, probe=written.probe) != written or mono - at >= EVERY:
                self._newest, written, at = (verdict, stamp), verdict, mono
                self._writer.submit()
                # One at a time: while a disk hangs, none is queued behind it.
                await self._writer.flush()
            await asyncio.sleep(OFTEN)

    def remove(self) -> None:
        """Remove the file: from now on the node is not watched."""
        # A disk that hangs in a write is not waited for: the file goes out of date.
        if self._lock.acquire(timeout=OFTEN):
            self._ended = True
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._lock.release()

    def _stamp(self) -> Stamp:
        return Stamp(self._boot, float(_UPTIME.read_text("ascii").split()[0]))

    def _save(self, path: Path) -> str:
        with self._lock:
            if self._newest is None or self._ended:
                return ""
            return write(path, encoded(*self._newest), MODE)


def verdict_path(socket: str) -> Path | None:
    """The file beside the socket at `socket`; None where there is no socket, or it has the file's name."""
    place = Path(socket).absolute()
    return None if not socket or place.name == NAME else place.with_name(NAME)
