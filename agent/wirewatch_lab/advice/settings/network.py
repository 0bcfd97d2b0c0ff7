"""NCCL settings that depend on the node's RDMA ports, their GIDs and GPUDirect. Unproven on InfiniBand."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from wirewatch.busbw.profiles import NetworkKind
from wirewatch.busbw.references import Confidence
from wirewatch.collectors.gpudirect import CheckState
from wirewatch.core.pci import Path
from wirewatch.core.probe import RdmaPort
from wirewatch.core.rdma import gigabits
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent
from wirewatch.core.words import GB
from wirewatch.nccl.settings import GDR_LEVEL, IB_HCA, IB_OFF, NET, allows_hca, gdr_level, number
from wirewatch.nccl.variables import Version, version_text
from wirewatch_lab.advice.settings.candidates import GUIDE, VariableAdvice, left_alone
from wirewatch_lab.advice.settings.finding import SettingFinding, Surroundings, Trouble, found
from wirewatch_lab.advice.settings.gids import Gid, common_index, usual_gid
from wirewatch_lab.advice.settings.node import NcclNode
from wirewatch_lab.advice.settings.plugins import NetworkPlugin
from wirewatch_lab.advice.settings.sources import WrittenSetting

OWN_GID: Version = (2, 21)
"""From this version on NCCL looks for a RoCE v2 GID itself; before, it takes index 0."""
_SYSFS = "sysfs: RDMA ports, their GIDs and PCI paths"
_OTHER_NODES = "the other nodes of the job differ: each has its own"


def network_advice(node: NcclNode) -> Iterator[VariableAdvice]:
    """Yield advice for each network variable."""
    if not node.active or (node.plugin and not node.plugin.reads_ib):
        yield _nothing(node)
        return
    yield _hcas(node)
    yield _gid_index(node)
    yield _gdr_level(node)
    yield _cross_nic(node)
    yield _topology_file(node)


def port_names(ports: Sequence[RdmaPort]) -> str:
    """Return the ports for people: `mlx5_8:1 (Ethernet, 100 Gb/s = 12.5 GB/s)`."""
    return ", ".join(
        f"{one.device}:{one.port} ({one.layer}"
        f"{'' if isinstance(one.rate, Absent) else f', {gigabits(one.rate)} = {one.rate / GB:g} GB/s'})"
        for one in ports
    )


def hca_list(ports: Sequence[RdmaPort], active: Sequence[RdmaPort]) -> str:
    """Return a value of NCCL_IB_HCA that selects these ports among the active, and no other."""
    found = []
    for device in dict.fromkeys(one.device for one in ports):
        mine = [one for one in ports if one.device == device]
        whole = len(mine) == sum(one.device == device for one in active)
        found += [device] if whole else [f"{device}:{one.port}" for one in mine]
    return f"={','.join(found)}"


def far_gpus(node: NcclNode, level: Path = Path.PXB) -> dict[int, Path]:
    """Return GPUs whose nearest port is farther than a path, by index.

    NCCL's own limit for GPUDirect is PXB.
    """
    found = {}
    for place, gpu in enumerate(node.conditions.group.gpus if node.conditions else ()):
        names = [one.paths[place] for one in node.active if place < len(one.paths)]
        nearest = min((Path[name] for name in names if name), default=None)
        if nearest is not None and nearest > level:
            found[gpu.index] = nearest
    return found


def no_gpudirect(node: NcclNode) -> str:
    """Return why GPUDirect RDMA cannot work here; empty where it may, or where nothing is known."""
    checks = () if isinstance(node.gpudirect, Absent) else node.gpudirect
    needed = [one for one in checks if one.name in {"rdma_stack", "peer_memory"}]
    return "; ".join(one.evidence for one in needed if one.state is CheckState.FAILED)


def paths_hidden(node: NcclNode) -> bool:
    """Return whether no path from a GPU to a port is known, as in a virtual machine with a flat PCI bus."""
    return not any(path for one in node.active for path in one.paths)


def gids_text(node: NcclNode, index: int, ports: Sequence[RdmaPort]) -> str:
    """Describe an index on each port."""
    gids = ((one.device, node.gids.get((one.device, one.port))) for one in ports)
    known = ((device, {} if isinstance(one, Absent) else one or {}) for device, one in gids)
    found = grouped((_kind(one.get(index)), device) for device, one in known)
    return "; ".join(f"{', '.join(devices)}: {kind}" for kind, devices in found.items())


def _kind(gid: Gid | None) -> str:
    if gid is None:
        return "none"
    address = "link-local" if gid.is_link_local else "IPv4" if gid.is_ipv4 else "IPv6"
    return f"{gid.type or 'type not known'}, {address}"


def _nothing(node: NcclNode) -> VariableAdvice:
    if node.plugin and not node.plugin.reads_ib:
        why = _drives(node.plugin)
    elif isinstance(node.ports, Absent):
        why = f"{node.ports.detail}: nothing can be said of NCCL_IB_*, NCCL_NET_GDR_LEVEL and NCCL_CROSS_NIC"
    elif node.ports:
        why = "no InfiniBand or RoCE port is active: NCCL takes sockets between nodes, and reads no NCCL_IB_*"
    else:
        why = "no RDMA port is here: NCCL takes sockets or a plugin between nodes, and reads no NCCL_IB_*"
    confidence = Confidence.LOW if isinstance(node.ports, Absent) and not node.plugin else Confidence.DERIVED
    return left_alone("NCCL_IB_HCA", why, "the job runs on other nodes too", _SYSFS, confidence)


def _drives(plugin: NetworkPlugin) -> str:
    return f"{plugin.name} drives the network, and reads none of {IB}*"


def _hcas(node: NcclNode) -> VariableAdvice:
    chosen = node.for_gpus()
    others = [one for one in node.active if one not in chosen]
    disagree = (
        "A guide advises `mlx5`, to keep NCCL off management ports: the prefix takes all devices whose names "
        "begin so, those ports too. It has 900, 400 and 100 in one column: 900 is GB/s of NVLink both ways "
        "(450 one way), 400 and 100 are Gb/s of a port (50 and 12.5 GB/s)"
    )
    if not others or not chosen:
        reason = f"NCCL's own choice takes {port_names(node.active)}: all are near GPUs and fast alike"
        return left_alone(
            "NCCL_IB_HCA", reason, "a port is added for storage or management", _SYSFS, Confidence.DERIVED,
            disagree=disagree,
        )  # fmt: skip
    reason = (
        f"NCCL opens every active port; {port_names(others)} are farther from every GPU, slower or of "
        "another link layer than the others, as storage and management ports are"
    )
    return left_alone(
        "NCCL_IB_HCA", reason, f"those ports are meant for the job; {_OTHER_NODES}", _SYSFS,
        Confidence.DERIVED, disagree=disagree, value=hca_list(chosen, node.active),
    )  # fmt: skip


def _gid_index(node: NcclNode) -> VariableAdvice:
    name = "NCCL_IB_GID_INDEX"
    disagree = "A guide advises 3, as the index that is usually RoCE v2, on InfiniBand too"
    chosen = node.for_gpus() or node.active
    roce = [one for one in chosen if one in node.roce]
    if not roce:
        reason = "an index matters on RoCE only: on InfiniBand NCCL always takes the first GID"
        source = f"{_SYSFS}; src/transport/net_ib"
        return left_alone(name, reason, "RoCE", source, Confidence.DERIVED, disagree=disagree)
    known = [node.gids.get((one.device, one.port), {}) for one in roce]
    tables = [one for one in known if not isinstance(one, Absent)]
    if len(tables) < len(known) or not all(tables):
        return left_alone(
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
        return left_alone(name, reason, _OTHER_NODES, _SYSFS, Confidence.DERIVED, disagree, text)
    taken = "; ".join(f"{', '.join(devices)}: {number}" for number, devices in _taken(node, roce).items())
    reason = f"from 2.21 on NCCL takes RoCE v2 of an IPv4 address by itself, here index {taken}"
    return left_alone(name, reason, when_not, _SYSFS, Confidence.DERIVED, disagree=disagree)


def _advised(node: NcclNode, index: int | None, roce: Sequence[RdmaPort]) -> str:
    if index is None:
        return "No index is RoCE v2 of an IPv4 address on every port: give the interfaces addresses"
    return f"Index {index}: {gids_text(node, index, roce)}"


def _taken(node: NcclNode, roce: Sequence[RdmaPort]) -> dict[int, list[str]]:
    known = ((one.device, node.gids.get((one.device, one.port), {})) for one in roce)
    return grouped((usual_gid(gids), device) for device, gids in known if not isinstance(gids, Absent))


def _gdr_level(node: NcclNode) -> VariableAdvice:
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
    return left_alone(name, reason, when_not, source, Confidence.DERIVED, disagree=disagree)


def _cross_nic(node: NcclNode) -> VariableAdvice:
    cards = {one.card or one.device for one in node.for_gpus() or node.active}
    reason = "2 by default, not 0: the same NIC at both ends where that costs nothing, else another"
    if len(cards) == 1:
        reason = "there is one NIC for the GPUs: it has no effect"
    return left_alone(
        "NCCL_CROSS_NIC", reason,
        "rails that are joined by slow links: 0; all NICs of a node at one switch: 1. Measure between nodes",
        GUIDE, Confidence.PUBLISHED,
        disagree="A guide says that 0 is the default and advises 1 for 5 to 15 %; NCCL's source has had 2 "
        "since 2.5, and 1 crosses rails",
    )  # fmt: skip


def _topology_file(node: NcclNode) -> VariableAdvice:
    hidden = paths_hidden(node) and not isinstance(node.gpudirect, Absent)
    here = "is there, and NCCL reads it by itself" if node.topology_file else "is not there"
    reason = "NCCL reads the PCI tree itself; what a file says, it believes"
    if hidden:
        reason = f"the PCI tree is hidden; the file that a provider puts at virtualTopology.xml {here}"
    return left_alone(
        "NCCL_TOPO_FILE", reason,
        "a virtual machine whose provider has a file for this very product: that path, and nobody else's",
        disagree="A guide sets /var/run/nvidia-topologyd/virtualTopology.xml: NCCL takes that one by itself",
    )  # fmt: skip


IB = "NCCL_IB_"
GID_INDEX, CROSS_NIC, TRAFFIC_CLASS = "NCCL_IB_GID_INDEX", "NCCL_CROSS_NIC", "NCCL_IB_TC"
_PORTS = "sysfs: RDMA ports"
_GIDS = "sysfs: ports/N/gids and gid_attrs/types"
_SOURCE = "src/transport/net_ib"
_OWN = ("ib", "")
"""Values of NCCL_NET that keep NCCL's own transport."""
_PLUGINS = ("aws libfabric", "ibext", "ucx", "gpudirecttcpx", "fastrak", "gib")
"""Prefixes of known network plugins' names, in lower case."""
_LIKE_OWN = ("ibext", "gib")
"""Plugins that read NCCL_IB_* as NCCL's own transport does."""
_SHOWN = 12
_BY_PORTS = frozenset({IB_HCA, GID_INDEX})
"""Settings whose value depends on the ports."""


def port_findings(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """Yield faults of a network setting on this node; nothing for other settings."""
    if one.name.startswith(IB):
        unread = _unread(one, around)
        if unread is not None:
            yield unread
            return
    rule = _RULES.get(one.name)
    if rule is not None:
        yield from rule(one, around)


def missing_gid_index(around: Surroundings) -> Iterator[SettingFinding]:
    """Report an old NCCL on RoCE without a GID index."""
    node, roce = around.node, _roce_in_use(around)
    if not roce or node.nccl is None or node.nccl >= OWN_GID or around.value(GID_INDEX):
        return
    known = [node.gids.get((port.device, port.port), {}) for port in roce]
    index = common_index([gids for gids in known if not isinstance(gids, Absent)])
    if index:
        text = (
            f"NCCL {version_text(node.nccl)} takes GID 0 ({gids_text(node, 0, roce)}); "
            f"set {index} ({gids_text(node, index, roce)})"
        )
        yield SettingFinding(GID_INDEX, "", "not set", Trouble.SLOWS, text, f"{_GIDS}; {_SOURCE}")


def _unread(one: WrittenSetting, around: Surroundings) -> SettingFinding | None:
    """Report a setting of NCCL's own RDMA transport where this is unused, or where its use is unknown."""
    net = around.value(NET)
    if one.name != IB_OFF and around.on(IB_OFF):
        return found(one, Trouble.NOTHING, f"{IB_OFF} switches InfiniBand and RoCE off", GUIDE)
    if net.lower() not in _OWN and not net.lower().startswith(_LIKE_OWN):
        text = f"{NET}={net}: settings {IB}* are of NCCL's own InfiniBand transport, and that is not used"
        return found(one, Trouble.NOTHING, text, GUIDE)
    plugin, ports = around.node.plugin, around.node.ports
    if plugin and not plugin.reads_ib:
        return found(one, Trouble.NOTHING, _drives(plugin), plugin.source)
    if isinstance(ports, Absent):
        known = one.name not in _BY_PORTS
        text = f"what it does depends on the RDMA ports, and {ports.detail}"
        return None if known else found(one, Trouble.UNKNOWN, text, _PORTS)
    if around.node.active:
        return None
    if ports:
        text = "no InfiniBand or RoCE port is active here: NCCL takes sockets"
    else:
        text = f"no RDMA port is here: sockets, or a plugin such as GPUDirect-TCPX, read no {IB}*"
    return found(one, Trouble.NOTHING, text, _PORTS)


def _ib_off(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    if number(one.value) and around.node.active:
        text = f"{port_names(around.node.active)} carry nothing: sockets between nodes"
        yield found(one, Trouble.SLOWS, text, GUIDE)


def _hca(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    node = around.node
    taken = [port for port in node.active if allows_hca(one.value, port.device, number(port.port))]
    if not taken:
        text = f"it matches none of {port_names(node.active)}: NCCL falls back to sockets"
        yield found(one, Trouble.SLOWS, text, _PORTS)
        return
    best = node.for_gpus()
    better = f"; {hca_list(best, node.active)} takes those of the GPUs" if best else ""
    extra = [port for port in taken if best and port not in best]
    if extra:
        text = (
            f"it takes {port_names(extra)} too, farther from every GPU, slower or of another link layer "
            f"than the others, as storage and management ports are{better}"
        )
        yield found(one, Trouble.SLOWS, text, _PORTS)
    left = [port for port in best if port not in taken]
    if left:
        text = f"it leaves out {port_names(left)}, the nearest of some GPU{better}"
        yield found(one, Trouble.SLOWS, text, _PORTS)
    devices = {port.device for port in (() if isinstance(node.ports, Absent) else node.ports)}
    exact, listed = one.value.removeprefix("^").startswith("="), one.value.removeprefix("^").removeprefix("=")
    names = [name for entry in listed.split(",") if (name := entry.partition(":")[0])]
    begins = [name for name in names if any(device.startswith(name) for device in devices)]
    unknown = [name for name in names if name not in (devices if exact else begins)]
    if unknown:
        yield found(one, Trouble.VALUE, f"no device here is called {', '.join(unknown)}", _PORTS)


def _gid_index_rule(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """Report an index without a GID, which makes a port fail, and unrouted RoCE v1 and link-local GIDs."""
    node, index, roce = around.node, number(one.value), _roce_in_use(around)
    if index < 0:
        return
    if not roce:
        text = "an index matters on RoCE only; on InfiniBand NCCL always takes the first GID"
        yield found(one, Trouble.NOTHING, text, _SOURCE)
        return
    sorted_out: dict[tuple[Trouble, str], list[RdmaPort]] = {}
    for port in roce:
        gids = node.gids.get((port.device, port.port))
        if gids is None or isinstance(gids, Absent):
            why = "were not read" if gids is None else f"cannot be read: {gids.detail}"
            verdict = Trouble.UNKNOWN, f"its GIDs {why}"
        else:
            verdict = _of_gid(gids.get(index))
        if verdict[1]:
            sorted_out.setdefault(verdict, []).append(port)
    for (trouble, text), ports in sorted_out.items():
        names = ", ".join(f"{port.device}:{port.port}" for port in ports)
        yield found(one, trouble, f"{names}: {text}{_right(around, ports)}", _GIDS)


def _roce_in_use(around: Surroundings) -> list[RdmaPort]:
    """Return the RoCE ports that NCCL_IB_HCA leaves to NCCL, or else the GPUs' RoCE ports."""
    chosen = around.value(IB_HCA)
    if chosen:
        return [one for one in around.node.roce if allows_hca(chosen, one.device, number(one.port))]
    best = around.node.for_gpus() or around.node.active
    return [one for one in around.node.roce if one in best]


def _of_gid(gid: Gid | None) -> tuple[Trouble, str]:
    if gid is None:
        return Trouble.FAILS, "the port has no GID at this index: connections cannot be made"
    if gid.version is None:
        return Trouble.UNKNOWN, f"the type of this GID is not known ({gid})"
    if gid.version == 1:
        return Trouble.VALUE, "this GID is RoCE v1, which no router passes and no DSCP marks"
    if gid.is_link_local:
        return Trouble.VALUE, "this GID is RoCE v2 of a link-local address, which no router passes"
    return Trouble.OLD, ""


def _right(around: Surroundings, ports: Sequence[RdmaPort]) -> str:
    tables = (around.node.gids.get((port.device, port.port), {}) for port in ports)
    index = common_index([one for one in tables if not isinstance(one, Absent)])
    return "" if index is None else f"; index {index} is RoCE v2 of an IPv4 address"


def _cross_nic_rule(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    chosen = around.node.for_gpus()
    if len({port.card or port.device for port in chosen}) == 1:
        yield found(one, Trouble.NOTHING, "there is one NIC for the GPUs", GUIDE)


def _traffic_class(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    if around.node.active and not _roce_in_use(around) and number(one.value) > 0:
        yield found(one, Trouble.NOTHING, "NCCL sets no traffic class on InfiniBand", _SOURCE)


def _gdr(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    known, level = gdr_level(one.value)
    node = around.node
    if not known or not node.active:
        return
    impossible = no_gpudirect(node)
    if impossible:
        yield found(one, Trouble.NOTHING, f"GPUDirect RDMA cannot work here: {impossible}", _PORTS)
    elif level is None:
        yield found(one, Trouble.SLOWS, "it switches GPUDirect RDMA off", GUIDE)
    else:
        short = far_gpus(node, level)
        if short:
            names = ", ".join(f"GPU {gpu} ({path.name})" for gpu, path in short.items())
            text = f"the nearest port of {names} is farther away: GPUDirect RDMA is off there"
            yield found(one, Trouble.SLOWS, text, GUIDE)


def _net(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    node, name = around.node, one.value.lower()
    plain = node.network is not None and node.network.kind is NetworkKind.SOCKETS
    if name not in {*_OWN, "socket"} and not name.startswith(_PLUGINS):
        text = "init fails unless a network plugin names itself so; NCCL's own are IB and Socket"
        yield found(one, Trouble.UNKNOWN, text, "src/plugin/net.cc")
    if name == "socket" and node.plugin:
        text = f"sockets between nodes instead of {node.plugin.name}"
        yield found(one, Trouble.SLOWS, text, node.plugin.source)
    elif name == "socket" and (plain or not (isinstance(node.ports, Absent) or node.active)):
        yield found(one, Trouble.NOTHING, "no InfiniBand or RoCE port is active here: sockets anyway", _PORTS)


def _interfaces(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """Report a list that matches no interface; its format is NCCL_IB_HCA's."""
    here = around.node.interfaces
    if isinstance(here, Absent) or any(allows_hca(one.value, name, -1) for name in here):
        return
    text = f"init fails: no interface here matches ({', '.join(here[:_SHOWN]) or 'there is none'})"
    yield found(one, Trouble.FAILS, text, "src/misc/socket.cc; /sys/class/net")


_RULES: Mapping[str, Callable[[WrittenSetting, Surroundings], Iterator[SettingFinding]]] = {
    IB_OFF: _ib_off, IB_HCA: _hca, GID_INDEX: _gid_index_rule, CROSS_NIC: _cross_nic_rule,
    TRAFFIC_CLASS: _traffic_class, GDR_LEVEL: _gdr, NET: _net, "NCCL_SOCKET_IFNAME": _interfaces,
}  # fmt: skip
