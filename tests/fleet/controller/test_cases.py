"""The controller's brake, by the table that it shares with Slurm's scripts."""

from typing import Any

from tests.brakes import CASES, NODES, POOLS, RACKS, BrakeCase, Now
from tests.fleet.controller.drawn import NOW, OTHERS, OURS, POOL, RACK, SKU, apply, mark, raw, settings
from tests.rows import each
from wirewatch.config import BudgetSection
from wirewatch_fleet.controller.decide import decide, patch_of
from wirewatch_fleet.controller.node import MARK, node_of

THEIRS = {**OURS, "value": "rma-4711"}


def as_found(act: str, now: Now, age: float) -> dict[str, Any]:
    """What a node has that is found so; a person changes the taint, or removes the annotation."""
    taint = act == "taint"
    ours: dict[str, Any] = {"taints": [OURS]} if taint else {"cordoned": True}
    others: dict[str, Any] = {"taints": [OTHERS]} if taint else {"cordoned": True}
    theirs: dict[str, Any] = {"taints": [THEIRS]} if taint else {"cordoned": True}
    found: dict[Now, dict[str, Any]] = {
        Now.IN_USE: {},
        Now.RESERVED: {"taints": [SKU]},
        Now.OURS: {**ours, "marked": mark(act, at=NOW - age)},
        Now.EDITED: {"taints": [THEIRS], "marked": mark(at=NOW - age)},
        Now.REPLACED: theirs,
        Now.OTHERS: others,
    }
    return found[now]


def place(name: str) -> dict[str, str]:
    """The labels of a node."""
    units = ((POOL, POOLS), (RACK, RACKS))
    return {label: unit for label, kind in units for unit, nodes in kind.items() if name in nodes}


def whose(document: dict[str, Any], found: Now) -> Now | None:
    """Whose work it is that a node is out; None for one in use."""
    now = node_of(document)
    if now.mark is not None and now.stands():
        return Now.OURS
    return found if now.unschedulable or any(taint.raw != SKU for taint in now.taints) else None


@each("case", CASES, ids=lambda case: case.name)
@each("act", ["taint", "cordon"])
def test_the_brake_leaves_nodes_as_the_table_says(case: BrakeCase, act: str) -> None:
    ours = settings(act=act, budget=BudgetSection(**case.shares._asdict()))
    fleet = {}
    for name in NODES:
        health, found, age = case.found(name)
        fleet[name] = raw(name, health, labels=place(name), **as_found(act, found, age))
    for _ in range(4):
        plan = decide([node_of(one) for one in fleet.values()], ours, NOW)
        for _, decision in plan.steps():
            name = decision.node.name
            fleet[name] = apply(fleet[name], patch_of(decision, ours, NOW))
    assert not list(plan.steps()), "it does not come to rest"
    out = {name: owner for name, one in fleet.items() if (owner := whose(one, case.found(name).now))}
    assert case.left_as(out), out
    assert all(one["metadata"]["annotations"]["other"] == "kept" for one in fleet.values())


def test_a_mark_that_is_left_over_goes_with_the_fault() -> None:
    """Of a taint that a person has removed: not set again, and forgotten once the node was fit."""
    document = raw(marked=mark())
    (decision,) = decide([node_of(document)], settings(), NOW).decisions
    assert (decision.step, decision.ground.value) == (None, "overruled")
    document = raw("g1", "ok", marked=mark())
    (decision,) = decide([node_of(document)], settings(), NOW).decisions
    assert MARK not in apply(document, patch_of(decision, settings(), NOW))["metadata"]["annotations"]
