"""Other layouts beside a job: alternatives, their costs, and objections to them. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from wirewatch_lab.advice.placement.cluster import NodePool
from wirewatch_lab.advice.placement.jobs import Infeasible, PlacedJob, PlacementJob
from wirewatch_lab.advice.placement.layouts import LayoutCost, LayoutCosts, Workload, layout_cost
from wirewatch_lab.advice.placement.solver import place
from wirewatch_lab.advice.placement.space import WORDS, Level, Space, space_of

MOST_PP = 64
AS_WELL = "possible as well"
Several = tuple[int, int, int]
"""TP, PP and replicas."""


@dataclass(frozen=True, slots=True)
class CostedLayout:
    """A job after placement. `why`: how it compares with the requested layout, or the objection to it.

    `reach`: how far its TP groups are stretched; `asks`: further options that it needs.
    """

    placed: PlacedJob
    cost: LayoutCost
    why: str
    reach: Level = Level.DOMAIN
    asks: str = ""


@dataclass(frozen=True, slots=True)
class Proposals:
    """The usable nodes of a cluster, and the model."""

    cluster: NodePool
    workload: Workload
    degraded: bool

    def space(self) -> Space:
        """Return the free GPUs."""
        return space_of(self.cluster.usable(degraded=self.degraded))

    def job(self, tp: int, pp: int, replicas: int) -> PlacementJob:
        """Return the job with its memory on each GPU."""
        return PlacementJob(tp, pp, replicas, self.workload.memory(tp, pp))

    def placed(
        self, jobs: Sequence[PlacementJob], space: Space, reach: Level = Level.DOMAIN
    ) -> tuple[PlacedJob, ...] | Infeasible:
        """Place the jobs where their communication costs the least."""
        return place(space, jobs, reach, LayoutCosts(space, self.workload))

    def nearest(self, job: PlacementJob, space: Space, reach: Level) -> Iterator[CostedLayout]:
        """Yield feasible layouts near an infeasible job: the nearest of each kind."""
        near = [one for why, several in self._kinds(job, space) for one in self._first(space, several, why)]
        # A smaller job is near only where nothing nearer is; a TP of 1 is far from any other.
        if not near:
            smaller = (several for tp in _divisors(job.tp) for several in _fewer(job, space, tp))
            near += self._first(space, smaller, "a smaller TP, as many replicas as there is room for")
        if all(one.placed.job.tp == 1 for one in near):
            narrower = ((tp, job.pp, job.replicas) for tp, _, _ in _alone(job, space) if 1 < tp < job.tp)
            near += self._first(space, narrower, "the widest TP there is room for")
        yield from near or self._first(space, _alone(job, space), "one stage and one replica")
        yield from self._wider(job, space, reach)
        if not self.degraded:
            others = space_of(self.cluster.usable(degraded=True))
            for one in self._first(others, [_numbers(job)], "on DEGRADED nodes too"):
                yield replace(one, asks="--degraded")

    def _kinds(self, job: PlacementJob, space: Space) -> Iterator[tuple[str, Iterable[Several]]]:
        """Yield the kinds of neighbours, with the nearest of each first."""
        wholes = _divisors(job.tp)
        yield "a TP that divides the attention heads", self._whole_heads(job)
        replicas = ((tp, job.pp, job.replicas * job.tp // tp) for tp in wholes)
        yield "replicas in place of a wider TP", replicas
        yield "stages in place of a wider TP", ((tp, job.pp * job.tp // tp, job.replicas) for tp in wholes)
        yield "more GPUs a replica, for memory", _larger(job)
        yield "as many replicas as there is room for", _fewer(job, space, job.tp)
        yield "as many stages as there is room for", self._fewer_stages(job, space)

    def beside(self, chosen: PlacedJob, space: Space) -> Iterator[CostedLayout]:
        """Yield layouts of equally many GPUs: twice and half the TP, traded for replicas or stages."""
        tp, pp, replicas = _numbers(chosen.job)
        if replicas % 2 == 0:
            yield from self._any_reach(space, (tp * 2, pp, replicas // 2))
        if pp % 2 == 0:
            yield from self._any_reach(space, (tp * 2, pp // 2, replicas))
        if tp % 2 == 0:
            yield from self._any_reach(space, (tp // 2, pp, replicas * 2))
            yield from self._any_reach(space, (tp // 2, pp * 2, replicas))

    def objection(self, job: PlacementJob, space: Space) -> str:
        """Return why the model cannot be split so, or why its part fits no free GPU; else empty."""
        against = self.workload.objection(job.tp, job.pp)
        largest = max((one.memory() for one in space.domains), default=0.0)
        if against or not space.domains or job.memory <= largest:
            return against
        need = f"{job.memory / 1e9:.1f} GB a GPU with {self.workload.headroom:.0%} kept free"
        has = f"the largest free one has {largest / 1e9:.0f} GB" if largest else "the memory of none is known"
        return f"TP {job.tp} x PP {job.pp} of {self.workload.shape.name} takes {need}, and {has}"

    def _whole_heads(self, job: PlacementJob) -> Iterator[Several]:
        """Yield the job with a TP that divides the heads, the nearest first, where its own TP does not."""
        heads = self.workload.shape.heads
        if self.workload.objection(job.tp, 1):
            whole = [tp for tp in range(1, heads + 1) if heads % tp == 0]
            for tp in sorted(whole, key=lambda one: (abs(one - job.tp), one)):
                yield tp, job.pp, job.replicas

    def _fewer_stages(self, job: PlacementJob, space: Space) -> Iterator[Several]:
        """Yield the job with fewer stages that fit, the most stages first."""
        room = sum(one.free // job.tp for one in space.domains) // job.replicas
        layers = room if self.workload.example else self.workload.shape.layers
        most = min(job.pp - 1, room, layers)
        return ((job.tp, pp, job.replicas) for pp in range(most, max(0, most - MOST_PP), -1))

    def enough(self, job: PlacementJob, space: Space) -> PlacementJob | None:
        """Return the smallest layout whose model part fits a free GPU, and whose TP fits a domain.

        None where the job itself is such a layout, or none near it is.
        """
        largest = max((one.memory() for one in space.domains), default=0.0)
        widest = max((one.free for one in space.domains), default=0)
        if job.memory <= largest:
            return None
        larger = (self.job(*several) for several in _larger(job) if several[0] <= widest)
        fitting = (one for one in larger if one.memory <= largest)
        return next((one for one in fitting if not self.workload.objection(one.tp, one.pp)), None)

    def together(self, jobs: Sequence[PlacementJob], space: Space, reach: Level) -> tuple[int, ...]:
        """Return the positions of jobs that fit side by side, in order."""
        kept: tuple[int, ...] = ()
        for number, job in enumerate(jobs):
            several = (*kept, number)
            if not self.objection(job, space):
                found = place(space, [jobs[one] for one in several], reach)
                kept = kept if isinstance(found, Infeasible) else several
        return kept

    def _any_reach(self, space: Space, numbers: Several) -> Iterator[CostedLayout]:
        """Yield the layout, stretched as little as possible, with its objection."""
        job = self.job(*numbers)
        if self.objection(job, space):
            return
        for reach in space.levels:
            found = self.placed([job], space, reach)
            if isinstance(found, Infeasible):
                continue
            why = AS_WELL if reach is Level.DOMAIN else f"TP leaves {_left(space, reach)}"
            yield CostedLayout(found[0], layout_cost(space, found[0], self.workload), why, reach)
            return

    def _first(self, space: Space, several: Iterable[Several], why: str) -> Iterator[CostedLayout]:
        """Yield the first layout that fits whole in NVLink domains, if any."""
        for numbers in several:
            job = self.job(*numbers)
            found = Infeasible("") if self.workload.objection(job.tp, job.pp) else self.placed([job], space)
            if not isinstance(found, Infeasible):
                yield CostedLayout(found[0], layout_cost(space, found[0], self.workload), why)
                return

    def _wider(self, job: PlacementJob, space: Space, reach: Level) -> Iterator[CostedLayout]:
        """Yield the same job, stretched as little as possible."""
        if self.objection(job, space):
            return
        for level in space.levels[space.levels.index(reach) + 1 :]:
            found = self.placed([job], space, level)
            if not isinstance(found, Infeasible):
                option = "any" if level is Level.CLUSTER else level.name.lower()
                why = f"TP leaves {_left(space, level)}"
                cost = layout_cost(space, found[0], self.workload)
                yield CostedLayout(found[0], cost, why, level, f"--tp-across {option}")
                return


def title(tp: int, pp: int, replicas: int) -> str:
    """Return a layout in a few letters."""
    return f"TP {tp} x PP {pp} x {replicas}"


def _left(space: Space, reach: Level) -> str:
    """Return the unit whose borders a TP group crosses at this reach."""
    return WORDS[space.levels[space.levels.index(reach) - 1]]


def _numbers(job: PlacementJob) -> Several:
    return job.tp, job.pp, job.replicas


def _larger(job: PlacementJob) -> Iterator[Several]:
    """Layouts with more GPUs a replica, the fewest first."""
    for factor in (2, 4, 8, 16, 32, 64):
        for wider in (factor, factor // 2, factor // 4):
            if wider >= 1 and job.pp * factor // wider <= MOST_PP:
                yield job.tp * wider, job.pp * factor // wider, job.replicas


def _fewer(job: PlacementJob, space: Space, tp: int) -> Iterator[Several]:
    """Yield the most replicas that fit with a TP, if any."""
    room = sum(one.free // tp for one in space.domains if one.memory() >= job.memory)
    replicas = min(job.replicas * job.tp // tp - 1, room // job.pp)
    if replicas > 0:
        yield tp, job.pp, replicas


def _alone(job: PlacementJob, space: Space) -> Iterator[Several]:
    """Yield one stage and one replica with each TP that fits the largest domain, the widest first."""
    widest = min(job.tp, max((one.free for one in space.domains), default=0))
    return ((tp, 1, 1) for tp in range(widest, 0, -1))


def _divisors(tp: int) -> list[int]:
    """Return the smaller TP degrees that divide it, the widest first."""
    return [one for one in range(tp - 1, 0, -1) if tp % one == 0]
