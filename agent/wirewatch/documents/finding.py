"""The document of one finding, for a hardware return: its types, and the facts of the part and the node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch import __version__
from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.inventory import InventoryFacts
from wirewatch.core.collector import NodeState
from wirewatch.core.pci import Place, normal_pci
from wirewatch.core.topology import GpuPart, NicPart, Topology
from wirewatch.core.types import Absent, Subject
from wirewatch.documents.health import Health, NodeFinding
from wirewatch.verdict.node import Standing

PartKind = Literal["gpu", "network_device", "pci_device", "node"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A text, or why it is not known: one of the two is null, neither is ever empty."""

    value: str | None
    unknown: str | None


@dataclass(frozen=True, slots=True)
class Peers:
    """The same number of the other parts of its kind: `of` is `GPUs`, `links`, `ports` or `devices`."""

    of: str
    count: int
    min: float
    median: float
    max: float


@dataclass(frozen=True, slots=True)
class Number:
    """One number of the part, now: bytes, seconds, bytes per second and so on, as `unit` says.

    `name`: the series in /metrics, or a name without `wirewatch_` for a number without a series. `labels`:
    the other labels of the series. `value` null: the finding names no single part, see `value_unknown`;
    `peers` are then all parts. `peers` null: see `peers_unknown`.
    """

    name: str
    labels: dict[str, str]
    unit: str
    value: float | None
    value_unknown: str | None
    peers: Peers | None
    peers_unknown: str | None


@dataclass(frozen=True, slots=True)
class FindingDocument:
    """One finding with all that a vendor asks for when the part is returned.

    `health` and `job_ready` are the node's, `source` is live, replay or synthetic. `collector` reports the
    finding; `measured`: its severity in the last poll, null when it was not found. `last_seen`: when it was
    last found, Unix seconds, null for not since the agent started. `part` and `node`: facts by name, such as
    `serial` and `driver`. `numbers_at`: when they were read, Unix seconds; null, with `numbers_unknown`,
    where there are none. Series of single links are included for a finding of a link.
    """

    schema: Literal["wirewatch.finding/1"]
    at: float
    health: Health
    job_ready: bool
    source: str
    finding: NodeFinding
    collector: str | None
    measured: Health | None
    last_seen: float | None
    kind: PartKind
    part: dict[str, Fact]
    node: dict[str, Fact]
    numbers_at: float | None
    numbers_unknown: str | None
    numbers: list[Number]


FINDING = TypeAdapter(FindingDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.finding.1": FINDING}
NEVER = "it has not been read since the agent started"
NO_GRAPH = "the topology has not been read since the agent started"
WHERE_TO_READ: Mapping[str, str] = {
    "vital": "no file has it; as root: `lspci -vvs {pci}` (Vital Product Data)",
    "chassis": "the agent does not read it; as root: `dmidecode -s system-serial-number`",
    "bridge": "PCI bridges and switches have none",
}
"""How a person reads what the agent does not know."""
Facts = dict[str, Fact]


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts of the node as collectors know them; parts that have gone since are still in it."""

    inventory: InventoryFacts
    network: InfinibandFacts
    graph: Topology | None


def known_parts(state: NodeState) -> NodeParts:
    """The parts in the published state; empty for collectors that have read nothing yet."""
    return NodeParts(
        state.facts(InventoryFacts) or InventoryFacts({}, frozenset(), {}, frozenset()),
        state.facts(InfinibandFacts) or InfinibandFacts({}, {}, frozenset()),
        state.facts(Topology),
    )


def part_of(here: NodeParts, standing: Standing) -> tuple[PartKind, Facts]:
    """The kind of the finding's part, and the facts that identify it."""
    part = standing.finding.subject
    if part.uuid or part.gpu:
        return "gpu", _gpu(here, part)
    if not part.device:
        return "node", {"serial": _unknown_fact(WHERE_TO_READ["chassis"])}
    name = _rdma_name(here, part.device)
    if name or standing.collector == "infiniband" or standing.finding.rule.startswith("infiniband."):
        return "network_device", _network(here, name or part.device, part.port)
    return "pci_device", _pci(here, part)


def node_facts(here: NodeParts, source: str) -> Facts:
    """The facts of the node."""
    known_parts = here.inventory
    names = sorted({one.gpu.name for one in known_parts.gpus.values() if one.gpu.name})
    versions = dict(here.graph.versions) if here.graph else {}
    return {
        "product": _text_fact(", ".join(names), NEVER),
        "gpus": _text_fact(_counted(known_parts), NEVER),
        "driver": _fact(known_parts.versions, "driver"),
        "nvml": _fact(known_parts.versions, "nvml"),
        "cuda_driver": _fact(known_parts.versions, "cuda_driver"),
        "kernel": _text_fact(
            versions.get("kernel", ""), NO_GRAPH if here.graph is None else "no file has it"
        ),
        "mlx5_core": _text_fact(
            versions.get("mlx5_core", ""), NO_GRAPH if here.graph is None else "no file has it"
        ),
        "wirewatch": Fact(__version__, None),
        "source": Fact(source, None),
    }


def _gpu(here: NodeParts, part: Subject) -> Facts:
    found = here.inventory.gpus.get(part.uuid or f"index:{part.gpu}")
    texts = found.texts if found else {}
    gpu = found.gpu if found else None
    place = next((g.place for g in here.graph.gpus if g.uuid == part.uuid), None) if here.graph else None
    facts = {
        "product": _text_fact(gpu.name if gpu else "", NEVER),
        "serial": _fact(texts, "serial"),
        "uuid": _text_fact(part.uuid, "it has not been read since the agent started"),
        "board_part_number": _fact(texts, "board_part_number"),
        **_pci_facts(here, gpu.pci if gpu else "", place),
        "module_id": _fact(texts, "module_id"),
        "vbios": _fact(texts, "vbios"),
        "inforom": _fact(texts, "inforom"),
        "gsp_firmware": _fact(texts, "firmware"),
    }
    if part.link:
        facts |= {"link": _text_fact(part.link, NEVER), "link_goes_to": _far_end(here, part)}
    return facts


def _fact(texts: Mapping[str, str | Absent], name: str, otherwise: str = NEVER) -> Fact:
    value = texts.get(name)
    if value is None:
        return _unknown_fact(otherwise)
    return (
        _unknown_fact(str(value))
        if isinstance(value, Absent)
        else _text_fact(value, "the driver gives an empty text")
    )


def _far_end(here: NodeParts, part: Subject) -> Fact:
    """The part at the other end of a link, if the link was up when the graph was read."""
    if here.graph is None:
        return _unknown_fact(NO_GRAPH)
    for wires in here.graph.nvlink:
        if wires.uuid == part.uuid and part.link in {str(link) for link in wires.links}:
            gpu = here.inventory.gpus.get(wires.peer)
            return _text_fact(f"GPU {gpu.gpu.index} ({wires.peer})" if gpu else wires.peer, NEVER)
    return _unknown_fact("the link was not up when the topology was last read")


def _pci_facts(here: NodeParts, address: str, place: Place | None) -> Facts:
    """The way from the root of the PCI tree down to the device."""
    path = numa = _unknown_fact(
        NO_GRAPH if here.graph is None else "it was not in the PCI tree when last read"
    )
    if place is not None and place.root:
        numa = _text_fact(
            "" if place.numa is None else str(place.numa), "the firmware or hypervisor does not give it"
        )
        path = _text_fact(" / ".join((place.root, *place.bridges, place.address)), NEVER)
        if not place.bridges:
            path = _unknown_fact(f"the hypervisor shows no bridges above it, only {place.root}")
    address = address or (place.address if place else "")
    return {"pci_address": _text_fact(address, NEVER), "pci_path": path, "numa_node": numa}


def _rdma_name(here: NodeParts, device: str) -> str:
    """The RDMA device of this name, or at this PCI address, with or without function; "" for none."""
    if device in here.network.devices:
        return device
    at = [n for n, one in here.network.devices.items() if one.pci and device == one.pci]
    at += [n for n, one in here.network.devices.items() if one.pci.partition(".")[0] == device]
    return at[0] if at else ""


def _network(here: NodeParts, name: str, port: str) -> Facts:
    one = here.network.devices.get(name)
    nic = next((n for n in here.graph.nics if n.device == name), None) if here.graph else None
    why = "sysfs does not have it" if one else NEVER
    address = one.pci if one else ""
    vital = WHERE_TO_READ["vital"].format(pci=address or "ADDRESS")
    facts = {
        "device": _text_fact(name, NEVER),
        "product": _text_fact(one.model if one else "", why),
        "serial": _unknown_fact(vital),
        "board_part_number": _unknown_fact(vital),
        "psid": _text_fact(one.board if one else "", why),
        "node_guid": _text_fact(one.guid if one else "", why),
        "firmware": _text_fact(one.firmware if one else "", why),
        "network_interfaces": _text_fact(", ".join(one.netdevs) if one else "", why),
        **_pci_facts(here, address, nic.place if nic else None),
    }
    return facts | ({"port": _text_fact(port, NEVER), "link_layer": _layer(nic, port)} if port else {})


def _layer(nic: NicPart | None, port: str) -> Fact:
    layers = dict(nic.ports) if nic else {}
    return _text_fact(layers.get(port, ""), "the port was absent when the topology was last read")


def _pci(here: NodeParts, part: Subject) -> Facts:
    """A PCI bridge, an NVSwitch, or a device that no collector knows."""
    address = normal_pci(part.device)
    parts: list[GpuPart | NicPart] = [*here.graph.gpus, *here.graph.nics] if here.graph else []
    below = [one for one in parts if address and address in one.place.bridges]
    path = below[0].place if below else None
    up = path.bridges[: path.bridges.index(address)] if path else ()
    none = "no GPU and no network card" if here.graph else ""
    facts = {
        "device": _text_fact(part.device, NEVER),
        "pci_address": _text_fact(address, f"{part.device!r} is not a PCI address"),
        "pci_path": _text_fact(
            " / ".join((path.root, *up, address)) if path else "",
            "it is above no GPU and no network card" if here.graph else NO_GRAPH,
        ),
        "above": _text_fact(", ".join(map(_label, below)) or none, NO_GRAPH),
        "serial": _unknown_fact(WHERE_TO_READ["bridge"]),
    }
    return facts | ({"link": _text_fact(part.link, NEVER)} if part.link else {})


def _label(one: GpuPart | NicPart) -> str:
    return one.device if isinstance(one, NicPart) else f"GPU {one.index}"


def _counted(known_parts: InventoryFacts) -> str:
    lost = f", {len(known_parts.lost)} of them lost" if known_parts.lost else ""
    return f"{len(known_parts.gpus)}{lost}" if known_parts.gpus else ""


def _text_fact(value: str, otherwise: str) -> Fact:
    """The text, or why there is none."""
    return Fact(value, None) if value.strip() else Fact(None, otherwise)


def _unknown_fact(why: str) -> Fact:
    return Fact(None, why)
