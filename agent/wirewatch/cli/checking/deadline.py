"""An answer by the deadline, whatever hangs: the work is done in a thread that nobody waits for."""

import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """Work under way in a thread of its own, which does not keep the process alive."""

    def __init__(self, work: Callable[[], T], after: Callable[[], None]) -> None:
        """Begin; `after` is done once the outcome has been told, as long as there is time."""
        self._told: queue.SimpleQueue[T | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(work, after), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T], after: Callable[[], None]) -> None:
        try:
            self._told.put(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._told.put(error)
        after()

    def outcome(self, seconds: float) -> T:
        """What the work came to.

        Raises:
            TimeoutError: it has not within so many seconds.
            BaseException: what the work raised.
        """
        try:
            told = self._told.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(told, BaseException):
            raise told
        return told

    def ended(self, seconds: float) -> bool:
        """Whether all is done within so many seconds."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()


def stderr_of_our_own(*, verbose: bool) -> None:
    """Keep the caller's standard error from the processes that we start, and log there.

    One that hangs in the driver outlives us, and who reads our output to its end would wait for it.
    """
    from wirewatch.cli.logs import log_to_stderr

    try:
        ours, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:
        return  # closed by the caller
    os.dup2(nothing, 2)
    os.close(nothing)
    sys.stderr = open(ours, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115, PTH123
    log_to_stderr(verbose=verbose)


def leave(code: int) -> NoReturn:
    """End now: no thread is waited for, nothing is tidied up."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # gone, or closed from the start
            stream.flush()
    os._exit(code)
