"""Parse a ring file of the tap: header, counters and records, from bytes that nobody vouches for.

agent/tap/ring.h defines the layout, in this machine's byte order. Pure functions; `hw.rings` reads files.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.jobs import RingCounts, TimedCollective
from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    DIVIDED,
    DTYPES,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    SENDRECV,
)
from wirewatch.core.types import Absent, Why

MAGIC, VERSION = b"WWRING1\0", 1
HEADER_BYTES, RECORD_BYTES, RECORDS = 4096, 64, 4096
RING_BYTES = HEADER_BYTES + RECORDS * RECORD_BYTES
"""A ring has this size and no other."""
UNKNOWN = "unknown"
"""The op of a function that the tap has no number for."""
OPS: Sequence[str] = (
    UNKNOWN, ALL_GATHER, ALL_REDUCE, ALLTOALL, BROADCAST, GATHER, SENDRECV, REDUCE, REDUCE_SCATTER, SCATTER,
    SENDRECV, SENDRECV,
)  # fmt: skip
"""By `ww_function`; a send and a receive are halves of a sendrecv."""
TYPES: Sequence[str] = (
    "", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
    "float8e4m3", "float8e5m2",
)  # fmt: skip
"""By `ww_datatype`, as the probe names them; empty where NCCL does not say."""
ALGORITHMS: Sequence[str] = (
    "",
    "TREE",
    "RING",
    "COLLNET_DIRECT",
    "COLLNET_CHAIN",
    "NVLS",
    "NVLS_TREE",
    "PAT",
)
PROTOCOLS = ("", "LL", "LL128", "SIMPLE")
LONGEST_NS = 3600 * 10**9
"""No collective takes an hour: NCCL's callers give up before."""
LARGEST = 1 << 50
"""Bytes of a message; no machine has as many."""
ELEMENT_BYTES: Mapping[str, int] = {**DTYPES, "uint32": 4, "uint64": 8, "float8e4m3": 1, "float8e5m2": 1}
_FINALIZED = 2
_NO_ROOT = 255
_NOT_COUNTED = 0xFFFFFFFF
"""`longest_ns` of a channel that took longer than it can hold."""
HEADER_LAYOUT = struct.Struct("=8s4IQ4I48s64sq2Q16siI2I3I28x7Q2I48Q")
RECORD_LAYOUT = struct.Struct("=6QI8BI")
_FUNCTIONS = 16
_RANKS, _PID = 1 << 24, 1 << 22
_GPU = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIRST_OF_FIVE_DIGITS, _LAST_VERSION = 20900, 999999
"""Since 2.9 NCCL's number of its version is major * 10000 + minor * 100 + patch."""


@dataclass(frozen=True, slots=True)
class RingHeader:
    """The header of a ring: what `core.jobs.Ring` has of it, with its units."""

    communicator: int
    ranks: int
    rank: int
    nodes: int
    gpu: str | Absent
    pid: int
    created: float
    finalized: bool
    counts: RingCounts
    comm_name: str
    nccl: str
    interface: int
    tap: str
    on: float
    period: float
    untimed: int
    budget: int
    stride: int


@dataclass(frozen=True, slots=True)
class RingSlice:
    """Records of a ring in the order of their numbers; `last` is the number up to which all were looked at.

    `missed` were overwritten or never completed, `implausible` hold what cannot be; both are not in `calls`.
    """

    calls: tuple[TimedCollective, ...]
    last: int
    missed: int
    implausible: int


def parse_header(data: bytes) -> RingHeader | Absent:
    """The header, or why it is not one: another magic or version, or numbers that no communicator has."""
    if len(data) < HEADER_LAYOUT.size:
        return Absent(Why.MALFORMED, f"{len(data)} bytes of a header")
    (
        magic, version, header_bytes, record_bytes, records, communicator, ranks, rank, nodes, interface,
        uuid, name, pid, created, _created_mono, tap, nccl, untimed, on_ms, period_ms,
        budget, _block, stride, *counters,
    ) = HEADER_LAYOUT.unpack_from(data)  # fmt: skip
    if magic != MAGIC:
        return Absent(Why.MALFORMED, "not a ring of wirewatch's tap")
    if version != VERSION:
        return Absent(Why.UNSUPPORTED, f"version {version} of a ring; this agent reads {VERSION}")
    if (header_bytes, record_bytes, records) != (HEADER_BYTES, RECORD_BYTES, RECORDS):
        return Absent(Why.MALFORMED, f"{records} records of {record_bytes} bytes after {header_bytes}")
    if ranks > _RANKS or rank >= ranks or not 0 < nodes <= ranks or not 0 < pid <= _PID:
        odd = f"rank {rank} of {ranks} on {nodes} nodes in process {pid}: no such communicator"
        return Absent(Why.MALFORMED, odd)
    return RingHeader(
        communicator, ranks, rank, nodes, _gpu(_text(uuid)), pid, created / 1e9, counters[7] == _FINALIZED,
        _counts(counters), _text(name), _nccl(nccl), interface, _text(tap), on_ms / 1e3, period_ms / 1e3,
        untimed, budget, stride,
    )  # fmt: skip


def read_records(first: bytes, second: bytes, numbers: range, ranks: int, *, open_end: bool) -> RingSlice:
    """The records with these numbers, from two readings of their bytes, one after the other.

    A record counts where both readings have the same bytes with its number in them. The first shows that it
    was complete before the second began. The second shows that nobody overwrote it before the first ended.
    `open_end`: the writer lives, so that an incomplete record near the end ends the slice.
    """
    calls: list[TimedCollective] = []
    missed = implausible = 0
    for number, record, stable in _pairs(first, second, numbers):
        if not stable or record[0] != number:
            if open_end and record[0] < number and numbers.stop - number <= IN_FLIGHT:
                return RingSlice(tuple(calls), number - 1, missed, implausible)
            missed += 1
            continue
        call = _call(record, ranks)
        if call is None:
            implausible += 1
        else:
            calls.append(call)
    return RingSlice(tuple(calls), numbers.stop - 1, missed, implausible)


IN_FLIGHT = 256
"""Records from the end within which a record may be incomplete; an older record stays incomplete."""


def _pairs(first: bytes, second: bytes, numbers: range) -> Iterator[tuple[int, tuple[int, ...], bool]]:
    for place, (number, record) in enumerate(zip(numbers, RECORD_LAYOUT.iter_unpack(first), strict=True)):
        here = slice(place * RECORD_BYTES, (place + 1) * RECORD_BYTES)
        yield number, record, first[here] == second[here]


def _call(record: tuple[int, ...], ranks: int) -> TimedCollective | None:
    (
        number, collective, count, started, stopped, enqueued, longest, function, datatype, algorithm,
        protocol, channels, ended, _flags, root, _reserved,
    ) = record  # fmt: skip
    spent = stopped - started
    if not 0 <= spent < LONGEST_NS or not 0 < ended <= channels:
        return None
    if longest == _NOT_COUNTED:
        longest = spent
    op, dtype = _OPS[function], _TYPES[datatype]
    size = _size(op, count, dtype, ranks)
    if longest > spent or (size or 0) > LARGEST:
        return None
    return TimedCollective(
        number, op, collective, size, dtype, _ALGORITHMS[algorithm],
        _PROTOCOLS[protocol], channels, longest / 1e9, started / 1e9, stopped / 1e9,
        enqueued / 1e9, None if root == _NO_ROOT else root,
    )  # fmt: skip


def _size(op: str, count: int, dtype: str, ranks: int) -> int | None:
    """The message as nccl-tests counts it: NCCL's count is a rank's share where the message is divided."""
    if op == UNKNOWN or not dtype:
        return None
    return count * ELEMENT_BYTES[dtype] * (ranks if op in DIVIDED else 1)


def _all_bytes(names: Sequence[str], other: str) -> Sequence[str]:
    """A name for each value of a byte, so that a record takes no comparison."""
    return (*names, *(other for _ in range(256 - len(names))))


_OPS, _TYPES = _all_bytes(OPS, UNKNOWN), _all_bytes(TYPES, "")
_ALGORITHMS, _PROTOCOLS = _all_bytes(ALGORITHMS, ""), _all_bytes(PROTOCOLS, "")


def _counts(counters: Sequence[int]) -> RingCounts:
    written, dropped, enqueued, sends, event, captured, windows, _state, _timing = counters[:9]
    calls, sizes, unsized = (counters[9 + n * _FUNCTIONS : 9 + (n + 1) * _FUNCTIONS] for n in range(3))
    return RingCounts(
        written, dropped, enqueued, sends, captured, windows, event / 1e9, _by_op(calls), _by_op(sizes),
        _by_op(unsized),
    )  # fmt: skip


def _by_op(values: Sequence[int]) -> dict[str, int]:
    found = Counter[str]()
    for op, value in zip(_OPS, values, strict=False):
        found[op] += value
    return {op: value for op, value in found.items() if value}


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c for c in text if c.isprintable())


def _gpu(text: str) -> str | Absent:
    if not text:
        return Absent(Why.MISSING, "the tap could not find out which GPU it is")
    return text if _GPU.fullmatch(text) else Absent(Why.MALFORMED, f"not the UUID of a GPU: {text!r}")


def _nccl(number: int) -> str:
    if not _FIRST_OF_FIVE_DIGITS <= number <= _LAST_VERSION:
        return ""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
