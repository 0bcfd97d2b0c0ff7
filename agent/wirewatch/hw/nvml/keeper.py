"""The one process that talks to NVML: started when needed, killed when it hangs, given up when it stays."""

import logging
import time
from collections.abc import Callable

from wirewatch.core.types import Absent, Why
from wirewatch.hw.nvml import wire
from wirewatch.hw.nvml.codes import absent_code
from wirewatch.hw.nvml.process import KILL_WAIT, Child, ChildDied, ChildGone, ChildHung
from wirewatch.hw.nvml.quarantine import Quarantine

log = logging.getLogger(__name__)

NODE = "node"
_AGAIN = 0.05
"""Seconds between shots at a process that another thread may only be starting."""


class Keeper:
    """One thread at a time, but for what says otherwise.

    `session` counts how often NVML was initialised. `withheld` says why nothing may be started now, None when
    something may; whoever sets it need not wait for his turn.
    """

    def __init__(self, start: Callable[[], Child], hello: float, backoff: Quarantine) -> None:
        self.session = 0
        self.withheld: Absent | None = None
        self._start = start
        self._hello = hello
        self._backoff = backoff
        self._child: Child | None = None
        self._leaving: Child | None = None
        self._stuck: list[Child] = []

    @property
    def pid(self) -> int | None:
        """At any time."""
        child = self._child
        return child.pid if child else None

    @property
    def stuck(self) -> int:
        """How many processes were killed and do not die. At any time."""
        return sum(child.alive() for child in self._stuck)

    def living(self) -> tuple[int, ...]:
        """Every process that lives: one in use, on its way out, or stuck. At any time."""
        # In the order in which they become the next: none is missed.
        all_of_them = (self._child, self._leaving, *self._stuck)
        return tuple(dict.fromkeys(c.pid for c in all_of_them if c is not None and c.alive()))

    def caught(self) -> bool:
        """Whether a process that was killed does not die."""
        self._stuck = [c for c in self._stuck if not c.gone()]
        return bool(self._stuck)

    def ask(self, job: bytes, deadline: float) -> wire.Reply:
        """Ask the process that `ready` has made sure of; one that had ended before is replaced once.

        Raises:
            ChildHung, ChildDied: see there.
        """
        assert self._child is not None  # noqa: S101
        try:
            return self._child.ask(job, deadline)
        except ChildGone as error:
            log.warning("%s between two jobs", error)
            self.drop()
            absent = self.ready()
            if absent is not None or self._child is None:
                raise ChildDied(f"{error} and cannot be started again: {absent}") from error
            return self._child.ask(job, deadline)

    def ready(self) -> Absent | None:
        """None when the process runs and NVML is initialised, else why not."""
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
        """Start it; known from the first moment on to who may have to kill it."""
        self._child = self._start()
        absent = self.withheld or self._greet(self._child)
        if absent is None:
            return None
        killed = self.drop()
        if self.withheld is not None and killed:
            return self.withheld
        if self._backoff.suspects(NODE) is None:
            log.warning("NVML cannot be used: %s", absent)
        self._backoff.add(NODE, absent)
        return absent

    def _greet(self, child: Child) -> Absent | None:
        try:
            hello = child.hello(self._hello)
        except ChildHung:
            return Absent(Why.TIMEOUT, f"NVML did not initialise within {self._hello:g} s")
        except ChildDied as error:
            return Absent(Why.LOST, f"{error} while it started")
        return absent_code(hello.code) if hello.code else None

    def drop(self) -> bool:
        """Kill it; False when it does not die, and is left behind."""
        return self._end(Child.kill)

    def close(self, patience: float = KILL_WAIT) -> bool:
        """Let it end, for so many seconds; then kill it. False when it does not die, and is left behind."""
        return self._end(lambda child: child.close(patience))

    def shoot(self, turn: Callable[[float], bool], within: float) -> bool:
        """Kill what another thread waits for, until we have the turn; False when it does not come in time.

        `turn` waits so many seconds for the turn, and tells whether it has come. At any time.
        """
        end = time.monotonic() + within
        while True:
            for child in (self._child, self._leaving):
                if child is not None:
                    child.shoot()
            if turn(_AGAIN):
                return True
            if time.monotonic() > end:
                return False

    def forget(self) -> None:
        """Start it at once when it is needed, whatever failed before."""
        self._backoff.clear()

    def _end(self, how: Callable[[Child], bool]) -> bool:
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
