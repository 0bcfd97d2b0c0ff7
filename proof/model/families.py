"""Families of jobs: healthy ones of each shape, and the same with something that holds them up."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from proof.model import wire
from proof.model.job import CALL, Op, World, call, compute, pause
from proof.model.shapes import MIB, Fault, Plan, drawn
from proof.model.truth import BUSY, DEADLOCK, HANG, NOBODY, RAIL, RANK, REMOTE, WIRE, Case

FOREVER = 1e6
AFTER = 12.0
"""Seconds of watching after a fault must have been named: a name may be taken back."""
WORKS = 10.0
"""Second at which a job has begun to work."""
HEALTHY = 90.0
HANGS = 150.0
"""Seconds for which a job that stands still is watched."""


def _onset(draw: random.Random) -> float:
    """From the start, as half of the late ranks are; or once the job is known."""
    return WORKS if draw.random() < 0.5 else draw.uniform(72.0, 80.0)


def _case(plan: Plan, kind: str, *ranks: int, onset: float = WORKS, limit: float = 30.0) -> Case:
    beside, pace = plan.draw.uniform(0.1, 0.4), plan.draw.uniform(0.2, 0.8)
    world = World(plan.draw, plan.groups, len(plan.gpus), beside=beside, pace=pace)
    return Case(plan, world, kind, ranks, onset, limit, seconds=onset + limit + AFTER)


@dataclass
class More(Fault):
    """Some ranks have more work from a moment on, `more` by rank; or more and more, for `full` seconds."""

    more: dict[int, float]
    since: float
    full: float = 0.0

    def work(self, rank: int, _step: int, at: float) -> float:
        if at < self.since or rank not in self.more:
            return 1.0
        grown = min(1.0, (at - self.since) / self.full) if self.full else 1.0
        return 1 + (self.more[rank] - 1) * grown


@dataclass
class Stalls(Fault):
    """A rank's process stops for a while before each `every`-th step."""

    rank: int
    since: float
    seconds: float
    every: int = 1
    what: str = "sleep"

    def ahead(self, rank: int, step: int, at: float) -> Iterator[Op]:
        if rank == self.rank and at >= self.since and step % self.every == 0:
            yield pause(self.seconds, self.what)


@dataclass
class Drawn(Fault):
    """Before each step a rank may stop, or compute for another time, as `draws` says."""

    draws: Callable[[random.Random], float]
    stops: bool
    draw: dict[int, random.Random] = field(default_factory=dict)

    def _drawn(self, rank: int) -> float:
        return self.draws(self.draw.setdefault(rank, random.Random(f"drawn {rank}")))  # noqa: S311

    def work(self, rank: int, _step: int, _at: float) -> float:
        return 1.0 if self.stops else self._drawn(rank)

    def ahead(self, rank: int, _step: int, _at: float) -> Iterator[Op]:
        if self.stops and (seconds := self._drawn(rank)) > 0:
            yield pause(seconds, "cpu")


@dataclass
class Together(Fault):
    """All ranks compute for a while without a collective, each `every`-th step, as in an evaluation."""

    every: int
    seconds: float

    def ahead(self, _rank: int, step: int, _at: float) -> Iterator[Op]:
        if step and step % self.every == 0:
            for _ in range(50):
                yield compute(self.seconds / 50)


@dataclass
class Odd(Fault):
    """From a step on one rank calls something else, or in another order."""

    rank: int
    since: float
    order: bool = False
    done: bool = False

    def calls(self, rank: int, _step: int, at: float, ops: list[Op]) -> list[Op]:
        if rank != self.rank or at < self.since or self.done:
            return ops
        self.done = True
        places = [at for at, op in enumerate(ops) if op[0] == CALL]
        if not self.order:
            at = places[len(places) // 2]
            group, op, size = int(ops[at][1]), str(ops[at][2]), int(ops[at][3])  # type: ignore[call-overload]
            other = "all_gather" if op == "all_reduce" else "all_reduce"
            return [*ops[:at], call(group, other, size), *ops[at + 1 :]]
        last = places[-1]
        first = next(at for at in places if ops[at][1] != ops[last][1])
        swapped = list(ops)
        swapped[first], swapped[last] = swapped[last], swapped[first]
        return swapped


def healthy(shape: str) -> Callable[[random.Random], Case]:
    """A job of this shape that nothing holds up."""

    def make(draw: random.Random) -> Case:
        plan = drawn(draw, shape, least=4 if shape == "tensor" else 2)
        plan.tied = shape == "pipeline" and draw.random() < 0.5
        case = _case(plan, NOBODY, limit=HEALTHY - WORKS - AFTER)
        case.captured = shape == "decode"
        return case

    return make


def late(shape: str) -> Callable[[random.Random], Case]:
    """One rank has more work than the others."""

    def make(draw: random.Random) -> Case:
        plan = drawn(draw, shape, least=4 if shape == "tensor" else 2)
        rank, onset = draw.choice(plan.ranks), _onset(draw)
        plan.fault = More({rank: draw.uniform(1.12, 1.35)}, onset)
        return _case(plan, RANK, rank, onset=onset)

    return make


def loader(low: float, high: float) -> Callable[[random.Random], Case]:
    """The loader of one rank is late before each step of `low` to `high` seconds."""

    def make(draw: random.Random) -> Case:
        step = low * (high / low) ** draw.random()
        plan = drawn(draw, draw.choice(("ddp", "fsdp")), step=step)
        rank, onset = draw.choice(plan.ranks), _onset(draw)
        plan.fault = Stalls(rank, onset, step * draw.uniform(0.12, 0.4))
        return _case(plan, RANK, rank, onset=onset, limit=30.0 if step < 2 else 60.0)

    return make


def stall(seconds: float, every: int) -> Callable[[random.Random], Case]:
    """One rank stops for some seconds each so many steps."""

    def make(draw: random.Random) -> Case:
        plan = drawn(draw, draw.choice(("ddp", "fsdp")))
        rank, onset = draw.choice(plan.ranks), _onset(draw)
        plan.fault = Stalls(rank, onset, seconds, every)
        return _case(plan, RANK, rank, onset=onset, limit=30.0 if plan.step * every < 6 else 60.0)

    return make


def two_late(draw: random.Random) -> Case:
    plan = drawn(draw, draw.choice(("ddp", "fsdp")), least=4)
    ranks, onset, more = draw.sample(plan.ranks, 2), _onset(draw), draw.uniform(1.15, 1.3)
    plan.fault = More(dict.fromkeys(ranks, more), onset)
    return _case(plan, RANK, *ranks, onset=onset)


def drifting(draw: random.Random) -> Case:
    """The rank has 8 % more work after a fifth to two fifths of the drift: from then on it counts."""
    plan = drawn(draw, draw.choice(("ddp", "fsdp")))
    rank, more = draw.choice(plan.ranks), draw.uniform(1.2, 1.4)
    plan.fault = More({rank: more}, 30.0, full=60.0)
    case = _case(plan, RANK, rank, onset=30.0 + 60.0 * 0.08 / (more - 1))
    case.since = 30.0
    return case


def lengths(draw: random.Random) -> Case:
    plan = drawn(draw, draw.choice(("ddp", "fsdp")))
    wide = draw.uniform(0.15, 0.4)
    plan.fault = Drawn(lambda own: own.uniform(1 - wide, 1 + wide), stops=False)
    return _case(plan, NOBODY, limit=HEALTHY - WORKS - AFTER)


def collections(draw: random.Random) -> Case:
    """Python's garbage collection, on a random rank in a random step."""
    plan = drawn(draw, draw.choice(("ddp", "fsdp", "tensor")), least=4)
    often = draw.uniform(0.02, 0.1)
    plan.fault = Drawn(lambda own: own.uniform(0.05, 0.25) if own.random() < often else 0.0, stops=True)
    return _case(plan, NOBODY, limit=HEALTHY - WORKS - AFTER)


def hot_expert(*, grouped: bool) -> Callable[[random.Random], Case]:
    """The experts of one rank get more tokens. `grouped`: these go by sends, which are not timed."""

    def make(draw: random.Random) -> Case:
        plan = drawn(draw, "experts")
        plan.grouped = grouped
        plan.hot_rank, plan.hot = draw.choice(plan.ranks), draw.uniform(1.4, 2.0)
        return _case(plan, RANK, plan.hot_rank)

    return make


def uneven_stages(draw: random.Random) -> Case:
    plan = drawn(draw, "pipeline")
    rank = draw.choice(plan.ranks)
    plan.stages = {rank: draw.uniform(1.6, 2.0)}
    plan.tied = draw.random() < 0.5
    return _case(plan, RANK, rank)


def tied(draw: random.Random) -> Case:
    case = healthy("pipeline")(draw)
    case.plan.tied = True
    return case


def slow_rail(draw: random.Random) -> Case:
    """Tensor parallel on eight nodes: the way of one GPU to the other nodes is slow."""
    plan = drawn(draw, "tensor", nodes=8)
    rank, onset = draw.choice(plan.ranks), _onset(draw)
    slow = next(g for g in plan.groups if rank in g.members and g.here == 1)
    alone = 2 * wire.seconds("all_reduce", 4 * plan.bucket, slow.ranks, 1, slow.nodes)
    slower = max(2.0, 1 + draw.uniform(0.1, 0.25) * plan.step / alone)
    case = _case(plan, RAIL, rank, onset=onset)
    case.world.wires = lambda group, _op, _size, at: slower if group is slow and at >= onset else 1.0
    return case


def remote(draw: random.Random) -> Case:
    """A rank of another node has more work."""
    plan = drawn(draw, draw.choice(("ddp", "fsdp", "tensor")), nodes=draw.choice((2, 4)))
    onset = _onset(draw)
    plan.fault = More({draw.choice(plan.everyone[8:]): draw.uniform(1.12, 1.35)}, onset)
    return _case(plan, REMOTE, onset=onset)


def healthy_nodes(draw: random.Random) -> Case:
    plan = drawn(draw, draw.choice(("ddp", "fsdp", "tensor")), nodes=draw.choice((2, 4)))
    return _case(plan, NOBODY, limit=HEALTHY - WORKS - AFTER)


def local_of_nodes(draw: random.Random) -> Case:
    plan = drawn(draw, draw.choice(("ddp", "fsdp", "tensor")), nodes=draw.choice((2, 4)))
    rank, onset = draw.choice(plan.ranks), _onset(draw)
    plan.fault = More({rank: draw.uniform(1.12, 1.35)}, onset)
    return _case(plan, RANK, rank, onset=onset)


def slow_wire(draw: random.Random) -> Case:
    """All collectives are slower, from a fifth to ten times; they are not hidden behind the work."""
    plan = drawn(draw, "tensor", least=4)
    plan.bucket = draw.choice((256, 512, 1024)) * MIB
    plan.layers = 2
    alone = wire.seconds("all_reduce", plan.bucket, plan.tensor, plan.tensor, 1)
    plan.step = 4 * plan.layers * alone * draw.uniform(1.0, 2.5)
    onset, slower = _onset(draw), draw.choice((1.25, 1.5, 2.0, 4.0, 10.0))
    case = _case(plan, WIRE, onset=onset)
    case.world.wires = lambda _group, _op, _size, at: slower if at >= onset else 1.0
    return case


def restarts(draw: random.Random) -> Case:
    """A job that ends and is started again; half of them have a late rank the second time.

    The others are watched for as long as other healthy jobs: of its first minute nobody says that it is well.
    """
    plan = drawn(draw, draw.choice(("ddp", "fsdp")))
    ends = draw.uniform(35.0, 45.0)
    case = _case(plan, NOBODY, onset=ends + WORKS, limit=HEALTHY - WORKS - AFTER)
    case.restarts = (ends,)
    if draw.random() < 0.5:
        rank = draw.choice(plan.ranks)
        plan.fault = More({rank: draw.uniform(1.15, 1.35)}, case.onset)
        case.kind, case.ranks, case.limit = RANK, (rank,), 30.0
        case.seconds = case.onset + case.limit + AFTER
    return case


def evaluation(draw: random.Random) -> Case:
    plan = drawn(draw, draw.choice(("ddp", "fsdp")))
    plan.fault = Together(round(draw.uniform(8, 15) / plan.step), draw.uniform(4.0, 12.0))
    return _case(plan, NOBODY, limit=HEALTHY - WORKS - AFTER)


def skewed(draw: random.Random) -> Case:
    """A late rank again; the GPUs' clocks drift apart, and are coarse."""
    case = late(draw.choice(("ddp", "fsdp")))(draw)
    case.drift, case.resolution = draw.choice((2e-5, 1e-4)), draw.choice((32, 1000, 1024))
    return case


def checkpoint(draw: random.Random) -> Case:
    """Rank 0 writes a checkpoint; the others wait in the next collective."""
    plan = drawn(draw, draw.choice(("ddp", "fsdp")))
    onset = draw.uniform(72.0, 78.0)
    plan.fault = Once(0, onset, draw.uniform(30.0, 50.0), "files")
    return _case(plan, BUSY, 0, onset=onset)


def slow_but_alive(draw: random.Random) -> Case:
    """One rank compiles, uploads, or writes through mapped pages, for longer than a minute."""
    plan = drawn(draw, draw.choice(("ddp", "fsdp", "tensor")), least=4)
    rank, onset = draw.choice(plan.ranks), draw.uniform(72.0, 78.0)
    plan.fault = Once(rank, onset, FOREVER, draw.choice(("compile", "upload", "mapped")))
    case = _case(plan, BUSY, rank, onset=onset)
    case.seconds = onset + HANGS
    return case


@dataclass
class Once(Stalls):
    """A rank's process does something else, once."""

    done: bool = False

    def __init__(self, rank: int, since: float, seconds: float, what: str) -> None:
        super().__init__(rank, since, seconds, 1, what)

    def ahead(self, rank: int, _step: int, at: float) -> Iterator[Op]:
        if rank == self.rank and at >= self.since and not self.done:
            self.done = True
            yield pause(self.seconds, self.what)


def hang(draw: random.Random) -> Case:
    """One rank sleeps, spins, is stopped, or waits in the kernel, for ever."""
    plan = drawn(draw, draw.choice(("ddp", "fsdp", "tensor", "accumulation")), least=2)
    if plan.shape == "tensor" and len(plan.gpus) < 4:
        plan = drawn(draw, "tensor", least=4)
    rank, onset = draw.choice(plan.ranks), draw.uniform(72.0, 78.0)
    how = draw.choice(("sleep", "sleep", "stopped", "kernel"))
    plan.fault = Once(rank, onset, FOREVER, how)
    case = _case(plan, HANG, rank, onset=onset)
    case.ras = draw.random() < 0.67
    case.seconds = onset + HANGS
    return case


def mismatch(draw: random.Random) -> Case:
    """One rank calls another collective than the others."""
    plan = drawn(draw, draw.choice(("ddp", "fsdp")), least=4)
    rank, onset = draw.choice(plan.ranks), draw.uniform(72.0, 78.0)
    plan.fault = Odd(rank, onset)
    case = _case(plan, HANG, rank, onset=onset)
    case.seconds = onset + HANGS
    return case


def opposite(draw: random.Random) -> Case:
    """One rank calls two communicators in the other order than its peers."""
    plan = drawn(draw, "tensor", least=4)
    rank, onset = draw.choice(plan.ranks), draw.uniform(72.0, 78.0)
    plan.fault = Odd(rank, onset, order=True)
    case = _case(plan, DEADLOCK, rank, onset=onset)
    case.seconds = onset + HANGS
    return case


FAMILIES: dict[str, Callable[[random.Random], Case]] = {
    "healthy: DDP": healthy("ddp"),
    "healthy: FSDP": healthy("fsdp"),
    "healthy: TP x DP": healthy("tensor"),
    "healthy: experts": healthy("experts"),
    "healthy: pipeline": healthy("pipeline"),
    "healthy: pipeline with tied embeddings": tied,
    "healthy: accumulation": healthy("accumulation"),
    "healthy: decode in graphs": healthy("decode"),
    "healthy: several nodes": healthy_nodes,
    "variable lengths": lengths,
    "garbage collection on random ranks": collections,
    "evaluation": evaluation,
    "late rank: DDP": late("ddp"),
    "late rank: FSDP": late("fsdp"),
    "late rank: TP x DP": late("tensor"),
    "late rank: accumulation": late("accumulation"),
    "late rank: one of several nodes": local_of_nodes,
    "late rank: clocks drift": skewed,
    "late loader: steps of 10 to 50 ms": loader(0.01, 0.05),
    "late loader: steps of 0.05 to 1 s": loader(0.05, 1.0),
    "late loader: steps of 1 to 10 s": loader(1.0, 10.0),
    "stall of 4 s each 25 steps": stall(4.0, 25),
    "stall of 1.5 s each 10 steps": stall(1.5, 10),
    "two late ranks": two_late,
    "drifting rank": drifting,
    "hot expert: timed exchange": hot_expert(grouped=False),
    "hot expert: sends": hot_expert(grouped=True),
    "pipeline with an uneven stage": uneven_stages,
    "restarts": restarts,
    "late rank of another node": remote,
    "slow rail under TP8 x DP8": slow_rail,
    "slow wire": slow_wire,
    "checkpoint": checkpoint,
    "slow but alive": slow_but_alive,
    "hang of one rank": hang,
    "mismatch": mismatch,
    "two communicators in opposite order": opposite,
}
"""By name; each draws one job from a generator of its own."""


def make(family: str, seed: int) -> Case:
    """The case of a family and a seed; the same every time."""
    return FAMILIES[family](random.Random(f"{family} {seed}"))  # noqa: S311
