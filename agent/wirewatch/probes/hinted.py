"""A hint from a running job brings the next probe forward: as soon as the GPUs are idle, not by the clock."""

from dataclasses import replace
from typing import Any

from wirewatch.collectors.lockstep import NAME, LockstepFacts
from wirewatch.core.collector import AnyCollector, Collector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.probes.values import Memory, Reading

AT_ONCE = 1e-3
"""Seconds between probes while one is wanted: the gate and the budget alone decide."""


class Hints:
    """When a hint was last seen (monotonic seconds): from who looks at jobs to who probes.

    Each of the two has a thread of its own; the value between them is replaced as a whole.
    """

    def __init__(self) -> None:
        self._mono: float | None = None

    def heard(self, collector: AnyCollector) -> AnyCollector:
        """The collector, which tells of its hints from now on; any other as it is."""
        offered = collector.facts
        if collector.name != NAME or offered is None:
            return collector

        def facts(reading: Any, memory: Any) -> object:
            known = offered(reading, memory)
            if isinstance(known, LockstepFacts) and known.last_hint is not None:
                self._mono = known.last_hint.last.mono
            return known

        return replace(collector, facts=facts)

    def wanted(self, memory: Memory) -> bool:
        """Whether no probe was tried since the newest hint."""
        mono = self._mono
        return mono is not None and (memory.tried_mono is None or memory.tried_mono < mono)

    def hastening(
        self, component: Collector[Reading, Memory, ProbeOptions, ProbePolicy]
    ) -> Collector[Reading, Memory, ProbeOptions, ProbePolicy]:
        """The probe's component, due at once after a hint; it waits for idle GPUs as ever."""

        def read(hardware: Hardware, memory: Memory, options: ProbeOptions) -> Reading | Absent:
            soon = replace(options, every=AT_ONCE) if self.wanted(memory) else options
            return component.read(hardware, memory, soon)

        return replace(component, read=read)
