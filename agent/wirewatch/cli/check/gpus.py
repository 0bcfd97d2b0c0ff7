"""A verdict for a job that holds some GPUs of a node: its list of GPUs, and the findings that count for it.

Unknown parts count: an unreadable list means the whole node, and a finding without a known GPU is each job's.
The script deploy/slurm/gate.sh reads lists by the same rules. tests/node/cli/test_gate_of_gpus.py holds both
to one table.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from wirewatch.cli.check.answer import HEALTHS, CheckAnswer, Grounds, Terms, decide, line
from wirewatch.core.types import Health
from wirewatch.documents.health import CheckFinding, NodeGpu

SEVERAL = frozenset(
    {
        "straggler.pair", "topology.clique", "topology.island", "topology.nvlink_peer", "topology.pcie_path",
    }
)  # fmt: skip
"""Rules of parts that several GPUs share, of which the subject is only one. They are the whole node's, but
with `others`."""
SHOWN = 60
"""Most letters of a name in words; a longer name is left out."""
_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")
_RANGE = re.compile(rf"({_NUMBER.pattern})-({_NUMBER.pattern})")
_PART = re.compile(rf"({_NUMBER.pattern}):(?:{_NUMBER.pattern})")
"""`0:1` is the second MIG device of the first GPU."""
_UUID = re.compile(r"gpu-[0-9a-f-]+")
_MIG = re.compile(r"mig-[0-9a-f][0-9a-f-]*")
_MIG_OF_GPU = re.compile(r"mig-(gpu-[0-9a-f-]+)/[0-9]+/[0-9]+")
_PCI = re.compile(r"(?:(?:0000)?([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_SAYABLE = re.compile(rf"[A-Za-z0-9:/._-]{{1,{SHOWN}}}")
Positions = frozenset[int]
"""GPUs by their positions in the node's list."""


class UnreadList(Exception):
    """The GPUs of a job are not known; the text has the reason."""


@dataclass(frozen=True, slots=True)
class JobGpus:
    """The GPUs that a job holds, as its scheduler lists them; None: only the node without its GPUs counts.

    `of`: how many GPUs of the node the scheduler counts, where it says so. Slurm numbers the lines of
    gres.conf: with a line left out, its numbers are of other GPUs.
    """

    listed: str | None
    of: int | None = None


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """The findings of one GPU: the worst health, and the line."""

    gpu: NodeGpu
    health: Health
    line: str


@dataclass(frozen=True, slots=True)
class VerdictParts:
    """A verdict by its parts: `node` is the rest without the findings of GPUs."""

    node: Grounds
    gpus: tuple[GpuVerdict, ...]


def parts(grounds: Grounds) -> VerdictParts | None:
    """The parts of a verdict; None where the GPUs are not known, or the parts are not the whole."""
    gpus, base = grounds.gpus, grounds.base
    if not gpus or base is None:
        return None
    owned = [(one, owners(one, gpus)) for one in grounds.findings]
    rest = tuple(one for one, of in owned if not of)
    by_gpu = [tuple(one for one, of in owned if position in of) for position in range(len(gpus))]
    node = replace(grounds, health=max([base, *map(_health, rest)]), findings=rest)
    made = tuple(_part(gpu, found, grounds) for gpu, found in zip(gpus, by_gpu, strict=True))
    worst = max([node.health, *(one.health for one in made)])
    return VerdictParts(node, made) if worst == grounds.health else None


def _part(gpu: NodeGpu, found: tuple[CheckFinding, ...], grounds: Grounds) -> GpuVerdict:
    health = max(map(_health, found), default=Health.OK)
    alone = Grounds(health, grounds.source, findings=found, host=grounds.host)
    return GpuVerdict(gpu, health, line(decide(alone, Terms(), 0.0)))


def owners(one: CheckFinding, gpus: Sequence[NodeGpu]) -> Positions:
    """Return the GPUs of a finding; none where it is the node's, a card's, or its GPUs are not known."""
    part = one.subject
    if "device" in part or not part.keys() & {"gpu", "uuid"} or (one.rule in SEVERAL and not one.others):
        return frozenset()
    name = part.get("uuid")
    found = [_where(gpus, lambda gpu: gpu.uuid == name if name else gpu.gpu == part["gpu"])]
    found += [_where(gpus, partial(_is, uuid)) for uuid in one.others]
    return frozenset[int]().union(*found) if all(len(at) == 1 for at in found) else frozenset()


def _is(uuid: str, gpu: NodeGpu) -> bool:
    return gpu.uuid == uuid


def answer_for(job: JobGpus, grounds: Grounds, terms: Terms, at: float) -> CheckAnswer:
    """Return the answer for a job on these GPUs at `at`, Unix seconds; the whole node's where it must be."""
    made = parts(grounds)
    held = _held(job, made)
    if made is None or isinstance(held, str):
        whole = decide(grounds, terms, at)
        return replace(whole, said=line(whole), note=f"; the whole node counts: {held}")
    return _answer(job, made, held, grounds, terms, at)


def _held(job: JobGpus, made: VerdictParts | None) -> Positions | str:
    """Return the GPUs of the job, or why they are not known."""
    if made is None:
        return "its GPUs are not known"
    if job.of is not None and job.of != len(made.gpus):
        return f"the scheduler counts {job.of} GPUs, the agent {len(made.gpus)}"
    try:
        return frozenset() if job.listed is None else named(job.listed, [one.gpu for one in made.gpus])
    except UnreadList as why:
        return str(why)


def _answer(
    job: JobGpus, made: VerdictParts, held: Positions, grounds: Grounds, terms: Terms, at: float
) -> CheckAnswer:  # fmt: skip
    node, known = decide(made.node, terms, at), grounds.gpus or ()
    of_job = [made.gpus[position] for position in sorted(held)]
    worst = max(of_job, key=lambda one: one.health, default=None)
    counted = worst if worst is not None and worst.health > node.health else None
    mine = {id(one) for one in grounds.findings if not (of := owners(one, known)) or of & held}
    counts, aside = (
        tuple(one for one in grounds.findings if (id(one) in mine) is takes_part)
        for takes_part in (True, False)
    )
    health = max(made.node.health, counted.health if counted else Health.OK)
    answer = decide(replace(grounds, health=health, findings=counts), terms, at)
    others = [one for position, one in enumerate(made.gpus) if position not in held]
    return replace(
        answer, said=counted.line if counted else line(node), note=_aside(others, job),
        gpus=tuple(one.gpu.gpu for one in of_job), left_aside=aside,
    )  # fmt: skip


def _aside(others: Sequence[GpuVerdict], job: JobGpus) -> str:
    """Return the worst GPU that does not count, in words; nothing where all such GPUs are well."""
    sick = [one for one in others if one.health is not Health.OK]
    if not sick:
        return ""
    worst, more = max(sick, key=lambda one: one.health), len(sick) - 1
    why = "left aside" if job.listed is None else "not of this job"
    return f"; GPU {worst.gpu.gpu} is {worst.health.name} and {why}" + (f", and {more} more" if more else "")


def named(text: str, gpus: Sequence[NodeGpu]) -> Positions:
    """The GPUs of a list with commas: numbers, ranges, UUIDs or their beginnings, PCI addresses, MIG devices.

    Raises UnreadList where a name matches no GPU of this node, or may mean another GPU.
    """
    names = [name.strip(" \t") for name in text.split(",")]
    if names == [""]:
        raise UnreadList("the list of GPUs is empty")
    return frozenset[int]().union(*(_named(name, gpus) for name in dict.fromkeys(names)))


def _named(name: str, gpus: Sequence[NodeGpu]) -> Positions:
    low = name.lower()
    if _NUMBER.fullmatch(low):
        return _numbered(name, int(low), gpus)
    if between := _RANGE.fullmatch(low):
        return frozenset[int]().union(*_ranged(name, int(between[1]), int(between[2]), gpus))
    found = _where(gpus, _fitting(low))
    if len(found) > 1 and _UUID.fullmatch(low):
        raise UnreadList(f"{_said(name)} is the beginning of several GPUs")
    return _known(name, found)


def _fitting(low: str) -> Callable[[NodeGpu], bool]:
    """Return the test whether a GPU has this name: lower case, and not a plain number."""
    if part := _PART.fullmatch(low):
        return lambda gpu: part[1] in {gpu.gpu, gpu.minor}
    if of_gpu := _MIG_OF_GPU.fullmatch(low):
        return lambda gpu: gpu.uuid.lower() == of_gpu[1]
    if _MIG.fullmatch(low):
        # The list does not say which GPU it is a part of: it may be any that is split.
        return lambda gpu: gpu.split is not False
    if address := _PCI.fullmatch(low):
        return lambda gpu: gpu.pci.lower() == f"{address[1] or '0000'}:{address[2]}"
    return lambda gpu: bool(_UUID.fullmatch(low)) and gpu.uuid.lower().startswith(low)


def _ranged(name: str, first: int, last: int, gpus: Sequence[NodeGpu]) -> Iterator[Positions]:
    if first > last:
        _known(name, frozenset())
    for number in range(first, last + 1):
        yield _numbered(name, number, gpus)


def _numbered(name: str, number: int, gpus: Sequence[NodeGpu]) -> Positions:
    """The GPUs of a number that may be NVML's or the device file's: both.

    Where a GPU is in MIG mode, schedulers number MIG devices, so that a number says nothing sure.
    """
    if any(gpu.split is not False for gpu in gpus):
        raise UnreadList(f"{_said(name)} may be the number of a MIG device")
    return _known(name, _where(gpus, lambda gpu: str(number) in {gpu.gpu, gpu.minor}))


def _where(gpus: Sequence[NodeGpu], fits: Callable[[NodeGpu], bool]) -> Positions:
    return frozenset(position for position, gpu in enumerate(gpus) if fits(gpu))


def _known(name: str, found: Positions) -> Positions:
    if not found:
        raise UnreadList(f"{_said(name)} is no GPU of this node")
    return found


def _said(name: str) -> str:
    return f"'{name}'" if _SAYABLE.fullmatch(name) else "a name in the list"


def _health(one: CheckFinding) -> Health:
    return HEALTHS[one.health]
