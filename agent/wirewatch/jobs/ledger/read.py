"""Read for the ledger: use and power of each computing GPU, and the activity of its processes.

No NVLink counter and no GPM is asked here: the first are dear, and the second disturbs the first (ADR 0013).
"""

from collections.abc import Mapping, Sequence

from wirewatch.core.collector import read_gpus
from wirewatch.core.nvml import MIG_MODE, Supported, as_float, as_watts, ask_gpu, listed_processes, member
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question, Sysfs
from wirewatch.core.types import Absent, Why, value_or, whole
from wirewatch.jobs.ledger.model import (
    GpuSight,
    LedgerMemory,
    LedgerOptions,
    LedgerReading,
    ProcessSight,
)

PROCESSES = Question("ComputeRunningProcesses")
WHO = (PROCESSES, MIG_MODE)
USE = (Question("UtilizationRates"), Question("PowerUsage"))
LIMIT = Question("PowerManagementDefaultLimit")
"""Milliwatts, as PowerUsage."""
UNUSED = Absent(Why.MISSING, "not asked: nothing computes there")
_SHORT = Absent(Why.MISSING, "not in this text of /proc/PID/stat")
TICKS = 100.0
"""USER_HZ, of which /proc/PID/stat counts: 100 a second on every Linux that NVIDIA's driver runs on."""
_PLACES = (1, 11, 12, 19)
"""Fields behind the name in /proc/PID/stat: parent, user and system time, begin; 4, 14, 15, 22 of proc(5)."""


def read(hardware: Hardware, memory: LedgerMemory, options: LedgerOptions) -> LedgerReading | Absent:
    """Return one look at the GPUs and their processes; none while nothing computes and it is not time."""
    # A little early counts: the schedule's turns are not exact.
    if not memory.gpus and hardware.clock.mono() - memory.mono < options.idle - options.interval / 2:
        return LedgerReading(looked=False)
    nvml = hardware.nvml
    none = Supported()
    gpus = read_gpus(
        nvml,
        lambda gpu: _sight(nvml, gpu, memory.supported.get(gpu.key, none), used=gpu.key in memory.gpus),
    )
    if isinstance(gpus, Absent):
        return gpus
    listed = (value_or(item.value.processes, ()) for item in gpus if not isinstance(item.value, Absent))
    pids = sorted({pid for some in listed for pid in some if pid})
    return LedgerReading(gpus, {pid: _process(hardware.sysfs, pid) for pid in pids})


def process_sight(stat: str, files: str | Absent) -> ProcessSight | None:
    """Return a process by the texts of /proc/PID/stat and /proc/PID/io; None: the first is no such text."""
    fields = stat.rpartition(")")[2].split()
    if not fields:
        return None
    parent, user, system, began = (whole(fields[at]) if at < len(fields) else None for at in _PLACES)
    read, written = _files(files)
    return ProcessSight(
        fields[0][:1], _SHORT if began is None else began / TICKS,
        _SHORT if user is None or system is None else (user + system) / TICKS, read, written,
        parent if parent is not None and parent > 1 else 0,
    )  # fmt: skip


def _files(text: str | Absent) -> tuple[int | Absent, int | Absent]:
    """Bytes read and written; what goes through memory that maps a file counts by its pages alone."""
    if isinstance(text, Absent):
        return text, text
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    return _most(fields, ("rchar", "read_bytes")), _most(fields, ("wchar", "write_bytes"))


def _most(fields: Mapping[str, str], names: Sequence[str]) -> int | Absent:
    found = [whole(fields.get(name, "").strip()) for name in names]
    return max((one for one in found if one is not None), default=Absent(Why.MALFORMED, "no number in io"))


def _process(sysfs: Sysfs, pid: int) -> ProcessSight | Absent:
    stat = sysfs.read(f"/proc/{pid}/stat")
    if isinstance(stat, Absent):
        return stat
    found = process_sight(stat, sysfs.read(f"/proc/{pid}/io"))
    return Absent(Why.MALFORMED, f"/proc/{pid}/stat") if found is None else found


def _sight(nvml: Nvml, gpu: Gpu, known: Supported, *, used: bool) -> GpuSight | Absent:
    """Return a GPU's processes and, where there are some, use and power; at once if it was `used`."""
    asked = ask_gpu(nvml, gpu.key, (*WHO, *USE) if used else WHO, known, (LIMIT,) if used else ())
    if isinstance(asked, Absent):
        return asked
    processes = listed_processes(asked.json(PROCESSES))
    if not used and processes and not isinstance(processes, Absent):
        return _sight(nvml, gpu, asked.supported, used=True)
    if not used or not processes:
        return GpuSight(processes, UNUSED, UNUSED, UNUSED, asked.supported)
    busy = as_float(member(asked.json(USE[0]), "gpu"))
    return GpuSight(
        processes, busy if isinstance(busy, Absent) else min(1.0, max(0.0, busy / 100)),
        as_watts(asked.number(USE[1])), as_watts(asked.number(LIMIT)), asked.supported,
    )  # fmt: skip
