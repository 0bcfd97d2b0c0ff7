"""The daemon's `/health`: it may hold more than is known here, but what is known must be there and right."""

import json
import math
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, get_args, get_origin

from wirewatch.cli.checking.values import HEALTHS, Grounds
from wirewatch.core.types import Health, Subject
from wirewatch.documents.health import CheckFinding, HealthDocument, NodeFinding

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
