"""What was accepted as this node's topology, by whom, and what of later changes was accepted since."""

from dataclasses import dataclass
from typing import Literal

from wirewatch.verdict.drift.change import Change
from wirewatch.verdict.drift.graph import Graph
from wirewatch.verdict.ledger import Word

Origin = Literal["learned", "accepted"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A change that was meant, by its lasting names; `text` as it was told then."""

    kind: str
    part: str
    before: str
    after: str
    text: str
    said: Word

    def covers(self, change: Change) -> bool:
        """Whether this is that change, however the parts are numbered now."""
        return (self.kind, self.part, self.before, self.after) == (
            change.kind.value, change.part, change.before, change.after,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Baseline:
    """`said`: who accepted it, why and when (Unix seconds); the agent itself where it was learned."""

    graph: Graph
    said: Word
    origin: Origin
    accepted: tuple[Accepted, ...] = ()
