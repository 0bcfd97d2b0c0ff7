"""A layout's memory on each GPU, and its communication for each token or step. Pure.

Bytes follow Megatron-LM (arXiv:1909.08053, 2104.04473). A forward pass has two all-reduces of the hidden
state a layer, and so has a backward pass. The hidden state also goes from stage to stage. Training adds an
all-reduce of the gradients over the replicas of each stage. The groups and hops of the slowest replica add
up, then the gradients of the slowest stage follow. Nothing overlaps with arithmetic.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

from wirewatch.core.probe import ALL_REDUCE, SENDRECV
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.placement.cluster import over_pcie, sharing, spread
from wirewatch_lab.advice.placement.jobs import PlacedJob, TensorGroup
from wirewatch_lab.advice.placement.space import Level, Space
from wirewatch_lab.advice.shapes import NARROWEST, REDUCTIONS, TRAINING_BYTES, ModelShape
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Ranks

GRADIENT_BYTES = 2
SPINE_SECONDS = 3e-6
"""Extra time of a message between racks: source 002 of the issue has 5 us against 2 inside one rack."""
PAIR = 2
Unit = Literal["token", "pass", "step"]


@dataclass(frozen=True, slots=True)
class Workload:
    """The load of a model. `width`: bytes of a parameter; activations, keys and values have 16 bits or more.

    `tokens`: tokens in a pass: sequences in decode, or tokens of a micro-batch. `kv_tokens`: tokens whose
    keys and values one replica keeps. `headroom`: share of a GPU's memory to keep free. `example`: the user
    named no model, and memory needs are not known.
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
        """Return bytes of an activation, a key or a value."""
        return max(self.width, NARROWEST)

    @property
    def unit(self) -> Unit:
        """Return the unit of a cost: a decoded token, a forward pass of several, or a training step."""
        if self.training:
            return "step"
        return "token" if self.tokens == 1 else "pass"

    def objection(self, tp: int, pp: int) -> str:
        """Return why the model cannot be split so; empty where it can, or where its shape is unknown."""
        if self.example:
            return ""
        if self.shape.heads and self.shape.heads % tp:
            return f"TP {tp} does not divide the {self.shape.heads} attention heads of {self.shape.name}"
        if self.shape.heads and pp > self.shape.layers:
            return f"PP {pp} is more than the {self.shape.layers} layers of {self.shape.name}"
        return ""

    def memory(self, tp: int, pp: int) -> float:
        """Return bytes that each GPU needs; 0 without a named model.

        The largest stage counts. A single stage has both the embedding and the output matrix, each of several
        stages at most one. Keys and values split over at most as many GPUs as they have heads.
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
class CostTerm:
    """Seconds of operations of one kind, with an error of the share `within`.

    Terms with the same `of` have the same error.

    `far`: the operations leave the rack.
    """

    of: Hashable
    seconds: float
    within: float
    far: bool = False

    def times(self, count: int) -> "CostTerm":
        """Return this many of the term."""
        return replace(self, seconds=self.seconds * count)


@dataclass(frozen=True, slots=True)
class LayoutCost:
    """Seconds of communication for a token or a step, each part Absent where not known.

    `tensor` and `pipeline` are of the slowest replica, `data` of the slowest stage. `messages`:
    tensor-parallel all-reduces, each of `message_bytes`. `terms`: the parts of the sum; `sources`: the
    sources of the terms.
    """

    tensor: float | Absent
    pipeline: float | Absent
    data: float | Absent
    messages: int
    message_bytes: float
    sources: tuple[str, ...]
    remarks: tuple[str, ...]
    terms: tuple[CostTerm, ...] = ()

    @property
    def total(self) -> float | Absent:
        """Return the sum."""
        parts = (self.tensor, self.pipeline, self.data)
        absent = next((one for one in parts if isinstance(one, Absent)), None)
        return absent or sum(one for one in parts if not isinstance(one, Absent))

    @property
    def error(self) -> float:
        """Return the error of the sum either way, in seconds."""
        return sum(one.seconds * one.within for one in self.terms)

    def beside(self, chosen: "LayoutCost") -> tuple[float, float] | None:
        """Return the share by which it exceeds the other, at least and at most; None where not known.

        Common terms may have a common error, which cancels.
        """
        mine, other = self.total, chosen.total
        if isinstance(mine, Absent) or isinstance(other, Absent) or not other:
            return None
        left: dict[Hashable, tuple[float, float]] = {}
        for sign, cost in ((1, self), (-1, chosen)):
            for one in cost.terms:
                left[one.of] = (left.get(one.of, (0.0, 0.0))[0] + sign * one.seconds, one.within)
        off = sum(abs(seconds) * within for seconds, within in left.values())
        return max(-1.0, (mine - other - off) / other), (mine - other + off) / other


Terms = list[CostTerm]


def layout_cost(space: Space, placed: PlacedJob, workload: Workload) -> LayoutCost:
    """Return the cost of a placed job."""
    return LayoutCosts(space, workload).of([one.stages for one in placed.replicas])


@dataclass
class LayoutCosts:
    """Costs of layouts in a space, with the times of operations by the places of their ranks."""

    space: Space
    workload: Workload
    sources: dict[str, None] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)
    _known: dict[Hashable, CostTerm | Absent] = field(default_factory=dict)
    _between: dict[Hashable, CostTerm | Absent] = field(default_factory=dict)

    @cached_property
    def size(self) -> float:
        """Return bytes of a hidden state."""
        return self.workload.shape.message(self.workload.tokens, self.workload.activation)

    @cached_property
    def passes(self) -> int:
        """Return the number of passes: forward, and in training backward."""
        return 2 if self.workload.training else 1

    @cached_property
    def kinds(self) -> list[tuple[int, int]]:
        """Return each domain's wiring, and its number of GPUs over several nodes (0 for one node)."""
        cells = [one.cells for one in self.space.domains]
        whole = [sum(cell.node.wiring.gpus for cell in one) if one[0].node.fabric else 0 for one in cells]
        return [(id(one[0].node.wiring), gpus) for one, gpus in zip(cells, whole, strict=True)]

    def of(self, grid: Sequence[Sequence[TensorGroup]]) -> LayoutCost:
        """Return the cost of groups by replica and stage."""
        pairs = ((self._tensor(one), self._pipeline(one)) for one in grid)
        tensor, pipeline = max(pairs, key=lambda pair: sum(map(_seconds, pair)))
        data = max((self._data(one, len(grid[0])) for one in zip(*grid, strict=True)), key=_seconds)
        every = (tensor, pipeline, data)
        messages = REDUCTIONS * self.workload.shape.layers * self.passes if sum(grid[0][0].shares) > 1 else 0
        terms = tuple(term for one in every if not isinstance(one, Absent) for term in one)
        tensor_, pipeline_, data_ = (one if isinstance(one, Absent) else _seconds(one) for one in every)
        return LayoutCost(
            tensor_, pipeline_, data_, messages, self.size, tuple(self.sources), tuple(self.remarks), terms
        )

    def price(self, grid: Sequence[Sequence[TensorGroup]]) -> tuple[float, float]:
        """Return the seconds, and the sum over all replicas and stages; infinite where not known."""
        replicas = [self.of_replica(one) for one in grid]
        stages = [self.of_stage(one, len(grid[0])) for one in zip(*grid, strict=True)]
        return max(replicas) + max(stages), sum(replicas) + sum(stages)

    def of_replica(self, stages: Sequence[TensorGroup]) -> float:
        """Return seconds of a replica's all-reduces and hops between stages; infinite where not known."""
        return _seconds(self._tensor(stages)) + _seconds(self._pipeline(stages))

    def of_stage(self, groups: Sequence[TensorGroup], stages: int) -> float:
        """Return seconds of a stage's gradients over the replicas; infinite where not known."""
        return _seconds(self._data(groups, stages))

    def _tensor(self, stages: Sequence[TensorGroup]) -> "Terms | Absent":
        """Sum the all-reduces of all layers, each over the group of its stage."""
        layers, more = divmod(self.workload.shape.layers, len(stages))
        found = []
        for number, group in enumerate(stages):
            one = self._time(ALL_REDUCE, group.domains, group.shares, self.size)
            if isinstance(one, Absent):
                return one
            found.append(one.times(REDUCTIONS * self.passes * (layers + (number < more))))
        return found

    def _pipeline(self, stages: Sequence[TensorGroup]) -> "Terms | Absent":
        """Sum the hidden state's hops through all stages."""
        found = []
        for pair in pairwise(stages):
            one = self._slowest(SENDRECV, pair, self.size)
            if isinstance(one, Absent):
                return one
            found.append(one.times(self.passes))
        return found

    def _data(self, groups: Sequence[TensorGroup], stages: int) -> "Terms | Absent":
        """Time the gradients' all-reduce over the replicas of a stage, by the slowest of its tensor ranks."""
        if not self.workload.training or len(groups) == 1:
            return []
        size = self.workload.shape.parameters * GRADIENT_BYTES / (sum(groups[0].shares) * stages)
        one = self._slowest(ALL_REDUCE, groups, size)
        return one if isinstance(one, Absent) else [one]

    def _slowest(self, op: str, groups: Sequence[TensorGroup], size: float) -> CostTerm | Absent:
        """Time an operation between the same tensor rank of these groups, by the slowest rank."""
        found = []
        for ranks in _by_rank(groups):
            if (op, ranks) not in self._between:
                domains, shares = _counted(ranks)
                if len(set(shares)) > 1:
                    self.remarks[_UNEQUAL] = None
                    shares = (1,) * len(ranks)
                self._between[op, ranks] = self._time(op, domains, shares, size)
            one = self._between[op, ranks]
            if isinstance(one, Absent):
                return one
            found.append(one)
        slowest = max(found, key=lambda one: one.seconds)
        gpus = zip(*(one.gpus for one in groups), strict=True)
        rails = ({(gpu.node.name, gpu.rail) for gpu in rank} for rank in gpus)
        if slowest.far or not any(map(_leaves_rail, rails)):
            return slowest
        seconds = slowest.seconds + SPINE_SECONDS * _hops(op, len(groups))
        return replace(slowest, of=(slowest.of, "rail"), seconds=seconds)

    def _level(self, domains: Sequence[int]) -> Level:
        """Return the narrowest level that holds all the domains."""
        units = zip(*(self.space.domains[one].units for one in set(domains)), strict=True)
        return next(
            level for level, same in zip(self.space.levels, units, strict=True) if len(set(same)) == 1
        )

    def _time(self, op: str, domains: Sequence[int], shares: Sequence[int], size: float) -> CostTerm | Absent:
        """Time an operation of equally many ranks in each domain, by the slowest of their kinds."""
        level = self._level(domains)
        kinds = {self.kinds[one]: one for one in domains}
        of = (op, frozenset(kinds), tuple(shares), level, size)
        if of not in self._known:
            several = [self._estimated(one, op, shares, level, size) for one in kinds.values()]
            absent = next((one for one in several if isinstance(one, Absent)), None)
            known = (one for one in several if not isinstance(one, Absent))
            self._known[of] = absent or max(
                (CostTerm(of, *one) for one in known), key=lambda one: one.seconds
            )
        return self._known[of]

    def _estimated(
        self, domain: int, op: str, shares: Sequence[int], level: Level, size: float
    ) -> tuple[float, float, bool] | Absent:
        span = Ranks(sum(shares), len(shares))
        if span.ranks == 1:
            return 0.0, 0.0, False
        node, gpus = self.space.domains[domain].cells[0].node, self.kinds[domain][1]
        if isinstance(node.wiring.machine, Absent):
            return node.wiring.machine
        machine = spread(node.wiring.machine, gpus) if gpus else node.wiring.machine
        if len(set(shares)) > 1:
            return Absent(Why.UNSUPPORTED, f"the ranks are not equally many in each of {len(shares)} domains")
        if level is Level.NODE:
            machine, span = over_pcie(machine), Ranks(span.ranks)
            self.remarks["between islands of a node: over PCIe, by the wire between its sockets"] = None
        elif span.domains > 1:
            machine = sharing(machine, max(shares))
        found = CollectiveTimes(machine).estimate(op, span, size, self.workload.launch)
        if isinstance(found, Absent):
            return found
        self.sources[f"{found.basis.value}, confidence {found.confidence.value}: {found.source}"] = None
        self.remarks.update(dict.fromkeys(found.remarks))
        levels = self.space.levels
        far = Level.RACK in levels and levels.index(level) > levels.index(Level.RACK)
        if far:
            self.remarks[_SPINE] = None
        more = SPINE_SECONDS * _hops(op, span.domains) if far else 0.0
        return found.seconds + more, found.within, far


_UNEQUAL = "replicas are not equally many in each domain: counted as one in each"


_SPINE = (
    f"between racks: the same ports and {SPINE_SECONDS * 1e6:.0f} us more a hop (source 002); what an "
    "oversubscribed spine takes is not known"
)


def _hops(op: str, domains: int) -> int:
    """Count consecutive messages between so many domains."""
    return 2 * (domains - 1).bit_length() if op == ALL_REDUCE else 1


def _leaves_rail(places: Collection[tuple[str, int | None]]) -> bool:
    """Return whether GPUs on several nodes are known to be on several rails."""
    rails = {rail for _, rail in places}
    return len({name for name, _ in places}) > 1 and len(rails) > 1 and None not in rails


def _seconds(terms: Terms | Absent) -> float:
    """Return the sum; infinite where not known."""
    return math.inf if isinstance(terms, Absent) else sum(one.seconds for one in terms)


def _counted(domains: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return each distinct domain, and its count."""
    counts = Counter(domains)
    return tuple(counts), tuple(counts.values())


def _by_rank(groups: Sequence[TensorGroup]) -> Iterable[tuple[int, ...]]:
    """Return the places of each tensor rank of the groups, without duplicates."""
    if all(len(one.domains) == 1 for one in groups):
        return [tuple(sorted(one.domains[0] for one in groups))]
    spread_out = (
        [n for n, k in zip(one.domains, one.shares, strict=True) for _ in range(k)] for one in groups
    )
    return {tuple(sorted(rank)) for rank in zip(*spread_out, strict=True)}
