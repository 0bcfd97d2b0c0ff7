"""Each rule of following a job poll by poll, alone: since when it looks stuck, when bytes are read next."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from wirewatch.core.collector import GpuReading
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Ok, Why
from wirewatch.jobs.hangs.model import (
    NOT_COUNTED,
    Diagnosis,
    GpuLoad,
    HangKind,
    HangPolicy,
    HangReading,
    WatchedJob,
)
from wirewatch.jobs.hangs.watch import followed

MIB = 1 << 20
OWNER = "slurm:41"
LOST, UNLINKED = Absent(Why.LOST, "lost"), Absent(Why.UNSUPPORTED, "no NVLink")
POLICY = HangPolicy()
Loads = Mapping[str, GpuLoad | Absent]


def load(number: int, **but: Any) -> GpuLoad:
    """A GPU that waits in a collective; bytes were not read of it."""
    made = GpuLoad(frozenset({4000 + number}), 1.0, 125.0, 700.0, NOT_COUNTED, memory=0.0)
    return replace(made, **but)


def two(**but: Any) -> Loads:
    return {f"GPU-{number}": load(number, **but) for number in (0, 1)}


def at_work(**but: Any) -> Loads:
    return two(power=690.0, busy=0.99, **but)


WORK = at_work()


def polled(known: WatchedJob | None, loads: Loads, mono: float) -> WatchedJob:
    gpus = tuple(GpuReading(Gpu(int(key[-1]), key), one) for key, one in loads.items())
    owners = {4000: OWNER, 4001: OWNER}
    ok = Ok(HangReading(gpus, owners), 1e9 + mono, mono)
    return followed({OWNER: known} if known else {}, ok, POLICY)[OWNER]


def after(*loads: Loads, known: WatchedJob | None = None, first: float = 100.0) -> WatchedJob:
    """The job after such polls, 2 s apart."""
    for number, one in enumerate(loads):
        known = polled(known, one, first + 2 * number)
    assert known is not None
    return known


SEEN = after(at_work(sent=0), WORK)
"""A job at work, whose bytes were read when it was first seen, at 100."""
MOVES = [two(), two(sent=9 * MIB), two(sent=18 * MIB)]


@pytest.mark.parametrize(
    ("guard", "loads", "since", "count"),
    [
        ("at its first sign bytes are to be read", [two()], None, 104.0),
        ("they have moved since they were last read, long ago", [two(), two(sent=9 * MIB)], None, 106.0),
        ("and have not since: it looks stuck from its first sign on",
         [two(), two(sent=9 * MIB), two(sent=9 * MIB)], 104.0, 112.0),
        ("they have not moved since they were read at first: it is not known to use NVLink",
         [two(), two(sent=0)], 104.0, 116.0),
        ("they move while it shows the sign", MOVES, None, 114.0),
        ("and are left alone for six seconds", [*MOVES, two()], None, 114.0),
        ("those of one GPU cannot be read", [two(), {**two(sent=0), "GPU-1": load(1, sent=LOST)}], None,
         106.0),
        ("one GPU cannot be read", [two(), {**two(sent=0), "GPU-1": LOST}], None, 106.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_rule_alone_decides_since_when_it_looks_stuck_and_when_bytes_are_read_next(
    guard: str, loads: Sequence[Loads], since: float | None, count: float
) -> None:
    job = after(*loads, known=SEEN, first=104.0)
    assert (job.since, job.count) == (since, count), guard


def test_a_sign_that_breaks_begins_anew() -> None:
    job = after(two(), two(sent=9 * MIB), WORK, two(), known=SEEN, first=104.0)
    assert (job.low, job.since, job.count) == (110.0, None, 110.0)


def test_gpus_without_nvlink_have_no_bytes_to_wait_for() -> None:
    job = after(two(sent=UNLINKED), two(sent=UNLINKED))
    assert (job.since, job.due, job.moved) == (100.0, 160.0, False)


def test_where_bytes_were_not_read_for_long_it_looks_stuck_from_when_they_were() -> None:
    lost = [two(sent=LOST)] * 20
    job = after(two(), *lost, two(sent=9 * MIB), two(sent=9 * MIB), known=SEEN, first=104.0)
    assert (job.low, job.since) == (104.0, 146.0)


@pytest.mark.parametrize(
    ("guard", "moved", "due"), [("it has moved bytes", True, 112.0), ("it was never seen to", False, 164.0)]
)
def test_a_job_that_was_never_seen_to_move_is_asked_later(guard: str, due: float, *, moved: bool) -> None:
    sent = 9 * MIB if moved else 0
    job = after(two(), two(sent=sent), two(sent=sent), known=SEEN, first=104.0)
    assert (job.moved, job.due) == (moved, due), guard


@pytest.mark.parametrize(
    ("guard", "memory", "moved", "low"),
    [
        ("none is used", 0.0, False, True),
        ("some is used", 0.01, False, False),
        ("it is not known", LOST, False, False),
        ("some is used, by a job that has moved bytes", 0.01, True, True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_memory_that_is_used_decides_for_a_job_alone_that_never_moved(
    guard: str, memory: float | Absent, *, moved: bool, low: bool
) -> None:
    job = after({**two(), "GPU-1": load(1, memory=memory)}, known=replace(SEEN, moved=moved), first=104.0)
    assert (job.low is not None) is low, guard


def test_whether_a_job_moves_bytes_is_looked_for_ever_more_seldom_until_it_is_known() -> None:
    counts, job, mono = [], after(at_work(sent=0)), 100.0
    for _ in range(8):
        counts.append(job.count - mono)
        mono = job.count
        job = polled(job, at_work(sent=0), mono)
    assert counts == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    assert polled(job, at_work(sent=MIB), mono).count == math.inf
    assert polled(job, WORK, mono - 1).count == job.learn


def test_a_process_alone_on_a_gpu_is_not_looked_at_for_bytes() -> None:
    one = {"GPU-0": load(0, power=690.0, sent=0)}
    assert after(one).count == math.inf


STOOD = WatchedJob(
    {"GPU-0": frozenset({4000}), "GPU-1": frozenset({4001})}, sent={"GPU-0": 9, "GPU-1": 9}, read=120.0,
    quiet=104.0, moved=True, low=104.0, since=104.0, began=1e9 + 104.0, due=500.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("guard", "diagnosis", "due", "count"),
    [
        ("it stands still", None, 500.0, 130.0),
        ("it is looked at sooner", None, 125.0, 125.0),
        ("it hangs", Diagnosis(HangKind.ERROR, ""), 500.0, 130.0),
        ("it goes on, by its counts", Diagnosis(None, "", goes_on=True), 500.0, 500.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rule_alone_decides_when_bytes_of_a_job_that_looks_stuck_are_read_again(
    guard: str, diagnosis: Diagnosis | None, due: float, count: float
) -> None:
    job = polled(replace(STOOD, diagnosis=diagnosis, due=due), two(), 122.0)
    assert (job.since, job.count) == (104.0, count), guard


def test_a_lone_process_is_one_on_one_gpu_with_nobody_gone() -> None:
    one = WatchedJob({"GPU-0": frozenset({4000})})
    assert one.lone
    assert not replace(one, gone={4001: "GPU-1"}).lone
    assert not replace(one, processes={"GPU-0": frozenset({4000, 4001})}).lone
    assert not replace(one, processes={"GPU-0": frozenset({0}), "GPU-1": frozenset({0})}).lone
