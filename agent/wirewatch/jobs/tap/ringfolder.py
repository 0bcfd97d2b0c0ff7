"""The folder of rings itself: whether jobs can write into it, and only what they should."""

import os
from collections.abc import Iterator
from pathlib import Path

_OTHERS_WRITE, _STICKY, _GROUP = 0o002, 0o1000, 0o2000
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def remarks(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> tuple[str, ...]:
    """Why jobs may leave no rings there, or why the folder is unsafe; empty where all is well."""
    return tuple(_remarks(folder, mounts))


def _remarks(folder: Path, mounts: Path) -> Iterator[str]:
    try:
        about = folder.stat()
    except FileNotFoundError:
        yield "not there: no job can leave a ring (systemd-tmpfiles --create, docs/jobs.md)"
        return
    except OSError as error:
        yield f"cannot be looked at: {error.strerror}"
        return
    mode = about.st_mode
    if not mode & _OTHERS_WRITE:
        yield "jobs of other users cannot write there: mode 3773"
    elif not mode & _STICKY:
        yield "not sticky: any user may remove the rings of others: mode 3773"
    if mode & _OTHERS_WRITE and not mode & _GROUP:
        yield "without the set-group-ID bit only root reads the rings of others: mode 3773"
    kind = filesystem(about.st_dev, mounts)
    if kind and kind not in _IN_MEMORY:
        yield f"on {kind}: the tap writes to tmpfs only, since a disk would delay the job"


def filesystem(device: int, mounts: Path) -> str:
    """The type of the file system with this device number; empty where it cannot be found."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [wanted]:
            return after.split()[0] if after.split() else ""
    return ""
