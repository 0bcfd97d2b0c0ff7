"""GPUs that hang or crash NVML are left out for a while, longer each time, and always tried again."""

from collections.abc import Callable
from dataclasses import dataclass

from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class Delay:
    """A waiting time that doubles from `first` to `most`, in seconds."""

    first: float
    most: float

    def after(self, failures: int) -> float:
        """How long to wait after so many failures in a row (1 or more)."""
        return min(self.first * 2.0 ** min(failures - 1, 30), self.most)


@dataclass(frozen=True, slots=True)
class _Entry:
    absent: Absent
    failures: int
    until: float


class Quarantine:
    """Who is left out and until when; `mono` gives monotonic seconds."""

    def __init__(self, delay: Delay, mono: Callable[[], float]) -> None:
        self._delay = delay
        self._mono = mono
        self._entries: dict[str, _Entry] = {}

    def add(self, key: str, absent: Absent) -> None:
        failures = self._entries[key].failures + 1 if key in self._entries else 1
        self._entries[key] = _Entry(absent, failures, self._mono() + self._delay.after(failures))

    def release(self, key: str) -> None:
        """It answered: its record is clean again."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Nobody is suspected of anything any more."""
        self._entries.clear()

    def holds(self, key: str) -> Absent | None:
        """Why it is left out now, None when it may be asked."""
        entry = self._entries.get(key)
        return entry.absent if entry and self._mono() < entry.until else None

    def suspects(self, key: str) -> Absent | None:
        """Why it was left out, also once it may be asked again."""
        entry = self._entries.get(key)
        return entry.absent if entry else None
