"""Runs of nccl-tests against what their wires should give: by expected busbw, and by targets between nodes.

Each size is judged by itself; the average that nccl-tests prints mixes small messages with large ones and
decides nothing. The targets are those of a public guide for eight H100 a node with NDR InfiniBand.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from wirewatch.busbw.expected import Expectation, expect
from wirewatch.core import words
from wirewatch.core.pci import Place, normal_pci
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, MIB, REDUCE_SCATTER, Conditions
from wirewatch.core.topology import GpuPart, Group, Topology, WireKind, groups, islands, nvlink_product
from wirewatch.core.types import Absent, Health, Why
from wirewatch_lab.study.logsummary import LogSummary
from wirewatch_lab.study.points import RepeatedRow, is_wrong, middle, points
from wirewatch_lab.study.runs import BenchmarkRun, shortfall

RATIO = 0.7
"""The share of what is expected below which a size fails."""
NEAR = 1.3
"""A size counts as a target's when neither is more than this many times the other."""
_VOLTA = "V100"
_FEW = 2


@dataclass(frozen=True, slots=True)
class Target:
    """What a collective between nodes should reach at a size: `expected` and `least` in bytes per second."""

    op: str
    size_bytes: int
    expected: float
    least: float
    cause: str


TARGETS = (
    Target(
        ALL_REDUCE, 16 * MIB, 40e9, 30e9,
        "NCCL_ALGO names an algorithm that does not fit, or GPUDirect RDMA is not used",
    ),
    Target(ALL_REDUCE, MIB, 20e9, 10e9, "NCCL_PROTO names a protocol that does not fit, or channels are few"),
    Target(ALL_REDUCE, MIB // 10, 5e9, 2e9, "small messages do not take the protocol LL"),
    Target(ALL_GATHER, 16 * MIB, 42e9, 32e9, "NCCL_CROSS_NIC is off"),
    Target(REDUCE_SCATTER, 16 * MIB, 42e9, 32e9, "GPUs and their NICs are far apart in the PCI tree"),
)  # fmt: skip
TARGETS_ARE = (
    "targets of a guide for 8 H100 a node with NDR InfiniBand. They are low: 40 GB/s is 80 % of one port of "
    "50 GB/s, and eight ports gave 437 to 479 GB/s from 1 GiB on"
)


@dataclass(frozen=True, slots=True)
class JudgedSize:
    """A row against its expectation: busbw in bytes per second, the median of its repeats."""

    point: RepeatedRow
    in_place: bool
    busbw: float
    expected: Expectation

    @property
    def ratio(self) -> float:
        """The share of what is expected."""
        return self.busbw / self.expected.busbw


@dataclass(frozen=True, slots=True)
class JudgedTarget:
    """The row that is nearest to a target's size; None where none is near."""

    target: Target
    point: RepeatedRow | None
    in_place: bool
    busbw: float


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run, judged. `reason`: why not, in words, empty where something was. `failures`: of the run itself.

    `low`: the sizes that are below the ratio. `checked`: whether any of its values were.
    """

    run: BenchmarkRun
    health: Health
    points: Sequence[RepeatedRow]
    sizes: Sequence[JudgedSize]
    low: Sequence[JudgedSize]
    targets: Sequence[JudgedTarget]
    failures: Sequence[str]
    remarks: Sequence[str]
    reason: str
    checked: bool


@dataclass(frozen=True, slots=True)
class Basis:
    """What a run is judged by: conditions of its GPUs with remarks about them, or why there are none."""

    conditions: Conditions | Absent
    remarks: tuple[str, ...] = ()


BasisOf = Callable[[BenchmarkRun], Basis]


def judge(run: BenchmarkRun, basis_of: BasisOf, ratio: float = RATIO) -> JudgedRun:
    """Judge every size of a settled run; it fails below the share `ratio` of what is expected.

    Raises ValueError: the run has too many different rows.
    """
    found = points(run)
    failures = _failures(run, found)
    checked = any(is_wrong(run, placed) is not None for point in found for placed in point.placed.values())
    basis = basis_of(run)
    sizes, reason = _sizes(run, found, basis.conditions)
    # For each target of the run's collective the nearest row; out of place where the run has both.
    asked = [target for target in TARGETS if target.op == run.op and len(run.hosts) > 1]
    targets = tuple(_nearest(target, found) for target in asked)
    reached = [one for one in targets if one.point is not None]
    low = [one for one in sizes if one.ratio < ratio]
    missed = [one for one in reached if one.busbw < one.target.least]
    if failures:
        health = Health.FAILED
    elif low or missed:
        health = Health.DEGRADED
    else:
        health = Health.OK if sizes or reached else Health.UNKNOWN
    remarks = (*run.remarks, *_remarks(run, checked=checked), *(basis.remarks if sizes else ()))
    why = "" if sizes or reached else reason
    return JudgedRun(run, health, found, sizes, low, targets, failures, remarks, why, checked)


def overall(healths: Iterable[Health], failures: Sequence[str]) -> Health:
    """The health of all runs: what could not be judged counts only where nothing could."""
    known = set(healths) - {Health.UNKNOWN}
    return Health.FAILED if failures else max(known, default=Health.UNKNOWN)


def of_log(log: LogSummary) -> Health:
    """The health of a log alone: whether its hot collective's wire is known, and goes around no fallback."""
    if any(wire.fallback for one in log.communicators for wire in one.wires):
        return Health.DEGRADED
    return Health.OK if log.hot is not None and log.hot.wires else Health.UNKNOWN


def by_header(settings: Mapping[str, str]) -> BasisOf:
    """Conditions of the GPUs that a run's own header shows, by product data; `settings` over the run's."""

    def basis(run: BenchmarkRun) -> Basis:
        if not run.communicator:
            return Basis(Absent(Why.MISSING, "no header names its GPUs: pass --topology"))
        if len(run.hosts) > 1:
            return Basis(between(run))
        if len(run.communicator) != run.ranks:
            what = f"its header names {len(run.communicator)} of {run.ranks} GPUs: pass --topology"
            return Basis(Absent(Why.MISSING, what))
        group = _group(run)
        if isinstance(group, Absent):
            return Basis(group)
        what = f"{group.ranks} {group.gpus[0].name} of its header, taken as joined by {group.kind.value}"
        return Basis(Conditions(group, settings={**dict(run.settings), **settings}), (what,))

    return basis


def by_topology(topology: Topology, of: str, settings: Mapping[str, str]) -> BasisOf:
    """Conditions of as many GPUs of a topology as a run has ranks: those with its bus ids if it has them."""

    def basis(run: BenchmarkRun) -> Basis:
        if len(run.hosts) > 1:
            return Basis(between(run))
        part = chosen(topology, run)
        if isinstance(part, Absent):
            return Basis(part)
        found = groups(part, islands(part))
        if not found:
            return Basis(Absent(Why.UNSUPPORTED, "one GPU alone has no wire to another"))
        names = {gpu.name for gpu in part.gpus}
        others = {device.product for device in run.communicator} - names
        remarks = [f"{found[0].ranks} GPUs of {of}"]
        if others:
            remarks.append(f"that has {', '.join(sorted(names))}, the run {', '.join(sorted(others))}")
        return Basis(Conditions(found[0], settings={**dict(run.settings), **settings}), tuple(remarks))

    return basis


def chosen(topology: Topology, run: BenchmarkRun) -> Topology | Absent:
    """The part of a topology that a run was on: GPUs by bus id, else the first ones."""
    ranks = run.ranks or len(topology.gpus)
    if ranks > len(topology.gpus):
        return Absent(Why.UNSUPPORTED, f"the topology has {len(topology.gpus)} GPUs, the run {ranks} ranks")
    buses = {normal_pci(device.bus_id) for device in run.communicator} - {""}
    ours = [gpu for gpu in topology.gpus if gpu.place.address.rpartition(".")[0] in buses]
    gpus = ours if len(ours) == ranks else sorted(topology.gpus, key=lambda gpu: gpu.index)[:ranks]
    names = {gpu.uuid for gpu in gpus}
    wires = tuple(wire for wire in topology.nvlink if wire.uuid in names)
    return replace(topology, gpus=tuple(gpus), nvlink=wires)


def between(run: BenchmarkRun) -> Absent:
    """Why nothing is expected of a run on several nodes."""
    what = f"it ran between {len(run.hosts)} nodes, whose NICs the header does not name"
    return Absent(Why.UNSUPPORTED, what)


def _group(run: BenchmarkRun) -> Group | Absent:
    """The run's GPUs on one host, joined as product data say."""
    devices = sorted(run.communicator, key=lambda device: device.device)
    if len(devices) < _FEW:
        return Absent(Why.UNSUPPORTED, "one GPU alone has no wire to another")
    products = {device.product for device in devices}
    counts = {name: product.counts if (product := nvlink_product(name)) else () for name in products}
    unsure = sorted(name for name, links in counts.items() if not links or 0 in links or _VOLTA in name)
    if unsure:
        return Absent(
            Why.MISSING, f"how {', '.join(unsure)} are joined is not in its header: pass --topology"
        )
    place = Place("", "", (), None)
    gpus = tuple(GpuPart(f"rank {device.rank}", device.device, device.product, place) for device in devices)
    links = tuple(max(counts[device.product]) for device in devices)
    return Group(gpus, WireKind.SWITCH, links, whole=True)


def _failures(run: BenchmarkRun, found: Sequence[RepeatedRow]) -> tuple[str, ...]:
    wrong = [
        f"wrong values at {words.size(point.size_bytes)}{' in place' if in_place else ''}: {count} elements"
        for point in found
        for in_place, placed in point.placed.items()
        if (count := is_wrong(run, placed))
    ]
    if run.out_of_bounds and not wrong:
        wrong = [f"wrong values: its footer counts {run.out_of_bounds} out of bounds"]
    missing = shortfall(run)
    return (*wrong, *run.failures, *([f"incomplete: {missing}"] if missing else []))


def _sizes(
    run: BenchmarkRun, found: Sequence[RepeatedRow], conditions: Conditions | Absent
) -> tuple[tuple[JudgedSize, ...], str]:
    """Every row of which something is expected; or why of none."""
    if not run.op:
        return (), "operation not known: pass --op"
    if isinstance(conditions, Absent):
        return (), conditions.detail
    known = {size: expect(conditions, run.op, size) for size in {point.size_bytes for point in found}}
    sizes, why = [], "it has no rows"
    for point in found:
        expected = known[point.size_bytes]
        if isinstance(expected, Absent):
            why = expected.detail
            continue
        why = "no row has a bandwidth"
        for in_place, placed in point.placed.items():
            busbw = middle(placed.busbw)
            if busbw is not None:
                sizes.append(JudgedSize(point, in_place, busbw, expected))
    return tuple(sizes), why


def _nearest(target: Target, found: Sequence[RepeatedRow]) -> JudgedTarget:
    near = [
        (abs(math.log(point.size_bytes / target.size_bytes)), in_place, number)
        for number, point in enumerate(found)
        if point.size_bytes
        for in_place, placed in point.placed.items()
        if placed.busbw
    ]
    away, in_place, number = min(near, default=(math.inf, False, -1))
    if away > math.log(NEAR):
        return JudgedTarget(target, None, in_place=False, busbw=0.0)
    point = found[number]
    return JudgedTarget(target, point, in_place, median(point.placed[in_place].busbw))


def _remarks(run: BenchmarkRun, *, checked: bool) -> tuple[str, ...]:
    differing = (
        f"the busbw of {run.differing} rows is not that of {run.op} with {run.ranks} ranks: "
        "what follows from size, time and ranks is judged"
    )
    whole = run.begun and not run.ended and not shortfall(run)
    found = (
        (not checked and len(run.rows), "values were not checked"),
        (whole, "it has no footer, but all of its sizes"),
        (run.repaired, f"{run.repaired} rows were torn by NCCL's log and put together again"),
        (run.differing, differing),
        (run.cputime, "its times are the processors' (-C): those of operations follow from bandwidths"),
    )
    return tuple(text for holds, text in found if holds)
