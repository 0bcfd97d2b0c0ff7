"""Signs of other nodes, seen on this node: its own best times, and communicators that are alike. Pure.

A single node gives no expectation of the network. But a communicator is compared with its own best, for as
long as the job lives. So are the data parallel groups of a tensor parallel group's ranks, among each other:
they send as much at once, each by its own rail.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.pci import Path
from wirewatch.core.statistics import grouped, low_median
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent
from wirewatch.core.words import count, either
from wirewatch.jobs.running.confirm import SLOWER, operation, reference
from wirewatch.jobs.running.model import CommunicatorKey, CommunicatorMemory, JobsPolicy
from wirewatch.jobs.running.parallel import gpu_words
from wirewatch.jobs.times import CommunicatorWindow, JobRank, OperationTimes

LEAST_SIBLINGS = 2
"""Others that a communicator is held against."""
Times = Mapping[tuple[str, int], float]
"""By operation and size, seconds."""


@dataclass(frozen=True, slots=True)
class SlowRail:
    """A communicator that takes `ratio` times as long as its siblings, which loses `cost` of the time."""

    ratio: float
    cost: float
    text: str


@dataclass(frozen=True, slots=True)
class Sibling:
    """A communicator with one rank here, and its newest windows."""

    key: CommunicatorKey
    rank: JobRank
    windows: Sequence[CommunicatorWindow]

    def times(self, policy: JobsPolicy) -> dict[tuple[str, int], float]:
        """Its shortest times, the median over windows, of what two of them hold and enough collectives."""
        every = (row for one in self.windows for row in one.collectives)
        rows = grouped(((row.op, row.size_bytes), row) for row in every)
        return {
            key: low_median([row.low for row in some])
            for key, some in rows.items()
            if len(some) > 1 and sum(row.joined for row in some) >= policy.joined
        }


def usual_times(siblings: Sequence[Sibling], policy: JobsPolicy) -> dict[CommunicatorKey, Times]:
    """Return for each communicator its siblings' times, by operation and size that it shares with two."""
    known = {one.key: one.times(policy) for one in siblings}
    usual: dict[CommunicatorKey, Times] = {}
    for key, mine in known.items():
        others = {
            row: [some[row] for other, some in known.items() if other != key and row in some] for row in mine
        }
        usual[key] = {row: low_median(some) for row, some in others.items() if len(some) >= LEAST_SIBLINGS}
    return usual


def slow_rails(
    siblings: Sequence[Sibling], topology: Topology | Absent, policy: JobsPolicy
) -> Iterator[tuple[CommunicatorKey, SlowRail]]:
    """Yield communicators that take far longer than their siblings, where most siblings are alike."""
    usual = usual_times(siblings, policy)
    found: list[tuple[Sibling, float, OperationTimes, float]] = []
    for one in siblings:
        mine = one.times(policy)
        rows = [row for row in one.windows[-1].collectives if (row.op, row.size_bytes) in usual[one.key]]
        for row in sorted(rows, key=lambda row: -row.joined * row.wire_seconds)[:1]:
            due = usual[one.key][row.op, row.size_bytes]
            if mine[row.op, row.size_bytes] >= SLOWER * due > 0:
                found.append((one, mine[row.op, row.size_bytes] / due, row, due))
    if 2 * len(found) >= len(siblings):
        return
    for one, ratio, row, due in found:
        share = sum(time.in_collectives for time in one.windows[-1].ranks)
        nics = _nearest(one.rank, topology)
        text = (
            f"slow rail: the communicator of {gpu_words(one.rank)} takes {ratio:.1f} times as long as its "
            f"{count(len(siblings) - 1, 'sibling')} ({operation(row)} in {ratio * due * 1e3:.3g} ms, there "
            f"{due * 1e3:.3g} ms){nics}: its NIC or what is behind it is slow, and no rank of this node is "
            "late"
        )
        yield one.key, SlowRail(ratio, share * (1 - 1 / ratio), text)


def beyond_best(memory: CommunicatorMemory, window: CommunicatorWindow, usual: Times) -> float:
    """Return the part of a window's time on the wire that is beyond its best known time.

    Only where it takes far longer: a network is not as even as wires inside a node.
    """
    total = sum(row.joined * row.mean for row in window.collectives)
    more = 0.0
    for row in window.collectives:
        best = min(
            (one for one in (reference(memory, row), usual.get((row.op, row.size_bytes))) if one),
            default=None,
        )
        if best is not None and row.mean >= SLOWER * best:
            more += row.joined * (row.mean - best)
    return more / total if total > 0 else 0.0


def _nearest(rank: JobRank, topology: Topology | Absent) -> str:
    """The NICs that are nearest to a rank's GPU, in words; empty where not known, or all are as near."""
    if isinstance(topology, Absent):
        return ""
    paths = [(Path[one.path], one.device) for one in topology.paths if one.uuid == rank.gpu and one.path]
    near = sorted(device for path, device in paths if path == min(paths)[0])
    return f", and {either(near, 'and')} is nearest to it" if near and len(near) < len(paths) else ""
