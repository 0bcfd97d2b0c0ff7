"""Running jobs by hand: what each source says of four ranks on four GPUs, healthy or with one thing wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.node.jobs.lockstepjobs import measured
from wirewatch.core.jobs import RingState
from wirewatch.core.types import Absent, Why, value_or
from wirewatch.jobs.explain.evidence import (
    NOT_WATCHED,
    EvidenceSource,
    HungJob,
    JobEvidence,
    JobGpu,
    JobSettings,
    MoreWork,
    SourceStatus,
)
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, Spent
from wirewatch.jobs.times import (
    CommunicatorTimes,
    CommunicatorWindow,
    GpuTime,
    JobRank,
    LateRank,
    OperationTimes,
    RankTime,
    RunningJob,
    SlowWire,
)

NOW = 1_795_223_090.0
RANKS, PIDS = 4, 4711
EXPECTED = 340e9
SIZE = 256 << 20


def gpu_uuid(number: int) -> str:
    return f"GPU-{number}"


def gpu(number: int, shape: str = "data_parallel", how: str = "healthy", of: int | None = None) -> JobGpu:
    """A GPU as the measured windows of two H200 have it; the second of them stands for all but GPU 0."""
    window = measured(shape, how, of)[0][min(number, 1)]
    return JobGpu(
        gpu_uuid(number), str(number), (PIDS + number,), 1.0, 650.0, (), window.graphics, window.sm,
        window.dram, max(window.math.values()), window.sent, 478e9, 330e9, 0.2, 1.0,
    )  # fmt: skip


def gpus(shape: str = "data_parallel") -> tuple[JobGpu, ...]:
    return tuple(gpu(number, shape) for number in range(RANKS))


def row(got: float = 330e9, **changes: object) -> OperationTimes:
    made = OperationTimes(
        "all_reduce", SIZE, RANKS, 64, 400, SIZE, SIZE * 1.5 / got, 1.2e-3, 1.3e-3, "RING", "SIMPLE",
        24, got, got, EXPECTED, ("4 GPUs behind an NVSwitch: published, 340 GB/s at 256 MiB",), trusted=True,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def late(rank: int = 2, cost: float = 0.12) -> LateRank:
    text = f"rank {rank} (GPU {rank}) is late: last in 64 of 65 collectives of 4 of 4 windows"
    return LateRank(rank, gpu_uuid(rank), str(rank), PIDS + rank, 4, 4, 64, 65, cost, NOW - 60, text)


def slow(got: float, *explained: str, witnesses: Sequence[str] = ()) -> SlowWire:
    return SlowWire(
        "all_reduce", SIZE, got, EXPECTED, got / EXPECTED, 4, 4, NOW - 60, tuple(witnesses), explained,
        f"all_reduce of 256 MiB on 4 ranks gives {got / 1e9:.1f} GB/s at best",
    )  # fmt: skip


def job(
    *rows: OperationTimes, late: LateRank | None = None, wire: SlowWire | None = None, share: float = 0.2,
    waiting: float = 0.01, settings: Mapping[str, str] | Absent | None = None, **changes: object,
) -> RunningJob:  # fmt: skip
    """A job of four ranks that carries the tap; `share` of its time in collectives."""
    here = tuple(
        JobRank(n, gpu_uuid(n), str(n), PIDS + n, n + 1, "2.28.9", RingState.LIVE, settings or {}, 0.1)
        for n in range(RANKS)
    )
    times = tuple(RankTime(n, share, waiting, 0.25, 0.0) for n in range(RANKS))
    window = CommunicatorWindow(100.0, 5.0, rows or (row(),), times, late.rank if late else None)
    comm = CommunicatorTimes(
        "0xabc", "", RANKS, 1, here, (window,), late=late, wire=wire, joined=400, fresh=True
    )
    comm = replace(comm, **changes)  # type: ignore[arg-type]
    shares = tuple(GpuTime(gpu_uuid(n), str(n), share, waiting, 0.25) for n in range(RANKS))
    return RunningJob("slurm:4711", ("slurm:4711",), 1001, NOW - 7200, live=True, communicators=(comm,),
                      gpus=shares, late=late, wire=wire)  # fmt: skip


def spent(
    number: int, waits: Mapping[int, float] | None = None, *, does: str = "", seconds: float = 300.0,
    unnamed: float = 0.0, **shares: float,
) -> GpuLedger:  # fmt: skip
    """The ledger of a GPU: `waits` for others by number, `shares` by name of their kind; it computes else.

    `unnamed`: it waits, for nobody who is known, beside what is not attributed.
    """
    whom = {gpu_uuid(n): share for n, share in (waits or {}).items()}
    found = {Spent[name.upper()]: share for name, share in shares.items()}
    found[Spent.LOCAL_RANK] = found.get(Spent.LOCAL_RANK, 0.0) + sum(whom.values())
    found[Spent.NOT_ATTRIBUTED] = found.get(Spent.NOT_ATTRIBUTED, 0.0) + unnamed
    every = {kind: found.get(kind, 0.0) for kind in Spent}
    every[Spent.COMPUTING] = 1 - sum(found.values())
    return GpuLedger(gpu_uuid(number), str(number), seconds, every, whom, does, waiting=unnamed)


def ledger(*long: GpuLedger, short: Sequence[GpuLedger] | None = None, **changes: object) -> JobLedger:
    """The ledger of a job that goes on as it has for five minutes, unless its `short` window is given."""
    lately = tuple(replace(one, seconds=10.0) for one in (long if short is None else short))
    made = JobLedger(
        "slurm:4711", tuple(PIDS + n for n in range(RANKS)), 0.0, False, lately, long, one_job=True  # noqa: FBT003
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def healthy(**shares: float) -> JobLedger:
    """Four GPUs that compute but for 2 % on the wire, or these shares."""
    return ledger(*(spent(n, None, does="", **(shares or {"wire": 0.02})) for n in range(RANKS)))


def waiting(late: int, share: float, of: int = RANKS, **shares: float) -> JobLedger:
    """All GPUs wait for the `late` one for a share of the time; that one has the `shares`."""
    gpus = (spent(n, None, does="", **shares) if n == late else spent(n, {late: share}) for n in range(of))
    return ledger(*gpus)


def agreeing(job: RunningJob | Absent, of: Sequence[JobGpu], more: MoreWork | None = None) -> JobLedger:
    """The ledger that says what the other evidence says."""
    gpus = []
    tap = None if isinstance(job, Absent) else job
    for number, gpu in enumerate(of):
        active = gpu.utilisation if isinstance(gpu.graphics, Absent) else gpu.graphics
        idle = 1 - value_or(active, 1.0)
        waits: dict[str, float] = {}
        if more is not None and not isinstance(more.waiting, Absent):
            waits[more.uuid] = more.waiting
        elif tap is not None and tap.late is not None:
            waits[value_or(tap.late.gpu, "")] = tap.late.cost
        waits.pop(gpu.uuid, None)
        wire = value_or(tap.gpus[0].in_collectives - tap.gpus[0].waiting, 0.0) if tap else 0.0
        beyond = wire * (1 - tap.wire.ratio) if tap and tap.wire else 0.0
        made = spent(number, idle=idle, wire=wire - beyond, beyond=beyond)
        shares = {**made.shares, Spent.LOCAL_RANK: sum(waits.values())}
        rest = 1 - sum(share for kind, share in shares.items() if kind is not Spent.COMPUTING)
        shares[Spent.COMPUTING] = max(0.0, rest)
        gpus.append(replace(made, gpu=gpu.uuid, index=gpu.index, shares=shares, waits_for=waits))
    return ledger(*gpus)


def evidence(
    job: RunningJob | Absent, of: Sequence[JobGpu] | None = None, missing: Sequence[EvidenceSource] = (),
    more: MoreWork | None = None, hang: HungJob | None = None, book: JobLedger | None = None,
) -> JobEvidence:  # fmt: skip
    """All sources but the missing ones say what they know; those are taken away from the GPUs, too.

    The ledger is `book`, by default one that agrees with all of them.
    """
    sources = tuple(
        SourceStatus(
            one, one not in missing, "its collector is off" if one in missing else "", "switch it on"
        )
        for one in EvidenceSource
    )
    found = tuple(gpus() if of is None else of)
    for one in missing:
        found = tuple(_without(gpu, one) for gpu in found)
    seen = Absent(Why.MISSING, "its processes do not carry the tap") if EvidenceSource.TAP in missing else job
    read = (
        () if EvidenceSource.SETTINGS in missing else tuple(JobSettings(PIDS + n, {}) for n in range(RANKS))
    )
    return JobEvidence(
        "slurm:4711", NOW, found, seen, more=more, hang=None if EvidenceSource.HANGS in missing else hang,
        settings=read, sources=sources,
        ledger=NOT_WATCHED if EvidenceSource.LEDGER in missing else book or agreeing(seen, found, more),
    )  # fmt: skip


def watched(seen: JobEvidence, gone: EvidenceSource) -> JobEvidence:
    """Return evidence whose GPUs and list of sources are without a source."""
    off = SourceStatus(gone, watched=False, why="its collector is off", switch_on="switch it on")
    sources = (off if one.source is gone else one for one in seen.sources)
    return replace(seen, gpus=tuple(_without(one, gone) for one in seen.gpus), sources=tuple(sources))


def _without(one: JobGpu, source: EvidenceSource) -> JobGpu:
    fields = {
        EvidenceSource.ACTIVITY: ("graphics", "sm", "dram", "math", "sent"),
        EvidenceSource.GPU: ("utilisation", "power", "throttled"),
        EvidenceSource.BURSTS: ("plateau", "duty"),
        EvidenceSource.THREADS: ("thread",),
    }
    gone = dict.fromkeys(fields.get(source, ()), NOT_WATCHED)
    return replace(one, **gone)  # type: ignore[arg-type]
