"""Who is here: driver, GPUs by name, and which of them has gone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from wirewatch.core.collector import (
    FAILED,
    Collector,
    GpuMemory,
    GpuReading,
    Memories,
    Options,
    Rule,
    fold_gpus,
    is_lost,
    observed_gpus,
    read_gpus,
    remembered,
    subject,
)
from wirewatch.core.nvml import Asked, Supported, as_int, as_str, ask_gpu
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.statistics import Streak
from wirewatch.core.types import (
    Absent,
    Expect,
    Finding,
    Health,
    Json,
    Kind,
    Metric,
    Ok,
    Sample,
    Subject,
    Why,
)

NODE = Metric(
    "node_info",
    Kind.INFO,
    ("product", "gpus", "driver", "nccl", "fingerprint"),
    "What this node is; nccl and fingerprint are empty until a probe and a baseline have told them.",
)
GPU_INFO = Metric(
    "gpu_info",
    Kind.INFO,
    ("gpu", "uuid", "name", "pci", "numa", "serial", "vbios", "firmware"),
    "Names, versions and place of a GPU.",
)


GPU_LOST = "gpu.lost"
GPU_MISSING = "gpu.missing"
"""The rules."""


STATIC: Mapping[str, Question] = {
    "serial": Question("Serial"),
    "vbios": Question("VbiosVersion"),
    "firmware": Question("GspFirmwareVersion"),
    "board_part_number": Question("BoardPartNumber"),
    "module_id": Question("ModuleId"),
    "inforom": Question("InforomImageVersion"),
}
"""What a GPU is asked once a session; the series has the first three, the rest is for a hardware return."""
SYSTEM: Mapping[str, Question] = {
    "driver": Question("SystemGetDriverVersion"),
    "nvml": Question("SystemGetNVMLVersion"),
    "cuda_driver": Question("SystemGetCudaDriverVersion_v2"),
}


@dataclass(frozen=True, slots=True)
class InventoryPolicy:
    """`confirm`: polls in a row before a GPU that does not answer or is missing is FAILED."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 2


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What stays the same for a session: `texts` by the names of STATIC; `numa` is empty where not known."""

    texts: Mapping[str, str | Absent]
    numa: str
    supported: Supported


@dataclass(frozen=True, slots=True)
class Inventory:
    """Who answers in this session of NVML; `versions` by the names of SYSTEM."""

    session: int
    versions: Mapping[str, str | Absent]
    gpus: tuple[GpuReading[GpuIdentity], ...]


@dataclass(frozen=True, slots=True)
class InventoryMemory:
    """`lost` counts the polls in a row in which a GPU did not answer, by its key."""

    identities: Memories[GpuIdentity] = field(default_factory=dict)
    lost: Mapping[str, Streak] = field(default_factory=dict)
    missing: Streak = field(default_factory=Streak)
    session: int = -1
    versions: Mapping[str, str | Absent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """Who a GPU is: `texts` by the names of STATIC, each Absent with the reason where it has none."""

    gpu: Gpu
    texts: Mapping[str, str | Absent]


@dataclass(frozen=True, slots=True)
class InventoryFacts:
    """Every GPU seen since the agent started, by `Gpu.key`, those that are `lost` now too.

    `versions` by the names of SYSTEM. `answering`: keys of the GPUs that answered in the newest reading.
    """

    gpus: Mapping[str, KnownGpu]
    lost: frozenset[str]
    versions: Mapping[str, str | Absent]
    answering: frozenset[str]


def read(hardware: Hardware, memory: InventoryMemory, _options: Options) -> Inventory | Absent:
    """One reading of who answers; Absent when the GPUs cannot even be enumerated."""
    gpus = read_gpus(hardware.nvml, lambda gpu: _identify(hardware, memory, gpu))
    if isinstance(gpus, Absent):
        return gpus
    session = hardware.nvml.session()
    known = memory.session == session and not any(map(is_lost, memory.versions.values()))
    return Inventory(session, memory.versions if known else _versions(hardware), gpus)


def facts(reading: Inventory, memory: InventoryMemory) -> InventoryFacts:
    """Who is and was here, for other rooms."""
    gpus = {key: KnownGpu(one.gpu, one.memory.texts) for key, one in memory.identities.items()}
    return InventoryFacts(gpus, frozenset(memory.lost), memory.versions, _answering(reading))


def samples(reading: Inventory, _memory: InventoryMemory) -> Iterable[Sample]:
    """The series of the node and of every GPU that answers."""
    names = sorted({item.gpu.name for item in reading.gpus if item.gpu.name})
    driver = _or_empty(reading.versions["driver"])
    if reading.gpus:
        yield NODE.sample(1, ", ".join(names), str(len(reading.gpus)), driver, "", "")
    for item in reading.gpus:
        if not isinstance(item.value, Absent):
            gpu, texts = item.gpu, item.value.texts
            static = (_or_empty(texts[name]) for name in IN_SERIES)
            yield GPU_INFO.sample(1, str(gpu.index), gpu.uuid, gpu.name, gpu.pci, item.value.numa, *static)


def judge(
    memory: InventoryMemory, ok: Ok[Inventory], policy: InventoryPolicy, expect: Expect
) -> tuple[InventoryMemory, tuple[Finding, ...]]:
    """Who has gone, and whether fewer are here than the operator expects; pure."""

    def one(_known: GpuIdentity, _gpu: Gpu, value: GpuIdentity) -> tuple[GpuIdentity, tuple[Finding, ...]]:
        return value, ()

    identities, blind = fold_gpus("inventory", memory.identities, ok.value.gpus, _NOBODY, one)
    answering = _answering(ok.value)
    gone = _gone(identities, ok.value.gpus)
    lost = {key: memory.lost.get(key, Streak()).see(present=True) for key in gone}
    wanted = expect.gpus or 0
    missing = memory.missing.see(present=len(answering) < wanted)
    new = InventoryMemory(identities, lost, missing, ok.value.session, ok.value.versions)
    sure = {key for key, streak in lost.items() if streak.count >= policy.confirm}
    findings = [_lost(identities[key].gpu, gone[key]) for key in sorted(sure)]
    findings += [f for f in blind if f.subject not in {subject(identities[key].gpu) for key in sure}]
    if new.missing.count:
        findings.append(_missing(len(answering), wanted, new.missing, policy))
    return new, tuple(findings)


COLLECTOR: Collector[Inventory, InventoryMemory, Options, InventoryPolicy] = Collector(
    name="inventory",
    about="driver, GPUs by name and place, GPUs lost or missing",
    lane="nvml",
    options=Options(interval=30.0),
    policy=InventoryPolicy(),
    metrics=(NODE, GPU_INFO),
    start=InventoryMemory(),
    read=read,
    samples=samples,
    judge=judge,
    rules=(
        Rule("gpu.lost", FAILED, "GPULost"),
        Rule("gpu.missing", (Health.UNKNOWN, Health.FAILED), "GPULost"),
    ),
    series=9,
    applicable=lambda reading: bool(reading.gpus),
    facts=facts,
    observed=lambda reading, _memory: observed_gpus(reading.gpus),
)

ALIVE = Question("UUID")
IN_SERIES = ("serial", "vbios", "firmware")
_NOBODY = GpuIdentity({}, "", Supported())


def _versions(hardware: Hardware) -> dict[str, str | Absent]:
    answers = hardware.nvml.ask(None, tuple(SYSTEM.values()))
    values = {name: answer.value for name, answer in zip(SYSTEM, answers, strict=True)}
    return {name: _cuda(value) if name == "cuda_driver" else as_str(value) for name, value in values.items()}


def _cuda(value: Json | Absent) -> str | Absent:
    """13000 is 13.0 (cuda.h: major times 1000, minor times 10)."""
    number = as_int(value)
    return number if isinstance(number, Absent) else f"{number // 1000}.{number % 1000 // 10}"


def _identify(hardware: Hardware, memory: InventoryMemory, gpu: Gpu) -> GpuIdentity | Absent:
    known = remembered(memory.identities, gpu, _NOBODY)
    asked = ask_gpu(hardware.nvml, gpu.key, (ALIVE,), known.supported, tuple(STATIC.values()))
    if isinstance(asked, Absent):
        return asked
    alive = asked.text(ALIVE)
    if isinstance(alive, Absent):
        return alive
    if asked.supported == known.supported:
        return known
    numa = hardware.sysfs.read(f"/sys/bus/pci/devices/{gpu.pci}/numa_node")
    return GpuIdentity(
        {name: _text(asked, question) for name, question in STATIC.items()},
        "" if isinstance(numa, Absent) or numa == "-1" else numa,
        asked.supported,
    )


def _text(asked: Asked, question: Question) -> str | Absent:
    value = asked.json(question)
    return as_str(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def _or_empty(value: str | Absent) -> str:
    return "" if isinstance(value, Absent) else value


def _answering(reading: Inventory) -> frozenset[str]:
    return frozenset(item.gpu.key for item in reading.gpus if not isinstance(item.value, Absent))


def _gone(
    known: Mapping[str, GpuMemory[GpuIdentity]], readings: tuple[GpuReading[GpuIdentity], ...]
) -> dict[str, Absent]:
    """GPUs that the driver itself calls lost, or does not list any more.

    A time-out is not a loss, nor is a library that dies while it asks: then the driver has reported nothing.
    """
    here = {item.gpu.key: item.value for item in readings}
    unlisted = Absent(Why.LOST, "was here before, is not enumerated any more")
    gone = {key: unlisted for key in known if key not in here}
    said = {key: v for key, v in here.items() if isinstance(v, Absent) and v.why is Why.LOST and v.code}
    return gone | said


def _lost(gpu: Gpu, absent: Absent) -> Finding:
    action = (
        "drain; look for XID 79 in the kernel log; reset the GPU or reboot, replace it if it is lost again"
    )
    return Finding(
        GPU_LOST, Health.FAILED, subject(gpu), f"{gpu.pci or 'unknown PCI address'}: {absent}", action
    )


def _missing(here: int, wanted: int, streak: Streak, policy: InventoryPolicy) -> Finding:
    health = Health.FAILED if streak.count >= policy.confirm else Health.UNKNOWN
    action = "look for a GPU that fell off the bus (XID 79) or that the driver refused; compare with `lspci`"
    return Finding(GPU_MISSING, health, Subject(), f"{here} of {wanted} expected GPUs answer", action)
