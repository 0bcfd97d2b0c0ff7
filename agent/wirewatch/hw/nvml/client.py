"""The NVML port of the daemon: one child process, one question at a time; no call can hang the daemon.

A job that is overdue or kills the child fails. The child is started again and the GPU of that job is left out
for a while. A killed child that does not die is abandoned. While it lives, the GPU at which it hangs is not
asked again. If the next child hangs too, none is started until a stuck child has died.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from wirewatch.core.nvml import count_gpus, identify
from wirewatch.core.ports import Answer, Gpu, NvmlCost, Question
from wirewatch.core.types import Absent, Why
from wirewatch.hw.nvml import process, protocol
from wirewatch.hw.nvml.process import NODE, Child, Delay, NvmlChild, Quarantine, Supervisor
from wirewatch.hw.nvml.protocol import GPU_IS_LOST, RESET_REQUIRED, SESSION_ENDED, absent_code

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: for one job, for starting NVML, and after failures; `lost`: until a lost GPU is looked for."""

    job: float = 5.0
    start: float = 30.0
    restart: Delay = field(default_factory=lambda: Delay(1.0, 30.0))
    leave_out: Delay = field(default_factory=lambda: Delay(10.0, 600.0))
    lost: Delay = field(default_factory=lambda: Delay(60.0, 600.0))


GRACE = 0.3
"""Seconds that the running question may still take, and an idle process to end, when NVML is released."""
_LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED})


class NvmlClient:
    """Implements `core.ports.Nvml` over a child process; safe to call from several threads."""

    def __init__(
        self, source: protocol.Source | None = None, limits: Limits | None = None,
        start: Callable[[protocol.Source], NvmlChild] = Child, mono: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        origin = source or protocol.Source()
        self._limits = limits or Limits()
        self._lock = threading.RLock()
        self._backoff = Quarantine(self._limits.restart, mono)
        self._supervisor = Supervisor(lambda: start(origin), self._limits.start, self._backoff)
        self._gpus: dict[int, Gpu] = {}
        self._listed = 0
        self._lost = False
        self._quarantine = Quarantine(self._limits.leave_out, mono)
        self._reopen = Quarantine(self._limits.lost, mono)
        self._seconds = 0.0

    def session(self) -> int:
        return self._supervisor.session

    def cost(self) -> NvmlCost:
        restarts = max(0, self._supervisor.session - 1)
        return NvmlCost(self._supervisor.pid, self._seconds, restarts, self._supervisor.stuck)

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        withheld = self._supervisor.withheld
        if withheld is not None:
            # Not behind a question that may hang.
            return [Answer(withheld)] * len(questions)
        with self._lock:
            return self._ask(gpu, questions)

    def gpus(self) -> Sequence[Gpu] | Absent:
        withheld = self._supervisor.withheld
        if withheld is not None:
            return withheld
        with self._lock:
            gpus = self._enumerate()
            # GPUs that were not reached any more have not become unreadable.
            return self._supervisor.withheld or gpus

    def seek(self) -> None:
        self._lost = True

    def close(self) -> None:
        """Close every handle on the GPUs."""
        with self._lock:
            self._supervisor.close()

    def release(self, why: str) -> tuple[int, ...]:
        """Close every handle on the GPUs within 2 s, and answer nothing but `why` until `resume`.

        A killed question leaves no GPU out. Returns processes that cannot be killed: they still hold GPUs.
        """
        self._supervisor.withheld = Absent(Why.RELEASED, why)
        turn = partial(self._lock.acquire, True)  # noqa: FBT003
        if not self._lock.acquire(timeout=GRACE) and not self._supervisor.shoot(turn, process.KILL_WAIT):
            return self._supervisor.living()
        try:
            self._supervisor.close(GRACE)
        finally:
            self._lock.release()
        return self._supervisor.living()

    def resume(self) -> None:
        """Answer again; only a GPU at which an unkillable process hangs is left out."""
        with self._lock:
            self._backoff.clear()
            self._reopen.clear()
            if not self._supervisor.caught():
                self._quarantine.clear()
            self._lost = False
            self._supervisor.withheld = None

    def kill(self) -> None:
        """Kill the process that talks to NVML without waiting: for a thread that ends the program."""
        self._supervisor.kill()

    def stop(self) -> None:
        """End the child for good, also while a question is out that may never be answered."""
        self.release("the agent ends")

    def _enumerate(self) -> Sequence[Gpu] | Absent:
        self._find_lost_again()
        if self._listed != self._supervisor.session or self._supervisor.pid is None:
            return self._list()
        for index, gpu in self._gpus.items():
            if gpu.absent is not None:
                self._gpus[index] = identify(self._ask, index, gpu)
        return tuple(self._gpus.values())

    def _list(self) -> Sequence[Gpu] | Absent:
        count = count_gpus(self._ask)
        if isinstance(count, Absent):
            return count
        known = self._gpus
        self._gpus = {index: identify(self._ask, index, known.get(index)) for index in range(count)}
        self._listed = self._supervisor.session
        return tuple(self._gpus.values())

    def _find_lost_again(self) -> None:
        """A GPU that was lost, or not there, comes back only when NVML is initialised again."""
        waiting, began = self._reopen.holds(NODE), self._reopen.suspects(NODE)
        if waiting is not None:
            return
        if not self._lost:
            self._reopen.release(NODE)
            return
        if began is not None:
            log.info("initialising NVML again to look for GPUs that are lost or not listed")
            self.close()
            self._listed = 0
            self._lost = False
        self._reopen.add(NODE, Absent(Why.LOST))

    def _ask(self, scope: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        if not questions:
            return []
        key = self._key(scope)
        absent = self._supervisor.withheld or self._left_out(key) or self._supervisor.ready()
        if absent is not None:
            return [Answer(absent)] * len(questions)
        try:
            reply = self._supervisor.ask(protocol.encode_job(scope, tuple(questions)), self._limits.job)
        except process.ChildHung:
            said = f"NVML did not answer within {self._limits.job:g} s; left out for a while"
            absent = Absent(Why.TIMEOUT, said)
        except process.ChildDied as error:
            absent = Absent(Why.LOST, f"{error} while it was asked; left out for a while")
        else:
            return self._take(key, reply)
        killed, withheld = self._supervisor.drop(), self._supervisor.withheld
        if killed and withheld is not None:
            # It was killed for the release: no GPU is to blame.
            return [Answer(withheld)] * len(questions)
        log.error("%s: %s", key, absent)
        self._quarantine.add(key, absent)
        return [Answer(absent)] * len(questions)

    def _left_out(self, key: str) -> Absent | None:
        """Return why it is left out; while a process cannot be killed, also beyond the time for that."""
        left_out = self._quarantine.holds(key)
        return left_out or (self._quarantine.suspects(key) if self._supervisor.caught() else None)

    def _take(self, key: str, reply: protocol.Reply) -> Sequence[Answer]:
        self._seconds += reply.seconds
        self._quarantine.release(key)
        if reply.broken:
            raise RuntimeError(reply.broken)
        codes = {a.value.code for a in reply.answers if isinstance(a.value, Absent)}
        for code in SESSION_ENDED & codes:
            log.warning("NVML has to be initialised again: %s", absent_code(code))
            self.close()
        self._lost = self._lost or bool(codes & _LOST)
        return reply.answers

    def _key(self, scope: str | None) -> str:
        """Return one name for a GPU, however it is asked for."""
        if scope is None:
            return NODE
        index = scope.removeprefix("index:")
        known = self._gpus.get(int(index)) if index != scope else None
        return known.key if known else scope
