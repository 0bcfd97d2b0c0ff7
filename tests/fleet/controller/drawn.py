"""Nodes as an API server gives them, drawn by hand, and settings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wirewatch.config import BudgetSection, ControllerSection
from wirewatch.core.words import stamp
from wirewatch_fleet.controller.node import MARK, TAINT_EFFECT, TAINT_KEY, FleetNode, node_of

NOW = 1_800_000_000.0
OURS = {"key": TAINT_KEY, "effect": TAINT_EFFECT}
OTHERS = {"key": "example.org/rma", "value": "4711", "effect": "NoSchedule"}
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
POOL, RACK = "karpenter.sh/nodepool", "topology.kubernetes.io/rack"
STATUS = {"ok": "True", "degraded": "True", "unknown": "Unknown", "failed": "False"}
FREE = BudgetSection(cluster=1000, pool=1000, rack=1000, stock=1000)


def mark(did: str = "taint", reason: str = "NvlinkLinkDown", at: float = NOW - 600) -> str:
    return json.dumps({"at": stamp(at), "did": did, "reason": reason}, sort_keys=True)


def raw(
    name: str = "g1", health: str = "failed", *, taints: Sequence[Mapping[str, str]] = (),
    marked: str | None = None, cordoned: bool = False, ready: str = "True",
    labels: Mapping[str, str] | None = None, since: float = 600.0, heard: float = 60.0,
) -> dict[str, Any]:  # fmt: skip
    """A node; `since` and `heard`: seconds since the condition changed, and since the last heartbeat."""
    conditions = [{"type": "Ready", "status": ready}]
    if health:
        conditions.append(
            {
                "type": "InterconnectHealthy", "status": STATUS[health], "reason": "NvlinkLinkDown",
                "message": "nvlink.link_down GPU 2 link 7", "lastTransitionTime": stamp(NOW - since),
                "lastHeartbeatTime": stamp(NOW - heard),
            }
        )  # fmt: skip
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": dict(labels or {}),
            "annotations": {"other": "kept", **({MARK: marked} if marked is not None else {})},
        },
        "spec": {"taints": [*taints], **({"unschedulable": True} if cordoned else {})},
        "status": {"conditions": conditions},
    }  # fmt: skip


def node(name: str = "g1", health: str = "failed", **more: Any) -> FleetNode:
    return node_of(raw(name, health, **more))


def settings(**changed: Any) -> ControllerSection:
    """That act, and without budgets unless some are given; the taint OTHERS is an outage."""
    outages = (*ControllerSection().outage_taints, OTHERS["key"])
    return ControllerSection(**{"dry_run": False, "budget": FREE, "outage_taints": outages, **changed})


def apply(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch (RFC 7386), as the API server applies it."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key) or {}, value) if isinstance(value, Mapping) else value
    return result
