"""What runs a round of pairs: Slurm, Kubernetes. Each is one class with these five methods (ADR 0066)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from wirewatch_fleet.rounds.plan import PairWork


class RoundEngineError(Exception):
    """The engine cannot be asked, or refuses a whole round; the text is one line for the user."""


class NodesError(RoundEngineError):
    """The nodes that were asked for are not a list of hosts, or are not there; one line for the user."""


@dataclass(frozen=True, slots=True)
class PairNode:
    """A node that could take part. `leaf`: its leaf switch or rack, "" if not known.

    `gpus`: how many the engine counts there; None where it counts none. `busy`: why it is not idle, "" if it
    is. `address`: where other nodes reach it; its name where the engine knows no other.
    """

    name: str
    leaf: str = ""
    gpus: int | None = None
    busy: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class RoundOrder:
    """One round: its pairs run at once, one job or step each.

    `work`: what each pair measures. `seconds`: what a pair may take once it is admitted, from the start of
    its processes to its answer; `patience`: seconds for which it may wait to be admitted. `purpose`: for what
    the planner chose it.
    """

    number: int
    pairs: tuple[tuple[str, str], ...]
    work: PairWork
    seconds: float
    patience: float
    purpose: str = ""


class PairState(StrEnum):
    """How far a pair is; DONE and FAILED are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PairProgress:
    """How far one pair is. `said`: why it waits, all that its two processes printed, or why it failed.

    A pair that printed answers and then failed is DONE: its answers say what became of it. It is FAILED where
    the scheduler knows better, as when it has taken the place of one of the two.
    """

    first: str
    second: str
    state: PairState
    said: str = ""


class RoundEngine(Protocol):
    """Runs `wirewatch fleet peer` on both nodes of each pair. All methods raise RoundEngineError."""

    def members(self) -> Sequence[PairNode]:
        """All nodes that the user asked for, busy ones too, in any order; asked again before each round.

        Raises NodesError the first time if some are not there. Later they are left out: a node may die, and
        be removed, while the others go on.
        """
        ...

    def start(self, order: RoundOrder) -> None:
        """Start all pairs of a round. Called only when nothing of an earlier round is left."""
        ...

    def poll(self) -> Sequence[PairProgress]:
        """Each pair of the round; called several times a second, so that it asks others only now and then."""
        ...

    def cancel(self) -> None:
        """End all that was started and has not ended; in two seconds; also twice, also before any start.

        What `poll` would have told of a pair is gone then.
        """
        ...

    def describe(self, order: RoundOrder) -> Sequence[str]:
        """What `start` would do, a line each, for a person who has not yet agreed."""
        ...
