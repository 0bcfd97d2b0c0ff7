"""How far rings were read, and what their counters say beside those of NVLink."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.collectors.drawn import Watched
from tests.node.jobs.ringfiles import RingWriter, Written
from tests.node.jobs.ringjobs import TRAINING, DrawnJob, uuid
from wirewatch.core.jobs import RingCounts, RingReading, RingsReading, RingState
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.running.model import (
    JobsMemory,
    JobsOptions,
    JobsPolicy,
    JobsReading,
    NvlinkDue,
    NvlinkSent,
    RingProgress,
)
from wirewatch.jobs.running.progress import nvlink_due, progress
from wirewatch.jobs.running.read import read
from wirewatch.jobs.tap.rings import FileRings


def polled(port: FileRings, known: Mapping[str, RingProgress]) -> dict[str, RingProgress]:
    found = port.poll({name: one.last for name, one in known.items()})
    assert isinstance(found, RingsReading)
    return progress(known, found.rings)


def test_records_that_were_lost_are_counted_once(tmp_path: Path) -> None:
    """Where a poll finds none that can be used, the next one goes on behind them all the same."""
    with RingWriter(tmp_path / "one.ring") as ring:
        for _ in range(3):
            ring.put(Written(), sequence=0)
    with closing(FileRings(tmp_path)) as port:
        known: dict[str, RingProgress] = {}
        for _ in range(3):
            known = polled(port, known)
            assert (known["one.ring"].missed, known["one.ring"].last) == (3, 3)


GB = 10**9
RING = DrawnJob(TRAINING).ranks[0].ring
NO_GPU = Absent(Why.MISSING, "no GPU is named")


def counted(sent: int, op: str = "all_gather", **but: object) -> RingReading:
    """A ring of two ranks in which so many bytes were enqueued, half of which a GPU sends."""
    counts = RingCounts(bytes={op: sent})
    ring = replace(RING, name="r", ranks=2, gpu=uuid(0), counts=counts)
    return RingReading(replace(ring, **but))  # type: ignore[arg-type]


def due(*polls: tuple[RingReading | None, NvlinkSent]) -> Mapping[str, NvlinkDue]:
    """Return the readings due after these polls: a ring, and NVLink's counters as last read."""
    known: Mapping[str, NvlinkDue] = {}
    before: Mapping[str, RingProgress] = {}
    for ring, nvlink in polls:
        rings = () if ring is None else (ring,)
        now = progress(before, rings)
        known, before = nvlink_due(known, before, now, rings, nvlink, JobsPolicy()), now
    return known


def sent(mono: float, count: int | None = 0) -> NvlinkSent:
    return NvlinkSent(mono, {} if count is None else {uuid(0): count})


START = (counted(0), sent(10.0))


@pytest.mark.parametrize(
    ("guard", "ring", "nvlink", "grown"),
    [
        ("half of it, of two ranks", counted(8 * GB), sent(20.0), {uuid(0): 4 * GB}),
        ("no GPU is named", counted(8 * GB, gpu=NO_GPU), sent(20.0), {}),
        ("it is over several nodes", counted(8 * GB, nodes=2), sent(20.0), {}),
        ("an operation without a factor", counted(8 * GB, "?"), sent(20.0), {}),
        ("its counter is not read", counted(8 * GB), sent(20.0, None), {uuid(0): 4 * GB}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_what_a_gpu_had_to_send(
    guard: str, ring: RingReading, nvlink: NvlinkSent, grown: Mapping[str, int]
) -> None:
    empty = replace(ring, ring=replace(ring.ring, counts=RingCounts()))
    found = due((empty, NvlinkSent()), (ring, nvlink))
    assert {gpu: one.due for gpu, one in found.items()} == grown, guard


@pytest.mark.parametrize(
    ("guard", "polls", "low", "share"),
    [
        ("it carried nothing", [START, (counted(8 * GB), sent(20.0))], 1, 0.0),
        ("it carried a fifth", [START, (counted(10 * GB), sent(20.0, GB))], 0, 0.2),
        ("it carried less", [START, (counted(10 * GB), sent(20.0, GB - 1))], 1, 0.2),
        ("and again", [START, (counted(8 * GB), sent(20.0)), (counted(16 * GB), sent(30.0))], 2, 0.0),
        ("and then it carried all of it",
         [START, (counted(8 * GB), sent(20.0)), (counted(16 * GB), sent(30.0, 4 * GB))], 0, 1.0),
        ("the counter was not read anew",
         [START, (counted(8 * GB), sent(20.0)), (counted(16 * GB), sent(20.0))], 1, 0.0),
        ("and then it was",
         [START, (counted(8 * GB), sent(10.0)), (counted(16 * GB), sent(20.0, 2 * GB))], 0, 0.25),
        ("an older reading of it",
         [START, (counted(8 * GB), sent(20.0)), (counted(16 * GB), sent(15.0))], 1, 0.0),
        ("it could not be read",
         [START, (counted(8 * GB), sent(20.0)), (counted(16 * GB), sent(30.0, None))], 1, 0.0),
        ("its first reading", [(counted(0), NvlinkSent()), (counted(8 * GB), sent(20.0))], 0, 1.0),
        ("enough was due", [START, (counted(2 * GB), sent(20.0))], 1, 0.0),
        ("too little was due", [START, (counted(2 * GB - 4), sent(20.0))], 0, 1.0),
        ("the counter began again",
         [(counted(0), sent(10.0, 9 * GB)), (counted(8 * GB), sent(20.0, 4 * GB))], 0, 1.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_nvlink_carried_what_was_due(
    guard: str, polls: Sequence[tuple[RingReading, NvlinkSent]], low: int, share: float
) -> None:
    found = due(*polls)[uuid(0)]
    assert found.low == low, guard
    assert found.share == pytest.approx(share, abs=1e-6)


def test_a_gpu_without_rings_is_remembered_while_its_counter_is_read() -> None:
    poll = (counted(8 * GB), sent(20.0))
    assert due(START, poll, (None, sent(30.0)))[uuid(0)].due == 4 * GB
    assert due(START, poll, (None, sent(30.0, None))) == {}


def test_of_operations_with_names_of_any_kind_some_are_counted() -> None:
    counts = RingCounts(calls={f"op{number:02d}": 5 for number in range(20)})
    first = progress({}, [RingReading(replace(RING, counts=counts))])
    (one,) = progress(first, [RingReading(replace(RING, counts=counts), missed=3)]).values()
    assert sorted(one.calls) == [f"op{number:02d}" for number in range(16)]
    assert set(one.calls.values()) == {5}
    assert one.missed == 3


def test_a_ring_that_comes_back_is_counted_on() -> None:
    known = progress({}, [counted(8 * GB)])
    for _ in range(2):
        known = progress(known, [])
    assert known["r"].gone == 2
    known = progress(known, [counted(9 * GB)])
    assert (known["r"].gone, known["r"].bytes) == (0, {"all_gather": 9 * GB})


class Rings:
    """A rings port that has too many."""

    def __init__(self, rings: Sequence[RingReading]) -> None:
        self.rings = tuple(rings)

    def poll(self, after: Mapping[str, int]) -> RingsReading:
        assert after == {}
        return RingsReading(self.rings)


def test_of_too_many_rings_those_that_live_and_then_the_newest_are_followed() -> None:
    dead = [
        RingReading(replace(RING, name=f"dead{n}", host_pid=NO_GPU, state=RingState.DEAD, created=float(n)))
        for n in range(1024)
    ]
    live = RingReading(replace(RING, name="live", host_pid=NO_GPU, created=-1.0))
    hardware = replace(Watched("jobs").hardware, rings=Rings([*dead, live]))
    found = read(hardware, JobsMemory(), JobsOptions())
    assert isinstance(found, JobsReading)
    assert isinstance(found.rings, RingsReading)
    names = [one.ring.name for one in found.rings.rings]
    assert len(names) == len(found.processes) == 1024
    assert (names[0], names[1], "dead0" in names) == ("live", "dead1023", False)
