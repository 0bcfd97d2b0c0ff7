"""The host port: the machine's identity, and the cost of our own processes."""

import os
import platform
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from wirewatch.core.ports import Answer, ProcessUse, Question
from wirewatch.core.types import Absent, Json, Why

_ANSWERS: Mapping[str, Callable[[], Json]] = {
    "BootId": lambda: Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
    "BootTime": psutil.boot_time,
    "Hostname": socket.gethostname,
    "Kernel": platform.release,
    "Machine": platform.machine,
    "CpuCount": os.cpu_count,
    "MemoryBytes": lambda: psutil.virtual_memory().total,
}
CATALOGUE = tuple(Question(call) for call in _ANSWERS)


class SystemHost:
    """This machine, through psutil and the standard library."""

    def ask(self, question: Question) -> Answer:
        answer = _ANSWERS.get(question.call)
        if answer is None:
            return Answer(Absent(Why.UNSUPPORTED, f"no such question: {question}"))
        try:
            return Answer(answer())
        except OSError as error:
            return Answer(Absent(Why.MISSING, str(error), error.errno))
        except RuntimeError as error:
            # psutil's, where the kernel's file lacks the line.
            return Answer(Absent(Why.MISSING, str(error)))

    def process(self, pid: int | None) -> ProcessUse | Absent:
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            return ProcessUse(times.user + times.system, process.memory_info().rss)
        except psutil.Error as error:
            return Absent(Why.MISSING, str(error))


class SystemClock:
    """Unix and monotonic time of this machine."""

    def now(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.monotonic()
