"""From a probe's times to bus bandwidths, beside expected and usual values. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from wirewatch.busbw.expected import Expectation, GroupWire, expect, wire
from wirewatch.busbw.formulas import asymptote, busbw, wire_bytes
from wirewatch.busbw.network import expect_network
from wirewatch.busbw.references import LEAST_BYTES, Confidence
from wirewatch.core.account import Comm
from wirewatch.core.probe import (
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    LinkBytes,
    Moved,
    Part,
    PathBytes,
    Probed,
    Timed,
)
from wirewatch.core.statistics import AcceptedRates, UsualRate, grouped
from wirewatch.core.topology import NVLINK, WireKind
from wirewatch.core.types import Absent, Finding, Health, Why, worst
from wirewatch.nccl.log import Fallback, algorithms, fallbacks, logged_size
from wirewatch.nccl.settings import slowing_settings
from wirewatch.probe.network import by_network, unproven, went_by_rdma

GPU_ENGINES = frozenset({"nccl", "torch", "distributed"})
NOT_GPUS = Absent(Why.UNSUPPORTED, "the gloo engine measures this machine's processors, not its GPUs")
NOT_NVLINK = Absent(Why.UNSUPPORTED, "the network carries it, not the wires between the GPUs")
NOT_SHOWN = "NCCL's log does not show that the RDMA ports carried it"
REDUCTIONS = frozenset({ALL_REDUCE, REDUCE_SCATTER, REDUCE})
REFERENCE_DTYPE = "float32"
"""The type of the elements with which the references were measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One collective at one size over one group: bus bandwidths in bytes per second.

    `best`: the fastest single run. `algorithm` and `protocol` are as in NCCL's log, else empty. `wire`: the
    rate at which one GPU of the group can send each way. `usual`: the rate of accepted probes of this node,
    None while there are too few.
    """

    group: int
    gpus: str
    ranks: int
    op: str
    size_bytes: int
    seconds: float
    busbw: float
    best: float
    lowest: float
    wrong: int
    latency: bool
    algorithm: str
    protocol: str
    expected: Expectation | Absent
    wire: GroupWire | Absent
    usual: UsualRate | None = None

    @property
    def trusted(self) -> Expectation | None:
        """Return the expectation, unless it is of low confidence: that is for people, not for verdicts."""
        if isinstance(self.expected, Absent) or self.expected.confidence is Confidence.LOW:
            return None
        return self.expected

    @property
    def ratio(self) -> float | None:
        """Return the share of the expectation at that size; None without an expectation to judge by."""
        return self.busbw / self.trusted.busbw if self.trusted else None

    @property
    def peak_ratio(self) -> float | None:
        """Return the share of the wire of one GPU each way, also without an expectation; None for latency."""
        return None if self.latency or isinstance(self.wire, Absent) else self.busbw / self.wire.rate


EVEN = frozenset({WireKind.SWITCH, WireKind.PAIR})
"""Groups in which a GPU's links all carry the same."""
QUIET = frozenset({"effective", "symbol", "recovery_successful"})
"""Kinds of corrected errors that delay nobody; healthy links show them too."""
GUESSED = 0.02
"""The largest guessed part of the bytes that are due."""
WIRES = {
    "shm": "host memory", "net_socket": "TCP sockets", "net_ib": "InfiniBand without GPUDirect",
    "net_ib_gdr": "InfiniBand", "net_other": "a network", "unknown": "a way that is not known",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective at one size over GPUs by UUID; `conditions`: engine, NCCL, and settings that slow it."""

    op: str
    size_bytes: int
    gpus: tuple[str, ...]
    conditions: str


CollectiveRates = AcceptedRates[Collective]
"""Bus bandwidths of accepted probes by collective."""


def measure(probed: Probed) -> tuple[Measured, ...]:
    """Return all measurements, in the order of the plan; nothing for a probe that was broken off."""
    if probed.outcome != "ok":
        return ()
    choices = algorithms(probed.account) if probed.account else {}
    version = probed.account.version if probed.account else Absent(Why.MISSING)
    small = frozenset(probed.plan.latency_sizes)
    found = []
    for timed in probed.shown.collectives:
        ranks = len(probed.plan.groups[timed.group])
        asked = logged_size(timed.op, timed.size_bytes, ranks, version)
        algorithm, protocol = choices.get((timed.op, asked)) or choices.get(("", asked)) or ("", "")
        found.append(
            Measured(
                group=timed.group,
                gpus=gpu_names(probed, timed.group),
                ranks=ranks,
                op=timed.op,
                size_bytes=timed.size_bytes,
                seconds=timed.seconds,
                busbw=_busbw(timed, ranks, timed.seconds),
                best=_busbw(timed, ranks, timed.low),
                lowest=_busbw(timed, ranks, timed.high),
                wrong=timed.wrong,
                latency=timed.size_bytes in small,
                algorithm=algorithm,
                protocol=protocol,
                expected=_expected(probed, timed),
                wire=_wire(probed, timed.group),
            )
        )
    return tuple(found)


def not_as_asked(probed: Probed) -> str:
    """Return why a complete probe did not measure as planned; empty where it did."""
    document = probed.shown
    if document.not_offered and not document.collectives:
        return f"the engine {document.engine} does not offer {', '.join(document.not_offered)}"
    return unproven(probed)


def health_of(probed: Probed | None, findings: Sequence[Finding]) -> Health:
    """Return the health by one probe: at least UNKNOWN where it did not end, or not run as planned."""
    shown = probed is not None and probed.outcome == "ok" and not not_as_asked(probed)
    return worst(findings) if shown else max(Health.UNKNOWN, worst(findings))


def without_expectation(measured: Iterable[Measured]) -> tuple[str, ...]:
    """Return collectives of GPUs without an expectation good enough to judge by, each once."""
    large = (one for one in measured if not one.latency and one.size_bytes >= LEAST_BYTES)
    unknown = (one for one in large if one.trusted is None and one.expected is not NOT_GPUS)
    return tuple(dict.fromkeys(one.op + on_gpus(one.gpus) for one in unknown))


def on_gpus(gpus: str) -> str:
    """The GPUs of a group for a text, where they are not all."""
    return "" if gpus == "all" else f" on GPUs {gpus}"


def gpu_names(probed: Probed, group: int) -> str:
    """The GPUs of a group by index: `all`, or like `0-3` and `0,2,4`."""
    members = probed.plan.groups[group]
    if len(members) == len(probed.plan.gpus):
        return "all"
    indexes = sorted(probed.gpus[p].index if p < len(probed.gpus) else p for p in members)
    parts = grouped((index - place, index) for place, index in enumerate(indexes)).values()
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def asymptotes(measured: Iterable[Measured]) -> dict[tuple[int, str], float]:
    """Return the bus bandwidth of ever larger messages, by group and op, from the line through all sizes."""
    points = grouped(((one.group, one.op), one) for one in measured if not one.latency)
    values = {
        key: asymptote(key[1], ones[0].ranks, [(one.size_bytes, one.seconds) for one in ones])
        for key, ones in points.items()
    }
    return {key: value for key, value in values.items() if not isinstance(value, Absent)}


def crossings(probed: Probed, measured: Sequence[Measured]) -> tuple[PathBytes, ...]:
    """Return the bytes by part and GPU; nothing for algorithms and wires whose due bytes are not known."""
    if by_network(probed.plan):
        return ()
    found = []
    parts = {part.name: part for part in probed.parts}
    for group, conditions in enumerate(probed.conditions):
        if conditions.group.kind not in NVLINK:
            continue
        for op in probed.plan.ops:
            part = parts.get(f"{op}.{group}")
            due = _due(probed, measured, group, op)
            if part is not None and due is not None:
                found += [_crossing(probed, part, p, due) for p in probed.plan.groups[group]]
    copied = parts.get("copies")
    if copied is not None and len(probed.conditions) == 1 and probed.conditions[0].group.kind in NVLINK:
        found += _copied(probed, copied)
    return tuple(found)


def unevenness(links: LinkBytes) -> tuple[int, float] | None:
    """Return the link of a GPU farthest from the mean of its links, and its distance as a share of that.

    None with fewer than two links that carried anything.
    """
    found: list[tuple[int, float]] = []
    for values in (links.transmit, links.receive):
        known = [v for v in values if v is not None]
        mean = sum(known) / len(known) if len(known) > 1 else 0.0
        away = (0.0 if value is None else abs(value / mean - 1) for value in values)
        found += zip(links.links, away, strict=True) if mean else ()
    return max(found, key=lambda link: link[1], default=None)


def new_errors(probed: Probed) -> dict[int, dict[str, int]]:
    """Errors that NVLink counted while the probe ran, by GPU and kind."""
    found: dict[int, dict[str, int]] = {}
    for part in probed.parts:
        for moved in part.moved:
            for kind, count in moved.errors.items():
                if count and kind not in QUIET:
                    kinds = found.setdefault(moved.gpu, {})
                    kinds[kind] = kinds.get(kind, 0) + count
    return found


def comms_of(probed: Probed, groups: Collection[int]) -> tuple[Comm, ...]:
    """Return NCCL's communicators with as many ranks as these groups, since its log names no group."""
    comms = probed.account.comms if probed.account else ()
    sizes = {len(probed.plan.groups[group]) for group in groups}
    return tuple(comm for comm in comms if comm.ranks in sizes)


def detours(probed: Probed) -> tuple[Fallback, ...]:
    """Connections that NCCL did not make from GPU to GPU, in groups where every two have NVLink."""
    near = [group for group, one in enumerate(probed.conditions) if one.group.kind in NVLINK]
    if probed.account is None or by_network(probed.plan):
        return ()
    return fallbacks(replace(probed.account, comms=comms_of(probed, near)))


def worst_wire(found: Sequence[Fallback]) -> str:
    """The wires of these connections for people, each once."""
    return ", ".join(dict.fromkeys(WIRES.get(one.wire, one.wire) for one in found))


def beside_usual(
    probed: Probed, measured: Sequence[Measured], history: CollectiveRates, least: int
) -> tuple[Measured, ...]:
    """Return the measurements with the usual values where at least `least` accepted probes give them."""
    usual = {id(one): history.of(key, "", least) for key, one in _collectives(probed, measured)}
    return tuple(replace(one, usual=usual.get(id(one))) for one in measured)


def learn_collectives(
    history: CollectiveRates, probed: Probed, measured: Sequence[Measured]
) -> CollectiveRates:
    """The history after a probe that found nothing."""
    rates = {key: one.busbw for key, one in _collectives(probed, measured)}
    return history.learned("", rates, probed.at)


def _busbw(timed: Timed, ranks: int, seconds: float) -> float:
    return busbw(timed.op, ranks, timed.size_bytes, seconds) if seconds > 0 else 0.0


def _expected(probed: Probed, timed: Timed) -> Expectation | Absent:
    if probed.plan.engine not in GPU_ENGINES:
        return NOT_GPUS
    conditions = probed.conditions[timed.group]
    if isinstance(conditions.multicast, Absent) and probed.account and probed.account.nvls:
        # Whether the driver offers what NVLS needs is known once NCCL has asked it.
        offered = all(device.available for device in probed.account.nvls)
        conditions = replace(conditions, multicast=offered)
    if by_network(probed.plan):
        found = expect_network(conditions, timed.op, timed.size_bytes)
        doubt = "" if went_by_rdma(probed.account) else NOT_SHOWN
    else:
        found = expect(conditions, timed.op, timed.size_bytes)
        # Adding up takes other time for other elements; moving bytes does not.
        other = timed.op in REDUCTIONS and probed.plan.dtype != REFERENCE_DTYPE
        doubt = f"that is of {REFERENCE_DTYPE}, and {probed.plan.dtype} is added up" if other else ""
    if isinstance(found, Absent) or not doubt:
        return found
    return replace(found, confidence=Confidence.LOW, derivation=(*found.derivation, f"{doubt}: not judged"))


def _wire(probed: Probed, group: int) -> GroupWire | Absent:
    if by_network(probed.plan):
        return NOT_NVLINK
    return wire(probed.conditions[group]) if probed.plan.engine in GPU_ENGINES else NOT_GPUS


def _due(probed: Probed, measured: Sequence[Measured], group: int, op: str) -> float | None:
    """Return the bytes that each GPU must send in all runs of a collective; None where that is not known."""
    runs = {(t.group, t.op, t.size_bytes): t.runs for t in probed.shown.collectives}
    due, small = 0.0, 0.0
    for one in measured:
        if (one.group, one.op) != (group, op):
            continue
        times = runs[group, op, one.size_bytes]
        sent = wire_bytes(op, one.algorithm, one.ranks, one.size_bytes, one.protocol)
        if isinstance(sent, Absent) or not sent.alike:
            if not one.latency:
                return None
            # Small messages are thousandths of the whole, whatever way they take.
            small += 2.0 * one.size_bytes * times
            continue
        due += sent.bytes * times
    return due + small if small < GUESSED * due else None


def _crossing(probed: Probed, part: Part, position: int, due: float) -> PathBytes:
    moved = next((m for m in part.moved if m.gpu == position), Moved(position, None, None, {}))
    return PathBytes(part.name, probed.gpus[position].index, due, moved.transmit, moved.receive)


def _copied(probed: Probed, part: Part) -> list[PathBytes]:
    due: defaultdict[int, float] = defaultdict(float)
    for copy in probed.shown.copies:
        if not copy.direct:
            return []
        due[copy.source] += copy.size_bytes * copy.runs
    return [_crossing(probed, part, position, amount) for position, amount in sorted(due.items())]


def _collectives(probed: Probed, measured: Sequence[Measured]) -> Iterator[tuple[Collective, Measured]]:
    """Return collectives that measure GPU bandwidth: smaller messages measure latency, gloo processors."""
    if not probed.gpus:
        return
    version = probed.shown.versions.get("nccl", "")
    slowing = (f"{name}={value}" for name, value, _ in slowing_settings(probed.settings))
    conditions = " ".join((probed.plan.engine, version, *sorted(slowing)))
    for one in measured:
        if not one.latency and one.size_bytes >= LEAST_BYTES:
            gpus = tuple(probed.plan.gpus[place] for place in probed.plan.groups[one.group])
            yield Collective(one.op, one.size_bytes, gpus, conditions), one
