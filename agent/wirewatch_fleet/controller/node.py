"""A Kubernetes node for the controller: its condition, obstacles to pods, and our own mark."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from wirewatch.kubernetes.condition import TYPE, ConditionStatus

TAINT_KEY = "wirewatch.io/interconnect"
TAINT_EFFECT = "NoSchedule"
MARK = "wirewatch.io/interconnect"
"""The annotation with our measure; the same patch sets or removes both."""
KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep new pods off a node; PreferNoSchedule does not."""


class NodeMeasure(Enum):
    """Ways to take a node out of use."""

    TAINT = "taint"
    CORDON = "cordon"
    NVSENTINEL = "nvsentinel"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of Kubernetes; `raw` is the whole object, sent back unchanged."""

    key: str
    effect: str
    value: str
    raw: Mapping[str, Any]

    @property
    def ours(self) -> bool:
        """Return whether it is exactly the controller's taint."""
        return (self.key, self.effect, self.value) == (TAINT_KEY, TAINT_EFFECT, "")


@dataclass(frozen=True, slots=True)
class Mark:
    """Our measure on a node, its time (RFC 3339), and the condition's reason for it."""

    did: NodeMeasure
    at: str
    reason: str

    def text(self) -> str:
        """Return the annotation's value."""
        return json.dumps({"did": self.did.value, "at": self.at, "reason": self.reason}, sort_keys=True)

    @property
    def since(self) -> float:
        """Return that time in Unix seconds."""
        return _unix(self.at)


@dataclass(frozen=True, slots=True)
class Reported:
    """The condition InterconnectHealthy; times in Unix seconds by the clock of the node's agent."""

    status: ConditionStatus
    reason: str
    message: str
    transition: float
    heartbeat: float


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node; `version` is its resourceVersion. `condition` is None if no agent ever wrote it.

    `mark` is None without our annotation; `foreign`: an annotation exists that we did not write so.
    """

    name: str
    uid: str
    version: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    leaving: bool
    condition: Reported | None
    mark: Mark | None = None
    foreign: bool = False

    @property
    def did(self) -> NodeMeasure | None:
        """Return the measure that our mark names; None without a mark."""
        return self.mark.did if self.mark else None

    @property
    def since(self) -> float:
        """Return when its condition changed, in Unix seconds; 0 without a condition."""
        return self.condition.transition if self.condition else 0.0

    def stands(self) -> bool:
        """Return whether our mark still holds; a person may have removed the taint or the cordon."""
        if self.did is NodeMeasure.TAINT:
            return any(taint.ours for taint in self.taints)
        return self.unschedulable if self.did is NodeMeasure.CORDON else self.mark is not None


def node_of(raw: Mapping[str, Any]) -> FleetNode:
    """Return the node of an API object.

    Raises:
        ValueError: it is no node.
    """
    try:
        about, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        found = (about.get("annotations") or {}).get(MARK)
        mark = _mark(found)
        return FleetNode(
            about["name"], about.get("uid", ""), about["resourceVersion"], dict(about.get("labels") or {}),
            _taints(spec.get("taints") or ()), bool(spec.get("unschedulable")),
            conditions.get("Ready", {}).get("status") == "True", "deletionTimestamp" in about,
            _reported(conditions.get(TYPE, {})), mark, foreign=found is not None and mark is None,
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a node: {error!r}") from error


def obstacles(node: FleetNode, outages: Collection[str]) -> tuple[str, ...]:
    """Return why the node is out of use, including our own measure; empty for a node in use.

    `outages`: keys of taints that mean this; other taints only reserve a node for some pods.
    """
    found = [] if node.ready else ["NotReady"]
    found += ["being deleted"] if node.leaving else []
    found += ["cordoned"] if node.unschedulable else []
    found += [
        f"taint {taint.key}:{taint.effect}"
        for taint in node.taints
        if taint.effect in KEEPS_OFF and (taint.key == TAINT_KEY or taint.key in outages)
    ]
    if node.did is NodeMeasure.NVSENTINEL:
        found.append("requested of NVSentinel")
    return tuple(found)


def _taints(raw: Sequence[Mapping[str, Any]]) -> tuple[Taint, ...]:
    return tuple(Taint(one["key"], one["effect"], one.get("value") or "", one) for one in raw)


def _reported(raw: Mapping[str, Any]) -> Reported | None:
    """Return the condition, None without any or with unreadable times."""
    try:
        return Reported(
            ConditionStatus(raw["status"]), raw.get("reason") or "", raw.get("message") or "",
            _unix(raw["lastTransitionTime"]), _unix(raw["lastHeartbeatTime"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _mark(text: Any) -> Mark | None:
    """Return the mark of an annotation's value, None without any or if we did not write it so."""
    try:
        values = json.loads(text)
        _unix(values["at"])
        return Mark(NodeMeasure(values["did"]), values["at"], str(values["reason"]))
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: JSON of many levels
        return None
