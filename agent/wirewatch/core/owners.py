"""Whose a process is: a pod's, a Slurm job's or a container's, by its control group; who started it. Pure."""

import re

from wirewatch.core.types import whole

CONTAINER = "container:"
CONTAINER_DIGITS = 12
"""Of a container's id, as docker and podman list them."""
_POD = re.compile(r"pod([0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}|[0-9a-f]{32})", re.ASCII)
"""The systemd driver writes hyphens as underscores; a static pod has 32 digits without."""
_SLURM = re.compile(r"/job_(\d{1,20})(?:/|$)", re.ASCII | re.MULTILINE)
"""Of slurmstepd's tree in version 2, and of `/slurm/uid_N/job_N` in version 1."""
_CONTAINER = re.compile(r"(?:docker|libpod|crio|cri-containerd)[-/]([0-9a-f]{64})", re.ASCII)


def owner_of(cgroup: str) -> str:
    """Return the owner by /proc/PID/cgroup: `pod:UID` before `slurm:ID`, `container:ID`, or empty."""
    if pod := _POD.search(cgroup):
        return f"pod:{pod[1].replace('_', '-').lower()}"
    if job := _SLURM.search(cgroup):
        return f"slurm:{job[1]}"
    container = _CONTAINER.search(cgroup)
    return f"{CONTAINER}{container[1][:CONTAINER_DIGITS]}" if container else ""


def state_and_parent(stat: str) -> tuple[str, int] | None:
    """Return state and parent of a /proc/PID/stat, whose name may hold anything; None: no such text."""
    fields = stat.rpartition(")")[2].split()
    parent = whole(fields[1]) if len(fields) > 1 else None
    return None if parent is None else (fields[0][:1], parent)
