"""The document of `wirewatch advise cost`: the cliff, collectives, serving and training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wirewatch.core.words import GB
from wirewatch.documents.adapter import TypeAdapter
from wirewatch_lab.advice.cost.algorithms import Traffic
from wirewatch_lab.advice.cost.cliff import HBM, CliffStep
from wirewatch_lab.advice.cost.tokens import ARITHMETIC_SHARE, FREE, MEMORY_SHARE, WORTHWHILE
from wirewatch_lab.advice.cost.training import BucketAdvice, SchemeCost
from wirewatch_lab.advice.products import SOURCE
from wirewatch_lab.advice.shapes import REDUCTIONS


@dataclass(frozen=True, slots=True)
class EstimatedCollective:
    """A collective's time in seconds, and its busbw in bytes per second; None, with `why`, if not known.

    `least`: what its bytes take on the wires with nothing else. `basis`, `confidence`, `source`: what the
    time stands on. `within`: the share by which it may be off either way.
    """

    op: str
    size_bytes: float
    ranks: int
    domains: int
    launch: str
    seconds: float | None
    busbw: float | None
    least: float | None
    basis: str
    confidence: str
    source: str
    remarks: tuple[str, ...]
    within: float | None
    why: str


@dataclass(frozen=True, slots=True)
class AlgorithmRow:
    """Bytes and steps of one algorithm; `least`: seconds on the wires, None where they are not known."""

    op: str
    size_bytes: int
    ranks: int
    nodes: int
    traffic: Traffic
    least: float | None


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """Of one pass, launched one by one or as a CUDA graph; seconds, None where not known.

    `step` hides nothing of the communication, `hidden_step` all that there is work for. `error`: by which
    both may be off either way. `share`: of the
    communication in `step`; `budget_share`: in the time that `--tokens-per-second` leaves.
    """

    launch: str
    collective: EstimatedCollective | None
    communication: float | None
    step: float | None
    error: float | None
    hidden_step: float | None
    share: float | None
    budget_share: float | None


@dataclass(frozen=True, slots=True)
class PassRow:
    """One TP degree, in `pp` stages that follow one another, with a node or several each.

    `work`: seconds of reading and multiplying. `held`: bytes on each GPU.
    """

    tp: int
    pp: int
    domains: int
    tokens: int
    message_bytes: float
    all_reduces: int
    work: float | None
    held: float
    fits: bool | None
    launches: tuple[LaunchCost, ...]


@dataclass(frozen=True, slots=True)
class ServingCost:
    """Decode and prefill of a model by TP degree.

    `stops`: the degree up to which decode is sure to gain a tenth by doubling; `best`: the shortest, within
    the errors. None, with `why`, where a time is not known. `tp`, `pp`: the row that is answered.
    `size_tokens`: tokens whose hidden states the asked sizes hold.
    """

    model: str
    parameters: float
    layers: int
    hidden: int
    heads: int
    shape_source: str
    dtype: str
    batch: int
    context: int
    prompt: int | None
    tokens_per_second: float | None
    tp: int
    pp: int
    decode: tuple[PassRow, ...]
    prefill: tuple[PassRow, ...]
    judged_by: str
    stops: int | None
    best: int | None
    why: str
    size_tokens: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """A training step; `gradients` and Adam's `state` in bytes, `tokens` on each GPU.

    `bucket` is None, with `why`, where the times are not known.
    """

    model: str
    parameters: float
    dtype: str
    ranks: int
    nodes: int
    tokens: int
    gradients: float
    state: float
    schemes: tuple[SchemeCost, ...]
    bucket: BucketAdvice | None
    why: str


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A generation of NVLink; rates of a GPU in bytes per second, one way and as vendors print them."""

    generation: str
    product: str
    links: int
    each_way: float
    printed: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: how it follows, and when it does not hold."""

    figure: str
    derivation: str
    source: str
    confidence: str
    when_not: str


@dataclass(frozen=True, slots=True)
class CostDocument:
    """All of it. `gpus` of one of `nodes` machines; `at` in Unix seconds."""

    schema: Literal["wirewatch.advise-cost/1"]
    at: float
    machine: str
    gpus: int
    nodes: int
    cliff: tuple[CliffStep, ...]
    nvlink_to_pcie: float | None
    nvlink_to_network: float | None
    generations: tuple[LinkRow, ...]
    times: tuple[EstimatedCollective, ...]
    algorithms: tuple[AlgorithmRow, ...]
    serving: ServingCost | None
    training: TrainingCost | None
    figures: tuple[Figure, ...] = ()


COST = TypeAdapter(CostDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-cost.1": COST}


def figures(made: CostDocument, *, collectives: bool) -> Iterator[Figure]:
    """Yield figures, the first sentence's first. `collectives`: also by size and algorithm."""
    if made.serving is not None:
        yield from _serving(made.serving)
    if made.training is not None:
        yield from _training(made.training)
    yield from _cliff(made)
    if collectives:
        yield from _algorithms(made)
        for timed in made.times:
            yield from _timed(timed)


def basis(one: EstimatedCollective, beside: str) -> str:
    """Return the basis of a time, with the confidence where that is another word."""
    return one.basis if one.basis.startswith(one.confidence) else one.basis + beside.format(one.confidence)


def _algorithms(made: CostDocument) -> Iterator[Figure]:
    for row in made.algorithms:
        one = row.traffic
        nodes = f" in {row.nodes} nodes" if row.nodes > 1 else ""
        leaves = f", {one.crosses:,.0f} B of it out of its node" if row.nodes > 1 else ""
        yield Figure(
            f"{row.op} by {one.algorithm}, {row.ranks} GPUs{nodes}",
            f"{one.steps} step{'s' if one.steps > 1 else ''}; a GPU sends {one.sends:,.0f} B{leaves}; "
            f"the busiest moves {one.most:,.0f} B{'; ' if one.remark else ''}{one.remark}",
            one.source, "arithmetic", "the payload alone: LL adds as much again, LL128 a fifteenth",
        )  # fmt: skip


def _timed(one: EstimatedCollective) -> Iterator[Figure]:
    what = f"{one.op} of {one.size_bytes:,.0f} B, {one.ranks} ranks, {one.launch}"
    if one.seconds is None or one.busbw is None:
        yield Figure(what, f"not known: {one.why}", "none", "none", "it is measured: --measured")
        return
    remarks = "; ".join((*([f"within {one.within:.0%}"] if one.within else ()), *one.remarks))
    yield Figure(
        what,
        f"{one.seconds * 1e6:.2f} us = busbw {one.busbw / GB:.2f} GB/s{f'; {remarks}' if remarks else ''}",
        one.source, basis(one, ", {}"),
        "another process uses these GPUs, or NCCL's settings or version differ",
    )  # fmt: skip


def _serving(one: ServingCost) -> Iterator[Figure]:
    yield Figure(
        f"{one.model}, {one.parameters:,.0f} parameters",
        f"{one.layers} layers of hidden size {one.hidden:,}", one.shape_source, "published",
        "the weights are quantised in part, or the cache is too: --dtype is of all weights, and activations, "
        "keys and values have 16 bits or more",
    )  # fmt: skip
    row = next(row for row in one.decode if (row.tp, row.pp) == (one.tp, one.pp))
    yield Figure(
        f"{row.all_reduces} all-reduces a token",
        f"{REDUCTIONS} a layer x {one.layers} layers, each of {one.batch} x {one.hidden:,} values = "
        f"{row.message_bytes:,.0f} B",
        "Megatron-LM, arXiv:1909.08053, section 3", "arithmetic",
        "the engine fuses them (custom all-reduce, symmetric memory), or shards the residual stream",
    )  # fmt: skip
    yield from _work(row)
    for launched in row.launches:
        if launched.collective is not None:
            yield from _timed(launched.collective)
    yield Figure(
        "overlap", "nothing hidden: reading and all-reduces add up; all hidden: the longer of both remains",
        "arithmetic", "bounds",
        "other kernels' launches are counted nowhere: one by one, a token takes longer than this",
    )  # fmt: skip
    yield Figure(
        "where decode stops gaining",
        f"the last doubling of TP that is sure to shorten a token by {WORTHWHILE:.0%}, nothing hidden, "
        f"{'in a CUDA graph' if one.judged_by == 'graph' else 'launched one by one'}",
        "the table above", "as its times",
        "throughput matters more than latency: replicas serve more in total",
    )  # fmt: skip


def _work(row: PassRow) -> Iterator[Figure]:
    if row.work is not None:
        yield Figure(
            f"reading, {row.work * 1e3:.2f} ms",
            f"{row.held / GB:.1f} GB of weights and keys on each GPU (of experts, those that the tokens "
            f"take) at {MEMORY_SHARE:.0%} of the memory's rate, or multiplying at {ARITHMETIC_SHARE:.0%} of "
            "its BF16 operations where that takes longer",
            f"{SOURCE}; copies within 8 H200 reached {MEMORY_SHARE:.0%}", "derived",
            "the engine's kernels reach less (small batches, quantised weights), or read the embedding too",
        )  # fmt: skip
    yield Figure(
        "fits", f"weights, keys and values in {FREE:.0%} of the memory", SOURCE, "derived",
        "activations, graphs or other processes take more",
    )  # fmt: skip


def _training(one: TrainingCost) -> Iterator[Figure]:
    for scheme in one.schemes:
        parts = ", ".join(f"{n} x {op} of {size:,.0f} B" for op, size, n in scheme.parts)
        yield Figure(
            scheme.scheme,
            f"not possible: {scheme.objection}" if scheme.objection
            else f"{parts}: a GPU of {one.ranks} sends {scheme.sends:,.0f} B",
            "factors of nccl-tests", "arithmetic", scheme.when_not,
        )  # fmt: skip
    yield Figure(
        f"Adam's memory, {one.state / GB:,.0f} GB",
        "16 B a parameter: in mixed precision weights and gradients 2 each, master weights and two moments 4 "
        "each; in 32 bits 4 x 4",
        "ZeRO, arXiv:1910.02054, section 3.1", "published", "another optimiser, or its state in 8 bits",
    )  # fmt: skip
    if one.bucket is not None:
        best = one.bucket.estimate
        yield Figure(
            "DDP's bucket",
            "the smallest power of two whose all-reduce reaches 90 % of the plateau, the busbw of 8 GiB",
            best.source, best.confidence.value,
            "little work is left to hide the buckets behind: smaller ones start sooner",
        )  # fmt: skip


def _cliff(made: CostDocument) -> Iterator[Figure]:
    memory = "the product is sold with another memory, or reads and writes are not in sequence"
    for step in made.cliff:
        when_not = memory if step.name == HBM else "a link is down or trained low: `wirewatch check`"
        yield Figure(
            f"{step.name}, {step.rate / GB:.1f} GB/s", step.what, step.source, step.confidence.value,
            when_not if step.known else "the machine has other ports: --machine NxGPU+NxNIC",
        )  # fmt: skip
    if made.cliff:
        links = ", ".join(f"{one.product} {one.links} = {one.printed / GB:.0f}" for one in made.generations)
        yield Figure(
            "links of a GPU by generation of NVLink", f"{links} GB/s both ways; half of that each way",
            "NVIDIA's data sheets", "published", "boards with fewer links: A800 and H800 have 8",
        )  # fmt: skip
