"""Folding readings that come one GPU at a time: one bad GPU never sinks the others, none is forgotten."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from wirewatch.core.component import blind_finding
from wirewatch.core.ports import Gpu, Nvml
from wirewatch.core.types import Absent, Finding, Subject, Why

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M")
T = TypeVar("T")
V = TypeVar("V", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class GpuReading(Generic[T]):
    """What was read of one GPU, or why nothing was."""

    gpu: Gpu
    value: T | Absent


@dataclass(frozen=True, slots=True)
class GpuMemory(Generic[M]):
    """What is remembered of one GPU: the collector's own memory and what was wrong last."""

    gpu: Gpu
    memory: M
    findings: tuple[Finding, ...] = ()


Memories = Mapping[str, GpuMemory[M]]
JudgeOne = Callable[[M, Gpu, T], tuple[M, tuple[Finding, ...]]]


def subject(gpu: Gpu, link: int | None = None) -> Subject:
    return Subject(gpu=str(gpu.index), uuid=gpu.uuid, link="" if link is None else str(link))


def remembered(memories: Memories[M], gpu: Gpu, start: M) -> M:
    known = memories.get(gpu.key)
    return start if known is None else known.memory


def read_gpus(nvml: Nvml, one: Callable[[Gpu], T | Absent]) -> tuple[GpuReading[T], ...] | Absent:
    """Read every GPU on its own; one that could not even be identified is not asked further."""
    gpus = nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    return tuple(GpuReading(gpu, gpu.absent or one(gpu)) for gpu in gpus)


def fold_gpus(
    collector: str,
    memories: Memories[M],
    readings: Sequence[GpuReading[T]],
    start: M,
    judge_one: JudgeOne[M, T],
) -> tuple[dict[str, GpuMemory[M]], tuple[Finding, ...]]:
    """Judge every GPU on its own.

    A GPU that could not be read keeps what was wrong with it and is blind besides; so does one that was
    known and is not enumerated any more.
    """
    new: dict[str, GpuMemory[M]] = {}
    blind: list[Finding] = []
    for reading in readings:
        known = memories.get(reading.gpu.key) or GpuMemory(reading.gpu, start)
        if isinstance(reading.value, Absent):
            new[reading.gpu.key] = replace(known, gpu=reading.gpu)
            blind.append(blind_finding(collector, subject(reading.gpu), reading.value))
            continue
        memory, findings = judge_one(known.memory, reading.gpu, reading.value)
        new[reading.gpu.key] = GpuMemory(reading.gpu, memory, findings)
    named = {m.gpu.index for m in new.values() if m.gpu.uuid}
    for key, known in memories.items():
        # One that never told its name has not gone when another at its place does: it is that one.
        if key not in new and (known.gpu.uuid or known.gpu.index not in named):
            new[key] = known
            gone = Absent(Why.LOST, "was here before, is not enumerated any more")
            blind.append(blind_finding(collector, subject(known.gpu), gone))
    return new, (*(f for m in new.values() for f in m.findings), *blind)


def filled(now: V, last: V | None, *names: str) -> V:
    """A reading for judging: what could not be read this time is as it was last; not supported stays so.

    A lost reading repairs nothing. Samples are never made of this.
    """
    if last is None:
        return now
    lost = {n: getattr(last, n) for n in names if is_lost(getattr(now, n))}
    return replace(now, **lost) if lost else now


def is_lost(value: object) -> bool:
    """Whether a value should be there and could not be read."""
    return isinstance(value, Absent) and value.why is not Why.UNSUPPORTED


def is_unsupported(value: object) -> bool:
    """Whether a device does not offer a value at all, which is no loss."""
    return isinstance(value, Absent) and value.why is Why.UNSUPPORTED


_NAMED = 3


def unread(collector: str, gpu: Gpu, values: Mapping[str, object]) -> tuple[Finding, ...]:
    """One blind finding for all values of a readable GPU that should be there and are not.

    What a device does not support is no news and makes no finding.
    """
    bad = {n: v for n, v in values.items() if isinstance(v, Absent) and is_lost(v)}
    if not bad:
        return ()
    worst_of = next(iter(bad.values()))
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    names = ", ".join(list(bad)[:_NAMED]) + more
    return (blind_finding(collector, subject(gpu), replace(worst_of, detail=f"{names}: {worst_of.detail}")),)
