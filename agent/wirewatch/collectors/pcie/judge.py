"""Judging PCIe: width always, generation only while the GPU works, replays against their rate, AER."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from wirewatch.collectors.pcie.reading import START, GpuPcie, Memory, Reading, lower
from wirewatch.core.pergpu import GpuMemory, Memories, filled, fold_gpus, is_lost, subject, unread
from wirewatch.core.ports import Gpu
from wirewatch.core.rates import Streak, Window
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok

REPLAYS_A_LANE: Mapping[int, float] = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""Replays a minute and lane that a bit error rate of 1e-12 makes at each generation (DCGM's limit)."""
MINUTE = 60.0
RESEAT = "drain, power the node off and reseat the GPU or its riser"


@dataclass(frozen=True, slots=True)
class PciePolicy:
    """`confirm`: polls in a row before a narrow or slow link is FAILED, or a replay rate is told.

    `replay_factor` times the limit of the generation; `aer_window`: seconds for which an error that was not
    corrected is told.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 3
    replay_factor: float = 1.0
    aer_window: float = 86400.0


def judge(
    memories: Memories[Memory], ok: Ok[Reading], policy: PciePolicy, _expect: Expect
) -> tuple[dict[str, GpuMemory[Memory]], tuple[Finding, ...]]:
    slots = _usual_slots(ok.value)

    def one(memory: Memory, gpu: Gpu, value: GpuPcie) -> tuple[Memory, tuple[Finding, ...]]:
        new = _remember(memory, value, policy, ok.mono)
        return new, (
            *_findings(new, gpu, policy, slots.get(gpu.name)),
            *unread("pcie", gpu, _essential(value)),
        )

    return fold_gpus("pcie", memories, ok.value, START, one)


def _essential(value: GpuPcie) -> dict[str, object]:
    essential: dict[str, object] = {
        "pcie_generation": value.generation,
        "pcie_generation_max": value.most_generation,
        "pcie_width": value.width,
        "pcie_width_max": value.most_width,
        "pcie_replays_total": value.replays,
        "performance state": value.busy,
    }
    return essential | {f"{severity} PCIe errors": count for severity, count in value.aer.items()}


def _usual_slots(reading: Reading) -> dict[str, int]:
    """The commonest best generation of each product here: one slot below it is the wrong slot."""
    told: dict[str, list[int]] = {}
    for item in reading:
        if not isinstance(item.value, Absent) and not isinstance(item.value.most_generation, Absent):
            told.setdefault(item.gpu.name, []).append(item.value.most_generation)
    common = {name: Counter(numbers).most_common(1)[0] for name, numbers in told.items()}
    return {name: number for name, (number, count) in common.items() if 2 * count > len(told[name]) > 1}


def _remember(memory: Memory, value: GpuPcie, policy: PciePolicy, mono: float) -> Memory:
    known = filled(value, memory.last, "generation", "most_generation", "width", "most_width")
    # An idle link sleeps, by design: a low generation says something only while the GPU works.
    full = not is_lost(value.generation) and not is_lost(value.most_generation) and value.busy is None
    working = value.busy is True
    slow = working or (not full and "generation" in memory.streaks)
    shown = {"width": lower(known.width, known.most_width), "generation": slow}
    replays = memory.replays
    if not isinstance(value.replays, Absent):
        replays = replays.add(value.replays, mono, MINUTE)
        limit = _limit(known, policy)
        shown["replays"] = limit is not None and replays.total() > limit
    elif "replays" in memory.streaks:
        shown["replays"] = True
    sure = {
        "width": not is_lost(value.width) and not is_lost(value.most_width),
        "generation": working or full,
        "replays": not isinstance(value.replays, Absent),
    }
    words = f"generation {value.generation} of {known.most_generation}" if slow and working else memory.slow
    return replace(
        memory,
        supported=value.supported,
        last=known,
        streaks={
            fault: memory.streaks.get(fault, Streak()).see(present=True, sure=sure[fault])
            for fault, present in shown.items()
            if present
        },
        slow=words,
        replays=replays,
        aer=_aer(memory, value, policy, mono),
    )


def _aer(memory: Memory, value: GpuPcie, policy: PciePolicy, mono: float) -> dict[str, Window]:
    windows = dict(memory.aer)
    for severity, count in value.aer.items():
        if not isinstance(count, Absent):
            windows[severity] = windows.get(severity, Window()).add(count, mono, policy.aer_window)
    return windows


def _limit(value: GpuPcie, policy: PciePolicy) -> int | None:
    """Replays a minute that this link may have, None when its generation or width is not known.

    By the generation that it works at: an idle link shows a lower one, and the replays were made before.
    """
    if isinstance(value.most_generation, Absent) or isinstance(value.width, Absent):
        return None
    lane = REPLAYS_A_LANE.get(value.most_generation)
    return None if lane is None else ceil(policy.replay_factor * lane * value.width)


def _findings(memory: Memory, gpu: Gpu, policy: PciePolicy, usual: int | None) -> Iterator[Finding]:
    value = memory.last
    if value is None:
        return
    yield from _narrow_or_slow(memory, value, gpu, policy)
    if memory.streaks.get("replays", Streak()).count >= policy.confirm:
        rate = f"{memory.replays.total()} replays in a minute, limit {_limit(value, policy)}"
        action = f"{RESEAT} if it goes on; compare with the other GPUs of the same switch"
        evidence = f"{rate}; {memory.replays.last} since reset"
        yield Finding("pcie.replays", Health.DEGRADED, subject(gpu), evidence, action)
    if usual is not None and not isinstance(value.most_generation, Absent) and value.most_generation < usual:
        evidence = f"GPU and slot can generation {value.most_generation}, the other GPUs here {usual}"
        action = "look whether this GPU sits in the slot that it should, and at the slot's BIOS setting"
        yield Finding("pcie.slot", Health.DEGRADED, subject(gpu), evidence, action)
    yield from _errors(memory, gpu)


def _narrow_or_slow(memory: Memory, value: GpuPcie, gpu: Gpu, policy: PciePolicy) -> Iterator[Finding]:
    lanes = f"x{value.width} of x{value.most_width} lanes"
    for fault, evidence, action in (
        ("width", lanes, f"{RESEAT}; a width does not change by itself"),
        ("generation", f"{memory.slow} while the GPU works", f"{RESEAT}; look for a slot that is not fit"),
    ):
        streak = memory.streaks.get(fault, Streak())
        if streak.count:
            health = Health.FAILED if streak.count >= policy.confirm else Health.DEGRADED
            yield Finding(f"pcie.{fault}", health, subject(gpu), evidence, action)


def _errors(memory: Memory, gpu: Gpu) -> Iterator[Finding]:
    """Errors that were not corrected: each is one too many."""
    counts = {s: memory.aer[s].total() for s in ("fatal", "nonfatal") if s in memory.aer}
    told = [f"{count} {severity}" for severity, count in counts.items() if count]
    if told:
        evidence = f"{', '.join(told)} PCIe errors within a day"
        action = f"look for pcieport and AER lines in the kernel log; {RESEAT} if they return"
        yield Finding("pcie.aer", Health.DEGRADED, subject(gpu), evidence, action)
