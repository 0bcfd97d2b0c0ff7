"""Expected busbw of GPUs of one node that reach each other over its RDMA ports alone.

NCCL then treats each GPU as a node of its own, and all traffic leaves by the NICs. A GPU's share is the rate
of the slowest NIC times the number of NICs, divided by the number of GPUs. No reference is needed, and none
is known: it is unproven how much of it a healthy node reaches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wirewatch.busbw.expected import Expectation, pcie_rate
from wirewatch.busbw.formulas import FACTORS
from wirewatch.busbw.references import Confidence
from wirewatch.core.hostlink import Pcie
from wirewatch.core.pci import Path
from wirewatch.core.probe import GATHER, MIB, SCATTER, Conditions, RdmaPort
from wirewatch.core.rdma import ACTIVE, gigabits
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.core.words import count, first, rate, size
from wirewatch.nccl.settings import IB_HCA, IB_OFF, NET, allows_hca, number

LARGE = 256 * MIB
"""From this size on the latency of a message is small beside its time on the wire."""
SOURCE = "rates of the RDMA ports and of their PCIe links, from sysfs"
_LAYERS = frozenset({"InfiniBand", "Ethernet"})
_SHOWN = 12
"""Most ports that a line names."""
_NOT_KNOWN = len(Path)


@dataclass(frozen=True, slots=True)
class NetworkShare:
    """Bytes per second each way of one GPU over the network, and the derivation for people."""

    rate: float
    lines: tuple[str, ...]


def expect_network(conditions: Conditions, op: str, size_bytes: int) -> Expectation | Absent:
    """Return the busbw to expect over the RDMA ports; Absent without ports, and for a root alone."""
    ranks = conditions.group.ranks
    if op not in FACTORS or op in {GATHER, SCATTER} or ranks < 2:  # noqa: PLR2004
        return Absent(Why.UNSUPPORTED, f"no reference for {op} of {ranks} GPUs over the network")
    found = network_share(conditions)
    if isinstance(found, Absent):
        return found
    confidence, lines = Confidence.DERIVED, list(found.lines)
    if size_bytes < LARGE:
        confidence = Confidence.LOW
        lines.append(f"{size(size_bytes)}: no latency term is known -> {rate(found.rate)} at most")
    return Expectation(found.rate, found.rate, "", confidence, SOURCE, tuple(lines))


def network_share(conditions: Conditions) -> NetworkShare | Absent:
    """Return each GPU's sending rate by the RDMA ports while all send; Absent without a port for NCCL."""
    ranks, ports = conditions.group.ranks, conditions.network
    if isinstance(ports, Absent):
        return Absent(ports.why, f"no reference: the RDMA ports cannot be listed: {ports.detail}")
    sockets = _sockets(conditions)
    if sockets:
        return Absent(Why.UNSUPPORTED, sockets)
    counted, left_out = count_ports(conditions)
    if not counted:
        return Absent(Why.MISSING, "; ".join(("no reference: no RDMA port, so NCCL uses sockets", *left_out)))
    cards = dict(sorted(grouped((one.card or one.device, one) for one in counted).items()))
    slowest = min(map(_card, cards.values()), key=lambda found: found[0])
    share = slowest[0] * len(cards) / ranks
    lines = [
        f"counted: {_names(counted)}",
        *(f"not counted: {line}" for line in left_out),
        *slowest[1],
        f"{rate(slowest[0])} x {count(len(cards), 'NIC')} / {ranks} GPUs = {rate(share)}",
    ]
    own = _slot_rate(conditions.pcie)
    if own is not None and own[0] < share:
        share = own[0]
        lines.append(f"a GPU reaches them by {own[1]} = {rate(share)}")
    return NetworkShare(share, tuple(lines))


def count_ports(conditions: Conditions) -> tuple[tuple[RdmaPort, ...], tuple[str, ...]]:
    """Return the ports that NCCL would use, and the others with the reasons.

    For each GPU NCCL takes the ports with the fastest path, and of several the nearest (src/graph/topo.cc,
    ncclTopoGetLocal). The speed of the wire between sockets is not known: ports beyond it come last.
    """
    ports = value_or(conditions.network, ())
    allowed = conditions.settings.get(IB_HCA, "")
    why = {one: _barred(one, allowed) for one in ports}
    usable = [one for one in ports if not why[one]]
    near: set[RdmaPort] = set()
    for gpu in range(conditions.group.ranks):
        order = {one: _order(one, gpu, conditions.pcie) for one in usable}
        best = min(order.values(), default=None)
        near.update(one for one in usable if order[one] == best)
    far = "every GPU has others that are faster to reach, or as fast and nearer"
    why |= {one: far for one in usable if one not in near}
    reasons = grouped((text, one) for one, text in why.items() if text)
    left_out = tuple(f"{_names(group)} ({text})" for text, group in reasons.items())
    return tuple(one for one in ports if one in near), left_out


def _sockets(conditions: Conditions) -> str:
    """Return the setting that keeps NCCL from the RDMA ports, or names a plugin; empty for none."""
    net = conditions.settings.get(NET, "")
    if number(conditions.settings.get(IB_OFF, "")) != 0:
        return f"no reference: {IB_OFF}={conditions.settings[IB_OFF]} leaves NCCL sockets"
    if net.lower() == "socket":
        return f"no reference: {NET}={net} leaves NCCL sockets"
    if net and net.lower() != "ib":
        return f"no reference: {NET}={net} names a network plugin, of which nothing is known here"
    return ""


def _barred(one: RdmaPort, allowed: str) -> str:
    """Return why NCCL does not use a port, empty where it may."""
    if one.state not in ACTIVE:
        return one.state or "its state is not known"
    if one.layer not in _LAYERS:
        return f"link layer {one.layer or 'not known'}"
    if isinstance(one.rate, Absent):
        return "its rate is not known"
    if not allows_hca(allowed, one.device, number(one.port)):
        return f"{IB_HCA}={allowed}"
    return ""


def _order(one: RdmaPort, gpu: int, pcie: Pcie | Absent) -> tuple[bool, float, int]:
    """Return the key of NCCL's order: host bridges of one NUMA node are as near as one bridge."""
    name = one.paths[gpu] if gpu < len(one.paths) else ""
    path = Path.PHB if name == Path.NODE.name else Path[name] if name else _NOT_KNOWN
    slots = [known[0] for known in (_slot_rate(pcie), _slot_rate(one.pcie)) if known is not None]
    return path >= Path.SYS, -min([_rate(one), *slots]), int(path)


def _card(ports: Sequence[RdmaPort]) -> tuple[float, tuple[str, ...]]:
    """Return bytes per second of a NIC with its ports, and the derivation."""
    lines = sum(map(_rate, ports))
    several = f"{len(ports)} ports of " if len(ports) > 1 else ""
    one = ports[0]
    text = f"{one.device}: {several}{gigabits(_rate(one))} = {rate(lines)} each way"
    if isinstance(one.pcie, Absent):
        return lines, (f"{text}, its PCIe link is not known",)
    bus = pcie_rate(one.pcie.generation, one.pcie.lanes)
    if isinstance(bus, Absent):
        return lines, (f"{text}, {bus.detail}",)
    return min(lines, bus), (text, f"PCIe {one.pcie.generation} x{one.pcie.lanes} = {rate(bus)} each way")


def _rate(one: RdmaPort) -> float:
    return value_or(one.rate, 0.0)


def _slot_rate(pcie: Pcie | Absent) -> tuple[float, str] | None:
    if isinstance(pcie, Absent):
        return None
    bus = pcie_rate(pcie.generation, pcie.lanes)
    return None if isinstance(bus, Absent) else (bus, f"PCIe {pcie.generation} x{pcie.lanes}")


def _names(ports: Sequence[RdmaPort]) -> str:
    return first([f"{one.device}:{one.port}" for one in ports], _SHOWN)
