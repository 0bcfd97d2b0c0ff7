"""Series of the process itself: its start, its log, and whether its configuration was read again."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

from wirewatch.core.types import Sample, Tier, family

LEVELS = ("debug", "info", "warning", "error", "critical")
LOGGED = family(
    "log_messages_total",
    ("level",),
    "Messages for the log by level, also those that were left out of it. A bug of the agent is an `error`.",
    undrawn="the log itself says what, and what matters of it is a finding",
)
LEFT_OUT = family(
    "log_left_out_total",
    (),
    "Messages that were left out of the log: too many of one kind, too many in all, or nobody reads it.",
    undrawn="each kind is in the log, with the number of those that are not",
)
RELOADED = family(
    "config_last_reload_success", (),
    "1 if the configuration could be used when it was last read; at 0 the old one is still in use.",
    undrawn="only SIGHUP reads it again; the alert WirewatchConfigFailed watches it", tier=Tier.CORE,
)  # fmt: skip
RELOADED_AT = family(
    "config_last_reload_success_timestamp_seconds",
    (),
    "When it was last read and could be used: at the start, or at SIGHUP.",
    undrawn="a configuration that nobody changes is read once",
)
STARTED = family(
    "process_start_time_seconds",
    (),
    "When the agent's process started; another value is a restart. The name is that of every program.",
    undrawn="the alert WirewatchAgentRestarting counts its changes",
    tier=Tier.CORE,
)
METRICS = (LOGGED, LEFT_OUT, RELOADED, RELOADED_AT, STARTED)


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """Messages by level and left out; the last reading of the configuration, and the start (Unix seconds)."""

    logged: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))
    left_out: int = 0
    reloaded: bool = True
    reloaded_at: float = 0.0
    started: float = 0.0


class ProcessCounts:
    """Counts from any thread. `report` is replaced by each change."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = Lock()
        at = now()
        self.report = ProcessReport(reloaded_at=at, started=at)

    def begun(self) -> None:
        """The agent starts now: a process that imported this long before may be the parent of several."""
        with self._lock:
            self.report = replace(self.report, started=self._now())

    def logged(self, level: str) -> None:
        """One more message of this level; of none of LEVELS, it counts as the lowest."""
        with self._lock:
            by_level = self.report.logged
            name = level if level in by_level else LEVELS[0]
            self.report = replace(self.report, logged={**by_level, name: by_level[name] + 1})

    def left_out(self, number: int = 1) -> None:
        """So many more messages that were left out."""
        with self._lock:
            self.report = replace(self.report, left_out=self.report.left_out + number)

    def reloaded(self, *, good: bool) -> None:
        """The configuration was read; `good`: it can be used."""
        with self._lock:
            at = self._now() if good else self.report.reloaded_at
            self.report = replace(self.report, reloaded=good, reloaded_at=at)


PROCESS = ProcessCounts()
"""The counts of this process."""


def samples(report: ProcessReport) -> Iterator[Sample]:
    """The series of the report."""
    for level, number in report.logged.items():
        yield LOGGED.sample(number, level)
    yield LEFT_OUT.sample(report.left_out)
    yield RELOADED.sample(report.reloaded)
    yield RELOADED_AT.sample(report.reloaded_at)
    yield STARTED.sample(report.started)
