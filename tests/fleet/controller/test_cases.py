"""The controller's brake, by the table that it shares with Slurm's scripts."""

from typing import Any

import pytest

from tests.brakes import CASES, BrakeCase, Now, left_as
from tests.fleet.controller.drawn import NOW, OTHERS, OURS, apply, mark, raw, settings
from wirewatch.config import BudgetSection
from wirewatch_fleet.controller.decide import decide, patch_of
from wirewatch_fleet.controller.node import MARK, node_of

# A person makes it theirs by removing the annotation, or by making another taint of it.
FOUND: dict[str, dict[Now, dict[str, Any]]] = {
    "taint": {
        Now.IN_USE: {},
        Now.OURS: {"taints": [OURS], "marked": mark()},
        Now.EDITED: {"taints": [{**OURS, "value": "rma-4711"}], "marked": mark()},
        Now.OTHERS: {"taints": [OTHERS]},
    },
    "cordon": {
        Now.IN_USE: {},
        Now.OURS: {"cordoned": True, "marked": mark("cordon")},
        Now.EDITED: {"cordoned": True},
        Now.OTHERS: {"cordoned": True},
    },
}


def whose(document: dict[str, Any], found: Now) -> Now | None:
    """Whose work it is that a node is out; None for one in use."""
    now = node_of(document)
    if now.mark is not None and now.stands():
        return Now.OURS
    return found if now.taints or now.unschedulable else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("act", FOUND)
def test_the_brake_leaves_nodes_as_the_table_says(case: BrakeCase, act: str) -> None:
    ours = settings(act=act, budget=BudgetSection(cluster=case.most, pool=1000, rack=1000))
    fleet = {name: raw(name, health, **FOUND[act][found]) for name, (health, found) in case.nodes.items()}
    if any(found is Now.OTHERS for _, found in case.nodes.values()):
        # Slurm's brake counts its own alone.
        ours = ours.model_copy(update={"budget": BudgetSection(cluster=case.most + 2, pool=1000, rack=1000)})
    for _ in range(4):
        plan = decide([node_of(one) for one in fleet.values()], ours, NOW)
        for _, decision in plan.steps():
            name = decision.node.name
            fleet[name] = apply(fleet[name], patch_of(decision, ours, NOW))
    assert not list(plan.steps()), "it does not come to rest"
    out = {name: owner for name, one in fleet.items() if (owner := whose(one, case.nodes[name][1]))}
    assert left_as(case, out), out
    assert all(one["metadata"]["annotations"]["other"] == "kept" for one in fleet.values())


def test_a_mark_that_is_left_over_goes_with_the_fault() -> None:
    """Of a taint that a person has removed: not set again, and forgotten once the node was fit."""
    document = raw(marked=mark())
    (decision,) = decide([node_of(document)], settings(), NOW).decisions
    assert (decision.step, decision.ground.value) == (None, "overruled")
    document = raw("g1", "ok", marked=mark())
    (decision,) = decide([node_of(document)], settings(), NOW).decisions
    assert MARK not in apply(document, patch_of(decision, settings(), NOW))["metadata"]["annotations"]
