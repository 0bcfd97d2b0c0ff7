"""What the probe's component reads each turn, and what it remembers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.probe import Probed
from wirewatch.core.statistics import Streak
from wirewatch.core.types import Absent, Finding, Health, Subject
from wirewatch.probes.budget import Spent
from wirewatch.probes.gate import Facts, Reason, Refusal, Stillness
from wirewatch.probes.history import HistoryCursor
from wirewatch.probes.measure import Measured
from wirewatch.verdict.straggler.naming import Watch

Key = tuple[str, Subject, Health]
"""Rule, of what, and how bad it gets: a probe that was not conclusive confirms nothing worse."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the gate, and the probe that ran when it was open. `engine`: what `auto` comes to here.

    `late`: the refusal came after Slurm, the topology or the lock was asked, which is not done each turn.
    `others`: probes that other processes ran before that one, each with when it ended (monotonic seconds);
    `seen`: the newest row of the history that was looked at, None where there is none.
    """

    facts: Facts
    still: Stillness
    engine: str | Absent
    due: bool
    refusal: Refusal | None
    probed: Probed | None = None
    late: bool = False
    others: tuple[tuple[Probed, float], ...] = ()
    seen: HistoryCursor | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A probe in short: when it began (Unix seconds), how it ended, its worst ratio where one is known."""

    at: float
    outcome: str
    why: str
    forced: bool
    engine: str
    seconds: float
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Memory:
    """`last`: the newest probe that came to its end, at `last_mono` seconds, and what it measured.

    `tried`: the newest at all, at `tried_mono`.

    `streaks` count probes in a row that found the same wrong, `unconfirmed`: another would tell more;
    `failures` those that could not be done.
    `past`: the newest probes in short, newest last. `held`: findings of the newest complete probe, which stay
    while none can run. `stragglers`: who is slow, and the history by which that is judged. `gpu_seconds`
    since start. `skipped`: when (monotonic seconds) each reason was last
    counted; `late`: when and why a probe was refused after everything had been asked. `completed`: probes
    since start that came to their end and count; `clean`: the newest of those ever was of GPUs and found
    nothing. `fresh_until`: monotonic seconds at which its results are withdrawn. `seen`: the newest row of
    the history that is in here.
    """

    still: Stillness = field(default_factory=Stillness)
    last: Probed | None = None
    last_mono: float | None = None
    measured: tuple[Measured, ...] = ()
    tried_mono: float | None = None
    tried: Probed | None = None
    runs: Mapping[str, int] = field(default_factory=dict)
    skips: Mapping[Reason, int] = field(default_factory=dict)
    skipped: Mapping[Reason, float] = field(default_factory=dict)
    late: tuple[float, Refusal] | None = None
    gpu_seconds: float = 0.0
    spent: Spent = ()
    streaks: Mapping[Key, Streak] = field(default_factory=dict)
    unconfirmed: bool = False
    failures: int = 0
    held: tuple[Finding, ...] = ()
    stragglers: Watch = field(default_factory=Watch)
    refusal: Refusal | None = None
    engine: str | Absent = ""
    fresh: bool = False
    fresh_until: float | None = None
    completed: int = 0
    clean: bool = False
    seen: HistoryCursor | None = None
    past: tuple[Past, ...] = ()

    def count(self) -> int:
        """Probes so far, however they ended."""
        return sum(self.runs.values())


def complete(memory: Memory) -> tuple[int, bool]:
    """Complete probes since start, whoever ran them but for forced ones; whether the newest found nothing.

    A probe of processors tells nothing of wires, and so is never clean.
    """
    return memory.completed, memory.clean
