"""Which findings are of one cause: what cannot be read for the same reason, or for a lost GPU. Pure."""

from collections.abc import Sequence

from wirewatch.collectors.inventory import GPU_LOST
from wirewatch.core.types import Finding, Subject

FIRST, LAST = "inventory.", ("drift.", "lockstep.", "probe.", "verdict.")
"""Rules of the collector that says best what is wrong with a driver, and of those that follow from others."""
Cause = tuple[object, ...]


def heads(findings: Sequence[Finding]) -> tuple[int, ...]:
    """For each finding the position of the one that it comes under: its own where it stands for itself.

    A part that cannot be read comes under the loss of its GPU, or under the first that cannot be read for the
    same reason at the same place. A finding comes under none that is milder than itself.
    """
    lost = {_place(f.subject): n for n, f in enumerate(findings) if f.rule == GPU_LOST}
    blind = [n for n, f in enumerate(findings) if f.absent is not None]
    first: dict[Cause, int] = {}
    for n in sorted(blind, key=lambda n: _rank(findings[n])):
        first.setdefault(_cause(findings[n]), n)
    found = list(range(len(findings)))
    for n in blind:
        gone = lost.get(_place(findings[n].subject))
        if gone is not None and findings[gone].health >= findings[n].health:
            found[n] = gone
        else:
            found[n] = first[_cause(findings[n])]
    return tuple(found)


def _cause(finding: Finding) -> Cause:
    absent = finding.absent
    why = None if absent is None else (absent.why, absent.code, absent.detail)
    return (*_place(finding.subject), why)


def _place(part: Subject) -> Cause:
    """The GPU, or the device and port; the links of a GPU go with it."""
    return (part.uuid or part.gpu, "", "") if part.uuid or part.gpu else ("", part.device, part.port)


def _rank(finding: Finding) -> tuple[bool, bool, str]:
    return (not finding.rule.startswith(FIRST), finding.rule.startswith(LAST), finding.rule)
