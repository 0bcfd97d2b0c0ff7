"""Who holds which GPU, of what the kubelet and Slurm tell. What is not understood holds every GPU here.

Source of the forms of device ids: the device plugins of NVIDIA and GKE, NVIDIA's DRA driver, gres.conf.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wirewatch.core.nvml import as_int
from wirewatch.core.pci import normal_pci
from wirewatch.core.podlife import PodLife
from wirewatch.core.ports import Gpu, Nvml, Pod, Question, SlurmJob
from wirewatch.core.types import Absent

PREFIXES = ("nvidia.com/",)
"""Resources that are GPUs or parts of them: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.18gb."""
DRIVER = "gpu.nvidia.com"
"""NVIDIA's DRA driver for GPUs; the vendor of its CDI devices ends so too (k8s.gpu.nvidia.com/device)."""
_REPLICA = re.compile(r"::\d+$", re.ASCII)
"""Of time slicing and MPS: `GPU-...::3` is a turn on that GPU."""
_MIG_OF_GPU = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+", re.ASCII)
_INDEX = re.compile(r"(\d{1,5})(?::\d+)?", re.ASCII)
"""As NVML counts; `0:1` is the second MIG device of the first GPU."""
_DEVICE_FILE = re.compile(r"nvidia(\d{1,5})(?:/gi\d+)?(?:/vgpu\d+)?", re.ASCII)
_CLAIMED = re.compile(r"gpu-(\d{1,5})(?:-mig-[a-z0-9-]+)?", re.ASCII)

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs (`Gpu.key`) that a holder was given; never none.

    `holder` is pod:UID, pod:NAMESPACE/NAME where the UID is not known, or slurm:ID; `about` says it in words.
    """

    holder: str
    about: str
    gpus: Keys


@dataclass(frozen=True, slots=True)
class Names:
    """Other names of GPUs, to their keys: numbers of device files (/dev/nvidia3), UUIDs of MIG devices."""

    minors: Mapping[int, str]
    migs: Mapping[str, str] = field(default_factory=dict)


def read_minors(nvml: Nvml, gpus: Sequence[Gpu]) -> Mapping[int, str]:
    """Keys by the number of the device file; a GPU that does not tell it is left out."""
    told = {gpu.key: as_int(nvml.ask(gpu.key, [Question("MinorNumber")])[0].value) for gpu in gpus}
    return {minor: key for key, minor in told.items() if not isinstance(minor, Absent)}


def pod_holdings(
    pods: Sequence[Pod],
    gpus: Sequence[Gpu],
    life: PodLife | Absent,
    names: Names,
    prefixes: Sequence[str] = PREFIXES,
) -> tuple[Holding, ...]:
    """What pods hold; those that have ended as `life` tells hold nothing, those of two UIDs hold it twice."""
    cards = _Cards(gpus, names)
    found = []
    for pod in pods:
        held, doubt = cards.all_of(_given(pod, cards, prefixes))
        uids = None if isinstance(life, Absent) else life.uids(pod.namespace, pod.name)
        path = f"{pod.namespace}/{pod.name}"
        holders = [path] if uids is None else uids
        if held:
            found += [Holding(f"pod:{holder}", f"pod {path}{doubt}", held) for holder in holders]
    return tuple(found)


def job_holdings(jobs: Sequence[SlurmJob], gpus: Sequence[Gpu], names: Names) -> tuple[Holding, ...]:
    """What jobs of Slurm hold.

    Slurm counts in the order of gres.conf, which is NVML's where it found the GPUs itself and that of the
    device files where they were written down: where the two differ, a number holds both GPUs.
    """
    cards = _Cards(gpus, names)
    found = []
    for job in jobs:
        if job.gpus is None:
            held, doubt = cards.every, "; holds all GPUs: Slurm does not tell which"
        else:
            held, doubt = cards.all_of((f"number {n}", cards.numbered(n)) for n in job.gpus)
        if held:
            found.append(Holding(f"slurm:{job.id}", f"Slurm job {job.id}, {job.state.lower()}{doubt}", held))
    return tuple(found)


def _given(pod: Pod, cards: "_Cards", prefixes: Sequence[str]) -> Iterator[tuple[str, Keys | None]]:
    """The devices of a pod that are GPUs, in words and in keys."""
    for resource, device in pod.devices:
        if resource.startswith(tuple(prefixes)):
            yield f"{resource} {device}", cards.device(device)
    for driver, _, device in pod.claims:
        if not driver or driver.partition("/")[0].endswith(DRIVER) or driver.startswith(tuple(prefixes)):
            yield f"{driver or 'a claim'} {device}", cards.claimed(device)


class _Cards:
    """The GPUs of a node by whatever name; a look-up gives keys, None for a name that is not understood."""

    def __init__(self, gpus: Sequence[Gpu], names: Names) -> None:
        self._gpus, self._names = gpus, names
        self._indices = {gpu.index: gpu.key for gpu in gpus}
        self._uuids = {gpu.uuid for gpu in gpus if gpu.uuid}
        self.every = tuple(gpu.key for gpu in gpus)

    def all_of(self, named: Iterable[tuple[str, Keys | None]]) -> tuple[Keys, str]:
        """All keys in the order of the GPUs; every key, and why, where a name was not understood."""
        held: set[str] = set()
        for text, keys in named:
            if keys is None or not set(keys) <= set(self.every):
                return self.every, f"; holds all GPUs: {text} is none that is known here"
            held.update(keys)
        return tuple(key for key in self.every if key in held), ""

    def device(self, text: str) -> Keys | None:
        """A device id of the kubelet's."""
        text = _REPLICA.sub("", text)
        if text in self._uuids:
            return (text,)
        of_gpu = _MIG_OF_GPU.fullmatch(text)
        if of_gpu:
            return self._only(of_gpu[1] if of_gpu[1] in self._uuids else None)
        index, file = _INDEX.fullmatch(text), _DEVICE_FILE.fullmatch(text)
        if index:
            return self._only(self._indices.get(int(index[1])))
        if file:
            return self._only(self._names.minors.get(int(file[1])))
        address = normal_pci(text)
        return self._at(address) if address else self._only(self._names.migs.get(text))

    def claimed(self, text: str) -> Keys | None:
        """A device of the DRA driver, which first named GPUs as NVML counts and later by the device file."""
        match = _CLAIMED.fullmatch(text)
        return self.numbered(int(match[1])) if match else None

    def numbered(self, number: int) -> Keys | None:
        """A number of which it is not known whether NVML's or the device file's."""
        index, minor = self._indices.get(number), self._names.minors.get(number)
        return None if index is None or minor is None else (index, minor)

    def _at(self, address: str) -> Keys | None:
        """GPUs on the bus of a PCI function; none for a network card's, which go by nvidia.com/ as well."""
        buses = {gpu.key: normal_pci(gpu.pci).rpartition(":")[0] for gpu in self._gpus}
        if not all(buses.values()):
            return None
        return tuple(key for key, bus in buses.items() if bus == address.rpartition(":")[0])

    @staticmethod
    def _only(key: str | None) -> Keys | None:
        return None if key is None else (key,)
