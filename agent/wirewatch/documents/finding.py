"""The document of one finding, for a hardware return: the part, the node, and numbers beside its peers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from wirewatch import __version__
from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.inventory import InventoryFacts
from wirewatch.collectors.nvlink import LINK_SPEED, LINK_UP, NvlinkFacts
from wirewatch.core.collector import Component, NodeState, blind_rule
from wirewatch.core.nvml import UP
from wirewatch.core.pci import Place, normal_pci
from wirewatch.core.probe import Probed
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import GpuPart, NicPart, Topology
from wirewatch.core.types import LEVELS, Absent, Failed, Kind, Sample, Subject
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import HEALTH_NAMES, Health, NodeFinding
from wirewatch.documents.judged import series_of, standing
from wirewatch.documents.state import Series
from wirewatch.probe.collector import BUSBW, EXPECTED, LATENCY, RATIO, results
from wirewatch.probe.hostlinks import host_links
from wirewatch.probe.measurement import Measured
from wirewatch.probe.model import ProbeMemory as Probes
from wirewatch.verdict.node import SUPPRESSED, Judged, Standing
from wirewatch.verdict.orders import pick
from wirewatch.verdict.straggler.signals import memory_rate, product_seconds

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
    where there are none. Series of single links are included for a finding of a link. `host`: the
    node's name, empty for a recording.
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
    host: str = ""


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
PART_LABELS = (*LEVELS, "src", "dst")
"""Labels that name the part of a series; all others say what is counted."""
_KINDS = (("link", "links"), ("port", "ports"), ("device", "devices"), ("uuid", "GPUs"))
"""The kind of a part in words, by its finest label, finest first."""
_UNITS = (
    ("timestamp_seconds", "unix seconds"), ("bytes_per_second", "bytes per second"), ("bytes", "bytes"),
    ("seconds", "seconds"), ("watts", "watts"), ("celsius", "degrees celsius"), ("ratio", "ratio"),
    ("hertz", "hertz"),
)  # fmt: skip
COLLECTIVES = (BUSBW, EXPECTED, RATIO, LATENCY)
"""Series of a probe that are of the whole node."""
COUNT = "1"
"""The unit of counts, and of states that are 0 or 1."""
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
        return "node", {"serial": Fact(None, WHERE_TO_READ["chassis"])}
    name = _rdma_name(here, part.device)
    if name or standing.collector == "infiniband" or standing.finding.rule.startswith("infiniband."):
        return "network_device", _network(here, name or part.device, part.port)
    return "pci_device", _pci(here, part)


def node_facts(here: NodeParts, source: str) -> Facts:
    """The facts of the node."""
    known_parts = here.inventory
    names = sorted({one.gpu.name for one in known_parts.gpus.values() if one.gpu.name})
    versions = dict(here.graph.versions) if here.graph else {}
    unknown = "no file has it" if here.graph else NO_GRAPH
    lost = f", {len(known_parts.lost)} of them lost" if known_parts.lost else ""
    counted = f"{len(known_parts.gpus)}{lost}" if known_parts.gpus else ""
    return {
        "product": _text_fact(", ".join(names), NEVER),
        "gpus": _text_fact(counted, NEVER),
        "driver": _fact(known_parts.versions, "driver"),
        "nvml": _fact(known_parts.versions, "nvml"),
        "cuda_driver": _fact(known_parts.versions, "cuda_driver"),
        "kernel": _text_fact(versions.get("kernel", ""), unknown),
        "mlx5_core": _text_fact(versions.get("mlx5_core", ""), unknown),
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
        "uuid": _text_fact(part.uuid, NEVER),
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


def _fact(texts: Mapping[str, str | Absent], name: str) -> Fact:
    value = texts.get(name)
    if isinstance(value, str):
        return _text_fact(value, "the driver gives an empty text")
    return Fact(None, NEVER if value is None else str(value))


def _far_end(here: NodeParts, part: Subject) -> Fact:
    """The part at the other end of a link, if the link was up when the graph was read."""
    if here.graph is None:
        return Fact(None, NO_GRAPH)
    for wires in here.graph.nvlink:
        if wires.uuid == part.uuid and part.link in {str(link) for link in wires.links}:
            gpu = here.inventory.gpus.get(wires.peer)
            return _text_fact(f"GPU {gpu.gpu.index} ({wires.peer})" if gpu else wires.peer, NEVER)
    return Fact(None, "the link was not up when the topology was last read")


def _pci_facts(here: NodeParts, address: str, place: Place | None) -> Facts:
    """The way from the root of the PCI tree down to the device."""
    path = numa = Fact(None, NO_GRAPH if here.graph is None else "it was not in the PCI tree when last read")
    if place is not None and place.root:
        number = "" if place.numa is None else str(place.numa)
        numa = _text_fact(number, "the firmware or hypervisor does not give it")
        path = _text_fact(" / ".join((place.root, *place.bridges, place.address)), NEVER)
        if not place.bridges:
            path = Fact(None, f"the hypervisor shows no bridges above it, only {place.root}")
    address = address or (place.address if place else "")
    return {"pci_address": _text_fact(address, NEVER), "pci_path": path, "numa_node": numa}


def _rdma_name(here: NodeParts, device: str) -> str:
    """The RDMA device of this name, or at this PCI address, with or without function; "" for none."""
    known = here.network.devices.items()
    return next((name for name, one in known if device in {name, one.pci, one.pci.partition(".")[0]}), "")


def _network(here: NodeParts, name: str, port: str) -> Facts:
    one = here.network.devices.get(name)
    nic = next((n for n in here.graph.nics if n.device == name), None) if here.graph else None
    why = "sysfs does not have it" if one else NEVER
    address = one.pci if one else ""
    vital = WHERE_TO_READ["vital"].format(pci=address or "ADDRESS")
    facts = {
        "device": _text_fact(name, NEVER),
        "product": _text_fact(one.model if one else "", why),
        "serial": Fact(None, vital),
        "board_part_number": Fact(None, vital),
        "psid": _text_fact(one.board if one else "", why),
        "node_guid": _text_fact(one.guid if one else "", why),
        "firmware": _text_fact(one.firmware if one else "", why),
        "network_interfaces": _text_fact(", ".join(one.netdevs) if one else "", why),
        **_pci_facts(here, address, nic.place if nic else None),
    }
    if port:
        layer = dict(nic.ports).get(port, "") if nic else ""
        absent = "the port was absent when the topology was last read"
        facts |= {"port": _text_fact(port, NEVER), "link_layer": _text_fact(layer, absent)}
    return facts


def _pci(here: NodeParts, part: Subject) -> Facts:
    """A PCI bridge, an NVSwitch, or a device that no collector knows."""
    address = normal_pci(part.device)
    parts: list[GpuPart | NicPart] = [*here.graph.gpus, *here.graph.nics] if here.graph else []
    below = [one for one in parts if address in one.place.bridges]
    path = below[0].place if below else None
    up = path.bridges[: path.bridges.index(address)] if path else ()
    none = "no GPU and no network card" if here.graph else ""
    way = " / ".join((path.root, *up, address)) if path else ""
    names = [one.device if isinstance(one, NicPart) else f"GPU {one.index}" for one in below]
    facts = {
        "device": _text_fact(part.device, NEVER),
        "pci_address": _text_fact(address, f"{part.device!r} is not a PCI address"),
        "pci_path": _text_fact(way, f"it is above {none}" if none else NO_GRAPH),
        "above": _text_fact(", ".join(names) or none, NO_GRAPH),
        "serial": Fact(None, WHERE_TO_READ["bridge"]),
    }
    return facts | ({"link": _text_fact(part.link, NEVER)} if part.link else {})


def _text_fact(value: str, otherwise: str) -> Fact:
    """The text, or why there is none."""
    return Fact(value, None) if value.strip() else Fact(None, otherwise)


def evidence(judged: Judged, name: str, at: float, source: str) -> FindingDocument:
    """The document of the finding whose id begins with `name`, at `at` (Unix seconds).

    Raises OrderError where no finding has such an id, or several have.
    """
    verdict = judged.verdict
    one = pick(verdict, name)
    here = known_parts(judged.state)
    kind, part = part_of(here, one)
    found, why = numbers(judged.state, one)
    return FindingDocument(
        schema="wirewatch.finding/1", at=at, health=HEALTH_NAMES[verdict.health], job_ready=verdict.job_ready,
        source=source, finding=standing(one), collector=one.collector or None,
        measured=None if one.measured is None else HEALTH_NAMES[one.measured],
        last_seen=_last_seen(judged, one), kind=kind, part=part,
        node=node_facts(here, source),
        numbers_at=read_at(judged.state, one) if found else None, numbers_unknown=why or None, numbers=found,
    )  # fmt: skip


def numbers(state: NodeState, standing: Standing) -> tuple[list[Number], str]:
    """The numbers of a finding's part; and where there are none, why."""
    component = state.components.get(standing.collector)
    if component is None:
        return [], _why_no_collector(standing)
    everything, part = rows(component), standing.finding.subject
    mine = [row for row in everything if _is_of(row, part)]
    found = [_number(row, everything, part) for row in mine]
    if part == Subject() and isinstance(component.memory, Probes):
        found += _over_all_gpus(everything)
    return found, "" if found else _why_no_numbers(component, part)


def read_at(state: NodeState, standing: Standing) -> float | None:
    """When the numbers were read, Unix seconds: by the collector, or when the newest probe began."""
    component = state.components.get(standing.collector)
    if component is None:
        return None
    if isinstance(component.memory, Probes):
        return component.memory.last.at if component.memory.last else None
    return component.last_success or None


def rows(component: Component) -> Sequence[Series]:
    """The numbers of a component, without names and versions.

    Those of the probe are of the newest complete one, also when it is too old to be exported.
    """
    found = [_row(sample) for sample in component.samples if sample.metric.kind is not Kind.INFO]
    if isinstance(component.memory, Probes):
        last, measured = component.memory.last, component.memory.measured
        of_gpus = (row for row in found if "uuid" in row.labels)
        return () if last is None else (*_probe_rows(last, measured), *of_gpus)
    return (*found, *_link_rows(component), *_nic_rows(component))


def unit_of(name: str) -> str:
    """The unit of a metric, by the end of its name."""
    plain = name.removesuffix("_total")
    return next((unit for end, unit in _UNITS if plain.endswith(end)), COUNT)


def quantities_of(probed: Probed, place: int) -> dict[str, float]:
    """Return what a probe measured of the GPU at a place, alone and as the median over its peers, by name."""
    micro = next((one for one in probed.shown.micros if one.gpu == place), None)
    away = [one.size_bytes / one.seconds for one in probed.shown.copies if one.source == place]
    here = [one.size_bytes / one.seconds for one in probed.shown.copies if one.destination == place]
    host = next((one.ways for one in host_links(probed) if one.copies.gpu == place), None)
    values = {
        "host_to_device_bytes_per_second": host[0].rate if host else None,
        "device_to_host_bytes_per_second": host[1].rate if host else None,
        "matrix_product_seconds": product_seconds(micro) if micro else None,
        "memory_copy_bytes_per_second": memory_rate(micro) if micro else None,
        "copies_from_it_bytes_per_second": median(away) if away else None,
        "copies_to_it_bytes_per_second": median(here) if here else None,
        "sm_clock_hertz": next((clock.sm for clock in probed.clocks if clock.gpu == place), None),
    }
    return {name: value for name, value in values.items() if value is not None}


def _last_seen(judged: Judged, one: Standing) -> float | None:
    """When it was last found: the time of an event, of the newest reading, or else of the ledger.

    The ledger has the time at which a finding was found to be over.
    """
    if one.finding.last:
        return one.finding.last
    if one.measured is not None:
        return read_at(judged.state, one)
    entry = judged.ledger.entries.get(one.key)
    return entry.last if entry else None


def _is_of(row: Series, part: Subject) -> bool:
    """Whether a number is of this part; a number without part labels is the node's.

    The numbers of a single link are not those of its GPU.
    """
    labels = row.labels
    if part.uuid or part.gpu:
        name, value = ("uuid", part.uuid) if part.uuid else ("gpu", part.gpu)
        return labels.get(name) == value and labels.get("link", part.link) == part.link
    if part.device:
        return labels.get("device") == part.device and part.port in {"", labels.get("port", part.port)}
    return not set(labels) & set(PART_LABELS)


def _number(row: Series, everything: Iterable[Series], part: Subject) -> Number:
    place, what = _split_labels(row)
    finer = {k: v for k, v in place.items() if k not in part.levels() and k != "gpu"}
    kind = next((kind for label, kind in _KINDS if label in place), None)
    if kind is None:
        none = "it is a number of the whole node, which has no peers"
        return Number(row.name, what, unit_of(row.name), row.value, None, None, none)
    alike = (other for other in everything if other.name == row.name and _split_labels(other)[1] == what)
    peers = _peers(kind, [other.value for other in alike if not _is_of(other, part)])
    alone = None if peers else f"no other of the {kind} has this number"
    return Number(row.name, {**finer, **what}, unit_of(row.name), row.value, None, peers, alone)


def _over_all_gpus(everything: Iterable[Series]) -> list[Number]:
    """A probe's numbers over all GPUs: for a finding that names none of them."""
    split = ((row, *_split_labels(row)) for row in everything)
    gpus = ((row, tuple(what.items())) for row, place, what in split if set(place) == {"gpu", "uuid"})
    found = grouped(((row.name, what), row.value) for row, what in gpus)
    why = "the finding names no GPU; the peers are all GPUs"
    return [
        Number(name, dict(what), unit_of(name), None, why, _peers("GPUs", values), None)
        for (name, what), values in found.items()
    ]


def _split_labels(row: Series) -> tuple[dict[str, str], dict[str, str]]:
    """The labels that name the part, and the others."""
    place = {k: v for k, v in row.labels.items() if k in PART_LABELS}
    return place, {k: v for k, v in row.labels.items() if k not in PART_LABELS}


def _peers(kind: str, values: Sequence[float]) -> Peers | None:
    if not values:
        return None
    return Peers(kind, len(values), min(values), float(median(values)), max(values))


def _why_no_collector(standing: Standing) -> str:
    if standing.collector:
        return f"the collector `{standing.collector}` is switched off"
    if standing.stage == SUPPRESSED:
        return "it is suppressed and not found now: no collector reports it"
    return "no collector measures this"


def _why_no_numbers(component: Component, part: Subject) -> str:
    if isinstance(component.memory, Probes) and component.memory.last is None:
        return "no complete probe is known"
    if component.overdue_since is not None:
        return f"the collector `{component.name}` is overdue: the driver or a file does not answer"
    if isinstance(component.outcome, Failed):
        return f"the collector `{component.name}` cannot read: {component.outcome.absent}"
    blind = blind_rule(component.name)
    for finding in component.findings:
        if finding.rule == blind and finding.subject in {part, Subject(gpu=part.gpu, uuid=part.uuid)}:
            return f"the part cannot be read: {finding.evidence}"
    return f"the collector `{component.name}` has no numbers of this part alone"


def _row(sample: Sample) -> Series:
    return replace(series_of(sample), value=float(sample.value))


def _link_rows(component: Component) -> Iterator[Series]:
    """State and speed of each link: they are read at every poll, and have no series by default."""
    known_parts = component.facts
    if not component.samples or any(sample.metric is LINK_UP for sample in component.samples):
        return
    for gpu, links in known_parts.links.items() if isinstance(known_parts, NvlinkFacts) else ():
        for link in links:
            labels = (str(gpu.index), gpu.uuid, str(link.link))
            if not isinstance(link.state, Absent):
                yield _row(LINK_UP.sample(link.state in UP, *labels))
            if not isinstance(link.speed, Absent):
                yield _row(LINK_SPEED.sample(link.speed, *labels))


def _nic_rows(component: Component) -> Iterator[Series]:
    """PCIe of the network cards, which has no series."""
    known_parts = component.facts
    if not (isinstance(known_parts, InfinibandFacts) and component.samples):
        return
    for device, link in known_parts.cards.items():
        values = {
            "pcie_generation": link.generation, "pcie_generation_max": link.generation_max,
            "pcie_width": link.width, "pcie_width_max": link.width_max,
        }  # fmt: skip
        for name, value in values.items():
            if not isinstance(value, Absent):
                yield Series(f"card_{name}", {"device": device}, float(value))


def _probe_rows(probed: Probed, measured: Sequence[Measured]) -> Iterator[Series]:
    yield from (_row(sample) for sample in results(probed, measured) if sample.metric in COLLECTIVES)
    for place, gpu in enumerate(probed.gpus):
        labels = {"gpu": str(gpu.index), "uuid": gpu.uuid}
        for name, value in quantities_of(probed, place).items():
            yield Series(name, labels, value)
    for counted in probed.links:
        gpu = probed.gpus[counted.gpu]
        ways = {"link_transmit_bytes": counted.transmit, "link_receive_bytes": counted.receive}
        for name, counts in ways.items():
            for link, count in zip(counted.links, counts, strict=True):
                if count is not None:
                    labels = {"gpu": str(gpu.index), "uuid": gpu.uuid, "link": str(link)}
                    yield Series(name, labels, float(count))
