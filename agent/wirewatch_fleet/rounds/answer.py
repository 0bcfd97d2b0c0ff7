"""A node's answer in a pair, `wirewatch.fleet-peer/1`, and the joint result of both answers."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import TypeAdapter, ValidationError

from wirewatch_fleet.pairs.model import Name, PairEnd, PairRun, Rails, Rate, StrictPart

LONGEST = 300
"""Most characters of a reason."""
Cause = Literal["", "refused", "preempted", "failed"]
"""Reasons for no result: the gate refused, a user's job came, or the work failed."""
_WEIGHT: dict[Cause, int] = {"refused": 0, "preempted": 1, "failed": 2, "": 3}
"""Rank of a cause; the better explanation comes first, since a refused end makes the other wait in vain."""


@dataclass(frozen=True, slots=True)
class PeerAnswer(StrictPart):
    """What one node of a pair measured, of the pair as a whole, and what it saw of itself.

    Rates as in `PairRun`, seen from the first node: both ends say the same. `cause` is empty where all was
    measured; else `why` says in words what was in the way. `seconds` that it took; `gpu_seconds` held.
    """

    schema: Literal["wirewatch.fleet-peer/1"]
    at: float
    name: Name
    first: Name
    second: Name
    cause: Cause = ""
    why: str = ""
    sends: Rate | None = None
    receives: Rate | None = None
    all_reduce: Rate | None = None
    rails: Rails = field(default_factory=dict)
    end: PairEnd = field(default_factory=PairEnd)
    seconds: Annotated[float, Ge(0)] = 0.0
    gpu_seconds: Annotated[float, Ge(0)] = 0.0


PEER = TypeAdapter(PeerAnswer)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.fleet-peer.1": PEER}


def encode_answer(answer: PeerAnswer) -> str:
    """Return the answer as a line that can be found in other output."""
    return PEER.dump_json(answer).decode()


def answers_in(text: str) -> Iterator[PeerAnswer]:
    """Yield the answers in a pair's output, without other lines and cut lines."""
    for line in text.encode("utf-8", "replace").splitlines():
        with suppress(ValidationError):
            yield PEER.validate_json(line[line.find(b"{") :])


def run_of(first: str, second: str, said: str) -> PairRun:
    """Return the result of an ended pair, from all output of its two ends."""
    answers = {one.name: one for one in answers_in(said) if (one.first, one.second) == (first, second)}
    ends = {name: answers[name].end for name in (first, second) if name in answers}
    if not ends:
        return failed_run(first, second, _unanswered(said))
    given: Sequence[PeerAnswer] = sorted(
        (answers[name] for name in ends), key=lambda one: (_WEIGHT[one.cause], one.name != first)
    )
    one = given[0]
    if one.cause:
        return PairRun(first, second, failed=f"{one.name}: {one.cause}: {one.why}"[:LONGEST], ends=ends)
    run = PairRun(first, second, one.sends, one.receives, one.all_reduce, one.rails, ends=ends)
    return run if run.answered else failed_run(first, second, f"{one.name} measured nothing")


def failed_run(first: str, second: str, why: str) -> PairRun:
    """Return a requested pair without a result."""
    words = "".join(c for c in why if c.isprintable())[:LONGEST]
    return PairRun(first, second, failed=words or "no answer")


def _unanswered(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"neither node answered: {lines[-1]}" if lines else "no answer of either"
