"""What RAS answers, read: real answers of 2.28.9, the text of older versions, and anything at all."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzzing import damaged
from tests.node.jobs.ras.reports import (
    HEALTHY,
    ROW,
    STOPPED,
    TEXT_DEAD,
    TEXT_ENDING,
    TEXT_ERROR,
    TEXT_FIRST,
    TEXT_HEALTHY,
    TEXT_SKIPPED,
    TEXT_STOPPED,
    TEXTS,
    communicator,
    missing,
    rank,
    report,
)
from tests.node.jobs.ras.reports import text as text_of
from tests.rows import each
from wirewatch.core.jobs import RasCrowd, RasPhase, RasReport
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.ras.answer import ANY_OP, parse_ras_json, parse_ras_text


def read(text: str) -> RasReport:
    found = parse_ras_json(text) if text.startswith("{") else parse_ras_text(text)
    assert isinstance(found, RasReport), found
    return found


def test_a_healthy_job_of_2_28_9_is_read() -> None:
    found = read(HEALTHY)
    (one,) = found.communicators
    assert (found.nccl, found.repaired, found.processes, one.size, one.lost) == ("2.28.9", False, 4, 4, 0)
    assert (one.hash, one.secondary) == ("0x17fa1bf33d62ca88", "0x53db28a90de9b730:0x10ca37c6971b670")
    assert [(each.rank, each.pid, each.counts["all_reduce"]) for each in one.ranks] == [
        (0, 915, 1750), (1, 916, 1750), (2, 917, 1750), (3, 918, 1750),
    ]  # fmt: skip
    assert {each.phase for each in one.ranks} == {RasPhase.RUNNING}
    assert not any(each.errors or each.missing for each in one.ranks)


def test_the_comma_that_2_28_9_leaves_out_is_put_in() -> None:
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(STOPPED)
    found = read(STOPPED)
    (one,) = found.communicators
    stopped = one.ranks[3]
    assert (found.repaired, found.timeouts, one.lost) == (True, 2, 1)
    assert (stopped.rank, stopped.pid, stopped.missing) == (3, 918, "unresponsive")
    assert [each.counts.get("all_reduce") for each in one.ranks] == [2176, 2176, 2176, None]


def test_a_dead_rank_one_that_left_and_errors_are_told_apart() -> None:
    ranks = [
        rank(0, 10, {}, async_error=6),
        rank(1, 11, {}, init_state=7),
        rank(2, 12, {}, destroy_flag=True),
    ]
    lost = [missing(3, 13, dead=True), missing(4, 14, unresponsive=False)]
    first, starting, ending, dead, left = read(report(communicator(ranks, lost))).communicators[0].ranks
    assert first.errors == ("remote error while running",)
    assert (starting.phase, starting.errors) == (RasPhase.STARTING, ())
    assert ending.phase is RasPhase.FINALIZING
    assert dead.missing == "dead"
    assert (left.missing, left.phase) == ("", RasPhase.LEFT)


@each(
    ("change", "odd"),
    [
        (("915", '"915"'), "pid"),
        (("915", "-7"), "pid"),
        (("1750", "1e400"), "AllReduce"),
        (("1750", "NaN"), "NaN"),
        (("1750", "9" * 5000), "digits"),
        (('"size": 4', '"size": 3'), "beyond a size of 3"),
        (('"rank": 1,', '"rank": 0,'), "twice"),
        (("192.0.2.2", "a host\\n of many words"), "host"),
        (("0x17fa1bf33d62ca88", "<script>"), "hash"),
        (('"ranks": [', '"ranks": 7, "was": ['), "a report has no valid ranks"),
        (('"destroy_flag": false', '"destroy_flag": 0'), "destroy_flag"),
        (('"communicators": [', '"others": ['), "communicators"),
        (('"communicators": [', '"communicators": [7, '), "no ranks"),
    ],
)
def test_what_no_report_has_is_malformed_and_named(change: tuple[str, str], odd: str) -> None:
    found = parse_ras_json(HEALTHY.replace(change[0], change[1], 1))
    assert isinstance(found, Absent)
    assert found.why is Why.MALFORMED
    assert odd in found.detail


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" + "[]," * 100_000 + "[]]", '{"a":' * 900 + "1" + "}" * 900]
)
def test_what_would_take_much_memory_is_refused(text: str) -> None:
    assert isinstance(parse_ras_json(text), Absent)


def test_a_healthy_job_in_text_has_communicators_without_ranks() -> None:
    found = read(TEXT_HEALTHY)
    (one,) = found.communicators
    assert (found.nccl, found.processes, found.odd) == ("2.26.2", 4, 0)
    assert (one.hash, one.size, one.ranks, one.listed, one.lost) == ("", 4, (), False, 0)


def test_the_rank_that_has_launched_less_is_read_from_text() -> None:
    (one,) = read(TEXT_SKIPPED).communicators
    (late,) = one.ranks
    assert (late.rank, late.pid, late.cuda, late.nvml) == (2, 917, 2, 6)
    assert late.counts == {"all_reduce": 640}
    assert one.crowds == (RasCrowd("all_reduce", 3, 641),)
    assert one.hash == "0xfa93daea854b060b"


def test_the_text_of_2_24_counts_all_operations_together() -> None:
    (one,) = read(TEXT_FIRST).communicators
    assert [(each.rank, each.pid, each.counts) for each in one.ranks] == [
        (0, 483072, {ANY_OP: 6649}), (2, 483074, {ANY_OP: 6649}), (3, -1, {ANY_OP: 6649}),
    ]  # fmt: skip
    assert one.crowds == (RasCrowd(ANY_OP, 29, 6650),)


@pytest.mark.parametrize(("text", "why"), [(TEXT_STOPPED, "unresponsive"), (TEXT_DEAD, "dead")])
def test_a_rank_that_is_missing_is_read_from_text(text: str, why: str) -> None:
    (one,) = read(text).communicators
    (lost,) = one.ranks
    assert (lost.rank, lost.pid, lost.missing, one.lost) == (3, 918, why, 1)


def test_ranks_that_have_left_and_errors_are_read_from_text() -> None:
    ending, starting = read(TEXT_ENDING).communicators
    assert ending.crowds == ()
    assert (ending.phase, ending.ranks[0].phase) == (RasPhase.FINALIZING, RasPhase.FINALIZING)
    assert (starting.phase, starting.alike, starting.size) == (RasPhase.STARTING, 2, 2)
    (failed,) = read(TEXT_ERROR).communicators[0].ranks
    assert failed.errors == ("Remote error",)


@each("text", TEXTS)
def test_every_line_of_the_texts_is_understood(text: str) -> None:
    assert read(text).odd == 0


def test_a_foreign_line_is_counted() -> None:
    assert read(TEXT_SKIPPED.replace("Warnings\n", "Gossip of the day\nWarnings\n")).odd == 1


@pytest.mark.parametrize("cut", [TEXT_STOPPED.index("Warnings"), TEXT_STOPPED.index("#0-0"), 30, 0])
def test_a_text_without_its_end_is_none(cut: int) -> None:
    assert isinstance(parse_ras_text(TEXT_STOPPED[:cut]), Absent)


@settings(max_examples=examples(400))
@given(st.one_of(damaged(HEALTHY, STOPPED, report(), *TEXTS), st.text()))
def test_any_text_is_a_report_or_says_why_not(text: str) -> None:
    for found in (parse_ras_json(text), parse_ras_text(text)):
        if isinstance(found, Absent):
            assert found.why is Why.MALFORMED
            assert len(found.detail) < 200
        else:
            for one in found.communicators:
                assert one.alike > 0
                assert all(-1 <= each.pid < 1 << 24 and len(each.host) <= 64 for each in one.ranks)


def test_a_line_like_that_of_the_summary_counts_no_processes_elsewhere() -> None:
    """Five numbers in a row stand in the summary alone."""
    found = read(f"{TEXT_HEALTHY}      9          9            9          9        9\n")
    assert (found.processes, found.odd) == (4, 1)


def test_a_crowd_without_a_rank_is_read_wherever_it_stands() -> None:
    """The last line of a report that speaks of many ranks and lists none, as one in front of another's."""
    crowd = "#0-{} (fa93daea854b060b) MISMATCH\n  3 ranks have launched up to operation 641\n"
    rows = ROW.format("MISMATCH").replace("    0         1", "    0         2", 1)
    found = read(text_of(rows, warnings=crowd.format(0) + crowd.format(1)))
    assert [one.crowds for one in found.communicators] == [(RasCrowd(ANY_OP, 3, 641),)] * 2


MOST = 4 * 2**20
"""Bytes of the longest answer that is read."""


@pytest.mark.parametrize("text", [HEALTHY, TEXT_HEALTHY], ids=["json", "text"])
def test_an_answer_of_four_mebibytes_is_read_and_no_longer_one(text: str) -> None:
    whole = text + " " * (MOST - len(text))
    assert read(whole).processes == 4
    longer = (parse_ras_json if text is HEALTHY else parse_ras_text)(f"{whole} ")
    assert longer == Absent(Why.MALFORMED, f"RAS: an answer of more than {MOST} bytes")


def test_a_report_without_spaces_is_read_and_one_of_commas_alone_is_not() -> None:
    """The second would be a report too: members that nobody knows are passed over."""
    found = json.loads(report(communicator([rank(n, 10 + n, {}) for n in range(64)])))
    assert read(json.dumps(found, separators=(",", ":"))).processes == 64
    refused = parse_ras_json(json.dumps({**found, "more": [0] * 100_000}))
    assert refused == Absent(Why.MALFORMED, "RAS: too many members for a report of its length")


def test_a_report_that_says_nothing_of_ras_itself_has_no_timeouts() -> None:
    found = json.loads(report())
    del found["ras"]
    assert read(json.dumps(found)).timeouts == 0


@pytest.mark.parametrize(
    ("guard", "status", "phase"),
    [
        ("nothing was called", {}, RasPhase.RUNNING),
        ("it aborts", {"abort_flag": True}, RasPhase.ABORTING),
        ("it is finalized", {"finalize_called": True}, RasPhase.FINALIZING),
        ("it is destroyed", {"destroy_flag": True}, RasPhase.FINALIZING),
        ("it aborts while it is destroyed", {"abort_flag": True, "destroy_flag": True}, RasPhase.ABORTING),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rank_is_in_the_phase_that_its_flags_say(
    guard: str, status: dict[str, bool], phase: RasPhase
) -> None:
    (one,) = read(report(communicator([rank(0, 10, {}, **status)]))).communicators[0].ranks
    assert one.phase is phase, guard


def test_ranks_without_a_process_are_no_processes() -> None:
    ranks = [rank(0, 10, {}), rank(1, -1, {}), rank(2, 10, {})]
    assert read(report(communicator(ranks))).processes == 1


def listing(kind: str, *lines: str) -> str:
    """A text whose only communicator is listed with these lines."""
    listed = "\n".join((f"#0-0 (fa93daea854b060b) {kind}", *lines, "", ""))
    return text_of(ROW.format(kind), *((listed, "") if kind == "INCOMPLETE" else ("", listed)))


ON_GPU_2 = "-- GPU 2 managed by process 917 on node 192.0.2.2"


def test_ranks_that_have_launched_nothing_are_read_from_text() -> None:
    counts = "  Communicator ranks have different AllGather operation counts"
    one = "  Rank 2 has not launched any operations "
    (first,) = read(
        listing("MISMATCH", counts, "  3 ranks have launched up to operation 7", one + ON_GPU_2)
    ).communicators
    assert first.crowds == (RasCrowd("all_gather", 3, 7),)
    assert [each.counts for each in first.ranks] == [{"all_gather": 0}]
    many = "  2 ranks have not launched any operations"
    (second,) = read(listing("MISMATCH", counts, many, f"  Rank 2 {ON_GPU_2}", many)).communicators
    assert [each.counts for each in second.ranks] == [{"all_gather": 0}]
    assert second.crowds == (RasCrowd("all_gather", 2, 0),)


@pytest.mark.parametrize(
    ("guard", "lines", "lost"),
    [
        (
            "all that are missing are listed",
            ["  Missing communicator data from 1 rank", f"  Rank 2 {ON_GPU_2}"],
            1,
        ),
        (
            "more are missing than are listed",
            ["  Missing communicator data from 3 ranks", f"  Rank 2 {ON_GPU_2}"],
            3,
        ),
        ("they are listed by number alone", ["  The missing ranks: 1, 3"], 2),
        ("those of an unknown state are not", ["  The unknown ranks: 1, 3", f"  Rank 2 {ON_GPU_2}"], 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ranks_that_are_missing_are_counted(guard: str, lines: list[str], lost: int) -> None:
    found = read(listing("INCOMPLETE", *lines))
    assert (found.communicators[0].lost, found.odd) == (lost, 0), guard


def test_a_rank_whose_state_alone_is_said_is_no_odd_line() -> None:
    assert read(listing("MISMATCH", "  Rank 2 has status INIT")).odd == 0


@pytest.mark.parametrize("line", ["NCCL version 2.26.2 compiled with CUDA 12.6\n", "Warnings\n"])
def test_a_text_without_its_version_or_its_last_section_is_no_report(line: str) -> None:
    assert isinstance(parse_ras_text(TEXT_HEALTHY.replace(line, "")), Absent)
