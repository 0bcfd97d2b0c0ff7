"""An operator's orders about findings: seen, repaired, suppressed until a date, and taken back. Pure.

`GateGuard` guards each order that lets jobs start where something FAILED kept them away.
"""

from dataclasses import dataclass, replace

from wirewatch.core.types import Health, OperatorNote
from wirewatch.core.words import first, span
from wirewatch.verdict.ledger import (
    DAY,
    LOST,
    Acknowledgement,
    Entry,
    Ledger,
    Stage,
    Suppression,
    VerdictPolicy,
    name_of,
)
from wirewatch.verdict.node import REPAIRED, Standing, Verdict

LEAST = 4
"""Digits of an id that must be given."""
SHOWN = 3
"""How many reasons a refusal names."""


class OrderError(Exception):
    """An order that cannot be followed; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class GateGuard:
    """An order that may open the gate for jobs, in words.

    `failed`: what is FAILED, and counts as that no more. `effect`: what the order does; `end`: how its effect
    ends, or is taken back. `doubts`: what else speaks against it.
    """

    failed: tuple[str, ...]
    effect: str
    end: str
    doubts: tuple[str, ...] = ()

    def guard(self, *, yes: bool) -> str:
        """The effect and its end, for the answer; OrderError without `yes` where it must be meant."""
        against = [*(f"{one} is FAILED" for one in self.failed), *self.doubts]
        if against and not yes:
            reasons = first(against, SHOWN)
            raise OrderError(
                f"{reasons}; with this order {self.effect}; {self.end}: if it is meant, order it with --yes"
            )
        return f"{self.effect}; {self.end}"


def gate(one: Standing, before: Verdict, after: Verdict, end: str) -> GateGuard:
    """The gate of an order about a finding, by the verdicts before it and after it."""
    left = {each.key: each for each in after.every if each.takes_part}
    failed = tuple(
        f"{each.finding.rule} {each.finding.subject}"
        for each in before.every
        if each.takes_part and each.finding.health is Health.FAILED
        if each.key not in left or left[each.key].finding.health is not Health.FAILED
    )
    now = left.get(one.key)
    counts = f"counts as {now.finding.health.name} ({now.stage})" if now else "does not count"
    start = "jobs may start" if after.job_ready else "no job may start"
    effect = f"{one.id} {counts}, and the node is {after.health.name}: {start}"
    return GateGuard(failed, effect, end)


def pick(verdict: Verdict, name: str) -> Standing:
    """Return the finding whose id begins so; OrderError for none, several, or too few digits."""
    if len(name) < LEAST:
        raise OrderError(f"give at least {LEAST} digits of the id: {name!r}")
    every = reversed(verdict.every)
    found = {one.id: one for one in every if one.id.startswith(name.lower())}
    if len(found) != 1:
        what = "no finding has" if not found else f"{len(found)} findings have"
        raise OrderError(f"{what} an id that begins with {name!r}; see `wirewatch findings list`")
    return next(iter(found.values()))


def acknowledge(ledger: Ledger, standing: Standing, said: OperatorNote) -> Ledger:
    """Keep that a person has seen the finding, and what has its cause; no verdict depends on it."""
    _must_be_there(standing)
    made = {
        one.key: Acknowledgement(
            one.finding.rule, one.finding.subject, one.collector, one.finding.health, said
        )
        for one in (standing, *standing.same_cause)
    }
    return replace(ledger, seen={**ledger.seen, **made})


def seen_words(one: Standing, verdict: Verdict) -> str:
    """Say what `ack` did; it changes nothing in the verdict, and its answer must say so."""
    counts = (
        f"counts as {one.finding.health.name} as before" if one.takes_part else "does not count, as before"
    )
    start = "jobs may start" if verdict.job_ready else "no job may start"
    return (
        f"{one.id} is acknowledged as seen: reminders of it stop. It {counts}, and {start}. "
        f"Once it is repaired, `wirewatch findings repaired {one.id}` says so"
    )


def forget(ledger: Ledger, standing: Standing) -> Ledger:
    """Take back that the finding was seen; OrderError where it was not."""
    if standing.key not in ledger.seen:
        raise OrderError(f"{standing.id} is not acknowledged")
    over = {one.key for one in (standing, *standing.same_cause)}
    return replace(ledger, seen={key: one for key, one in ledger.seen.items() if key not in over})


def repaired(ledger: Ledger, standing: Standing, said: OperatorNote, mono: float) -> Ledger:
    """End a latch (by probation) or probation, as repaired; OrderError while the fault is measured."""
    _must_be_there(standing)
    finding, entry = standing.finding, ledger.entries.get(standing.key)
    if entry is not None and entry.rule == LOST:
        return ledger.without_entry(entry.key)
    # Not the standing's stage: one that is suppressed may be on probation as well.
    if entry is not None and entry.stage is Stage.PROBATION:
        return ledger.with_entry(replace(entry, stage=Stage.REMEMBERED, repaired=said, by_ack=False))
    if finding.last or standing.measured is None:
        return ledger.with_entry(_over(standing, entry or _noted(standing, ledger.boot), said, mono))
    if entry is not None and standing.measured < Health.FAILED:
        return ledger.without_entry(entry.key)
    raise OrderError(
        f"{standing.id} is measured at this moment ({finding.rule}, {finding.subject}): repair it, "
        "or `wirewatch findings suppress` it until a date"
    )


def broken(ledger: Ledger, name: str) -> Ledger:
    """Take back that a finding whose id begins with `name` was repaired: it counts as it did before.

    Raises OrderError where nobody has said so.
    """
    found = [
        one for key, one in ledger.entries.items() if one.repaired and name_of(key).startswith(name.lower())
    ]
    if len(name) < LEAST or len(found) != 1:
        raise OrderError(f"nobody has said of one finding {name!r} that it is repaired")
    (entry,) = found
    if entry.health is not Health.FAILED:
        # It was remembered for that word alone, and is found anew for as long as it is reported.
        return ledger.without_entry(entry.key)
    held = replace(entry, stage=Stage.LATCHED, repaired=None, by_ack=False, absent=0.0, probes=0, mono=None)
    return ledger.with_entry(held)


def end_of_repair(after: Ledger, one: Standing, policy: VerdictPolicy) -> str:
    """Return how the order `repaired` ends, or is taken back, in words; `after`: the ledger with it."""
    entry = after.entries.get(one.key)
    if entry is None:
        return "it is forgotten, and counts again if it is found again"
    undo = f"`wirewatch findings repaired {one.id} --undo` takes this back"
    if entry.stage is not Stage.PROBATION:
        return f"it counts again if it comes back; {undo}"
    wait = f"probation ends after {span(policy.probation)} without it"
    return f"{wait}, and it is FAILED at once if it comes back; {undo}"


def _must_be_there(standing: Standing) -> None:
    if standing.stage == REPAIRED:
        raise OrderError(f"{standing.id} is repaired already, as an operator has said")
    if standing.finding.health is Health.OK:
        raise OrderError(f"{standing.id} is not there now: it is only suppressed")


def _noted(standing: Standing, boot: str) -> Entry:
    """An event that was never FAILED, to be remembered since an operator says that it is repaired."""
    finding = standing.finding
    return Entry(
        finding.rule, finding.subject, standing.collector, finding.health, Stage.REMEMBERED,
        finding.evidence, finding.action, finding.since, finding.last, finding.last, boot=boot,
        stamp=finding.stamp, newest=finding.stamp,
    )  # fmt: skip


def _over(standing: Standing, entry: Entry, said: OperatorNote, mono: float) -> Entry:
    finding = standing.finding
    stage = Stage.PROBATION if entry.health is Health.FAILED else Stage.REMEMBERED
    if standing.measured is not None:
        entry = replace(entry, event=finding.last, stamp=finding.stamp, newest=finding.stamp)
    return replace(
        entry, stage=stage, last=said.at, repaired=said, by_ack=False, absent=0.0, probes=0, asked=False,
        mono=mono,
    )  # fmt: skip


def suppress(
    ledger: Ledger, standing: Standing, until: float, said: OperatorNote, policy: VerdictPolicy,
    mono: float | None = None,
) -> Ledger:  # fmt: skip
    """Take a finding, and what has its cause, out of the verdict until a date, unless it gets worse.

    `mono`: the monotonic second of the order, by which it ends in this boot; without it the date decides.
    Raises OrderError for a date that is past or too far.
    """
    if not until > said.at:
        raise OrderError("the date is past")
    if until - said.at > policy.longest_suppression:
        days = policy.longest_suppression / DAY
        raise OrderError(f"at most {days:g} days ([policy.verdict] longest_suppression)")
    made = {}
    for one in (standing, *standing.same_cause):
        found = one.finding
        made[one.key] = Suppression(
            found.rule, found.subject, found.health, until, said, ledger.boot, mono, mono is not None
        )
    ended = {key: other for key, other in ledger.ended.items() if key not in made}
    return replace(ledger, suppressions={**ledger.suppressions, **made}, ended=ended)


def unsuppress(ledger: Ledger, standing: Standing) -> Ledger:
    """Let the finding take part again; OrderError where it is not suppressed."""
    if standing.key not in ledger.suppressions:
        raise OrderError(f"{standing.id} is not suppressed")
    over = {one.key for one in (standing, *standing.same_cause)}
    kept = {key: one for key, one in ledger.suppressions.items() if key not in over}
    return replace(ledger, suppressions=kept)
