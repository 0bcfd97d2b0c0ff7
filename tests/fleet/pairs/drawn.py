"""Fleets that are drawn: what pairs would measure, by capacities of which the least counts.

This is not the solver's model. Each node has a capacity in each direction, each NIC one, each pair one; a run
gives the least of them, times noise with heavy tails that the rails of a run partly share, a drift that all
runs of a round share, and now and then what other traffic takes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median

from wirewatch.core.pairs import PartKind, Way
from wirewatch_fleet.pairs.model import (
    DEFAULT_LIMITS,
    MeasuredRound,
    PairFleet,
    PairLimits,
    PairMember,
    PairRound,
    PairRun,
    SlowPlace,
)
from wirewatch_fleet.pairs.plan import PairsVerdict, next_step

RATE = 48e9
"""Bytes per second of a rail of 400 Gb/s."""
BOTH = frozenset({Way.SENDS, Way.RECEIVES})


@dataclass(frozen=True, slots=True)
class FabricNoise:
    """Standard deviations, as shares; robust ones of what has heavy tails.

    `member`, `nic`, `pair`: how healthy ones differ for good. `run`: one direction of one run, `cell`: one
    rail of it. `drift`: all runs of a round. `transient`: how often other traffic takes 5 to 50 % of one
    direction of a run, and `rail_transient` of one rail alone. `heavy`: Student's t, or normal.
    """

    member: float = 0.005
    nic: float = 0.003
    pair: float = 0.0035
    run: float = 0.005
    cell: float = 0.003
    drift: float = 0.005
    transient: float = 0.01
    rail_transient: float = 0.001
    heavy: bool = True


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """A part, the directions in which it is slow, and the share of its speed that is lost."""

    place: SlowPlace
    ways: frozenset[Way]
    lost: float


def student(chance: Random) -> float:
    """Of Student's t distribution with four degrees of freedom, by its inverse, of a robust spread of 1."""
    part = min(max(chance.random(), 1e-12), 1 - 1e-12)
    root = math.sqrt(4 * part * (1 - part))
    if root >= 1:
        return 0.0
    return (
        math.copysign(2 * math.sqrt(max(0.0, math.cos(math.acos(root) / 3) / root - 1)), part - 0.5) / 1.098
    )


@dataclass
class DrawnFleet:
    """A fleet with its faults; `run` answers a round as its nodes would. `leaf` 0: leafs are not known."""

    size: int
    rails: int = 8
    leaf: int = 32
    seed: object = 0
    noise: FabricNoise = FabricNoise()
    faults: Sequence[DrawnFault] = ()
    lost: float = 0.0
    gone: Mapping[str, int] = field(default_factory=dict)
    across: float = 0.03
    pace: float = 1.0

    def __post_init__(self) -> None:
        self.chance = Random(f"drawn {self.seed}")  # noqa: S311
        self.names = [f"n{n:04}" for n in range(self.size)]
        self.fleet = PairFleet(tuple(
            PairMember(name, f"leaf{n // self.leaf}" if self.leaf else "")
            for n, name in enumerate(self.names)
        ))  # fmt: skip
        self.leafs = self.fleet.leafs()
        self.rail_names = [f"{n}" for n in range(self.rails)]
        self.offsets: dict[object, float] = {}

    def own(self, part: object, scale: float) -> float:
        """The stable offset of a part, drawn once; beyond 2.5 deviations it would be no healthy one."""
        if part not in self.offsets:
            value = self.chance.gauss(0.0, 1.0)
            while abs(value) > 2.5:
                value = self.chance.gauss(0.0, 1.0)
            self.offsets[part] = value * scale
        return self.offsets[part]

    def run(self, planned: PairRound) -> MeasuredRound:
        drift = self.chance.gauss(0.0, self.noise.drift)
        runs = []
        for a, b in planned.pairs:
            away = any(planned.number >= self.gone.get(name, 1 << 30) for name in (a, b))
            if away or self.chance.random() < self.lost:
                runs.append(PairRun(a, b, failed="no answer"))
            else:
                runs.append(self._pair(a, b, drift))
        return MeasuredRound(planned, runs)

    def _pair(self, a: str, b: str, drift: float) -> PairRun:
        there, back = self.direction(a, b, drift), self.direction(b, a, drift)
        least = min(*there, *back)
        tail = math.exp(self._noise(self.noise.run))
        return PairRun(
            a, b, self.rails * 0.97 * min(there), self.rails * 0.97 * min(back),
            self.rails * 0.9 * least * tail,
            {rail: (there[n], back[n]) for n, rail in enumerate(self.rail_names)} if self.rails > 1 else {},
        )  # fmt: skip

    def direction(self, a: str, b: str, drift: float = 0.0) -> list[float]:
        """Bytes per second of each rail: the least capacity on the way, times noise."""
        noise, chance = self.noise, self.chance
        apart = self.leaf > 0 and self.leafs[a] != self.leafs[b]
        common = min(
            self.own((a, "sends"), noise.member), self.own((b, "receives"), noise.member),
            self.own((a, b), noise.pair),
        )  # fmt: skip
        common = min(common, *(math.log1p(-one.lost) for one in self._on_the_way(a, b, "", apart=apart)), 1.0)
        shared = drift + self._noise(noise.run) - (self.across if apart else 0.0) + math.log(self.pace)
        if chance.random() < noise.transient:
            shared += math.log(1 - chance.uniform(0.05, 0.5))
        rates = []
        for rail in self.rail_names:
            least = min(
                common, self.own((a, rail, "sends"), noise.nic), self.own((b, rail, "receives"), noise.nic)
            )
            least = min(
                least, *(math.log1p(-one.lost) for one in self._on_the_way(a, b, rail, apart=apart)), 1.0
            )
            value = least + shared + self._noise(noise.cell)
            if chance.random() < noise.rail_transient:
                value += math.log(1 - chance.uniform(0.05, 0.5))
            rates.append(RATE * math.exp(value))
        return rates

    def typical(self, pairs: int = 401) -> float:
        """What a healthy pair gives on one rail at the median of some pairs, beside a capacity of 1."""
        chance, noise = Random(f"typical {self.seed}"), self.noise  # noqa: S311
        found = []
        for _ in range(pairs):
            a, b = chance.sample(self.names, 2)
            rail = chance.choice(self.rail_names)
            found.append(min(
                self.own((a, "sends"), noise.member), self.own((b, "receives"), noise.member),
                self.own((a, b), noise.pair), self.own((a, rail, "sends"), noise.nic),
                self.own((b, rail, "receives"), noise.nic),
            ))  # fmt: skip
        return math.exp(median(found))

    def _noise(self, scale: float) -> float:
        return scale * (student(self.chance) if self.noise.heavy else self.chance.gauss(0.0, 1.0))

    def _on_the_way(self, a: str, b: str, rail: str, *, apart: bool) -> Iterator[DrawnFault]:
        for one in self.faults:
            if one.place.rail == rail and lies_on(one, a, b, self.leafs, apart=apart):
                yield one

    def verdict(self, limits: PairLimits = DEFAULT_LIMITS) -> tuple[PairsVerdict, list[MeasuredRound]]:
        """All rounds until the verdict."""
        rounds: list[MeasuredRound] = []
        while True:
            step = next_step(self.fleet, rounds, None, limits, seed=0)
            if isinstance(step, PairsVerdict):
                return step, rounds
            rounds.append(self.run(step.round))


def lies_on(fault: DrawnFault, a: str, b: str, leafs: Mapping[str, str], *, apart: bool) -> bool:
    """Whether a fault is on the way from one node to another."""
    place, ways = fault.place, fault.ways
    if place.kind is PartKind.RAIL:
        return True
    if place.kind is PartKind.PAIR:
        return (a, b) == (place.name, place.peer)
    if place.kind is PartKind.LEAF and place.across and not apart:
        return False
    ends = (leafs.get(a), leafs.get(b)) if place.kind is PartKind.LEAF else (a, b)
    return (Way.SENDS in ways and ends[0] == place.name) or (Way.RECEIVES in ways and ends[1] == place.name)
