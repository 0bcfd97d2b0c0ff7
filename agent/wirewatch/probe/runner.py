"""Run one probe from its order to its result: start the worker, read counters at its marks, give way."""

import logging
import os
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from wirewatch.core.account import Account
from wirewatch.core.hostlink import HostMoved
from wirewatch.core.nvml import Pids, foreign_processes
from wirewatch.core.ports import Clock, Gpu, Hold, Nvml, Order, Sysfs
from wirewatch.core.probe import PROBED_SCHEMA, Clocks, LinkBytes, Outcome, Part, Plan, Probed, ProbedGpu
from wirewatch.core.types import Absent, value_or
from wirewatch.nccl.log import parse_nccl_log
from wirewatch.probe import counters
from wirewatch.probe.counters import CounterReader, Counters
from wirewatch.probe.holds import HoldFolder, HoldStarting
from wirewatch.probe.launcher import WORKER, StartError, Worker, interpret
from wirewatch.probe.setup import find_engine
from wirewatch.probe.workfolder import work_folder
from wirewatch.statefolder import Lock, StateFolder, lock_probe

log = logging.getLogger(__name__)
GUARD_SECONDS = 0.02
"""Seconds between readings of the processes on the GPUs while a probe runs."""
CLOCKS_AFTER = 0.003
"""Seconds from the start of the micro-probes to the reading of clocks, so that the GPUs are at work."""
HOSTS = "hosts"
"""The mark of the host links."""
LOG_LIMIT = 16 << 20
"""Bytes read of NCCL's log."""


@dataclass(frozen=True, slots=True)
class RunnerPorts:
    """The ports read around the worker."""

    nvml: Nvml
    sysfs: Sysfs
    clock: Clock


class ProbeRunner:
    """The `probe` port of this machine; a worker that cannot be killed keeps it from starting another."""

    def __init__(
        self, around: RunnerPorts, state: StateFolder | None = None,
        inherited: Mapping[str, str] | None = None, command: Sequence[str] = WORKER, holds: str = "",
    ) -> None:  # fmt: skip
        self._around, self._holds = around, HoldFolder(holds)
        self._state = state
        self._inherited = os.environ if inherited is None else inherited
        self._command = command
        self._lease = Lease()
        self._running = threading.Lock()
        self._stuck: Worker | None = None
        self._unusable = ""

    def engine(self, wanted: str) -> str | Absent:
        """The engine of this name, or the first that is installed for `auto`."""
        return find_engine(wanted)

    def settings(self) -> Mapping[str, str]:
        """NCCL's settings in the environment that workers inherit."""
        return {name: value for name, value in self._inherited.items() if name.startswith("NCCL_")}

    @contextmanager
    def lock(self) -> Iterator[str | None]:
        """The lock file of the state folder, where there is one."""
        if self._state is None:
            yield None
            return
        lock = lock_probe(self._state)
        if isinstance(lock, Lock):
            with lock:
                yield None
        else:
            why = f"{self._state.probe_lock}: {lock}"
            if isinstance(lock, Absent) and why != self._unusable:
                # That does not pass by itself, as a lock that is held does.
                log.warning("no probe can run: %s", why)
                self._unusable = why
            yield why

    def holds(self) -> Sequence[Hold] | Absent:
        """The holds of the folder of this node."""
        return self._holds.active()

    def give_way(self, why: str) -> None:
        """Kill a probe that runs, and start none until `resume`; `why` in words. Waits for nothing."""
        self._lease.withdraw(why)

    def left(self, within: float) -> int | None:
        """Wait up to this number of seconds for the end of a worker; return its process id if it lives."""
        return self._lease.left(within)

    def finished(self, within: float) -> bool:
        """Wait at most this number of seconds until nothing runs and no file of a probe lies on the disk."""
        if not self._running.acquire(timeout=within):
            return False
        self._running.release()
        return True

    def resume(self) -> None:
        """Let probes run again."""
        self._lease.grant()

    def run(self, order: Order) -> Probed:
        """Run a probe; no fault of GPUs, driver or worker raises."""
        if self._stuck is not None and not self._stuck.gone():
            why = f"process {self._stuck.pid} of an earlier probe does not die"
            return self._nothing(order, "stuck", why)
        self._stuck = None
        with self._running, ExitStack() as stack:
            try:
                # Nobody waits for a worker without GPUs.
                lock = stack.enter_context(self._holds.probing()) if order.gpus else None
                if (ended := order.unwanted()) is not None:
                    return self._nothing(order, "preempted", ended)
                reader = CounterReader(self._around.nvml, order.gpus)
                run = _Run(self._around, order, self._lease, self._keep, reader)
                keeps = () if lock is None else (lock,)
                return run.run(self._folder(stack), self._inherited, self._command, keeps)
            except (Withdrawn, HoldStarting, StartError) as error:
                outcome: Outcome = "failed" if isinstance(error, StartError) else "preempted"
                return self._nothing(order, outcome, str(error))
            except (OSError, RuntimeError) as error:
                # No thread could be started, or a port broke: the probe counts as one that failed.
                log.exception("the probe broke off")
                return self._nothing(order, "failed", f"the probe broke off: {error!r}")

    def _folder(self, stack: ExitStack) -> Path:
        """The folder of this probe; raises StartError."""
        try:
            return stack.enter_context(work_folder(self._inherited))
        except OSError as error:
            raise StartError(f"no place for the worker's log: {error.strerror}") from error

    def _keep(self, worker: Worker) -> None:
        self._stuck = worker

    def _nothing(self, order: Order, outcome: Outcome, why: str) -> Probed:
        gpus = tuple(ProbedGpu(gpu.index, gpu.uuid) for gpu in order.gpus)
        return Probed(
            schema=PROBED_SCHEMA, at=self._around.clock.now(), by=order.by, forced=order.forced,
            outcome=outcome, why=why, plan=order.plan, gpus=gpus, conditions=order.conditions,
            settings=dict(order.settings), seconds=0.0, held_seconds=0.0, paths=order.paths,
        )  # fmt: skip


ALLOCATIONS_SECONDS = 1.0
"""Seconds between readings of allocations, which are asked of other daemons."""


@dataclass
class Guard:
    """Watches for users to which a probe gives way.

    `before`: the processes on each GPU, by its key, when the probe began; `own`: processes of the probe.

    An unreadable list counts as a process: a probe runs only alone.
    """

    nvml: Nvml
    sysfs: Sysfs
    gpus: Sequence[Gpu]
    before: Mapping[str, Pids]
    own: Container[int | None]
    allocations: Callable[[], str | None]
    withdrawn: Callable[[], str | None] = lambda: None
    _stop: threading.Event = field(default_factory=threading.Event)
    _allocated: str | None = None

    def check(self) -> str | None:
        """Return why to end, mostly a new process, or None; costs a fraction of a millisecond a GPU."""
        given_up = self.withdrawn()
        if given_up is not None:
            return given_up
        for gpu in self.gpus:
            now = foreign_processes(self.nvml, self.sysfs, gpu)
            if isinstance(now, Absent):
                return f"the processes on GPU {gpu.index} cannot be read: {now}"
            new = now - self.before.get(gpu.key, frozenset())
            others = [pid for pid in new if pid not in self.own]
            if others:
                names = ", ".join("unknown" if pid is None else str(pid) for pid in sorted(others, key=str))
                return f"a process that is not the probe's came to GPU {gpu.index}: {names}"
        return self._allocated

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="allocations", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _watch(self) -> None:
        """Ask for allocations in a thread of their own: an answer may take seconds."""
        while not self._stop.wait(ALLOCATIONS_SECONDS):
            try:
                reason = self.allocations()
            except Exception as error:  # noqa: BLE001 - the thread must not end silently
                reason = f"who is given GPUs is not known: {error!r}"
            if reason is not None:
                self._allocated = reason
                return


class Session:
    """The processes of a worker's session, which `leader` began: the worker, and the ranks that it forked.

    A process once seen stays known: a GPU lists a process for a while after its end.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._known: set[object] = {leader}

    def __contains__(self, pid: object) -> bool:
        if isinstance(pid, int) and pid > 0 and pid not in self._known:
            with suppress(OSError):
                if os.getsid(pid) == self._leader:
                    self._known.add(pid)
        return pid in self._known


_POLL_SECONDS = 0.01


class Withdrawn(Exception):
    """No worker may be started now; the text says why."""


class Lease:
    """The right to run a worker: the thread that probes takes it, any other may withdraw it.

    `broken`: why the newest worker was killed from here, empty when it was not.
    """

    def __init__(self) -> None:
        self.broken = ""
        self._lock = threading.Lock()
        self._withdrawn = ""
        self._worker: Worker | None = None

    def take(self, start: Callable[[], Worker]) -> Worker:
        """Start a worker that is killed when the lease is withdrawn; Withdrawn where it already is."""
        with self._lock:
            if self._withdrawn:
                raise Withdrawn(self._withdrawn)
            self.broken = ""
            self._worker = start()
            return self._worker

    def withdraw(self, why: str) -> None:
        """Kill the worker, and let none be started until `grant`. Waits for nothing."""
        with self._lock:
            self._withdrawn = self.broken = why
            if self._worker is not None:
                self._worker.kill()

    def grant(self) -> None:
        """Let workers be started again."""
        with self._lock:
            self._withdrawn = ""

    def left(self, within: float) -> int | None:
        """Wait up to this number of seconds for the worker's death; return its process id if it lives."""
        end = time.monotonic() + within
        worker = self._worker
        while worker is not None and not worker.exited():
            if time.monotonic() > end:
                return worker.pid
            time.sleep(_POLL_SECONDS)
        return None


@dataclass
class _Run:
    """A run of the worker, with all readings around it; `name`: the mark of the running part."""

    around: RunnerPorts
    order: Order
    lease: Lease
    stuck: Callable[[Worker], None]
    counters: CounterReader
    parts: list[Part] = field(default_factory=list)
    name: str = ""
    since: float = 0.0
    last: Sequence[Counters | Absent] = ()
    before: dict[str, Mapping[int, tuple[int | None, int | None]]] = field(default_factory=dict)
    clocks: tuple[Clocks, ...] = ()
    hosts: tuple[HostMoved, ...] = ()
    peak: dict[str, int] = field(default_factory=dict)

    def run(
        self, folder: Path, inherited: Mapping[str, str], command: Sequence[str], keeps: Sequence[int]
    ) -> Probed:
        """Raises StartError or Withdrawn when the worker cannot be started."""
        order, at, nvml, sysfs = self.order, self.around.clock.now(), self.around.nvml, self.around.sysfs
        memory = [counters.memory_used(nvml, gpu) for gpu in order.gpus]
        others = [counters.memory_use(nvml, gpu) if order.forced else None for gpu in order.gpus]
        # The gate saw no process; only a probe that did not ask it runs beside others.
        nobody: Pids = frozenset()
        before = dict.fromkeys((gpu.key for gpu in order.gpus), nobody)
        if order.forced:
            before = {g.key: value_or(foreign_processes(nvml, sysfs, g), nobody) for g in order.gpus}
        sent = counters.sent_bytes(sysfs)
        plan = replace(order.plan, log=str(folder / "nccl.log"), pauses=True)
        worker = self.lease.take(lambda: Worker(plan, folder, inherited, command, keeps))
        try:
            with Guard(
                nvml, sysfs, order.gpus, before, Session(worker.pid), order.allocations, order.unwanted
            ) as guard:  # fmt: skip
                outcome, why = self._watch(worker, guard)
        finally:
            status = worker.end()
            self._pass_on(worker)
        if self.lease.broken:
            outcome, why = "preempted", self.lease.broken
        seconds = time.monotonic() - worker.began
        if status is None:
            self.stuck(worker)
            outcome, why = "stuck", f"process {worker.pid} was killed and does not die"
        document, outcome, why = interpret(worker, status, outcome, why, plan)
        after = [counters.memory_used(nvml, gpu) for gpu in order.gpus]
        return Probed(
            schema=PROBED_SCHEMA, at=at, by=order.by, forced=order.forced, outcome=outcome, why=why,
            plan=order.plan, gpus=self._gpus(memory, after, others), conditions=order.conditions,
            settings=dict(order.settings), seconds=seconds,
            held_seconds=max(0.0, seconds - (document.cost.imported if document else 0.0)),
            document=document, account=_account(plan), parts=tuple(self.parts), links=self._links(),
            clocks=self.clocks, ports=counters.grown(sent, counters.sent_bytes(sysfs)), paths=order.paths,
            hosts=self.hosts,
        )  # fmt: skip

    def _gpus(
        self, before: Sequence[int | None], after: Sequence[int | None], others: Sequence[float | None]
    ) -> tuple[ProbedGpu, ...]:
        """Return the GPUs of the plan with their memory, and how busy others kept it."""
        return tuple(
            ProbedGpu(gpu.index, gpu.uuid, before[n], self.peak.get(gpu.key), after[n], others[n])
            for n, gpu in enumerate(self.order.gpus)
        )

    def _watch(self, worker: Worker, guard: Guard) -> tuple[Outcome, str]:
        """Watch until it ends, a user comes, or time is up; check at every step, since each may be slow."""
        unread = list(self.order.gpus)
        while not worker.ended:
            mark = worker.read_mark(0.0 if unread else GUARD_SECONDS)
            foreign = guard.check()
            if foreign is not None:
                worker.kill()
                return "preempted", foreign
            if time.monotonic() - worker.began > self.order.deadline:
                worker.kill()
                return "timeout", f"no result after {self.order.deadline:g} s; killed"
            while unread:
                gpu = unread.pop()
                self.before[gpu.key] = counters.link_bytes(self.around.nvml, gpu)
                if mark is None:
                    # One at a time while the worker starts, so that the worker need not wait.
                    break
            self._pass_on(worker)
            if mark is not None:
                self._at(mark, worker)
        return "ok", ""

    def _pass_on(self, worker: Worker) -> None:
        """Pass on what the worker has reported since the last time."""
        while worker.reports:
            self.order.heard(worker.reports.pop(0))

    def _at(self, mark: str, worker: Worker) -> None:
        """Read what belongs to a mark, and let the worker go on."""
        now, moment, nvml = self.counters.read(), time.monotonic(), self.around.nvml
        if self.name:
            grown = [counters.moved(n, a, b) for n, (a, b) in enumerate(zip(self.last, now, strict=True))]
            self.parts.append(Part(self.name, moment - self.since, tuple(grown)))
        if HOSTS in {mark, self.name}:
            self.hosts = counters.host_moved(nvml, self.order.gpus, self.hosts)
        for gpu in self.order.gpus:
            if (used := counters.memory_used(nvml, gpu)) is not None:
                self.peak[gpu.key] = max(used, self.peak.get(gpu.key, 0))
        self.name, self.last, self.since = mark, now, time.monotonic()
        worker.go()
        if mark == "micros":
            time.sleep(CLOCKS_AFTER)
            self.clocks = tuple(counters.clocks(nvml, n, gpu) for n, gpu in enumerate(self.order.gpus))

    def _links(self) -> tuple[LinkBytes, ...]:
        return tuple(
            counters.links_moved(n, before, counters.link_bytes(self.around.nvml, gpu))
            for n, gpu in enumerate(self.order.gpus)
            if (before := self.before.get(gpu.key))
        )


def _account(plan: Plan) -> Account | None:
    """Return the account of NCCL's log and of the other ranks' logs beside it; None without any."""
    log, texts = Path(plan.log), []
    for file in sorted(log.parent.glob(f"{log.name}*")):
        with suppress(OSError), file.open("rb") as lines:
            texts.append(lines.read(LOG_LIMIT).decode("utf-8", "replace"))
    return parse_nccl_log("\n".join(texts)) if texts else None
