"""Each guard of a diagnosis alone: two looks at a job that stands still, in which only that guard refuses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.node.jobs.hungjobs import UID, WAIT
from tests.node.jobs.ras.reports import HOST
from tests.rows import each
from wirewatch.core.jobs import RasCommunicator, RasCrowd, RasListener, RasPhase, RasRank, RasReport
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.hangs.diagnosis import case_of, diagnose, own_report
from wirewatch.jobs.hangs.model import (
    Diagnosis,
    GpuLoad,
    HangKind,
    HangPolicy,
    JobLook,
    JobProcess,
    WatchedJob,
)

OP = "all_reduce"
SILENT = Absent(Why.MISSING, "nobody listens")
UNREAD = Absent(Why.DENIED, "not ours")
ELSEWHERE = "192.0.2.9"
LIMIT = 700.0
GPUS = {f"GPU-{number}": Gpu(number, f"GPU-{number}") for number in range(4)}
NONE, STOPPED, SYMMETRIC = None, HangKind.STOPPED, HangKind.SYMMETRIC


def rank(number: int, pid: int | None = None, **but: object) -> RasRank:
    """A rank that has launched as much as the others, of the process 900 and its number."""
    made = RasRank(number, HOST, 900 + number if pid is None else pid, number, number, {OP: 300})
    return replace(made, **but)  # type: ignore[arg-type]


def comm(*ranks: RasRank, name: str = "0x17fa", **but: object) -> RasCommunicator:
    return replace(RasCommunicator(name, "0x1:0x2", len(ranks), ranks), **but)  # type: ignore[arg-type]


def report(*comms: RasCommunicator, uid: int | Absent = UID, processes: int = 2) -> RasReport:
    return RasReport("2.28.9", comms, 0.01, uid=uid, processes=processes)


def process(state: str = "R", inner: int | Absent = 900, uid: int | Absent = UID) -> JobProcess:
    return JobProcess(state, inner, uid, 0)


ALIKE = report(comm(rank(0), rank(1)))
RUNNING: Mapping[int, JobProcess] = {4000: process(), 4001: process(inner=901)}
FOREIGN: Mapping[str, frozenset[int]] = {"GPU-0": frozenset({1_000_000}), "GPU-1": frozenset({1_000_001})}
"""As NVML of another pid namespace names the processes."""


@dataclass(frozen=True)
class Seen:
    """Two looks at a job of two processes; `then` and `now` are what RAS answered."""

    then: Sequence[RasReport] | Absent = (ALIKE,)
    now: Sequence[RasReport] | Absent = (ALIKE,)
    before: Mapping[int, JobProcess] | None = None
    after: Mapping[int, JobProcess] | None = None
    held: Mapping[str, frozenset[int]] | None = None
    gone: Mapping[int, str] | None = None

    def diagnosis(self) -> Diagnosis:
        held = self.held or {"GPU-0": frozenset({4000}), "GPU-1": frozenset({4001})}
        older = JobLook(100.0, RUNNING if self.before is None else self.before, self.then, ())
        newer = JobLook(160.0, RUNNING if self.after is None else self.after, self.now, ())
        job = WatchedJob(held, gone=self.gone or {}, moved=True, since=70.0, looks=(older, newer))
        busy, watts = WAIT
        load = GpuLoad(frozenset(), busy, watts, LIMIT, 0)
        case = case_of(job, GPUS, dict.fromkeys(held, load), HangPolicy())
        assert case is not None
        return diagnose(case)


def only(number: int, **but: object) -> Sequence[RasReport]:
    """The answer in which one of the two ranks differs."""
    ranks = [rank(0), rank(1)]
    ranks[number] = replace(ranks[number], **but)  # type: ignore[arg-type]
    return (report(comm(*ranks)),)


STOP = {**RUNNING, 4001: process("T", 901)}
LATE = only(1, counts={OP: 299})
TWO_OPS = report(comm(rank(0, counts={OP: 300, "broadcast": 5}), rank(1, counts={OP: 300, "broadcast": 5})))
BOTH_LOST = (report(comm(rank(0), rank(1, missing="dead")), comm(rank(1, missing="dead"), name="0x2")),)


@each(
    ("guard", "seen", "kind"),
    [
        ("a process is stopped at both looks", Seen(before=STOP, after=STOP), STOPPED),
        ("stopped at the newer look alone", Seen(after=STOP), SYMMETRIC),
        ("stopped at the older look alone", Seen(before=STOP), SYMMETRIC),
        ("stopped, and not seen at the older look", Seen(before={4000: process()}, after=STOP), SYMMETRIC),
        ("a rank is silent at both looks", Seen(only(1, missing="dead"), only(1, missing="dead")), STOPPED),
        ("a rank is silent at the newer look alone", Seen(now=only(1, missing="dead")), SYMMETRIC),
        ("a rank is silent at the older look alone", Seen(then=only(1, missing="dead")), SYMMETRIC),
        ("silent, and RAS did not answer before", Seen(SILENT, only(1, missing="dead")), NONE),
        ("silent, and RAS does not answer now", Seen(only(1, missing="dead"), SILENT), NONE),
        ("late, and RAS did not answer before", Seen(SILENT, LATE), NONE),
        ("late, and RAS does not answer now", Seen(LATE, SILENT), NONE),
        ("late at both looks", Seen(LATE, LATE), HangKind.ASYMMETRIC),
        (
            "one communicator of two begins",
            Seen(now=(report(comm(rank(0), rank(1)), comm(rank(0, phase=RasPhase.STARTING), name="0x2")),)),
            NONE,
        ),
        (
            "one of two ops goes on",
            Seen(
                (TWO_OPS,),
                (report(comm(*(rank(n, counts={OP: 300, "broadcast": 6}) for n in (0, 1)))),),
            ),
            NONE,
        ),
        ("a rank that was in no answer before goes on by nothing", Seen((report(comm(rank(0))),)), SYMMETRIC),
        (
            "crowds that grow go on",
            Seen(
                (report(comm(rank(0), rank(1), crowds=(RasCrowd(OP, 2, 300),))),),
                (report(comm(rank(0), rank(1), crowds=(RasCrowd(OP, 2, 301),))),),
            ),
            NONE,
        ),
        (
            "crowds that stand still go on by nothing",
            Seen(
                (report(comm(rank(0), rank(1), crowds=(RasCrowd(OP, 2, 300),))),),
                (report(comm(rank(0), rank(1), crowds=(RasCrowd(OP, 2, 300),))),),
            ),
            SYMMETRIC,
        ),
        (
            "crowds of the older answer alone go on by nothing",
            Seen(then=(report(comm(rank(0), rank(1), crowds=(RasCrowd(OP, 2, 300),))),)),
            SYMMETRIC,
        ),
        (
            "crowds of the newer answer alone go on by nothing",
            Seen(now=(report(comm(rank(0), rank(1), crowds=(RasCrowd(OP, 2, 300),))),)),
            SYMMETRIC,
        ),
        ("no answer, of processes that NVML does not know", Seen(SILENT, SILENT, held=FOREIGN), NONE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_what_kind_of_hang_it_is(guard: str, seen: Seen, kind: HangKind | None) -> None:
    found = seen.diagnosis()
    assert found.kind is kind, f"{guard}: {found.text}"


HERE = "rank 1 (GPU 1, process 4001) does not answer RAS (dead)"
NO_GPU = "rank 1 (process 4001) does not answer RAS (dead)"
AWAY = f"rank 1 (GPU 1 as the job counts, process 77 on host {ELSEWHERE}) does not answer RAS (dead)"


def silent(
    *others: RasRank,
    known: bool = True,
    gone: Mapping[int, str] | None = None,
    held: Mapping[str, frozenset[int]] | None = None,
    **but: object,
) -> Seen:
    """Rank 1 is silent at both looks, beside others; `known`: NVML knows the processes."""
    lost = replace(rank(1), missing="dead", **but)  # type: ignore[arg-type]
    answer = (report(comm(rank(0), lost, *others)),)
    return Seen(answer, answer, held=held if known else FOREIGN, gone=gone)


@pytest.mark.parametrize(
    ("guard", "seen", "texts"),
    [
        ("silent in two communicators, named once", Seen(BOTH_LOST, BOTH_LOST), [HERE]),
        (
            "stopped and silent, named once",
            replace(silent(), before=STOP, after=STOP),
            ["rank 1 (GPU 1, process 4001) is stopped by a signal"],
        ),
        (
            "ended and silent, named once",
            silent(held={"GPU-0": frozenset({4000})}, gone={4001: "GPU-1"}),
            ["rank 1 (GPU 1, process 4001) has ended"],
        ),
        (
            "a process of this number on another host",
            silent(rank(2, 901), host=ELSEWHERE),
            [AWAY.replace("process 77", "process 901")],
        ),
        ("a process here that is not known", silent(pid=77), [AWAY.replace(f" on host {ELSEWHERE}", "")]),
        (
            "an ended process without an id stands for no rank elsewhere",
            silent(host=ELSEWHERE, pid=77, gone={0: "GPU-1"}),
            ["a process without an id has ended", AWAY],
        ),
        (
            "this host is where the job's processes are, not where most ranks are",
            silent(*(rank(number, 70 + number, host=ELSEWHERE) for number in (2, 3, 4))),
            [HERE],
        ),
        ("NVML knows a process' GPU better than RAS", silent(nvml=0), [HERE]),
        ("RAS' index counts for a process that NVML does not know", silent(known=False), [HERE]),
        ("an index of a GPU that is not the job's", silent(nvml=3, known=False), [NO_GPU]),
        ("an index that RAS does not know", silent(nvml=-1, known=False), [NO_GPU]),
        (
            "a process of this id on another host",
            silent(rank(2, 901, host=ELSEWHERE, nvml=0), known=False),
            [HERE],
        ),
        ("a process here that is not the job's", silent(rank(2, 999, nvml=0), known=False), [HERE]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_who_is_named(guard: str, seen: Seen, texts: list[str]) -> None:
    found = seen.diagnosis()
    assert [one.text for one in found.culprits] == texts, guard


OWN, MORE, OTHERS = (report(comm(*map(rank, numbers))) for numbers in ([0], [0, 1], [7, 8]))
NAMELESS = report(comm(rank(0, -1), rank(1, -1)))


@pytest.mark.parametrize(
    ("guard", "answers", "processes", "own"),
    [
        ("the report with most of its processes", (OWN, MORE, OTHERS), RUNNING, MORE),
        ("a report of other processes", (OTHERS,), RUNNING, None),
        ("a report of others, with as many processes", (replace(OTHERS, processes=9),), RUNNING, None),
        ("a report of another user", (replace(MORE, uid=UID + 1),), RUNNING, None),
        ("a report of no known user", (replace(MORE, uid=UNREAD),), RUNNING, replace(MORE, uid=UNREAD)),
        ("a process of no known user", (MORE,), {4000: process(uid=UNREAD)}, MORE),
        ("an unknown user beside a known one", (MORE,), {**RUNNING, 4002: process(uid=UNREAD)}, MORE),
        ("a process whose inner id is not known", (OWN,), {900: process(inner=UNREAD)}, OWN),
        ("no ids, and as many processes", (NAMELESS,), RUNNING, NAMELESS),
        ("no ids, and fewer processes", (replace(NAMELESS, processes=1),), RUNNING, None),
        ("no ids, and no process of the job is known", (NAMELESS,), {}, None),
        ("no report at all", (), RUNNING, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_which_report_is_the_jobs_own(
    guard: str, answers: Sequence[RasReport], processes: Mapping[int, JobProcess], own: RasReport | None
) -> None:
    found = own_report(JobLook(0.0, processes, answers, ()))
    if own is None:
        assert isinstance(found, Absent), guard
        assert found.why is Why.MISSING
    else:
        assert found == own, guard


IDLE = (0.0, 122.0)


def compared(
    *comms: RasCommunicator,
    loads: Mapping[str, tuple[float | Absent, float]] | None = None,
    held: Mapping[str, frozenset[int]] | None = None,
    files: Mapping[int, int | Absent] | None = None,
    ras: bool = True,
    policy: HangPolicy | None = None,
    since: float = 100.0,
    cpu: float | Absent = 0.0,
    moved: bool = True,
    listeners: Sequence[RasListener] | Absent = (),
) -> Diagnosis:
    """Two looks, alike but for the files of processes, at a job that looks stuck for six minutes by then."""
    held = held or {"GPU-0": frozenset({4000}), "GPU-1": frozenset({4001})}
    answer = (report(*comms),) if ras else SILENT
    then = {pid: replace(one, cpu=cpu) for pid, one in RUNNING.items()}
    older = JobLook(400.0, then, answer, ())
    newer = {pid: replace(one, files=(files or {}).get(pid, 0)) for pid, one in then.items()}
    looks = (older, JobLook(460.0, newer, answer, listeners))
    job = WatchedJob(held, moved=moved, since=since, looks=looks)
    shown = {key: GpuLoad(frozenset(), *(loads or {}).get(key, WAIT), LIMIT, 0) for key in held}
    other = {"GPU-3": GpuLoad(frozenset(), 0.0, 600.0, LIMIT, 0)}
    case = case_of(job, GPUS, {**shown, **other}, policy or HangPolicy())
    assert case is not None
    return diagnose(case)


def counted(name: str, *counts: int, pids: Sequence[int] = ()) -> RasCommunicator:
    """A communicator whose ranks have launched so many."""
    made = (rank(number, *pids[number : number + 1], counts={OP: n}) for number, n in enumerate(counts))
    return comm(*made, name=name)


BEHIND = "has launched 299 all_reduce, others 300 (communicator {} of 2)"
RANK_0, RANK_1 = "rank 0 (GPU 0, process 4000)", "rank 1 (GPU 1, process 4001)"
AHEAD = (RasCrowd(OP, 1, 301), RasCrowd("broadcast", 1, 0))
AS_MUCH = "has launched as much as the others by RAS, and its GPU is idle"


@pytest.mark.parametrize(
    ("guard", "comms", "loads", "named"),
    [
        ("it has launched less", [counted("0xa", 300, 299)], {}, [f"{RANK_1} {BEHIND.format('0xa')}"]),
        ("each is ahead somewhere, and one is idle", [counted("0xa", 300, 299), counted("0xb", 299, 300)],
         {"GPU-0": IDLE}, [f"{RANK_0} {BEHIND.format('0xb')}"]),
        ("each is ahead somewhere, none is idle, and it is not known of whom",
         [replace(comm(rank(0, counts={OP: 300}), rank(1, counts={"broadcast": 1})), crowds=AHEAD)], {},
         [f"{RANK_0} has launched 300 all_reduce, others 301 (communicator 0x17fa of 2)"]),
        ("two are behind, and one of them is idle", [counted("0xa", 299, 299, 300)], {"GPU-1": IDLE},
         [f"{RANK_1} {BEHIND.format('0xa').replace('of 2', 'of 3')}"]),
        ("it has launched less, and the other is idle", [counted("0xa", 300, 299)], {"GPU-0": IDLE},
         [f"{RANK_1} {BEHIND.format('0xa')}"]),
        ("all have launched as much, and one is idle", [counted("0xa", 300, 300)], {"GPU-0": IDLE},
         [f"{RANK_0} {AS_MUCH}"]),
        ("as good as idle", [counted("0xa", 300, 300)], {"GPU-0": (0.04, 122.0)}, [f"{RANK_0} {AS_MUCH}"]),
        ("a little busy", [counted("0xa", 300, 300)], {"GPU-0": (0.06, 122.0)}, []),
        ("whether it is busy is not known", [counted("0xa", 300, 300)], {"GPU-0": (UNREAD, 122.0)}, []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_for_whom_the_others_wait(
    guard: str,
    comms: Sequence[RasCommunicator],
    loads: Mapping[str, tuple[float | Absent, float]],
    named: list[str],
) -> None:
    found = compared(*comms, loads=loads)
    assert [one.text for one in found.culprits] == named, guard
    assert found.kind is (HangKind.ASYMMETRIC if named else SYMMETRIC)


@pytest.mark.parametrize(
    ("guard", "comms", "how"),
    [
        ("as much as each other", [counted("0xa", 300, 300)], "all have launched as much as each other"),
        ("of one rank no counts are known", [comm(rank(0), rank(1, counts={}))],
         "all have launched as much as each other"),
        ("of none are", [comm(rank(0, counts={}), rank(1, counts={}))], "this NCCL shows no counts"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_how_a_symmetric_hang_is_told(
    guard: str, comms: Sequence[RasCommunicator], how: str
) -> None:
    assert f": {how}, and none completes" in compared(*comms).text, guard


MB = 10**6
LATE_BOTH = [counted("0xa", 300, 299), counted("0xb", 299, 300)]


@pytest.mark.parametrize("ras", [True, False])
@pytest.mark.parametrize(
    ("guard", "files", "rate"),
    [
        ("one of them works on files", {4000: 0, 4001: 60 * MB}, 1),
        ("none does by enough", {4000: 59 * MB, 4001: 0}, 0),
        ("both do, and the first is said", {4000: 600 * MB, 4001: 600 * MB}, 10),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_files_are_worked_on(
    guard: str, files: Mapping[int, int], rate: int, *, ras: bool
) -> None:
    found = compared(*LATE_BOTH, loads={"GPU-0": IDLE, "GPU-1": IDLE}, files=files, ras=ras)
    assert (found.kind is None) is bool(rate), guard
    assert (f"at work on files ({rate} MB/s)" in found.text) is bool(rate)


@pytest.mark.parametrize(
    ("files", "doubt"),
    [({4001: UNREAD}, f" (whether it is at work on files cannot be seen: {UNREAD})"), ({}, "")],
)
def test_it_is_said_where_files_cannot_be_seen(files: Mapping[int, int | Absent], doubt: str) -> None:
    found = compared(counted("0xa", 300, 299), files=files)
    assert f"; the others wait in what it has not launched{doubt}; 2 GPUs" in found.text


@pytest.mark.parametrize(
    ("guard", "held", "ras", "named"),
    [
        ("processes that NVML and RAS know", None, True, [f"{RANK_0} {AS_MUCH}"]),
        ("NVML knows them by other numbers, RAS by these", FOREIGN, True, [f"{RANK_0} {AS_MUCH}"]),
        ("NVML knows them by other numbers, and RAS is silent", FOREIGN, False,
         ["GPU 0, process 1000000 its GPU is idle while others wait"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_which_process_of_an_idle_gpu_is_named(
    guard: str, held: Mapping[str, frozenset[int]] | None, ras: bool, named: list[str]  # noqa: FBT001
) -> None:  # fmt: skip
    found = compared(counted("0xa", 300, 300), loads={"GPU-0": IDLE}, held=held, ras=ras)
    assert [one.text for one in found.culprits] == named, guard


REMOTE = comm(rank(0), rank(1), rank(2, 77, host=ELSEWHERE, counts={OP: 299}))
FAR = comm(rank(0), rank(1), rank(2, 77, host=ELSEWHERE))
SLEEPY = {"GPU-1": IDLE}
ASYMMETRIC, SUSPECTED = HangKind.ASYMMETRIC, HangKind.SUSPECTED
LISTENS = (RasListener("127.0.0.1:28028", UID, 7, open=False),)


@each(
    ("guard", "comms", "but", "limit", "kind"),
    [
        ("who is late is seen to sleep", [counted("0xa", 300, 299)], {"loads": SLEEPY}, 0.0, ASYMMETRIC),
        ("whether who is late sleeps is not seen", [counted("0xa", 300, 299)],
         {"loads": SLEEPY, "cpu": UNREAD}, 120.0, ASYMMETRIC),
        ("nor does it matter where its GPU waits in a kernel", [counted("0xa", 300, 299)], {"cpu": UNREAD},
         0.0, ASYMMETRIC),
        ("who is late is on another node", [REMOTE], {}, 120.0, ASYMMETRIC),
        ("who is late works", [counted("0xa", 300, 299)], {"loads": SLEEPY, "files": {4001: 600 * MB}},
         600.0, ASYMMETRIC),
        ("all have launched as much, here", [counted("0xa", 300, 300)], {}, 0.0, SYMMETRIC),
        ("all have launched as much, here and elsewhere", [FAR], {}, 120.0, SYMMETRIC),
        ("without RAS, who is idle is seen to sleep", [], {"ras": False, "loads": SLEEPY}, 60.0, SUSPECTED),
        ("without RAS, and the time for what is not seen is shorter", [],
         {"ras": False, "loads": SLEEPY, "policy": HangPolicy(unasked=50.0)}, 50.0, SUSPECTED),
        ("without RAS, its CPU time is not seen", [], {"ras": False, "loads": SLEEPY, "cpu": UNREAD}, 300.0,
         SUSPECTED),
        ("without RAS, its files are not seen", [],
         {"ras": False, "loads": SLEEPY, "files": {4001: UNREAD}}, 300.0, SUSPECTED),
        ("without RAS, it works", [], {"ras": False, "loads": SLEEPY, "files": {4001: 600 * MB}}, 600.0,
         SUSPECTED),
        ("without RAS, nobody is idle", [], {"ras": False}, 300.0, SUSPECTED),
        ("without RAS, it was never seen to move, and uses NCCL", [],
         {"ras": False, "loads": SLEEPY, "moved": False, "listeners": LISTENS}, 300.0, SUSPECTED),
        ("without RAS, it was never seen to move", [], {"ras": False, "loads": SLEEPY, "moved": False},
         math.inf, None),
        ("without RAS, it was never seen to move, and who listens is not known", [],
         {"ras": False, "loads": SLEEPY, "moved": False, "listeners": UNREAD}, math.inf, None),
        ("each communicator has one rank", [comm(rank(0)), comm(rank(1), name="0xb")], {}, math.inf, None),
        ("one of them has two", [comm(rank(0)), comm(rank(0), rank(1), name="0xb")], {}, 0.0, SYMMETRIC),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_after_how_long_it_is_a_finding(
    guard: str, comms: Sequence[RasCommunicator], but: Mapping[str, Any], limit: float, kind: HangKind | None
) -> None:
    """`limit` is the first second of looking stuck at which it is one."""
    found = compared(*comms, since=460.0 - (1e5 if limit == math.inf else limit), **but)
    assert found.kind is kind, f"{guard}: {found.text}"
    if 0.0 < limit < math.inf:
        before = compared(*comms, since=460.0 - limit + 0.1, **but)
        assert (before.kind, before.goes_on) == (None, False), f"{guard}: {before.text}"
        assert before.busy is (limit == 600.0)
    assert found.goes_on is (kind is None)


@pytest.mark.parametrize(
    ("guard", "held", "moved", "ras", "kind"),
    [
        ("one process on one GPU, which RAS does not know", {"GPU-0": frozenset({4000})}, False, False, None),
        ("which has moved bytes", {"GPU-0": frozenset({4000})}, True, False, SUSPECTED),
        ("which RAS knows in a communicator of two", {"GPU-0": frozenset({4000})}, False, True, SYMMETRIC),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_whether_one_process_can_wait(
    guard: str, held: Mapping[str, frozenset[int]], kind: HangKind | None, *, moved: bool, ras: bool
) -> None:
    found = compared(counted("0xa", 300, 300), held=held, moved=moved, ras=ras, listeners=LISTENS)
    assert found.kind is kind, f"{guard}: {found.text}"


@pytest.mark.parametrize(
    ("watts", "said"),
    [((125.0, 122.4), "122-125 W"), ((122.4, 125.0), "122-125 W"), ((125.2, 124.8), "125 W")],
)
def test_the_power_of_the_job_s_own_gpus_is_told(watts: tuple[float, float], said: str) -> None:
    loads = {f"GPU-{number}": (1.0, power) for number, power in enumerate(watts)}
    assert f"; 2 GPUs at {said}, no byte" in compared(counted("0xa", 300, 300), loads=loads).text


def test_of_many_culprits_four_are_named_and_a_snapshot_is_bounded() -> None:
    ranks = [rank(0), *[rank(n, 70 + n, host=ELSEWHERE, counts={OP: 299}) for n in range(1, 300)]]
    found = compared(comm(*ranks, rank(300, 901)))
    assert found.text.count("has launched 299") == 4
    assert len(found.culprits) == 299
    assert len(found.snapshot) == 1500
    assert found.snapshot.startswith(
        "GPU 0, process 4000, state R\nGPU 1, process 4001, state R\nNCCL 2.28.9"
    )
    silent_too = compared(ras=False).snapshot
    assert silent_too.endswith("RAS: missing: nobody listens")
