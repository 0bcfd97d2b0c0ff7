"""Traffic and memory of a training step by its split, and the gradient bucket that is large enough.

Bytes count a GPU's traffic each way with rings, by the factors of busbw.formulas. Weights and gradients have
the same width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wirewatch.busbw.formulas import NVLS, factor
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, ALLTOALL, MIB, REDUCE_SCATTER
from wirewatch.core.types import Absent
from wirewatch_lab.advice.cost.algorithms import SHARP, Operation, traffic
from wirewatch_lab.advice.shapes import REDUCTIONS, TRAINING_BYTES, ModelShape
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Estimate, Ranks

TORCH_BUCKET = 25 * MIB
"""`bucket_cap_mb` of torch's DistributedDataParallel, in MiB (torch/nn/parallel/distributed.py)."""
ENOUGH = 0.9
"""Share of the plateau that a bucket must reach."""
SMALLEST, LARGEST = 64 * 1024, 1 << 30
"""Bucket sizes to try, in bytes."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A training step: a model over `ranks` in `nodes`, `tokens` on each GPU, values of `width` bytes."""

    shape: ModelShape
    width: float
    ranks: int
    nodes: int
    tokens: int

    @property
    def gradients(self) -> float:
        """Return bytes of all gradients, which equal the bytes of all weights."""
        return self.shape.parameters * self.width


@dataclass(frozen=True, slots=True)
class SchemeCost:
    """One way to split a step. `sends`: bytes of a GPU a step; `crosses`: of these, out of its node.

    `memory`: bytes of weights, gradients and Adam's state on a GPU, None where the scheme does not decide it.
    `calls`: which collectives, in words. `parts`: each with the bytes of one call and how often it is made.
    `objection`: why the model cannot be split so, empty where it can; the bytes are arithmetic alone then.
    """

    scheme: str
    calls: str
    sends: float
    crosses: float | None
    memory: float | None
    when_not: str
    parts: tuple[tuple[str, float, int], ...]
    objection: str = ""


def schemes(one: Trained) -> tuple[SchemeCost, ...]:
    """Return data-parallel schemes, then schemes that split the model, as far as its layers are known."""
    layers = [_pipeline(one), _tensor(one)] if one.shape.hidden else []
    experts = [_experts(one)] if one.shape.hidden and one.shape.experts else []
    return (*(_data(one, *of) for of in _DATA_PARALLEL), *layers, *experts)


def sent(op: str, size: float, ranks: int) -> float:
    """Return bytes that a GPU sends each way for one collective."""
    return factor(op, ranks) * size


_DATA_PARALLEL = (
    (
        "DDP", "an all-reduce of the gradients, in buckets", (ALL_REDUCE,), (False, False),
        "weights, gradients and Adam's state do not fit on one GPU",
    ),
    (
        "ZeRO-2 (FSDP SHARD_GRAD_OP)", "a reduce-scatter of the gradients, an all-gather of the weights",
        (REDUCE_SCATTER, ALL_GATHER), (False, True),
        "the weights do not fit on one GPU; with gradients accumulated, once for each micro-batch",
    ),
    (
        "ZeRO-3 (FSDP FULL_SHARD)", "two all-gathers of the weights, a reduce-scatter of the gradients",
        (ALL_GATHER, ALL_GATHER, REDUCE_SCATTER), (True, True),
        "the network is slow: half as much again as DDP; HYBRID_SHARD keeps the all-gathers in a node",
    ),
)  # fmt: skip
"""Schemes: collectives, whether weights and the rest are sharded, and when they do not hold."""


def _data(
    one: Trained, scheme: str, calls: str, ops: Sequence[str], shared: tuple[bool, bool], when_not: str
) -> SchemeCost:
    """Return a scheme; a GPU keeps 16 bytes a parameter: weights, and gradients with Adam's state."""
    size = one.gradients
    weights, rest = (one.ranks if whether else 1 for whether in shared)
    memory = one.shape.parameters * (one.width / weights + (TRAINING_BYTES - one.width) / rest)
    return SchemeCost(
        scheme, calls, sum(sent(op, size, one.ranks) for op in ops),
        sum(_crossing(op, size, one) for op in ops), memory, when_not, tuple((op, size, 1) for op in ops),
    )  # fmt: skip


def _crossing(op: str, size: float, one: Trained) -> float:
    """Return the least that a GPU sends out of its node with NCCL, without switches that add up."""
    every = traffic(Operation(op, size, one.ranks, one.nodes))
    return min(made.crosses for made in every if made.nccl and made.algorithm not in {NVLS, SHARP})


def _pipeline(one: Trained) -> SchemeCost:
    size = one.shape.message(one.tokens, one.width)
    memory = one.shape.parameters * TRAINING_BYTES / one.ranks
    return SchemeCost(
        "PP", "activations to the next stage, their gradients back", 2 * size,
        2 * size * (one.nodes - 1) / one.ranks, memory,
        "there are fewer micro-batches than stages: the stages wait for each other; activations are on top",
        (("sendrecv", size, 2),),
        f"{one.shape.layers} layers are fewer than {one.ranks} stages"
        if one.ranks > one.shape.layers else "",
    )  # fmt: skip


def _tensor(one: Trained) -> SchemeCost:
    """Return tensor parallelism, where all GPUs of a group work on the same tokens."""
    size, calls = one.shape.message(one.tokens, one.width), 2 * REDUCTIONS * one.shape.layers
    whole = calls * sent(ALL_REDUCE, size, one.ranks)
    return SchemeCost(
        "TP", f"{calls} all-reduces of the activations, forward and back", whole,
        calls * _crossing(ALL_REDUCE, size, one), one.shape.parameters * TRAINING_BYTES / one.ranks,
        "it would leave the NVLink domain: every layer waits for it, forward and back",
        ((ALL_REDUCE, size, calls),),
        f"TP {one.ranks} does not divide the {one.shape.heads} heads" if one.shape.heads % one.ranks else "",
    )  # fmt: skip


def _experts(one: Trained) -> SchemeCost:
    """Return expert parallelism: tokens go to their experts' GPUs and back, forward and backward."""
    shape, group = one.shape, expert_group(one)
    size, calls = shape.message(one.tokens, one.width) * shape.active, 4 * shape.layers
    among = "" if group == one.ranks else f" among {group} GPUs each"
    pairs = Operation(ALLTOALL, size, group, max(1, group * one.nodes // one.ranks)) if group > 1 else None
    return SchemeCost(
        "EP", f"{calls} all-to-alls{among}: tokens to their experts and back",
        calls * sent(ALLTOALL, size, group), 0.0 if pairs is None else calls * traffic(pairs)[0].crosses,
        None, "experts are chosen unevenly: the fullest GPU sets the time, and these are means",
        ((ALLTOALL, size, calls),),
        "" if pairs else f"{shape.experts} experts cannot be shared out over {one.ranks} GPUs",
    )  # fmt: skip


def expert_group(one: Trained) -> int:
    """Return how many GPUs share a layer's experts, equally many on each: at most one GPU for each expert.

    It is the largest group that fills whole nodes, or that divides a node equally.
    """
    each, most = one.ranks // one.nodes, math.gcd(one.ranks, one.shape.experts)
    whole = (n for n in range(most, 0, -1) if most % n == 0 and (n % each == 0 or each % n == 0))
    return next(whole)


@dataclass(frozen=True, slots=True)
class BucketAdvice:
    """The smallest bucket, in bytes, that reaches `ENOUGH` of the plateau, and how torch's default fares.

    `floor`: seconds of the smallest all-reduce. `plateau`, `torch_busbw` in bytes per second. `buckets`: how
    many a step has. `seconds`: of all of them one after another, `torch_seconds` the same of torch's;
    `exposed`: of the last, which nothing is left to hide.
    """

    size: int
    floor: float
    plateau: float
    torch_busbw: float
    torch_seconds: float
    buckets: int
    seconds: float
    exposed: float
    estimate: Estimate


def bucket(times: CollectiveTimes, span: Ranks, gradients: float) -> BucketAdvice | Absent:
    """Advise on all-reduce buckets in powers of two from 64 KiB to 1 GiB; the largest where none suffices.

    Returns Absent where floor, plateau or a size between them is not known.
    """
    floor, plateau = times.floor(ALL_REDUCE, span), times.plateau(ALL_REDUCE, span)
    torch = times.estimate(ALL_REDUCE, span, TORCH_BUCKET)
    if isinstance(floor, Absent) or isinstance(plateau, Absent) or isinstance(torch, Absent):
        return next(found for found in (floor, plateau, torch) if isinstance(found, Absent))
    share, size = factor(ALL_REDUCE, span.ranks), SMALLEST
    each = times.estimate(ALL_REDUCE, span, size)
    while isinstance(each, Estimate) and share * size / each.seconds < ENOUGH * plateau and size < LARGEST:
        size *= 2
        each = times.estimate(ALL_REDUCE, span, size)
    if isinstance(each, Absent):
        return each
    buckets = _buckets(gradients, size)
    return BucketAdvice(
        size, floor.seconds, plateau, share * TORCH_BUCKET / torch.seconds,
        _buckets(gradients, TORCH_BUCKET) * torch.seconds, buckets, buckets * each.seconds, each.seconds,
        each,
    )  # fmt: skip


def _buckets(gradients: float, size: int) -> int:
    return max(1, -int(-gradients // size))
