"""Which wire carries a job's collectives, by what NVLink counted of what was due."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.node.jobs.explain.drawn import evidence, gpus, job, row
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import EvidenceSource, JobEvidence
from wirewatch.jobs.explain.wires import on_wire, wire_in_use
from wirewatch.jobs.times import OperationTimes, RunningJob

UNREAD = Absent(Why.MISSING, "not read")
BUSBW, SHARE = 300e9, 0.1
DUE = BUSBW * SHARE
ROW = row(BUSBW)
SMALL = row(BUSBW, busbw=UNREAD)


def sending(
    sent: float | Absent, *rows: OperationTimes, share: float = SHARE, tap: bool = True
) -> JobEvidence:
    found = [replace(one, sent=sent) for one in gpus()]
    seen = job(*(rows or (ROW,)), share=share, waiting=0.0)
    return evidence(seen, found, () if tap else [EvidenceSource.TAP])


def on_nodes(*nodes: int) -> JobEvidence:
    (one,) = job().communicators
    return evidence(replace(job(), communicators=tuple(replace(one, nodes=number) for number in nodes)))


NO_BYTES = "missing: NVLink bytes in the same window, or large collectives, are not known"


@pytest.mark.parametrize(
    ("guard", "seen", "text"),
    [
        ("all that is due", sending(DUE), "NVLink: NVLink counts 30.0 GB/s a GPU, the collectives put about"),
        ("half of it", sending(0.5 * DUE), "NVLink: NVLink counts 15.0 GB/s"),
        ("a third of it", sending(0.3 * DUE), "malformed: the counters do not agree: NVLink counts 9.0 GB/s"),
        ("a fifth of it", sending(0.2 * DUE), "not NVLink, but host memory (SHM), PCIe or sockets: NVLink"),
        ("bytes are not read", sending(UNREAD), NO_BYTES),
        ("all collectives are small", sending(DUE, SMALL), NO_BYTES),
        ("nothing was on the wire", sending(DUE, share=0.0), NO_BYTES),
        ("no tap, and bytes", sending(5e9, tap=False), "NVLink: 5.0 GB/s a GPU in the last window"),
        ("no tap, and no byte", sending(0.0, tap=False), "not NVLink: no bytes moved over it in the last"),
        ("no tap, bytes not read", sending(UNREAD, tap=False),
         "missing: neither the tap nor NVLink bytes are watched"),
        ("two nodes", on_nodes(2), "2 nodes: between them the network, which this node's counters show"),
        ("two nodes by one communicator of two", on_nodes(1, 2), "2 nodes: between them the network"),
        ("one node by both", on_nodes(1, 1), "not NVLink, but host memory"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)  # fmt: skip
def test_the_wire_is_said_by_what_was_counted_of_what_was_due(
    guard: str, seen: JobEvidence, text: str
) -> None:
    assert str(wire_in_use(seen)).startswith(text), guard


def shares(*found: tuple[float, float]) -> RunningJob:
    """A job whose GPUs have these shares in collectives and in waiting."""
    one = job().gpus[0]
    return replace(
        job(), gpus=tuple(replace(one, in_collectives=share, waiting=waits) for share, waits in found)
    )


@pytest.mark.parametrize(
    ("guard", "found", "share"),
    [
        ("what they wait is not on the wire", [(0.5, 0.2)], 0.3),
        ("waiting that is longer is no negative time", [(0.1, 0.2)], 0.0),
        ("the lower of two that differ", [(0.5, 0.0), (0.3, 0.0)], 0.3),
        ("a share that cannot be is not known", [(1.2, 0.0), (float("nan"), 0.0), (0.3, 0.0)], 0.3),
        ("no GPU is known", [], 0.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_time_on_the_wire_is_that_of_the_gpus_without_their_waiting(
    guard: str, found: Sequence[tuple[float, float]], share: float
) -> None:
    assert on_wire(shares(*found)) == pytest.approx(share), guard
