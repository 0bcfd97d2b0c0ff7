"""Rings of this machine beside a recording: their processes are read here, all else is played."""

import re
from collections.abc import Mapping, Sequence

from wirewatch.core.jobs import RingsReading
from wirewatch.core.ports import Rings, Sysfs
from wirewatch.core.types import Absent

_PROCESS = re.compile(r"/proc/(\d+)/", re.ASCII)


class RingsHere:
    """The rings port of this machine, which remembers whose processes the rings are of."""

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        self.pids: frozenset[int] = frozenset()

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        """As the port; afterwards `pids` are the visible processes behind the rings."""
        found = self._rings.poll(after)
        self.pids = self.pids if isinstance(found, Absent) else pids_of(found)
        return found


class RecordedSysfs:
    """The sysfs port of a recording; but what is asked of a ring's process is read `here`."""

    def __init__(self, recorded: Sysfs, here: Sysfs, rings: RingsHere) -> None:
        self._recorded, self._here, self._rings = recorded, here, rings

    def read(self, path: str) -> str | Absent:
        return self._of(path).read(path)

    def data(self, path: str) -> bytes | Absent:
        return self._of(path).data(path)

    def entries(self, path: str) -> Sequence[str] | Absent:
        return self._of(path).entries(path)

    def link(self, path: str) -> str | Absent:
        return self._of(path).link(path)

    def _of(self, path: str) -> Sysfs:
        process = _PROCESS.match(path)
        return self._here if process and int(process[1]) in self._rings.pids else self._recorded


def pids_of(found: RingsReading) -> frozenset[int]:
    """Return the processes behind rings, of which this machine can see the number."""
    hosts = (one.ring.host_pid for one in found.rings)
    return frozenset(pid for pid in hosts if not isinstance(pid, Absent))
