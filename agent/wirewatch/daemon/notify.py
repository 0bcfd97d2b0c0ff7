"""What systemd is told of the daemon: READY=1, STATUS=, WATCHDOG=1, STOPPING=1; see sd_notify(3).

A few lines of our own over a datagram socket: what PyPI has is unmaintained or must be compiled, for what is
one `sendto`.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass

from wirewatch.core.types import Health
from wirewatch.daemon.nodecondition import Eyes, Teller
from wirewatch.kubernetes.outcome import ConditionReport
from wirewatch.verdict.node import Verdict

log = logging.getLogger(__name__)
SOON = 0.2
"""Seconds between two looks whether the first polls have ended."""
OFTEN = 5.0
"""Seconds between two looks at the verdict, at most."""
PARTS = 3.0
"""So often within the watchdog's time is it fed."""
LONGEST = 300
"""Characters of a status line."""


class Notifier:
    """Speaks to the service manager that started us; of the event loop alone.

    Args:
        address: of a unix datagram socket; `@` stands for the zero of an abstract name.
        watchdog: seconds within which it must be fed, None when nobody waits for that.
    """

    def __init__(self, address: str, watchdog: float | None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._every = OFTEN if watchdog is None else min(OFTEN, watchdog / PARTS)
        self._watched = watchdog is not None

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str]) -> "Notifier | None":
        """The one that the environment names, taken out of it: our children are not the service."""
        address, microseconds, pid = (
            environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        if not address.startswith(("/", "@")) or len(address) == 1:
            return None
        ours = microseconds.isdigit() and int(microseconds) > 0 and pid in {"", str(os.getpid())}
        return cls(address, int(microseconds) / 1e6 if ours else None)

    def tell(self, *lines: str) -> bool:
        """Whether it was sent. A manager that is too busy is told the next time, never waited for."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
                manager.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError as error:
            log.debug("not told to systemd: %s", error)
            return False
        return True

    async def run(self, eyes: Eyes) -> None:
        """Until cancelled: ready once it is, then fed while it lives, with the verdict in words."""
        self.tell("STATUS=first polls")
        while not eyes.ready():  # noqa: ASYNC110 - nobody is told when that changes
            await asyncio.sleep(SOON)
        waiting, said = ["READY=1"], ""
        while True:
            words = f"STATUS={words_of(eyes.node().verdict)}"
            lines = [*waiting, *([words] if words != said else ()), *self._food(eyes)]
            if lines and self.tell(*lines):
                waiting, said = [], words
            await asyncio.sleep(self._every)

    def _food(self, eyes: Eyes) -> tuple[str, ...]:
        return ("WATCHDOG=1",) if self._watched and eyes.turning() else ()


@dataclass(frozen=True, slots=True)
class Outward:
    """Those who are told; None for who is not there."""

    notifier: Notifier | None = None
    teller: Teller | None = None

    def condition(self) -> ConditionReport | None:
        """What is told of the node condition, for the metrics."""
        return None if self.teller is None else self.teller.told

    def stopping(self) -> None:
        """The daemon was told to stop. The node condition stays: a restart is no news of the hardware."""
        if self.notifier is not None:
            self.notifier.tell("STOPPING=1", "STATUS=stopping")

    @contextlib.contextmanager
    def telling(self, eyes: Eyes) -> Iterator[None]:
        """Tell them while the block runs."""
        tasks = [
            asyncio.create_task(one.run(eyes)) for one in (self.notifier, self.teller) if one is not None
        ]
        for task in tasks:
            task.add_done_callback(_ended)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


NOBODY = Outward()


def words_of(verdict: Verdict) -> str:
    """The verdict in one line for `systemctl status`."""
    health = verdict.health
    may = "a job may start" if verdict.job_ready else "no job may start"
    text = f"{health.name}, {may}"
    if verdict.findings and health is not Health.OK:
        worst, others = verdict.findings[0], len(verdict.findings) - 1
        text += f": {worst.rule} {worst.subject}: {worst.evidence}"
        text += f" (and {others} more)" if others else ""
    return "".join(c if c.isprintable() else " " for c in text)[:LONGEST]


def _ended(task: asyncio.Task[None]) -> None:
    """One that ends by itself must be heard of; the metrics show it, and a watchdog that starves."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has ended", task.get_coro(), exc_info=error)
