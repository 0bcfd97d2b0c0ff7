"""The parent's side of the NVML child: start it, ask it with a deadline, kill it."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from wirewatch.hw.nvml import wire

KILL_WAIT = 1.0
"""Seconds that a killed process may take to die before it counts as stuck in the driver."""

PIPE = 65536
"""Bytes that a pipe holds; a larger buffer would be mapped and unmapped for each reply."""

Kill = Callable[[int, int], None]


class ChildHung(Exception):
    """No reply by the deadline."""


class ChildDied(Exception):
    """The process ended; the text says how."""


class ChildGone(ChildDied):
    """The process had ended before it could take the job: the job is not to blame."""


class Child:
    """One child process, started.

    Args:
        source: what it shall answer from.
        kill: how to send a signal; a parameter because a process that cannot be killed has no other test.
    """

    def __init__(self, source: wire.Source, kill: Kill = os.kill) -> None:
        self._kill = kill
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wirewatch.hw.nvml.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._rest = b""
        self._first = wire.encode_source(source)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hello(self, deadline: float) -> wire.Hello:
        """Wait until the library is initialised, `deadline` in seconds.

        Raises:
            ChildHung, ChildDied: see there.
        """
        line = self._exchange(self._first, deadline)
        try:
            return wire.decode_hello(line)
        except ValueError as error:
            raise _nonsense(line) from error

    def ask(self, job: bytes, deadline: float) -> wire.Reply:
        """Send a job and wait for its reply, `deadline` in seconds.

        Raises:
            ChildHung, ChildDied: see there.
        """
        line = self._exchange(job, deadline)
        try:
            return wire.decode_reply(line)
        except ValueError as error:
            raise _nonsense(line) from error

    def _exchange(self, data: bytes, deadline: float) -> bytes:
        end = time.monotonic() + deadline
        try:
            self._send(data, end)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChildGone(self._how()) from error
        return self._line(end)

    def _send(self, data: bytes, end: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._to, view) :]
            except BlockingIOError:
                _wait(self._to, select.POLLOUT, end)

    def _line(self, end: float) -> bytes:
        while b"\n" not in self._rest:
            _wait(self._from, select.POLLIN, end)
            data = os.read(self._from, PIPE)
            if not data:
                raise ChildDied(self._how())
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _how(self) -> str:
        try:
            code = self._process.wait(KILL_WAIT)
        except subprocess.TimeoutExpired:
            return "the NVML process closed its pipe"
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"the NVML process died ({name})"

    def close(self, patience: float = KILL_WAIT) -> bool:
        """Let go of NVML: ask the process to end, kill it if it does not within so many seconds.

        Returns:
            False when it does not die, killed or not: it hangs in the driver.
        """
        self._close_pipes()
        return self._dead(patience) or self.kill()

    def kill(self) -> bool:
        """Kill it; False when it does not die within KILL_WAIT."""
        self.shoot()
        return self._dead()

    def shoot(self) -> None:
        """Send the signal and nothing more; for a thread that does not own the pipes."""
        if self.alive():
            with suppress(ProcessLookupError):
                self._kill(self._process.pid, signal.SIGKILL)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _dead(self, within: float = KILL_WAIT) -> bool:
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        self._close_pipes()
        return True

    def alive(self) -> bool:
        """Whether the process lives; for a thread that does not own the pipes."""
        return self._process.poll() is None

    def gone(self) -> bool:
        """Whether the process has ended, without waiting."""
        if self._process.poll() is None:
            return False
        self._close_pipes()
        return True


def _nonsense(line: bytes) -> ChildDied:
    return ChildDied(f"the NVML process wrote nonsense: {line[:80]!r}")


def _wait(handle: int, event: int, end: float) -> None:
    """Wait until a pipe is ready, or the monotonic time `end`."""
    poll = select.poll()
    poll.register(handle, event)
    left = end - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise ChildHung
