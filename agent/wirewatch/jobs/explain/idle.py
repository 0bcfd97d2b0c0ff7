"""GPUs on which nothing runs: launch gaps, where a thread is busy launching, or a host that sleeps."""

from collections.abc import Sequence

from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent
from wirewatch.jobs.explain.evidence import Certainty, EvidenceSource, JobAnswer, JobEvidence, Wall
from wirewatch.jobs.explain.words import percent

LEAST_IDLE, COARSE_IDLE = 0.12, 0.3
"""Share of the time without anything on the GPU from which on it is a wall: 0.06 in jobs in lockstep at most,
0.34 in one that stalls (measured on two H200); by utilisation alone, which is of the last second, more."""
NOTHING_RUNS = 0.98
ASLEEP, AWAKE = 0.5, 0.25
"""Of the idle time: a thread that is off its cores so much of it waits for something; one that is off so
little of it is launching, or computing, all the time."""


def idle_wall(evidence: JobEvidence) -> JobAnswer | None:
    """The answer where nothing runs on the GPUs for much of the time, alike on all; None elsewhere."""
    active = [gpu.graphics for gpu in evidence.gpus if not isinstance(gpu.graphics, Absent)]
    coarse = not active
    if coarse:
        active = [gpu.utilisation for gpu in evidence.gpus if not isinstance(gpu.utilisation, Absent)]
    if not active:
        return None
    idle = 1 - low_median(active)
    if idle < (COARSE_IDLE if coarse else LEAST_IDLE):
        return None
    threads = [gpu.thread for gpu in evidence.gpus if not isinstance(gpu.thread, Absent)]
    return _with_threads(idle, threads, coarse=coarse) if threads else _either(idle, coarse=coarse)


def _with_threads(idle: float, threads: Sequence[float], *, coarse: bool) -> JobAnswer:
    busy = low_median(threads)
    off = max(0.0, 1 - busy)
    because = (
        f"nothing ran on the GPUs {percent(idle)} of the time",
        f"the busiest thread of a process is on a core {percent(busy)} of the time",
    )
    certain = Certainty.LOW if coarse else Certainty.HIGH
    doubts = _COARSE if coarse else ()
    if off >= ASLEEP * idle:
        return JobAnswer(
            Wall.HOST,
            f"Host: nothing runs on the GPUs {percent(idle)} of the time, and their processes sleep: "
            "they wait for data, storage or another process.",
            certain, idle, because=because, doubts=doubts, advice=_HOST,
        )  # fmt: skip
    if off <= AWAKE * idle:
        return JobAnswer(
            Wall.LAUNCH_GAPS,
            f"Launch gaps: nothing runs on the GPUs {percent(idle)} of the time, while the thread that "
            f"launches kernels is busy {percent(busy)} of it: the kernels are too short for the host.",
            certain, idle, because=because, doubts=doubts, advice=_LAUNCH,
        )  # fmt: skip
    return _either(idle, coarse=coarse, because=because)


def _either(idle: float, *, coarse: bool, because: tuple[str, ...] = ()) -> JobAnswer:
    sentence = (
        "Host: nothing runs on the GPUs: the job is idle, or its host does something else."
        if idle >= NOTHING_RUNS
        else f"Host or launch gaps: nothing runs on the GPUs {percent(idle)} of the time; which of the two "
        "it is is not known."
    )
    return JobAnswer(
        Wall.HOST,
        sentence,
        Certainty.LOW, idle,
        because=because or (f"nothing ran on the GPUs {percent(idle)} of the time",),
        doubts=(
            *(_COARSE if coarse else ()),
            f"{EvidenceSource.THREADS.value}: whether they sleep or launch would decide",
        ),
        advice=(*_HOST, *_LAUNCH),
    )  # fmt: skip


_COARSE = ("utilisation of the last second only: GPM windows would be surer",)
_HOST = (
    "look at what the processes wait for, with `py-spy dump --pid` and `iostat`",
    "usual are too few loader workers, slow storage, tokenisation, and checkpoints",
)
_LAUNCH = (
    "use CUDA graphs (torch.compile with mode reduce-overhead; in servers no --enforce-eager)",
    "launch fewer and larger kernels, and keep .item() and synchronise out of the step",
)
