"""How each figure of an answer on cost follows: its source, its confidence, and when it does not hold."""

from collections.abc import Iterator

from wirewatch_lab.advice.cost.cliff import HBM, CliffStep
from wirewatch_lab.advice.cost.document import (
    CostDocument,
    Figure,
    PassRow,
    ServingCost,
    TimedCollective,
    TrainingCost,
)
from wirewatch_lab.advice.cost.tokens import ARITHMETIC_SHARE, FREE, MEMORY_SHARE, WORTHWHILE
from wirewatch_lab.advice.products import SOURCE
from wirewatch_lab.advice.shapes import REDUCTIONS

GB = 1e9


def figures(made: CostDocument, *, collectives: bool) -> Iterator[Figure]:
    """Figures that the first sentence stands on first; `collectives`: those by size and algorithm too."""
    if made.serving is not None:
        yield from _serving(made.serving)
    if made.training is not None:
        yield from _training(made.training)
    yield from _cliff(made)
    if collectives:
        yield from _algorithms(made)
        for timed in made.times:
            yield from _timed(timed)


def basis(one: TimedCollective, beside: str) -> str:
    """What a time stands on, with the confidence where that is another word."""
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


def _timed(one: TimedCollective) -> Iterator[Figure]:
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
    row = next(row for row in one.decode if row.tp == one.tp)
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
        f"the last doubling of TP that shortens a token by {WORTHWHILE:.0%} or more, nothing hidden, "
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


def _when_not(step: CliffStep) -> str:
    if not step.known:
        return "the machine has other ports: --machine NxGPU+NxNIC"
    if step.name == HBM:
        return "the product is sold with another memory, or reads and writes are not in sequence"
    return "a link is down or trained low: `wirewatch check`"


def _cliff(made: CostDocument) -> Iterator[Figure]:
    for step in made.cliff:
        yield Figure(
            f"{step.name}, {step.rate / GB:.1f} GB/s", step.what, step.source, step.confidence.value,
            _when_not(step),
        )  # fmt: skip
    if made.cliff:
        links = ", ".join(f"{one.product} {one.links} = {one.printed / GB:.0f}" for one in made.generations)
        yield Figure(
            "links of a GPU by generation of NVLink", f"{links} GB/s both ways; half of that each way",
            "NVIDIA's data sheets", "published", "boards with fewer links: A800 and H800 have 8",
        )  # fmt: skip
