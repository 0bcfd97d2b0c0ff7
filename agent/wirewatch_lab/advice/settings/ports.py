"""Settings of NCCL's network held against the node's RDMA ports, their GIDs and GPUDirect. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from wirewatch.core.probe import RdmaPort
from wirewatch.core.types import Absent
from wirewatch.nccl.settings import GDR_LEVEL, IB_HCA, IB_OFF, NET, allows_hca, gdr_level, number
from wirewatch.nccl.variables import version_text
from wirewatch_lab.advice.settings.candidates import GUIDE
from wirewatch_lab.advice.settings.finding import SettingFinding, Surroundings, Trouble, found
from wirewatch_lab.advice.settings.gids import Gid, common_index
from wirewatch_lab.advice.settings.network import (
    OWN_GID,
    far_gpus,
    gids_text,
    hca_list,
    no_gpudirect,
    port_names,
)
from wirewatch_lab.advice.settings.sources import WrittenSetting

IB = "NCCL_IB_"
GID_INDEX, CROSS_NIC, TRAFFIC_CLASS = "NCCL_IB_GID_INDEX", "NCCL_CROSS_NIC", "NCCL_IB_TC"
_PORTS = "sysfs: RDMA ports"
_GIDS = "sysfs: ports/N/gids and gid_attrs/types"
_SOURCE = "src/transport/net_ib"
_OWN = ("ib", "")
"""Values of NCCL_NET that leave NCCL its own transport."""
_PLUGINS = ("aws libfabric", "ibext", "ucx", "gpudirecttcpx", "fastrak")
"""Beginnings of the names of network plugins that are known here, in small letters."""
_SHOWN = 12
_BY_PORTS = frozenset({IB_HCA, GID_INDEX})
"""Settings whose worth depends on the ports."""


def port_findings(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """What a setting of the network does on this node; nothing for any other setting."""
    if one.name.startswith(IB):
        unread = _unread(one, around)
        if unread is not None:
            yield unread
            return
    rule = _RULES.get(one.name)
    if rule is not None:
        yield from rule(one, around)


def missing_gid_index(around: Surroundings) -> Iterator[SettingFinding]:
    """An old NCCL on RoCE without a GID index."""
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
    """A setting of NCCL's own RDMA transport where that has nothing to do, or nobody knows."""
    net = around.value(NET)
    if one.name != IB_OFF and around.on(IB_OFF):
        return found(one, Trouble.NOTHING, f"{IB_OFF} switches InfiniBand and RoCE off", GUIDE)
    if net.lower() not in _OWN:
        text = f"{NET}={net}: settings {IB}* are of NCCL's own InfiniBand transport, and that is not used"
        return found(one, Trouble.NOTHING, text, GUIDE)
    ports = around.node.ports
    if isinstance(ports, Absent):
        known = one.name not in _BY_PORTS
        text = f"what it does depends on the RDMA ports, and {ports.detail}"
        return None if known else found(one, Trouble.UNKNOWN, text, _PORTS)
    if around.node.active:
        return None
    if any(port.layer == "Unspecified" for port in ports):
        text = "the ports are EFA's: aws-ofi-nccl drives them and reads its own OFI_NCCL_* alone"
    elif ports:
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
    unknown = [name for name in _names(one.value) if not any(_is_of(one.value, name, dev) for dev in devices)]
    if unknown:
        yield found(one, Trouble.VALUE, f"no device here is called {', '.join(unknown)}", _PORTS)


def _names(value: str) -> list[str]:
    listed = value.removeprefix("^").removeprefix("=")
    return [name for entry in listed.split(",") if (name := entry.partition(":")[0])]


def _is_of(value: str, name: str, device: str) -> bool:
    exact = value.removeprefix("^").startswith("=")
    return device == name if exact else device.startswith(name)


def _gid_index(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """An index without a GID on a port fails there; RoCE v1 and link-local addresses are not routed."""
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
    """The RoCE ports that NCCL_IB_HCA leaves to NCCL, or else those of the GPUs."""
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
    tables = [around.node.gids.get((port.device, port.port), {}) for port in ports]
    known = [one for one in tables if not isinstance(one, Absent)]
    index = common_index(known) if len(known) == len(tables) else None
    return "" if index is None else f"; index {index} is RoCE v2 of an IPv4 address"


def _cross_nic(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    chosen = around.node.for_gpus()
    if len({port.card or port.device for port in chosen}) == 1:
        yield found(one, Trouble.NOTHING, "there is one NIC for the GPUs", GUIDE)


def _traffic_class(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    if not _roce_in_use(around) and number(one.value) > 0:
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
    known = not isinstance(around.node.ports, Absent)
    name = one.value.lower()
    if name not in {*_OWN, "socket"} and not name.startswith(_PLUGINS):
        text = "init fails unless a network plugin names itself so; NCCL's own are IB and Socket"
        yield found(one, Trouble.UNKNOWN, text, "src/plugin/net.cc")
    if name == "socket" and known and not around.node.active:
        yield found(one, Trouble.NOTHING, "no InfiniBand or RoCE port is active here: sockets anyway", _PORTS)


def _interfaces(one: WrittenSetting, around: Surroundings) -> Iterator[SettingFinding]:
    """A list that no interface matches; it is of the form of NCCL_IB_HCA."""
    here = around.node.interfaces
    if isinstance(here, Absent) or any(allows_hca(one.value, name, -1) for name in here):
        return
    text = f"init fails: no interface here matches ({', '.join(here[:_SHOWN]) or 'there is none'})"
    yield found(one, Trouble.FAILS, text, "src/misc/socket.cc; /sys/class/net")


_RULES: Mapping[str, Callable[[WrittenSetting, Surroundings], Iterator[SettingFinding]]] = {
    IB_OFF: _ib_off, IB_HCA: _hca, GID_INDEX: _gid_index, CROSS_NIC: _cross_nic,
    TRAFFIC_CLASS: _traffic_class, GDR_LEVEL: _gdr, NET: _net, "NCCL_SOCKET_IFNAME": _interfaces,
}  # fmt: skip
