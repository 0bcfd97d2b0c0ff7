"""Fold probes into findings: confirmed, and held while no probe can run. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from wirewatch.core import words
from wirewatch.core.collector import CONFIRMED, STARTING, UNKNOWN, Rule
from wirewatch.core.nvml import CLOCK_REASONS
from wirewatch.core.probe import Clocks, PastProbe, Probed
from wirewatch.core.statistics import Streak, streaks
from wirewatch.core.types import Finding, Health, Ok, Subject, value_or
from wirewatch.probe.findings import PROBE_RULES, probe_findings
from wirewatch.probe.gate import SkipReason
from wirewatch.probe.hostlinks import HOST, host_findings, shares, unjudged
from wirewatch.probe.measurement import Measured, beside_usual, learn_collectives, measure
from wirewatch.probe.model import (
    Key,
    ProbeFinding,
    ProbeMemory,
    ProbeOptions,
    ProbePolicy,
    ProbeReading,
    spend,
)
from wirewatch.verdict.straggler.naming import (
    ConfirmedStraggler,
    SlowNode,
    SlowPart,
    StragglerWatch,
    fold_stragglers,
)
from wirewatch.verdict.straggler.signals import Resource, StragglerPolicy, Unit, signals

BROKEN = frozenset({"failed", "timeout", "garbage", "stuck", "out_of_memory", "no_engine"})
"""Outcomes that say nothing about wires, only that probing does not work here."""
KEPT = 50
"""Probes kept in short form."""

NODE = "straggler.node"
HIDDEN = "the hypervisor hides its way to the host, which may be narrower by design"
FAR = 0.5
"""Loss up to which a socket that the hypervisor hides may explain a slow path to the host."""
UNJUDGED = "; the newest probe could not judge it: `wirewatch probe --explain` says why"
HARMLESS = frozenset({"gpu_idle"})
"""Reasons that hold back a GPU between two pieces of work."""
WHAT: Mapping[Resource, str] = {
    Resource.COMPUTE: "matrix products",
    Resource.MEMORY: "copies within its memory",
    Resource.SOURCE: "copies from it to its peers",
    Resource.DESTINATION: "copies from its peers to it",
    Resource.PAIR: "copies",
    Resource.LINK: "a link",
    Resource.HOST: "copies to and from the host",
}
ALL: Mapping[Resource, str] = {
    Resource.COMPUTE: "matrix products on all GPUs",
    Resource.MEMORY: "copies within the memory of all GPUs",
    Resource.PAIR: "copies between all pairs of GPUs",
    Resource.HOST: "copies between all GPUs and the host",
}
DO: Mapping[Resource, str] = {
    Resource.COMPUTE: "look at its clocks, power and temperature (`nvidia-smi -q -d PERFORMANCE,CLOCK`), "
    "then for another process on it; if nothing explains it, return the GPU: `wirewatch findings show` has "
    "what the vendor asks for",
    Resource.MEMORY: "look at its ECC counters, remapped rows and memory temperature; if nothing explains "
    "it, return the GPU: `wirewatch findings show` has what the vendor asks for",
    Resource.SOURCE: "look at its NVLink state, speed and errors, and at PCIe where there is no NVLink",
    Resource.DESTINATION: "look at its NVLink state, speed and errors, and at PCIe where there is no NVLink",
    Resource.PAIR: "look at the links between the two, and at peer access (`nvidia-smi topo -p2p r`)",
    Resource.LINK: "look at this link's errors and state",
    Resource.HOST: "look at its PCIe link (`wirewatch check`: width, generation, replays) and the riser; at "
    "the IOMMU; and whether the prober may use the CPUs near it: `wirewatch probe --explain` has each way",
}  # fmt: skip
DO_NODE = "no single part is at fault: check what all GPUs share: power limits, cooling, clocks, the driver"
STRAGGLER_RULES = (
    *(Rule(f"straggler.{part.value}", CONFIRMED, "Straggler") for part in DO if part is not Resource.LINK),
    Rule(NODE, STARTING, "Straggler"),
)
RULES = (*PROBE_RULES, HOST, Rule("probe.failed", UNKNOWN), *STRAGGLER_RULES)


def judge(
    options: ProbeOptions, memory: ProbeMemory, ok: Ok[ProbeReading], policy: ProbePolicy
) -> tuple[ProbeMemory, tuple[Finding, ...]]:
    """Return the memory after one turn, and the findings."""
    reading = ok.value
    new = replace(fold_probes(memory, reading.others, policy), seen=reading.seen)
    new = fold_gate(options, new, ok)
    if reading.probed is not None:
        new = fold_probe(new, reading.probed, ok.mono, policy)
    until = None if new.last_mono is None else new.last_mono + options.fresh
    new = replace(new, fresh=until is not None and ok.mono <= until, fresh_until=until)
    if reading.refusal is not None and reading.refusal.reason is SkipReason.MIG:
        # The wires are in other use now: what was found says nothing about them.
        watch = StragglerWatch(new.stragglers.references)
        new = replace(new, held=(), streaks={}, failures=0, stragglers=watch)
    return new, (*new.held, *_broken(new, policy))


def fold_gate(options: ProbeOptions, memory: ProbeMemory, ok: Ok[ProbeReading]) -> ProbeMemory:
    """The memory after one look at the gate."""
    reading = ok.value
    held = tuple(sorted({one.holder for one in value_or(reading.facts.holds, ())}))
    new = replace(memory, still=reading.still, refusal=reading.refusal, engine=reading.engine, holds=held)
    if reading.late and reading.refusal is not None:
        new = replace(new, late=(ok.mono, reading.refusal))
    return _count_skip(options, new, ok)


def fold_probes(
    memory: ProbeMemory, probes: Iterable[tuple[Probed, float]], policy: ProbePolicy
) -> ProbeMemory:
    """Return the memory after several probes, each with the time of its end."""
    for probed, mono in probes:
        memory = fold_probe(memory, probed, mono, policy)
    return memory


def fold_probe(memory: ProbeMemory, probed: Probed, mono: float, policy: ProbePolicy) -> ProbeMemory:
    """Return the memory after a probe that ended at `mono`; a forced probe changes no verdict."""
    measured = beside_usual(probed, measure(probed), memory.usual, policy.learn)
    counted = count_probe(memory, probed, mono, measured)
    if probed.forced:
        return counted
    if probed.outcome != "ok":
        return replace(counted, failures=counted.failures + (probed.outcome in BROKEN))
    found = (*probe_findings(probed, measured, policy), *host_findings(probed, memory.usual, policy))
    seen, findings = _confirm(memory, found, probed.at, policy)
    blind, measures = unjudged(probed), signals(probed)
    kept = [one for one in memory.held if one.rule == HOST.name and one.subject.uuid in blind]
    seen |= {key: streak for key, streak in memory.streaks.items() if key[:2] in {one.key for one in kept}}
    watch = fold_stragglers(
        memory.stragglers, measures, probed.at, policy.straggler, accepted=not (found or kept),
        told=_told(found),
        unseen=frozenset(unit for uuid in blind if (unit := Unit(Resource.HOST, uuid)) not in measures.rates),
    )  # fmt: skip
    unconfirmed = any(not b.sure and seen[_key(b)].count < policy.confirm for b in found)
    nothing = not (found or kept or watch.looks)
    usual = memory.usual
    if nothing:
        usual = learn_collectives(usual, probed, measured).learned("", shares(probed), probed.at)
    return replace(
        counted, last=probed, last_mono=mono, measured=measured,
        failures=0, streaks=seen, stragglers=watch, usual=usual,
        held=(*findings, *map(_not_judged, kept), *straggler_findings(watch, probed, policy.straggler)),
        unconfirmed=unconfirmed or watch.unsure(policy.straggler),
        completed=counted.completed + 1, clean=bool(probed.gpus) and nothing,
    )  # fmt: skip


def count_probe(
    memory: ProbeMemory, probed: Probed, mono: float, measured: Sequence[Measured] = ()
) -> ProbeMemory:
    """Return the memory after one more probe that ran, with any outcome, and with its GPU-seconds."""
    held = probed.held_seconds * len(probed.gpus)
    short = PastProbe(
        probed.at, probed.outcome, probed.why, probed.forced, probed.plan.engine, probed.seconds,
        min((one.ratio for one in measured if one.ratio is not None), default=None),
    )  # fmt: skip
    return replace(
        memory,
        tried=probed,
        tried_mono=mono,
        skipped={},
        late=None,
        runs={**memory.runs, probed.outcome: memory.runs.get(probed.outcome, 0) + 1},
        gpu_seconds=memory.gpu_seconds + held,
        spent=spend(memory.spent, mono, held),
        past=(*memory.past[1 - KEPT :], short),
    )


def confirming(memory: ProbeMemory) -> bool:
    """Return whether the newest probe found something that another would confirm or clear."""
    return memory.unconfirmed and memory.tried is memory.last


def _count_skip(options: ProbeOptions, memory: ProbeMemory, ok: Ok[ProbeReading]) -> ProbeMemory:
    """Count a due probe that did not run: each reason once in the time between probes."""
    refusal = ok.value.refusal
    if refusal is None or not ok.value.due:
        return memory
    reason = refusal.reason
    if reason in memory.skipped and ok.mono - memory.skipped[reason] < options.probe_interval:
        return memory
    skips = {**memory.skips, reason: memory.skips.get(reason, 0) + 1}
    return replace(memory, skips=skips, skipped={**memory.skipped, reason: ok.mono})


def _confirm(
    memory: ProbeMemory, found: tuple[ProbeFinding, ...], at: float, policy: ProbePolicy
) -> tuple[dict[Key, Streak], tuple[Finding, ...]]:
    """Return findings: DEGRADED until enough probes in a row have found them, or FAILED at once if sure."""
    seen_now = streaks(memory.streaks, dict.fromkeys(map(_key, found), True))
    began = {finding.key: finding.since for finding in memory.held}
    findings = []
    for finding in found:
        seen = seen_now[_key(finding)].count
        believed = finding.sure or seen >= policy.confirm
        health = finding.worst if believed else min(finding.worst, Health.DEGRADED)
        said = finding.evidence if seen == 1 else f"{finding.evidence} ({seen} probes in a row)"
        since = began.get((finding.rule, finding.subject), at)
        findings.append(Finding(finding.rule, health, finding.subject, said, finding.action, since))
    return seen_now, tuple(findings)


def _not_judged(before: Finding) -> Finding:
    """Return a host link's finding after a probe that could not judge it, which repairs nothing."""
    return replace(before, evidence=f"{before.evidence.removesuffix(UNJUDGED)}{UNJUDGED}")


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


def _told(found: Iterable[ProbeFinding]) -> frozenset[Unit]:
    """Return host links with a finding of their own; they are not also reported as slow beside siblings."""
    return frozenset(Unit(Resource.HOST, one.subject.uuid) for one in found if one.rule == HOST.name)


def straggler_findings(watch: StragglerWatch, probed: Probed, policy: StragglerPolicy) -> tuple[Finding, ...]:
    """Return a finding for each rule and slow part, or a finding for the node where all are slow."""
    places = {gpu.uuid: gpu.index for gpu in probed.gpus}
    clocks = {probed.gpus[c.gpu].uuid: c for c in probed.clocks if c.gpu < len(probed.gpus)}
    unseen = {gpu.uuid for gpu, path in zip(probed.gpus, probed.paths, strict=False) if path.hidden}
    held = watch.held(policy)
    found: dict[tuple[str, Subject], Finding] = {}
    for one in sorted(held, key=lambda one: -one.seen.lost):
        if isinstance(one.seen, SlowPart):
            made = _of_part(one, one.seen, places, clocks.get(one.seen.unit.uuid))
            if one.seen.unit.resource is Resource.HOST and not one.seen.own and one.seen.unit.uuid in unseen:
                if one.seen.lost < FAR:
                    continue
                made = replace(made, health=Health.DEGRADED, evidence=f"{made.evidence}; {HIDDEN}")
            # Of several pairs that a GPU sends by, only the slowest is a finding.
            found.setdefault(made.key, made)
    return (*found.values(), *_of_node(held, places))


def _of_part(
    held: ConfirmedStraggler, slow: SlowPart, places: Mapping[str, int], clock: Clocks | None
) -> Finding:
    unit = slow.unit
    parts = [f"{_name(unit, places)}: {_rate(unit, slow.rate)}, {_lost(slow)}", _beside(slow)]
    parts.append(f"seen in {held.times} of the last {held.looks} probes" if held.looks > 1 else "")
    if clock is not None and unit.resource is Resource.COMPUTE:
        parts.append(_clock(clock))
    if slow.follows:
        parts.append(f"also slow because of this: {', '.join(_name(one, places) for one in slow.follows)}")
    if slow.undecided:
        ends = " or ".join(_name(one, places) for one in slow.undecided)
        parts.append(f"it cannot be determined whether only this pair is slow, or {ends}")
    others = {uuid for one in (unit, *slow.undecided) for uuid in (one.uuid, one.peer)} - {"", unit.uuid}
    return Finding(
        f"straggler.{unit.resource.value}", Health.FAILED if held.failed else Health.DEGRADED,
        Subject(gpu=str(places.get(unit.uuid, "")), uuid=unit.uuid), "; ".join(filter(None, parts)),
        DO[unit.resource], held.since, others=tuple(sorted(others)),
    )  # fmt: skip


def _clock(clock: Clocks) -> str:
    """Return its clock while it multiplied, and the reasons that held it back."""
    held = [n for n, bit in CLOCK_REASONS.items() if (clock.reasons or 0) & bit and n not in HARMLESS]
    back = f", held back by {', '.join(held)}" if held else ""
    return "" if clock.sm is None else f"its SM clock was {clock.sm / 1e6:.0f} MHz{back}"


def _name(unit: Unit, places: Mapping[str, int]) -> str:
    gpu, what = f"GPU {places.get(unit.uuid, unit.uuid)}", WHAT[unit.resource]
    if unit.resource is Resource.PAIR:
        return f"{what} from {gpu} to GPU {places.get(unit.peer, unit.peer)}"
    return f"{gpu}, {what}"


def _rate(unit: Unit, rate: float) -> str:
    """Return the rate in words; a product's time means nothing but beside another time."""
    return f"{1e3 / rate:.3f} ms each" if unit.resource is Resource.COMPUTE else words.rate(rate)


def _lost(slow: SlowPart) -> str:
    against = f"its own history of {slow.probes} probes" if slow.own else "its peers"
    return f"{words.percent(slow.lost)} slower than {against} ({_rate(slow.unit, slow.loss.usual)})"


def _beside(slow: SlowPart) -> str:
    """Return the other comparison, or say that there is none."""
    if slow.own:
        return "" if slow.peers is None else f"its peers reach {_rate(slow.unit, slow.peers)}"
    if slow.usual is None:
        return "it has no history of its own yet"
    return f"it has always been this slow: {_rate(slow.unit, slow.usual)} in {slow.probes} probes"


def _of_node(held: Sequence[ConfirmedStraggler], places: Mapping[str, int]) -> Iterator[Finding]:
    nodes = [(one, one.seen) for one in held if isinstance(one.seen, SlowNode)]
    known = [(one, seen) for one, seen in nodes if not seen.lone]
    if known:
        health = Health.FAILED if any(one.failed for one, _ in known) else Health.DEGRADED
        texts = (
            f"{ALL[seen.resource]} ({seen.units}) are {words.percent(seen.lost)} slower than they were"
            for _, seen in known
        )
    else:
        health = Health.UNKNOWN
        texts = (
            f"{seen.units} GPUs are {words.percent(seen.lost)} or more slower in {WHAT[seen.resource]} "
            f"than GPU {places.get(seen.lone, '')}: which of them are well is not known"
            for _, seen in nodes
        )
    if nodes:
        since = min(one.since for one, _ in known or nodes)
        yield Finding(NODE, health, Subject(), "; ".join(texts), DO_NODE, since)
