"""Whether a process for which others wait is at work: each sign alone, between two looks 10 s apart."""

from dataclasses import replace
from typing import Any

import pytest

from wirewatch.core.types import Absent, Why
from wirewatch.jobs.hangs.model import HangPolicy, JobProcess
from wirewatch.jobs.hangs.working import ProcessWork, work_of

UNREAD = Absent(Why.DENIED, "not ours")
ASLEEP = JobProcess("S", 900, 1000, 0, 0, 0.0, 0)
POLICY = HangPolicy()
DARK = ProcessWork(unseen=f"its CPU time: {UNREAD}")


def worked(*, spins: bool = False, before: JobProcess | None = ASLEEP, **now: Any) -> ProcessWork:
    return work_of(before, replace(ASLEEP, **now), 10.0, POLICY, spins=spins)


@pytest.mark.parametrize(
    ("guard", "now", "text"),
    [
        ("it sleeps", {}, ""),
        ("it computes, as in a compile", {"cpu": 9.8}, "computes (98 % of a core)"),
        ("just enough, as an upload takes", {"cpu": 0.3}, "computes (3 % of a core)"),
        ("not enough: threads that look now and then", {"cpu": 0.29}, ""),
        ("it writes a file", {"files": 10**7}, "is at work on files (1 MB/s)"),
        ("it writes too little", {"files": 10**7 - 1}, ""),
        ("it writes a file that is mapped, which the disk alone shows", {"disk": 5 * 10**9},
         "is at work on files (500 MB/s)"),
        ("it reads a file that is mapped over a network", {"faults": 100}, "waits for pages of files (10/s)"),
        ("few pages", {"faults": 99}, ""),
        ("both", {"cpu": 5.0, "files": 10**9},
         "is at work on files (100 MB/s) and computes (50 % of a core)"),
        ("a child has ended, and its time is gone", {"cpu": -5.0}, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_sign_alone_decides_whether_a_process_is_at_work(
    guard: str, now: dict[str, Any], text: str
) -> None:
    assert worked(**now) == ProcessWork(text), guard


@pytest.mark.parametrize(
    ("guard", "before", "now", "text"),
    [
        ("inside the kernel at both looks", "D", "D", "is inside the kernel (state D)"),
        ("at the newer alone: a file has just been written, and goes to its disk", "S", "D",
         "is inside the kernel (state D)"),
        ("at the older alone", "D", "S", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_process_that_is_inside_the_kernel_now_is_at_work(
    guard: str, before: str, now: str, text: str
) -> None:
    assert worked(before=replace(ASLEEP, state=before), state=now).text == text, guard


def test_cpu_time_says_nothing_where_the_gpu_waits_in_a_kernel_and_files_do() -> None:
    assert worked(spins=True, cpu=10.0) == ProcessWork()
    assert worked(spins=True, cpu=UNREAD) == ProcessWork()
    assert worked(spins=True, files=10**9).text == "is at work on files (100 MB/s)"


@pytest.mark.parametrize(
    ("guard", "before", "now", "work"),
    [
        ("not seen before", None, ASLEEP, ProcessWork(unseen="its process is not seen here")),
        ("not seen now", ASLEEP, None, ProcessWork(unseen="its process is not seen here")),
        ("its time was not read before", replace(ASLEEP, cpu=UNREAD), ASLEEP, DARK),
        ("its time is not read now", ASLEEP, replace(ASLEEP, cpu=UNREAD), DARK),
        ("its time is not read, and it writes", ASLEEP, replace(ASLEEP, cpu=UNREAD, files=10**9),
         ProcessWork("is at work on files (100 MB/s)")),
        ("its files are not read", ASLEEP, replace(ASLEEP, files=UNREAD), ProcessWork()),
        ("its files were not read", replace(ASLEEP, files=UNREAD), replace(ASLEEP, files=10**9),
         ProcessWork()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_the_work_of_a_process_is_seen(
    guard: str, before: JobProcess | None, now: JobProcess | None, work: ProcessWork
) -> None:
    assert work_of(before, now, 10.0, POLICY, spins=False) == work, guard
