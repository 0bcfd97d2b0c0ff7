"""Read jobs and one burst of one GPU: who computes where, and the counters of the GPU on turn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wirewatch.core.collector import GpuReading, read_gpus
from wirewatch.core.nvml import (
    BURST,
    LINK_COUNT,
    MIG_MODE,
    Asked,
    MigMode,
    Supported,
    as_ints,
    as_mig_mode,
    as_pids,
    ask_gpu,
    link_speed,
    member,
)
from wirewatch.core.nvml import PROCESSES as LISTS
from wirewatch.core.owners import paths_of, process_owner
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question, Sysfs
from wirewatch.core.types import Absent, Json, Why, value_or
from wirewatch.core.words import KIB, MICRO
from wirewatch.jobs.bursts.estimate import CounterRead, figures
from wirewatch.jobs.bursts.model import BurstJob, BurstMemory, BurstOptions, BurstReading, GpuJob

PROCESSES = LISTS[0]
ONCE: tuple[Question, ...] = (LINK_COUNT, link_speed(0))


def read(hardware: Hardware, memory: BurstMemory, _options: BurstOptions) -> BurstReading | Absent:
    """Read every GPU, and a burst of the GPU whose turn it is."""
    nvml, sysfs = hardware.nvml, hardware.sysfs
    reading = read_gpus(
        nvml, lambda gpu: _gpu_job(nvml, sysfs, gpu, memory.supported.get(gpu.key, Supported()))
    )
    if isinstance(reading, Absent):
        return reading
    turn = whose_turn(memory.jobs, {item.gpu.key: item.value for item in reading})
    return tuple(_with_burst(nvml, item) if item.gpu.key == turn else item for item in reading)


def whose_turn(jobs: Sequence[BurstJob], gpus: Mapping[str, GpuJob | Absent]) -> str | None:
    """Return the longest-waiting GPU of the job that has waited longest; None where no job is ready.

    A GPU counts only while the processes of its job have not changed.
    """
    ready: list[tuple[float, float, str]] = []
    for job in jobs:
        if not job.settled:
            continue
        last = max(job.turns.values(), default=-math.inf)
        for key, pids in job.processes.items():
            gpu = gpus.get(key)
            if isinstance(gpu, GpuJob) and gpu.watched and gpu.processes == pids:
                ready.append((last, job.turns.get(key, -math.inf), key))
    return min(ready)[2] if ready else None


def reads_of(answer: Json | Absent) -> Sequence[CounterRead] | Absent:
    """The reads in NVML's answer; MALFORMED for a clock or counters that go back."""
    listed = member(answer, "reads")
    if isinstance(listed, Absent):
        return listed
    if not isinstance(listed, list | tuple):
        return Absent(Why.MALFORMED, f"not a list of reads: {listed!r:.80}")
    reads: list[CounterRead] = []
    for one in listed:
        row = as_ints(one, 3)
        if isinstance(row, Absent):
            return row
        micros, sent, received = row
        read = CounterRead(micros / MICRO, sent * KIB, received * KIB)
        if reads and not _after(reads[-1], read):
            return Absent(Why.MALFORMED, f"went back from {reads[-1]} to {read}")
        reads.append(read)
    return reads


def group_of(sysfs: Sysfs, pid: int) -> str:
    """Return the owner of a process, or else its session's control group; empty where neither is known."""
    if owner := process_owner(sysfs, pid):
        return owner
    paths = paths_of(value_or(sysfs.read(f"/proc/{pid}/cgroup"), ""))
    return next((path for path in paths if path != "/"), "")


def _after(before: CounterRead, now: CounterRead) -> bool:
    return now.seconds > before.seconds and now.sent >= before.sent and now.received >= before.received


def _gpu_job(nvml: Nvml, sysfs: Sysfs, gpu: Gpu, known: Supported) -> GpuJob | Absent:
    asked = ask_gpu(nvml, gpu.key, (PROCESSES, MIG_MODE), known, ONCE)
    if isinstance(asked, Absent):
        return asked
    mode, links = as_mig_mode(asked.json(MIG_MODE)), asked.whole(LINK_COUNT)
    split = isinstance(mode, MigMode) and mode.now
    watched = not split and not isinstance(links, Absent) and links > 0
    processes = as_pids(asked.json(PROCESSES))
    groups = {pid: group_of(sysfs, pid) for pid in value_or(processes, ())}
    return GpuJob(watched, processes, groups, _peak(asked, links), supported=asked.supported)


def _peak(asked: Asked, links: int | Absent) -> float | Absent:
    """Line rate of all links, each way: all have that of the first."""
    speed = asked.whole(link_speed(0))
    if isinstance(links, Absent):
        return links
    return speed if isinstance(speed, Absent) else links * speed * 1e6


def _with_burst(nvml: Nvml, item: GpuReading[GpuJob]) -> GpuReading[GpuJob]:
    gpu = item.value
    if isinstance(gpu, Absent):
        return item
    asked = ask_gpu(nvml, item.gpu.key, (BURST,), gpu.supported)
    if isinstance(asked, Absent):
        return GpuReading(item.gpu, replace(gpu, burst=asked))
    reads = reads_of(asked.json(BURST))
    burst = reads if isinstance(reads, Absent) else figures(reads)
    return GpuReading(item.gpu, replace(gpu, burst=burst, supported=asked.supported))
