"""Reads dumps of PyTorch's Flight Recorder: a pickle or JSON of each rank becomes its calls.

A pickle can run code, hash endlessly and claim any memory. So no unpickler reads it. A machine of its own
builds dicts, lists, tuples, texts and numbers, and refuses every other operation. Formats 2.4 to 2.10 (torch
2.5 to 2.13, FlightRecorder.hpp).
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from pickletools import genops
from typing import Any, NamedTuple, TypeVar

from wirewatch.core.types import NotText, utf8

LARGEST = 32 << 20
"""Most bytes of a file; 2,000 calls with their stacks take some two million."""
MOST = 5_000_000
"""Most operations of a pickle, and most numbers and texts taken from a dump."""
FORMATS = frozenset(f"2.{minor}" for minor in range(4, 11))
_FRAMES = 64
_LONG = 300
"""Characters kept of a text."""
_UNDER_WAY = frozenset({"scheduled", "started"})
_BIG = 1 << 63
_DIMENSIONS = 64
_TORCH = re.compile(r"[/\\]torch[/\\]|[/\\](?:contextlib|functools|typing_extensions)\.py$|^<frozen ")
_RANK = re.compile(r"^(.*?)(\d{1,7})(?:\.(?:json|pkl|pickle|pt|bin))?$")
_WORDS = frozenset({
    "", "nccl", "comm", "lib", "fr", "flight", "recorder", "debug", "info", "trace", "dump", "rank", "json",
})  # fmt: skip
"""Words of a dump's name that are not part of a host's."""
_DUMP = re.compile(rb'"(?:collective_seq_id|pg_config|record_id|pg_status)"\s*:')


class DumpError(ValueError):
    """The file is not a readable dump; the text says why."""


class CallShape(NamedTuple):
    """The call as all ranks of a group must make it: elements of each tensor, and element types.

    None, and an empty operation: the dump lacks that field.
    """

    op: str
    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None
    input_types: tuple[str, ...] | None
    output_types: tuple[str, ...] | None


_Kept = TypeVar("_Kept", str, CallShape)


@dataclass(slots=True)
class RecordedCall:
    """A collective or message that a rank has called; `where`: the line of the job that called it.

    `seq` numbers the collectives of a group. `created`: Unix seconds. `late`: its time-out has passed.
    """

    group: str
    desc: str
    seq: int
    p2p_seq: int
    shape: CallShape
    state: str
    done: bool
    late: bool
    p2p: bool
    created: float
    where: str

    @property
    def waits(self) -> bool:
        return self.state in _UNDER_WAY


@dataclass(frozen=True, slots=True)
class RankDump:
    """A rank's dump. `groups`: name to description and ranks, which are empty where the dump has none.

    `lost`: older calls are no longer in it. `gaps`: it lacks calls between them, or fields of calls.
    """

    rank: int
    host: str
    file: str
    format: str
    library: str
    groups: Mapping[str, tuple[str, tuple[int, ...]]]
    calls: Sequence[RecordedCall]
    lost: bool
    gaps: bool


def looks_like_dump(head: bytes) -> bool:
    """Return whether a file that begins so may be a dump."""
    return head[:1] == b"\x80" or (head.lstrip()[:1] == b"{" and _DUMP.search(head) is not None)


def named(path: Path, root: Path) -> tuple[int, str]:
    """Return the rank and the host in a dump's name; the host is empty where there is none.

    Raises DumpError: the name does not end with a rank.
    """
    found = _RANK.match(path.name)
    if found is None:
        raise DumpError("its name does not end with a rank")
    words = re.sub(r"(?:comm_lib|nccl)_trace_rank_?$", "", found[1])
    host = "_".join(part for part in words.split("_") if part.strip(".-") not in _WORDS).strip(".-")
    return int(found[2]), host or (path.parent.name if root in path.parent.parents else "")


def read_dump(data: bytes, rank: int, host: str, file: str) -> RankDump:
    """Return the contents of a dump. Raises DumpError: it is not a dump, or is too large."""
    if len(data) > LARGEST:
        raise DumpError(f"it has more than {LARGEST} bytes")
    made = _json(data) if data.lstrip()[:1] == b"{" else plain(data)
    if not isinstance(made, dict) or not {"version", "pg_config"} <= made.keys():
        raise DumpError("it is not a dump of the flight recorder: it has no version and pg_config")
    reader = _DumpReader()
    entries = [one for one in _list(made.get("entries")) if isinstance(one, dict)]
    reader.spend(40 * len(entries))
    calls = [reader.call(entry) for entry in entries]
    _close(calls)
    ids = [_number(entry, "record_id") for entry in entries]
    groups = {_text(name): _group(reader, one) for name, one in _dict(made["pg_config"]).items()}
    library = _text(made.get("comm_lib_version")) or _text(made.get("nccl_version"))
    whole = isinstance(made.get("entries"), (list, tuple)) and all("record_id" in one for one in entries)
    gaps = not (whole and all(map(_full, calls))) or any(b - a != 1 for a, b in pairwise(ids))
    lost = bool(ids) and ids[0] > 0
    return RankDump(rank, host, file, _text(made["version"]), library, groups, calls, lost, gaps)


def _json(data: bytes) -> Any:
    try:
        return json.loads(utf8(data))
    except NotText as error:
        raise DumpError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise DumpError("it is no whole JSON document") from error


@dataclass(slots=True)
class _DumpReader:
    """Reads calls from entries, and at most `left` parts of them, since containers may repeat a part."""

    left: int = field(default_factory=lambda: MOST)
    known: dict[Any, Any] = field(default_factory=dict)

    def spend(self, parts: int) -> None:
        self.left -= parts
        if self.left < 0:
            raise DumpError("it holds more than a dump can hold")

    def same(self, value: _Kept) -> _Kept:
        """Return the first kept equal value: calls of a job have few different values."""
        kept: _Kept = self.known.setdefault(value, value)
        return kept

    def call(self, entry: Mapping[str, Any]) -> RecordedCall:
        if "collective_seq_id" not in entry:
            raise DumpError("its format is older than 2.4: calls have no collective_seq_id")
        group, desc = (*map(_text, _list(entry.get("process_group"))[:2]), "", "")[:2]
        library, _, op = _text(entry.get("profiling_name")).partition(":")
        shape = CallShape(
            op, self._elements(entry.get("input_sizes")), self._elements(entry.get("output_sizes")),
            self._types(entry.get("input_dtypes")), self._types(entry.get("output_dtypes")),
        )  # fmt: skip
        said, retired = _text(entry.get("state")), entry.get("retired") is True
        # Gloo's calls are retired when they end, and their state stays as it was.
        done = said == "completed" or (retired and library == "gloo")
        state = said if said in _UNDER_WAY and not done else "completed" if done else "unknown"
        p2p = entry.get("is_p2p") is True or op.startswith(("send ", "recv "))
        return RecordedCall(
            self.same(group), self.same(desc), _number(entry, "collective_seq_id"),
            _number(entry, "p2p_seq_id"), self.same(shape), state, done, retired and not done, p2p,
            _number(entry, "time_created_ns") / 1e9, self.same(self._where(entry.get("frames"))),
        )  # fmt: skip

    def _elements(self, sizes: Any) -> tuple[int, ...] | None:
        """Return the elements of each tensor."""
        self.spend(len(_list(sizes)))
        return tuple(map(self._product, sizes)) if isinstance(sizes, (list, tuple)) else None

    def _product(self, tensor: Any) -> int:
        sizes = _list(tensor)
        self.spend(len(sizes))
        if len(sizes) > _DIMENSIONS or not all(type(n) is int and 0 <= n < _BIG for n in sizes):
            raise DumpError("the sizes of a tensor are not sizes")
        return math.prod(sizes)

    def _types(self, types: Any) -> tuple[str, ...] | None:
        self.spend(len(_list(types)))
        return tuple(map(_text, types)) if isinstance(types, (list, tuple)) else None

    def _where(self, frames: Any) -> str:
        """Return the innermost line outside torch and wrappers around a call."""
        for frame in _list(frames)[:_FRAMES]:
            one = _dict(frame)
            if (name := _text(one.get("filename"))) and not _TORCH.search(name):
                return f"{name}:{_number(one, 'line')}"
        return ""


def _close(calls: Sequence[RecordedCall]) -> None:
    """Give calls in a coalesced group, which have no state, the state of the call that ends the group."""
    inside: dict[str, list[RecordedCall]] = {}
    for call in calls:
        before = inside.setdefault(call.group, [])
        if before and (before[-1].seq, before[-1].p2p_seq) != (call.seq, call.p2p_seq):
            before.clear()
        if call.shape.op.endswith("coalesced"):
            for one in before:
                one.state, one.done, one.late = call.state, call.done, call.late
                call.p2p |= one.p2p
            before.clear()
        else:
            before.append(call)


def _full(call: RecordedCall) -> bool:
    return bool(call.group and call.shape.op) and None not in call.shape and (call.waits or call.done)


def _group(reader: _DumpReader, value: Any) -> tuple[str, tuple[int, ...]]:
    one = _dict(value)
    said = one.get("ranks")
    ranks = re.findall(r"\d{1,7}", said) if isinstance(said, str) else []
    reader.spend(len(ranks))
    return _text(one.get("desc")), tuple(sorted(set(map(int, ranks))))


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _text(value: Any) -> str:
    return value[:_LONG] if isinstance(value, str) else ""


def _number(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    return value if type(value) is int and abs(value) < _BIG else 0


# --- pickles

_MADE: Mapping[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None,
    "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}  # fmt: skip
_WRITTEN = frozenset({
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
})  # fmt: skip
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """The stack of a pickle, the stacks below its marks, and its memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def do(self, name: str, value: Any) -> None:
        """Run an operation, named as in pickletools."""
        stack = self.stack
        if name in _MADE:
            stack.append(_MADE[name]())
        elif name in _WRITTEN:
            stack.append(value)
        elif name in {"BINPUT", "LONG_BINPUT", "MEMOIZE"}:
            self.memo[len(self.memo) if value is None else value] = stack[-1]
        elif name in {"BINGET", "LONG_BINGET"}:
            stack.append(self.memo[value])
        elif name == "MARK":
            self.below.append(stack)
            self.stack = []
        elif name in {"APPENDS", "SETITEMS", "TUPLE"}:
            self.stack = self.below.pop()
            self._put(name, stack)
        elif name in {"APPEND", "SETITEM"}:
            self._put(name, [stack.pop() for _ in range(1 + (name == "SETITEM"))][::-1])
        elif name in _TUPLES:
            stack.append(tuple([stack.pop() for _ in range(_TUPLES[name])][::-1]))
        elif name not in {"PROTO", "FRAME", "STOP"}:
            raise DumpError(f"its pickle does not build plain containers: {name}")

    def _put(self, name: str, items: list[Any]) -> None:
        target = self.stack[-1] if self.stack else None
        if name == "TUPLE":
            self.stack.append(tuple(items))
        elif name.startswith("APPEND") and isinstance(target, list):
            target.extend(items)
        # A key of another type than text could be hashed for ever.
        elif isinstance(target, dict) and all(type(key) is str for key in items[::2]):
            target.update(zip(items[::2], items[1::2], strict=True))
        else:
            raise DumpError("its pickle does not build plain containers")


def plain(data: bytes) -> Any:
    """Return a pickle's plain containers. Raises DumpError: it is cut, or builds other objects."""
    machine, ended = _Machine(), False
    try:
        for operation, value, _ in islice(genops(data), MOST):
            machine.do(operation.name, value)
            ended = operation.name == "STOP"
    except (LookupError, ValueError) as error:
        raise error if isinstance(error, DumpError) else DumpError("it stops in the middle") from error
    if not ended:
        raise DumpError(f"its pickle has more than {MOST} operations")
    if len(machine.stack) != 1 or machine.below:
        raise DumpError("its pickle does not build one value")
    return machine.stack[0]
