"""The log is bounded, whatever logs; nobody waits for its reader, and the first of a kind is written."""

import asyncio
import gc
import io
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.hw.children import until
from tests.patience import HANGS
from tests.rows import each
from wirewatch.cli.output import log_as_daemon
from wirewatch.daemon import log as logs
from wirewatch.daemon.log import (
    BYTES,
    BYTES_A_MINUTE,
    KINDS,
    MINUTE,
    ROOM,
    BoundedHandler,
    LogBudget,
    Writer,
    kind_of,
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
    """A pipe as the standard error that is logged to, with the log as a daemon sets it up."""
    root, hooks = logging.getLogger(), (threading.excepthook, sys.unraisablehook, sys.stderr)
    before, root.handlers = root.handlers, []
    reading, writing = os.pipe()
    try:
        # A command that another test ran here may have left it on, without effect by now.
        logging.captureWarnings(capture=False)
        with open(writing, "w", buffering=1) as sys.stderr:  # noqa: PTH123
            logs.log_to_stderr(verbose=False)
            log_as_daemon()
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


def kind(number: int) -> tuple[str, str, int, str, str]:
    return ("a", "file", number, "", "")


def test_what_was_left_out_is_said_after_a_minute_or_with_the_next_of_its_kind() -> None:
    budget = LogBudget()
    for number in (1, 2):
        assert budget.admits(kind(number), 0.0)
        budget.leave_out(kind(number), f"first of {number}", 0.0)
        budget.leave_out(kind(number), "second", 5.0)
    assert budget.owed(59.9) == []
    assert budget.owed(10.0, kind(1)) == ["2 more like this were left out in 10 s: first of 1"]
    assert budget.owed(60.0) == ["2 more like this were left out in 60 s: first of 2"]
    assert budget.owed(600.0) == []
    assert budget.owed(600.0, kind(1)) == []


def test_the_twenty_kinds_that_were_left_out_most_are_named_and_the_others_counted() -> None:
    budget = LogBudget()
    for number in range(22):
        budget.admits(kind(number), 0.0)
        for _ in range(number + 1):
            budget.leave_out(kind(number), str(number), 0.0)
    lines = budget.owed(60.0)
    assert [line.rpartition(" ")[2] for line in lines[:20]] == [str(number) for number in range(21, 1, -1)]
    assert lines[20:] == ["3 more of 2 other kinds were left out"]


@pytest.mark.parametrize(("later", "apart"), [(1.0, False), (3600.0, True)])
def test_kinds_beyond_500_are_one_kind_until_others_have_been_silent_for_long(
    *, later: float, apart: bool
) -> None:
    budget = LogBudget()
    for number in range(500):
        assert budget.admits(kind(number), 0.0)
        budget.spend(kind(number), 100)
    for number in (500, 501):
        budget.admits(kind(number), later)
    budget.leave_out(kind(500), "new", later)
    assert bool(budget.owed(later, kind(501))) is not apart


def test_a_kind_has_its_own_budget_and_all_have_one_together() -> None:
    budget = LogBudget()
    for number in (1, 2):
        assert budget.admits(kind(number), 0.0)
    budget.spend(kind(1), 24 << 10)
    assert [budget.admits(kind(number), 0.0) for number in (1, 2)] == [False, True]
    assert budget.admits(kind(1), 1.0)
    budget.spend(kind(2), 256 << 10)
    assert [budget.admits(kind(number), 1.0) for number in (1, 2, 3)] == [False, False, True]


def test_what_finds_no_room_with_the_writer_is_counted() -> None:
    rig = Rig()
    vars(rig.handler)["_writer"] = SimpleNamespace(put=lambda _: False)
    rig.log.error("one")
    rig.log.error("%d", "text")
    assert rig.counts.report.left_out == 2


def test_a_writer_holds_256_kib_for_its_reader_and_waits_again_once_all_is_read() -> None:
    may_write, written = threading.Event(), list[int]()

    def write(data: bytes) -> None:
        may_write.wait(SOON)
        time.sleep(0.02)
        written.append(len(data))

    writer = Writer(write, lambda: None)
    assert not writer.put(b"x" * ((256 << 10) + 1))
    assert writer.put(b"x" * (256 << 10))
    assert not writer.put(b"x")
    may_write.set()
    until(lambda: bool(written))
    until(lambda: not vars(writer)["_blocked"])
    assert writer.put(b"last")
    assert written == [256 << 10, 4]


def test_a_writer_without_work_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MINUTE", 0.01)
    idle = threading.Event()
    assert Writer(lambda _: None, idle.set).put(b"x")
    assert idle.wait(SOON)


@pytest.mark.parametrize(("text", "cut"), [("x" * 5, "x" * 5), ("x" * 6, "xxxxx... (6 characters)")])
def test_a_text_is_cut_where_it_is_longer(text: str, cut: str) -> None:
    assert vars(logs)["_cut"](text, 5) == cut


def record(message: str, raised: Any = None, name: str = "a", line: int = 1) -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "file", line, message, (), raised)


ODD = (ValueError, ValueError("x"), None)


@each(
    ("one", "other", "same"),
    [
        (record("socket 7 of 9"), record("socket 12 of 13"), True), (record("socket"), record("file"), False),
        (record("x" * 60 + "a"), record("x" * 60 + "b"), True), (record("a\nb"), record("a\nc"), True),
        (record("a"), record("a", name="b"), False), (record("a"), record("a", line=2), False),
        (record("a"), record("a", ODD), False), (record("a"), record("a", (None, None, None)), True),
    ],
)  # fmt: skip
def test_messages_of_one_kind(one: logging.LogRecord, other: logging.LogRecord, *, same: bool) -> None:
    assert (kind_of(one) == kind_of(other)) is same


@pytest.mark.parametrize(
    ("error", "thread", "said"),
    [
        (ValueError("x"), threading.Thread(name="mine"), "mine has ended"),
        (ValueError("x"), None, "a thread has ended"), (SystemExit(1), None, ""), (None, None, ""),
    ],
)  # fmt: skip
def test_a_thread_that_ends_by_an_error_is_logged(
    caplog: pytest.LogCaptureFixture, error: BaseException | None, thread: threading.Thread | None, said: str
) -> None:
    failed = threading.ExceptHookArgs((type(error), error, None, thread))
    vars(logs)["_log_thread"](failed)
    assert [one.message for one in caplog.records] == ([said] if said else [])


def test_where_there_is_no_descriptor_text_is_written_and_without_a_stream_nothing() -> None:
    stream = io.StringIO()
    vars(logs)["_writing"](stream)(b"text")
    assert stream.getvalue() == "text"
    assert vars(logs)["_writing"](None)(b"text") is None


class Counted:
    """A lock that counts how often it was taken."""

    def __init__(self) -> None:
        self.taken = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_who_logs_and_who_writes_count_one_after_the_other() -> None:
    writer, lock = Writer(lambda _: None, lambda: None), Counted()
    vars(writer)["_lock"] = lock
    assert writer.put(b"x")
    until(lambda: vars(writer)["_size"] == 0)
    assert lock.taken == 2


def test_what_was_left_out_of_silent_kinds_is_said_with_any_message_and_the_log_is_free_again() -> None:
    rig = Rig()
    budget = vars(rig.handler)["_budget"]
    assert budget.admits(kind(1), 0.0)
    budget.leave_out(kind(1), "lost", 0.0)
    rig.now = MINUTE - 1.0
    rig.log.error("early")
    assert "more like this" not in rig.text
    rig.now = MINUTE
    rig.log.error("in time")
    assert rig.text.index("1 more like this were left out in 60 s: lost") < rig.text.index("in time")
    rig.handler.summarise()
    free = list[bool]()
    lock = rig.handler.lock
    assert lock is not None

    def take() -> None:
        free.append(lock.acquire(blocking=False))
        if free[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert free == [True]


@pytest.mark.parametrize(("verbose", "level"), [(True, logging.DEBUG), (False, logging.ERROR)])
def test_details_are_logged_on_demand(*, verbose: bool, level: int) -> None:
    root = logging.getLogger()
    before = root.level
    try:
        with standard_error():
            root.handlers = []
            root.setLevel(logging.WARNING)
            logs.log_to_stderr(verbose=verbose)
            assert root.level == level
            log_as_daemon()
            assert root.level == min(level, logging.INFO)
    finally:
        root.setLevel(before)


@pytest.mark.parametrize(("said", "text"), [("Error in x", "Error in x 7"), (None, "Exception ignored in 7")])
def test_an_error_that_nobody_could_catch_says_where_it_was_lost(
    caplog: pytest.LogCaptureFixture, said: str | None, text: str
) -> None:
    lost: Any = SimpleNamespace(err_msg=said, object=7, exc_value=ValueError("x"))
    vars(logs)["_log_unraisable"](lost)
    assert [one.getMessage() for one in caplog.records] == [text]
