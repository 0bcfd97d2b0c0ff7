"""The NVML port of the daemon: one child process, one question at a time, nothing that can hang us.

A job that is overdue or that kills the child costs that job: the child is started again and the GPU of
that job is left out for a while. A killed child that does not die is abandoned; while one is, the GPU that
caught it is not asked again, and if its successor is caught too, none is started until one has died.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wirewatch.core.enumerate import count_gpus, identify
from wirewatch.core.ports import Answer, Gpu, NvmlCost, Question
from wirewatch.core.types import Absent, Why
from wirewatch.hw.nvml import wire
from wirewatch.hw.nvml.codes import GPU_IS_LOST, RESET_REQUIRED, SESSION_ENDED, absent_code
from wirewatch.hw.nvml.process import Child, ChildDied, ChildGone, ChildHung
from wirewatch.hw.nvml.quarantine import Delay, Quarantine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: for one job, for starting NVML, and the waiting times after failures.

    `lost` is how long a lost GPU waits for NVML to be initialised anew, which is what finds it again.
    """

    job: float = 5.0
    start: float = 30.0
    restart: Delay = field(default_factory=lambda: Delay(1.0, 30.0))
    leave_out: Delay = field(default_factory=lambda: Delay(10.0, 600.0))
    lost: Delay = field(default_factory=lambda: Delay(60.0, 600.0))


STOP_WAIT = 0.5
"""Seconds that the question that is out may still take when the agent ends."""
_NODE = "node"
_LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED})


class NvmlClient:
    """Implements `core.ports.Nvml` over a child process; safe to call from several threads."""

    def __init__(
        self,
        source: wire.Source | None = None,
        limits: Limits | None = None,
        start: Callable[[wire.Source], Child] = Child,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source or wire.Source()
        self._limits = limits or Limits()
        self._start = start
        self._lock = threading.RLock()
        self._child: Child | None = None
        self._stuck: list[Child] = []
        self._session = 0
        self._gpus: dict[int, Gpu] = {}
        self._listed = 0
        self._lost = False
        self._quarantine = Quarantine(self._limits.leave_out, mono)
        self._backoff = Quarantine(self._limits.restart, mono)
        self._reopen = Quarantine(self._limits.lost, mono)
        self._seconds = 0.0

    def session(self) -> int:
        return self._session

    def cost(self) -> NvmlCost:
        child = self._child
        stuck = sum(not c.gone() for c in self._stuck)
        return NvmlCost(child.pid if child else None, self._seconds, max(0, self._session - 1), stuck)

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        with self._lock:
            return self._ask(gpu, questions)

    def gpus(self) -> Sequence[Gpu] | Absent:
        with self._lock:
            self._find_lost_again()
            if self._listed != self._session or self._child is None:
                return self._list()
            for index, gpu in self._gpus.items():
                if gpu.absent is not None:
                    self._gpus[index] = identify(self._ask, index, gpu)
            return tuple(self._gpus.values())

    def close(self) -> None:
        """Close every handle on the GPUs."""
        with self._lock:
            if self._child is not None and not self._child.close():
                self._abandon(self._child)
            self._child = None

    def stop(self) -> None:
        """End the child for good, also when a question is out that may never be answered."""
        if self._lock.acquire(timeout=STOP_WAIT):
            try:
                self.close()
            finally:
                self._lock.release()
        elif self._child is not None:
            self._child.shoot()

    def _list(self) -> Sequence[Gpu] | Absent:
        count = count_gpus(self._ask)
        if isinstance(count, Absent):
            return count
        known = self._gpus
        self._gpus = {index: identify(self._ask, index, known.get(index)) for index in range(count)}
        self._listed = self._session
        return tuple(self._gpus.values())

    def _find_lost_again(self) -> None:
        """A GPU that was lost and has been reset comes back only when NVML is initialised anew."""
        waiting, began = self._reopen.holds(_NODE), self._reopen.suspects(_NODE)
        if waiting is not None:
            return
        if not self._lost:
            self._reopen.release(_NODE)
            return
        if began is not None:
            log.info("initialising NVML anew to look for lost GPUs")
            self.close()
            self._listed = 0
            self._lost = False
        self._reopen.add(_NODE, Absent(Why.LOST))

    def _ask(self, scope: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        if not questions:
            return []
        key = self._key(scope)
        left_out = self._quarantine.holds(key) or (self._quarantine.suspects(key) if self._caught() else None)
        absent = left_out or self._ready()
        if absent is not None:
            return [Answer(absent)] * len(questions)
        try:
            reply = self._exchange(wire.encode_job(scope, tuple(questions)))
        except ChildHung:
            absent = Absent(
                Why.TIMEOUT, f"NVML did not answer within {self._limits.job:g} s; left out for a while"
            )
        except ChildDied as error:
            absent = Absent(Why.LOST, f"{error} while it was asked; left out for a while")
        else:
            return self._take(key, reply)
        log.error("%s: %s", key, absent)
        self._drop()
        self._quarantine.add(key, absent)
        return [Answer(absent)] * len(questions)

    def _exchange(self, job: bytes) -> wire.Reply:
        """Ask the child; one that had ended before it got the job is replaced once."""
        assert self._child is not None  # noqa: S101
        try:
            return self._child.ask(job, self._limits.job)
        except ChildGone as error:
            log.warning("%s between two jobs", error)
            self._drop()
            absent = self._ready()
            if absent is not None or self._child is None:
                raise ChildDied(f"{error} and cannot be started again: {absent}") from error
            return self._child.ask(job, self._limits.job)

    def _take(self, key: str, reply: wire.Reply) -> Sequence[Answer]:
        self._seconds += reply.seconds
        self._quarantine.release(key)
        if reply.broken:
            raise RuntimeError(reply.broken)
        codes = {a.value.code for a in reply.answers if isinstance(a.value, Absent)}
        for code in codes & SESSION_ENDED:
            log.warning("NVML has to be initialised anew: %s", absent_code(code or 0))
            self.close()
        self._lost = self._lost or bool(codes & _LOST)
        return reply.answers

    def _key(self, scope: str | None) -> str:
        """One name for a GPU, however it is asked for."""
        if scope is None:
            return _NODE
        index = scope.removeprefix("index:")
        known = self._gpus.get(int(index)) if index != scope else None
        return known.key if known else scope

    def _caught(self) -> bool:
        self._stuck = [c for c in self._stuck if not c.gone()]
        return bool(self._stuck)

    def _ready(self) -> Absent | None:
        """None when the child runs and NVML is initialised, else why not."""
        if self._child is not None and self._child.gone():
            log.warning("process %d, which talks to NVML, has ended", self._child.pid)
            self._child = None
        if self._child is not None:
            return None
        if self._caught() and len(self._stuck) > 1:
            return Absent(Why.TIMEOUT, "two killed NVML processes hang in the driver; not starting a third")
        waiting = self._backoff.holds(_NODE)
        if waiting is not None:
            return waiting
        child = self._start(self._source)
        try:
            hello = child.hello(self._limits.start)
            absent = absent_code(hello.code) if hello.code else None
        except ChildHung:
            absent = Absent(Why.TIMEOUT, f"NVML did not initialise within {self._limits.start:g} s")
        except ChildDied as error:
            absent = Absent(Why.LOST, f"{error} while it started")
        self._child = child
        if absent is None:
            self._session += 1
            self._backoff.release(_NODE)
            return None
        if self._backoff.suspects(_NODE) is None:
            log.warning("NVML cannot be used: %s", absent)
        self._backoff.add(_NODE, absent)
        self._drop()
        return absent

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None and not child.kill():
            self._abandon(child)

    def _abandon(self, child: Child) -> None:
        log.error("process %d hangs in the driver and cannot be killed; it is left behind", child.pid)
        self._stuck.append(child)
