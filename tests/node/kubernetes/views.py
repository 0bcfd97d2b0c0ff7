"""Views and verdicts, drawn by hand."""

from collections.abc import Iterable

from tests.support import EPOCH
from wirewatch.core.collector import NodeState
from wirewatch.core.types import FAIL_ON, Finding, Health, Subject
from wirewatch.kubernetes.condition import Condition, ConditionMemory, Holds, View, learned, watch
from wirewatch.verdict.node import Judged, Verdict

HOLDS = Holds()
NEW = ConditionMemory(known=True)
"""A node that never had the condition."""
LINK = Finding(
    "nvlink.link_down", Health.FAILED,
    Subject("2", "GPU-00000000-0000-4000-8000-000000000002", "7"), "inactive; 17 of 18 links up",
    "drain; reset the GPU, then reseat it", EPOCH,
)  # fmt: skip


def judged(health: Health, *findings: Finding, released_until: float = 0.0) -> Judged:
    return Judged(NodeState(), Verdict(health, findings), released_until=released_until)


FAILED = judged(Health.FAILED, LINK)
OK = judged(Health.OK)
UNKNOWN = judged(
    Health.UNKNOWN, Finding("nvlink.blind", Health.UNKNOWN, Subject(), "timeout", "drain the node")
)


def view(health: Health, seconds: float, reason: str = "") -> View:
    ready = health not in FAIL_ON
    words = reason or health.name.title()
    return View(health, ready, words, f"at {seconds:g}", EPOCH + seconds, 1000.0 + seconds)


def seen(
    spans: Iterable[tuple[Health | str, float]], memory: ConditionMemory = NEW, holds: Holds = HOLDS,
    every: float = 5.0,
) -> list[tuple[float, Condition | None]]:  # fmt: skip
    """The condition after each look, with its second; a health that is a word is UNKNOWN for that reason."""
    at, found = 0.0, []
    for health, seconds in spans:
        end = at + seconds
        while at < end:
            shown = view(Health.UNKNOWN, at, health) if isinstance(health, str) else view(health, at)
            memory = watch(memory, shown, holds)
            found.append((at, memory.condition))
            at += every
    return found


def changes(found: list[tuple[float, Condition | None]]) -> list[tuple[float, str]]:
    """When the status became what."""
    told, before = [], None
    for at, condition in found:
        if condition is not None and condition.status is not before:
            before = condition.status
            told.append((at, before.value))
    return told


def knowing(condition: Condition | None) -> ConditionMemory:
    return learned(ConditionMemory(), condition)
