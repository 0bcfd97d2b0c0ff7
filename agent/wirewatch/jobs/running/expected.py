"""The speed due to a communicator's collectives by NCCL's defaults here, and what explains a gap. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wirewatch.busbw.curves import CURVES
from wirewatch.busbw.formulas import NVLS, RING, TREE
from wirewatch.busbw.references import LEAST_BYTES, architecture
from wirewatch.core.probe import Conditions
from wirewatch.core.topology import Group, Topology, groups, islands
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.running.model import JobSurroundings
from wirewatch.jobs.running.tapclock import TapExpectation, expect_in_job
from wirewatch.jobs.times import CommunicatorWindow, OperationTimes
from wirewatch.nccl.settings import NVLS_ENABLE, slowing_settings

_NETWORK = Absent(Why.UNSUPPORTED, "its ranks are on several nodes: one of them does not show the network")
_LATENCY = Absent(Why.UNSUPPORTED, "a small message is held against the floor")
_UNSIZED = Absent(Why.MISSING, "NCCL does not name the type of its elements")
_ONE = Absent(Why.UNSUPPORTED, "fewer than two of its GPUs are known here")
_WORDS = {"TREE": "Tree", "RING": RING, "NVLS_TREE": "NVLSTree", "SIMPLE": "Simple"}
_BETWEEN = frozenset({"NCCL_NET", "NCCL_IB_DISABLE", "NCCL_CROSS_NIC", "NCCL_SHM_DISABLE"})
"""Settings that do not matter where GPUs reach each other."""
PAIR = 2
_COSTS = {
    "LL": "LL sends 4 bytes of flags with each 4 of data",
    "LL128": "LL128 sends 8 bytes of flags with each 120 of data",
}


def conditions_of(
    around: JobSurroundings, gpus: Sequence[str], nodes: int, settings: Mapping[str, str]
) -> Conditions | Absent:
    """Return what the expected busbw of these GPUs (by UUID) follows from.

    Returns:
        Absent where ranks are on other nodes, or the GPUs or their wires are not known.
    """
    if nodes > 1:
        return _NETWORK
    if isinstance(around.topology, Absent):
        return around.topology
    group = _group(around.topology, frozenset(gpus))
    if group is None or group.ranks != len(gpus):
        return _ONE
    return Conditions(
        group, link_rate=around.link_rate, links=around.links, settings=settings, pins=around.pins
    )


def with_expected(
    window: CommunicatorWindow, conditions: Conditions | Absent, settings: Mapping[str, str]
) -> CommunicatorWindow:
    """The window with what is expected of each of its rows, and what explains a row that falls short."""
    rows = tuple(_with_expected(row, conditions, settings) for row in window.collectives)
    return replace(window, collectives=rows)


def algorithm_words(algorithm: str, protocol: str = "") -> str:
    """Algorithm and protocol as people write them: `Ring, Simple`."""
    return ", ".join(_WORDS.get(one.upper(), one) for one in (algorithm, protocol) if one)


def inside_settings(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Settings that slow collectives inside a node, with what they do, in words."""
    found = slowing_settings(settings)
    return tuple(f"{name}={value}: {effect}" for name, value, effect in found if name not in _BETWEEN)


def explaining_settings(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings that explain a gap. NVLS that a job switches off is not expected of it."""
    return inside_settings({name: value for name, value in settings.items() if name != NVLS_ENABLE})


def _group(topology: Topology, keys: frozenset[str]) -> Group | None:
    part = replace(
        topology,
        gpus=tuple(gpu for gpu in topology.gpus if gpu.uuid in keys),
        nvlink=tuple(wires for wires in topology.nvlink if wires.uuid in keys),
        unread=tuple(uuid for uuid in topology.unread if uuid in keys),
    )
    return next(iter(groups(part, islands(part))), None)


def _with_expected(
    row: OperationTimes, conditions: Conditions | Absent, settings: Mapping[str, str]
) -> OperationTimes:
    if row.small:
        floor = conditions if isinstance(conditions, Absent) else _floor(conditions, row.op)
        return replace(row, floor=floor, expected=_LATENCY)
    if not row.size_bytes:
        return replace(row, expected=_UNSIZED)
    found = conditions if isinstance(conditions, Absent) else _expect(conditions, row)
    ways = _ways(row, None if isinstance(found, Absent) else found)
    row = replace(row, explained=(*ways, *explaining_settings(settings)), other_way=bool(ways))
    if isinstance(found, Absent):
        return replace(row, expected=found)
    row = replace(row, expected=found.busbw, derivation=found.derivation, trusted=found.trusted)
    return row if isinstance(conditions, Absent) else _within_tree(row, conditions)


def _within_tree(row: OperationTimes, conditions: Conditions) -> OperationTimes:
    """Limit the row's bus bandwidth to the most that Tree can have on wires that give a Ring its rate.

    In a ring each GPU sends 2 (n - 1) / n of the message. In a tree of more than two, most GPUs send it
    twice: up and down. The shortest duration can be too short for that: while the last rank is awaited, data
    of the others fill the buffers. Measured: 360 and 526 GB/s of 342 on 4 H200,
    proof/hardware/2026-11-26-h200.md.
    """
    if row.algorithm.upper() != TREE.upper() or row.ranks <= PAIR:
        return row
    ring = expect_in_job(replace(conditions, multicast=False), row.op, row.bytes)
    most = math.inf if isinstance(ring, Absent) else ring.busbw * (row.ranks - 1) / row.ranks
    got, best = (one if isinstance(one, Absent) else min(one, most) for one in (row.busbw, row.best))
    return replace(row, busbw=got, best=best)


def _expect(conditions: Conditions, row: OperationTimes) -> TapExpectation | Absent:
    """Expect of a Ring what a Ring gives at this size, also where NVLS is due: it may not be offered.

    Whether the driver offers multicast is not known here. Where it does not, Ring is NCCL's default.
    """
    if row.algorithm.upper() == RING.upper():
        conditions = replace(conditions, multicast=False)
    return expect_in_job(conditions, row.op, row.bytes)


def _floor(conditions: Conditions, op: str) -> float | Absent:
    """The time of the smallest message on such GPUs, launched as a CUDA graph, from published tables."""
    arch = {architecture(gpu.name) for gpu in conditions.group.gpus}
    for curve in CURVES:
        alike = (curve.op, curve.ranks, curve.launch) == (op, conditions.group.ranks, "graph")
        if alike and curve.kind is conditions.group.kind and arch == {curve.architecture}:
            return curve.sizes[0][1]
    return Absent(Why.MISSING, f"no floor is known of {op} with {conditions.group.ranks} such GPUs")


def _ways(row: OperationTimes, due: TapExpectation | None) -> tuple[str, ...]:
    """Another algorithm or protocol than NCCL's defaults take, in words."""
    found = []
    if due is not None and row.algorithm and _other(row.algorithm, due.algorithm):
        found.append(f"NCCL ran {algorithm_words(row.algorithm)} where its defaults take {due.algorithm}")
    cost = _COSTS.get(row.protocol.upper())
    if row.bytes >= LEAST_BYTES and cost:
        found.append(f"NCCL ran the protocol {row.protocol.upper()}: {cost}")
    return tuple(found)


def _other(ran: str, due: str) -> bool:
    """Tell whether another algorithm ran than is due; sends and receives have none to choose."""
    return ran.upper().replace("_", "") != due.upper() and due.upper() in {RING.upper(), NVLS.upper()}
