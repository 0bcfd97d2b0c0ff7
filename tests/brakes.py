"""One table of cases for both brakes: that of Slurm's scripts and that of the controller for Kubernetes.

tests/fleet/controller/test_cases.py, tests/deploy/test_slurm_brake.py and tests/system/test_slurm_brake.py
drive it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

HOUR = 3600.0
NODES = ("g1", "g2", "g3", "g4", "g5", "g6")
POOLS = {"a": ("g1", "g2", "g3"), "b": ("g4", "g5", "g6")}
RACKS = {"r1": ("g1", "g2"), "r2": ("g4", "g5")}
"""What the nodes of all cases are in; g3 and g6 are in no rack."""


class Now(Enum):
    """How a node is found: in use, taken out by this brake, so but with the words changed, or by others.

    REPLACED: by this brake, but a person has replaced all words, the time among them. RESERVED: in use, by
    some jobs or pods alone.
    """

    IN_USE = "in use"
    RESERVED = "reserved"
    OURS = "ours"
    EDITED = "edited"
    REPLACED = "replaced"
    OTHERS = "others"


class Found(NamedTuple):
    """What the agent of a node says, how it is found, and seconds since this brake took it out."""

    health: str
    now: Now = Now.IN_USE
    age: float = 0.0


class Shares(NamedTuple):
    """How many may be taken out within an hour, of each kind of unit, and how many may be out."""

    cluster: int | str = 6
    pool: int | str = 6
    rack: int | str = 6
    stock: int | str = 6


@dataclass(frozen=True, slots=True)
class BrakeCase:
    """Nodes by name, those that are not named fit and in use, and how they are left in the end.

    `left`: of the nodes that are out in the end, whose work that is; "" stands for `any_of` nodes, any.
    """

    name: str
    nodes: Mapping[str, Found]
    shares: Shares
    left: Mapping[str, Now]
    any_of: int = 0

    def found(self, node: str) -> Found:
        """How a node is found."""
        return self.nodes.get(node, Found("ok"))

    def left_as(self, out: Mapping[str, Now]) -> bool:
        """Whether nodes were left as the case wants it."""
        if self.any_of:
            return len(out) == self.any_of and set(out.values()) == {self.left[""]}
        return dict(out) == dict(self.left)


def failed(*nodes: str) -> dict[str, Found]:
    """Nodes that are FAILED and in use."""
    return dict.fromkeys(nodes, Found("failed"))


def ours(*nodes: str, age: float = 0.0) -> dict[str, Found]:
    """Nodes that are FAILED and that this brake took out so many seconds ago."""
    return dict.fromkeys(nodes, Found("failed", Now.OURS, age))


OLD = HOUR + 60
CASES = (
    BrakeCase(
        "FAILED alone is taken out",
        {"g1": Found("ok"), "g2": Found("degraded"), "g3": Found("unknown"), **failed("g4")},
        Shares(),
        {"g4": Now.OURS},
    ),
    BrakeCase(
        "what is ours comes back once it is fit, and not before that is known",
        {
            "g1": Found("ok", Now.OURS), "g2": Found("degraded", Now.OURS),
            "g3": Found("unknown", Now.OURS), **ours("g4"),
        },
        Shares(),
        {"g3": Now.OURS, "g4": Now.OURS},
    ),
    BrakeCase(
        "what others took out is theirs, sick or fit",
        {"g1": Found("ok", Now.OTHERS), "g2": Found("failed", Now.OTHERS)},
        Shares(),
        {"g1": Now.OTHERS, "g2": Now.OTHERS},
    ),
    BrakeCase(
        "words that a person changed make it theirs",
        {
            "g1": Found("ok", Now.EDITED), "g2": Found("failed", Now.EDITED),
            "g3": Found("ok", Now.REPLACED), "g4": Found("failed", Now.REPLACED),
        },
        Shares(),
        {"g1": Now.EDITED, "g2": Now.EDITED, "g3": Now.REPLACED, "g4": Now.REPLACED},
    ),
    BrakeCase(
        "many at once: so many as may be, not one more", failed(*NODES), Shares(cluster=2), {"": Now.OURS}, 2
    ),
    BrakeCase("none may be: none is", failed("g1", "g2"), Shares(cluster=0), {}),
    BrakeCase("none may be in all: none is", failed("g1", "g2"), Shares(stock="0%"), {}),
    BrakeCase(
        "a share too small for a node is one", failed(*NODES), Shares("5%", "100%", "100%", "100%"),
        {"": Now.OURS}, 1,
    ),
    BrakeCase(
        "within the hour it is new",
        {**ours("g1", age=HOUR - 60), **failed("g6")},
        Shares(cluster=1),
        {"g1": Now.OURS},
    ),
    BrakeCase(
        "after the hour it is new no more",
        {**ours("g1", age=OLD), **failed("g6")},
        Shares(cluster=1),
        {"g1": Now.OURS, "g6": Now.OURS},
    ),
    BrakeCase(
        "an edit makes nothing new, and nothing old",
        {"g1": Found("failed", Now.EDITED, OLD), "g4": Found("failed", Now.EDITED, 60.0),
            **failed("g2", "g5")},
        Shares(pool=1),
        {"g1": Now.EDITED, "g2": Now.OURS, "g4": Now.EDITED},
    ),
    BrakeCase(
        "repairs of whatever age and owner use none of the hour",
        {
            "g1": Found("ok", Now.OTHERS), "g2": Found("failed", Now.EDITED, OLD),
            "g3": Found("ok", Now.REPLACED), **ours("g4", age=OLD), **failed("g5"),
        },
        Shares(1, 1, 1, 5),
        {"g1": Now.OTHERS, "g2": Now.EDITED, "g3": Now.REPLACED, "g4": Now.OURS, "g5": Now.OURS},
    ),
    BrakeCase(
        "all that is out is stock",
        {
            "g1": Found("ok", Now.OTHERS), "g2": Found("failed", Now.EDITED, OLD),
            "g3": Found("ok", Now.REPLACED), **ours("g4", age=OLD), **failed("g5"),
        },
        Shares(stock=4),
        {"g1": Now.OTHERS, "g2": Now.EDITED, "g3": Now.REPLACED, "g4": Now.OURS},
    ),
    BrakeCase(
        "what is new is stock too",
        {**ours("g1", "g4"), **failed("g6")},
        Shares(stock=2),
        {"g1": Now.OURS, "g4": Now.OURS},
    ),
    BrakeCase(
        "a used-up pool holds its own nodes alone",
        {**ours("g1"), **failed("g3", "g6")},
        Shares(pool=1),
        {"g1": Now.OURS, "g6": Now.OURS},
    ),
    BrakeCase(
        "a used-up rack holds its own nodes alone",
        {**ours("g1"), **failed("g2", "g3")},
        Shares(rack="50%"),
        {"g1": Now.OURS, "g3": Now.OURS},
    ),
    BrakeCase(
        "nodes that are kept for some are in use",
        {
            **dict.fromkeys(("g1", "g2", "g4", "g6"), Found("ok", Now.RESERVED)),
            "g3": Found("failed", Now.RESERVED),
        },
        Shares(1, 1, 1, 1),
        {"g3": Now.OURS},
    ),
    BrakeCase(
        "the place of one that comes back is the next one's",
        {"g1": Found("ok", Now.OURS), **failed("g2")},
        Shares(1, 1, 1, 1),
        {"g2": Now.OURS},
    ),
    BrakeCase(
        "one that is out already needs no place",
        {**ours("g1"), "g2": Found("failed", Now.OTHERS)},
        Shares(0, 0, 0, 0),
        {"g1": Now.OURS, "g2": Now.OTHERS},
    ),
)  # fmt: skip
