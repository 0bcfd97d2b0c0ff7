"""The folders below the folder of rings: whose folder a ring lies in says whose it is.

A kubelet, a Prolog or an administrator makes a folder for each job, and a job reaches its own alone. So the
folder is the identity, which the platform chose. At the shared level a file's owner is all that is known.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import absent_errno

_POD = re.compile(r"pod([0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}|[0-9a-f]{32})")
Refuse = Callable[[str, Absent], None]
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
OLD = "rings"
"""Where pods of version 0.2 leave theirs; of the shared level."""
KINDS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    "pods": ("pod", re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")),
    "slurm": ("slurm", re.compile(r"[1-9][0-9]{0,19}", re.ASCII)),
    "containers": ("container", re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
}
"""By the name of a folder: the kind of owners that its folders are of, and their names."""
FOLDERS, LISTED = 256, 4096
"""Folders of a kind that are looked into, and names of a folder that are looked at."""
GONE = 3600.0
"""Seconds for which a pod has no ring before its folder may go."""
INITIAL = 0xEFFFFFFC
"""Inode of the first namespace of processes, which Linux fixes: there a process sees all others."""
_ANSWERS = 1 << 16


@dataclass(frozen=True, slots=True)
class RingFolder:
    """A folder with rings: `at` below the root, with a slash at its end; no `owner` where it is shared."""

    at: str = ""
    owner: str = ""


def ring_folders(root: int, refuse: Refuse) -> Iterator[RingFolder]:
    """Find the root and the folders in it that may be trusted; `refuse` gets the others."""
    yield RingFolder()
    for name in (OLD, *KINDS):
        with opened(root, name, refuse) as kind:
            if kind is not None and name == OLD:
                above = os.fstat(root)
                if above.st_mode & stat.S_IXOTH and (wrong := _made_by_others(above, os.fstat(kind))):
                    refuse(name, Absent(Why.DENIED, f"{wrong}, and could put another folder in its place"))
                else:
                    yield RingFolder(f"{name}/")
            elif kind is not None and (wrong := _untrusted(os.fstat(root), os.fstat(kind))):
                refuse(name, Absent(Why.DENIED, f"{wrong}, so that no name in it says whose a ring is"))
            elif kind is not None:
                yield from _jobs_folders(root, kind, name, refuse)


def _made_by_others(root: os.stat_result, kind: os.stat_result) -> str:
    """Say who made a folder, where that is neither root nor the agent nor the owner of the root."""
    return "" if kind.st_uid in {0, os.geteuid(), root.st_uid} else f"user {kind.st_uid} made it"


def _untrusted(root: os.stat_result, kind: os.stat_result) -> str:
    """Say who could give a folder a name that the platform did not choose; empty for nobody."""
    if wrong := _made_by_others(root, kind):
        return wrong
    if kind.st_mode & stat.S_IWGRP and kind.st_gid not in {0, root.st_gid}:
        return f"group {kind.st_gid} may write there"
    # A kubelet hands the mode of this folder on to those of pods, which any user of a pod writes to.
    return "any user may write there" if kind.st_mode & stat.S_IWOTH and root.st_mode & stat.S_IXOTH else ""


def _jobs_folders(root: int, kind: int, name: str, refuse: Refuse) -> Iterator[RingFolder]:
    """Find the folders of jobs in a folder of one kind."""
    owner, pattern = KINDS[name]
    ways = os.fstat(root).st_mode & os.fstat(kind).st_mode & stat.S_IXOTH
    with os.scandir(kind) as entries:
        changed = {one.name: _changed(one) for one in islice(entries, LISTED)}
    # Those in which rings came or went last: folders that were left behind hide no job that is new.
    names = sorted(changed, key=lambda one: (-changed[one], one))
    good = [one for one in names if pattern.fullmatch(one)]
    for odd in sorted({*names} - {*good}):
        refuse(f"{name}/{odd}", Absent(Why.MALFORMED, f"not the name of a {owner}"))
    if more := len(good[FOLDERS:]):
        refuse(f"{name}/...", Absent(Why.MALFORMED, f"{more} more folders than are looked into"))
    for one in good[:FOLDERS]:
        at = f"{name}/{one}/"
        with opened(root, at, refuse) as folder:
            if folder is not None and ways and os.fstat(folder).st_mode & stat.S_IWOTH:
                refuse(at, Absent(Why.DENIED, "any user may write there, and so forge its rings"))
            elif folder is not None:
                yield RingFolder(at, f"{owner}:{one}")


def _changed(entry: "os.DirEntry[str]") -> float:
    """Return when names in a folder changed last, in Unix seconds; 0 where it is gone."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


@contextmanager
def opened(root: int, at: str, refuse: Refuse) -> Iterator[int | None]:
    """Open a folder below the root and close it at the end; None: it is not there, or is refused."""
    at = at.rstrip("/") or "."  # with a slash at its end a link would be followed
    try:
        handle = os.open(at, FOLDER, dir_fd=root)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        found = absent_errno(error.errno, at)
        if found.why is Why.EXHAUSTED:
            raise
        refuse(at, found)
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def removable(about: os.stat_result) -> bool:
    """Tell whether we may remove files of others in a folder: as its owner, as root, or as its group."""
    user, shared = os.geteuid(), about.st_mode & (stat.S_ISVTX | stat.S_IWGRP) == stat.S_IWGRP
    return user in {0, about.st_uid} or (shared and about.st_gid in {os.getegid(), *os.getgroups()})


def remove_folder(root: int, at: str) -> None:
    """Remove the folder of a job with all that is left in it; what cannot be removed stays."""
    shutil.rmtree(at.rstrip("/"), ignore_errors=True, dir_fd=root)


def owners_here(proc: Path) -> frozenset[str] | None:
    """Return the pods of all processes of this machine; None where not all can be seen."""
    try:
        if (proc / "self/ns/pid").stat().st_ino != INITIAL:
            return None
        (proc / "1/cgroup").read_bytes()  # where processes of others are hidden, this one is
        found = (_named(cgroup) for cgroup in proc.glob("[1-9]*/cgroup"))
        return frozenset(owner for owners in found for owner in owners)
    except OSError:
        return None


def _named(cgroup: Path) -> Iterator[str]:
    """Yield all pods that a control group names anywhere: a name that somebody made up keeps a folder."""
    with suppress(FileNotFoundError, ProcessLookupError), cgroup.open("rb") as file:
        text = file.read(_ANSWERS).decode("utf-8", "replace")
        yield from (f"pod:{uid.replace('_', '-').lower()}" for uid in _POD.findall(text))
