"""What a layout needs of each GPU's memory, and what its communication costs a token or a step. Pure.

Bytes as in Megatron-LM (arXiv:1909.08053, 2104.04473): two all-reduces of the hidden state a layer and
forward pass, as many in the backward pass; the hidden state from stage to stage; in training one all-reduce
of the gradients over the replicas. No overlap with arithmetic is counted.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from wirewatch.core.probe import ALL_REDUCE, SENDRECV
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.placement.cluster import over_pcie, sharing, spread
from wirewatch_lab.advice.placement.solver import PlacedJob, Replica, TensorGroup
from wirewatch_lab.advice.placement.space import Level, Space
from wirewatch_lab.advice.shapes import NARROWEST, REDUCTIONS, TRAINING_BYTES, ModelShape
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Ranks

GRADIENT_BYTES = 2
SPINE_SECONDS = 3e-6
"""What a message between racks takes longer than inside one: source 002 of the issue has 5 us against 2."""
PAIR = 2
Unit = Literal["token", "pass", "step"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A model at work. `width`: bytes of a parameter; activations, keys and values have 16 bits or more.

    `tokens`: that pass at once: sequences that are decoded, or tokens of a micro-batch. `kv_tokens`: tokens
    whose keys and values one replica keeps. `headroom`: share of a GPU's memory that is kept free. `example`:
    nobody named the model, and nothing is known of memory.
    """

    shape: ModelShape
    width: float = 2.0
    training: bool = False
    tokens: int = 1
    kv_tokens: int = 0
    headroom: float = 0.1
    launch: str = "eager"
    example: bool = False

    @property
    def activation(self) -> float:
        """Bytes of an activation, a key or a value."""
        return max(self.width, NARROWEST)

    @property
    def unit(self) -> Unit:
        """What a cost is of: a decoded token, a forward pass of several, or a training step."""
        if self.training:
            return "step"
        return "token" if self.tokens == 1 else "pass"

    def objection(self, tp: int, pp: int) -> str:
        """Why the model cannot be cut so, empty where it can or where its layers and heads are not known."""
        if self.example:
            return ""
        if self.shape.heads and self.shape.heads % tp:
            return f"TP {tp} does not divide the {self.shape.heads} attention heads of {self.shape.name}"
        if self.shape.heads and pp > self.shape.layers:
            return f"PP {pp} is more than the {self.shape.layers} layers of {self.shape.name}"
        return ""

    def memory(self, tp: int, pp: int) -> float:
        """Bytes that each GPU has to have; 0 where no model is named.

        Of the largest stage: its layers, with embedding and output matrix where there is one stage, and one
        of the two where there are several. Keys and values are split over at most as many GPUs as there are
        heads of them.
        """
        if self.example:
            return 0.0
        shape = self.shape
        table = min(shape.vocabulary * shape.hidden, shape.parameters / PAIR)
        layers = (shape.parameters - PAIR * table) * math.ceil(shape.layers / pp) / shape.layers
        stage = layers + table * (PAIR if pp == 1 else 1)
        weights = stage * (TRAINING_BYTES if self.training else self.width) / tp
        share = math.ceil(shape.layers / pp) / shape.layers / min(tp, shape.kv_heads or tp)
        kept = self.kv_tokens * shape.cached(self.activation) * share if self.kv_tokens else 0.0
        return (weights + kept) / (1 - self.headroom)


@dataclass(frozen=True, slots=True)
class LayoutCost:
    """Seconds of communication a token or a step; `total` Absent where a part of it is.

    `messages`: tensor-parallel all-reduces, each of `message_bytes`. `sources`: what the times stand on.
    """

    tensor: float | Absent
    pipeline: float | Absent
    data: float | Absent
    messages: int
    message_bytes: float
    sources: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def total(self) -> float | Absent:
        """The sum."""
        parts = (self.tensor, self.pipeline, self.data)
        absent = next((one for one in parts if isinstance(one, Absent)), None)
        return absent or sum(one for one in parts if not isinstance(one, Absent))


def layout_cost(space: Space, placed: PlacedJob, workload: Workload) -> LayoutCost:
    """The cost of the slowest replica of a placed job."""
    book = _Book(space, workload)
    passes = 2 if workload.training else 1
    messages = REDUCTIONS * workload.shape.layers * passes if placed.job.tp > 1 else 0
    size = workload.shape.message(workload.tokens, workload.activation)
    groups = {_likeness(space, stage): stage for one in placed.replicas for stage in one.stages}
    tensor = _worst(book.tensor(group, size) for group in groups.values()) if messages else 0.0
    kinds = {book.likeness(one): one for one in placed.replicas}
    pipeline = _worst(book.pipeline(one, size) for one in kinds.values())
    return LayoutCost(
        tensor if isinstance(tensor, Absent) else tensor * messages,
        pipeline if isinstance(pipeline, Absent) else pipeline * passes,
        book.data(placed) if workload.training and placed.job.replicas > 1 else 0.0,
        messages, size, tuple(book.sources), tuple(book.remarks),
    )  # fmt: skip


@dataclass(slots=True)
class _Book:
    """Times of operations by where their ranks are, with what they stand on."""

    space: Space
    workload: Workload
    sources: dict[str, None] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)

    def tensor(self, group: TensorGroup, size: float) -> float | Absent:
        """Seconds of one all-reduce of a TP group."""
        return self._time(ALL_REDUCE, group.domains, group.shares, group.level, size)

    def likeness(self, replica: Replica) -> tuple[object, ...]:
        """What the time between a replica's stages follows from."""
        pairs = zip(replica.stages, replica.stages[1:], strict=False)
        distances = (self._distance(one.domains[-1], other.domains[0]) for one, other in pairs)
        return (*distances, _likeness(self.space, replica.stages[0]))

    def pipeline(self, replica: Replica, size: float) -> float | Absent:
        """Seconds of the hidden state's way through all stages."""
        seconds = 0.0
        for one, other in zip(replica.stages, replica.stages[1:], strict=False):
            pair = (one.domains[-1], other.domains[0])
            level = self._distance(*pair)
            taken = self._time(SENDRECV, pair[:1] if pair[0] == pair[1] else pair, (1, 1), level, size)
            if isinstance(taken, Absent):
                return taken
            seconds += taken
        return seconds

    def data(self, placed: PlacedJob) -> float | Absent:
        """Seconds of the gradients' all-reduce over the replicas, of the first stage's first rank."""
        shape, job = self.workload.shape, placed.job
        size = shape.parameters * GRADIENT_BYTES / (job.tp * job.pp)
        counts = Counter(one.stages[0].domains[0] for one in placed.replicas)
        domains = tuple(counts)
        level = max((self._distance(domains[0], one) for one in domains), key=self.space.levels.index)
        shares = tuple(counts.values())
        if len(set(shares)) > 1:
            self.remarks["replicas are not equally many in each domain: counted as one in each"] = None
            domains, shares = domains[:1] * job.replicas, (1,) * job.replicas
        return self._time(ALL_REDUCE, domains, shares, level, size)

    def _distance(self, one: int, other: int) -> Level:
        """The narrowest level that has both domains."""
        domains = self.space.domains
        units = zip(self.space.levels, domains[one].units, domains[other].units, strict=True)
        return next(level for level, a, b in units if a == b)

    def _machine(self, domain: int) -> AdvisedMachine | Absent:
        cells = self.space.domains[domain].cells
        machine = cells[0].node.wiring.machine
        if isinstance(machine, Absent) or not cells[0].node.fabric:
            return machine
        return spread(machine, sum(cell.node.wiring.gpus for cell in cells))

    def _time(
        self, op: str, domains: Sequence[int], shares: Sequence[int], level: Level, size: float
    ) -> float | Absent:
        machine = self._machine(domains[0])
        if isinstance(machine, Absent):
            return machine
        if len(set(shares)) > 1:
            why = f"the ranks are not equally many in each of {len(domains)} domains"
            return Absent(Why.UNSUPPORTED, why)
        ranks = sum(shares)
        if ranks == 1:
            return 0.0
        span = Ranks(ranks, len(domains))
        if level is Level.NODE:
            machine, span = over_pcie(machine), Ranks(ranks)
            self.remarks["between islands of a node: over PCIe, by the wire between its sockets"] = None
        elif span.domains > 1:
            machine = sharing(machine, max(shares))
        found = CollectiveTimes(machine).estimate(op, span, size, self.workload.launch)
        if isinstance(found, Absent):
            return found
        self.sources[f"{found.basis.value}, confidence {found.confidence.value}: {found.source}"] = None
        self.remarks.update(dict.fromkeys(found.remarks))
        return found.seconds + self._spine(op, len(domains), level)

    def _spine(self, op: str, domains: int, level: Level) -> float:
        """Seconds that leaving the rack adds, where racks are known: the same ports, another hop."""
        levels = self.space.levels
        if Level.RACK not in levels or levels.index(level) <= levels.index(Level.RACK):
            return 0.0
        self.remarks[
            f"between racks: the same ports and {SPINE_SECONDS * 1e6:.0f} us more a hop (source 002); what "
            "an oversubscribed spine takes is not known"
        ] = None
        return SPINE_SECONDS * (2 * (domains - 1).bit_length() if op == ALL_REDUCE else 1)


def _likeness(space: Space, group: TensorGroup) -> tuple[object, ...]:
    """What the time of a group's all-reduce follows from."""
    cell = space.domains[group.domains[0]].cells[0]
    return (id(cell.node.wiring), cell.node.fabric, group.level, group.shares)


def _worst(times: Iterator[float | Absent]) -> float | Absent:
    """The longest; Absent if one of them is."""
    longest = 0.0
    for one in times:
        if isinstance(one, Absent):
            return one
        longest = max(longest, one)
    return longest
