"""Read a job's GPUs: who computes on each, and for the known job alone the GPUs' activity."""

from collections.abc import Mapping
from dataclasses import replace

from wirewatch.core.collector import GpuReading, read_gpus
from wirewatch.core.nvml import MIG_MODE, MigMode, Supported, as_float, as_mig_mode, as_pids, ask_gpu, member
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question
from wirewatch.core.types import Absent, Json, Why
from wirewatch.core.words import MIB
from wirewatch.jobs.lockstep.model import (
    GpuUse,
    GpuWindow,
    LockstepMemory,
    LockstepOptions,
    LockstepReading,
    goes_on,
)

PROCESSES = Question("ComputeRunningProcesses")
OFFERS = Question("GpmSupported")
"""Whether the GPU has what is read here; asking takes no sample."""
CLOCK = Question("ClockInfo", (1,))
"""Of the SMs, in MHz."""
RATIOS: Mapping[str, int] = {"graphics": 1, "sm": 2, "dram": 10}
MATH: Mapping[str, int] = {"tensor": 5, "fp64": 11, "fp32": 12, "fp16": 13}
BYTES: Mapping[str, int] = {"received": 60, "sent": 61}
"""nvmlGpmMetricId_t in nvml.h: shares in per cent, NVLink in MiB/s."""
METRICS: Mapping[str, int] = {**RATIOS, **MATH, **BYTES}
SINCE = Question("GpmSince", tuple(METRICS.values()))
NO_JOB = Absent(Why.MISSING, "not asked: there is no job to look at")


def read(hardware: Hardware, memory: LockstepMemory, _options: LockstepOptions) -> LockstepReading | Absent:
    """Read every GPU; only GPUs of the known job have a window."""
    nvml = hardware.nvml
    reading = read_gpus(nvml, lambda gpu: _use(nvml, gpu, memory.supported.get(gpu.key, Supported())))
    job = memory.job
    if isinstance(reading, Absent) or job is None:
        return reading
    if not goes_on(job, {item.gpu.key: item.value for item in reading}):
        return reading
    # One after the other, with nothing in between, so that the windows of all GPUs are the same.
    return tuple(_looked_at(nvml, item) if item.gpu.key in job.processes else item for item in reading)


def window_of(answer: Json | Absent, clock: float | Absent) -> GpuWindow | Absent:
    """A window out of NVML's answer since the reading before; `clock` in Hz.

    Returns:
        Absent where a number that every GPU with GPM has is missing; arithmetic units may be.
    """
    seconds, metrics = as_float(member(answer, "seconds")), member(answer, "metrics")
    if isinstance(seconds, Absent):
        return seconds
    if isinstance(metrics, Absent):
        return metrics
    values: dict[str, float] = {}
    for name, number in METRICS.items():
        value = as_float(member(metrics, str(number)))
        if not isinstance(value, Absent):
            values[name] = value * (MIB if name in BYTES else 0.01)
        elif name not in MATH:
            return Absent(Why.UNSUPPORTED, f"GPM does not report {name} here")
    math = {name: values.pop(name) for name in MATH if name in values}
    return GpuWindow(seconds, math=math, clock=clock, **values)


def _use(nvml: Nvml, gpu: Gpu, known: Supported) -> GpuUse | Absent:
    asked = ask_gpu(nvml, gpu.key, (PROCESSES, MIG_MODE), known, (OFFERS,))
    if isinstance(asked, Absent):
        return asked
    mode, offers = as_mig_mode(asked.json(MIG_MODE)), asked.json(OFFERS)
    mig = isinstance(mode, MigMode) and mode.now
    if not isinstance(offers, bool | Absent):
        offers = Absent(Why.MALFORMED, f"neither yes nor no: {offers!r}")
    return GpuUse(offers, mig, as_pids(asked.json(PROCESSES)), NO_JOB, asked.supported)


def _looked_at(nvml: Nvml, item: GpuReading[GpuUse]) -> GpuReading[GpuUse]:
    use = item.value
    if isinstance(use, Absent):
        return item
    asked = ask_gpu(nvml, item.gpu.key, (SINCE, CLOCK), use.supported)
    if isinstance(asked, Absent):
        return GpuReading(item.gpu, replace(use, window=asked))
    clock = asked.number(CLOCK)
    window = window_of(asked.json(SINCE), clock if isinstance(clock, Absent) else clock * 1e6)
    return GpuReading(item.gpu, replace(use, window=window, supported=asked.supported))
