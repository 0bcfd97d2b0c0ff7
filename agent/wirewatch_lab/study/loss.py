"""Loss of a run against its expectation, by part, each with the line that shows it. Pure.

A collective is no faster than its narrowest part. So parts are steps between limits, from the expected to the
measured busbw. A part's cost returns once it and all lower parts are mended. They add up to the loss. The
rest that no limit explains is called unexplained. Causes without a cost in the log have no figure.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wirewatch.busbw.expected import pcie_rate
from wirewatch.busbw.formulas import RING
from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from wirewatch.core.rdma import gigabits
from wirewatch.core.types import Absent
from wirewatch.core.words import GB, count, percent, size
from wirewatch.nccl.lists import ALGO
from wirewatch.nccl.settings import P2P_OFF, number
from wirewatch_lab.advice.described import LANES
from wirewatch_lab.advice.products import gpu_product
from wirewatch_lab.study.basis import Basis
from wirewatch_lab.study.judge import JudgedRun
from wirewatch_lab.study.logsummary import At, LogSummary, Quote
from wirewatch_lab.study.points import middle
from wirewatch_lab.study.rings import HostNics, RingAudit, UsedNic
from wirewatch_lab.study.runs import BenchmarkRun

RINGS = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER})
"""Operations whose rings load all hops alike."""
_ABOVE = 1.05
"""Rounding of figures above a wire's rate."""
_COLLNET = "NCCL_COLLNET_ENABLE"
_WARNINGS = 2
_SMALL = 0.05
"""A rest below this share of the expectation needs no cause."""
_SAME = 1 - 1e-6
"""Below this share a limit differs from another by more than rounding."""
_HOST_MEMORY = 27.9e9
_RECORDED = frozenset({"NVIDIA H100 80GB HBM3", "NVIDIA H200"})
"""Products measured through host memory with 2 and 4 GPUs of a node. Messages from 256 MiB on reached 22.9 to
27.9 GB/s (proof/hardware: 2026-11-23-h200-jobs, 2026-11-27-h100, 2026-11-28-h200)."""
_WITHOUT_GPUDIRECT = "two GH200 reached 80 of 96 GB/s so (NVIDIA/nccl#1579), other machines may lose more"
_ACROSS = "it need not cost: rings that alternate reached 390 GB/s, others 370 (oracle-quickstart/oci-hpc#48)"
"""Public figures of causes, which hold for no other machine."""
_EVEN = 0.98
"""Below this share of all parts together, a single part holds the ring back."""


@dataclass(frozen=True, slots=True)
class LossPart:
    """A cause: busbw that it costs, in bytes per second, null where no line shows its cost; and `limit`.

    `at`: the lines that show it, as `FILE:LINE`, empty for what options or products say.
    """

    what: str
    lost: float | None
    limit: float | None
    at: str


@dataclass(frozen=True, slots=True)
class LossAccount:
    """The loss of the largest message of a run. Busbw in bytes per second, of its slower placement.

    `expected`: of NCCL's own choice, null where nothing is; healthy runs are up to the share `within` below.
    `parts`: those with a cost, the highest limit first; they and `unexplained` sum up to the loss. `others`:
    causes whose cost is not known.
    """

    op: str
    size_bytes: int
    in_place: bool
    at: str
    measured: float
    expected: float | None
    within: float | None
    parts: list[LossPart]
    unexplained: float | None
    others: list[LossPart]

    def lines(self) -> Iterator[str]:
        """Yield the account for people."""
        place = " in place" if self.in_place else ""
        head = f"Loss of {self.op} of {size(self.size_bytes)}{place}: {self.measured / GB:.1f}"
        if self.expected is None or self.within is None or self.unexplained is None:
            yield f"{head} GB/s, and what is expected is not known ({self.at})"
            yield from (f"  at most {(one.limit or 0) / GB:.1f} GB/s: {_cited(one)}" for one in self.parts)
        else:
            lost = max(self.expected - self.measured, 0.0)
            yield f"{head} of {self.expected / GB:.1f} GB/s, {lost / GB:.1f} lost ({self.at})"
            yield from (f"  {(one.lost or 0) / GB:.1f} GB/s: {_cited(one)}" for one in self.parts)
            rest = self.unexplained
            if rest > 0:
                well = rest <= self.within * self.expected
                why = f"; healthy runs are up to {percent(self.within)} below" if well else ""
                also = "; a part may be by the causes below" if self.others else ""
                yield f"  {rest / GB:.1f} GB/s: unexplained{also}{why}"
        yield from (f"  cost not known: {_cited(one)}" for one in self.others)


@dataclass(frozen=True, slots=True)
class LossEvidence:
    """Evidence for the place of a loss: a log, its line format, and the name of a topology file.

    `free`: the run's basis without its settings.
    """

    log: LogSummary
    at: At
    file: str
    free: Basis


class _Limit(NamedTuple):
    """A bound of busbw in bytes per second, and its source; not `firm` if it holds only for rings."""

    busbw: float
    what: str
    at: str
    firm: bool = True


class _Carrier(NamedTuple):
    """A part with `rate` bytes per second each way, and the channels that load it in one direction."""

    rate: float | None
    load: float
    what: str
    at: str


def account(judged: JudgedRun, basis: Basis, evidence: LossEvidence) -> LossAccount | None:
    """Return the loss of a run's largest message, None where no message measures bandwidth."""
    run = judged.run
    rates = [
        (point.size_bytes, -busbw, in_place, point)
        for point in judged.points
        for in_place, placed in point.placed.items()
        if point.size_bytes >= LEAST_BYTES and (busbw := middle(placed.busbw))
    ]
    if not rates or not run.op or run.mixed:
        return None
    largest, low, in_place, point = max(rates, key=lambda one: one[:2])
    due = next((one for one in judged.sizes if one.point is point and one.in_place == in_place), None)
    limits = [*_through_host(run, basis, evidence, -low), *_limits(run, basis, evidence)]
    expected, within, measured = None, None, -low
    # A way of which nothing is known leaves open what to expect.
    if due is not None and (due.least or due.well):
        expected, within = due.expected.busbw, due.expected.within
        if measured < due.least < expected:
            limits.append(_Limit(due.least, f"not decided: {basis.reason}", ""))
        free = _free(run, largest, evidence.free)
        if free > expected:
            names = [(name, value) for name, value, _ in basis.slowing if name in basis.followed]
            limits += [_Limit(expected, _setting(*one), _place_of(evidence, one[0])) for one in names]
            expected = free
    parts, others = _steps(expected, measured, limits)
    rest = None if expected is None else max(expected - measured - sum(one.lost or 0 for one in parts), 0.0)
    if rest is None or expected is None or rest > _SMALL * expected:
        others += _causes(run, basis, evidence, parts)
    else:
        others = []
    at = evidence.at(point.line or run.line)
    return LossAccount(run.op, largest, in_place, at, measured, expected, within, parts, rest, others)


def _steps(
    expected: float | None, measured: float, limits: Sequence[_Limit]
) -> tuple[list[LossPart], list[LossPart]]:
    """Return each limit's cost below the limits above it, and limits of rings or that the run exceeded."""
    parts, others, ceiling = list[LossPart](), list[LossPart](), expected
    rings = [one for one in limits if not one.firm and one.busbw < (expected or math.inf)]
    for limit, what, at, _ in sorted(rings, key=lambda one: one.busbw)[:1]:
        if limit * _ABOVE >= measured:
            text = f"if it ran as rings, at most {limit / GB:.1f} GB/s: {what}"
            others.append(LossPart(text, None, limit, at))
    for limit, what, at, _ in sorted((one for one in limits if one.firm), key=lambda one: -one.busbw):
        if limit * _ABOVE < measured:
            above = f"{what}: at most {limit / GB:.1f} GB/s, and more was measured"
            others.append(LossPart(above, None, limit, at))
        elif ceiling is None:
            parts.append(LossPart(what, None, limit, at))
        elif measured < ceiling and limit < _SAME * ceiling:
            lost = ceiling - max(limit, measured)
            parts.append(LossPart(what, lost, limit, at))
            ceiling -= lost
    return parts, others


def _free(run: BenchmarkRun, size_bytes: int, basis: Basis) -> float:
    """Return the highest expected busbw without settings, 0 where there is none."""
    found = [way.expect(run.op, size_bytes) for way in basis.ways]
    return max((one.busbw for one in found if not isinstance(one, Absent)), default=0.0)


def _limits(run: BenchmarkRun, basis: Basis, evidence: LossEvidence) -> Iterator[_Limit]:
    """Yield the limits of each host's ports, slots and switches, by the way of the run's rings."""
    found = ring_audit(run, evidence.log)
    if found is None or run.op not in RINGS:
        return
    ring = _is_ring(run, evidence.log, basis.settings.get(ALGO, ""))
    # By trees n nodes send 2 (n - 1) times a message in all; with reductions in switches each sends it once.
    sharp = (
        any("COLLNET" in one.text for one in evidence.log.network) or basis.settings.get(_COLLNET, "0") != "0"
    )
    times = 1.0 if ring else 2.0 if sharp else run.nodes / (run.nodes - 1)
    for host in found.by_host:
        least = math.inf
        for carriers, what in _carriers(host, found, evidence):
            rates = [one.rate for one in carriers if one.rate]
            every = times * sum(rates) if rates and len(rates) == len(carriers) else math.inf
            # What lies behind few ports is narrow for them alone.
            if every < least and host.whole:
                yield _Limit(every, f"{host.host}: {what}", carriers[0].at)
                least = every
            for one in carriers:
                busbw = (
                    one.rate * found.channels / one.load if one.rate and one.load and found.channels else 0
                )
                if 0 < busbw < min(_EVEN * sum(rates), least):
                    share = f"{one.load:g} of {found.channels} channels"
                    yield _Limit(busbw, f"{host.host}: {share} by {one.what}", one.at, ring)


def _through_host(
    run: BenchmarkRun, basis: Basis, evidence: LossEvidence, measured: float
) -> Iterator[_Limit]:
    """Yield the limit of host memory, where all GPUs of a node use it: their own PCIe link for each byte."""
    products = {gpu_product(one.product) for one in run.communicator}
    product = products.pop() if len(products) == 1 else None
    rate = pcie_rate(product.pcie, LANES) if product else None
    off = number(basis.settings.get(P2P_OFF, "")) == 1
    inside = [
        used
        for comm in evidence.log.communicators
        for used in (comm.wires if comm.ranks in {run.ranks, None} else ())
        if used.fallback or used.wire in {"p2p", "nvls"}
    ]
    if product is None or rate is None or isinstance(rate, Absent) or not (inside or off):
        return
    if any(used.wire != "shm" for used in inside):
        return
    lines = [_place_of(evidence, P2P_OFF) if off else "", evidence.at(inside[0].line) if inside else ""]
    what = f"{P2P_OFF}=1: " if off else ""
    alike = run.nodes == 1 and run.ranks in {2, 4} and product.name in _RECORDED
    if alike and measured <= _ABOVE * _HOST_MEMORY:
        rate, why = _HOST_MEMORY, "2 and 4 H100 and H200 reached 22.9 to 27.9 GB/s so"
    else:
        why = f"PCIe {product.pcie} x{LANES} of each GPU, at most"
    text = f"{what}GPUs of a node reach each other through host memory: {why}"
    yield _Limit(rate, text, ", ".join(filter(None, lines)))


def _carriers(
    host: HostNics, found: RingAudit, evidence: LossEvidence
) -> Iterator[tuple[list[_Carrier], str]]:
    few = len(host.nics) < host.listed and host.whole
    some = f"{len(host.nics)} of its {host.listed}" if few else f"{len(host.nics)}"
    if host.host:
        yield _ports(host, evidence), f"{some} NICs of {host.rates} in use"
        yield _slots(host, evidence), "PCIe slots of its NICs"
        yield _switches(host, found, evidence), "without GPUDirect RDMA each byte passes its switches twice"


def ring_audit(run: BenchmarkRun, log: LogSummary) -> RingAudit | None:
    """Return a run's possible communicator between nodes; of several, the first if all use NICs alike."""
    alike = [one for one in log.rings if one.ranks in {run.ranks, None}]
    used = {
        tuple((nic.host, nic.number, nic.sends, nic.receives, nic.not_direct) for nic in one.nics)
        for one in alike
    }
    return alike[0] if len(used) == 1 and run.nodes != 1 else None


def _is_ring(run: BenchmarkRun, log: LogSummary, algorithm: str) -> bool:
    """Return whether large messages ran as rings, by the log or a setting; only all_reduce has others."""
    if run.op != ALL_REDUCE:
        return True
    chosen = {
        one.algorithm for one in log.choices if one.op in {run.op, ""} and one.high_bytes >= LEAST_BYTES
    }
    return {one.upper() for one in chosen or {algorithm}} == {RING.upper()}


def _ports(host: HostNics, evidence: LossEvidence) -> list[_Carrier]:
    return [
        _Carrier(nic.rate, nic.load, f"{_name(nic)} of {gigabits(nic.rate or 0)}", _rated_at(nic, evidence))
        for nic in host.nics
    ]


def _slots(host: HostNics, evidence: LossEvidence) -> list[_Carrier]:
    return [
        _Carrier(nic.slot, nic.load, f"the PCIe slot of {_name(nic)}", f"{evidence.file}:{nic.file_line}")
        for nic in host.nics
    ]


def _switches(host: HostNics, found: RingAudit, evidence: LossEvidence) -> list[_Carrier]:
    """Return switches with their load; each byte goes up one switch and down one at each end."""
    ours = [one for one in found.switches if one.host == host.host]
    ends = sum(nic.sends + nic.receives for nic in host.nics)
    if sum(one.up for one in ours) != ends or sum(one.down for one in ours) != ends:
        return []
    what = "PCIe switch {}, which bytes pass without GPUDirect RDMA"
    return [
        _Carrier(
            one.rate / 2,
            max(one.up, one.down) / 2,
            what.format(one.address),
            f"{evidence.file}:{one.file_line}",
        )
        for one in ours
    ]


def _name(nic: UsedNic) -> str:
    return nic.name or f"NIC {nic.number}"


def _rated_at(nic: UsedNic, evidence: LossEvidence) -> str:
    """Return the line of a hop that uses a NIC, and the line of its rate."""
    rated = evidence.at(nic.rate_line) if nic.rate_line else f"{evidence.file}:{nic.file_line}"
    return f"{evidence.at(nic.line)}, {rated}"


def _place_of(evidence: LossEvidence, name: str) -> str:
    return next((evidence.at(one.line) for one in evidence.log.settings if one.name == name), "")


def _causes(
    run: BenchmarkRun, basis: Basis, evidence: LossEvidence, parts: Sequence[LossPart]
) -> Iterator[LossPart]:
    """Yield causes that the log shows without a cost."""
    log, at = evidence.log, evidence.at
    through_host = any("through host memory" in one.what for one in parts)
    for comm in log.communicators:
        for used in comm.wires if comm.ranks in {run.ranks, None} else ():
            if used.fallback and not (through_host and used.wire == "shm"):
                what = f"{count(used.pairs, 'pair')} of ranks of one node on {used.name}"
                yield LossPart(what, None, None, at(used.line))
    found = ring_audit(run, log)
    if found is not None:
        priced = any("switch" in one.what for one in parts)
        yield from _between(found, log.gpudirect.quotes, at, priced=priced)
    for name, value, effect in basis.slowing:
        if not any(one.what.startswith(f"{name}=") for one in parts):
            yield LossPart(f"{_setting(name, value)}: {effect}", None, None, _place_of(evidence, name))
    yield from (LossPart(one.text, None, None, at(one.line)) for one in log.warnings[:_WARNINGS])


def _between(found: RingAudit, why: Sequence[Quote], at: At, *, priced: bool) -> Iterator[LossPart]:
    if found.networks == ["Socket"]:
        what = "TCP sockets: each byte passes host memory and the kernel at both ends, without RDMA"
        yield LossPart(what, None, None, at(found.nics[0].line))
    elif not priced:
        for host in found.by_host:
            direct, ends = host.direct
            if direct < ends:
                ends_off = f"no GPUDirect RDMA at {ends - direct} of {count(ends, 'end')}"
                what = f"{host.host}: {ends_off}; {_WITHOUT_GPUDIRECT}"
                yield LossPart(what, None, None, at(host.line))
        if found.not_direct:
            yield from (LossPart(one.text, None, None, at(one.line)) for one in why[:1])
    crossing = [hop for hop in found.hops if hop.rail == "cross"]
    if crossing:
        what = f"{count(found.cross_rail, 'hop')} of {found.hop_count} across rails; {_ACROSS}"
        yield LossPart(what, None, None, at(crossing[0].send.line))


def _setting(name: str, value: str) -> str:
    return f"{name}={value}"


def _cited(one: LossPart) -> str:
    return f"{one.what} ({one.at})" if one.at else one.what
