"""NICs that are not listed because somebody was given them, which is no loss; and virtual functions."""

from collections.abc import Set as AbstractSet
from dataclasses import replace

from wirewatch.core.ports import Sysfs
from wirewatch.core.topology import NicPart, Topology
from wirewatch.core.tree import DEVICES, find_strays, where_is
from wirewatch.core.types import Absent
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.graph import Graph


def physical(sysfs: Sysfs, told: Topology) -> Topology:
    """Without virtual functions: they are made and unmade by design, and their wire is their card's."""

    def is_virtual(nic: NicPart) -> bool:
        link = sysfs.link(f"{DEVICES}/{nic.place.address}/physfn") if nic.place.address else None
        return link is not None and not isinstance(link, Absent)

    virtual = {nic.device for nic in told.nics if is_virtual(nic)}
    if not virtual:
        return told
    return replace(
        told,
        nics=tuple(nic for nic in told.nics if nic.device not in virtual),
        paths=tuple(path for path in told.paths if path.device not in virtual),
    )


def given_away(sysfs: Sysfs, told: Topology, before: Graph) -> frozenset[str]:
    """Keys of NICs of the baseline that are not listed now and are not lost.

    A pod or a virtual machine has them, or it cannot be told where they are.
    """
    here = {nic.key for nic in graph_of(told).nics}
    gone = [nic for nic in before.nics if nic.key not in here]
    return frozenset(nic.key for nic in gone if where_is(sysfs, nic.spot.address).away is not False)


def lent(sysfs: Sysfs, told: Topology) -> int:
    """How many cards of vendors that make RDMA are here, and with somebody who was given them."""
    strays = find_strays(sysfs, {nic.place.address for nic in told.nics})
    return sum(one.away is not False for one in strays.values())


def with_away(graph: Graph, before: Graph, away: AbstractSet[str]) -> Graph:
    """The graph with those NICs as they were."""
    here = {nic.key for nic in graph.nics}
    back = [nic for nic in before.nics if nic.key in away and nic.key not in here]
    if not back:
        return graph
    return replace(graph, nics=tuple(sorted((*graph.nics, *back), key=lambda nic: nic.key)))
