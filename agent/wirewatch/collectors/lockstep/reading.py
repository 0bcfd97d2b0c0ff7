"""Reading a job's GPUs: who computes on each; and only while it is the job of before, what the GPUs did."""

from collections.abc import Mapping
from dataclasses import replace

from wirewatch.collectors.lockstep.values import LockstepOptions, Memory, Reading, Use, Window, goes_on
from wirewatch.core.asking import Supported, as_float, as_int, ask_gpu, member
from wirewatch.core.pergpu import GpuReading, read_gpus
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question
from wirewatch.core.types import Absent, Json, Why

PROCESSES, MIG = Question("ComputeRunningProcesses"), Question("MigMode")
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
MIB = 1 << 20


def read(hardware: Hardware, memory: Memory, _options: LockstepOptions) -> Reading | Absent:
    nvml = hardware.nvml
    reading = read_gpus(nvml, lambda gpu: _use(nvml, gpu, memory.supported.get(gpu.key, Supported())))
    job = memory.job
    if isinstance(reading, Absent) or job is None or not memory.settled:
        return reading
    if not goes_on(job, {item.gpu.key: item.value for item in reading}):
        return reading
    # One after the other, with nothing in between, so that the windows of all GPUs are the same.
    return tuple(_looked_at(nvml, item) if item.gpu.key in job.processes else item for item in reading)


def _use(nvml: Nvml, gpu: Gpu, known: Supported) -> Use | Absent:
    asked = ask_gpu(nvml, gpu.key, (PROCESSES, MIG), known, (OFFERS,))
    if isinstance(asked, Absent):
        return asked
    mode, offers = asked.json(MIG), asked.json(OFFERS)
    mig = isinstance(mode, list | tuple) and bool(mode) and mode[0] == 1
    if not isinstance(offers, bool | Absent):
        offers = Absent(Why.MALFORMED, f"neither yes nor no: {offers!r}")
    return Use(offers, mig, _processes(asked.json(PROCESSES)), NO_JOB, asked.supported)


def _processes(told: Json | Absent) -> frozenset[int] | Absent:
    if isinstance(told, Absent):
        return told
    if not isinstance(told, list | tuple):
        return Absent(Why.MALFORMED, f"not a list of processes: {told!r}")
    found = [as_int(member(one, "pid")) for one in told]
    odd = next((pid for pid in found if isinstance(pid, Absent)), None)
    return odd or frozenset(pid for pid in found if not isinstance(pid, Absent))


def _looked_at(nvml: Nvml, item: GpuReading[Use]) -> GpuReading[Use]:
    use = item.value
    if isinstance(use, Absent):
        return item
    asked = ask_gpu(nvml, item.gpu.key, (SINCE, CLOCK), use.supported)
    if isinstance(asked, Absent):
        return GpuReading(item.gpu, replace(use, window=asked))
    clock = asked.number(CLOCK)
    window = window_of(asked.json(SINCE), clock if isinstance(clock, Absent) else clock * 1e6)
    return GpuReading(item.gpu, replace(use, window=window, supported=asked.supported))


def window_of(told: Json | Absent, clock: float | Absent) -> Window | Absent:
    """A window out of what the GPU told since the look before; `clock` in Hz."""
    seconds, metrics = as_float(member(told, "seconds")), member(told, "metrics")
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
            return Absent(Why.UNSUPPORTED, f"GPM does not tell of {name} here")
    math = {name: values.pop(name) for name in MATH if name in values}
    return Window(seconds, math=math, clock=clock, **values)
