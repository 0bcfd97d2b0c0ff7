"""What parent and child say to each other: one JSON document a line."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Why


@dataclass(frozen=True, slots=True)
class Source:
    """Where the child's answers come from: the driver, or a recording with overlays.

    `epoch` is the monotonic time at which the recording began to play.
    """

    replay: str = ""
    overlays: tuple[str, ...] = ()
    loop: bool = False
    epoch: float = 0.0


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
    return _line([source.replay, list(source.overlays), source.loop, source.epoch])


def decode_source(line: bytes) -> Source:
    replay, overlays, loop, epoch = json.loads(line)
    return Source(replay, tuple(overlays), loop, epoch)


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


def encode_reply(reply: Reply) -> bytes:
    return _line([reply.seconds, reply.broken, [_pack(a) for a in reply.answers]])


def decode_reply(line: bytes) -> Reply:
    """The reply in a line.

    Raises:
        ValueError: the line is not a reply.
    """
    seconds, broken, packed = json.loads(line)
    return Reply(tuple(_unpack(p) for p in packed), float(seconds), broken)


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _pack(answer: Answer) -> list[Any]:
    us = round(answer.us, 1)
    value = answer.value
    return [us, None, value.why.value, value.detail, value.code] if isinstance(value, Absent) else [us, value]


def _unpack(packed: list[Any]) -> Answer:
    if len(packed) == 2:  # noqa: PLR2004
        return Answer(packed[1], packed[0])
    return Answer(Absent(Why(packed[2]), packed[3], packed[4]), packed[0])
