"""Expected busbw: the wire under a group of GPUs, and the busbw of NCCL's defaults on it at a size.

`wire`: bytes per second that one GPU can send each way when no link is lost. It is known of more nodes than
NCCL's busbw on it. `choose`: the algorithm of NCCL's tuner. `expect` takes the share of the wire that it
reaches from busbw.references, or from the operator's pins. Without either, the least share of the wire that
is plausible remains (`PLAUSIBLE`).
"""

from dataclasses import dataclass, replace

from wirewatch.busbw.formulas import DIRECT, FACTORS, NVLS, PAIRWISE, RING, factor
from wirewatch.busbw.references import (
    LEAST_BYTES,
    NVLS_FROM,
    Confidence,
    Reference,
    ReferenceQuery,
    architecture,
    find,
    fitted,
    same_wire,
)
from wirewatch.core.pci import LANE_RATES, Path
from wirewatch.core.probe import ALL_REDUCE, MIB, Conditions
from wirewatch.core.topology import PATHS, WireKind, due_links, nvlink_product
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import GB, percent, rate, size
from wirewatch.nccl.settings import NVLS_ENABLE, number

_NOISE = 0.01
"""Share by which the driver's link rate may differ from the product's without a remark."""
_WITHIN, _AT_MOST, _LARGE = 0.3, 0.6, 256 * MIB
"""Shares by which healthy machines may be below a reference: in general, or up to `_LARGE` without latency.
"""
_PINNED = "pinned by the operator"
_UNASKED = Absent(Why.MISSING, "the operator pinned this size alone")


@dataclass(frozen=True, slots=True)
class GroupWire:
    """The sending rate of one GPU of a group: `rate` in bytes per second each way, `lines` derive it.

    `live`: the rate of the active links within the group alone. On a board without a switch other links may
    lead to GPUs that this machine does not have.
    """

    rate: float
    lines: tuple[str, ...]
    live: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """The `busbw` at one size and of ever larger messages, bytes per second; `derivation` for people.

    `within`: the share by which healthy machines may be below it.
    """

    busbw: float
    asymptote: float | Absent
    algorithm: str
    confidence: Confidence
    source: str
    derivation: tuple[str, ...]
    within: float = _WITHIN


def wire(conditions: Conditions) -> GroupWire | Absent:
    """Return the wire of the group's slowest GPU with all links that it should have; Absent: not known."""
    group = conditions.group
    if group.kind is WireKind.UNKNOWN:
        return Absent(Why.MISSING, group.why or WireKind.UNKNOWN.value)
    if group.kind is WireKind.ALONE:
        return Absent(Why.UNSUPPORTED, "one GPU alone has no wire to another")
    return _pcie(conditions) if group.kind is WireKind.PCIE else _nvlink(conditions)


def wire_lines(rail: GroupWire | Absent) -> tuple[str, ...]:
    """Return the derivation of the wire, or say that it is not known, for people."""
    return (f"the wire is not known: {rail}",) if isinstance(rail, Absent) else rail.lines


def pcie_rate(generation: int, lanes: int) -> float | Absent:
    """Return bytes/s each way after line coding: 8b/10b, from generation 3 128b/130b, 242 of 256 for 6."""
    transfers = next((speed for speed, known in LANE_RATES.items() if known == generation), None)
    if transfers is None or lanes < 1:
        return Absent(Why.MALFORMED, f"not a PCIe link: generation {generation}, {lanes} lanes")
    coding = {1: 8 / 10, 2: 8 / 10, 6: 242 / 256}.get(generation, 128 / 130)
    return transfers * 1e9 * coding * lanes / 8


def expect(conditions: Conditions, op: str, size_bytes: int) -> Expectation | Absent:
    """Return the busbw to expect of a message of nccl-tests' size; Absent, never a guess, without one."""
    if op not in FACTORS or conditions.group.ranks < 2:  # noqa: PLR2004
        return Absent(Why.UNSUPPORTED, f"no bus bandwidth of {op} with {conditions.group.ranks} GPU")
    rail, (algorithm, why) = wire(conditions), choose(conditions, op)
    pinned = conditions.pins.get(f"{op}@{size_bytes}")
    if pinned is not None:
        return _pinned(rail, algorithm, pinned, size_bytes)
    if size_bytes < LEAST_BYTES:
        return Absent(Why.UNSUPPORTED, f"messages under {size(LEAST_BYTES)} measure latency, not bandwidth")
    most = conditions.pins.get(op)
    if most is not None:
        return _under(conditions, rail, algorithm, most, op, size_bytes)
    if isinstance(rail, Absent):
        return rail
    return _by_reference(conditions, op, rail, (algorithm, why), size_bytes)


def choose(conditions: Conditions, op: str) -> tuple[str, tuple[str, ...]]:
    """Return the algorithm of NCCL's defaults for large messages, and the reason where that is not plain."""
    if op in PAIRWISE:
        return DIRECT, ()
    group, arch = conditions.group, _arch(conditions)
    least = None if isinstance(arch, Absent) else NVLS_FROM.get(arch)
    if op != ALL_REDUCE or group.kind is not WireKind.SWITCH or least is None:
        return RING, ()
    setting = conditions.settings.get(NVLS_ENABLE, "")
    if setting and number(setting) == 0:
        return RING, (f"NVLS is switched off: {NVLS_ENABLE}={setting}",)
    if group.ranks < least:
        return RING, (f"NCCL's tuner takes NVLS from {least} {arch} GPUs on, Ring with {group.ranks}",)
    if conditions.multicast is False:
        return RING, ("NVLS is not offered by the driver here: no multicast",)
    remarks = ("with NVLS the switch adds up: bus bandwidth may exceed the wire",)
    given = ("that the driver offers multicast is taken as given",)
    return NVLS, (*remarks, *(given if isinstance(conditions.multicast, Absent) else ()))


def _pcie(conditions: Conditions) -> GroupWire | Absent:
    if isinstance(conditions.pcie, Absent):
        return Absent(conditions.pcie.why, f"PCIe generation and lanes: {conditions.pcie.detail}")
    generation, lanes = conditions.pcie.generation, conditions.pcie.lanes
    bus = pcie_rate(generation, lanes)
    if isinstance(bus, Absent):
        return bus
    crossing = conditions.group.crossing
    where = PATHS[crossing] if isinstance(crossing, Path) else "a path that is not known"
    crosses = f"no NVLink joins all {conditions.group.ranks} GPUs: a ring crosses {where}"
    return GroupWire(bus, (crosses, f"PCIe {generation} x{lanes} = {rate(bus)} each way"), bus)


def _nvlink(conditions: Conditions) -> GroupWire | Absent:
    found: list[GroupWire] = []
    for place, gpu in enumerate(conditions.group.gpus):
        one = _gpu(conditions, place)
        if isinstance(one, Absent):
            return Absent(one.why, f"GPU {gpu.index}: {one.detail}")
        found.append(one)
    slowest = min(found, key=lambda one: one.rate)
    lost = tuple(line for one in found for line in one.lines[1:])
    mixed = any(one.rate != slowest.rate for one in found)
    lines = (slowest.lines[0], *(["of the slowest GPU"] if mixed else []), *lost)
    return GroupWire(slowest.rate, lines, min(one.live for one in found))


def _gpu(conditions: Conditions, place: int) -> GroupWire | Absent:
    """Return one GPU's wire: the first line is the product of links and rate, the others are remarks."""
    group = conditions.group
    gpu, live = group.gpus[place], group.links[place]
    peers = (due_links(g.name, n) for g, n in zip(group.gpus, group.links, strict=True) if g.name == gpu.name)
    links = max(peers) if conditions.links is None else conditions.links
    product = nvlink_product(gpu.name)
    shown = conditions.link_rate
    each = product.link_rate if product else shown
    if isinstance(each, Absent):
        name = gpu.name or "a product without name"
        return Absent(each.why, f"the rate of a link of {name}: {each.detail}")
    if links < 1:
        return Absent(Why.MISSING, "no NVLink link is up, and none is known to be due")
    lines = [f"{links} NVLink links x {_short(each)} GB/s = {rate(links * each)} each way"]
    if live < links:
        lost = "that lowers what is measured, not what is expected"
        lines.append(f"GPU {gpu.index} shows {live} of {links} links up: {lost}")
    if not isinstance(shown, Absent) and abs(shown - each) > _NOISE * each and place == 0:
        lines.append(f"the driver shows {_short(shown)} GB/s a link: the product's data are used")
    return GroupWire(links * each, tuple(lines), live * each)


def _short(each: float) -> str:
    return f"{each / GB:.3f}".rstrip("0").rstrip(".")


def _arch(conditions: Conditions) -> str | Absent:
    """Return the architecture of all GPUs; Absent for a mixed group."""
    found = {architecture(gpu.name) for gpu in conditions.group.gpus}
    names = ", ".join(sorted({gpu.name or "without a name" for gpu in conditions.group.gpus}))
    several = Absent(Why.UNSUPPORTED, f"GPUs of several architectures: {names}")
    return found.pop() if len(found) == 1 else several


def _reference(conditions: Conditions, op: str, algorithm: str, rail: GroupWire) -> Reference | Absent:
    group, arch = conditions.group, _arch(conditions)
    if isinstance(arch, Absent) and group.kind is not WireKind.PCIE:
        # An unknown product explains more than a missing reference.
        return arch
    return find(ReferenceQuery(group.kind, algorithm, op, arch, group.ranks, rail.rate, group.crossing))


def _pinned(rail: GroupWire | Absent, algorithm: str, value: float, size_bytes: int) -> Expectation:
    line = f"{size(size_bytes)}: {rate(value)}, {_PINNED}"
    return Expectation(value, _UNASKED, algorithm, Confidence.OPERATOR, _PINNED, (*wire_lines(rail), line))


def _under(
    conditions: Conditions, rail: GroupWire | Absent, algorithm: str, most: float, op: str, size_bytes: int
) -> Expectation:
    """Return the expectation below the operator's asymptote, with a reference's latency term if any."""
    reference = rail if isinstance(rail, Absent) else _reference(conditions, op, algorithm, rail)
    latency = reference if isinstance(reference, Absent) else fitted(reference).latency
    busbw, line = _at(most, latency, factor(op, conditions.group.ranks), size_bytes)
    derivation = (*wire_lines(rail), f"large messages: {rate(most)}, {_PINNED}", line)
    return Expectation(busbw, most, algorithm, Confidence.OPERATOR, _PINNED, derivation)


def _expected(
    ranks: int, rail: GroupWire, reference: Reference, why: tuple[str, ...], size_bytes: int
) -> Expectation:
    model = fitted(reference)
    most = model.efficiency * rail.rate
    busbw, line = _at(most, model.latency, factor(reference.op, ranks), size_bytes)
    doubts = _doubts(ranks, rail, reference, size_bytes)
    confidence = Confidence.LOW if doubts else reference.confidence
    share = (
        f"{reference.algorithm} over {reference.kind.value}, {ranks} GPUs: "
        f"{percent(model.efficiency, 1)} of the wire = {rate(most)} "
        f"({reference.confidence.value}: {reference.source})"
    )
    derivation = (*rail.lines, *why, share, *doubts, line)
    most_only = isinstance(model.latency, Absent) and size_bytes < _LARGE
    within = _AT_MOST if most_only else _WITHIN
    return Expectation(busbw, most, reference.algorithm, confidence, reference.source, derivation, within)


def _by_reference(
    conditions: Conditions, op: str, rail: GroupWire, choice: tuple[str, tuple[str, ...]], size_bytes: int
) -> Expectation | Absent:
    """Return the expectation by the chosen algorithm, or by Ring if faster at this size, as NCCL's tuner."""
    ranks, (algorithm, why) = conditions.group.ranks, choice
    reference, other = (_reference(conditions, op, one, rail) for one in (algorithm, RING))
    if isinstance(reference, Absent):
        return reference
    found = _expected(ranks, rail, reference, why, size_bytes)
    if isinstance(other, Absent) or isinstance(fitted(other).latency, Absent):
        return found
    gives = f"at {size(size_bytes)} NVLS's line gives {rate(found.busbw)}"
    faster = (f"NCCL's tuner takes the faster of NVLS and Ring: {gives}",)
    ring = _expected(ranks, rail, other, faster, size_bytes)
    return found if ring.busbw <= found.busbw else replace(ring, asymptote=found.asymptote)


def _at(most: float, latency: float | Absent, share: float, size_bytes: int) -> tuple[float, str]:
    """Return the bus bandwidth at one size below an asymptote, and its line for people."""
    if isinstance(latency, Absent):
        return most, f"{size(size_bytes)}: no latency term is known -> {rate(most)} at most"
    busbw = share * size_bytes / (latency + share * size_bytes / most)
    return busbw, f"{size(size_bytes)}: {latency * 1e6:.0f} us latency term -> {rate(busbw)}"


def _doubts(ranks: int, rail: GroupWire, reference: Reference, size_bytes: int) -> tuple[str, ...]:
    """Return the differences between the reference and the group in question."""
    least = reference.points[0][0]
    doubts = (
        (reference.ranks != ranks, f"that is of {reference.ranks} GPUs"),
        (not same_wire(reference, rail.rate), f"that is of a wire of {rate(reference.wire)}"),
        (size_bytes < least, f"that is of {size(least)} and more"),
    )
    return tuple(doubt for holds, doubt in doubts if holds)
