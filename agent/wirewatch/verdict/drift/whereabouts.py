"""What the PCI tree shows of parts that the topology lacks: some were given away, others are missing."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

from wirewatch.core.ports import Sysfs
from wirewatch.core.slots import is_gpu
from wirewatch.core.topology import NicPart, Topology, WireKind
from wirewatch.core.tree import DEVICES, driver_of, find_strays, is_virtual, passes_on, rdma_strays, where_is
from wirewatch.core.types import Absent, Why
from wirewatch.verdict.drift.canonical import AWAY, graph_of
from wirewatch.verdict.drift.graph import Aspect, GpuIsland, GpuNode, Graph, Unknown


def physical(sysfs: Sysfs, topology: Topology) -> Topology:
    """Without virtual functions: they are made and unmade by design, and their wire is their card's."""

    def virtual_nic(nic: NicPart) -> bool:
        return bool(nic.place.address) and is_virtual(sysfs, nic.place.address)

    virtual = {nic.device for nic in topology.nics if virtual_nic(nic)}
    if not virtual:
        return topology
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
    """GPUs and RDMA cards that are in the PCI tree and not in the topology, each in words.

    A network card that a pod or a guest was given is none of them.
    """
    nics = rdma_strays(sysfs, topology.devices())
    return (*_gpus_in_words(sysfs, topology), *(f"NIC at {at}: {one.reason}" for at, one in nics.items()))


def with_away(graph: Graph, before: Graph, away: AbstractSet[str]) -> Graph:
    """The graph with those parts as they were; the NVLink of such a GPU is not known."""
    here = {part.key for part in graph.parts}
    nics = [nic for nic in before.nics if nic.key in away and nic.key not in here]
    gpus = [_without_wires(gpu) for gpu in before.gpus if gpu.key in away and gpu.key not in here]
    if not nics and not gpus:
        return graph
    unknown = (Unknown(gpu.key, Aspect.NVLINK) for gpu in gpus)
    alone = (GpuIsland(WireKind.UNKNOWN.name.lower(), (gpu.key,)) for gpu in gpus)
    return replace(
        graph,
        gpus=tuple(sorted((*graph.gpus, *gpus), key=lambda gpu: gpu.key)),
        nics=tuple(sorted((*graph.nics, *nics), key=lambda nic: nic.key)),
        islands=tuple(sorted((*graph.islands, *alone), key=lambda one: (one.gpus, one.kind))),
        unknown=tuple(sorted({*graph.unknown, *unknown})),
    )


def _without_wires(gpu: GpuNode) -> GpuNode:
    return replace(gpu, wires=(), read=False, off=AWAY)


def _has_guest(sysfs: Sysfs, address: str) -> bool:
    driver = driver_of(sysfs, address)
    return is_gpu(sysfs, address) and not isinstance(driver, Absent) and passes_on(driver)


def _stray_gpus(sysfs: Sysfs, topology: Topology) -> Iterator[str]:
    """Addresses of GPUs that are not in the topology, without virtual functions."""
    addresses = sysfs.entries(DEVICES)
    listed = {gpu.place.address for gpu in topology.gpus}
    for address in () if isinstance(addresses, Absent) else addresses:
        if address not in listed and is_gpu(sysfs, address) and not is_virtual(sysfs, address):
            yield address


def _gpus_in_words(sysfs: Sysfs, topology: Topology) -> Iterator[str]:
    for address in _stray_gpus(sysfs, topology):
        driver = driver_of(sysfs, address)
        if isinstance(driver, Absent):
            why = "no driver is bound to it" if driver.why is Why.MISSING else str(driver)
        else:
            why = f"{driver} is bound to it, and NVML does not list it"
        yield f"GPU at {address}: {f'{driver}: {AWAY}' if _has_guest(sysfs, address) else why}"
