"""Other layouts beside a job: what it could be instead, what each costs, and what speaks against it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from wirewatch.advice.placement.cluster import Cluster
from wirewatch.advice.placement.layouts import LayoutCost, Workload, layout_cost
from wirewatch.advice.placement.solver import Infeasible, PlacedJob, PlacementJob, place
from wirewatch.advice.placement.space import WORDS, Level, Space, space_of

MOST_PP = 64
Several = tuple[int, int, int]
"""TP, PP and replicas."""


@dataclass(frozen=True, slots=True)
class CostedLayout:
    """A job as it was placed. `why`: what it is beside the one that was asked for, or what it has against it.

    `reach`: how far TP groups had to be stretched; `asks`: the options that it takes beyond its numbers.
    """

    placed: PlacedJob
    cost: LayoutCost
    why: str
    reach: Level = Level.DOMAIN
    asks: str = ""


@dataclass(frozen=True, slots=True)
class Proposals:
    """What is asked of a cluster: nodes that may be used, and the model."""

    cluster: Cluster
    workload: Workload
    degraded: bool

    def space(self) -> Space:
        """The free GPUs."""
        return space_of(self.cluster.usable(degraded=self.degraded))

    def job(self, tp: int, pp: int, replicas: int) -> PlacementJob:
        """The job with what its GPUs have to hold."""
        return PlacementJob(tp, pp, replicas, self.workload.memory(tp, pp))

    def nearest(self, job: PlacementJob, space: Space, reach: Level) -> Iterator[CostedLayout]:
        """Layouts that can be placed where this job cannot: the nearest of each kind."""
        wholes = [tp for tp in range(job.tp - 1, 0, -1) if job.tp % tp == 0]
        kinds: tuple[tuple[str, list[Several]], ...] = (
            ("a TP that divides the attention heads", list(self._divisors(job))),
            ("replicas in place of a wider TP",
             [(tp, job.pp, job.replicas * job.tp // tp) for tp in wholes]),
            ("stages in place of a wider TP",
             [(tp, job.pp * job.tp // tp, job.replicas) for tp in wholes]),
            ("more GPUs a replica, for memory", list(_larger(job))),
        )  # fmt: skip
        seen = []
        for why, several in kinds:
            seen += list(islice(self._placed(space, several, why), 1))
        # A smaller TP with fewer replicas is near only where nothing nearer is.
        fewer = list(_fewer(job, space, [] if seen else wholes))
        seen += list(islice(self._placed(space, fewer, "as many replicas as there is room for"), 1))
        if all(one.placed.job.tp == 1 for one in seen):
            # A TP without divisors but 1 has no other neighbours.
            widest = min(job.tp - 1, max((one.free for one in space.domains), default=0))
            smaller = [(tp, job.pp, job.replicas) for tp in range(widest, 1, -1)]
            seen += list(islice(self._placed(space, smaller, "the widest TP there is room for"), 1))
        yield from seen
        yield from self._wider(job, space, reach)
        if not self.degraded:
            others = space_of(self.cluster.usable(degraded=True))
            asked = [_numbers(job)]
            yield from (
                replace(one, asks="--degraded")
                for one in self._placed(others, asked, "on DEGRADED nodes too")
            )

    def beside(self, chosen: PlacedJob, space: Space) -> Iterator[CostedLayout]:
        """Layouts of as many GPUs as the chosen one: twice and half its TP, for replicas or for stages."""
        tp, pp, replicas = _numbers(chosen.job)
        if replicas % 2 == 0:
            yield from self._any_reach(space, (tp * 2, pp, replicas // 2))
        if pp % 2 == 0:
            yield from self._any_reach(space, (tp * 2, pp // 2, replicas))
        if tp % 2 == 0:
            yield from self._any_reach(space, (tp // 2, pp, replicas * 2))
            yield from self._any_reach(space, (tp // 2, pp * 2, replicas))

    def objection(self, job: PlacementJob, space: Space) -> str:
        """Why the model cannot be cut so, or its part fits into no free GPU; empty where neither is so."""
        against = self.workload.objection(job.tp, job.pp)
        largest = max((one.memory() for one in space.domains), default=0.0)
        if against or not space.domains or job.memory <= largest:
            return against
        need = f"{job.memory / 1e9:.1f} GB a GPU with {self.workload.headroom:.0%} kept free"
        has = f"the largest free one has {largest / 1e9:.0f} GB" if largest else "the memory of none is known"
        return f"TP {job.tp} x PP {job.pp} of {self.workload.shape.name} takes {need}, and {has}"

    def _divisors(self, job: PlacementJob) -> Iterator[Several]:
        """The same with a TP that the model can be cut by, the nearest first, where this one is none."""
        heads = self.workload.shape.heads
        if self.workload.objection(job.tp, 1):
            whole = [tp for tp in range(1, heads + 1) if heads % tp == 0]
            for tp in sorted(whole, key=lambda one: (abs(one - job.tp), one)):
                yield tp, job.pp, job.replicas

    def _any_reach(self, space: Space, numbers: Several) -> Iterator[CostedLayout]:
        """The layout, as far stretched as it has to be, with what speaks against it."""
        job = self.job(*numbers)
        if self.objection(job, space):
            return
        for reach in space.levels:
            found = place(space, [job], reach)
            if isinstance(found, Infeasible):
                continue
            why = "possible as well" if reach is Level.DOMAIN else f"TP leaves {_left(space, reach)}"
            yield CostedLayout(found[0], layout_cost(space, found[0], self.workload), why, reach)
            return

    def _placed(self, space: Space, several: list[Several], why: str) -> Iterator[CostedLayout]:
        """Those that can be placed, whole in NVLink domains."""
        for numbers in several:
            job = self.job(*numbers)
            found = Infeasible("") if self.workload.objection(job.tp, job.pp) else place(space, [job])
            if not isinstance(found, Infeasible):
                yield CostedLayout(found[0], layout_cost(space, found[0], self.workload), why)

    def _wider(self, job: PlacementJob, space: Space, reach: Level) -> Iterator[CostedLayout]:
        """The same job, stretched as little as it takes."""
        if self.objection(job, space):
            return
        for level in space.levels:
            found = Infeasible("") if level <= reach else place(space, [job], level)
            if not isinstance(found, Infeasible):
                option = "any" if level is Level.CLUSTER else level.name.lower()
                why = f"TP leaves {_left(space, level)}"
                cost = layout_cost(space, found[0], self.workload)
                yield CostedLayout(found[0], cost, why, level, f"--tp-across {option}")
                return


def title(job: PlacementJob) -> str:
    """A layout in a few letters."""
    return f"TP {job.tp} x PP {job.pp} x {job.replicas}"


def _left(space: Space, reach: Level) -> str:
    """What a TP group that is stretched so far leaves."""
    return WORDS[space.levels[space.levels.index(reach) - 1]]


def _numbers(job: PlacementJob) -> Several:
    return job.tp, job.pp, job.replicas


def _larger(job: PlacementJob) -> Iterator[Several]:
    """Layouts with more GPUs a replica, the fewest first."""
    for factor in (2, 4, 8, 16, 32, 64):
        for wider in (factor, factor // 2, factor // 4):
            if wider >= 1 and job.pp * factor // wider <= MOST_PP:
                yield job.tp * wider, job.pp * factor // wider, job.replicas


def _fewer(job: PlacementJob, space: Space, wholes: Sequence[int]) -> Iterator[Several]:
    """The most replicas for which there is room, with this TP or the next smaller one that has any."""
    free = [one.free for one in space.domains if one.memory() >= job.memory]
    for tp in (job.tp, *wholes):
        replicas = min(job.replicas * job.tp // tp - 1, sum(one // tp for one in free) // job.pp)
        if replicas:
            yield tp, job.pp, replicas
