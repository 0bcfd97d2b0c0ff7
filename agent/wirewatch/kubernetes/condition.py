"""From verdicts over time to the condition of the node: a fold with holds, so that it does not flicker.

Why these holds, and why DEGRADED is True: ADR 0019.
"""

import math
import re
from dataclasses import dataclass, replace
from enum import Enum

from wirewatch.core.types import Finding, Health
from wirewatch.core.words import printable
from wirewatch.verdict.node import Judged

TYPE = "InterconnectHealthy"
RELEASED = "Released"
"""The reason while `wirewatch release` holds."""
LONGEST_GAP = 30.0
"""Seconds between two views after which no hold counts: the verdict between them is not known."""


class ConditionStatus(Enum):
    """The status of a condition, as Kubernetes names it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Holds:
    """Seconds for which a verdict must hold without a break before the condition follows it.

    `failed`: FAILED, to False; also whatever comes first on a node without a condition. `unknown`: not
    job-ready, to Unknown. `recovered`: job-ready, back to True.
    """

    failed: float = 60.0
    unknown: float = 300.0
    recovered: float = 300.0


@dataclass(frozen=True, slots=True)
class View:
    """The verdict at one moment; `ready`: a job may start; `at` in Unix seconds, `mono` monotonic."""

    health: Health
    ready: bool
    reason: str
    message: str
    at: float
    mono: float


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition; `transition`: since when it has this status (Unix seconds)."""

    status: ConditionStatus
    reason: str
    message: str
    transition: float


@dataclass(frozen=True, slots=True)
class ConditionMemory:
    """The condition so far, and since when (monotonic seconds) each verdict holds; infinite for not.

    `seen`: the last view, `released`: the last one during a release. Until `known`, when the API server has
    given the condition from before a restart, nothing is decided.
    """

    condition: Condition | None = None
    known: bool = False
    failed: float = math.inf
    not_failed: float = math.inf
    ready: float = math.inf
    not_ready: float = math.inf
    seen: float = -math.inf
    released: float = -math.inf


LIMIT = 1024
"""Bytes of a message."""
HEALTHY, DEGRADED, NOTHING, STUCK = "Healthy", "Degraded", "NothingToWatch", "AgentStuck"
_WORD = re.compile(r"[A-Za-z0-9]+")


def status_of(view: View) -> ConditionStatus:
    """True is what lets a job start, as in /health; not knowing is neither True nor a reason to drain."""
    if view.ready:
        return ConditionStatus.TRUE
    return ConditionStatus.UNKNOWN if view.health is Health.UNKNOWN else ConditionStatus.FALSE


def watch(memory: ConditionMemory, view: View, holds: Holds) -> ConditionMemory:
    """The memory after one more view."""
    memory = _held(memory, view)
    before, status = memory.condition, _next(memory, view, holds)
    if not memory.known:
        return memory
    if status is not None and (before is None or status is not before.status):
        return replace(memory, condition=Condition(status, view.reason, view.message, view.at))
    # Reason and message are those of the last verdict that agrees with the status.
    if before is None or status_of(view) is not before.status:
        return memory
    return replace(memory, condition=replace(before, reason=view.reason, message=view.message))


def learned(memory: ConditionMemory, found: Condition | None) -> ConditionMemory:
    """The memory with the condition that the API server has from before a restart; None for none."""
    return replace(memory, condition=found, known=True)


def view_of(judged: Judged, at: float, mono: float, *, turning: bool, recording: str = "") -> View:
    """The view of a verdict; `recording`: its name, where it is not of this node."""
    health, reason, message = _reason_and_message(judged, turning=turning)
    if recording:
        message = f"a recording ({recording}), not this node: {message}"
    ready = health not in judged.verdict.fail_on
    return View(health, ready, reason, shortened(message), at, mono)


def reason_of(rule: str) -> str:
    """CamelCase of a rule: `nvlink.link_down` is NvlinkLinkDown."""
    return "".join(word[0].upper() + word[1:] for word in _WORD.findall(rule))


def shortened(text: str, limit: int = LIMIT) -> str:
    """Printable text of at most so many bytes."""
    whole = printable(text).encode(errors="replace")
    if len(whole) <= limit:
        return whole.decode()
    return whole[: limit - 3].decode(errors="ignore") + "..."


def _held(memory: ConditionMemory, view: View) -> ConditionMemory:
    if not 0 <= view.mono - memory.seen <= LONGEST_GAP:
        memory = ConditionMemory(memory.condition, memory.known, released=memory.released)
    failed, ready = status_of(view) is ConditionStatus.FALSE, view.ready

    def since(holds: bool, before: float) -> float:  # noqa: FBT001
        return min(before, view.mono) if holds else math.inf

    return ConditionMemory(
        memory.condition, memory.known, since(failed, memory.failed), since(not failed, memory.not_failed),
        since(ready, memory.ready), since(not ready, memory.not_ready), view.mono,
        view.mono if view.reason == RELEASED else memory.released,
    )  # fmt: skip


def _next(memory: ConditionMemory, view: View, holds: Holds) -> ConditionStatus | None:
    now, before = status_of(view), memory.condition

    def held(since: float, seconds: float) -> bool:
        return view.mono - since >= seconds

    if now is ConditionStatus.FALSE:
        return now if held(memory.failed, holds.failed) else None
    if now is ConditionStatus.TRUE:
        # An operator ordered a release: soon after it the node was ready again.
        soon = before is None or 0 <= memory.ready - memory.released <= holds.failed
        return now if held(memory.ready, holds.failed if soon else holds.recovered) else None
    if view.reason == RELEASED:
        # An operator ordered it: no hold is needed.
        return now
    was_failed = before is not None and before.status is ConditionStatus.FALSE
    return now if held(memory.not_failed if was_failed else memory.not_ready, holds.unknown) else None


def _reason_and_message(judged: Judged, *, turning: bool) -> tuple[Health, str, str]:
    if not turning:
        return Health.UNKNOWN, STUCK, "a loop of the agent has stopped, so nothing is known"
    health, findings = judged.verdict.health, judged.verdict.findings
    if health is Health.OK:
        return health, HEALTHY, "nothing wrong is seen on NVLink, PCIe and the network ports of this node"
    if judged.released_until and health is Health.UNKNOWN:
        return health, RELEASED, (
            "GPUs were released by `wirewatch release` for a reset or driver upgrade and are not watched; "
            "they will be watched again when the release ends"
        )  # fmt: skip
    if not findings:
        return health, NOTHING, "no GPU, link or port was found that could be judged"
    worst = findings[0]
    if health is Health.DEGRADED:
        return health, DEGRADED, f"the next job may start. {_finding_text(worst, len(findings) - 1)}"
    return health, reason_of(worst.rule), _finding_text(worst, len(findings) - 1)


def _finding_text(finding: Finding, others: int) -> str:
    """The finding in words; a long evidence must not cut off the action and the number of others."""
    uuid = f" ({finding.subject.uuid})" if finding.subject.uuid else ""
    head = f"{finding.rule} {finding.subject}{uuid}: "
    more = f" {others} more: `wirewatch findings list`." if others else ""
    tail = f". Action: {shortened(finding.action, LIMIT // 3)}.{more}"
    room = LIMIT - 200 - len(f"{head}{tail}".encode(errors="replace"))
    return f"{head}{shortened(finding.evidence, max(room, 60))}{tail}"
