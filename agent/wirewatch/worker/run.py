"""A probe from its plan to its document, the same for every engine."""

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Protocol

from wirewatch.core import probe
from wirewatch.core.hostlink import HostCopies
from wirewatch.core.probe import Case, Copy, Cost, Document, ErrorKind, Micro, Plan, Timed, WorkerError

Mark = Callable[[str], None]


class EngineError(Exception):
    """Why a probe could not run to its end; `kind` is an error kind of the document."""

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind: ErrorKind = kind


class Engine(Protocol):
    """Runs collectives and copies; opened in two steps, so that each is timed. All raise EngineError."""

    leads: bool
    """False in a process that only takes part: it sends no marks and no document."""

    def versions(self) -> Mapping[str, str]: ...

    def contexts(self) -> None:
        """Make ready the devices and the memory."""
        ...

    def communicators(self) -> None: ...

    def offers(self, op: str) -> bool:
        """Tell whether it has this primitive in the form that the plan wants."""
        ...

    def collective(self, case: Case) -> Timed: ...

    def copies(self) -> Sequence[Copy]: ...

    def micros(self) -> Sequence[Micro]: ...

    def hosts(self) -> Sequence[HostCopies] | str:
        """Measure the host links, or return why it does not."""
        ...

    def kernel_seconds(self) -> Sequence[float]:
        """Seconds with work, one a rank."""
        ...


@dataclass
class Run:
    """The measurements so far; `began`: monotonic seconds at which the process began.

    `report` gets what is to be reported at once; `step` is in hand once the devices are ready, for errors.
    """

    plan: Plan
    mark: Mark
    began: float
    report: Callable[[Timed], None] = lambda _: None
    times: dict[str, float] = field(default_factory=dict)
    collectives: list[Timed] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    micros: list[Micro] = field(default_factory=list)
    hosts: Sequence[HostCopies] = ()
    no_hosts: str = ""
    not_offered: tuple[str, ...] = ()
    step: str = ""

    def measure(self, engine: Engine) -> None:
        """Measure all that the plan asks for; an EngineError keeps what was measured before."""
        self._reached("imported")
        engine.contexts()
        self._reached("contexts")
        self.step = "communicators"
        engine.communicators()
        self._reached("communicators")
        wanted = dict.fromkeys((*self.plan.ops, *(case.op for case in self.plan.cases)))
        self.not_offered = tuple(op for op in wanted if not engine.offers(op))
        with _collected_between():
            self._all(engine)
        self.mark("end")
        self._reached("done")

    def _all(self, engine: Engine) -> None:
        for group in range(len(self.plan.groups)):
            for op in self.plan.ops:
                if op in self.not_offered:
                    continue
                self.mark(f"{op}.{group}")
                for case in self.plan.cases_of(group, op):
                    self._measure(engine, case)
        if self.plan.cases:
            self.mark("cases")
        for case in self.plan.cases:
            if case.op not in self.not_offered:
                self._measure(engine, case)
                self.report(self.collectives[-1])
        self._beside(engine)

    def _beside(self, engine: Engine) -> None:
        """Measure what is no collective."""
        if self.plan.copy_bytes:
            self.step = "copies"
            self.mark("copies")
            self.copies += engine.copies()
        if self.plan.micro:
            self.step = "micros"
            self.mark("micros")
            self.micros += engine.micros()
        if self.plan.host_bytes:
            self.step = "host links"
            self.mark("hosts")
            found = engine.hosts()
            self.hosts, self.no_hosts = ((), found) if isinstance(found, str) else (found, "")

    def _measure(self, engine: Engine, case: Case) -> None:
        self.step = f"{case.op} of {case.size_bytes} bytes, {case.launch}"
        gc.collect()
        self.collectives.append(engine.collective(case))

    def error(self, kind: ErrorKind, said: str) -> EngineError:
        """An error that begins with the step in which it came."""
        return EngineError(kind, f"{self.step}: {said}" if self.step else said)

    def _versions(self, engine: Engine | None) -> dict[str, str]:
        try:
            return dict(engine.versions()) if engine else {}
        except EngineError:
            # What keeps it from giving its versions is reported as the error of the probe.
            return {}

    def _reached(self, name: str) -> None:
        self.times[name] = time.monotonic() - self.began

    def document(self, engine: Engine | None, error: EngineError | None) -> Document:
        """Return the measurements with their cost; with an error, the measurements before it."""
        own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cost = Cost(
            **self.times,
            kernel_seconds=tuple(engine.kernel_seconds()) if engine else (),
            cpu_seconds=own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime,
            host_bytes=max(own.ru_maxrss, below.ru_maxrss) * probe.KIB,
        )
        return Document(
            schema=probe.DOCUMENT_SCHEMA, engine=self.plan.engine, versions=self._versions(engine),
            collectives=tuple(self.collectives), copies=tuple(self.copies), micros=tuple(self.micros),
            cost=cost, error=None if error is None else WorkerError(error.kind, str(error)),
            not_offered=self.not_offered, hosts=tuple(self.hosts), no_hosts=self.no_hosts,
        )  # fmt: skip


@contextmanager
def _collected_between() -> Iterator[None]:
    """Have garbage collected on order alone, and objects of before never.

    By itself Python stops launches in their middle: with torch, for 4 ms in each process's first case (H200).
    """
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def marker(fd: int, *, pauses: bool) -> Callable[[str], None]:
    """Return a function that writes a mark and waits for a line on standard input, if there are `pauses`."""
    if not pauses:
        return lambda _: None

    def mark(name: str) -> None:
        os.write(fd, f"{name}\n".encode())
        if not sys.stdin.readline():
            # The launcher is gone: nothing waits for the result any more.
            os._exit(1)

    return mark


def reporter(fd: int) -> Callable[[Timed], None]:
    """Return a function that writes a measurement as a line among the marks, and waits for no answer."""

    def report(timed: Timed) -> None:
        os.write(fd, f"{probe.REPORT}{json.dumps(asdict(timed), allow_nan=False)}\n".encode())

    return report
