"""Which pods of this node still live, of its files: before Kubernetes 1.34 the kubelet also lists ended ones.

/var/log/pods/<namespace>_<name>_<uid> names the UIDs of a pod, and a pod that lives has a cgroup. Whatever
cannot be read counts as alive. A pod of an old name that was admitted in this very moment, and has no cgroup
yet, reads as ended until it has one.

Source: kubelet, pkg/kubelet/cm (cgroup names of both drivers) and kuberuntime (log folders).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.ports import Sysfs
from wirewatch.core.types import Absent, Why

LOGS = "/var/log/pods"
CGROUPS = "/sys/fs/cgroup"
_HIERARCHIES = ("", "/memory", "/pids", "/cpu,cpuacct", "/systemd")
"""Version 2 has one tree; of the trees of version 1 those that every kubelet uses."""
_ROOTS = ("kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods")
"""Of the systemd and the cgroupfs driver; the latter two where `--cgroup-root` is /kubelet."""
_CLASS = re.compile(r"(?:.*-)?(burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.*-)?pod([0-9a-zA-Z_-]+?)(?:\.slice)?")


@dataclass(frozen=True, slots=True)
class PodLife:
    """UIDs of the log folder by namespace and name, and UIDs that have a cgroup."""

    named: Mapping[tuple[str, str], tuple[str, ...]]
    alive: frozenset[str]

    def uids(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """The UIDs of a pod that live, none if it has ended; None where that cannot be told.

        It cannot while a living pod has no log folder yet: it may be a new one of the same name.
        """
        mine = self.named.get((namespace, name), ())
        living = tuple(uid for uid in mine if uid in self.alive)
        if living:
            return living
        known = {uid for uids in self.named.values() for uid in uids}
        return () if mine and self.alive <= known else None


def read_podlife(sysfs: Sysfs) -> PodLife | Absent:
    """What the files of the node tell; Absent where the log folder or the cgroups cannot be read."""
    folders = sysfs.entries(LOGS)
    if isinstance(folders, Absent):
        return folders
    named: dict[tuple[str, str], tuple[str, ...]] = {}
    for folder in folders:
        namespace, _, rest = folder.partition("_")
        name, _, uid = rest.partition("_")
        if uid:
            named[namespace, name] = (*named.get((namespace, name), ()), uid)
    alive = _alive(sysfs)
    return alive if isinstance(alive, Absent) else PodLife(named, alive)


def _alive(sysfs: Sysfs) -> frozenset[str] | Absent:
    """UIDs of all pods that have a cgroup in any tree of this machine."""
    found: set[str] = set()
    trees = 0
    for tree in (f"{CGROUPS}{hierarchy}/{root}" for hierarchy in _HIERARCHIES for root in _ROOTS):
        inside = sysfs.entries(tree)
        if isinstance(inside, Absent):
            if inside.why is Why.MISSING:
                continue
            return inside
        classes = {match[1]: match[0] for match in map(_CLASS.fullmatch, inside) if match}
        if len(classes) < len(("burstable", "besteffort")):
            return Absent(Why.MALFORMED, f"{tree}: not laid out by a kubelet")
        listed = [inside, *(sysfs.entries(f"{tree}/{name}") for name in classes.values())]
        for names in listed:
            if isinstance(names, Absent):
                return names
            found.update(_uids(names))
        trees += 1
    return frozenset(found) if trees else Absent(Why.MISSING, f"no pods' cgroups below {CGROUPS}")


def _uids(names: Sequence[str]) -> Iterator[str]:
    """UIDs of the pods among names in a folder; the systemd driver writes hyphens as underscores."""
    for name in names:
        match = _POD.fullmatch(name)
        if match:
            yield match[1].replace("_", "-")
