"""Which part of one graph is which of the other, and which bridge is which."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from wirewatch.verdict.drift.graph import GpuNode, Graph, NicNode, Node, Spot

Part = TypeVar("Part", bound=Node)


@dataclass(frozen=True, slots=True)
class Matched(Generic[Part]):
    """`same`: the same part before and after. `replaced`: another part where one was.

    A part without a name at another address could be any that is missing on its side: while there is one,
    nothing is `lost` or `new` that it could be.
    """

    same: tuple[tuple[Part, Part], ...]
    replaced: tuple[tuple[Part, Part], ...]
    lost: tuple[Part, ...]
    new: tuple[Part, ...]

    @property
    def pairs(self) -> tuple[tuple[Part, Part], ...]:
        """Before and after at each place that is taken in both."""
        return (*self.same, *self.replaced)


@dataclass(frozen=True, slots=True)
class Renaming:
    """Which root or bridge of the graph before is which of the graph after.

    `steady`: whether addresses mean what they meant: all parts known by name have kept theirs.
    """

    names: Mapping[str, str]
    steady: bool

    def kept(self, before: Spot, after: Spot) -> bool:
        """Whether a part hangs where it hung, by whatever numbers; True while that is not known."""
        one, other = before.chain, after.chain
        if not one or not other:
            return True
        return len(one) == len(other) and all(self.names.get(x) == y for x, y in zip(one, other, strict=True))

    def same_slot(self, before: Spot, after: Spot) -> bool:
        """Whether two parts sat in the same place; what has nothing else below it is told by its number."""
        one, other = before.chain, after.chain
        if not one or not other or (one == other and len(one) == 1):
            return self.same_address(before, after)
        if len(one) != len(other):
            return False
        top = self._same(one[0], other[0]) or (one[0] == other[0] and self._free(one[0], other[0]))
        below = zip((*one[1:], before.address), (*other[1:], after.address), strict=True)
        return top and all(
            self._same(x, y) or (self._free(x, y) and device_number(x) == device_number(y)) for x, y in below
        )

    def same_address(self, before: Spot, after: Spot) -> bool:
        return self.steady and bool(before.address) and before.address == after.address

    def _same(self, before: str, after: str) -> bool:
        return self.names.get(before) == after

    def _free(self, before: str, after: str) -> bool:
        return before not in self.names and after not in self.names.values()


def device_number(address: str) -> str:
    """Device and function, which do not change with the number of the bus."""
    return address.rpartition(":")[2]


def match(before: Graph, after: Graph) -> tuple[Matched[GpuNode], Matched[NicNode], Renaming]:
    """Who is who."""
    gpus = _by_names(before.gpus, after.gpus, [lambda gpu: gpu.name])
    nics = _by_names(before.nics, after.nics, [lambda nic: nic.name, lambda nic: nic.name and nic.guid])
    voters = [(one.spot, other.spot, (0, other.key)) for one, other in gpus]
    voters += [(one.spot, other.spot, (1, other.guid)) for one, other in nics]
    known = [(one.address, other.address) for one, other, _ in voters if one.address and other.address]
    steady = bool(known) and all(one == other for one, other in known)
    renaming = Renaming(_names(voters), steady)
    return (
        _matched(gpus, before.gpus, after.gpus, renaming),
        _matched(nics, before.nics, after.nics, renaming),
        renaming,
    )


def _by_names(
    before: Sequence[Part], after: Sequence[Part], names: Sequence[Callable[[Part], str]]
) -> list[tuple[Part, Part]]:
    """Pairs by the first name that tells them."""
    pairs: list[tuple[Part, Part]] = []
    for name in names:
        pairs += _unique(_left(before, pairs, 0), _left(after, pairs, 1), name)
    return pairs


def _left(parts: Sequence[Part], pairs: Sequence[tuple[Part, Part]], side: int) -> list[Part]:
    """Parts of one side that are in no pair."""
    paired = {id(pair[side]) for pair in pairs}
    return [part for part in parts if id(part) not in paired]


def _unique(
    before: Sequence[Part], after: Sequence[Part], name: Callable[[Part], str]
) -> list[tuple[Part, Part]]:
    counts = Counter(map(name, before)), Counter(map(name, after))
    theirs = {name(part): part for part in after}
    return [
        (part, theirs[name(part)])
        for part in before
        if name(part) and counts[0][name(part)] == counts[1][name(part)] == 1
    ]


def _matched(
    named: Sequence[tuple[Part, Part]], before: Sequence[Part], after: Sequence[Part], renaming: Renaming
) -> Matched[Part]:
    left, right = _left(before, named, 0), _left(after, named, 1)
    here = _unique(left, right, lambda part: part.spot.address) if renaming.steady else []
    same = [*named, *((one, other) for one, other in here if not one.name or not other.name)]
    left, right = _left(before, same, 0), _left(after, same, 1)
    lost, new = _surely(left, right), _surely(right, left)
    replaced: list[tuple[Part, Part]] = []
    for one in lost:
        free = _left(new, replaced, 1)
        replaced += [(one, other) for other in free if renaming.same_slot(one.spot, other.spot)][:1]
    return Matched(
        tuple(same), tuple(replaced), tuple(_left(lost, replaced, 0)), tuple(_left(new, replaced, 1))
    )


def _surely(here: Sequence[Part], there: Sequence[Part]) -> list[Part]:
    """Parts left over that cannot be one that is left over there."""
    if not all(part.name for part in there):
        return []
    return [part for part in here if part.name or not there]


def _names(pairs: Sequence[tuple[Spot, Spot, tuple[int, str]]]) -> Mapping[str, str]:
    """New names of roots and bridges by vote of what hangs below, from the roots down.

    If even, the name that stayed, then what has no other choice, then a GPU's vote. Parts that moved are
    outvoted by those that stayed; where all names changed alike there is no other vote.
    """
    names: dict[str, str] = {}
    for level in range(max((len(one.chain) for one, _, _ in pairs), default=0)):
        votes: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for before, after, voter in pairs:
            one, other = before.chain, after.chain
            above = zip(one[:level], other[:level], strict=False)
            if min(len(one), len(other)) > level and all(names.get(x) == y for x, y in above):
                votes.setdefault((one[level], other[level]), []).append(voter)
        taken = set[str]()
        choices = Counter(name for old, new in votes for name in (f"from {old}", f"to {new}"))
        ranked = sorted(
            votes.items(),
            key=lambda vote: (
                -len(vote[1]),
                len(set(vote[0])),
                choices[f"from {vote[0][0]}"] + choices[f"to {vote[0][1]}"],
                min(vote[1]),
            ),
        )
        for (x, y), _ in ranked:
            if x not in names and y not in taken:
                names[x] = y
                taken.add(y)
    return names
