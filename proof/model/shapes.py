"""Shapes of jobs: which communicators they have, and what one step of a rank does."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from proof.model.job import GROUPED, JOINED, SYNCED, Group, Op, Rank, call, compute, pause, receive, send

MIB = 1 << 20
IMPORTS = 8.0
"""Seconds from the start of a process to its first communicator."""


class Fault:
    """What is done to a job; this one does nothing. `at` is the second of the rank's process."""

    def work(self, rank: int, step: int, at: float) -> float:  # noqa: ARG002
        """How many times as long the rank computes."""
        return 1.0

    def ahead(self, rank: int, step: int, at: float) -> Iterator[Op]:  # noqa: ARG002
        """What the rank does before a step."""
        yield from ()

    def calls(self, rank: int, step: int, at: float, ops: list[Op]) -> list[Op]:  # noqa: ARG002
        """What becomes of a step."""
        return ops


@dataclass
class Plan:
    """One job as drawn. `ranks`: its ranks on this node; `size`: of all nodes; `step`: seconds of computing.

    `gpus`: the number of the GPU of each rank here. `layout`: how the ranks are grouped. `noise`: of work,
    from step to step. `own`: how many times as long each rank always computes, a little. `grouped`: tokens go
    by sends and receives. `node`: the number of this node. `far`: ranks of another node that are simulated.
    """

    draw: random.Random
    shape: str
    gpus: tuple[int, ...]
    size: int
    nodes: int
    step: float
    groups: list[Group]
    fault: Fault = field(default_factory=Fault)
    noise: float = 0.004
    own: dict[int, float] = field(default_factory=dict)
    buckets: int = 12
    bucket: int = 32 * MIB
    tensor: int = 2
    layers: int = 6
    micro: int = 4
    tied: bool = False
    hot: float = 1.0
    hot_rank: int = -1
    begun: float = 0.0
    stages: dict[int, float] = field(default_factory=dict)
    spins: bool = True
    grouped: bool = False
    node: int = 0
    far: int = 0

    @property
    def ranks(self) -> range:
        return range(len(self.gpus))

    @property
    def everyone(self) -> range:
        """Those of this node, then those of another one."""
        return range(len(self.gpus) + self.far)

    def job_rank(self, rank: int) -> int:
        """The job's own number of a rank."""
        node = (self.node + rank // len(self.gpus)) % self.nodes
        return node * len(self.gpus) + rank % len(self.gpus)


Step = Callable[[Plan, int, int], Iterator[Op]]


def program(plan: Plan, number: int) -> Callable[[Rank], Iterator[Op]]:
    """The whole life of a rank: imports, communicators, a slow first step, and then steps for ever."""
    steps = SHAPES[plan.shape]

    def run(rank: Rank) -> Iterator[Op]:
        draw = random.Random(f"{plan.shape} {number} {plan.draw.random()}")  # noqa: S311
        yield pause(plan.begun + IMPORTS - 0.3 * draw.random(), "import")
        # Most jobs meet once on the communicator of all, which has the job's own numbers.
        yield call(0, "all_reduce", 4)
        yield SYNCED
        step = 0
        while True:
            at = rank.host_at
            yield from plan.fault.ahead(number, step, at)
            factor = plan.own.get(number, 1.0) * plan.fault.work(number, step, at)
            factor *= max(0.5, 1 + draw.gauss(0.0, plan.noise)) * (2.5 if step == 0 else 1.0)
            ops = list(steps(plan, number, step))
            yield from (
                compute(op[1] * factor) if op[0] == 0 else op  # type: ignore[operator]
                for op in plan.fault.calls(number, step, at, ops)
            )
            step += 1

    return run


def ddp(plan: Plan, _number: int, _step: int) -> Iterator[Op]:
    """Forward, then backward with a bucket after each part, which is sent beside the rest."""
    yield compute(plan.step / 3)
    yield from _backward(plan, plan.step * 2 / 3)
    yield JOINED
    yield compute(plan.step * 0.03)
    yield SYNCED


def accumulation(plan: Plan, _number: int, _step: int) -> Iterator[Op]:
    """Several passes without collectives, and the last one as in `ddp`."""
    for _ in range(plan.micro - 1):
        yield compute(plan.step / plan.micro)
    yield compute(plan.step / plan.micro / 3)
    yield from _backward(plan, plan.step / plan.micro * 2 / 3)
    yield JOINED
    yield compute(plan.step * 0.03)
    yield SYNCED


def _backward(plan: Plan, seconds: float) -> Iterator[Op]:
    for _ in range(plan.buckets):
        yield compute(seconds / plan.buckets)
        yield call(0, "all_reduce", plan.bucket, beside=True)


def fsdp(plan: Plan, _number: int, _step: int) -> Iterator[Op]:
    """Layers whose weights are gathered one ahead of the work, gradients that are scattered, a norm."""
    forward, backward = plan.step / 3 / plan.layers, plan.step * 2 / 3 / plan.layers
    yield call(0, "all_gather", 2 * plan.bucket, beside=True)
    for part in (forward, backward):
        for layer in range(plan.layers):
            yield JOINED
            if layer < plan.layers - 1 or part is forward:
                yield call(0, "all_gather", 2 * plan.bucket, beside=True)
            yield compute(part)
            if part is backward:
                yield call(0, "reduce_scatter", 2 * plan.bucket, beside=True)
    yield JOINED
    yield call(0, "all_reduce", 4)
    yield compute(plan.step * 0.03)
    yield SYNCED


def tensor_parallel(plan: Plan, number: int, _step: int) -> Iterator[Op]:
    """Four all-reduces a layer within a tensor group, then the gradients within a data group, and a norm."""
    inside, across = _two(plan, number)
    part = plan.step / (plan.layers * 4)
    for _ in range(plan.layers * 4):
        yield compute(part)
        yield call(inside, "all_reduce", plan.bucket)
    if across is not None:
        for _ in range(2):
            yield call(across, "all_reduce", 4 * plan.bucket)
    if len(plan.groups[0].members) > 1:
        yield call(0, "all_reduce", 4)
    yield compute(plan.step * 0.03)
    yield SYNCED


def _two(plan: Plan, number: int) -> tuple[int, int | None]:
    """The tensor and the data group of a rank."""
    mine = [group.id for group in plan.groups[1:] if number in group.members]
    return mine[0], mine[1] if len(mine) > 1 else None


def experts(plan: Plan, number: int, _step: int) -> Iterator[Op]:
    """Tokens go to experts and back, forward and backward; then the gradients of what all share."""
    op = GROUPED if plan.grouped else "alltoall"
    hot = plan.hot if number == plan.hot_rank else 1.0
    part = plan.step / (plan.layers * 2)
    for _ in range(plan.layers * 2):
        yield compute(part * 0.5)
        yield call(0, op, plan.bucket)
        yield compute(part * 0.5 * hot)
        yield call(0, op, plan.bucket)
    yield call(1, "all_reduce", 4 * plan.bucket)
    yield compute(plan.step * 0.03)
    yield SYNCED


def pipeline(plan: Plan, number: int, step: int) -> Iterator[Op]:
    """One forward, one backward, over as many stages as ranks; gradients of tied embeddings; a norm."""
    warm = min(len(plan.gpus) - number - 1, plan.micro)
    for batch in range(plan.micro + warm):
        if batch < plan.micro:
            yield from _stage(plan, number, (step, "forward", batch))
        if batch >= warm:
            yield from _stage(plan, number, (step, "backward", batch - warm))
    if plan.tied and number in plan.groups[2].members:
        yield call(2, "all_reduce", 8 * plan.bucket)
    yield call(0, "all_reduce", 4)
    yield compute(plan.step * 0.03)
    yield SYNCED


def _stage(plan: Plan, number: int, batch: tuple[int, str, int]) -> Iterator[Op]:
    """One batch in one stage and direction: from the stage before, through the work, to the next."""
    onward = batch[1] == "forward"
    first, last = (0, len(plan.gpus) - 1) if onward else (len(plan.gpus) - 1, 0)
    seconds = plan.step / (3 * plan.micro) * plan.stages.get(number, 1.0)
    if number != first:
        yield receive(1, plan.bucket, (number, batch))
    yield compute(seconds if onward else 2 * seconds)
    if number != last:
        yield send(1, plan.bucket, (number + 1 if onward else number - 1, batch))


def decode(plan: Plan, _number: int, _step: int) -> Iterator[Op]:
    """A graph of kernels and small collectives, of which nothing is seen from outside."""
    yield compute(plan.step)
    yield SYNCED


SHAPES: dict[str, Step] = {
    "ddp": ddp, "accumulation": accumulation, "fsdp": fsdp, "tensor": tensor_parallel, "experts": experts,
    "pipeline": pipeline, "decode": decode,
}  # fmt: skip


def drawn(draw: random.Random, shape: str, *, least: int = 2, nodes: int = 1, step: float = 0.0) -> Plan:
    """Draw a job of a shape: how many GPUs, which, how long a step, how large its messages."""
    counts = [one for one in (2, 4, 8) if one >= least]
    count = draw.choice(counts) if nodes == 1 else 8
    seconds = step or 0.12 * 5 ** draw.random()
    if seconds < 0.05:
        count = min(count, max(2, least))
    first = 0 if count == 8 else draw.choice(range(0, 9 - count, count))
    gpus = tuple(range(first, first + count))
    plan = Plan(draw, shape, gpus, count * nodes, nodes, seconds, [])
    plan.far = count if nodes > 1 else 0
    plan.own = {rank: 1 + draw.uniform(-0.006, 0.006) for rank in plan.everyone}
    plan.noise = draw.uniform(0.002, 0.008)
    plan.buckets = max(2, min(12, round(seconds / 0.02)))
    # The wire takes a tenth to a third of the step where it is beside the work, so that it hides there.
    plan.bucket = draw.choice((8, 16, 25, 32)) * MIB if seconds > 0.05 else 4 * MIB
    plan.layers = draw.choice((4, 6, 8))
    plan.micro = draw.choice((2, 4)) * (count if shape == "pipeline" else 2)
    plan.spins = draw.random() < 0.6
    plan.grouped, plan.node = draw.random() < 0.5, draw.randrange(nodes)
    plan.groups = groups(plan, draw)
    return plan


def groups(plan: Plan, draw: random.Random) -> list[Group]:
    """The communicators of a job: that of all first, in which every rank has the job's own number."""
    count, found = len(plan.gpus), list[Group]()

    def add(members: Sequence[int], name: str = "") -> None:
        here = sum(one < count for one in members)
        nodes = plan.nodes if 0 < here < len(members) else 1
        ranks = len(members) // 2 * nodes if nodes > 1 else len(members)
        of_all = len(members) == len(plan.everyone)
        numbers = [plan.job_rank(one) if of_all else at for at, one in enumerate(members)]
        found.append(Group(len(found), tuple(members), tuple(numbers), ranks, here, nodes, name))

    add(plan.everyone, "default_pg")
    if plan.shape == "tensor":
        plan.tensor = count if plan.nodes > 1 else draw.choice([one for one in (2, 4) if one < count])
        for at in range(0, len(plan.everyone), plan.tensor):
            add(plan.everyone[at : at + plan.tensor])
        for lane in range(plan.tensor):
            add(plan.everyone[lane :: plan.tensor])
    elif plan.shape in {"experts", "pipeline"}:
        add(plan.everyone)
        if plan.shape == "pipeline":
            add((0, count - 1))
    return found
