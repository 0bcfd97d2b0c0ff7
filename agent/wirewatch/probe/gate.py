"""The gate: decides whether a probe may run now, and gives the reason if it may not.

`read_facts` reads through the ports. Everything else is pure: from facts to a decision.

Unreadable facts count as busy. The reasons are label values of probe_skips_total.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from wirewatch.core.nvml import MIG_MODE, as_int, as_mig_mode, foreign_processes, member
from wirewatch.core.pci import normal_pci
from wirewatch.core.ports import Gpu, Hardware, Nvml, Pod, Question, SlurmJob, Sysfs
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Why

PROHIBITED = 2
"""NVML's compute mode in which no process may compute."""


class SkipReason(Enum):
    """The reason for a skipped probe: its label in the metrics, and its meaning in words."""

    _value_: str
    meaning: str

    def __new__(cls, label: str, meaning: str) -> Self:
        """Return a member that is found by its label alone."""
        member = object.__new__(cls)
        member._value_, member.meaning = label, meaning
        return member

    BUSY = "busy", "a process computes or draws on a GPU; a display server and a desktop do not count"
    ALLOCATED = "allocated", "the kubelet or Slurm has given a GPU to a pod or a job"
    HOLD = "hold", "a scheduler holds probes off, since a job is about to start"
    SETTLING = "settling", "the GPUs became idle only a short while ago"
    MEMORY = "memory", "memory of a GPU is held by no process that can be seen, or too little is free"
    BLIND = "blind", "who uses the GPUs could not be read"
    BUDGET = "budget", "the GPU-seconds that probes may hold are used up"
    LOCKED = "locked", "another probe, or an operator, holds the lock"
    MIG = "mig", "a GPU is in MIG mode, where NCCL has no wires to use"
    FEW_GPUS = "few_gpus", "there are not two GPUs to send anything"
    NO_ENGINE = "no_engine", "neither nccl4py with cuda.core nor torch with CUDA is installed"
    PROHIBITED = "prohibited", "a GPU's compute mode lets no process compute"
    PROBER_AWAY = (
        "prober_away",
        "the prober, a process of its own here, does not answer or did not take the order",
    )


UNPROBEABLE = frozenset({SkipReason.FEW_GPUS, SkipReason.MIG})
"""Reasons why this node can never be probed. NO_ENGINE is not among them: an engine can be installed."""


@dataclass(frozen=True, slots=True)
class GpuUsers:
    """How a GPU is used: processes by id (None: not known), bytes of memory; Absent: not read."""

    gpu: Gpu
    processes: frozenset[int | None] | Absent
    used: int | Absent
    free: int | Absent
    mig: bool | Absent
    compute_mode: int | Absent


@dataclass(frozen=True, slots=True)
class Stillness:
    """Since when (monotonic seconds) each GPU's users have been the same, by its key.

    Slurm is left out: it is asked too seldom, and its jobs are processes.
    """

    users: Mapping[str, object] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Limits of the gate.

    `settle`: seconds without any change. `unseen`: bytes that may be in use by no visible process; `free`:
    bytes that a probe needs on each GPU. `gpus`: the least number of GPUs.
    """

    settle: float
    unseen: int
    free: int
    gpus: int = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why no probe runs, with the readings in words."""

    reason: SkipReason
    detail: str


MEMORY = Question("MemoryInfo")
MODES = (MIG_MODE, Question("ComputeMode"))
NOT_INSTALLED = frozenset({Why.MISSING})
"""A kubelet or a Slurm that is not installed has given nothing away; an unreachable daemon may have."""
PREFIX = "nvidia.com/"
"""Resources that are GPUs or parts of them: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.18gb."""
DRIVER = "gpu.nvidia.com"
"""NVIDIA's DRA driver for GPUs; the vendor of its CDI devices ends so too (k8s.gpu.nvidia.com/device)."""
_REPLICA = re.compile(r"::\d+$", re.ASCII)
"""The form of time slicing and MPS: `GPU-...::3` is a turn on that GPU."""
_MIG_OF_GPU = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+", re.ASCII)
_INDEX = re.compile(r"(\d{1,5})(?::\d+)?", re.ASCII)
"""As NVML counts; `0:1` is the second MIG device of the first GPU."""
_DEVICE_FILE = re.compile(r"nvidia(\d{1,5})(?:/gi\d+)?(?:/vgpu\d+)?", re.ASCII)
_CLAIMED = re.compile(r"gpu-(\d{1,5})(?:-mig-[a-z0-9-]+)?", re.ASCII)
Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs (`Gpu.key`) that a holder was given, at least one.

    `holder` is pod:UID, pod:NAMESPACE/NAME where the UID is not known, or slurm:ID; `about` says it in words.
    """

    holder: str
    about: str
    gpus: Keys


@dataclass(frozen=True, slots=True)
class GateFacts:
    """All facts for the gate's decision; `slurm` None: not asked this time, as in turns without a probe."""

    uses: tuple[GpuUsers, ...]
    pods: tuple[Holding, ...] | Absent
    slurm: tuple[Holding, ...] | Absent | None
    mono: float
    holds: tuple[Holding, ...] | Absent = ()


@dataclass(frozen=True, slots=True)
class GpuNames:
    """Other names of GPUs, to their keys: numbers of device files (/dev/nvidia3), UUIDs of MIG devices."""

    minors: Mapping[int, str]
    migs: Mapping[str, str] = field(default_factory=dict)


class _GpuLookup:
    """The GPUs of a node by any of their names; a look-up gives keys, None for a name that is not known."""

    def __init__(self, gpus: Sequence[Gpu], names: GpuNames) -> None:
        self._gpus, self._names = gpus, names
        self._indices = {gpu.index: gpu.key for gpu in gpus}
        self._uuids = {gpu.uuid for gpu in gpus if gpu.uuid}
        self.every = tuple(gpu.key for gpu in gpus)

    def all_of(self, named: Iterable[tuple[str, Keys | None]]) -> tuple[Keys, str]:
        """Return all keys in the order of the GPUs; every key, and why, where a name was not understood."""
        held: set[str] = set()
        for text, keys in named:
            if keys is None or not set(keys) <= set(self.every):
                return self.every, f"; holds all GPUs: {text} is not known here"
            held.update(keys)
        return tuple(key for key in self.every if key in held), ""

    def device(self, text: str) -> Keys | None:
        """Return the GPUs of a device id of the kubelet's."""
        text = _REPLICA.sub("", text)
        if text in self._uuids:
            return (text,)
        if of_gpu := _MIG_OF_GPU.fullmatch(text):
            key = of_gpu[1]
        elif index := _INDEX.fullmatch(text):
            key = self._indices.get(int(index[1]))
        elif file := _DEVICE_FILE.fullmatch(text):
            key = self._names.minors.get(int(file[1]))
        elif address := normal_pci(text):
            return self._at(address)
        else:
            key = self._names.migs.get(text)
        return None if key is None else (key,)

    def claimed(self, text: str) -> Keys | None:
        """Return the GPUs of a DRA device: older drivers name it by NVML's number, newer by device file."""
        match = _CLAIMED.fullmatch(text)
        return self.numbered(int(match[1])) if match else None

    def numbered(self, number: int) -> Keys | None:
        """Return the GPUs of a number that may be NVML's or the device file's: both."""
        index, minor = self._indices.get(number), self._names.minors.get(number)
        return None if index is None or minor is None else (index, minor)

    def numbers(self, numbers: Sequence[int] | None) -> tuple[Keys, str]:
        """The GPUs of these numbers, as of `all_of`; every GPU for None."""
        if numbers is None:
            return self.every, "; holds all GPUs: it is not said which"
        return self.all_of((f"number {n}", self.numbered(n)) for n in numbers)

    def _at(self, address: str) -> Keys | None:
        """Return the GPUs on the bus of a PCI function; none for network cards, also named nvidia.com/."""
        buses = {gpu.key: normal_pci(gpu.pci).rpartition(":")[0] for gpu in self._gpus}
        if not all(buses.values()):
            return None
        return tuple(key for key, bus in buses.items() if bus == address.rpartition(":")[0])


LOGS = "/var/log/pods"
CGROUPS = "/sys/fs/cgroup"
_HIERARCHIES = ("", "/memory", "/pids", "/cpu,cpuacct", "/systemd")
"""Version 2 has one tree; of version 1's trees, the names that every kubelet uses."""
_ROOTS = ("kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods")
"""Roots of pods, by the systemd and the cgroupfs driver; the last two where `--cgroup-root` is /kubelet."""
_CLASS = re.compile(r"(?:.*-)?(burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.*-)?pod([0-9a-zA-Z_-]+?)(?:\.slice)?")


@dataclass(frozen=True, slots=True)
class PodLife:
    """UIDs of the log folder by namespace and name, and UIDs that have a cgroup."""

    named: Mapping[tuple[str, str], Sequence[str]]
    alive: frozenset[str]

    def uids(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """Return the UIDs of a living pod, none if it has ended; None where that is not known.

        It is not known while any living pod has no log folder yet: it may be a new pod of the same name.
        """
        mine = self.named.get((namespace, name), ())
        living = tuple(uid for uid in mine if uid in self.alive)
        if living:
            return living
        known = {uid for uids in self.named.values() for uid in uids}
        return () if mine and self.alive <= known else None


def watch_users(known: Stillness, facts: GateFacts) -> Stillness:
    """Move the stillness forward by the present users; an unreadable GPU counts as a change."""
    users: dict[str, object] = {}
    since: dict[str, float] = {}
    for use in facts.uses:
        key = use.gpu.key
        users[key] = (use.processes, _holders((facts.pods,), key), use.mig)
        readable = not isinstance(use.processes, Absent) and not isinstance(facts.pods, Absent)
        same = readable and known.users.get(key) == users[key]
        since[key] = known.since[key] if same else facts.mono
    return Stillness(users, since)


def candidates(facts: GateFacts, owner: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that a probe would touch: the GPUs of an asking owner that holds any, else all."""
    everyone = tuple(use.gpu for use in facts.uses)
    return everyone if owner is None else _held_by(facts, owner) or everyone


def refuse(facts: GateFacts, still: Stillness, rules: GateLimits, owner: str | None = None) -> Refusal | None:
    """Return the first reason why these GPUs may not be probed; lasting reasons come first."""
    touched = {gpu.key for gpu in candidates(facts, owner)}
    uses = [use for use in facts.uses if use.gpu.key in touched]
    found = _few(uses, rules.gpus) or _modes(uses) or _processes(uses) or _memory(uses, rules)
    found = found or _allocated(facts, touched, owner)
    if found is None and owner is not None and not _held_by(facts, owner):
        return Refusal(SkipReason.BLIND, f"{owner} holds no GPU here, by the kubelet and by Slurm")
    return found or _settling(facts, still, touched, rules)


def nothing_to_probe(hardware: Hardware) -> Refusal | None:
    """Return why nothing can ever be probed on this node; None where it can, or where that is not known."""
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return None
    found = _few(gpus) or _modes([_use(hardware, gpu) for gpu in gpus])
    return found if found is not None and found.reason in UNPROBEABLE else None


def read_facts(hardware: Hardware, gpus: Sequence[Gpu], *, slurm: bool) -> GateFacts:
    """Return the facts of the gate; only `slurm` asks Slurm's controller."""
    names = GpuNames(read_minors(hardware.nvml, gpus))
    return GateFacts(
        uses=tuple(_use(hardware, gpu) for gpu in gpus),
        pods=_pods(hardware, gpus, names),
        slurm=_jobs(hardware, gpus, names) if slurm else None,
        mono=hardware.clock.mono(),
        holds=_held(hardware, gpus, names),
    )


def no_gpus(hardware: Hardware) -> GateFacts:
    """Return the facts without any GPU; holds are not read then."""
    return GateFacts((), (), None, hardware.clock.mono(), Absent(Why.MISSING, "no GPU is looked at"))


def new_allocations(hardware: Hardware, gpus: Sequence[Gpu], known: GateFacts) -> Callable[[], str | None]:
    """Return a function that names the pod that was given any of `gpus` since `known` was read of all."""
    everyone, touched = [use.gpu for use in known.uses], {gpu.key for gpu in gpus}
    names = GpuNames(read_minors(hardware.nvml, everyone))
    before = frozenset() if isinstance(known.pods, Absent) else frozenset(h.holder for h in known.pods)

    def read() -> str | None:
        pods = _pods(hardware, everyone, names)
        if isinstance(pods, Absent):
            return f"the kubelet no longer says who holds GPUs: {pods}"
        return _newcomer(pods, before, touched)

    return read


def new_holds(
    hardware: Hardware, gpus: Sequence[Gpu], known: GateFacts, owner: str | None
) -> Callable[[], str | None]:
    """Return a function that names who, except the owner, holds probes off `gpus` since `known` was read."""
    if isinstance(known.holds, Absent):
        return lambda: None  # only a forced probe runs then
    everyone, touched = [use.gpu for use in known.uses], {gpu.key for gpu in gpus}
    names = GpuNames(read_minors(hardware.nvml, everyone))
    before = frozenset({owner, *(held.holder for held in known.holds if touched & set(held.gpus))})

    def read() -> str | None:
        holds = _held(hardware, everyone, names)
        return str(holds) if isinstance(holds, Absent) else _newcomer(holds, before, touched)

    return read


def read_minors(nvml: Nvml, gpus: Sequence[Gpu]) -> Mapping[int, str]:
    """Return keys by the number of the device file; a GPU without a known number is left out."""
    minors = {gpu.key: as_int(nvml.ask(gpu.key, [Question("MinorNumber")])[0].value) for gpu in gpus}
    return {minor: key for key, minor in minors.items() if not isinstance(minor, Absent)}


def pod_holdings(
    pods: Sequence[Pod], gpus: Sequence[Gpu], life: PodLife | Absent, names: GpuNames
) -> tuple[Holding, ...]:
    """Return the GPUs that pods hold; pods that ended by `life` hold nothing, two UIDs hold them twice."""
    cards = _GpuLookup(gpus, names)
    found = []
    for pod in pods:
        held, doubt = cards.all_of(_pod_devices(pod, cards))
        uids = None if isinstance(life, Absent) else life.uids(pod.namespace, pod.name)
        path = f"{pod.namespace}/{pod.name}"
        holders = [path] if uids is None else uids
        if held:
            found += [Holding(f"pod:{holder}", f"pod {path}{doubt}", held) for holder in holders]
    return tuple(found)


def job_holdings(jobs: Sequence[SlurmJob], gpus: Sequence[Gpu], names: GpuNames) -> tuple[Holding, ...]:
    """Return the GPUs that jobs of Slurm hold.

    Slurm counts in the order of gres.conf. If Slurm found the GPUs itself, that is NVML's order. If the
    device files were written down, it is theirs. Where both orders differ, a number holds both GPUs.
    """
    cards = _GpuLookup(gpus, names)
    found = []
    for job in jobs:
        held, doubt = cards.numbers(job.gpus)
        if held:
            found.append(Holding(f"slurm:{job.id}", f"Slurm job {job.id}, {job.state.lower()}{doubt}", held))
    return tuple(found)


def read_podlife(sysfs: Sysfs) -> PodLife | Absent:
    """Return pods by the files of the node; Absent where the log folder or the cgroups cannot be read."""
    folders = sysfs.entries(LOGS)
    if isinstance(folders, Absent):
        return folders
    parts = ((space, *rest.partition("_")) for space, _, rest in (one.partition("_") for one in folders))
    named = grouped(((space, name), uid) for space, name, _, uid in parts if uid)
    alive = _alive(sysfs)
    return alive if isinstance(alive, Absent) else PodLife(named, alive)


def _holders(sources: Sequence[tuple[Holding, ...] | Absent | None], key: str) -> frozenset[str]:
    known = [holdings for holdings in sources if isinstance(holdings, tuple)]
    return frozenset(h.holder for holdings in known for h in holdings if key in h.gpus)


def _held_by(facts: GateFacts, owner: str) -> tuple[Gpu, ...]:
    sources = (facts.pods, facts.slurm)
    return tuple(use.gpu for use in facts.uses if owner in _holders(sources, use.gpu.key))


def _few(gpus: Sequence[object], least: int = 2) -> Refusal | None:
    asked = f"{len(gpus)} of the {least} GPUs that are asked for" if least > 2 else f"{len(gpus)} GPU"  # noqa: PLR2004
    return Refusal(SkipReason.FEW_GPUS, asked) if len(gpus) < least else None


def _modes(uses: Sequence[GpuUsers]) -> Refusal | None:
    for use in uses:
        unread = next((v for v in (use.gpu.absent, use.mig, use.compute_mode) if isinstance(v, Absent)), None)
        if unread is not None:
            return Refusal(SkipReason.BLIND, f"GPU {use.gpu.index}: {unread}")
        if use.mig:
            return Refusal(SkipReason.MIG, f"GPU {use.gpu.index} is in MIG mode")
        if use.compute_mode == PROHIBITED:
            return Refusal(SkipReason.PROHIBITED, f"GPU {use.gpu.index}: compute mode Prohibited")
    return None


def _processes(uses: Sequence[GpuUsers]) -> Refusal | None:
    for use in uses:
        if isinstance(use.processes, Absent):
            return Refusal(SkipReason.BLIND, f"processes on GPU {use.gpu.index}: {use.processes}")
        if use.processes:
            pids = ", ".join("unknown" if p is None else str(p) for p in sorted(use.processes, key=str))
            return Refusal(SkipReason.BUSY, f"GPU {use.gpu.index} is used by process {pids}")
    return None


def _memory(uses: Sequence[GpuUsers], rules: GateLimits) -> Refusal | None:
    for use in uses:
        if isinstance(use.free, Absent) or isinstance(use.used, Absent):
            unread = use.free if isinstance(use.free, Absent) else use.used
            return Refusal(SkipReason.BLIND, f"memory of GPU {use.gpu.index}: {unread}")
        why = f"{use.free} bytes are free, {rules.free} are needed" if use.free < rules.free else ""
        if use.used > rules.unseen:
            why = f"{use.used} bytes are in use by no process that can be seen"
        if why:
            return Refusal(SkipReason.MEMORY, f"GPU {use.gpu.index}: {why}")
    return None


def _allocated(facts: GateFacts, touched: set[str], owner: str | None) -> Refusal | None:
    allocated, hold = SkipReason.ALLOCATED, SkipReason.HOLD
    sources = (("the kubelet", facts.pods, allocated), ("Slurm", facts.slurm, allocated))
    for name, holdings, reason in (*sources, ("the folder of holds", facts.holds, hold)):
        if isinstance(holdings, Absent):
            return Refusal(SkipReason.BLIND, f"{name} does not say who holds GPUs: {holdings}")
        for holding in holdings or ():
            if holding.holder != owner and touched & set(holding.gpus):
                return Refusal(reason, f"{holding.holder} holds GPUs: {holding.about}")
    return None


def _settling(facts: GateFacts, still: Stillness, touched: set[str], rules: GateLimits) -> Refusal | None:
    waited = min(facts.mono - still.since.get(key, facts.mono) for key in touched)
    seen = f"processes on the GPUs came, went or were first looked at {waited:.0f} s ago"
    why = f"{seen}; a probe starts after {rules.settle:.0f} s without a change"
    return Refusal(SkipReason.SETTLING, why) if waited < rules.settle else None


def _use(hardware: Hardware, gpu: Gpu) -> GpuUsers:
    if gpu.absent is not None:
        return GpuUsers(gpu, gpu.absent, gpu.absent, gpu.absent, gpu.absent, gpu.absent)
    memory, mig, mode = (a.value for a in hardware.nvml.ask(gpu.key, (MEMORY, *MODES)))
    split = as_mig_mode(mig)
    # A GPU that does not know such modes lets every process compute.
    no_modes = isinstance(mode, Absent) and mode.why is Why.UNSUPPORTED
    processes = foreign_processes(hardware.nvml, hardware.sysfs, gpu)
    used, free = as_int(member(memory, "used")), as_int(member(memory, "free"))
    mig_now = split if isinstance(split, Absent) else split.now
    return GpuUsers(gpu, processes, used, free, mig_now, 0 if no_modes else as_int(mode))


def _pods(hardware: Hardware, gpus: Sequence[Gpu], names: GpuNames) -> tuple[Holding, ...] | Absent:
    pods = hardware.kubelet.pods()
    if isinstance(pods, Absent):
        return () if pods.why in NOT_INSTALLED else pods
    if not pods:
        return ()
    return pod_holdings(pods, gpus, read_podlife(hardware.sysfs), names)


def _jobs(hardware: Hardware, gpus: Sequence[Gpu], names: GpuNames) -> tuple[Holding, ...] | Absent:
    jobs = hardware.slurm.jobs()
    if isinstance(jobs, Absent):
        return () if jobs.why in NOT_INSTALLED else jobs
    return job_holdings(jobs, gpus, names)


def _held(hardware: Hardware, gpus: Sequence[Gpu], names: GpuNames) -> tuple[Holding, ...] | Absent:
    holds = hardware.probe.holds()
    if isinstance(holds, Absent):
        return holds
    cards = _GpuLookup(gpus, names)
    found = ((one.owner, *cards.numbers(one.gpus)) for one in holds)
    return tuple(Holding(owner, f"a hold for its start{doubt}", held) for owner, held, doubt in found)


def _newcomer(holdings: Iterable[Holding], before: Container[str | None], touched: set[str]) -> str | None:
    """Return the holder of these GPUs that was not there before, in words."""
    new = (one for one in holdings if one.holder not in before and touched & set(one.gpus))
    return next((f"{one.holder} was given GPUs: {one.about}" for one in new), None)


def _pod_devices(pod: Pod, cards: _GpuLookup) -> Iterator[tuple[str, Keys | None]]:
    """The devices of a pod that are GPUs, in words and in keys."""
    for resource, device in pod.devices:
        if resource.startswith(PREFIX):
            yield f"{resource} {device}", cards.device(device)
    for driver, _, device in pod.claims:
        if not driver or driver.partition("/")[0].endswith(DRIVER) or driver.startswith(PREFIX):
            yield f"{driver or 'a claim'} {device}", cards.claimed(device)


def _alive(sysfs: Sysfs) -> frozenset[str] | Absent:
    """Return UIDs of all pods that have a cgroup in any tree of this machine."""
    found: set[str] = set()
    trees = 0
    for tree in (f"{CGROUPS}{hierarchy}/{root}" for hierarchy in _HIERARCHIES for root in _ROOTS):
        inside = sysfs.entries(tree)
        if isinstance(inside, Absent):
            if inside.why is Why.MISSING:
                continue
            return inside
        classes = {match[1]: match[0] for match in map(_CLASS.fullmatch, inside) if match}
        if len(classes) < len(("burstable", "besteffort")):
            return Absent(Why.MALFORMED, f"{tree}: not laid out by a kubelet")
        listed = [inside, *(sysfs.entries(f"{tree}/{name}") for name in classes.values())]
        for names in listed:
            if isinstance(names, Absent):
                return names
            # The systemd driver writes hyphens as underscores.
            found.update(match[1].replace("_", "-") for match in map(_POD.fullmatch, names) if match)
        trees += 1
    return frozenset(found) if trees else Absent(Why.MISSING, f"no pods' cgroups below {CGROUPS}")
