"""A job that stands still: each guard alone, and its words."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Ok, Why
from wirewatch.jobs.hangs.model import (
    NOT_COUNTED,
    Culprit,
    Diagnosis,
    GpuLoad,
    HangKind,
    HangPolicy,
    StandingJob,
    WatchedJob,
)
from wirewatch.jobs.hangs.standing import standing

LOST = Absent(Why.LOST, "lost")
GPUS = {f"GPU-{number}": Gpu(number, f"GPU-{number}") for number in range(4)}
HELD = {f"GPU-{number}": frozenset({4000 + number}) for number in (0, 1)}
WAITS = GpuLoad(frozenset(), 1.0, 127.0, 700.0, NOT_COUNTED)
RESTS = replace(WAITS, busy=0.0)
JOB = WatchedJob(
    HELD, sent={"GPU-0": 9, "GPU-1": 9}, read=112.0, quiet=102.0, moved=True, low=100.0, since=100.0,
    began=1e9,
)  # fmt: skip
UNKNOWN = Diagnosis(None, "nobody says more: RAS is silent")


def seen(
    job: WatchedJob = JOB, held: float = 12.0, loads: Mapping[str, GpuLoad | Absent] | None = None
) -> StandingJob | None:
    shown = {"GPU-0": RESTS, "GPU-1": WAITS} if loads is None else loads
    other = {"GPU-3": replace(WAITS, power=600.0)}
    return standing(job, {**shown, **other}, GPUS, Ok(None, 1e9 + held, 100.0 + held), HangPolicy())


@pytest.mark.parametrize(
    ("guard", "job", "held", "stands"),
    [
        ("for ten seconds", {}, 10.0, True),
        ("not yet for ten seconds", {}, 9.9, False),
        ("it does not look stuck", {"since": None}, 12.0, False),
        ("it hangs, which a finding says", {"diagnosis": Diagnosis(HangKind.ERROR, "x")}, 12.0, False),
        ("it goes on", {"diagnosis": Diagnosis(None, "x", goes_on=True)}, 12.0, False),
        ("nobody knows more", {"diagnosis": UNKNOWN}, 12.0, True),
        ("it was never seen to move, for a minute", {"moved": False, "diagnosis": UNKNOWN}, 60.0, True),
        ("it was never seen to move, not for a minute", {"moved": False, "diagnosis": UNKNOWN}, 59.9, False),
        ("it was never seen to move, and was not looked at", {"moved": False}, 60.0, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_a_job_is_said_to_stand_still(
    guard: str, job: Mapping[str, Any], held: float, *, stands: bool
) -> None:
    assert (seen(replace(JOB, **job), held) is not None) is stands, guard


STILL, AS = "no byte over NVLink for 10 s", "as kernels do that wait"
BUSY = Diagnosis(None, "rank 0 is late; it computes", (Culprit("rank 0"),), busy=True)


@pytest.mark.parametrize(
    ("guard", "job", "held", "loads", "text"),
    [
        ("one waits and one rests", {}, 12.0, {"GPU-0": RESTS, "GPU-1": WAITS},
         f"GPU 1 runs at 100 % with 127 W, {AS}; GPU 0 runs nothing; {STILL}"),
        ("both wait", {}, 12.0, {"GPU-0": replace(WAITS, power=124.4), "GPU-1": WAITS},
         f"GPUs 0 and 1 run at 100 % with 124-127 W, {AS}; {STILL}"),
        ("power is not known", {}, 12.0, {"GPU-0": RESTS, "GPU-1": replace(WAITS, power=LOST)},
         f"GPU 1 runs at 100 % with power not read, {AS}; GPU 0 runs nothing; {STILL}"),
        ("one runs now and then", {}, 12.0, {"GPU-0": replace(WAITS, busy=0.05), "GPU-1": WAITS},
         f"GPU 1 runs at 100 % with 127 W, {AS}; GPU 0 runs at 5 %; {STILL}"),
        ("one is not read", {}, 12.0, {"GPU-0": LOST, "GPU-1": WAITS},
         f"GPU 1 runs at 100 % with 127 W, {AS}; {STILL}"),
        ("the use of one is not read", {}, 12.0, {"GPU-0": replace(RESTS, busy=LOST), "GPU-1": WAITS},
         f"GPU 1 runs at 100 % with 127 W, {AS}; {STILL}"),
        ("there is no NVLink", {"sent": {}}, 12.0, {"GPU-0": RESTS, "GPU-1": WAITS},
         f"GPU 1 runs at 100 % with 127 W, {AS}; GPU 0 runs nothing"),
        ("nobody knows more", {"diagnosis": UNKNOWN}, 12.0, {"GPU-1": WAITS},
         f"nobody says more: RAS is silent; GPU 1 runs at 100 % with 127 W, {AS}; {STILL}"),
        ("a rank is busy", {"diagnosis": BUSY}, 240.0, {"GPU-1": WAITS},
         f"busy for 4 min: rank 0 is late; it computes; GPU 1 runs at 100 % with 127 W, {AS}; {STILL}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_part_alone_decides_the_words(
    guard: str, job: Mapping[str, Any], held: float, loads: Mapping[str, GpuLoad | Absent], text: str
) -> None:
    known = replace(JOB, **job)
    assert seen(known, held, loads) == StandingJob(
        HELD, 1e9, text, "diagnosis" in job and job["diagnosis"].busy
    ), guard
