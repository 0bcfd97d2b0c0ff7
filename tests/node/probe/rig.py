"""A prober over ports in memory, with real workers; as a program it runs one probe."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.node.collectors.drawn import Files, Gpus
from tests.node.probe import workers
from tests.support import StillClock
from wirewatch.core.ports import Answer, Gpu, Order, Question
from wirewatch.core.probe import MIB, Plan, Probed
from wirewatch.core.types import Absent, Json
from wirewatch.probe.runner import ProbeRunner, RunnerPorts

ROOT = Path(__file__).resolve().parents[3]
LINKS = 2
PLAN = Plan(
    "nccl", ("GPU-0", "GPU-1"), ((0, 1),), ("all_reduce", "all_gather"), (8,), ((MIB, 5),), copy_bytes=4
)
NAMES = ("all_reduce.0", "all_gather.0", "copies", "micros")
"""Its parts, in order."""
TALLY = "Field(138,all)"
"""KiB that all links of a GPU sent."""
PROCESSES = "ComputeRunningProcesses()"


def idle(gpu: str) -> dict[tuple[str | None, str], Json | Absent]:
    """What NVML answers of a GPU that no process uses."""
    fields = {f"Field({number},{link})": 1000 for number in (138, 139) for link in range(LINKS)}
    twins = {f"Field({number},all)": 1000 for number in (138, 139, 140, 141, 161)}
    told: dict[str, Json | Absent] = {
        PROCESSES: [], "MemoryInfo()": {"used": 5 * MIB, "free": 100 * MIB}, "Field(91)": LINKS,
        "ClockInfo(1)": 1980, "ClockInfo(2)": 2619, "CurrentClocksEventReasons()": 0, **fields, **twins,
    }  # fmt: skip
    return {(gpu, question): value for question, value in told.items()}


@dataclass
class Changing(Gpus):
    """Two GPUs; `before` is called with each GPU and question, and may change the table."""

    addresses: Sequence[str] = ("0000:1a:00.0", "0000:1b:00.0")
    table: dict[tuple[str | None, str], Json | Absent] = field(
        default_factory=lambda: {**idle("GPU-0"), **idle("GPU-1")}
    )
    before: Callable[[str | None, str], None] = lambda _gpu, _question: None

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        for question in questions:
            self.before(gpu, str(question))
        return super().ask(gpu, questions)


class Rig:
    """One prober; its workers' process ids are in `pid_file`, all that they inherit in `inherited`."""

    def __init__(self, folder: Path, command: Sequence[str] = workers.COMMAND, holds: str = "") -> None:
        self.nvml = Changing()
        self.files = Files()
        self.pid_file = folder / "pid"
        self.inherited: dict[str, str] = {**os.environ, workers.PID_FILE: str(self.pid_file)}
        around = RunnerPorts(self.nvml, self.files, StillClock())
        self.prober = ProbeRunner(around, None, self.inherited, command, holds)

    def run(self, name: str = "", deadline: float = 10.0, **changes: Any) -> Probed:
        """One probe with the worker of this name."""
        self.inherited[workers.WHICH] = name
        return self.prober.run(self.order(deadline=deadline, **changes))

    def order(self, **changes: Any) -> Order:
        given: Mapping[str, Any] = {
            "plan": PLAN, "gpus": tuple(self._gpus()), "conditions": (), "settings": {"NCCL_ALGO": "Ring"},
            "allocations": lambda: None, "by": "command",
        }  # fmt: skip
        return Order(**{**given, **changes})

    def _gpus(self) -> Sequence[Gpu]:
        told = self.nvml.gpus()
        assert not isinstance(told, Absent)
        return told

    def pid(self) -> int:
        """The process id of the newest worker."""
        return int(self.pid_file.read_text("utf-8"))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def main() -> None:
    """A probe with the worker or module of this name; in a thread and ended by SIGTERM, as in the daemon.

    Beside the file for its process id there may be a folder of holds.
    """
    name, pid_file, threaded = sys.argv[1], Path(sys.argv[2]), "thread" in sys.argv[3:]
    rig = Rig(
        pid_file.parent, ("-m", name) if "." in name else workers.COMMAND, str(pid_file.with_name("holds"))
    )
    if not threaded:
        rig.run(name, 60.0)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=rig.run, args=(name, 60.0), daemon=True).start()
    signal.pause()


if __name__ == "__main__":
    main()
