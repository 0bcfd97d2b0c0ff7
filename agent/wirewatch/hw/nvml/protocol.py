"""The protocol between the daemon and its NVML child, one JSON document a line; and NVML's error codes.

The parent writes a source, then jobs; the child answers with a hello, then one reply to each job.
"""

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, Json, Why


@dataclass(frozen=True, slots=True)
class Source:
    """The child's source: the driver, or a recording with overlays.

    `epoch`: the monotonic time at which the recording began to play. `timed` asks for each call's time.
    `lead`: seconds after which the overlays' faults begin, hurried; None for when their files say.
    """

    replay: str = ""
    overlays: tuple[str, ...] = ()
    loop: bool = False
    epoch: float = 0.0
    timed: bool = False
    lead: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Answers to one job; `seconds` inside the library; `broken` is an error to raise in the parent."""

    answers: tuple[Answer, ...]
    seconds: float
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """The child's first line: ready, or the NVML code that keeps it from being so."""

    code: int = 0
    detail: str = ""


_encode = json.JSONEncoder(separators=(",", ":")).encode
"""A shared encoder for all lines: `json.dumps` with separators makes a new encoder each time."""
_ABSENT = "!absent"
UNINITIALIZED = 1
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIBRARY_DRIVER_MISMATCH = 18
CODES: Mapping[int, tuple[Why, str]] = {
    1: (Why.LOST, "NVML is not initialised"),
    2: (Why.UNSUPPORTED, "NVML does not know this argument here"),
    3: (Why.UNSUPPORTED, "not supported by this device"),
    4: (Why.DENIED, "no permission; run as root"),
    6: (Why.MISSING, "not found"),
    7: (Why.MALFORMED, "insufficient size"),
    8: (Why.MISSING, "external power cables are not attached"),
    9: (Why.MISSING, "the NVIDIA driver is not loaded"),
    10: (Why.TIMEOUT, "the driver timed out"),
    11: (Why.LOST, "the kernel found an interrupt problem with the GPU"),
    12: (Why.MISSING, "libnvidia-ml.so.1 not found"),
    13: (Why.UNSUPPORTED, "this driver's NVML has no such function"),
    14: (Why.LOST, "corrupted infoROM"),
    15: (Why.LOST, "GPU has fallen off the bus or is otherwise inaccessible"),
    16: (Why.LOST, "the GPU needs a reset"),
    17: (Why.DENIED, "the GPU is blocked by the operating system"),
    18: (Why.MISSING, "driver and NVML library versions differ; a driver upgrade is half done"),
    19: (Why.TIMEOUT, "the GPU is in use"),
    25: (Why.UNSUPPORTED, "structure version not known to this driver"),
    26: (Why.UNSUPPORTED, "deprecated and gone"),
    27: (Why.TIMEOUT, "not ready"),
    28: (Why.LOST, "GPU not found"),
}
SESSION_ENDED = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_DRIVER_MISMATCH})
"""Codes after which only a new initialisation can help."""


_NONSENSE = (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError)
"""Errors from a line that this protocol did not write."""


class LibraryError(Exception):
    """NVML cannot be used; `code` is its return code."""

    def __init__(self, code: int) -> None:
        super().__init__(str(absent_code(code)))
        self.code = code


def encode_source(source: Source) -> bytes:
    """A source as a line."""
    return _line(astuple(source))


def decode_source(line: bytes) -> Source:
    """The source in a line."""
    replay, overlays, *rest = json.loads(line)
    return Source(replay, tuple(overlays), *rest)


def encode_hello(hello: Hello) -> bytes:
    """A hello as a line."""
    return _line(astuple(hello))


def decode_hello(line: bytes) -> Hello:
    """Return the hello in a line; raises ValueError for any other line."""
    try:
        code, detail = json.loads(line)
        return Hello(int(code), str(detail))
    except _NONSENSE as error:
        raise ValueError(f"not a hello: {line[:80]!r}") from error


@lru_cache(maxsize=1024)
def encode_job(scope: str | None, questions: tuple[Question, ...]) -> bytes:
    """A job as a line. Polls repeat the same jobs, so both sides cache them."""
    return _line([scope, [[q.call, *q.args] for q in questions]])


@lru_cache(maxsize=1024)
def decode_job(line: bytes) -> tuple[str | None, tuple[Question, ...]]:
    """Scope (None for the system) and questions of the job in a line."""
    scope, questions = json.loads(line)
    return scope, tuple(Question(q[0], tuple(q[1:])) for q in questions)


def encode_reply(reply: Reply, *, timed: bool = True) -> bytes:
    """A reply as a line, with the time of each call if `timed`."""
    values = [_pack(a.value) for a in reply.answers]
    return _line(
        [reply.seconds, reply.broken, values, [round(a.us, 1) for a in reply.answers] if timed else None]
    )


def decode_reply(line: bytes) -> Reply:
    """Return the reply in a line; raises ValueError for any other line."""
    try:
        seconds, broken, values, times = json.loads(line.decode())
        spent = repeat(0.0, len(values)) if times is None else times
        answers = tuple(Answer(_unpack(v), float(us)) for v, us in zip(values, spent, strict=True))
        return Reply(answers, float(seconds), str(broken))
    except _NONSENSE as error:
        raise ValueError(f"not a reply: {line[:80]!r}") from error


def absent_code(code: int) -> Absent:
    """Return why there is no answer, by NVML's return code."""
    why, detail = CODES.get(code, (Why.MALFORMED, "unknown error"))
    return Absent(why, f"{detail} (NVML error {code})", code)


def _line(value: Any) -> bytes:
    return _encode(value).encode() + b"\n"


def _pack(value: Json | Absent) -> Any:
    return {_ABSENT: [value.why.value, value.detail, value.code]} if isinstance(value, Absent) else value


def _unpack(packed: Any) -> Json | Absent:
    return _absent(*packed[_ABSENT]) if isinstance(packed, dict) and _ABSENT in packed else packed


@lru_cache(maxsize=512)
def _absent(why: str, detail: str, code: int | None) -> Absent:
    return Absent(Why(why), detail, code)
