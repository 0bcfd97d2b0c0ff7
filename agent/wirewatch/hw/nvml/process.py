"""The parent's side of the NVML child: start it, ask it with a deadline, kill it, start the next.

`Child` is one process. `Supervisor` keeps a child ready and knows children that hang in the driver.
`Quarantine` names the GPUs that are left out after failures, and for how long.
"""

import errno
import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import absent_errno
from wirewatch.hw.interpreter import FOLDER, module_places, python
from wirewatch.hw.nvml import protocol
from wirewatch.hw.nvml.protocol import absent_code

log = logging.getLogger(__name__)

KILL_WAIT = 1.0
"""Seconds that a killed process may take to die before it counts as stuck in the driver."""
PIPE = 65536
"""Bytes that a pipe holds; a larger buffer would be mapped and unmapped for each reply."""
T = TypeVar("T")
Kill = Callable[[int, int], None]
"""Sends a signal to a process, as os.kill does."""
NODE = "node"
"""Quarantine's key for NVML as a whole."""
_AGAIN = 0.05
"""Seconds between two SIGKILLs to a process that another thread may only be starting."""


class ChildHung(Exception):
    """No reply by the deadline."""


class ChildDied(Exception):
    """The process ended; the text says how."""


class ChildGone(ChildDied):
    """The process had ended before it could take the job: the job is not to blame."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A waiting time that doubles from `first` to `most`, in seconds."""

    first: float
    most: float

    def after(self, failures: int) -> float:
        """Return the seconds to wait after this number of failures in a row (1 or more)."""
        return min(self.first * 2.0 ** min(failures - 1, 30), self.most)


@dataclass(frozen=True, slots=True)
class _Entry:
    absent: Absent
    failures: int
    until: float


class Quarantine:
    """GPUs, or NVML as a whole, left out after failures, and until when; `mono`: monotonic seconds."""

    def __init__(self, delay: Delay, mono: Callable[[], float]) -> None:
        self._delay, self._mono = delay, mono
        self._entries: dict[str, _Entry] = {}

    def add(self, key: str, absent: Absent) -> None:
        """Leave it out, for longer with each failure in a row."""
        failures = self._entries[key].failures + 1 if key in self._entries else 1
        self._entries[key] = _Entry(absent, failures, self._mono() + self._delay.after(failures))

    def release(self, key: str) -> None:
        """Forget its failures: it answered."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()

    def holds(self, key: str) -> Absent | None:
        """Return why it is left out now, None when it may be asked."""
        entry = self._entries.get(key)
        return entry.absent if entry and self._mono() < entry.until else None

    def suspects(self, key: str) -> Absent | None:
        """Return why it was left out, also once it may be asked again."""
        entry = self._entries.get(key)
        return entry.absent if entry else None


class NvmlChild(Protocol):
    """A child's interface for the supervisor; in a play it is no process."""

    @property
    def pid(self) -> int: ...

    def hello(self, deadline: float, /) -> protocol.Hello: ...

    def ask(self, job: bytes, deadline: float) -> protocol.Reply: ...

    def close(self, patience: float = KILL_WAIT, /) -> bool: ...

    def kill(self) -> bool: ...

    def shoot(self) -> None: ...

    def alive(self) -> bool: ...

    def gone(self) -> bool: ...


class Child:
    """One started child process; `kill` sends a signal, which lets tests have a child that does not die."""

    def __init__(self, source: protocol.Source, kill: Kill = os.kill) -> None:
        self._kill = kill
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            python("-m", "wirewatch.hw.nvml.child"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            bufsize=0, cwd=FOLDER, env=module_places(os.environ),
        )  # fmt: skip
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._rest = b""
        self._first = protocol.encode_source(source)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hello(self, deadline: float) -> protocol.Hello:
        """Wait until the library is initialised, `deadline` in seconds; raises ChildHung, ChildDied."""
        return self._exchange(self._first, deadline, protocol.decode_hello)

    def ask(self, job: bytes, deadline: float) -> protocol.Reply:
        """Send a job and return its reply, `deadline` in seconds; raises ChildHung, ChildDied."""
        return self._exchange(job, deadline, protocol.decode_reply)

    def _exchange(self, data: bytes, deadline: float, decode: Callable[[bytes], T]) -> T:
        end = time.monotonic() + deadline
        try:
            self._send(data, end)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChildGone(self._how()) from error
        line = self._line(end)
        try:
            return decode(line)
        except ValueError as error:
            raise ChildDied(f"the NVML process wrote nonsense: {line[:80]!r}") from error

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
        """End the process, by killing it after `patience` seconds; False when it hangs in the driver."""
        self._close_pipes()
        return self._dead(patience) or self.kill()

    def kill(self) -> bool:
        """Kill it; False when it does not die within KILL_WAIT."""
        self.shoot()
        return self._dead()

    def shoot(self) -> None:
        """Send the signal only; for a thread that does not own the pipes."""
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
        """Return whether the process lives; for a thread that does not own the pipes."""
        return self._process.poll() is None

    def gone(self) -> bool:
        """Return whether the process has ended, without waiting."""
        alive = self.alive()
        if not alive:
            self._close_pipes()
        return not alive


class Supervisor:
    """Keeps one child ready, and knows killed children that do not die.

    For one thread at a time, except members marked "at any time". `session` counts the initialisations of
    NVML. `withheld`, set at any time, says why no child may be started; None when a child may start.
    """

    def __init__(self, start: Callable[[], NvmlChild], hello: float, backoff: Quarantine) -> None:
        self.session = 0
        self.withheld: Absent | None = None
        self._start, self._hello, self._backoff = start, hello, backoff
        self._child: NvmlChild | None = None
        self._leaving: NvmlChild | None = None
        self._stuck: list[NvmlChild] = []

    @property
    def pid(self) -> int | None:
        """The process in use, None for none. At any time."""
        child = self._child
        return child.pid if child else None

    @property
    def stuck(self) -> int:
        """Return the number of killed processes that do not die. At any time."""
        return sum(child.alive() for child in self._stuck)

    def living(self) -> tuple[int, ...]:
        """Return every living process: in use, on its way out, or stuck. At any time."""
        # A child moves on in this order, so that none is missed.
        all_of_them = (self._child, self._leaving, *self._stuck)
        return tuple(dict.fromkeys(c.pid for c in all_of_them if c is not None and c.alive()))

    def caught(self) -> bool:
        """Return whether a killed process does not die."""
        self._stuck = [c for c in self._stuck if not c.gone()]
        return bool(self._stuck)

    def ask(self, job: bytes, deadline: float) -> protocol.Reply:
        """Ask the child that `ready` started, replaced once if it has ended; raises ChildHung, ChildDied."""
        assert self._child is not None  # noqa: S101
        try:
            return self._child.ask(job, deadline)
        except ChildGone as error:
            log.warning("%s between two jobs", error)
            self.drop()
            absent = self.ready()
            if self._child is None:
                raise ChildDied(f"{error} and cannot be started again: {absent}") from error
            return self._child.ask(job, deadline)

    def ready(self) -> Absent | None:
        """Return None when the process runs and NVML is initialised, else why not."""
        if self._child is not None and self._child.gone():
            log.warning("process %d, which talks to NVML, has ended", self._child.pid)
            self._child = None
        if self._child is not None:
            return None
        if self.caught() and len(self._stuck) > 1:
            return Absent(Why.TIMEOUT, "two killed NVML processes hang in the driver; not starting a third")
        absent = self.withheld or self._backoff.holds(NODE) or self._begin()
        if absent is None:
            self.session += 1
            self._backoff.release(NODE)
        return absent

    def _begin(self) -> Absent | None:
        """Start a child, known to `shoot` from the first moment on."""
        try:
            self._child = self._start()
        except OSError as error:
            # EAGAIN is a limit of processes here; out of those, descriptors or memory is what passes.
            why = Why.EXHAUSTED if error.errno == errno.EAGAIN else absent_errno(error.errno, "").why
            return self._failed(Absent(why, f"no NVML process can be started: {error.strerror}"))
        absent = self.withheld or self._greet(self._child)
        if absent is None:
            return None
        killed = self.drop()
        return self.withheld if self.withheld is not None and killed else self._failed(absent)

    def _failed(self, absent: Absent) -> Absent:
        if self._backoff.suspects(NODE) is None:
            log.warning("NVML cannot be used: %s", absent)
        self._backoff.add(NODE, absent)
        return absent

    def _greet(self, child: NvmlChild) -> Absent | None:
        try:
            hello = child.hello(self._hello)
        except ChildHung:
            return Absent(Why.TIMEOUT, f"NVML did not initialise within {self._hello:g} s")
        except ChildDied as error:
            return Absent(Why.LOST, f"{error} while it started")
        return absent_code(hello.code) if hello.code else None

    def drop(self) -> bool:
        """Kill it; return False when it does not die, and is left behind."""
        return self._end(lambda child: child.kill())

    def close(self, patience: float = KILL_WAIT) -> bool:
        """Let it end within some seconds, else kill it. False when it does not die, and is left behind."""
        return self._end(lambda child: child.close(patience))

    def shoot(self, turn: Callable[[float], bool], within: float) -> bool:
        """Kill the child that another thread waits for until this thread has the lock; False if too late.

        `turn` waits for the lock for a number of seconds, and returns whether it has it. At any time.
        """
        end = time.monotonic() + within
        while True:
            self.kill()
            if turn(_AGAIN):
                return True
            if time.monotonic() > end:
                return False

    def kill(self) -> None:
        """Kill the child in use and the child on its way out, and wait for neither. At any time."""
        for child in (self._child, self._leaving):
            if child is not None:
                child.shoot()

    def _end(self, how: Callable[[NvmlChild], bool]) -> bool:
        child = self._leaving = self._child
        self._child = None
        if child is None:
            return True
        dead = how(child)
        if not dead:
            log.error("process %d hangs in the driver and cannot be killed; it is left behind", child.pid)
            self._stuck.append(child)
        self._leaving = None
        return dead


def _wait(handle: int, event: int, end: float) -> None:
    """Wait until a pipe is ready, or the monotonic time `end`."""
    poll = select.poll()
    poll.register(handle, event)
    left = end - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise ChildHung
