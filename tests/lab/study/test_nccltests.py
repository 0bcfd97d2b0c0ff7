"""Output of nccl-tests in every form: its rows, and what of damaged output is none."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import zip_longest
from typing import BinaryIO

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzzing import damaged
from tests.lab.study import printed
from tests.lab.study.printed import Form, Job, Written, jobs
from tests.rows import each
from wirewatch.busbw.formulas import FACTORS, busbw
from wirewatch_lab.study.nccljson import mixed_lines
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.runs import (
    BenchmarkRow,
    BenchmarkRows,
    BenchmarkRun,
    bus_bandwidth,
    operation_seconds,
    shortfall,
)

LOG = "{host}:77:78 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}"


def read(lines: Sequence[str], op: str = "") -> Reader:
    reader = Reader(op)
    for line in lines:
        reader.feed(line)
    reader.finish()
    return reader


def read_text(text: str, op: str = "") -> Reader:
    reader = Reader(op)
    for _ in mixed_lines(BytesIO(text.encode("utf-8", "surrogatepass")), reader):
        pass
    return reader


def only(reader: Reader) -> BenchmarkRun:
    (run,) = reader.runs
    assert (reader.not_understood, reader.first) == (0, [])
    return run


def is_row_of(job: Job, row: BenchmarkRow) -> bool:
    """Whether a row is one of the job's, as exactly as it was printed."""
    return any(
        row.size_bytes == one.size
        and row.out_of_place is not None
        and row.in_place is not None
        and close(operation_seconds(row, row.out_of_place), one.out)
        and close(operation_seconds(row, row.in_place), one.inside)
        for one in job.rows
    )


def close(seconds: float | None, micro: float) -> bool:
    return seconds is None or abs(seconds * 1e6 - micro) <= 0.01 * micro


@settings(max_examples=examples(200))
@given(jobs(), st.sampled_from(printed.PREFIXES))
def test_every_form_with_every_prefix_gives_its_rows(job: Job, prefix: printed.Prefix) -> None:
    reader = read([prefix(0) + line for line in printed.lines(job)])
    run = only(reader)
    assert reader.rows == len(run.rows) == len(job.rows)
    assert (run.ranks, run.hosts) == (job.ranks, {"node0": job.ranks})
    assert run.ended
    assert shortfall(run) == ""
    assert run.differing == 0
    if job.form.era >= 19:
        assert (run.op, run.op_from) == (job.op, "its header")
    for row, one in zip(run.rows, job.rows, strict=True):
        assert is_row_of(replace(job, rows=(one,)), row)
        assert [timing.wrong for _, timing in row.placed()] == [
            {"0": 0, "N/A": None}[wrong] for wrong in one.wrong
        ]
        rate = bus_bandwidth(run, row, row.out_of_place) if row.out_of_place else None
        if run.op == job.op and not job.form.cputime:
            assert rate == pytest.approx(busbw(job.op, job.ranks, one.size, one.out / 1e6), rel=0.01)


def test_the_first_version_has_milliseconds_and_other_names() -> None:
    row = next(iter(only(read(printed.lines(Job(form=Form(1))))).rows))
    assert row.out_of_place is not None
    assert row.out_of_place.seconds == pytest.approx(118e-6, rel=0.05)


@each("op", sorted(printed.OLD))
def test_the_columns_name_the_operation_or_it_is_not_known(op: str) -> None:
    """Tables of the same columns with the same factor are told apart by nothing."""
    job = Job(op, form=Form(9))
    run = only(read(printed.lines(job)))
    if op == "all_gather":
        assert (run.op, run.op_from) == ("", "")
        assert only(read(printed.lines(job), op)).op_from == "--op"
    else:
        assert (run.op, run.op_from) == (op, "its columns")


@each("op", sorted(FACTORS))
def test_a_table_alone_never_gets_an_operation_that_it_is_not(op: str) -> None:
    job = Job(op, form=Form(19))
    run = only(read(printed.lines(job)[printed.lines(job).index("# Using devices") + 10 :]))
    assert run.devices == ()
    assert run.op in {"", op}
    assert run.ranks in {None, job.ranks}
    assert shortfall(run) == ""


def test_the_command_line_names_the_operation() -> None:
    job = Job("all_gather", form=Form(13))
    run = only(read(["$ mpirun -np 8 ./build/all_gather_perf -b 16M -e 64M", *printed.lines(job)]))
    assert (run.op, run.op_from) == ("all_gather", "the command line")
    # A script that names several says nothing of any.
    script = ["./all_gather_perf -b 8", "./alltoall_perf -b 8", *printed.lines(job)]
    assert only(read(script)).op == ""


def test_several_ranks_mixed_line_by_line() -> None:
    """Each rank's table is its own, and so is what it says of its failure."""
    one, other = Job(), Job("broadcast", 4)
    texts = [[f"{n}: {line}" for line in printed.lines(job)] for n, job in enumerate((one, other))]
    mixed = [line for pair in zip_longest(*texts) for line in pair if line is not None]
    reader = read(mixed)
    assert [(run.op, len(run.rows), run.ended) for run in reader.runs] == [
        ("all_reduce", 2, True),
        ("broadcast", 2, True),
    ]


def test_processes_without_mpi_are_jobs_of_one_rank() -> None:
    job = Job(ranks=1)
    mixed = [line.replace("Pid    100", f"Pid    10{n}") for line in printed.lines(job) for n in range(4)]
    run = read(mixed).runs[0]
    assert run.ranks == 1
    assert any("without MPI" in remark for remark in run.remarks)


def torn(job: Job, host: str, *, later: bool = True) -> list[str]:
    """Each row of a job in three pieces, as NCCL's log tears it when both write to one place."""
    log = LOG.format(host=host)
    text = [log, *printed.header(job), log, *printed.columns(job)]
    for one in job.rows:
        line = printed.row(job, one)
        cut, end = line.index(" -1") + 3, line.index("  0 ") + 3
        text += [line[:cut] + log, log, line[cut:end] + log, log, line[end:]]
    return [*text, *(printed.footer(job) if later else ())]


@pytest.mark.parametrize("host", ["node", "0node", "38dcf168f605", "1-2.example.org"])
def test_rows_that_the_log_tears_are_put_together(host: str) -> None:
    """The last figure of a piece and the name of the host stand without a space between them."""
    small = tuple(Written(8 << n, 23.1 + n / 100, 23.2 - n / 100) for n in range(3))
    job = Job(rows=(*small, *Job().rows))
    reader = read(torn(job, host))
    run = only(reader)
    assert [is_row_of(job, row) for row in run.rows] == [True] * 5
    assert (run.repaired, reader.rows) == (5, 5)


def test_a_piece_without_the_rest_is_counted() -> None:
    lines = torn(Job(), "node0", later=False)
    reader = read(lines[:-1])
    assert (reader.rows, reader.not_understood) == (1, 1)
    assert reader.first[0].why == "a part of a row"
    assert reader.first[0].text.split()[0] == str(1 << 26)


def test_a_piece_that_fills_the_columns_and_is_no_row_is_none_of_them() -> None:
    """More text would make it longer than a row."""
    job = Job(rows=Job().rows[:1])
    row = printed.row(job, job.rows[0])
    begin, rest = row[: row.index(" -1") + 3], row[row.index(" -1") + 3 :]
    log = LOG.format(host="node0")
    reader = read([log, *printed.header(job), *printed.columns(job), begin + log, rest.replace("0", "x")])
    assert [one.text.split() for one in reader.first] == [begin.split(), rest.replace("0", "x").split()]
    assert [one.why for one in reader.first] == ["a part of a row", "not a row of this table"]


def test_pieces_of_two_rows_are_none() -> None:
    """The log lost what stood between the beginning of one row and the end of the next."""
    lines = torn(Job(), "node0")
    first = next(n for n, line in enumerate(lines) if line.startswith(f"{1 << 24:12}"))
    reader = read([*lines[: first + 2], *lines[first + 7 :]])
    assert (reader.rows, reader.runs[0].repaired) == (0, 0)
    assert reader.not_understood > 0


@settings(max_examples=examples(200))
@given(st.data())
def test_no_damage_makes_a_row_that_was_not_printed(data: st.DataObject) -> None:
    job = data.draw(jobs(large=True))
    whole = "\n".join(printed.lines(job))
    reader = read_text(data.draw(damaged(whole)))
    for run in reader.runs:
        for row in run.rows:
            assert is_row_of(job, row), row


@settings(max_examples=examples(100))
@given(jobs(large=True), st.randoms(use_true_random=False), st.integers(0, 3))
def test_every_row_of_mixed_lines_is_read_or_counted(job: Job, order: random.Random, drop: int) -> None:
    """Lines shuffled, lost and twice there; a row before the header of its table is none."""
    lines = printed.lines(job)
    rows = {printed.row(job, one) for one in job.rows}
    lines = [line for line in lines if order.randrange(10) >= drop for _ in range(1 + order.randrange(2))]
    order.shuffle(lines)
    reader = read(lines)
    assert reader.rows + reader.not_understood == sum(line in rows for line in lines)
    assert all(is_row_of(job, row) for run in reader.runs for row in run.rows)


@settings(max_examples=examples(100))
@given(st.lists(jobs(large=True), min_size=2, max_size=3), st.randoms(use_true_random=False))
def test_tables_of_ranks_in_any_order_of_lines_keep_their_rows(
    found: list[Job], order: random.Random
) -> None:
    """Each rank's lines stay in their order, as they do in every launcher."""
    left = [[f"{n}: {line}" for line in printed.lines(job)] for n, job in enumerate(found)]
    mixed = []
    while any(left):
        mixed.append(order.choice([lines for lines in left if lines]).pop(0))
    reader = read(mixed)
    assert reader.not_understood == 0
    kept = sorted((len(run.rows), run.ranks) for run in reader.runs)
    assert kept == sorted((len(job.rows), job.ranks) for job in found)


@each(
    "failure",
    [
        "node0: Test NCCL failure common.cu:1005 'unhandled system error / ibv_poll_cq'",
        " .. node0 pid 100: Test failure common.cu:1127",
        "node0: Test CUDA failure common.cu:774 'out of memory'",
        "[node0:100  :0:100] Caught signal 11 (Segmentation fault: address not mapped to object)",
        "/bin/sh: line 1: 100 Segmentation fault      (core dumped) ./all_reduce_perf -g 8",
        "prterun noticed that process rank 3 with PID 5 on node node0 exited on signal 9 (Killed).",
        "srun: error: node0: task 0: Exited with exit code 2",
        "slurmstepd: error: *** STEP 7.0 ON node0 CANCELLED AT 2026-11-21T01:06:30 DUE TO TIME LIMIT ***",
    ],
)
def test_a_run_that_failed_says_what_was_printed(failure: str) -> None:
    lines = printed.lines(Job())
    cut = lines[: lines.index("# Out of bounds values : 0 OK") - 1]
    run = only(read([*cut, failure]))
    assert run.failures == [failure.strip()]
    assert shortfall(run) == f"its table stops at {1 << 24} of {1 << 26} bytes"


def test_what_stops_and_what_was_pasted() -> None:
    lines = printed.lines(Job())
    head = lines.index("# Using devices") + 10
    assert shortfall(only(read(lines[:head]))) == "it stops before its table"
    assert shortfall(only(read(lines[: head + 3]))) == "its table has no rows"
    assert shortfall(only(read(lines[: head + 5]))) == ""
    assert shortfall(only(read(lines[head : head + 4]))) == ""


def test_a_line_of_a_gigabyte_and_a_file_without_an_end_of_line_take_no_memory() -> None:
    class Endless:
        """A file of one line, made while it is read."""

        def __init__(self, parts: int) -> None:
            self.parts = parts

        def readline(self, size: int) -> bytes:
            self.parts -= 1
            return b"7 " * (size // 2) if self.parts >= 0 else b""

    reader = Reader()
    file: BinaryIO = Endless(16_384)  # type: ignore[assignment]
    assert sum(map(len, mixed_lines(file, reader))) <= 1 << 16
    assert (reader.lines, reader.not_understood, reader.first[0].why) == (1, 1, "a line that is too long")


@pytest.mark.parametrize(
    "line",
    [
        "NCCL " + "a" * 65_000, "# nThread " + "a " * 30_000, "x" * 65_000 + "#", "a_" * 30_000 + "perf",
        "1:" * 30_000, "# Rank " + "1 " * 30_000, "8 " * 30_000, "[1,0" * 16_000,
        "1.1.1:1:1 [0] " * 4_000 + "NCCL",
    ],
    ids=lambda line: line[:9],
)  # fmt: skip
def test_no_line_takes_more_than_its_length(line: str) -> None:
    """Each is read in milliseconds; by its square it would be minutes."""
    assert read([line, *printed.lines(Job()), line]).rows == 2


def test_repeats_of_a_table_are_runs_and_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed.lines(Job())
    assert [len(run.rows) for run in read(lines * 3).runs] == [2, 2, 2]
    monkeypatch.setattr("wirewatch_lab.study.nccltests.MOST_ROWS", 5)
    with pytest.raises(ValueError, match="more than 5 rows"):
        read(lines * 3)


def test_a_table_without_a_column_of_wrong_values_was_not_checked() -> None:
    job = Job()
    head, *rest = printed.columns(job)
    lines = [line.replace("#wrong", "      ") for line in (head, *rest)]
    rows = [" ".join(printed.row(job, one).split()) for one in job.rows]
    bare = [" ".join(word for place, word in enumerate(row.split()) if place not in {8, 12}) for row in rows]
    run = only(read([*printed.header(job), *lines, *bare]))
    assert len(run.rows) == len(job.rows)
    assert {one.wrong for row in run.rows for _, one in row.placed()} == {None}


def test_streams_that_are_known_stay_apart_where_no_more_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirewatch_lab.study.nccltests.MOST_RANKS", 2)
    stream = vars(Reader)["_stream"]
    reader = Reader()
    first, second = stream(reader, "a"), stream(reader, "b")
    assert stream(reader, "a") is first
    assert stream(reader, "b") is second
    assert stream(reader, "c") is stream(reader, "d") is stream(reader, "")


def test_a_million_rows_are_kept_and_no_more() -> None:
    reader = Reader()
    reader.add(BenchmarkRun(1))
    vars(Reader)["_count"](reader, 1_000_000)
    with pytest.raises(ValueError, match="more than 1000000 rows"):
        vars(Reader)["_count"](reader, 1)


def test_a_row_whose_figures_contradict_each_other_is_none() -> None:
    lines = printed.lines(Job())
    at = lines.index("# Out of bounds values : 0 OK") - 1
    for good, bad in (
        ("363.88", "63.88"),
        (f"{1 << 26}", f"{1 << 27}"),
        ("float", "flout"),
        (" -1 ", "  3 "),
    ):
        assert good in lines[at]
        reader = read([*lines[:at], lines[at].replace(good, bad, 1), *lines[at + 1 :]])
        assert (reader.rows, reader.not_understood) == (1, 1), bad


def test_a_busbw_of_another_number_of_ranks_is_said() -> None:
    lines = [line for line in printed.lines(Job()) if "Rank  7" not in line]
    run = only(read(lines))
    assert (run.ranks, run.differing) == (8, 0)
    assert "its header lists 7 ranks, its busbw is that of 8" in run.remarks


@settings(max_examples=examples(100))
@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_read(text: str) -> None:
    assume(len(text) < 10_000)
    reader = read_text(text)
    assert reader.rows == 0


@each(
    "change",
    [
        lambda line: line + "\r",
        lambda line: "> " + line,
        lambda line: "\x1b[0m" + line,
        lambda line: "    " + line,
        lambda line: line.replace("#", " ", 1) if "busbw" in line else line,
    ],
    ids=["line ends of Windows", "a quotation", "colours", "indented", "header without its mark"],
)
def test_a_table_as_people_paste_it(change: Callable[[str], str]) -> None:
    lines = printed.lines(Job())
    table = lines[lines.index("# Using devices") + 10 :]
    run = only(read_text("\n".join(map(change, table))))
    assert (run.op, run.ranks, len(run.rows)) == ("all_reduce", 8, 2)


def test_communicators_that_were_split_have_ranks_of_their_own() -> None:
    job = Job(ranks=4)
    lines = printed.lines(job)
    devices = [line for line in printed.header(Job()) if "#  Rank" in line]
    split = [line.replace("Group  0", f"Group  {n // 4}") for n, line in enumerate(devices)]
    at = lines.index("# Using devices") + 1
    run = only(read([*lines[:at], *split, *lines[at + 4 :]]))
    assert (run.ranks, run.hosts, run.differing) == (4, {"node0": 4}, 0)


def test_every_line_twice_is_the_same_run() -> None:
    run = only(read([line for line in printed.lines(Job()) for _ in range(2)]))
    assert (run.ranks, run.hosts, len(run.rows)) == (8, {"node0": 8}, 4)


@each(
    ("figures", "seconds"),
    [
        ("nan     nan     nan", None),
        ("inf    0.00    0.00", None),
        ("1.2e+07    1.40    2.45", 12.0),
        ("1.2e7    1.40    2.45", 12.0),
        ("0.00     inf     inf", None),
    ],
)
def test_odd_figures(figures: str, seconds: float | None) -> None:
    lines = printed.lines(Job())
    row = f"{1 << 34:12}  {1 << 32:12}     float     sum      -1  {figures}       0  {figures}     N/A"
    end = lines.index("# Out of bounds values : 0 OK")
    run = only(read([*lines[:end], row, *lines[end:]]))
    *_, odd = run.rows
    assert [operation_seconds(odd, one) for _, one in odd.placed()] == [seconds] * 2


def test_an_operation_that_the_user_names_must_fit() -> None:
    lines = printed.lines(Job("all_gather", form=Form(9)))
    run = only(read(lines, "broadcast"))
    assert (run.op, run.remarks) == (
        "",
        ["it cannot be broadcast: its columns are those of all_gather or alltoall"],
    )


def with_row(change: Callable[[str], str], job: Job = Job()) -> Reader:  # noqa: B008 - it is frozen
    """A job whose second row is another text."""
    lines = printed.lines(job)
    at = lines.index(printed.row(job, job.rows[1]))
    return read([*lines[:at], change(lines[at]), *lines[at + 1 :]])


DATED = Job("reduce", form=Form(9, timestamps=True))
SIZE, TYPE = "its size does not follow from its count", "its type or reduction is not known"
NO_ROW = "not a row of this table"


@each(
    ("old", "new", "why"),
    [
        (f"{1 << 26}", "64M", NO_ROW),
        (f"{1 << 24}", "16M", NO_ROW),
        ("float", "2loat", NO_ROW),
        (" sum", " s-m", NO_ROW),
        ("  0  ", "  x  ", NO_ROW),
        ("2026-11-21", "2026-11-2x", NO_ROW),
        ("float", "flout", TYPE),
        (" sum", " sun", TYPE),
        (f"{1 << 24}", f"{1 << 25}", SIZE),
        (f"{1 << 24}", f"{3 << 23}", SIZE),
        (f"  {1 << 24}", f"  {1 << 23}", SIZE),
        ("363.88", "163.88", "its bandwidth does not follow from its size and time"),
        ("365.85", "165.85", "its bandwidth does not follow from its size and time"),
    ],
)
def test_a_row_with_one_thing_wrong_is_counted_with_what_it_is(old: str, new: str, why: str) -> None:
    reader = with_row(lambda line: line.replace(old, new, 1), DATED)
    assert [one.why for one in reader.first] == [why]
    assert (reader.rows, reader.not_understood) == (1, 1)


@pytest.mark.parametrize(
    ("op", "old", "new"), [("reduce", "    0 ", "   -1 "), ("all_reduce", "   -1 ", "    0 ")]
)
def test_an_operation_with_another_root_than_it_has_is_no_row(op: str, old: str, new: str) -> None:
    reader = with_row(lambda line: line.replace(old, new, 1), Job(op))
    assert [one.why for one in reader.first] == [f"{op} has no such root"]


def test_a_test_that_nothing_is_known_of_has_any_row() -> None:
    lines = [
        line.replace("all_reduce", "hypercube").replace("float", "strange") for line in printed.lines(Job())
    ]
    run = only(read(lines))
    assert (run.op, len(run.rows), run.differing) == ("hypercube", 2, 0)


def test_what_is_kept_of_bad_lines_and_of_failures_is_little_and_all_are_counted() -> None:
    lines = printed.lines(Job())
    end = lines.index("# Out of bounds values : 0 OK")
    bad = [f"{n}  {n} float" + " nothing" * 20 for n in range(7)]
    failed = ["node0: Test CUDA failure " + "x" * 300] * 7
    errors = [f"# error: NCCL said {n}{'x' * 300}" for n in range(7)]
    reader = read([*lines[:end], *bad, *failed, *errors])
    assert (reader.not_understood, len(reader.first), reader.failures) == (7, 5, [])
    (run,) = reader.runs
    assert run.failures == [("node0: Test CUDA failure " + "x" * 300)[:200]] * 5
    assert run.remarks == [f"NCCL's last message: NCCL said {n}{'x' * 189}" for n in range(5)]
    assert all(len(one.text) <= 200 for one in reader.first)


def test_failures_where_no_run_is_open_are_nobodys() -> None:
    reader = read([*printed.lines(Job()), *["slurmstepd: error: *** STEP 7.0 CANCELLED AT 01:06 ***"] * 7])
    assert (reader.runs[0].failures, len(reader.failures)) == ([], 5)


@each(
    ("line", "missed", "others"),
    [
        ("1 2 3 4 5 6", 1, 0),
        ("1 2 3 4 5", 0, 1),
        ("1 2 a b c d", 0, 1),
        ("1 a 3 4 5 6 7", 0, 1),
        ("1 2 float -1 5 6 7 8", 1, 0),
        ("1 2 float sum 5 6 7 x", 0, 1),
    ],
)
def test_what_looks_like_a_row_outside_of_a_table_is_counted(line: str, missed: int, others: int) -> None:
    """Six numbers, of which two begin it."""
    reader = read([line])
    assert (reader.not_understood, reader.others) == (missed, others)
    if missed:
        assert reader.first[0].why == "a row without the header of a table"


def test_a_command_that_is_none_of_nccl_tests_names_nothing() -> None:
    lines = printed.lines(Job("all_gather", form=Form(13)))
    run = only(read(["$ ./my_perf --fast", "$ ./build/all_gather_perf -b 16M", *lines]))
    assert (run.op, run.op_from) == ("all_gather", "the command line")
    # It is of the next table alone.
    first, second = read(["./all_gather_perf", *lines, *lines]).runs
    assert (first.op, second.op) == ("all_gather", "")


@pytest.mark.parametrize("cut", [3, 4])
def test_a_table_that_was_pasted_alone_lacks_nothing(cut: int) -> None:
    lines = printed.lines(Job())
    head = lines.index("# Using devices") + 10
    (run,) = read(lines[head : head + cut]).runs
    assert (len(run.rows), shortfall(run)) == (cut - 3, "")


@each(
    ("sizes", "last", "missing"),
    [
        ("minBytes 8 maxBytes 100 step: 2(factor)", 64, ""),
        ("minBytes 8 maxBytes 128 step: 2(factor)", 64, ""),
        ("minBytes 8 maxBytes 256 step: 2(factor)", 64, "its table stops at 64 of 256 bytes"),
        ("minBytes 64 maxBytes 64 step: 2(factor)", 64, ""),
        ("minBytes 64 maxBytes 1024 step: 1(factor)", 64, ""),
        ("minBytes 64 maxBytes 1024 step: 0(factor)", 64, ""),
        ("minBytes 64 maxBytes 1024 step: 1(bytes)", 64, "its table stops at 64 of 1024 bytes"),
        ("minBytes 64 maxBytes 1024 step: 0(bytes)", 64, ""),
        ("minBytes 1024 maxBytes 64 step: 2(factor)", 64, ""),
        ("minBytes 0 maxBytes 1024 step: 2(factor)", 64, ""),
        ("minBytes 64 maxBytes 1100 step: 256(bytes)", 64, "its table stops at 64 of 1088 bytes"),
        ("minBytes 64 maxBytes 1100 step: 256(bytes)", 1088, ""),
        ("minBytes 64 maxBytes 192 step: 128(bytes)", 64, "its table stops at 64 of 192 bytes"),
        ("minBytes 64 maxBytes 191 step: 127(bytes)", 64, ""),
    ],
)
def test_a_run_lacks_what_it_was_asked_for_and_did_not_measure(sizes: str, last: int, missing: str) -> None:
    """A rank's part is rounded down to 16 bytes, so that a size may be up to 128 less than asked for."""
    lines = printed.lines(Job(rows=(Written(last, 10.0, 10.0),)))
    end = lines.index("# Out of bounds values : 0 OK")
    asked = f"minBytes {last} maxBytes {last} step: 2(factor)"
    run = only(read([line.replace(asked, sizes) for line in lines[:end]]))
    assert shortfall(run) == missing
    run.ended = True
    assert shortfall(run) == ""


def test_without_ranks_a_size_is_short_of_another_by_one_piece() -> None:
    run = BenchmarkRun(1, begun=True, table=True, parameters={"minBytes": "8", "maxBytes": "64", "step": "2"})
    for size, missing in ((64, ""), (56, ""), (48, "its table stops at 48 of 64 bytes")):
        run.rows = BenchmarkRows()
        run.rows.add(BenchmarkRow(size, size // 4, "float", "sum", "-1", None, None))
        assert shortfall(run) == missing


def test_more_streams_than_are_kept_apart_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirewatch_lab.study.nccltests.MOST_RANKS", 2)
    job = Job()
    for prefix in ("{}: ", "worker-{} | "):
        texts = [[prefix.format(n) + line for line in printed.lines(job)] for n in range(4)]
        reader = read([line for text in texts for line in text])
        assert [len(run.rows) for run in reader.runs if run.op][:2] == [2, 2]
        assert len(reader.runs[0].devices) == 2
        assert len(reader._prefixes) == (0 if ":" in prefix else 2)  # noqa: SLF001
    log = [LOG.format(host=f"other{n}") for n in range(3)]
    lines = printed.lines(Job(rows=Job().rows[:1]))
    at = lines.index(printed.row(job, job.rows[0]))
    table = [line for line in lines[:at] if "Rank" not in line]
    for n, known in enumerate((True, True, False)):
        reader = read([*log, *table, lines[at] + log[n]])
        assert (reader.rows, reader.not_understood) == (known, not known)


def unit(*comments: str) -> float:
    """Seconds of a time of 118.38 below a table's header and these comments."""
    lines = printed.lines(Job())
    at = lines.index(printed.row(Job(), Job().rows[0]))
    rows = [line.replace("141.72", "0.14172").replace("144.53", "0.14453") for line in lines[at : at + 1]]
    reader = read([*lines[: at - 1], *comments, *rows])
    found = [one.out_of_place for run in reader.runs for one in run.rows if one.out_of_place]
    return found[0].seconds if found else 0.0


@pytest.mark.parametrize(
    ("comment", "seconds"),
    [("# (B) (ms) (GB/s)", 0.11838), ("# (B) (us) (GB/s)", 0.0), ("# it took 7 (ms)", 0.0)],
)
def test_a_time_is_in_milliseconds_only_where_the_units_of_the_columns_say_so(
    comment: str, seconds: float
) -> None:
    """A row with microseconds would contradict itself here."""
    assert unit(comment) == pytest.approx(seconds)


def test_units_before_any_table_are_nobodys() -> None:
    assert len(only(read(["# (ms) (GB/s)", *printed.lines(Job())])).rows) == 2


@pytest.mark.parametrize(("average", "rate"), [("200.846", 200.846e9), ("N/A", None), ("nan", None)])
def test_the_average_of_the_footer(average: str, rate: float | None) -> None:
    run = only(read([line.replace("200.846", average) for line in printed.lines(Job())]))
    assert run.average == rate or (average == "nan" and run.average != run.average)


def test_the_runs_own_bound_on_the_average_is_said() -> None:
    run = only(read([line.replace("200.846 ", "200.846 FAILED") for line in printed.lines(Job())]))
    assert run.remarks == ["the run's own bound on the average (NCCL_TESTS_MIN_BW) was not reached"]


def test_a_host_is_known_by_its_devices_too() -> None:
    """Its name stands glued to a figure, and no line of the log stands alone."""
    log = LOG.format(host="node0")
    reader = read([line for line in torn(Job(), "node0") if line != log])
    assert (only(reader).repaired, reader.rows) == (2, 2)


def test_a_host_that_is_not_known_tears_what_cannot_be_put_together() -> None:
    log = LOG.format(host="other")
    reader = read([line for line in torn(Job(), "other") if line != log])
    assert reader.rows == 0
    assert {one.why for one in reader.first} >= {"torn by a host whose name is not known"}


def test_parameters_stand_near_the_beginning_of_their_line() -> None:
    for spaces, found in ((1900, "8"), (2100, None)):
        (run,) = read([f"# nThread 1{' ' * spaces}minBytes 8", *printed.columns(Job())]).runs
        assert run.parameters.get("minBytes") == found


def test_a_size_that_memory_reduced_is_the_largest() -> None:
    lines = printed.lines(Job())
    end = lines.index("# Out of bounds values : 0 OK")
    run = only(read([*lines[: end - 1], "#  Reducing maxBytes to 33554432 due to memory limitation"]))
    assert shortfall(run) == "its table stops at 16777216 of 33554432 bytes"


@each(
    ("header", "rows"),
    [
        ("# size count type redop root time algbw busbw #wrong time algbw busbw #wrong", 1),
        ("# size count type redop root algbw time busbw #wrong time algbw busbw #wrong", 0),
        ("# size count redop type root time algbw busbw #wrong time algbw busbw #wrong", 0),
        ("# size type redop root time algbw busbw #wrong time algbw busbw #wrong", 0),
        ("# size count type redop root time algbw algbw busbw time busbw #wrong #wrong", 0),
        ("# size count type redop root time algbw busbw time algbw busbw time algbw busbw", 0),
        ("# size count type redop root #wrong algbw busbw", 0),
    ],
)
def test_a_header_that_is_none_makes_no_table(header: str, rows: int) -> None:
    line = printed.row(Job(), Job().rows[0])
    assert read([header, line]).rows == rows


@pytest.mark.parametrize(("blocks", "rows"), [(0, 0), (1, 1), (2, 1), (3, 0)])
def test_a_table_has_one_placement_or_two(blocks: int, rows: int) -> None:
    header = "# size count type redop root" + " time algbw busbw" * blocks
    line = f"{1 << 24} {1 << 22} float sum -1" + " 118.38 141.72 248.01" * blocks
    assert read([header, line]).rows == rows


def test_one_block_is_in_place_where_the_line_above_says_so() -> None:
    header = "# size count type redop root time algbw busbw #wrong"
    line = printed.row(Job(), Job().rows[0]).rsplit(maxsplit=4)[0]
    for above, placed in (("#   in-place", [True]), ("#   out-of-place   in-place", [False]), ("#", [False])):
        reader = read([above, header, line])
        assert [[place for place, _ in row.placed()] for row in reader.runs[0].rows] == [placed]


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22810", ("2.19.6", "22810")),
        ("# nccl-tests version 2.17.1", ("2.17.1", "")),
    ],
)
def test_versions_are_those_of_the_first_line(version: str, found: tuple[str, str]) -> None:
    lines = printed.lines(Job())
    run = only(read([version, *lines[1:]]))
    assert (run.version, run.nccl) == found


def test_lines_that_are_nothing_are_counted() -> None:
    reader = read(["bye", "", "  ", "see you", *printed.lines(Job())])
    assert (reader.others, reader.messages, reader.lines) == (2, 0, 4 + len(printed.lines(Job())))
    reader.pass_over(7)
    assert reader.others == 9


def test_colours_go_and_the_rest_of_a_line_stays() -> None:
    lines = ["\x1b[1m" + line + "\x1b[0m  " for line in printed.lines(Job())]
    assert only(read(lines)).version == "2.19.6"
    (one,) = read(["1 2 3 4 5 6  "]).first
    assert one.text == "1 2 3 4 5 6"


def test_an_indented_message_between_rows_tears_nothing() -> None:
    lines = printed.lines(Job())
    at = lines.index(printed.row(Job(), Job().rows[0])) + 1
    for host in ("node0", "other"):
        assert len(only(read([*lines[:at], "   " + LOG.format(host=host), *lines[at:]])).rows) == 2


@pytest.mark.parametrize(
    "line", ["#  Reducing maxBytes to 33554432 due to memory limitation", "# error: NCCL said no"]
)
def test_what_is_said_of_no_run_is_nobodys(line: str) -> None:
    assert read([line]).runs == []


def test_as_many_outputs_as_the_largest_job_has_ranks_are_kept_apart() -> None:
    reader = Reader()
    for n in range(4100):
        reader.feed(f"{n}: x")
    assert len(reader._streams) == 4096 + 1  # noqa: SLF001 - those, and one for all others


def test_the_log_between_rows_of_no_table_tears_nothing() -> None:
    log = LOG.format(host="other")
    for before in ("8 8 float 7", "text "):
        reader = read([before + log])
        assert (reader.messages, reader.not_understood) == (1, 0)


@pytest.mark.parametrize(("length", "repaired"), [(2000, 1), (2001, 0)])
def test_a_part_of_a_row_is_no_more_than_two_thousand_characters(length: int, repaired: int) -> None:
    lines = printed.lines(Job())
    at = lines.index(printed.row(Job(), Job().rows[0]))
    row = lines[at]
    cut, end = row.index(" -1"), row.index("  141.72")
    first, middle, last = row[:cut].rstrip(), row[cut:end], row[end:]
    first = first[:12] + " " * (length - len(first) - len(middle)) + first[12:]
    reader = read([*lines[:at], first, middle, last])
    assert [run.repaired for run in reader.runs] == [repaired]


@pytest.mark.parametrize(
    ("text", "missed"), [("node0: 1 2 3", 0), ("7 8 nothing", 1), ("7 nothing", 0), ("-1 2", 0)]
)
def test_what_is_no_row_within_a_table_is_counted_by_its_numbers(text: str, missed: int) -> None:
    lines = printed.lines(Job())
    reader = read([*lines[: lines.index(printed.row(Job(), Job().rows[0]))], text + " x" * 20])
    assert (reader.not_understood, reader.others) == (missed, 1 - missed)


def test_a_header_that_says_the_test_outweighs_the_command() -> None:
    run = only(read(["./all_gather_perf", *printed.lines(Job())]))
    assert (run.op, run.op_from) == ("all_reduce", "its header")
