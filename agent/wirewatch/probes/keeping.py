"""Probes into the history, and back out of it when the daemon starts again or others have added some."""

import logging
from dataclasses import replace

from wirewatch.core.collector import Collector
from wirewatch.core.ports import Clock, Hardware, Question
from wirewatch.core.probing.result import Probed
from wirewatch.core.types import Absent, Expect
from wirewatch.probes.elsewhere import Elsewhere
from wirewatch.probes.faults import breaches
from wirewatch.probes.history import History
from wirewatch.probes.judge import take, take_all
from wirewatch.probes.news import START, Place
from wirewatch.probes.own import Own, unlike
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.probes.records import By, Record
from wirewatch.probes.taking import MOST, Found, Others, ended
from wirewatch.probes.told import ProbeTold, of_memory
from wirewatch.probes.understood import PROBED, understood
from wirewatch.probes.values import Memory, Reading
from wirewatch.verdict.straggler.fold import Watch, look
from wirewatch.verdict.straggler.references import References
from wirewatch.verdict.straggler.signals import signals

__all__ = ["PROBED", "accepted", "boot_id", "keep", "keeping", "newest", "remember"]

log = logging.getLogger(__name__)

REMEMBERED = 50
"""Complete probes that a starting daemon looks back on."""
SPREAD = 40
"""Probes by which GPUs are judged against their own past; each takes milliseconds to read."""
Component = Collector[Reading, Memory, ProbeOptions, ProbePolicy]


def keeping(
    component: Component, history: History, boot_id: str, expect: Expect | None = None,
    prober: Elsewhere | None = None,
) -> Component:  # fmt: skip
    """The component, with every probe that it runs kept, and those of other processes taken over.

    `expect`, `prober`: those of the component, since a probe against other figures is not as its own.
    """
    others = Others(history, boot_id, expect or Expect(), prober)

    def read(hardware: Hardware, memory: Memory, options: ProbeOptions) -> Reading | Absent:
        found = others.look(hardware, memory.seen, options)
        # Already now, since a probe that has just been run need not be run again.
        reading = component.read(hardware, take_all(memory, found.probes, component.policy), options)
        if isinstance(reading, Absent):
            return reading
        if reading.probed is not None:
            # Those that ended before this one could begin stand before it in the history, too.
            late = others.look(hardware, found.seen, options)
            found = Found((*found.probes, *late.probes), late.seen)
            keep(history, reading.probed, hardware.clock.now(), boot_id, "daemon")
        return replace(reading, others=found.probes, seen=found.seen)

    return replace(component, read=read)


def keep(history: History, probed: Probed, at: float, boot_id: str, by: By | None = None) -> None:
    """Add a probe; one that cannot be kept is told in the log and costs nothing else.

    `by`: who ran it, where the probe itself tells that it is a recorded one.
    """
    try:
        document = PROBED.dump_json(probed).decode()
    except ValueError as error:
        log.warning("a probe could not be kept: %s", error)
        return
    failed = history.add(
        Record(
            at=at, boot_id=boot_id, result=probed.outcome, forced=probed.forced,
            by=by or ("command" if probed.by == "command" else "daemon"), engine=probed.plan.engine,
            gpu_seconds=probed.held_seconds * len(probed.gpus), document=document,
        )
    )  # fmt: skip
    if failed is not None:
        log.warning("a probe could not be kept: %s", failed)


def boot_id(hardware: Hardware) -> str:
    """Which boot of the machine this is; empty where it does not tell."""
    told = hardware.host.ask(Question("BootId")).value
    return told if isinstance(told, str) else ""


def remember(history: History, clock: Clock, policy: ProbePolicy, own: Own | None = None) -> Memory:
    """What the probes of before amount to that a daemon ran or took over; counters begin at 0 again.

    With `own` also those of other processes that no daemon has looked at yet; a daemon does so in its turns.
    """
    told = _before(history, own)
    if isinstance(told, Absent):
        log.warning("the history of probes cannot be read: %s", told)
        return Memory()
    rows, seen = told
    memory = Memory(stragglers=Watch(accepted(history, policy)))
    for record in rows:
        probed = understood(record)
        if probed is not None and _counts(record, probed, own):
            memory = take(memory, probed, ended(record, clock), policy)
    return replace(memory, runs={}, gpu_seconds=0.0, completed=0, seen=seen)


def accepted(history: History, policy: ProbePolicy) -> References:
    """What GPUs and pairs gave while all was well, of probes all over the history."""
    rows = history.spread(SPREAD)
    watch = Watch()
    for record in () if isinstance(rows, Absent) else rows:
        probed = understood(record)
        if probed is not None:
            well = not breaches(probed, policy)
            watch = look(watch, signals(probed), probed.at, policy.straggler, accepted=well)
    return watch.references


def _counts(record: Record, probed: Probed, own: Own | None) -> bool:
    return record.by != "command" or (own is not None and not unlike(probed, record.boot_id, own))


def _before(history: History, own: Own | None) -> tuple[list[Record], Place] | Absent:
    """Records in their order, and the place of the newest that a daemon has folded."""
    folded = history.before(REMEMBERED)
    if isinstance(folded, Absent):
        return folded
    rows = {place.number: record for place, record in folded.rows}
    if own is not None:
        others = history.since(START, MOST)
        if isinstance(others, Absent):
            return others
        rows |= {place.number: record for place, record in others.rows}
    return [rows[number] for number in sorted(rows)], folded.newest


def newest(
    history: History, clock: Clock, policy: ProbePolicy, options: ProbeOptions, own: Own | None = None
) -> ProbeTold:
    """What the history tells of the newest complete probe where no daemon runs; see `remember` for `own`."""
    memory = remember(history, clock, policy, own)
    until = None if memory.last_mono is None else memory.last_mono + options.fresh
    return of_memory(replace(memory, fresh_until=until), clock.mono())
