"""The GPU itself: clock event reasons, memory errors, recovery action, temperature, power, use."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from wirewatch.core import xids
from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import (
    DEGRADED,
    LENT,
    STARTING,
    Collector,
    GpuMemory,
    GpuReading,
    Memories,
    Options,
    Rule,
    Strict,
    filled,
    fold_gpus,
    forget_gone,
    is_lost,
    is_unsupported,
    known_samples,
    observed_gpus,
    remembered,
    subject,
    unread,
    watch_gpus,
)
from wirewatch.core.nvml import (
    CLOCK_REASONS,
    MIG_MODE,
    NO_RECOVERY,
    RECOVERY_ACTION,
    RECOVERY_ACTIONS,
    Asked,
    Supported,
    as_int,
    as_ints,
    as_pids,
    as_process_memory,
    ask_gpu,
    member,
)
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.statistics import Streak, Window, in_days, streaks
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Sample, Tier, Why, family, value_or
from wirewatch.core.words import RESET_GPU

GPU = ("gpu", "uuid")

REASON = family(
    "clocks_event_active", (*GPU, "reason"), "1 while this reason holds the GPU's clocks down.",
    undrawn="the time for which it did is drawn",
)  # fmt: skip
REASON_SECONDS = family(
    "clocks_event_seconds_total", (*GPU, "reason"),
    "Time that this reason held the GPU's clocks down, since the driver was loaded.", tier=Tier.CORE,
)  # fmt: skip
TEMPERATURE = family("gpu_temperature_celsius", (*GPU, "sensor"), "Temperature of the GPU.", tier=Tier.CORE)
POWER = family("gpu_power_watts", GPU, "Power draw of the GPU, averaged by the driver.", tier=Tier.CORE)
UTILIZATION = family(
    "gpu_utilization_ratio",
    GPU,
    "Share of time in which some kernel ran; reads 1 in a job that waits for one slow GPU.",
)
PROCESSES = family(
    "gpu_compute_processes", GPU, "Processes with a compute context on the GPU.", tier=Tier.CORE
)
RECOVERY = family(
    "gpu_recovery_action", (*GPU, "action"),
    "1 for the action that the driver asks for; `none` when all is well.", "every action but none",
)  # fmt: skip
ECC = family(
    "ecc_errors_total", (*GPU, "kind", "location"), "Memory errors since the driver was loaded.",
    "values other than 0",
)  # fmt: skip
ECC_LIFETIME = family(
    "ecc_errors_lifetime", (*GPU, "kind", "location"), "Memory errors in the life of the GPU.",
    undrawn="errors since the driver was loaded are what is judged",
)  # fmt: skip
PENDING = family("row_remap_pending", GPU, "1 when a row remapping waits for a reset.")
FAILED = family("row_remap_failed", GPU, "1 when a row remapping has failed.")
REMAPPED = family("rows_remapped", (*GPU, "kind"), "Memory rows remapped in the life of the GPU.")

METRICS = (
    REASON, REASON_SECONDS, TEMPERATURE, POWER, UTILIZATION, PROCESSES, RECOVERY, ECC, ECC_LIFETIME, PENDING,
    FAILED, REMAPPED,
)  # fmt: skip

THROTTLE = Rule("gpu.throttle", DEGRADED, "Throttled")
ECC_UNCORRECTED = Rule("gpu.ecc_uncorrected", DEGRADED, "GPUMemory")
ROW_REMAP_FAILED = Rule("gpu.row_remap_failed", (Health.FAILED,), "GPUMemory")
ROW_REMAP_PENDING = Rule("gpu.row_remap_pending", DEGRADED, "GPUMemory")
RECOVERY_WISH = Rule("gpu.recovery_action", STARTING, "XidRecovery")

THROTTLE_ACTIONS: Mapping[str, str] = {
    "hw_thermal_slowdown": "check fans, airflow and inlet temperature; if only this GPU is hot, reseat its "
    "heat sink",
    "hw_power_brake": "check power supplies and rack power: an external power brake signal slows this GPU "
    "down",
    "hw_slowdown": "check the cooling and power of this node, and the other clock event reasons",
    "sw_thermal_slowdown": "check airflow and inlet temperature: the driver lowers the clocks to stay "
    "within limits",
}
"""Clock reasons that are faults. Idle, power cap, application clocks and sync boost are normal work."""


@dataclass(frozen=True, slots=True)
class GpuPolicy(Strict):
    """Limits beyond which a GPU is at fault."""

    confirm: int = 3
    """Polls in a row before a fault is believed."""
    throttled_ratio: float = 0.1
    """Share of the time between polls for which the clocks must be held down. [share]"""
    uncorrected_window: Seconds = 86400.0
    """How long a memory error that was not corrected is a finding. [seconds]"""


NOT_READ = Absent(Why.MISSING, "not read")
EccKey = tuple[str, str]
"""Kind and location; location `all` where the GPU counts all its memories together."""


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
    pids: frozenset[int] | Absent = NOT_READ
    memory: Mapping[int, int] = field(default_factory=dict)


GpuStateReading = tuple[GpuReading[GpuState], ...]


@dataclass(frozen=True, slots=True)
class GpuStateMemory:
    """A poll's memory for the next poll; `last` holds the last known reading of each value."""

    supported: Supported = field(default_factory=Supported)
    last: GpuState | None = None
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    uncorrected: Mapping[EccKey, Window] = field(default_factory=dict)
    reason_seconds: Mapping[str, float] = field(default_factory=dict)
    mono: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One GPU at the last poll, in watts and ratios; `throttled`: faults that hold its clocks down.

    `memory`: bytes of its memory by process id, for processes whose number the driver gives.
    """

    index: int
    utilization: float | Absent
    power: float | Absent
    throttled: tuple[str, ...] | Absent
    pids: frozenset[int] | Absent
    memory: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """UUIDs of the GPUs that need no recovery, as the driver says; and the present work of each."""

    well: frozenset[str]
    now: Mapping[str, GpuNow] = field(default_factory=dict)


def read(
    hardware: Hardware, memories: Memories[GpuStateMemory], _options: Options
) -> GpuStateReading | Absent:
    return watch_gpus(
        hardware, memories, lambda gpu: _read_gpu(hardware, gpu, remembered(memories, gpu, _START))
    )


def samples(reading: GpuStateReading, _memories: Memories[GpuStateMemory]) -> Iterable[Sample]:
    for item in reading:
        if not isinstance(item.value, Absent):
            yield from _gpu_samples(item.value, (str(item.gpu.index), item.gpu.uuid))


def facts(reading: GpuStateReading, _memories: Memories[GpuStateMemory]) -> GpuFacts:
    """Return the driver's word on each GPU, for the verdict, and its present work, for running jobs."""
    known = [(one.gpu, one.value) for one in reading if one.gpu.uuid and isinstance(one.value, GpuState)]
    well = (gpu.uuid for gpu, value in known if value.recovery_action == NO_RECOVERY)
    return GpuFacts(frozenset(well), {gpu.uuid: _now(gpu, value) for gpu, value in known})


def _now(gpu: Gpu, value: GpuState) -> GpuNow:
    held, reasons = value_or(value.reasons, 0), value.reasons
    faults = tuple(name for name in THROTTLE_ACTIONS if held & CLOCK_REASONS[name])
    throttled = reasons if isinstance(reasons, Absent) else faults
    return GpuNow(gpu.index, value.utilization, value.power, throttled, value.pids, value.memory)


def judge(
    memories: Memories[GpuStateMemory], ok: Ok[GpuStateReading], policy: GpuPolicy, _expect: Expect
) -> tuple[dict[str, GpuMemory[GpuStateMemory]], tuple[Finding, ...]]:
    """Judge each GPU by itself: return its memory by key, and all findings of now."""

    def one(memory: GpuStateMemory, gpu: Gpu, value: GpuState) -> tuple[GpuStateMemory, tuple[Finding, ...]]:
        known = filled(value, memory.last, "reasons", "recovery_action", "remapped")
        new = replace(_remember(memory, value, known, policy, ok.mono), last=known)
        findings = (
            *_throttle_findings(new, gpu, known, policy),
            *_memory_findings(new, gpu, known, policy),
            *_recovery_findings(new, gpu, known),
        )
        return new, (*findings, *unread("gpu", gpu, _essential(value)))

    return fold_gpus("gpu", memories, ok.value, _START, one)


COLLECTOR: Collector[GpuStateReading, Memories[GpuStateMemory], Options, GpuPolicy] = Collector(
    name="gpu",
    about="clock event reasons, memory errors, recovery action, temperature, power, processes",
    lane="nvml",
    options=Options(),
    policy=GpuPolicy(),
    metrics=METRICS,
    start={},
    read=read,
    samples=samples,
    judge=judge,
    rules=(THROTTLE, ECC_UNCORRECTED, ROW_REMAP_FAILED, ROW_REMAP_PENDING, RECOVERY_WISH),
    series=312,
    applicable=lambda reading: any(one.value != LENT for one in reading),
    forget=forget_gone,
    observed=observed_gpus,
    facts=facts,
)

_START = GpuStateMemory()
_CLOCK_REASONS = Question("CurrentClocksEventReasons")
_SUPPORTED_REASONS = Question("SupportedClocksEventReasons")
_REASON_FIELDS: Mapping[str, int] = {
    "sw_power_cap": 74, "sync_boost": 76, "sw_thermal_slowdown": 269, "hw_thermal_slowdown": 270,
    "hw_power_brake": 271,
}  # fmt: skip
_CORE_TEMPERATURE = Question("Temperature", (0,))
_MEMORY_TEMPERATURE = Question("Field", (82,))
_POWER_USAGE = Question("PowerUsage")
_REMAPPED_ROWS = Question("RemappedRows")
_UTILIZATION_RATES = Question("UtilizationRates")
_COMPUTE_PROCESSES = Question("ComputeRunningProcesses")
_ECC_KINDS: Mapping[str, int] = {"corrected": 0, "uncorrected": 1}
_ECC_LOCATIONS: Mapping[str, int] = {"dram": 2, "sram": 7}
_VOLATILE, _LIFETIME = 0, 1


def _read_gpu(hardware: Hardware, gpu: Gpu, memory: GpuStateMemory) -> GpuState | Absent:
    known = memory.supported
    needed = known.session != hardware.nvml.session() or not known.skip.isdisjoint(_BY_LOCATION)
    asked = ask_gpu(hardware.nvml, gpu.key, _WITH_TOTALS if needed else _QUESTIONS, known, _ONCE)
    if isinstance(asked, Absent):
        return asked
    reasons = {name: asked.whole(Question("Field", (f,))) for name, f in _REASON_FIELDS.items()}
    power = asked.number(_POWER_USAGE)
    utilization = as_int(member(asked.json(_UTILIZATION_RATES), "gpu"))
    processes = asked.json(_COMPUTE_PROCESSES)
    return GpuState(
        reasons=asked.whole(_CLOCK_REASONS),
        supported_reasons=asked.whole(_SUPPORTED_REASONS),
        reason_seconds={name: ns * 1e-9 for name, ns in reasons.items() if not isinstance(ns, Absent)},
        temperatures={"core": asked.whole(_CORE_TEMPERATURE), "memory": asked.whole(_MEMORY_TEMPERATURE)},
        power=power if isinstance(power, Absent) else power * 1e-3,
        recovery_action=asked.whole(RECOVERY_ACTION),
        ecc_volatile=_counters(asked, _VOLATILE),
        ecc_lifetime=_counters(asked, _LIFETIME),
        remapped=_remapped(asked),
        utilization=utilization if isinstance(utilization, Absent) else utilization / 100,
        processes=_count(processes),
        supported=asked.supported,
        pids=as_pids(processes),
        memory=as_process_memory(processes),
    )


def _counters(asked: Asked, counter: int) -> dict[EccKey, int | Absent]:
    """Return counters by location where the GPU has them, else the totals: a sum of both counts twice."""
    by_location = {
        (kind, location): asked.whole(_ecc_question(kind, counter, location))
        for kind in _ECC_KINDS
        for location in _ECC_LOCATIONS
    }
    supported = {k: v for k, v in by_location.items() if not is_unsupported(v)}
    if supported:
        return supported
    totals = {(kind, "all"): asked.whole(_ecc_question(kind, counter, "all")) for kind in _ECC_KINDS}
    return {k: v for k, v in totals.items() if not is_unsupported(v)}


def _remapped(asked: Asked) -> Remapped | Absent:
    rows = as_ints(asked.json(_REMAPPED_ROWS), 4)
    if isinstance(rows, Absent):
        return rows
    corrected, uncorrected, pending, failed = rows
    return Remapped(corrected, uncorrected, pending=bool(pending), failed=bool(failed))


def _count(processes: object) -> int | Absent:
    if isinstance(processes, Absent | list | tuple):
        return processes if isinstance(processes, Absent) else len(processes)
    return Absent(Why.MALFORMED, f"not a list of processes: {processes!r}")


def _ecc_question(kind: str, counter: int, location: str) -> Question:
    if location == "all":
        return Question("TotalEccErrors", (_ECC_KINDS[kind], counter))
    return Question("MemoryErrorCounter", (_ECC_KINDS[kind], counter, _ECC_LOCATIONS[location]))


def _ecc_questions(locations: Iterable[str]) -> tuple[Question, ...]:
    counters = (_VOLATILE, _LIFETIME)
    return tuple(
        _ecc_question(kind, c, where) for kind in _ECC_KINDS for c in counters for where in locations
    )


_BY_LOCATION = _ecc_questions(_ECC_LOCATIONS)
_TOTALS = _ecc_questions(["all"])
_QUESTIONS = (
    _CLOCK_REASONS, _CORE_TEMPERATURE, _MEMORY_TEMPERATURE, _POWER_USAGE, RECOVERY_ACTION, _REMAPPED_ROWS,
    _UTILIZATION_RATES, _COMPUTE_PROCESSES, MIG_MODE,
    *(Question("Field", (f,)) for f in _REASON_FIELDS.values()),
    *_BY_LOCATION,
)  # fmt: skip
_WITH_TOTALS = _QUESTIONS + _TOTALS
_ONCE = (_SUPPORTED_REASONS,)


def _gpu_samples(value: GpuState, labels: tuple[str, str]) -> Iterator[Sample]:
    if not isinstance(value.reasons, Absent):
        supported = value_or(value.supported_reasons, -1)
        for name, bit in CLOCK_REASONS.items():
            if supported & bit:
                yield REASON.sample(bool(value.reasons & bit), *labels, name)
    yield from (REASON_SECONDS.sample(seconds, *labels, n) for n, seconds in value.reason_seconds.items())
    for sensor, degrees in value.temperatures.items():
        yield from known_samples((*labels, sensor), (TEMPERATURE, degrees))
    use = (UTILIZATION, value.utilization), (PROCESSES, value.processes)
    yield from known_samples(labels, (POWER, value.power), *use)
    if not isinstance(value.recovery_action, Absent):
        for number, name in enumerate(RECOVERY_ACTIONS):
            yield RECOVERY.sample(value.recovery_action == number, *labels, name)
    for metric, counts in ((ECC, value.ecc_volatile), (ECC_LIFETIME, value.ecc_lifetime)):
        for location, count in counts.items():
            yield from known_samples((*labels, *location), (metric, count))
    if not isinstance(rows := value.remapped, Absent):
        yield PENDING.sample(rows.pending, *labels)
        yield FAILED.sample(rows.failed, *labels)
        yield REMAPPED.sample(rows.corrected, *labels, "corrected")
        yield REMAPPED.sample(rows.uncorrected, *labels, "uncorrected")


def _essential(value: GpuState) -> dict[str, object]:
    return {
        "clock event reasons": value.reasons,
        "temperature": value.temperatures["core"],
        "recovery action": value.recovery_action,
        "remapped rows": value.remapped,
        **{f"{kind} {where} errors": v for (kind, where), v in value.ecc_volatile.items()},
    }


def _remember(
    memory: GpuStateMemory, value: GpuState, known: GpuState, policy: GpuPolicy, mono: float
) -> GpuStateMemory:
    sure = {
        f"throttle:{name}": not is_lost(value.reasons) for name in _throttled(memory, known, policy, mono)
    }
    if not isinstance(known.recovery_action, Absent) and known.recovery_action != 0:
        sure["recovery"] = not is_lost(value.recovery_action)
    windows = dict(memory.uncorrected)
    for key, count in value.ecc_volatile.items():
        if key[0] == "uncorrected" and not isinstance(count, Absent):
            # Volatile counts are since the driver was loaded: all that they show has come since the boot.
            window = windows.get(key) or Window(last=0, mono=0.0)
            windows[key] = window.add(count, mono, policy.uncorrected_window)
    return replace(
        memory,
        supported=value.supported,
        streaks=streaks(memory.streaks, sure),
        uncorrected=windows,
        reason_seconds=value.reason_seconds,
        mono=mono,
    )


def _throttled(memory: GpuStateMemory, value: GpuState, policy: GpuPolicy, mono: float) -> Iterator[str]:
    """Return fault reasons that hold now, or held for a good part of the time since the last poll."""
    elapsed = mono - memory.mono
    for name in THROTTLE_ACTIONS:
        active = value_or(value.reasons, 0) & CLOCK_REASONS[name]
        grown = value.reason_seconds.get(name, 0.0) - memory.reason_seconds.get(name, inf)
        if active or grown > policy.throttled_ratio * elapsed:
            yield name


def _throttle_findings(
    memory: GpuStateMemory, gpu: Gpu, value: GpuState, policy: GpuPolicy
) -> Iterator[Finding]:
    held = [
        n for n in THROTTLE_ACTIONS if memory.streaks.get(f"throttle:{n}", Streak()).count >= policy.confirm
    ]
    exact = [n for n in held if n != "hw_slowdown"]
    for name in exact or held:
        polls = memory.streaks[f"throttle:{name}"].count
        seconds = value.reason_seconds.get(name)
        part = replace(subject(gpu), device=name)
        total = "" if seconds is None else f", {seconds:.1f} s since the driver was loaded"
        evidence = f"{name} for {polls} polls in a row{total}"
        yield THROTTLE.finding(part, evidence, action=THROTTLE_ACTIONS[name])


def _memory_findings(
    memory: GpuStateMemory, gpu: Gpu, value: GpuState, policy: GpuPolicy
) -> Iterator[Finding]:
    for (_, location), window in memory.uncorrected.items():
        if window.total():
            when = in_days(window.seconds(policy.uncorrected_window))
            total, last = window.total(), window.last
            evidence = f"{total} uncorrected {location} errors {when}, {last} since driver load"
            action = f"when its jobs have ended, {RESET_GPU}; replace it if the errors return"
            yield ECC_UNCORRECTED.finding(replace(subject(gpu), device=location), evidence, action=action)
    if isinstance(value.remapped, Absent):
        return
    rows = f"{value.remapped.corrected} corrected, {value.remapped.uncorrected} uncorrected rows remapped"
    if value.remapped.failed:
        yield ROW_REMAP_FAILED.finding(subject(gpu), rows, action="drain and replace the GPU")
    if value.remapped.pending:
        action = xids.CONVENIENCE
        yield ROW_REMAP_PENDING.finding(subject(gpu), rows, action=action)


def _recovery_findings(memory: GpuStateMemory, gpu: Gpu, value: GpuState) -> Iterator[Finding]:
    number = value.recovery_action
    if isinstance(number, Absent) or number == NO_RECOVERY:
        return
    names = dict(enumerate(RECOVERY_ACTIONS))
    wish = xids.recovery(names.get(number, f"action {number}"))
    health = wish.health if memory.streaks["recovery"].count > 1 else Health.DEGRADED
    action = f"{wish.action}; {xids.CAUSE}"
    yield RECOVERY_WISH.finding(subject(gpu), f"the driver asks for {wish.name}", health, action)
