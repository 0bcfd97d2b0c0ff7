"""Each guard of the judgement of hangs alone: polls of a job of two GPUs in which only that guard refuses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.hungjobs import UID
from wirewatch.core.collector import GpuReading
from wirewatch.core.jobs import RasListener
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Expect, Finding, Ok, Subject, Why
from wirewatch.jobs.hangs.judge import facts, judge, watches
from wirewatch.jobs.hangs.model import (
    Culprit,
    Diagnosis,
    GpuLoad,
    HangKind,
    HangMemory,
    HangPolicy,
    HangReading,
    JobLook,
    JobProcess,
    WatchedJob,
    keep,
    recall,
)

LOST = Absent(Why.LOST, "lost")
MIB = 1 << 20
POLICY = HangPolicy()
OWNER = "slurm:41"
Loads = Mapping[str, GpuLoad | Absent]


def load(pid: int | None, sent: int | Absent = 0, **but: Any) -> GpuLoad:
    """A GPU that waits in a collective."""
    return replace(GpuLoad(frozenset({pid}), 1.0, 125.0, 700.0, sent), **but)


def two(**but: Any) -> dict[str, GpuLoad | Absent]:
    return {"GPU-0": load(4000, **but), "GPU-1": load(4001, **but)}


def reading(loads: Loads, owners: Mapping[int, str] | None = None, **but: Any) -> HangReading:
    gpus = tuple(GpuReading(Gpu(int(key[-1]), key), one) for key, one in loads.items())
    return HangReading(gpus, owners or {4000: OWNER, 4001: OWNER, 4002: OWNER}, **but)


def polled(memory: HangMemory, found: HangReading, mono: float) -> tuple[HangMemory, tuple[Finding, ...]]:
    return judge(memory, Ok(found, 1e9 + mono, mono), POLICY, Expect())


def after(*loads: Loads, owners: Mapping[int, str] | None = None) -> HangMemory:
    """The memory after such polls, 10 s apart."""
    memory = HangMemory()
    for number, one in enumerate(loads):
        memory, _ = polled(memory, reading(one, owners), 100.0 + 10 * number)
    return memory


MOVED = (two(), two(sent=MIB))
"""Polls between which it has moved enough bytes to be known to use NVLink."""


@pytest.mark.parametrize(
    ("guard", "loads", "begins", "goes_on"),
    [
        ("all wait", {}, True, True),
        ("one is busy and one is idle", {"GPU-1": {"busy": 0.0}}, True, True),
        ("none is busy all the time", {"GPU-0": {"busy": 0.98}, "GPU-1": {"busy": 0.0}}, False, False),
        ("one does work", {"GPU-1": {"power": 211.0}}, False, False),
        ("at just as little power", {"GPU-1": {"power": 210.0}}, True, True),
        ("one does work, and the use of the other is not known",
         {"GPU-0": {"busy": LOST}, "GPU-1": {"power": 211.0}}, False, False),
        ("one is idle, and the use of the other is not known",
         {"GPU-0": {"busy": LOST}, "GPU-1": {"busy": 0.0}}, False, True),
        ("the power of one is not known", {"GPU-1": {"power": LOST}}, False, True),
        ("the limit of one is not known", {"GPU-1": {"limit": LOST}}, False, True),
        ("none is busy, and the power of one is not known",
         {"GPU-0": {"busy": 0.0}, "GPU-1": {"busy": 0.0, "power": LOST}}, False, False),
        ("one could not be read", {"GPU-1": None}, False, True),
        ("one could not be read, the other is idle", {"GPU-0": {"busy": 0.0}, "GPU-1": None}, False, True),
        ("the counter of one could not be read", {"GPU-1": {"sent": LOST}}, False, True),
        ("the processes of one could not be read", {"GPU-1": {"processes": LOST}}, True, True),
        ("a few bytes", {"GPU-1": {"sent": MIB + 65536}}, True, True),
        ("some bytes of one GPU", {"GPU-1": {"sent": MIB + 65537}}, False, False),
        ("the counter of one began again", {"GPU-1": {"sent": 5}}, False, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_job_looks_stuck(
    guard: str, loads: Mapping[str, Mapping[str, Any] | None], *, begins: bool, goes_on: bool
) -> None:
    """It begins to, or goes on to where it did before."""
    last: dict[str, GpuLoad | Absent] = {
        key: LOST if but is None else replace(one, **but)
        for key, one in two(sent=MIB).items()
        for but in [loads.get(key, {})]
    }
    at_work = [two(power=600.0), two(power=600.0, sent=MIB)]
    first = after(*at_work, last).jobs[OWNER]
    assert first.since == (120.0 if begins else None), guard
    assert first.due == (128.0 if begins else math.inf)
    again = after(*MOVED, two(sent=MIB), last).jobs[OWNER]
    assert again.since == (110.0 if goes_on else None), guard


@pytest.mark.parametrize(
    ("guard", "polls", "stuck"),
    [
        ("one of its GPUs moved enough", [two(), {"GPU-0": load(4000, MIB), "GPU-1": load(4001)}], True),
        ("none moved enough", [two(), two(sent=MIB - 1)], False),
        ("it moved when it was first seen", [two(sent=9 * MIB)], False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_that_never_moved_bytes_does_not_look_stuck(
    guard: str, polls: Sequence[Loads], *, stuck: bool
) -> None:
    job = after(*polls, polls[-1]).jobs[OWNER]
    assert (job.since is not None) is stuck, guard


GONE = {"GPU-0": load(4000, MIB)}
OTHER = {4000: OWNER, 4001: "slurm:42", 4002: OWNER}


@pytest.mark.parametrize(
    ("guard", "last", "owners", "held", "gone", "moved"),
    [
        ("as it was", two(sent=MIB), None, {4000, 4001}, {}, True),
        ("a process has ended", {**GONE, "GPU-1": load(4001, processes=frozenset())}, None, {4000},
         {4001: "GPU-1"}, True),
        ("its GPU could not be read", {**GONE, "GPU-1": LOST}, None, {4000, 4001}, {}, True),
        ("its GPU's processes could not be read", {**GONE, "GPU-1": load(4001, processes=LOST)}, None,
         {4000, 4001}, {}, True),
        ("a process more", {**two(sent=MIB), "GPU-2": load(4002)}, None, {4000, 4001, 4002}, {}, False),
        ("a process instead of another", {**GONE, "GPU-1": load(4002)}, None, {4000, 4002}, {}, False),
        ("a process went to another job", two(sent=MIB), OTHER, {4000}, {}, False),
        ("one went to another job and one has ended",
         {"GPU-0": load(4000, processes=frozenset()), "GPU-1": load(4001), "GPU-2": load(4002)},
         {4001: "slurm:42", 4002: "slurm:42"}, None, None, None),
        ("one went to another job, and the other's GPU could not be read",
         {"GPU-0": LOST, "GPU-1": load(4001)}, OTHER, None, None, None),
        ("all have ended", {"GPU-0": load(0, processes=frozenset()), "GPU-1": load(0, processes=frozenset())},
         None, None, None, None),
        ("none is listed any more", {}, None, None, None, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_job_is_the_one_of_before(
    guard: str, last: Loads, owners: Mapping[int, str] | None, held: set[int] | None,
    gone: Mapping[int, str] | None, moved: bool | None,  # noqa: FBT001
) -> None:  # fmt: skip
    memory, _ = polled(after(*MOVED), reading(last, owners), 120.0)
    job = memory.jobs.get(OWNER)
    if held is None:
        assert job is None, guard
        return
    assert job is not None, guard
    assert {pid for pids in job.processes.values() for pid in pids} == held, guard
    assert job.gone == gone
    assert job.moved is moved


def test_of_three_processes_one_that_ended_and_one_that_went_away_make_another_job() -> None:
    three = {**two(), "GPU-2": load(4002)}
    moved = {**two(sent=MIB), "GPU-2": load(4002, MIB)}
    last = {"GPU-0": load(4000, MIB), "GPU-1": load(4001, MIB), "GPU-2": load(0, processes=frozenset())}
    memory, _ = polled(after(three, moved), reading(last, OTHER), 120.0)
    job = memory.jobs[OWNER]
    assert (job.processes, job.gone, job.moved) == ({"GPU-0": frozenset({4000})}, {}, False)


def test_processes_without_an_id_are_of_one_job_without_a_name() -> None:
    memory = after({"GPU-0": load(None), "GPU-1": load(4001)}, owners={4001: OWNER})
    assert memory.jobs[""].processes == {"GPU-0": frozenset({0})}
    assert memory.jobs[OWNER].processes == {"GPU-1": frozenset({4001})}


PROCESS = JobProcess("R", 900, UID, 0)
NO_RAS = Absent(Why.MISSING, "nobody listens")


def look(mono: float, state: str = "T") -> JobLook:
    return JobLook(mono, {4000: replace(PROCESS, state=state), 4001: PROCESS}, NO_RAS, ())


def test_a_look_at_a_job_that_has_gone_or_moved_on_meanwhile_says_nothing() -> None:
    stuck = after(*MOVED, two(sent=MIB))
    late, _ = polled(stuck, reading(two(sent=MIB), looks={"slurm:9": look(130.0)}), 130.0)
    assert set(late.jobs) == {OWNER}
    assert late.asked == 1
    moved, _ = polled(stuck, reading(two(sent=9 * MIB), looks={OWNER: look(130.0)}), 130.0)
    assert (moved.jobs[OWNER].looks, moved.jobs[OWNER].asked, moved.jobs[OWNER].due) == ((), 0, math.inf)


def test_looks_come_twice_as_late_each_time_and_at_most_so_seldom() -> None:
    memory, waits = after(*MOVED, two(sent=MIB)), []
    for _ in range(9):
        mono = memory.jobs[OWNER].due
        memory, _ = polled(memory, reading(two(sent=MIB), looks={OWNER: look(mono)}), mono)
        waits.append(memory.jobs[OWNER].due - mono)
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0]
    assert len(memory.jobs[OWNER].looks) == 2


@pytest.mark.parametrize(
    ("guard", "ended", "due"),
    [
        ("RAS answered at once", 118.0, 128.0),
        ("RAS took seconds, which are no reason to come later", 122.0, 128.0),
        ("RAS took so long that half of the time is left to the job", 126.0, 131.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_when_the_next_look_comes(guard: str, ended: float, due: float) -> None:
    stuck = after(*MOVED, two(sent=MIB))
    assert stuck.jobs[OWNER].due == 118.0
    memory, _ = polled(stuck, reading(two(sent=MIB), looks={OWNER: look(ended)}), ended)
    assert memory.jobs[OWNER].due == due, guard


def test_a_job_of_which_no_more_is_known_is_looked_at_when_its_time_alone_says_more() -> None:
    memory, dues = after(*MOVED, two(sent=MIB)), []
    for _ in range(12):
        mono = memory.jobs[OWNER].due
        memory, _ = polled(memory, reading(two(sent=MIB), looks={OWNER: look(mono, "R")}), mono)
        dues.append(memory.jobs[OWNER].due)
    # It began at 110; more may be said after 60, 120, 300 and 600 s; looks are 10, 20, 40 ... s apart.
    assert dues == [128.0, 148.0, 170.0, 230.0, 390.0, 410.0, 1010.0, 1610.0, 2210.0, 2810.0, 3410.0, 4010.0]


def test_a_hang_was_found_when_it_was_first_found() -> None:
    memory = after(*MOVED, two(sent=MIB))
    for mono in (118.0, 128.0, 148.0):
        memory, findings = polled(memory, reading(two(sent=MIB), looks={OWNER: look(mono)}), mono)
    (found,) = facts(reading(two()), memory).now
    assert found.found == 1e9 + 128.0
    assert found.kind is HangKind.STOPPED
    assert "do not drain it" in found.action
    (finding,) = findings
    assert finding.evidence.endswith("it has looked so for 38 s")
    moving, _ = polled(memory, reading(two(sent=9 * MIB)), 340.0)
    (past,) = moving.past
    assert (past.kind, past.owner, past.begin, past.end) == ("stopped", OWNER, 1e9 + 128.0, 1e9 + 340.0)
    assert facts(reading(two()), moving).now == ()


def job(kind: HangKind | None, **but: Any) -> WatchedJob:
    """A job that is said to hang in this way, or not to hang."""
    held = {"GPU-0": frozenset({4000}), "GPU-1": frozenset({4001})}
    made = WatchedJob(
        held, moved=True, since=50.0, low=50.0, began=1e9 - 10.0, due=math.inf,
        diagnosis=Diagnosis(kind, f"seen {kind}"), found=1e9, sent={"GPU-0": MIB, "GPU-1": MIB},
    )  # fmt: skip
    return replace(made, **but)


@pytest.mark.parametrize(
    ("guard", "known", "last", "past", "total"),
    [
        ("it hangs on", job(HangKind.ERROR), two(sent=MIB), [], {}),
        ("it hangs no more", job(HangKind.ERROR), two(sent=9 * MIB), ["error"], {}),
        ("it is gone", job(HangKind.ERROR), {}, ["error"], {}),
        ("it never hung, and is gone", job(None), {}, [], {}),
        ("it never hung, and goes on", job(None), two(sent=9 * MIB), [], {}),
        ("it was not looked at, and is gone", job(None, diagnosis=None), {}, [], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_a_hang_is_over(
    guard: str, known: WatchedJob, last: Loads, past: Sequence[str], total: Mapping[str, int]
) -> None:
    memory, _ = polled(HangMemory(jobs={OWNER: known}), reading(last), 60.0)
    assert [one.kind for one in memory.past] == past, guard
    assert memory.total == total


@pytest.mark.parametrize(
    ("guard", "known", "total"),
    [
        ("for the first time", job(None, diagnosis=None, looks=(look(0.0),)), {"stopped": 1}),
        ("as before", job(HangKind.STOPPED, looks=(look(0.0),)), {}),
        ("in another way", job(HangKind.ERROR, looks=(look(0.0),)), {"stopped": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_a_hang_is_counted(
    guard: str, known: WatchedJob, total: Mapping[str, int]
) -> None:
    memory = HangMemory(jobs={OWNER: known})
    memory, _ = polled(memory, reading(two(sent=MIB), looks={OWNER: look(60.0)}), 60.0)
    assert memory.jobs[OWNER].hang is HangKind.STOPPED
    assert memory.total == total, guard
    again, _ = polled(memory, reading(two(sent=MIB)), 70.0)
    assert again.total == total


@pytest.mark.parametrize(
    ("guard", "known", "kept", "hang"),
    [
        ("it hangs", job(HangKind.ERROR), True, HangKind.ERROR),
        ("it hangs, and was never seen to move", job(HangKind.ERROR, moved=False), True, HangKind.ERROR),
        ("it does not hang", job(None), True, None),
        ("it does not hang, and was never seen to move", job(None, moved=False), False, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_what_is_kept_of_a_job_over_any_number_of_starts(
    guard: str, known: WatchedJob, hang: HangKind | None, *, kept: bool
) -> None:
    again = recall(keep(HangMemory(jobs={OWNER: known})))
    assert list(again.jobs) == ([OWNER] if kept else []), guard
    for one in again.jobs.values():
        assert (one.hang, one.moved) == (hang, known.moved)
        assert (one.began, one.found) == ((1e9 - 10.0, 1e9) if hang else (None, 1e9))
    assert keep(again) == keep(recall(keep(again)))


AGAIN = {"GPU-0": load(4000, MIB), "GPU-1": load(4001, MIB)}


@pytest.mark.parametrize(
    ("guard", "last", "holds"),
    [
        ("it looks as it did", AGAIN, True),
        ("a GPU could not be read", {**AGAIN, "GPU-1": LOST}, True),
        ("a GPU does work again", {**AGAIN, "GPU-1": load(4001, MIB, power=211.0)}, False),
        ("bytes move", {**AGAIN, "GPU-1": load(4001, 9 * MIB)}, False),
        ("another process came", {**AGAIN, "GPU-1": load(4002, MIB)}, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_a_hang_holds_when_the_agent_is_started_again(
    guard: str, last: Loads, *, holds: bool
) -> None:
    again = recall(keep(HangMemory(jobs={OWNER: job(HangKind.ERROR)})))
    first, said = polled(again, reading(AGAIN), 60.0)
    assert [one.rule for one in said] == ["hangs.error"]
    assert first.total == {}
    memory, said = polled(first, reading(last), 62.0)
    assert [one.rule for one in said if one.rule != "hangs.blind"] == (["hangs.error"] if holds else []), (
        guard
    )
    if last == AGAIN:
        # Ten seconds before its hang was found it began, and it is looked at again at once.
        assert (memory.jobs[OWNER].since, memory.jobs[OWNER].due) == (-10.0, 62.0)
        assert said[0].evidence.endswith("it has looked so for 72 s")


def test_sixteen_hangs_are_remembered_the_newest() -> None:
    jobs = {f"slurm:{number:02d}": job(HangKind.ERROR) for number in range(20)}
    memory, _ = polled(HangMemory(jobs=jobs), reading({}), 60.0)
    assert [one.owner for one in memory.past] == [f"slurm:{number:02d}" for number in range(4, 20)]


def findings(*jobs: WatchedJob) -> list[tuple[str, Subject, str]]:
    """The findings of jobs that each hold a GPU and hang on."""
    loads = {f"GPU-{number}": load(4000 + number, MIB) for number in range(len(jobs))}
    owners = {4000 + number: f"slurm:{number}" for number in range(len(jobs))}
    held = {
        f"slurm:{number}": replace(one, processes={f"GPU-{number}": frozenset({4000 + number})})
        for number, one in enumerate(jobs)
    }
    return [
        (one.rule, one.subject, one.evidence)
        for one in polled(HangMemory(jobs=held), reading(loads, owners), 60.0)[1]
    ]


HERE = Culprit("rank 1", "1", "GPU-1", 4001)
ALL = "it has looked so for 70 s"


@pytest.mark.parametrize(
    ("guard", "jobs", "found"),
    [
        ("one", [job(HangKind.ERROR)], [("hangs.error", Subject(), f"seen HangKind.ERROR; {ALL}")]),
        ("no hang", [job(None)], []),
        ("two of a kind at one part are one", [job(HangKind.ERROR)] * 2,
         [("hangs.error", Subject(), "; ".join([f"seen HangKind.ERROR; {ALL}"] * 2))]),
        ("two kinds", [job(HangKind.ERROR), job(HangKind.SYMMETRIC)],
         [("hangs.error", Subject(), f"seen HangKind.ERROR; {ALL}"),
          ("hangs.symmetric", Subject(), f"seen HangKind.SYMMETRIC; {ALL}")]),
        ("at the first culprit that is here",
         [job(None, diagnosis=Diagnosis(HangKind.ERROR, "x", (Culprit("rank 0"), HERE)))],
         [("hangs.error", Subject(gpu="1", uuid="GPU-1"), f"x; {ALL}")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_is_found(
    guard: str, jobs: Sequence[WatchedJob], found: list[tuple[str, Subject, str]]
) -> None:
    assert findings(*jobs) == found, guard


LISTENER = RasListener("0.0.0.0:28028", UID, 7, open=True)


@pytest.mark.parametrize(
    ("guard", "loads", "listener", "found"),
    [
        ("others can reach it", two(), LISTENER, True),
        ("others cannot", two(), replace(LISTENER, open=False), False),
        ("there is no job any more", {}, LISTENER, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_an_open_ras_is_a_finding(
    guard: str, loads: Loads, listener: RasListener, *, found: bool
) -> None:
    memory, said = polled(after(two()), reading(loads, listeners=(listener,)), 110.0)
    assert [one.rule for one in said] == (["hangs.ras_open"] if found else []), guard
    assert memory.listened == 110.0
    later, again = polled(memory, reading(loads), 120.0)
    assert (later.listened, len(again)) == (110.0, len(said))


def test_a_gpu_that_cannot_be_read_is_not_known_and_one_is_enough_to_watch() -> None:
    found = reading({"GPU-0": load(4000), "GPU-1": LOST})
    assert watches(found)
    assert not watches(reading({"GPU-1": LOST}))
    memory, said = polled(HangMemory(), found, 100.0)
    assert [(one.rule, one.subject.gpu) for one in said] == [("hangs.blind", "1")]
    assert set(memory.supported) == {"GPU-0"}
