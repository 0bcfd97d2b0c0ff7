"""Facts for other rooms: running jobs with their communicators, GPUs, hints and remarks. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from wirewatch.busbw.expected import expect
from wirewatch.busbw.formulas import factor
from wirewatch.core.owners import CONTAINER
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Ok, value_or
from wirewatch.core.words import first
from wirewatch.jobs.running.confirm import operation
from wirewatch.jobs.running.expected import conditions_of, inside_settings
from wirewatch.jobs.running.grouping import JobGroup, settings_of_rank
from wirewatch.jobs.running.judge import JudgedCommunicator, JudgedRings
from wirewatch.jobs.running.model import MOST_REFUSED, JobsMemory, JobsPolicy, JobsReading
from wirewatch.jobs.running.spending import TimeShares, shares, summed, with_the_busiest
from wirewatch.jobs.running.windows import too_few
from wirewatch.jobs.times import (
    NO_REFERENCE,
    CommunicatorTimes,
    CommunicatorWindow,
    GpuTime,
    JobHint,
    JobRemark,
    JobRemarkKind,
    JobsFacts,
    LateRank,
    RunningJob,
    SlowWire,
    TimesDoubt,
)

LATE, WIRE = "late", "wire"
_SHOWN = 4
_SMALLER = 0.5
"""Part of a communicator's time that it must be able to save inside its NVLink domain to be named."""


def facts_of(judged: JudgedRings, ok: Ok[JobsReading], policy: JobsPolicy) -> JobsFacts:
    """The facts after a reading, with the hints that hold now."""
    reading, memory = ok.value, judged.memory
    jobs = tuple(_job(job, judged, ok, policy) for job in judged.jobs)
    hints = tuple(_hints(jobs, ok))
    last = max(hints, key=lambda hint: hint.since, default=memory.last_hint)
    files = () if isinstance(reading.rings, Absent) else reading.rings.refused
    return JobsFacts(
        ok.at, ok.mono, jobs, hints, last, (*judged.refused, *files)[:MOST_REFUSED], judged.left_out,
        reading.rings if isinstance(reading.rings, Absent) else None,
    )  # fmt: skip


def _job(job: JobGroup, judged: JudgedRings, ok: Ok[JobsReading], policy: JobsPolicy) -> RunningJob:
    ours = [judged.communicators[key] for key in job.keys]
    fresh = tuple(one for one in ours if one.fresh)
    times = tuple(_times(one, judged.memory, ok.mono, policy) for one in ours)
    lates = [one.late for one in fresh if one.late]
    worst = max(lates, key=lambda found: found.cost, default=None)
    # Of its communicators the one in which most was seen of it.
    same = [found for found in lates if worst is not None and found.gpu == worst.gpu]
    late = max(same, key=lambda found: (found.votes, found.cost), default=None)
    wires = [wire for one in fresh for wire in one.wires]
    wire = min(wires, key=lambda found: (not found.witnesses, found.ratio), default=None)
    return RunningJob(
        job.name, job.owners, job.uid,
        since=min(ring.ring.created for one in ours for ring in one.group.rings),
        live=any(one.group.live for one in ours), communicators=times,
        gpus=tuple(_gpus(fresh, ours, judged.memory, ok.mono, policy)), late=late, wire=wire,
        remarks=tuple(_remarks(job, ours, ok.value, policy)),
    )  # fmt: skip


def _times(one: JudgedCommunicator, memory: JobsMemory, mono: float, policy: JobsPolicy) -> CommunicatorTimes:
    grown = [memory.rings[ring.ring.name] for ring in one.group.rings]
    wire = min(one.wires, key=lambda found: (not found.witnesses, found.ratio), default=None)
    return CommunicatorTimes(
        id=f"{one.group.key[1]:x}", name=one.group.rings[0].ring.comm_name, ranks=one.group.ranks,
        nodes=one.group.nodes, here=one.here, windows=one.memory.windows, doubt=one.doubt, late=one.late,
        wire=wire, fresh=one.fresh, elsewhere=one.elsewhere,
        joined=one.memory.joined, partial=one.memory.partial,
        missed=sum(ring.missed for ring in grown), dropped=sum(ring.dropped for ring in grown),
        sends=max(ring.sends for ring in grown), captured=max(ring.captured for ring in grown),
        calls=_folded(max, (ring.calls for ring in grown)),
        bytes=_folded(max, (ring.bytes for ring in grown)),
        unsized=_folded(max, (ring.unsized for ring in grown)), source=one.group.source,
        group=one.names.group,
        few=too_few(one.memory, mono, policy) if one.group.live and one.late is None else "",
    )  # fmt: skip


def _gpus(
    fresh: Sequence[JudgedCommunicator], ours: Sequence[JudgedCommunicator], memory: JobsMemory, mono: float,
    policy: JobsPolicy,
) -> Iterator[GpuTime]:  # fmt: skip
    """Each GPU's shares of the time over the windows of the last seconds of all communicators it is in."""
    times = grouped((str(rank.gpu), share) for one in fresh for rank, share in shares(one, mono, policy))
    ranks = {str(rank.gpu): rank for one in ours for rank in one.here if not isinstance(rank.gpu, Absent)}
    rings = (ring.ring for one in ours for ring in one.group.rings)
    grown = grouped((str(ring.gpu), memory.rings[ring.name]) for ring in rings)
    known = {gpu: summed(found) for gpu, found in times.items()}
    if not any(ring.sends for found in grown.values() for ring in found) and _all_timed(ours):
        known = with_the_busiest(known)
    for gpu, rank in sorted(ranks.items(), key=lambda item: (len(item[1].index), item[1].index, item[0])):
        found = known.get(gpu, TimeShares())
        yield GpuTime(
            gpu, rank.index,
            in_collectives=min(1.0, found.in_collectives), waiting=found.waiting, late=found.late,
            beyond=NO_REFERENCE if found.beyond is None else found.beyond, waits=found.waits,
            measured=gpu in known,
            calls=_folded(sum, (ring.calls for ring in grown.get(gpu, ()))),
            bytes=_folded(sum, (ring.bytes for ring in grown.get(gpu, ()))),
        )  # fmt: skip


def _all_timed(ours: Sequence[JudgedCommunicator]) -> bool:
    """Tell whether all that the job's GPUs do in collectives is seen: what is left is their own time."""
    return all(one.fresh and one.doubt in {None, TimesDoubt.ALONE} for one in ours if one.group.live)


def _hints(jobs: Sequence[RunningJob], ok: Ok[JobsReading]) -> Iterator[JobHint]:
    """One for each job's late GPU, and one for its wire where nothing else agrees that it is slow."""
    for job in jobs:
        if job.late is not None:
            for gpu in (job.late.gpu, *(one.gpu for one in job.late.others)):
                yield _hint(LATE, job.name, value_or(gpu, ""), job.late, ok)
        if job.wire is not None and not job.wire.witnesses:
            yield _hint(WIRE, job.name, "", job.wire, ok)


def _hint(kind: str, job: str, gpu: str, found: LateRank | SlowWire, ok: Ok[JobsReading]) -> JobHint:
    return JobHint(kind, job, gpu, found.since, ok.at, ok.mono, found.text)


def _remarks(
    job: JobGroup, ours: Sequence[JudgedCommunicator], reading: JobsReading, policy: JobsPolicy
) -> Iterator[JobRemark]:
    ranks = [rank for one in ours for rank in one.here]
    for kind, what, found in (
        (JobRemarkKind.VERSIONS, "ranks run NCCL", {rank.nccl for rank in ranks} - {""}),
        (JobRemarkKind.TAPS, "ranks carry the tap", {r.ring.tap for o in ours for r in o.group.rings} - {""}),
        # A container for each rank is usual; two Slurm jobs or pods are not.
        (JobRemarkKind.OWNERS, "processes belong to", {o for o in job.owners if not o.startswith(CONTAINER)}),
    ):
        if len(found) > 1:
            yield JobRemark(kind, f"{what} {first(sorted(found), _SHOWN)}")
    for text in sorted({text for rank in ranks for text in inside_settings(settings_of_rank(rank, reading))}):
        yield JobRemark(JobRemarkKind.SETTINGS, text)
    for one in ours:
        if one.rail is not None:
            yield JobRemark(JobRemarkKind.RAIL, one.rail.text, one.rail.cost)
    yield from _leaving(ours, reading, policy)


def _leaving(
    ours: Sequence[JudgedCommunicator], reading: JobsReading, policy: JobsPolicy
) -> Iterator[JobRemark]:
    """Yield communicators over several nodes that fit into this node and are used more than local groups.

    A data-parallel group leaves the node because it must, and is used once a step; tensor-parallel ranks are
    asked for in every layer. Where the group that leaves is used more often than every group that stays, the
    two are swapped.
    """
    gpus = {str(rank.gpu) for one in ours for rank in one.here if not isinstance(rank.gpu, Absent)}
    inside = max((_calls(one) for one in ours if one.group.nodes == 1 and len(one.here) > 1), default=0.0)
    for one in ours:
        window = one.memory.windows[-1] if one.memory.windows else None
        if one.group.nodes < 2 or one.group.ranks > len(gpus) or window is None:  # noqa: PLR2004
            continue
        share = max((time.in_collectives for time in window.ranks), default=0.0)
        if share < policy.domain_time or _calls(one) <= inside:
            continue
        saved = _saved(window, sorted(gpus)[: one.group.ranks], reading, share)
        if saved is None or saved < _SMALLER * share:
            continue
        row = max(window.collectives, key=lambda found: found.joined * found.wire_seconds)
        yield JobRemark(
            JobRemarkKind.DOMAIN,
            f"communicator {one.group.key[1]:x} has {one.group.ranks} ranks on {one.group.nodes} nodes, "
            f"{len(one.here)} of them here, where {len(gpus)} GPUs of this job would hold all: "
            f"{operation(row)} takes {row.wire_seconds * 1e3:.3g} ms, {share:.0%} of the "
            f"time in all; inside one NVLink domain some {saved:.0%} of the time would be saved",
            saved,
        )  # fmt: skip


def _calls(one: JudgedCommunicator) -> float:
    """Return its calls a second in its newest window."""
    window = one.memory.windows[-1] if one.memory.windows else None
    if window is None or window.seconds <= 0:
        return 0.0
    return sum(row.calls for row in window.collectives) / window.seconds


def _saved(
    window: CommunicatorWindow, gpus: Sequence[str], reading: JobsReading, share: float
) -> float | None:
    """The share of the time that they would save on these GPUs of one node; None: not known."""
    conditions = conditions_of(reading.around, gpus, 1, reading.conf)
    if isinstance(conditions, Absent):
        return None
    total = sum(row.joined * row.wire_seconds for row in window.collectives)
    saved = 0.0
    for row in window.collectives:
        due = expect(conditions, row.op, row.bytes)
        if not isinstance(due, Absent):
            inside = factor(row.op, row.ranks) * row.bytes / due.busbw
            saved += row.joined * max(0.0, row.wire_seconds - inside)
    return share * saved / total


def _folded(how: Callable[[list[int]], int], maps: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum or the greatest value of each operation."""
    values = grouped(item for one in maps for item in one.items())
    return {op: how(some) for op, some in values.items()}
