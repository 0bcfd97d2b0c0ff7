"""What one probe measured of each GPU, pair and link, as rates: the higher, the faster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from wirewatch.core.probe import Document, LinkBytes, Probed
from wirewatch.core.topology import Kind

EVEN = frozenset({Kind.SWITCH, Kind.MESH, Kind.PAIR})
"""What joins GPUs so that every two of them have the same wire."""
SPREAD = frozenset({Kind.SWITCH, Kind.PAIR})
"""What joins GPUs so that all links of a GPU carry the same."""
SLICED = 1.4
"""Slowest to fastest run, from which on somebody else had the GPU in between; healthy ones reach 1.04."""
MOSTLY = 0.5
"""Part of the time in which a copying process uses the memory at least, and a computing one does not."""


class Resource(Enum):
    """What of a GPU is slow; `source` and `destination` are its two directions to most of its peers."""

    COMPUTE = "compute"
    MEMORY = "memory"
    SOURCE = "source"
    DESTINATION = "destination"
    PAIR = "pair"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Unit:
    """What is measured: a GPU's compute or memory, or a pair; GPUs by UUID."""

    resource: Resource
    uuid: str
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Signals:
    """`kind`: what makes rates of two probes comparable. Matrix products per second, bytes per second.

    `alike`: GPUs of one product, and pairs of such that go the same way, and so can be compared with each
    other, by a name for all that are.
    `links`: by GPU the part by which its lowest link carried less than the mean of all. `others`: of GPUs
    that somebody else uses too, whether that is mostly their memory, where it is known. `used`: all GPUs that
    somebody else is known to use, whether it shows in their rates or not.
    """

    kind: str
    rates: Mapping[Unit, float]
    alike: Mapping[Unit, str]
    links: Mapping[Unit, float] = field(default_factory=dict)
    others: Mapping[str, bool] = field(default_factory=dict)
    used: frozenset[str] = frozenset()


def signals(probed: Probed) -> Signals:
    """All rates of a complete probe; none of one that was broken off or touched no GPU."""
    document = probed.document
    if document is None or probed.outcome != "ok" or not probed.gpus:
        return Signals("", {}, {})
    rates = dict(_rates(probed, document))
    return Signals(
        _kind(probed, document), rates, dict(_ways(probed, document)), dict(_links(probed)),
        dict(_others(probed, document)),
        frozenset(gpu.uuid for gpu in probed.gpus if gpu.others_memory is not None),
    )  # fmt: skip


def _rates(probed: Probed, document: Document) -> Iterator[tuple[Unit, float]]:
    uuids = probed.plan.gpus
    for micro in document.micros:
        if micro.product > 0:
            yield Unit(Resource.COMPUTE, uuids[micro.gpu]), 1 / micro.product
        if micro.copied > 0:
            yield Unit(Resource.MEMORY, uuids[micro.gpu]), micro.copied
    for copy in document.copies:
        if copy.seconds > 0:
            unit = Unit(Resource.PAIR, uuids[copy.source], uuids[copy.destination])
            yield unit, copy.size_bytes / copy.seconds


def _others(probed: Probed, document: Document) -> Iterator[tuple[str, bool]]:
    """Who shares a GPU is given it in slices: some runs are as fast as ever and others wait for a slice."""
    for micro in document.micros:
        used = probed.gpus[micro.gpu].others_memory
        sliced = micro.gemm_high > SLICED * micro.gemm_low or micro.copy_high > SLICED * micro.copy_low
        if used is not None and sliced:
            yield probed.plan.gpus[micro.gpu], used >= MOSTLY


def _kind(probed: Probed, document: Document) -> str:
    """Another engine, driver or size measures something else."""
    sizes = {micro.copy_bytes for micro in document.micros}
    told = document.versions.get("cuda_driver", "")
    return f"{probed.plan.engine} {told} {probed.plan.copy_bytes} {max(sizes, default=0)}"


def _ways(probed: Probed, document: Document) -> Iterator[tuple[Unit, str]]:
    """GPUs of one product; pairs of such that one even wire joins, the smallest such group of each."""
    names = {gpu.uuid: gpu.name for one in probed.conditions for gpu in one.group.gpus}
    uuids = probed.plan.gpus
    for micro in document.micros:
        for resource in (Resource.COMPUTE, Resource.MEMORY):
            yield Unit(resource, uuids[micro.gpu]), f"a {names.get(uuids[micro.gpu], '')}"
    even = {
        frozenset(members): one.group.kind.value
        for members, one in zip(probed.plan.groups, probed.conditions, strict=False)
        if one.group.kind in EVEN
    }
    for copy in document.copies:
        homes = [members for members in even if {copy.source, copy.destination} <= members]
        if homes:
            home = min(homes, key=len)
            ends = (uuids[copy.source], uuids[copy.destination])
            how = "direct" if copy.direct else "through the host"
            products = " and ".join(sorted(names.get(uuid, "") for uuid in ends))
            yield Unit(Resource.PAIR, *ends), f"{even[home]} {sorted(home)} {how} {products}"


def _links(probed: Probed) -> Iterator[tuple[Unit, float]]:
    if all(one.group.kind in SPREAD for one in probed.conditions):
        for links in probed.links:
            lost = _lowest(links)
            if lost is not None:
                yield Unit(Resource.LINK, probed.plan.gpus[links.gpu]), lost


def _lowest(links: LinkBytes) -> float | None:
    """A link that carried nothing at all is not one that is slow: whether it is up is told by its state."""
    lost = []
    for values in (links.transmit, links.receive):
        known = [value for value in values if value]
        if len(known) > 1:
            lost.append(1 - min(known) * len(known) / sum(known))
    return max(lost, default=None)
