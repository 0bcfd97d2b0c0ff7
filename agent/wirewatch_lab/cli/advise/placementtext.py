"""The text of a placement: replicas by node, or what stands in the way, and what layouts cost."""

from collections import Counter
from collections.abc import Iterator, Sequence

from wirewatch.cli.tables import table
from wirewatch.core.hostlist import compact, natural
from wirewatch.core.words import size as human
from wirewatch_lab.advice.placement.document import (
    CostEntry,
    JobPlacement,
    LayoutEntry,
    LevelName,
    NodeGpus,
    PlacementDocument,
)
from wirewatch_lab.advice.placement.proposals import title
from wirewatch_lab.advice.placement.solver import PlacementJob
from wirewatch_lab.advice.placement.space import numbers
from wirewatch_lab.study.summary import count

MOST_ROWS = 32
"""Stages that get a line each; more are shown by nodes that are used alike."""
MOST_SOURCES, WIDTH = 6, 150
MILLI = 1e3
WHERE: dict[LevelName, str] = {
    "domain": "inside one NVLink domain", "node": "inside one node", "leaf": "inside one leaf",
    "rack": "inside one rack", "cluster": "over the cluster",
}  # fmt: skip


def placement_lines(made: PlacementDocument, jobs: Sequence[PlacementJob], *, every: bool) -> Iterator[str]:
    """The whole text: verdict, placement, remarks, costs, what a launcher takes."""
    asked = " and ".join(title(job.tp, job.pp, job.replicas) for job in jobs)
    yield from _verdict(made, asked)
    yield from (f"  {line}" for line in _cluster(made))
    for number, job in enumerate(made.jobs):
        yield ""
        if len(made.jobs) > 1:
            yield f"Job {number}: {title(job.tp, job.pp, job.replicas)}"
        yield from _placed(job, every=every)
    if made.remarks:
        yield ""
        yield from (f"! {one}" for one in made.remarks)
    yield from _others(made)
    if made.nodelist:
        yield ""
        yield f"Slurm: --nodelist={made.nodelist}"
        yield "  --print hostfile, rankfile or devices has every rank"


def _verdict(made: PlacementDocument, asked: str) -> Iterator[str]:
    if not made.feasible:
        sure = "" if made.proven else " (none was found, which does not prove that there is none)"
        yield f"NOT FEASIBLE: {asked}: {made.reason}{sure}"
        return
    gpus = sum(job.tp * job.pp * job.replicas for job in made.jobs)
    nodes = len({one.node for job in made.jobs for r in job.placed for s in r.stages for one in s.nodes})
    yield f"FEASIBLE: {asked}: {gpus} of {made.cluster.free_gpus} free GPUs, on {count(nodes, 'node')}"


def _cluster(made: PlacementDocument) -> Iterator[str]:
    of = made.cluster
    left = ", ".join(f"{n} {why}" for why, n in of.left_out.items())
    yield (
        f"{of.of}: {count(of.nodes, 'node')}, {of.usable_nodes} usable{f' (not {left})' if left else ''}, "
        f"{count(of.free_gpus, 'free GPU')} in {count(of.domains, 'NVLink domain')}"
    )


def _placed(job: JobPlacement, *, every: bool) -> Iterator[str]:
    stages = [(r, s, stage) for r, replica in enumerate(job.placed) for s, stage in enumerate(replica.stages)]
    if len(stages) <= MOST_ROWS or every:
        rows = [
            (str(replica), str(stage), _nodes(group.nodes), WHERE[group.level])
            for replica, stage, group in stages
        ]
        yield from table(("replica", "stage", "GPUs", "TP group"), rows)
    else:
        yield from table(("nodes", "replicas", "TP groups on each", "which"), list(_alike(job)))
        yield "  nodes that are used alike share a line; --all has every stage"
    if job.pp > 1:
        levels = Counter(replica.level for replica in job.placed)
        where = ", ".join(f"{n} {WHERE[level]}" for level, n in levels.items())
        yield f"  stages of replicas: {where}"
    if job.memory_bytes:
        yield f"  memory: {job.memory_bytes / 1e9:.1f} GB or more of each GPU, with what is kept free"


def _alike(job: JobPlacement) -> Iterator[tuple[str, ...]]:
    """Nodes on which the same GPUs make the same groups, and how many replicas have a part there."""
    groups: dict[str, list[str]] = {}
    replicas: dict[str, set[int]] = {}
    for number, replica in enumerate(job.placed):
        for stage in replica.stages:
            for one in stage.nodes:
                part = "" if len(stage.nodes) == 1 else " (part of a group)"
                groups.setdefault(one.node, []).append(f"{numbers(one.gpus)}{part}")
                replicas.setdefault(one.node, set()).add(number)
    kinds: dict[str, list[str]] = {}
    for node in sorted(groups, key=natural):
        kinds.setdefault(" | ".join(groups[node]), []).append(node)
    for gpus, nodes in kinds.items():
        parts = {one for node in nodes for one in replicas[node]}
        yield str(len(nodes)), str(len(parts)), gpus, compact(nodes)


def _nodes(nodes: Sequence[NodeGpus]) -> str:
    """Nodes of which the same GPUs are used in one term, in Slurm's short form."""
    alike: dict[str, list[str]] = {}
    for one in nodes:
        alike.setdefault(numbers(one.gpus), []).append(one.node)
    return " + ".join(f"{compact(names)}: {gpus}" for gpus, names in alike.items())


def _others(made: PlacementDocument) -> Iterator[str]:
    """The costs of all layouts, and what they stand on."""
    entries = [*made.rejected, *made.nearest]
    chosen = [job for job in made.jobs if job.cost is not None]
    if not entries and not chosen:
        return
    yield ""
    costs = [*(job.cost for job in chosen if job.cost), *(one.cost for one in entries)]
    example = ", for example (--model, --tokens)" if made.example else ""
    of = f"a {costs[0].unit}" if made.tokens == 1 else f"a {costs[0].unit} of {made.tokens} tokens"
    yield f"Communication of one replica, {of} of {made.model}{example}, in ms, without overlap:"
    rows = [(title(job.tp, job.pp, job.replicas), *_cost(job.cost), "this one") for job in chosen if job.cost]
    rows += [(title(one.tp, one.pp, one.replicas), *_cost(one.cost), _why(one)) for one in entries]
    yield from table(("layout", "TP", "PP", "DP", "all", ""), rows)
    first = costs[0]
    if first.messages:
        yield f"  {first.messages} all-reduces of {human(round(first.message_bytes))} in the first"
    yield from (f"  not known: {one}" for one in dict.fromkeys(cost.why for cost in costs if cost.why))
    sources = dict.fromkeys(line for cost in costs for line in (*cost.sources, *cost.remarks))
    yield from (f"  {_short(one)}" for one in list(sources)[:MOST_SOURCES])
    if len(sources) > MOST_SOURCES:
        yield f"  and {len(sources) - MOST_SOURCES} more sources and remarks: --json"


def _short(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def _why(one: LayoutEntry) -> str:
    return f"{one.why}: {one.asks}" if one.asks else one.why


def _cost(cost: CostEntry) -> tuple[str, ...]:
    parts = (cost.tensor_seconds, cost.pipeline_seconds, cost.data_seconds, cost.seconds)
    cells = [f"{one * MILLI:.2f}" if one is not None else "not known" for one in parts]
    return tuple(cells)
