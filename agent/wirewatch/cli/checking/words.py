"""An answer as one line, and as one document. Pure."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from wirewatch.cli.checking.values import HEALTHS, SUPPRESSED, Answer
from wirewatch.core.types import Subject
from wirewatch.documents.health import HEALTH_NAMES, CheckDocument, CheckFinding, Probe

LIMIT = 250
"""Bytes of the line: it is given to drain a node, and what takes a reason cuts it where it likes."""
CUT = "…"
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def line(answer: Answer) -> str:
    """The worst first, without line breaks; at most LIMIT bytes."""
    findings = [f for f in answer.grounds.findings if f.stage != SUPPRESSED]
    worst = max(findings, key=lambda f: HEALTHS[f.health], default=None)
    head = answer.health.name if worst is None else f"{answer.health.name} {_finding(worst)}"
    return shortened(plain("; ".join((head, *_more(answer, len(findings))))))


def _finding(one: CheckFinding) -> str:
    evidence = one.evidence.rstrip().rstrip(".")
    return f"{one.rule} {Subject.of(one.subject)}: {evidence}. {one.action}"


def _more(answer: Answer, findings: int) -> Iterator[str]:
    if answer.grounds.why:
        yield answer.grounds.why
    if answer.grounds.probe is not None and not answer.grounds.probe.fresh:
        yield _stale(answer.grounds.probe)
    elif answer.grounds.probe is None and answer.required:
        yield "a fresh probe is required and none is known"
    if findings > 1:
        yield f"{findings - 1} more finding{'s' if findings > 2 else ''}"  # noqa: PLR2004


def _stale(probe: Probe) -> str:
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
    """A `CheckDocument` as JSON has it."""
    grounds = answer.grounds
    fail_on = [HEALTH_NAMES[health] for health in sorted(answer.fail_on)]
    made = CheckDocument(
        "wirewatch.check/1", answer.at, HEALTH_NAMES[answer.health], answer.may_start, fail_on, grounds.source,
        grounds.why, grounds.verdict_at, grounds.probe, list(grounds.findings),
    )  # fmt: skip
    return {name: _sound(value) for name, value in asdict(made).items()}


def _sound(value: Any) -> Any:
    """Half a character, which JSON can hold and a path too, is none in any other language."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_sound(one) for one in value]
        case dict():
            return {name: _sound(one) for name, one in value.items()}
        case _:
            return value
