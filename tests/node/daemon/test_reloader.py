"""A configuration that is read again in the running daemon, and the end of a daemon whose schedule ends."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.patience import HANGS
from wirewatch.core.types import Expect, Unusable
from wirewatch.daemon import service
from wirewatch.daemon.service import Reloader, Reread
from wirewatch.documents.process import PROCESS
from wirewatch.verdict.ledger import VerdictPolicy

READ = Reread((), Expect(), VerdictPolicy(), ("listen.address",))


def reloaded(*reads: Reread | Exception, apply: Callable[[Reread], None] | None = None) -> tuple[int, int]:
    """How often it was read and taken over, where each reading asks for the next while it runs."""
    left, taken = list(reads), list[Reread]()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def read() -> Reread:
            found = left.pop(0)
            if left:
                loop.call_soon_threadsafe(reloader.reload)
            if isinstance(found, Exception):
                raise found
            return found

        reloader = Reloader(read, apply or taken.append)
        reloader.reload()
        for _ in reads:
            while (task := vars(reloader)["_task"]) and not task.done():
                await task

    asyncio.run(scenario())
    return len(reads) - len(left), len(taken)


def test_what_is_read_is_taken_over_and_what_needs_a_restart_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    assert reloaded(READ) == (1, 1)
    assert PROCESS.report.reloaded
    assert "the change of listen.address needs a restart" in caplog.text
    assert "configuration: read again" in caplog.text


def test_a_signal_that_comes_meanwhile_has_it_read_once_more() -> None:
    assert reloaded(READ, READ) == (2, 2)


def test_a_signal_that_comes_later_has_it_read_again_and_never_twice_at_once() -> None:
    done: list[str] = []

    async def scenario() -> None:
        reloader = Reloader(lambda: READ, lambda _: done.append("taken"))
        for _ in range(2):
            reloader.reload()
            task = vars(reloader)["_task"]
            reloader.reload()
            assert vars(reloader)["_task"] is task
            await task

    asyncio.run(scenario())
    assert done == ["taken"] * 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unusable("unknown key 'x'"), "unknown key 'x'; nothing"),
        (ValueError("odd"), "ValueError('odd'); nothing"),
    ],
)
def test_what_cannot_be_used_changes_nothing(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert reloaded(error) == (1, 0)
    assert not PROCESS.report.reloaded
    assert words in caplog.text
    assert ("this is a bug of wirewatch" in caplog.text) is isinstance(error, ValueError)
    assert reloaded(READ) == (1, 1)
    assert PROCESS.report.reloaded


def test_without_a_file_there_is_nothing_to_read() -> None:
    with pytest.raises(Unusable, match="no configuration file"):
        vars(service)["_nothing_to_read"]()


class Server:
    """A server that runs until it is stopped."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


class Ending:
    """A schedule that ends, with an error or without."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def run(self) -> None:
        if self._error:
            raise self._error


@pytest.mark.parametrize("error", [None, ValueError("no verdict")])
def test_a_daemon_ends_with_its_schedule_so_that_it_is_started_again(error: Exception | None) -> None:
    stopping: list[str] = []
    litter = Server()
    vars(litter)["itself"] = litter
    left, litter = weakref.ref(litter), Server()

    async def scenario() -> None:
        until: Any = vars(service)["_until_signal"]
        async with asyncio.timeout(HANGS):
            await until(Ending(error), [litter, Server()], lambda: stopping.append("said"), lambda: None)

    before = gc.get_freeze_count()
    if error is None:
        asyncio.run(scenario())
    else:
        with pytest.raises(ValueError, match="no verdict"):
            asyncio.run(scenario())
    kept = gc.get_freeze_count()
    assert stopping == ["said"]
    assert left() is None
    assert kept > before + 10, "what was imported is walked through at each full collection"
