"""Folding probes into what is believed: confirmed, and held while none can run. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from wirewatch.core.probe import Probed
from wirewatch.core.statistics import Streak
from wirewatch.core.types import Finding, Health, Ok, Subject
from wirewatch.probes import stragglers
from wirewatch.probes.budget import spend
from wirewatch.probes.faults import Breach, breaches
from wirewatch.probes.gate import Reason
from wirewatch.probes.measure import Measured, measure
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.probes.values import Key, Memory, Past, Reading
from wirewatch.verdict.straggler.naming import Watch, look
from wirewatch.verdict.straggler.signals import signals

BROKEN = frozenset({"failed", "timeout", "garbage", "stuck", "out_of_memory", "no_engine"})
"""Outcomes that say nothing about wires, but that probing does not work here."""
KEPT = 50
"""Probes that are shown in short."""


def judge(
    options: ProbeOptions, memory: Memory, ok: Ok[Reading], policy: ProbePolicy
) -> tuple[Memory, tuple[Finding, ...]]:
    """The memory after one turn, and what is wrong."""
    reading = ok.value
    new = replace(take_all(memory, reading.others, policy), seen=reading.seen)
    new = replace(new, still=reading.still, refusal=reading.refusal, engine=reading.engine)
    if reading.late and reading.refusal is not None:
        new = replace(new, late=(ok.mono, reading.refusal))
    new = _skip(options, new, ok)
    if reading.probed is not None:
        new = take(new, reading.probed, ok.mono, policy)
    until = None if new.last_mono is None else new.last_mono + options.fresh
    new = replace(new, fresh=until is not None and ok.mono <= until, fresh_until=until)
    if reading.refusal is not None and reading.refusal.reason is Reason.MIG:
        # Somebody has made other use of the wires: what was found says nothing about them now.
        watch = Watch(new.stragglers.references)
        new = replace(new, held=(), streaks={}, failures=0, stragglers=watch)
    return new, (*new.held, *_broken(new, policy))


def _skip(options: ProbeOptions, memory: Memory, ok: Ok[Reading]) -> Memory:
    """Count a probe that was due and not run: each reason once in the time between probes."""
    refusal = ok.value.refusal
    if refusal is None or not ok.value.due:
        return memory
    reason = refusal.reason
    if reason in memory.skipped and ok.mono - memory.skipped[reason] < options.every:
        return memory
    skips = {**memory.skips, reason: memory.skips.get(reason, 0) + 1}
    return replace(memory, skips=skips, skipped={**memory.skipped, reason: ok.mono})


def take_all(memory: Memory, probes: Iterable[tuple[Probed, float]], policy: ProbePolicy) -> Memory:
    """The memory after several probes, each with when it ended."""
    for probed, mono in probes:
        memory = take(memory, probed, mono, policy)
    return memory


def take(memory: Memory, probed: Probed, mono: float, policy: ProbePolicy) -> Memory:
    """The memory after a probe that ended at `mono`; one that was forced changes no verdict."""
    measured = measure(probed)
    held = probed.held_seconds * len(probed.gpus)
    counted = replace(
        memory,
        tried=probed,
        tried_mono=mono,
        skipped={},
        late=None,
        runs={**memory.runs, probed.outcome: memory.runs.get(probed.outcome, 0) + 1},
        gpu_seconds=memory.gpu_seconds + held,
        spent=spend(memory.spent, mono, held),
        past=(*memory.past[1 - KEPT :], _in_short(probed, measured)),
    )
    if probed.forced:
        return counted
    if probed.outcome != "ok":
        return replace(counted, failures=counted.failures + (probed.outcome in BROKEN))
    found = breaches(probed, measured, policy)
    streaks, findings = _confirm(memory, found, probed.at, policy)
    watch = look(memory.stragglers, signals(probed), probed.at, policy.straggler, accepted=not found)
    unconfirmed = any(not b.sure and streaks[_key(b)].count < policy.confirm for b in found)
    nothing = not found and not watch.looks
    return replace(
        counted, last=probed, last_mono=mono, measured=measured,
        failures=0, streaks=streaks, stragglers=watch,
        held=(*findings, *stragglers.straggler_findings(watch, probed, policy.straggler)),
        unconfirmed=unconfirmed or watch.unsure(policy.straggler),
        completed=counted.completed + 1, clean=bool(probed.gpus) and nothing,
    )  # fmt: skip


def _in_short(probed: Probed, measured: Iterable[Measured]) -> Past:
    ratios = [one.ratio for one in measured if one.ratio is not None]
    return Past(
        probed.at, probed.outcome, probed.why, probed.forced, probed.plan.engine, probed.seconds,
        min(ratios, default=None),
    )  # fmt: skip


def _confirm(
    memory: Memory, found: tuple[Breach, ...], at: float, policy: ProbePolicy
) -> tuple[dict[Key, Streak], tuple[Finding, ...]]:
    """A breach is DEGRADED until as many probes in a row have found it as make it what it is."""
    streaks = {_key(b): memory.streaks.get(_key(b), Streak()) for b in found}
    streaks = {key: streak.see(present=True) for key, streak in streaks.items()}
    began = {finding.key: finding.since for finding in memory.held}
    findings = []
    for breach in found:
        seen = streaks[_key(breach)].count
        believed = breach.sure or seen >= policy.confirm
        health = breach.worst if believed else min(breach.worst, Health.DEGRADED)
        said = breach.evidence if seen == 1 else f"{breach.evidence} ({seen} probes in a row)"
        since = began.get((breach.rule, breach.subject), at)
        findings.append(Finding(breach.rule, health, breach.subject, said, breach.action, since))
    return streaks, tuple(findings)


def _key(breach: Breach) -> Key:
    return (breach.rule, breach.subject, breach.worst)


def _broken(memory: Memory, policy: ProbePolicy) -> tuple[Finding, ...]:
    if memory.failures < policy.failures:
        return ()
    last = next((f"{p.outcome}: {p.why}" for p in reversed(memory.past) if p.outcome in BROKEN), "not kept")
    return (
        Finding(
            "probe.failed", Health.UNKNOWN, Subject(),
            f"{memory.failures} probes in a row could not be done, the last: {last}",
            "jobs may fail in the same way: try `wirewatch probe` on the idle node, and read what it says",
        ),
    )  # fmt: skip


def confirming(memory: Memory) -> bool:
    """Whether the newest probe found something that another would confirm or clear."""
    return memory.unconfirmed and memory.tried is memory.last
