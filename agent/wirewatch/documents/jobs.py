"""The documents of running jobs: what is known of all, the answer for one, and who carries the tap."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wirewatch.core.jobs import Ring, RingsReading
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.jobs.explain.evidence import JobAnswer, JobEvidence
from wirewatch.jobs.explain.held import HeldAnswer, held
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.tap.carriers import Carriers, CarrierStatus
from wirewatch.jobs.times import UNTIMED


@dataclass(frozen=True, slots=True)
class ExplainedJob:
    """A running job: which wall it hits, and all that is known of it.

    `since`: Unix seconds from which on the answer has this sentence, 0 where that is not known.
    """

    answer: JobAnswer
    evidence: JobEvidence
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class JobsDocument:
    """The running jobs of this node; `source` is live, replay or synthetic, `at` Unix seconds.

    `host`: the node's name, empty for a recording.
    """

    schema: Literal["wirewatch.jobs/1"]
    at: float
    source: str
    jobs: list[ExplainedJob]
    host: str = ""


@dataclass(frozen=True, slots=True)
class ExplainDocument:
    """The wall that one job hits: `sentence` is the first line of the page; the rest as in JobsDocument."""

    schema: Literal["wirewatch.explain/1"]
    at: float
    source: str
    name: str
    sentence: str
    answer: JobAnswer
    evidence: JobEvidence
    host: str = ""


@dataclass(frozen=True, slots=True)
class RingStatus:
    """One communicator of one process.

    `communicator` is the same on all ranks. `gpu` and `host_pid` are null where they are not known; `pid` is
    as the process sees itself. `collectives` were enqueued; `timed` of them have a record, `dropped` were
    timed and have none; `captured` calls went into CUDA graphs, after which the communicator is not timed any
    more. `sends`: sends and receives, which are not timed. `quiet_seconds`: since the last event.
    `timing_on_seconds` of every `timing_period_seconds`; `timing_budget`: timed calls a second of its
    process, 0 where every call is timed or the tap is of 0.2; `timing_share` of its calls are timed now.
    `untimed` says why calls are counted and not timed.
    `source`: what timed it, if not the tap. `owner`: whose it is by its folder; empty at the shared level.
    `gpu_listed`: the driver lists its process on this GPU alone; else the GPU is the ring's own word.
    """

    name: str
    state: Literal["live", "finalized", "dead"]
    communicator: str
    communicator_name: str
    rank: int
    ranks: int
    nodes: int
    gpu: str | None
    pid: int
    host_pid: int | None
    uid: int
    tap: str
    nccl: str
    profiler_interface: int
    created: float
    quiet_seconds: float
    collectives: int
    timed: int
    dropped: int
    captured: int
    sends: int
    timing_on_seconds: float
    timing_period_seconds: float
    untimed: str = ""
    source: str = ""
    owner: str = ""
    gpu_listed: bool = False
    timing_budget: int = 0
    timing_share: float = 0.0


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file in the folder that is no ring."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class JobsStatusDocument:
    """All rings of the folder, and the processes that map the library.

    `read`: whether the folder was; `why` says why not, `missing` where there is none. `unread_processes`
    could not be looked into, and `late` says that the search was given up: either may hide a carrier.
    """

    schema: Literal["wirewatch.jobs-status/1"]
    at: float
    folder: str
    read: bool
    why: str
    remarks: list[str]
    rings: list[RingStatus]
    refused: list[RefusedFile]
    carriers: list[CarrierStatus]
    unread_processes: int
    late: bool


JOBS = TypeAdapter(JobsDocument)
EXPLAIN = TypeAdapter(ExplainDocument)
STATUS = TypeAdapter(JobsStatusDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {
    "wirewatch.jobs.1": JOBS,
    "wirewatch.explain.1": EXPLAIN,
    "wirewatch.jobs-status.1": STATUS,
}


def explain(
    evidence: JobEvidence, at: float, source: str, shown: HeldAnswer | None = None, host: str = ""
) -> ExplainDocument:
    """The document of one job, decided again on this evidence, after an answer that is `shown`."""
    answer = held(shown, decide(evidence), at).answer
    return ExplainDocument(
        "wirewatch.explain/1", at, source, evidence.name, answer.sentence, answer, evidence, host
    )


def jobs_status(
    folder: str, found: RingsReading | Absent, carriers: Carriers, remarks: Sequence[str],
    now: tuple[float, float], gpus: tuple[Mapping[int, str], Collection[str]] = ({}, ()),
) -> JobsStatusDocument:  # fmt: skip
    """The document; `now`: Unix and monotonic seconds of the reading; `gpus`: as `computing` has them."""
    reading, why = value_or(found, RingsReading()), ""
    if isinstance(found, Absent):
        why = "missing" if found.why is Why.MISSING else str(found)
    return JobsStatusDocument(
        schema="wirewatch.jobs-status/1", at=now[0], folder=folder, read=not why,
        why=why, remarks=list(remarks),
        rings=[_status(one.ring, now[1], gpus[0]) for one in reading.rings],
        refused=[
            *(RefusedFile(one.ring.name, why) for one in reading.rings if (why := one.ring.misplaced(*gpus))),
            *(RefusedFile(one.name, str(one.why)) for one in reading.refused),
        ],
        carriers=carriers.found,
        unread_processes=carriers.closed, late=carriers.late,
    )  # fmt: skip


def _status(ring: Ring, mono: float, gpus: Mapping[int, str]) -> RingStatus:
    counts = ring.counts
    return RingStatus(
        name=ring.name, state=ring.state.value, communicator=f"{ring.communicator:#x}",
        communicator_name=ring.comm_name, rank=ring.rank, ranks=ring.ranks, nodes=ring.nodes,
        gpu=None if isinstance(ring.gpu, Absent) else ring.gpu, pid=ring.pid,
        host_pid=None if isinstance(ring.host_pid, Absent) else ring.host_pid, uid=ring.uid, tap=ring.tap,
        nccl=ring.nccl, profiler_interface=ring.interface, created=ring.created,
        quiet_seconds=max(0.0, mono - counts.event), collectives=counts.enqueued, timed=counts.written,
        dropped=counts.dropped, captured=counts.captured, sends=counts.sends, timing_on_seconds=ring.on,
        timing_period_seconds=ring.period,
        untimed=UNTIMED[ring.untimed].value if ring.untimed in UNTIMED else "", source=ring.source,
        owner=ring.owner, gpu_listed=gpus.get(value_or(ring.host_pid, -1)) == ring.gpu,
        timing_budget=ring.budget, timing_share=ring.share,
    )  # fmt: skip
