"""Exact choice of RDMA ports for each GPU of a node, with reasons for used and unused ports.

The first aim is the reach of the path: inside PCIe switches, over the host bridge, or between sockets. Next,
cards for GPUs precede cards for storage. Then follow the time of the slowest GPU when all send, the next
slowest, the exact path, and natural order.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction
from functools import cache
from statistics import median

from wirewatch.busbw.expected import pcie_rate
from wirewatch.core.hostlist import natural
from wirewatch.core.pci import Path
from wirewatch.core.probe import RdmaPort
from wirewatch.core.rdma import ACTIVE, gigabits
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import GpuPart
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import GB
from wirewatch_lab.advice.gpunic.locality import ETHERNET, Locality


def spread(by_pair: Sequence[Sequence[int]], more: Callable[[int, int], int]) -> tuple[int, ...]:
    """Return the bin of each item with the least sum of all costs.

    `by_pair`: for each item, the cost of each bin; at least one bin. `more`: the extra cost of a bin's n-th
    item, by bin and n from 1 on; it never falls with n.
    """
    place: list[int] = []
    for item, pairs in enumerate(by_pair):
        costs, came = _paths(by_pair, place, pairs)
        end = min(range(len(costs)), key=lambda one: (costs[one] + more(one, place.count(one) + 1), one))
        place.append(end)
        while (step := came[end]) is not None:  # Others move to make room.
            end, moved = step
            place[moved], place[item] = place[item], end
    return tuple(place)


def _paths(
    by_pair: Sequence[Sequence[int]], place: Sequence[int], pairs: Sequence[int]
) -> tuple[list[int], list[tuple[int, int] | None]]:
    """Return the least cost of one more item in each bin, and which item moves there from where."""
    costs = list(pairs)
    came: list[tuple[int, int] | None] = [None] * len(costs)
    changed = True
    while changed:
        changed = False
        for moved, at in enumerate(place):
            left = costs[at] - by_pair[moved][at]
            for to, cost in enumerate(by_pair[moved]):
                if left + cost < costs[to]:
                    costs[to], came[to], changed = left + cost, (at, moved), True
    return costs, came


NO_RATE = 1.0
"""Common rate where no rates are known."""


class Reach(IntEnum):
    """How far a path goes, ordered by cost; GPUDirect RDMA passes PCIe switches at full rate."""

    SWITCH = 0
    HOST = 1
    SOCKETS = 2
    UNKNOWN = 3


REACH: Mapping[str, Reach] = {
    Path.PIX.name: Reach.SWITCH, Path.PXB.name: Reach.SWITCH, Path.PHB.name: Reach.HOST,
    Path.NODE.name: Reach.HOST, Path.SYS.name: Reach.SOCKETS,
}  # fmt: skip
"""NCCL has no NODE: host bridges of one NUMA node count as one bridge."""
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
        """Return the exact time of a byte for each of so many GPUs that send at once; it never falls."""
        wire = sum(map(Fraction, self.rates[:gpus]))
        return Fraction(gpus) / (wire if self.slot is None else min(wire, Fraction(self.slot)))


@dataclass(frozen=True, slots=True)
class NicPlan:
    """A card for each GPU, by position in `cards`, and the cost of the plan."""

    cards: tuple[NicCard, ...]
    place: tuple[int, ...]
    cost: Cost


def plan(gpus: int, usable: Sequence[RdmaPort], here: Sequence[RdmaPort]) -> NicPlan | None:
    """Return the best plan over ports of one link layer; None without a port.

    `gpus`: number of GPUs; `paths` of each port follow their order. `usable`: ports that can be used. `here`:
    all ports of the node that would be usable if up.
    """
    cards = make_cards(gpus, usable, here)
    if not cards:
        return None
    place = spread(_pairs(gpus, cards), _marginal(gpus, cards))
    return NicPlan(cards, place, cost(cards, place))


def cost(cards: Sequence[NicCard], place: Sequence[int]) -> Cost:
    """Return the cost of a plan, the first aim first; lower is better."""
    ways = [cards[card].paths[gpu] for gpu, card in enumerate(place)]
    load = {card: place.count(card) for card in place}
    times = sorted((cards[card].seconds(load[card]) for card in place), reverse=True)
    return (
        sum(reach(way) for way in ways), sum(not cards[card].serves for card in place), tuple(times),
        sum(steps(way) for way in ways), tuple(place),
    )  # fmt: skip


def reach(path: str) -> Reach:
    """Return how far a path goes."""
    return REACH.get(path, Reach.UNKNOWN)


def steps(path: str) -> int:
    """Return the exact path as a number, the nearest lowest and an unknown path highest."""
    return int(Path[path]) if path in REACH else len(Path)


def make_cards(gpus: int, usable: Sequence[RdmaPort], here: Sequence[RdmaPort]) -> tuple[NicCard, ...]:
    """Return the cards of usable ports, in natural order."""
    nearest = [min((reach(port.paths[gpu]) for port in here), default=Reach.UNKNOWN) for gpu in range(gpus)]
    known = all(not isinstance(port.rate, Absent) for port in usable)
    alike = grouped(((one.card or one.device, one.paths), one) for one in sorted(usable, key=port_order))
    cards = []
    for (_, paths), ports in alike.items():
        rates = [(rate_of(port) if known else NO_RATE, port) for port in ports]
        rated = sorted(rates, key=lambda one: -one[0])
        serves = any(reach(paths[gpu]) == nearest[gpu] for gpu in range(gpus))
        slot = slot_rate(ports[0]) if known else None
        cards.append(NicCard(tuple(p for _, p in rated), tuple(r for r, _ in rated), slot, paths, serves))
    return tuple(cards)


def port_order(port: RdmaPort) -> tuple[object, ...]:
    """Return the natural order of device and port."""
    return natural(port.device), natural(port.port), port.card, port.paths


def rate_of(port: RdmaPort) -> float:
    """Return bytes per second; 0 where not known."""
    return 0.0 if isinstance(port.rate, Absent) else port.rate


def slot_rate(port: RdmaPort) -> float | None:
    """Return bytes per second of a card's PCIe link each way; None where not known."""
    if isinstance(port.pcie, Absent):
        return None
    rate = pcie_rate(port.pcie.generation, port.pcie.lanes)
    return None if isinstance(rate, Absent) else rate


def _pairs(gpus: int, cards: Sequence[NicCard]) -> list[list[int]]:
    """Return the cost of each GPU on each card, apart from sharing; see `_units`."""
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


def _marginal(gpus: int, cards: Sequence[NicCard]) -> Callable[[int, int], int]:
    """Return the cost of the n-th GPU on a card, by card and n from 1 on.

    A GPU costs (gpus + 1) ** r, if its time has rank r among all possible times. All faster GPUs together
    cost less, so the least sum has the fastest slowest GPU, then the fastest next.
    """
    _, _, time, _ = _units(gpus, cards)
    ranks = {seconds: rank for rank, seconds in enumerate(_times(gpus, cards))}

    @cache
    def whole(card: int, n: int) -> int:
        return n * (gpus + 1) ** ranks[cards[card].seconds(n)] if n else 0

    return lambda card, n: time * (whole(card, n) - whole(card, n - 1))


def _times(gpus: int, cards: Sequence[NicCard]) -> list[Fraction]:
    return sorted({card.seconds(number) for card in cards for number in range(1, gpus + 1)})


def _units(gpus: int, cards: Sequence[NicCard]) -> tuple[int, int, int, int]:
    """Return the weights of reach, strangers, times and steps; each exceeds the sum of all later weights."""
    step = len(cards) ** gpus
    time = step * (gpus * len(Path) + 1)
    stranger = time * (gpus * (gpus + 1) ** len(_times(gpus, cards)) + 1)
    return stranger * (gpus + 1), stranger, time, step


MOST = 64
"""More GPUs or RDMA ports than this are not one node."""
SAME = "not known: no difference between the paths is visible"
SLOW = 0.25
"""A port below this share of the usual rate for a GPU has another purpose, or a faulty slot."""
_LESS = 0.999


@dataclass(frozen=True, slots=True)
class PortOfGpu:
    """A port that a GPU uses, its path (empty: not known), and how many GPUs use it."""

    port: RdmaPort
    path: str
    gpus: int


@dataclass(frozen=True, slots=True)
class NicsOfGpu:
    """The ports of a GPU; the first serves software that takes only one.

    `share`: bytes per second each way for the GPU while all GPUs send; None where not known. `healthy`: the
    same with all ports up. `loss`: the effect of a down port, in words.
    """

    gpu: GpuPart
    ports: tuple[PortOfGpu, ...]
    share: float | None
    healthy: float | None
    loss: str = ""


@dataclass(frozen=True, slots=True)
class GpuNicMap:
    """The mapping of a whole node. `layer`: link layer of the used ports.

    `visible`: whether the paths differ at all.

    `left_out`: unused ports, and devices whose ports are not read, with the reason. `active_left`: whether
    NCCL could use a left-out port. `remarks` are in words.
    """

    gpus: tuple[NicsOfGpu, ...]
    layer: str
    visible: bool
    left_out: tuple[tuple[str, str], ...]
    active_left: bool
    remarks: tuple[str, ...]

    def ports(self) -> tuple[RdmaPort, ...]:
        """Return all used ports, in natural order."""
        return tuple(sorted({one.port for seat in self.gpus for one in seat.ports}, key=port_order))


def map_nics(near: Locality, gpu_rate: float | None = None) -> GpuNicMap | Absent:
    """Return the best mapping.

    `near`: the surroundings of the GPUs. `gpu_rate`: bytes per second of a GPU's own PCIe link; None where
    not known. Returns Absent without a GPU, or for more parts than one node has.
    """
    if not near.gpus:
        return Absent(Why.MISSING, "it has no GPU")
    if max(len(near.gpus), len(near.ports)) > MOST:
        return Absent(
            Why.UNSUPPORTED, f"{len(near.gpus)} GPUs and {len(near.ports)} RDMA ports: more than a node has"
        )
    why = {port: _unusable(port, near) for port in near.ports}
    why |= _slow([port for port in near.ports if not why[port]])
    usable = [port for port in near.ports if not why[port]]
    best = _best(near, usable)
    if best is None:
        seats = tuple(NicsOfGpu(gpu, (), None, None) for gpu in near.gpus)
        out, remarks = _left_out(why, near), tuple(_remarks(near, ()))
        return GpuNicMap(seats, "", visible=False, left_out=out, active_left=False, remarks=remarks)
    seats, spare = _seats(near, best, gpu_rate)
    used = {one.port for seat in seats for one in seat.ports}
    why |= {port: spare.get(port) or _unused(port, best) for port in usable if port not in used}
    ways = {(reach(way), steps(way)) for card in best.cards for way in card.paths}
    return GpuNicMap(
        gpus=_with_losses(near, seats, gpu_rate),
        layer=next(iter(used)).layer,
        visible=len(ways) > 1,
        left_out=_left_out(why, near),
        active_left=bool(near.others) or any(port not in used for port in usable),
        remarks=tuple(_remarks(near, sorted(used, key=port_order))),
    )


def name_of(port: RdmaPort) -> str:
    """Return the name for people, such as `mlx5_0:1`."""
    return f"{port.device}:{port.port}" if port.port else port.device


def _unusable(port: RdmaPort, near: Locality) -> str:
    """Return why no GPU can use a port; empty where a GPU can."""
    if not near.stated:
        return ""
    if port.state not in ACTIVE:
        return port.state or "its state is not known"
    if not port.layer:
        return "its link layer is not known"
    return "" if rate_of(port) > 0 else "its rate is not known"


def _slow(usable: Sequence[RdmaPort]) -> dict[RdmaPort, str]:
    """Return ports that give a GPU under a quarter of their layer's usual rate: sharing is then better."""
    found = {}
    for layer in {port.layer for port in usable}:
        ports = [port for port in usable if port.layer == layer and not isinstance(port.rate, Absent)]
        usual = median(map(_alone, ports)) if ports else 0.0
        for port in ports:
            if _alone(port) < SLOW * usual:
                slot = "" if rate_of(port) < SLOW * usual else f" over {_link(port)}"
                found[port] = f"{_alone(port) / GB:.1f} GB/s{slot}, where others have {usual / GB:.1f}"
    return found


def _alone(port: RdmaPort) -> float:
    """Return bytes per second of a port that a single GPU uses."""
    slot = slot_rate(port)
    return rate_of(port) if slot is None else min(rate_of(port), slot)


def _best(near: Locality, usable: Sequence[RdmaPort]) -> NicPlan | None:
    """Return the best plan of one link layer: a job cannot send between layers."""
    layers = dict.fromkeys(port.layer for port in sorted(usable, key=port_order))
    down = [port for port in near.ports if near.stated and port.state not in ACTIVE]
    plans = [
        plan(
            len(near.gpus),
            [port for port in usable if port.layer == layer],
            [port for port in (*usable, *down) if port.layer == layer],
        )
        for layer in layers
    ]
    return min((one for one in plans if one is not None), key=lambda one: one.cost, default=None)


def _seats(
    near: Locality, best: NicPlan, gpu_rate: float | None
) -> tuple[tuple[NicsOfGpu, ...], Mapping[RdmaPort, str]]:
    """Return the ports of each GPU, and equally good spare ports, with the reason."""
    first: list[list[RdmaPort]] = []
    seen: Counter[int] = Counter()
    for card in best.place:
        own = best.cards[card].ports
        first.append([own[seen[card] % len(own)]])
        seen[card] += 1
    spare = _deal(best, first)
    counts = Counter(port for ports in first for port in ports)
    rates = _rates(best, counts)
    seats = []
    for number, (gpu, ports) in enumerate(zip(near.gpus, first, strict=True)):
        shares = [rates.get(port) for port in ports]
        share = None if None in shares else sum(rate for rate in shares if rate is not None)
        if share is not None and gpu_rate is not None:
            share = min(share, gpu_rate)
        chosen = tuple(PortOfGpu(port, port.paths[number], counts[port]) for port in ports)
        seats.append(NicsOfGpu(gpu, chosen, share, share))
    return tuple(seats), spare


def _deal(best: NicPlan, first: list[list[RdmaPort]]) -> Mapping[RdmaPort, str]:
    """Give each GPU equally many further ports, as good as its first; return spare ports with the reason."""
    taken = {port for ports in first for port in ports}
    more = [
        (port, rate, card.paths)
        for card in best.cards
        if card.serves
        for port, rate in zip(card.ports, card.rates, strict=True)
        if port not in taken
    ]
    fits = [[_fits(best, gpu, rate, paths) for gpu in range(len(first))] for _, rate, paths in more]
    open_to = [row for row in range(len(more)) if any(fits[row])]
    if not open_to:
        return {}
    never = (len(first) + len(more) + 1) ** 3
    pairs = [
        [
            never * (not fits[row][gpu]) + len(first) * steps(more[row][2][gpu]) + gpu
            for gpu in range(len(first))
        ]
        for row in open_to
    ]
    unit = len(first) * 8
    given = spread(pairs, lambda _, number: number * unit)
    for row, gpu in zip(open_to, given, strict=True):
        first[gpu].append(more[row][0])
    each = min(map(len, first))
    left = {
        port: "as good, and not enough for one more of each GPU" for ports in first for port in ports[each:]
    }
    for ports in first:
        del ports[each:]
    return left


def _fits(best: NicPlan, gpu: int, rate: float, paths: Sequence[str]) -> bool:
    """Return whether a port is as near to a GPU and as fast as its card's."""
    own = best.cards[best.place[gpu]]
    return reach(paths[gpu]) == reach(own.paths[gpu]) and rate >= own.rates[0]


def _rates(best: NicPlan, counts: Mapping[RdmaPort, int]) -> dict[RdmaPort, float | None]:
    """Return bytes per second that a port gives each of its GPUs; None where its rate is not known."""
    found: dict[RdmaPort, float | None] = {}
    for card in best.cards:
        used = [port for port in card.ports if port in counts]
        wire = sum(map(rate_of, used))
        part = 1.0 if card.slot is None or not wire else min(1.0, card.slot / wire)
        found |= {port: rate_of(port) * part / counts[port] or None for port in used}
    return found


def _with_losses(near: Locality, seats: Sequence[NicsOfGpu], gpu_rate: float | None) -> tuple[NicsOfGpu, ...]:
    """Add each GPU's share with all ports up and all slots in order."""
    wrong = {
        name_of(port): f"its PCIe link runs low ({_link(port)})"
        for port in near.ports
        if port.device in near.slots
    }
    if near.stated:
        down = (port for port in near.ports if port.state not in ACTIVE)
        wrong |= {name_of(port): port.state or "in a state that is not known" for port in down}
    if not wrong:
        return tuple(seats)
    mended = replace(near, ports=tuple(_mended(port, near) for port in near.ports), slots={})
    usable = [port for port in mended.ports if not _unusable(port, mended)]
    slow = _slow(usable)
    best = _best(mended, [port for port in usable if port not in slow])
    if best is None:
        return tuple(seats)
    healthy, _ = _seats(mended, best, gpu_rate)
    return tuple(_with_loss(seat, other, wrong) for seat, other in zip(seats, healthy, strict=True))


def _mended(port: RdmaPort, near: Locality) -> RdmaPort:
    """Return the healthy port; a down port gets the best rate of its layer, else its own."""
    slot = near.slots.get(port.device, port.pcie)
    if not near.stated or port.state in ACTIVE:
        return replace(port, pcie=slot)
    up = [rate_of(one) for one in near.ports if one.layer == port.layer and one.state in ACTIVE]
    return replace(port, pcie=slot, state="active", rate=max(up, default=rate_of(port)))


def _link(port: RdmaPort) -> str:
    return "" if isinstance(port.pcie, Absent) else f"PCIe {port.pcie.generation} x{port.pcie.lanes}"


def _with_loss(seat: NicsOfGpu, healthy: NicsOfGpu, wrong: Mapping[str, str]) -> NicsOfGpu:
    """Add the loss; `wrong`: the faults of ports, by name."""
    now, then = seat.ports[0], healthy.ports[0]
    slower = seat.share is not None and healthy.share is not None and seat.share < _LESS * healthy.share
    other = now.port.layer != then.port.layer
    if reach(now.path) <= reach(then.path) and not slower and not other:
        return seat
    names = [name_of(one.port) for one in healthy.ports if name_of(one.port) in wrong]
    cause = (
        ", ".join(f"{name}: {wrong[name]}" for name in names) or "it shares with a GPU whose own port is lost"
    )
    farther = f"{now.path} instead of {then.path}" if reach(now.path) > reach(then.path) else ""
    less = f"{_gbs(seat.share)} instead of {_gbs(healthy.share)} GB/s" if slower else ""
    network = f"{now.port.layer} instead of {then.port.layer}" if other else ""
    text = f"{cause}; {', '.join(filter(None, (network, farther, less)))}"
    return replace(seat, healthy=healthy.share, loss=text)


def _gbs(share: float | None) -> str:
    return "?" if share is None else f"{share / GB:.1f}"


def _unused(port: RdmaPort, best: NicPlan) -> str:
    """Return why no GPU uses a usable port."""
    layer = best.cards[0].ports[0].layer
    if port.layer != layer:
        return f"link layer {port.layer or 'not known'}, those of the GPUs are {layer}: storage or management"
    card = next(one for one in best.cards if port in one.ports)
    if not card.serves:
        return "others are nearer to every GPU: storage or management"
    fastest = max(rate_of(one) for card in best.cards for one in card.ports)
    if 0 < rate_of(port) < fastest:
        return f"{gigabits(rate_of(port))}, others have {gigabits(fastest)}: storage or management"
    return "the GPUs near it have others as good"


def _left_out(why: Mapping[RdmaPort, str], near: Locality) -> tuple[tuple[str, str], ...]:
    ports = sorted((port for port, text in why.items() if text), key=port_order)
    return (*((name_of(port), why[port]) for port in ports), *near.others)


def _remarks(near: Locality, used: Sequence[RdmaPort]) -> Iterator[str]:
    """Yield oddities of the source, and of the slots of used cards."""
    rdma = any(port.layer != ETHERNET or port.port for port in near.ports)
    if not near.stated and near.ports:
        by = "ibstat" if rdma else "ip link"
        yield f"the source has no states of ports: all are taken as up, check with {by} on the node"
    if rdma and not all(port.port for port in near.ports):
        yield "it does not number the ports either: port 1 of each device is taken"
    if near.by_numa:
        yield "a hypervisor hides PCI bridges: NUMA nodes alone bound those paths"
    for ports in grouped((port.card or port.device, port) for port in used).values():
        slot, wire = slot_rate(ports[0]), sum(map(rate_of, ports))
        full = near.slots.get(ports[0].device)
        names = ", ".join(map(name_of, ports))
        can = f"; card and slot can do PCIe {full.generation} x{full.lanes}" if full else ""
        if slot is not None and slot < wire:
            through = f"{slot / GB:.1f} of the ports' {wire / GB:.1f} GB/s through"
            yield f"{names}: {_link(ports[0])} lets {through}{can}"
        elif can:
            yield f"{names}: {_link(ports[0])}{can}"
