"""What to know of a placement: what was assumed, groups that are stretched, rails, mixed products. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from wirewatch.core.hostlist import compact
from wirewatch_lab.advice.placement.cluster import Cluster
from wirewatch_lab.advice.placement.solver import PlacedJob, Replica
from wirewatch_lab.advice.placement.space import WORDS, Space

MOST_NAMES = 200


def cluster_remarks(cluster: Cluster, space: Space, *, degraded: bool) -> Iterator[str]:
    """What was assumed of the nodes."""
    usable = cluster.usable(degraded=degraded)
    silent = sum(node.health is None for node in usable)
    if silent:
        yield f"the health of {silent} of {len(usable)} usable nodes is not stated, and is taken as ok"
    for why, count in Counter(
        node.wiring.why for node in usable if node.wiring.why and not node.fabric
    ).items():
        yield f"{count} of {len(usable)} usable nodes: NVLink is not known, so each GPU counts alone: {why}"
    yield from space.joined


def placed_remarks(space: Space, placed: Sequence[PlacedJob]) -> Iterator[str]:
    """What is special about where the jobs are."""
    for one in placed:
        stretched = [stage for replica in one.replicas for stage in replica.stages if stage.level]
        if stretched:
            inner = space.levels[max(space.levels.index(stage.level) for stage in stretched) - 1]
            yield (
                f"TP IS STRETCHED: {len(stretched)} of {one.job.groups} TP groups of {one.job.tp} leave "
                f"{WORDS[inner]}: each of their all-reduces crosses slower wires"
            )
        if one.mixed:
            yield "the replicas are on GPUs of several products: a job goes at the pace of the slowest"
        yield from _rails(one.replicas)


def _rails(replicas: Sequence[Replica]) -> Iterator[str]:
    """How many tensor ranks change their rail from stage to stage, where rails are stated."""
    pairs = [
        (a, b)
        for replica in replicas
        for one, other in pairwise(replica.stages)
        for a, b in zip(one.gpus, other.gpus, strict=True)
        if a.node is not b.node and a.node.rails and b.node.rails
    ]
    off = [(a, b) for a, b in pairs if a.index % a.node.rails != b.index % b.node.rails]
    if off:
        names = compact(gpu.node.name for pair in off for gpu in pair)
        shown = names if len(names) <= MOST_NAMES else f"{names[:MOST_NAMES]}..."
        yield (
            f"{len(off)} of {len(pairs)} tensor ranks reach their peer in the next stage on another rail, "
            f"over a spine or by NVLink first: {shown}"
        )
    elif pairs:
        yield f"all {len(pairs)} tensor ranks reach their peers in the next stage on their own rail"
