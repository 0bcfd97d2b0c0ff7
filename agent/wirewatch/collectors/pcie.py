"""PCIe of each GPU: generation, width, replays, and the errors that the kernel counts (AER).

Width is judged always, generation only while the GPU works, replays by their rate.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import attrgetter

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import (
    CONFIRMED,
    DEGRADED,
    LENT,
    Collector,
    GpuMemory,
    GpuReading,
    Lasting,
    Memories,
    Options,
    Rule,
    Strict,
    filled,
    fold_gpus,
    forget_gone,
    is_lost,
    known_samples,
    observed_gpus,
    remembered,
    subject,
    unread,
    watch_gpus,
)
from wirewatch.core.nvml import Supported, as_count, as_int, ask_gpu, member
from wirewatch.core.pci import MOST_LANES, aer_total
from wirewatch.core.ports import Gpu, Hardware, Question, Sysfs
from wirewatch.core.statistics import Streak, Window, in_days, streaks, usual
from wirewatch.core.tree import DEVICES
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Sample, Tier, Why, family, value_or

GPU = ("gpu", "uuid")

GENERATION = family(
    "pcie_generation", GPU, "PCIe generation of the GPU's link now; falls when idle, by design.",
    tier=Tier.CORE,
)  # fmt: skip
GENERATION_MAX = family(
    "pcie_generation_max",
    GPU,
    "Highest PCIe generation of GPU and slot.",
    undrawn="a slower slot is a finding, pcie.generation",
)
WIDTH = family("pcie_width", GPU, "PCIe lanes of the GPU's link now.", tier=Tier.CORE)
WIDTH_MAX = family("pcie_width_max", GPU, "Most PCIe lanes of GPU and slot.", tier=Tier.CORE)
REPLAYS = family("pcie_replays_total", GPU, "PCIe packets sent again, since reset.", "values above 0")
ERRORS = family(
    "pcie_errors_total", (*GPU, "severity"),
    "PCIe errors that the kernel counted for the GPU (AER): correctable, nonfatal, fatal.", "all of it",
)  # fmt: skip

METRICS = (GENERATION, GENERATION_MAX, WIDTH, WIDTH_MAX, REPLAYS, ERRORS)

NARROW = Rule("pcie.width", CONFIRMED, "PCIeLink")
SLOW = Rule("pcie.generation", CONFIRMED, "PCIeLink")
SLOT = Rule("pcie.slot", DEGRADED, "PCIeLink")
REPLAYED = Rule("pcie.replays", DEGRADED, "PCIeErrors")
AER = Rule("pcie.aer", DEGRADED, "PCIeErrors")

RESEAT = "drain, power the node off and reseat the GPU or its riser"


@dataclass(frozen=True, slots=True)
class PciePolicy(Strict):
    """Limits beyond which a PCIe link is at fault."""

    confirm: int = 3
    """Polls in a row before a narrow or slow link is FAILED, or a rate of replays is a finding."""
    replay_factor: float = 1.0
    """Factor of the limit of replays that the link's generation has. [factor]"""
    aer_window: Seconds = 86400.0
    """How long an error that was not corrected is a finding. [seconds]"""


@dataclass(frozen=True, slots=True)
class GpuPcie:
    """One GPU's link and `most_` of GPU and slot; `busy`: at full clocks, if asked; `aer`: if counted."""

    generation: int | Absent
    most_generation: int | Absent
    width: int | Absent
    most_width: int | Absent
    replays: int | Absent
    busy: bool | Absent | None
    aer: Mapping[str, int | Absent]
    supported: Supported


PcieReading = tuple[GpuReading[GpuPcie], ...]


@dataclass(frozen=True, slots=True)
class SlotBest:
    """The most that GPU and slot together ever showed: lanes and generation, 0 where not known."""

    index: int
    name: str
    slot: str
    width: int
    generation: int


NO_SLOT = SlotBest(0, "", "", 0, 0)


@dataclass(frozen=True, slots=True)
class LastingPcie:
    """The memory that outlives the process, by the UUID of the GPU."""

    gpus: Mapping[str, SlotBest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PcieMemory:
    """The last known reading of each value, and `best`: the most that the GPU ever showed in this slot."""

    supported: Supported = field(default_factory=Supported)
    last: GpuPcie | None = None
    best: SlotBest = NO_SLOT
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    slow: str = ""
    replays: Window = field(default_factory=Window)
    aer: Mapping[str, Window] = field(default_factory=dict)


def read(hardware: Hardware, memories: Memories[PcieMemory], _options: Options) -> PcieReading | Absent:
    return watch_gpus(
        hardware, memories, lambda gpu: _read_gpu(hardware, gpu, remembered(memories, gpu, _START))
    )


def samples(reading: PcieReading, _memories: Memories[PcieMemory]) -> Iterable[Sample]:
    for item in reading:
        if isinstance(item.value, Absent):
            continue
        value, labels = item.value, (str(item.gpu.index), item.gpu.uuid)
        generations = (GENERATION, value.generation), (GENERATION_MAX, value.most_generation)
        widths = (WIDTH, value.width), (WIDTH_MAX, value.most_width)
        yield from known_samples(labels, *generations, *widths, (REPLAYS, value.replays))
        for severity, count in value.aer.items():
            yield from known_samples((*labels, severity), (ERRORS, count))


def judge(
    memories: Memories[PcieMemory], ok: Ok[PcieReading], policy: PciePolicy, _expect: Expect
) -> tuple[dict[str, GpuMemory[PcieMemory]], tuple[Finding, ...]]:
    """Judge each GPU by itself: return its memory by key, and all findings of now."""
    # The commonest best generation and width of each product here: a slot below it is the wrong slot.
    known = [(item.gpu.name, item.value) for item in ok.value if not isinstance(item.value, Absent)]
    slots = [
        usual((name, most) for name, value in known if not isinstance(most := best_of(value), Absent))
        for best_of in (attrgetter("most_generation"), attrgetter("most_width"))
    ]

    def one(memory: PcieMemory, gpu: Gpu, value: GpuPcie) -> tuple[PcieMemory, tuple[Finding, ...]]:
        best = _best(memory.best, gpu, value)
        known = _known(value, memory.last, best)
        new = _remember(replace(memory, best=best, last=known), value, known, policy, ok.mono)
        findings = _findings(new, known, gpu, policy, [one.get(gpu.name, 0) for one in slots])
        return new, (*findings, *unread("pcie", gpu, _essential(value)))

    return fold_gpus("pcie", memories, ok.value, _START, one, lambda old: PcieMemory(best=old.best))


def keep(memories: Memories[PcieMemory]) -> LastingPcie:
    known = ((one.gpu.uuid, one.memory.best) for one in memories.values())
    return LastingPcie({uuid: best for uuid, best in known if uuid and best != NO_SLOT})


def recall(kept: LastingPcie) -> Memories[PcieMemory]:
    """Return memories of GPUs with their best so far; other collectors judge whether a GPU is missing."""
    return {
        uuid: GpuMemory(Gpu(best.index, uuid, best.slot, best.name), PcieMemory(best=best), present=None)
        for uuid, best in kept.gpus.items()
    }


def forget(memories: Memories[PcieMemory]) -> Memories[PcieMemory]:
    """Return memories of the present GPUs, each like that of a new GPU."""
    return {key: GpuMemory(one.gpu, PcieMemory()) for key, one in forget_gone(memories).items()}


COLLECTOR: Collector[PcieReading, Memories[PcieMemory], Options, PciePolicy] = Collector(
    name="pcie",
    about="PCIe generation, width, replays and errors of each GPU",
    lane="nvml",
    options=Options(interval=30.0),
    policy=PciePolicy(),
    metrics=METRICS,
    start={},
    read=read,
    samples=samples,
    judge=judge,
    rules=(NARROW, SLOW, SLOT, REPLAYED, AER),
    series=64,
    applicable=lambda reading: any(one.value != LENT for one in reading),
    lasting=Lasting(LastingPcie, keep, recall),
    forget=forget,
    observed=observed_gpus,
)

_START = PcieMemory()
_LINK_GENERATION = Question("CurrPcieLinkGeneration")
_MAX_LINK_GENERATION = Question("MaxPcieLinkGeneration")
_LINK_WIDTH = Question("CurrPcieLinkWidth")
_MAX_LINK_WIDTH = Question("MaxPcieLinkWidth")
_REPLAY_COUNTER = Question("PcieReplayCounter")
_PERFORMANCE_STATE = Question("PerformanceState")
_UTILIZATION_RATES = Question("UtilizationRates")
_POLLED = (_LINK_GENERATION, _LINK_WIDTH, _REPLAY_COUNTER)
_ONCE = (_MAX_LINK_GENERATION, _MAX_LINK_WIDTH)
_AER_FILES = {"correctable": "aer_dev_correctable", "nonfatal": "aer_dev_nonfatal", "fatal": "aer_dev_fatal"}
_NOT_COUNTED = frozenset({Why.MISSING, Why.UNSUPPORTED})
_MOST_GENERATION = 15
"""No PCIe link has more: a larger number is an error of the driver."""
_FULL_SPEED = 0
"""Performance state in which a GPU works; in other states its link may sleep."""
_REPLAYS_A_LANE: Mapping[int, float] = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""Replays a minute and lane that a bit error rate of 1e-12 makes at each generation (DCGM's limit)."""
_MINUTE = 60.0


def _read_gpu(hardware: Hardware, gpu: Gpu, memory: PcieMemory) -> GpuPcie | Absent:
    asked = ask_gpu(hardware.nvml, gpu.key, _POLLED, memory.supported, _ONCE)
    if isinstance(asked, Absent):
        return asked
    generation = as_count(asked.json(_LINK_GENERATION), _MOST_GENERATION)
    most = as_count(asked.json(_MAX_LINK_GENERATION), _MOST_GENERATION)
    return GpuPcie(
        generation=generation,
        most_generation=most,
        width=as_count(asked.json(_LINK_WIDTH), MOST_LANES),
        most_width=as_count(asked.json(_MAX_LINK_WIDTH), MOST_LANES),
        replays=asked.whole(_REPLAY_COUNTER),
        busy=_busy(hardware, gpu) if _lower(generation, most) else None,
        aer=_read_aer(hardware.sysfs, gpu, memory.last if memory.supported == asked.supported else None),
        supported=asked.supported,
    )


def _lower(now: int | Absent, most: int | Absent) -> bool:
    return not isinstance(now, Absent) and not isinstance(most, Absent) and now < most


def _busy(hardware: Hardware, gpu: Gpu) -> bool | Absent:
    asked = ask_gpu(hardware.nvml, gpu.key, (_PERFORMANCE_STATE, _UTILIZATION_RATES), Supported())
    if isinstance(asked, Absent):
        return asked
    state, use = asked.whole(_PERFORMANCE_STATE), as_int(member(asked.json(_UTILIZATION_RATES), "gpu"))
    if isinstance(state, Absent):
        return state
    return use if isinstance(use, Absent) else state == _FULL_SPEED and use > 0


def _read_aer(sysfs: Sysfs, gpu: Gpu, last: GpuPcie | None) -> Mapping[str, int | Absent]:
    """Return errors as the kernel counts them, by severity; where it counts none it is not asked again."""
    if not gpu.pci:
        return dict.fromkeys(_AER_FILES, Absent(Why.UNSUPPORTED, "the GPU's PCI address is not known"))
    if last is not None and not last.aer:
        return last.aer
    at = f"{DEVICES}/{gpu.pci}"
    counts = {severity: aer_total(sysfs.read(f"{at}/{file}")) for severity, file in _AER_FILES.items()}
    counted = not all(isinstance(n, Absent) and n.why in _NOT_COUNTED for n in counts.values())
    return counts if counted else {}


def _essential(value: GpuPcie) -> dict[str, object]:
    return {
        "pcie_generation": value.generation,
        "pcie_generation_max": value.most_generation,
        "pcie_width": value.width,
        "pcie_width_max": value.most_width,
        "pcie_replays_total": value.replays,
        "performance state": value.busy,
        **{f"{severity} PCIe errors": count for severity, count in value.aer.items()},
    }


def _best(before: SlotBest, gpu: Gpu, value: GpuPcie) -> SlotBest:
    """Return the most so far; another slot starts again."""
    kept = before if gpu.pci in {"", before.slot} else NO_SLOT
    width = max(kept.width, value_or(value.most_width, 0))
    generation = max(kept.generation, value_or(value.most_generation, 0))
    return SlotBest(gpu.index, gpu.name, gpu.pci or kept.slot, width, generation)


def _known(value: GpuPcie, last: GpuPcie | None, best: SlotBest) -> GpuPcie:
    """Return the reading for judging: its gaps filled, and the lanes that the slot has shown."""
    known = filled(value, last, "generation", "most_generation", "width", "most_width")
    if isinstance(known.most_width, Absent):
        return known
    return replace(known, most_width=max(known.most_width, best.width))


def _remember(
    memory: PcieMemory, value: GpuPcie, known: GpuPcie, policy: PciePolicy, mono: float
) -> PcieMemory:
    # An idle link sleeps, by design: a low generation means something only while the GPU works.
    full = not is_lost(value.generation) and not is_lost(value.most_generation) and value.busy is None
    working = value.busy is True
    slow = working or (not full and "generation" in memory.streaks)
    shown = {"width": _lower(known.width, known.most_width), "generation": slow}
    replays = memory.replays
    if not isinstance(value.replays, Absent):
        replays = replays.add(value.replays, mono, _MINUTE)
        limit = _limit(known, policy)
        shown["replays"] = limit is not None and replays.within(_MINUTE) > limit
    elif "replays" in memory.streaks:
        shown["replays"] = True
    sure = {
        "width": not is_lost(value.width) and not is_lost(value.most_width),
        "generation": working,
        "replays": not isinstance(value.replays, Absent),
    }
    counted = {
        severity: memory.aer.get(severity, Window()).add(count, mono, policy.aer_window)
        for severity, count in value.aer.items()
        if not isinstance(count, Absent)
    }
    words = f"generation {value.generation} of {known.most_generation}" if working else memory.slow
    return replace(
        memory,
        supported=value.supported,
        streaks=streaks(memory.streaks, {fault: sure[fault] for fault, present in shown.items() if present}),
        slow=words,
        replays=replays,
        aer={**memory.aer, **counted},
    )


def _limit(value: GpuPcie, policy: PciePolicy) -> int | None:
    """Return the replays a minute that this link may have at its best generation; None: not known."""
    lane = _REPLAYS_A_LANE.get(value_or(value.most_generation, 0))
    if lane is None or isinstance(value.width, Absent):
        return None
    return ceil(policy.replay_factor * lane * value.width)


def _findings(
    memory: PcieMemory, value: GpuPcie, gpu: Gpu, policy: PciePolicy, slots: Sequence[int]
) -> Iterator[Finding]:
    """Return all findings of now; `slots`: generation and lanes of other GPUs' slots, 0 where not known."""
    yield from _narrow_or_slow(memory, value, gpu, policy)
    if memory.streaks.get("replays", Streak()).count >= policy.confirm:
        grown = memory.replays.words(_MINUTE, " replays", "in a minute")
        action = f"if the replays continue, {RESEAT}; compare with the other GPUs of the same switch"
        evidence = f"{grown}, limit {_limit(value, policy)} a minute; {memory.replays.last} since reset"
        yield REPLAYED.finding(subject(gpu), evidence, action=action)
    yield from _slot(memory.best.generation, value, gpu, slots)
    yield from _aer_findings(memory, gpu, policy)


def _slot(before: int, value: GpuPcie, gpu: Gpu, slots: Sequence[int]) -> Iterator[Finding]:
    generation, width = value.most_generation, value.most_width
    if not isinstance(generation, Absent) and generation < max(slots[0], before):
        better = f"the other GPUs here support {slots[0]}"
        better = better if generation < slots[0] else f"before, they supported {before}"
        evidence = f"GPU and slot support PCIe generation {generation}; {better}"
    elif not isinstance(width, Absent) and width < slots[1]:
        evidence = f"GPU and slot support x{width} lanes; the other GPUs here support x{slots[1]}"
    else:
        return
    action = "check that this GPU is in the right slot, and the slot's BIOS setting"
    yield SLOT.finding(subject(gpu), evidence, action=action)


def _narrow_or_slow(memory: PcieMemory, value: GpuPcie, gpu: Gpu, policy: PciePolicy) -> Iterator[Finding]:
    lanes = f"x{value.width} of x{value.most_width} lanes"
    slow = f"{memory.slow} while the GPU works"
    for fault, rule, evidence, action in (
        ("width", NARROW, lanes, f"{RESEAT}; a PCIe width does not change by itself"),
        ("generation", SLOW, slow, f"{RESEAT}; check that the slot supports the full generation"),
    ):
        streak = memory.streaks.get(fault, Streak())
        if streak.count:
            health = Health.FAILED if streak.count >= policy.confirm else Health.DEGRADED
            yield rule.finding(subject(gpu), evidence, health, action)


def _aer_findings(memory: PcieMemory, gpu: Gpu, policy: PciePolicy) -> Iterator[Finding]:
    """Return findings of uncorrected errors: a single error is a fault, also in a late reading."""
    counts = {s: memory.aer[s].total() for s in ("fatal", "nonfatal") if s in memory.aer}
    errors = [f"{count} {severity}" for severity, count in counts.items() if count]
    if errors:
        seconds = max(memory.aer[severity].seconds(policy.aer_window) for severity in counts)
        evidence = f"{', '.join(errors)} PCIe errors {in_days(seconds)}"
        action = f"look for pcieport and AER lines in the kernel log; {RESEAT} if the errors return"
        yield AER.finding(subject(gpu), evidence, action=action)
