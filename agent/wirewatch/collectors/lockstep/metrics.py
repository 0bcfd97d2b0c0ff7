"""The hint as series."""

from collections.abc import Iterable

from wirewatch.collectors.lockstep.model import LockstepMemory, LockstepReading
from wirewatch.core.types import Absent, Kind, Metric, Sample

GPU = ("gpu", "uuid")
HINT = Metric(
    "straggler_hint",
    Kind.GAUGE,
    GPU,
    "1 for the GPU of a job in lockstep that never waits, 0 for the others; only while a job is watched.",
    "jobs on more than two GPUs, and a hint of the running daemon",
)
BUSY = Metric(
    "gpu_sm_busy_ratio",
    Kind.GAUGE,
    GPU,
    "Share of the SMs' time in which they had work, in the newest window of a job that is watched.",
)
METRICS = (HINT, BUSY)


def samples(reading: LockstepReading, memory: LockstepMemory) -> Iterable[Sample]:
    """The series of the GPUs of the job that is watched; none while there is no such job."""
    if memory.job is None or not memory.settled:
        return
    for item in reading:
        if item.gpu.key in memory.job.processes and not isinstance(item.value, Absent):
            labels = (str(item.gpu.index), item.gpu.uuid)
            yield HINT.sample(memory.hint is not None and memory.hint.uuid == item.gpu.uuid, *labels)
            if item.gpu.key in memory.busy:
                yield BUSY.sample(memory.busy[item.gpu.key], *labels)
