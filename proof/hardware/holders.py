"""Who has a GPU open: ours, and all the others."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proof.hardware import processes
from proof.hardware.daemon import SERVE
from proof.hardware.kit import KitError

DEVICES = "/dev/nvidia"


def open_devices(pid: int) -> set[str]:
    """GPU device files that a process has open or mapped; empty when it is gone or may not be looked at."""
    found: set[str] = set()
    with suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(str(handle.readlink()))
    with suppress(OSError):
        # A mapping outlives the descriptor that it was made of.
        lines = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines()
        found.update(line.split(maxsplit=5)[5] for line in lines if DEVICES in line)
    return {name for name in found if name.startswith(DEVICES)}


def replayed() -> bool:
    """Whether the kit tries itself on a recording: what stands for NVML then has no device open."""
    return "--replay" in os.environ.get(SERVE, "")


@dataclass(frozen=True)
class Ours:
    """The processes of one daemon, with those that have lost their parent: all have its state folder."""

    daemon: int
    mark: bytes

    @classmethod
    def of(cls, daemon: int) -> "Ours":
        """Raises KitError when its environment cannot be read."""
        for entry in _environment(daemon):
            if entry.startswith(b"STATE_DIRECTORY="):
                return cls(daemon, entry)
        raise KitError(f"process {daemon} does not tell its environment")

    def processes(self) -> set[int]:
        pids = (int(place.name) for place in Path("/proc").glob("[0-9]*"))
        return {pid for pid in pids if self.mark in _environment(pid) and processes.alive(pid)}

    def holders(self) -> dict[int, list[str]]:
        """Those that have a GPU open, and which files."""
        found = {pid: self._open(pid) for pid in self.processes()}
        return {pid: sorted(names) for pid, names in found.items() if names}

    def _open(self, pid: int) -> set[str]:
        # The daemon itself never has any, also on a recording.
        return {"the recording"} if replayed() and pid != self.daemon else open_devices(pid)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def others(ours: Iterable[int]) -> dict[str, list[str]]:
    """All other processes that have a GPU open, by number and name."""
    found: dict[str, list[str]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        pid = int(place.name)
        names = open_devices(pid) if pid not in set(ours) else set()
        if names:
            with suppress(OSError):
                found[f"{pid} {(place / 'comm').read_text('utf-8', 'replace').strip()}"] = sorted(names)
    return found
