"""PCIe as the GPU sees it: generation, width, replays."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.core.asking import Supported, ask_gpu
from wirewatch.core.collector import Collector, Options
from wirewatch.core.pergpu import (
    GpuMemory,
    GpuReading,
    Memories,
    fold_gpus,
    is_lost,
    read_gpus,
    remembered,
    subject,
    unread,
)  # fmt: skip
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.rates import Streak
from wirewatch.core.types import Absent, Expect, Finding, Health, Kind, Metric, Ok, Sample

GPU = ("gpu", "uuid")

GENERATION = Metric(
    "pcie_generation", Kind.GAUGE, GPU, "PCIe generation of the GPU's link now; falls when idle, by design."
)
GENERATION_MAX = Metric("pcie_generation_max", Kind.GAUGE, GPU, "Highest PCIe generation of GPU and slot.")
WIDTH = Metric("pcie_width", Kind.GAUGE, GPU, "PCIe lanes of the GPU's link now.")
WIDTH_MAX = Metric("pcie_width_max", Kind.GAUGE, GPU, "Most PCIe lanes of GPU and slot.")
REPLAYS = Metric(
    "pcie_replays_total", Kind.COUNTER, GPU, "PCIe packets sent again, since reset.", "values above 0"
)

QUESTIONS: Mapping[Metric, Question] = {
    GENERATION: Question("CurrPcieLinkGeneration"),
    GENERATION_MAX: Question("MaxPcieLinkGeneration"),
    WIDTH: Question("CurrPcieLinkWidth"),
    WIDTH_MAX: Question("MaxPcieLinkWidth"),
    REPLAYS: Question("PcieReplayCounter"),
}
POLLED = tuple(QUESTIONS[m] for m in (GENERATION, WIDTH, REPLAYS))
ONCE = tuple(QUESTIONS[m] for m in (GENERATION_MAX, WIDTH_MAX))


@dataclass(frozen=True, slots=True)
class PciePolicy:
    """`confirm`: polls in a row before a narrow link is FAILED."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 3


@dataclass(frozen=True, slots=True)
class GpuPcie:
    """Numbers of one GPU by metric."""

    numbers: Mapping[Metric, int | Absent]
    supported: Supported


@dataclass(frozen=True, slots=True)
class Memory:
    supported: Supported = field(default_factory=Supported)
    narrow: Streak = field(default_factory=Streak)
    lanes: str = ""


Reading = tuple[GpuReading[GpuPcie], ...]
START = Memory()


def read(hardware: Hardware, memories: Memories[Memory], _options: Options) -> Reading | Absent:
    return read_gpus(hardware.nvml, lambda gpu: _read_gpu(hardware, gpu, remembered(memories, gpu, START)))


def _read_gpu(hardware: Hardware, gpu: Gpu, memory: Memory) -> GpuPcie | Absent:
    asked = ask_gpu(hardware.nvml, gpu.key, POLLED, memory.supported, ONCE)
    if isinstance(asked, Absent):
        return asked
    return GpuPcie({metric: asked.whole(q) for metric, q in QUESTIONS.items()}, asked.supported)


def samples(reading: Reading, _memories: Memories[Memory]) -> Iterable[Sample]:
    for item in reading:
        if not isinstance(item.value, Absent):
            for metric, number in item.value.numbers.items():
                if not isinstance(number, Absent):
                    yield metric.sample(number, str(item.gpu.index), item.gpu.uuid)


def judge(
    memories: Memories[Memory], ok: Ok[Reading], policy: PciePolicy, _expect: Expect
) -> tuple[dict[str, GpuMemory[Memory]], tuple[Finding, ...]]:
    def one(memory: Memory, gpu: Gpu, value: GpuPcie) -> tuple[Memory, tuple[Finding, ...]]:
        sure = not (is_lost(value.numbers[WIDTH]) or is_lost(value.numbers[WIDTH_MAX]))
        lanes = f"x{value.numbers[WIDTH]} of x{value.numbers[WIDTH_MAX]} lanes" if sure else memory.lanes
        new = Memory(value.supported, memory.narrow.see(present=_narrow(value), sure=sure), lanes)
        named = {metric.name: number for metric, number in value.numbers.items()}
        return new, (*_width(new, gpu, policy), *unread("pcie", gpu, named))

    return fold_gpus("pcie", memories, ok.value, START, one)


def _narrow(value: GpuPcie) -> bool:
    width, most = value.numbers[WIDTH], value.numbers[WIDTH_MAX]
    return not isinstance(width, Absent) and not isinstance(most, Absent) and width < most


def _width(memory: Memory, gpu: Gpu, policy: PciePolicy) -> Iterator[Finding]:
    if memory.narrow.count:
        health = Health.FAILED if memory.narrow.count >= policy.confirm else Health.DEGRADED
        action = (
            "drain, power the node off and reseat the GPU or its riser; a width does not change by itself"
        )
        yield Finding("pcie.width", health, subject(gpu), memory.lanes, action)


COLLECTOR: Collector[Reading, Memories[Memory], Options, PciePolicy] = Collector(
    name="pcie",
    about="PCIe generation, width and replays of each GPU",
    lane="nvml",
    options=Options(),
    policy=PciePolicy(),
    metrics=tuple(QUESTIONS),
    start={},
    read=read,
    samples=samples,
    judge=judge,
    applicable=bool,
)
