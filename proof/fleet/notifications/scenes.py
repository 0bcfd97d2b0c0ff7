"""What happens to clusters of 32 or 40 nodes, and how many messages that may make."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proof.fleet.notifications.nodes import DARK, LOOP, WELL

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
NODES, RACK, LEAF = 32, 4, 8
LONE = 30
"""Nodes that have one fault after the other."""
OVER = 3 * HOUR
"""When everything that happened is repaired, seconds of service after it began."""


@dataclass(frozen=True, slots=True)
class Event:
    """A fault (`WELL`, `DARK` or names of bundled ones) on nodes, `at` seconds on the first of them.

    The others follow within `spread` seconds. It lasts for `lasts` seconds, or until the scene is over.
    """

    fault: str
    nodes: Sequence[int]
    at: float = 0.0
    spread: float = 45.0
    lasts: float = math.inf

    def fault_of(self, node: int, seconds: float) -> str:
        if node not in self.nodes:
            return WELL
        begin = self.at + self.spread * self.nodes.index(node) / len(self.nodes)
        return self.fault if begin <= seconds < begin + self.lasts else WELL


@dataclass(frozen=True, slots=True)
class Scene:
    """One cluster; `pages` and `tickets` are the messages that it may make until all is over."""

    cluster: str
    about: str
    events: tuple[Event, ...]
    pages: int
    tickets: int = 0
    nodes: int = NODES
    labelled: bool = True
    """Whether targets have `rack` and `leaf`."""
    over: float = OVER
    here: bool = False
    """Whether times are seconds of this run: a day of service is squeezed to two minutes."""

    def fault_of(self, node: int, seconds: float) -> str:
        if seconds >= self.over:
            return WELL
        return next((f for e in self.events if (f := e.fault_of(node, seconds))), WELL)

    def place(self, node: int) -> dict[str, str]:
        """The labels of a node's target, besides its cluster; racks of four, two of them at a leaf."""
        name = {"node": f"gpu-{node:02d}"}
        if not self.labelled:
            return name
        return {**name, "rack": f"r{(node - 1) // RACK + 1:02d}", "leaf": f"l{(node - 1) // LEAF + 1}"}


_EVERY = tuple(range(1, NODES + 1))
_ACROSS = tuple(sorted(_EVERY, key=lambda node: ((node - 1) % RACK, node)))
"""All nodes, no two of a rack one after the other."""
_FIVE = {2: "nvlink-link-down", 11: "ib-port-down", 20: "xid-79+gpu-lost", 27: "pcie-x8", 32: "probe-slow"}
SCENES = (
    Scene("well", "six nodes are rebooted, one after another, four minutes each",
          tuple(Event(DARK, (number,), number * 5 * MINUTE, lasts=4 * MINUTE) for number in range(1, 7)), 0),
    Scene("node", "a GPU falls off the bus (XID 79, and it is lost); half an hour later one of another node",
          (Event("xid-79+gpu-lost", (3,)), Event("xid-79+gpu-lost", (21,), 30 * MINUTE)), 2),
    Scene("five", "five nodes, each another fault, within a minute",
          tuple(Event(fault, (number,), number) for number, fault in
                _FIVE.items()), 5, 1),
    Scene("rack", "a rack loses its power: four agents are not heard", (Event(DARK, range(9, 13)),), 1, 1),
    Scene("leaf", "a leaf switch fails: a port of each of its eight nodes is down",
          (Event("ib-port-down", range(17, 25)),), 1, 1),
    Scene("bare", "the same where no target has a label for racks or leaves",
          (Event("ib-port-down", range(17, 25)),), 1, 1, labelled=False),
    Scene("fourth", "three of 40 nodes lose a GPU; six hours later, not repaired, a fourth does",
          (Event("xid-79+gpu-lost", (5, 18, 31)), Event("xid-79+gpu-lost", (36,), 6 * HOUR)), 2, 1,
          nodes=40, labelled=False, over=DAY),
    Scene("day", f"{LONE} faults of one rule on {LONE} of 40 nodes, six and a half minutes apart",
          tuple(Event("nvlink-link-down", (number,), number * 26.0, lasts=40.0)
                for number in range(1, LONE + 1)),
          LONE, nodes=40, labelled=False, over=(LONE + 1) * 26.0, here=True),
    Scene("loop", "an agent is killed every 43 s for an hour, and answers half of the time",
          (Event(LOOP, (7,), lasts=HOUR),), 0, 1),
    Scene("rollout", "a driver that makes collectives slow is rolled out: all nodes, one every 22 s",
          (Event("probe-slow", _ACROSS, spread=12 * MINUTE),), 2, 1),
    Scene("crash", "the same on all nodes within a minute, each with a failed fabric besides",
          (Event("probe-slow+fabric-not-registered", _ACROSS),), 1, 1),
    Scene("blind", "a network policy cuts off Prometheus: no agent is heard", (Event(DARK, _EVERY),), 1, 1),
)  # fmt: skip
