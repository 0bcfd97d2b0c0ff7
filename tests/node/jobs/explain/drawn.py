"""Running jobs by hand: what each source says of four ranks on four GPUs, healthy or with one thing wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.node.jobs.lockstepjobs import measured
from wirewatch.core.jobs import RingState
from wirewatch.core.types import Absent, Why
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


def evidence(
    job: RunningJob | Absent, of: Sequence[JobGpu] | None = None, missing: Sequence[EvidenceSource] = (),
    more: MoreWork | None = None, hang: HungJob | None = None,
) -> JobEvidence:  # fmt: skip
    """All sources but the missing ones say what they know; those are taken away from the GPUs, too."""
    sources = tuple(
        SourceStatus(
            one, one not in missing, "its collector is off" if one in missing else "", "switch it on"
        )
        for one in EvidenceSource
    )
    found = tuple(_without(one, missing) for one in (gpus() if of is None else of))
    seen = Absent(Why.MISSING, "its processes do not carry the tap") if EvidenceSource.TAP in missing else job
    read = (
        () if EvidenceSource.SETTINGS in missing else tuple(JobSettings(PIDS + n, {}) for n in range(RANKS))
    )
    return JobEvidence(
        "slurm:4711", NOW, found, seen, more=more, hang=None if EvidenceSource.HANGS in missing else hang,
        settings=read, sources=sources,
    )  # fmt: skip


def _without(one: JobGpu, missing: Sequence[EvidenceSource]) -> JobGpu:
    fields = {
        EvidenceSource.ACTIVITY: ("graphics", "sm", "dram", "math", "sent"),
        EvidenceSource.GPU: ("utilisation", "power", "throttled"),
        EvidenceSource.BURSTS: ("plateau", "duty"),
        EvidenceSource.THREADS: ("thread",),
    }
    gone = {name: NOT_WATCHED for source in missing for name in fields.get(source, ())}
    return replace(one, **gone)  # type: ignore[arg-type]
