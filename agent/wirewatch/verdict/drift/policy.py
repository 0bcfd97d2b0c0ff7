"""When a difference is told and when a topology is learned, as data."""

import math
from dataclasses import dataclass
from typing import ClassVar

from wirewatch.verdict.policy import DAY


@dataclass(frozen=True, slots=True)
class DriftPolicy:
    """When a difference is told and when a topology is learned.

    `confirm`: readings in a row that must show a change before it is a finding, so that one that was taken
    while the driver started alarms nobody. `learn`: readings in a row that must be alike and well before they
    are the baseline. `replaced_for`: seconds for which a replaced part is DEGRADED unless it is accepted.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 2
    learn: int = 3
    replaced_for: float = DAY

    def wrong(self) -> str:
        """What cannot be meant, in words; empty when all can."""
        if not 0 <= self.replaced_for < math.inf:
            return "seconds must not be below 0: 'replaced_for'"
        counts = {"confirm": self.confirm, "learn": self.learn}
        return "; ".join(f"{name} must be at least 1" for name, count in counts.items() if count < 1)
