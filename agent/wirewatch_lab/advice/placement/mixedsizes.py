"""Groups of several sizes in NVLink domains, none of them split: exact search with a limit. Pure.

Whether groups of 4 and 6 fit whole into domains with 6 and 4 free GPUs is bin packing with bins of several
sizes. Sizes of which each divides the next larger one are placed largest first, which is then exact. Other
sizes are searched, equal domains together, and a search that reaches its limit says so.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

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
