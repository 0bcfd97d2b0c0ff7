"""The patches that take a node out of use and give it back: what is done and the mark that says so, in one.

A merge patch (RFC 7386). It names the resourceVersion, so that the API server refuses it if the node has
changed since it was looked at: the list of taints is sent whole.
"""

from collections.abc import Mapping
from typing import Any

from wirewatch.config import ControllerSection
from wirewatch.core.words import stamp
from wirewatch_fleet.controller.decide import NodeDecision, NodeStep, measure
from wirewatch_fleet.controller.node import MARK, TAINT_EFFECT, TAINT_KEY, FleetNode, Mark, NodeMeasure

CONTENT_TYPE = "application/merge-patch+json"
Patch = Mapping[str, Any]


def patch_of(decision: NodeDecision, settings: ControllerSection, now: float) -> Patch:
    """The patch of a decision's step; `now` in Unix seconds."""
    node = decision.node
    if decision.step is NodeStep.TAKE_OUT:
        did = measure(settings)
        mark = Mark(did, stamp(now), node.condition.reason if node.condition else "")
        return _patch(node, mark.text(), _out(node, did))
    undone = _back(node, node.mark.did) if node.mark and decision.step is NodeStep.GIVE_BACK else {}
    return _patch(node, None, undone)


def _patch(node: FleetNode, mark: str | None, spec: Patch) -> Patch:
    about = {"resourceVersion": node.version, "annotations": {MARK: mark}}
    return {"metadata": about, **({"spec": spec} if spec else {})}


def _out(node: FleetNode, did: NodeMeasure) -> Patch:
    if did is NodeMeasure.TAINT:
        ours = {"key": TAINT_KEY, "effect": TAINT_EFFECT}
        return {"taints": [*(taint.raw for taint in node.taints), ours]}
    return {"unschedulable": True} if did is NodeMeasure.CORDON else {}


def _back(node: FleetNode, did: NodeMeasure) -> Patch:
    if did is NodeMeasure.TAINT:
        return {"taints": [taint.raw for taint in node.taints if not taint.ours] or None}
    return {"unschedulable": None} if did is NodeMeasure.CORDON else {}
