"""Settings of NCCL that depend on the node's RDMA ports, their GIDs and GPUDirect. Unproven on InfiniBand."""

from collections.abc import Iterator, Sequence

from wirewatch.busbw.references import Confidence
from wirewatch.collectors.gpudirect import CheckState
from wirewatch.core.pci import Path
from wirewatch.core.probe import RdmaPort
from wirewatch.core.rdma import gigabits
from wirewatch.core.types import Absent
from wirewatch.core.words import GB
from wirewatch.nccl.variables import Version, version_text
from wirewatch_lab.advice.settings.candidates import GUIDE, Candidate
from wirewatch_lab.advice.settings.gids import Gid, common_index, usual_gid
from wirewatch_lab.advice.settings.node import NcclNode

OWN_GID: Version = (2, 21)
"""From here on NCCL looks for a GID of RoCE v2 by itself; before, it takes index 0."""
_SYSFS = "sysfs: RDMA ports, their GIDs and PCI paths"
_OTHER_NODES = "the other nodes of the job differ: each has its own"
_NETWORK = "docs/advice/network.md"


def network_advice(node: NcclNode) -> Iterator[Candidate]:
    """One for each variable of the network."""
    if not node.active:
        yield _nothing(node)
        return
    yield _hcas(node)
    yield _gid_index(node)
    yield _gdr_level(node)
    yield _cross_nic(node)
    yield from _of_fabric(node)
    yield _topology_file(node)


def port_names(ports: Sequence[RdmaPort]) -> str:
    """For people: `mlx5_8:1 (Ethernet, 100 Gb/s = 12.5 GB/s)`."""
    return ", ".join(
        f"{one.device}:{one.port} ({one.layer}"
        f"{'' if isinstance(one.rate, Absent) else f', {gigabits(one.rate)} = {one.rate / GB:g} GB/s'})"
        for one in ports
    )


def hca_list(ports: Sequence[RdmaPort], active: Sequence[RdmaPort]) -> str:
    """A value of NCCL_IB_HCA that takes these of the active ports and no other."""
    found = []
    for device in dict.fromkeys(one.device for one in ports):
        mine = [one for one in ports if one.device == device]
        whole = len(mine) == sum(one.device == device for one in active)
        found += [device] if whole else [f"{device}:{one.port}" for one in mine]
    return f"={','.join(found)}"


def far_gpus(node: NcclNode, level: Path = Path.PXB) -> dict[int, Path]:
    """GPUs whose nearest port is farther than a path, by index; NCCL's own limit for GPUDirect is PXB."""
    found = {}
    for place, gpu in enumerate(node.conditions.group.gpus if node.conditions else ()):
        names = [one.paths[place] for one in node.active if place < len(one.paths)]
        nearest = min((Path[name] for name in names if name), default=None)
        if nearest is not None and nearest > level:
            found[gpu.index] = nearest
    return found


def no_gpudirect(node: NcclNode) -> str:
    """Why GPUDirect RDMA cannot work here at all; empty where it may, or nothing is known."""
    checks = () if isinstance(node.gpudirect, Absent) else node.gpudirect
    needed = [one for one in checks if one.name in {"rdma_stack", "peer_memory"}]
    return "; ".join(one.evidence for one in needed if one.state is CheckState.FAILED)


def paths_hidden(node: NcclNode) -> bool:
    """Whether no path from a GPU to a port is known, as in a virtual machine with a flat PCI bus."""
    return not any(path for one in node.active for path in one.paths)


def gids_text(node: NcclNode, index: int, ports: Sequence[RdmaPort]) -> str:
    """What an index is on each port."""
    found: dict[str, list[str]] = {}
    for one in ports:
        gids = node.gids.get((one.device, one.port))
        known = None if gids is None or isinstance(gids, Absent) else gids.get(index)
        found.setdefault(_kind(known), []).append(one.device)
    return "; ".join(f"{', '.join(devices)}: {kind}" for kind, devices in found.items())


def _kind(gid: Gid | None) -> str:
    if gid is None:
        return "none"
    address = "link-local" if gid.is_link_local else "IPv4" if gid.is_ipv4 else "IPv6"
    return f"{gid.type or 'type not known'}, {address}"


def _nothing(node: NcclNode) -> Candidate:
    if isinstance(node.ports, Absent):
        why = f"{node.ports.detail}: nothing can be said of NCCL_IB_*, NCCL_NET_GDR_LEVEL and NCCL_CROSS_NIC"
    elif any(one.layer == "Unspecified" for one in node.ports):
        why = "the ports are EFA's: aws-ofi-nccl drives them, and reads none of NCCL_IB_*"
    elif node.ports:
        why = "no InfiniBand or RoCE port is active: NCCL takes sockets between nodes, and reads no NCCL_IB_*"
    else:
        why = "no RDMA port is here: NCCL takes sockets or a plugin between nodes, and reads no NCCL_IB_*"
    confidence = Confidence.LOW if isinstance(node.ports, Absent) else Confidence.DERIVED
    return Candidate("NCCL_IB_HCA", why, "the job runs on other nodes too", _SYSFS, confidence)


def _hcas(node: NcclNode) -> Candidate:
    chosen = node.for_gpus()
    others = [one for one in node.active if one not in chosen]
    disagree = (
        "A guide advises `mlx5`, to keep NCCL off management ports: the prefix takes all devices whose names "
        "begin so, those ports too. It has 900, 400 and 100 in one column: 900 is GB/s of NVLink both ways "
        "(450 one way), 400 and 100 are Gb/s of a port (50 and 12.5 GB/s)"
    )
    if not others or not chosen:
        reason = f"NCCL's own choice takes {port_names(node.active)}: all are near GPUs and fast alike"
        return Candidate(
            "NCCL_IB_HCA", reason, "a port is added for storage or management", _SYSFS, Confidence.DERIVED,
            disagree=disagree,
        )  # fmt: skip
    reason = (
        f"NCCL opens every active port; {port_names(others)} are farther from every GPU, slower or of "
        "another link layer than the others, as storage and management ports are"
    )
    return Candidate(
        "NCCL_IB_HCA", reason, f"those ports are meant for the job; {_OTHER_NODES}", _SYSFS,
        Confidence.DERIVED, disagree=disagree, value=hca_list(chosen, node.active),
    )  # fmt: skip


def _gid_index(node: NcclNode) -> Candidate:
    name = "NCCL_IB_GID_INDEX"
    disagree = "A guide advises 3, as the index that is usually RoCE v2, on InfiniBand too"
    chosen = node.for_gpus() or node.active
    roce = [one for one in chosen if one in node.roce]
    if not roce:
        reason = "an index matters on RoCE only: on InfiniBand NCCL always takes the first GID"
        return Candidate(
            name, reason, "RoCE", f"{_SYSFS}; src/transport/net_ib", Confidence.DERIVED, disagree=disagree
        )
    known = [node.gids.get((one.device, one.port), {}) for one in roce]
    tables = [one for one in known if not isinstance(one, Absent)]
    if len(tables) < len(known) or not all(tables):
        return Candidate(
            name, "the GIDs of the RoCE ports cannot be read here",
            "NCCL is older than 2.21: it takes index 0", _SYSFS, Confidence.LOW, disagree=disagree,
        )  # fmt: skip
    index = common_index(tables)
    when_not = f"NCCL before 2.21, which takes index 0: set {index}" if index is not None else _OTHER_NODES
    if node.nccl is not None and node.nccl < OWN_GID:
        reason = (
            f"NCCL {version_text(node.nccl)} takes index 0 unless set ({gids_text(node, 0, roce)}); from "
            f"2.21 on it finds the right one by itself. {_advised(node, index, roce)}"
        )
        text = None if index is None else str(index)
        return Candidate(
            name, reason, _OTHER_NODES, _SYSFS, Confidence.DERIVED, disagree=disagree, value=text
        )
    taken = "; ".join(f"{', '.join(devices)}: {number}" for number, devices in _taken(node, roce).items())
    reason = f"from 2.21 on NCCL takes RoCE v2 of an IPv4 address by itself, here index {taken}"
    return Candidate(name, reason, when_not, _SYSFS, Confidence.DERIVED, disagree=disagree)


def _advised(node: NcclNode, index: int | None, roce: Sequence[RdmaPort]) -> str:
    if index is None:
        return "No index is RoCE v2 of an IPv4 address on every port: give the interfaces addresses"
    return f"Index {index}: {gids_text(node, index, roce)}"


def _taken(node: NcclNode, roce: Sequence[RdmaPort]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for one in roce:
        gids = node.gids.get((one.device, one.port), {})
        if not isinstance(gids, Absent):
            found.setdefault(usual_gid(gids), []).append(one.device)
    return found


def _gdr_level(node: NcclNode) -> Candidate:
    name, source = "NCCL_NET_GDR_LEVEL", f"{_SYSFS}; {GUIDE}"
    disagree = (
        "A guide advises 5 for full GPUDirect RDMA: 5 is read as SYS, any path, also between sockets. "
        "Whether it can work at all depends on drivers, and NET/IB in the log proves nothing without /GDRDMA"
    )
    when_not = "measured otherwise, with `wirewatch probe --transport net --gdr on,off`"
    impossible = no_gpudirect(node)
    if impossible:
        reason = f"no level makes GPUDirect RDMA work here: {impossible}"
    elif isinstance(node.gpudirect, Absent):
        reason = "PXB by default: GPUDirect RDMA wherever GPU and NIC are below one PCI switch or several"
    elif paths_hidden(node):
        reason = "the PCI tree is hidden, as in a virtual machine: NCCL believes its topology file"
    elif far := far_gpus(node):
        gpus = ", ".join(f"GPU {index} ({path.name})" for index, path in far.items())
        reason = (
            f"NCCL goes up to PXB by itself, and the nearest port of {gpus} is farther: GPUDirect RDMA is "
            "off there. PHB or SYS would put it on, which is slower than host memory on many machines"
        )
    else:
        reason = "every GPU has a port within PXB, as far as NCCL goes by itself: GPUDirect RDMA is in reach"
    return Candidate(name, reason, when_not, source, Confidence.DERIVED, disagree=disagree)


def _cross_nic(node: NcclNode) -> Candidate:
    cards = {one.card or one.device for one in node.for_gpus() or node.active}
    reason = "2 by default, not 0: the same NIC at both ends where that costs nothing, else another"
    if len(cards) == 1:
        reason = "there is one NIC for the GPUs: it has no effect"
    return Candidate(
        "NCCL_CROSS_NIC", reason,
        "rails that are joined by slow links: 0; all NICs of a node at one switch: 1. Measure between nodes",
        GUIDE, Confidence.PUBLISHED,
        disagree="A guide says that 0 is the default and advises 1 for 5 to 15 %; NCCL's source has had 2 "
        "since 2.5, and 1 crosses rails",
    )  # fmt: skip


def _of_fabric(node: NcclNode) -> Iterator[Candidate]:
    infiniband = len(node.roce) < len(node.active)
    class_text = (
        "NCCL sets no traffic class on InfiniBand" if not node.roce else
        "the traffic class whose DSCP the switches carry without loss; 0 by default"
    )  # fmt: skip
    yield Candidate(
        "NCCL_IB_TC", class_text, f"the fabric's operator names one: DSCP times 4. See {_NETWORK}",
        f"{GUIDE}; src/transport/net_ib", Confidence.PUBLISHED,
        disagree="A guide advises SL 5 and TC 160 together: 160 is DSCP 40, which means what switches say",
    )  # fmt: skip
    yield Candidate(
        "NCCL_IB_SL",
        "0 by default; a level that the fabric does not map gains nothing" if infiniband else
        "0 by default; on RoCE the traffic class decides",
        f"the subnet manager has a level for GPU traffic or for adaptive routing: that one. See {_NETWORK}",
    )  # fmt: skip
    yield Candidate(
        "NCCL_IB_PCI_RELAXED_ORDERING",
        "2 by default since 2.12: relaxed ordering wherever NIC and driver have it",
        "1 fails where it is missing, which is its only use; 0 to look for wrong data",
    )
    yield Candidate(
        "NCCL_IB_ADAPTIVE_ROUTING",
        "on by default on InfiniBand, off on RoCE" if infiniband else "off by default on RoCE",
        f"RoCE switches that route adaptively and NICs that take packets out of order: 1. See {_NETWORK}",
    )
    yield Candidate(
        "NCCL_IB_QPS_PER_CONNECTION",
        "1 by default; more queue pairs help where switches hash each onto one path",
        "a fabric of several levels with collisions: 2 to 4, measured between nodes",
    )
    yield Candidate(
        "NCCL_IB_TIMEOUT",
        "20 by default since 2.23: 30 s until an error with 7 retries; 18 before, 14 before 2.14",
        "a large fabric fails with error 12: 22. It hides a bad cable for as long",
    )


def _topology_file(node: NcclNode) -> Candidate:
    hidden = paths_hidden(node) and not isinstance(node.gpudirect, Absent)
    here = "is there, and NCCL reads it by itself" if node.topology_file else "is not there"
    reason = "NCCL reads the PCI tree itself; what a file says, it believes"
    if hidden:
        reason = f"the PCI tree is hidden; the file that a provider puts at virtualTopology.xml {here}"
    return Candidate(
        "NCCL_TOPO_FILE", reason,
        "a virtual machine whose provider has a file for this very product: that path, and nobody else's",
        disagree="A guide sets /var/run/nvidia-topologyd/virtualTopology.xml: NCCL takes that one by itself",
    )  # fmt: skip
