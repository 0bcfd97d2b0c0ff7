"""The documents exchanged with the API server: our condition in a node's status, and its refusals."""

import json
from datetime import UTC, datetime
from typing import Any

from wirewatch.export.kubernetes.condition import TYPE, Condition, Status
from wirewatch.export.kubernetes.words import shortened

NOTHING = b"{}"
"""A patch that changes nothing and is answered with the node as it is."""
_SAID = 300
"""Bytes of what a server says that are repeated."""


class Strange(Exception):
    """An answer that is not what an API server answers; the text is one line."""


def patch(condition: Condition, at: float) -> bytes:
    """A strategic merge patch of the node's status: conditions merge by their type, so only ours changes."""
    told = {
        "type": TYPE,
        "status": condition.status.value,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": rfc3339(at),
        "lastTransitionTime": rfc3339(condition.transition),
    }
    return json.dumps({"status": {"conditions": [told]}}).encode()


def condition_in(text: bytes, node: str, at: float) -> Condition | None:
    """Our condition in a node's document, None when it has none; `at` stands for a time that is none.

    Raises:
        Strange: no document of that node.
    """
    try:
        document = json.loads(text)
        name, found = document["metadata"]["name"], document["status"].get("conditions") or []
        (mine,) = [one for one in found if one["type"] == TYPE] or [None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Strange("the answer is no node") from error
    if document.get("kind") != "Node" or name != node:
        raise Strange(f"the answer is not about node {node}")
    return None if mine is None else _condition(mine, at)


def said(text: bytes) -> str:
    """What the server says of a refusal, in one line; empty when that cannot be understood."""
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return shortened(message, _SAID) if isinstance(message, str) else ""


def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(told: dict[str, Any], at: float) -> Condition | None:
    """What we said before; None for what we never say."""
    status = next((one for one in Status if one.value == told.get("status")), None)
    if status is None:
        return None
    reason, message = (str(told.get(key) or "") for key in ("reason", "message"))
    return Condition(status, reason, shortened(message), _moment(told.get("lastTransitionTime"), at))


def _moment(text: object, at: float) -> float:
    """Unix seconds, never in the future."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return at
    return min(moment.timestamp(), at) if moment.tzinfo else at
