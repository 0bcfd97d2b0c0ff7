"""One run of one collector: the only place where anything may go wrong and is turned into "not known"."""

import logging
import time
from dataclasses import dataclass, replace

from wirewatch.core.collector import AnyCollector, Step, fold
from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.types import Absent, Expect, Failed, Ok, Why

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A collector with all that a run of it takes."""

    collector: AnyCollector
    hardware: Hardware
    expect: Expect

    def run(self, memory: object) -> Step:
        """Read, judge, and make samples. Never raises."""
        began = time.thread_time()
        step = self._run(memory)
        return replace(step, cpu=time.thread_time() - began)

    def _run(self, memory: object) -> Step:
        clock = self.hardware.clock
        began = clock.mono()
        try:
            value = self.collector.read(self.hardware, memory, self.collector.options)
            outcome = _outcome(value, clock)
            return fold(self.collector, memory, outcome, clock.mono() - began, self.expect)
        except Exception as error:
            log.exception("collector %s raised", self.collector.name)
            absent = Absent(Why.MALFORMED, f"collector {self.collector.name} raised {error!r}")
            failed = Failed(absent, clock.now(), clock.mono())
            return fold(self.collector, memory, failed, clock.mono() - began, self.expect)


def _outcome(value: object, clock: Clock) -> Ok[object] | Failed:
    now, mono = clock.now(), clock.mono()
    return Failed(value, now, mono) if isinstance(value, Absent) else Ok(value, now, mono)
