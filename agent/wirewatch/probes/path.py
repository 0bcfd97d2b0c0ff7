"""The path proof: whether the bytes of a collective went over NVLink, evenly, without new errors. Pure."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from wirewatch.busbw.formulas import wire_bytes
from wirewatch.core.account import Comm
from wirewatch.core.probe import LinkBytes, Moved, Part, Probed
from wirewatch.core.topology import Kind
from wirewatch.core.types import Absent
from wirewatch.nccl.log import Fallback, fallbacks
from wirewatch.probes.measure import Measured

NVLINK = frozenset({Kind.SWITCH, Kind.MESH, Kind.PAIR})
"""Groups whose every two GPUs have NVLink between them."""
EVEN = frozenset({Kind.SWITCH, Kind.PAIR})
"""Groups in which a GPU's links all carry the same."""
QUIET = frozenset({"effective", "symbol", "recovery_successful"})
"""Kinds of error that are corrected without anybody having to wait, on healthy links too."""
GUESSED = 0.02
"""Part of what is due that may be no more than guessed."""
WIRES = {
    "shm": "host memory", "net_socket": "TCP sockets", "net_ib": "InfiniBand without GPUDirect",
    "net_ib_gdr": "InfiniBand", "net_other": "a network", "unknown": "a way that is not known",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Crossing:
    """Bytes that one GPU should have sent in a part of the probe, and those that its NVLink counters tell."""

    part: str
    gpu: int
    index: int
    due: float
    sent: int | None
    received: int | None

    @property
    def share(self) -> float | None:
        """What was sent, of what was due."""
        return None if self.sent is None or not self.due else self.sent / self.due


def crossings(probed: Probed, measured: Sequence[Measured]) -> tuple[Crossing, ...]:
    """By part and GPU; nothing for algorithms and kinds of wire of which it cannot be told what is due."""
    found = []
    parts = {part.name: part for part in probed.parts}
    for group, conditions in enumerate(probed.conditions):
        if conditions.group.kind not in NVLINK:
            continue
        for op in probed.plan.ops:
            part = parts.get(f"{op}.{group}")
            due = _due(probed, measured, group, op)
            if part is not None and due is not None:
                found += [_crossing(probed, part, p, due) for p in probed.plan.groups[group]]
    copied = parts.get("copies")
    if copied is not None and len(probed.conditions) == 1 and probed.conditions[0].group.kind in NVLINK:
        found += _copied(probed, copied)
    return tuple(found)


def _due(probed: Probed, measured: Sequence[Measured], group: int, op: str) -> float | None:
    """What each GPU must send in all runs of a collective; None where that is not known."""
    runs = {
        (t.group, t.op, t.size_bytes): t.runs
        for t in (probed.document.collectives if probed.document else ())
    }
    due, small = 0.0, 0.0
    for one in measured:
        if (one.group, one.op) != (group, op):
            continue
        times = runs[group, op, one.size_bytes]
        sent = wire_bytes(op, one.algorithm, one.ranks, one.size_bytes, one.protocol or "simple")
        if isinstance(sent, Absent) or not sent.alike:
            if not one.latency:
                return None
            # Small messages are thousandths of the whole, whatever way they take.
            small += 2.0 * one.size_bytes * times
            continue
        due += sent.bytes * times
    return due + small if small < GUESSED * due else None


def _crossing(probed: Probed, part: Part, position: int, due: float) -> Crossing:
    moved = next((m for m in part.moved if m.gpu == position), Moved(position, None, None, {}))
    return Crossing(part.name, position, probed.gpus[position].index, due, moved.transmit, moved.receive)


def _copied(probed: Probed, part: Part) -> list[Crossing]:
    due: defaultdict[int, float] = defaultdict(float)
    for copy in probed.document.copies if probed.document else ():
        if not copy.direct:
            return []
        due[copy.source] += copy.size_bytes * copy.runs
    return [_crossing(probed, part, position, amount) for position, amount in sorted(due.items())]


def unevenness(links: LinkBytes) -> tuple[int, float] | None:
    """The link of a GPU farthest from the mean of those that carried something, and by how much of it.

    None with fewer than two such links.
    """
    worst: tuple[int, float] | None = None
    for values in (links.transmit, links.receive):
        known = [v for v in values if v is not None]
        mean = sum(known) / len(known) if len(known) > 1 else 0.0
        if not mean:
            continue
        for link, value in zip(links.links, values, strict=True):
            away = 0.0 if value is None else abs(value / mean - 1)
            if worst is None or away > worst[1]:
                worst = (link, away)
    return worst


def new_errors(probed: Probed) -> dict[int, dict[str, int]]:
    """Errors that NVLink counted while the probe ran, by GPU and kind."""
    found: dict[int, dict[str, int]] = {}
    for part in probed.parts:
        for moved in part.moved:
            for kind, count in moved.errors.items():
                if count and kind not in QUIET:
                    kinds = found.setdefault(moved.gpu, {})
                    kinds[kind] = kinds.get(kind, 0) + count
    return found


def comms_of(probed: Probed, groups: Collection[int]) -> tuple[Comm, ...]:
    """NCCL's communicators of these groups: those of as many ranks, since its log names no group."""
    told = probed.account.comms if probed.account else ()
    if len(groups) == len(probed.plan.groups):
        return told
    sizes = {len(probed.plan.groups[group]) for group in groups}
    return tuple(comm for comm in told if comm.ranks in sizes)


def detours(probed: Probed) -> tuple[Fallback, ...]:
    """Connections that NCCL did not make from GPU to GPU, in groups where every two have NVLink."""
    near = [group for group, one in enumerate(probed.conditions) if one.group.kind in NVLINK]
    if probed.account is None or not near:
        return ()
    return fallbacks(replace(probed.account, comms=comms_of(probed, near)))


def worst_wire(found: Sequence[Fallback]) -> str:
    """The wires of these connections for people, each once."""
    return ", ".join(dict.fromkeys(WIRES.get(one.wire, one.wire) for one in found))
