"""Folding probes into what is believed: confirmed, and held while none can run. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from wirewatch.core.collector import UNKNOWN, Rule
from wirewatch.core.probe import Probed
from wirewatch.core.statistics import Streak
from wirewatch.core.types import Finding, Health, Ok, Subject
from wirewatch.probe.findings import PROBE_RULES, probe_findings
from wirewatch.probe.gate import Reason
from wirewatch.probe.measurement import Measured, beside_usual, learn_collectives, measure
from wirewatch.probe.model import (
    Key,
    ProbeFinding,
    ProbeMemory,
    ProbeOptions,
    ProbeOutline,
    ProbePolicy,
    ProbeReading,
    spend,
)
from wirewatch.probe.slowparts import STRAGGLER_RULES, straggler_findings
from wirewatch.verdict.straggler.naming import (
    StragglerWatch,
    fold_stragglers,
)
from wirewatch.verdict.straggler.signals import signals

BROKEN = frozenset({"failed", "timeout", "garbage", "stuck", "out_of_memory", "no_engine"})
"""Outcomes that say nothing about wires, only that probing does not work here."""
KEPT = 50
"""Probes that are shown in short."""
RULES = (*PROBE_RULES, Rule("probe.failed", UNKNOWN), *STRAGGLER_RULES)


def judge(
    options: ProbeOptions, memory: ProbeMemory, ok: Ok[ProbeReading], policy: ProbePolicy
) -> tuple[ProbeMemory, tuple[Finding, ...]]:
    """The memory after one turn, and what is wrong."""
    reading = ok.value
    new = replace(fold_probes(memory, reading.others, policy), seen=reading.seen)
    new = replace(new, still=reading.still, refusal=reading.refusal, engine=reading.engine)
    if reading.late and reading.refusal is not None:
        new = replace(new, late=(ok.mono, reading.refusal))
    new = _count_skip(options, new, ok)
    if reading.probed is not None:
        new = fold_probe(new, reading.probed, ok.mono, policy)
    until = None if new.last_mono is None else new.last_mono + options.fresh
    new = replace(new, fresh=until is not None and ok.mono <= until, fresh_until=until)
    if reading.refusal is not None and reading.refusal.reason is Reason.MIG:
        # The wires are in other use now: what was found says nothing about them.
        watch = StragglerWatch(new.stragglers.references)
        new = replace(new, held=(), streaks={}, failures=0, stragglers=watch)
    return new, (*new.held, *_broken(new, policy))


def fold_probes(
    memory: ProbeMemory, probes: Iterable[tuple[Probed, float]], policy: ProbePolicy
) -> ProbeMemory:
    """The memory after several probes, each with when it ended."""
    for probed, mono in probes:
        memory = fold_probe(memory, probed, mono, policy)
    return memory


def fold_probe(memory: ProbeMemory, probed: Probed, mono: float, policy: ProbePolicy) -> ProbeMemory:
    """The memory after a probe that ended at `mono`; one that was forced changes no verdict."""
    measured = beside_usual(probed, measure(probed), memory.usual, policy.learn)
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
        past=(*memory.past[1 - KEPT :], _outline(probed, measured)),
    )
    if probed.forced:
        return counted
    if probed.outcome != "ok":
        return replace(counted, failures=counted.failures + (probed.outcome in BROKEN))
    found = probe_findings(probed, measured, policy)
    streaks, findings = _confirm(memory, found, probed.at, policy)
    watch = fold_stragglers(
        memory.stragglers, signals(probed), probed.at, policy.straggler, accepted=not found
    )
    unconfirmed = any(not b.sure and streaks[_key(b)].count < policy.confirm for b in found)
    nothing = not found and not watch.looks
    usual = learn_collectives(memory.usual, probed, measured) if nothing else memory.usual
    return replace(
        counted, last=probed, last_mono=mono, measured=measured,
        failures=0, streaks=streaks, stragglers=watch, usual=usual,
        held=(*findings, *straggler_findings(watch, probed, policy.straggler)),
        unconfirmed=unconfirmed or watch.unsure(policy.straggler),
        completed=counted.completed + 1, clean=bool(probed.gpus) and nothing,
    )  # fmt: skip


def confirming(memory: ProbeMemory) -> bool:
    """Whether the newest probe found something that another would confirm or clear."""
    return memory.unconfirmed and memory.tried is memory.last


def _count_skip(options: ProbeOptions, memory: ProbeMemory, ok: Ok[ProbeReading]) -> ProbeMemory:
    """Count a probe that was due and not run: each reason once in the time between probes."""
    refusal = ok.value.refusal
    if refusal is None or not ok.value.due:
        return memory
    reason = refusal.reason
    if reason in memory.skipped and ok.mono - memory.skipped[reason] < options.every:
        return memory
    skips = {**memory.skips, reason: memory.skips.get(reason, 0) + 1}
    return replace(memory, skips=skips, skipped={**memory.skipped, reason: ok.mono})


def _outline(probed: Probed, measured: Iterable[Measured]) -> ProbeOutline:
    ratios = [one.ratio for one in measured if one.ratio is not None]
    return ProbeOutline(
        probed.at, probed.outcome, probed.why, probed.forced, probed.plan.engine, probed.seconds,
        min(ratios, default=None),
    )  # fmt: skip


def _confirm(
    memory: ProbeMemory, found: tuple[ProbeFinding, ...], at: float, policy: ProbePolicy
) -> tuple[dict[Key, Streak], tuple[Finding, ...]]:
    """A finding is DEGRADED until as many probes in a row have found it as it takes to confirm it."""
    streaks = {_key(b): memory.streaks.get(_key(b), Streak()) for b in found}
    streaks = {key: streak.see(present=True) for key, streak in streaks.items()}
    began = {finding.key: finding.since for finding in memory.held}
    findings = []
    for finding in found:
        seen = streaks[_key(finding)].count
        believed = finding.sure or seen >= policy.confirm
        health = finding.worst if believed else min(finding.worst, Health.DEGRADED)
        said = finding.evidence if seen == 1 else f"{finding.evidence} ({seen} probes in a row)"
        since = began.get((finding.rule, finding.subject), at)
        findings.append(Finding(finding.rule, health, finding.subject, said, finding.action, since))
    return streaks, tuple(findings)


def _key(finding: ProbeFinding) -> Key:
    return (finding.rule, finding.subject, finding.worst)


def _broken(memory: ProbeMemory, policy: ProbePolicy) -> tuple[Finding, ...]:
    if memory.failures < policy.failures:
        return ()
    last = next((f"{p.outcome}: {p.why}" for p in reversed(memory.past) if p.outcome in BROKEN), "not kept")
    return (
        Finding(
            "probe.failed", Health.UNKNOWN, Subject(),
            f"{memory.failures} probes in a row failed, the last one: {last}",
            "jobs may fail in the same way: run `wirewatch probe` on the idle node and read its error",
        ),
    )  # fmt: skip
