"""The node's condition, written by the agent with the chart's own account."""

import time
from datetime import datetime

from proof.kubernetes.cluster import Cluster, Document, Pod, settled
from proof.kubernetes.image import OVERLAY
from proof.kubernetes.scraping import discovered, query
from tests.waiting import until
from tools.chart.helm import NAME

FAULT = "nvlink-link-down"
ACCOUNT = f"system:serviceaccount:{NAME}:{NAME}"
HOLD = 60.0
"""Seconds that a verdict must hold until the condition is False, and True for the first time: the default."""


def healthy(cluster: Cluster) -> str:
    told = until("the condition is written", cluster.condition, 120)
    assert (told["status"], told["reason"]) == ("True", "Healthy"), told
    assert "a recording" in told["message"], told
    assert "nothing wrong is seen on NVLink, PCIe and the network ports" in told["message"], told
    after = seconds(told["lastTransitionTime"]) - seconds(settled(cluster).started("agent"))
    assert after >= HOLD, after
    asked = set(cluster.plane.audited(ACCOUNT, "wirewatch/"))
    assert asked == {("patch", "nodes/status", 200)}, asked
    return (
        f"True, Healthy, {after:.0f} s after the agent's start; all that its account ever asked of the API "
        f"server, "
        "by the audit log: patch of nodes/status"
    )


def turns_false(cluster: Cluster) -> str:
    before = cluster.condition()
    assert before is not None
    took = cluster.upgrade(agent={"env": {OVERLAY: FAULT}}, prober={"env": {OVERLAY: FAULT}})
    pod = settled(cluster)
    failed = until("FAILED", lambda: _failed(pod), 120)
    seen = cluster.condition()
    assert seen is not None
    assert seen["status"] == "True", "it must hold first"
    told = until("the condition is False", lambda: is_now(cluster, "False"), 120)
    after = seconds(told["lastTransitionTime"]) - failed
    assert HOLD - 7 <= after <= HOLD + 15, after
    assert told["reason"] == "NvlinkLinkDown", told
    for word in ("nvlink.link_down GPU 2 link 7", "17 of 18 links up", "Action: drain"):
        assert word in told["message"], told
    assert len(told["message"].encode()) <= 1024
    discovered(cluster)
    assert until("failed is scraped", lambda: query('wirewatch_health{health="failed"} == 1') or None, 60)
    said = told["message"].partition("not this node: ")[2]
    cluster.kept["since"] = pod.findings()[0]["since"]
    return (
        f"`helm upgrade --wait` to a node with a dead link in {took:.0f} s; False, {told['reason']}, "
        f"{after:.0f} s after "
        f'FAILED: "{said[:110]}..."'
    )


def is_now(cluster: Cluster, status: str) -> Document | None:
    told = cluster.condition()
    return told if told is not None and told["status"] == status else None


def _failed(pod: Pod) -> float | None:
    """Unix seconds now, once the agent says FAILED."""
    return time.time() if pod.health()["health"] == "failed" else None


def seconds(text: str) -> float:
    """Unix seconds of a time of Kubernetes."""
    return datetime.fromisoformat(text).timestamp()
