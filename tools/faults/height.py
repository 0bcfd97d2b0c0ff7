"""A fault at its height: played until a daemon has found all that it makes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tools.faults.changes import begun, ended
from tools.faults.daemon import Moment, ReplayedDaemon, shown
from tools.faults.machine import WAITING
from wirewatch.core.types import Health, Subject
from wirewatch.hw.overlay import AnswerChange, Expected, Overlay
from wirewatch.verdict.node import Standing, Verdict

RECORDING = "demo-dgx-h200"
"""What the bundled faults are made for."""
BEGIN = 600.0
"""Seconds of play after which a fault begins: of a daemon that has learned what is usual here; what is read
but every ten minutes is read just before."""
JUST = 1.0
"""Seconds after a round of polls at which a fault begins or ends: what comes is then the longest wait."""
FIRST = 300.0
"""Seconds for which a fault is watched at the intervals of service, and then once a minute up to LONGEST."""
LONGEST = 2400.0
CALM, LATER, SELDOM = 60.0, 900.0, 300.0
"""Seconds for which it is watched once it has shown what it makes; then for LATER, read every SELDOM, until
what compares topologies has seen it too."""
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """A finding at its worst; `seen` and `worst` in seconds from the beginning of its fault."""

    rule: str
    subject: Subject
    health: Health
    collector: str
    evidence: str
    action: str
    seen: float
    worst: float


@dataclass(frozen=True, slots=True)
class Height:
    """A daemon when a fault has shown all that it makes; `usual` is how the node is without the fault."""

    daemon: ReplayedDaemon
    began: float
    found: tuple[Found, ...]
    usual: tuple[AnswerChange, ...]

    def repaired(self, at: float) -> list[AnswerChange]:
        """The changes with the fault over at so many seconds of play."""
        return [*self.usual, *ended([one for one in self.daemon.machine.fault if one not in self.usual], at)]


def under_a_daemon(overlay: Overlay) -> Height:
    timed = any(one.start > 0 for one in overlay.changes)
    usual = [one for one in overlay.changes if timed and one.start == 0]
    begin = BEGIN + JUST
    fault = usual + begun([one for one in overlay.changes if one not in usual], begin)
    if usual:
        daemon = ReplayedDaemon.on(RECORDING, fault)
        daemon.play(BEGIN)
    else:
        daemon = healthy().fork(fault)
    return _watched(daemon, overlay, begin, usual, LONGEST)


def from_the_start(overlay: Overlay, longest: float) -> Height:
    usual = [one for one in overlay.changes if one.start == 0]
    timed = [one for one in overlay.changes if one not in usual]
    daemon = ReplayedDaemon.on(RECORDING, usual + begun(timed, 0.0))
    return _watched(daemon, overlay, 0.0, usual if timed else [], max(FIRST, longest))


@cache
def healthy() -> ReplayedDaemon:
    """A daemon on the node without a fault, when all is usual."""
    daemon = ReplayedDaemon.on(RECORDING, [])
    daemon.play(BEGIN)
    return daemon


def _watched(
    daemon: ReplayedDaemon, overlay: Overlay, began: float, usual: Sequence[AnswerChange], longest: float
) -> Height:
    """The daemon when the fault has shown all that it makes."""
    done = complete(overlay.findings)
    if overlay.findings:
        daemon = _follow(daemon, done, FIRST, longest)
    else:
        daemon.play(FIRST)
        daemon = _follow(daemon, lambda verdict: bool(shown(verdict)), 0.0, longest - FIRST)
    daemon.play(CALM)
    later, end = daemon, daemon.seconds + LATER
    # A fork has another client of NVML, which would not know a GPU that hangs from the beginning.
    while later.seconds < end and not any(one.action in WAITING for one in overlay.changes):
        later = next_change(later, SELDOM, end)
    return Height(daemon, began, tuple(_found(later.past, began)), tuple(usual))


def _follow(
    daemon: ReplayedDaemon, done: Callable[[Verdict], bool], first: float, longest: float
) -> ReplayedDaemon:
    """The daemon once it is done: at the intervals of service, then by minutes."""
    end = daemon.seconds + longest
    if daemon.play(first, done):
        return daemon
    while daemon.seconds < end and not done(daemon.verdict):
        daemon = next_change(daemon, MINUTE, end)
    return daemon


def next_change(daemon: ReplayedDaemon, span: float, end: float) -> ReplayedDaemon:
    """The daemon when it shows something else, or at the end; what comes first is found by halving."""
    before = shown(daemon.verdict)
    while daemon.seconds < end:
        later = _leapt(daemon, min(span, end - daemon.seconds))
        if shown(later.verdict) == before:
            daemon = later
            continue
        while span > MINUTE:
            span /= 2
            half = _leapt(daemon, span)
            if shown(half.verdict) == before:
                daemon = half
        near = daemon.fork()
        near.play(span + MINUTE, lambda verdict: shown(verdict) != before)
        return near
    return daemon


def _leapt(daemon: ReplayedDaemon, seconds: float) -> ReplayedDaemon:
    later = daemon.fork()
    later.leap(seconds)
    return later


def complete(findings: Sequence[Expected]) -> Callable[[Verdict], bool]:
    """Whether a verdict has all the findings that a fault says it makes."""

    def done(verdict: Verdict) -> bool:
        return all(any(_is(one, standing) for standing in verdict.standings) for one in findings)

    return done


def _is(one: Expected, standing: Standing) -> bool:
    found = standing.finding
    same = one.subject.levels().items() <= found.subject.levels().items()
    return same and (one.rule, one.health) == (found.rule, found.health)


def as_said(height: Height, overlay: Overlay) -> bool:
    return complete(overlay.findings)(height.daemon.verdict) and bool(height.found or not overlay.findings)


def _found(past: Sequence[Moment], began: float) -> Iterator[Found]:
    """What was found since, each at its worst, worst first."""
    first: dict[tuple[str, Subject], float] = {}
    worst: dict[tuple[str, Subject], tuple[float, Standing]] = {}
    for moment in past:
        for one in moment.verdict.standings:
            if not one.has_series or moment.seconds < began:
                continue
            key = (one.finding.rule, one.finding.subject)
            first.setdefault(key, moment.seconds)
            if key not in worst or worst[key][1].finding.health < one.finding.health:
                worst[key] = (moment.seconds, one)
    made = [
        Found(
            one.finding.rule, one.finding.subject, one.finding.health, one.collector,
            one.finding.evidence, one.finding.action, first[key] - began, at - began,
        )
        for key, (at, one) in worst.items()
    ]  # fmt: skip
    yield from sorted(made, key=lambda one: (-one.health, one.rule.endswith(".blind"), one.seen, one.rule))
