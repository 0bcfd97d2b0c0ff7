"""Whom a NetworkPolicy lets in, as Kubernetes documents it; the network itself lets the kubelet in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chart.documents import Document

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Pod:
    """A pod that connects, with the labels of its namespace; the name of that one is a label too."""

    labels: Labels = field(default_factory=dict)
    namespace: str = "jobs"

    def of_namespace(self) -> Labels:
        return {"kubernetes.io/metadata.name": self.namespace}


def selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    """A label selector; an empty one selects everything."""
    wanted: Labels = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and all(
        _holds(one, labels) for one in selector.get("matchExpressions") or ()
    )


def _holds(requirement: Mapping[str, Any], labels: Labels) -> bool:
    value, values = labels.get(requirement["key"]), requirement.get("values", ())
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[requirement["operator"]]


def admits(policy: Document, pod: Pod, *, port: str = "metrics") -> bool:
    """Whether a pod of the cluster may connect to that port. Peers by address are not looked at."""
    policies = policy["spec"]
    assert "Ingress" in policies["policyTypes"]
    return any(
        port in {one["port"] for one in rule["ports"]}
        and ("from" not in rule or any(_is(peer, pod, policy) for peer in rule["from"]))
        for rule in policies["ingress"]
    )


def _is(peer: Mapping[str, Any], pod: Pod, policy: Document) -> bool:
    if "ipBlock" in peer:
        return False
    there = (
        selects(peer["namespaceSelector"], pod.of_namespace())
        if "namespaceSelector" in peer
        else pod.namespace == policy["metadata"]["namespace"]
    )
    return there and selects(peer.get("podSelector", {}), pod.labels)
