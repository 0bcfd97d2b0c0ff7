"""Whom the daemon tells without being asked: the service manager, and Kubernetes. Neither may harm it."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from wirewatch.daemon.eyes import Eyes
from wirewatch.daemon.nodecondition import Teller
from wirewatch.daemon.notify import Notifier
from wirewatch.kubernetes.outcome import Told

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outward:
    """Those who are told; None for who is not there."""

    notifier: Notifier | None = None
    teller: Teller | None = None

    def condition(self) -> Told | None:
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


def _ended(task: asyncio.Task[None]) -> None:
    """One that ends by itself must be heard of; the metrics show it, and a watchdog that starves."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has ended", task.get_coro(), exc_info=error)


NOBODY = Outward()
