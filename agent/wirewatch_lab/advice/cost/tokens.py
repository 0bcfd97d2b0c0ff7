"""What tensor parallelism costs a served token: two all-reduces a layer, beside reading the weights.

A pass over `tokens` tokens at once reads its share of the weights and of the keys and values from HBM once,
multiplies, and has `REDUCTIONS` all-reduces a layer of `tokens` hidden states. With no overlap these add up;
with all of it hidden the longer of both remains. Decode as it is commonly served hides nothing: each
all-reduce is waited for by the next matrix product.
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
"""Share of the data sheet's memory rate that is reached: copies within the memory of 8 H200 reached 4.16 of
4.8 TB/s (proof/hardware)."""
ARITHMETIC_SHARE = 0.5
"""Share of the data sheet's BF16 operations that a prefill commonly reaches; assumed, not measured here."""
FREE = 0.9
"""Share of a GPU's memory that weights, keys and values may take: the rest is the runtime's."""
WORTHWHILE = 0.1
"""A doubling of TP that shortens a step by less than this share has stopped gaining."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: bytes of a weight (`width`), sequences at once, tokens of each that were read."""

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
    """One pass of a model over its tokens at one TP degree, in `pp` stages that follow one another.

    `tokens`: of all sequences together. `message`: bytes of each of the `reductions`. `collective`: of one of
    them, by launch, and `hop` of one message from stage to stage. `work`: seconds of reading and multiplying,
    Absent for a product without data. `held`: bytes of weights, keys and values on each GPU; `fits`: whether
    a GPU has them, None where its memory is not known.
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
        """Seconds of all its collectives and messages between stages; 0 for a single GPU."""
        found = self._sent(launch)
        return found if isinstance(found, Absent) else sum(count * one.seconds for count, one in found)

    def error(self, launch: str) -> float:
        """Seconds by which the communication may be off either way; 0 where it is not known."""
        found = self._sent(launch)
        known = [] if isinstance(found, Absent) else found
        return sum(count * one.seconds * one.within for count, one in known)

    def _sent(self, launch: str) -> list[tuple[int, Estimate]] | Absent:
        """How often each operation is made."""
        found = [(self.reductions, self.collective[launch])] if self.tp > 1 else []
        found += [(self.pp - 1, self.hop[launch])] if self.pp > 1 else []
        absent = next((one for _, one in found if isinstance(one, Absent)), None)
        return absent or [(count, one) for count, one in found if not isinstance(one, Absent)]

    def step(self, launch: str, overlap: float) -> float | Absent:
        """Seconds of the pass with this share of the communication hidden, as far as there is work for it."""
        sent = self.communication(launch)
        if isinstance(sent, Absent):
            return sent
        if isinstance(self.work, Absent):
            return self.work
        return self.work + sent - min(self.work, overlap * sent)


def decode(machine: AdvisedMachine, times: CollectiveTimes, served: Served, tp: int, pp: int = 1) -> PassCost:
    """One more token of each sequence."""
    return _pass(machine, times, served, tp, served.batch, served.context, pp)


def prefill(
    machine: AdvisedMachine, times: CollectiveTimes, served: Served, tp: int, prompt: int
) -> PassCost:
    """The prompts of all sequences in one pass."""
    return _pass(machine, times, served, tp, served.batch * prompt, prompt)


def degrees(machine: AdvisedMachine, shape: ModelShape, most: int, wanted: int = 1) -> tuple[int, ...]:
    """TP degrees to compare: powers of two that divide the model's heads.

    Up to `most` of the GPUs of one machine; up to the `wanted` degree where that takes several machines.
    """
    largest = max(min(most, machine.gpus), wanted)
    whole = (1 << n for n in range(17) if 1 << n <= largest and shape.heads % (1 << n) == 0)
    return tuple(one for one in whole if one % _span(machine, one).domains == 0)


def saves(one: PassCost, other: PassCost, launch: str) -> tuple[float, float] | Absent:
    """By what share of one pass another is shorter at least and at most, with no overlap."""
    first, second = one.step(launch, 0.0), other.step(launch, 0.0)
    if isinstance(first, Absent):
        return first
    if isinstance(second, Absent):
        return second
    off = one.error(launch) + other.error(launch)
    return (first - second - off) / first, (first - second + off) / first


def stops_gaining(costs: Mapping[int, PassCost], launch: str) -> tuple[int, int] | Absent:
    """The degree up to which each doubling is sure to save `WORTHWHILE`, and that with the shortest step.

    Of those that fit, up to the first whose time is not known, with no overlap. Returns Absent where nothing
    fits, or where the time of the first that does is not known.
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
    """Bytes of weights, keys and values on each GPU: keys and values can be split over their heads alone.

    A stage has the layers of its part, the largest where they are not equally many.
    """
    shape = served.shape
    kept = served.batch * served.context * shape.cached(served.activation) / min(tp, shape.kv_heads)
    return (shape.parameters * served.width / tp + kept) * -(-shape.layers // pp) / shape.layers


def tokens_of(served: Served, size: float) -> int:
    """How many tokens' hidden states a message of so many bytes holds, rounded up."""
    return -int(-size // served.shape.message(1, served.activation))


def fits_from(machine: AdvisedMachine, served: Served) -> int | None:
    """The smallest TP that divides the heads and with which the model fits; None where there is none."""
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
    """Seconds of reading what one GPU has to read, or of multiplying, whichever is longer."""
    shape = served.shape
    kept = served.batch * context * shape.cached(served.activation) / min(tp, shape.kv_heads)
    read = (shape.read(tokens) * served.width / tp + kept) / (MEMORY_SHARE * product.memory_rate)
    attention: float = 4 * shape.layers * shape.heads * shape.head_width * context * tokens
    if tokens > served.batch:  # A prefill: a token attends to those before it, half of them in the mean.
        attention /= 2
    operations = (2 * shape.worked() * tokens + attention) / tp
    return max(read, operations / (ARITHMETIC_SHARE * product.arithmetic))


def _span(machine: AdvisedMachine, tp: int) -> Ranks:
    """Over as few machines of this kind as hold them."""
    return Ranks(tp, -(-tp // machine.gpus))
