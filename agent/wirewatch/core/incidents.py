"""Incidents: how often something happened of which the kernel's log has many lines.

One crash of one application makes a line for each multiprocessor, a dozen within a millisecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PAUSE = 10.0
"""Seconds without a line after which the next one is of another incident."""


@dataclass(frozen=True, slots=True)
class Incidents:
    """Incidents of one kind at one part, and how many lines they made.

    An incident is what one process did without a pause. `open`: the second of the last line of each process,
    empty for one that no line names; such a line belongs to what is going on.
    """

    count: int = 0
    lines: int = 0
    open: Mapping[str, float] = field(default_factory=dict)

    def see(self, process: str, seconds: float) -> "Incidents":
        """The incidents after one more line, at a second of the log's own clock."""
        going_on = {name: last for name, last in self.open.items() if seconds - last <= PAUSE}
        if not process and going_on:
            return Incidents(self.count, self.lines + 1, dict.fromkeys(going_on, seconds))
        new = process not in going_on and "" not in going_on
        going_on.pop("", None)
        return Incidents(self.count + new, self.lines + 1, {**going_on, process: seconds})
