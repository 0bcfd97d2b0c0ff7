"""What a process costs and how it fares, from /proc."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_TICK = os.sysconf("SC_CLK_TCK")
_KILL = 1 << 8
"""SIGKILL among the pending signals of /proc/PID/status."""
_SIGNALED = 0x400
"""PF_SIGNALED among the flags of /proc/PID/stat: a signal is ending it (linux/sched.h)."""


@dataclass(frozen=True)
class Cpu:
    """CPU seconds since the process began: in clock ticks, and exact where the scheduler gives it."""

    ticks: float
    exact: float | None

    @property
    def seconds(self) -> float:
        """The scheduler's where there is one: ticks are coarse. No thread of ours ends while we look."""
        return self.ticks if self.exact is None else self.exact

    def since(self, before: "Cpu") -> "Cpu":
        known = self.exact is not None and before.exact is not None
        exact = (self.exact or 0.0) - (before.exact or 0.0) if known else None
        return Cpu(self.ticks - before.ticks, exact)


def cpu(pid: int) -> Cpu:
    """CPU time of a process with all its threads.

    Raises:
        OSError: there is no such process.
    """
    fields = _stat(pid)
    ticks = (int(fields[11]) + int(fields[12])) / _TICK
    exact: float | None = None
    with suppress(OSError, ValueError, IndexError):
        texts = [p.read_text("ascii") for p in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        exact = sum(int(text.split()[0]) for text in texts) * 1e-9 if texts else None
    return Cpu(ticks, exact)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; the name before may hold blanks and brackets."""
    return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()


def memory(pid: int) -> dict[str, int]:
    """Bytes: `pss`, `rss`, and `private`, which no other process shares.

    Raises:
        OSError: no such process, or a kernel without smaps_rollup.
    """
    kib: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii", "replace").splitlines()[1:]:
        name, _, value = line.partition(":")
        kib[name] = int(value.split()[0])
    private = sum(v for k, v in kib.items() if k.startswith("Private_"))
    return {"pss": kib["Pss"] * 1024, "rss": kib["Rss"] * 1024, "private": private * 1024}


@dataclass(frozen=True)
class Standing:
    """Who a process is: its parent, user and groups by number, effective capabilities, bytes resident."""

    parent: int
    user: int
    groups: frozenset[int]
    capabilities: int
    resident: int


def standing(pid: int) -> Standing:
    """Raises OSError when there is no such process."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    told = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    groups = frozenset(map(int, [told["Gid"][1], *told["Groups"]]))
    # A process that has ended and is not waited for has no memory any more.
    resident = int(told.get("VmRSS", ["0"])[0]) * 1024
    return Standing(int(told["PPid"][0]), int(told["Uid"][1]), groups, int(told["CapEff"][0], 16), resident)


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return _stat(pid)[0] not in "ZX"
    except OSError:
        return False


def dying(pid: int) -> Literal["", "killed", "dead"]:
    """`killed` from the moment that SIGKILL waits for it or was taken, `dead` once it is a zombie or gone.

    In between the kernel closes what it had open, and the driver takes back contexts and memory.
    """
    try:
        fields = _stat(pid)
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return "dead"
    if fields[0] in "ZX":
        return "dead"
    told = dict(line.partition(":")[::2] for line in lines)
    pending = int(told.get("SigPnd", "0"), 16) | int(told.get("ShdPnd", "0"), 16)
    return "killed" if pending & _KILL or int(fields[6]) & _SIGNALED else ""


def with_argument(text: str) -> list[int]:
    """Living processes one of whose arguments is `text`."""
    found = []
    for pid in _every():
        with suppress(OSError):
            if text.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return sorted(pid for pid in found if alive(pid))


def children(pid: int) -> list[int]:
    """Living children, oldest first."""
    found: set[int] = set()
    tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    for place in tasks:
        with suppress(OSError):
            found |= {int(text) for text in place.read_text("ascii").split()}
    if not tasks:
        found = {p for p in _every() if _parent(p) == pid}
    return sorted(p for p in found if alive(p))


def _every() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        return int(_stat(pid)[1])
    except OSError:
        return 0
