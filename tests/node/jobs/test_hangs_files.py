"""The process of an idle GPU that works on files, and the answer where something was not read."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.node.jobs.hungjobs import REST, UID, HungJob
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.hangs.diagnosis import case_of, diagnose
from wirewatch.jobs.hangs.model import (
    Diagnosis,
    GpuLoad,
    HangKind,
    HangPolicy,
    JobLook,
    JobProcess,
    WatchedJob,
)

UNREAD = Absent(Why.DENIED, "not ours")
MIB = 1 << 20
GPUS = {"GPU-0": Gpu(0, "GPU-0"), "GPU-1": Gpu(1, "GPU-1")}
IDLE = GpuLoad(frozenset(), *REST, 700.0, 0)


def process(files: int | Absent) -> JobProcess:
    return JobProcess("R", 900, UID, files)


def seen(before: Mapping[int, JobProcess], now: Mapping[int, JobProcess], load: GpuLoad = IDLE) -> Diagnosis:
    """Diagnose two looks, 60 s apart, at a job without RAS on two idle GPUs that long looked stuck."""
    looks = (JobLook(1000.0, before, UNREAD, ()), JobLook(1060.0, now, UNREAD, ()))
    held = {"GPU-0": frozenset({4000}), "GPU-1": frozenset({4001})}
    job = WatchedJob(held, moved=True, since=700.0, looks=looks)
    case = case_of(job, GPUS, dict.fromkeys(held, load), HangPolicy())
    assert case is not None
    return diagnose(case)


@pytest.mark.parametrize(
    ("guard", "before", "now", "kind"),
    [
        ("it reads", {4000: process(0)}, {4000: process(600 * MIB)}, None),
        ("it reads nothing", {4000: process(0)}, {4000: process(0)}, HangKind.SUSPECTED),
        ("not seen before", {}, {4000: process(600 * MIB)}, HangKind.SUSPECTED),
        ("not seen now", {4000: process(0)}, {}, HangKind.SUSPECTED),
        ("not read before", {4000: process(UNREAD)}, {4000: process(600 * MIB)}, HangKind.SUSPECTED),
        ("not read now", {4000: process(0)}, {4000: process(UNREAD)}, HangKind.SUSPECTED),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_a_rate_that_two_looks_show_is_work_on_files(
    guard: str, before: Mapping[int, JobProcess], now: Mapping[int, JobProcess], kind: HangKind | None
) -> None:
    found = seen(before, now)
    assert found.kind is kind, f"{guard}: {found.text}"
    assert ("at work on files (10 MB/s)" in found.text) is (kind is None)


@pytest.mark.parametrize(
    ("power", "text"), [(122.4, "2 GPUs at 122 W,"), (UNREAD, "2 GPUs at power not read,")]
)
def test_watts_are_said_or_said_not_to_be_read(power: float | Absent, text: str) -> None:
    assert text in seen({}, {}, replace(IDLE, power=power)).text


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "no hang is found" in one.getMessage()]


def test_the_log_says_once_what_looks_stuck_and_is_no_hang(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wirewatch.jobs.hangs")
    job = HungJob()
    job.work()
    assert lines(caplog) == []
    job.wait(2)
    job.answer = UNREAD
    job.poll(12)
    (line,) = lines(caplog)
    assert "nobody says more" in line
    job.poll(60)
    assert [one.rule for one in job.watched.component.findings] == ["hangs.suspected"]
    assert lines(caplog) == [line]
