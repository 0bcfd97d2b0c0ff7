"""Engines that run a round of pairs: Slurm, Kubernetes; each a class of five methods (ADR 0066)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from wirewatch_fleet.rounds.plan import PairWork


class RoundEngineError(Exception):
    """The engine gives no answer, or refuses a whole round; the text is one line for the user."""


class NodesError(RoundEngineError):
    """The requested nodes are no list of hosts, or do not exist; one line for the user."""


@dataclass(frozen=True, slots=True)
class PairNode:
    """A possible node for a pair. `leaf`: its leaf switch or rack, "" if not known.

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

    `work`: each pair's measurements. `seconds`: most time of an admitted pair, from the start of its
    processes to its answer; `patience`: seconds for which it may wait to be admitted. `purpose`: the
    planner's reason for the round.
    """

    number: int
    pairs: tuple[tuple[str, str], ...]
    work: PairWork
    seconds: float
    patience: float
    purpose: str = ""


class PairState(StrEnum):
    """The progress of a pair; DONE and FAILED are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PairProgress:
    """The progress of a pair, with its text.

    `said`: the reason to wait, all output of its two processes, or the reason for its failure.

    A pair that printed answers and then failed is DONE, since its answers state its result. It is FAILED
    where the scheduler knows better, such as when it preempted a node of the pair.
    """

    first: str
    second: str
    state: PairState
    said: str = ""


class RoundEngine(Protocol):
    """Runs `wirewatch fleet peer` on both nodes of each pair. All methods raise RoundEngineError."""

    def members(self) -> Sequence[PairNode]:
        """Return all requested nodes, also busy nodes, in any order; called before each round.

        Raises NodesError the first time if some do not exist. Later missing nodes are left out: a node may
        die, and be removed, while others continue.
        """
        ...

    def start(self, order: RoundOrder) -> None:
        """Start all pairs of a round. Called only when nothing of an earlier round is left."""
        ...

    def poll(self) -> Sequence[PairProgress]:
        """Return each pair of the round. Called several times a second, it queries others only sometimes."""
        ...

    def cancel(self) -> None:
        """End all started pairs within two seconds; it may be called twice, or before any start.

        Later reports of `poll` are lost.
        """
        ...

    def describe(self, order: RoundOrder) -> Sequence[str]:
        """Describe the effect of `start`, a line each, for a person who has not yet agreed."""
        ...
