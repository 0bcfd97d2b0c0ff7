"""What those look at who tell others of the daemon."""

from collections.abc import Callable
from dataclasses import dataclass

from wirewatch.verdict.node import Judged


@dataclass(frozen=True, slots=True)
class Eyes:
    """The verdict; whether the first polls have ended (/readyz); whether the loops turn (/livez)."""

    node: Callable[[], Judged]
    ready: Callable[[], bool]
    turning: Callable[[], bool]
