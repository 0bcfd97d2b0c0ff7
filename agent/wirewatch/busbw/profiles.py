"""Networks between nodes: their rates, their latencies, and the results of healthy public runs.

A profile is of one kind of node. The time between such nodes follows from it:

    seconds = latency x growth x (1 + ramp x sqrt(size)) + factor x size / plateau

`plateau` is a share of the rate of a node's NICs, and no more than one node reaches alone. Of two nodes, each
sends half as much by trees as by a ring, so that busbw may be twice the NICs' rate (NVIDIA/nccl#209).
`growth` is a quarter of the latency more for each doubling of the nodes. Where a profile has a table, the
time is bent to it. Rates are from public product pages of the providers.
"""

import bisect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.formulas import CHAINS, FACTORS, Point, factor
from wirewatch.busbw.references import NVLS_FROM, Confidence
from wirewatch.core.probe import ALL_REDUCE, ALLTOALL, GATHER, MIB, SCATTER, SENDRECV
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import GBIT, MICRO, count, percent, rate, size


class NetworkKind(Enum):
    """How nodes reach each other."""

    INFINIBAND = "InfiniBand"
    ROCE = "RoCE"
    EFA = "EFA"
    TCPXO = "GPUDirect-TCPXO"
    TCPX = "GPUDirect-TCPX"
    SOCKETS = "TCP sockets"
    NVLINK = "an NVLink domain"


LATENCY: Mapping[NetworkKind, float] = {
    NetworkKind.INFINIBAND: 40e-6, NetworkKind.ROCE: 44e-6, NetworkKind.EFA: 77e-6, NetworkKind.TCPXO: 123e-6,
    NetworkKind.SOCKETS: 90e-6, NetworkKind.NVLINK: 45e-6,
}  # fmt: skip
"""Seconds of the smallest all_reduce of two nodes. Over InfiniBand and RoCE: 36 to 48 us (2 x 8 H200, A100,
H20). Also two p5 and two A3 Mega. Over sockets: 88 to 97 us (NVIDIA/nccl#246). Of TCPX none was found."""
_RAMP = 5e-4
"""Share of the latency by which the time grows with the root of the bytes: pieces of a message fill a
pipeline in sequence. Two p5 and two nodes of H200 and A100 within a fifth."""
_FULL = 16 * MIB
"""From this size on the pipeline is full."""
_GROWTH = 0.25
_SOCKETS = 0.5
"""Share that a ring reaches over TCP: two A3 Mega gave 23.7 GB/s over one NIC of 200 Gb/s, by trees."""
SURE, VAGUE = 0.3, 0.6
"""Shares by which healthy nodes may be off: with a table or large messages, and with little data."""
_LARGE, _SOME, _MIDDLE = 64 * MIB, 4 * MIB, 0.4
_LARGEST = 256 * MIB
"""From this size on NCCL has made its last choice: below it, public runs jump by half."""
_TWICE = 2.0
_ADDING = frozenset({NetworkKind.INFINIBAND, NetworkKind.NVLINK})
"""Networks whose switches may add up (SHARP)."""
_BOARD, _DOMAIN = 8, 72
"""GPUs of a whole node, which share its NICs, and of a whole NVLink domain."""


@dataclass(frozen=True, slots=True)
class NetworkTable:
    """One healthy public run: sizes in bytes with seconds of an operation on a number of nodes."""

    op: str
    nodes: int
    gpus: int
    sizes: tuple[Point, ...]
    source: str


@dataclass(frozen=True, slots=True)
class NetworkProfile:
    """The network of one kind of node: a number of `nics` of `nic_rate` bytes per second each way.

    `gpus`: products that such nodes have, as a pattern; empty for any. `share`: part of the NICs' rate that a
    ring reaches. `pair`: factor of it that two nodes reach by trees, 0 for the factor that follows from the
    GPUs. `older`: the network with older software, which no table reveals; None where it makes no difference.
    """

    name: str
    kind: NetworkKind
    nics: int
    nic_rate: float
    gpus: str = ""
    share: float = 0.93
    pair: float = 0.0
    latency: float = 0.0
    ramp: float = _RAMP
    tables: tuple[NetworkTable, ...] = ()
    source: str = "the provider's product page"
    older: "NetworkProfile | None" = None

    @property
    def rate(self) -> float:
        """Bytes per second each way of all NICs of one node."""
        return self.nics * self.nic_rate

    def lines(self) -> str:
        """The network in words, for people."""
        nics = f"{count(self.nics, 'NIC')} x {self.nic_rate / GBIT:.0f} Gb/s = {rate(self.rate)} a node"
        return f"{self.name}: {self.kind.value}, {nics}"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The GPUs of a collective: `gpus` of each of `nodes`, and their architecture.

    `inside`: busbw of large messages that one node reaches alone, in bytes per second, infinite where that is
    not known. `trees`: whether NCCL may take another algorithm than Ring.
    """

    nodes: int
    gpus: int
    architecture: str
    inside: float
    trees: bool = True

    @property
    def ranks(self) -> int:
        """The number of all ranks."""
        return self.nodes * self.gpus


def _us(*points: tuple[float, float]) -> tuple[Point, ...]:
    """Sizes in MiB with microseconds."""
    return tuple((round(size * MIB), us / MICRO) for size, us in points)


_P5 = NetworkTable(
    ALL_REDUCE, 2, 8, _us(
        (8 / MIB, 77), (0.0625, 101.1), (1, 119.1), (4, 163.2), (16, 282.3), (64, 597.4), (256, 1501.2),
        (1024, 4556.5), (8192, 33611),
    ),
    "2 p5.48xlarge, aws-ia/terraform-aws-eks-blueprints, patterns/nvidia-gpu-efa",
)  # fmt: skip
_P4DE = NetworkTable(
    ALL_REDUCE, 2, 8, _us(
        (8 / MIB, 164.3), (0.0625, 227.4), (1, 309.4), (4, 533.9), (16, 1191.8), (64, 2644.6), (256, 7201.7),
        (1024, 26217), (2048, 51406),
    ),
    "2 p4de.24xlarge, awslabs/awsome-distributed-ai, micro-benchmarks/nccl-tests",
)  # fmt: skip
_A3_MEGA = NetworkTable(
    ALL_REDUCE, 2, 8, _us(
        (8 / MIB, 123), (0.0625, 159.4), (1, 203.2), (4, 364.6), (16, 977.6), (64, 1261.6), (256, 2360.9),
        (1024, 6759), (8192, 47535),
    ),
    "2 a3-megagpu-8g, lessizzmore/create-a3mega-ztan-fork; others measured 318 and 335 GB/s",
)  # fmt: skip
_ROCE = NetworkTable(
    ALL_REDUCE, 2, 8, _us(
        (1 / 1024, 43.74), (0.0625, 65.48), (1, 77.16), (4, 105.58), (16, 207.61), (64, 460.78),
        (256, 1278.78), (1024, 4385.35), (8192, 33208),
    ),
    "2 x 8 H200 with 8 RoCE ports of 400 Gb/s, NCCL 2.30.4, public notes on a cluster of Dell servers",
)  # fmt: skip
_NVL72 = NetworkTable(
    ALL_REDUCE,
    18,
    4,
    _us((512, 1806.7), (1024, 3108.8), (2048, 5589.1), (4096, 10094), (8192, 20299)),
    "72 GB200 of one rack, NCCL 2.26.2, coreweave/nccl-tests",
)


def _of(
    name: str, kind: NetworkKind, nics: int, gigabits: float, gpus: str, *tables: NetworkTable,
    share: float = 0.93, pair: float = 0.0, latency: float = 0.0, ramp: float = _RAMP,
) -> NetworkProfile:  # fmt: skip
    return NetworkProfile(name, kind, nics, gigabits * GBIT, gpus, share, pair, latency, ramp, tables)


PROFILES: tuple[NetworkProfile, ...] = (
    replace(
        _of("p4d", NetworkKind.EFA, 4, 100, "A100", _P4DE, share=0.84, pair=1.86, latency=167e-6),
        # With NCCL 2.8 and 2.9: 33 GB/s of 1 GiB on 2 nodes (aws-samples/aws-efa-eks), and 57, 31.8 and 29.6
        # on 2 to 4 (NVIDIA/nccl#527).
        older=_of("p4d", NetworkKind.EFA, 4, 100, "A100", share=0.62, pair=1.1, latency=167e-6, ramp=2e-3),
    ),
    _of("p5", NetworkKind.EFA, 32, 100, "H100", _P5),
    _of("p5e", NetworkKind.EFA, 32, 100, "H200", _P5),
    _of("p5en", NetworkKind.EFA, 16, 200, "H200", _P5),
    _of("p6-b200", NetworkKind.EFA, 8, 400, "B200"),
    # GCP's own check asks for 60 GB/s of all_gather, and 83 of all_reduce on two nodes were published.
    _of("a3-high", NetworkKind.TCPX, 4, 200, "H100", share=0.6, pair=1.4),
    # 186 to 189 GB/s of all_gather on two nodes (dstackai/dstack, examples/clusters/a3mega, and others).
    _of("a3-mega", NetworkKind.TCPXO, 8, 200, "H100", _A3_MEGA),
    _of("a3-ultra", NetworkKind.ROCE, 8, 400, "H200", _ROCE),
    _of("a4", NetworkKind.ROCE, 8, 400, "B200"),
    _of("nd-a100-v4", NetworkKind.INFINIBAND, 8, 200, "A100"),
    _of("nd-h100-v5", NetworkKind.INFINIBAND, 8, 400, "H100"),
    _of("nd-h200-v5", NetworkKind.INFINIBAND, 8, 400, "H200"),
    _of("oci-a100", NetworkKind.ROCE, 16, 100, "A100"),
    _of("oci-h100", NetworkKind.ROCE, 16, 200, "H100"),
    _of("oci-h200", NetworkKind.ROCE, 8, 400, "H200", _ROCE),
    _of("dgx-a100", NetworkKind.INFINIBAND, 8, 200, "A100"),
    _of("dgx-h100", NetworkKind.INFINIBAND, 8, 400, "H100"),
    _of("dgx-h200", NetworkKind.INFINIBAND, 8, 400, "H200"),
    _of("dgx-b200", NetworkKind.INFINIBAND, 8, 400, "B200"),
    _of("gb200-nvl72", NetworkKind.NVLINK, 4, 7200, "GB200", _NVL72, pair=1.0),
)


def plain(kind: NetworkKind, nics: int, nic_rate: float) -> NetworkProfile:
    """Return the profile of a network of which only the NICs are known."""
    name = f"{nics}x{nic_rate / GBIT:.0f}G"
    tables = (_ROCE,) if kind is NetworkKind.ROCE and nics * nic_rate == 8 * 400 * GBIT else ()
    share = _SOCKETS if kind is NetworkKind.SOCKETS else 0.93
    return NetworkProfile(name, kind, nics, nic_rate, share=share, tables=tables, source="the NICs' rates")


def of_gpus(product: str) -> tuple[NetworkProfile, ...]:
    """Named profiles of nodes with such GPUs."""
    return tuple(one for one in PROFILES if one.gpus and re.search(rf"\b{one.gpus}\b", product))


def most_between(profile: NetworkProfile, op: str, group: NodeGroup) -> float:
    """Return the busbw that no run exceeds, in bytes per second, by the traffic over a node's NICs."""
    return factor(op, group.ranks) / _crossing(profile, op, group) * profile.rate


def _crossing(profile: NetworkProfile, op: str, group: NodeGroup) -> float:
    """Return the least share of a message that must cross the NICs of a node, in the direction that has more.

    GPUs of one node reduce among themselves, and one of them passes on the result. A ring of all_reduce
    cannot, and a switch that adds up takes each message once. An alltoall has a message for each GPU.
    """
    elsewhere = (group.nodes - 1) / group.nodes
    if op in CHAINS or op == SENDRECV:
        return 1.0
    if op == ALLTOALL:
        return group.gpus * elsewhere
    if op != ALL_REDUCE:
        return elsewhere
    if not group.trees:
        return factor(op, group.ranks)
    return 1.0 if profile.kind in _ADDING else 2 * elsewhere


def expect_between(
    profile: NetworkProfile, op: str, group: NodeGroup, size_bytes: int
) -> Expectation | Absent:
    """Return the busbw to expect between nodes; Absent for a root alone, and for unknown small messages."""
    if op not in FACTORS or op in {GATHER, SCATTER}:
        return Absent(Why.UNSUPPORTED, f"nothing is known to expect of {op} between nodes")
    if profile.kind is NetworkKind.NVLINK and group.ranks > _DOMAIN:
        return Absent(Why.UNSUPPORTED, f"one NVLink domain joins at most {_DOMAIN} GPUs")
    latency = profile.latency or LATENCY.get(profile.kind)
    table = next((one for one in profile.tables if one.op == op and one.gpus == group.gpus), None)
    least = table.sizes[0][0] if table else 0
    if size_bytes < _LARGE and (op != ALL_REDUCE or latency is None or size_bytes < least):
        what = f"{op} of {size(size_bytes)} over {profile.kind.value}"
        return Absent(Why.MISSING, f"nothing is known to expect of small messages: {what}")
    most = _plateau(profile, op, group)
    seconds = _seconds(profile, op, group, size_bytes, most)
    if table is not None and group.trees:
        seconds *= _bent(profile, table, group, size_bytes)
    alike = table is not None and table.nodes == group.nodes
    busbw = factor(op, group.ranks) * size_bytes / seconds
    share = f"large messages reach {rate(most)}, {percent(most / profile.rate)} of the NICs"
    derivation = (
        profile.lines(),
        f"{group.nodes} nodes of {group.gpus} {group.architecture or 'unknown'} GPUs: {share}",
        *(["no more than one node reaches alone"] if most == group.inside else []),
        f"{size(size_bytes)}: {seconds * MICRO:.0f} us -> {rate(busbw)}",
    )
    within = SURE if alike else _within(op, size_bytes)
    trust = Confidence.PUBLISHED if alike else Confidence.DERIVED if within <= SURE else Confidence.LOW
    source = table.source if table else profile.source
    return Expectation(busbw, most, "", trust, source, derivation, within)


def _within(op: str, size_bytes: int) -> float:
    """Return the share by which a run may be off where no table is of its nodes.

    Healthy nodes reach 46 to 97 % in alltoall and sendrecv, by their channels and queue pairs.
    """
    if op in {ALLTOALL, SENDRECV}:
        return VAGUE
    if size_bytes >= _LARGEST:
        return SURE
    return _MIDDLE if op == ALL_REDUCE and size_bytes >= _SOME else VAGUE


def begins(latency: float, nodes: int) -> float:
    """Return seconds of the smallest all_reduce of a number of nodes, where two of them take `latency`."""
    return latency * (1 + _GROWTH * max(0.0, math.log2(nodes / 2)))


def _plateau(profile: NetworkProfile, op: str, group: NodeGroup) -> float:
    # A part of a node's GPUs reaches the NICs of their rails.
    rails = min(profile.nics, max(profile.nics * group.gpus / _BOARD, group.gpus))
    net = profile.share * rails * profile.nic_rate
    if op in {ALLTOALL, SENDRECV}:
        # Each GPU has its part of the NICs. Of an alltoall some stays on the node.
        each = net / group.gpus
        return min(each * group.nodes / (group.nodes - 1) if op == ALLTOALL else each, group.inside)
    if op == ALL_REDUCE and group.nodes == 2 and group.trees:  # noqa: PLR2004
        most = rails * profile.nic_rate * factor(op, group.ranks) / _crossing(profile, op, group)
        net = min(most, net * (profile.pair or (_TWICE if group.architecture in NVLS_FROM else 1.0)))
    return min(net, group.inside)


def _seconds(profile: NetworkProfile, op: str, group: NodeGroup, size_bytes: int, most: float) -> float:
    latency = begins(profile.latency or LATENCY.get(profile.kind, 0.0), group.nodes)
    ramped = latency * (1 + profile.ramp * math.sqrt(min(size_bytes, _FULL)))
    return ramped + factor(op, group.ranks) * size_bytes / most


def _bent(profile: NetworkProfile, table: NetworkTable, group: NodeGroup, size_bytes: int) -> float:
    """Return the time of a table as a share of the rule's time. Between its sizes it follows logarithms."""
    there = NodeGroup(table.nodes, table.gpus, group.architecture, group.inside)
    most = _plateau(profile, table.op, there)
    ratios = [(at, took / _seconds(profile, table.op, there, at, most)) for at, took in table.sizes]
    place = bisect.bisect_left([at for at, _ in ratios], size_bytes)
    if place in {0, len(ratios)}:
        return ratios[min(place, len(ratios) - 1)][1]
    (low, first), (high, last) = ratios[place - 1], ratios[place]
    share = math.log(size_bytes / low) / math.log(high / low)
    return math.exp(math.log(first) * (1 - share) + math.log(last) * share)
