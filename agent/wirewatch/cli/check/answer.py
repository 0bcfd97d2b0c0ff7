"""What a check rests on, what it was asked for, and what it answers. Imported in milliseconds."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from wirewatch.core.types import Finding, Health, Subject
from wirewatch.documents.health import (
    HEALTH_NAMES,
    CheckDocument,
    CheckFinding,
    HealthDocument,
    NodeFinding,
    ProbeStatus,
    Stage,
)

HEALTHS = {name: health for health, name in HEALTH_NAMES.items()}
EXIT = {Health.OK: 0, Health.DEGRADED: 1, Health.FAILED: 2, Health.UNKNOWN: 3}
SUPPRESSED = "suppressed"
Source = Literal["daemon", "own", "none"]


@dataclass(frozen=True, slots=True)
class Grounds:
    """What is known of the node, by whose word, and why not by the daemon's.

    `verdict_at`: Unix seconds, 0 for no verdict. `probe` None: probing is off, or there is nothing to probe.
    `required`: the policy wants a fresh probe. `released`: nothing may be asked of the GPUs now.
    """

    health: Health
    source: Source
    why: str = ""
    verdict_at: float = 0.0
    findings: tuple[CheckFinding, ...] = ()
    probe: ProbeStatus | None = None
    required: bool = False
    released: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """When a job may start.

    `fail_on` always holds FAILED; `max_age` of a probe in seconds, None: as the daemon has it; `require`:
    without a fresh probe no job starts.
    """

    fail_on: frozenset[Health] = frozenset({Health.FAILED})
    max_age: float | None = None
    require: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered at `at`, Unix seconds; `fail_on` and `grounds.probe` are those that were applied."""

    at: float
    health: Health
    fail_on: frozenset[Health]
    required: bool
    grounds: Grounds

    @property
    def may_start(self) -> bool:
        return self.health not in self.fail_on

    @property
    def code(self) -> int:
        """The exit code."""
        return 0 if self.may_start else EXIT[self.health]


LIMIT = 250
"""Bytes of the line: it is given to drain a node, and what takes a reason cuts it where it likes."""
CUT = "…"
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
HEALTH_SCHEMA = "wirewatch.health/1"
STALE = 60.0
"""Seconds without a single poll, after which a daemon does not watch; each collector polls more often."""
_WORDS = {
    dict: "no object",
    list: "no list",
    str: "no text",
    bool: "neither true nor false",
    int: "no whole number",
}


class NotUnderstood(Exception):
    """Not the document that it should be; the text says what is wrong with it."""


class Stale(Exception):
    """It says itself that it does not watch the node any more."""


def found(finding: Finding, name: str = "", stage: Stage | Literal[""] = "") -> CheckFinding:
    """A finding as `check` prints it; without `name` and `stage` where nobody has given it one."""
    health, subject = HEALTH_NAMES[finding.health], finding.subject.levels()
    return CheckFinding(
        name, stage, finding.rule, health, subject, finding.evidence, finding.action, finding.since
    )


def nothing(why: str, *, required: bool = False) -> Grounds:
    """Nobody has told anything."""
    return Grounds(Health.UNKNOWN, "none", why, required=required)


def decide(grounds: Grounds, terms: Terms, at: float) -> Answer:
    """The answer at `at`, Unix seconds.

    A node without a fresh probe, where one is required, is at least UNKNOWN, and that starts no job.
    """
    probe = aged(grounds.probe, terms.max_age)
    required = terms.require or grounds.required
    probe = None if probe is None else replace(probe, required=required)
    health, fail_on = grounds.health, terms.fail_on | {Health.FAILED}
    if required and not (probe is not None and probe.fresh):
        health, fail_on = max(health, Health.UNKNOWN), fail_on | {Health.UNKNOWN}
    return Answer(at, health, fail_on, required, replace(grounds, probe=probe))


def aged(probe: ProbeStatus | None, max_age: float | None) -> ProbeStatus | None:
    """The probe, judged by `max_age` seconds instead of the daemon's own measure."""
    if probe is None or max_age is None:
        return probe
    return replace(probe, fresh=probe.age_seconds is not None and probe.age_seconds <= max_age)


def line(answer: Answer) -> str:
    """The worst first, without line breaks; at most LIMIT bytes."""
    findings = [f for f in answer.grounds.findings if f.stage != SUPPRESSED]
    worst = max(findings, key=lambda f: HEALTHS[f.health], default=None)
    head = answer.health.name if worst is None else f"{answer.health.name} {_finding(worst)}"
    return shortened(plain("; ".join((head, *_more(answer, len(findings))))))


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
        "wirewatch.check/1", answer.at, HEALTH_NAMES[answer.health], answer.may_start, fail_on,
        grounds.source,
        grounds.why, grounds.verdict_at, grounds.probe, list(grounds.findings),
    )  # fmt: skip
    return {name: _sound(value) for name, value in asdict(made).items()}


def read_health(body: bytes, now: float) -> Grounds:
    """What the daemon knows, at `now` in Unix seconds.

    Raises:
        NotUnderstood, Stale: it is no answer.
    """
    value = _plain(dict, _parsed(body), "the answer")
    if value.get("schema") != HEALTH_SCHEMA:
        raise NotUnderstood(f"its schema is {str(value.get('schema'))[:60]!r}, not {HEALTH_SCHEMA!r}")
    told: HealthDocument = _typed(HealthDocument, value, "the answer")
    probe = told.probe
    if probe is not None:
        probe = replace(probe, fresh=probe.fresh and probe.age_seconds is not None)
    grounds = Grounds(
        HEALTHS[told.health], "daemon", "", told.polled_at, tuple(map(_read_finding, told.findings)), probe,
        required=probe is not None and probe.required,
    )  # fmt: skip
    if told.released_until > now:
        return _released(grounds, told.released_until - now)
    if not told.turning:
        raise Stale("a loop of the daemon has stopped turning")
    if not abs(now - told.polled_at) <= STALE:
        ago = f"the daemon last polled {now - told.polled_at:.0f} s ago"
        raise Stale(ago if told.polled_at else "it has not polled yet")
    return grounds


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


def _stale(probe: ProbeStatus) -> str:
    if probe.age_seconds is None:
        return "no probe yet"
    return f"the last probe is {duration(probe.age_seconds)} old"


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


def _read_finding(one: NodeFinding) -> CheckFinding:
    subject = Subject.of(one.subject).levels()
    return CheckFinding(one.id, one.stage, one.rule, one.health, subject, one.evidence, one.action, one.since)


def _released(grounds: Grounds, seconds: float) -> Grounds:
    """Nobody looks, and nobody shall: somebody needs the GPUs without any handle on them."""
    why = f"released for another {seconds:.0f} s: nobody watches the GPUs"
    return replace(grounds, health=max(grounds.health, Health.UNKNOWN), why=why, released=True)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(f"not JSON: {error}") from error


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _typed(kind: Any, value: Any, name: str) -> Any:
    """The value of JSON as one of `kind`, a type of export.healthdocuments; `name` is what it is called.

    Raises:
        NotUnderstood: it is none.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is None:
        return _record(kind, value, name) if is_dataclass(kind) else _plain(kind, value, name)
    if origin is UnionType:
        return None if value is None else _typed(inner[0], value, name)
    if origin is list:
        return [_typed(inner[0], one, f"one of {name}") for one in _plain(list, value, name)]
    if origin is dict:
        return {key: _typed(inner[1], one, repr(key)) for key, one in _plain(dict, value, name).items()}
    if value not in inner:
        raise NotUnderstood(f"{name} is none of {', '.join(inner)}: {str(value)[:60]!r}")
    return value


def _record(kind: Any, value: Any, name: str) -> Any:
    """A dataclass; what it has no field for is left out."""
    given = _plain(dict, value, name)
    missing = [field.name for field in fields(kind) if field.name not in given]
    if missing:
        raise NotUnderstood(f"{name} has no {missing[0]!r}")
    return kind(**{f.name: _typed(f.type, given[f.name], repr(f.name)) for f in fields(kind)})


def _plain(kind: Any, value: Any, name: str) -> Any:
    if kind is float:
        return _seconds(value, name)
    if type(value) is not kind:
        raise NotUnderstood(f"{name} is {_WORDS[kind]}")
    return value


def _seconds(value: Any, name: str) -> float:
    """A number 0 or above: seconds, all of them."""
    try:
        number = float(value) if type(value) in {int, float} else math.nan
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise NotUnderstood(f"{name} is no number of seconds")
    return number
