"""The daemon's `/health`: it may tell more than is known here, but what is decided on must be there."""

import json
import math
from dataclasses import replace
from typing import Any

from wirewatch.cli.checking.values import Grounds, ProbeAge, Told
from wirewatch.core.types import LEVELS, Health

SCHEMA = "wirewatch.health/1"
STALE = 60.0
"""Seconds without a single poll, after which a daemon does not watch; each collector polls more often."""
_HEALTH = {health.name.lower(): health for health in Health}


class NotUnderstood(Exception):
    """Not the document that it should be; the text says what is wrong with it."""


class Stale(Exception):
    """It says itself that it does not watch the node any more."""


def read_health(body: bytes, now: float) -> Grounds:
    """What the daemon knows, at `now` in Unix seconds.

    Raises:
        NotUnderstood, Stale: it is no answer.
    """
    told = _object(_parsed(body), "the answer")
    if told.get("schema") != SCHEMA:
        raise NotUnderstood(f"its schema is {str(told.get('schema'))[:60]!r}, not {SCHEMA!r}")
    health, polled_at = _health(told), _number(told, "polled_at")
    released = _number(told, "released_until")
    turning, probe, required = _flag(told, "turning"), *_probe(told)
    findings = tuple(_finding(one) for one in _list(told, "findings"))
    grounds = Grounds(health, "daemon", "", polled_at, findings, probe, required)
    if released > now:
        return _released(grounds, released - now)
    if not turning:
        raise Stale("a loop of the daemon has stopped turning")
    if not abs(now - polled_at) <= STALE:
        raise Stale(
            f"the daemon last polled {now - polled_at:.0f} s ago" if polled_at else "it has not polled yet"
        )
    return grounds


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


def _probe(told: dict[str, Any]) -> tuple[ProbeAge | None, bool]:
    """The probe, and whether the policy wants a fresh one."""
    if "probe" not in told:
        raise NotUnderstood("no 'probe'")
    if told["probe"] is None:
        return None, False
    probe = _object(told["probe"], "'probe'")
    age = None if probe.get("age_seconds", 0) is None else _number(probe, "age_seconds")
    fresh = _flag(probe, "fresh") and age is not None
    return ProbeAge(_number(probe, "at"), age, fresh), _flag(probe, "required")


def _finding(value: Any) -> Told:
    one = _object(value, "a finding")
    subject = _object(one.get("subject"), "'subject'")
    return Told(
        rule=_text(one, "rule"), health=_health(one), evidence=_text(one, "evidence"),
        subject={name: _text(subject, name) for name in LEVELS if name in subject},
        action=_text(one, "action"), since=_number(one, "since"),
        id=_text(one, "id") if "id" in one else "", stage=_text(one, "stage") if "stage" in one else "",
    )  # fmt: skip


def _health(told: dict[str, Any]) -> Health:
    health = _HEALTH.get(_text(told, "health"))
    if health is None:
        raise NotUnderstood(f"no such health: {told['health'][:60]!r}")
    return health


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotUnderstood(f"{what} is no object")
    return value


def _list(told: dict[str, Any], name: str) -> list[Any]:
    value = told.get(name)
    if not isinstance(value, list):
        raise NotUnderstood(f"{name!r} is no list")
    return value


def _text(told: dict[str, Any], name: str) -> str:
    value = told.get(name)
    if not isinstance(value, str):
        raise NotUnderstood(f"{name!r} is no text")
    return value


def _flag(told: dict[str, Any], name: str) -> bool:
    value = told.get(name)
    if not isinstance(value, bool):
        raise NotUnderstood(f"{name!r} is neither true nor false")
    return value


def _number(told: dict[str, Any], name: str) -> float:
    """A number 0 or above: seconds, all of them."""
    value = told.get(name)
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise NotUnderstood(f"{name!r} is no number of seconds")
    return number
