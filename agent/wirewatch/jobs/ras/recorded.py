"""RAS of jobs in a recording: its last answer, asked only where an operator says so, and its play.

The recording also has the process data that the collector `hangs` reads, reduced to the parts it uses.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.jobs import RasListener, RasReport
from wirewatch.core.nvml import gpu_processes
from wirewatch.core.ports import Answer, Hardware, Nvml, Sysfs
from wirewatch.core.types import Absent, Json, Why, value_or
from wirewatch.hw.overlay import Player
from wirewatch.hw.recording import Key

V = TypeVar("V")
REPORTS: Key = ("ras", "Reports()")
LISTENERS: Key = ("ras", "Listeners()")
DEADLINE = 15.0
"""Seconds that RAS may take."""
_REPORTS = TypeAdapter(tuple[RasReport, ...])
_LISTENERS = TypeAdapter(tuple[RasListener, ...])
_STAT = 15
"""Fields of a process' stat behind its name, as far as its CPU time."""
_STATUS = ("Uid:", "NSpid:")


def record_ras(hardware: Hardware) -> Iterator[tuple[Key, Answer]]:
    """Yield RAS' present answers, its listeners, and the processes on the GPUs. It makes the jobs talk."""
    yield REPORTS, Answer(_dumped(_REPORTS, hardware.ras.ask(DEADLINE)))
    yield LISTENERS, Answer(_dumped(_LISTENERS, hardware.ras.listeners()))
    for pid in _on_gpus(hardware.nvml):
        yield from _process(hardware.sysfs, pid)


class ReplayRas:
    """The RAS port from a recording."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def ask(self, deadline: float) -> Sequence[RasReport] | Absent:  # noqa: ARG002
        return _loaded(_REPORTS, self._player.answer(REPORTS).value)

    def listeners(self, pid: int | None = None) -> Sequence[RasListener] | Absent:  # noqa: ARG002
        """Those of the machine; namespaces of processes are not recorded."""
        return _loaded(_LISTENERS, self._player.answer(LISTENERS).value)


def _on_gpus(nvml: Nvml) -> Sequence[int]:
    listed = (gpu_processes(nvml, gpu) for gpu in value_or(nvml.gpus(), ()))
    return sorted({pid for some in listed for pid in value_or(some, ((),))[0] if pid is not None})


def _process(sysfs: Sysfs, pid: int) -> Iterator[tuple[Key, Answer]]:
    """State, parent, CPU time, user, ids and bytes of files of a process; its name and groups name people."""
    stat, status = sysfs.read(f"/proc/{pid}/stat"), sysfs.read(f"/proc/{pid}/status")
    if not isinstance(stat, Absent):
        stat = f"{pid} (masked) {' '.join(stat.rpartition(')')[2].split()[:_STAT])}"
    if not isinstance(status, Absent):
        status = "\n".join(line for line in status.splitlines() if line.startswith(_STATUS))
    io = sysfs.read(f"/proc/{pid}/io")
    for name, value in (("stat", stat), ("status", status), ("io", io)):
        yield ("sysfs", f"read /proc/{pid}/{name}"), Answer(value)


def _dumped(adapter: TypeAdapter[tuple[V, ...]], value: Sequence[V] | Absent) -> Json | Absent:
    if isinstance(value, Absent):
        return value
    dumped: Json = adapter.dump_python(tuple(value), mode="json")
    return dumped


def _loaded(adapter: TypeAdapter[tuple[V, ...]], value: Json | Absent) -> tuple[V, ...] | Absent:
    if isinstance(value, Absent):
        return value
    try:
        # Through JSON, since strict models take a list for a tuple only there.
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        return Absent(Why.MALFORMED, f"not recorded RAS: {error.errors()[0]['msg']}")
