"""One fault through everything: a node begins well, breaks, is reported, is repaired, and reported again."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from typing import Any

from proof.rehearsal.expected import CRITICAL, Change, Ending, Row
from proof.rehearsal.fleet import Fleet
from proof.rehearsal.judge import Judged, Limits, Times, judge, lives, named
from proof.rehearsal.node import Node
from proof.rehearsal.overlays import Span, bundled, ending, lasting
from proof.rehearsal.pace import Pace
from proof.rehearsal.squeeze import squeezed
from wirewatch.verdict.drift.component import DriftOptions

LEAD = 20.0
"""Seconds for which a node is well and watched before its fault begins: its first probe is complete then."""
SLACK = 10.0
"""Seconds that a busy machine may take more than it should."""
LEAST = squeezed(900.0) + 8.0
"""Seconds for which a fault stays at least: a ticket takes a quarter of an hour, also a wrong one."""
QUIET = squeezed(7 * 86400.0)
"""Seconds for which a node that must raise nothing is watched: a week."""
LINGER = 6.0
"""Seconds for which is watched what else comes when all is over: what an alert kept quiet may speak up."""
ALIVE = 4.0
"""Seconds from a start of an agent that crashes to its next end: a minute of service."""
TOPOLOGY, AFTER_LOOK = squeezed(DriftOptions().interval), 3.0
"""Seconds between two looks at the topology, of which the first is the daemon's first second."""
REBOOTED = ({"port": "host", "match": "BootId()", "set": "00000000-0000-4000-8000-00000000b007"},)
SCRAPED = 0.9
"""Part of the time for which a node must have been scraped well, or silence means nothing."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one row."""

    name: str
    row: Row
    judged: Judged


def limits(row: Row, pace: Pace) -> Limits:
    return Limits(
        {str(alert): pace.fires(row, alert) + SLACK for alert in row.every},
        {str(alert): pace.clears(row, alert) + SLACK for alert in row.every},
    )


def span_of(name: str, row: Row, most: Limits) -> Span:
    """When the fault begins and ends, in seconds of play.

    A page ends just after a look at the topology, which still tells of the fault for longest then.
    """
    holds = max((LEAST, *(most.fires[str(alert)] for alert in row.alerts))) if row.alerts else QUIET
    if any(alert.severity == CRITICAL for alert in row.alerts):
        looks = ceil((LEAD + holds - AFTER_LOOK) / TOPOLOGY)
        holds = looks * TOPOLOGY + AFTER_LOOK - LEAD
    return lasting(changes_of(name, row), LEAD, holds, from_start=row.at_start)


def changes_of(name: str, row: Row) -> Sequence[Change]:
    if row.kills or row.crashes:
        return ()
    return row.changes or bundled(name)


def lasts(name: str, row: Row, pace: Pace) -> float:
    """Seconds that a row takes, about: those that take longest begin first."""
    most = limits(row, pace)
    return span_of(name, row, most).end + max((pace.clears(row, alert) for alert in row.every), default=0.0)


def play(fleet: Fleet, name: str, row: Row, pace: Pace) -> Played:
    """A row of the table, from beginning to end; whatever fails is a trouble of this row."""
    try:
        return Played(name, row, _play(fleet, name, row, pace))
    except Exception as error:  # noqa: BLE001 - reported, and the others go on
        return Played(
            name, row, Judged((), (f"the rehearsal itself failed: {type(error).__name__}: {error}",))
        )


def _play(fleet: Fleet, name: str, row: Row, pace: Pace) -> Judged:
    most = limits(row, pace)
    span = span_of(name, row, most)
    with fleet.node(name, remembers=not row.at_start) as node:
        with fleet.starting:
            node.start(list(ending(changes_of(name, row), span)))
            node.daemon.ready()
        fleet.prometheus.add(name, node.address)
        began, over = node.began + span.begin, node.began + span.end
        if row.kills:
            _sleep_until(began)
            address = node.address
            node.kill()
        if row.crashes:
            _sleep_until(began)
            _crash(node, over)
        _sleep_until(over)
        if row.kills:
            node.start(listen=address)
        acted = END[row.ending](node, over, most)
        fleet.receiver.wait(name, lambda told: _all_over(row, told), acted + _longest(most) - time.time())
        time.sleep(LINGER)
        missed = () if row.kills or row.crashes else _missed(fleet, name, time.time() - node.began)
        fleet.prometheus.remove(name)
        node.stop()
    judged = judge(row, fleet.receiver.of(name), Times(began, over, acted), most)
    return Judged(judged.told, (*judged.troubles, *missed))


def _crash(node: Node, over: float) -> None:
    """Kill the agent soon after each of its starts, until this moment; it runs then."""
    address = node.address
    while time.time() < over:
        node.kill()
        node.start(listen=address)
        node.daemon.ready()
        time.sleep(ALIVE)


WELL = ("well-1", "well-2", "well-3")
"""Nodes without a fault, all the time: what is wrong with one node is not reported of others."""


def play_well(fleet: Fleet, over: threading.Event) -> tuple[str, ...]:
    """What is reported of nodes that are well, until all is over."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(fleet.node(name)) for name in WELL]
        for node in nodes:
            with fleet.starting:
                node.start()
                node.daemon.ready()
            fleet.prometheus.add(node.name, node.address)
        over.wait()
        missed = [m for node in nodes for m in _missed(fleet, node.name, time.time() - node.began)]
    told = [named(life[0]) for name in WELL for life in lives(fleet.receiver.of(name))]
    return (
        *(f"a node that is well: {one}" for one in missed),
        *(f"{one} fired on a well node" for one in told),
    )


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


def _longest(most: Limits) -> float:
    return max(most.clears.values(), default=0.0)


def _all_over(row: Row, told: Any) -> bool:
    known = lives(told)
    return all(
        any(alert.is_told_by(life[0]) and not life[-1].firing for life in known) for alert in row.every
    )


def _missed(fleet: Fleet, name: str, seconds: float) -> tuple[str, ...]:
    window = f"{round(seconds * 1000)}ms"
    found = fleet.prometheus.query(f'sum_over_time(up{{node="{name}"}}[{window}])')
    scrapes = found[0][1] if found else 0.0
    part = scrapes / seconds
    return () if part >= SCRAPED else (f"scraped well in {part:.0%} of the time alone",)


def _nothing(_node: Node, over: float, _most: Limits) -> float:
    return over


def _repaired(node: Node, over: float, most: Limits) -> float:
    """Say of everything that was FAILED that it was repaired, once it is not measured any more."""
    _until_nothing_is_left(node, most, ("latched", "probation"))
    return over


def _latched(node: Node, _over: float, most: Limits) -> float:
    acted = time.time()
    _until_nothing_is_left(node, most, ("live", "latched", "probation"))
    return acted


def _until_nothing_is_left(node: Node, most: Limits, stages: tuple[str, ...]) -> None:
    end = time.monotonic() + _longest(most)
    while left := [one for one in node.findings() if one["stage"] not in {"repaired", "suppressed"}]:
        for one in left:
            if one["stage"] in stages:
                # What is measured again at this moment is refused, and asked for again.
                node.ordered("findings", "repaired", one["id"], "--yes", "--why", "the rehearsal repaired it")
        assert time.monotonic() < end, f"cannot be called repaired: {node.told()}"
        time.sleep(0.5)


def _reboot(node: Node, _over: float, most: Limits) -> float:
    address = node.address
    node.stop()
    node.start(REBOOTED, listen=address)
    node.daemon.ready()
    _until_nothing_is_left(node, most, ("latched", "probation"))
    return node.began


def _release(node: Node, _over: float, most: Limits) -> float:
    acted = time.time()
    node.order("release", "--for", "5s")
    _until_nothing_is_left(node, most, ("latched", "probation"))
    return acted


END: Mapping[Ending, Callable[[Node, float, Limits], float]] = {
    Ending.ITSELF: _nothing,
    Ending.PROBATION: _nothing,
    Ending.ACK: _repaired,
    Ending.LATCHED: _latched,
    Ending.REBOOT: _reboot,
    Ending.RELEASE: _release,
}
"""What the operator does when the fault is over; returns when that was, for the time until it is cleared."""
