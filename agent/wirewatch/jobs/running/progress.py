"""How far each ring was read and what its counters say: growth by ring, by GPU, and against NVLink. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from wirewatch.busbw.formulas import FACTORS, factor
from wirewatch.core.jobs import RingReading
from wirewatch.core.statistics import delta
from wirewatch.core.types import Absent
from wirewatch.jobs.running.model import JobsPolicy, NvlinkDue, NvlinkSent, RingProgress

MOST_OPS = 16
"""Operations of one ring that are counted; NCCL has eleven."""
KEEPS = 3
"""Polls for which a ring that was not listed is remembered: a folder may be listed while it is renamed."""
LEAST_RATE = 100e6
"""Bytes per second that must be due before NVLink's counter can belie them."""
LOOKS = 2
"""Readings of NVLink's counter in a row that must have shown too little."""
Totals = Mapping[tuple[str, str], int]
"""By GPU (UUID) and operation."""


def progress(known: Mapping[str, RingProgress], rings: Iterable[RingReading]) -> dict[str, RingProgress]:
    """Return the progress of every ring after a reading; a vanished ring is forgotten after a while."""
    found = {one.ring.name: _grown(known.get(one.ring.name, RingProgress()), one) for one in rings}
    kept = {name: replace(one, gone=one.gone + 1) for name, one in known.items() if one.gone < KEEPS}
    return {**kept, **found}


def totals(
    known: Totals, before: Mapping[str, RingProgress], now: Mapping[str, RingProgress],
    rings: Iterable[RingReading], gpus: frozenset[str], what: str,
) -> dict[tuple[str, str], int]:  # fmt: skip
    """Calls or bytes (`what`) by GPU and operation; they outlive their rings, so that they only grow.

    `gpus`: the GPUs of this machine, so that no ring makes a series of its own; all GPUs where unknown.
    """
    grown: defaultdict[tuple[str, str], int] = defaultdict(int, known)
    for one in rings:
        gpu, name = str(one.ring.gpu), one.ring.name
        if gpu not in gpus:
            continue
        old: Mapping[str, int] = getattr(before.get(name, RingProgress()), what)
        new: Mapping[str, int] = getattr(now[name], what)
        for op, value in new.items():
            grown[gpu, op] += value - old.get(op, 0)
    return dict(grown)


def nvlink_due(
    known: Mapping[str, NvlinkDue], before: Mapping[str, RingProgress], now: Mapping[str, RingProgress],
    rings: Iterable[RingReading], nvlink: NvlinkSent, policy: JobsPolicy,
) -> dict[str, NvlinkDue]:  # fmt: skip
    """Hold what each GPU's collectives inside this node had to send against what its NVLink links sent."""
    due: defaultdict[str, float] = defaultdict(float)
    for one in rings:
        ring = one.ring
        if isinstance(ring.gpu, Absent) or ring.nodes != 1:
            continue
        old = before.get(ring.name, RingProgress()).bytes
        for op, value in now[ring.name].bytes.items():
            if op in FACTORS:
                due[ring.gpu] += factor(op, ring.ranks) * (value - old.get(op, 0))
    gpus = due.keys() | {gpu for gpu in known if gpu in nvlink.sent}
    return {gpu: _looked(known.get(gpu, NvlinkDue()), due[gpu], gpu, nvlink, policy) for gpu in sorted(gpus)}


def _looked(known: NvlinkDue, grown: float, gpu: str, nvlink: NvlinkSent, policy: JobsPolicy) -> NvlinkDue:
    due = known.due + grown
    sent = nvlink.sent.get(gpu)
    if sent is None or nvlink.mono <= known.looked:
        return replace(known, due=due)
    seconds = nvlink.mono - known.looked
    look = NvlinkDue(due, nvlink.mono, sent, due)
    if known.sent is None or due - known.then < LEAST_RATE * seconds:
        return look
    share = delta(known.sent, sent) / (due - known.then)
    return replace(look, share=share, low=known.low + 1 if share < policy.unlike else 0)


def _grown(known: RingProgress, reading: RingReading) -> RingProgress:
    """Return grown counters: a ring that shrank started again, and a torn ring repeats nothing."""
    counts, raw = reading.ring.counts, known.raw
    grown = delta(raw.enqueued, counts.enqueued) or delta(raw.sends, counts.sends) or reading.calls
    return RingProgress(
        # Behind what was lost, too: it is counted once.
        last=reading.last,
        raw=counts,
        calls=_sum(known.calls, raw.calls, counts.calls),
        bytes=_sum(known.bytes, raw.bytes, counts.bytes),
        unsized=_sum(known.unsized, raw.unsized, counts.unsized),
        sends=known.sends + delta(raw.sends, counts.sends),
        captured=known.captured + delta(raw.captured, counts.captured),
        dropped=known.dropped + delta(raw.dropped, counts.dropped),
        missed=known.missed + reading.missed,
        idle=0 if grown else known.idle + 1,
    )


def _sum(known: Mapping[str, int], raw: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    new = dict(known)
    for op in sorted(now)[:MOST_OPS]:
        new[op] = known.get(op, 0) + delta(raw.get(op, 0), now[op])
    return new
