"""Tell whether a process for which others wait is at work, as in a compile or a checkpoint. Pure.

The CPU time of a process whose GPU waits in a kernel says nothing: it may spin until the kernel ends.
"""

from dataclasses import dataclass

from wirewatch.core.types import Absent
from wirewatch.jobs.hangs.model import HangPolicy, JobProcess

FAULTS = 10.0
"""Pages a second that a process waits for when it works on files that are mapped."""
DISK_SLEEP = "D"


@dataclass(frozen=True, slots=True)
class ProcessWork:
    """The work of a process in words, empty where it sleeps; `unseen`: why that is not known."""

    text: str = ""
    unseen: str = ""


def work_of(
    before: JobProcess | None, now: JobProcess | None, seconds: float, policy: HangPolicy, *, spins: bool
) -> ProcessWork:
    """Return what a process did between two looks; `spins`: its GPU is all busy."""
    if before is None or now is None:
        return ProcessWork(unseen="its process is not seen here")
    rate = max(_rate(before.files, now.files, seconds), _rate(before.disk, now.disk, seconds))
    faults = _rate(before.faults, now.faults, seconds)
    cpu = 0.0 if spins else _rate(before.cpu, now.cpu, seconds)
    parts = [
        (rate >= policy.files, f"is at work on files ({rate / 1e6:.0f} MB/s)"),
        (cpu >= policy.cpu, f"computes ({100 * cpu:.0f} % of a core)"),
        (faults >= FAULTS, f"waits for pages of files ({faults:.0f}/s)"),
        (now.state == DISK_SLEEP, "is inside the kernel (state D)"),
    ]
    text = " and ".join(text for holds, text in parts if holds)
    cpu_unseen = now.cpu if isinstance(now.cpu, Absent) else before.cpu
    unseen = f"its CPU time: {cpu_unseen}" if isinstance(cpu_unseen, Absent) and not spins else ""
    return ProcessWork(text, "" if text else unseen)


def _rate(before: float | Absent, now: float | Absent, seconds: float) -> float:
    """A growth per second; 0 where it is not known."""
    if isinstance(before, Absent) or isinstance(now, Absent):
        return 0.0
    return (now - before) / seconds
