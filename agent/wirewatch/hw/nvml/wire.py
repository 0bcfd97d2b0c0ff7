"""What parent and child say to each other: one JSON document a line."""

import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Json, Why


@dataclass(frozen=True, slots=True)
class Source:
    """Where the child's answers come from: the driver, or a recording with overlays.

    `epoch` is the monotonic time at which the recording began to play; `timed` asks for each call's time.
    """

    replay: str = ""
    overlays: tuple[str, ...] = ()
    loop: bool = False
    epoch: float = 0.0
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Answers to one job; `seconds` inside the library; `broken` is an error to raise in the parent."""

    answers: tuple[Answer, ...]
    seconds: float
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """The child's first word: ready, or the NVML code for which it is not."""

    code: int = 0
    detail: str = ""


def encode_source(source: Source) -> bytes:
    return _line([source.replay, list(source.overlays), source.loop, source.epoch, source.timed])


def decode_source(line: bytes) -> Source:
    replay, overlays, loop, epoch, timed = json.loads(line)
    return Source(replay, tuple(overlays), loop, epoch, timed)


def encode_hello(hello: Hello) -> bytes:
    return _line([hello.code, hello.detail])


def decode_hello(line: bytes) -> Hello:
    return Hello(*json.loads(line))


@lru_cache(maxsize=1024)
def encode_job(scope: str | None, questions: tuple[Question, ...]) -> bytes:
    """A job as a line. Polls ask the same again and again, so both sides keep what they have worked out."""
    return _line([scope, [[q.call, *q.args] for q in questions]])


@lru_cache(maxsize=1024)
def decode_job(line: bytes) -> tuple[str | None, tuple[Question, ...]]:
    scope, questions = json.loads(line)
    return scope, tuple(Question(q[0], tuple(q[1:])) for q in questions)


def encode_reply(reply: Reply, *, timed: bool = True) -> bytes:
    """A reply as a line; without the time of each call unless it is wanted, since most never are."""
    values = [_pack(a.value) for a in reply.answers]
    return _line(
        [reply.seconds, reply.broken, values, [round(a.us, 1) for a in reply.answers] if timed else None]
    )


def decode_reply(line: bytes) -> Reply:
    """The reply in a line.

    Raises:
        ValueError: the line is not a reply.
    """
    try:
        seconds, broken, values, times = json.loads(line.decode())
        spent = repeat(0.0, len(values)) if times is None else times
        answers = tuple(Answer(_unpack(v), float(us)) for v, us in zip(values, spent, strict=True))
        return Reply(answers, float(seconds), str(broken))
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"not a reply: {line[:80]!r}") from error


_encode = json.JSONEncoder(separators=(",", ":")).encode
"""One encoder for all lines: `json.dumps` with separators makes a new one each time."""


def _line(value: Any) -> bytes:
    return _encode(value).encode() + b"\n"


_ABSENT = "!absent"


def _pack(value: Json | Absent) -> Any:
    return {_ABSENT: [value.why.value, value.detail, value.code]} if isinstance(value, Absent) else value


def _unpack(packed: Any) -> Json | Absent:
    return _absent(*packed[_ABSENT]) if isinstance(packed, dict) and _ABSENT in packed else packed


@lru_cache(maxsize=512)
def _absent(why: str, detail: str, code: int | None) -> Absent:
    return Absent(Why(why), detail, code)
