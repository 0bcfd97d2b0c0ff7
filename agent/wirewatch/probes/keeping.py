"""Probes into the history, and back out of it when the daemon starts again."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.collector import Collector
from wirewatch.core.ports import Clock, Hardware, Question
from wirewatch.core.probing.result import Probed
from wirewatch.core.probing.sound import unsound
from wirewatch.core.types import Absent
from wirewatch.probes.history import History
from wirewatch.probes.judge import take
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.probes.records import Record
from wirewatch.probes.values import Memory, Reading

log = logging.getLogger(__name__)

PROBED = TypeAdapter(Probed)
REMEMBERED, LOOKED_AT = 50, 2000
"""Complete probes of its own that a starting daemon looks back on, of so many of everybody's."""
Component = Collector[Reading, Memory, ProbeOptions, ProbePolicy]


def keeping(component: Component, history: History, boot_id: str) -> Component:
    """The component, with every probe that it runs kept."""

    def read(hardware: Hardware, memory: Memory, options: ProbeOptions) -> Reading | Absent:
        reading = component.read(hardware, memory, options)
        if not isinstance(reading, Absent) and reading.probed is not None:
            keep(history, reading.probed, hardware.clock.now(), boot_id)
        return reading

    return replace(component, read=read)


def keep(history: History, probed: Probed, at: float, boot_id: str) -> None:
    """Add a probe; one that cannot be kept is told in the log and costs nothing else."""
    try:
        document = PROBED.dump_json(probed).decode()
    except ValueError as error:
        log.warning("a probe could not be kept: %s", error)
        return
    failed = history.add(
        Record(
            at=at, boot_id=boot_id, result=probed.outcome, forced=probed.forced,
            by="command" if probed.by == "command" else "daemon", engine=probed.plan.engine,
            gpu_seconds=probed.held_seconds * len(probed.gpus), document=document,
        )
    )  # fmt: skip
    if failed is not None:
        log.warning("a probe could not be kept: %s", failed)


def boot_id(hardware: Hardware) -> str:
    """Which boot of the machine this is; empty where it does not tell."""
    told = hardware.host.ask(Question("BootId")).value
    return told if isinstance(told, str) else ""


def remember(history: History, clock: Clock, policy: ProbePolicy) -> Memory:
    """What the probes of before amount to; counters begin at 0 again."""
    records = history.recent(LOOKED_AT)
    if isinstance(records, Absent):
        log.warning("the history of probes cannot be read: %s", records)
        return Memory()
    memory = Memory()
    for record in reversed(_telling(records)):
        try:
            probed = PROBED.validate_json(record.document)
        except ValidationError as error:
            log.warning("a probe of before is not understood: %s", error.errors()[0]["msg"])
            continue
        if wrong := unsound(probed):
            log.warning("a probe of before does not fit together: %s", wrong)
            continue
        # Unix time may have been set back since; the order of the records is theirs.
        memory = take(memory, probed, clock.mono() - max(0.0, clock.now() - record.at), policy)
    return replace(memory, runs={}, gpu_seconds=0.0)


def _telling(records: Sequence[Record]) -> list[Record]:
    """The daemon's newest complete probes, and what came after the last of them, newest first."""
    ours = [record for record in records if record.by == "daemon" and not record.forced]
    complete = [record for record in ours if record.result == "ok"][:REMEMBERED]
    newer = ours[: ours.index(complete[0])] if complete else ours[:REMEMBERED]
    return [*newer[:REMEMBERED], *complete]
