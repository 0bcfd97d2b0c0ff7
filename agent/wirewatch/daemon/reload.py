"""SIGHUP: the configuration is read again, and what can change while the daemon runs changes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wirewatch.core.collector import AnyCollector
from wirewatch.core.types import Expect, Unusable
from wirewatch.daemon.schedule import Lane
from wirewatch.documents.process import PROCESS
from wirewatch.verdict.ledger import VerdictPolicy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reread:
    """What a configuration gives that was read again; `restart`: changed keys that need a restart."""

    components: Sequence[AnyCollector]
    expect: Expect
    policy: VerdictPolicy
    restart: Sequence[str] = ()


class Reloader:
    """Reads the configuration in a lane, since a file may hang; `apply` takes it over in the event loop."""

    def __init__(self, read: Callable[[], Reread], apply: Callable[[Reread], None]) -> None:
        self._read, self._apply = read, apply
        self._lane: Lane | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def reload(self) -> None:
        """Read it soon; once more, if it is being read."""
        if self._task is not None and not self._task.done():
            self._again = True
            return
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        self._lane = self._lane or Lane("configuration")
        self._again = True
        while self._again:
            self._again = False
            try:
                read = await self._lane.submit(self._read)
                self._apply(read)
            except Unusable as error:
                self._refuse(str(error))
            except Exception as error:
                log.exception("this is a bug of wirewatch")
                self._refuse(repr(error))
            else:
                PROCESS.reloaded(good=True)
                for key in read.restart:
                    log.warning("configuration: the change of %s needs a restart", key)
                log.info("configuration: read again")

    def _refuse(self, why: str) -> None:
        PROCESS.reloaded(good=False)
        log.error("configuration: %s; nothing was changed", why)
