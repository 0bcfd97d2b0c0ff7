"""Compare the launches of ranks, by an answer of RAS about a job that stands still. Pure.

A program launches the collectives of a communicator in one order on all ranks. So of two ranks one is behind,
or both are equal. Where each is ahead of the other in some operation, their orders differ: a mismatch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wirewatch.core.jobs import RasCommunicator, RasRank, RasReport

Peer = tuple[str, int]
"""Host and pid as RAS names them."""
_GROUPS = 64
"""Groups of ranks in a communicator that are compared with each other."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Ranks that have launched the same; `ops`: where they are ahead of ranks that they do not match."""

    ranks: tuple[RasRank, ...]
    counts: Mapping[str, int]
    ops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Groups of a communicator with different orders; `few`: groups with less than half of its ranks."""

    communicator: RasCommunicator
    groups: tuple[Alike, ...]
    few: tuple[Alike, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A rank that has launched more than another in a communicator, and so waits for it."""

    waits: RasRank
    communicator: RasCommunicator
    waited: RasRank


@dataclass
class Launches:
    """The ranks that are behind, with their launches; and for each rank that is ahead, its wait.

    `ahead` has no edge where the rank that is behind is not listed.
    """

    behind: dict[Peer, tuple[RasRank, str]] = field(default_factory=dict)
    ahead: dict[Peer, Edge | None] = field(default_factory=dict)

    @property
    def roots(self) -> list[tuple[RasRank, str]]:
        """Return the ranks that are behind and nowhere ahead: they wait for nobody."""
        return [found for peer, found in self.behind.items() if peer not in self.ahead]

    def cycle(self) -> tuple[Edge, ...]:
        """Ranks that wait for each other in a circle; empty where there is none."""
        peer, path = next(iter(self.behind), None), dict[Peer, Edge]()
        while peer is not None and peer not in path:
            edge = self.ahead.get(peer)
            if edge is None or edge.waited.pid < 0:
                return ()
            path[peer] = edge
            peer = peer_of(edge.waited)
        edges = list(path.items())
        start = next((at for at, (one, _) in enumerate(edges) if one == peer), len(edges))
        return tuple(edge for _, edge in edges[start:])


def peer_of(rank: RasRank) -> Peer:
    """Return the process of a rank."""
    return rank.host, rank.pid


def launches(report: RasReport) -> Launches:
    """Compare the ranks of each communicator, operation by operation."""
    found = Launches()
    for one in report.communicators:
        ops = {op for rank in one.ranks for op in rank.counts} | {crowd.op for crowd in one.crowds}
        for op in sorted(ops):
            counts = [(rank, rank.counts[op]) for rank in one.ranks if op in rank.counts]
            values = {count for _, count in counts} | {c.launched for c in one.crowds if c.op == op}
            if len(values) < 2:  # noqa: PLR2004
                continue
            low, high = min(values), max(values)
            last = next((rank for rank, count in counts if count == low), None)
            for rank, count in counts:
                if count == low:
                    text = f"{low} {op}, others {high} (communicator {one.hash} of {one.size})"
                    found.behind.setdefault(peer_of(rank), (rank, text))
                elif found.ahead.get(peer_of(rank)) is None:
                    found.ahead[peer_of(rank)] = Edge(rank, one, last) if last else None
    return found


def mismatch(report: RasReport) -> Mismatch | None:
    """Return the first communicator whose ranks have launched in different orders."""
    for one in report.communicators:
        groups = _groups(one)
        odd = {
            at: [other for other in groups if _against(group.counts, other.counts)]
            for at, group in enumerate(groups)
        }
        differ = tuple(_ahead(groups[at], others) for at, others in odd.items() if others)
        if not differ:
            continue
        size = sum(len(group.ranks) for group in groups)
        few = tuple(
            group for group in differ
            if sum(len(other.ranks) for other in groups if _against(group.counts, other.counts)) * 2 > size
        )  # fmt: skip
        most = sum(len(group.ranks) for group in few) * 2 < size
        return Mismatch(one, differ, few if most else ())
    return None


def world_ranks(report: RasReport) -> Mapping[Peer, int]:
    """Return the job's own rank of each process: that in a communicator of all; empty where there is none."""
    most = len({peer for one in report.communicators for peer in _peers(one)})
    whole = [one for one in report.communicators if one.listed and len(set(_peers(one))) == most]
    return {peer_of(rank): rank.rank for rank in whole[0].ranks} if whole and most > 1 else {}


def _peers(one: RasCommunicator) -> Iterator[Peer]:
    return (peer_of(rank) for rank in one.ranks if rank.pid >= 0)


def _groups(one: RasCommunicator) -> Sequence[Alike]:
    """The ranks of a communicator by what they have launched; none where they are too many to compare."""
    found: dict[tuple[tuple[str, int], ...], list[RasRank]] = {}
    for rank in one.ranks:
        if rank.counts:
            found.setdefault(tuple(sorted(rank.counts.items())), []).append(rank)
    made = [Alike(tuple(ranks), dict(counts)) for counts, ranks in found.items()]
    return made if len(made) <= _GROUPS else ()


def _against(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    """Tell whether each is ahead of the other in some operation that both have counted."""
    both = left.keys() & right.keys()
    return any(left[op] > right[op] for op in both) and any(left[op] < right[op] for op in both)


def _ahead(group: Alike, others: Sequence[Alike]) -> Alike:
    ops = [op for op in group.counts if any(group.counts[op] > other.counts.get(op, 0) for other in others)]
    return Alike(group.ranks, group.counts, tuple(sorted(ops)))
