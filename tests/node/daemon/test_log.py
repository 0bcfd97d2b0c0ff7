"""The log is bounded, whatever logs; nobody waits for its reader, and the first of a kind is written."""

import asyncio
import gc
import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import HANGS
from wirewatch.daemon import log as logs
from wirewatch.daemon.log import (
    BYTES,
    BYTES_A_MINUTE,
    KINDS,
    MINUTE,
    ROOM,
    BoundedHandler,
    LogBudget,
)
from wirewatch.documents.process import ProcessCounts
from wirewatch.signals import SIGNALS

FLOOD = 3000
"""Errors a second, as a listener without descriptors makes them."""
SOON = HANGS


class Rig:
    """A handler that writes into a list, at a time that the test sets."""

    def __init__(self, write: Callable[[bytes], None] | None = None) -> None:
        self.written: list[bytes] = []
        self.now = 0.0
        self.counts = ProcessCounts()
        self.handler = BoundedHandler(write or self.written.append, self.counts, lambda: self.now)
        self.log = logging.Logger("a")  # noqa: LOG001 - one for this test alone
        self.log.addHandler(self.handler)

    @property
    def text(self) -> str:
        return b"".join(self.written).decode()


def test_a_flood_is_a_burst_and_then_a_trickle_that_says_how_much_is_missing() -> None:
    rig = Rig()
    for number in range(60 * FLOOD // 100):
        rig.now = number / FLOOD * 100
        try:
            os.close(-1)
        except OSError:
            rig.log.exception("socket.accept() out of system resource %d", number)
    lines = rig.text.count("socket.accept() out of system resource")
    assert 10 < lines < 100
    assert len(rig.text) < 40_000
    assert rig.counts.report.logged["error"] == 60 * FLOOD // 100
    rig.now += 2 * MINUTE
    rig.handler.summarise()
    told = [line for line in rig.text.splitlines() if "more like this were left out" in line]
    missing = sum(int(line.split(": ", 1)[1].split()[0]) for line in told)
    assert missing == rig.counts.report.left_out > 1000
    assert "socket.accept() out of system resource" in told[-1]


@given(st.lists(st.tuples(st.integers(0, 700), st.floats(0, 30), st.integers(1, 3000)), max_size=300))
def test_the_first_of_a_kind_passes_and_all_together_stay_below_the_ceiling(
    messages: list[tuple[int, float, int]],
) -> None:
    budget, now, spent, seen = LogBudget(), 0.0, 0, set[int]()
    for number, later, size in messages:
        now += later
        kind = ("a", "file", number, "", "")
        admitted = budget.admits(kind, now)
        if number not in seen and len(seen) < KINDS:
            assert admitted
            spent -= size
        seen.add(number)
        if admitted:
            budget.spend(kind, size)
            spent += size
        else:
            budget.leave_out(kind, "", now)
    assert spent <= BYTES + now / MINUTE * BYTES_A_MINUTE + 3000


def test_a_flood_of_ever_new_kinds_is_bounded_too() -> None:
    rig = Rig()
    letters = str.maketrans("0123456789", "abcdefghij")
    for number in range(4_000):
        rig.log.error(str(number).translate(letters))
    assert KINDS < rig.text.count("\n") < 3 * KINDS
    rig.now += 24 * 60 * MINUTE
    rig.handler.summarise()
    rig.log.error("another one")
    assert "another one" in rig.text


def test_a_long_message_and_a_long_traceback_are_cut() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("x" * 100_000)

    rig = Rig()
    try:
        deep(50)
    except ValueError:
        rig.log.exception("y" * 100_000)
    assert 2000 < len(rig.text) < 10_000


def test_a_message_that_cannot_be_formatted_is_a_line() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RecursionError

    rig = Rig()
    rig.log.error("%s", Odd())
    rig.log.error("%d", "text")
    assert rig.text.count("cannot be formatted") == 2


def test_nobody_waits_for_a_reader_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    written: list[bytes] = []

    def write(data: bytes) -> None:
        may_write.wait(SOON)
        written.append(data)

    rig = Rig(write)
    rig.log.error("0 %s", "x" * 1900)
    # One wait for all: another would last until the reader reads.
    monkeypatch.setattr("wirewatch.daemon.log.PATIENCE", None)
    for number in range(1, 50):
        rig.log.error("%d %s", number, "x" * 1900)
    assert written == []
    may_write.set()
    assert sum(map(len, written)) <= ROOM


def test_a_reader_that_is_gone_costs_nothing_but_the_messages() -> None:
    def write(_: bytes) -> None:
        raise BrokenPipeError

    rig = Rig(write)
    rig.log.error("one")
    rig.log.error("two")
    assert rig.counts.report.logged["error"] == 2


@contextmanager
def standard_error() -> Iterator[int]:
    """A pipe as the standard error that is logged to, with the log as commands set it up."""
    root, hooks = logging.getLogger(), (threading.excepthook, sys.unraisablehook, sys.stderr)
    before, root.handlers = root.handlers, []
    reading, writing = os.pipe()
    try:
        # A command that another test ran here may have left it on, without effect by now.
        logging.captureWarnings(capture=False)
        with open(writing, "w", buffering=1) as sys.stderr:  # noqa: PTH123
            logs.log_to_stderr(verbose=False)
            sys.unraisablehook = SIGNALS.unraisable
            yield reading
    finally:
        os.close(reading)
        logging.captureWarnings(capture=False)
        root.handlers = before
        threading.excepthook, sys.unraisablehook, sys.stderr = hooks


def test_what_python_prints_by_itself_is_logged_in_lines_of_the_log() -> None:
    class Odd:
        def __del__(self) -> None:
            raise ValueError("in a destructor")

    async def never_retrieved() -> None:
        task = asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(0)
        del task
        gc.collect()

    async def fails() -> None:
        raise ValueError("in a task")

    def in_a_thread() -> None:
        raise ValueError("in a thread")

    with standard_error() as reading:
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        one = Odd()
        weakref.ref(one)
        del one
        asyncio.run(never_retrieved())
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("of something", UserWarning, stacklevel=1)
        text = os.read(reading, 1 << 16).decode()
    for logger, what in (
        ("wirewatch.daemon.log", "in a thread"), ("wirewatch.daemon.log", "in a destructor"),
        ("asyncio", "in a task"), ("py.warnings", "of something"),
    ):  # fmt: skip
        assert what in text
        assert f" {logger}: " in text
