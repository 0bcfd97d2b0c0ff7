"""A fabric of leafs and spines in which flows share links: what pairs of a round measure, by its routes.

This is not the solver's model, which knows of no link that two pairs share. Each rail is a plane of its own:
a leaf switch for so many nodes, with uplinks to spines. A flow of a queue pair takes the NIC of its sender,
an uplink, the downlink of the same spine, and the NIC of its receiver. All flows of a round that measure the
same at the same time share the links fairly (max-min). A rail carries what its slowest queue pair does, times
their number, since NCCL gives each of them the same.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wirewatch_fleet.pairs.model import MeasuredRound, PairFleet, PairMember, PairRound, PairRun

RATE = 48e9
"""Bytes per second of a rail of 400 Gb/s."""
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


class Routes(StrEnum):
    """How a flow finds its uplink: over all of them, by a hash of each run, or by a pair's own hash."""

    ADAPTIVE = "adaptive"
    HASHED = "hashed"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Fabric:
    """How it is built. `uplinks` of a leaf on one rail, each as fast as a NIC; `leaf`: nodes of one.

    `queues`: queue pairs of a connection. `known`: whether wirewatch knows the leafs. `traffic`: how often
    other tenants take 5 to 50 % of one direction of a run; `loaded`: the leaf whose runs from and to
    others they slow by up to half on rail 0, anew in each run. `member`, `run`, `cell`: spreads of healthy
    nodes, of a direction of a run, of one rail of it, as shares; the last two have heavy tails.
    """

    size: int
    routes: Routes
    uplinks: int = 32
    leaf: int = 32
    rails: int = 4
    queues: int = 1
    known: bool = True
    traffic: float = 0.01
    loaded: int | None = None
    member: float = 0.005
    run: float = 0.005
    cell: float = 0.003


@dataclass(frozen=True, slots=True)
class SlowNode:
    """A fault: a node, or one rail of it, sends and receives at this share of its speed."""

    node: int
    share: float
    rail: int | None = None


def fair_shares(flows: ArrayLike, widths: ArrayLike) -> Floats:
    """Max-min fair rates of flows, each over the links of its row; -1 for no link."""
    links, capacity = np.asarray(flows), np.append(np.asarray(widths, dtype=float), np.inf)
    rates, left = np.zeros(len(links)), np.arange(len(links))
    while len(left):
        rows = links[left]
        counts = np.bincount(rows[rows >= 0], minlength=len(capacity))
        share = np.divide(capacity, counts, out=np.full(len(capacity), np.inf), where=counts > 0)
        rate = share[rows].min(axis=1)
        # A link is settled when each of its flows has no narrower one.
        slower = np.full(len(capacity), np.inf)
        for column in rows.T:
            np.minimum.at(slower, column, rate)
        settled = slower >= share * (1 - 1e-9)
        settled[-1] = False
        done = settled[rows].any(axis=1)
        rates[left[done]] = rate[done]
        for column in rows[done].T:
            np.subtract.at(capacity, column, rate[done])
        np.maximum(capacity, 1e-12, out=capacity)
        left = left[~done]
    return rates


@dataclass
class RoutedFleet:
    """A fleet on such a fabric; `run` answers a round as its nodes would. All is drawn from `seed`."""

    fabric: Fabric
    seed: str
    faults: Sequence[SlowNode] = ()
    names: list[str] = field(init=False)
    fleet: PairFleet = field(init=False)

    def __post_init__(self) -> None:
        fabric = self.fabric
        self.chance = np.random.default_rng(zlib.crc32(self.seed.encode()))
        self.names = [f"n{n:04}" for n in range(fabric.size)]
        self.number = {name: n for n, name in enumerate(self.names)}
        self.leafs = np.arange(fabric.size) // fabric.leaf
        self.count = int(self.leafs[-1]) + 1
        self.fleet = PairFleet(tuple(
            PairMember(name, f"leaf{n // fabric.leaf}" if fabric.known else "")
            for n, name in enumerate(self.names)
        ))  # fmt: skip
        own = np.clip(self.chance.standard_normal((2, fabric.size, fabric.rails)), -2.5, 2.5)
        self.nics: Floats = np.exp(own * fabric.member)
        for one in self.faults:
            self.nics[:, one.node, slice(None) if one.rail is None else one.rail] *= one.share
        self.salt = int(self.chance.integers(1 << 40))

    def run(self, planned: PairRound) -> MeasuredRound:
        pairs = np.array([[self.number[name] for name in pair] for pair in planned.pairs])
        queues = planned.queue_pairs or self.fabric.queues
        first, second = pairs.T
        there, back, all_there, all_back, reduced, again = (
            self.rates(a, b, queues) for a, b in 3 * ((first, second), (second, first))
        )
        rails = self.fabric.rails
        runs = [
            PairRun(
                a, b, rails * float(all_there[n].min()), rails * float(all_back[n].min()),
                rails * 0.9 * float(min(reduced[n].min(), again[n].min())),
                {f"{r}": (float(there[n, r]), float(back[n, r])) for r in range(rails)} if rails > 1 else {},
            )
            for n, (a, b) in enumerate(planned.pairs)
        ]  # fmt: skip
        return MeasuredRound(planned, runs)

    def rates(self, senders: Whole, receivers: Whole, queues: int) -> Floats:
        """Bytes per second by pair and rail, of flows that run at once; senders and receivers by number."""
        fabric, count = self.fabric, len(senders)
        shape = (count, fabric.rails, queues)
        rail = np.broadcast_to(np.arange(fabric.rails)[None, :, None], shape)
        a, b = (np.broadcast_to(ends[:, None, None], shape) for ends in (senders, receivers))
        nics, ups = fabric.size * fabric.rails, self.count * fabric.rails * fabric.uplinks
        uplink = self._uplinks(a, b, rail, shape)
        apart = self.leafs[a] != self.leafs[b]
        columns = [a * fabric.rails + rail, nics + b * fabric.rails + rail]
        for ends, base in ((a, 2 * nics), (b, 2 * nics + ups)):
            link = base + (self.leafs[ends] * fabric.rails + rail) * fabric.uplinks + uplink
            columns.append(np.where(apart, link, -1))
        capacity = np.concatenate([self.nics.reshape(-1), self._capacities(2 * ups)])
        flows = fair_shares(np.stack([one.reshape(-1) for one in columns], axis=1), capacity)
        rates = queues * flows.reshape(shape).min(axis=2)
        if fabric.loaded is not None:
            touched = (senders // fabric.leaf == fabric.loaded) ^ (receivers // fabric.leaf == fabric.loaded)
            rates[touched, 0] *= 1 - self.chance.uniform(0, 0.5, int(touched.sum()))
        made: Floats = rates * RATE * np.exp(self._noise(count))
        return made

    def _uplinks(self, a: Whole, b: Whole, rail: Whole, shape: tuple[int, ...]) -> Whole:
        """Return the uplink of each flow; of adaptive routes the first, which is as wide as all of them."""
        if self.fabric.routes is Routes.ADAPTIVE:
            return np.zeros(shape, dtype=np.int64)
        if self.fabric.routes is Routes.HASHED:
            return self.chance.integers(self.fabric.uplinks, size=shape)
        queue = np.broadcast_to(np.arange(shape[2])[None, None, :], shape)
        mixed = (((a * 4099 + b) * 67 + rail) * 131 + queue).astype(np.uint64) + np.uint64(self.salt)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return (mixed % np.uint64(self.fabric.uplinks)).astype(np.int64)

    def _capacities(self, links: int) -> Floats:
        """Of all uplinks, then of all downlinks."""
        return np.full(links, float(self.fabric.uplinks if self.fabric.routes is Routes.ADAPTIVE else 1))

    def _noise(self, count: int) -> Floats:
        fabric, chance = self.fabric, self.chance
        noise = fabric.run * chance.standard_t(4, (count, 1)) / 1.098
        noise = noise + fabric.cell * chance.standard_t(4, (count, fabric.rails)) / 1.098
        taken = chance.random((count, 1)) < fabric.traffic
        lost: Floats = noise + np.where(taken, np.log1p(-chance.uniform(0.05, 0.5, (count, 1))), 0.0)
        return lost


def planned_pairs(rounds: Sequence[MeasuredRound]) -> Mapping[str, int]:
    """Pairs that ran, by purpose of their round."""
    made: dict[str, int] = {}
    for one in rounds:
        made[one.round.purpose] = made.get(one.round.purpose, 0) + len(one.round.pairs)
    return made
