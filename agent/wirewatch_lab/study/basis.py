"""How to judge a run: the ways in which its ranks may be joined, by its header, its log or the options.

A way gives the expected busbw, and the busbw that no run exceeds. With several ways left, a run is slow only
if it is slow by all of them. It is well only if it is well by the best way.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from wirewatch.busbw.expected import Expectation, choose, expect, wire
from wirewatch.busbw.formulas import RING, factor
from wirewatch.busbw.profiles import (
    SURE,
    VAGUE,
    NetworkKind,
    NetworkProfile,
    NodeGroup,
    expect_between,
    most_between,
    of_gpus,
    plain,
)
from wirewatch.busbw.references import GIB, LEAST_BYTES, NVLS_FROM, architecture
from wirewatch.core.hostlink import Pcie
from wirewatch.core.pci import Path, Place, normal_pci
from wirewatch.core.probe import ALL_REDUCE, MIB, Conditions
from wirewatch.core.topology import (
    NVLINK,
    GpuPart,
    Group,
    Topology,
    WireKind,
    groups,
    islands,
    nvlink_product,
)
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.core.words import GB, GBIT, MICRO, either, rate, size
from wirewatch.nccl.lists import ALGO, lacks
from wirewatch.nccl.settings import NVLS_ENABLE, slowing_settings
from wirewatch_lab.advice.described import LANES, DescriptionError, group_of
from wirewatch_lab.advice.machine import DESCRIBED, AdvisedMachine
from wirewatch_lab.advice.products import gpu_names, gpu_product
from wirewatch_lab.advice.settings.plugins import wanted
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Estimate, Ranks
from wirewatch_lab.advice.times.evidence import first_gpus
from wirewatch_lab.study.curve import KnownRates
from wirewatch_lab.study.grid import EAGER
from wirewatch_lab.study.logsummary import LogSummary
from wirewatch_lab.study.runs import BenchmarkRun, RankGpu

_FEW = 2
_NO_P2P, _NO_FIGURE = "GeForce", "what they reach through host memory is not known"
"""Cards between which the driver offers no P2P over PCIe (NVIDIA/nccl-tests#287)."""
_ALONE = "one GPU alone has no wire to another"
_SLOW_HOST = 50e-6
"""Longest launch on a healthy host, in seconds: 33 us on a virtual machine of two H200, 45 of 8 A100."""
_NOWHERE = Place("", "", (), None)
_LARGEST = 8 * GIB
_PORTS_EACH, _FASTEST, _BOARDS = 8, 800 * GBIT, 16
_PATHS = (Path.PHB, Path.NODE, Path.SYS)
_PORT = re.compile(r"\[\d{1,3}\]([^\s:]{1,64}):\d{1,3}/(IB|RoCE)\b", re.ASCII)
_PORTS = frozenset({NetworkKind.INFINIBAND, NetworkKind.ROCE})
_NAMES = (
    (re.compile(r"mlx5_|ib"), (NetworkKind.INFINIBAND, NetworkKind.ROCE)),
    (re.compile(r"rdmap|efa"), (NetworkKind.EFA,)),
)
"""Networks by Linux's names for their NICs."""
_RATES: Mapping[str, tuple[float, ...]] = {
    "Ampere": (100, 200),
    "Hopper": (200, 400),
    "Blackwell": (400, 800),
}
"""Gb/s of ports in nodes of an architecture."""


@dataclass(frozen=True, slots=True)
class JoinedWay:
    """A way in which ranks may be joined: `expect` of an operation and size, and the `most` busbw of it."""

    expect: Callable[[str, int], Expectation | Absent]
    most: Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Basis:
    """The ways, with remarks. `reason`: why there are no ways, or a question that would distinguish several.

    `strict`: a run is well only by the best way's expectation; else half of it is enough. `settings`:
    settings of the run. `slowing`: settings that slow it, or may: name, value and effect. `followed`:
    settings that the expectation already includes.
    """

    ways: tuple[JoinedWay, ...] = ()
    reason: str = ""
    remarks: tuple[str, ...] = ()
    strict: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    slowing: tuple[tuple[str, str, str], ...] = ()
    followed: frozenset[str] = frozenset({NVLS_ENABLE})

    def causes(self) -> Iterator[tuple[str, str, str]]:
        """Yield the settings that lower the expectation."""
        return (one for one in self.slowing if one[0] not in self.followed)


BasisOf = Callable[[BenchmarkRun], Basis]
Ground = tuple[list[Conditions], tuple[str, ...]]
"""All conditions that the GPUs of a run may have on one node, with remarks."""
NodeGround = Callable[[BenchmarkRun, int | None], Ground | Absent]
"""Returns the conditions of so many GPUs of a node that is read."""


@dataclass(frozen=True, slots=True)
class LoggedNetwork:
    """The network between nodes by a log and a topology file: its possible `kinds`.

    `nics`: NICs that NCCL uses on a node, 0 where that is not logged. `rate`: of each NIC, in bytes per
    second.
    """

    kinds: tuple[NetworkKind, ...] = ()
    nics: int = 0
    rate: float | None = None

    def profiles(self, product: str) -> tuple[NetworkProfile, ...]:
        """Return the possible networks on nodes with such GPUs."""
        named = tuple(one for one in of_gpus(product) if one.kind in self.kinds)
        rated = tuple(one for one in named if (one.nics, one.nic_rate) == (self.nics, self.rate))
        if not _PORTS.issuperset(self.kinds):
            return rated or named
        known = [rate * GBIT for rate in _RATES.get(value_or(architecture(product), ""), ())]
        rates = known if self.rate is None else [self.rate]
        return tuple(plain(kind, self.nics, rate) for kind in self.kinds for rate in rates if self.nics)


def logged_network(log: LogSummary) -> LoggedNetwork:
    """Return the network by NCCL's statements, the connections between ranks, and the names of NICs."""
    texts = [one.text for one in log.network]
    used = [text.removeprefix("used: ") for text in texts if text.startswith("used: ")]
    wires = (one.transport.split("/") for communicator in log.communicators for one in communicator.wires)
    names = " ".join((*used, *(wire[1] for wire in wires if wire[0] == "NET"))).lower()
    ports = {match[1]: match[2] for text in texts for match in _PORT.finditer(text)}
    roce = "gib" in names or (bool(ports) and "IB" not in ports.values())
    signs = (
        ("libfabric", NetworkKind.EFA), ("fastrak", NetworkKind.TCPXO), ("tcpx", NetworkKind.TCPX),
        ("socket", NetworkKind.SOCKETS), ("ib", NetworkKind.ROCE if roce else NetworkKind.INFINIBAND),
        ("rdma", NetworkKind.ROCE if roce else NetworkKind.INFINIBAND),
    )  # fmt: skip
    kinds = tuple(kind for sign, kind in signs if sign in names)[:1]
    if not kinds and ports:
        kinds = (NetworkKind.ROCE if roce else NetworkKind.INFINIBAND,)
    if not kinds and log.nics.names:
        kinds = next((some for sign, some in _NAMES if all(map(sign.match, log.nics.names))), ())
    return LoggedNetwork(kinds, log.nics.count, log.nics.rate)


@dataclass
class RunGrounds:
    """Evidence beside the runs themselves, and the basis of each run by it.

    `settings`: override a run's settings. `node`: a node that is read. `topology`: of one node, named `of`.
    `machine`: a machine that was described. `network`: the named network. `logged`: the network by the log in
    the same file.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    topology: Topology | None = None
    of: str = ""
    node: NodeGround | None = None
    machine: AdvisedMachine | None = None
    network: NetworkProfile | None = None
    logged: LoggedNetwork = LoggedNetwork()
    known: dict[object, Basis] = field(default_factory=dict)

    def basis(self, run: BenchmarkRun) -> Basis:
        """Return the basis to judge a run by."""
        if run.mixed:
            return Basis(reason=f"{run.mixed}: build it with MPI=1")
        nodes = self._nodes(run)
        if nodes > 1 and run.ranks is not None:
            # The question that is asked then quotes the run.
            return self._between(run, run.ranks, nodes)
        devices = tuple((one.product, one.bus_id) for one in run.communicator)
        key = (devices, run.ranks, run.settings, run.launch, one_process(run))
        if key not in self.known:
            self.known[key] = self._inside(run, run.ranks)
        return self.known[key]

    def expected(self, run: BenchmarkRun) -> KnownRates | None:
        """Return the expected busbw of each size of a run, by the best way; None where the run is unknown."""
        if not run.op or not run.ranks or run.mixed:
            return None
        sizes = sorted({row.size_bytes for row in run.rows})
        found = {at: [way.expect(run.op, at) for way in self.basis(run).ways] for at in sizes}
        best = {
            at: max((one.busbw for one in due if not isinstance(one, Absent)), default=None)
            for at, due in found.items()
        }
        known = tuple((at, busbw) for at, busbw in best.items() if busbw is not None)
        return KnownRates(run.op, run.ranks, None, known)

    def _nodes(self, run: BenchmarkRun) -> int:
        """Return a run's number of nodes by its header, or the fewest for its ranks where that lacks some."""
        each = self.machine.gpus if self.machine else 0
        if run.nodes:
            each = len(run.communicator) // run.nodes
        return max(run.nodes, -(-run.ranks // each) if each and run.ranks and run.nodes != 1 else 0)

    def _settings(self, run: BenchmarkRun) -> dict[str, str]:
        return {**dict(run.settings), **self.settings}

    def _inside(self, run: BenchmarkRun, ranks: int | None) -> Basis:
        """Return the basis of so many ranks on one node."""
        found = self._conditions(run, ranks)
        if isinstance(found, Absent):
            return Basis(reason=found.detail)
        conditions, remark = found
        settings = self._settings(run)
        variants = [replace(one, settings={**settings, **one.settings}) for one in conditions]
        reason = "" if len(variants) == 1 else _unsure(variants)
        launched = one_process(run)
        ways = tuple(node_way(one, run.launch, one_process=launched) for one in variants)
        if any(one.group.kind is WireKind.PCIE and _NO_P2P in one.group.gpus[0].name for one in variants):
            through = Absent(Why.MISSING, f"{_NO_P2P} cards have no P2P: {_NO_FIGURE}")
            ways += (
                JoinedWay(lambda *_: through, lambda op: _carried(variants, op, variants[0].group.ranks)),
            )
            reason = through.detail
        slowing = slowing_settings(settings, nvlink=all(one.group.kind in NVLINK for one in variants))
        if all(choose(one, ALL_REDUCE)[0] == RING for one in variants):
            # Without NVLS nothing is lost by Ring.
            slowing = tuple(one for one in slowing if one[0] != ALGO or lacks(ALGO, one[1], RING))
        return Basis(ways, reason, remark, settings=settings, slowing=slowing)

    def _conditions(self, run: BenchmarkRun, ranks: int | None) -> Ground | Absent:
        """Return all possible conditions of so many GPUs of one node, with remarks."""
        if self.node is not None:
            return self.node(run, ranks)
        if self.machine is not None:
            whole = self.machine.group(ranks or self.machine.gpus)
            if whole is None:
                what = f"{self.machine.of} has fewer than {ranks} GPUs"
                return Absent(Why.UNSUPPORTED, what)
            part = first_gpus(whole, ranks or whole.group.ranks)
            return variants_of(part), (f"{part.group.ranks} GPUs of {self.machine.of}",)
        if self.topology is not None:
            return by_topology(self.topology, self.of, run, ranks)
        return by_header(run, ranks)

    def _between(self, run: BenchmarkRun, ranks: int, nodes: int) -> Basis:
        """Return the basis of ranks spread equally over several nodes."""
        names = [one.product for one in run.communicator] or (gpu_names(self.machine) if self.machine else ())
        product = next(iter(names), "")
        if ranks % nodes:
            return Basis(reason=f"its {ranks} ranks are not equally many on each of {nodes} nodes")
        each = ranks // nodes
        settings = self._settings(run)
        algorithms = settings.get(ALGO, "").upper()
        trees = algorithms != RING.upper()
        conditions: list[Conditions] = []
        if each >= _FEW:
            found = self._conditions(run, each)
            conditions = [] if isinstance(found, Absent) else found[0]
        own = settings if trees else {**settings, NVLS_ENABLE: "0"}
        inside = [replace(one, settings=own) for one in conditions]
        arch = value_or(architecture(product), "")
        profiles = self._profiles(product)
        if clash := _clash(profiles, self.logged.kinds):
            return Basis(reason=clash, strict=True)
        if profiles:
            either_age = [age for one in profiles for age in (one, one.older) if age]
            ways = tuple(network_way(one, nodes, each, arch, inside, trees=trees) for one in either_age)
            reason = _which(profiles, older=len(profiles) < len(ways))
            names = tuple(f"over {one.lines()}" for one in profiles)
            followed = frozenset({NVLS_ENABLE} if trees else {NVLS_ENABLE, ALGO})
            basis = Basis(ways, reason, names, strict=True, settings=settings, followed=followed)
            return replace(basis, slowing=_slowing_between(settings, profiles[0]))
        unknown = Absent(Why.MISSING, "the network is not known")
        group = NodeGroup(nodes, each, arch, _inside(inside, run.op), trees)

        def most(op: str) -> float:
            return min(_carried(inside, op, ranks), _fastest(product, op, group))

        alone, nothing = (
            JoinedWay(due, most) for due in (lambda op, _size: _alone(inside, op), lambda _op, _size: unknown)
        )
        return Basis((alone, nothing), _question(run, product, self.logged, group), strict=True)

    def _profiles(self, product: str) -> tuple[NetworkProfile, ...]:
        """Return the possible networks: the named network, the machine's ports, or the log's networks."""
        named = self.network or (self.machine and self.machine.network)
        if named:
            return (named,)
        ports = value_or(self.machine.conditions[0].network, ()) if self.machine else ()
        rates = [value_or(one.rate, 0.0) for one in ports]
        if rates and min(rates) > 0:
            layer = NetworkKind.ROCE if ports[0].layer == "Ethernet" else NetworkKind.INFINIBAND
            return (plain(layer, len(rates), sum(rates) / len(rates)),)
        return self.logged.profiles(product)


def _fastest(product: str, op: str, group: NodeGroup) -> float:
    """Return a busbw above every network of today: eight ports of 800 Gb/s a node; infinite for a rack."""
    known = gpu_product(product)
    if known is None or known.domain > _BOARDS:
        return math.inf
    return most_between(plain(NetworkKind.INFINIBAND, _PORTS_EACH, _FASTEST), op, group)


def _slowing_between(
    settings: Mapping[str, str], profile: NetworkProfile
) -> tuple[tuple[str, str, str], ...]:
    """Return settings that slow or may slow, without settings that the network's plugin asks for."""
    asked = wanted(profile, settings)
    return tuple(one for one in slowing_settings(settings, nvlink=False) if one[0] not in asked)


def _which(profiles: Sequence[NetworkProfile], *, older: bool) -> str:
    """Return a question that distinguishes several networks, or two ages of NCCL; empty for one network."""
    if older:
        return f"NCCL 2.9 and older reached as little on {profiles[0].name}: is its NCCL that old?"
    rates = list(dict.fromkeys(f"{one.nic_rate / GBIT:.0f}" for one in profiles))
    kinds = list(dict.fromkeys(one.kind.value for one in profiles))
    which = f"of {either(rates)} Gb/s" if len(rates) > 1 else either(kinds)
    return "" if len(profiles) == 1 else f"are its ports {which}? Say it by --network"


def _clash(profiles: Sequence[NetworkProfile], logged: Sequence[NetworkKind]) -> str:
    """Ask which network is right where the log contradicts the named network; sockets fit any network."""
    kinds = {one.kind for one in profiles}
    open_ = not kinds or not logged or kinds & {*logged, NetworkKind.NVLINK}
    if open_ or NetworkKind.SOCKETS in logged or _PORTS.issuperset((*kinds, *logged)):
        return ""
    named = f"{profiles[0].name} is {profiles[0].kind.value}"
    return f"{named}, and the log shows {logged[0].value}: which is right?"


def one_process(run: BenchmarkRun) -> bool:
    """Return whether a single process launches on all GPUs of a node, as nccl-tests without MPI does."""
    each = run.parameters.get("nGpus", "1"), run.parameters.get("nThread", "1")
    if run.communicator:
        return len({(one.host, one.pid) for one in run.communicator}) < len(run.communicator)
    return each != ("1", "1")


def node_way(conditions: Conditions, launch: str, *, one_process: bool) -> JoinedWay:
    """Join GPUs of one node as a probe of them does; small messages follow the model of their steps."""
    times = CollectiveTimes(AdvisedMachine("it", DESCRIBED, (conditions,)))
    ranks = conditions.group.ranks
    arch = value_or(architecture(conditions.group.gpus[0].name), "") if ranks else ""

    @cache
    def small(op: str, size_bytes: int) -> Estimate | Absent:
        return times.estimate(op, Ranks(ranks), size_bytes, launch, one_process=one_process)

    def due(op: str, size_bytes: int) -> Expectation | Absent:
        if size_bytes >= LEAST_BYTES or f"{op}@{size_bytes}" in conditions.pins:
            return expect(conditions, op, size_bytes)
        # Between powers of two the larger one's time: a run may have thousands of sizes.
        found = small(op, 1 << (size_bytes - 1).bit_length() if size_bytes else 0)
        if isinstance(found, Absent):
            return found
        seconds = found.seconds
        within = max(found.within, SURE if arch == "Hopper" else VAGUE)
        # A slow host launches later; that is no fault of the wires.
        within = max(within, 1 - seconds / _SLOW_HOST) if launch == EAGER else within
        busbw = factor(op, ranks) * size_bytes / seconds
        line = f"{size(size_bytes)}: {seconds * MICRO:.0f} us by NCCL's structure -> {rate(busbw)}"
        lines = (*found.remarks, line)
        return Expectation(busbw, busbw, found.taken, found.confidence, found.source, lines, within)

    return JoinedWay(due, lambda op: _carried([conditions], op, ranks))


def _carried(inside: Sequence[Conditions], op: str, ranks: int) -> float:
    """Return the highest busbw of the wires inside a node, infinite where not known.

    With NVLS the switch adds up: each GPU sends its message once.
    """
    rates = []
    for one in inside:
        rail = wire(one)
        arch = value_or(architecture(one.group.gpus[0].name), "")
        adds = one.group.kind is WireKind.SWITCH and arch in NVLS_FROM
        times = max(1.0, factor(op, ranks)) if adds else 1.0
        rates.append(math.inf if isinstance(rail, Absent) else times * rail.rate)
    return max(rates, default=math.inf)


def network_way(
    profile: NetworkProfile, nodes: int, each: int, arch: str, inside: Sequence[Conditions], *, trees: bool
) -> JoinedWay:
    """Join nodes by a network, with the wires of one node inside them."""

    def due(op: str, size_bytes: int) -> Expectation | Absent:
        group = NodeGroup(nodes, each, arch, _inside(inside, op), trees)
        return expect_between(profile, op, group, size_bytes)

    def most(op: str) -> float:
        between = most_between(profile, op, NodeGroup(nodes, each, arch, math.inf, trees))
        return min(between, _carried(inside, op, nodes * each))

    return JoinedWay(due, most)


def _inside(inside: Sequence[Conditions], op: str) -> float:
    """Return the highest busbw of large messages in one node, infinite where not known."""
    found = _alone(inside, op)
    return math.inf if isinstance(found, Absent) else found.busbw


def _alone(inside: Sequence[Conditions], op: str) -> Expectation | Absent:
    found = [expect(one, op, _LARGEST) for one in inside]
    known = [one for one in found if not isinstance(one, Absent)]
    return max(known, key=lambda one: one.busbw, default=Absent(Why.MISSING, "what one node reaches"))


def _question(run: BenchmarkRun, product: str, logged: LoggedNetwork, group: NodeGroup) -> str:
    """Ask which network it is, and state the run's result on the usual networks of such GPUs."""
    names = [one.name for one in of_gpus(product)]
    if NetworkKind.SOCKETS in logged.kinds:
        return (
            "NCCL used TCP sockets, and no RDMA: say over which ports, such as --network 1x100G:sockets, "
            "or find why by NCCL_DEBUG_SUBSYS=INIT,NET"
        )
    ask = f"which network joins its {group.nodes} nodes? Say --network {either([*names[:3], '8xNDR'])}"
    rows = [(row.size_bytes, row) for row in run.rows if row.size_bytes >= MIB and run.op]
    if not rows:
        return ask
    largest, row = max(rows, key=lambda pair: pair[0])
    best = max(one.busbw for _, one in row.placed())
    shares: dict[str, str] = {}
    for profile in of_gpus(product):
        due = expect_between(profile, run.op, group, largest)
        if not isinstance(due, Absent):
            shares.setdefault(f"{best / due.busbw * 100:.0f} %", profile.name)
    said = [f"{share} of {name}" for share, name in shares.items()][:3]
    return f"{ask}; its {best / GB:.1f} GB/s are {', '.join(said)}" if said else ask


def by_header(run: BenchmarkRun, ranks: int | None) -> Ground | Absent:
    """Return conditions of the GPUs in a run's own header, by product data."""
    if not run.communicator:
        return Absent(Why.MISSING, "no header names its GPUs: say --machine, such as 8xH100")
    if run.nodes == 1 and len(run.communicator) != ranks:
        what = f"its header names {len(run.communicator)} of {ranks} GPUs: say --machine"
        return Absent(Why.MISSING, what)
    if ranks is None or ranks < _FEW:
        return Absent(Why.UNSUPPORTED, _ALONE)
    devices = sorted(run.communicator, key=lambda device: device.device)[:ranks]
    group, pcie = _joined(devices)
    if isinstance(group, Absent):
        return group
    what = f"{group.ranks} {group.gpus[0].name} of its header, taken as joined by {group.kind.value}"
    return variants_of(Conditions(group, pcie=pcie)), (what,)


def _joined(devices: Sequence[RankGpu]) -> tuple[Group | Absent, Pcie | Absent]:
    """Return a header's GPUs on one node, as product data join them, and their slots."""
    names = sorted({device.product for device in devices})
    known = [nvlink_product(name) for name in names]
    counts = [one.counts if one else () for one in known]
    products = [gpu_product(name) for name in names]
    slots: Pcie | Absent = Absent(Why.MISSING, "not in the header")
    pairs = zip(counts, names, strict=True)
    if all(links and 0 not in links and "V100" not in name for links, name in pairs):
        links = {name: max(each) for name, each in zip(names, counts, strict=True)}
        kind, of = WireKind.SWITCH, tuple(links[device.product] for device in devices)
    elif len(names) > 1 or products[0] is None:
        what = f"how {', '.join(names)} are joined is not in its header"
        return Absent(Why.MISSING, f"{what}: say --machine, such as 8xH100"), slots
    else:
        try:
            group = group_of(len(devices), products[0])
        except DescriptionError as error:
            return Absent(Why.MISSING, str(error)), slots
        kind, of, slots = group.kind, group.links, Pcie(products[0].pcie, LANES)
    gpus = tuple(GpuPart(f"rank {one.rank}", one.device, one.product, _NOWHERE) for one in devices)
    crossing = Absent(Why.MISSING, "not in the header") if kind is WireKind.PCIE else None
    return Group(gpus, kind, of, whole=True, crossing=crossing), slots


def variants_of(conditions: Conditions) -> list[Conditions]:
    """Return each variant that a description leaves open: cards without their bridge, and paths."""
    group = conditions.group
    crossing = group.crossing
    if group.kind is WireKind.PCIE and isinstance(crossing, Absent):
        return [replace(conditions, group=replace(group, crossing=path)) for path in _PATHS]
    if group.kind is WireKind.PAIR and not group.gpus[0].place.address:
        bare: Group = replace(group, kind=WireKind.PCIE, links=(0,) * group.ranks)
        unknown = Absent(Why.MISSING, "not described")
        return [conditions, *variants_of(replace(conditions, group=replace(bare, crossing=unknown)))]
    return [conditions]


def _unsure(variants: Sequence[Conditions]) -> str:
    bridged = any(one.group.kind is WireKind.PAIR for one in variants)
    what = "a bridge joins its GPUs" if bridged else "its GPUs are on one host bridge or on two sockets"
    return f"whether {what} is not known: pass --machine FILE"


def by_topology(topology: Topology, of: str, run: BenchmarkRun, ranks: int | None) -> Ground | Absent:
    """Return conditions of as many GPUs of a topology as a run has, by its bus ids if present."""
    part = chosen(topology, run, ranks)
    if isinstance(part, Absent):
        return part
    found = groups(part, islands(part))
    if not found:
        return Absent(Why.UNSUPPORTED, _ALONE)
    names = {gpu.name for gpu in part.gpus}
    others = {device.product for device in run.communicator} - names
    remarks = [f"{found[0].ranks} GPUs of {of}"]
    if others:
        remarks.append(f"that has {', '.join(sorted(names))}, the run {', '.join(sorted(others))}")
    return [Conditions(found[0])], tuple(remarks)


def chosen(topology: Topology, run: BenchmarkRun, ranks: int | None = None) -> Topology | Absent:
    """Return the part of a topology that a run used: GPUs by bus id, else the first GPUs."""
    asked = ranks or run.ranks or len(topology.gpus)
    if asked > len(topology.gpus):
        return Absent(Why.UNSUPPORTED, f"the topology has {len(topology.gpus)} GPUs, the run {asked} ranks")
    buses = {normal_pci(device.bus_id) for device in run.communicator} - {""}
    ours = [gpu for gpu in topology.gpus if gpu.place.address.rpartition(".")[0] in buses]
    gpus = ours if len(ours) == asked else sorted(topology.gpus, key=lambda gpu: gpu.index)[:asked]
    names = {gpu.uuid for gpu in gpus}
    wires = tuple(wire for wire in topology.nvlink if wire.uuid in names)
    return replace(topology, gpus=tuple(gpus), nvlink=wires)
