"""Each guard of reading for hangs alone: loads of GPUs, owners, and looks at jobs that are due."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.node.jobs.hungjobs import FIRST, INNER, NOBODY, REST, UID, HungJob
from tests.rows import each
from wirewatch.core.collector import GpuReading
from wirewatch.core.jobs import RasListener
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Json, Why
from wirewatch.jobs.hangs.model import (
    NOT_COUNTED,
    GpuLoad,
    HangMemory,
    HangOptions,
    HangReading,
    JobLook,
    JobProcess,
    WatchedJob,
)
from wirewatch.jobs.hangs.read import read, still_stuck

LOST = Absent(Why.LOST, "lost")
DENIED = Absent(Why.DENIED, "not ours")
PROCESSES, USE = "ComputeRunningProcesses()", "UtilizationRates()"
BEFORE_5, FROM_5 = "Field(138,all)", "Field(202,all)"
HELD = {f"GPU-{number}": frozenset({FIRST + number}) for number in range(4)}
OWNER = "slurm:41"


def drawn(**but: Any) -> HungJob:
    """A job that waits, as its GPUs and its processes show it."""
    job = HungJob(**but)
    job.wait()
    job.draw()
    return job


def seen(job: HungJob, memory: HangMemory | None = None) -> HangReading:
    found = read(job.watched.hardware, memory or HangMemory(), HangOptions())
    assert isinstance(found, HangReading)
    return found


def looked(job: HungJob, held: Mapping[str, frozenset[int]] | None = None) -> JobLook:
    """A look at the job, which is due."""
    due = WatchedJob(HELD if held is None else held, moved=True, since=0.0, due=0.0)
    return seen(job, HangMemory(jobs={OWNER: due})).looks[OWNER]


@pytest.mark.parametrize(
    ("guard", "answers", "load"),
    [
        ("bytes of NVLink 5", {FROM_5: 5_000, BEFORE_5: 7}, {"sent": 5_000}),
        ("KiB before it", {BEFORE_5: 7}, {"sent": 7 * 1024}),
        ("neither", {FROM_5: LOST, BEFORE_5: None}, {"sent": LOST}),
        ("both are lost", {FROM_5: LOST, BEFORE_5: LOST}, {"sent": LOST, "busy": 1.0}),
        ("nothing computes there", {PROCESSES: [], BEFORE_5: 7},
         {"sent": NOT_COUNTED, "processes": frozenset()}),
        ("whether anything computes is not known", {PROCESSES: LOST, BEFORE_5: 7},
         {"sent": NOT_COUNTED, "processes": LOST}),
        ("no list", {PROCESSES: "x"}, {"processes": Absent(Why.MALFORMED, "not a list of processes: 'x'")}),
        ("a process without an id", {PROCESSES: [{"pid": "x"}, {"pid": 7}]},
         {"processes": frozenset({None, 7})}),
        ("its use is lost", {USE: LOST}, {"busy": LOST, "memory": LOST}),
        ("its memory is used", {USE: {"gpu": 40, "memory": 30}}, {"busy": 0.4, "memory": 0.3}),
        ("its power is lost", {"PowerUsage()": LOST}, {"power": LOST, "limit": 700.0}),
        ("as it is", {}, {"busy": 1.0, "power": 125.0, "limit": 700.0, "processes": frozenset({FIRST})}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_a_gpu_s_load_is(
    guard: str, answers: Mapping[str, Json | Absent], load: Mapping[str, Any]
) -> None:
    job = drawn()
    for question, answer in answers.items():
        if answer is None:
            del job.table.table["GPU-0", question]
        else:
            job.table.table["GPU-0", question] = answer
    found = seen(job).loads["GPU-0"]
    assert isinstance(found, GpuLoad), guard
    assert {name: getattr(found, name) for name in load} == load, guard


def test_a_gpu_of_which_nothing_is_read_costs_its_own_numbers_alone() -> None:
    job = drawn()
    for gpu, question in list(job.table.table):
        if gpu == "GPU-1":
            job.table.table[gpu, question] = LOST
    loads = seen(job).loads
    assert loads["GPU-1"] == LOST
    assert [key for key, load in loads.items() if isinstance(load, GpuLoad)] == ["GPU-0", "GPU-2", "GPU-3"]
    job.table.absent = LOST
    assert read(job.watched.hardware, HangMemory(), HangOptions()) == LOST


@pytest.mark.parametrize(
    ("guard", "cgroup", "stat", "owner"),
    [
        ("by its cgroup", "0::/system.slice/slurmstepd.scope/job_41/step_0", "1 (x) R 77 7", "slurm:41"),
        ("by the process that started it", "0::/user.slice", "1 (x) R 77 7", "parent:77"),
        ("its cgroup cannot be read", DENIED, "1 (x) R 77 7", "parent:77"),
        ("started by the second process", "0::/user.slice", "1 (x) R 2 7", "parent:2"),
        ("started by the first process, as all that are left alone", "0::/user.slice", "1 (x) R 1 7", ""),
        ("by nobody that can be read", "0::/user.slice", DENIED, ""),
        ("by nobody that is told", "0::/user.slice", "1 (x)", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whose_a_process_is(
    guard: str, cgroup: str | Absent, stat: str | Absent, owner: str
) -> None:
    job = drawn()
    job.files.texts |= {f"/proc/{FIRST}/cgroup": cgroup, f"/proc/{FIRST}/stat": stat}
    assert seen(job).owners[FIRST] == owner, guard


@pytest.mark.parametrize(
    ("guard", "command", "owner"),
    [
        ("a worker of a probe", "/usr/bin/python3\0-P\0-m\0wirewatch.worker\x005\x006", "probe"),
        ("another module", "/usr/bin/python3\0-m\0wirewatch.workers\x005", "slurm:41"),
        ("a script of that name", "/usr/bin/python3\0wirewatch.worker\x005", "slurm:41"),
        ("not read", DENIED, "slurm:41"),
    ],
    ids=lambda value: value if isinstance(value, str) and "\0" not in value else "",
)
def test_a_worker_of_a_probe_is_known_by_its_command_wherever_it_runs(
    guard: str, command: str | Absent, owner: str
) -> None:
    job = drawn()
    group = "0::/system.slice/slurmstepd.scope/job_41/step_0"
    job.files.texts |= {f"/proc/{FIRST}/cgroup": group, f"/proc/{FIRST}/cmdline": command}
    assert seen(job).owners[FIRST] == owner, guard


@pytest.mark.parametrize(
    ("guard", "mono", "listened", "computes", "read"),
    [
        ("a minute after the last time", 160.0, 1100.0, True, True),
        ("less than a minute after it", 159.0, 1100.0, True, False),
        ("for the first time", 0.0, -math.inf, True, True),
        ("nothing computes", 160.0, 1100.0, False, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_listeners_are_read(
    guard: str, mono: float, listened: float, *, computes: bool, read: bool
) -> None:
    job = drawn()
    if not computes:
        for number in range(4):
            job.table.table[f"GPU-{number}", PROCESSES] = []
    job.watched.clock.seconds = mono
    found = seen(job, HangMemory(listened=listened)).listeners
    assert found == (((RasListener("127.0.0.1:28028", UID, 7, open=False)),) if read else None), guard


def test_each_network_namespace_s_listeners_are_read_once_and_who_cannot_be_asked_is_left_out() -> None:
    job = drawn()
    job.owners = {0: "0::/x/slurmstepd.scope/job_42/step_0"}
    job.draw()
    twice = [RasListener("a", UID, 1, open=True)] * 2
    listeners: dict[int | None, Sequence[RasListener] | Absent] = {FIRST: LOST, FIRST + 1: twice}
    job.watched.hardware = replace(job.watched.hardware, ras=Namespaces(listeners))
    assert seen(job).listeners == (RasListener("a", UID, 1, open=True),)


@dataclass
class Namespaces:
    """A RAS port over the listeners in each process' network namespace; this machine's are at None."""

    theirs: Mapping[int | None, Sequence[RasListener] | Absent]
    asked: list[int | None] = field(default_factory=list)

    def ask(self, deadline: float) -> Absent:
        assert deadline == 7.0
        return NOBODY

    def listeners(self, pid: int | None = None) -> Sequence[RasListener] | Absent:
        self.asked.append(pid)
        return self.theirs[pid]


ONE, OTHER = RasListener("x", UID, 1, open=False), RasListener("y", UID, 2, open=False)


@pytest.mark.parametrize(
    ("guard", "there", "here", "elsewhere"),
    [
        ("in a namespace of its own", (ONE,), (OTHER,), True),
        ("here", (ONE,), (ONE, OTHER), False),
        ("one of them here", (ONE, OTHER), (ONE,), False),
        ("nobody listens there", (), (OTHER,), False),
        ("who listens there is not known", LOST, (OTHER,), False),
        ("who listens here is not known", (ONE,), LOST, False),
        ("nobody listens here", (ONE,), (), True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_ras_is_elsewhere(
    guard: str,
    there: Sequence[RasListener] | Absent,
    here: Sequence[RasListener] | Absent,
    *,
    elsewhere: bool,
) -> None:
    job = drawn()
    ras = Namespaces({None: here, FIRST: there})
    job.watched.hardware = replace(job.watched.hardware, ras=ras)
    found = looked(job)
    assert found.elsewhere is elsewhere, guard
    assert found.listeners == there
    assert found.mono == job.watched.hardware.clock.mono()


@pytest.mark.parametrize(
    ("guard", "due", "load", "asked"),
    [
        ("it is due, and looks stuck", 0.0, {}, True),
        ("it is not due", math.inf, {}, False),
        ("it is due, and none of its GPUs is busy any more", 0.0, {"GPU-0": REST[0]}, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_a_job_is_looked_at(
    guard: str, due: float, load: Mapping[str, float], *, asked: bool
) -> None:
    job = drawn()
    for key in load:
        assert key in HELD
        for one in job.ranks:
            one.load = REST
        job.draw()
    memory = HangMemory(jobs={OWNER: WatchedJob(HELD, moved=True, since=0.0, due=due)})
    assert bool(seen(job, memory).looks) is asked, guard
    assert job.ras.asked == asked


BUSY = GpuLoad(frozenset({FIRST}), 1.0, 125.0, 700.0, 0)


@pytest.mark.parametrize(
    ("guard", "loads", "stuck"),
    [
        ("one is all busy", (BUSY, replace(BUSY, busy=0.0)), True),
        ("one is nearly", (replace(BUSY, busy=0.98), replace(BUSY, busy=0.0)), False),
        ("the use of one is not known", (BUSY, replace(BUSY, busy=LOST)), True),
        ("the use of none is known", (replace(BUSY, busy=LOST), replace(BUSY, busy=LOST)), False),
        ("one could not be read", (BUSY, LOST), False),
        ("one is not listed any more", (BUSY,), False),
        ("another job's GPU is busy", (replace(BUSY, busy=0.0), replace(BUSY, busy=0.0), BUSY), False),
        ("another job's GPU could not be read", (BUSY, BUSY, LOST), True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_a_job_still_looks_stuck(
    guard: str, loads: Sequence[GpuLoad | Absent], *, stuck: bool
) -> None:
    gpus = tuple(GpuReading(Gpu(n, f"GPU-{n}"), load) for n, load in enumerate(loads))
    job = WatchedJob({"GPU-0": frozenset({1}), "GPU-1": frozenset({2})})
    assert still_stuck(job, HangReading(gpus)) is stuck, guard


NO_NUMBER = Absent(Why.MALFORMED, "no number")
NEITHER = {"inner": NO_NUMBER, "uid": NO_NUMBER}
CHILDREN = f"task/{FIRST}/children"


def stat(faults: int, *times: int) -> str:
    """The stat of a process: pages that it waited for, and its CPU time in hundredths of seconds."""
    return f"1 (x) R 77 77 77 0 -1 0 5 6 {faults} 8 {' '.join(map(str, times))}"


@each(
    ("guard", "texts", "process"),
    [
        ("as it is", {}, {"state": "R", "inner": INNER, "uid": UID, "files": 0}),
        ("its status cannot be read", {"status": DENIED},
         {"state": "R", "inner": DENIED, "uid": DENIED, "files": 0}),
        ("its status tells nothing", {"status": "Name:\tx\nUid:\t\n"}, NEITHER),
        ("its status tells nonsense", {"status": "Uid:\tx\nNSpid:\t1\ty\n"}, NEITHER),
        ("its state cannot be read", {"stat": DENIED}, {"state": DENIED, "inner": INNER}),
        ("its state is nonsense", {"stat": "x"}, {"state": Absent(Why.MALFORMED, f"/proc/{FIRST}/stat")}),
        ("what it reads and writes", {"io": "rchar: 5\nwchar: 7\nread_bytes: 9\n"}, {"files": 12}),
        ("what it reads alone is told", {"io": "rchar: 5\nwchar: x\n"}, {"files": 5}),
        ("neither is told", {"io": "x: 5\n"}, {"files": Absent(Why.MALFORMED, f"/proc/{FIRST}/io")}),
        ("its files cannot be seen", {"io": DENIED}, {"files": DENIED}),
        ("its files and its children's", {"io": "rchar: 5\n", CHILDREN: "71 72"}, {"files": 105}),
        ("a child is nonsense", {"io": "rchar: 5\n", CHILDREN: "x 71"}, {"files": 105}),
        ("its files cannot be seen, a child's can", {"io": DENIED, CHILDREN: "71"},
         {"files": DENIED}),
        ("so many children", {"io": "rchar: 5\n", CHILDREN: " ".join(map(str, range(1000, 1065)))},
         {"files": 6405}),
        ("a child's children", {"io": "rchar: 5\n", CHILDREN: "74"}, {"files": 1105}),
        ("what a disk read and wrote", {"io": "rchar: 5\nread_bytes: 9\nwrite_bytes: 2\n"}, {"disk": 11}),
        ("what a disk did is not told", {"io": "rchar: 5\n"},
         {"disk": Absent(Why.MALFORMED, f"/proc/{FIRST}/io")}),
        ("its CPU time, with that of children that ended", {"stat": stat(7, 100, 20, 3, 4)},
         {"cpu": 1.27, "faults": 7}),
        ("its CPU time and a child's", {"stat": stat(7, 100, 0, 0, 0), CHILDREN: "71 72"}, {"cpu": 6.0}),
        ("its CPU time is not told", {"stat": "1 (x) R 77"},
         {"cpu": Absent(Why.MALFORMED, f"/proc/{FIRST}/stat"), "faults": NO_NUMBER}),
        ("its CPU time is told in part", {"stat": stat(7, 100, 0, 0)},
         {"cpu": Absent(Why.MALFORMED, f"/proc/{FIRST}/stat"), "faults": 7}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_is_known_of_a_process(
    guard: str, texts: Mapping[str, str | Absent], process: Mapping[str, Any]
) -> None:
    job = drawn()
    job.files.texts |= {f"/proc/{FIRST}/{name}": text for name, text in texts.items()}
    job.files.texts |= {f"/proc/{child}/io": "rchar: 100\n" for child in (71, 74, *range(1000, 1065))}
    job.files.texts |= {"/proc/72/io": DENIED, "/proc/71/stat": stat(9, 400, 100, 0, 0)}
    job.files.texts |= {"/proc/74/task/74/children": "73", "/proc/73/io": "rchar: 1000\n"}

    found = looked(job).processes[FIRST]
    assert {name: getattr(found, name) for name in process} == process, guard


def test_a_process_that_ended_is_known_as_such_beside_those_that_run() -> None:
    job = drawn()
    job.files.forget(f"/proc/{FIRST}/")
    found = looked(job).processes
    assert sorted(found) == [FIRST + number for number in range(4)]
    assert isinstance(found[FIRST].state, Absent)


def test_where_nvml_s_processes_are_not_here_those_of_ras_are_looked_at() -> None:
    job = drawn(foreign=True)
    held = {f"GPU-{number}": frozenset({1_000_000 + number}) for number in range(4)}
    job.files.forget(f"/proc/{INNER + 3}/")
    assert sorted(looked(job, held).processes) == [INNER, INNER + 1, INNER + 2]
    job.answer = NOBODY
    assert sorted(looked(job, held).processes) == [1_000_000 + number for number in range(4)]


def test_of_many_processes_of_ras_some_are_looked_at() -> None:
    job = drawn(foreign=True)
    (report,) = job.reports()
    (comm,) = report.communicators
    ranks = [replace(comm.ranks[0], pid=pid) for pid in (-1, *range(1, 300))]
    job.answer = (replace(report, communicators=(replace(comm, ranks=tuple(ranks)),)),)
    for pid in range(1, 300):
        job.files.texts[f"/proc/{pid}/stat"] = f"{pid} (x) R 77 7"
    held = {f"GPU-{number}": frozenset({1_000_000 + number}) for number in range(4)}
    assert sorted(looked(job, held).processes) == list(range(1, 256))


def test_a_job_whose_processes_have_no_ids_is_looked_at_through_ras() -> None:
    job = drawn()
    for number in range(4):
        job.table.table[f"GPU-{number}", PROCESSES] = [{}]
    held = {f"GPU-{number}": frozenset({0}) for number in range(4)}
    found = looked(job, held)
    assert found.listeners == job.ras.own
    assert found.processes == {}
    for number in range(4):
        job.files.texts[f"/proc/{INNER + number}/stat"] = f"{INNER} (x) R 77 7"
    assert sorted(looked(job, held).processes) == [INNER + number for number in range(4)]


POD = "0a1b2c3d-0000-4000-8000-00000000000a"


@each(
    ("owner", "folders", "said"),
    [
        ("slurm:41", (), "Slurm job 41"),
        (f"pod:{POD}", (f"team_train-0_{POD}",), "pod team/train-0"),
        (f"pod:{POD}", ("team_train-0_another", "x"), f"pod {POD}"),
        (f"pod:{POD}", (), f"pod {POD}"),
        ("container:aaaa", (f"team_train-0_{POD}",), "container aaaa"),
        ("parent:77", (), "a job that process 77 started"),
        ("", (), "a job"),
    ],
)
def test_whose_a_job_is_in_words(owner: str, folders: Sequence[str], said: str) -> None:
    job = drawn()
    for folder in folders:
        job.files.texts[f"/var/log/pods/{folder}/x"] = ""
    due = WatchedJob(HELD, moved=True, since=0.0, due=0.0)
    assert seen(job, HangMemory(jobs={owner: due})).looks[owner].about == said


def test_a_look_has_the_processes_as_they_are() -> None:
    assert looked(drawn()).processes == {
        FIRST + number: JobProcess("R", INNER + number, UID, 0, 0, 0.0, 0) for number in range(4)
    }


@pytest.mark.parametrize(
    ("guard", "jobs", "counted"),
    [
        ("a job is new", {}, True),
        ("its bytes are due", {OWNER: WatchedJob(HELD, count=0.0)}, True),
        ("they are not due", {OWNER: WatchedJob(HELD, count=math.inf)}, False),
        ("another process is on the GPU",
         {OWNER: WatchedJob({"GPU-0": frozenset({7})}, count=math.inf)}, True),
        ("another job's are due", {OWNER: WatchedJob(HELD, count=math.inf), "x": WatchedJob({}, count=0.0)},
         False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_bytes_are_read(
    guard: str, jobs: Mapping[str, WatchedJob], *, counted: bool
) -> None:
    job = drawn()
    job.table.table["GPU-0", BEFORE_5] = 7
    found = seen(job, HangMemory(jobs=jobs)).loads["GPU-0"]
    assert isinstance(found, GpuLoad)
    assert found.sent == (7 * 1024 if counted else NOT_COUNTED), guard


@pytest.mark.parametrize(
    ("guard", "owned", "owner"),
    [("they were read just now", 990.1, "pod:x"), ("they were read long ago", 990.0, "slurm:41")],
)
def test_a_guard_alone_decides_whether_owners_are_read_again(guard: str, owned: float, owner: str) -> None:
    job = drawn()
    assert job.watched.hardware.clock.mono() == 1000.0
    found = seen(job, HangMemory(owners={FIRST: "pod:x"}, owned=owned))
    assert found.owners == {FIRST: owner} | {FIRST + number: OWNER for number in (1, 2, 3)}, guard
    assert found.owned == (owned if owner == "pod:x" else 1000.0)
