"""From a probe, or the memory of probes, to their documents."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wirewatch.busbw.expected import wire_lines
from wirewatch.busbw.network import LARGE, expect_network
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.probe import ALL_REDUCE, OFF, Conditions, Probed
from wirewatch.core.types import Absent, value_or
from wirewatch.core.types import Finding as CoreFinding
from wirewatch.documents.health import HEALTH_NAMES, Gate
from wirewatch.documents.judged import finding
from wirewatch.documents.probes import (
    Asymptote,
    CollectiveResult,
    GpuResult,
    HostLinkResult,
    NetworkResult,
    PeerCopy,
    ProbeDocument,
    ProbesDocument,
    RunResult,
    Straggler,
)
from wirewatch.nccl.settings import slowing_settings
from wirewatch.probe import measurement
from wirewatch.probe.collector import PROBE_NAME, transport
from wirewatch.probe.gate import Refusal, SkipReason
from wirewatch.probe.hostlinks import host_links, uplinks
from wirewatch.probe.measurement import Measured, asymptotes, health_of, not_as_asked
from wirewatch.probe.model import ProbeMemory
from wirewatch.probe.network import by_network, gpudirect
from wirewatch.probe.request import ProbeResult, ProbeRun, run_differences
from wirewatch.verdict.straggler.naming import NamedStragglers, SlowPart
from wirewatch.verdict.straggler.signals import Unit, memory_rate, product_seconds

INSTEAD = "this node's accepted probes and the wire judge it"
WIRE_ALONE = "the wire alone judges it: a study is not compared with this node's accepted probes"
"""Said of what no expectation judges."""


def probes_of(state: NodeState, at: float) -> ProbesDocument:
    """The document of a state at `at` (Unix seconds); empty without a probe component."""
    component = state.components.get(PROBE_NAME, Component(PROBE_NAME, ProbeMemory()))
    document = probes(component.memory, at, component.findings)
    if component.succeeding:
        return document
    unread = Refusal(SkipReason.BLIND, "not read yet, or the last poll failed")
    return replace(document, gate=gate(unread, None))


def probes(memory: ProbeMemory, at: float, findings: Sequence[CoreFinding]) -> ProbesDocument:
    """The document of the probe component's memory and findings."""
    last = None
    if memory.last is not None:
        last = probe(memory.last, memory.measured, findings, memory.stragglers.named)
    shut = replace(gate(memory.refusal, value_or(memory.engine, "") or None), holds=list(memory.holds))
    return ProbesDocument("wirewatch.probes/1", at, shut, memory.fresh, last, [*reversed(memory.past)])


def gate(refusal: Refusal | None, engine: str | None) -> Gate:
    """The gate for a document; no refusal means open."""
    if refusal is None:
        return Gate(open=True, reason="", meaning="", detail="", engine=engine)
    return Gate(
        open=False, reason=refusal.reason.value, meaning=refusal.reason.meaning, detail=refusal.detail,
        engine=engine,
    )  # fmt: skip


def probe(
    probed: Probed,
    measured: Sequence[Measured],
    findings: Sequence[CoreFinding],
    named: NamedStragglers | None = None,
    instead: str = INSTEAD,
) -> ProbeDocument:
    """The document of one probe; `named`: the stragglers of this probe alone.

    `instead`: what judges where no expectation does.
    """
    document, cost = probed.shown, probed.shown.cost
    names = {one.group: one.gpus for one in measured}
    return ProbeDocument(
        schema="wirewatch.probe/1", at=probed.at, health=HEALTH_NAMES[health_of(probed, findings)],
        outcome=probed.outcome, why=probed.why, by=probed.by, forced=probed.forced,
        engine=probed.plan.engine, versions=dict(document.versions),
        seconds=probed.seconds, held_seconds=probed.held_seconds,
        kernel_seconds=list(cost.kernel_seconds),
        cpu_seconds=cost.cpu_seconds if probed.document else None,
        host_bytes=cost.host_bytes if probed.document else None,
        transport=transport(probed, range(len(probed.plan.groups))), settings=dict(probed.settings),
        slowing=[f"{name}={value}: {effect}" for name, value, effect in slowing_settings(probed.settings)],
        results=[_result(one, instead) for one in measured],
        asymptotes=[Asymptote(op, names[g], value) for (g, op), value in asymptotes(measured).items()],
        copies=_copies(probed), gpus=_gpus(probed), stragglers=stragglers(named or NamedStragglers(), probed),
        path=list(measurement.crossings(probed, measured)),
        findings=[finding(f) for f in findings],
        dtype=probed.plan.dtype, in_place=probed.plan.in_place, environment=dict(probed.plan.environment),
        unproven=not_as_asked(probed), not_offered=list(document.not_offered),
        network=network(probed.conditions[0], probed)
            if probed.conditions and by_network(probed.plan) else None,
        hosts=list(_hosts(probed)), no_hosts=document.no_hosts,
    )  # fmt: skip


def on_request(result: ProbeResult) -> ProbeDocument:
    """The document of what was probed on request."""
    if result.probed is None:
        made = refused(result.refusal, result.at)
        if result.refusal is None:
            made = replace(made, why=f"not recorded: {', '.join(result.not_recorded)}")
    else:
        instead = WIRE_ALONE if result.study else INSTEAD
        made = probe(result.probed, result.measured, result.findings, result.named, instead)
    conditions = result.conditions
    return replace(
        made, health=HEALTH_NAMES[result.health], study=list(result.study),
        not_recorded=list(result.not_recorded),
        network=made.network or (network(conditions[0], None) if conditions else None),
        runs=[_run(run) for run in result.runs],
        differences=list(run_differences(result.runs, OFF)),
    )  # fmt: skip


def network(conditions: Conditions, probed: Probed | None) -> NetworkResult:
    """Expected bandwidth of large messages over the network, and the part of it that a probe shows."""
    expected = expect_network(conditions, ALL_REDUCE, LARGE)
    busbw, lines = (
        (None, (expected.detail,)) if isinstance(expected, Absent) else (expected.busbw, expected.derivation)
    )
    return NetworkResult(
        expected_busbw=busbw, derivation=list(lines),
        gpudirect=gpudirect(probed.account if probed else None).value,
        sent_bytes=dict(probed.ports or {}) if probed else {},
    )  # fmt: skip


def refused(refusal: Refusal | None, at: float) -> ProbeDocument:
    """The document of a probe that did not run; `outcome` is `skipped`, `why` begins with the reason."""
    why = "" if refusal is None else f"{refusal.reason.value}: {refusal.detail}"
    return ProbeDocument(
        schema="wirewatch.probe/1", at=at, health="unknown", outcome="skipped", why=why, by="command",
        forced=False, engine="", versions={}, seconds=0.0, held_seconds=0.0, kernel_seconds=[],
        cpu_seconds=None, host_bytes=None, transport="", settings={}, slowing=[], results=[], asymptotes=[],
        copies=[], gpus=[], stragglers=[], path=[], findings=[],
    )  # fmt: skip


def stragglers(named: NamedStragglers, probed: Probed) -> list[Straggler]:
    """The slowest first, then what is slow on the whole node."""
    places = {gpu.uuid: gpu.index for gpu in probed.gpus}
    slow = sorted(named.slow, key=lambda one: -one.lost)
    everywhere = (
        Straggler(
            resource=one.resource.value, gpu=None, uuid="", peer=None, lost=one.lost, score=None,
            against="own", rate=None, own=None, peers=None, probes=0, follows=[],
        )
        for one in named.uniform
        if not one.lone
    )  # fmt: skip
    return [*(_straggler(one, places) for one in slow), *everywhere]


def _result(one: Measured, instead: str) -> CollectiveResult:
    expected = one.expected
    known = None if isinstance(expected, Absent) else expected
    return CollectiveResult(
        op=one.op, size_bytes=one.size_bytes, ranks=one.ranks, gpus=one.gpus, seconds=one.seconds,
        busbw=one.busbw, best=one.best, lowest=one.lowest, wrong=one.wrong, algorithm=one.algorithm,
        protocol=one.protocol, expected_busbw=known.busbw if known else None, ratio=one.ratio,
        peak_ratio=one.peak_ratio, expected_algorithm=known.algorithm if known else None,
        confidence=known.confidence.value if known else None,
        derivation=_derivation(one, instead),
        usual_busbw=one.usual.rate if one.usual else None,
        no_reference=expected.detail
            if isinstance(expected, Absent) and expected is not measurement.NOT_GPUS else "",
    )  # fmt: skip


def _run(run: ProbeRun) -> RunResult:
    probed = run.probed
    document = probed.document if probed else None
    return RunResult(
        name=run.name, engine=probed.plan.engine if probed else "",
        outcome=probed.outcome if probed else "no_engine" if run.has_no_engine else "skipped",
        why=probed.why if probed else run.problem, problem=run.problem,
        versions=dict(document.versions) if document else {},
        transport=transport(probed, range(len(probed.plan.groups))) if probed else "",
        gpudirect=gpudirect(probed.account).value if probed and by_network(probed.plan) else "",
        environment=dict(probed.plan.environment) if probed else {},
        results=[_result(one, WIRE_ALONE) for one in run.measured],
        not_offered=list(document.not_offered) if document else [],
    )  # fmt: skip


def _derivation(one: Measured, instead: str) -> list[str]:
    if one.wire is measurement.NOT_NVLINK:
        return [one.expected.detail] if isinstance(one.expected, Absent) else [*one.expected.derivation]
    if isinstance(one.expected, Absent):
        if one.latency or one.expected is measurement.NOT_GPUS:
            return [str(one.expected)]
        return [f"no expectation here: {one.expected}", *wire_lines(one.wire), instead]
    return [*one.expected.derivation, *([instead] if one.trusted is None else [])]


def _copies(probed: Probed) -> list[PeerCopy]:
    index = [gpu.index for gpu in probed.gpus] or list(range(len(probed.plan.gpus)))
    return [
        PeerCopy(index[c.source], index[c.destination], c.size_bytes / c.seconds, c.direct)
        for c in probed.shown.copies
    ]


def _hosts(probed: Probed) -> Iterator[HostLinkResult]:
    ports = {gpu: gpus for gpus in uplinks(probed) for gpu in gpus}
    for one in host_links(probed) if probed.gpus else ():
        place, expected, (to, back) = one.copies.gpu, one.expected, one.ways
        known = None if isinstance(expected, Absent) else expected
        beside = (probed.gpus[other].index for other in ports.get(place, ()) if other != place)
        yield HostLinkResult(
            gpu=probed.gpus[place].index, uuid=probed.gpus[place].uuid, to_device=to.rate,
            from_device=back.rate, both=one.both, all_to_device=to.together, all_from_device=back.together,
            expected_to_device=to.expected, expected_from_device=back.expected,
            ratio=one.worst[0] if one.worst else None,
            confidence=known.confidence.value if known else None,
            derivation=list(known.derivation) if known else [f"no expectation here: {expected}"],
            link=one.ran_at, near=one.copies.near, counted=one.counted, shares_with=list(beside),
        )  # fmt: skip


def _gpus(probed: Probed) -> list[GpuResult]:
    micros = {m.gpu: m for m in probed.shown.micros}
    clocks = {c.gpu: c for c in probed.clocks}
    return [
        GpuResult(
            gpu.index, gpu.uuid, product_seconds(micro) if micro else None,
            memory_rate(micro) if micro else None, clock.sm if clock else None,
            clock.reasons if clock else None, gpu.memory_before, gpu.memory_peak, gpu.memory_after,
        )
        for gpu, micro, clock in ((g, micros.get(n), clocks.get(n)) for n, g in enumerate(probed.gpus))
    ]  # fmt: skip


def _straggler(one: SlowPart, places: dict[str, int]) -> Straggler:
    return Straggler(
        resource=one.unit.resource.value, gpu=places.get(one.unit.uuid), uuid=one.unit.uuid,
        peer=places.get(one.unit.peer), lost=one.lost, score=one.loss.score,
        against="own" if one.own else "peers", rate=one.rate, own=one.usual, peers=one.peers,
        probes=one.probes, follows=[_unit_text(unit, places) for unit in one.follows],
    )  # fmt: skip


def _unit_text(unit: Unit, places: dict[str, int]) -> str:
    to = f" to {places.get(unit.peer, unit.peer)}" if unit.peer else ""
    return f"{unit.resource.value} of GPU {places.get(unit.uuid, unit.uuid)}{to}"
