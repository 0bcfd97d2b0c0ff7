"""What a ring file holds, by agent/tap/ring.h and by nothing of the agent: numbers as they stand there."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HEADER_BYTES, RECORD_BYTES, RECORDS = 4096, 64, 4096
RING_BYTES = HEADER_BYTES + RECORD_BYTES * RECORDS
_HEADER = struct.Struct("=8s4IQ4I48s64sq2Q16siI2I3I28x7Q2I48Q")
_RECORD = struct.Struct("=6QI8BI")
COUNTED = 16
LIVE, FINALIZED = 1, 2


class Record(NamedTuple):
    sequence: int
    collective: int
    elements: int
    started: int
    stopped: int
    enqueued: int
    longest: int
    function: int
    datatype: int
    algorithm: int
    protocol: int
    channels: int
    ended: int
    flags: int
    root: int
    reserved: int


@dataclass(frozen=True)
class RingBytes:
    """A whole file. Counters by the names of ring.h; `records` are those with a number."""

    magic: bytes
    version: int
    sizes: tuple[int, int, int]
    communicator: int
    ranks: int
    rank: int
    nodes: int
    interface: int
    uuid: bytes
    name: bytes
    pid: int
    created_unix: int
    created: int
    tap: bytes
    nccl: int
    untimed: int
    on_ms: int
    period_ms: int
    budget: int
    block: int
    stride: int
    written: int
    dropped: int
    enqueued: int
    sends: int
    event: int
    captured: int
    windows: int
    state: int
    timing: int
    calls: tuple[int, ...]
    bytes: tuple[int, ...]
    unsized: tuple[int, ...]
    records: tuple[Record, ...]


def parse(data: bytes) -> RingBytes:
    assert len(data) == RING_BYTES
    v = _HEADER.unpack_from(data)
    magic, version, header, record, records, communicator, ranks, rank, nodes, interface, *rest = v
    (
        uuid,
        name,
        pid,
        created_unix,
        created,
        tap,
        nccl,
        untimed,
        on_ms,
        period_ms,
        budget,
        block,
        stride,
        *counted,
    ) = rest
    written, dropped, enqueued, sends, event, captured, windows, state, timing, *tables = counted
    whole = (Record(*fields) for fields in _RECORD.iter_unpack(data[HEADER_BYTES:]))
    return RingBytes(
        magic, version, (header, record, records), communicator, ranks, rank, nodes, interface,
        uuid.rstrip(b"\0"), name.rstrip(b"\0"), pid, created_unix, created, tap.rstrip(b"\0"), nccl,
        untimed, on_ms, period_ms, budget, block, stride, written, dropped, enqueued, sends, event, captured,
        windows, state, timing,
        tuple(tables[:COUNTED]), tuple(tables[COUNTED : 2 * COUNTED]), tuple(tables[2 * COUNTED :]),
        tuple(r for r in whole if r.sequence),
    )  # fmt: skip


def read(path: Path) -> RingBytes:
    return parse(path.read_bytes())
