"""Judge running jobs: waiting is not the wire, and a slow wire alone is a hint. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wirewatch.core.collector import DEGRADED, Rule
from wirewatch.core.jobs import RefusedRing
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Finding, Ok, Subject
from wirewatch.core.words import count
from wirewatch.jobs.running.confirm import elsewhere, late_rank, late_votes, slow_rows, slow_wire
from wirewatch.jobs.running.expected import conditions_of, explaining_settings, with_expected
from wirewatch.jobs.running.grouping import (
    JobGroup,
    RingGroup,
    job_groups,
    job_rank,
    misplaced,
    possible,
    ring_groups,
    settings_of_rank,
    untimed,
)
from wirewatch.jobs.running.join import COARSE_PATIENCE, PATIENCE, Complete, join, keep, records_of
from wirewatch.jobs.running.model import (
    FEWEST_JOINED,
    FEWEST_ROWS,
    JOINED_IN_ALL,
    KEPT_WINDOWS,
    MOST_JOINED,
    MOST_ROWS,
    ROWS_IN_ALL,
    CommunicatorKey,
    CommunicatorMemory,
    JobsMemory,
    JobsPolicy,
    JobsReading,
    NvlinkDue,
    ProcessKey,
    ProcessSpan,
    RingProgress,
    Witness,
)
from wirewatch.jobs.running.parallel import RankNames, families, rank_names
from wirewatch.jobs.running.progress import LOOKS, nvlink_due, progress, totals
from wirewatch.jobs.running.rails import Sibling, SlowRail, Times, slow_rails, usual_times
from wirewatch.jobs.running.trace import Tracer
from wirewatch.jobs.running.windows import roll
from wirewatch.jobs.times import JobRank, LateRank, SlowWire, TimesDoubt

SLOW_WIRE = Rule(
    "jobs.slow_wire",
    DEGRADED,
    means="a collective of a running job is slow on the wire: even its best reaches less than 70 % of what "
    "NCCL's defaults should give on this topology (78 % if it ran another algorithm or protocol; 35 and 70 % "
    "where that is not sure, as below 64 MiB), in three "
    "of the last four windows, on all local ranks alike and with no rank late, or late by far less than is "
    "lost on the wire; and other evidence agrees: a "
    "finding about links, PCIe or a probe, NVLink's own counters, a setting of the job, another job. "
    "Without such evidence it is only a hint that makes a probe run sooner, since compute beside "
    "collectives slows them too",
    look="`wirewatch explain` of the job: the wire in use, got against expected, algorithm, protocol and "
    "settings, which counter agrees; also `nvlink.*`, `pcie.*` and `probe.*`",
    do="if a setting or NCCL's choice explains it, the job's owner should change that; otherwise see the "
    "findings that agree, and let a probe run once the GPUs are idle: it measures only the wires",
    rehearse="it takes a job with the tap and `NCCL_P2P_DISABLE=1`: docs/jobs.md",
)
RULES = (SLOW_WIRE,)
COARSE_COST = 2.0
"""Times as much that a late rank must cost where starts are not known: then waiting beside computing counts
too. Healthy data parallel training showed 8 % so (ADR 0075)."""
NOT_JOINED = frozenset({TimesDoubt.TWICE, TimesDoubt.UNLIKE})
"""Rings that contradict each other are not joined at all."""


@dataclass(frozen=True, slots=True)
class JudgedCommunicator:
    """One communicator after a reading: its memory, its ranks here, and the facts believed of it.

    `fresh`: its newest window is of now. Of an old window nothing is believed: the job may have gone on to
    something else, or ended. `rail`: it is far slower than its siblings, which take `usual` long.
    """

    group: RingGroup
    memory: CommunicatorMemory
    here: tuple[JobRank, ...]
    doubt: TimesDoubt | None
    fresh: bool = False
    late: LateRank | None = None
    wires: tuple[SlowWire, ...] = ()
    elsewhere: str = ""
    rail: SlowRail | None = None
    usual: Times = field(default_factory=dict)
    names: RankNames = field(default_factory=RankNames)


@dataclass(frozen=True, slots=True)
class JudgedRings:
    """The result of one reading of rings: the memory without hints and facts, and the facts believed."""

    memory: JobsMemory
    communicators: Mapping[CommunicatorKey, JudgedCommunicator]
    jobs: tuple[JobGroup, ...]
    left_out: int
    refused: tuple[RefusedRing, ...] = ()


def judge_rings(memory: JobsMemory, ok: Ok[JobsReading], policy: JobsPolicy) -> JudgedRings:
    """Fold one reading of the rings: join, close windows, and say who is late and which wire is slow."""
    reading, poll = ok.value, memory.polls + 1
    refused = misplaced(reading)
    odd = {one.name for one in refused}
    readings = tuple(one for one in possible(reading) if one.ring.name not in odd)
    groups, left_out = ring_groups(readings)
    rings = progress(memory.rings, readings)
    gpus = frozenset(reading.indexes)
    due = nvlink_due(memory.due, memory.rings, rings, readings, reading.around.nvlink, policy)
    new = JobsMemory(
        polls=poll, rings=rings, processes=reading.processes,
        calls=totals(memory.calls, memory.rings, rings, readings, gpus, "calls"),
        bytes=totals(memory.bytes, memory.rings, rings, readings, gpus, "bytes"),
        due={gpu: one for gpu, one in due.items() if gpu in gpus},
        hints=memory.hints, last_hint=memory.last_hint,
    )  # fmt: skip
    jobs = job_groups(groups, reading.processes)
    many = max(1, len(groups))
    most = (
        min(MOST_JOINED, max(FEWEST_JOINED, JOINED_IN_ALL // many)),
        min(MOST_ROWS, max(FEWEST_ROWS, ROWS_IN_ALL // KEPT_WINDOWS // many)),
    )
    by_key = {group.key: group for group in groups}
    kept, spans = _joined(memory, by_key, rings, poll, most[0])
    names = rank_names(jobs, by_key, rings)
    judged = {
        key: _communicator(kept[key], group, names[key], ok, policy, most[1]) for key, group in by_key.items()
    }
    for job in jobs:
        judged |= _with_siblings([judged[key] for key in job.keys], reading, rings, policy)
    judged = _with_witnesses(judged, jobs, reading, new)
    communicators = {key: one.memory for key, one in judged.items()}
    new = replace(new, communicators=communicators, spans=spans)
    return JudgedRings(new, judged, jobs, left_out, refused)


def findings(judged: JudgedRings) -> tuple[Finding, ...]:
    """One finding a job whose wire is slow with a witness, of the node: a wire is between GPUs."""
    every = ((job, judged.communicators[key]) for job in judged.jobs for key in job.keys)
    slow = grouped((job, wire) for job, one in every for wire in one.wires if wire.witnesses)
    worst = ((job.name, min(some, key=lambda wire: wire.ratio)) for job, some in slow.items())
    texts = sorted(
        (wire.ratio, f"{name}: {wire.text}. Agreed by: {'; '.join(wire.witnesses)}") for name, wire in worst
    )
    more = f" (and {count(len(texts) - 1, 'more job')})" if len(texts) > 1 else ""
    return (SLOW_WIRE.finding(Subject(), texts[0][1] + more),) if texts else ()


def _joined(
    memory: JobsMemory, groups: Mapping[CommunicatorKey, RingGroup], rings: Mapping[str, RingProgress],
    poll: int, most: int,
) -> tuple[dict[CommunicatorKey, CommunicatorMemory], dict[ProcessKey, tuple[ProcessSpan, ...]]]:  # fmt: skip
    """Return the memory of each communicator with what is complete now, and where each process was."""
    known = {key: _known(memory.communicators.get(key), group) for key, group in groups.items()}
    complete = {
        key: _complete(known[key], group, poll, most)
        for key, group in groups.items()
        if group.doubt not in NOT_JOINED
    }
    tracer = Tracer(groups, complete, rings, memory.spans)
    found = {key: keep(one.memory, tracer.traced(key), most) for key, one in complete.items()}
    return {**known, **found}, tracer.spans()


def _known(known: CommunicatorMemory | None, group: RingGroup) -> CommunicatorMemory:
    """Return what is remembered of a communicator, and of other ranks than before only how much."""
    who = tuple((one.ring.rank, str(one.ring.gpu)) for one in group.rings)
    memory = known or CommunicatorMemory(ranks=who)
    if memory.ranks == who:
        return memory
    # What was joined is of another set, and no window spans both.
    return CommunicatorMemory(
        ended=memory.ended, joined=memory.joined, partial=memory.partial, replayed=memory.replayed, ranks=who
    )


def _complete(memory: CommunicatorMemory, group: RingGroup, poll: int, most: int) -> Complete:
    patience = COARSE_PATIENCE if group.shape.coarse else PATIENCE
    return join(memory, records_of(group.rings), group.shape.here, poll, patience, most)


def _communicator(
    memory: CommunicatorMemory, group: RingGroup, names: RankNames, ok: Ok[JobsReading], policy: JobsPolicy,
    most: int,
) -> JudgedCommunicator:  # fmt: skip
    """Judge one communicator; `most`: rows of a window that are kept."""
    reading = ok.value
    if group.shape.coarse:
        policy = replace(policy, cost=min(1.0, COARSE_COST * policy.cost))
    here = tuple(job_rank(one.ring, reading) for one in group.rings)
    if group.doubt in NOT_JOINED:
        return JudgedCommunicator(group, memory, here, group.doubt, names=names)
    before = memory.windows
    memory = roll(memory, group.shape, ok.mono, policy, most)
    if memory.windows is not before:
        memory = _expected(memory, group, here, reading)
    doubt = group.doubt or (None if memory.windows else untimed(group))
    fresh = group.live and memory.closed is not None and ok.mono - memory.closed <= policy.stale
    if doubt is not None or not fresh:
        forgotten = replace(memory, late_since=None, wire_since={})
        return JudgedCommunicator(group, forgotten, here, doubt, fresh, names=names)
    return _believed(JudgedCommunicator(group, memory, here, None, fresh, names=names), ok.at, policy)


def _with_siblings(
    ours: Sequence[JudgedCommunicator], reading: JobsReading, rings: Mapping[str, RingProgress],
    policy: JobsPolicy,
) -> dict[CommunicatorKey, JudgedCommunicator]:  # fmt: skip
    """The communicators of a job that have siblings over several nodes, each with one rank here."""
    by_key = {one.group.key: one for one in ours if one.fresh and one.doubt is TimesDoubt.ALONE}
    new = {}
    for family in families((one.group for one in by_key.values()), rings):
        mine = [by_key[group.key] for group in family]
        siblings = [
            Sibling(one.group.key, one.here[0], one.memory.windows[-policy.windows :]) for one in mine
        ]
        usual = usual_times(siblings, policy)
        rails = dict(slow_rails(siblings, reading.around.topology, policy))
        for one in mine:
            key = one.group.key
            rail = rails.get(key)
            new[key] = replace(one, usual=usual[key], rail=rail, elsewhere=rail.text if rail else "")
    return new


def _expected(
    memory: CommunicatorMemory, group: RingGroup, here: Sequence[JobRank], reading: JobsReading
) -> CommunicatorMemory:
    """The memory, with what is expected of its newest window."""
    gpus = [rank.gpu for rank in here if not isinstance(rank.gpu, Absent)]
    settings = settings_of_rank(here[0], reading)
    gpus = gpus if len(gpus) == len(here) else []
    conditions = conditions_of(reading.around, gpus, group.nodes, settings)
    *older, newest = memory.windows
    return replace(memory, windows=(*older, with_expected(newest, conditions, settings)))


def _believed(one: JudgedCommunicator, at: float, policy: JobsPolicy) -> JudgedCommunicator:
    """Who is late and which wire is slow, by the last windows; `at` in Unix seconds."""
    windows, memory = one.memory.windows, one.memory
    votes = late_votes(windows, memory.slots, len(one.here), policy)
    late, since = None, None
    if votes is not None:
        known = memory.late_since
        since = known if known and known[0] == votes.rank else (votes.rank, at)
        here, group = {rank.rank: rank for rank in one.here}, one.group
        late = late_rank(votes, here, since[1], group.nodes, one.names, at_most=group.shape.coarse)
    rows = slow_rows(windows, policy)
    begun = {(found.row.op, found.row.size_bytes): at for found in rows}
    begun |= {key: since for key, since in memory.wire_since.items() if key in begun}
    wires = tuple(slow_wire(found, begun[found.row.op, found.row.size_bytes], ()) for found in rows)
    return replace(
        one, memory=replace(memory, late_since=since, wire_since=begun), late=late, wires=wires,
        elsewhere=elsewhere(memory, one.group.nodes, policy),
    )  # fmt: skip


def _with_witnesses(
    judged: Mapping[CommunicatorKey, JudgedCommunicator], jobs: Sequence[JobGroup], reading: JobsReading,
    memory: JobsMemory,
) -> dict[CommunicatorKey, JudgedCommunicator]:  # fmt: skip
    """Each slow wire with what else agrees that it is slow."""
    slow = {job.name for job in jobs for key in job.keys if judged[key].wires}
    owner = {key: job.name for job in jobs for key in job.keys}
    new = dict(judged)
    for key, one in judged.items():
        if one.wires:
            found = tuple(_witnesses(one, reading, memory, sorted(slow - {owner[key]})))
            new[key] = replace(one, wires=tuple(replace(wire, witnesses=found) for wire in one.wires))
    return new


def _witnesses(
    one: JudgedCommunicator, reading: JobsReading, memory: JobsMemory, others: Sequence[str]
) -> Iterator[str]:
    gpus = {str(rank.gpu): rank for rank in one.here}
    for witness in reading.around.witnesses:
        if _concerns(witness, frozenset(gpus)):
            yield f"{witness.rule} of {witness.subject}: {witness.text}"
    for gpu, rank in gpus.items():
        looked = memory.due.get(gpu, NvlinkDue())
        if looked.low >= LOOKS:
            yield (
                f"NVLink of GPU {rank.index} carried {looked.share:.0%} of what its collectives send: they "
                "go another way"
            )
            break
    for text in explaining_settings(settings_of_rank(one.here[0], reading)):
        yield f"the job's own {text}"
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        yield f"{others[0]}{more}, whose wire is slow too"


def _concerns(witness: Witness, gpus: frozenset[str]) -> bool:
    """Tell whether a finding is about the node as a whole, or about a GPU of the communicator."""
    return not witness.subject.uuid or witness.subject.uuid in gpus
