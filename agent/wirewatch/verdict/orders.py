"""An operator's orders about findings: acknowledge, suppress until a date, take that back. Pure."""

from dataclasses import replace

from wirewatch.core.types import Health, OperatorNote
from wirewatch.verdict.ledger import DAY, LOST, Entry, Ledger, Stage, Suppression, VerdictPolicy
from wirewatch.verdict.node import ACKNOWLEDGED, Standing, Verdict

LEAST = 4
"""Digits of an id that must be given."""


class OrderError(Exception):
    """An order that cannot be followed; the text is one line for the user."""


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


def acknowledge(ledger: Ledger, standing: Standing, said: OperatorNote, mono: float) -> Ledger:
    """End what is remembered (by probation) or probation, as repaired; OrderError while it is measured."""
    finding, entry = standing.finding, ledger.entries.get(standing.key)
    if standing.stage == ACKNOWLEDGED:
        raise OrderError(f"{standing.id} is acknowledged already")
    if finding.health is Health.OK:
        raise OrderError(f"{standing.id} is not there now: it is only suppressed")
    if entry is not None and entry.rule == LOST:
        return ledger.without_entry(entry.key)
    # Not the standing's stage: one that is suppressed may be on probation as well.
    if entry is not None and entry.stage is Stage.PROBATION:
        return ledger.with_entry(replace(entry, stage=Stage.REMEMBERED, acked=said))
    if finding.last or standing.measured is None:
        return ledger.with_entry(_over(standing, entry or _noted(standing, ledger.boot), said, mono))
    if entry is not None and standing.measured < Health.FAILED:
        return ledger.without_entry(entry.key)
    raise OrderError(
        f"{standing.id} is measured at this moment ({finding.rule}, {finding.subject}): repair it, "
        "or `wirewatch findings suppress` it until a date"
    )


def _noted(standing: Standing, boot: str) -> Entry:
    """An event that was never FAILED, to be remembered since an operator has acknowledged it."""
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
    return replace(entry, stage=stage, last=said.at, acked=said, absent=0.0, probes=0, asked=False, mono=mono)


def suppress(
    ledger: Ledger, standing: Standing, until: float, said: OperatorNote, policy: VerdictPolicy,
    mono: float | None = None, *, although_failed: bool = False,
) -> Ledger:  # fmt: skip
    """Take a finding, and what has its cause, out of the verdict until a date, unless it gets worse.

    `mono`: the monotonic second of the order, by which it ends in this boot; without it the date decides.
    Raises OrderError for a date that is past or too far, and for FAILED without `although_failed`.
    """
    if not until > said.at:
        raise OrderError("the date is past")
    if until - said.at > policy.longest_suppression:
        days = policy.longest_suppression / DAY
        raise OrderError(f"at most {days:g} days ([policy.verdict] longest_suppression)")
    if standing.finding.health is Health.FAILED and not although_failed:
        raise OrderError(
            f"{standing.id} is FAILED: jobs may start on this node while it is suppressed; give --yes if "
            "that is meant, or keep the node drained"
        )
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
