"""Reports to systemd (READY=1, STATUS=, WATCHDOG=1, STOPPING=1; see sd_notify(3)), to gates, and all others.

The protocol is one `sendto`; the packages on PyPI are unmaintained or must be compiled.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from wirewatch.core.ports import Clock
from wirewatch.core.types import Health, whole
from wirewatch.core.words import printable
from wirewatch.daemon.board import ErrorLog, ReportSource
from wirewatch.daemon.nodecondition import ConditionWriter
from wirewatch.daemon.persistence import StateWriter, write
from wirewatch.documents.health import HealthDocument
from wirewatch.documents.verdictfile import EVERY, NAME, OF_GPUS, FileVerdict, Stamp, encoded
from wirewatch.kubernetes.apiserver import ConditionReport
from wirewatch.verdict.node import Verdict

log = logging.getLogger(__name__)
SOON = 0.2
"""Seconds between two checks whether the first polls have ended."""
OFTEN = 5.0
"""Seconds between two checks of the verdict, at most."""
PARTS = 3.0
"""How often the watchdog is fed within its time."""
LONGEST = 300
"""Characters of a status line."""
LOOK = 1.0
"""Seconds between two looks at the verdict: a changed verdict is in its file after that."""
MODE = 0o644
"""For every user, as the socket is: a job's own script may read it."""
_BOOT, _UPTIME = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/uptime")


class Notifier:
    """Reports to the service manager that started the daemon; only the event loop uses it.

    `address`: of a unix datagram socket; `@` stands for the zero of an abstract name. `watchdog`: seconds
    within which it must be fed, None without one.
    """

    def __init__(self, address: str, watchdog: float | None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._every = OFTEN if watchdog is None else min(OFTEN, watchdog / PARTS)
        self._watched = watchdog is not None

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str]) -> "Notifier | None":
        """Take the notifier out of the environment, None without one: our children are not the service."""
        address, microseconds, pid = (
            environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        if not address.startswith(("/", "@")) or len(address) == 1:
            return None
        every = whole(microseconds) if pid in {"", str(os.getpid())} else None
        return cls(address, every / 1e6 if every else None)

    def send(self, *lines: str) -> bool:
        """Send lines without waiting; returns whether they were sent, False when the manager is too busy."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
                manager.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError as error:
            log.debug("not sent to systemd: %s", error)
            return False
        return True

    async def run(self, source: ReportSource) -> None:
        """Report readiness, then feed the watchdog and report the verdict, until cancelled."""
        self.send("STATUS=first polls")
        await _until_ready(source)
        waiting, sent = ["READY=1"], ""
        while True:
            status = f"STATUS={status_line(source.node().verdict)}"
            lines = [*waiting, *([status] if status != sent else ())]
            lines += ["WATCHDOG=1"] if self._watched and source.turning() else []
            if lines and self.send(*lines):
                waiting, sent = [], status
            await asyncio.sleep(self._every)


class VerdictFile:
    """Writes the verdict when it changes and every EVERY seconds; only the event loop uses it, a lane writes.

    Beside it is a second file, which has the verdict by its parts.

    The time in the file is that of the verdict, so it goes out of date by itself whatever hangs or stops this
    process. `taken` makes the file's verdict of a health document; `clock` plays in real time.
    """

    def __init__(self, path: Path, taken: Callable[[HealthDocument], FileVerdict], clock: Clock) -> None:
        self._path, self._taken, self._clock = path, taken, clock
        self._of_gpus = path.with_name(f"{path.name}{OF_GPUS}")
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
        self._unlink()
        await _until_ready(source)
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
            await asyncio.sleep(LOOK)

    def remove(self) -> None:
        """Remove the file: from now on the node is not watched."""
        # A disk that hangs in a write is not waited for: the file goes out of date.
        if self._lock.acquire(timeout=LOOK):
            self._ended = True
            with suppress(OSError):
                self._unlink()
            self._lock.release()

    def _unlink(self) -> None:
        for path in (self._of_gpus, self._path):
            path.unlink(missing_ok=True)

    def _stamp(self) -> Stamp:
        return Stamp(self._boot, float(_UPTIME.read_text("ascii").split()[0]))

    def _save(self, path: Path) -> str:
        with self._lock:
            if self._newest is None or self._ended:
                return ""
            verdict, stamp = self._newest
            wrong = write(self._of_gpus, encoded(verdict, stamp, gpus=True), MODE)
            return write(path, encoded(verdict, stamp), MODE) or wrong


class Reporter(Protocol):
    """Reports the daemon to another program, until cancelled."""

    async def run(self, source: ReportSource) -> None:
        """Report what the source says, from now on."""


@dataclass(frozen=True, slots=True)
class Reporters:
    """Reporters of the daemon: to systemd, Kubernetes, gates, and a demo's terminal; None if not used."""

    notifier: Notifier | None = None
    condition_writer: ConditionWriter | None = None
    verdict_file: VerdictFile | None = None
    demo: Reporter | None = None

    def condition(self) -> ConditionReport | None:
        """The report of the node condition, for the metrics."""
        return None if self.condition_writer is None else self.condition_writer.report

    def stopping(self) -> None:
        """Report that the daemon stops. The node condition stays: a restart changes no hardware."""
        if self.notifier is not None:
            self.notifier.send("STOPPING=1", "STATUS=stopping")
        if self.verdict_file is not None:
            self.verdict_file.remove()

    @contextlib.contextmanager
    def reporting(self, source: ReportSource) -> Iterator[None]:
        """Report while the block runs."""
        reporters = (self.notifier, self.condition_writer, self.verdict_file, self.demo)
        tasks = [asyncio.create_task(_reporting(one, source)) for one in reporters if one is not None]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


NO_REPORTERS = Reporters()


def status_line(verdict: Verdict) -> str:
    """The verdict in one line for `systemctl status`."""
    health = verdict.health
    may = "a job may start" if verdict.job_ready else "no job may start"
    text = f"{health.name}, {may}"
    if verdict.findings and health is not Health.OK:
        worst, others = verdict.findings[0], len(verdict.findings) - 1
        text += f": {worst.rule} {worst.subject}: {worst.evidence}"
        text += f" (and {others} more)" if others else ""
    return printable(text)[:LONGEST]


async def _until_ready(source: ReportSource) -> None:
    while not source.ready():  # noqa: ASYNC110 - no event is set when that changes
        await asyncio.sleep(SOON)


async def _reporting(reporter: Reporter, source: ReportSource) -> None:
    """Let one report, and start it again when it raises: a watchdog that is not fed ends the daemon."""
    errors = ErrorLog(log)
    while True:
        try:
            await reporter.run(source)
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            errors.raised(type(reporter).__name__, error)
        await asyncio.sleep(SOON)


def verdict_path(socket: str) -> Path | None:
    """The file beside the socket at `socket`; None where there is no socket, or it has the file's name."""
    place = Path(socket).absolute()
    return None if not socket or place.name == NAME else place.with_name(NAME)
