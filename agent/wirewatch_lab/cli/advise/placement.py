"""`wirewatch advise placement`: choose GPUs for a job's TP groups, stages and replicas, or say why not."""

import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from wirewatch.cli.groups import RenamingCommand, examples
from wirewatch.cli.options import FiniteNumber, WholeNumber
from wirewatch.core.hostlist import compact, natural
from wirewatch.core.statistics import grouped
from wirewatch.core.types import whole
from wirewatch_lab.advice.placement import document, launchfiles
from wirewatch_lab.advice.placement.cluster import (
    ClusterError,
    NodePool,
    measured,
    of_machine,
    read_cluster,
    with_slurm_topology,
)
from wirewatch_lab.advice.placement.jobs import Infeasible, PlacedJob, PlacementJob
from wirewatch_lab.advice.placement.layouts import LayoutCost, LayoutCosts, Workload, layout_cost
from wirewatch_lab.advice.placement.proposals import AS_WELL, CostedLayout, Proposals, title
from wirewatch_lab.advice.placement.solver import place
from wirewatch_lab.advice.placement.space import Level, Space
from wirewatch_lab.advice.shapes import SHAPES, TRAINED, WIDTHS, ModelShape
from wirewatch_lab.advice.shell import ranges
from wirewatch_lab.cli.advise.amounts import EXPERTS_OR_CONTEXT, Count, ModelName, compared, options
from wirewatch_lab.cli.advise.machines import ChosenMachine, machine_options, studies
from wirewatch_lab.cli.machinenames import MACHINE
from wirewatch_lab.cli.texts import written

FEASIBLE, INFEASIBLE = 0, 2
MOST = 65536
MOST_JOBS = 16
EXAMPLE = "llama-3-70b"
"""The model for costs where the user names none."""
MICRO_BATCH = 4096
"""Tokens of a training job's micro-batch by default."""
ACROSS = {
    "node": Level.NODE, "leaf": Level.LEAF, "rack": Level.RACK, "any": Level.CLUSTER,
}  # fmt: skip
NOTE = "GPUs in use and the node's health were not looked at: `wirewatch check` reports them"
NOTHING_NEAR = "nothing near it fits either: no other TP, no other number of stages or replicas"
_FORMS = ("nodelist", "hostfile", "rankfile", "devices")
_SIZES = re.compile(r"(tp|pp|replicas|dp)=(\d{1,6})", re.ASCII)
_OTHERS = re.compile(r"\b(ep|cp)=", re.ASCII | re.IGNORECASE)
_COUNT = WholeNumber(1, MOST)
Several = tuple[int, int, int]


class GroupSizes(click.ParamType[Several]):
    """The numbers of a job placed beside others, such as tp=4,pp=2,replicas=3."""

    name = "tp=N,pp=N,replicas=N"

    def convert(
        self, value: str | Several, param: click.Parameter | None, ctx: click.Context | None
    ) -> Several:
        if isinstance(value, tuple):
            return value
        if other := _OTHERS.search(value):
            self.fail(f"{other[1]}: neither placed nor costed here; give the job without", param, ctx)
        given: dict[str, int] = {}
        for part in value.split(","):
            found = _SIZES.fullmatch(part.strip().lower())
            name = "replicas" if found and found[1] == "dp" else found[1] if found else ""
            number = whole(found[2]) if found else None
            if not number or number > MOST or name in given:
                self.fail(f"{value[:60]!r} is not of the form tp=4,pp=2,replicas=3", param, ctx)
            given[name] = number
        if "tp" not in given:
            self.fail(f"{value[:60]!r} names no tp", param, ctx)
        return given["tp"], given.get("pp", 1), given.get("replicas", 1)


_of_the_job = options(
    click.option("--tp", type=_COUNT, help="GPUs of a tensor-parallel group."),
    click.option("--pp", type=_COUNT, default=1, show_default=True, help="Pipeline stages."),
    click.option("--replicas", type=_COUNT, help="Copies that serve beside each other; 1 by default."),
    *EXPERTS_OR_CONTEXT,
    click.option("--dp", type=_COUNT, help="The same of one training job: data-parallel ranks."),
    click.option(
        "--group", "groups", type=GroupSizes(), multiple=True,
        help="A job to be placed beside others, in place of --tp, --pp and --replicas; repeatable.",
    ),
)  # fmt: skip
_of_the_nodes = options(
    click.option(
        "--cluster", "nodes", type=click.Path(path_type=Path),
        help="A file of nodes, TOML or JSON (docs/advice/placement.md); else the one node.",
    ),
    click.option(
        "--slurm-topology", type=click.Path(path_type=Path),
        help="Leafs of the nodes: what `scontrol show topology` printed.",
    ),
    click.option("--degraded", is_flag=True, help="Use DEGRADED nodes too."),
    click.option(
        "--tp-across", type=click.Choice(sorted(ACROSS)),
        help="How far a TP group may be stretched if not all fit into NVLink domains: over PCIe inside a "
        "node, or over the network.",
    ),
)  # fmt: skip
_of_the_model = options(
    click.option(
        "--model", type=ModelName(), help="Memory and costs are this model's."
    ),
    click.option(
        "--parameters", type=Count(), metavar="N",
        help="Its parameters, such as 70e9 or 70B, for memory where it is none of those.",
    ),
    click.option(
        "--dtype", type=click.Choice(sorted(WIDTHS)), default="bfloat16", show_default=True,
        help="Of weights; activations, keys and values have 16 bits or more.",
    ),
    click.option(
        "--training", is_flag=True,
        help="16 bytes a parameter (Adam, mixed precision, nothing sharded over replicas), and costs a step.",
    ),
    click.option(
        "--tokens", type=WholeNumber(1, 1 << 24),
        help=f"Tokens that pass at once: 1 by default, {MICRO_BATCH} with --training.",
    ),
    click.option(
        "--kv-tokens", type=WholeNumber(0, 1 << 40), default=0,
        help="Tokens whose keys and values each replica keeps in memory.",
    ),
    click.option(
        "--headroom", type=FiniteNumber(0, 0.9), default=0.1, show_default=True,
        help="Share of each GPU's memory to keep free: CUDA, NCCL, activations.",
    ),
    click.option("--graph", is_flag=True, help="Costs with CUDA graphs, not eager launches."),
)  # fmt: skip
_of_the_output = options(
    click.option("--print", "form", type=click.Choice(_FORMS), help="Print only this, for a launcher."),
    click.option("--all", "every", is_flag=True, help="A line for every stage, however many there are."),
    click.option("--explain", is_flag=True, help="All remarks, costs and what they stand on."),
    click.option("--json", "as_json", is_flag=True, help="One JSON document."),
)


@dataclass(frozen=True, slots=True)
class _Ask:
    """The request: jobs, cluster and model."""

    proposals: Proposals
    space: Space
    jobs: tuple[PlacementJob, ...]
    reach: Level
    launches_training: bool
    notes: tuple[str, ...]

    def objection(self) -> str:
        """Return an objection that no placement removes: the model's shape, or the memory of every GPU."""
        against = (self.proposals.objection(job, self.space) for job in self.jobs)
        return next((one for one in against if one), "")


@click.command(
    cls=RenamingCommand, renamed={**MACHINE, "--nodes": "--cluster"},
    epilog=examples("wirewatch advise placement --cluster nodes.toml --tp 8 --pp 2 --replicas 4"),
)  # fmt: skip
@_of_the_job
@_of_the_nodes
@_of_the_model
@_of_the_output
@machine_options
@click.pass_context
def placement(
    context: click.Context, /,
    tp: int | None, pp: int, replicas: int | None, dp: int | None, groups: tuple[Several, ...],
    nodes: Path | None, slurm_topology: Path | None, degraded: bool, tp_across: str | None,  # noqa: FBT001
    model: str | None, parameters: float | None, dtype: str, training: bool, tokens: int | None,  # noqa: FBT001
    kv_tokens: int, headroom: float, graph: bool, form: str | None, every: bool, explain: bool, as_json: bool,  # noqa: FBT001
    **machine: Any,
) -> None:  # fmt: skip
    """Say which GPUs of which nodes a job's TP groups, pipeline stages and replicas take.

    A TP group lies whole in one NVLink domain (an island of a node, or an NVL72), unless --tp-across allows
    more; the stages of a replica lie in as narrow a unit as they can. Nodes that are drained, FAILED,
    UNKNOWN or DEGRADED are not used. Nothing is changed. Ends with 0 if there is a placement, with 2 if there
    is none, and then says why and what would fit instead.
    """
    sizes = _sizes(tp, pp, replicas, dp, groups)
    cluster = _cluster(nodes, slurm_topology, machine)
    shape = _shape(model, parameters)
    if kv_tokens and model is None:
        raise click.UsageError("--kv-tokens takes a --model: keys and values follow from its layers")
    if training and dtype not in TRAINED:
        raise click.UsageError(f"--training has gradients of {', '.join(TRAINED)}, not of {dtype}")
    workload = Workload(
        shape or next(one for one in SHAPES if one.name == EXAMPLE), WIDTHS[dtype], training,
        tokens or (MICRO_BATCH if training else 1), kv_tokens, headroom, "graph" if graph else "eager",
        example=shape is None,
    )  # fmt: skip
    notes = () if nodes is not None else (NOTE,)
    proposals = Proposals(cluster, workload, degraded)
    space = proposals.space()
    jobs = tuple(proposals.job(*one) for one in sizes)
    ask = _Ask(proposals, space, jobs, _reach(tp_across, space), training or dp is not None, notes)
    against = ask.objection()
    found = Infeasible(against) if against else place(space, jobs, ask.reach, LayoutCosts(space, workload))
    if form is not None:
        context.exit(_printed(form, ask, found))
    context.exit(_answer(ask, found, as_json=as_json, every=every, explain=explain or every))


def _sizes(
    tp: int | None, pp: int, replicas: int | None, dp: int | None, groups: tuple[Several, ...]
) -> tuple[Several, ...]:
    if replicas is not None and dp is not None:
        raise click.UsageError("give --replicas or --dp, not both")
    if groups:
        if tp is not None or pp != 1 or replicas is not None or dp is not None:
            raise click.UsageError("give --group, or --tp, --pp and --replicas, not both")
        if len(groups) > MOST_JOBS:
            raise click.UsageError(f"at most {MOST_JOBS} times --group")
        return groups
    if tp is None:
        raise click.UsageError("give --tp, the GPUs of a tensor-parallel group")
    return ((tp, pp, replicas or dp or 1),)


def _cluster(nodes: Path | None, slurm_topology: Path | None, machine: dict[str, Any]) -> NodePool:
    chosen = ChosenMachine.of(machine["machine"], machine)
    if nodes is None:
        if slurm_topology is not None:
            raise click.UsageError("--slurm-topology is of a file of nodes: give --cluster too")
        read = chosen.read()
        live = read.of == "this node"
        return of_machine(read, platform.node() if live and platform.node() else "node")
    if chosen.topology or chosen.described or chosen.replay:
        raise click.UsageError("give --cluster, or one node by --machine or --replay")
    try:
        cluster = read_cluster(nodes)
        cluster = measured(cluster, studies(chosen.measured))
        return with_slurm_topology(cluster, slurm_topology) if slurm_topology else cluster
    except ClusterError as error:
        raise click.UsageError(str(error)) from error


def _reach(across: str | None, space: Space) -> Level:
    reach = Level.DOMAIN if across is None else ACROSS[across]
    if reach in space.levels:
        return reach
    raise click.UsageError(
        f"--tp-across {across}: no node states its {across}; give it in the file, or take any"
    )


def _shape(model: str | None, parameters: float | None) -> ModelShape | None:
    if model is not None and parameters is not None:
        raise click.UsageError("give --model or --parameters, not both")
    if parameters is None:
        return next((one for one in SHAPES if one.name == model), None)
    example = next(one for one in SHAPES if one.name == EXAMPLE)
    name = f"{parameters / 1e9:g}B parameters (layers and hidden size as of {EXAMPLE})"
    return replace(example, name=name, parameters=parameters, heads=0, kv_heads=0, vocabulary=0)


def _printed(form: str, ask: _Ask, found: tuple[PlacedJob, ...] | Infeasible) -> int:
    """Print only the launcher's input; refusals go to standard error."""
    if isinstance(found, Infeasible):
        click.echo(f"wirewatch: no placement: {found.reason}", err=True)
        return INFEASIBLE
    of = launchfiles.ranks(found, training=ask.launches_training)
    makers: dict[str, Callable[[], Iterator[str]]] = {
        "nodelist": lambda: iter([launchfiles.nodelist(found)]), "hostfile": lambda: launchfiles.hostfile(of),
        "rankfile": lambda: launchfiles.rankfile(of), "devices": lambda: launchfiles.devices(of),
    }  # fmt: skip
    try:
        click.echo("\n".join(makers[form]()))
    except launchfiles.LaunchError as error:
        raise click.UsageError(str(error)) from error
    return FEASIBLE


def _refused(ask: _Ask, others: Sequence[CostedLayout]) -> Iterator[str]:
    """Yield the nearest layouts where none near the job fits, or where there are several jobs."""
    if len(ask.jobs) > 1:
        fit = ask.proposals.together(ask.jobs, ask.space, ask.reach)
        rest = ", ".join(f"job {one}" for one in range(len(ask.jobs)) if one not in fit)
        beside = f"{', '.join(f'job {one}' for one in fit)} can be placed without {rest}"
        yield beside if fit else "none of the jobs can be placed, even alone"
    elif not others:
        yield NOTHING_NEAR
        enough = ask.proposals.enough(ask.jobs[0], ask.space)
        if enough is not None:
            layout = title(enough.tp, enough.pp, enough.replicas)
            yield f"memory is enough from {layout} on: {enough.gpus} GPUs like these"


def _answer(
    ask: _Ask, found: tuple[PlacedJob, ...] | Infeasible, *, as_json: bool, every: bool, explain: bool
) -> int:
    """Print the whole answer; return the exit code."""
    proposals, space, workload = ask.proposals, ask.space, ask.proposals.workload
    others: list[CostedLayout] = []
    chosen: LayoutCost | None = None
    placed: tuple[document.JobPlacement, ...] = ()
    remarks = [*ask.notes, *document.cluster_remarks(proposals.cluster, space, degraded=proposals.degraded)]
    if isinstance(found, Infeasible):
        others = list(proposals.nearest(ask.jobs[0], space, ask.reach)) if len(ask.jobs) == 1 else []
        remarks = [*_refused(ask, others), *remarks]
    else:
        costs = [layout_cost(space, one, workload) for one in found]
        chosen = costs[0]
        placed = tuple(
            document.job_placement(one, cost, workload) for one, cost in zip(found, costs, strict=True)
        )
        others = list(proposals.beside(found[0], space)) if len(found) == 1 else []
        remarks = [*document.placed_remarks(space, found), *remarks]
    entries = [document.layout_entry(one, workload, chosen) for one in others]
    refused = isinstance(found, Infeasible)
    made = document.document(
        time.time(), found, placed, document.summary(proposals.cluster, space, degraded=proposals.degraded),
        workload, rejected=() if refused else entries,
        nearest=entries if refused else (), remarks=remarks,
    )  # fmt: skip
    if as_json:
        click.echo(document.PLACEMENT.dump_json(made, indent=1).decode())
    else:
        click.echo(placement_text(made, ask.jobs, every=every, explain=explain))
    return INFEASIBLE if refused else FEASIBLE


MOST_ROWS = 32
"""Stages that get a line each; above this, nodes with equal use are grouped."""
MOST_SOURCES = 6
LINES, FEW, OTHERS = 15, 4, 8
"""Lines of a first answer: in all, for its stages, and for everything beside stages."""


def placement_text(
    made: document.PlacementDocument, jobs: Sequence[PlacementJob], *, every: bool, explain: bool
) -> str:
    """Return the text: verdict, placement, remarks, costs and launcher input; short unless `explain`."""

    def stages(
        job: document.JobPlacement, where: Mapping[document.LevelName, str]
    ) -> list[tuple[str, ...]] | None:
        """Return a row for each stage; None where there are too many."""
        rows = [(r, s, stage) for r, one in enumerate(job.placed) for s, stage in enumerate(one.stages)]
        if len(rows) > (MOST_ROWS if explain else FEW) and not every:
            return None
        return [(str(r), str(s), _nodes(stage.nodes), where[stage.level]) for r, s, stage in rows]

    entries = [*made.rejected, *made.nearest]
    chosen = [(job, job.cost) for job in made.jobs if job.cost is not None]
    costs = [*(cost for _, cost in chosen), *(one.cost for one in entries)]
    rows = [(title(job.tp, job.pp, job.replicas), *_cost(cost), "this one") for job, cost in chosen]
    rows += [(title(one.tp, one.pp, one.replicas), *_cost(one.cost), _beside(one)) for one in entries]
    if not explain and len(made.jobs) == 1:
        job = made.jobs[0]
        used = min(len(job.placed) * job.pp, FEW) + min(len(made.remarks), 2) + any(one.why for one in costs)
        rows = rows[: LINES - OTHERS - used]
    return written(
        "placement.j2", made, asked=" and ".join(title(job.tp, job.pp, job.replicas) for job in jobs),
        gpus=sum(job.tp * job.pp * job.replicas for job in made.jobs),
        nodes=len({one.node for job in made.jobs for r in job.placed for s in r.stages for one in s.nodes}),
        title=title, stages=stages, alike=lambda job: list(_alike(job)),
        levels=lambda job: Counter(replica.level for replica in job.placed),
        costs=costs, rows_of_costs=rows, most_sources=MOST_SOURCES if explain else 0, explain=explain,
        few=FEW,
        sources=list(dict.fromkeys(line for cost in costs for line in (*cost.sources, *cost.remarks))),
    )  # fmt: skip


def _alike(job: document.JobPlacement) -> Iterator[tuple[str, ...]]:
    """Group nodes on which the same GPUs make the same groups, and count the replicas with a part there."""
    groups: dict[str, list[str]] = {}
    replicas: dict[str, set[int]] = {}
    for number, replica in enumerate(job.placed):
        for stage in replica.stages:
            for one in stage.nodes:
                part = "" if len(stage.nodes) == 1 else " (part of a group)"
                groups.setdefault(one.node, []).append(f"{ranges(one.gpus)}{part}")
                replicas.setdefault(one.node, set()).add(number)
    kinds = grouped((" | ".join(groups[node]), node) for node in sorted(groups, key=natural))
    for gpus, nodes in kinds.items():
        parts = {one for node in nodes for one in replicas[node]}
        yield str(len(nodes)), str(len(parts)), gpus, compact(nodes)


def _nodes(nodes: Sequence[document.NodeGpus]) -> str:
    """Return nodes with the same used GPUs as one term, in Slurm's short form."""
    alike = grouped((ranges(one.gpus), one.node) for one in nodes)
    return " + ".join(f"{compact(names)}: {gpus}" for gpus, names in alike.items())


def _beside(one: document.LayoutEntry) -> str:
    """Compare a layout with the placed layout, no more firmly than both costs allow."""
    why = f"{one.why}: {one.asks}" if one.asks else one.why
    if one.least_difference is None or one.most_difference is None:
        return why
    return f"{compared(one.least_difference, one.most_difference)}{'' if why == AS_WELL else f'; {why}'}"


def _cost(cost: document.CostEntry) -> tuple[str, ...]:
    parts = (
        cost.tensor_seconds, cost.pipeline_seconds, cost.data_seconds, cost.seconds, cost.error_seconds
    )  # fmt: skip
    return tuple(f"{one * 1e3:.2f}" if one is not None else "not known" for one in parts)
