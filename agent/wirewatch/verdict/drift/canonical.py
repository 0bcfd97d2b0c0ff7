"""From what was read to the canonical form."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from wirewatch.core.pci import Place
from wirewatch.core.topology import UNKNOWN_PEER, GpuPart, NicPart, Topology, islands
from wirewatch.verdict.drift.graph import (
    Aspect,
    GpuIsland,
    GpuNode,
    Graph,
    NicNode,
    PciPath,
    PeerLinks,
    TreePlace,
    Unknown,
    function,
)

MIG, AWAY = "off in MIG mode", "with a guest"
"""Why the NVLink of a GPU is off on purpose."""
_NAMELESS = "index:"
"""How `core.ports.Gpu.key` begins for a GPU whose UUID was never read."""
_ZEROS = frozenset("0:")


def graph_of(topology: Topology) -> Graph:
    """The canonical form of what was read."""
    keys = {gpu.uuid: _uuid(gpu) or gpu.place.address for gpu in topology.gpus}
    named = _nic_keys(topology.nics)
    branches = _branches([
        *((keys[gpu.uuid], gpu.place) for gpu in topology.gpus),
        *((named[nic.device], nic.place) for nic in topology.nics),
    ])  # fmt: skip
    gpus = [
        GpuNode(
            _uuid(gpu), gpu.name, _spot(gpu.place, branches), _wires(topology, gpu.uuid, keys),
            gpu.uuid not in topology.unread, gpu.index, gpu.clique, MIG if gpu.uuid in topology.split else "",
        )
        for gpu in topology.gpus
    ]  # fmt: skip
    nics = [
        NicNode(
            named[nic.device], _guid(nic), nic.model, nic.firmware, _spot(nic.place, branches),
            tuple(sorted(nic.ports)), _paths(topology, nic.device, keys), nic.device,
        )
        for nic in topology.nics
    ]  # fmt: skip
    gpus.sort(key=lambda gpu: (gpu.key, repr(gpu.wires), gpu.product))
    nics.sort(key=lambda nic: (nic.key, nic.model, nic.firmware, nic.ports))
    groups = [
        GpuIsland(one.kind.name.lower(), tuple(sorted(keys[gpu.uuid] for gpu in one.gpus)))
        for one in islands(topology)
    ]
    versions = tuple(sorted(topology.versions))
    return Graph(
        tuple(gpus), tuple(nics), tuple(sorted(groups, key=lambda one: (one.gpus, one.kind))),
        topology.numa_nodes, versions,
        tuple(sorted({*_unknown(gpus, nics, topology.numa_nodes), *_unknown_versions(versions)})),
    )  # fmt: skip


def _uuid(gpu: GpuPart) -> str:
    return "" if gpu.uuid.startswith(_NAMELESS) else gpu.uuid


def _guid(nic: NicPart) -> str:
    """Nothing but zeros is what a device without a GUID shows."""
    return "" if set(nic.guid) <= _ZEROS else nic.guid


def _nic_keys(nics: Sequence[NicPart]) -> Mapping[str, str]:
    """Keys by device name."""
    guids = Counter(_guid(nic) for nic in nics)
    functions = Counter((_guid(nic), function(nic.place.address)) for nic in nics)
    keys = {}
    for nic in nics:
        guid, number = _guid(nic), function(nic.place.address)
        lasting = guid if guids[guid] == 1 else f"{guid}.{number}"
        keys[nic.device] = lasting if guid and functions[guid, number] == 1 else nic.place.address
    return keys


def _branches(leaves: Iterable[tuple[str, Place]]) -> Mapping[tuple[str, ...], tuple[int, ...]]:
    """Canonical branch by chain of today's names, root first."""
    least: dict[tuple[str, ...], str] = {}
    for key, place in leaves:
        chain = (place.root, *place.bridges) if place.root else ()
        for depth in range(1, len(chain) + 1):
            least[chain[:depth]] = min(key, least.get(chain[:depth], key))
    branches: dict[tuple[str, ...], tuple[int, ...]] = {(): ()}
    counts: Counter[tuple[str, ...]] = Counter()
    for chain in sorted(least, key=lambda chain: (len(chain), least[chain], chain)):
        above = chain[:-1]
        branches[chain] = (*branches[above], counts[above])
        counts[above] += 1
    return branches


def _spot(place: Place, branches: Mapping[tuple[str, ...], tuple[int, ...]]) -> TreePlace:
    chain = (place.root, *place.bridges) if place.root else ()
    return TreePlace(branches[chain], place.numa, place.root, place.bridges, place.address)


def _wires(topology: Topology, uuid: str, keys: Mapping[str, str]) -> tuple[PeerLinks, ...]:
    links: dict[str, list[int]] = {}
    for wires in topology.nvlink:
        if wires.uuid == uuid and wires.links:
            links.setdefault(keys.get(wires.peer, wires.peer) or UNKNOWN_PEER, []).extend(wires.links)
    return tuple(PeerLinks(peer, tuple(sorted(links[peer]))) for peer in sorted(links))


def _paths(topology: Topology, device: str, keys: Mapping[str, str]) -> tuple[PciPath, ...]:
    paths = {keys[one.uuid]: one.path for one in topology.paths if one.device == device and one.uuid in keys}
    return tuple(PciPath(key, paths[key]) for key in sorted(paths) if key)


def _unknown(gpus: Iterable[GpuNode], nics: Iterable[NicNode], nodes: int | None) -> Iterator[Unknown]:
    for gpu in gpus:
        missing = {
            Aspect.NAME: not gpu.uuid,
            Aspect.PRODUCT: not gpu.product,
            Aspect.NVLINK: not gpu.read,
            Aspect.PEERS: any(wire.peer == UNKNOWN_PEER for wire in gpu.wires),
            Aspect.CLIQUE: gpu.clique is None,
            **_unplaced(gpu.spot, nodes),
        }
        yield from (Unknown(gpu.key, what) for what, is_missing in missing.items() if is_missing)
    for nic in nics:
        missing = {
            Aspect.NAME: not nic.name,
            Aspect.PRODUCT: not nic.model,
            Aspect.FIRMWARE: not nic.firmware,
            Aspect.PORTS: not nic.ports or not all(layer for _, layer in nic.ports),
            Aspect.PATHS: not all(reach.path for reach in nic.paths),
            **_unplaced(nic.spot, nodes),
        }
        yield from (Unknown(nic.key, what) for what, is_missing in missing.items() if is_missing)
    if nodes is None:
        yield Unknown("", Aspect.NODES)


def _unplaced(spot: TreePlace, nodes: int | None) -> Mapping[Aspect, bool]:
    """With one NUMA node there is nothing more to know of it."""
    return {Aspect.PLACE: not spot.root, Aspect.NUMA: spot.numa is None and nodes != 1}


def _unknown_versions(versions: Iterable[tuple[str, str]]) -> Iterator[Unknown]:
    return (Unknown(name, Aspect.VERSION) for name, version in versions if not version)
