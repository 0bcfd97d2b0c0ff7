"""Rates of each GPU, pair and link in one probe: the higher, the faster."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from wirewatch.busbw.hostlink import is_placed
from wirewatch.core.collector import Strict
from wirewatch.core.hostlink import HostCopies, HostPath
from wirewatch.core.probe import Document, Micro, Probed
from wirewatch.core.statistics import AcceptedRates, UsualRate, grouped, high_median, low_median, spread
from wirewatch.core.topology import WireKind

EVEN = frozenset({WireKind.SWITCH, WireKind.MESH, WireKind.PAIR})
"""Wires that join GPUs so that every two of them have the same."""
SPREAD = frozenset({WireKind.SWITCH, WireKind.PAIR})
"""Wires that join GPUs so that all links of a GPU carry the same."""
UNEVEN = ("through the host", "direct")
"""How pairs go that no even wire joins."""
SLICED = 1.4
"""Slowest over fastest run from which another process had the GPU in between; healthy GPUs reach 1.04."""
COPY_TRAFFIC = 2
"""Bytes that a copy within a memory moves for each byte copied: it reads one and writes one."""
MOSTLY = 0.5
"""Least part of the time in which a copying process uses the memory; a computing process uses less."""


class Resource(Enum):
    """The slow part of a GPU; `source` and `destination` are its two directions to most of its peers.

    `host_link` is its way to the host's memory, there and back.
    """

    COMPUTE = "compute"
    MEMORY = "memory"
    SOURCE = "source"
    DESTINATION = "destination"
    PAIR = "pair"
    LINK = "link"
    HOST = "host_link"


@dataclass(frozen=True, slots=True)
class Unit:
    """A measured unit: a GPU's compute, memory or host link, or a pair; GPUs by UUID."""

    resource: Resource
    uuid: str
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Signals:
    """`kind`: what makes rates of two probes comparable. Matrix products per second, bytes per second.

    `alike`: names of comparable groups: GPUs of one product, and pairs of such GPUs that go the same way.
    `wires`: the kind of wire of a pair, whatever its GPUs are: a GPU may be slow on one kind of wire alone.
    `links`: by GPU the part by which its lowest link carried less than the mean of all. `others`: of GPUs
    that another process uses too, whether it mostly uses their memory, where that is known. `used`: all GPUs
    that another process is known to use, whether it shows in their rates or not.
    """

    kind: str
    rates: Mapping[Unit, float]
    alike: Mapping[Unit, str]
    links: Mapping[Unit, float] = field(default_factory=dict)
    others: Mapping[str, bool] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    wires: Mapping[Unit, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StragglerPolicy(Strict):
    """When a part is slow. Losses and noise are shares of its speed."""

    own: float = 0.06
    """Loss against the part's own accepted history from which on it is slow. [share]"""
    peers: float = 0.1
    """Loss against its peers, where there is no history yet or the part was slow from the start. [share]"""
    failed: float = 0.25
    """Loss from which on jobs are kept away.

    One probe more than `confirm` must see it, or `confirm` probes see it twice over. [share]
    """
    score: float = 4.0
    """How far out a loss must be. [standard deviations]"""
    confirm: int = 2
    """Probes of the newest `among` that must show it."""
    among: int = 3
    """Newest probes that are looked at."""
    learn: int = 5
    """Probes that make a history."""
    noise_compute: float = 0.005
    """Smallest noise that is assumed of matrix products, against the own history. [share]"""
    noise_memory: float = 0.005
    """Smallest noise that is assumed of copies within a GPU, against the own history. [share]"""
    noise_pair: float = 0.005
    """Smallest noise that is assumed of copies between two GPUs, against the own history. [share]"""
    noise_host: float = 0.03
    """Smallest noise that is assumed of copies to and from the host, also against peers. [share]"""
    noise_link: float = 0.01
    """Smallest noise that is assumed of a single link, against the own history. [share]"""
    noise_peers: float = 0.015
    """Smallest noise that is assumed against peers. [share]"""

    def noise(self, resource: Resource) -> float:
        """One standard deviation of a healthy rate of this kind against its own history, at least."""
        known = {Resource.COMPUTE: self.noise_compute, Resource.MEMORY: self.noise_memory}
        return known.get(resource, self.noise_host if resource is Resource.HOST else self.noise_pair)

    @property
    def failed_twice(self) -> float:
        """The loss of a part that has lost `failed`, and of what was left that much again."""
        return 1 - (1 - self.failed) ** 2

    @property
    def sure(self) -> int:
        """Return the probes that must see a loss of `failed`: lasting noise halves from probe to probe."""
        return min(self.confirm + 1, self.among)

    def wrong(self) -> str:
        """Say what cannot be meant; empty when all can."""
        noises = (f"noise_{kind}" for kind in ("compute", "memory", "pair", "host", "peers", "link"))
        parts = [name for name in ("own", "peers", "failed", *noises) if not 0 < getattr(self, name) < 1]
        counts = [name for name in ("confirm", "among", "learn") if getattr(self, name) < 1]
        checks = (
            (parts, "must be above 0 and below 1"),
            (counts, "must be above 0"),
            ([self.score] if not 0 < self.score < math.inf else [], "score must be above 0"),
            ([self.confirm] if self.confirm > self.among else [], "confirm must not be above among"),
        )
        return "; ".join(f"{text}: {bad[0]!r}" for bad, text in checks if bad)


RateHistory = AcceptedRates[Unit]
"""Rates of accepted probes by unit."""
FEW = 4.0
"""A history may be noisier than it shows, by this over its number of values (simulation)."""
CLOSE = 0.2
"""How far two losses may be from each other and still be the same."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The part of its speed that a unit has lost against `usual`; `noise` is one standard deviation of it."""

    part: float
    noise: float
    usual: float

    @property
    def score(self) -> float:
        """Return the deviation in standard deviations; above 0 for slower."""
        return self.part / self.noise

    @property
    def rate(self) -> float:
        """The share that is left of the usual rate."""
        return self.usual * (1 - self.part)

    def breaks(self, limit: float, score: float) -> bool:
        """Tell whether it is so much of the speed, and so far outside the noise."""
        return self.part >= limit and self.score >= score

    def beside(self, lost: float) -> "Loss":
        """The loss left to explain when so much is the loss of something that it depends on."""
        return Loss(1 - (1 - self.part) / (1 - lost), self.noise, self.usual * (1 - lost))


@dataclass(frozen=True, slots=True)
class Deviation:
    """One unit's rate beside that of its own history and of its peers; None where there is none."""

    unit: Unit
    rate: float
    own: Loss | None = None
    peers: Loss | None = None
    count: int = 0
    """Values of its own history."""
    lone: bool = False
    """Tell whether it is so much faster than nearly all peers that these may be slow."""

    def slow(self, policy: StragglerPolicy) -> bool:
        return self.decisive_loss(policy) is not None

    def own_loss(self, policy: StragglerPolicy) -> Loss | None:
        """The loss that makes it slow against its own history, whatever its peers do."""
        return replace(self, peers=None).decisive_loss(policy)

    def decisive_loss(self, policy: StragglerPolicy) -> Loss | None:
        """The loss that makes it slow, the larger of both; None when it is not."""
        limits = ((self.own, policy.own), (self.peers, policy.peers))
        broken = [loss for loss, limit in limits if loss is not None and loss.breaks(limit, policy.score)]
        # Its own history is the better measure, unless it has been slow from the start.
        return max(broken, key=lambda loss: loss.part * (1 + CLOSE * (loss is self.own)), default=None)

    @property
    def score(self) -> float:
        """The larger of both; 0 where nothing can be compared."""
        return max((loss.score for loss in (self.own, self.peers) if loss is not None), default=0.0)


def signals(probed: Probed) -> Signals:
    """Return all rates of a complete probe; none of a probe that was broken off or touched no GPU."""
    document = probed.document
    if document is None or probed.outcome != "ok" or not probed.gpus:
        return Signals("", {}, {})
    rates = dict(_rates(probed, document))
    return Signals(
        _kind(probed, document), rates, dict(_ways(probed, document)), dict(_links(probed)),
        dict(_others(probed, document)),
        frozenset(gpu.uuid for gpu in probed.gpus if gpu.others_memory is not None),
        dict(_wires(probed, document)),
    )  # fmt: skip


def learn(references: RateHistory, measured: Signals, at: float) -> RateHistory:
    """The references after a probe (at Unix seconds) that found nothing; another kind begins them again."""
    return references.learned(measured.kind, measured.rates, at)


def deviations(
    measured: Signals, references: RateHistory, policy: StragglerPolicy
) -> Mapping[Unit, Deviation]:
    """Compare every unit of a probe with its history, and with units that are made alike."""
    ways = ((unit, measured.alike.get(unit, "")) for unit in measured.rates)
    groups = grouped(((unit.resource, way), unit) for unit, way in ways if way)
    usual = {unit: references.of(unit, measured.kind, policy.learn) for unit in measured.rates}
    # A history of a few values may look quieter than it is; all of a kind together do not.
    spreads = grouped((unit.resource, _unsure(known)) for unit, known in usual.items() if known)
    noises = {one: max(policy.noise(one), low_median(spreads.get(one, [0.0]))) for one in Resource}
    found = {
        unit: _alone(unit, rate, usual[unit], noises[unit.resource]) for unit, rate in measured.rates.items()
    }
    for (resource, _), units in groups.items():
        least = max(policy.noise_peers, policy.noise_host if resource is Resource.HOST else 0.0)
        rates = [_steady(found[unit], policy) for unit in units]
        fast = _fast(rates, policy)
        enough = len(fast) >= max(2, len(rates) / 4)
        for unit, rate in zip(units, rates, strict=True):
            peers = _to_peers(rate, fast if enough else rates, least)
            found[unit] = replace(found[unit], peers=peers, lone=rate in fast and not enough)
    return found


def common(ones: Sequence[Deviation], policy: StragglerPolicy) -> float:
    """The loss of all of several units against their own histories; 0 unless each is slow."""
    parts = [loss.part for one in ones if (loss := one.own_loss(policy)) is not None]
    if len(ones) < 2 or len(parts) < len(ones):  # noqa: PLR2004
        return 0.0
    return low_median(parts)


def without(one: Deviation, lost: float) -> Deviation:
    """The deviation beside what all units have lost alike, which no comparison with each other shows."""
    return one if one.own is None else replace(one, own=one.own.beside(lost))


def product_seconds(micro: Micro) -> float:
    """Seconds of a matrix product by which a GPU is judged: the mean where the worker sent one."""
    return micro.gemm_mean or micro.gemm_seconds


def memory_rate(micro: Micro) -> float:
    """Bytes per second that a copy reads and writes, by the mean where there is one; 0 without a time."""
    seconds = micro.copy_mean or micro.copy_seconds
    return COPY_TRAFFIC * micro.copy_bytes / seconds if seconds > 0 else 0.0


def _rates(probed: Probed, document: Document) -> Iterator[tuple[Unit, float]]:
    uuids = probed.plan.gpus
    for micro in document.micros:
        seconds, rate = product_seconds(micro), memory_rate(micro)
        if seconds > 0:
            yield Unit(Resource.COMPUTE, uuids[micro.gpu]), 1 / seconds
        if rate > 0:
            yield Unit(Resource.MEMORY, uuids[micro.gpu]), rate
    for copy in document.copies:
        if copy.seconds > 0:
            unit = Unit(Resource.PAIR, uuids[copy.source], uuids[copy.destination])
            yield unit, copy.size_bytes / copy.seconds
    for host, path in _hosts(probed, document):
        if is_placed(path, host.near):
            seconds = host.to_device + host.from_device
            yield Unit(Resource.HOST, uuids[host.gpu]), 2 * host.size_bytes / seconds


def _hosts(probed: Probed, document: Document) -> list[tuple[HostCopies, HostPath]]:
    return [(one, probed.paths[one.gpu]) for one in document.hosts if probed.paths]


def _others(probed: Probed, document: Document) -> Iterator[tuple[str, bool]]:
    """Processes share a GPU in time slices: some runs are as fast as ever and others wait for a slice."""
    for micro in document.micros:
        used = probed.gpus[micro.gpu].others_memory
        sliced = micro.gemm_high > SLICED * micro.gemm_low or micro.copy_high > SLICED * micro.copy_low
        if used is not None and sliced:
            yield probed.plan.gpus[micro.gpu], used >= MOSTLY


def _kind(probed: Probed, document: Document) -> str:
    """Another engine, driver or size measures something else."""
    sizes = {micro.copy_bytes for micro in document.micros}
    driver = document.versions.get("cuda_driver", "")
    return f"{probed.plan.engine} {driver} {probed.plan.copy_bytes} {max(sizes, default=0)}"


def _ways(probed: Probed, document: Document) -> Iterator[tuple[Unit, str]]:
    """Yield GPUs of one product, with equal ways to the host; pairs of such GPUs that an even wire joins."""
    names = {gpu.uuid: gpu.name for one in probed.conditions for gpu in one.group.gpus}
    uuids = probed.plan.gpus
    for micro in document.micros:
        for resource in (Resource.COMPUTE, Resource.MEMORY):
            yield Unit(resource, uuids[micro.gpu]), f"a {names.get(uuids[micro.gpu], '')}"
    for host, path in _hosts(probed, document):
        uuid = uuids[host.gpu]
        yield Unit(Resource.HOST, uuid), f"h {names.get(uuid, '')} {path.pcie} {path.c2c} {path.hidden}"
    wires = dict(_wires(probed, document))
    for copy in document.copies:
        ends = (uuids[copy.source], uuids[copy.destination])
        wire = wires[Unit(Resource.PAIR, *ends)]
        if wire not in UNEVEN:
            products = " and ".join(sorted(names.get(uuid, "") for uuid in ends))
            yield Unit(Resource.PAIR, *ends), f"{wire} {products}"


def _wires(probed: Probed, document: Document) -> Iterator[tuple[Unit, str]]:
    """Yield each pair's even wire, which joins the smallest group of both GPUs, or its other way."""
    uuids = probed.plan.gpus
    even = {
        frozenset(members): one.group.kind.value
        for members, one in zip(probed.plan.groups, probed.conditions, strict=False)
        if one.group.kind in EVEN
    }
    for copy in document.copies:
        homes = [members for members in even if {copy.source, copy.destination} <= members]
        home = min(homes, key=len, default=None)
        how = UNEVEN[copy.direct]
        wire = how if home is None else f"{even[home]} {sorted(home)} {how}"
        yield Unit(Resource.PAIR, uuids[copy.source], uuids[copy.destination]), wire


def _links(probed: Probed) -> Iterator[tuple[Unit, float]]:
    """Yield by how much the lowest link carried less than the mean; a silent link does not count."""
    even = all(one.group.kind in SPREAD for one in probed.conditions)
    for links in probed.links if even else ():
        ways = ([value for value in values if value] for values in (links.transmit, links.receive))
        lost = [1 - min(known) * len(known) / sum(known) for known in ways if len(known) > 1]
        if lost:
            yield Unit(Resource.LINK, probed.plan.gpus[links.gpu]), max(lost)


def _alone(unit: Unit, rate: float, reference: UsualRate | None, noise: float) -> Deviation:
    if reference is None:
        return Deviation(unit, rate)
    own = Loss(1 - rate / reference.rate, max(noise, _unsure(reference)), reference.rate)
    return Deviation(unit, rate, own, count=reference.count)


def _unsure(usual: UsualRate) -> float:
    """The spread of a history, larger the fewer values it is made of."""
    return usual.spread * (1 + FEW / usual.count)


def _steady(one: Deviation, policy: StragglerPolicy) -> float:
    """The rate by which peers are compared: the history of a unit that is as it was; no noise decides."""
    return one.rate if one.own is None or one.own_loss(policy) is not None else one.own.usual


def _fast(rates: Sequence[float], policy: StragglerPolicy) -> Sequence[float]:
    """Return the few fast rates that a gap parts from all others; else none."""
    ordered = sorted(rates, reverse=True)
    gaps = (n for n in range(1, (len(rates) + 1) // 2) if ordered[n] <= (1 - policy.peers) * ordered[n - 1])
    return ordered[: next(gaps, 0)]


def _to_peers(rate: float, rates: Sequence[float], least: float) -> Loss | None:
    """Against the middle of all, of an even number the faster of both: so of two GPUs the faster."""
    if len(rates) < 2:  # noqa: PLR2004
        return None
    usual = high_median(rates)
    noise = max(least, spread([one / usual for one in rates], 1.0))
    return Loss(1 - rate / usual, noise, usual)
