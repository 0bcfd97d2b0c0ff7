"""Cost of tensor parallelism for a served token: two all-reduces a layer, beside reading the weights.

A pass over `tokens` tokens reads its share of the weights, keys and values from HBM once, and multiplies. It
has `REDUCTIONS` all-reduces a layer, each of `tokens` hidden states. Without overlap these times add up; with
full overlap the longer remains. Decode commonly hides nothing, since the next matrix product waits for each
all-reduce.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.probe import ALL_REDUCE, SENDRECV
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.products import GpuProduct, gpu_names, product_of
from wirewatch_lab.advice.shapes import NARROWEST, REDUCTIONS, ModelShape
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Estimate, Ranks

LAUNCHES = ("eager", "graph")
MEMORY_SHARE = 0.87
"""Reached share of the data sheet's memory rate: copies within the memory of 8 H200 reached 4.16 of 4.8 TB/s
(proof/hardware)."""
ARITHMETIC_SHARE = 0.5
"""Share of the data sheet's BF16 operations that a prefill commonly reaches; assumed, not measured here."""
FREE = 0.9
"""Share of a GPU's memory for weights, keys and values; the runtime needs the rest."""
WORTHWHILE = 0.1
"""Decode stops gaining when a doubling of TP shortens a step by less than this share."""


@dataclass(frozen=True, slots=True)
class Served:
    """A served model: bytes of a weight (`width`), sequences at once, tokens read so far of each."""

    shape: ModelShape
    width: float
    batch: int
    context: int

    @property
    def activation(self) -> float:
        """Bytes of an activation, a key or a value."""
        return max(self.width, NARROWEST)


@dataclass(frozen=True, slots=True)
class PassCost:
    """One pass of a model over its tokens at one TP degree, in `pp` consecutive stages.

    `tokens`: all sequences together. `message`: bytes of each of the `reductions`. `collective`: time of a
    reduction by launch; `hop`: time of a message between stages. `work`: seconds of reading and multiplying,
    Absent for a product without data. `held`: bytes of weights, keys and values on each GPU. `fits`: whether
    a GPU can hold them, None where its memory is not known.
    """

    tp: int
    domains: int
    tokens: int
    message: float
    reductions: int
    collective: Mapping[str, Estimate | Absent]
    work: float | Absent
    held: float
    fits: bool | None
    pp: int = 1
    hop: Mapping[str, Estimate | Absent] = field(default_factory=dict)

    def communication(self, launch: str) -> float | Absent:
        """Return seconds of all collectives and of messages between stages; 0 for a single GPU."""
        found = self._sent(launch)
        return found if isinstance(found, Absent) else sum(count * one.seconds for count, one in found)

    def error(self, launch: str) -> float:
        """Return the error of the communication either way, in seconds; 0 where it is not known."""
        found = self._sent(launch)
        known = [] if isinstance(found, Absent) else found
        return sum(count * one.seconds * one.within for count, one in known)

    def _sent(self, launch: str) -> list[tuple[int, Estimate]] | Absent:
        """Return how often each operation occurs."""
        found = [(self.reductions, self.collective[launch])] if self.tp > 1 else []
        found += [(self.pp - 1, self.hop[launch])] if self.pp > 1 else []
        absent = next((one for _, one in found if isinstance(one, Absent)), None)
        return absent or [(count, one) for count, one in found if not isinstance(one, Absent)]

    def step(self, launch: str, overlap: float) -> float | Absent:
        """Return seconds of the pass with this share of the communication hidden, as far as work allows."""
        sent = self.communication(launch)
        if isinstance(sent, Absent):
            return sent
        if isinstance(self.work, Absent):
            return self.work
        return self.work + sent - min(self.work, overlap * sent)


def decode(machine: AdvisedMachine, times: CollectiveTimes, served: Served, tp: int, pp: int = 1) -> PassCost:
    """Return the cost of one more token for each sequence."""
    return _pass(machine, times, served, tp, served.batch, served.context, pp)


def prefill(
    machine: AdvisedMachine, times: CollectiveTimes, served: Served, tp: int, prompt: int
) -> PassCost:
    """Return the cost of all prompts in one pass."""
    return _pass(machine, times, served, tp, served.batch * prompt, prompt)


def degrees(machine: AdvisedMachine, shape: ModelShape, most: int, wanted: int = 1) -> tuple[int, ...]:
    """Return TP degrees to compare: powers of two that divide the model's heads.

    They go up to `most` GPUs of one machine, or up to the `wanted` degree where it takes several machines.
    """
    largest = max(min(most, machine.gpus), wanted)
    whole = (1 << n for n in range(17) if 1 << n <= largest and shape.heads % (1 << n) == 0)
    return tuple(one for one in whole if one % _span(machine, one).domains == 0)


def saves(one: PassCost, other: PassCost, launch: str) -> tuple[float, float] | Absent:
    """Return the share by which another pass is shorter, at least and at most, with no overlap."""
    first, second = one.step(launch, 0.0), other.step(launch, 0.0)
    if isinstance(first, Absent):
        return first
    if isinstance(second, Absent):
        return second
    off = one.error(launch) + other.error(launch)
    return (first - second - off) / first, (first - second + off) / first


def stops_gaining(costs: Mapping[int, PassCost], launch: str) -> tuple[int, int] | Absent:
    """Return the last degree whose doubling surely saves `WORTHWHILE`, and the degree with the shortest step.

    Only fitting degrees count, up to the first unknown time, with no overlap. Returns Absent where nothing
    fits, or where the first fitting degree has no known time.
    """
    steps: dict[int, float] = {}
    for tp, cost in sorted(costs.items()):
        if cost.fits is False:
            continue
        seconds = cost.step(launch, 0.0)
        if isinstance(seconds, Absent):
            if not steps:
                return seconds
            break
        steps[tp] = seconds
    if not steps:
        return Absent(Why.UNSUPPORTED, "the model fits at none of these degrees")
    gaining = next(iter(steps))
    for tp in steps:
        saved = saves(costs[gaining], costs[tp], launch) if tp == 2 * gaining else None
        if isinstance(saved, tuple) and saved[0] >= WORTHWHILE * (1 - 1e-9):
            gaining = tp
    return gaining, min(steps, key=lambda tp: steps[tp])


def held_bytes(served: Served, tp: int, pp: int = 1) -> float:
    """Return bytes of weights, keys and values on each GPU; keys and values split only over their heads.

    With unequal stages, the largest stage counts.
    """
    shape = served.shape
    kept = served.batch * served.context * shape.cached(served.activation) / min(tp, shape.kv_heads)
    return (shape.parameters * served.width / tp + kept) * -(-shape.layers // pp) / shape.layers


def tokens_of(served: Served, size: float) -> int:
    """Return how many tokens' hidden states fill a message of so many bytes, rounded up."""
    return -int(-size // served.shape.message(1, served.activation))


def fits_from(machine: AdvisedMachine, served: Served) -> int | None:
    """Return the smallest fitting TP that divides the heads; None where there is none."""
    product = product_of(machine)
    whole = (tp for tp in range(1, served.shape.heads + 1) if served.shape.heads % tp == 0)
    return next((tp for tp in whole if product and _fits(product, held_bytes(served, tp))), None)


def _fits(product: GpuProduct, held: float) -> bool:
    return held <= FREE * product.memory


def _pass(
    machine: AdvisedMachine, times: CollectiveTimes, served: Served, tp: int, tokens: int, context: int,
    pp: int = 1,
) -> PassCost:  # fmt: skip
    shape = served.shape
    message = shape.message(tokens, served.activation)
    span = _span(machine, tp)
    found = {launch: times.estimate(ALL_REDUCE, span, message, launch) for launch in LAUNCHES}
    hop = {launch: times.estimate(SENDRECV, Ranks(2, 2), message, launch) for launch in LAUNCHES if pp > 1}
    held, reductions = held_bytes(served, tp, pp), REDUCTIONS * shape.layers
    product = product_of(machine)
    names = ", ".join(sorted(set(gpu_names(machine)))) or machine.of
    work: float | Absent = Absent(Why.MISSING, f"no data of the memory of {names}")
    if product is not None:
        work = _work(product, served, tp, tokens, context)
    fits = None if product is None else _fits(product, held)
    return PassCost(tp, span.domains, tokens, message, reductions, found, work, held, fits, pp, hop)


def _work(product: GpuProduct, served: Served, tp: int, tokens: int, context: int) -> float:
    """Return seconds of one GPU's reading or multiplying, whichever is longer."""
    shape = served.shape
    kept = served.batch * context * shape.cached(served.activation) / min(tp, shape.kv_heads)
    read = (shape.read(tokens) * served.width / tp + kept) / (MEMORY_SHARE * product.memory_rate)
    attention: float = 4 * shape.layers * shape.heads * shape.head_width * context * tokens
    if tokens > served.batch:  # A prefill: a token attends to those before it, half of them in the mean.
        attention /= 2
    operations = (2 * shape.worked() * tokens + attention) / tp
    return max(read, operations / (ARITHMETIC_SHARE * product.arithmetic))


def _span(machine: AdvisedMachine, tp: int) -> Ranks:
    """Return the span over the fewest machines of this kind."""
    return Ranks(tp, -(-tp // machine.gpus))
