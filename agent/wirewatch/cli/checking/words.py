"""An answer as one line, and as one document. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from wirewatch.cli.checking.values import SUPPRESSED, Answer, ProbeAge, Told

SCHEMA = "wirewatch.check/1"
LIMIT = 250
"""Bytes of the line: it is given to drain a node, and what takes a reason cuts it where it likes."""
CUT = "…"
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def line(answer: Answer) -> str:
    """The worst first, without line breaks; at most LIMIT bytes."""
    findings = [f for f in answer.grounds.findings if f.stage != SUPPRESSED]
    worst = max(findings, key=lambda f: f.health, default=None)
    head = answer.health.name if worst is None else f"{answer.health.name} {_finding(worst)}"
    return shortened(plain("; ".join((head, *_more(answer, len(findings))))))


def _finding(one: Told) -> str:
    evidence = one.evidence.rstrip().rstrip(".")
    return f"{one.rule} {one.place}: {evidence}. {one.action}"


def _more(answer: Answer, findings: int) -> Iterator[str]:
    if answer.grounds.why:
        yield answer.grounds.why
    if answer.grounds.probe is not None and not answer.grounds.probe.fresh:
        yield _stale(answer.grounds.probe)
    elif answer.grounds.probe is None and answer.required:
        yield "a fresh probe is required and none is known"
    if findings > 1:
        yield f"{findings - 1} more finding{'s' if findings > 2 else ''}"  # noqa: PLR2004


def _stale(probe: ProbeAge) -> str:
    if probe.age_seconds is None:
        return "no probe yet"
    return f"the last probe is {duration(probe.age_seconds)} old"


def duration(seconds: float) -> str:
    """Seconds for people, in the largest unit of which there is one at least."""
    unit, size = next(((name, size) for name, size in _UNITS if seconds >= size), ("s", 1.0))
    return f"{seconds / size:.0f} {unit}"


def plain(text: str) -> str:
    """The text with everything that is no printable character, and every row of spaces, one space."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shortened(text: str, limit: int = LIMIT) -> str:
    """At most `limit` bytes of UTF-8, the end cut off between two characters."""
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: limit - len(CUT.encode())].decode("utf-8", "ignore").rstrip() + CUT


def document(answer: Answer) -> dict[str, Any]:
    """As export.checkdocuments has it, which takes too long to be imported for it."""
    grounds = answer.grounds
    return {
        "schema": SCHEMA,
        "at": answer.at,
        "health": answer.health.name.lower(),
        "may_start": answer.may_start,
        "fail_on": [health.name.lower() for health in sorted(answer.fail_on)],
        "source": grounds.source,
        "why": _sound(grounds.why),
        "verdict_at": grounds.verdict_at,
        "probe": None if grounds.probe is None else _probe(grounds.probe, required=answer.required),
        "findings": [_row(finding) for finding in grounds.findings],
    }


def _probe(probe: ProbeAge, *, required: bool) -> Mapping[str, Any]:
    return {
        "at": probe.at, "age_seconds": probe.age_seconds, "fresh": probe.fresh, "required": required,
    }  # fmt: skip


def _row(one: Told) -> Mapping[str, Any]:
    return {
        "id": _sound(one.id), "stage": _sound(one.stage), "rule": _sound(one.rule),
        "health": one.health.name.lower(),
        "subject": {name: _sound(value) for name, value in one.subject.items()},
        "evidence": _sound(one.evidence), "action": _sound(one.action), "since": one.since,
    }  # fmt: skip


def _sound(text: str) -> str:
    """Half a character, which JSON can hold and a path too, is none in any other language."""
    return text.encode("utf-8", "replace").decode()
