"""Reading what a GPU says of itself: throttling, memory errors, recovery action, temperature, power, use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wirewatch.core.asking import Asked, Supported, as_int, as_ints, ask_gpu, member
from wirewatch.core.collector import Options
from wirewatch.core.pergpu import GpuReading, Memories, read_gpus, remembered
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.rates import Streak, Window
from wirewatch.core.types import Absent, Why

REASONS = Question("CurrentClocksEventReasons")
SUPPORTED_REASONS = Question("SupportedClocksEventReasons")
REASON_FIELDS: Mapping[str, int] = {
    "sw_power_cap": 74,
    "sync_boost": 76,
    "sw_thermal_slowdown": 269,
    "hw_thermal_slowdown": 270,
    "hw_power_brake": 271,
}
CORE_TEMPERATURE = Question("Temperature", (0,))
MEMORY_TEMPERATURE = Question("Field", (82,))
POWER = Question("PowerUsage")
RECOVERY = Question("Field", (230,))
REMAPPED = Question("RemappedRows")
UTILIZATION = Question("UtilizationRates")
PROCESSES = Question("ComputeRunningProcesses")

ECC_KINDS: Mapping[str, int] = {"corrected": 0, "uncorrected": 1}
ECC_LOCATIONS: Mapping[str, int] = {"dram": 2, "sram": 7}
VOLATILE, LIFETIME = 0, 1

EccKey = tuple[str, str]
"""Kind and location; location `all` where the GPU does not tell memories apart."""


@dataclass(frozen=True, slots=True)
class Remapped:
    """Rows remapped after memory errors, Ampere and later."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU; seconds, watts, degrees Celsius, ratios of 0 to 1."""

    reasons: int | Absent
    supported_reasons: int | Absent
    reason_seconds: Mapping[str, float]
    temperatures: Mapping[str, int | Absent]
    power: float | Absent
    recovery_action: int | Absent
    ecc_volatile: Mapping[EccKey, int | Absent]
    ecc_lifetime: Mapping[EccKey, int | Absent]
    remapped: Remapped | Absent
    utilization: float | Absent
    processes: int | Absent
    supported: Supported


@dataclass(frozen=True, slots=True)
class Memory:
    """What a poll leaves for the next one; `last` holds what was last known of each value."""

    supported: Supported = field(default_factory=Supported)
    last: GpuState | None = None
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    uncorrected: Mapping[EccKey, Window] = field(default_factory=dict)
    reason_seconds: Mapping[str, float] = field(default_factory=dict)
    mono: float = 0.0


Reading = tuple[GpuReading[GpuState], ...]
START = Memory()


def _ecc(kind: str, counter: int, location: str) -> Question:
    if location == "all":
        return Question("TotalEccErrors", (ECC_KINDS[kind], counter))
    return Question("MemoryErrorCounter", (ECC_KINDS[kind], counter, ECC_LOCATIONS[location]))


def _ecc_questions(locations: Iterable[str]) -> tuple[Question, ...]:
    counters = (VOLATILE, LIFETIME)
    return tuple(_ecc(kind, c, where) for kind in ECC_KINDS for c in counters for where in locations)


BY_LOCATION = _ecc_questions(ECC_LOCATIONS)
TOTALS = _ecc_questions(["all"])
QUESTIONS = (
    REASONS, CORE_TEMPERATURE, MEMORY_TEMPERATURE, POWER, RECOVERY, REMAPPED, UTILIZATION, PROCESSES,
    *(Question("Field", (f,)) for f in REASON_FIELDS.values()), *BY_LOCATION,
)  # fmt: skip
WITH_TOTALS = QUESTIONS + TOTALS
ONCE = (SUPPORTED_REASONS,)


def read(hardware: Hardware, memories: Memories[Memory], _options: Options) -> Reading | Absent:
    return read_gpus(hardware.nvml, lambda gpu: _read_gpu(hardware, gpu, remembered(memories, gpu, START)))


def _read_gpu(hardware: Hardware, gpu: Gpu, memory: Memory) -> GpuState | Absent:
    known = memory.supported
    needed = known.session != hardware.nvml.session() or any(q in known.skip for q in BY_LOCATION)
    asked = ask_gpu(hardware.nvml, gpu.key, WITH_TOTALS if needed else QUESTIONS, known, ONCE)
    if isinstance(asked, Absent):
        return asked
    told = {name: asked.whole(Question("Field", (f,))) for name, f in REASON_FIELDS.items()}
    power = asked.number(POWER)
    utilization = as_int(member(asked.json(UTILIZATION), "gpu"))
    processes = asked.json(PROCESSES)
    return GpuState(
        reasons=asked.whole(REASONS),
        supported_reasons=asked.whole(SUPPORTED_REASONS),
        reason_seconds={name: ns * 1e-9 for name, ns in told.items() if not isinstance(ns, Absent)},
        temperatures={"core": asked.whole(CORE_TEMPERATURE), "memory": asked.whole(MEMORY_TEMPERATURE)},
        power=power if isinstance(power, Absent) else power * 1e-3,
        recovery_action=asked.whole(RECOVERY),
        ecc_volatile=_counters(asked, VOLATILE),
        ecc_lifetime=_counters(asked, LIFETIME),
        remapped=_remapped(asked),
        utilization=utilization if isinstance(utilization, Absent) else utilization / 100,
        processes=_count(processes),
        supported=asked.supported,
    )


def _count(processes: object) -> int | Absent:
    if isinstance(processes, Absent):
        return processes
    if isinstance(processes, list | tuple):
        return len(processes)
    return Absent(Why.MALFORMED, f"not a list of processes: {processes!r}")


def _counters(asked: Asked, counter: int) -> dict[EccKey, int | Absent]:
    """By location where the GPU tells locations, else the totals: never both, they would be summed twice."""
    by_location = {
        (kind, location): asked.whole(_ecc(kind, counter, location))
        for kind in ECC_KINDS
        for location in ECC_LOCATIONS
    }
    supported = {k: v for k, v in by_location.items() if not _unsupported(v)}
    if supported:
        return supported
    totals = {(kind, "all"): asked.whole(_ecc(kind, counter, "all")) for kind in ECC_KINDS}
    return {k: v for k, v in totals.items() if not _unsupported(v)}


def _unsupported(value: int | Absent) -> bool:
    return isinstance(value, Absent) and value.why is Why.UNSUPPORTED


def _remapped(asked: Asked) -> Remapped | Absent:
    rows = as_ints(asked.json(REMAPPED), 4)
    if isinstance(rows, Absent):
        return rows
    corrected, uncorrected, pending, failed = rows
    return Remapped(corrected, uncorrected, pending=bool(pending), failed=bool(failed))
