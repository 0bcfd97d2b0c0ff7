"""Chooses GPUs for each tensor-parallel group, pipeline stage and replica of a job. Pure.

A TP group lies whole in one NVLink domain whenever all groups can. A domain with f free GPUs has room for f
// tp groups, so this decision is exact. `search` then assigns groups to stages and replicas by cost. Without
a cost, `bundles` puts replicas into the narrowest units, exactly for one job. Several jobs are placed in
order of TP, the largest first, each whole. Where this fails, `assign` divides the domains: bin packing with
bins of several sizes. A search that reaches its limit reports this. Nodes of a single product are preferred,
and among products the fastest. Natural order of names breaks ties, so the order of the listed nodes does not
matter.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product

from wirewatch.core.hostlist import natural
from wirewatch_lab.advice.placement.jobs import (
    Infeasible,
    PlacedGpu,
    PlacedJob,
    PlacementJob,
    Replica,
    TensorGroup,
)
from wirewatch_lab.advice.placement.layouts import LayoutCosts
from wirewatch_lab.advice.placement.search import (
    MOST_GROUPS,
    MOST_REPLICAS,
    Grid,
    GroupSources,
    bettered,
    cheapest,
    closest,
    least,
)
from wirewatch_lab.advice.placement.space import WORDS, Bundle, Domain, Level, Nesting, Space, bundles
from wirewatch_lab.advice.products import gpu_product

MOST_STEPS = 100_000
"""Most steps of a search; about a second."""
MOST_FILLS = 400
"""Most ways to fill a domain, over all kinds of domains; also the depth limit of the search."""
Numbers = tuple[int, ...]
"""Number of groups of each size, in the order of the sizes."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Number of groups of each size for each domain; None: none was found. `proven`: no assignment exists."""

    groups: tuple[Numbers, ...] | None
    proven: bool = True


@dataclass(frozen=True, slots=True)
class DomainSize:
    """A kind of domain: its free GPUs, and the sizes that it may take."""

    free: int
    allowed: tuple[bool, ...]


def assign(domains: Sequence[DomainSize], sizes: Sequence[int], counts: Sequence[int]) -> Assignment:
    """Assign this many groups of each size to the domains.

    `domains`: in any order, which the result keeps. `sizes`: GPUs of a group, all different, the largest
    first. `counts`: number of groups of each size.
    """
    if not _may_fit(domains, sizes, counts):
        return Assignment(None)
    order = sorted(range(len(domains)), key=lambda one: (domains[one].free, domains[one].allowed))
    largest_first = _greedy([domains[one] for one in order], sizes, counts)
    if largest_first is not None:
        found: list[Numbers] = [()] * len(domains)
        for place, numbers in zip(order, largest_first, strict=True):
            found[place] = numbers
        return Assignment(tuple(found))
    everywhere = all(all(one.allowed) for one in domains)
    if everywhere and all(large % small == 0 for large, small in pairwise(sizes)):
        return Assignment(None)
    search = _Search(domains, sizes)
    chosen = search.run(tuple(counts))
    if chosen is None:
        return Assignment(None, proven=search.steps <= MOST_STEPS)
    return Assignment(tuple(chosen[one].pop() for one in domains))


def _may_fit(domains: Sequence[DomainSize], sizes: Sequence[int], counts: Sequence[int]) -> bool:
    """Return whether simple bounds allow it: groups of each size and above, and GPUs."""
    for place, size in enumerate(sizes):
        room = sum(one.free // size for one in domains if any(one.allowed[: place + 1]))
        if room < sum(counts[: place + 1]):
            return False
    usable = {one: _fullest(one, sizes) for one in set(domains)}
    return sum(usable[one] for one in domains) >= sum(s * n for s, n in zip(sizes, counts, strict=True))


def _fullest(domain: DomainSize, sizes: Sequence[int]) -> int:
    """Return the most GPUs of the domain that groups can take."""
    reached = [True, *(False for _ in range(domain.free))]
    for free in range(1, domain.free + 1):
        reached[free] = any(
            ok and size <= free and reached[free - size]
            for size, ok in zip(sizes, domain.allowed, strict=True)
        )
    return max(free for free, ok in enumerate(reached) if ok)


def _greedy(
    domains: Sequence[DomainSize], sizes: Sequence[int], counts: Sequence[int]
) -> list[Numbers] | None:
    """Place the largest groups first, each in the domain that they fill best; None where any has no room."""
    left = [one.free for one in domains]
    given = [[0] * len(sizes) for _ in domains]
    for place, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        fitting = sorted(
            (n for n, one in enumerate(domains) if one.allowed[place] and left[n] >= size),
            key=lambda n: (left[n] % size, left[n]),
        )
        remaining = count
        for n in fitting:
            taken = min(remaining, left[n] // size)
            given[n][place] = taken
            left[n] -= taken * size
            remaining -= taken
        if remaining:
            return None
    return [tuple(one) for one in given]


class _Search:
    """Depth-first search over kinds of domains and their fills, which remembers failures."""

    def __init__(self, domains: Sequence[DomainSize], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.steps = 0
        self._kinds = sorted(Counter(domains).items(), key=lambda one: (one[0].free, one[0].allowed))
        self._fills = [tuple(islice(self.fills(kind), MOST_FILLS + 1)) for kind, _ in self._kinds]
        self._failed: set[tuple[int, int, int, Numbers]] = set()
        self._chosen: dict[DomainSize, list[Numbers]] = {kind: [] for kind, _ in self._kinds}

    def run(self, counts: Numbers) -> Mapping[DomainSize, list[Numbers]] | None:
        """Return the groups in the domains of each kind; None where there is no solution, or at the limit."""
        if sum(map(len, self._fills)) > MOST_FILLS:
            self.steps = MOST_STEPS + 1
            return None
        if not self._descend(0, 0, counts):
            return None
        for kind, number in self._kinds:
            self._chosen[kind] += [(0,) * len(self.sizes)] * (number - len(self._chosen[kind]))
        return self._chosen

    def _descend(self, kind: int, used: int, wanted: Numbers, fill: int = 0) -> bool:
        """Return whether the wanted groups fit, with so many domains of a kind used, from this fill on."""
        if not any(wanted) or kind == len(self._kinds):
            return not any(wanted)
        of, domains = self._kinds[kind]
        if used == domains or fill == len(self._fills[kind]):
            return self._descend(kind + 1, 0, wanted)
        key = (kind, fill, used, wanted)
        if key in self._failed:
            return False
        one = self._fills[kind][fill]
        for times in range(self._most(one, wanted, domains - used), -1, -1):
            self.steps += 1
            if self.steps > MOST_STEPS:
                return False
            rest = tuple(max(0, w - times * n) for w, n in zip(wanted, one, strict=True))
            if self._descend(kind, used + times, rest, fill + 1):
                self._chosen[of] += self._given(one, wanted, times)
                return True
        self._failed.add(key)
        return False

    @staticmethod
    def _most(fill: Numbers, wanted: Numbers, domains: int) -> int:
        """Return how many domains may take this fill before it gives nothing wanted."""
        useful = [-(-w // n) for w, n in zip(wanted, fill, strict=True) if n]
        return min(domains, max(useful, default=0))

    @staticmethod
    def _given(fill: Numbers, wanted: Numbers, times: int) -> list[Numbers]:
        """Return the fill this many times, without unwanted groups."""
        given = []
        for _ in range(times):
            one = tuple(min(w, n) for w, n in zip(wanted, fill, strict=True))
            wanted = tuple(w - n for w, n in zip(wanted, one, strict=True))
            given.append(one)
        return given

    def fills(self, kind: DomainSize) -> Iterator[Numbers]:
        """Yield all maximal ways to fill a domain."""
        last = max((place for place, ok in enumerate(kind.allowed) if ok), default=-1)

        def filled(place: int, free: int) -> Iterator[Numbers]:
            if place > last:
                yield (0,) * (len(self.sizes) - place)
                return
            size = self.sizes[place]
            number = free // size if kind.allowed[place] else 0
            for n in range(number, number - 1 if place == last else -1, -1):
                yield from ((n, *rest) for rest in filled(place + 1, free - n * size))

        yield from filled(0, kind.free)


@dataclass(slots=True)
class _Room:
    """Free GPUs of a domain by cell, with their places in the island, as groups are cut out."""

    domain: Domain
    cells: list[list[tuple[int, int]]]

    @classmethod
    def of(cls, domain: Domain) -> "_Room":
        return cls(domain, [list(zip(cell.gpus, cell.places, strict=True)) for cell in domain.cells])

    @property
    def free(self) -> int:
        return sum(map(len, self.cells))

    def cut(self, size: int, count: int) -> list[tuple[PlacedGpu, ...]]:
        """Cut out groups, each on one node where possible, then from neighbours."""
        paths: list[Nesting] = [(place, 0) for place in range(len(self.cells))]
        found = bundles([len(cell) for cell in self.cells], paths, size, count)
        inside_first = sorted(range(count), key=lambda one: found[one].level)
        groups: list[tuple[PlacedGpu, ...]] = [()] * count
        for one in inside_first:
            groups[one] = tuple(gpu for cell, n in found[one].parts for gpu in self._take(cell, n))
        return sorted(groups, key=lambda group: (natural(group[0].node.name), group[0].index))

    def rest(self, count: int) -> tuple[PlacedGpu, ...]:
        """Return so many of the remaining GPUs."""
        taken: list[PlacedGpu] = []
        for place, cell in enumerate(self.cells):
            taken += self._take(place, min(len(cell), count - len(taken)))
        return tuple(taken)

    def give_back(self, group: Sequence[PlacedGpu]) -> None:
        """Free the GPUs of a group again."""
        for cell, left in zip(self.domain.cells, self.cells, strict=True):
            ours = {gpu.index for gpu in group if gpu.node is cell.node}
            left += [one for one in zip(cell.gpus, cell.places, strict=True) if one[0] in ours]
            left.sort(key=lambda one: one[1])

    def _take(self, cell: int, count: int) -> list[PlacedGpu]:
        free = self.cells[cell]
        blocks: dict[int, list[tuple[int, int]]] = {}
        for one in free:
            blocks.setdefault(one[1] // max(1, count), []).append(one)
        taken = next((block for block in blocks.values() if len(block) == count), free[:count])
        self.cells[cell] = [one for one in free if one not in taken]
        return [PlacedGpu(self.domain.cells[cell].node, index) for index, _ in taken]


_Way = tuple[GroupSources, Sequence[Bundle]]
"""Sources of groups: each domain, then single groups over several domains, which are the bundles."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Groups by source, before they get GPUs, and the source of each replica's stages."""

    sources: tuple[TensorGroup, ...]
    grid: Grid
    objective: tuple[float, ...]


@dataclass(slots=True)
class _Solver:
    """Free GPUs of all domains, from which jobs take theirs in turn."""

    space: Space
    reach: Level
    costs: LayoutCosts | None
    rooms: list[_Room]

    @classmethod
    def of(cls, space: Space, reach: Level, costs: LayoutCosts | None) -> "_Solver":
        return cls(space, reach, costs, [_Room.of(domain) for domain in space.domains])

    def run(
        self, jobs: Sequence[PlacementJob], limits: Sequence[Sequence[int]] | None = None
    ) -> list[PlacedJob] | None:
        """Place the jobs in turn; None when a job does not fit. `limits`: groups by job and domain."""
        placed = []
        for number, job in enumerate(jobs):
            plan = self._best(job, None if limits is None else limits[number])
            if plan is None:
                return None
            placed.append(self._carried_out(job, plan, limits is None))
        return placed

    def _best(self, job: PlacementJob, limit: Sequence[int] | None) -> _Plan | None:
        """Return the best plan on a single product, the fastest among equals; else the best plan on all."""
        fitting = _eligible(self.space, job)
        by_product: dict[str, list[int]] = {}
        for one in fitting:
            by_product.setdefault(self.space.domains[one].product, []).append(one)
        fastest_first = sorted(by_product, key=lambda name: (-_arithmetic(name), natural(name)))
        plans = [self._plan(job, by_product[name], limit) for name in fastest_first]
        known = [plan for plan in plans if plan is not None]
        if not known and len(by_product) > 1:
            return self._plan(job, fitting, limit)
        return min(known, key=lambda plan: plan.objective, default=None)

    def _plan(self, job: PlacementJob, fitting: Sequence[int], limit: Sequence[int] | None) -> _Plan | None:
        """Return the best of all ways to cut the groups out of the domains; None where there is no room."""
        if self.reach is Level.DOMAIN:
            ways: list[_Way | None] = [self._whole(job, fitting, limit)]
        else:
            parts = [n for n in range(job.tp, 1, -1) if job.tp % n == 0] if self.costs else [job.tp]
            ways = [self._stretched(job, fitting, n) for n in parts]
        plans = [self._dealt(job, fitting, *way) for way in ways if way and sum(way[0].room) >= job.groups]
        best = min(plans, key=lambda plan: plan.objective, default=None)
        small = job.groups <= MOST_GROUPS and len(fitting) <= MOST_GROUPS
        if best is None or self.costs is None or limit is not None or not small:
            return best
        return self._least(job, fitting, self.costs, best.objective[0]) or best

    def _least(
        self, job: PlacementJob, fitting: Sequence[int], costs: LayoutCosts, below: float
    ) -> _Plan | None:
        """Return the best of all plans, where they are few and at least one costs less than `below`."""
        free = [self.rooms[one].free for one in fitting]
        groups = [one for one in self._groups(job, fitting, free) if math.isfinite(costs.of_replica([one]))]
        takes = [
            [dict(zip(one.domains, one.shares, strict=True)).get(n, 0) for n in fitting] for one in groups
        ]

        def of_replica(ways: Sequence[int]) -> float:
            return costs.of_replica([groups[way] for way in ways])

        def of_stage(ways: Sequence[int]) -> float:
            return costs.of_stage([groups[way] for way in ways], job.pp)

        grid = least(takes, free, job.replicas, job.pp, of_replica, of_stage, below)
        return None if grid is None else _Plan(tuple(groups), grid, (0.0,))

    def _groups(
        self, job: PlacementJob, fitting: Sequence[int], free: Sequence[int]
    ) -> Iterator[TensorGroup]:
        """Yield all groups, by GPUs in each domain; none where they are too many."""
        if self.reach is Level.DOMAIN:
            every: Iterable[Sequence[int]] = ([job.tp * (n == one) for n in fitting] for one in fitting)
        else:
            most = [min(n, job.tp) for n in free]
            few = math.prod(n + 1 for n in most) <= MOST_REPLICAS
            every = product(*(range(n + 1) for n in most)) if few else ()
        for taken in every:
            if sum(taken) == job.tp:
                parts = [(domain, n) for domain, n in zip(fitting, taken, strict=True) if n]
                domains, shares = zip(*parts, strict=True)
                group = TensorGroup((), Level.DOMAIN, shares, domains)
                level = self.space.levels[self._width([group])]
                if self.space.levels.index(level) <= self.space.levels.index(self.reach):
                    yield replace(group, level=level)

    def _dealt(
        self, job: PlacementJob, fitting: Sequence[int], sources: GroupSources, over: Sequence[Bundle]
    ) -> _Plan:
        levels, costs = self.space.levels, self.costs
        groups = tuple(TensorGroup((), Level.DOMAIN, (job.tp,), (one,)) for one in fitting)
        for one in over:
            leaves, shares = zip(*one.parts, strict=True)
            domains = tuple(fitting[leaf] for leaf in leaves)
            groups += (
                TensorGroup((), levels[one.level], tuple(n * job.tp // sum(shares) for n in shares), domains),
            )
        farthest = range(len(levels) - 1, 0, -1)
        stretched = tuple(float(sum(one.level >= level for one in over)) for level in farthest)
        if costs is None:
            grid = closest(sources, job.replicas, job.pp)
            widths = [self._width(groups[source] for source in one) for one in grid]
            objective = (*stretched, *(float(sum(one >= level for one in widths)) for level in farthest))
            return _Plan(groups, grid, objective)

        def price(grid: Grid) -> tuple[float, float]:
            return costs.price([[groups[source] for source in one] for one in grid])

        grid = cheapest(sources, job.replicas, job.pp, price)
        return _Plan(groups, grid, (*price(grid), *stretched))

    def _width(self, groups: Iterable[TensorGroup]) -> int:
        """Return the position in the space's levels of the narrowest level that holds all groups."""
        units = zip(*(self.space.domains[n].units for one in groups for n in one.domains), strict=True)
        return next(place for place, same in enumerate(units) if len(set(same)) == 1)

    def _whole(self, job: PlacementJob, fitting: Sequence[int], limit: Sequence[int] | None) -> _Way:
        """Return each domain with the groups that lie whole in it, within its limit."""
        room = [self.rooms[one].free // job.tp for one in fitting]
        if limit is not None:
            room = [min(most, limit[one]) for most, one in zip(room, fitting, strict=True)]
        spare = [self.rooms[one].free - most * job.tp for most, one in zip(room, fitting, strict=True)]
        return GroupSources(room, self._paths(fitting), spare), ()

    def _stretched(self, job: PlacementJob, fitting: Sequence[int], parts: int) -> _Way | None:
        """Return domains with the groups that lie whole in them, then groups over so many domains.

        Returns None where there is no room.
        """
        free = [self.rooms[one].free * parts // job.tp for one in fitting]
        paths = self._paths(fitting)
        found = bundles(free, paths, parts, job.groups, self.space.levels.index(self.reach))
        if len(found) < job.groups:
            return None
        counts = [0] * len(fitting)
        for one in found:
            counts[one.parts[0][0]] += one.level == 0
        over = [one for one in found if one.level]
        # A group over several domains is a source of its own, inside the units that are around it.
        outer = [
            (*(-1 - place for _ in range(one.level)), *paths[one.parts[0][0]][one.level :])
            for place, one in enumerate(over)
        ]
        every = [(n, *path[1:]) for n, path in enumerate([*paths, *outer])]
        return GroupSources([*counts, *(1 for _ in over)], every), over

    def _paths(self, fitting: Sequence[int]) -> list[Nesting]:
        return [(place, *self.space.domains[one].units[1:]) for place, one in enumerate(fitting)]

    def _carried_out(self, job: PlacementJob, plan: _Plan, anywhere: bool) -> PlacedJob:  # noqa: FBT001
        """Return the plan with its GPUs, now taken. `anywhere`: no other job waits for the rest."""
        wanted = Counter(source for one in plan.grid for source in one)
        ready: dict[int, list[TensorGroup]] = {}
        # Groups that lie whole in a domain first: the others take what is left.
        for source in sorted(wanted, key=lambda one: (len(plan.sources[one].domains), one)):
            group, number = plan.sources[source], wanted[source]
            if len(group.domains) == 1:
                cut = self.rooms[group.domains[0]].cut(job.tp, number)
            else:
                parts = list(zip(group.domains, group.shares, strict=True))
                cut = [
                    tuple(gpu for domain, n in parts for gpu in self.rooms[domain].rest(n))
                    for _ in range(number)
                ]
            ready[source] = [replace(group, gpus=gpus) for gpus in cut]
        queues = {source: iter(groups) for source, groups in ready.items()}
        grid = [[next(queues[source]) for source in one] for one in plan.grid]
        if (
            self.costs is not None
            and anywhere
            and any(domain.cells[0].node.rails for domain in self.space.domains)
        ):
            grid = self._on_rails(job, grid, self.costs)
        levels = self.space.levels
        replicas = tuple(Replica(tuple(one), levels[self._width(one)]) for one in grid)
        used = {domain for one in grid for stage in one for domain in stage.domains}
        return PlacedJob(job, replicas, len({self.space.domains[one].product for one in used}) > 1)

    def _on_rails(
        self, job: PlacementJob, grid: list[list[TensorGroup]], costs: LayoutCosts
    ) -> list[list[TensorGroup]]:
        """Exchange groups where this leaves fewer messages that change their rail."""
        if job.groups > MOST_GROUPS:
            return grid
        groups = [group for one in grid for group in one]
        for domain in sorted({one.domains[0] for one in groups if len(one.domains) == 1}):
            room = self.rooms[domain]
            alike = TensorGroup((), Level.DOMAIN, (job.tp,), (domain,))
            groups += [replace(alike, gpus=gpus) for gpus in room.cut(job.tp, room.free // job.tp)]
        first = [[r * job.pp + s for s in range(job.pp)] for r in range(job.replicas)]
        each = [1] * len(groups)
        found, _ = bettered(each, first, lambda one: costs.price([[groups[n] for n in row] for row in one]))
        used = {n for one in found for n in one}
        for group in (group for n, group in enumerate(groups) if n not in used):
            for domain in group.domains:
                self.rooms[domain].give_back(group.gpus)
        return [[groups[n] for n in one] for one in found]


def place(
    space: Space, jobs: Sequence[PlacementJob], reach: Level = Level.DOMAIN, costs: LayoutCosts | None = None
) -> tuple[PlacedJob, ...] | Infeasible:
    """Place the jobs, in the given order.

    `space`: the free GPUs. `jobs`: a single job, or several side by side. `reach`: the level up to which a TP
    group may be stretched, where the groups do not all fit NVLink domains. `costs`: costs of layouts in the
    space, to minimise; without them stages are as close as possible.
    """
    order = sorted(range(len(jobs)), key=lambda one: (-jobs[one].tp, -jobs[one].memory, one))
    ordered = [jobs[one] for one in order]
    placed, proven = _Solver.of(space, Level.DOMAIN, costs).run(ordered), True
    if placed is None and len(jobs) > 1:
        placed, proven = _assigned(space, ordered, costs)
    if placed is None and reach > Level.DOMAIN:
        placed = _Solver.of(space, reach, costs).run(ordered)
        proven = len(jobs) == 1
    if placed is None:
        return Infeasible(_why(space, ordered, reach), proven)
    back: list[PlacedJob] = [placed[0]] * len(jobs)
    for where, one in zip(order, placed, strict=True):
        back[where] = one
    return tuple(back)


def _assigned(
    space: Space, jobs: Sequence[PlacementJob], costs: LayoutCosts | None
) -> tuple[list[PlacedJob] | None, bool]:
    """Place the jobs, the largest TP first, within `assign`'s limits; None, and whether this is proven."""
    fitting = [set(_eligible(space, job)) for job in jobs]
    kinds = [
        DomainSize(domain.free, tuple(place in one for one in fitting))
        for place, domain in enumerate(space.domains)
    ]
    found = assign(kinds, [job.tp for job in jobs], [job.groups for job in jobs])
    if found.groups is None:
        return None, found.proven
    limits = list(zip(*found.groups, strict=True))
    return _Solver.of(space, Level.DOMAIN, costs).run(jobs, limits), True


def _arithmetic(name: str) -> float:
    """Return operations per second of a product, 0 where not known."""
    known = gpu_product(name)
    return known.arithmetic if known else 0.0


def _eligible(space: Space, job: PlacementJob) -> list[int]:
    return [place for place, one in enumerate(space.domains) if not job.memory or one.memory() >= job.memory]


def _why(space: Space, jobs: Sequence[PlacementJob], reach: Level) -> str:
    """Return why the jobs do not fit, with the simplest reason first."""
    for job in jobs:
        fitting = [space.domains[one] for one in _eligible(space, job)]
        why = _too_little(job, fitting, reach)
        if why:
            smaller = len(fitting) < len(space.domains)
            gb = f" (GPUs with {job.memory / 1e9:.1f} GB and more are counted)" if smaller else ""
            return why + gb
    taken = sum(job.gpus for job in jobs)
    if taken > space.free:
        return f"together the jobs take {taken} GPUs, and {_free(space.free)}"
    return "each job fits alone, but their TP groups do not fit whole into the NVLink domains side by side"


def _too_little(job: PlacementJob, domains: Sequence[Domain], reach: Level) -> str:
    free = sum(one.free for one in domains)
    if not domains:
        return "no GPU is free that may be used"
    if free < job.gpus:
        replicas = f"{job.replicas} replica{'s' if job.replicas > 1 else ''}"
        return f"TP {job.tp} x PP {job.pp} x {replicas} takes {job.gpus} GPUs, and {_free(free)}"
    if reach > Level.DOMAIN:
        return "" if reach is Level.CLUSTER else _within(job, reach)
    largest = max(domains, key=lambda one: one.free)
    if largest.free < job.tp:
        where = f"{largest.free} ({largest.name})"
        return f"TP {job.tp} takes {job.tp} free GPUs in one NVLink domain, and the largest has {where}"
    room = sum(one.free // job.tp for one in domains)
    if room < job.groups:
        return (
            f"{job.groups} TP groups of {job.tp} GPUs have to lie whole in NVLink domains, and there is room "
            f"for {room}: of the {free} free GPUs {free - room * job.tp} are left over in pieces"
        )
    return ""


def _free(gpus: int) -> str:
    return f"{gpus} {'is' if gpus == 1 else 'are'} free"


def _within(job: PlacementJob, reach: Level) -> str:
    return f"{job.groups} TP groups of {job.tp} GPUs do not fit, even stretched within {WORDS[reach]} each"
