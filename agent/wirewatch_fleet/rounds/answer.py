"""What one node of a pair answers, `wirewatch.fleet-peer/1`, and what both answers amount to."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import TypeAdapter, ValidationError

from wirewatch_fleet.pairs.model import Name, PairEnd, PairRun, Rails, Rate, StrictPart

LONGEST = 300
"""Characters of a reason."""
Cause = Literal["", "refused", "preempted", "failed"]
"""Why there is nothing: the gate refused, a user's job came, or it could not be done."""
_WEIGHT: dict[Cause, int] = {"refused": 0, "preempted": 1, "failed": 2, "": 3}
"""What explains more comes first: where one end is refused, the other waits for it in vain."""


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
    """The answer as one line, to be found among whatever else is printed."""
    return PEER.dump_json(answer).decode()


def answers_in(text: str) -> Iterator[PeerAnswer]:
    """The answers among the lines of what a pair printed; others, and lines that were cut, are left out."""
    for line in text.encode("utf-8", "replace").splitlines():
        with suppress(ValidationError):
            yield PEER.validate_json(line[line.find(b"{") :])


def run_of(first: str, second: str, said: str) -> PairRun:
    """What a pair that has ended measured, by all that its two ends printed."""
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
    """A pair that was asked, and of which there is nothing."""
    words = "".join(c for c in why if c.isprintable())[:LONGEST]
    return PairRun(first, second, failed=words or "no answer")


def _unanswered(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"neither node answered: {lines[-1]}" if lines else "no answer of either"
