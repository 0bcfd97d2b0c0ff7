"""Collectors as values with functions, the state that the daemon keeps of each, and folds over GPUs.

`fold_gpus` judges each GPU by its own reading, so that a lost GPU costs its own numbers and nothing else.
Folds over runs are in `core.fold`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeGuard, TypeVar

from wirewatch.core import words
from wirewatch.core.amounts import Seconds
from wirewatch.core.declared import collector_faults, refuse, rule_faults
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question
from wirewatch.core.tree import is_handed
from wirewatch.core.types import (
    Absent,
    Expect,
    Failed,
    Finding,
    Health,
    Metric,
    Ok,
    Sample,
    Subject,
    Why,
    worst,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R")
"""A collector's reading in one poll."""
M = TypeVar("M")
"""A collector's memory until the next."""
O = TypeVar("O", bound="Options")  # noqa: E741
K = TypeVar("K")
"""The part of its memory that outlives the process."""
P = TypeVar("P")
"""Its policy: the thresholds of its judgement."""
F = TypeVar("F")
T = TypeVar("T")
V = TypeVar("V", bound="DataclassInstance")
APART = 3.0
"""Seconds between a run of a collector and the runs of collectors in its `apart`.

Measured on H200: while GPM samples were taken, 2 of 32 NVLink byte counters stood still over 3 s (ADR 0013).
"""
LENT = Absent(Why.RELEASED, "a virtual machine or a program has it")
"""Takes the place of a GPU's reading: its PCI driver handed the GPU on, and NVML no longer has it."""
BLIND_ACTION: Mapping[Why, str] = {
    Why.MISSING: "install or load what is missing; until then this node cannot be judged",
    Why.UNSUPPORTED: "this driver or device does not offer what is read; update it or disable the collector",
    Why.DENIED: "give the agent the permission named here",
    Why.LOST: "see whether the part answers and what the kernel log says of it; if it stays so, "
    "`wirewatch release --for 10m` and reset it, or reboot",
    Why.TIMEOUT: "the driver does not answer; look for a hung nvidia-smi; if it stays so, reboot",
    Why.MALFORMED: "the answer was not understood; report it with a recording made by `wirewatch record`",
    Why.RELEASED: "none: the GPUs are watched again when the release ends",
    Why.EXHAUSTED: "give the agent more open files, processes or memory, or restart it; it is no fault of "
    "the hardware",
}
REST = "Finding"
"""The alert for every rule without an alert of its own."""
BLIND = "NodeUnknown"
"""The alert for unknown state, which has no severity of its own."""
UNKNOWN = (Health.UNKNOWN,)
DEGRADED = (Health.DEGRADED,)
CONFIRMED = (Health.DEGRADED, Health.FAILED)
"""DEGRADED in the first poll or where it is mild; FAILED once confirmed, or at once where it is grave."""
STARTING = (Health.DEGRADED, Health.UNKNOWN, Health.FAILED)
"""As CONFIRMED, but UNKNOWN while it may only be starting, which is no fault and is not remembered."""
FAILED = (Health.FAILED,)


@dataclass(frozen=True, slots=True)
class Strict:
    """A part of the configuration, in which an unknown key or a wrong type is an error."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True)
class Options(Strict):
    """Whether and how often a collector runs."""

    enabled: bool = True
    """Whether it runs."""
    interval: Seconds = 15.0
    """Time from one run to the next. [seconds]"""
    deadline: Seconds = 10.0
    """Time after which a run is overdue; what it reads is UNKNOWN then. [seconds]"""

    def wrong(self) -> str:
        """Return the first setting that cannot be used, in words; empty when all can."""
        bad = [name for name in ("interval", "deadline") if getattr(self, name) <= 0]
        return f"must be above 0: {bad[0]!r}" if bad else ""


def wrong_settings(policy: Strict, *checks: tuple[tuple[str, ...], Callable[[float], bool], str]) -> str:
    """Return the first setting that fails each check, in words; empty when all hold."""
    odd = (
        (next((name for name in names if not holds(getattr(policy, name))), ""), text)
        for names, holds, text in checks
    )
    return "; ".join(f"{text}: {name!r}" for name, text in odd if name)


@dataclass(frozen=True, slots=True)
class NoPolicy(Strict):
    """For collectors that judge nothing, or nothing that a threshold decides."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding that a collector makes.

    `name` is `family.fault`, or a glob where the fault is known only at run time (`sxid.*`). `healths` lists
    the possible healths of its findings, the worst last. `alert` names the alert that reports it, without the
    prefix `Wirewatch`; its heading in docs/runbook.md has the same name. The default follows from `name`.

    `means`, `look` and `do` are its entry in docs/runbook.md, and an alert of this rule alone leads there.
    Findings also give `do` as advice. The entry of a rule without `means` is written by hand. `rehearse` says
    how to see the fault where no bundled overlay makes it. `hold`: how long a FAILED finding lasts before it
    pages somebody, in Prometheus' form; a DEGRADED finding waits a quarter of an hour.
    """

    name: str
    healths: tuple[Health, ...]
    alert: str = ""
    means: str = ""
    look: str = ""
    do: str = ""
    rehearse: str = ""
    hold: str = "2m"

    def __post_init__(self) -> None:
        refuse(rule_faults(self))

    @property
    def worst(self) -> Health:
        """The worst health that a finding of this rule can have."""
        return max(self.healths)

    @property
    def reported(self) -> str:
        """The full name of the alert that reports it."""
        if self.alert:
            return f"Wirewatch{self.alert}"
        if self.worst is Health.UNKNOWN:
            return f"Wirewatch{BLIND}"
        return "Wirewatch" + "".join(word.capitalize() for word in self.name.replace(".", "_").split("_"))

    def finding(
        self, subject: Subject, evidence: str, health: Health | None = None, action: str = ""
    ) -> Finding:
        """Return a finding of this rule, by default with the worst health and the rule's own advice."""
        return Finding(self.name, health or self.worst, subject, evidence, action or self.do)


@dataclass(frozen=True, slots=True)
class Observed:
    """The parts that one reading looked at, besides the node as a whole.

    `gpus`: GPUs, each with all that belongs to it; `devices`: ports, network cards and switches. None stands
    for all parts of the kind: the source covers the whole node.
    """

    gpus: frozenset[Subject] | None = None
    devices: frozenset[Subject] | None = None

    def covers(self, part: Subject) -> bool:
        """Return whether the reading would have shown a fault of this part."""
        if part.uuid or part.gpu:
            # A GPU without a UUID goes by its index.
            same = [one.uuid == part.uuid if part.uuid else one.gpu == part.gpu for one in self.gpus or ()]
            return self.gpus is None or any(same)
        if not part.device or self.devices is None:
            return True
        return any(one.device == part.device and part.port in {"", one.port} for one in self.devices)


@dataclass(frozen=True, slots=True)
class Lasting(Generic[M, K]):
    """The part of a collector's memory that outlives the process: the known parts, and how well they worked.

    `kept` is its type, a frozen dataclass that JSON can hold. `keep` extracts it from a memory, and `recall`
    makes the first memory from it.
    """

    kept: type[K]
    keep: Callable[[M], K]
    recall: Callable[[K], M]


@dataclass(frozen=True)
class Collector(Generic[R, M, O, P]):
    """One watched subject: how to read, judge and publish it.

    `read` is the only function that touches the world, and only through the ports. It sees the memory and so
    can choose its questions. It returns Absent when nothing at all could be read. `judge`, `samples` and
    `facts` are pure: `judge` folds a reading into the memory and returns the findings of now. `samples` turns
    the reading and that new memory into series.

    The memory is the collector's alone. `facts` turns it and the reading into one frozen value for other
    rooms, of a type that no other collector offers; None where samples and findings say it all. `observed`
    returns the parts that the reading looked at, so that the verdict can tell "not found" from "not read". It
    is None for a reading that always looks at everything.

    `apart` names collectors whose runs this collector disturbs. It runs only in the gaps that they leave,
    APART seconds from each, and never delays them.

    `rules` lists all rules of its findings except `<name>.blind`, which every collector has. `series`: the
    most series on a node of 8 GPUs and 8 ports, with default options. `lasting`: the part of the memory that
    outlives the process, None for none. `forget` makes a memory without the missing parts; None where it has
    no parts. `gates`: its findings and failures count for the verdict; False where users write its input.
    """

    name: str
    about: str
    lane: str
    options: O
    policy: P
    metrics: tuple[Metric, ...]
    start: M
    read: Callable[[Hardware, M, O], R | Absent]
    samples: Callable[[R, M], Iterable[Sample]]
    judge: Callable[[M, Ok[R], P, Expect], tuple[M, tuple[Finding, ...]]]
    applicable: Callable[[R], bool]
    apart: tuple[str, ...] = ()
    facts: Callable[[R, M], object] | None = None
    observed: Callable[[R, M], Observed] | None = None
    rules: tuple[Rule, ...] = ()
    series: int = 40
    lasting: Lasting[M, Any] | None = None
    forget: Callable[[M], M] | None = None
    gates: bool = True

    def __post_init__(self) -> None:
        refuse(collector_faults(self))


AnyCollector = Collector[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Component:
    """State of one collector; `applicable` None means "never yet known".

    `memory` is for the collector's next run alone; others read `facts`, `samples` and `findings`. Facts are
    held while the collector cannot read, and None until it has read once. `observed`: the parts that the last
    successful reading looked at. `gates`: as of its collector.
    """

    name: str
    memory: Any
    outcome: Ok[Any] | Failed | None = None
    overdue_since: float | None = None
    findings: tuple[Finding, ...] = ()
    samples: tuple[Sample, ...] = ()
    applicable: bool | None = None
    failures: int = 0
    duration: float = 0.0
    cpu: float = 0.0
    last_success: float = 0.0
    facts: object = None
    observed: Observed = Observed()
    gates: bool = True

    @property
    def succeeding(self) -> bool:
        """Return whether the last run read something and none is overdue."""
        return isinstance(self.outcome, Ok) and self.overdue_since is None

    @property
    def health(self) -> Health | None:
        """Return the health; None when there is nothing to watch and nothing wrong."""
        if self.findings:
            return worst(self.findings)
        if self.outcome is None:
            return Health.UNKNOWN
        return Health.OK if self.applicable else None


@dataclass(frozen=True, slots=True)
class NodeState:
    """Everything that exporters may read; replaced by one assignment, never changed."""

    components: Mapping[str, Component] = field(default_factory=dict)

    def facts(self, kind: type[F]) -> F | None:
        """The facts of this type, from whichever collector offers them; None while there are none."""
        return next((one.facts for one in self.components.values() if isinstance(one.facts, kind)), None)

    def with_component(self, component: Component) -> "NodeState":
        """This state with one component replaced or added."""
        return NodeState({**self.components, component.name: component})


@dataclass(frozen=True, slots=True)
class GpuReading(Generic[T]):
    """The reading of one GPU, or the reason why there is none."""

    gpu: Gpu
    value: T | Absent


@dataclass(frozen=True, slots=True)
class GpuMemory(Generic[M]):
    """The memory of one GPU: the collector's own, and its last findings.

    `present`: whether the last poll enumerated it; None for a GPU that is lent or new to this process.
    """

    gpu: Gpu
    memory: M
    findings: tuple[Finding, ...] = ()
    present: bool | None = True


Memories = Mapping[str, GpuMemory[M]]
JudgeOne = Callable[[M, Gpu, T], tuple[M, tuple[Finding, ...]]]


def blind_rule(collector: str) -> str:
    """Return the rule of the finding "this collector, or a part it watches, cannot be read"."""
    return f"{collector}.blind"


def blind_finding(collector: str, subject: Subject, absent: Absent) -> Finding:
    """The UNKNOWN finding for a subject that this collector could not read, with the reason as evidence."""
    action = BLIND_ACTION[absent.why]
    return Finding(blind_rule(collector), Health.UNKNOWN, subject, str(absent), action, absent=absent)


def subject(gpu: Gpu, link: int | None = None) -> Subject:
    """Return the subject of a finding for a GPU, or for one of its links."""
    return Subject(gpu=str(gpu.index), uuid=gpu.uuid, link="" if link is None else str(link))


def known_samples(labels: tuple[str, ...], *values: tuple[Metric, float | Absent]) -> Iterator[Sample]:
    """Return a sample of each family whose value is known, all with the same labels."""
    for metric, value in values:
        if not isinstance(value, Absent):
            yield metric.sample(value, *labels)


def observed_gpus(reading: Sequence[GpuReading[T]], _memory: object = None) -> Observed:
    """Return the GPUs that gave any reading, for collectors that read GPU by GPU."""
    read = (one.gpu for one in reading if not isinstance(one.value, Absent))
    return Observed(frozenset(map(subject, read)), frozenset())


def remembered(memories: Memories[M], gpu: Gpu, start: M) -> M:
    """Return the memory of a GPU, or `start` for a new GPU."""
    known = memories.get(gpu.key)
    return start if known is None else known.memory


def read_gpus(nvml: Nvml, one: Callable[[Gpu], T | Absent]) -> tuple[GpuReading[T], ...] | Absent:
    """Read each identified GPU; Absent when GPUs cannot be enumerated."""
    gpus = nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    return tuple(GpuReading(gpu, gpu.absent or one(gpu)) for gpu in gpus)


def since_boot(hardware: Hardware) -> float:
    """Return the seconds since the machine was started, infinite where not known."""
    started = hardware.host.ask(Question("BootTime")).value
    return hardware.clock.now() - started if isinstance(started, int | float) else math.inf


def watch_gpus(
    hardware: Hardware, memories: Memories[M], one: Callable[[Gpu], T | Absent]
) -> tuple[GpuReading[T], ...] | Absent:
    """Read each GPU; a GPU that the driver no longer has is LENT where PCI says so."""
    read = read_gpus(hardware.nvml, one)
    if isinstance(read, Absent):
        return read
    known = {item.gpu.key: item for item in read}
    gone: dict[str, GpuReading[T]] = {
        key: GpuReading(m.gpu, LENT) for key, m in memories.items() if key not in known
    }
    lost = {k: item for k, item in known.items() if isinstance(item.value, Absent)} | gone
    slots = ((key, item) for key, item in lost.items() if item.gpu.pci)
    lent = {k: replace(item, value=LENT) for k, item in slots if is_handed(hardware.sysfs, item.gpu.pci)}
    return tuple({**known, **lent}.values())


def fold_gpus(
    collector: str,
    memories: Memories[M],
    readings: Sequence[GpuReading[T]],
    start: M,
    judge_one: JudgeOne[M, T],
    rest: Callable[[M], M] | None = None,
) -> tuple[dict[str, GpuMemory[M]], tuple[Finding, ...]]:
    """Judge each GPU by its own reading and memory: return the new memories by key, and all findings.

    A GPU that cannot be read keeps its findings and gets a blind finding besides. So does a GPU that was seen
    and is no longer listed. The memory of another run is kept for a GPU that this run has not seen. A lent
    GPU keeps only the result of `rest`: it comes back as at a start.
    """
    new: dict[str, GpuMemory[M]] = {}
    blind: list[Finding] = []
    for reading in readings:
        known = memories.get(reading.gpu.key) or GpuMemory(reading.gpu, start)
        if reading.value == LENT:
            new[reading.gpu.key] = GpuMemory(known.gpu, rest(known.memory) if rest else start, present=None)
            continue
        if isinstance(reading.value, Absent):
            new[reading.gpu.key] = replace(known, gpu=reading.gpu, present=True)
            blind.append(blind_finding(collector, subject(reading.gpu), reading.value))
            continue
        memory, findings = judge_one(known.memory, reading.gpu, reading.value)
        new[reading.gpu.key] = GpuMemory(reading.gpu, memory, findings)
    named = {m.gpu.index for m in new.values() if m.gpu.uuid}
    for key, known in memories.items():
        # A GPU without a UUID that is missing now is the one that has a UUID at the same index.
        if key not in new and (known.gpu.uuid or known.gpu.index not in named):
            new[key] = known if known.present is None else replace(known, present=False)
        if key in new and new[key].present is False:
            gone = Absent(Why.LOST, "was here before, is no longer listed")
            blind.append(blind_finding(collector, subject(known.gpu), gone))
    return new, (*(f for m in new.values() for f in m.findings), *blind)


def forget_gone(memories: Memories[M]) -> Memories[M]:
    """Return the memories without GPUs that are not enumerated now, or were never seen in this process."""
    return {key: one for key, one in memories.items() if one.present}


def filled(now: V, last: V | None, *names: str) -> V:
    """Return the reading to judge by: each lost named value is taken from the last reading.

    So a lost value repairs nothing. Unsupported values stay unsupported. Samples never use this reading.
    """
    if last is None:
        return now
    lost = {n: getattr(last, n) for n in names if is_lost(getattr(now, n))}
    return replace(now, **lost) if lost else now


def is_lost(value: object) -> TypeGuard[Absent]:
    """Return whether a value that the device offers could not be read."""
    return isinstance(value, Absent) and value.why is not Why.UNSUPPORTED


def is_unsupported(value: object) -> bool:
    """Return whether a device does not offer a value at all, which is no loss."""
    return isinstance(value, Absent) and value.why is Why.UNSUPPORTED


def unread(collector: str, gpu: Gpu, values: Mapping[str, object]) -> tuple[Finding, ...]:
    """Return one blind finding for all lost values of a GPU, by the names that the evidence shows."""
    bad = {n: v for n, v in values.items() if is_lost(v)}
    if not bad:
        return ()
    first = next(iter(bad.values()))
    named = replace(first, detail=f"{words.first(bad)}: {first.detail}")
    return (replace(blind_finding(collector, subject(gpu), named), absent=first),)
