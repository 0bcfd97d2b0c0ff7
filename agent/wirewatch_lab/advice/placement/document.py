"""The document of `wirewatch advise placement --json`, its contents, and remarks on a placement. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from wirewatch.core.hostlist import compact
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, value_or
from wirewatch.documents.adapter import TypeAdapter
from wirewatch_lab.advice.placement.cluster import NodePool
from wirewatch_lab.advice.placement.jobs import Infeasible, PlacedJob, Replica, TensorGroup
from wirewatch_lab.advice.placement.launchfiles import nodelist
from wirewatch_lab.advice.placement.layouts import LayoutCost, Unit, Workload
from wirewatch_lab.advice.placement.proposals import CostedLayout
from wirewatch_lab.advice.placement.space import WORDS, Level, Space

LevelName = Literal["domain", "node", "leaf", "rack", "cluster"]
NAMES: dict[Level, LevelName] = {
    Level.DOMAIN: "domain", Level.NODE: "node", Level.LEAF: "leaf", Level.RACK: "rack",
    Level.CLUSTER: "cluster",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """GPUs of a node by index, in the order of their tensor ranks."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StagePlacement:
    """One TP group. `level`: the narrowest that has all its GPUs; `domain` where no NVLink domain is left."""

    level: LevelName
    nodes: tuple[NodeGpus, ...]


@dataclass(frozen=True, slots=True)
class ReplicaPlacement:
    """Stages in their order. `level`: the narrowest that has all of them."""

    level: LevelName
    stages: tuple[StagePlacement, ...]


@dataclass(frozen=True, slots=True)
class CostEntry:
    """Seconds of communication a `unit`; null where not known, and `why`.

    `tensor_seconds` and `pipeline_seconds` are of the slowest replica, `data_seconds` of the slowest stage.
    `error_seconds`: by which `seconds` may be off either way. `messages`: all-reduces of tensor parallelism,
    each of `message_bytes`.
    """

    unit: Unit
    seconds: float | None
    error_seconds: float | None
    tensor_seconds: float | None
    pipeline_seconds: float | None
    data_seconds: float | None
    messages: int
    message_bytes: float
    why: str
    sources: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayoutEntry:
    """A layout. `why`: what it is beside the one asked for, or what it has against it; `asks`: its options.

    `level`: how far its TP groups are stretched. `least_difference`, `most_difference`: by what share of the
    placed one's seconds it takes more, less where negative; null where that is not known. Only where both are
    on one side of 0 it is decided which of them takes longer.
    """

    tp: int
    pp: int
    replicas: int
    gpus: int
    level: LevelName
    why: str
    asks: str
    cost: CostEntry
    least_difference: float | None = None
    most_difference: float | None = None


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """A job with its replicas, empty where it has no place. `memory_bytes`: each GPU's; null: no model given.

    `mixed`: on GPUs of several products.
    """

    tp: int
    pp: int
    replicas: int
    memory_bytes: float | None
    mixed: bool
    placed: tuple[ReplicaPlacement, ...]
    cost: CostEntry | None


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """What the jobs were placed in. `left_out`: nodes that may not be used, by reason."""

    of: str
    nodes: int
    usable_nodes: int
    free_gpus: int
    domains: int
    levels: tuple[LevelName, ...]
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True)
class PlacementDocument:
    """All of it.

    `reason`: why not, empty where there is a placement. `proven`: there is none, else none was found.
    `example`: the model was not named, costs are of this one for example, and memory is not looked at.
    `tokens`: that pass at once.
    `rejected`: layouts of as many GPUs beside the placed one; `nearest`: what can be placed instead.
    """

    schema: Literal["wirewatch.advise-placement/1"]
    at: float
    feasible: bool
    reason: str
    proven: bool
    cluster: ClusterSummary
    model: str
    example: bool
    tokens: int
    jobs: tuple[JobPlacement, ...]
    nodelist: str
    rejected: tuple[LayoutEntry, ...]
    nearest: tuple[LayoutEntry, ...]
    remarks: tuple[str, ...]


PLACEMENT = TypeAdapter(PlacementDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-placement.1": PLACEMENT}


def summary(cluster: NodePool, space: Space, *, degraded: bool) -> ClusterSummary:
    """Return the cluster in a few figures."""
    return ClusterSummary(
        cluster.of, len(cluster.nodes), len(cluster.usable(degraded=degraded)), space.free,
        len(space.domains), tuple(NAMES[level] for level in space.levels),
        dict(sorted(cluster.left_out(degraded=degraded).items())),
    )  # fmt: skip


def job_placement(placed: PlacedJob, cost: LayoutCost, workload: Workload) -> JobPlacement:
    """Return a placed job's entry."""
    job = placed.job
    stages = [tuple(map(_stage, one.stages)) for one in placed.replicas]
    levels = [NAMES[one.level] for one in placed.replicas]
    replicas = tuple(map(ReplicaPlacement, levels, stages))
    entry = cost_entry(cost, workload)
    return JobPlacement(job.tp, job.pp, job.replicas, job.memory or None, placed.mixed, replicas, entry)


def layout_entry(layout: CostedLayout, workload: Workload, chosen: LayoutCost | None) -> LayoutEntry:
    """Return a layout beside the requested layout, and beside `chosen` if that has a place."""
    job = layout.placed.job
    cost = cost_entry(layout.cost, workload)
    level = NAMES[layout.reach]
    difference = (layout.cost.beside(chosen) if chosen else None) or (None, None)
    return LayoutEntry(
        job.tp, job.pp, job.replicas, job.gpus, level, layout.why, layout.asks, cost, *difference
    )


def cost_entry(cost: LayoutCost, workload: Workload) -> CostEntry:
    """Return the seconds, or why the first unknown part is not known."""
    parts = (cost.total, cost.tensor, cost.pipeline, cost.data)
    why = next((str(one) for one in parts if isinstance(one, Absent)), "")
    total, tensor, pipeline, data = (value_or(one, None) for one in parts)
    return CostEntry(
        workload.unit, total, None if total is None else cost.error, tensor, pipeline, data, cost.messages,
        cost.message_bytes, why, cost.sources, cost.remarks,
    )  # fmt: skip


def document(
    at: float, found: Sequence[PlacedJob] | Infeasible, jobs: tuple[JobPlacement, ...],
    cluster: ClusterSummary, workload: Workload, *, rejected: Sequence[LayoutEntry] = (),
    nearest: Sequence[LayoutEntry] = (), remarks: Sequence[str] = (),
) -> PlacementDocument:  # fmt: skip
    """Return the document of an answer."""
    refused = found if isinstance(found, Infeasible) else Infeasible("")
    nodes = "" if isinstance(found, Infeasible) else nodelist(found)
    return PlacementDocument(
        "wirewatch.advise-placement/1", at, found is not refused, refused.reason, refused.proven, cluster,
        workload.shape.name, workload.example, workload.tokens, jobs, nodes,
        tuple(rejected), tuple(nearest), tuple(remarks),
    )  # fmt: skip


def _stage(group: TensorGroup) -> StagePlacement:
    by_node = grouped((gpu.node.name, gpu.index) for gpu in group.gpus)
    nodes = tuple(NodeGpus(name, tuple(indices)) for name, indices in by_node.items())
    return StagePlacement(NAMES[group.level], nodes)


MOST_NAMES = 200


def cluster_remarks(cluster: NodePool, space: Space, *, degraded: bool) -> Iterator[str]:
    """Yield assumptions about the nodes."""
    usable = cluster.usable(degraded=degraded)
    silent = sum(node.health is None for node in usable)
    if silent:
        yield f"the health of {silent} of {len(usable)} usable nodes is not stated, and is taken as ok"
    unknown = Counter(node.wiring.why for node in usable if node.wiring.why and not node.fabric)
    for why, count in unknown.items():
        yield f"{count} of {len(usable)} usable nodes: NVLink is not known, so each GPU counts alone: {why}"
    yield from space.joined


def placed_remarks(space: Space, placed: Sequence[PlacedJob]) -> Iterator[str]:
    """Yield peculiarities of the jobs' places."""
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
    """Count tensor ranks that change their rail from stage to stage, where rails are stated."""
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
