"""The course of a fault: begun, seen, over, and what restarts make of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.faults.daemon import Moment, ReplayedDaemon, Shown, shown
from tools.faults.height import (
    CALM,
    JUST,
    MINUTE,
    Found,
    Height,
    as_said,
    from_the_start,
    next_change,
    under_a_daemon,
)
from tools.faults.metrics import Changed, changed
from wirewatch.core.types import Health
from wirewatch.hw.overlay import load_overlay
from wirewatch.verdict.node import PROBATION

HOUR = 3600.0
AFTERWARDS = 26 * HOUR
"""Seconds for which a fault is followed once it is over: longer than a probation."""
PROBES = 30 * MINUTE
"""Seconds within which at least two probes have shown that a fault is over."""
LEAP = 6 * HOUR
SETTLED = 120.0
"""Seconds for which a daemon that was started again is watched; longer where the finding took longer."""
_FOR_EVER = 1e8


@dataclass(frozen=True, slots=True)
class Stage:
    """What a node showed from `seconds` on, since the fault was over or the daemon was started again."""

    seconds: float
    health: Health
    shown: Shown


@dataclass(frozen=True, slots=True)
class Course:
    """A fault as it was played; seconds as in `Found` and `Stage`.

    `running`: whether it began under a daemon that ran, or was there before that was started for the first
    time. `otherwise`: what it made in the other case, None where that is the same. `after`: its end. `kept`:
    a daemon started again while it lasted; `gone`: started again when it was over; `lasted` and `booted`: the
    machine started again instead, with an empty kernel log.
    """

    name: str
    about: str
    running: bool
    found: tuple[Found, ...]
    otherwise: tuple[Found, ...] | None
    metrics: Changed
    after: tuple[Stage, ...]
    kept: tuple[Stage, ...]
    gone: tuple[Stage, ...]
    lasted: tuple[Stage, ...]
    booted: tuple[Stage, ...]

    @property
    def health(self) -> Health:
        """The worst that the node was."""
        return max((one.health for one in self.found), default=Health.OK)


def course(name: str) -> Course:
    """Play a bundled fault."""
    overlay = load_overlay(name)
    height = under_a_daemon(overlay)
    other = from_the_start(overlay, height.daemon.seconds - height.began if height.found else 0.0)
    running = as_said(height, overlay) or not as_said(other, overlay)
    if not running:
        height, other = other, height
    same = _made(height) == _made(other)
    return Course(
        name, overlay.about, running, height.found, None if same else other.found, changed(height),
        _after_its_end(height), _started_again(height, boot=False), _repaired(height, boot=False),
        _started_again(height, boot=True), _repaired(height, boot=True),
    )  # fmt: skip


def _made(height: Height) -> set[tuple[str, str, Health]]:
    return {(one.rule, str(one.subject), one.health) for one in height.found}


def _stages(past: Sequence[Moment], since: float) -> tuple[Stage, ...]:
    """What was shown, from the moment that held then on."""
    held = [one for one in past if one.seconds <= since][-1:]
    later = [one for one in past if one.seconds > since]
    made: list[Stage] = []
    for one in (*held, *later):
        stage = Stage(max(0.0, one.seconds - since), one.verdict.health, one.shown)
        if not made or (made[-1].health, made[-1].shown) != (stage.health, stage.shown):
            made.append(stage)
    return tuple(made)


def _after_its_end(height: Height) -> tuple[Stage, ...]:
    daemon = height.daemon.fork()
    over = daemon.seconds + JUST
    daemon.machine.fault[:] = height.repaired(over)
    own = [one.until for one in daemon.machine.fault if one.until < _FOR_EVER]
    over = max([over, *own])
    daemon.play(over - daemon.seconds + MINUTE)
    daemon = _until_nothing_is_live(daemon, over + PROBES)
    while daemon.seconds < over + AFTERWARDS and shown(daemon.verdict):
        daemon = next_change(daemon, LEAP, over + AFTERWARDS)
    return _stages(daemon.past, over)


def _until_nothing_is_live(daemon: ReplayedDaemon, end: float) -> ReplayedDaemon:
    """The daemon once all is over, or on probation, or at the end; by minutes, so that probes are as ever."""
    while daemon.seconds < end and any(stage != PROBATION for *_, stage in shown(daemon.verdict)):
        daemon = next_change(daemon, MINUTE, end)
    return daemon


def _started_again(height: Height, *, boot: bool) -> tuple[Stage, ...]:
    daemon = height.daemon.fork()
    if boot:
        daemon.boot()
    else:
        daemon.restart()
    began = daemon.seconds
    daemon.play(max([SETTLED, *(one.worst + CALM for one in height.found)]))
    return _stages(daemon.past, began)


def _repaired(height: Height, *, boot: bool) -> tuple[Stage, ...]:
    daemon = height.daemon.fork()
    now = daemon.seconds
    left = [one for one in height.repaired(now) if one.start <= now < one.until]
    daemon.machine.fault[:] = left
    (daemon.boot if boot else daemon.restart)()
    began = daemon.seconds
    daemon.play(SETTLED)
    daemon = _until_nothing_is_live(daemon, began + PROBES)
    return _stages(daemon.past, began)
