"""Times of collectives: measured on the machine, else fitted to its measurements, else from references.

All follow a model of NCCL's structure (`model`). Measurements correct it for the machine, also at other sizes
and numbers of GPUs (`fit`). References correct it where there are no measurements.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from wirewatch.busbw.curves import CURVES, ReferenceCurve
from wirewatch.busbw.expected import expect
from wirewatch.busbw.formulas import FACTORS, PAIRWISE, factor
from wirewatch.busbw.network import NetworkShare, network_share
from wirewatch.busbw.profiles import (
    LATENCY,
    VAGUE,
    NetworkKind,
    NetworkProfile,
    NodeGroup,
    begins,
    expect_between,
)
from wirewatch.busbw.references import LEAST_BYTES, Confidence, architecture
from wirewatch.core import probe
from wirewatch.core.types import Absent, Why, value_or
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.times import evidence
from wirewatch_lab.advice.times.fit import Correction, MeasuredCurve, along, fitted, tabled
from wirewatch_lab.advice.times.model import HOST_JOB, CollectiveModel
from wirewatch_lab.study.grid import EAGER, GRAPH

HOP_SOURCE = "latency of a hop between nodes: NCCL, src/graph/tuning.cc"
_TREE_LL, _RING_LL, _SIMPLE = 5.0e-6, 2.7e-6, 14.0e-6
"""Seconds of a hop: of a tree and of a ring by LL, and by Simple."""


@dataclass(frozen=True, slots=True)
class DomainCrossing:
    """Traffic from a GPU to other domains: `share` of the message, after so many consecutive hops.

    `inside`: the share of the message that a collective inside the domain handles meanwhile.
    """

    share: float
    hops: int
    inside: float


def crossing(op: str, each: int, domains: int) -> DomainCrossing:
    """Return the traffic of `each` ranks a domain. Raises KeyError: not in nccl-tests."""
    return _CROSSINGS[op](each, domains)


def across_seconds(op: str, found: DomainCrossing, size_bytes: float, rate: float) -> float:
    """Return seconds between domains at `rate` bytes per second of each GPU, by the faster of LL, Simple."""
    sent = found.share * size_bytes / rate
    short = _TREE_LL if op == probe.ALL_REDUCE else _RING_LL
    return min(found.hops * short + 2 * sent, found.hops * _SIMPLE + sent)


def _others(parts: int) -> float:
    """Return other domains' share of a message: a ring sends it over each border of domains."""
    return (parts - 1) / parts


_CROSSINGS: Mapping[str, Callable[[int, int], DomainCrossing]] = {
    probe.ALL_REDUCE: lambda each, d: DomainCrossing(2 * _others(d) / each, 2 * (d - 1).bit_length(), 1.0),
    probe.ALL_GATHER: lambda each, d: DomainCrossing(_others(each * d) / each, d - 1, 1.0),
    probe.REDUCE_SCATTER: lambda each, d: DomainCrossing(_others(each * d) / each, d - 1, 1.0),
    probe.BROADCAST: lambda each, d: DomainCrossing(1 / each, d - 1, 1.0),
    probe.REDUCE: lambda each, d: DomainCrossing(1 / each, d - 1, 1.0),
    probe.ALLTOALL: lambda _each, d: DomainCrossing(_others(d), 1, 1 / d),
    probe.GATHER: lambda _each, d: DomainCrossing(_others(d), 1, 1 / d),
    probe.SCATTER: lambda _each, d: DomainCrossing(_others(d), 1, 1 / d),
    probe.SENDRECV: lambda _each, _d: DomainCrossing(1.0, 1, 1.0),
}


SMALLEST, LARGEST = 8, 8 << 30
"""Message sizes of floor and plateau, in bytes."""
UNPROVEN = "unproven on hardware: no machine with RDMA ports was available"
LAUNCHES = (EAGER, GRAPH)


class EstimateBasis(Enum):
    """What a figure stands on."""

    MEASURED = "measured here"
    FITTED = "fitted to what was measured here"
    REFERENCE = "reference"
    DERIVED = "derived"


_WITHIN = {EstimateBasis.FITTED: 0.15, EstimateBasis.REFERENCE: 0.10, EstimateBasis.DERIVED: 0.30}
"""Errors of estimates as shares; proof/lab/times.md has measured errors."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The places of a collective's ranks: equally many in each of so many NVLink domains."""

    ranks: int
    domains: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """The seconds of one operation, what they stand on, and what makes them doubtful.

    `within`: the share by which they may be off either way, of measured ones the spread of repeats. `taken`:
    what NCCL runs, such as `Ring LL`.
    """

    seconds: float
    basis: EstimateBasis
    confidence: Confidence
    source: str
    remarks: tuple[str, ...] = ()
    within: float = 0.0
    taken: str = ""

    @property
    def low(self) -> float:
        """Return the least time, in seconds."""
        return self.seconds * max(0.0, 1 - self.within)

    @property
    def high(self) -> float:
        """Return the most time, in seconds."""
        return self.seconds * (1 + self.within)


class CollectiveTimes:
    """The times of a machine's collectives; `published`: the published tables to use."""

    def __init__(self, machine: AdvisedMachine, published: Sequence[ReferenceCurve] = CURVES) -> None:
        self._machine = machine
        self._published = tuple(published)

    def estimate(
        self, op: str, span: Ranks, size_bytes: float, launch: str = EAGER, *, one_process: bool = False
    ) -> Estimate | Absent:
        """Return the time of an operation of so many bytes (nccl-tests' S), launched `eager` or as a `graph`.

        `one_process`: a single process launches on all GPUs, as nccl-tests and sweeps do; else each GPU has a
        process, as in jobs. No eager operation takes less than its launch. Local measurements keep the launch
        of their run. Returns Absent with the reason where nothing was measured and nothing is known.
        """
        wrong = _wrong(op, span, size_bytes, launch)
        if wrong:
            return Absent(Why.UNSUPPORTED, wrong)
        if span.domains > 1:
            return self._between_domains(op, span, size_bytes, launch)
        whole = self._machine.group(span.ranks)
        if whole is None:
            return Absent(Why.UNSUPPORTED, f"{self._machine.of} has fewer than {span.ranks} GPUs")
        conditions = evidence.first_gpus(whole, span.ranks)
        model = evidence.model_of(conditions, op)
        if isinstance(model, Absent):
            return model
        graph, published = launch == GRAPH, self._published
        asked = _TimeQuestion(model, conditions, size_bytes, graph, one_process, published)
        return asked.by_studies(evidence.of_studies(self._machine, model, conditions))

    def _between_domains(self, op: str, span: Ranks, size_bytes: float, launch: str) -> Estimate | Absent:
        for one in evidence.of_hosts(self._machine, op, span.ranks, span.domains):
            if one.curve.graph is (launch == GRAPH) and one.curve.spans(size_bytes):
                seconds, basis = along(one.curve, size_bytes), EstimateBasis.MEASURED
                source = one.curve.source
                return Estimate(seconds, basis, Confidence.MEASURED, source, one.doubts, one.spread)
        each = span.ranks // span.domains
        whole = self._machine.group(each)
        if whole is None:
            return Absent(Why.UNSUPPORTED, f"{self._machine.of} has fewer than {each} GPUs")
        if self._machine.network is not None:
            return self._by_profile(self._machine.network, op, span, size_bytes, launch)
        share = network_share(evidence.first_gpus(whole, each))
        if isinstance(share, Absent):
            return Absent(share.why, f"the network of {self._machine.of}: {share.detail}")
        found = crossing(op, each, span.domains)
        across = across_seconds(op, found, size_bytes, share.rate)
        inside: Estimate | Absent | None = None
        if each > 1 and op != probe.SENDRECV:
            inside = self.estimate(op, Ranks(each), max(found.inside * size_bytes, 1.0), launch)
        if isinstance(inside, Absent):
            return inside
        wire, least = found.share * size_bytes / share.rate, 0.0
        if op == probe.ALL_REDUCE:
            layer = value_or(whole.network, ())[0].layer
            kind = NetworkKind.ROCE if layer == "Ethernet" else NetworkKind.INFINIBAND
            least = begins(LATENCY[kind], span.domains)
        return _joined(inside, across, wire, share, max(least, HOST_JOB if launch == EAGER else 0.0))

    def _by_profile(
        self, network: NetworkProfile, op: str, span: Ranks, size_bytes: float, launch: str
    ) -> Estimate | Absent:
        """Return the time by the machine's network profile, with one node's own busbw inside it."""
        each = span.ranks // span.domains
        most = self.plateau(op, Ranks(each)) if each > 1 else math.inf
        arch = value_or(architecture(self._machine.conditions[0].group.gpus[0].name), "")
        group = NodeGroup(span.domains, each, arch, value_or(most, math.inf))
        due = expect_between(network, op, group, max(round(size_bytes), 1))
        start = 0.0
        if isinstance(due, Absent):
            # Small messages of other collectives: they begin as an all_reduce does, and go on as large ones.
            latency = network.latency or LATENCY.get(network.kind)
            large = expect_between(network, op, group, probe.MIB << 6)
            if latency is None or isinstance(large, Absent):
                return due
            start = latency / (2 if op == probe.SENDRECV else 1)
            begun = "small messages begin as an all_reduce, and of a pair in half of it"
            lines = (*large.derivation[:2], begun)
            due = replace(large, confidence=Confidence.LOW, within=VAGUE, derivation=lines)
        seconds = start + factor(op, span.ranks) * size_bytes / due.busbw
        seconds = max(seconds, HOST_JOB if launch == EAGER else 0.0)
        basis = EstimateBasis.REFERENCE if due.confidence is Confidence.PUBLISHED else EstimateBasis.DERIVED
        remarks = due.derivation[: 3 if start else 2]
        return Estimate(seconds, basis, due.confidence, due.source, remarks, due.within)

    def floor(self, op: str, span: Ranks, launch: str = EAGER) -> Estimate | Absent:
        """Return the time of the smallest message."""
        return self.estimate(op, span, SMALLEST, launch)

    def plateau(self, op: str, span: Ranks) -> float | Absent:
        """Return the busbw of 8 GiB, in bytes per second."""
        found = self.estimate(op, span, LARGEST)
        return found if isinstance(found, Absent) else factor(op, span.ranks) * LARGEST / found.seconds


def _wrong(op: str, span: Ranks, size_bytes: float, launch: str) -> str:
    """Return why such an operation does not exist; empty where it does."""
    if op not in FACTORS:
        return f"{op} is not a collective of nccl-tests"
    if launch not in LAUNCHES or span.ranks < 2 or not 0 < size_bytes < math.inf:  # noqa: PLR2004
        return f"nothing is known of {launch} {op} of {size_bytes:g} B by {span.ranks} ranks"
    if span.domains < 1 or span.ranks % span.domains:
        return f"{span.ranks} ranks are not equally many in each of {span.domains} domains"
    return ""


def _joined(
    inside: Estimate | None, across: float, wire: float, share: NetworkShare, least: float
) -> Estimate:
    """Join both at once: the slower decides, plus the hops between domains, at least `least`."""
    within = 0.0 if inside is None else inside.seconds
    seconds = max(max(within, wire) + across - wire, least)
    assumed = (
        f"assumes that NVLink inside each domain and {share.rate / 1e9:.1f} GB/s of each GPU between them "
        "work at once, that every domain is wired like this machine, and that switches between slow nothing"
    )
    remarks = (UNPROVEN, assumed, *(() if inside is None else inside.remarks))
    source = "; ".join((*(() if inside is None else (inside.source,)), share.lines[-1], HOP_SOURCE))
    most = max((within + across) / seconds - 1, 2 * _WITHIN[EstimateBasis.DERIVED])
    return Estimate(seconds, EstimateBasis.DERIVED, Confidence.LOW, source, remarks, most, "hierarchical")


@dataclass(frozen=True, slots=True)
class _TimeQuestion:
    """A question in the model's terms."""

    model: CollectiveModel
    conditions: probe.Conditions
    size_bytes: float
    graph: bool
    one_process: bool
    published: tuple[ReferenceCurve, ...]

    def by_studies(self, studies: Sequence[evidence.OneStudy]) -> Estimate | Absent:
        """Return the time by measurements on the machine, else by references."""
        for one in studies:
            own = one.curve.model.ranks == self.model.ranks
            if own and self._answers(one.curve, any_process=True):
                return self._measured(one)
        once, published = self.one_process, self.published
        references = evidence.of_references(
            self.model, self.conditions, one_process=once, published=published
        )
        if not studies:
            return self._by_references(references)
        prior = fitted([one.curve for one in references], one_process=self.one_process)
        curves = [one.curve for one in studies]
        tables = [one.curve for one in references if one.own]
        shaped = tabled(self.model, tables) if curves[0].model.ranks == self.model.ranks else None
        if shaped is None:
            return self.by_curves(curves, prior, studies[0].doubts)
        bent = [replace(one, model=shaped) if one.model.ranks == shaped.ranks else one for one in curves]
        doubts = (*studies[0].doubts, f"between these sizes as of {tables[0].source}")
        return replace(self, model=shaped).by_curves(bent, replace(prior, gpu=(), start=0.0), doubts)

    def by_curves(
        self, curves: Sequence[MeasuredCurve], prior: Correction, doubts: Sequence[str]
    ) -> Estimate:
        """Return the model's time, corrected by measurements; `prior` where these show nothing."""
        correction = fitted(curves, one_process=self.one_process, prior=prior)
        # Whether some of them show how long a launch takes.
        launched = any(not one.graph and one.one_process is self.one_process for one in curves)
        remarks = [_fitted_to(curves), *doubts]
        remarks += [self._launch_remark()] if self._waits(correction) and not launched else []
        seconds, source = self._seconds(correction), curves[0].source
        return self._estimate(seconds, EstimateBasis.FITTED, Confidence.DERIVED, source, remarks)

    def _measured(self, one: evidence.OneStudy) -> Estimate:
        seconds = along(one.curve, self.size_bytes)
        remarks = list(one.doubts)
        bound = self._bound(one_process=one.curve.one_process)
        if not self.graph and one.curve.one_process and not self.one_process and bound:
            all_ = f"all {self.model.ranks} GPUs"
            remarks.append(f"one process launched on {all_}: a job with a process for each differs")
        basis, source = EstimateBasis.MEASURED, one.curve.source
        found = self._estimate(seconds, basis, Confidence.MEASURED, source, remarks)
        return replace(found, within=one.spread)

    def _by_references(self, references: Sequence[evidence.OneReference]) -> Estimate | Absent:
        by_operator = self._pinned()
        if by_operator is not None:
            return by_operator
        for one in sorted(references, key=lambda one: one.curve.graph is not self.graph):
            if one.own and self._alike(one.curve) and self._answers(one.curve):
                seconds = along(one.curve, self.size_bytes)
                return self._estimate(seconds, EstimateBasis.REFERENCE, one.confidence, one.curve.source, [])
        correction = fitted([one.curve for one in references], one_process=self.one_process)
        return self._derived(correction, references)

    def _derived(self, correction: Correction, references: Sequence[evidence.OneReference]) -> Estimate:
        seconds = self._seconds(correction)
        launches = [self._launch_remark()] if self._waits(correction) else []
        if not references:
            none = f"no reference for {self.model.op} of {self.model.architecture or 'these GPUs'}"
            source = "NCCL's structure, and what it reaches of other wires"
            return self._estimate(seconds, EstimateBasis.DERIVED, Confidence.LOW, source, [none, *launches])
        size = self.size_bytes
        ranked = [(not self._alike(one.curve), not one.own, one.curve.apart(size)) for one in references]
        nearest = references[ranked.index(min(ranked))]
        of = nearest.curve.model
        how = f"by NCCL's structure, from {of.ranks} GPUs with {of.wire / 1e9:.1f} GB/s each way"
        doubted = nearest.confidence is Confidence.LOW or self.model.op in PAIRWISE
        trust = Confidence.LOW if doubted else Confidence.DERIVED
        found = self._estimate(seconds, EstimateBasis.DERIVED, trust, nearest.curve.source, [how, *launches])
        if self.one_process or not launches:
            return found
        # Another program may launch as fast as the GPUs allow: nccl-tests does, with a process for each.
        least = (1 - _WITHIN[EstimateBasis.REFERENCE]) * correction.gpu_seconds(self.model, self.size_bytes)
        return replace(found, within=max(found.within, 1 - least / seconds))

    def _launch_remark(self) -> str:
        host = self.model.host_seconds(self.size_bytes, one_process=self.one_process)
        source = self.model.host_source(one_process=self.one_process)
        return f"no faster than its launch, {host * 1e6:.1f} us: {source}"

    def _pinned(self) -> Estimate | None:
        """Return the operator's figure for large messages."""
        pins, size = self.conditions.pins, round(self.size_bytes)
        if size < LEAST_BYTES or not {self.model.op, f"{self.model.op}@{size}"} & set(pins):
            return None
        found = expect(self.conditions, self.model.op, size)
        if isinstance(found, Absent):
            return None
        seconds = factor(self.model.op, self.model.ranks) * size / found.busbw
        return self._estimate(seconds, EstimateBasis.REFERENCE, found.confidence, found.source, [])

    def _answers(self, curve: MeasuredCurve, *, any_process: bool = False) -> bool:
        """Return whether a curve of so many ranks has this size, launched alike or regardless of launch."""
        if not curve.spans(self.size_bytes):
            return False
        if curve.graph is self.graph and (any_process or curve.one_process is self.one_process):
            return True
        free = curve.graph or not self._bound(one_process=curve.one_process)
        gpus = along(curve, self.size_bytes) if curve.graph else None
        return free and (self.graph or not self._bound(one_process=self.one_process, gpus=gpus))

    def _alike(self, curve: MeasuredCurve) -> bool:
        """Return whether a curve ran by the algorithm that NCCL takes here."""
        return curve.model.taken(self.size_bytes).algorithm == self.model.taken(self.size_bytes).algorithm

    def _bound(self, *, one_process: bool, gpus: float | None = None) -> bool:
        """Return whether the launch outlasts the GPUs, by the model where their seconds are not given."""
        host = self.model.host_seconds(self.size_bytes, one_process=one_process)
        return host > (self.model.gpu_seconds(self.size_bytes) if gpus is None else gpus)

    def _waits(self, correction: Correction) -> bool:
        gpus = correction.gpu_seconds(self.model, self.size_bytes)
        return not self.graph and self._seconds(correction) > gpus

    def _seconds(self, correction: Correction) -> float:
        return correction.seconds(self.model, self.size_bytes, graph=self.graph, one_process=self.one_process)

    def _estimate(
        self,
        seconds: float,
        basis: EstimateBasis,
        confidence: Confidence,
        source: str,
        remarks: Sequence[str],
    ) -> Estimate:
        taken, low = str(self.model.taken(self.size_bytes)), 2 * _WITHIN[EstimateBasis.DERIVED]
        within = low if confidence is Confidence.LOW else _WITHIN.get(basis, 0.0)
        return Estimate(seconds, basis, confidence, source, tuple(remarks), within, taken)


def _fitted_to(curves: Sequence[MeasuredCurve]) -> str:
    ranks = sorted({one.model.ranks for one in curves})
    sizes = len({(one.model.ranks, size) for one in curves for size, _ in one.sizes})
    several = "sizes" if sizes > 1 else "size"
    return f"fitted to {sizes} {several} of {' and '.join(map(str, ranks))} GPUs"
