"""Bundled overlays with an end: the same fault on a squeezed clock, begun on a healthy node and then over."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proof.rehearsal.expected import Change
from proof.rehearsal.squeeze import FACTOR, squeezed
from wirewatch.hw.overlay import BUNDLED

__all__ = ["Change", "Span", "as_toml", "bundled", "ending", "lasting"]


@dataclass(frozen=True, slots=True)
class Span:
    """From when until when the fault lasts, in seconds of play."""

    begin: float
    end: float


def bundled(name: str) -> Sequence[Change]:
    """The changes of a bundled overlay, as they stand in its file."""
    changes = tomllib.loads((BUNDLED / f"{name}.toml").read_text("utf-8"))["change"]
    assert isinstance(changes, list)
    return changes


def lasting(changes: Sequence[Change], begin: float, seconds: float, *, from_start: bool = False) -> Span:
    """When a fault lasts that shall begin at `begin` and go on for `seconds`.

    One that has its own end in its file lasts until that; `from_start`: it was there before the node was.
    """
    own = [_own_end(changes, change) for change in changes if "until" in change]
    return Span(0.0 if from_start else begin, begin + (max(own) if own else seconds))


def ending(changes: Sequence[Change], span: Span) -> Iterator[Change]:
    """The changes squeezed, begun at `span.begin` and over at `span.end`.

    What has no `from` beside others that have one is how the node is, and stays; so do counters that have
    grown.
    """
    first = _first(changes)
    timed = any("from" in change for change in changes)
    for change in changes:
        if timed and "from" not in change:
            yield change
            continue
        begin = span.begin + squeezed(change.get("from", first) - first)
        end = span.begin + _own_end(changes, change) if "until" in change else span.end
        yield from _one(change, Span(begin, end))


def _first(changes: Sequence[Change]) -> float:
    return min((float(change["from"]) for change in changes if "from" in change), default=0.0)


def _own_end(changes: Sequence[Change], change: Change) -> float:
    return squeezed(change["until"] - _first(changes))


def _one(change: Change, span: Span) -> Iterator[Change]:
    if "ramp" in change:
        faster = change["ramp"] * FACTOR
        yield {**change, "ramp": faster, "from": span.begin, "until": span.end}
        kept = {key: value for key, value in change.items() if key != "ramp"}
        yield {**kept, "add": int(faster * (span.end - span.begin)), "from": span.end}
    elif "add" in change and "at" not in change:
        yield {**change, "from": span.begin}
    else:
        yield {**change, "from": span.begin, "until": span.end}


def as_toml(about: str, changes: Sequence[Change]) -> str:
    """An overlay's file."""
    lines = [f"about = {json.dumps(about)}"]
    for change in changes:
        lines += ["", "[[change]]", *(f"{key} = {_value(value)}" for key, value in change.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(v)}' for key, v in value.items())} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # Texts, numbers and truths are written alike in JSON and TOML.
    return json.dumps(value)
