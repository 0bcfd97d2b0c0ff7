"""The owner of a process by its control group (a pod, a Slurm job or a container), and its parent process.

A control group names an owner only where the scheduler alone makes names. Paths are read from the left, and
the first owner ends the search. Its user chooses all names below it, and all below a user's slice. Only
slices of the system's manager count, since systemd delegates services and scopes only.

A reader in another namespace of control groups sees `/../..` in place of the path to the nearest common
group, which is above the reader's own. A name there is sure if it is the scheduler's own, such as `podUID` or
`slurmstepd.scope`. The owner of `/../job_7` is unknown.
"""

import re
from collections.abc import Sequence

from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent, value_or, whole

CONTAINER = "container:"
PROBE = "probe"
"""Takes the place of an owner for a probe of wirewatch itself."""
CONTAINER_DIGITS = 12
"""Digits of a container's id, as docker and podman list them."""
SLURM_CONFS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
"""The second is slurmd's own, where the controller hands out the configuration."""
_SPOOL = re.compile(r"^\s*SlurmdSpoolDir\s*=\s*(/[^\s#]*)", re.ASCII | re.IGNORECASE | re.MULTILINE)
_DEFAULT_SPOOL = "/var/spool/slurmd"
_STEP = re.compile(r".+_(\d+)\.\d+(?:\.\d+)?", re.ASCII)
"""The socket of a step, NODE_JOB.STEP; a part of a heterogeneous job has a third number."""
_UP = r"(?:\.\./)+"
_SLICES = r"(?!user[-.])(?:[^/]+\.slice/)+?"
_KUBE = r"(?:[^/]+-)?kubepods(?:-burstable|-besteffort)?"
_UID = r"pod([0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}|[0-9a-f]{32})"
"""The systemd driver writes hyphens as underscores; a static pod has 32 digits without."""
_ID = r"([0-9a-f]{64})"
_PODS = (
    rf"(?:(?:{_SLICES})?|{_UP}(?:kubelet\.slice/)?(?:{_KUBE}\.slice/)*){_KUBE}-{_UID}\.slice",
    rf"(?:{_SLICES}containerd\.service/)?{_KUBE}-{_UID}\.slice:cri-containerd:{_ID}",
    rf"(?:(?:{_UP})?(?:kubelet/)?kubepods/|{_UP})(?:burstable/|besteffort/)?{_UID}",
)
"""Paths of pods: by the systemd driver, by it with containerd's cgroupfs driver, by the cgroupfs driver."""
_STEPD = rf"(?:{_SLICES}|{_UP}(?:system\.slice/)?)(?:[^/]+_)?slurmstepd\.scope/"
_JOBS = (
    rf"{_STEPD}job_(\d{{1,20}})",
    rf"{_STEPD}(s[0-9A-Z]{{13}})",
    rf"(?:{_UP})?slurm(?:_[^/]+)?/uid_\d+/job_(\d{{1,20}})",
)
"""Paths of Slurm jobs: version 2 by number, version 2 by SLUID (the default since 26.05), version 1."""
_ENGINES = (
    rf"(?:{_SLICES}|{_UP}(?:(?:system|machine)\.slice/)?)(?:docker|libpod|crio|cri-containerd)-{_ID}\.scope",
    rf"(?:{_UP})?(?:docker/|crio/crio-|libpod_parent/(?:[0-9a-f]{{64}}/)?libpod-){_ID}",
)
"""Paths of containers: by the systemd driver, by the cgroupfs driver."""
_PLACES = tuple(
    (kind, re.compile(rf"/(?:{place})(?=/|$)", re.ASCII))
    for kind, places in (("pod:", _PODS), ("slurm:", _JOBS), (CONTAINER, _ENGINES))
    for place in places
)


def process_owner(sysfs: Sysfs, pid: int) -> str:
    """Return `owner_of` of a process; empty where it cannot be read, or slurmd's files contradict it."""
    owner = owner_of(value_or(sysfs.read(f"/proc/{pid}/cgroup"), ""))
    kind, _, job = owner.partition(":")
    steps = _stepping(sysfs) if kind == "slurm" and job.isdigit() else frozenset()
    return "" if steps and job not in steps else owner


def owner_of(cgroup: str) -> str:
    """Return the owner by /proc/PID/cgroup: `pod:UID`, `slurm:ID` or `container:ID`.

    It is empty where no line names an owner, and where two lines (of version 1) name different owners.
    """
    found = {_owner(path) for path in paths_of(cgroup)} - {""}
    return found.pop() if len(found) == 1 else ""


def paths_of(cgroup: str) -> Sequence[str]:
    """Return the path of each line, one for each hierarchy."""
    # Not splitlines: a user may put any of its other separators into a name.
    return [line.split(":", 2)[2] for line in cgroup.split("\n") if line.count(":") > 1]


def _owner(path: str) -> str:
    found = ((kind, match[1]) for kind, place in _PLACES if (match := place.match(path)))
    kind, name = next(found, ("", ""))
    if kind == CONTAINER:
        return kind + name[:CONTAINER_DIGITS]
    return kind + (name.replace("_", "-").lower() if kind == "pod:" else name)


def _stepping(sysfs: Sysfs) -> frozenset[str]:
    """Return the jobs whose steps slurmd runs, by the sockets in its folder; none for an unknown folder."""
    texts = (sysfs.read(conf) for conf in SLURM_CONFS)
    conf = next((text for text in texts if not isinstance(text, Absent)), None)
    if conf is None:
        return frozenset()
    named = _SPOOL.findall(conf)
    steps = map(_STEP.fullmatch, value_or(sysfs.entries(named[-1] if named else _DEFAULT_SPOOL), ()))
    return frozenset(step[1] for step in steps if step)


def state_and_parent(stat: str) -> tuple[str, int] | None:
    """Return state and parent of a /proc/PID/stat, whose name may hold anything; None: no such text."""
    fields = stat.rpartition(")")[2].split()
    parent = whole(fields[1]) if len(fields) > 1 else None
    return None if parent is None else (fields[0][:1], parent)
