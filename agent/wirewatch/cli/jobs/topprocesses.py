"""The processes of `wirewatch top`: user, CPU and command of each, as /proc of this machine has them."""

import pwd
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from wirewatch.cli.jobs.explain import cpu_seconds
from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent, whole
from wirewatch.documents.status import NodeSnapshot
from wirewatch.hw.files import SystemSysfs

PLAYED = frozenset({"replay", "synthetic"})
"""Sources of a state that are recordings."""
_STARTED = 19
"""Field of /proc/PID/stat after the name in parentheses (proc_pid_stat(5)): when it began."""
_LONG = 1000
"""Most characters of a command."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process on this machine; `cpu`: share of one core since the last look, None at the first.

    `began`: clock ticks since boot. `seconds` of CPU until `at`, on the monotonic clock.
    """

    user: str
    command: str
    cpu: float | None
    began: int
    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class HostProcesses:
    """The processes of a look, and why others could not be read."""

    known: Mapping[int, HostProcess] = field(default_factory=dict)
    unread: Mapping[int, Absent] = field(default_factory=dict)

    def after(self, sysfs: Sysfs, pids: Iterable[int]) -> "HostProcesses":
        """Return /proc's facts about these processes now."""
        read = {pid: _process(sysfs, pid, self.known.get(pid)) for pid in pids}
        return HostProcesses(
            {pid: one for pid, one in read.items() if not isinstance(one, Absent)},
            {pid: one for pid, one in read.items() if isinstance(one, Absent)},
        )


def host_processes(before: HostProcesses, snapshot: NodeSnapshot) -> HostProcesses:
    """Facts of this machine about the processes on its GPUs; processes of a recording are not its own."""
    gpus = (gpu for job in snapshot.jobs.jobs for gpu in job.evidence.gpus)
    pids = {pid for gpu in gpus for pid in gpu.pids if snapshot.state.source not in PLAYED}
    return before.after(SystemSysfs(), sorted(pids))


def _process(sysfs: Sysfs, pid: int, before: HostProcess | None) -> HostProcess | Absent:
    stat, status = sysfs.read(f"/proc/{pid}/stat"), sysfs.read(f"/proc/{pid}/status")
    arguments = sysfs.data(f"/proc/{pid}/cmdline")
    if isinstance(stat, Absent):
        return stat
    if isinstance(status, Absent):
        return status
    at, seconds = time.monotonic(), cpu_seconds(stat) or 0.0
    name, _, fields = stat.partition("(")[2].rpartition(")")
    began = whole([*fields.split(), *[""] * _STARTED, ""][_STARTED]) or 0
    # A number may have become another process.
    same = before is not None and before.began == began and at > before.at
    cpu = max(seconds - before.seconds, 0.0) / (at - before.at) if before is not None and same else None
    words = b"" if isinstance(arguments, Absent) else arguments
    command = _command(words.decode("utf-8", "replace")) or f"[{name}]"
    return HostProcess(_user(status), command, cpu, began, seconds, at)


def _command(arguments: str) -> str:
    """A command line whose program has no folder."""
    program, *rest = arguments.rstrip("\0").split("\0")
    return " ".join((program.rpartition("/")[2], *rest))[:_LONG]


def _user(status: str) -> str:
    """The name of the user that a process runs as, or the number."""
    line = next((line for line in status.splitlines() if line.startswith("Uid:")), "")
    uid = whole([*line.split(), "", ""][1])
    return "" if uid is None else _name(uid)


@cache
def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
