"""One step of the ledger for each state of the node. Pure.

Silence is no verdict: a fault that is not seen any more is held, then on probation, then remembered. The
seconds count only while the part in which it was seen is read.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from wirewatch.core.collector import NodeState
from wirewatch.core.types import Finding, Health, Subject
from wirewatch.verdict.ledger import (
    LOST,
    Acknowledgement,
    Entry,
    Key,
    Ledger,
    Now,
    Stage,
    Suppression,
    VerdictPolicy,
    key_of_finding,
)
from wirewatch.verdict.observation import (
    XID_RECOVERY,
    Names,
    asks_for_reset,
    belonging_gpus,
    cards,
    found,
    gates,
    gone_for_good,
    gpu_indexes,
    is_current,
    needs_nothing,
    observed_at,
    read_at,
)

OVER = frozenset({Stage.PROBATION, Stage.REMEMBERED})
_WORST = tuple(Stage)
DRIFT = 600.0
"""Seconds by which the Unix time of an event in a file of wirewatch 0.1 may differ from what it is now."""


@dataclass(frozen=True, slots=True)
class _LedgerStep:
    state: NodeState
    now: Now
    policy: VerdictPolicy
    ledger: Ledger

    def move(self, entry: Entry | None, live: tuple[str, Finding] | None) -> Entry | None:
        """Move one fault on; None for nothing to remember."""
        if live is None:
            return None if entry is None else self._unseen(entry)
        collector, finding = live
        if finding.health is Health.UNKNOWN:
            # What is not known yet neither renews what was found before nor ends it.
            return None if entry is None else self._count(entry, None)
        if entry is None:
            return self._new(collector, finding)
        if self._other_boot(entry):
            # An event that is reported now is of this boot: it cannot be what was over in another.
            entry = replace(entry, event=0.0, last=0.0, stamp=None, newest=None)
        if covered(entry, finding):
            # Kept for as long as it is reported: else what is over would be new again.
            stamp = finding.stamp if entry.stamp is None else entry.stamp
            known = replace(entry, event=finding.last, stamp=stamp)
            return self._unseen(known) or known
        if self._ended(entry, finding):
            over = replace(entry, subject=finding.subject, evidence=finding.evidence)
            return self._probation(replace(over, event=finding.last, stamp=finding.stamp))
        return self._seen(entry, collector, finding)

    def _ended(self, entry: Entry, finding: Finding) -> bool:
        """Tell whether an event that is still reported is over: milder now and not new, or reset since."""
        if not finding.last or entry.stage in OVER:
            return False
        if finding.health < entry.health and _knows(entry.stamp, entry.event + DRIFT, finding):
            return True
        return _knows(entry.newest, entry.last, finding) and self._was_reset(entry)

    def _new(self, collector: str, finding: Finding) -> Entry | None:
        flaps = flapping(self.ledger.occurrences.get(key_of_finding(finding), ()), self.policy)
        if not (finding.health is Health.FAILED or flaps) or self.policy.forgets(finding.rule):
            return None
        evidence = f"{finding.evidence}; {flaps}" if flaps else finding.evidence
        return Entry(
            finding.rule, finding.subject, collector, Health.FAILED, Stage.ACTIVE, evidence,
            finding.action, finding.since, finding.last or self.now.at, finding.last,
            boot=self.ledger.boot, asked=self._asks(finding.subject),
            mono=self.now.mono if finding.last else None, stamp=_stamp(finding), newest=_stamp(finding),
        )  # fmt: skip

    def _seen(self, entry: Entry, collector: str, finding: Finding) -> Entry | None:
        """The fault is found again, or still; once FAILED, it stays FAILED at any health that is found."""
        if max(entry.health, finding.health) < Health.FAILED or self.policy.forgets(finding.rule):
            return None
        again = entry.stage in OVER
        of_now = is_current(collector, self.now.probes.complete)
        return replace(
            entry, subject=finding.subject, collector=collector, stage=Stage.ACTIVE, health=Health.FAILED,
            evidence=finding.evidence, action=finding.action, last=finding.last or self.now.at,
            event=finding.last if finding.health is Health.FAILED else entry.event,
            times=entry.times + again, boot=self.ledger.boot if of_now else entry.boot, absent=0.0, probes=0,
            since=finding.since if again else entry.since,
            asked=self._asks(finding.subject) or (entry.asked and not again), repaired=None,
            mono=self.now.mono if finding.last else None, newest=_stamp(finding),
            stamp=_stamp(finding) if finding.health is Health.FAILED else entry.stamp,
        )  # fmt: skip

    def _unseen(self, entry: Entry) -> Entry | None:
        if entry.rule == LOST:
            return entry
        if self.policy.forgets(entry.rule):
            return None
        looked = observed_at(self.state, entry, self.now.probes.complete)
        if gone_for_good(self.state, entry.subject.uuid, self.ledger.gpus):
            if entry.stage not in OVER:
                return self._probation(entry)
            looked = read_at(self.state, entry.collector)
        counted = self._count(entry, looked)
        if looked is None:
            return counted
        if entry.stage in OVER:
            return self._watched(counted)
        taken_back = entry.rule == XID_RECOVERY and entry.stage is Stage.ACTIVE and entry.mono is not None
        return self._probation(counted) if taken_back else self._gone(counted)

    def _count(self, entry: Entry, looked: float | None) -> Entry:
        """Seconds and probes without the fault; a probe that finds anything starts the count again."""
        probes = entry.probes
        if self.now.probes.complete != self.ledger.complete:
            probes = probes + (looked is not None) if self.now.probes.clean else 0
        asked = entry.asked or self._asks(entry.subject)
        if looked is None:
            return replace(entry, probes=probes, asked=asked, mono=None)
        passed = 0.0 if entry.mono is None else max(0.0, looked - entry.mono)
        index = gpu_indexes(self.state).get(entry.subject.uuid, entry.subject.gpu)
        return replace(
            entry, subject=replace(entry.subject, gpu=index), absent=entry.absent + passed, probes=probes,
            asked=asked, mono=looked,
        )  # fmt: skip

    def _gone(self, entry: Entry) -> Entry:
        """A fault that is not found: a reboot ends it, for some rules a reset, for others time."""
        if self._other_boot(entry):
            return self._probation(entry)
        settled = entry.absent >= self.policy.settle
        if self.policy.latches(entry.rule) or (entry.times >= self.policy.latch_after and settled):
            return self._probation(entry) if self._was_reset(entry) else replace(entry, stage=Stage.LATCHED)
        return self._probation(entry) if settled else entry

    def _was_reset(self, entry: Entry) -> bool:
        """The driver asked for a reset of this GPU, and says that it needs none any more."""
        return entry.asked and needs_nothing(self.state, entry.subject.uuid)

    def _watched(self, entry: Entry) -> Entry | None:
        policy = self.policy
        if entry.absent >= policy.recurrence:
            return None
        proven = entry.probes >= policy.clean_probes or not self.now.probes.watched
        if entry.absent >= policy.probation and proven:
            return replace(entry, stage=Stage.REMEMBERED)
        return entry

    def _probation(self, entry: Entry) -> Entry:
        looked = read_at(self.state, entry.collector)
        return replace(
            entry, stage=Stage.PROBATION, absent=0.0, probes=0, last=self.now.at, asked=False, mono=looked
        )

    def _other_boot(self, entry: Entry) -> bool:
        return "" not in {entry.boot, self.ledger.boot} and entry.boot != self.ledger.boot

    def _asks(self, subject: Subject) -> bool:
        return asks_for_reset(self.state, subject.uuid)


Occurrences = Mapping[Key, tuple[float, ...]]
"""When (monotonic seconds) each fault came, newest last; what the window has left."""


def step(ledger: Ledger, state: NodeState, now: Now, policy: VerdictPolicy) -> Ledger:
    """The ledger after one more state."""
    here = {**ledger.cards, **cards(state)}
    live = _findings_now(state, here)
    faults = {key: one for key, one in live.items() if one[1].health is not Health.UNKNOWN}
    came = occurrences(ledger.occurrences, ledger.present, faults, now.mono, policy)
    current = _LedgerStep(state, now, policy, replace(ledger, occurrences=came))
    gating = {key: one for key, one in ledger.entries.items() if gates(state, one.collector)}
    known = _renamed(gating, Names(here, state))
    moved = {key: current.move(known.get(key), live.get(key)) for key in {**known, **live}}
    entries = {key: entry for key, entry in moved.items() if entry is not None}
    suppressions, ended = _suppressions(ledger, now)
    seen = _still_there(ledger.seen, state, entries, here)
    return replace(
        ledger, gpus=max(ledger.gpus, len(belonging_gpus(state))), entries=entries, suppressions=suppressions,
        ended=ended, seen=seen, complete=now.probes.complete, cards=here, occurrences=came,
        present=frozenset(faults),
    )  # fmt: skip


def covered(entry: Entry, finding: Finding) -> bool:
    """Tell whether the finding's event is over: ordered as repaired, or known as over.

    A later event is new, whatever the clock says. Entries of wirewatch 0.1 have no stamp: Unix time decides.
    """
    if not finding.last or not entry.event or entry.stage not in OVER:
        return False
    if entry.stamp is None:
        return finding.last == entry.event or (entry.mono is None and _over_in(entry, finding.last))
    return finding.stamp <= entry.stamp


def occurrences(
    before: Occurrences, present: Collection[Key], live: Mapping[Key, tuple[str, Finding]], mono: float,
    policy: VerdictPolicy,
) -> Occurrences:  # fmt: skip
    """Return `before` within the window, with `mono` for each `live` fault that was not `present` before."""
    made = {}
    for key in {**before, **live}:
        kept = tuple(at for at in before.get(key, ()) if mono - at < policy.flap_window)
        new = (mono,) if key in live and key not in present and policy.flaps_count(key[0]) else ()
        if kept or new:
            made[key] = (*kept, *new)[-policy.flaps :]
    return made


def flapping(times: tuple[float, ...], policy: VerdictPolicy) -> str:
    """The words that it came so often that it counts as confirmed; empty where it did not."""
    if len(times) < policy.flaps:
        return ""
    return f"came and went {len(times)} times within {policy.flap_window / 60:g} min"


def _suppressions(ledger: Ledger, now: Now) -> tuple[dict[Key, Suppression], dict[Key, Suppression]]:
    """Return the suppressions that hold now, and suppressions ended by a clock that may be wrong.

    A suppression given in this boot ends by the monotonic clock. Others end by the date, and are kept until
    so much time has surely passed.
    """
    hold: dict[Key, Suppression] = {}
    ended: dict[Key, Suppression] = {}
    for key, known in {**ledger.ended, **ledger.suppressions}.items():
        here = known.boot == ledger.boot
        mono = known.mono if here and known.mono is not None else now.mono
        one = replace(known, boot=ledger.boot, mono=mono, unbroken=here and known.unbroken)
        if now.mono - mono < one.until - one.said.at:
            (hold if one.unbroken or now.at < one.until else ended)[key] = one
    return hold, ended


def _still_there(
    seen: Mapping[Key, Acknowledgement],
    state: NodeState,
    entries: Mapping[Key, Entry],
    known: Mapping[str, Subject],
) -> dict[Key, Acknowledgement]:
    """Return acknowledgements of findings still found or held, or whose collector does not read."""
    if not seen:
        return {}
    there = {key_of_finding(finding) for _, finding in found(state, known)}
    there |= {key for key, entry in entries.items() if entry.stage is not Stage.REMEMBERED}
    return {key: one for key, one in seen.items() if key in there or read_at(state, one.collector) is None}


def _stamp(finding: Finding) -> float | None:
    return finding.stamp if finding.last else None


def _knows(stamp: float | None, at: float, finding: Finding) -> bool:
    """Tell whether the event of a finding is no newer than a stamp, or than `at` where no stamp is known."""
    return finding.last <= at if stamp is None else finding.stamp <= stamp


def _renamed(entries: Mapping[Key, Entry], names: Names) -> Mapping[Key, Entry]:
    """Return the entries by lasting names; of two the worse, unless the other knows the event as over."""
    made = dict(entries)
    for key, entry in entries.items():
        part = names.of(entry.rule, entry.subject)
        if part is not entry.subject:
            del made[key]
            renamed = replace(entry, subject=part)
            other = made.get(renamed.key)
            worse = other is not None and _WORST.index(renamed.stage) < _WORST.index(other.stage)
            if other is None or (worse and not _knows_as_over(other, renamed)):
                made[renamed.key] = renamed
    return made


def _knows_as_over(entry: Entry, other: Entry) -> bool:
    """Tell whether the entry is of before a restart, and says of another's event that it was over by then."""
    if entry.stage not in OVER or entry.mono is not None:
        return False
    if entry.stamp is None or other.stamp is None:
        return _over_in(entry, other.event)
    return entry.boot == other.boot and other.stamp <= entry.stamp


def _over_in(entry: Entry, event: float) -> bool:
    """The same by Unix time, for an entry of wirewatch 0.1."""
    until = entry.repaired.at if entry.repaired else entry.last
    return 0 < event <= until


def _findings_now(state: NodeState, known: Mapping[str, Subject]) -> dict[Key, tuple[str, Finding]]:
    """Return what collectors that gate find now, with their names; of two with one key the worse."""
    live: dict[Key, tuple[str, Finding]] = {}
    for name, finding in found(state, known):
        if not gates(state, name):
            continue
        key = key_of_finding(finding)
        if key not in live or live[key][1].health < finding.health:
            live[key] = (name, finding)
    return live
