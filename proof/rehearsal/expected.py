"""What a row of the table says: an overlay, the alerts that it must raise, and how its fault ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from proof.rehearsal.receiver import Notice

Change = Mapping[str, Any]
"""One change of an overlay, as its file has it."""
CRITICAL, TICKET = "critical", "ticket"


class Ending(Enum):
    """How the fault ends, and what an operator has to do then."""

    ITSELF = "by itself"
    ACK = "repaired, then `findings repaired`"
    LATCHED = "`findings repaired`"
    REBOOT = "reboot, then `findings repaired`"
    RELEASE = "`release`, then `findings repaired`"
    PROBATION = "repaired, and nobody says so"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert, by name, severity and the labels that say where it points."""

    name: str
    severity: str
    labels: tuple[tuple[str, str], ...] = ()

    def is_told_by(self, notice: Notice) -> bool:
        wanted = {"alertname": self.name, "severity": self.severity, **dict(self.labels)}
        return wanted.items() <= notice.labels.items()

    def __str__(self) -> str:
        place = ", ".join(f"{key} {value}" for key, value in self.labels)
        return f"{self.name} {self.severity}{f' ({place})' if place else ''}"


@dataclass(frozen=True, slots=True)
class Row:
    """What a fault must raise, and nothing besides.

    `looks` of `collector` show it; `again`: looks of the probe that come a minute later, at most.
    `told`: seconds in service for which it is told after it has ended. `real`: seconds that are the same in
    service and here, since nothing squeezes them. `at_start`: the fault is older than what the
    agent remembers of the machine's parts; its baseline is older still.
    `later`: alerts that come only once the fault is over, and go as well. `besides`: alerts that may come
    too, for a reason that is not the fault. `changes`: of a fault that is not
    bundled; `kills`: the agent is killed, and started again when the fault is over; `crashes`: it is killed
    and started again and again meanwhile.
    `about`: the fault in words, where no overlay has them.
    """

    alerts: tuple[Alert, ...]
    collector: str = ""
    looks: int = 1
    again: int = 0
    ending: Ending = Ending.ITSELF
    told: float = 0.0
    real: float = 0.0
    at_start: bool = False
    later: tuple[Alert, ...] = ()
    besides: tuple[Alert, ...] = ()
    changes: Sequence[Change] = ()
    kills: bool = False
    crashes: bool = False
    about: str = ""

    @property
    def every(self) -> tuple[Alert, ...]:
        return (*self.alerts, *self.later)
