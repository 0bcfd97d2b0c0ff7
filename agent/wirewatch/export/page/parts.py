"""What the drawing shows of GPUs, NICs and links: how each is, and what hangs where. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.topology import SWITCH, UNKNOWN_PEER, GpuPart, NicPart, PciPlace, Topology
from wirewatch.export.healthdocuments import Health
from wirewatch.export.page.gpus import blind, up_and_expected
from wirewatch.export.page.readings import GpuName, Readings
from wirewatch.export.page.shapes import Look
from wirewatch.export.page.told import Told
from wirewatch.export.page.words import GBIT, plain
from wirewatch.verdict.drift.graph import natural

LOOKS: Mapping[Health, Look] = {"ok": "plain", "degraded": "warn", "unknown": "unknown", "failed": "bad"}
PCIE = "pcie"
NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCI paths, the nearest first."""


@dataclass(frozen=True, slots=True)
class Links:
    """Links of a GPU to one peer: how many are up, should be (None: not known), and which are told as down.

    `unread`: they could not be read, so that `up` says nothing.
    """

    peer: str
    up: int
    expected: int | None
    down: tuple[str, ...] = ()
    unread: bool = False

    @property
    def short(self) -> bool:
        return not self.unread and self.expected is not None and self.up < self.expected


@dataclass(frozen=True, slots=True)
class Group:
    """What hangs below one root port, or else below one root: its GPUs and NICs. `bridge`: "" for none."""

    numa: int | None
    root: str
    bridge: str
    gpus: tuple[GpuPart, ...]
    nics: tuple[NicPart, ...]


def groups(graph: Topology) -> tuple[Group, ...]:
    """By NUMA node, those with GPUs first; in the order of their GPUs."""
    keys = sorted({_key(one.place) for one in graph.gpus} | {_key(one.place) for one in graph.nics})
    made = []
    for key in keys:
        gpus = sorted((one for one in graph.gpus if _key(one.place) == key), key=lambda one: one.index)
        nics = sorted(
            (one for one in graph.nics if _key(one.place) == key), key=lambda one: natural(one.device)
        )
        made.append(Group(None if key[0] < 0 else key[0], key[1], key[2], tuple(gpus), tuple(nics)))
    return tuple(sorted(made, key=_rank))


def _key(place: PciPlace) -> tuple[int, str, str]:
    numa = -1 if place.numa is None else place.numa
    return numa, place.root, place.bridges[0] if place.bridges else ""


def _rank(group: Group) -> tuple[int, bool, int, str, str]:
    numa = 1 << 30 if group.numa is None else group.numa
    return numa, not group.gpus, min((one.index for one in group.gpus), default=0), group.root, group.bridge


@dataclass(frozen=True, slots=True)
class PortWire:
    """The way out of a NIC: its rate in words, or the state of the worst of its ports."""

    text: str
    look: Look


@dataclass(frozen=True, slots=True)
class Known:
    """How the parts are, by UUID and by device; `pcie`: the PCIe links of those that have a finding."""

    gpus: Mapping[str, Look]
    nics: Mapping[str, Look]
    links: Mapping[str, tuple[Links, ...]]
    nearest: Mapping[str, tuple[str, str]]
    ports: Mapping[str, PortWire]
    pcie: Mapping[str, Look]


def known(told: Told, graph: Topology, here: Readings) -> Known:
    findings = told.health.findings
    gpus: dict[str, Look] = dict.fromkeys((one.uuid for one in graph.gpus if blind(here)), "unknown")
    nics: dict[str, Look] = dict.fromkeys((one.device for one in graph.nics if _ports_blind(here)), "unknown")
    pcie: dict[str, Look] = {}
    for one in reversed(findings):
        part, look = one.subject, LOOKS[one.health]
        for gpu in graph.gpus:
            if (part.get("uuid") == gpu.uuid) if part.get("uuid") else (part.get("gpu") == str(gpu.index)):
                gpus[gpu.uuid] = look
                if one.rule.startswith(f"{PCIE}."):
                    pcie[gpu.uuid] = look
        if part.get("device"):
            nics[part["device"]] = look
            if one.rule.endswith(f".{PCIE}"):
                pcie[part["device"]] = look
    links = {gpu.uuid: _links(told, graph, here, gpu) for gpu in graph.gpus}
    near = {gpu.uuid: nearest(graph, gpu.uuid) for gpu in graph.gpus}
    ports = {nic.device: _port(here, nic) for nic in graph.nics if nic.ports}
    return Known(gpus, nics, links, near, ports, pcie)


def _port(here: Readings, nic: NicPart) -> PortWire:
    states, rates = [], []
    for number, _ in nic.ports:
        part = {"device": nic.device, "port": number}
        states.append(here.state("rdma_port_state", part))
        rates.append(here.value("rdma_port_rate_bytes_per_second", part))
    if None in states:
        return PortWire("?", "unknown")
    wrong = [state for state in states if state != "active"]
    if wrong:
        return PortWire(wrong[0] or "not up", "bad")
    return PortWire(" + ".join("?" if rate is None else f"{plain(rate / GBIT)}" for rate in rates), "good")


def _ports_blind(here: Readings) -> bool:
    one = here.collectors.get("infiniband")
    return one is not None and not one.success


def _links(told: Told, graph: Topology, here: Readings, gpu: GpuPart) -> tuple[Links, ...]:
    """By peer as the graph has it; of a GPU that has one peer the newer numbers of the links themselves."""
    mine = [wires for wires in graph.nvlink if wires.uuid == gpu.uuid]
    name = GpuName(str(gpu.index), gpu.uuid)
    up, expected = up_and_expected(here, name)
    watched = "nvlink" in here.collectors and here.applies("nvlink")
    unread = gpu.uuid in graph.unread or (watched and up is None and bool(mine or expected))
    down = tuple(
        one.subject["link"]
        for one in told.health.findings
        if one.subject.get("uuid") == gpu.uuid and one.subject.get("link") and ".link_down" in one.rule
    )
    if len(mine) == 1:
        counted = len(mine[0].links) if up is None else up
        return (Links(mine[0].peer, counted, expected, down, unread),)
    if mine:
        return tuple(Links(wires.peer, len(wires.links), None, (), unread) for wires in mine)
    if expected or unread:
        return (Links(_usual_peer(graph), up or 0, expected, down, unread),)
    return ()


def _usual_peer(graph: Topology) -> str:
    """Where the links of a GPU go that has none now: where those of the others go."""
    return SWITCH if any(wires.peer == SWITCH for wires in graph.nvlink) else UNKNOWN_PEER


def nearest(graph: Topology, uuid: str) -> tuple[str, str]:
    """The path to the nearest NICs of a GPU, and their names; empty where none is told."""
    mine = [one for one in graph.paths if one.uuid == uuid]
    for path in NEAR:
        found = [one.device for one in mine if one.path == path]
        if found:
            return path, ", ".join(sorted(found, key=natural))
    return "", ""


def indexes(gpus: Sequence[GpuPart]) -> Mapping[str, int]:
    return {gpu.uuid: gpu.index for gpu in gpus}
