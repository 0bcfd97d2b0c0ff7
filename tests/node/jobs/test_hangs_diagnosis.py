"""Each guard of a diagnosis alone: two looks at a job that stands still, in which only that guard refuses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.node.jobs.hungjobs import UID, WAIT
from tests.node.jobs.ras.reports import HOST
from wirewatch.core.jobs import RasCommunicator, RasCrowd, RasPhase, RasRank, RasReport
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


@pytest.mark.parametrize(
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
    *others: RasRank, known: bool = True, gone: Mapping[int, str] | None = None, **but: object
) -> Seen:
    """Rank 1 is silent at both looks, beside others; `known`: NVML knows the processes."""
    lost = replace(rank(1), missing="dead", **but)  # type: ignore[arg-type]
    answer = (report(comm(rank(0), lost, *others)),)
    return Seen(answer, answer, held=None if known else FOREIGN, gone=gone)


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
