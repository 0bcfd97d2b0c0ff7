"""The history of probes as somebody else's: read for a verdict; never made, moved or written."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from wirewatch.core.component import Component, after, fold
from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.types import Absent, Expect, Ok, Why
from wirewatch.probes.collector import NAME, probe_component
from wirewatch.probes.elsewhere import Elsewhere, own_of
from wirewatch.probes.gate import Facts, Stillness
from wirewatch.probes.history import History, Limits
from wirewatch.probes.keeping import boot_id, remember
from wirewatch.probes.news import News, Place
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.probes.records import Damaged, Record
from wirewatch.probes.values import Memory, Reading

T = TypeVar("T")
MOST = 10
"""Complete probes that are folded: each takes milliseconds, and a job waits."""
HURRY = 1.0
"""Seconds for a prober's word on what it would measure; without it no unseen probe of others counts."""
PATIENCE = 0.3
"""Seconds to wait for those who write."""


class Recorded(History):
    """A history that may be another's: opened for each question, and for reading alone."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock, Limits(busy=PATIENCE))

    def before(self, count: int) -> News | Absent:
        return super().before(min(count, MOST))

    def spread(self, count: int) -> tuple[Record, ...] | Absent:
        return super().spread(min(count, MOST))

    def since(self, seen: Place | None, count: int) -> News | Absent:
        return super().since(seen, min(count, MOST))

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | Absent:
        try:
            name = f"{self._path.absolute().as_uri()}?mode=ro"
            connection = sqlite3.connect(name, uri=True, timeout=self._limits.busy, isolation_level=None)
            try:
                return work(connection)
            finally:
                connection.close()
        except (sqlite3.Error, Damaged, UnicodeDecodeError, OSError) as error:
            return Absent(Why.MISSING, f"{self._path}: {error}")


def recall(
    path: Path | None, hardware: Hardware, options: ProbeOptions, policy: ProbePolicy, expect: Expect,
    prober: Elsewhere | None = None,
) -> Component:  # fmt: skip
    """The probe's component as a daemon would have it that starts now and runs no probe.

    Without a history it is not known that there is something to probe here: the component takes no part.
    """
    clock = hardware.clock
    if path is None or not path.exists():
        return Component(NAME, Memory(), Ok(None, clock.now(), clock.mono()))
    own = own_of(hardware, options, expect, boot_id(hardware), prober, HURRY)
    memory = remember(Recorded(path, clock), clock, policy, None if isinstance(own, Absent) else own)
    now, mono = clock.now(), clock.mono()
    if memory.tried is None:
        return Component(NAME, memory, Ok(None, now, mono))
    nobody = Reading(Facts((), (), None, mono), Stillness(), "", due=False, refusal=None, seen=memory.seen)
    collector = probe_component(options, policy, expect, memory)
    return after(Component(NAME, memory), fold(collector, memory, Ok(nobody, now, mono), 0.0, expect))
