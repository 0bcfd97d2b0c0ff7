"""Reading PCIe: as the GPU sees its link through NVML, and the errors that the kernel counts (AER)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewatch.core.asking import Supported, as_int, ask_gpu, member
from wirewatch.core.collector import Options
from wirewatch.core.pci import aer_total
from wirewatch.core.pergpu import GpuReading, Memories, read_gpus, remembered
from wirewatch.core.ports import Gpu, Hardware, Question, Sysfs
from wirewatch.core.rates import Streak, Window
from wirewatch.core.tree import DEVICES
from wirewatch.core.types import Absent, Why

GENERATION = Question("CurrPcieLinkGeneration")
GENERATION_MAX = Question("MaxPcieLinkGeneration")
WIDTH = Question("CurrPcieLinkWidth")
WIDTH_MAX = Question("MaxPcieLinkWidth")
REPLAYS = Question("PcieReplayCounter")
STATE = Question("PerformanceState")
UTILIZATION = Question("UtilizationRates")
POLLED = (GENERATION, WIDTH, REPLAYS)
ONCE = (GENERATION_MAX, WIDTH_MAX)

AER = {"correctable": "aer_dev_correctable", "nonfatal": "aer_dev_nonfatal", "fatal": "aer_dev_fatal"}
_NOT_COUNTED = frozenset({Why.MISSING, Why.UNSUPPORTED})
FULL_SPEED = 0
"""Performance state in which a GPU works; in the others it may let its link sleep."""


@dataclass(frozen=True, slots=True)
class GpuPcie:
    """One GPU's link; `most_` is what GPU and slot both can.

    `busy`: it works at full clocks right now; None where its generation leaves nothing to ask. `aer` is empty
    where the kernel does not count.
    """

    generation: int | Absent
    most_generation: int | Absent
    width: int | Absent
    most_width: int | Absent
    replays: int | Absent
    busy: bool | Absent | None
    aer: Mapping[str, int | Absent]
    supported: Supported


@dataclass(frozen=True, slots=True)
class Memory:
    """What a poll leaves for the next one; `last` holds what was last known of each value."""

    supported: Supported = field(default_factory=Supported)
    last: GpuPcie | None = None
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    slow: str = ""
    replays: Window = field(default_factory=Window)
    aer: Mapping[str, Window] = field(default_factory=dict)


Reading = tuple[GpuReading[GpuPcie], ...]
START = Memory()


def read(hardware: Hardware, memories: Memories[Memory], _options: Options) -> Reading | Absent:
    return read_gpus(hardware.nvml, lambda gpu: _read_gpu(hardware, gpu, remembered(memories, gpu, START)))


def _read_gpu(hardware: Hardware, gpu: Gpu, memory: Memory) -> GpuPcie | Absent:
    asked = ask_gpu(hardware.nvml, gpu.key, POLLED, memory.supported, ONCE)
    if isinstance(asked, Absent):
        return asked
    generation, most = asked.whole(GENERATION), asked.whole(GENERATION_MAX)
    return GpuPcie(
        generation=generation,
        most_generation=most,
        width=asked.whole(WIDTH),
        most_width=asked.whole(WIDTH_MAX),
        replays=asked.whole(REPLAYS),
        busy=_busy(hardware, gpu) if lower(generation, most) else None,
        aer=_aer(hardware.sysfs, gpu, memory.last if memory.supported == asked.supported else None),
        supported=asked.supported,
    )


def lower(now: int | Absent, most: int | Absent) -> bool:
    return not isinstance(now, Absent) and not isinstance(most, Absent) and now < most


def _busy(hardware: Hardware, gpu: Gpu) -> bool | Absent:
    asked = ask_gpu(hardware.nvml, gpu.key, (STATE, UTILIZATION), Supported())
    if isinstance(asked, Absent):
        return asked
    state, use = asked.whole(STATE), as_int(member(asked.json(UTILIZATION), "gpu"))
    if isinstance(state, Absent):
        return state
    return use if isinstance(use, Absent) else state == FULL_SPEED and use > 0


def _aer(sysfs: Sysfs, gpu: Gpu, last: GpuPcie | None) -> Mapping[str, int | Absent]:
    """Errors as the kernel counts them, by severity; where it counts none it is not asked again."""
    if not gpu.pci:
        return dict.fromkeys(AER, Absent(Why.UNSUPPORTED, "the GPU's PCI address is not known"))
    if last is not None and not last.aer:
        return last.aer
    told = {severity: aer_total(sysfs.read(f"{DEVICES}/{gpu.pci}/{file}")) for severity, file in AER.items()}
    counted = not all(isinstance(n, Absent) and n.why in _NOT_COUNTED for n in told.values())
    return told if counted else {}
