"""The nodes as the API server shows them, and nodes missing from a list without a seen deletion."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from wirewatch.config import Limit
from wirewatch_fleet.controller.brake import allowed
from wirewatch_fleet.controller.node import FleetNode

KEPT = 600.0
"""Seconds for which a missing node counts in its last state: two watches, so that two lists lack it."""


@dataclass(slots=True)
class FleetView:
    """All nodes by name; `gone`: nodes missing from a list, and since when (monotonic seconds).

    A list can be partial, and its budget would let too many nodes be taken out.
    """

    nodes: dict[str, FleetNode] = field(default_factory=dict)
    gone: dict[str, tuple[FleetNode, float]] = field(default_factory=dict)
    _at: float = 0.0

    def take(self, found: Iterable[FleetNode], now: float) -> None:
        """Take a list of all nodes; it is not compared with a view older than KEPT."""
        before = {} if now - self._at > KEPT else {name: (node, now) for name, node in self.nodes.items()}
        self.nodes = {node.name: node for node in found}
        since = {**before, **self.gone}
        self.gone = {name: one for name, one in since.items() if name not in self.nodes}
        self.look(now)

    def look(self, now: float) -> None:
        """Forget nodes that are gone for long."""
        self._at = now
        self.gone = {name: one for name, one in self.gone.items() if now - one[1] < KEPT}

    def change(self, node: FleetNode, *, deleted: bool = False) -> None:
        """Take a change of a node; a deleted node does not count as missing."""
        self.gone.pop(node.name, None)
        if deleted:
            self.nodes.pop(node.name, None)
        else:
            self.nodes[node.name] = node

    def missed(self) -> list[FleetNode]:
        """Return missing nodes in their last state."""
        return [node for node, _ in self.gone.values()]

    def frozen(self, limit: Limit) -> str:
        """Return why this view allows no step: more nodes are gone than may be out of use; else empty."""
        whole = len(self.nodes) + len(self.gone)
        most = allowed(limit, whole)
        if len(self.gone) <= most:
            return ""
        return f"{len(self.gone)} of {whole} nodes are gone from the list at once; at most {most} may be"
