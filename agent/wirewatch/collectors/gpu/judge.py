"""What is wrong with a GPU itself: throttled by a fault, memory errors, or asking to be reset."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from wirewatch.collectors.gpu.reading import START, GpuState, Memory, Reading
from wirewatch.core.bits import CLOCK_REASONS, RECOVERY_ACTIONS
from wirewatch.core.pergpu import GpuMemory, Memories, filled, fold_gpus, is_lost, subject, unread
from wirewatch.core.ports import Gpu
from wirewatch.core.rates import Streak, Window
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Subject
from wirewatch.core.xids import RECOVERY

THROTTLE_ACTIONS: Mapping[str, str] = {
    "hw_thermal_slowdown": "check fans, airflow and inlet temperature; reseat the heat sink if one GPU only",
    "hw_power_brake": "check power supplies and rack power; the board is told from outside to slow down",
    "hw_slowdown": "check cooling and power of this node; see the other clock event reasons",
    "sw_thermal_slowdown": "check airflow and inlet temperature; the driver slows down to stay in limits",
}
"""Reasons that are faults. Idle, power cap, application clocks and sync boost are normal work."""

RECOVERY_HEALTH: Mapping[str, Health] = {"recover_imex_domain": Health.DEGRADED}


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """`confirm`: polls in a row before a fault is believed; `throttled_ratio` of the time between polls."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 3
    throttled_ratio: float = 0.1
    uncorrected_window: float = 86400.0


def judge(
    memories: Memories[Memory], ok: Ok[Reading], policy: GpuPolicy, _expect: Expect
) -> tuple[dict[str, GpuMemory[Memory]], tuple[Finding, ...]]:
    def one(memory: Memory, gpu: Gpu, value: GpuState) -> tuple[Memory, tuple[Finding, ...]]:
        known = filled(value, memory.last, "reasons", "recovery_action", "remapped")
        new = replace(_remember(memory, value, known, policy, ok.mono), last=known)
        findings = (
            *_throttle(new, gpu, known, policy),
            *_memory(new, gpu, known),
            *_recovery(new, gpu, known),
        )
        return new, (*findings, *unread("gpu", gpu, _essential(value)))

    return fold_gpus("gpu", memories, ok.value, START, one)


def _essential(value: GpuState) -> dict[str, object]:
    essential: dict[str, object] = {
        "clock event reasons": value.reasons,
        "temperature": value.temperatures["core"],
        "recovery action": value.recovery_action,
        "remapped rows": value.remapped,
    }
    counters = {f"{kind} {where} errors": v for (kind, where), v in value.ecc_volatile.items()}
    return essential | counters


def _remember(memory: Memory, value: GpuState, known: GpuState, policy: GpuPolicy, mono: float) -> Memory:
    sure = {
        f"throttle:{name}": not is_lost(value.reasons) for name in _throttled(memory, known, policy, mono)
    }
    if not isinstance(known.recovery_action, Absent) and known.recovery_action != 0:
        sure["recovery"] = not is_lost(value.recovery_action)
    before = memory.streaks
    windows = dict(memory.uncorrected)
    for key, count in value.ecc_volatile.items():
        if key[0] == "uncorrected" and not isinstance(count, Absent):
            windows[key] = _first_look(windows.get(key)).add(count, mono, policy.uncorrected_window)
    return replace(
        memory,
        supported=value.supported,
        streaks={fault: before.get(fault, Streak()).see(present=True, sure=s) for fault, s in sure.items()},
        uncorrected=windows,
        reason_seconds=value.reason_seconds,
        mono=mono,
    )


def _first_look(window: Window | None) -> Window:
    """Volatile counts are since the driver was loaded: what stands there at the first look is still news."""
    return Window(last=0) if window is None else window


def _throttled(memory: Memory, value: GpuState, policy: GpuPolicy, mono: float) -> Iterator[str]:
    """Fault reasons that hold now, or held for a good part of the time since the last poll."""
    elapsed = mono - memory.mono
    for name in THROTTLE_ACTIONS:
        active = not isinstance(value.reasons, Absent) and bool(value.reasons & CLOCK_REASONS[name])
        now, before = value.reason_seconds.get(name), memory.reason_seconds.get(name)
        grown = now - before if now is not None and before is not None and now > before else 0.0
        if active or (elapsed > 0 and grown / elapsed >= policy.throttled_ratio):
            yield name


def _throttle(memory: Memory, gpu: Gpu, value: GpuState, policy: GpuPolicy) -> Iterator[Finding]:
    held = [
        n for n in THROTTLE_ACTIONS if memory.streaks.get(f"throttle:{n}", Streak()).count >= policy.confirm
    ]
    exact = [n for n in held if n != "hw_slowdown"]
    for name in exact or held:
        polls = memory.streaks[f"throttle:{name}"].count
        seconds = value.reason_seconds.get(name)
        total = "" if seconds is None else f", {seconds:.1f} s since the driver was loaded"
        evidence = f"{name} for {polls} polls in a row{total}"
        yield Finding("gpu.throttle", Health.DEGRADED, _with(gpu, name), evidence, THROTTLE_ACTIONS[name])


def _memory(memory: Memory, gpu: Gpu, value: GpuState) -> Iterator[Finding]:
    for (_, location), window in memory.uncorrected.items():
        if window.total():
            recent, ever = window.total(), window.last
            evidence = f"{recent} uncorrected {location} errors within a day, {ever} since driver load"
            action = "drain, then reset the GPU; replace it if they return"
            yield Finding("gpu.ecc_uncorrected", Health.DEGRADED, _with(gpu, location), evidence, action)
    if isinstance(value.remapped, Absent):
        return
    rows = f"{value.remapped.corrected} corrected, {value.remapped.uncorrected} uncorrected rows remapped"
    if value.remapped.failed:
        yield Finding("gpu.row_remap_failed", Health.FAILED, subject(gpu), rows, "drain and replace the GPU")
    if value.remapped.pending:
        action = "reset the GPU when its jobs have ended; they are not affected until then"
        yield Finding("gpu.row_remap_pending", Health.DEGRADED, subject(gpu), rows, action)


def _recovery(memory: Memory, gpu: Gpu, value: GpuState) -> Iterator[Finding]:
    number = value.recovery_action
    if isinstance(number, Absent) or number == 0:
        return
    known = number < len(RECOVERY_ACTIONS)
    name = RECOVERY_ACTIONS[number] if known else f"action {number}"
    words = name.replace("_", " ")
    believed = memory.streaks["recovery"].count > 1
    health = RECOVERY_HEALTH.get(name, Health.FAILED if known else Health.DEGRADED)
    evidence = f"the driver asks for {words}"
    action = f"{RECOVERY.get(words, f'drain, then {words}')}; XID 154 in the kernel log tells the cause"
    yield Finding(
        "gpu.recovery_action", health if believed else Health.DEGRADED, subject(gpu), evidence, action
    )


def _with(gpu: Gpu, what: str) -> Subject:
    return replace(subject(gpu), device=what)
