"""The documents of probes made from what is known of them, for the HTTP interface and the command line."""

from collections.abc import Sequence
from dataclasses import replace

from wirewatch.core.collector import NodeState
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, worst
from wirewatch.core.types import Finding as CoreFinding
from wirewatch.core.types import Health as CoreHealth
from wirewatch.export.documents import finding
from wirewatch.export.healthdocuments import HEALTH_NAMES
from wirewatch.export.naming import stragglers
from wirewatch.export.probedocuments import (
    Asymptote,
    Gate,
    GpuResult,
    PastProbe,
    PathBytes,
    PeerCopy,
    ProbeDocument,
    ProbesDocument,
    Result,
)
from wirewatch.nccl.settings import slowing_settings
from wirewatch.probe import measurement
from wirewatch.probe.component import PROBE_NAME
from wirewatch.probe.gate import MEANING, Reason, Refusal
from wirewatch.probe.measurement import Measured, asymptotes
from wirewatch.probe.metrics import transport
from wirewatch.probe.model import Memory
from wirewatch.verdict.straggler.naming import Named


def probes_of(state: NodeState, at: float) -> ProbesDocument:
    """The document of a state; without a probe component, of nothing."""
    component = state.components.get(PROBE_NAME)
    memory = component.memory if component and isinstance(component.memory, Memory) else Memory()
    told = probes(memory, at, component.findings if component else ())
    if component is not None and component.succeeding:
        return told
    return replace(told, gate=gate(Refusal(Reason.BLIND, "nobody has looked, or the last look failed"), None))


def probes(memory: Memory, at: float, findings: Sequence[CoreFinding]) -> ProbesDocument:
    last = None
    if memory.last is not None:
        last = probe(memory.last, memory.measured, findings, memory.stragglers.named)
    past = [
        PastProbe(p.at, p.outcome, p.why, p.forced, p.engine, p.seconds, p.ratio)
        for p in reversed(memory.past)
    ]
    engine = None if isinstance(memory.engine, Absent) or not memory.engine else memory.engine
    return ProbesDocument("wirewatch.probes/1", at, gate(memory.refusal, engine), memory.fresh, last, past)


def gate(refusal: Refusal | None, engine: str | None) -> Gate:
    if refusal is None:
        return Gate(open=True, reason="", meaning="", detail="", engine=engine)
    return Gate(
        open=False, reason=refusal.reason.value, meaning=MEANING[refusal.reason], detail=refusal.detail,
        engine=engine,
    )  # fmt: skip


def probe(
    probed: Probed, measured: Sequence[Measured], findings: Sequence[CoreFinding], named: Named | None = None
) -> ProbeDocument:
    """`named`: who is slow by this probe alone."""
    document = probed.document
    cost = document.cost if document else None
    names = {one.group: one.gpus for one in measured}
    return ProbeDocument(
        schema="wirewatch.probe/1", at=probed.at, health=HEALTH_NAMES[health_of(probed, findings)],
        outcome=probed.outcome, why=probed.why, by=probed.by, forced=probed.forced,
        engine=probed.plan.engine, versions=dict(document.versions) if document else {},
        seconds=probed.seconds, held_seconds=probed.held_seconds,
        kernel_seconds=list(cost.kernel_seconds) if cost else [],
        cpu_seconds=cost.cpu_seconds if cost else None, host_bytes=cost.host_bytes if cost else None,
        transport=transport(probed, range(len(probed.plan.groups))), settings=dict(probed.settings),
        slowing=[f"{name}={value}: {effect}" for name, value, effect in slowing_settings(probed.settings)],
        results=[_result(one) for one in measured],
        asymptotes=[Asymptote(op, names[g], value) for (g, op), value in asymptotes(measured).items()],
        copies=_copies(probed), gpus=_gpus(probed), stragglers=stragglers(named or Named(), probed),
        path=[
            PathBytes(c.part, c.index, c.due, c.sent, c.received)
            for c in measurement.crossings(probed, measured)
        ],
        findings=[finding(f) for f in findings],
    )  # fmt: skip


def refused(refusal: Refusal | None, at: float) -> ProbeDocument:
    """The document of a probe that did not run; `outcome` is `skipped`, `why` begins with the reason."""
    told = "" if refusal is None else f"{refusal.reason.value}: {refusal.detail}"
    return ProbeDocument(
        schema="wirewatch.probe/1", at=at, health="unknown", outcome="skipped", why=told, by="command",
        forced=False, engine="", versions={}, seconds=0.0, held_seconds=0.0, kernel_seconds=[],
        cpu_seconds=None, host_bytes=None, transport="", settings={}, slowing=[], results=[], asymptotes=[],
        copies=[], gpus=[], stragglers=[], path=[], findings=[],
    )  # fmt: skip


def health_of(probed: Probed, findings: Sequence[CoreFinding]) -> CoreHealth:
    """What one probe amounts to: one that did not come to its end tells nothing."""
    return worst(findings) if probed.outcome == "ok" else max(CoreHealth.UNKNOWN, worst(findings))


def _result(one: Measured) -> Result:
    told = one.expected
    known = None if isinstance(told, Absent) else told
    return Result(
        op=one.op, size_bytes=one.size_bytes, ranks=one.ranks, gpus=one.gpus, seconds=one.seconds,
        busbw=one.busbw, best=one.best, lowest=one.lowest, wrong=one.wrong, algorithm=one.algorithm,
        protocol=one.protocol, expected_busbw=known.busbw if known else None, ratio=one.ratio,
        peak_ratio=one.peak_ratio, expected_algorithm=known.algorithm if known else None,
        confidence=known.confidence.value if known else None,
        derivation=list(known.derivation) if known else [str(told)],
    )  # fmt: skip


def _copies(probed: Probed) -> list[PeerCopy]:
    index = [gpu.index for gpu in probed.gpus] or list(range(len(probed.plan.gpus)))
    copies = probed.document.copies if probed.document else ()
    return [
        PeerCopy(index[c.source], index[c.destination], c.size_bytes / c.seconds, c.direct) for c in copies
    ]


def _gpus(probed: Probed) -> list[GpuResult]:
    micros = {m.gpu: m for m in (probed.document.micros if probed.document else ())}
    clocks = {c.gpu: c for c in probed.clocks}
    found = []
    for position, gpu in enumerate(probed.gpus):
        micro, clock = micros.get(position), clocks.get(position)
        found.append(
            GpuResult(
                gpu=gpu.index,
                uuid=gpu.uuid,
                gemm_seconds=micro.product if micro else None,
                memory_copy_bytes_per_second=micro.copied if micro else None,
                sm_clock=clock.sm if clock else None,
                clocks_event_reasons=clock.reasons if clock else None,
                memory_before=gpu.memory_before,
                memory_peak=gpu.memory_peak,
                memory_after=gpu.memory_after,
            )
        )
    return found
