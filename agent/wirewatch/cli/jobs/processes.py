"""What only a job's user or root may read of its processes: NCCL's settings; and how busy their threads are.

Nothing is kept of an environment but the variables whose names begin with NCCL_.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from wirewatch.core.owners import state_and_parent
from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent, Why, whole
from wirewatch.hw.files import SystemSysfs
from wirewatch.jobs.explain.evidence import JobEvidence, JobSettings
from wirewatch.jobs.explain.gather import with_settings, with_threads
from wirewatch.nccl.settings import settings_of_environ

LOOK = 1.0
"""Seconds for which threads are watched."""
ROOT = 0
_MOST_PROCESSES = 64
_DEEPEST = 64
"""Processes above one that are looked at."""
_USER, _SYSTEM = 11, 12
"""Fields of /proc/PID/stat after the name in parentheses (proc_pid_stat(5)), in ticks."""


def read_processes(evidence: JobEvidence) -> JobEvidence:
    """The evidence with what this process may read of the job's processes; waits LOOK seconds."""
    sysfs, pids = SystemSysfs(), evidence.pids[:_MOST_PROCESSES]
    settings = [JobSettings(pid, settings_of(sysfs, pid)) for pid in pids]
    before, began = {pid: thread_times(sysfs, pid) for pid in pids}, time.monotonic()
    time.sleep(LOOK if pids else 0.0)
    seconds = time.monotonic() - began
    after = {pid: thread_times(sysfs, pid) for pid in pids}
    threads = {pid: busiest(before[pid], after[pid], seconds) for pid in pids}
    return with_threads(with_settings(evidence, settings), threads)


def settings_of(sysfs: Sysfs, pid: int) -> Mapping[str, str] | Absent:
    """NCCL's settings in the environment of a process of this user, or of any as root; else DENIED."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError as error:
        return Absent(Why.MISSING, f"process {pid}: {error.strerror}", error.errno)
    if os.geteuid() not in {ROOT, owner}:
        return Absent(Why.DENIED, f"process {pid} belongs to user {owner}: ask as that user or as root")
    data = sysfs.data(f"/proc/{pid}/environ")
    if isinstance(data, Absent):
        return data
    # That of a process that ends, or has just begun.
    return settings_of_environ(data) if data else Absent(Why.MISSING, f"process {pid} shows no environment")


def ancestors(pid: int) -> Sequence[int]:
    """The processes that started one, its parent first, without process 1 and what stands above it."""
    sysfs, found = SystemSysfs(), [pid]
    while len(found) < _DEEPEST:
        text = sysfs.read(f"/proc/{found[-1]}/stat")
        known = None if isinstance(text, Absent) else state_and_parent(text)
        if known is None or known[1] <= 1:
            break
        found.append(known[1])
    return found[1:]


def thread_times(sysfs: Sysfs, pid: int) -> Mapping[str, float] | Absent:
    """CPU seconds of each thread of a process, by its id."""
    threads = sysfs.entries(f"/proc/{pid}/task")
    if isinstance(threads, Absent):
        return threads
    found = {}
    for thread in threads:
        text = sysfs.read(f"/proc/{pid}/task/{thread}/stat")
        seconds = None if isinstance(text, Absent) else cpu_seconds(text)
        if seconds is not None:
            found[thread] = seconds
    return found


def cpu_seconds(stat: str) -> float | None:
    """User and system seconds of a /proc/PID/stat; None for any other text."""
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _SYSTEM:
        return None
    ticks = [whole(fields[_USER]), whole(fields[_SYSTEM])]
    known = [one for one in ticks if one is not None]
    return sum(known) / os.sysconf("SC_CLK_TCK") if len(known) == len(ticks) else None


def busiest(
    before: Mapping[str, float] | Absent, after: Mapping[str, float] | Absent, seconds: float
) -> float | Absent:
    """The share of a core that the busiest thread took between two looks; only threads of both count."""
    if isinstance(before, Absent):
        return before
    if isinstance(after, Absent):
        return after
    shares = _shares(before, after, seconds)
    return min(1.0, max(shares)) if shares else Absent(Why.MISSING, "no thread of it was seen twice")


def _shares(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> Sequence[float]:
    return [(after[one] - before[one]) / seconds for one in after if one in before and seconds > 0]
