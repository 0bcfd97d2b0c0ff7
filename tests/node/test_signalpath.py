"""The way of a signal step by step: who is called, what is raised, and when the process ends."""

import os
import signal
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rows import each
from wirewatch import signals as module
from wirewatch.signals import SignalPath, Stopped

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class Left(BaseException):
    """The end of the process."""


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    return codes


class Way(SignalPath):
    """A way that takes signals without being installed, with what it called; exit code 7."""

    def __init__(self, *, daemon: bool) -> None:
        super().__init__()
        self.called: list[str] = []
        self._code, self._reloads = 7, daemon

    def arrive(self, number: int) -> bool:
        """Whether Stopped is raised in the main thread; the first half of the way is the thread's."""
        self._take(number)
        return self.interrupt(number)

    def interrupt(self, number: int) -> bool:
        self._alone = False
        try:
            self._handle(number, None)
        except Stopped as error:
            return (error.code, error.number) == (7, number)
        return False

    def block(self) -> Any:
        return self.taken(self.called.append, lambda: self.called.append("reload"))


@each(("daemon", "number", "raised"), [
    (True, TERM, True), (True, INT, True), (True, HUP, False), (False, HUP, True), (False, TERM, True),
])  # fmt: skip
def test_outside_of_the_block_the_first_signal_that_ends_is_raised(
    number: int, *, daemon: bool, raised: bool
) -> None:
    way = Way(daemon=daemon)
    assert way.arrive(number) is raised
    assert way.raised is raised
    assert not way.arrive(TERM) or not raised


@pytest.mark.parametrize("daemon", [True, False])
def test_inside_the_block_functions_are_called_and_each_once(*, daemon: bool) -> None:
    way = Way(daemon=daemon)
    with way.block():
        assert not any(way.arrive(number) for number in (HUP, HUP, TERM, INT))
    assert way.called == (["reload", "reload", "SIGTERM"] if daemon else ["SIGHUP"])
    assert not way.interrupt(INT)
    assert not way.raised


def test_what_came_before_the_block_counts_when_it_begins() -> None:
    way = Way(daemon=True)
    way.arrive(HUP)
    with way.block():
        assert way.called == ["reload"]
    way._take(TERM)  # noqa: SLF001 - the main thread has not heard of it yet
    with way.block():
        assert way.called == ["reload", "SIGTERM"]
        assert not way.interrupt(TERM)
    with way.block():
        pass
    assert way.called == ["reload", "SIGTERM", "SIGTERM"]


def test_without_a_thread_the_main_thread_takes_it_too() -> None:
    way = Way(daemon=True)
    with way.block():
        way._handle(TERM, None)  # noqa: SLF001
    assert way.called == ["SIGTERM"]


def test_a_loop_that_is_closed_is_no_error() -> None:
    def closed(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    way = Way(daemon=True)
    with way.taken(closed, closed):
        assert not any(way.arrive(number) for number in (HUP, TERM))


def test_stopped_is_raised_again_where_it_was_lost_and_other_errors_are_reported() -> None:
    way = Way(daemon=True)
    way.unraisable_otherwise = lambda lost: way.called.append(str(lost.exc_value))
    assert way.arrive(TERM)
    assert not way.interrupt(TERM)
    lost: Any = SimpleNamespace(exc_value=Stopped(7, TERM))
    way.unraisable(lost)
    assert way.interrupt(TERM)
    way.unraisable(SimpleNamespace(exc_value=ValueError("odd")))
    assert way.called == ["odd"]
    assert not way.interrupt(TERM)


@pytest.mark.parametrize(
    ("daemon", "before", "code"),
    [(True, (), 3), (True, (TERM,), 7), (True, (HUP,), 3), (False, (TERM,), 3)],
)
def test_a_daemon_that_was_ended_has_ended_well_whatever_is_made_of_it(
    left: list[int], before: tuple[int, ...], code: int, *, daemon: bool
) -> None:
    way = Way(daemon=daemon)
    for number in before:
        way.arrive(number)
    with pytest.raises(Left):
        way.leave(3)
    assert left == [code]
    assert not way.interrupt(INT)


def test_what_was_printed_is_there_and_a_stream_that_is_gone_is_no_error(
    left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(flush=lambda: flushed.append("flushed")))
    with pytest.raises(Left):
        Way(daemon=False).leave(0)
    assert (left, flushed) == ([0], ["flushed"])


@pytest.mark.parametrize(
    ("acted", "block", "interrupted"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_the_thread_interrupts_a_main_thread_that_has_not_heard_and_ends_the_process_in_time(
    left: list[int], monkeypatch: pytest.MonkeyPatch, *, acted: bool, block: bool, interrupted: bool
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(module, "LIMIT", 0.05)
    monkeypatch.setattr(module, "AGAIN", 0.005)
    monkeypatch.setattr(signal, "pthread_kill", lambda _thread, number: killed.append(number))
    way = Way(daemon=True)
    way._acted = acted  # noqa: SLF001
    reading, writing = os.pipe()
    os.write(writing, bytes((HUP, TERM, INT)))
    if block:
        way._stop = way.called.append  # noqa: SLF001
    with pytest.raises(Left):
        way._run(reading)  # noqa: SLF001
    os.close(reading)
    os.close(writing)
    assert left == [7]
    assert set(killed) == ({TERM} if interrupted else set())
    assert way.called == (["SIGTERM"] if block else [])
