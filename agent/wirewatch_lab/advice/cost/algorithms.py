"""Traffic of each collective algorithm: steps in a row, bytes of a GPU, bytes between nodes.

Pure arithmetic. Sizes are nccl-tests' message sizes S in bytes. For all_gather, reduce_scatter, alltoall,
gather and scatter they count all ranks together. Bytes are payload alone: protocols LL and LL128 add to it
(`OVERHEADS` of busbw.formulas). Every node has equally many ranks. A "node" is whatever NVLink joins, even a
rack.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wirewatch.busbw.formulas import CHAINS, DIRECT, NVLS, PAIRWISE, RING, TREE, factor
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, ALLTOALL, GATHER, REDUCE_SCATTER, SCATTER

HALVING, HIERARCHICAL, PAT, SHARP = "halving-doubling", "hierarchical", "PAT", "SHARP"
HALVES = frozenset({ALL_GATHER, REDUCE_SCATTER})
"""The two halves of an all_reduce."""
RINGED = HALVES | {ALL_REDUCE}
ROOTED = frozenset({GATHER, SCATTER})


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one operation moves.

    `steps`: messages that must follow one another, which latency is paid for. `sends`, `receives`: bytes of
    one GPU, as a mean; `crosses`: those of what it sends that leave its node. `most`: what the busiest GPU
    sends or receives; `most_crosses`: what the GPU with most of it has to bring over the border of its node.
    `links`: bytes over all links together, each counted where it is sent. `nccl`: whether
    NCCL runs it. `remark`: what else is to know, and when it does not hold.
    """

    algorithm: str
    steps: int
    sends: float
    receives: float
    crosses: float
    most: float
    most_crosses: float
    links: float
    nccl: bool
    source: str
    remark: str

    def seconds(self, wire: float, network: float | None) -> float:
        """Return the least time with `wire` bytes per second each way of a GPU and `network` out of its node.

        Both directions run at once, and traffic between nodes does not use the wire. Latency is not counted.
        """
        inside = max(self.most - self.most_crosses, self.sends - self.crosses)
        return max(inside / wire, self.most_crosses / network if network else 0.0)


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective of `size` bytes over `ranks`, spread equally over `nodes`."""

    op: str
    size: float
    ranks: int
    nodes: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError where the ranks cannot be spread equally, or there is only one."""
        if self.ranks < 2 or self.nodes < 1 or self.ranks % self.nodes:  # noqa: PLR2004
            raise ValueError(f"{self.ranks} ranks over {self.nodes} nodes")

    @property
    def each(self) -> int:
        """Ranks in a node."""
        return self.ranks // self.nodes


def traffic(one: Operation) -> tuple[Traffic, ...]:
    """Return every known algorithm, the algorithms of NCCL first."""
    found = [made for build in _BUILDERS.values() if (made := build(one)) is not None]
    return tuple(sorted(found, key=lambda made: not made.nccl))


def _ring(one: Operation) -> Traffic | None:
    if one.op in CHAINS:
        return _made(
            one, RING, one.ranks - 1, one.size * (one.ranks - 1), one.size * (one.nodes - 1), most=one.size,
            source=_RING,
            remark="a chain, in slices: the last GPU sends nothing, and no algorithm moves less than N(P-1)",
        )  # fmt: skip
    if one.op not in RINGED:
        return None
    edge = factor(one.op, one.ranks) * one.size
    crossing = edge * one.nodes if one.nodes > 1 else 0.0
    steps = (2 if one.op == ALL_REDUCE else 1) * (one.ranks - 1)
    remark = (
        "" if one.nodes == 1 else "one edge of each ring leaves a node; NCCL turns its rings over all NICs"
    )
    return _made(one, RING, steps, edge * one.ranks, crossing, source=_RING, remark=remark)


def _tree(one: Operation) -> Traffic | None:
    if one.op != ALL_REDUCE:
        return None
    height = (one.each - 1) + math.ceil(math.log2(one.nodes))
    remark = (
        "inside a node NCCL's tree is a chain, so it saves no step there"
        if one.nodes == 1
        else "chains inside the nodes, a double binary tree between them"
    )
    return _made(
        one, TREE, 2 * height, 2 * one.size * (one.ranks - 1), 2 * one.size * (one.nodes - 1),
        most=(1 if one.ranks == 2 else 2) * one.size, source=_TREE,  # noqa: PLR2004
        remark=f"{remark}; its ends send N, the GPUs between them 2 N",
    )  # fmt: skip


def _nvls(one: Operation) -> Traffic | None:
    """Return the traffic in the switch; between nodes NCCL's NVLSTree, a tree over each GPU's share."""
    if one.op not in RINGED or one.each < 2 or (one.nodes > 1 and one.op != ALL_REDUCE):  # noqa: PLR2004
        return None
    share = one.size / one.each
    sends = share if one.op == ALL_GATHER else one.size
    receives = share if one.op == REDUCE_SCATTER else one.size
    crosses = 2 * (one.nodes - 1) / one.nodes * share
    steps = (2 if one.op == ALL_REDUCE else 1) + 2 * math.ceil(math.log2(one.nodes))
    remark = (
        "the switch adds and copies: N instead of 2(n-1)/n N, so busbw counts more than the links carry; "
        "NVSwitch of Hopper and later. A GPU's own share goes through the switch too, up to (1 + 1/n) N"
        if one.op == ALL_REDUCE
        else "NCCL's tuner holds it for slower than Ring unless buffers are registered"
    )
    name = NVLS if one.nodes == 1 else "NVLSTree"
    most = max(sends, receives) + crosses
    return Traffic(
        name, steps, sends + crosses, receives + crosses, crosses, most, crosses,
        (sends + crosses) * one.ranks, nccl=True, source=_NVLS, remark=remark,
    )  # fmt: skip


def _pat(one: Operation) -> Traffic | None:
    if one.op not in HALVES or one.nodes < 2:  # noqa: PLR2004
        return None
    moved = factor(one.op, one.ranks) * one.size * one.ranks
    crossing = moved * (one.ranks - one.each) / (one.ranks - 1)
    remark = "from NCCL 2.23 on"
    if one.each > 1:
        remark = f"{remark}, with one GPU a node alone: not here"
    return _made(
        one, PAT, math.ceil(math.log2(one.ranks)), moved, crossing, nccl=one.each == 1, source=_PAT,
        remark=remark,
    )  # fmt: skip


def _sharp(one: Operation) -> Traffic | None:
    if one.op != ALL_REDUCE or one.nodes < 2:  # noqa: PLR2004
        return None
    share = one.size / one.each
    inside = 2 * (one.each - 1) * share
    steps = 2 if one.each == 1 else 4
    remark = (
        "InfiniBand switches add up what crosses: N/g a GPU, however many nodes; takes the SHARP plugin and "
        "NCCL_COLLNET_ENABLE=1"
    )
    return _made(
        one, SHARP, steps, (inside + share) * one.ranks, share * one.ranks, source=_SHARP, remark=remark
    )


def _hierarchical(one: Operation) -> Traffic | None:
    if one.op not in RINGED or one.nodes < 2 or one.each < 2:  # noqa: PLR2004
        return None
    rounds = 2 if one.op == ALL_REDUCE else 1
    inside = rounds * (one.each - 1) / one.each * one.size
    crosses = rounds * (one.nodes - 1) / one.nodes * one.size / one.each
    steps = rounds * (one.each - 1 + one.nodes - 1)
    remark = (
        "reduce-scatter inside, all-reduce between GPUs of the same number, all-gather inside: what "
        "frameworks with a group for each level do; NCCL's Tree lets as much cross"
        if one.op == ALL_REDUCE
        else "between GPUs of the same number, then inside the nodes: what frameworks with a group for each "
        "level do"
    )
    total = (inside + crosses) * one.ranks
    return _made(
        one, HIERARCHICAL, steps, total, crosses * one.ranks, nccl=False, source=_HIERARCHICAL, remark=remark
    )


def _halving(one: Operation) -> Traffic | None:
    if one.op not in RINGED or one.ranks & (one.ranks - 1):
        return None
    rounds = 2 if one.op == ALL_REDUCE else 1
    moved = factor(one.op, one.ranks) * one.size * one.ranks
    crossing = rounds * (one.nodes - 1) / one.nodes * one.size / one.each * one.ranks
    remark = (
        "each step halves what is exchanged, each of the way back doubles it; powers of two alone, partners "
        "in the node first; MPI has it, NCCL does not use it"
    )
    return _made(
        one, HALVING, rounds * round(math.log2(one.ranks)), moved, crossing, nccl=False, source=_HALVING,
        remark=remark,
    )  # fmt: skip


def _direct(one: Operation) -> Traffic | None:
    if one.op not in PAIRWISE:
        return None
    ranks, away = one.ranks, one.ranks - one.each
    if one.op == ALLTOALL:
        return _made(
            one, DIRECT, ranks - 1, one.size * (ranks - 1), one.size * away, source=_DIRECT,
            remark="half of an all_reduce's bytes, and to every other GPU: the network sees all that leaves",
        )  # fmt: skip
    if one.op in ROOTED:
        share = one.size / ranks
        return _made(
            one, DIRECT, 1, share * (ranks - 1), share * away, most=share * (ranks - 1),
            most_crosses=share * away, source=_DIRECT,
            remark="all of it at the root's wire: (n-1)/n N there, N/n at each other GPU",
        )  # fmt: skip
    crossing = one.size * one.nodes if one.nodes > 1 else 0.0
    return _made(
        one, DIRECT, 1, one.size * ranks, crossing, most_crosses=one.size if one.nodes > 1 else 0.0,
        source=_DIRECT, remark="each GPU to its right neighbour, as nccl-tests' sendrecv",
    )  # fmt: skip


def _made(
    one: Operation, algorithm: str, steps: int, links: float, crossing: float, *, source: str,
    remark: str = "", most: float | None = None, most_crosses: float | None = None, nccl: bool = True,
) -> Traffic:  # fmt: skip
    """Make traffic from the bytes over all links and node borders, spread over all GPUs unless stated."""
    mean, crosses = links / one.ranks, crossing / one.ranks
    busiest = mean if most is None else most
    border = crosses if most_crosses is None else most_crosses
    return Traffic(algorithm, steps, mean, mean, crosses, busiest, border, links, nccl, source, remark)


_RING = "Patarasuk and Yuan 2009; NCCL, src/device/all_reduce.h"
_TREE = "NCCL, src/graph/trees.cc and tuning.cc; Sanders, Speck and Traff 2009"
_NVLS = "NCCL, src/transport/nvls.cc; NVSwitch of the third generation, NVIDIA, Hot Chips 34"
_PAT = "NCCL 2.23, src/device/all_gather.h; arXiv:2506.20252"
_SHARP = "NCCL's CollNet; Graham et al. 2016"
_HIERARCHICAL = "arithmetic: each level by its own ring"
_HALVING = "Thakur, Rabenseifner and Gropp 2005"
_DIRECT = "NCCL, src/enqueue.cc: sends and receives"
_BUILDERS: Mapping[str, Callable[[Operation], Traffic | None]] = {
    RING: _ring, TREE: _tree, NVLS: _nvls, DIRECT: _direct, SHARP: _sharp, PAT: _pat,
    HIERARCHICAL: _hierarchical, HALVING: _halving,
}  # fmt: skip
