"""Keep probes in the history, and read them back when a daemon starts or another process has run some."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.collector import Component
from wirewatch.core.fold import after, fold
from wirewatch.core.ports import Clock, Hardware, Question
from wirewatch.core.probe import Probed, wrong_in_probed
from wirewatch.core.types import Absent, Expect, Ok
from wirewatch.probe.collector import PROBE_NAME, ProbeCollector, probe_collector
from wirewatch.probe.gate import GateFacts, Stillness
from wirewatch.probe.history import START, History, HistoryCursor, HistoryLimits, ProbeRecord
from wirewatch.probe.judge import fold_probe, fold_probes
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy, ProbeReading
from wirewatch.probe.remote import RemoteProber, terms_of
from wirewatch.probe.setup import ProbeTerms, why_not_comparable
from wirewatch.verdict.straggler.naming import StragglerWatch

log = logging.getLogger(__name__)

PROBED = TypeAdapter(Probed)
REMEMBERED = 50
"""Complete probes that a starting daemon reads."""
SAMPLED = 40
"""Probes that judge GPUs and collectives against their past; each takes milliseconds to read."""
ADDED = 200
"""Most probes of commands that a daemon folds in one turn; more come only after days without a daemon."""
WITHOUT_DAEMON = 10
"""Most probes of each of these three kinds, where no daemon runs and a job waits."""
TWICE = 2
"""Samples for each folded probe: some of them found faults and teach nothing."""
PROBER_SECONDS = 1.0
"""Seconds for a prober to describe its probe; without an answer, unfolded probes do not count."""
BUSY_SECONDS = 0.3
"""Seconds to wait for writers, where no daemon runs."""
Ended = tuple[Probed, float]
"""A probe, and when it ended (monotonic seconds)."""


def persistent(
    collector: ProbeCollector, history: History, boot_id: str, expect: Expect,
    prober: RemoteProber | None = None,
) -> ProbeCollector:  # fmt: skip
    """Return the collector that keeps every probe it runs, and folds the probes that commands have run.

    `expect`, `prober`: the collector's own, since a probe against other figures is not comparable.
    """
    commands = CommandProbes(history, boot_id, expect, prober)

    def read(hardware: Hardware, memory: ProbeMemory, options: ProbeOptions) -> ProbeReading | Absent:
        others, seen = commands.read(hardware, memory.seen, options)
        # Already now, since a probe that has just been run need not be run again.
        reading = collector.read(hardware, fold_probes(memory, others, collector.policy), options)
        if isinstance(reading, Absent):
            return reading
        if reading.probed is not None:
            # Those that ended before this one could begin stand before it in the history, too.
            late, seen = commands.read(hardware, seen, options)
            others = (*others, *late)
            clock = hardware.clock
            keep(history, reading.probed, clock.now(), boot_id, "daemon", clock.mono())
        return replace(reading, others=others, seen=seen)

    return replace(collector, read=read)


def keep(
    history: History, probed: Probed, at: float, boot_id: str,
    started_by: Literal["daemon", "command"] | None = None, mono: float | None = None,
) -> None:  # fmt: skip
    """Add a probe that ended at `at`, Unix seconds, and at `mono`.

    `started_by`: who ran it, where the probe itself says that it is a recorded probe.
    """
    try:
        document = PROBED.dump_json(probed).decode()
    except ValueError as error:
        log.warning("a probe could not be kept: %s", error)
        return
    by = started_by or ("command" if probed.by == "command" else "daemon")
    history.add(
        ProbeRecord(
            at=at, boot_id=boot_id, result=probed.outcome, forced=probed.forced, started_by=by,
            engine=probed.plan.engine, gpu_seconds=probed.held_seconds * len(probed.gpus),
            document=document, folded=by == "daemon", mono=mono,
        )
    )  # fmt: skip


def probe_of(record: ProbeRecord) -> Probed | None:
    """Return the probe of a record; None, and a line in the log, where it cannot be a probe of ours."""
    try:
        probed = PROBED.validate_json(record.document)
    except ValidationError as error:
        log.warning("a probe of before is not understood: %s", error.errors()[0]["msg"])
        return None
    if wrong := wrong_in_probed(probed):
        log.warning("a probe of before does not fit together: %s", wrong)
        return None
    return probed


def boot_id(hardware: Hardware) -> str:
    """Return the boot id of the machine; empty where that is not known."""
    answer = hardware.host.ask(Question("BootId")).value
    return answer if isinstance(answer, str) else ""


def remember(
    history: History, clock: Clock, policy: ProbePolicy, terms: ProbeTerms | None = None,
    most: int = REMEMBERED, boot: str = "",
) -> ProbeMemory:  # fmt: skip
    """Return the memory that follows from the last `most` folded probes; counters begin at 0 again.

    With `terms` also comparable probes that no daemon has folded yet; a daemon folds such probes in its
    turns.
    """
    records = history.folded(most, added=terms is not None)
    if isinstance(records, Absent):
        log.warning("the history of probes cannot be read: %s", records)
        return ProbeMemory()
    memory = known = accepted(history, policy, min(TWICE * most, SAMPLED))
    for record in records:
        probed = probe_of(record)
        if probed is not None and not _difference(record, probed, terms):
            memory = fold_probe(memory, probed, _ended(record, clock, boot), policy)
            # What is usual follows from the sample, which has these probes too: none counts twice.
            watch = replace(memory.stragglers, references=known.stragglers.references)
            memory = replace(memory, stragglers=watch, usual=known.usual)
    seen = next((record.cursor for record in reversed(records) if record.folded), START)
    return replace(memory, runs={}, gpu_seconds=0.0, completed=0, seen=seen)


def accepted(history: History, policy: ProbePolicy, most: int = SAMPLED) -> ProbeMemory:
    """Return a memory with only the rates of accepted probes from the whole history."""
    records = history.sample(most)
    found = [probe_of(record) for record in (() if isinstance(records, Absent) else records)]
    memory = fold_probes(ProbeMemory(), [(probed, 0.0) for probed in found if probed is not None], policy)
    return ProbeMemory(stragglers=StragglerWatch(memory.stragglers.references), usual=memory.usual)


def recall(
    path: Path | None, hardware: Hardware, options: ProbeOptions, policy: ProbePolicy, expect: Expect,
    prober: RemoteProber | None = None,
) -> Component:  # fmt: skip
    """Return the probe's component of a daemon that starts now and runs no probe; only reads the history.

    Without a history it is not known whether this node can be probed: the component takes no part.
    """
    clock = hardware.clock
    if path is None or not path.exists():
        return Component(PROBE_NAME, ProbeMemory(), Ok(None, clock.now(), clock.mono()))
    terms = terms_of(hardware, options, expect, boot_id(hardware), prober, PROBER_SECONDS)
    history = History(path, clock, HistoryLimits(busy=BUSY_SECONDS), read_only=True)
    known = None if isinstance(terms, Absent) else terms
    memory = remember(history, clock, policy, known, WITHOUT_DAEMON, boot_id(hardware))
    now, mono = clock.now(), clock.mono()
    if memory.tried is None:
        return Component(PROBE_NAME, memory, Ok(None, now, mono))
    no_reading = ProbeReading(GateFacts((), (), None, mono), Stillness(), "", due=False, refusal=None)
    collector = probe_collector(options, policy, expect, memory)
    return after(
        Component(PROBE_NAME, memory), fold(collector, memory, Ok(no_reading, now, mono), 0.0, expect)
    )


class CommandProbes:
    """Probes that commands run beside a daemon, as it finds them in the history; for one thread."""

    def __init__(
        self, history: History, boot_id: str, expect: Expect, prober: RemoteProber | None = None
    ) -> None:
        self._history, self._boot_id, self._expect, self._prober = history, boot_id, expect, prober
        self._warned: dict[str, Absent | None] = {}
        self._unnoted: tuple[ProbeRecord, ...] = ()

    def read(
        self, hardware: Hardware, seen: HistoryCursor | None, options: ProbeOptions
    ) -> tuple[tuple[Ended, ...], HistoryCursor | None]:
        """Return comparable probes that were added after `seen`, in their order, and the last row looked at.

        While the terms of this daemon's own probe are not known, nothing is seen: no probe of its own can run
        either.
        """
        added = self._history.added(seen, ADDED)
        self._warn("the history of probes cannot be read", added if isinstance(added, Absent) else None)
        if isinstance(added, Absent):
            return (), seen
        records, newest = added
        terms = terms_of(hardware, options, self._expect, self._boot_id, self._prober) if records else None
        if isinstance(terms, Absent):
            return (), seen
        found = self._comparable(records, terms)
        for _, probed in found:
            log.info("probe %s taken over from another process", probed.outcome)
        ended = ((probed, _ended(record, hardware.clock, boot_id(hardware))) for record, probed in found)
        return tuple(ended), newest

    def _comparable(
        self, records: Iterable[ProbeRecord], terms: ProbeTerms | None
    ) -> list[tuple[ProbeRecord, Probed]]:
        """Return the probes that count; the history notes them, so that the next daemon skips them."""
        found = []
        for record, probed in ((record, probe_of(record)) for record in records):
            if probed is not None and (why := _difference(record, probed, terms)):
                log.info("a probe that another process ran does not count here: it ran %s", why)
            elif probed is not None:
                found.append((record, probed))
        folded = (*self._unnoted, *(record for record, _ in found))
        failed = self._history.fold(folded) if folded else None
        self._unnoted = () if failed is None else folded
        self._warn("which probes were taken over cannot be kept", failed)
        return found

    def _warn(self, what: str, failed: Absent | None) -> None:
        """Log a line when the fault of the history changes."""
        if failed is not None and failed != self._warned.get(what):
            log.warning("%s: %s", what, failed)
        self._warned[what] = failed


def _difference(record: ProbeRecord, probed: Probed, terms: ProbeTerms | None) -> str:
    """Return why a probe does not count, in words; a folded probe does."""
    return "" if record.folded or terms is None else why_not_comparable(probed, record.boot_id, terms)


def _ended(record: ProbeRecord, clock: Clock, boot: str) -> float:
    """Return when (monotonic seconds) a kept probe ended; for another boot only Unix time says it."""
    if record.mono is not None and "" != boot == record.boot_id:
        return min(record.mono, clock.mono())
    return clock.mono() - max(0.0, clock.now() - record.at)
