"""What `wirewatch advise cost` answers, as a document: the cliff, collectives, serving and training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch_lab.advice.cost.algorithms import Traffic
from wirewatch_lab.advice.cost.cliff import CliffStep
from wirewatch_lab.advice.cost.training import BucketAdvice, SchemeCost


@dataclass(frozen=True, slots=True)
class TimedCollective:
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

    `step` hides nothing of the communication, `hidden_step` all that there is work for. `share`: of the
    communication in `step`; `budget_share`: in the time that `--tokens-per-second` leaves.
    """

    launch: str
    collective: TimedCollective | None
    communication: float | None
    step: float | None
    hidden_step: float | None
    share: float | None
    budget_share: float | None


@dataclass(frozen=True, slots=True)
class PassRow:
    """One TP degree; `work`: seconds of reading and multiplying. `held`: bytes on each GPU."""

    tp: int
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

    `stops`, `best`: the degree after which decode gains less than a tenth by doubling, and the fastest; None,
    with `why`, where a time is not known. `size_tokens`: tokens whose hidden states the asked sizes hold.
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
    times: tuple[TimedCollective, ...]
    algorithms: tuple[AlgorithmRow, ...]
    serving: ServingCost | None
    training: TrainingCost | None
    figures: tuple[Figure, ...] = ()


COST = TypeAdapter(CostDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-cost.1": COST}
