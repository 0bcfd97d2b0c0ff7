"""The one way of a signal into this process, from its first line to its end.

Python's signal handler runs in the main thread, which may hang. An exception that it raises is lost inside a
destructor or a callback. So a signal is also a byte in a pipe, written in C, and a thread reads the pipe. The
thread passes the signal on, and ends the process when nothing else does so in time.
"""

import _thread
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

ENDING = (signal.SIGTERM, signal.SIGINT)
RELOADING = signal.SIGHUP
LIMIT = 4.0
"""Seconds from a signal to the end of the process, whatever hangs."""
AGAIN = 0.1
"""Seconds until the main thread is interrupted again, when it has not noticed the signal."""


class Stopped(SystemExit):
    """Raised in the main thread by the first signal that ends the process; `number` is that signal."""

    def __init__(self, code: int, number: signal.Signals) -> None:
        super().__init__(code)
        self.number = number


class SignalPath:
    """The process's reaction to signals. There is one for each process: SIGNALS.

    Before `install`, signals have their default effects. `raised`: whether Stopped was raised. A later error
    is its consequence, and nobody's bug: Python and libraries turn Stopped into other errors.
    `unraisable_otherwise` reports other errors where nothing can be raised.
    """

    def __init__(self) -> None:
        self._code, self._reloads, self._alone = 0, False, True
        self._first: signal.Signals | None = None
        self._end = 0.0
        self._acted = self._reload_due = self.raised = False
        self._stop: Callable[[str], object] | None = None
        self._reload: Callable[[], object] | None = None
        self.unraisable_otherwise: Callable[[UnraisableHookArgs], object] = sys.__unraisablehook__

    def install(self, code: int, *, daemon: bool) -> None:
        """Take the signals from now on, in the main thread; `code` is the exit status after a signal.

        A signal that a command inherits as ignored stays ignored, as under `nohup`. A signal that was blocked
        at the start of this process comes now. SIGHUP reloads a `daemon` and ends any other process.
        """
        self._code, self._reloads = code, daemon
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        kept = (n for n in (signal.SIGINT, RELOADING) if signal.getsignal(n) is signal.SIG_IGN and not daemon)
        ours = {*ENDING, RELOADING} - set(kept)
        for number in ours:
            signal.signal(number, self._handle)
        # Where no thread can be started, the main thread does it all.
        with suppress(RuntimeError):
            _thread.start_new_thread(self._run, (reading,))
            self._alone = False
        sys.unraisablehook = self.unraisable
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)

    @contextmanager
    def taken(self, stop: Callable[[str], object], reload: Callable[[], object]) -> Iterator[None]:
        """Call these while the block runs, from any thread, instead of raising Stopped.

        `stop` gets the name of the signal, once. A signal that came before the block counts.
        """
        self._reload, self._stop = reload, stop
        if self._first is not None:
            self._acted = True
            stop(self._first.name)
        if self._reload_due:
            self._reload_due = False
            reload()
        try:
            yield
        finally:
            self._stop = self._reload = None

    def unraisable(self, lost: "UnraisableHookArgs") -> None:
        """Have Stopped raised again after it was raised where nothing can be; report any other error."""
        if isinstance(lost.exc_value, Stopped):
            self._acted = False
        else:
            self.unraisable_otherwise(lost)

    def leave(self, code: int) -> NoReturn:
        """End the process now, with its exit status, without waiting for threads and without cleaning up.

        A daemon that a signal ends has ended as it should, even if a library wrapped Stopped in an error of
        its own.
        """
        if self._reloads and (self._acted or self._first is not None):
            code = self._code
        self._acted = True
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, AttributeError, ValueError):  # gone, or closed from the start
                stream.flush()
        os._exit(code)

    def _handle(self, number: int, _frame: object) -> None:
        """Handle a signal in the main thread, called by Python."""
        if self._alone:
            self._take(number)
        if (number != RELOADING or not self._reloads) and self._stop is None and not self._acted:
            self._acted = self.raised = True
            raise Stopped(self._code, signal.Signals(number))

    def _run(self, reading: int) -> None:
        while self._first is None or time.monotonic() < self._end:
            if select.select([reading], [], [], None if self._first is None else AGAIN)[0]:
                for number in os.read(reading, 64):
                    self._take(number)
            elif self._first is not None and self._stop is None and not self._acted:
                # The kernel may have interrupted another thread, or the exception was lost.
                signal.pthread_kill(_MAIN, self._first)
        os._exit(self._code)

    def _take(self, number: int) -> None:
        if number == RELOADING and self._reloads:
            if self._reload is None:
                self._reload_due = True
            else:
                self._call(self._reload)
        elif self._first is None:
            self._first, self._end = signal.Signals(number), time.monotonic() + LIMIT
            stop, name = self._stop, self._first.name
            if stop is not None:
                self._acted = True
                self._call(lambda: stop(name))

    @staticmethod
    def _call(what: Callable[[], object]) -> None:
        # The event loop may have been closed at this very moment, and then the process ends anyway.
        with suppress(RuntimeError):
            what()


SIGNALS = SignalPath()
_MAIN = _thread.get_ident()
