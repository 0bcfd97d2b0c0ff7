"""The present driver and GPUs, by name, and the GPUs that have gone or never came.

NVML alone cannot say that a GPU is missing. Its list is compared with the PCI tree and the kernel log, and
with the GPUs that were in the slots of this machine before.
"""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import (
    FAILED,
    LENT,
    Collector,
    GpuMemory,
    GpuReading,
    Lasting,
    Memories,
    Observed,
    Options,
    Rule,
    Strict,
    blind_finding,
    fold_gpus,
    is_lost,
    observed_gpus,
    remembered,
    since_boot,
    subject,
    watch_gpus,
)
from wirewatch.core.kernellog import failed_starts, parse_record
from wirewatch.core.nvml import (
    MIG_MODE,
    Asked,
    MigMode,
    Supported,
    as_int,
    as_mig_mode,
    as_str,
    ask_gpu,
)
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.statistics import Streak
from wirewatch.core.topology import nvlink_product
from wirewatch.core.tree import DEVICES, GpuSlot, gpu_addresses, gpu_model, read_slot
from wirewatch.core.types import (
    Absent,
    Expect,
    Finding,
    Health,
    Json,
    Ok,
    Sample,
    Subject,
    Tier,
    Why,
    family,
    value_or,
)
from wirewatch.core.witnesses import Says, State, Witnesses, weigh
from wirewatch.core.words import RESET_GPU

NODE = family(
    "node_info",
    ("product", "gpus", "driver", "nccl", "fingerprint"),
    "What this node is; nccl and fingerprint are empty until there are a probe and a baseline.",
    tier=Tier.CORE,
)
GPU_INFO = family(
    "gpu_info", ("gpu", "uuid", "name", "pci", "numa", "serial", "vbios", "firmware"),
    "Names, versions and place of a GPU.", tier=Tier.CORE,
)  # fmt: skip


GPU_LOST = Rule("gpu.lost", FAILED, "GPULost")
GPU_MISSING = Rule("gpu.missing", (Health.UNKNOWN, Health.FAILED), "GPULost")


STATIC: Mapping[str, Question] = {
    "serial": Question("Serial"),
    "vbios": Question("VbiosVersion"),
    "firmware": Question("GspFirmwareVersion"),
    "board_part_number": Question("BoardPartNumber"),
    "module_id": Question("ModuleId"),
    "inforom": Question("InforomImageVersion"),
    "minor": Question("MinorNumber"),
}
"""Questions to a GPU once a session. The series has the first three, a gate needs the number of the device
file. The rest is for a hardware return."""
SYSTEM: Mapping[str, Question] = {
    "driver": Question("SystemGetDriverVersion"),
    "nvml": Question("SystemGetNVMLVersion"),
    "cuda_driver": Question("SystemGetCudaDriverVersion_v2"),
}


@dataclass(frozen=True, slots=True)
class InventoryPolicy(Strict):
    """When a GPU is lost."""

    confirm: int = 2
    """Polls in a row before a GPU that does not answer or is missing is FAILED."""
    driver_grace: Seconds = 300.0
    """Time after a boot in which a GPU without a driver is UNKNOWN, unless the log says why. [seconds]"""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Facts of a GPU that stay for a session: `texts` by the names of STATIC; `numa` empty for not known.

    `split`: whether it is in MIG mode, by the last reading; None for not known.
    """

    texts: Mapping[str, str | Absent]
    numa: str
    supported: Supported
    split: bool | None = None


@dataclass(frozen=True, slots=True)
class PciGpus:
    """GPUs by the PCI tree, GPUs that NVML does not list, and the log's messages on their failed start.

    `models`: PCI device ids of the listed GPUs, if others are unlisted.
    """

    devices: Mapping[str, bool]
    unlisted: Mapping[str, GpuSlot]
    failed: Mapping[str, str]
    models: frozenset[str] = frozenset()

    def is_like(self, address: str) -> bool:
        """Return whether the GPU at an address may be of the listed product."""
        slot = self.unlisted.get(address)
        return slot is None or not (slot.model and self.models) or slot.model in self.models


@dataclass(frozen=True, slots=True)
class Inventory:
    """GPUs that answer in this session of NVML, and the PCI tree; `versions` by the names of SYSTEM.

    `lent`: GPUs that were seen in this run and were handed on. `booted`: as `since_boot` has it.
    """

    session: int
    versions: Mapping[str, str | Absent]
    gpus: tuple[GpuReading[GpuIdentity], ...]
    tree: PciGpus | Absent
    lent: tuple[GpuReading[GpuIdentity], ...] = ()
    booted: float = math.inf


@dataclass(frozen=True, slots=True)
class SlotGpu:
    """The GPU that was last seen in a slot."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class GpuSlots:
    """The memory that outlives the process: the GPU last seen in each slot, by PCI address.

    `accepted`: the full number of GPUs by the operator; 0 for none given.
    """

    slots: Mapping[str, SlotGpu] = field(default_factory=dict)
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class MissingGpu:
    """A GPU that should be listed and is not; `streak`: polls that showed it; `gpu` None: not known.

    `sure`: False where it may be kept out on purpose.
    """

    streak: Streak
    gpu: SlotGpu | None
    evidence: str
    sure: bool = True


@dataclass(frozen=True, slots=True)
class InventoryMemory:
    """`lost` counts the polls in a row in which a GPU did not answer, by its key.

    `slots`: the GPU last seen at each PCI address, in this run or before; `unlisted`: GPUs that are missing
    from NVML's list, by address; `forgotten`: UUIDs of GPUs that were taken out on purpose; `devices`: the
    kind of device at each address of the PCI tree, as in `PciGpus`.
    """

    identities: Memories[GpuIdentity] = field(default_factory=dict)
    lost: Mapping[str, Streak] = field(default_factory=dict)
    missing: Streak = field(default_factory=Streak)
    session: int = -1
    versions: Mapping[str, str | Absent] = field(default_factory=dict)
    slots: Mapping[str, SlotGpu] = field(default_factory=dict)
    unlisted: Mapping[str, MissingGpu] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    devices: Mapping[str, bool] = field(default_factory=dict)
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU's identity: `texts` by the names of STATIC, each Absent with the reason where it has none.

    `split`: as of `GpuIdentity`.
    """

    gpu: Gpu
    texts: Mapping[str, str | Absent]
    split: bool | None = None


@dataclass(frozen=True, slots=True)
class InventoryFacts:
    """Every GPU seen since the agent started, by `Gpu.key`, also GPUs that are `lost` now.

    `versions` by the names of SYSTEM. `answering`: keys of the GPUs that answered in the newest reading.
    `forgotten`: UUIDs of GPUs that an operator took out.
    """

    gpus: Mapping[str, KnownGpu]
    lost: frozenset[str]
    versions: Mapping[str, str | Absent]
    answering: frozenset[str]
    forgotten: frozenset[str] = frozenset()


def read(hardware: Hardware, memory: InventoryMemory, _options: Options) -> Inventory | Absent:
    """Read which GPUs answer; Absent when the GPUs cannot even be enumerated."""
    read = watch_gpus(hardware, memory.identities, lambda gpu: _identify(hardware, memory, gpu))
    if isinstance(read, Absent):
        return read
    lent, gpus = (tuple(one for one in read if (one.value == LENT) is away) for away in (True, False))
    session = hardware.nvml.session()
    known = memory.session == session and not any(map(is_lost, memory.versions.values()))
    versions = memory.versions if known else _versions(hardware)
    tree = _read_tree(hardware, memory, gpus)
    back = not isinstance(tree, Absent) and Says.HERE in {slot.says for slot in tree.unlisted.values()}
    if memory.lost or memory.unlisted or back:
        hardware.nvml.seek()
    return Inventory(session, versions, gpus, tree, lent, since_boot(hardware))


def facts(reading: Inventory, memory: InventoryMemory) -> InventoryFacts:
    """Return the present and former GPUs, for other rooms."""
    known = memory.identities.items()
    gpus = {key: KnownGpu(one.gpu, one.memory.texts, one.memory.split) for key, one in known}
    lost, answering = frozenset(memory.lost), _answering(reading)
    return InventoryFacts(gpus, lost, memory.versions, answering, memory.forgotten)


def samples(reading: Inventory, _memory: InventoryMemory) -> Iterable[Sample]:
    names = sorted({item.gpu.name for item in reading.gpus if item.gpu.name})
    driver = value_or(reading.versions["driver"], "")
    if reading.gpus:
        yield NODE.sample(1, ", ".join(names), str(len(reading.gpus)), driver, "", "")
    for item in reading.gpus:
        if not isinstance(item.value, Absent):
            gpu, texts = item.gpu, item.value.texts
            static = (value_or(texts[name], "") for name in IN_SERIES)
            yield GPU_INFO.sample(1, str(gpu.index), gpu.uuid, gpu.name, gpu.pci, item.value.numa, *static)


def judge(
    memory: InventoryMemory, ok: Ok[Inventory], policy: InventoryPolicy, expect: Expect
) -> tuple[InventoryMemory, tuple[Finding, ...]]:
    """Find GPUs that have gone or never came, or are fewer than the operator expects; pure."""
    identities, blind = fold_gpus(
        "inventory", memory.identities, (*ok.value.gpus, *ok.value.lent), _NOBODY,
        lambda _known, _gpu, value: (value, ()),
    )  # fmt: skip
    answering = _answering(ok.value)
    gone = _gone(identities, ok.value.gpus)
    lost = {key: memory.lost.get(key, Streak()).see(present=True) for key in gone}
    missing = memory.missing.see(present=len(answering) < (expect.gpus or 0))
    slots, gone_slots = _slots(memory.slots, ok.value.gpus)
    was_here = {at: gpu for at, gpu in gone_slots.items() if gpu.uuid not in lost}
    tree = ok.value.tree
    places = {identities[key].gpu.pci for key in lost}
    unlisted = _unlisted(memory, was_here, ok.value, places, early=0 <= ok.value.booted < policy.driver_grace)
    devices = memory.devices if isinstance(tree, Absent) else tree.devices
    new = InventoryMemory(
        identities, lost, missing, ok.value.session, ok.value.versions, slots, unlisted,
        memory.forgotten - {item.gpu.uuid for item in ok.value.gpus}, devices, memory.accepted,
    )  # fmt: skip
    sure = {key: identities[key].gpu for key in sorted(lost) if lost[key].count >= policy.confirm}
    findings = [_lost(gpu, gone[key]) for key, gpu in sure.items()]
    findings += [one for one in blind if one.subject not in map(subject, sure.values())]
    for at, gpu in sorted(unlisted.items()):
        part = Subject(uuid=gpu.gpu.uuid if gpu.gpu else "", device=at.partition(".")[0])
        found = _missing(part, gpu.evidence, MISSING_ACTION, gpu.streak, policy)
        findings.append(found if gpu.sure else replace(found, health=Health.UNKNOWN, action=FEWER_ACTION))
    if is_lost(tree) and tree.why is not Why.MISSING:
        findings.append(blind_finding("inventory", Subject(), tree))
    if new.missing.count:
        evidence = f"{len(answering)} of {expect.gpus} expected GPUs answer"
        findings.append(_missing(Subject(), evidence, FEWER_ACTION, new.missing, policy))
    if not expect.gpus and (odd := _odd_count(ok.value, unlisted.keys() | places, memory.accepted)):
        findings.append(GPU_MISSING.finding(Subject(), odd, Health.UNKNOWN, FEWER_ACTION))
    return new, tuple(findings)


def observed(reading: Inventory, memory: InventoryMemory) -> Observed:
    """Return the GPUs that answered, and the GPUs that PCI reports as lent."""
    tree = reading.tree
    slots = {} if isinstance(tree, Absent) else tree.unlisted
    away = {Subject(uuid=gpu.uuid) for at, gpu in memory.slots.items() if at in slots and slots[at].away}
    return Observed((observed_gpus(reading.gpus).gpus or frozenset()) | away, frozenset())


def forget(memory: InventoryMemory) -> InventoryMemory:
    """Return the memory without GPUs that are lost or missing now."""
    here = {key: one for key, one in memory.identities.items() if key not in memory.lost}
    slots = {at: gpu for at, gpu in memory.slots.items() if gpu.uuid in here}
    known = {gpu.uuid for gpu in memory.slots.values()} | memory.identities.keys()
    forgotten = memory.forgotten | (known - here.keys())
    return replace(
        memory, identities=here, lost={}, slots=slots, unlisted={}, forgotten=frozenset(forgotten),
        accepted=sum(bool(one.present) for one in here.values()),
    )  # fmt: skip


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
    rules=(GPU_LOST, GPU_MISSING),
    series=9,
    applicable=lambda reading: bool(reading.gpus),
    facts=facts,
    observed=observed,
    lasting=Lasting(
        GpuSlots,
        lambda one: GpuSlots(one.slots, one.accepted),
        lambda kept: InventoryMemory(slots=kept.slots, accepted=kept.accepted),
    ),
    forget=forget,
)

ALIVE = Question("UUID")
LOST_ACTION = (
    f"drain; look for XID 79 in the kernel log; {RESET_GPU}, or reboot; replace it if it is lost again"
)
MISSING_ACTION = (
    "drain; see what the kernel log says about this PCI address; power the node off and on; replace the GPU "
    "if it stays missing; if it was removed on purpose, run `wirewatch topology accept`"
)
FEWER_ACTION = (
    "look for a GPU that fell off the bus (XID 79) or that the driver refused; compare with `lspci`; "
    "if these are all, set `[expect] gpus` or run `wirewatch topology accept`"
)
IN_SERIES = ("serial", "vbios", "firmware")
_NOBODY = GpuIdentity({}, "", Supported())


def _versions(hardware: Hardware) -> dict[str, str | Absent]:
    answers = hardware.nvml.ask(None, tuple(SYSTEM.values()))
    values = {name: answer.value for name, answer in zip(SYSTEM, answers, strict=True)}
    return {name: _cuda(value) if name == "cuda_driver" else as_str(value) for name, value in values.items()}


def _cuda(value: Json | Absent) -> str | Absent:
    """Return a CUDA version as text: 13000 is 13.0 (cuda.h: major times 1000, minor times 10)."""
    number = as_int(value)
    return number if isinstance(number, Absent) else f"{number // 1000}.{number % 1000 // 10}"


def _identify(hardware: Hardware, memory: InventoryMemory, gpu: Gpu) -> GpuIdentity | Absent:
    known = remembered(memory.identities, gpu, _NOBODY)
    asked = ask_gpu(hardware.nvml, gpu.key, (ALIVE, MIG_MODE), known.supported, tuple(STATIC.values()))
    if isinstance(asked, Absent):
        return asked
    alive = asked.text(ALIVE)
    if isinstance(alive, Absent):
        return alive
    mode = as_mig_mode(asked.json(MIG_MODE))
    split = mode.now if isinstance(mode, MigMode) else known.split
    if asked.supported == known.supported:
        return known if split is known.split else replace(known, split=split)
    numa = value_or(hardware.sysfs.read(f"{DEVICES}/{gpu.pci}/numa_node"), "")
    return GpuIdentity(
        {name: _text(asked, question) for name, question in STATIC.items()},
        "" if numa == "-1" else numa,
        asked.supported,
        split,
    )


def _read_tree(
    hardware: Hardware, memory: InventoryMemory, gpus: tuple[GpuReading[GpuIdentity], ...]
) -> PciGpus | Absent:
    """Read the PCI tree beside NVML's list; classify devices once, and read the log only if needed."""
    names = hardware.sysfs.entries(DEVICES)
    if isinstance(names, Absent):
        return names
    devices = gpu_addresses(hardware.sysfs, names, memory.devices)
    listed = {item.gpu.pci for item in gpus}
    unlisted = {
        at: read_slot(hardware.sysfs, at) for at, here in devices.items() if here and at not in listed
    }
    if not unlisted:
        return PciGpus(devices, {}, {})
    log = hardware.kmsg.records(-1)
    records = () if isinstance(log, Absent) else filter(None, map(parse_record, log.records))
    models = frozenset(gpu_model(hardware.sysfs, at) for at in listed if at) - {""}
    return PciGpus(devices, unlisted, failed_starts(records), models)


def _slots(
    before: Mapping[str, SlotGpu], readings: tuple[GpuReading[GpuIdentity], ...]
) -> tuple[dict[str, SlotGpu], dict[str, SlotGpu]]:
    """Return the GPUs by slot after this reading, and the unlisted GPUs among them.

    A GPU that is listed elsewhere has moved. A GPU was replaced if its slot has another GPU now. So was a
    gone GPU when a new GPU came elsewhere: a replaced riser can give the buses other numbers.
    """
    here = {r.gpu.pci: SlotGpu(r.gpu.uuid, r.gpu.name) for r in readings if r.gpu.uuid and r.gpu.pci}
    uuids = {item.gpu.uuid for item in readings}
    gone = {at: gpu for at, gpu in before.items() if at not in here and gpu.uuid not in uuids}
    known = {gpu.uuid for gpu in before.values()}
    new = sum(at not in before and gpu.uuid not in known for at, gpu in here.items())
    left = dict(sorted(gone.items())[new:])
    return {**left, **here}, left


def _unlisted(
    memory: InventoryMemory, was_here: Mapping[str, SlotGpu], reading: Inventory, lost: AbstractSet[str],
    *, early: bool,
) -> dict[str, MissingGpu]:  # fmt: skip
    """Return GPUs that never came, by address: by the slots of before, the PCI tree and their like.

    A listed GPU without a name or an address may be any of them, unless the kernel log names it.
    """
    tree, before, doubts = reading.tree, memory.unlisted, dict[str, str]()
    if isinstance(tree, Absent):
        # Lost, it neither confirms nor clears what it showed before.
        shown = {at: _evidence(at, gpu, tree) for at, gpu in was_here.items()}
        held = {at: one for at, one in before.items() if at not in shown}
    else:
        every = sorted((tree.unlisted.keys() | was_here) - lost)
        whole = _is_whole(reading, sum(map(tree.is_like, every)) + len(lost))
        said = {at: _witnesses(at, tree, known=at in was_here, whole=whole, early=early) for at in every}
        if len(reading.gpus) == memory.accepted:
            # The operator said that no other is due.
            said = {at: Witnesses(pci=one.pci, memory=one.memory) for at, one in said.items()}
        weighed = {at: weigh(one) for at, one in said.items()}
        wrong = {at: one for at, one in weighed.items() if one.state not in {State.ABSENT, State.LENT}}
        shown = {at: _evidence(at, was_here.get(at), tree) for at in wrong}
        held = {}
        nameless = sum(not item.gpu.pci or not item.gpu.uuid for item in reading.gpus)
        named = [at for at in shown if at in tree.failed]
        others = sorted(set(shown) - set(named))[nameless:]
        shown = {at: shown[at] for at in (*named, *others)}
        doubts |= {at: one.reason for at, one in wrong.items() if one.state is not State.FAULTY}
    found = {
        at: MissingGpu(
            (before[at].streak if at in before else Streak()).see(present=True),
            was_here.get(at),
            "; ".join(filter(None, (words, doubts.get(at)))),
            at not in doubts,
        )
        for at, words in shown.items()
    }
    return {**held, **found}


def _witnesses(address: str, tree: PciGpus, *, known: bool, whole: bool, early: bool) -> Witnesses:
    """Return all witnesses' words on a GPU that NVML does not list; `whole`: the board lacks it alone."""
    slot = tree.unlisted.get(address)
    pci = slot.says if slot else Says.GONE
    alike = Says.DUE if slot and slot.model in tree.models else Says.GONE
    late = early and pci in {Says.ILL, Says.HERE} and address not in tree.failed
    return Witnesses(
        nvml=Says.COMING if late and known else Says.GONE,
        pci=pci,
        clock=Says.COMING if late else Says.NOTHING,
        log=Says.ILL if address in tree.failed else Says.NOTHING,
        memory=Says.DUE if known else Says.NOTHING,
        siblings=alike if pci is Says.ILL and slot and slot.model and tree.models else Says.NOTHING,
        product=Says.DUE if whole and tree.is_like(address) else Says.NOTHING,
    )


def _boards(reading: Inventory) -> tuple[int, ...]:
    """Return possible GPU counts of a node of this product; empty for any number, or several products."""
    names = {item.gpu.name for item in reading.gpus}
    product = nvlink_product(*names) if len(names) == 1 else None
    return product.boards if product else ()


def _is_whole(reading: Inventory, others: int) -> bool:
    """Return whether the listed GPUs make a whole board only together with this number of others."""
    boards, count = _boards(reading), len(reading.gpus)
    return count not in boards and count + others in boards


def _odd_count(reading: Inventory, missing: AbstractSet[str], accepted: int) -> str:
    """Return in words that no whole node has this number of GPUs, or "". Missing and lent GPUs count."""
    boards, tree = _boards(reading), reading.tree
    if not isinstance(tree, Absent):
        missing = missing | {at for at, one in tree.unlisted.items() if one.away}
        missing = set(filter(tree.is_like, missing))
    count = len(reading.gpus) + len(missing)
    if not boards or count in {*boards, accepted} or len(reading.gpus) in boards:
        return ""
    name = reading.gpus[0].gpu.name
    usual = ", ".join(map(str, boards[:-1])) + f" or {boards[-1]}"
    return f"{count} {name}, which a whole node has {usual} of; no source shows which of them is missing"


def _evidence(address: str, gpu: SlotGpu | None, tree: PciGpus | Absent) -> str:
    was = f"{gpu.name} (...{gpu.uuid[-4:]}) was here" if gpu else ""
    if isinstance(tree, Absent):
        return f"{address}: {was}; NVML does not list it"
    slot = tree.unlisted.get(address)
    if slot is None:
        now = "the PCI tree no longer shows it"
    elif slot.driver == "":
        now = "the PCI tree shows it without a driver"
    elif isinstance(slot.driver, Absent):
        now = f"the PCI tree shows it, its driver is not known ({slot.driver})"
    else:
        now = f"the PCI tree shows it with driver {slot.driver}, NVML does not list it"
    said = tree.failed.get(address, "")
    return "; ".join(filter(None, (f"{address}: {was or now}", now if was else "", said)))


def _text(asked: Asked, question: Question) -> str | Absent:
    value = asked.json(question)
    return as_str(str(value) if type(value) is int else value)


def _answering(reading: Inventory) -> frozenset[str]:
    return frozenset(item.gpu.key for item in reading.gpus if not isinstance(item.value, Absent))


def _gone(
    known: Mapping[str, GpuMemory[GpuIdentity]], readings: tuple[GpuReading[GpuIdentity], ...]
) -> dict[str, Absent]:
    """Return GPUs that the driver calls lost or does not list any more; a time-out is not a loss."""
    here = {item.gpu.key: item.value for item in readings}
    unlisted = Absent(Why.LOST, "was here before, is no longer listed")
    gone = {key: unlisted for key, one in known.items() if key not in here and one.present is False}
    said = {key: v for key, v in here.items() if isinstance(v, Absent) and v.why is Why.LOST and v.code}
    return gone | said


def _lost(gpu: Gpu, why: Absent) -> Finding:
    return GPU_LOST.finding(subject(gpu), f"{gpu.pci or 'unknown PCI address'}: {why}", action=LOST_ACTION)


def _missing(part: Subject, evidence: str, action: str, streak: Streak, policy: InventoryPolicy) -> Finding:
    health = Health.FAILED if streak.count >= policy.confirm else Health.UNKNOWN
    return GPU_MISSING.finding(part, evidence, health, action if health is Health.FAILED else FEWER_ACTION)
