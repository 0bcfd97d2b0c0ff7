"""Jobs that run on this machine beside a recording's GPUs: their rings, and of their processes alone /proc.

So the whole way of a job is tried where there is no GPU: what writes the rings is real, the GPUs are played.
Process numbers in a recording are of another machine: no other process of this one is looked at.
"""

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
        """As the port; afterwards `pids` are the processes behind the rings, those that could be seen."""
        found = self._rings.poll(after)
        if not isinstance(found, Absent):
            hosts = (one.ring.host_pid for one in found.rings)
            self.pids = frozenset(pid for pid in hosts if not isinstance(pid, Absent))
        return found


class RecordedSysfs:
    """The sysfs port of a recording; but what is asked of a ring's process is read `here`."""

    def __init__(self, recorded: Sysfs, here: Sysfs, rings: RingsHere) -> None:
        self._recorded, self._here, self._rings = recorded, here, rings

    def read(self, path: str) -> str | Absent:
        """The text of a small file."""
        return self._of(path).read(path)

    def data(self, path: str) -> bytes | Absent:
        """The bytes of a small file."""
        return self._of(path).data(path)

    def entries(self, path: str) -> Sequence[str] | Absent:
        """Names in a folder."""
        return self._of(path).entries(path)

    def link(self, path: str) -> str | Absent:
        """The absolute path that this one resolves to."""
        return self._of(path).link(path)

    def _of(self, path: str) -> Sysfs:
        process = _PROCESS.match(path)
        return self._here if process and int(process[1]) in self._rings.pids else self._recorded
