"""The log on standard error: bounded for every logger, and never waited for.

A fault a thousand times a second leaves the log readable and the disk free. Each kind of message has a budget
in bytes, and all have one together; both fill again with time. The first of a kind is always written. A
reader that does not read, a closed pipe or a full disk costs messages, and no time.
"""

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from wirewatch.core.words import printable
from wirewatch.documents.process import PROCESS, ProcessCounts
from wirewatch.signals import SIGNALS

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LINE, TRACEBACK = 2000, 6000
"""Characters that are kept of a message, and of the traceback with it."""
MINUTE = 60.0
KIND_BYTES, KIND_BYTES_A_MINUTE = 24 << 10, 2 << 10
"""Bytes of one kind of message: at once, and then in a minute."""
BYTES, BYTES_A_MINUTE = 256 << 10, 16 << 10
"""Bytes of all messages together: at once, and then in a minute, which is 24 MB a day."""
KINDS = 500
"""Kinds that are counted separately; all further kinds share a kind for each logger."""
ROOM = 256 << 10
"""Bytes that wait for a reader."""
PATIENCE = 0.05
"""Seconds that a message waits for being written, so that it is there when the process dies right after."""
_NO_DIGITS = {ord(digit): None for digit in "0123456789"}
_BEGINNING = 60
_SUMMARIES = 20
_log = logging.getLogger(__name__)
Kind = tuple[str, str, int, str, str]


class _OneLine(logging.Formatter):
    """One line a message: text from elsewhere cannot begin another line or command a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return _cut(printable(super().formatMessage(record)), LINE)

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        text = super().formatException(ei)  # type: ignore[arg-type]
        # The end of a traceback says what happened.
        if len(text) > TRACEBACK:
            text = f"{text[: TRACEBACK // 3]}\n...\n{text[-TRACEBACK * 2 // 3 :]}"
        return "\n".join(map(printable, text.split("\n")))


@dataclass(slots=True)
class _Bucket:
    """Bytes that may still be written; it fills with time, and what it gives may bring it below zero."""

    size: float
    rate: float
    level: float
    at: float

    def has(self, now: float) -> bool:
        self.level = min(self.size, self.level + self.rate * max(0.0, now - self.at))
        self.at = now
        return self.level > 0


@dataclass(slots=True)
class _KindState:
    """The budget of one kind, and what was left out since it was last written: how many, and the first."""

    bucket: _Bucket
    left_out: int = 0
    example: str = ""
    since: float = 0.0


@dataclass(slots=True)
class LogBudget:
    """Decides which messages are written. For one thread at a time; times are monotonic seconds."""

    _all: _Bucket = field(default_factory=lambda: _Bucket(BYTES, BYTES_A_MINUTE / MINUTE, BYTES, 0.0))
    _kinds: dict[Kind, _KindState] = field(default_factory=dict)

    def admits(self, kind: Kind, now: float) -> bool:
        """Tell whether to write a message of this kind; the first message always is written."""
        state = self._kinds.get(kind)
        if state is None:
            if len(self._kinds) >= KINDS:
                self._forget(now)
            if len(self._kinds) >= KINDS:
                kind = (kind[0], "", 0, "", "")
            state = self._kinds.get(kind)
        if state is None:
            self._kinds[kind] = _KindState(_Bucket(KIND_BYTES, KIND_BYTES_A_MINUTE / MINUTE, KIND_BYTES, now))
            return True
        # Both are asked, since both fill meanwhile.
        mine, ours = state.bucket.has(now), self._all.has(now)
        return mine and ours

    def spend(self, kind: Kind, size: int) -> None:
        """Take so many written bytes from the budget."""
        self._all.level -= size
        self._state(kind).bucket.level -= size

    def leave_out(self, kind: Kind, example: str, now: float) -> None:
        """Count a message that was not written; `example` is its text."""
        state = self._state(kind)
        if not state.left_out:
            state.example, state.since = example, now
        state.left_out += 1

    def owed(self, now: float, kind: Kind | None = None) -> list[str]:
        """Lines that say what was left out: of one kind, or of all that have waited for a minute."""
        some = [self._state(kind)] if kind is not None else self._kinds.values()
        due = [one for one in some if one.left_out and (kind is not None or now - one.since >= MINUTE)]
        due.sort(key=lambda one: -one.left_out)
        lines = [
            f"{one.left_out} more like this were left out in {now - one.since:.0f} s: {one.example}"
            for one in due[:_SUMMARIES]
        ]
        if rest := due[_SUMMARIES:]:
            lines.append(f"{sum(one.left_out for one in rest)} more of {len(rest)} other kinds were left out")
        for one in due:
            one.left_out = 0
        return lines

    def _state(self, kind: Kind) -> _KindState:
        return self._kinds.get(kind) or self._kinds[(kind[0], "", 0, "", "")]

    def _forget(self, now: float) -> None:
        """Forget kinds that have their whole budget again: they have been silent for long."""
        for kind, state in list(self._kinds.items()):
            if not state.left_out and state.bucket.has(now) and state.bucket.level >= state.bucket.size:
                del self._kinds[kind]


class Writer:
    """Writes in a thread of its own, so that no caller waits long; it calls `idle` in a minute of silence."""

    def __init__(self, write: Callable[[bytes], object], idle: Callable[[], None]) -> None:
        self._write, self._idle = write, idle
        self._waiting: queue.SimpleQueue[tuple[bytes, threading.Event]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._size = 0
        self._blocked = self._started = False

    def put(self, text: bytes) -> bool:
        """Have it written, and wait for that a moment; False where too much waits already."""
        with self._lock:
            if self._size + len(text) > ROOM or not self._start():
                return False
            self._size += len(text)
        written = threading.Event()
        self._waiting.put((text, written))
        if not self._blocked and not written.wait(PATIENCE):
            self._blocked = True
        return True

    def _start(self) -> bool:
        if not self._started:
            with suppress(RuntimeError):
                threading.Thread(target=self._run, name="log", daemon=True).start()
                self._started = True
        return self._started

    def _run(self) -> None:
        while True:
            try:
                text, written = self._waiting.get(timeout=MINUTE)
            except queue.Empty:
                self._idle()
                continue
            # Nobody reads, or the disk is full: nothing can be done, and nothing said.
            with suppress(OSError, ValueError):
                self._write(text)
            with self._lock:
                self._size -= len(text)
                self._blocked = self._blocked and self._size > 0
            written.set()


class BoundedHandler(logging.Handler):
    """Writes what the budget allows, and counts the rest."""

    def __init__(
        self, write: Callable[[bytes], object], counts: ProcessCounts = PROCESS,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        super().__init__()
        self.setFormatter(_OneLine(FORMAT))
        self._counts, self._mono = counts, mono
        self._budget = LogBudget()
        self._writer = Writer(write, self.summarise)
        self._summarised = mono()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message, or count it."""
        self._counts.logged(record.levelname.lower())
        kind, now = kind_of(record), self._mono()
        if now - self._summarised >= MINUTE:
            self._summarise(now)
        if not self._budget.admits(kind, now):
            self._leave_out(kind, record, now)
            return
        for line in self._budget.owed(now, kind):
            self._put(kind, self._line(record.levelno, record.name, line))
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001 - a message that cannot be made is worth a line, not an end
            text = self._line(logging.ERROR, record.name, f"{record.msg!r} cannot be formatted: {error!r}")
        if not self._put(kind, text):
            self._leave_out(kind, record, now)

    def _leave_out(self, kind: Kind, record: logging.LogRecord, now: float) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit
            text = str(record.msg)
        self._budget.leave_out(kind, _cut(printable(text).split("\n")[0], 200), now)
        self._counts.left_out()

    def summarise(self) -> None:
        """Write what was left out for a minute or more."""
        assert self.lock is not None  # noqa: S101 - each handler has one
        # Whoever logs meanwhile waits for this thread.
        if self.lock.acquire(blocking=False):
            try:
                self._summarise(self._mono())
            finally:
                self.lock.release()

    def _summarise(self, now: float) -> None:
        self._summarised = now
        kind = (__name__, "", 0, "", "")
        for line in self._budget.owed(now):
            self._budget.admits(kind, now)
            self._put(kind, self._line(logging.WARNING, __name__, line))

    def _line(self, level: int, name: str, text: str) -> str:
        return self.format(logging.LogRecord(name, level, "", 0, "%s", (text,), None))

    def _put(self, kind: Kind, text: str) -> bool:
        data = f"{text}\n".encode(errors="backslashreplace")
        if not self._writer.put(data):
            return False
        self._budget.spend(kind, len(data))
        return True


def kind_of(record: logging.LogRecord) -> Kind:
    """Messages of one kind come from one place in the code, and differ in numbers and arguments alone."""
    raised = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] is not None else ""
    beginning = str(record.msg).split("\n", 1)[0][:_BEGINNING].translate(_NO_DIGITS)
    return (record.name, record.pathname, record.lineno, beginning, raised)


def log_to_stderr(*, verbose: bool) -> None:
    """Log errors to the present standard error; further messages would disturb a command's answer.

    `verbose`: everything, debug messages too. A daemon logs more: `cli.output.log_as_daemon`. Messages that
    Python would print there by itself (warnings, errors of threads, of destructors) are logged as well.
    """
    handler = BoundedHandler(_writing(sys.stderr))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.ERROR, handlers=[handler])
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_thread
    SIGNALS.unraisable_otherwise = _log_unraisable


def _writing(stream: IO[str] | None) -> Callable[[bytes], object]:
    """The writer to the stream, below its buffer and its lock, which a thread that hangs there would hold."""
    if stream is None:
        return lambda _: None
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return lambda data: stream.write(data.decode())

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    return write


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        name = failed.thread.name if failed.thread else "a thread"
        _log.error("%s has ended", name, exc_info=failed.exc_value)


def _log_unraisable(lost: "sys.UnraisableHookArgs") -> None:
    what = lost.err_msg or "Exception ignored in"
    _log.error("%s %r", what, lost.object, exc_info=lost.exc_value)
