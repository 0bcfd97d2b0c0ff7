"""One table of cases for both brakes: that of Slurm's scripts and that of the controller for Kubernetes.

tests/fleet/controller/test_cases.py and tests/system/test_slurm_brake.py drive it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Now(Enum):
    """How a node is found: in use, taken out by this brake, so but with the words changed, or by others."""

    IN_USE = "in use"
    OURS = "ours"
    EDITED = "edited"
    OTHERS = "others"


@dataclass(frozen=True, slots=True)
class BrakeCase:
    """Nodes by name, what their agent says and how they are found, and how they are left in the end.

    `most`: how many may be out; `left`: of the nodes that are out in the end, whose work that is.
    """

    name: str
    nodes: Mapping[str, tuple[str, Now]]
    most: int
    left: Mapping[str, Now]


def fresh(*healths: str) -> dict[str, tuple[str, Now]]:
    """Nodes in use, g1 and so on."""
    return {f"g{number}": (health, Now.IN_USE) for number, health in enumerate(healths, 1)}


CASES = (
    BrakeCase("FAILED alone is taken out", fresh("ok", "degraded", "unknown", "failed"), 4, {"g4": Now.OURS}),
    BrakeCase(
        "what is ours comes back once it is fit, and not before that is known",
        {
            "g1": ("ok", Now.OURS), "g2": ("degraded", Now.OURS), "g3": ("unknown", Now.OURS),
            "g4": ("failed", Now.OURS),
        },
        4,
        {"g3": Now.OURS, "g4": Now.OURS},
    ),
    BrakeCase(
        "what others took out is theirs, sick or fit",
        {"g1": ("ok", Now.OTHERS), "g2": ("failed", Now.OTHERS)},
        4,
        {"g1": Now.OTHERS, "g2": Now.OTHERS},
    ),
    BrakeCase(
        "words that a person changed make it theirs",
        {"g1": ("ok", Now.EDITED), "g2": ("failed", Now.EDITED)},
        4,
        {"g1": Now.EDITED, "g2": Now.EDITED},
    ),
    BrakeCase("many at once: so many as may be, not one more", fresh(*["failed"] * 6), 2, {"": Now.OURS}),
    BrakeCase("none may be: none is", fresh("failed", "failed"), 0, {}),
    BrakeCase(
        "what a person holds on to still counts",
        {"g1": ("ok", Now.EDITED), "g2": ("failed", Now.OURS), "g3": ("failed", Now.IN_USE)},
        2,
        {"g1": Now.EDITED, "g2": Now.OURS},
    ),
    BrakeCase(
        "the place of one that comes back is the next one's",
        {"g1": ("ok", Now.OURS), "g2": ("failed", Now.IN_USE)},
        1,
        {"g2": Now.OURS},
    ),
    BrakeCase(
        "one that is out already needs no place",
        {"g1": ("failed", Now.OURS), "g2": ("failed", Now.OTHERS), "g3": ("ok", Now.IN_USE)},
        1,
        {"g1": Now.OURS, "g2": Now.OTHERS},
    ),
)  # fmt: skip


def left_as(case: BrakeCase, out: Mapping[str, Now]) -> bool:
    """Whether nodes were left as the case wants it; the name "" stands for any of them, up to `most`."""
    if "" in case.left:
        return (
            len(out) == case.most and set(out.values()) == {case.left[""]} and out.keys() <= case.nodes.keys()
        )
    return dict(out) == dict(case.left)
