"""Results of probes drawn by hand: healthy ones of several nodes, and ways in which they can be wrong.

With two GPUs on a switch times and clocks are those that two H200s gave; elsewhere those that are expected,
and where nothing is, three quarters of what copies give.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.node.busbw.nodes import H200, L40S, bridged, node, parted, sockets, switched
from tests.node.probe.hosted import hosted
from tests.support import EPOCH
from wirewatch.busbw.expected import Expectation, choose, expect
from wirewatch.core.account import Account, Call, Channels, Comm, Connection, Device, Multicast
from wirewatch.core.hostlink import Pcie
from wirewatch.core.ports import Order
from wirewatch.core.probe import DOCUMENT_SCHEMA as WORKER
from wirewatch.core.probe import (
    MIB,
    PROBED_SCHEMA,
    Clocks,
    Conditions,
    Copy,
    Cost,
    Document,
    LinkBytes,
    Micro,
    Moved,
    Outcome,
    Part,
    Plan,
    Probed,
    ProbedGpu,
    Timed,
)
from wirewatch.core.topology import SWITCH, Island, Topology, WireKind, groups, islands
from wirewatch.probe.findings import probe_findings as all_findings
from wirewatch.probe.measurement import measure
from wirewatch.probe.model import ProbeFinding, ProbePolicy

OFF = {"NCCL_NVLS_ENABLE": "0"}
SIZES = (64 * MIB, 256 * MIB, 512 * MIB)
TWO_H200: Mapping[str, Sequence[float]] = {
    "all_reduce": (255.6e-6, 899.1e-6, 1722.5e-6),
    "all_gather": (159.5e-6, 547.8e-6, 1046.2e-6),
    "reduce_scatter": (161.1e-6, 560.5e-6, 1046.3e-6),
}
"""Seconds at `SIZES`."""
SMALL = {8: 6.8e-6, 1024: 6.9e-6, 8192: 7.7e-6, 65536: 8.1e-6}
HEALTHY = "P2P/direct pointer"
FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
"""What a ring sends of a message, but for (ranks - 1) / ranks."""
LINKS = 18


@dataclass(frozen=True, slots=True)
class Knobs:
    """What is not as it should be; nothing unless given.

    `speed` of healthy busbw, `speeds` by group, `noise` by collective in turn; `fast`: of the fastest run to
    the mean. `share`: what NVLink counted of the bytes due, by GPU, None: not known. `link`: GPU, link and
    its share. `algorithm`: of all_reduce; `whole`, `transport`: NCCL's between GPUs, in the first group and
    in all. `multicast`: whether the driver offers it. `left`: what is left of the speed of a part, such as
    `compute 1`, `memory 1`, `pair 0>1`, by position.
    """

    speed: float = 1.0
    speeds: Mapping[int, float] = field(default_factory=dict)
    noise: Sequence[float] = (1.0,)
    fast: float = 1.0
    wrong: int = 0
    transport: str = HEALTHY
    whole: str = ""
    algorithm: str = ""
    protocol: str = "simple"
    share: Mapping[int, float | None] = field(default_factory=dict)
    link: tuple[int, int, float] | None = None
    errors: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    version: str = "2.28.9"
    multicast: bool = True
    left: Mapping[str, float] = field(default_factory=dict)


def on_switch(
    count: int, name: str = H200, settings: Mapping[str, str] = OFF, links: int = LINKS
) -> tuple[Conditions, ...]:
    """The conditions of GPUs that are all on one switch; NVLS is off unless given."""
    topology = switched(name, count, links)
    return _conditions(topology, islands(topology), settings)


def two_islands(
    each: int = 4, roots: int = 4, pins: Mapping[str, float] | None = None
) -> tuple[Conditions, ...]:
    """Two switches, whose GPUs meet over PCIe; `roots`: GPUs under one host bridge, 4: on one NUMA node."""
    count = 2 * each
    topology = node([H200] * count, {i: {SWITCH: LINKS} for i in range(count)}, sockets(count, roots))
    found = _conditions(topology, parted(topology, each), OFF)
    return tuple(replace(one, pins=pins or {}) for one in found)


def bridged_pair(name: str, links: int) -> tuple[Conditions, ...]:
    """Two GPUs that so many links join."""
    topology = bridged(name, 1, links)
    return _conditions(topology, islands(topology), {})


def on_pcie(count: int) -> tuple[Conditions, ...]:
    topology = node([L40S] * count, {}, sockets(count))
    return _conditions(topology, islands(topology), {})


def _conditions(
    topology: Topology, found: Sequence[Island], settings: Mapping[str, str]
) -> tuple[Conditions, ...]:
    return tuple(
        Conditions(one, pcie=Pcie(5, 16), settings=dict(settings)) for one in groups(topology, found)
    )


def drawn(
    conditions: Sequence[Conditions], *, engine: str = "nccl", at: float = EPOCH, outcome: Outcome = "ok",
    forced: bool = False, by: Literal["daemon", "command", "recording"] = "daemon", **knobs: Any,
) -> Probed:  # fmt: skip
    """A probe of these groups, the first of which holds all GPUs, with `Knobs`."""
    gpus = conditions[0].group.gpus
    place = {gpu.uuid: n for n, gpu in enumerate(gpus)}
    plan = Plan(
        engine,
        tuple(place),
        tuple(tuple(place[gpu.uuid] for gpu in one.group.gpus) for one in conditions),
    )
    probed = tuple(ProbedGpu(gpu.index, gpu.uuid, 645_000_000, 3_179_000_000, 645_000_000) for gpu in gpus)
    found = _probed(plan, probed, tuple(conditions), Knobs(**knobs))
    found = replace(found, at=at, by=by, forced=forced)
    return found if outcome == "ok" else broken(found, outcome)


def of_order(order: Order, at: float, outcome: Outcome = "ok", **knobs: Any) -> Probed:
    """What comes of an order."""
    gpus = tuple(ProbedGpu(gpu.index, gpu.uuid) for gpu in order.gpus)
    found = gloo(len(order.plan.gpus)) if not gpus else None
    found = found or _probed(order.plan, gpus, order.conditions, Knobs(**knobs))
    if order.plan.host_bytes:
        found = hosted(found, path=order.paths, near=None)
    found = replace(found, at=at, by=order.by, forced=order.forced, settings=dict(order.settings))
    return found if outcome == "ok" else broken(found, outcome)


def broken(probed: Probed, outcome: Outcome) -> Probed:
    """The same probe, ended early."""
    return replace(probed, outcome=outcome, why="as drawn", document=None, account=None, parts=(), links=())


def probe_findings(probed: Probed, policy: ProbePolicy) -> tuple[ProbeFinding, ...]:
    """What is wrong with a probe by what it measured."""
    return all_findings(probed, measure(probed), policy)


def gloo(ranks: int = 4) -> Probed:
    """Processes of this machine, a thousandth as fast."""
    plan = Plan("gloo", tuple(f"cpu:{n}" for n in range(ranks)), (tuple(range(ranks)),))
    timed = tuple(
        Timed(0, op, size, "host", 5, 8, 0.3, 0.2, 0.3, 0.4, 0) for op in plan.ops for size in plan.sizes()
    )
    document = Document(WORKER, "gloo", {"torch": "2.11.0"}, timed)
    return Probed(
        PROBED_SCHEMA, EPOCH, "daemon", forced=False, outcome="ok", why="", plan=plan, gpus=(), conditions=(),
        settings={}, seconds=4.0, held_seconds=2.0, document=document,
    )  # fmt: skip


def _micro(n: int, left: Mapping[str, float]) -> Micro:
    product, copied = (1 / left.get(f"{what} {n}", 1.0) for what in ("compute", "memory"))
    return Micro(
        n, 902e-6 * product, 898e-6 * product, 907e-6 * product,
        256 * MIB, 129.6e-6 * copied, 128.5e-6 * copied, 131.9e-6 * copied,
    )  # fmt: skip


def _probed(
    plan: Plan, gpus: tuple[ProbedGpu, ...], conditions: tuple[Conditions, ...], knobs: Knobs
) -> Probed:
    count = len(gpus)
    timed = tuple(_timed(plan, conditions, knobs))
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    document = Document(
        WORKER,
        plan.engine,
        {"nccl": knobs.version},
        timed,
        tuple(
            Copy(a, b, 256 * MIB, 688.1e-6 / knobs.left.get(f"pair {a}>{b}", 1.0), 3, direct=True)
            for a, b in pairs
        ),
        tuple(_micro(n, knobs.left) for n in range(count)),
        Cost(0.313, 0.538, 0.983, 1.187, (0.0923,) * count, 1.69, 807_858_176),
    )
    parts = tuple(_parts(plan, timed, count, knobs))
    return Probed(
        PROBED_SCHEMA, EPOCH, "daemon", forced=False, outcome="ok", why="", plan=plan, gpus=gpus,
        conditions=conditions, settings=dict(conditions[0].settings), seconds=1.4955, held_seconds=1.1824,
        document=document, account=_account(plan, conditions, timed, knobs), parts=parts,
        links=tuple(_links(parts, n, knobs) for n in range(count)),
        clocks=tuple(Clocks(n, 1.98e9, 3.201e9, 0) for n in range(count)), ports={},
    )  # fmt: skip


def _timed(plan: Plan, conditions: Sequence[Conditions], knobs: Knobs) -> Iterator[Timed]:
    number = 0
    for group, one in enumerate(conditions):
        for op in plan.ops:
            for size in plan.latency_sizes:
                at = SMALL.get(size, 9e-6)
                yield Timed(group, op, size, "graph", 100, 151, at, at, at, at, knobs.wrong)
            for size, runs in plan.bandwidth:
                speed = knobs.speeds.get(group, knobs.speed) * knobs.noise[number % len(knobs.noise)]
                at = _seconds(one, op, size) / speed
                yield Timed(
                    group, op, size, "stream", runs, runs + 3, at, at / knobs.fast, at, at * knobs.fast, 0
                )
                number += 1


def _seconds(conditions: Conditions, op: str, size: int) -> float:
    ranks = conditions.group.ranks
    if ranks == 2 and op in TWO_H200 and conditions.group.kind is WireKind.SWITCH and size in SIZES:
        return TWO_H200[op][SIZES.index(size)]
    told = expect(conditions, op, size)
    unknown = 20e9 if conditions.group.kind is WireKind.PCIE else 300e9
    busbw = told.busbw if isinstance(told, Expectation) else unknown
    return _sent(op, ranks) * size / busbw


def _sent(op: str, ranks: int) -> float:
    """What a rank sends of a message: all of it by broadcast, reduce and sendrecv."""
    return 1.0 if op in {"broadcast", "reduce", "sendrecv"} else FACTORS.get(op, 1.0) * (ranks - 1) / ranks


def _parts(plan: Plan, timed: Sequence[Timed], count: int, knobs: Knobs) -> Iterator[Part]:
    """What a ring sends, twice as much by LL; the log's protocol is not asked."""
    for group, members in enumerate(plan.groups):
        for op in plan.ops:
            runs = [t for t in timed if (t.group, t.op) == (group, op)]
            factor = _sent(op, len(members))
            sent = sum(factor * t.size_bytes * t.runs * (2 if t.launch == "graph" else 1) for t in runs)
            yield Part(f"{op}.{group}", 0.1, tuple(_moved(n, sent, knobs, group) for n in members))
    sent = (count - 1) * 3 * 256 * MIB
    yield Part("copies", 0.006, tuple(_moved(n, sent, knobs, -1) for n in range(count)))


def _moved(gpu: int, sent: float, knobs: Knobs, group: int) -> Moved:
    share = knobs.share.get(gpu, 1.0 if knobs.transport == HEALTHY else 0.0)
    grown = None if share is None else int(sent * share)
    kinds = {"replay": 0, "recovery": 0, "crc": 0}
    return Moved(gpu, grown, grown, {**kinds, **(knobs.errors.get(gpu, {}) if group == 0 else {})})


def _links(parts: Sequence[Part], gpu: int, knobs: Knobs) -> LinkBytes:
    whole = sum(m.transmit or 0 for part in parts for m in part.moved if m.gpu == gpu) // LINKS
    off, which, share = knobs.link or (-1, 0, 1.0)
    sent = tuple(int(whole * share) if (gpu, n) == (off, which) else whole for n in range(LINKS))
    return LinkBytes(gpu, tuple(range(LINKS)), sent, sent)


def _account(plan: Plan, conditions: Sequence[Conditions], timed: Sequence[Timed], knobs: Knobs) -> Account:
    comms = []
    for group, members in enumerate(plan.groups):
        ranks = len(members)
        way = knobs.whole if knobs.whole and group == 0 else knobs.transport
        ring = tuple(Connection(n, (n + 1) % ranks, way, 24) for n in range(ranks))
        devices = {n: Device(p, p, f"0000:{p + 6:02x}:00.0") for n, p in enumerate(members)}
        channels = Channels(24, 24, 0, 32, 32)
        comms.append(Comm(f"0x{group:x}", ranks, devices, tuple(range(ranks)), 0.44, 1, channels, ring, ()))
    calls: dict[Call, None] = {}
    for t in timed:
        taken = knobs.algorithm if t.op == "all_reduce" else ""
        small = t.launch == "graph"
        algorithm = "ring" if small else taken or choose(conditions[t.group], t.op)[0].lower()
        size = t.size_bytes if t.op == "all_reduce" else t.size_bytes // len(plan.groups[t.group])
        calls[Call(t.op, size, algorithm, "ll" if small else knobs.protocol, (0, 23), t.runs)] = None
    offered = tuple(Multicast(n, knobs.multicast, 16) for n in range(len(plan.gpus)))
    return Account(knobs.version, tuple(comms), tuple(calls), (), offered, (), 0, "Socket")
