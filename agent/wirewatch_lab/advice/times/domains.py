"""A collective over several NVLink domains: NVLink inside, the network between. Unproven on hardware.

Each GPU sends its share of a message to its peers in the other domains, by its share of the node's ports;
inside, NVLink spreads it or adds it up. NCCL sends pieces, so both run at once, and the slower decides. To
that come the hops between domains, by the latencies with which NCCL's tuner reckons (src/graph/tuning.cc).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SENDRECV,
)

HOP_SOURCE = "latency of a hop between nodes: NCCL, src/graph/tuning.cc"
_TREE_LL, _RING_LL, _SIMPLE = 5.0e-6, 2.7e-6, 14.0e-6
"""Seconds of a hop: a tree's and a ring's by LL, and by Simple."""


@dataclass(frozen=True, slots=True)
class DomainCrossing:
    """What leaves one GPU for other domains: `share` of the message, after so many hops one after another.

    `inside`: the share of the message that is a collective of one domain meanwhile.
    """

    share: float
    hops: int
    inside: float


def crossing(op: str, each: int, domains: int) -> DomainCrossing:
    """Of `each` ranks in every one of so many domains.

    Raises:
        KeyError: no collective of nccl-tests.
    """
    return _CROSSINGS[op](each, domains)


def across_seconds(op: str, found: DomainCrossing, size_bytes: float, rate: float) -> float:
    """Seconds between domains at `rate` bytes per second of each GPU, by the faster of LL and Simple."""
    sent = found.share * size_bytes / rate
    short = _TREE_LL if op == ALL_REDUCE else _RING_LL
    return min(found.hops * short + 2 * sent, found.hops * _SIMPLE + sent)


def _deep(domains: int) -> int:
    """Hops from the root of a tree to its leaves."""
    return (domains - 1).bit_length()


def _others(parts: int) -> float:
    """Share of a message that is the others', domains or ranks.

    By a ring all but a rank's own part crosses each border of domains, also what its neighbours have.
    """
    return (parts - 1) / parts


_CROSSINGS: Mapping[str, Callable[[int, int], DomainCrossing]] = {
    ALL_REDUCE: lambda each, d: DomainCrossing(2 * _others(d) / each, 2 * _deep(d), 1.0),
    ALL_GATHER: lambda each, d: DomainCrossing(_others(each * d) / each, d - 1, 1.0),
    REDUCE_SCATTER: lambda each, d: DomainCrossing(_others(each * d) / each, d - 1, 1.0),
    BROADCAST: lambda each, d: DomainCrossing(1 / each, d - 1, 1.0),
    REDUCE: lambda each, d: DomainCrossing(1 / each, d - 1, 1.0),
    ALLTOALL: lambda _each, d: DomainCrossing(_others(d), 1, 1 / d),
    GATHER: lambda _each, d: DomainCrossing(_others(d), 1, 1 / d),
    SCATTER: lambda _each, d: DomainCrossing(_others(d), 1, 1 / d),
    SENDRECV: lambda _each, _d: DomainCrossing(1.0, 1, 1.0),
}
