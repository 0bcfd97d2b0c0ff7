"""Turns a question and a machine into the document of `wirewatch advise cost`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.busbw.expected import wire
from wirewatch.busbw.formulas import NVLS, factor
from wirewatch.busbw.network import network_share
from wirewatch.busbw.references import NVLS_FROM, architecture
from wirewatch.core.probe import ALL_REDUCE
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Why, value_or
from wirewatch_lab.advice.cost.algorithms import Operation, traffic
from wirewatch_lab.advice.cost.cliff import GENERATIONS, NETWORK, NVLINK, PCIE, cliff, ratio
from wirewatch_lab.advice.cost.document import (
    AlgorithmRow,
    CostDocument,
    EstimatedCollective,
    LaunchCost,
    LinkRow,
    PassRow,
    ServingCost,
    TrainingCost,
    figures,
)
from wirewatch_lab.advice.cost.tokens import (
    LAUNCHES,
    PassCost,
    Served,
    decode,
    degrees,
    fits_from,
    prefill,
    stops_gaining,
    tokens_of,
)
from wirewatch_lab.advice.cost.training import Trained, bucket, schemes
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.shapes import TRAINING_BYTES
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Ranks
from wirewatch_lab.advice.times.evidence import first_gpus

MOST_TP = 64


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """A question about collectives of `ops` and `sizes` (bytes) over `nodes` machines of this kind.

    `spans`: where the ranks are; empty means all GPUs together. `primitives`: collectives of which one
    algorithm is shown. `by_size`: whether the user asked for times and algorithms, and not only for a model.
    `served`: the model and its batch; `prompt` in tokens; `rate`: tokens per second of each sequence;
    `trained`: tokens of a step on each GPU. None where not asked.
    """

    ops: Sequence[str]
    sizes: Sequence[int]
    primitives: Sequence[str] = ()
    spans: tuple[Ranks, ...] = ()
    nodes: int = 1
    served: Served | None = None
    dtype: str = ""
    tp: int | None = None
    prompt: int | None = None
    rate: float | None = None
    trained: int | None = None
    by_size: bool = True


def cost(machine: AdvisedMachine, times: CollectiveTimes, asked: CostQuestion, at: float) -> CostDocument:
    """Return the answer; unknown parts are None with a reason."""
    steps = cliff(machine)
    made = CostDocument(
        schema="wirewatch.advise-cost/1", at=at, machine=machine.of, gpus=machine.gpus, nodes=asked.nodes,
        cliff=steps,
        nvlink_to_pcie=ratio(steps, NVLINK, PCIE), nvlink_to_network=ratio(steps, NVLINK, NETWORK),
        generations=tuple(
            LinkRow(one.generation, one.product, one.links, one.each_way, 2 * one.each_way)
            for one in GENERATIONS
        ),
        times=tuple(_times(machine, times, asked)), algorithms=tuple(_algorithms(machine, asked)),
        serving=None if asked.served is None else _serving(machine, times, asked, asked.served),
        training=_training(machine, times, asked),
    )  # fmt: skip
    return replace(made, figures=tuple(figures(made, collectives=asked.by_size)))


def timed(
    machine: AdvisedMachine, times: CollectiveTimes, op: str, span: Ranks, size: float, launch: str
) -> EstimatedCollective:
    """Return one collective's estimated time with its evidence."""
    found = times.estimate(op, span, size, launch)
    apart = span.ranks < 2 or span.ranks % span.domains  # noqa: PLR2004
    least = None if apart else _fastest(machine, Operation(op, size, span.ranks, span.domains))
    if isinstance(found, Absent):
        return EstimatedCollective(
            op, size, span.ranks, span.domains, launch, None, None, least, "", "", "", (), None, found.detail
        )
    busbw = factor(op, span.ranks) * size / found.seconds
    return EstimatedCollective(
        op, size, span.ranks, span.domains, launch, found.seconds, busbw, least, found.basis.value,
        found.confidence.value, found.source, found.remarks, found.within, "",
    )  # fmt: skip


def _wires(machine: AdvisedMachine, ranks: int) -> tuple[float | None, float | None]:
    """Return bytes per second each way of a GPU's wire and of its network share, for so many GPUs."""
    conditions = machine.group(ranks)
    if conditions is None:
        return None, None
    rail, share = wire(conditions), network_share(first_gpus(conditions, ranks))
    return (
        None if isinstance(rail, Absent) else rail.rate,
        None if isinstance(share, Absent) else share.rate,
    )


def _fastest(machine: AdvisedMachine, one: Operation) -> float | None:
    """Return seconds on the wires for NCCL's best algorithm without a switch that adds up."""
    rail, network = _wires(machine, one.each)
    if rail is None or (one.nodes > 1 and network is None):
        return None
    plain = [made for made in traffic(one) if made.nccl and "NVLS" not in made.algorithm]
    return min((made.seconds(rail, network) for made in plain), default=None)


def _spans(machine: AdvisedMachine, asked: CostQuestion) -> tuple[Ranks, ...]:
    """Return the requested spans, else all GPUs together; none for a single GPU."""
    whole = Ranks(machine.gpus * asked.nodes, asked.nodes)
    return asked.spans or ((whole,) if whole.ranks > 1 else ())


def _times(
    machine: AdvisedMachine, times: CollectiveTimes, asked: CostQuestion
) -> Iterator[EstimatedCollective]:
    for span in _spans(machine, asked):
        for op in asked.ops:
            for size in asked.sizes:
                for launch in LAUNCHES:
                    yield timed(machine, times, op, span, size, launch)


def _algorithms(machine: AdvisedMachine, asked: CostQuestion) -> Iterator[AlgorithmRow]:
    """Yield the algorithms for the largest size alone: bytes scale with size, and steps do not."""
    for span in _spans(machine, asked):
        rail, network = _wires(machine, span.ranks // span.domains)
        known = rail is not None and (span.domains == 1 or network is not None)
        for op in (*asked.ops, *asked.primitives):
            one = Operation(op, max(asked.sizes), span.ranks, span.domains)
            every = traffic(one)
            for made in every if op in asked.ops else every[:1]:
                least = made.seconds(rail, network) if rail is not None and known else None
                runs = made.nccl and (NVLS not in made.algorithm or _adds_up(machine, one.each))
                shown = replace(made, nccl=runs)
                yield AlgorithmRow(op, max(asked.sizes), span.ranks, span.domains, shown, least)


def _adds_up(machine: AdvisedMachine, ranks: int) -> bool:
    """Return whether so many GPUs share a switch that adds up, NVSwitch of Hopper and later."""
    conditions = machine.group(ranks)
    if conditions is None or conditions.group.kind is not WireKind.SWITCH:
        return False
    return all(architecture(gpu.name) in NVLS_FROM for gpu in conditions.group.gpus)


def _serving(
    machine: AdvisedMachine, times: CollectiveTimes, asked: CostQuestion, served: Served
) -> ServingCost | None:
    shape = served.shape
    if not shape.layers:
        return None
    alone, whole = degrees(machine, shape, MOST_TP), machine.gpus * asked.nodes
    wanted = asked.tp or max(alone)
    most = whole if asked.tp is None and whole <= MOST_TP and shape.heads % whole == 0 else wanted
    every = sorted({*degrees(machine, shape, MOST_TP, most), most, wanted})
    decoded = {tp: decode(machine, times, served, tp) for tp in every}
    # Instead of one TP group over several machines: a stage in each.
    stages = max(wanted, most) // machine.gpus if asked.tp is None or wanted > machine.gpus else 1
    tp = max(alone)
    staged = [decode(machine, times, served, tp, stages)] if 1 < stages <= shape.layers else []
    filled = {tp: prefill(machine, times, served, tp, asked.prompt) for tp in every} if asked.prompt else {}
    launch = _judged_by(decoded)
    ends = stops_gaining({tp: one for tp, one in decoded.items() if shape.heads % tp == 0}, launch)
    known = None if isinstance(ends, Absent) else ends
    rows = [*decoded.values(), *staged]
    row = decoded[wanted]
    if asked.tp is None and row.fits is False:
        fitting = (one for one in rows if one.fits and not isinstance(one.step(launch, 0.0), Absent))
        row = min(fitting, key=lambda one: value_or(one.step(launch, 0.0), 0.0), default=row)
    return ServingCost(
        shape.name, shape.parameters, shape.layers, shape.hidden, shape.heads, shape.source, asked.dtype,
        served.batch, served.context, asked.prompt, asked.rate, row.tp, row.pp,
        tuple(_row(machine, times, one, asked.rate) for one in rows),
        tuple(_row(machine, times, one, None) for one in filled.values()),
        launch, known[0] if known else None, known[1] if known else None,
        _why_not(machine, served, ends) if isinstance(ends, Absent) else "",
        {size: tokens_of(served, size) for size in asked.sizes},
    )  # fmt: skip


def _why_not(machine: AdvisedMachine, served: Served, ends: Absent) -> str:
    """Return why the degree where decode stops gaining is unknown, and how many machines hold the model."""
    enough = fits_from(machine, served)
    if ends.why is not Why.UNSUPPORTED or enough is None:
        return ends.detail
    nodes = -(-enough // machine.gpus)
    options = f"--nodes {nodes} --tp {enough}"
    return f"{ends.detail}; from TP {enough} on it would, on {nodes} such machines: {options}"


def _judged_by(costs: Mapping[int, PassCost]) -> str:
    """Return the launch that decides: a CUDA graph, as decode commonly uses, where its times are known."""
    both = ([isinstance(one.communication(launch), Absent) for launch in LAUNCHES] for one in costs.values())
    return "graph" if all(eager or not graph for eager, graph in both) else "eager"


def _row(machine: AdvisedMachine, times: CollectiveTimes, one: PassCost, rate: float | None) -> PassRow:
    launches = tuple(_launched(machine, times, one, launch, rate) for launch in LAUNCHES)
    return PassRow(
        one.tp, one.pp, one.domains, one.tokens, one.message, one.reductions, value_or(one.work, None),
        one.held, one.fits, launches,
    )  # fmt: skip


def _launched(
    machine: AdvisedMachine, times: CollectiveTimes, one: PassCost, launch: str, rate: float | None
) -> LaunchCost:
    sent, step = value_or(one.communication(launch), None), value_or(one.step(launch, 0.0), None)
    span = Ranks(one.tp, one.domains)
    single = None if one.tp == 1 else timed(machine, times, ALL_REDUCE, span, one.message, launch)
    return LaunchCost(
        launch, single, sent, step, None if sent is None else one.error(launch),
        value_or(one.step(launch, 1.0), None),
        None if sent is None or not step else sent / step,
        None if sent is None or rate is None else sent * rate,
    )  # fmt: skip


def _training(machine: AdvisedMachine, times: CollectiveTimes, asked: CostQuestion) -> TrainingCost | None:
    ranks = machine.gpus * asked.nodes
    if asked.trained is None or asked.served is None or ranks < 2:  # noqa: PLR2004
        return None
    shape, width = asked.served.shape, asked.served.width
    one = Trained(shape, width, ranks, asked.nodes, asked.trained)
    best = bucket(times, Ranks(ranks, asked.nodes), one.gradients)
    return TrainingCost(
        shape.name, shape.parameters, asked.dtype, ranks, asked.nodes, asked.trained, one.gradients,
        shape.parameters * TRAINING_BYTES, schemes(one),
        None if isinstance(best, Absent) else best, best.detail if isinstance(best, Absent) else "",
    )  # fmt: skip
