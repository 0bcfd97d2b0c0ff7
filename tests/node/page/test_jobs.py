"""The sections of running jobs, by jobs drawn by hand; each row differs in one thing."""

from dataclasses import replace
from typing import Any

import pytest

from tests.node.jobs.explain.drawn import evidence, healthy, job, waiting
from tests.node.page.states import state
from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.types import Absent, Why
from wirewatch.documents.jobs import ExplainedJob
from wirewatch.documents.state import ReportedHint
from wirewatch.jobs.explain.evidence import EvidenceSource
from wirewatch.jobs.explain.walls import decide
from wirewatch.jobs.hangs import HangFacts, HangingJob, PastHang
from wirewatch.jobs.hangs.model import HangKind
from wirewatch.jobs.times import (
    CommunicatorTimes,
    CommunicatorWindow,
    GpuTime,
    JobRemark,
    JobRemarkKind,
    JobsFacts,
    LateRank,
    OperationTimes,
    RunningJob,
    TimesDoubt,
)
from wirewatch.page.jobs import sections
from wirewatch.page.model import Cell, Drawing, Section, Sentence, Table
from wirewatch.page.tables import unknown

ROW = OperationTimes(
    "all_reduce", 1 << 28, 4, 9, 9, 1 << 28, 1.25e-3, 1e-3, 2e-3, "RING", "SIMPLE", 24, 300e9, 310e9,
    expected=330e9, trusted=True,
)  # fmt: skip
WINDOW = CommunicatorWindow(0.0, 10.0, (ROW,), ())
COMM = CommunicatorTimes("0xab", "world", 4, 1, (), (WINDOW,), fresh=True)
GPU = GpuTime("GPU-0", "0", 0.5, 0.1, 0.2, measured=True)
LATE = LateRank(2, "GPU-2", "2", 7, 3, 4, 50, 53, 0.09, EPOCH, "rank 2 is late")
JOB = RunningJob("slurm:7", ("slurm:7",), 1000, EPOCH, live=True, communicators=(COMM,), gpus=(GPU,))
NOT_TIMED = "nothing was timed on all of its GPUs in the last minutes"


def of(*jobs: RunningJob, left_out: int = 0) -> list[Section]:
    content = replace(state("healthy"), jobs=JobsFacts(EPOCH, 60.0, jobs=jobs, left_out=left_out))
    return list(sections(content))


def cells(part: Section, table: int = 0, row: int = 0) -> tuple[Cell, ...]:
    return part.tables[table].rows[row].cells


def said(*found: Cell) -> list[tuple[str, str]]:
    return [(one.text.partition(":")[0], one.tone) for one in found]


@each(
    ("why", "change", "told"),
    [
        ("well", {}, [("0", ""), ("50", ""), ("10", ""), ("no single GPU", "quiet"), ("none", "quiet")]),
        (
            "it hardly waits",
            {"gpus": (replace(GPU, waiting=0.029),)},
            [("0", ""), ("50", ""), ("3", ""), ("nobody", "quiet"), ("none", "quiet")],
        ),
        (
            "its GPUs are not alike",
            {"gpus": (GPU, replace(GPU, index="1", in_collectives=0.75, waiting=0.25))},
            [("0, 1", ""), ("50 to 75", ""), ("10 to 25", ""), ("no single GPU", "quiet"), ("none", "quiet")],
        ),
        (
            "a GPU without a number",
            {"gpus": (replace(GPU, index=""),)},
            [("GPU-0", ""), ("50", ""), ("10", ""), ("no single GPU", "quiet"), ("none", "quiet")],
        ),
        (
            "a GPU that was not timed is not counted",
            {"gpus": (GPU, replace(GPU, index="1", waiting=0.9, measured=False))},
            [("0, 1", ""), ("50", ""), ("10", ""), ("no single GPU", "quiet"), ("none", "quiet")],
        ),
        (
            "one is late at times",
            {"gpus": (GPU, replace(GPU, index="1", late=0.5))},
            [("0, 1", ""), ("50", ""), ("10", ""), ("GPU 1 at times", "quiet"), ("none", "quiet")],
        ),
        (
            "one is late",
            {"late": LATE},
            [("0", ""), ("50", ""), ("10", ""), ("GPU 2, 9 % of the time", "warn"), ("none", "quiet")],
        ),
        (
            "a rank on no GPU of ours is late",
            {"late": replace(LATE, index="")},
            [("0", ""), ("50", ""), ("10", ""), ("rank 2, 9 % of the time", "warn"), ("none", "quiet")],
        ),
        (
            "a remark",
            {"remarks": (JobRemark(JobRemarkKind.VERSIONS, "two NCCLs"),)},
            [("0", ""), ("50", ""), ("10", ""), ("no single GPU", "quiet"), ("two NCCLs", "warn")],
        ),
        (
            "it waits for another node",
            {"communicators": (replace(COMM, elsewhere="waits elsewhere"), COMM)},
            [("0", ""), ("50", ""), ("10", ""), ("no single GPU", "quiet"), ("waits elsewhere", "warn")],
        ),
    ],
)
def test_a_job(why: str, change: dict[str, Any], told: list[tuple[str, str]]) -> None:
    (part,) = of(replace(JOB, **change))
    assert said(*cells(part)) == told, why


@pytest.mark.parametrize(("gpus", "text"), [((), "not known"), ((replace(GPU, measured=False),), "0")])
def test_a_job_of_which_nothing_was_timed(gpus: tuple[GpuTime, ...], text: str) -> None:
    (part,) = of(replace(JOB, gpus=gpus))
    assert said(*cells(part)) == [(text, ""), ("not known", "unknown"), ("none", "quiet")]
    assert cells(part)[1].why == NOT_TIMED


def test_jobs_that_run_are_counted_and_those_that_ended_left_out() -> None:
    assert of(replace(JOB, live=False)) == []
    (part,) = of(JOB, replace(JOB, live=False))
    assert [line.text for line in part.lines][:1] == ["1 running job with the tap."]
    assert (len(part.lines), len(part.tables[0].rows)) == (2, 1)
    inspector = replace(JOB, communicators=(COMM, replace(COMM, source="NCCL 2.28 Inspector")))
    (part,) = of(JOB, inspector, left_out=3)
    assert part.lines[0].text == "2 running jobs with the tap or NCCL Inspector."
    assert part.lines[2] == Sentence("3 communicators more than are followed.", "unknown")
    (part,) = of(*[JOB] * 13)
    assert (part.lines[0].text, len(part.tables[0].rows)) == ("13 running jobs with the tap.", 12)


@pytest.mark.parametrize(
    ("why", "comm", "shown"),
    [
        ("fresh", COMM, True),
        ("old", replace(COMM, fresh=False), False),
        ("not judged", replace(COMM, doubt=TimesDoubt.ALONE), False),
        ("no window yet", replace(COMM, windows=()), False),
    ],
)
def test_only_what_is_fresh_and_judged_is_on_the_wire(
    why: str, comm: CommunicatorTimes, *, shown: bool
) -> None:
    (part,) = of(replace(JOB, communicators=(comm,)))
    assert (len(part.tables) == 2) is shown, why


def test_collectives_stand_by_the_time_that_they_take() -> None:
    rows = [replace(ROW, op=f"op{n}", joined=n, wire_seconds=1e-3) for n in range(14)]
    (part,) = of(
        replace(JOB, communicators=(replace(COMM, windows=(replace(WINDOW, collectives=(*rows,)),)),))
    )
    assert [row.cells[0].text for row in part.tables[1].rows] == [f"op{n}" for n in range(13, 1, -1)]


GONE = Absent(Why.MISSING, "gone")
SILENT = Absent(Why.MISSING, "")


@each(
    ("why", "change", "told"),
    [
        ("all is known", {}, ["256 MiB", "4", "1.25", "300.0", "330.0", "0.91", "Ring, Simple"]),
        ("no size", {"size_bytes": 0},
         ["NCCL does not name its type", "4", "1.25", "300.0", "330.0", "0.91", "Ring, Simple"]),
        ("no bandwidth", {"busbw": GONE},
         ["256 MiB", "4", "1.25", "gone", "330.0", "nothing is expected well enough", "Ring, Simple"]),
        ("no bandwidth for no reason", {"busbw": SILENT},
         ["256 MiB", "4", "1.25", "missing", "330.0", "nothing is expected well enough", "Ring, Simple"]),
        ("not trusted", {"trusted": False},
         ["256 MiB", "4", "1.25", "300.0", "330.0", "nothing is expected well enough", "Ring, Simple"]),
        ("no algorithm", {"algorithm": "", "protocol": ""},
         ["256 MiB", "4", "1.25", "300.0", "330.0", "0.91", "not known"]),
    ],
)  # fmt: skip
def test_a_collective(why: str, change: dict[str, Any], told: list[str]) -> None:
    window = replace(WINDOW, collectives=(replace(ROW, **change),))
    (part,) = of(replace(JOB, communicators=(replace(COMM, windows=(window,)),)))
    assert [one.why or one.text for one in cells(part, 1)[1:]] == told, why
    assert cells(part, 1)[-1].tone == ""


def test_another_way_than_nccl_s_own_is_marked() -> None:
    window = replace(WINDOW, collectives=(replace(ROW, other_way=True),))
    (part,) = of(replace(JOB, communicators=(replace(COMM, windows=(window,)),)))
    assert cells(part, 1)[-1].tone == "warn"


OVER = PastHang("asymmetric", "slurm:41", EPOCH - 600, EPOCH - 300, "rank 1", "")
NOW = HangingJob(
    HangKind.ASYMMETRIC,
    {"GPU-0": frozenset({7, 8})},
    (),
    EPOCH - 60,
    "rank 2 is late",
    "",
    "look with py-spy",
)


@each(
    ("why", "facts", "lines", "rows"),
    [
        ("one is over", HangFacts((OVER,)),
         [("No job hangs now; 1 hang is over. A hang is the job's: the next one may start here.", "")],
         ["slurm:41"]),
        ("one hangs", HangFacts((), (NOW,), {7: "slurm:42", 8: "slurm:42"}),
         [("1 job hangs now. A hang is the job's: the next one may start here.", "warn")], ["slurm:42"]),
        ("nobody knows whose", HangFacts((), (NOW,), {7: ""}),
         [("1 job hangs now. A hang is the job's: the next one may start here.", "warn")], ["not known"]),
        ("of two owners", HangFacts((), (NOW,), {7: "slurm:42", 8: "pod:1"}),
         [("1 job hangs now. A hang is the job's: the next one may start here.", "warn")],
         ["pod:1, slurm:42"]),
        ("a past one of nobody", HangFacts((replace(OVER, owner=""),)),
         [("No job hangs now; 1 hang is over. A hang is the job's: the next one may start here.", "")],
         ["not known"]),
        ("both, and more than are shown", HangFacts((OVER,) * 9, (NOW, NOW)),
         [("2 jobs hang now; 9 hangs are over. A hang is the job's: the next one may start here.", "warn"),
          ("3 older ones in the state folder.", "quiet")], ["not known"] * 2 + ["slurm:41"] * 6),
        ("as many as are shown", HangFacts((OVER,) * 8),
         [("No job hangs now; 8 hangs are over. A hang is the job's: the next one may start here.", "")],
         ["slurm:41"] * 8),
        ("more hang than are shown", HangFacts((OVER,), (NOW,) * 9),
         [("9 jobs hang now; 1 hang is over. A hang is the job's: the next one may start here.", "warn"),
          ("1 older one in the state folder.", "quiet")], ["not known"] * 9),
    ],
)  # fmt: skip
def test_hangs(why: str, facts: HangFacts, lines: list[tuple[str, str]], rows: list[str]) -> None:
    (part,) = sections(replace(state("healthy"), hangs=facts))
    assert [(line.text, line.tone) for line in part.lines] == lines, why
    assert [row.cells[2].text.partition(":not")[0] for row in part.tables[0].rows] == rows, why
    last = part.tables[0].rows[0].cells
    assert last[-1].text == ("rank 2 is late. Look with py-spy." if facts.now else "rank 1")


@pytest.mark.parametrize(
    ("subject", "part"),
    [({"gpu": "2", "uuid": "GPU-2"}, "GPU 2"), ({"uuid": "GPU-2"}, "GPU-2"), ({}, "the node")],
)
def test_a_hint_names_its_part(subject: dict[str, str], part: str) -> None:
    content = state("healthy")
    hint = ReportedHint("slow_gpu", subject, EPOCH, "never waits")
    (found,) = sections(replace(content, state=replace(content.state, hints=[hint])))
    assert [one.text for one in cells(found)[:2]] == [part, "never waits"]


def test_a_node_without_jobs_has_none_of_these_sections() -> None:
    assert list(sections(replace(state("healthy"), jobs=None, hangs=HangFacts(())))) == []
    assert of() == []


# --- the shapes of values


@pytest.mark.parametrize(
    ("cell", "long"),
    [
        (Cell("x" * 40), False),
        (Cell("x" * 41), True),
        (Cell("x", span=2), True),
        (unknown("x" * 41), False),
    ],
)
def test_a_cell_is_a_sentence_by_its_letters_or_its_columns(cell: Cell, *, long: bool) -> None:
    assert cell.long is long


@pytest.mark.parametrize(
    ("columns", "dense", "narrow"), [(3, False, True), (4, False, False), (4, True, True), (0, False, True)]
)
def test_a_table_is_narrow_by_its_columns_or_its_numbers(columns: int, *, dense: bool, narrow: bool) -> None:
    assert Table("x", "x", (Cell("x"),) * columns, (), dense=dense).narrow is narrow  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "wide"), [(720.0, False), (720.5, True)])
def test_a_drawing_is_wide_from_some_width_on(width: float, *, wide: bool) -> None:
    assert Drawing("x", width, 1.0, (), (), (), ()).wide is wide


@pytest.mark.parametrize(
    ("guard", "seen", "tone", "shares"),
    [
        ("late", evidence(job(), book=waiting(1, 0.3)), "warn", "77 % computing, 22 % waiting"),
        ("well", evidence(job()), "quiet", "80 % computing, 19 % on the wire"),
        ("starts", evidence(job(), book=replace(healthy(), starting=True)), "quiet", "98 % computing"),
        ("no ledger", evidence(job(), missing=[EvidenceSource.LEDGER]), "warn", "not known"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 10 else "",
)  # fmt: skip
def test_each_job_has_its_first_line_and_shares(guard: str, seen: Any, tone: str, shares: str) -> None:
    answer = decide(seen)
    (part,) = sections(replace(state("healthy"), explained=(ExplainedJob(answer, seen),)))
    which, line, spent = cells(part)
    assert (which.text, line.text, line.tone) == ("0, 1, 2, 3", answer.sentence, tone), guard
    assert line.note == f"certainty {answer.certainty.value}"
    assert spent.text.startswith(shares)


def test_of_many_jobs_the_first_are_explained() -> None:
    one = evidence(job())
    (part,) = sections(replace(state("healthy"), explained=(ExplainedJob(decide(one), one),) * 14))
    assert (len(part.tables[0].rows), part.lines[-1].text) == (12, "2 jobs more run here.")
