"""What systemd is told, as a real datagram socket receives it."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.kubernetes.views import FAILED, OK, UNKNOWN
from tests.patience import HANGS
from tests.rows import each
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Finding, Health, Subject
from wirewatch.daemon.board import ReportSource
from wirewatch.daemon.notify import LONGEST, Notifier, Reporters, status_line
from wirewatch.documents.judged import DaemonStatus, health
from wirewatch.kubernetes.apiserver import ConditionReport
from wirewatch.verdict.node import Judged, Verdict, judge_state


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """The other end, and how the environment names it."""
    name = (
        str(tmp_path / "notify")
        if request.param == "path"
        else f"@wirewatch-test-{os.getpid()}-{time.time_ns()}"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        end.settimeout(0.02)
        yield end, name


def messages(end: socket.socket) -> list[str]:
    """All lines so far."""
    lines: list[str] = []
    while True:
        try:
            lines += end.recv(4096).decode().split("\n")
        except TimeoutError:
            return lines


class Daemon:
    """What the notifier looks at, changed by hand."""

    def __init__(self) -> None:
        self.node: Judged = OK
        self.ready, self.turning = True, True

    @property
    def view(self) -> ReportSource:
        return ReportSource(
            lambda: self.node, lambda: self.ready, lambda: self.turning,
            lambda: health(self.node, DaemonStatus(0.0, 0.0)),
        )  # fmt: skip


def made(name: str, **more: str) -> Notifier:
    notifier = Notifier.of_environment({"NOTIFY_SOCKET": name, **more})
    assert notifier is not None
    return notifier


async def until(end: socket.socket, line: str, seconds: float = HANGS) -> list[str]:
    lines: list[str] = []
    stop = time.monotonic() + seconds
    while line not in lines:
        assert time.monotonic() < stop, lines
        lines += messages(end)
        await asyncio.sleep(0.02)
    return lines


def test_ready_comes_after_the_first_polls_with_the_verdict_in_words(
    manager: tuple[socket.socket, str],
) -> None:
    end, name = manager

    async def story() -> None:
        daemon = Daemon()
        daemon.ready = False
        running = asyncio.create_task(made(name).run(daemon.view))
        await asyncio.sleep(0.5)
        assert messages(end) == ["STATUS=first polls"]
        daemon.ready = True
        assert await until(end, "READY=1") == ["READY=1", "STATUS=OK, a job may start"]
        running.cancel()

    asyncio.run(story())


def test_the_watchdog_is_fed_while_the_loops_turn_and_starves_when_one_does_not(
    manager: tuple[socket.socket, str],
) -> None:
    end, name = manager

    async def story() -> None:
        daemon = Daemon()
        running = asyncio.create_task(
            made(name, WATCHDOG_USEC="300000", WATCHDOG_PID=str(os.getpid())).run(daemon.view)
        )
        await until(end, "WATCHDOG=1")
        await asyncio.sleep(0.5)
        assert messages(end).count("WATCHDOG=1") >= 3
        daemon.turning = False
        await asyncio.sleep(0.2)
        messages(end)
        await asyncio.sleep(0.5)
        assert messages(end) == []
        daemon.turning = True
        await until(end, "WATCHDOG=1")
        running.cancel()

    asyncio.run(story())


def test_the_status_changes_with_the_verdict_only(manager: tuple[socket.socket, str]) -> None:
    end, name = manager

    async def story() -> None:
        daemon = Daemon()
        running = asyncio.create_task(made(name, WATCHDOG_USEC="60000").run(daemon.view))
        await until(end, "READY=1")
        daemon.node = FAILED
        status = "STATUS=FAILED, no job may start: nvlink.link_down GPU 2 link 7: inactive; 17 of 18 links up"
        await until(end, status)
        await asyncio.sleep(0.2)
        assert set(messages(end)) == {"WATCHDOG=1"}
        running.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("pid", ["1", "x"])
def test_the_watchdog_of_another_process_is_not_ours(manager: tuple[socket.socket, str], pid: str) -> None:
    end, name = manager

    async def story() -> None:
        running = asyncio.create_task(made(name, WATCHDOG_USEC="60000", WATCHDOG_PID=pid).run(Daemon().view))
        lines = await until(end, "READY=1")
        await asyncio.sleep(0.2)
        assert "WATCHDOG=1" not in lines + messages(end)
        running.cancel()

    asyncio.run(story())


@each("value", [None, "", "/", "@", "vsock:2:1234", "relative"])
def test_without_a_manager_there_is_nobody_to_tell(value: str | None) -> None:
    environ = {} if value is None else {"NOTIFY_SOCKET": value}
    assert Notifier.of_environment(environ) is None


def test_children_do_not_inherit_it(tmp_path: Path) -> None:
    environ = {
        "NOTIFY_SOCKET": str(tmp_path / "x"),
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "1",
        "PATH": "/bin",
    }
    assert Notifier.of_environment(environ) is not None
    assert environ == {"PATH": "/bin"}


def test_a_manager_that_is_gone_or_full_is_told_the_next_time(tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    notifier = made(name)
    assert not notifier.send("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(name)
        sent = 0
        while notifier.send("STATUS=full"):
            sent += 1
            assert sent < 100_000
        while end.recv(4096) and not notifier.send("READY=1"):
            pass
        lines = [end.recv(4096) for _ in range(sent)]
    assert lines[-1] == b"READY=1"


def test_words_are_one_line_of_a_few_hundred_characters() -> None:
    bad = Finding("xid.79", Health.FAILED, Subject("1"), "two\nlines\x1b[31m " + "x" * 999, "reboot")
    words = status_line(Verdict(Health.FAILED, (bad, bad, bad)))
    assert words.isprintable()
    assert len(words) == LONGEST
    assert status_line(UNKNOWN.verdict) == "UNKNOWN, no job may start: nvlink.blind node: timeout"
    assert status_line(Verdict(Health.FAILED, (FAILED.verdict.findings[0],) * 3)).endswith("up (and 2 more)")


def test_a_reporter_that_raises_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[float] = []

    def ready() -> bool:
        asked.append(0.0)
        if len(asked) < 3:
            raise TypeError("no bool")
        return True

    async def scenario() -> None:
        node = judge_state(NodeState())
        source = ReportSource(lambda: node, ready, lambda: True, lambda: health(node, DaemonStatus(0.0, 0.0)))
        with Reporters(Notifier("/nowhere", None)).reporting(source):
            async with asyncio.timeout(HANGS):
                while len(asked) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert [one.getMessage() for one in caplog.records if one.exc_info] == ["Notifier raised"]


class Deaf(Notifier):
    """A notifier whose manager hears so many messages not at all."""

    def __init__(self, deaf: int) -> None:
        super().__init__("/nowhere", 0.03)
        self.deaf, self.heard = deaf, list[tuple[str, ...]]()

    def send(self, *lines: str) -> bool:
        self.deaf -= 1
        if self.deaf < 0:
            self.heard.append(lines)
        return self.deaf < 0


def test_what_the_manager_did_not_hear_is_said_again() -> None:
    daemon, deaf = Daemon(), Deaf(3)

    async def story() -> None:
        running = asyncio.create_task(deaf.run(daemon.view))
        async with asyncio.timeout(HANGS):
            while len(deaf.heard) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(story())
    fed = ("WATCHDOG=1",)
    assert deaf.heard[:3] == [("READY=1", "STATUS=OK, a job may start", *fed), fed, fed]


class Writes:
    """A writer of the node condition that never ends, and says when it is ended."""

    report = ConditionReport()

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def run(self, _source: ReportSource) -> None:
        try:
            await asyncio.sleep(HANGS)
        finally:
            self.ended.set()


def test_reporters_end_with_the_block_and_say_that_the_daemon_stops() -> None:
    said: list[object] = []
    notifier: Any = SimpleNamespace(send=lambda *lines: said.append(lines))
    file: Any = SimpleNamespace(remove=lambda: said.append("removed"))

    async def story() -> None:
        writer: Any = Writes()
        reporters = Reporters(condition_writer=writer)
        assert (reporters.condition() is Writes.report, Reporters().condition()) == (True, None)
        reporters.stopping()
        Reporters(notifier, verdict_file=file).stopping()
        with reporters.reporting(Daemon().view):
            await asyncio.sleep(0)
        async with asyncio.timeout(HANGS):
            await writer.ended.wait()

    asyncio.run(story())
    assert said == [("STOPPING=1", "STATUS=stopping"), "removed"]


def test_before_the_first_polls_nothing_is_named() -> None:
    assert status_line(Verdict(Health.UNKNOWN, ())) == "UNKNOWN, no job may start"
    assert Notifier("@name", None)._address == "\0name"  # noqa: SLF001
