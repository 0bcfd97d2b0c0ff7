"""Read each GPU's load and the owners of its processes; while a job looks stuck, also take a look at it.

Bytes over NVLink cost most, and are read where they decide (ADR 0092). Only a look asks RAS, and reads about
processes what a poll does not need.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from wirewatch.core.collector import GpuReading, read_gpus
from wirewatch.core.jobs import RasListener, RasReport
from wirewatch.core.nvml import Supported, as_float, as_watts, ask_gpu, listed_processes, member
from wirewatch.core.owners import PROBE, process_owner, state_and_parent
from wirewatch.core.ports import ALL_LINKS, Gpu, Hardware, Nvml, Question, Ras, Sysfs
from wirewatch.core.types import Absent, Json, Why, value_or, whole
from wirewatch.core.words import KIB
from wirewatch.jobs.hangs.model import (
    NOT_COUNTED,
    GpuLoad,
    HangMemory,
    HangOptions,
    HangReading,
    JobLook,
    JobProcess,
    WatchedJob,
)

PROCESSES = Question("ComputeRunningProcesses")
UTILIZATION = Question("UtilizationRates")
POWER = Question("PowerUsage")
LIMIT = Question("PowerManagementDefaultLimit")
"""Both in milliwatts."""
SENT = (Question("Field", (202, ALL_LINKS)), Question("Field", (138, ALL_LINKS)))
"""Bytes sent on NVLink 5, and KiB before it; a GPU has only one of these fields."""
ALL_BUSY = 0.99
"""Share of the time: a kernel that waits for other ranks runs all the time."""
OWNED = 10.0
"""Seconds for which the owner of a process is not read again."""
TICKS = 100
"""Ticks of CPU time in a second, as the kernel counts for every program."""
LISTENED = 60.0
"""Seconds between two looks at who listens for RAS."""
_WORKER = "-m\0wirewatch.worker\0"
"""Part of the command line of a process that runs a probe."""
_NAMED = 256
"""Processes of RAS that are looked for here."""
_FAULTS, _TIMES = 9, slice(11, 15)
"""Fields of a process' stat behind its name."""
_CHILDREN = 64
"""Most children of a process that are read: workers that load data or compile count as its work."""


def read(hardware: Hardware, memory: HangMemory, options: HangOptions) -> HangReading | Absent:
    """One reading of every GPU and, of jobs that are due and still look stuck, a look."""
    nvml, began = hardware.nvml, hardware.clock.mono()
    known = {pid for job in memory.jobs.values() for pids in job.processes.values() for pid in pids}
    due = {key for job in memory.jobs.values() if began >= job.count for key in job.processes}
    gpus = read_gpus(
        nvml, lambda gpu: _load(nvml, gpu, memory.supported.get(gpu.key, Supported()), known, gpu.key in due)
    )
    if isinstance(gpus, Absent):
        return gpus
    pids = {pid for item in gpus for pid in _pids(item)}
    held = memory.owners if began < memory.owned + OWNED else {}
    owners = {pid: held[pid] if pid in held else _owner(hardware.sysfs, pid) for pid in sorted(pids)}
    mono = hardware.clock.mono()
    reading = HangReading(gpus, owners, owned=memory.owned if held else mono)
    if pids and mono >= memory.listened + LISTENED:
        reading = replace(reading, listeners=_listeners(hardware.ras, owners))
    looked = {
        owner: job for owner, job in memory.jobs.items() if mono >= job.due and still_stuck(job, reading)
    }
    if not looked:
        return reading
    answers = hardware.ras.ask(options.ask)
    looks = {owner: _look(hardware, owner, job, answers) for owner, job in looked.items()}
    return replace(reading, looks=looks)


def still_stuck(job: WatchedJob, reading: HangReading) -> bool:
    """Tell whether a job looks as it did at the last poll: some GPU all busy, and no byte since."""
    loads = [load for key, load in reading.loads.items() if key in job.processes]
    known = [load for load in loads if not isinstance(load, Absent)]
    busy = any(not isinstance(load.busy, Absent) and load.busy >= ALL_BUSY for load in known)
    return len(known) == len(job.processes) and busy


def _owner(sysfs: Sysfs, pid: int) -> str:
    """Return the owner of a process: pod:UID, slurm:ID, container:ID, or the process that started it.

    A process that cannot be read has no owner, ``""``; all such processes count as a single job. A worker
    of a probe has PROBE, wherever it runs.
    """
    if _WORKER in value_or(sysfs.read(f"/proc/{pid}/cmdline"), ""):
        return PROBE
    if named := process_owner(sysfs, pid):
        return named
    known = state_and_parent(value_or(sysfs.read(f"/proc/{pid}/stat"), ""))
    return f"parent:{known[1]}" if known and known[1] > 1 else ""


def _look(hardware: Hardware, owner: str, job: WatchedJob, answers: Sequence[RasReport] | Absent) -> JobLook:
    sysfs, ras = hardware.sysfs, hardware.ras
    pids = sorted({pid for held in job.processes.values() for pid in held if pid})
    there = ras.listeners(pids[0] if pids else None)
    processes = {pid: _process(sysfs, pid) for pid in pids}
    if all(isinstance(one.state, Absent) for one in processes.values()):
        # NVML names processes as another pid namespace does, or not at all: those of RAS may be ours.
        named = {pid: _process(sysfs, pid) for pid in _named(answers)}
        processes = {p: one for p, one in named.items() if not isinstance(one.state, Absent)} or processes
    return JobLook(
        hardware.clock.mono(), processes, answers, there,
        elsewhere=_elsewhere(ras, there), about=_about(sysfs, owner),
    )  # fmt: skip


def _listeners(ras: Ras, owners: Mapping[int, str]) -> Sequence[RasListener]:
    """Who listens in the network namespaces of jobs, one process of each asked for it."""
    first = {owner: pid for pid, owner in sorted(owners.items(), reverse=True)}
    found: dict[int, RasListener] = {}
    for pid in first.values():
        found |= {one.inode: one for one in value_or(ras.listeners(pid), ())}
    return tuple(found.values())


def _elsewhere(ras: Ras, there: Sequence[RasListener] | Absent) -> bool:
    """Tell whether the job's RAS listens where we cannot reach it: in a network namespace of its own."""
    here = ras.listeners()
    if isinstance(there, Absent) or isinstance(here, Absent):
        return False
    known = {one.inode for one in here}
    return bool(there) and all(one.inode not in known for one in there)


def _process(sysfs: Sysfs, pid: int) -> JobProcess:
    status, stat = sysfs.read(f"/proc/{pid}/status"), sysfs.read(f"/proc/{pid}/stat")
    state, ticks, faults = _stat(stat, pid)
    files, disk = _files(sysfs, pid)
    cpu: float | Absent = ticks
    for child in _children(sysfs, pid):
        theirs, reads = _files(sysfs, child)
        files, disk = _more(files, theirs), _more(disk, reads)
        if not isinstance(cpu, Absent):
            cpu += value_or(_stat(sysfs.read(f"/proc/{child}/stat"), child)[1], 0.0)
    if isinstance(status, Absent):
        return JobProcess(state, status, status, files, disk, cpu, faults)
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    inner, uid = _number(fields.get("NSpid", "").split()[-1:]), _number(fields.get("Uid", "").split()[:1])
    return JobProcess(state, inner, uid, files, disk, cpu, faults)


def _children(sysfs: Sysfs, pid: int) -> Sequence[int]:
    """Return all descendants of a process: loaders and compilers."""
    found, at = [pid], 0
    while at < len(found) <= _CHILDREN:
        text = value_or(sysfs.read(f"/proc/{found[at]}/task/{found[at]}/children"), "")
        found += [number for child in text.split()[:_CHILDREN] if (number := whole(child)) is not None]
        at += 1
    return found[1 : _CHILDREN + 1]


def _more(own: int | Absent, child: int | Absent) -> int | Absent:
    """A figure of a process with that of a child, where each is known."""
    return own if isinstance(own, Absent) or isinstance(child, Absent) else own + child


def _files(sysfs: Sysfs, pid: int) -> tuple[int | Absent, int | Absent]:
    """Return a process's read and written bytes, in all and on disks; only root and its owner may know."""
    text = sysfs.read(f"/proc/{pid}/io")
    if isinstance(text, Absent):
        return text, text
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    odd = Absent(Why.MALFORMED, f"/proc/{pid}/io")
    moved: list[int | Absent] = []
    for names in (("rchar", "wchar"), ("read_bytes", "write_bytes")):
        found = [_number(fields.get(name, "").split()[:1]) for name in names]
        known = [each for each in found if not isinstance(each, Absent)]
        moved.append(sum(known) if known else odd)
    return moved[0], moved[1]


def _stat(text: str | Absent, pid: int) -> tuple[str | Absent, float | Absent, int | Absent]:
    """State, seconds of CPU time and pages waited for of a process, by its stat."""
    if isinstance(text, Absent):
        return text, text, text
    odd = Absent(Why.MALFORMED, f"/proc/{pid}/stat")
    known = state_and_parent(text)
    fields = text.rpartition(")")[2].split()
    faults = _number(fields[_FAULTS : _FAULTS + 1])
    # Its own and that of children that have ended, in user mode and in the kernel.
    ticks = [whole(field) for field in fields[_TIMES]]
    known_ticks = [each for each in ticks if each is not None]
    cpu = sum(known_ticks) / TICKS if len(known_ticks) == _TIMES.stop - _TIMES.start else odd
    return known[0] if known else odd, cpu, faults


def _number(words: Sequence[str]) -> int | Absent:
    found = whole(words[0]) if words else None
    return Absent(Why.MALFORMED, "no number") if found is None else found


def _load(
    nvml: Nvml, gpu: Gpu, known: Supported, pids: Container[int], due: bool,  # noqa: FBT001
) -> GpuLoad | Absent:  # fmt: skip
    """A GPU's load; bytes over NVLink where a process is new there, or they are `due`."""
    asked = ask_gpu(nvml, gpu.key, (PROCESSES, UTILIZATION, POWER), known, (LIMIT,))
    if isinstance(asked, Absent):
        return asked
    processes, use = listed_processes(asked.json(PROCESSES)), asked.json(UTILIZATION)
    load = GpuLoad(
        processes, _share(use, "gpu"), as_watts(asked.number(POWER)), as_watts(asked.number(LIMIT)),
        NOT_COUNTED, asked.supported, _share(use, "memory"),
    )  # fmt: skip
    here = () if isinstance(processes, Absent) else processes
    if not here or not (due or any((pid or 0) not in pids for pid in here)):
        return load
    counters = ask_gpu(nvml, gpu.key, SENT, load.supported)
    if isinstance(counters, Absent):
        return replace(load, sent=counters)
    true, kib = (counters.whole(question) for question in SENT)
    sent = true if not isinstance(true, Absent) else kib if isinstance(kib, Absent) else kib * KIB
    return replace(load, sent=sent, supported=counters.supported)


def _share(use: Json | Absent, of: str) -> float | Absent:
    """A member of the GPU's use, 0 to 1."""
    percent = as_float(member(use, of))
    return percent if isinstance(percent, Absent) else percent / 100


def _pids(item: GpuReading[GpuLoad]) -> Iterable[int]:
    listed = () if isinstance(item.value, Absent) else value_or(item.value.processes, ())
    return (pid for pid in listed if pid is not None)


def _named(answers: Sequence[RasReport] | Absent) -> Sequence[int]:
    """The processes that RAS names, not too many of them."""
    ranks = (rank for one in value_or(answers, ()) for comm in one.communicators for rank in comm.ranks)
    return sorted({rank.pid for rank in ranks})[:_NAMED]


def _about(sysfs: Sysfs, owner: str) -> str:
    """Return the owner of a job in words; a pod by its name, as far as its log folder shows that."""
    kind, _, name = owner.partition(":")
    if kind == "slurm":
        return f"Slurm job {name}"
    if kind == "pod":
        parts = (folder.split("_") for folder in value_or(sysfs.entries("/var/log/pods"), ()))
        named = next((f"{one[0]}/{one[1]}" for one in parts if one[2:] == [name]), name)
        return f"pod {named}"
    words = {"container": f"container {name}", "parent": f"a job that process {name} started"}
    return words.get(kind, "a job")
