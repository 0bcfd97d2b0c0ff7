"""Asking many questions at once, and taking typed values out of the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from wirewatch.core.ports import Answers, Nvml, Question
from wirewatch.core.types import Absent, Json, Why

NOT_ASKED = Absent(Why.UNSUPPORTED, "not supported when last asked")


@dataclass(frozen=True, slots=True)
class Supported:
    """What a GPU does not support, and what it told once and for all, while an NVML session lasts."""

    session: int = -1
    skip: frozenset[Question] = field(default_factory=frozenset)
    told: Answers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """Answers to a set of questions; a question that was left out reads as unsupported."""

    answers: Answers
    supported: Supported

    def json(self, question: Question) -> Json | Absent:
        answer = self.answers.get(question)
        return NOT_ASKED if answer is None else answer.value

    def whole(self, question: Question) -> int | Absent:
        return as_int(self.json(question))

    def number(self, question: Question) -> float | Absent:
        return as_float(self.json(question))

    def text(self, question: Question) -> str | Absent:
        return as_str(self.json(question))


def ask_gpu(
    nvml: Nvml,
    gpu: str,
    questions: tuple[Question, ...],
    known: Supported,
    once: tuple[Question, ...] = (),
) -> Asked | Absent:
    """Ask one GPU what it is known to support, or everything in a new session; `once` only once a session.

    Returns:
        The answers, or the one reason why none came when every answer failed for the same cause
        (GPU lost, NVML hung): that is news about the GPU, not about its fields.
    """
    session = nvml.session()
    known = known if known.session == session else Supported(session)
    missing = () if len(known.told) == len(once) else tuple(q for q in once if q not in known.told)
    asked = _left(questions + missing, known.skip)
    answers = dict(zip(asked, nvml.ask(gpu, asked), strict=True))
    absent = {q: a.value for q, a in answers.items() if isinstance(a.value, Absent)}
    whole = whole_failure(list(absent.values())) if len(absent) == len(answers) else None
    if whole is not None:
        return whole
    refused = frozenset(q for q, value in absent.items() if value.why is Why.UNSUPPORTED)
    told = {q: answers[q] for q in missing if q in answers and q not in absent}
    if told or not refused <= known.skip:
        known = Supported(session, known.skip | refused, {**known.told, **told})
    return Asked({**answers, **known.told}, known)


@lru_cache(maxsize=256)
def _left(questions: tuple[Question, ...], skip: frozenset[Question]) -> tuple[Question, ...]:
    return tuple(q for q in questions if q not in skip)


def whole_failure(values: Sequence[Json | Absent]) -> Absent | None:
    """The common reason when nothing at all could be read, unsupported fields aside."""
    bad = [v for v in values if isinstance(v, Absent) and v.why is not Why.UNSUPPORTED]
    good = any(not isinstance(v, Absent) for v in values)
    return bad[0] if bad and not good else None


def as_int(value: Json | Absent) -> int | Absent:
    if isinstance(value, Absent):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        return Absent(Why.MALFORMED, f"not a whole number: {value!r}")
    return value


def as_float(value: Json | Absent) -> float | Absent:
    if isinstance(value, Absent):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Absent(Why.MALFORMED, f"not a number: {value!r}")
    return float(value)


def as_str(value: Json | Absent) -> str | Absent:
    if isinstance(value, Absent):
        return value
    return value if isinstance(value, str) else Absent(Why.MALFORMED, f"not a text: {value!r}")


def as_ints(value: Json | Absent, length: int) -> Sequence[int] | Absent:
    """A list of exactly `length` whole numbers."""
    if isinstance(value, Absent):
        return value
    if isinstance(value, list | tuple) and len(value) == length:
        numbers = [n for n in map(as_int, value) if not isinstance(n, Absent)]
        if len(numbers) == length:
            return numbers
    return Absent(Why.MALFORMED, f"not {length} whole numbers: {value!r}")


def member(value: Json | Absent, name: str) -> Json | Absent:
    """A member of a structure."""
    if isinstance(value, Absent):
        return value
    if isinstance(value, Mapping) and name in value:
        return value[name]
    return Absent(Why.MALFORMED, f"no member {name!r}: {value!r}")
