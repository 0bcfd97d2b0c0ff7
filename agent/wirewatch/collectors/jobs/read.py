"""Reading the rings of running jobs, and once for each process whose it is and NCCL's settings in it."""

import re
from collections.abc import Mapping

from wirewatch.collectors.jobs.model import MOST_RINGS, JobsMemory, JobsOptions, JobsReading, RingProcess
from wirewatch.core.jobs import Ring, RingReading, RingsReading, RingState
from wirewatch.core.ports import Hardware, Sysfs
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.settings import parse_nccl_conf

CONF = "/etc/nccl.conf"
_NO_PID = Absent(Why.MISSING, "its process cannot be seen from here")
_SLURM = re.compile(r"/job_(\d{1,20})(?:/|$)", re.ASCII)
"""Of slurmstepd's tree in version 2, and of `/slurm/uid_N/job_N` in version 1."""
_POD = re.compile(r"pod([0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}|[0-9a-f]{32})", re.ASCII)
"""The systemd driver writes hyphens as underscores; a static pod has 32 digits without."""
_MOST_SETTINGS, _LONGEST = 64, 200
"""Settings of one process that are kept, and letters of each."""


def read(hardware: Hardware, memory: JobsMemory, options: JobsOptions) -> JobsReading | Absent:
    """The rings with what is new in each; where there is no folder of rings there is nothing to watch."""
    polled = hardware.rings.poll({name: ring.last for name, ring in memory.rings.items()})
    if isinstance(polled, Absent):
        return JobsReading(polled) if polled.why is Why.MISSING else polled
    followed = RingsReading(_first(polled.rings), polled.refused)
    processes = {
        one.ring.name: memory.processes.get(one.ring.name) or _process(hardware.sysfs, one.ring)
        for one in followed.rings
    }
    return JobsReading(followed, processes, _conf(hardware.sysfs), names=options.names)


def owner_of(cgroup: str) -> str:
    """Who a process belongs to by its /proc/PID/cgroup: `slurm:ID`, `pod:UID`, or empty.

    A job of Slurm inside a pod is the pod's: that is what this node was asked for.
    """
    pod = _POD.search(cgroup)
    if pod:
        return f"pod:{pod[1].replace('_', '-').lower()}"
    job = _SLURM.search(cgroup)
    return f"slurm:{job[1]}" if job else ""


def settings_of(environ: bytes) -> dict[str, str]:
    """NCCL's settings in a /proc/PID/environ; nothing else of it is kept."""
    found: dict[str, str] = {}
    for entry in environ.split(b"\0"):
        if entry.startswith(b"NCCL_") and len(found) < _MOST_SETTINGS:
            name, equals, value = entry.partition(b"=")
            if equals:
                found.setdefault(_text(name), _text(value))
    return found


def _first(rings: tuple[RingReading, ...]) -> tuple[RingReading, ...]:
    """As many as are followed: those that live first, then the newest."""
    if len(rings) <= MOST_RINGS:
        return rings
    order = sorted(rings, key=lambda one: (one.ring.state is not RingState.LIVE, -one.ring.created))
    return tuple(order[:MOST_RINGS])


def _process(sysfs: Sysfs, ring: Ring) -> RingProcess:
    if isinstance(ring.host_pid, Absent):
        return RingProcess("", _NO_PID)
    cgroup = sysfs.read(f"/proc/{ring.host_pid}/cgroup")
    environ = sysfs.data(f"/proc/{ring.host_pid}/environ")
    return RingProcess(
        "" if isinstance(cgroup, Absent) else owner_of(cgroup),
        environ if isinstance(environ, Absent) else settings_of(environ),
    )


def _conf(sysfs: Sysfs) -> Mapping[str, str]:
    text = sysfs.read(CONF)
    return {} if isinstance(text, Absent) else parse_nccl_conf(text).settings


def _text(text: bytes) -> str:
    return text[:_LONGEST].decode("utf-8", "replace")
