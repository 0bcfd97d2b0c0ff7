"""What an engine can do, whatever it is made of; and how it says that it cannot."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from wirewatch.core.probe import Copy, ErrorKind, Micro, Timed


class EngineError(Exception):
    """Why a probe could not be run to its end; `kind` is one of the document's."""

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind: ErrorKind = kind


class Engine(Protocol):
    """Opened in two steps, so that the time of each is known. All methods raise EngineError."""

    leads: bool
    """False in a process that only takes part: it tells nobody anything."""

    def versions(self) -> Mapping[str, str]: ...

    def contexts(self) -> None:
        """Make ready the devices and the memory."""
        ...

    def communicators(self) -> None: ...

    def collective(self, group: int, op: str, size_bytes: int, *, latency: bool) -> Timed: ...

    def copies(self) -> Sequence[Copy]: ...

    def micros(self) -> Sequence[Micro]: ...

    def kernel_seconds(self) -> Sequence[float]:
        """Seconds with work, one a rank."""
        ...
