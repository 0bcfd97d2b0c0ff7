"""A probe from its plan to its document, the same for every engine."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from wirewatch.core.probe import (  # fmt: skip
    DOCUMENT_SCHEMA,
    Copy,
    Cost,
    Document,
    Micro,
    Plan,
    Timed,
    WorkerError,
)
from wirewatch.worker.engine import Engine, EngineError

Mark = Callable[[str], None]
KIB = 1024


@dataclass
class Run:
    """What was measured so far; `began` is when the process did, on the monotonic clock."""

    plan: Plan
    mark: Mark
    began: float
    times: dict[str, float] = field(default_factory=dict)
    collectives: list[Timed] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    micros: list[Micro] = field(default_factory=list)

    def measure(self, engine: Engine) -> None:
        """Everything that the plan asks for.

        Raises:
            EngineError: it could not be done; what was measured before is kept.
        """
        self._reached("imported")
        engine.contexts()
        self._reached("contexts")
        engine.communicators()
        self._reached("communicators")
        for group in range(len(self.plan.groups)):
            for op in self.plan.ops:
                self.mark(f"{op}.{group}")
                self._sizes(engine, group, op)
        if self.plan.copy_bytes:
            self.mark("copies")
            self.copies += engine.copies()
        if self.plan.micro:
            self.mark("micros")
            self.micros += engine.micros()
        self.mark("end")
        self._reached("done")

    def _sizes(self, engine: Engine, group: int, op: str) -> None:
        for size in self.plan.latency_sizes:
            self.collectives.append(engine.collective(group, op, size, latency=True))
        for size, _ in self.plan.bandwidth:
            self.collectives.append(engine.collective(group, op, size, latency=False))

    def _versions(self, engine: Engine | None) -> dict[str, str]:
        try:
            return dict(engine.versions()) if engine else {}
        except EngineError:
            # Whatever keeps it from telling is told as the error of the probe.
            return {}

    def _reached(self, name: str) -> None:
        self.times[name] = time.monotonic() - self.began

    def document(self, engine: Engine | None, error: EngineError | None) -> Document:
        own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cost = Cost(
            **self.times,
            kernel_seconds=tuple(engine.kernel_seconds()) if engine else (),
            cpu_seconds=own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime,
            host_bytes=max(own.ru_maxrss, below.ru_maxrss) * KIB,
        )
        return Document(
            schema=DOCUMENT_SCHEMA, engine=self.plan.engine, versions=self._versions(engine),
            collectives=tuple(self.collectives), copies=tuple(self.copies), micros=tuple(self.micros),
            cost=cost, error=None if error is None else WorkerError(error.kind, str(error)),
        )  # fmt: skip
