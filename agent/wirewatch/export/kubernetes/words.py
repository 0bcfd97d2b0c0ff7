"""The reason and the message of a condition: what is worst, where, and what to do, in at most a kilobyte."""

import re

from wirewatch.core.types import Finding, Health
from wirewatch.export.kubernetes.condition import RELEASED, View
from wirewatch.verdict.node import Judged

LIMIT = 1024
"""Bytes of a message."""
HEALTHY, DEGRADED, NOTHING, STUCK = "Healthy", "Degraded", "NothingToWatch", "AgentStuck"
_WORD = re.compile(r"[A-Za-z0-9]+")


def view_of(judged: Judged, at: float, mono: float, *, turning: bool, recording: str = "") -> View:
    """What there is to tell of the node; `recording`: whose words these are when it is no node at all."""
    health, reason, message = _told(judged, turning=turning)
    if recording:
        message = f"a recording ({recording}), not this node: {message}"
    return View(health, reason, shortened(message), at, mono)


def reason_of(rule: str) -> str:
    """CamelCase of a rule: `nvlink.link_down` is NvlinkLinkDown."""
    return "".join(word[0].upper() + word[1:] for word in _WORD.findall(rule))


def shortened(text: str, limit: int = LIMIT) -> str:
    """Printable text of at most so many bytes."""
    text = "".join(c if c.isprintable() else " " for c in text)
    whole = text.encode(errors="replace")
    if len(whole) <= limit:
        return whole.decode()
    return whole[: limit - 3].decode(errors="ignore") + "..."


def _told(judged: Judged, *, turning: bool) -> tuple[Health, str, str]:
    if not turning:
        return Health.UNKNOWN, STUCK, "a loop of the agent does not turn, so that nothing is known"
    health, findings = judged.verdict.health, judged.verdict.findings
    if health is Health.OK:
        return health, HEALTHY, "nothing wrong is seen on NVLink, PCIe and the network ports of this node"
    if judged.released_until and health is Health.UNKNOWN:
        return health, RELEASED, (
            "GPUs were released by `wirewatch release` for a reset or driver upgrade and are not watched; "
            "they are watched again by themselves"
        )  # fmt: skip
    if not findings:
        return health, NOTHING, "no GPU, link or port was found that could be judged"
    worst = findings[0]
    if health is Health.DEGRADED:
        return health, DEGRADED, f"the next job may start. {_words(worst, len(findings) - 1)}"
    return health, reason_of(worst.rule), _words(worst, len(findings) - 1)


def _words(finding: Finding, others: int) -> str:
    """The finding in words; what else there is must not be cut off by a long evidence."""
    uuid = f" ({finding.subject.uuid})" if finding.subject.uuid else ""
    head = f"{finding.rule} {finding.subject}{uuid}: "
    more = f" {others} more: `wirewatch findings list`." if others else ""
    tail = f". Action: {shortened(finding.action, LIMIT // 3)}.{more}"
    room = LIMIT - 200 - len(f"{head}{tail}".encode(errors="replace"))
    return f"{head}{shortened(finding.evidence, max(room, 60))}{tail}"
