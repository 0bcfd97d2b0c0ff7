"""From what was read to the canonical form, and where GPUs and cards are that the drivers do not list."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from wirewatch.core.pci import Place
from wirewatch.core.ports import Sysfs
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import UNKNOWN_PEER, GpuPart, NicPart, Topology, WireKind, islands
from wirewatch.core.tree import (
    DEVICES,
    driver_of,
    find_strays,
    is_gpu,
    is_virtual,
    passes_on,
    rdma_strays,
    where_is,
)
from wirewatch.core.types import Absent, Why
from wirewatch.verdict.drift.wiring import (
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
    lacking = (Unknown(name, Aspect.VERSION) for name, version in versions if not version)
    return Graph(
        tuple(gpus), tuple(nics), tuple(sorted(groups, key=lambda one: (one.gpus, one.kind))),
        topology.numa_nodes, versions,
        tuple(sorted({*_unknown(gpus, nics, topology.numa_nodes), *lacking})),
    )  # fmt: skip


def physical(sysfs: Sysfs, topology: Topology) -> Topology:
    """Without virtual functions: they are made and unmade by design, and their wire is their card's."""
    virtual = {nic.device for nic in topology.nics if is_virtual(sysfs, nic.place.address)}
    return replace(
        topology,
        nics=tuple(nic for nic in topology.nics if nic.device not in virtual),
        paths=tuple(path for path in topology.paths if path.device not in virtual),
    )


def given_away(sysfs: Sysfs, topology: Topology, before: Graph) -> frozenset[str]:
    """Keys of parts of the baseline that are not listed now and are not lost.

    A pod or a virtual machine has them. Of a NIC it may also not be known where it is; a GPU of which that is
    not known is lost.
    """
    here = {part.key for part in graph_of(topology).parts}
    nics = (nic for nic in before.nics if nic.key not in here)
    gpus = (gpu for gpu in before.gpus if gpu.key not in here)
    return frozenset((
        *(nic.key for nic in nics if where_is(sysfs, nic.spot.address).away is not False),
        *(gpu.key for gpu in gpus if _has_guest(sysfs, gpu.spot.address)),
    ))  # fmt: skip


def lent(sysfs: Sysfs, topology: Topology) -> tuple[int, int]:
    """How many GPUs, and cards of vendors that make RDMA, are here and were given to a pod or a guest."""
    strays = find_strays(sysfs, {nic.place.address for nic in topology.nics})
    gpus = sum(_has_guest(sysfs, address) for address in _stray_gpus(sysfs, topology))
    return gpus, sum(one.away is not False for one in strays.values())


def unlisted(sysfs: Sysfs, topology: Topology) -> tuple[str, ...]:
    """Return GPUs and RDMA cards of the PCI tree that the topology lacks and no pod or guest was given."""
    nics = rdma_strays(sysfs, topology.devices())
    return (*_gpus_in_words(sysfs, topology), *(f"NIC at {at}: {one.reason}" for at, one in nics.items()))


def with_away(graph: Graph, before: Graph, away: AbstractSet[str]) -> Graph:
    """The graph with those parts as they were; the NVLink of such a GPU is not known."""
    here = {part.key for part in graph.parts}
    nics = [nic for nic in before.nics if nic.key in away and nic.key not in here]
    lent = (gpu for gpu in before.gpus if gpu.key in away and gpu.key not in here)
    gpus = [replace(gpu, wires=(), read=False, off=AWAY) for gpu in lent]
    unknown = (Unknown(gpu.key, Aspect.NVLINK) for gpu in gpus)
    alone = (GpuIsland(WireKind.UNKNOWN.name.lower(), (gpu.key,)) for gpu in gpus)
    return replace(
        graph,
        gpus=tuple(sorted((*graph.gpus, *gpus), key=lambda gpu: gpu.key)),
        nics=tuple(sorted((*graph.nics, *nics), key=lambda nic: nic.key)),
        islands=tuple(sorted((*graph.islands, *alone), key=lambda one: (one.gpus, one.kind))),
        unknown=tuple(sorted({*graph.unknown, *unknown})),
    )


def _uuid(gpu: GpuPart) -> str:
    return "" if gpu.uuid.startswith(_NAMELESS) else gpu.uuid


def _guid(nic: NicPart) -> str:
    """A device without a GUID shows only zeros."""
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
        chain = _chain(place)
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
    return TreePlace(branches[_chain(place)], place.numa, place.root, place.bridges, place.address)


def _chain(place: Place) -> tuple[str, ...]:
    return (place.root, *place.bridges) if place.root else ()


def _wires(topology: Topology, uuid: str, keys: Mapping[str, str]) -> tuple[PeerLinks, ...]:
    mine = (wires for wires in topology.nvlink if wires.uuid == uuid)
    links = grouped((keys.get(one.peer, one.peer), link) for one in mine for link in one.links)
    return tuple(PeerLinks(peer, tuple(sorted(links[peer]))) for peer in sorted(links))


def _paths(topology: Topology, device: str, keys: Mapping[str, str]) -> tuple[PciPath, ...]:
    paths = {keys[one.uuid]: one.path for one in topology.paths if one.device == device}
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


def _has_guest(sysfs: Sysfs, address: str) -> bool:
    driver = driver_of(sysfs, address)
    return is_gpu(sysfs, address) and not isinstance(driver, Absent) and passes_on(driver)


def _stray_gpus(sysfs: Sysfs, topology: Topology) -> Iterator[str]:
    """Addresses of GPUs that are not in the topology, without virtual functions."""
    addresses = sysfs.entries(DEVICES)
    listed = {gpu.place.address for gpu in topology.gpus}
    for address in () if isinstance(addresses, Absent) else addresses:
        if address not in listed and is_gpu(sysfs, address):
            yield address


def _gpus_in_words(sysfs: Sysfs, topology: Topology) -> Iterator[str]:
    for address in _stray_gpus(sysfs, topology):
        driver = driver_of(sysfs, address)
        if isinstance(driver, Absent):
            why = "no driver is bound to it" if driver.why is Why.MISSING else str(driver)
        else:
            why = f"{driver} is bound to it, and NVML does not list it"
        yield f"GPU at {address}: {f'{driver}: {AWAY}' if _has_guest(sysfs, address) else why}"
