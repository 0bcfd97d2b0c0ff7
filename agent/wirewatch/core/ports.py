"""The ports: every question of collectors to the world, as Protocols.

A question is a plain value with a canonical text, so that an answer can be recorded and played back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from wirewatch.core.types import Absent, Json, Why

if TYPE_CHECKING:
    # Types alone: the process that talks to NVML needs none of them, and starts sooner without.
    from contextlib import AbstractContextManager

    from wirewatch.core.hostlink import HostPath
    from wirewatch.core.jobs import RasListener, RasReport, RingsReading
    from wirewatch.core.probe import Conditions, Plan, Probed, Timed

ALL_LINKS = 0xFFFFFFFF
"""Scope id of a link-scoped NVML field that means "the sum over all links" (nvml.h, nvmlFieldValue_t)."""

Arg = int | str


class Question(NamedTuple):
    """A call and its arguments; for NVML a function without `nvmlDeviceGet`, or `Field` with two ids."""

    call: str
    args: tuple[Arg, ...] = ()

    def __str__(self) -> str:
        return f"{self.call}({','.join('all' if a == ALL_LINKS else str(a) for a in self.args)})"


class Answer(NamedTuple):
    """The value that came back, and how long the call itself took in microseconds."""

    value: Json | Absent
    us: float = 0.0


Answers = Mapping[Question, Answer]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as enumerated: `index` is today's, `uuid` is its name; empty where it could not be read."""

    index: int
    uuid: str
    pci: str = ""
    name: str = ""
    absent: Absent | None = None

    @property
    def key(self) -> str:
        """Return a key that is stable over renumbering; a GPU whose UUID was never read goes by its index."""
        return self.uuid or f"index:{self.index}"


@dataclass(frozen=True, slots=True)
class NvmlCost:
    """Seconds inside NVML's calls since start, and its process; `stuck`: killed children that do not die."""

    pid: int | None
    seconds: float
    restarts: int
    stuck: int


class Nvml(Protocol):
    """NVML, asked one question after the other; no fault of hardware or driver raises here."""

    def session(self) -> int:
        """Changes with each initialisation of NVML: then ask again what a device supports."""

    def gpus(self) -> Sequence[Gpu] | Absent:
        """Return the GPUs as enumerated in this session, lost GPUs included."""

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return an answer for each question, in order; `gpu` is a `Gpu.key`, None for the system."""

    def seek(self) -> None:
        """Initialise NVML again after a while, and ever more rarely: its list lacks an expected GPU."""

    def cost(self) -> NvmlCost:
        """The cost of NVML since the start of this process."""


class Sysfs(Protocol):
    """Files under /sys, /proc and /etc, by absolute path."""

    def read(self, path: str) -> str | Absent:
        """The text of a small file, trailing white space cut."""

    def data(self, path: str) -> bytes | Absent:
        """The bytes of a small file that holds no text, such as a PCI configuration space."""

    def entries(self, path: str) -> Sequence[str] | Absent:
        """Names in a folder, sorted."""

    def link(self, path: str) -> str | Absent:
        """Return the absolute path that this link resolves to."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """CPU seconds and resident bytes of a process since it started."""

    cpu_seconds: float
    resident_bytes: int


class Host(Protocol):
    """The machine and its processes."""

    def ask(self, question: Question) -> Answer:
        """The answer to a question about the machine, such as `BootId` or `Hostname`."""

    def process(self, pid: int | None) -> ProcessUse | Absent:
        """Return the CPU seconds and bytes of a process; `pid` None is this process."""


@dataclass(frozen=True, slots=True)
class KernelLog:
    """Raw records of /dev/kmsg that may concern the wires; `missed` were overwritten unread."""

    records: Sequence[str]
    missed: int = 0


class Kmsg(Protocol):
    """The kernel's log."""

    def records(self, after: int) -> KernelLog | Absent:
        """Records with a sequence number above `after`, oldest first."""


@dataclass(frozen=True, slots=True)
class Output:
    """Text that a program printed, and its exit status; the text may be good although it failed."""

    status: int
    out: str
    err: str = ""


class Command(Protocol):
    """Other programs; only programs on the adapter's list can be run."""

    def run(self, name: str) -> Output | Absent:
        """Run a program by its name; MISSING where it is not installed."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod's devices by the kubelet: (resource, device id), and (driver, pool, device) of claims."""

    namespace: str
    name: str
    devices: tuple[tuple[str, str], ...] = ()
    claims: tuple[tuple[str, str, str], ...] = ()


class Kubelet(Protocol):
    """The kubelet's list of pods and the devices that they were given."""

    def pods(self) -> Sequence[Pod] | Absent:
        """Return pods that hold devices, before Kubernetes 1.34 finished pods too; MISSING: no kubelet."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job on this node; `gpus` by number as Slurm counts them, None where Slurm does not say which."""

    id: str
    state: str
    gpus: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Hold:
    """A scheduler's order that keeps probes off the GPUs of a job; `gpus` as of a SlurmJob, None for all.

    `owner`: slurm:ID or pod:UID. `until`: seconds since the boot.
    """

    owner: str
    until: float
    gpus: tuple[int, ...] | None


class Slurm(Protocol):
    """Slurm's jobs on this node."""

    def jobs(self) -> Sequence[SlurmJob] | Absent:
        """Jobs that hold this node or a part of it; MISSING: Slurm is not here, or not for this node."""


@dataclass(frozen=True, slots=True)
class Order:
    """A probe to run, and its limits.

    `allocations` names the job or pod that was given GPUs since the probe began, None for none; it is called
    about once a second. `withdrawn` says why the probe is not wanted any more, None while it is. `held` names
    the holder that keeps probes off these GPUs since the probe began. Both are called some fifty times a
    second. `deadline`: seconds from the start to the kill. `heard` gets each measurement of the plan's cases
    as soon as the worker reports it, whatever becomes of the probe afterwards. `paths`: from each GPU to the
    host's memory.
    """

    plan: Plan
    gpus: tuple[Gpu, ...]
    conditions: tuple[Conditions, ...]
    settings: Mapping[str, str]
    allocations: Callable[[], str | None]
    by: Literal["daemon", "command"]
    forced: bool = False
    deadline: float = 60.0
    withdrawn: Callable[[], str | None] = lambda: None
    held: Callable[[], str | None] = lambda: None
    heard: Callable[[Timed], None] = lambda _: None
    paths: tuple[HostPath, ...] = ()

    def unwanted(self) -> str | None:
        """Return why the probe must end, None while it need not."""
        return self.withdrawn() or self.held()


class Probe(Protocol):
    """Runs probes in this process's children, or in a prober's."""

    def engine(self, wanted: str) -> str | Absent:
        """The engine that `auto` or a name resolves to here."""

    def settings(self) -> Mapping[str, str]:
        """NCCL's settings in the environment of the worker."""

    def lock(self) -> AbstractContextManager[str | None]:
        """Keep other processes from probing while it is held; yields None, or the present holder."""

    def holds(self) -> Sequence[Hold] | Absent:
        """The holds that are in force."""

    def run(self, order: Order) -> Probed:
        """Run one probe; no fault of GPUs, driver or worker raises."""


class Clock(Protocol):
    """Unix and monotonic time, in seconds."""

    def now(self) -> float:
        """Unix seconds."""

    def mono(self) -> float:
        """Seconds of the monotonic clock."""


class Rings(Protocol):
    """The files of the tap inside running jobs, with records of their collectives."""

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        """Return each ring with its records after the number given for its name; MISSING: no folder."""


class Ras(Protocol):
    """NCCL's RAS service of the jobs on this node. It makes the whole job talk: ask on suspicion alone."""

    def ask(self, deadline: float) -> Sequence[RasReport] | Absent:
        """Return a report of each job that answers within so many seconds; MISSING: nobody listens."""

    def listeners(self, pid: int | None = None) -> Sequence[RasListener] | Absent:
        """Return the listeners in the network namespace of a process or in our own; no job notices it."""


class NoRings:
    """Where no folder of rings is configured."""

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:  # noqa: ARG002
        return Absent(Why.MISSING, "no folder of rings")


class NoRas:
    """Used where no job may be asked."""

    def ask(self, deadline: float) -> Sequence[RasReport] | Absent:  # noqa: ARG002
        return Absent(Why.MISSING, "nobody listens")

    def listeners(self, pid: int | None = None) -> Sequence[RasListener] | Absent:  # noqa: ARG002
        return ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """All ports of one node; `source` is `live`, `replay` or `synthetic`, `about` says it in words.

    `watcher` returns the process that watches jobs, None for none.
    """

    nvml: Nvml
    sysfs: Sysfs
    host: Host
    kmsg: Kmsg
    command: Command
    kubelet: Kubelet
    slurm: Slurm
    clock: Clock
    probe: Probe
    source: str = "live"
    about: str = "this machine"
    rings: Rings = field(default_factory=NoRings)
    ras: Ras = field(default_factory=NoRas)
    watcher: Callable[[], int | None] = lambda: None
