"""Output of nccl-tests as its versions print it, written from rows; and launchers' text before the lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from wirewatch.busbw.formulas import FACTORS, factor

WHOLES = frozenset({"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
OLD = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
"""Tests of version 2.9."""
HEAD = (
    "# nThread 1 nGpus {ranks} minBytes {least} maxBytes {most} step: 2(factor) warmup iters: 5 iters: 20 "
    "agg iters: 1 validation: {checked:d} graph: 0"
)


@dataclass(frozen=True)
class Written:
    """One row: bytes, microseconds out of place and in place, and the elements that are wrong in each."""

    size: int
    out: float
    inside: float
    wrong: tuple[str, str] = ("0", "0")


@dataclass(frozen=True)
class Form:
    """One form of the output: `era` is 1, 9 (up to 2.10), 13 or 19, the others are options."""

    era: int = 19
    cputime: bool = False
    timestamps: bool = False
    per_iteration: bool = False
    iterations: bool = False


@dataclass(frozen=True)
class Job:
    """One run as it is printed."""

    op: str = "all_reduce"
    ranks: int = 8
    rows: tuple[Written, ...] = (Written(1 << 24, 118.38, 116.08), Written(1 << 26, 363.88, 365.85))
    form: Form = field(default_factory=Form)
    hosts: int = 1
    product: str = "NVIDIA H200"


def lines(job: Job) -> list[str]:
    """Standard output of a job, header, table and footer."""
    return [*header(job), *columns(job), *(row(job, one) for one in job.rows), *footer(job)]


def header(job: Job) -> list[str]:
    """Everything before the table."""
    form, sizes = job.form, [one.size for one in job.rows] or [8]
    head = HEAD.format(ranks=job.ranks, least=min(sizes), most=max(sizes), checked=checked(job))
    begin = [f"# Collective test starting: {job.op}_perf"] if form.era >= 19 else []
    version = ["# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809"] if form.era >= 19 else []
    each = job.ranks // job.hosts
    devices = [
        f"#  Rank {n:2} {'Group  0 ' if form.era >= 13 else ''}Pid {100 + n:6} on {f'node{n // each}':>10} "
        f"device {n % each:2} [{f'0000:{n:02x}:00' if form.era >= 19 else f'0x{n:02x}'}] {job.product}"
        for n in range(job.ranks)
    ]
    return [*version, *begin, head, "#", "# Using devices", *devices, "#"]


def columns(job: Job) -> list[str]:
    """The header of the table."""
    form, old = job.form, job.form.era < 13
    kinds = _kinds(job.op) if old else ("redop", "root")
    time = "cputime" if form.cputime else "time"
    wrong = "error" if old else "#wrong"
    block = [
        time,
        "algbw",
        "busbw",
        wrong,
        *(("i_min", "i_max", "i_p99", "i_cv%") if form.per_iteration else ()),
    ]
    names = ["size", "count", "type", *kinds, *block, *block]
    units = ["(B)", "(elements)", "", *("" for _ in kinds), *(("(us)", "(GB/s)", "(GB/s)", "") * 2)]
    if form.era == 1:
        names = [
            {"size": "bytes", "count": "N", "redop": "op", "error": "res"}.get(name, name) for name in names
        ]
    names += ["timestamp"] if form.timestamps else []
    names += ["#iters"] if form.iterations else []
    text = [
        "#       out-of-place                       in-place",
        "# " + "  ".join(f"{n:>10}" for n in names),
    ]
    return text if form.era == 1 else [*text, "# " + "  ".join(f"{unit:>10}" for unit in units)]


def row(job: Job, one: Written) -> str:
    """One line of the table."""
    form = job.form
    old, root = form.era < 13, "0" if job.op in ROOTED else "-1"
    part = one.size // job.ranks if job.op in WHOLES else one.size
    redop = "sum" if job.op in REDUCING else ("none" if form.era >= 19 else "")
    kinds = [{"redop": redop, "root": root}[kind] for kind in (_kinds(job.op) if old else ("redop", "root"))]
    text = f"{one.size:12}  {part // 4:12}  {'float':>8}" + "".join(f"  {kind:>6}" for kind in kinds)
    for time, wrong in zip((one.out, one.inside), one.wrong, strict=True):
        algbw = one.size / time / 1e3
        shown = 7.5 if form.cputime else time / 1e3 if form.era == 1 else time
        figures = f"  {number(shown, 7)}  {number(algbw, 6)}  {number(algbw * factor(job.op, job.ranks), 6)}"
        text += figures + f"  {('0e+00' if wrong == '0' else wrong) if old else wrong:>6}"
        if form.per_iteration:
            text += "".join(f"  {number(value, 7)}" for value in (time * 0.9, time * 1.2, time * 1.1, 2.5))
    text += "  2026-11-21 01:06:30" if form.timestamps else ""
    return text + ("       20" if form.iterations else "")


def footer(job: Job) -> list[str]:
    """Everything after the table."""
    bad = sum(wrong not in {"0", "N/A"} for one in job.rows for wrong in one.wrong)
    concluded = [f"# Collective test concluded: {job.op}_perf"] if job.form.era >= 19 else []
    bounds = f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}"
    return [bounds, "# Avg bus bandwidth    : 200.846 ", "#", *concluded, ""]


def checked(job: Job) -> bool:
    """Whether any value was checked."""
    return any(wrong != "N/A" for one in job.rows for wrong in one.wrong)


def number(value: float, width: int) -> str:
    """As nccl-tests prints a number in so many characters, with fewer digits the larger it is."""
    texts = (f"{value:{width}.{digits}f}" for digits in (2, 1, 0))
    return next((text for text in texts if len(text) <= width), f"{value:{width}.1e}")


def _kinds(op: str) -> tuple[str, ...]:
    """The columns that up to version 2.10 each test has of its own."""
    return (*(("redop",) if op in REDUCING else ()), *(("root",) if op in ROOTED else ()))


Prefix = Callable[[int], str]
PREFIXES: Sequence[Prefix] = (
    lambda _rank: "",
    lambda rank: f"{rank}: ",
    lambda rank: f"{rank:2}: ",
    lambda rank: f"[1,{rank}]<stdout>:",
    lambda rank: f"[1,{rank}]<stdout>: ",
    lambda rank: f"[prterun-n1-77@1,{rank}]<stdout>: ",
    lambda rank: f"Thu Oct  8 05:26:16 2026[1,{rank}]<stdout>:",
    lambda rank: f"[{rank}] ",
    lambda rank: f"worker-{rank} | ",
    lambda rank: f"2026-11-21T01:06:30.1234{rank}Z ",
    lambda rank: f"node{rank}: ",
)
"""What launchers put before the lines of a rank."""


@st.composite
def jobs(draw: st.DrawFn, *, large: bool = False) -> Job:
    """Any job; `large`: of messages whose figures have enough digits to tell every row from every other."""
    form = Form(
        draw(st.sampled_from((9, 13, 19))), draw(st.booleans()) and not large, draw(st.booleans()),
        draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip
    op = draw(st.sampled_from(sorted(OLD if form.era < 13 else FACTORS)))
    ranks = draw(st.sampled_from((2, 4, 8, 16)))
    first = 24 if large else draw(st.integers(10, 24))
    count = draw(st.integers(1, 6))
    rate = draw(st.floats(20.0, 400.0))
    wrong = draw(st.sampled_from((("0", "0"), ("N/A", "N/A"), ("0", "N/A"))))
    sizes = [1 << (first + 2 * n) for n in range(count)]
    rows = [Written(size, 20 + size / rate / 1e3, 21 + size / rate / 990, wrong) for size in sizes]
    return Job(op, ranks, tuple(rows), form)
