"""Which GPUs each tensor-parallel group, pipeline stage and replica of a job takes. Pure.

A TP group lies whole in one NVLink domain whenever all can; a domain with f free GPUs has room for f // tp of
them, so that is decided exactly. Replicas then lie in as narrow units as they can (`bundles`, exact too for
one job). Several jobs are placed the largest TP first, each whole. Where that fails, `assign` decides which
domain gets what: bin packing with bins of several sizes. A search that reaches its limit says so.
Nodes of one product are preferred to nodes of several, of products the fastest. Ties go by natural order of
names, so the order in which nodes are listed changes nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from wirewatch.core.hostlist import natural
from wirewatch_lab.advice.placement.cluster import ClusterNode
from wirewatch_lab.advice.placement.space import WORDS, Bundle, Domain, Level, Nesting, Space, bundles
from wirewatch_lab.advice.products import gpu_product

MOST_STEPS = 100_000
"""Steps of one search; about a second."""
MOST_FILLS = 400
"""Ways to fill a domain, over all kinds of domains: no search goes deeper."""
Numbers = tuple[int, ...]
"""How many groups of each size, in the order of the sizes."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """How many groups of each size each domain gets; None: none was found. `proven`: there is none at all."""

    groups: tuple[Numbers, ...] | None
    proven: bool = True


@dataclass(frozen=True, slots=True)
class DomainSize:
    """Domains that are alike: free GPUs, and which of the sizes they may take."""

    free: int
    allowed: tuple[bool, ...]


def assign(domains: Sequence[DomainSize], sizes: Sequence[int], counts: Sequence[int]) -> Assignment:
    """So many groups of each size in the domains.

    `domains`: in any order; what they get is in the same. `sizes`: GPUs of a group, all different, the
    largest first. `counts`: how many groups of each.
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
    """Whether no simple bound forbids it: groups of each size and larger ones, and GPUs."""
    for place, size in enumerate(sizes):
        room = sum(one.free // size for one in domains if any(one.allowed[: place + 1]))
        if room < sum(counts[: place + 1]):
            return False
    usable = {one: _fullest(one, sizes) for one in set(domains)}
    return sum(usable[one] for one in domains) >= sum(s * n for s, n in zip(sizes, counts, strict=True))


def _fullest(domain: DomainSize, sizes: Sequence[int]) -> int:
    """The most GPUs of it that groups can take."""
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
    """Largest groups first, each in the domain that they fill best; None where one finds no room."""
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
    """Depth first over kinds of domains and the ways to fill them, with the failures remembered."""

    def __init__(self, domains: Sequence[DomainSize], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.steps = 0
        self._kinds = sorted(Counter(domains).items(), key=lambda one: (one[0].free, one[0].allowed))
        self._fills = [tuple(islice(self.fills(kind), MOST_FILLS + 1)) for kind, _ in self._kinds]
        self._failed: set[tuple[int, int, int, Numbers]] = set()
        self._chosen: dict[DomainSize, list[Numbers]] = {kind: [] for kind, _ in self._kinds}

    def run(self, counts: Numbers) -> Mapping[DomainSize, list[Numbers]] | None:
        """What each kind's domains take; None where there is nothing, or the limit is reached."""
        if sum(map(len, self._fills)) > MOST_FILLS:
            self.steps = MOST_STEPS + 1
            return None
        if not self._descend(0, 0, counts):
            return None
        for kind, number in self._kinds:
            self._chosen[kind] += [(0,) * len(self.sizes)] * (number - len(self._chosen[kind]))
        return self._chosen

    def _descend(self, kind: int, used: int, wanted: Numbers, fill: int = 0) -> bool:
        """Whether the wanted groups fit, with so many domains of a kind used, from this fill on."""
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
        """How many domains may take this fill before it gives nothing that is wanted."""
        useful = [-(-w // n) for w, n in zip(wanted, fill, strict=True) if n]
        return min(domains, max(useful, default=0))

    @staticmethod
    def _given(fill: Numbers, wanted: Numbers, times: int) -> list[Numbers]:
        """The fill so many times, without what is not wanted of it."""
        given = []
        for _ in range(times):
            one = tuple(min(w, n) for w, n in zip(wanted, fill, strict=True))
            wanted = tuple(w - n for w, n in zip(wanted, one, strict=True))
            given.append(one)
        return given

    def fills(self, kind: DomainSize) -> Iterator[Numbers]:
        """All ways to fill a domain to which nothing can be added."""
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


@dataclass(frozen=True, slots=True)
class PlacementJob:
    """`replicas` of a model in `pp` stages of `tp` GPUs each. `memory`: bytes that each GPU has to have."""

    tp: int
    pp: int = 1
    replicas: int = 1
    memory: float = 0.0

    @property
    def groups(self) -> int:
        """TP groups in all."""
        return self.pp * self.replicas

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.tp * self.groups


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """A GPU by its node and index."""

    node: ClusterNode
    index: int


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """The GPUs of one TP group by rank. `level`: how far apart. `shares`: GPUs in each of its domains."""

    gpus: tuple[PlacedGpu, ...]
    level: Level
    shares: tuple[int, ...]
    domains: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replica:
    """TP groups by stage. `level`: the narrowest that has all of its GPUs."""

    stages: tuple[TensorGroup, ...]
    level: Level


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job with its replicas; `mixed`: they are on GPUs of several products."""

    job: PlacementJob
    replicas: tuple[Replica, ...]
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No placement; `proven`: there is none, else none was found."""

    reason: str
    proven: bool = True


@dataclass(slots=True)
class _Room:
    """Free GPUs of a domain by cell, with their places in the island, while groups are cut out of them."""

    domain: Domain
    cells: list[list[tuple[int, int]]]

    @classmethod
    def of(cls, domain: Domain) -> "_Room":
        return cls(domain, [list(zip(cell.gpus, cell.places, strict=True)) for cell in domain.cells])

    @property
    def free(self) -> int:
        return sum(map(len, self.cells))

    def cut(self, size: int, count: int) -> list[tuple[PlacedGpu, ...]]:
        """So many groups, each on one node if it can be, then of neighbours if it can be."""
        paths: list[Nesting] = [(place, 0) for place in range(len(self.cells))]
        found = bundles([len(cell) for cell in self.cells], paths, size, count)
        inside_first = sorted(range(count), key=lambda one: found[one].level)
        groups: list[tuple[PlacedGpu, ...]] = [()] * count
        for one in inside_first:
            groups[one] = tuple(gpu for cell, n in found[one].parts for gpu in self._take(cell, n))
        return sorted(groups, key=lambda group: (natural(group[0].node.name), group[0].index))

    def rest(self, count: int) -> tuple[PlacedGpu, ...]:
        """So many GPUs of what is left."""
        taken: list[PlacedGpu] = []
        for place, cell in enumerate(self.cells):
            taken += self._take(place, min(len(cell), count - len(taken)))
        return tuple(taken)

    def _take(self, cell: int, count: int) -> list[PlacedGpu]:
        free = self.cells[cell]
        blocks: dict[int, list[tuple[int, int]]] = {}
        for one in free:
            blocks.setdefault(one[1] // max(1, count), []).append(one)
        taken = next((block for block in blocks.values() if len(block) == count), free[:count])
        self.cells[cell] = [one for one in free if one not in taken]
        return [PlacedGpu(self.domain.cells[cell].node, index) for index, _ in taken]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where a job's TP groups come from, and which of these sources each replica takes them from.

    `inside`: the domain of each source whose groups lie whole in it. `stretched`: GPUs by domain of each
    source that is a single group over several. Positions count `inside` first.
    """

    inside: tuple[int, ...]
    stretched: tuple[tuple[Level, tuple[tuple[int, int], ...]], ...]
    replicas: tuple[Bundle, ...]
    objective: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Sources:
    """What TP groups are taken from. `room`: groups of each; `over`: groups that are sources themselves."""

    room: Sequence[int]
    paths: Sequence[Nesting]
    spare: Sequence[int]
    over: Sequence[Bundle] = ()


@dataclass(slots=True)
class _Solver:
    """Rooms of all domains, from which jobs take their GPUs one after the other."""

    space: Space
    reach: Level
    rooms: list[_Room]

    @classmethod
    def of(cls, space: Space, reach: Level) -> "_Solver":
        return cls(space, reach, [_Room.of(domain) for domain in space.domains])

    def run(
        self, jobs: Sequence[PlacementJob], limits: Sequence[Sequence[int]] | None = None
    ) -> list[PlacedJob] | None:
        """The jobs one after the other; None when one does not fit. `limits`: groups by job and domain."""
        placed = []
        for number, job in enumerate(jobs):
            plan = self._best(job, None if limits is None else limits[number])
            if plan is None:
                return None
            placed.append(self._carried_out(job, plan))
        return placed

    def _best(self, job: PlacementJob, limit: Sequence[int] | None) -> _Plan | None:
        """The best plan on one product if there is any, of equal ones on the fastest, else one on all."""
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
        levels = self.space.levels
        whole = self.reach is Level.DOMAIN
        sources = self._whole(job, fitting, limit) if whole else self._stretched(job, fitting)
        if sources is None or sum(sources.room) < job.groups:
            return None
        over = sources.over
        replicas = bundles(sources.room, sources.paths, job.pp, job.replicas, spare=sources.spare)
        stretched = tuple(
            (levels[one.level], tuple((fitting[leaf], n) for leaf, n in one.parts)) for one in over
        )
        farthest = range(len(levels) - 1, 0, -1)
        objective = (
            *(sum(one.level >= level for one in over) for level in farthest),
            *(sum(one.level >= level for one in replicas) for level in farthest),
        )
        return _Plan(tuple(fitting), stretched, replicas, objective)

    def _whole(self, job: PlacementJob, fitting: Sequence[int], limit: Sequence[int] | None) -> _Sources:
        """Each domain with as many groups as lie whole in it, and no more than its limit."""
        room = [self.rooms[one].free // job.tp for one in fitting]
        if limit is not None:
            room = [min(most, limit[one]) for most, one in zip(room, fitting, strict=True)]
        spare = [self.rooms[one].free - most * job.tp for most, one in zip(room, fitting, strict=True)]
        return _Sources(room, self._paths(fitting), spare)

    def _stretched(self, job: PlacementJob, fitting: Sequence[int]) -> _Sources | None:
        """Domains with the groups that lie whole in them, then each group over several; None: no room."""
        free = [self.rooms[one].free for one in fitting]
        if sum(free) < job.gpus:
            return None
        paths = self._paths(fitting)
        found = bundles(free, paths, job.tp, job.groups, self.space.levels.index(self.reach))
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
        return _Sources([*counts, *(1 for _ in over)], every, [0] * len(every), over)

    def _paths(self, fitting: Sequence[int]) -> list[Nesting]:
        return [(place, *self.space.domains[one].units[1:]) for place, one in enumerate(fitting)]

    def _carried_out(self, job: PlacementJob, plan: _Plan) -> PlacedJob:
        """The plan with GPUs, which are then no longer free."""
        wanted: dict[int, int] = {}
        for bundle in plan.replicas:
            for source, number in bundle.parts:
                wanted[source] = wanted.get(source, 0) + number
        groups: dict[int, list[TensorGroup]] = {}
        for source, domain in enumerate(plan.inside):
            if source in wanted:
                cut = self.rooms[domain].cut(job.tp, wanted[source])
                whole = (job.tp,)
                groups[source] = [TensorGroup(gpus, Level.DOMAIN, whole, (domain,)) for gpus in cut]
        for source, (level, parts) in enumerate(plan.stretched, len(plan.inside)):
            gpus = tuple(gpu for domain, number in parts for gpu in self.rooms[domain].rest(number))
            domains, shares = zip(*parts, strict=True)
            groups[source] = [TensorGroup(gpus, level, shares, domains)]
        queues = {source: iter(ready) for source, ready in groups.items()}
        replicas = tuple(self._replica(one, queues) for one in plan.replicas)
        used = {domain for one in replicas for stage in one.stages for domain in stage.domains}
        return PlacedJob(job, replicas, len({self.space.domains[one].product for one in used}) > 1)

    def _replica(self, bundle: Bundle, queues: Mapping[int, Iterator[TensorGroup]]) -> Replica:
        """The next groups of its sources; a stretched group may be wider than the stages are apart."""
        stages = tuple(next(queues[source]) for source, number in bundle.parts for _ in range(number))
        levels = self.space.levels
        widest = max(bundle.level, *(levels.index(stage.level) for stage in stages))
        return Replica(stages, levels[widest])


def place(
    space: Space, jobs: Sequence[PlacementJob], reach: Level = Level.DOMAIN
) -> tuple[PlacedJob, ...] | Infeasible:
    """The jobs with their GPUs, in the order given.

    `space`: the free GPUs. `jobs`: one, or several that are placed side by side. `reach`: how far a TP group
    may be stretched where not all of them fit into NVLink domains; a level of the space.
    """
    order = sorted(range(len(jobs)), key=lambda one: (-jobs[one].tp, -jobs[one].memory, one))
    ordered = [jobs[one] for one in order]
    placed, proven = _Solver.of(space, Level.DOMAIN).run(ordered), True
    if placed is None and len(jobs) > 1:
        placed, proven = _assigned(space, ordered)
    if placed is None and reach > Level.DOMAIN:
        placed = _Solver.of(space, reach).run(ordered)
        proven = len(jobs) == 1
    if placed is None:
        return Infeasible(_why(space, ordered, reach), proven)
    back: list[PlacedJob] = [placed[0]] * len(jobs)
    for where, one in zip(order, placed, strict=True):
        back[where] = one
    return tuple(back)


def _assigned(space: Space, jobs: Sequence[PlacementJob]) -> tuple[list[PlacedJob] | None, bool]:
    """The jobs, the largest TP first, where `assign` lets them; None, and whether it is proven."""
    fitting = [set(_eligible(space, job)) for job in jobs]
    kinds = [
        DomainSize(domain.free, tuple(place in one for one in fitting))
        for place, domain in enumerate(space.domains)
    ]
    found = assign(kinds, [job.tp for job in jobs], [job.groups for job in jobs])
    if found.groups is None:
        return None, found.proven
    limits = list(zip(*found.groups, strict=True))
    return _Solver.of(space, Level.DOMAIN).run(jobs, limits), True


def _arithmetic(name: str) -> float:
    """Operations per second of a product, 0 where they are not known."""
    known = gpu_product(name)
    return known.arithmetic if known else 0.0


def _eligible(space: Space, job: PlacementJob) -> list[int]:
    return [place for place, one in enumerate(space.domains) if not job.memory or one.memory() >= job.memory]


def _why(space: Space, jobs: Sequence[PlacementJob], reach: Level) -> str:
    """Why the jobs do not fit, the first of the reasons in the order of what is simplest to see."""
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
