"""Which network card each GPU uses: the nearest, evenly, exactly.

In this order: how far the path goes (inside the PCIe switches, over the host bridge, over the wire between
sockets); whether a card is there for the GPUs at all, and not for storage; the time of the slowest GPU when
all send at once, then that of the next; the exact path; natural order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from itertools import pairwise

from wirewatch.busbw.expected import pcie_rate
from wirewatch.core.pci import Path
from wirewatch.core.probe import RdmaPort
from wirewatch.core.types import Absent
from wirewatch.verdict.drift.wiring import natural


@dataclass(slots=True)
class _Bins:
    """Where each item is so far; `by_pair[item][bin]`: the cost of that pair."""

    by_pair: Sequence[Sequence[int]]
    more: Callable[[int, int], int]
    place: list[int] = field(default_factory=list)

    def add(self) -> None:
        """Put in the next item; others may move to make room."""
        item = len(self.place)
        costs, came = self._paths(item)
        end = min(
            range(len(costs)), key=lambda one: (costs[one] + self.more(one, self.place.count(one) + 1), one)
        )
        self.place.append(end)
        while (step := came[end]) is not None:
            end, moved = step
            self.place[moved], self.place[item] = self.place[item], end

    def _paths(self, item: int) -> tuple[list[int], list[tuple[int, int] | None]]:
        """The least cost of one item more in each bin, and from where which item comes to it then."""
        costs = list(self.by_pair[item])
        came: list[tuple[int, int] | None] = [None] * len(costs)
        changed = True
        while changed:
            changed = False
            for moved, at in enumerate(self.place):
                left = costs[at] - self.by_pair[moved][at]
                for to, cost in enumerate(self.by_pair[moved]):
                    if left + cost < costs[to]:
                        costs[to], came[to], changed = left + cost, (at, moved), True
        return costs, came


def spread(by_pair: Sequence[Sequence[int]], more: Callable[[int, int], int]) -> tuple[int, ...]:
    """The bin of each item, so that the sum of all costs is the least.

    Args:
        by_pair: for each item, the cost of each bin; at least one bin.
        more: what the n-th item of a bin costs beside, by bin and n from 1 on; it never falls with n.
    """
    bins = _Bins(by_pair, more)
    for _ in by_pair:
        bins.add()
    return tuple(bins.place)


NO_RATE = 1.0
"""Where rates are not known, all are alike."""


class Reach(IntEnum):
    """How far a path goes, by what it costs: GPUDirect RDMA passes PCIe switches at full rate."""

    SWITCH = 0
    HOST = 1
    SOCKETS = 2
    UNKNOWN = 3


REACH: Mapping[str, Reach] = {
    Path.PIX.name: Reach.SWITCH, Path.PXB.name: Reach.SWITCH, Path.PHB.name: Reach.HOST,
    Path.NODE.name: Reach.HOST, Path.SYS.name: Reach.SOCKETS,
}  # fmt: skip
"""NCCL has no NODE: to it host bridges of one NUMA node are as near as one bridge."""
Cost = tuple[int, int, tuple[Fraction, ...], int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NicCard:
    """A network card: its usable ports, the fastest first. `slot`: bytes per second of its PCIe link.

    `rates` of the ports in bytes per second. `paths`: from each GPU. `serves`: it is as near to a GPU as any
    card that is here, up or down.
    """

    ports: tuple[RdmaPort, ...]
    rates: tuple[float, ...]
    slot: float | None
    paths: tuple[str, ...]
    serves: bool

    def seconds(self, gpus: int) -> Fraction:
        """Time of a byte for each of so many GPUs that send at once; exact, so that it never falls."""
        wire = sum(map(Fraction, self.rates[:gpus]))
        return Fraction(gpus) / (wire if self.slot is None else min(wire, Fraction(self.slot)))


@dataclass(frozen=True, slots=True)
class NicPlan:
    """A card for each GPU, by position in `cards`, and what it costs."""

    cards: tuple[NicCard, ...]
    place: tuple[int, ...]
    cost: Cost


def plan(gpus: int, usable: Sequence[RdmaPort], here: Sequence[RdmaPort]) -> NicPlan | None:
    """The best plan over ports of one link layer; None without a port.

    Args:
        gpus: how many there are; `paths` of each port are in their order.
        usable: ports that can be used.
        here: all ports of the node that could be used if they were up.
    """
    cards = make_cards(gpus, usable, here)
    if not cards:
        return None
    place = spread(_pairs(gpus, cards), _marginal(gpus, cards)) if gpus else ()
    return NicPlan(cards, place, cost(cards, place))


def cost(cards: Sequence[NicCard], place: Sequence[int]) -> Cost:
    """What a plan costs, the first aim first; lower is better."""
    ways = [cards[card].paths[gpu] for gpu, card in enumerate(place)]
    load = {card: place.count(card) for card in place}
    times = sorted((cards[card].seconds(load[card]) for card in place), reverse=True)
    return (
        sum(reach(way) for way in ways), sum(not cards[card].serves for card in place), tuple(times),
        sum(steps(way) for way in ways), tuple(place),
    )  # fmt: skip


def reach(path: str) -> Reach:
    """How far a path goes."""
    return REACH.get(path, Reach.UNKNOWN)


def steps(path: str) -> int:
    """The exact path as a number, the nearest lowest; an unknown one highest."""
    return int(Path[path]) if path in REACH else len(Path)


def make_cards(gpus: int, usable: Sequence[RdmaPort], here: Sequence[RdmaPort]) -> tuple[NicCard, ...]:
    """The cards of usable ports, in natural order."""
    nearest = [min((reach(port.paths[gpu]) for port in here), default=Reach.UNKNOWN) for gpu in range(gpus)]
    known = all(not isinstance(port.rate, Absent) for port in usable)
    grouped: dict[tuple[str, tuple[str, ...]], list[RdmaPort]] = {}
    for port in sorted(usable, key=port_order):
        grouped.setdefault((port.card or port.device, port.paths), []).append(port)
    cards = []
    for (_, paths), ports in grouped.items():
        rated = sorted(
            ((rate_of(port) if known else NO_RATE, port) for port in ports), key=lambda one: -one[0]
        )
        serves = any(reach(paths[gpu]) == nearest[gpu] for gpu in range(gpus))
        slot = slot_rate(ports[0]) if known else None
        cards.append(NicCard(tuple(p for _, p in rated), tuple(r for r, _ in rated), slot, paths, serves))
    return tuple(cards)


def port_order(port: RdmaPort) -> tuple[object, ...]:
    """Natural order of device and port."""
    return natural(port.device), natural(port.port), port.card, port.paths


def rate_of(port: RdmaPort) -> float:
    """Bytes per second; 0 where it is not known."""
    return 0.0 if isinstance(port.rate, Absent) else port.rate


def slot_rate(port: RdmaPort) -> float | None:
    """Bytes per second of a card's PCIe link each way; None where it is not known."""
    if isinstance(port.pcie, Absent):
        return None
    rate = pcie_rate(port.pcie.generation, port.pcie.lanes)
    return None if isinstance(rate, Absent) else rate


def _pairs(gpus: int, cards: Sequence[NicCard]) -> list[list[int]]:
    """The cost of each GPU on each card, but for how many share it; see `_units`."""
    far, stranger, _, step = _units(gpus, cards)
    return [
        [
            far * reach(card.paths[gpu])
            + stranger * (not card.serves)
            + step * steps(card.paths[gpu])
            + number * len(cards) ** (gpus - 1 - gpu)
            for number, card in enumerate(cards)
        ]
        for gpu in range(gpus)
    ]


def _marginal(gpus: int, cards: Sequence[NicCard]) -> "Marginal":
    _, _, time, _ = _units(gpus, cards)
    ranks = {seconds: rank for rank, seconds in enumerate(_times(gpus, cards))}
    whole = [
        [n * (gpus + 1) ** ranks[card.seconds(n)] if n else 0 for n in range(gpus + 1)] for card in cards
    ]
    return Marginal(tuple(tuple(time * (b - a) for a, b in pairwise(row)) for row in whole))


@dataclass(frozen=True, slots=True)
class Marginal:
    """What one GPU more on a card costs, by card and number.

    A GPU costs (gpus + 1) ** r, if its time is the r-th of all that there can be: all faster ones together
    cost less, so that the least sum has the fastest slowest GPU, then the fastest next.
    """

    rows: tuple[tuple[int, ...], ...]

    def __call__(self, card: int, number: int) -> int:
        """For the n-th GPU, from 1 on."""
        return self.rows[card][number - 1]


def _times(gpus: int, cards: Sequence[NicCard]) -> list[Fraction]:
    return sorted({card.seconds(number) for card in cards for number in range(1, gpus + 1)})


def _units(gpus: int, cards: Sequence[NicCard]) -> tuple[int, int, int, int]:
    """The weights of reach, strangers, times and steps, each above all that the later ones can sum up to."""
    step = len(cards) ** gpus
    time = step * (gpus * len(Path) + 1)
    stranger = time * (gpus * (gpus + 1) ** len(_times(gpus, cards)) + 1)
    return stranger * (gpus + 1), stranger, time, step
