"""Who the part of a finding is and where it sits, and what node this is, for a hardware return. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wirewatch import __version__
from wirewatch.collectors import inventory
from wirewatch.collectors.infiniband.model import InfinibandMemory
from wirewatch.core.component import NodeState
from wirewatch.core.pci import normal_pci
from wirewatch.core.pergpu import GpuMemory
from wirewatch.core.topology import GpuPart, NicPart, PciPlace, Topology
from wirewatch.core.types import Absent, Subject
from wirewatch.export.evidencedocuments import Fact, Kind
from wirewatch.verdict.node import Standing

NEVER = "it has not been read since the agent started"
NO_GRAPH = "the topology has not been read since the agent started"
SAID: Mapping[str, str] = {
    "vital": "no file tells it; `lspci -vvs {pci}` as root does (Vital Product Data)",
    "chassis": "the agent does not read it; `dmidecode -s system-serial-number` as root does",
    "bridge": "bridges and switches of PCI tell none",
}
"""Who does tell what the agent does not know."""

Facts = dict[str, Fact]


@dataclass(frozen=True, slots=True)
class Known:
    """What the collectors remember of who is here; parts that have gone since are still in it."""

    gpus: inventory.Memory
    ports: InfinibandMemory
    graph: Topology | None


def known(state: NodeState) -> Known:
    memories = {name: component.memory for name, component in state.components.items()}
    gpus, ports, graph = (memories.get(name) for name in ("inventory", "infiniband", "topology"))
    return Known(
        gpus if isinstance(gpus, inventory.Memory) else inventory.Memory(),
        ports if isinstance(ports, InfinibandMemory) else InfinibandMemory(),
        graph if isinstance(graph, Topology) else None,
    )


def part_of(here: Known, standing: Standing) -> tuple[Kind, Facts]:
    """What the finding's part is, and all that is known of who it is."""
    part = standing.finding.subject
    if part.uuid or part.gpu:
        return "gpu", _gpu(here, part)
    if not part.device:
        return "node", {"serial": _unknown(SAID["chassis"])}
    name = _rdma_name(here, part.device)
    if name or standing.collector == "infiniband" or standing.finding.rule.startswith("infiniband."):
        return "network_device", _network(here, name or part.device, part.port)
    return "pci_device", _pci(here, part)


def _gpu(here: Known, part: Subject) -> Facts:
    found = here.gpus.identities.get(part.uuid or f"index:{part.gpu}")
    told = found.memory.told if found else {}
    gpu = found.gpu if found else None
    place = next((g.place for g in here.graph.gpus if g.uuid == part.uuid), None) if here.graph else None
    facts = {
        "product": _text(gpu.name if gpu else "", NEVER),
        "serial": _told(told, "serial"),
        "uuid": _text(part.uuid, "the GPU has not told it since the agent started"),
        "board_part_number": _told(told, "board_part_number"),
        **_place(here, gpu.pci if gpu else "", place),
        "module_id": _told(told, "module_id"),
        "vbios": _told(told, "vbios"),
        "inforom": _told(told, "inforom"),
        "gsp_firmware": _told(told, "firmware"),
    }
    if part.link:
        facts |= {"link": _text(part.link, NEVER), "link_goes_to": _far_end(here, part)}
    return facts


def _told(told: Mapping[str, str | Absent], name: str, otherwise: str = NEVER) -> Fact:
    value = told.get(name)
    if value is None:
        return _unknown(otherwise)
    return (
        _unknown(str(value)) if isinstance(value, Absent) else _text(value, "the driver tells an empty text")
    )


def _far_end(here: Known, part: Subject) -> Fact:
    """Who is at the other end of a link, as far as it was up when the graph was read."""
    if here.graph is None:
        return _unknown(NO_GRAPH)
    for wires in here.graph.nvlink:
        if wires.uuid == part.uuid and part.link in {str(link) for link in wires.links}:
            gpu = here.gpus.identities.get(wires.peer)
            return _text(f"GPU {gpu.gpu.index} ({wires.peer})" if gpu else wires.peer, NEVER)
    return _unknown("the link was not up when the topology was last read")


def _place(here: Known, address: str, place: PciPlace | None) -> Facts:
    """The way from the root of the PCI tree down to the device."""
    path = numa = _unknown(NO_GRAPH if here.graph is None else "it was not in the PCI tree when last read")
    if place is not None and place.root:
        numa = _text(
            "" if place.numa is None else str(place.numa), "the firmware or hypervisor does not tell"
        )
        path = _text(" / ".join((place.root, *place.bridges, place.address)), NEVER)
        if not place.bridges:
            path = _unknown(f"the hypervisor shows no bridges above it, only {place.root}")
    address = address or (place.address if place else "")
    return {"pci_address": _text(address, NEVER), "pci_path": path, "numa_node": numa}


def _rdma_name(here: Known, device: str) -> str:
    """The RDMA device of this name, or at this PCI address, with or without function; "" for none."""
    if device in here.ports.identities:
        return device
    at = [n for n, one in here.ports.identities.items() if one.pci and device == one.pci]
    at += [n for n, one in here.ports.identities.items() if one.pci.partition(".")[0] == device]
    return at[0] if at else ""


def _network(here: Known, name: str, port: str) -> Facts:
    one = here.ports.identities.get(name)
    nic = next((n for n in here.graph.nics if n.device == name), None) if here.graph else None
    why = "sysfs does not tell it" if one else NEVER
    address = one.pci if one else ""
    vital = SAID["vital"].format(pci=address or "ADDRESS")
    facts = {
        "device": _text(name, NEVER),
        "product": _text(one.model if one else "", why),
        "serial": _unknown(vital),
        "board_part_number": _unknown(vital),
        "psid": _text(one.board if one else "", why),
        "node_guid": _text(one.guid if one else "", why),
        "firmware": _text(one.firmware if one else "", why),
        "network_interfaces": _text(", ".join(one.netdevs) if one else "", why),
        **_place(here, address, nic.place if nic else None),
    }
    return facts | ({"port": _text(port, NEVER), "link_layer": _layer(nic, port)} if port else {})


def _layer(nic: NicPart | None, port: str) -> Fact:
    layers = dict(nic.ports) if nic else {}
    return _text(layers.get(port, ""), "the port was not there when the topology was last read")


def _pci(here: Known, part: Subject) -> Facts:
    """A bridge, or a switch of NVLink, or a device that nobody else knows."""
    address = normal_pci(part.device)
    parts: list[GpuPart | NicPart] = [*here.graph.gpus, *here.graph.nics] if here.graph else []
    below = [one for one in parts if address and address in one.place.bridges]
    path = below[0].place if below else None
    up = path.bridges[: path.bridges.index(address)] if path else ()
    none = "no GPU and no network card" if here.graph else ""
    facts = {
        "device": _text(part.device, NEVER),
        "pci_address": _text(address, f"{part.device!r} is none"),
        "pci_path": _text(
            " / ".join((path.root, *up, address)) if path else "",
            "it is above no GPU and no network card" if here.graph else NO_GRAPH,
        ),
        "above": _text(", ".join(map(_label, below)) or none, NO_GRAPH),
        "serial": _unknown(SAID["bridge"]),
    }
    return facts | ({"link": _text(part.link, NEVER)} if part.link else {})


def _label(one: GpuPart | NicPart) -> str:
    return one.device if isinstance(one, NicPart) else f"GPU {one.index}"


def node_facts(here: Known, source: str) -> Facts:
    """What node this is."""
    gpus = here.gpus
    names = sorted({one.gpu.name for one in gpus.identities.values() if one.gpu.name})
    versions = dict(here.graph.versions) if here.graph else {}
    return {
        "product": _text(", ".join(names), NEVER),
        "gpus": _text(_counted(gpus.identities.values(), gpus), NEVER),
        "driver": _told(gpus.versions, "driver"),
        "nvml": _told(gpus.versions, "nvml"),
        "cuda_driver": _told(gpus.versions, "cuda_driver"),
        "kernel": _text(versions.get("kernel", ""), NO_GRAPH if here.graph is None else "no file tells it"),
        "mlx5_core": _text(
            versions.get("mlx5_core", ""), NO_GRAPH if here.graph is None else "no file tells it"
        ),
        "wirewatch": Fact(__version__, None),
        "source": Fact(source, None),
    }


def _counted(identities: Iterable[GpuMemory[inventory.Identity]], memory: inventory.Memory) -> str:
    count = len(list(identities))
    lost = f", {len(memory.lost)} of them lost" if memory.lost else ""
    return f"{count}{lost}" if count else ""


def _text(value: str, otherwise: str) -> Fact:
    """The text, or why there is none."""
    return Fact(value, None) if value.strip() else Fact(None, otherwise)


def _unknown(why: str) -> Fact:
    return Fact(None, why)
