"""Verdicts on dumps of the flight recorder: the missing, the different, rings, and what nothing shows."""

import dataclasses
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.study.flights import REAL, FlightJob, Made, waits, world
from tests.rows import each
from wirewatch_lab.study.flightdumps import FORMATS, RankDump, read_dump
from wirewatch_lab.study.flightjudge import FlightDocument, FlightJudge

MESH: Mapping[str, tuple[str, Sequence[int]]] = {
    "0": ("default_pg", (0, 1, 2, 3)), "1": ("TP", (0, 1)), "2": ("TP", (2, 3)), "3": ("DP", (0, 2)),
    "4": ("DP", (1, 3)),
}  # fmt: skip
SINCE = "2026-11-18 11:06:50Z"


def mesh() -> FlightJob:
    return FlightJob(MESH, {rank: [Made()] for rank in range(4)})


def judged(dumps: Sequence[RankDump], *not_read: str) -> FlightDocument:
    return FlightJudge(dumps).document(not_read)


def real(name: str, *ranks: int) -> list[RankDump]:
    return [
        read_dump((REAL / name / f"comm_lib_trace_rank_{rank}").read_bytes(), rank, "", f"{rank}")
        for rank in ranks or range(4)
    ]


def short(document: FlightDocument) -> tuple[str, list[tuple[str, list[int], list[int]]]]:
    """The verdict, and of each fault its kind, the ranks that it names and those that wait."""
    return document.health, [(one.kind, one.ranks, one.waiting) for one in document.faults]


@each(
    ("name", "health", "faults", "said"),
    [
        ("missing", "failed", [("missing", [2], [0, 1, 3])], "rank 2 did not call all_reduce of 1024 Float"),
        ("mismatch", "failed", [("mismatch", [], [0, 1, 2, 3])], "rank 2 calls all_gather of 1024 Float"),
        ("mismatch", "failed", [("mismatch", [], [0, 1, 2, 3])], "which no dump lists: is it rank 2?"),
        ("dtype", "failed", [("mismatch", [], [])], "rank 2 calls all_reduce of 1024 Int; ranks 0, 1 and 3"),
        ("healthy", "unknown", [], "they do not list the ranks of all groups"),
    ],
)
def test_real_jobs_of_gloo(name: str, health: str, faults: list[Any], said: str) -> None:
    """torchfrtrace ends with a KeyError on these: gloo writes no ranks of its groups."""
    document = judged(real(name))
    assert short(document) == (health, faults)
    assert said in document.why
    assert any("do not list the ranks" in remark for remark in document.remarks)


def rows() -> Iterator[tuple[str, FlightJob, str, list[tuple[str, list[int], list[int]]]]]:
    yield "healthy", world(), "ok", []
    yield "missing", waits(world(), (0, 1, 3), seq=4), "failed", [("missing", [2], [0, 1, 3])]
    two = waits(world(), (0, 3), seq=4)
    yield "two missing", two, "failed", [("missing", [1, 2], [0, 3])]
    for given_here in ({"op": "all_gather"}, {"sizes": ((512, 4),)}, {"dtype": "Int"}, {"out": ((7,),)}):
        job = waits(waits(world(), (0, 1, 3), seq=4), (2,), seq=4, **given_here)
        yield f"{given_here}", job, "failed", [("mismatch", [2], [0, 1, 2, 3])]
    tie = waits(waits(world(), (0, 1), seq=4), (2, 3), seq=4, op="all_gather")
    yield "two against two", tie, "failed", [("mismatch", [], [0, 1, 2, 3])]
    yield "all stand", waits(world(), range(4), seq=4), "unknown", [("standing", [], [0, 1, 2, 3])]
    late = waits(world(), range(4), seq=4, retired=True)
    yield "its time-out passed", late, "failed", [("standing", [], [0, 1, 2, 3])]
    reshaped = waits(waits(world(), (0, 1, 3), seq=4), (2,), seq=4, sizes=((4, 1024),))
    yield "other shape, as many elements", reshaped, "unknown", [("standing", [], [0, 1, 2, 3])]
    for op, side in (
        ("scatter", "sizes"),
        ("gather", "out"),
        ("all_to_all", "sizes"),
        ("all_gather_v", "out"),
    ):
        job = waits(waits(world(), (0, 1, 3), seq=4, op=op), (2,), seq=4, op=op, **{side: ()})
        if side == "sizes":
            job.calls[2][-1].out = ((1024, 4),)
        yield f"{op} of a root", job, "unknown", [("standing", [], [0, 1, 2, 3])]
    ahead = waits(waits(world(), (0, 1, 3), seq=4), (0, 1), seq=5)
    yield "several queued", ahead, "failed", [("missing", [2], [0, 1, 3])]
    # A rank whose own part is not seen as complete, while another's is: all have come to it.
    seen = waits(waits(world(), (0,), seq=4, state="completed"), (1, 2, 3), seq=4)
    yield "completed on a rank", waits(seen, (0,), seq=5), "failed", [("missing", [1, 2, 3], [0])]
    ring = mesh()
    for rank, group in ((0, "1"), (1, "4"), (3, "2"), (2, "3")):
        waits(ring, (rank,), group=group)
    yield "opposite orders", ring, "failed", [
        ("deadlock", [0, 1, 2, 3], [0, 1, 2, 3]), ("missing", [1], [0]), ("missing", [0], [2]),
        ("missing", [3], [1]), ("missing", [2], [3]),
    ]  # fmt: skip
    chain = waits(waits(mesh(), (0,), group="1", after=5.0), (1,), group="4")
    yield "inherited", chain, "failed", [("missing", [3], [1]), ("missing", [1], [0])]


ROWS = list(rows())


@each(("job", "health", "faults"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_the_dumps_of_all_ranks_show(job: FlightJob, health: str, faults: list[Any]) -> None:
    """The same names as torchfrtrace gives where it gives any; see docs/parse.md."""
    document = judged(job.read())
    found = short(document)
    assert (found[0], sorted(found[1][1:]), found[1][:1]) == (health, sorted(faults[1:]), faults[:1])
    assert len(document.why.splitlines()) == 1


def test_the_text_has_the_call_the_group_since_when_and_the_line() -> None:
    document = judged(waits(world(), (0, 1, 3), seq=4).read(hosts={0: "n0", 1: "n0", 2: "n1", 3: "n1"}))
    assert document.why == (
        "rank 2 (n1, GPU 0) did not call all_reduce of 4096 Float, number 4 of group 0 (default_pg), in "
        f"which ranks 0 (n0, GPU 0), 1 (n0, GPU 1) and 3 (n1, GPU 1) wait since {SINCE}; rank 2: its last "
        "call was at /job/train.py:43"
    )
    assert [(one.gpu, one.where) for one in document.ranks][2] == (0, "/job/train.py:43")
    assert document.ranks[0].waits == "all_reduce of 4096 Float, number 4 of group 0, started"
    assert document.groups[0].reached == {"0": 4, "1": 4, "2": 3, "3": 4}


@each("hosts", [{0: "a"}, {0: "a", 1: "b", 2: "b", 3: "a"}, {0: "a", 1: "a", 2: "a", 3: "b"}, {}])
def test_gpus_are_not_numbered_where_hosts_do_not_have_a_row_of_ranks_each(hosts: dict[int, str]) -> None:
    assert {one.gpu for one in judged(world().read(hosts=hosts)).ranks} == {None}


def test_a_rank_without_a_dump_is_never_named() -> None:
    job = waits(world(), (0, 1), seq=4)
    document = judged(job.read(0, 1))
    assert short(document) == ("unknown", [("standing", [], [0, 1])])
    assert document.no_dump == [2, 3]
    assert "all of them called it alike" in document.why
    assert document.why.endswith("ranks 2 and 3 left no dump, which shows nothing")
    (third,) = judged(job.read(0, 1, 2)).faults
    assert (third.kind, third.ranks, third.no_dump) == ("missing", [2], [3])
    quiet = judged(world().read(0, 1))
    assert (quiet.health, quiet.why) == (
        "unknown", "nobody waits for another in these dumps, but ranks 2 and 3 left no dump"
    )  # fmt: skip


def test_a_full_buffer_without_the_group_shows_nothing_of_it() -> None:
    """Without the full buffer the same dump shows that the rank did not call it."""
    for first, kind in ((2000, "standing"), (0, "missing")):
        job = waits(mesh(), (0,), group="1")
        job.first = first
        document = judged(job.read())
        assert [one.kind for one in document.faults] == [kind]
        assert any("was full" in remark for remark in document.remarks) == (first > 0)
        assert ("no longer shows it" in document.why) == (first > 0)


def test_a_full_buffer_whose_newest_call_of_the_group_is_older_shows_that_it_is_missing() -> None:
    job = waits(world(), (0, 1, 3), seq=4)
    job.first = 2000
    assert short(judged(job.read()))[1] == [("missing", [2], [0, 1, 3])]


def test_a_dump_with_gaps_names_nobody() -> None:
    """TORCH_INCLUDE_ONLY_ACTIVE leaves complete calls out."""
    job = waits(world(), (0, 1, 3), seq=4)
    dumps = job.read()
    gaps = [dataclasses.replace(dump, gaps=True) for dump in dumps]
    document = judged(gaps)
    assert short(document) == ("unknown", [("standing", [], [0, 1, 3])])
    assert any("lacks calls or fields" in remark for remark in document.remarks)


def test_a_rank_whose_dump_is_older_than_what_others_completed_is_not_blamed_for_their_wait() -> None:
    """It must have taken part in what they have completed, so that its dump is of an earlier moment."""
    job = waits(world(done=5), [0, 1, 3], seq=6)
    (fault,) = judged(job.read()).faults
    assert fault.ranks == [2]
    del job.calls[2][2:]
    older = judged(job.read())
    assert all(2 not in one.ranks for one in older.faults)


def test_an_older_dump_is_not_called_missing() -> None:
    job = world()
    job.calls[2].pop()
    document = judged(job.read())
    assert short(document) == ("unknown", [])
    (remark,) = document.remarks
    assert remark.startswith(
        "rank 2 ends before number 3 of group 0 (default_pg), which others have complete"
    )


@each(
    ("calls", "health", "named"),
    [
        ({0: "send 0->1"}, "failed", [1]),
        ({1: "recv 1<-0"}, "failed", [0]),
        ({0: "send 0->1", 1: "recv 1<-0"}, "unknown", None),
        ({0: "recv 0<-1", 2: "send 2->0"}, "failed", [1]),
        ({0: "send 0->9"}, "unknown", None),
        ({0: "send 0-1"}, "unknown", None),
        ({0: "send 1->0"}, "unknown", None),
        ({0: "send 0->0"}, "unknown", None),
        ({0: "send 0->99999999999999999999"}, "unknown", None),
    ],
)
def test_messages_that_wait_alone(calls: Mapping[int, str], health: str, named: list[int] | None) -> None:
    job = world()
    for rank, op in calls.items():
        waits(job, (rank,), op=op, seq=3, p2p=True, p2p_seq=1)
    document = judged(job.read())
    assert document.health == health
    assert [one.ranks for one in document.faults][:1] == ([] if named is None else [named])


def test_messages_of_different_sizes_name_no_side() -> None:
    job = waits(waits(world(), (0,), op="send 0->1", p2p=True), (1,), op="recv 1<-0", p2p=True, out=((7,),))
    (fault,) = judged(job.read()).faults
    assert (fault.kind, fault.ranks) == ("message", [])
    assert "rank 0 sends 4096 Float to rank 1, which receives 7 Float" in fault.text
    assert judged(job.read(0)).faults == []
    world_over = judged(world().read())
    assert (world_over.health, world_over.faults) == ("ok", [])


def test_ranks_of_messages_are_the_groups() -> None:
    """NCCL's process group numbers them by their place in it."""
    (fault,) = judged(waits(mesh(), (2,), group="2", op="send 0->1", p2p=True).read()).faults
    assert (fault.group, fault.ranks, fault.waiting) == ("2", [3], [2])


def test_groups_that_share_a_name_stay_apart() -> None:
    """Groups that were split have one name, and different ranks."""
    job = mesh()
    dumps = job.read(0, 1) + FlightJob({"1": ("TP", (2, 3))}, {2: [Made("1", 9)], 3: [Made("1", 9)]}).read()
    waiting = waits(job, (0,), group="1").read(0)[0]
    document = judged([waiting, *dumps[1:]])
    assert [(one.name, one.ranks) for one in document.groups if one.name == "1"] == [
        ("1", [0, 1]), ("1", [2, 3])
    ]  # fmt: skip
    assert [(one.kind, one.ranks) for one in document.faults] == [("missing", [1])]


@each(
    ("versions", "said"),
    [
        (("2.10",), ""),
        (("2.4",), ""),
        (("2.4", "2.10"), "the dumps have different formats: 2.10, 2.4"),
        (("3.0",), "format 3.0: known are 2.4 to 2.10"),
        (("2.11", "2.10"), "known are 2.4 to 2.10"),
    ],
)
def test_formats_that_are_not_known_are_said(versions: Sequence[str], said: str) -> None:
    dumps = []
    for rank in range(4):
        job = world()
        job.version = versions[rank % len(versions)]
        dumps += job.read(rank)
    document = judged(dumps)
    found = [remark for remark in document.remarks if "format" in remark]
    assert len(found) == bool(said)
    assert all(said in remark for remark in found)
    strange = set(versions) - FORMATS
    assert document.health == ("unknown" if strange else "ok")
    assert document.why.startswith(
        tuple(f"format {one} is not known, so this" for one in strange) or "nobody"
    )


def test_a_fault_in_a_format_that_is_not_known_is_told_as_not_known() -> None:
    job = waits(world(), (0, 1, 3), seq=4)
    assert judged(job.read()).health == "failed"
    job.version = "2.11"
    document = judged(job.read())
    assert short(document) == ("unknown", [("missing", [2], [0, 1, 3])])
    assert document.why.startswith("format 2.11 is not known, so this may be wrong: rank 2 did not call")


def test_a_file_that_is_not_read_leaves_the_verdict_open() -> None:
    document = judged(world().read(), "f: it stops in the middle")
    assert (document.health, document.why) == (
        "unknown", "nobody waits for another in these dumps, but f: it stops in the middle"
    )  # fmt: skip
    assert judged([]).why == "nobody waits for another in these dumps, but nothing can be compared"


def messages(sent: str, received: str, *, lost: bool = False) -> FlightJob:
    """A job in which rank 0 sends to rank 1, with one letter for each call: `c`ompleted or `w`aiting."""
    job = world()
    job.first = 2000 if lost else 0
    for rank, op, states in ((0, "send 0->1", sent), (1, "recv 1<-0", received)):
        for n, letter in enumerate(states, 1):
            state = {"c": "completed", "w": "started"}[letter]
            waits(job, (rank,), op=op, seq=3, p2p=True, p2p_seq=n, state=state)
    return job


@each(
    ("sent", "received", "named"),
    [
        ("c", "w", None), ("w", "c", None), ("ccc", "cww", None), ("c", "cw", [0]), ("cw", "c", [1]),
        ("", "w", [0]), ("cw", "ccw", None), ("cc", "cc", None), ("c", "", None), ("ccw", "", [1]),
    ],
)  # fmt: skip
def test_a_message_waits_for_the_call_of_its_place_and_a_completed_call_is_not_blamed(
    sent: str, received: str, named: list[int] | None
) -> None:
    document = judged(messages(sent, received).read())
    assert [one.ranks for one in document.faults] == ([] if named is None else [named])
    whole = (sent, received) == ("cc", "cc")
    assert document.health == ("ok" if whole else "unknown" if named is None else "failed")


@each(("sent", "received"), [("c", "w"), ("w", "c"), ("", "w"), ("cc", "ccw"), ("w", "ccw")])
def test_messages_whose_older_calls_are_gone_name_nobody(sent: str, received: str) -> None:
    gaps = [dataclasses.replace(dump, gaps=True) for dump in messages(sent, received).read()]
    for document in (judged(messages(sent, received, lost=True).read()), judged(gaps)):
        assert (document.health, document.faults) == ("unknown", [])


def test_messages_of_different_sizes_are_compared_by_their_place() -> None:
    job = messages("ccw", "ccw")
    job.calls[0][-1].sizes = ((7,),)
    assert ["sends 7 Float" in one.text for one in judged(job.read()).faults] == [True]
    job.calls[0][-1], job.calls[0][-2] = job.calls[0][-2], job.calls[0][-1]
    job.calls[0][-1].state = job.calls[0][-2].state = "started"
    assert ["receives 4096 Float" in one.text for one in judged(job.read()).faults] == [True]


@each(
    ("size", "most", "odd", "named", "said"),
    [
        (4, (0, 1, 3), (2,), [2], "the ranks of group 0 (default_pg) do not make the same call 4"),
        (5, (0, 1, 3), (2,), [2], "the ranks with dumps of group 0"),
        (6, (0, 1, 3), (2,), [], "not known is the call of more than half of its 6 ranks: is it rank 2?"),
        (8, (0, 1, 3), (2,), [], "the ranks with dumps of group 0"),
        (4, (0, 1), (2,), [], "is it rank 2?"),
        (8, (0, 1), (2, 3), [], "neither side is the larger one"),
    ],
)  # fmt: skip
def test_a_minority_is_named_only_where_it_is_one_among_all_ranks_of_the_group(
    size: int, most: Sequence[int], odd: Sequence[int], named: list[int], said: str
) -> None:
    """Rank 4 and those after it left no dump, and may have made either call."""
    job = waits(waits(world(size), most, seq=4), odd, seq=4, op="all_gather")
    (fault,) = judged(job.read(0, 1, 2, 3)).faults
    assert (fault.kind, fault.ranks) == ("mismatch", named)
    assert said in fault.text


def test_two_different_minorities_that_are_half_of_the_ranks_are_not_named() -> None:
    job = waits(waits(world(), (0, 1), seq=4), (2,), seq=4, op="all_gather")
    (fault,) = judged(waits(job, (3,), seq=4, op="barrier").read()).faults
    assert (fault.ranks, "is it ranks 2 and 3?" in fault.text) == ([], True)


def without(job: FlightJob, lacking: Sequence[int], *names: str) -> list[RankDump]:
    """The job's dumps, in which the calls of some ranks lack fields."""
    dumps = []
    for rank in job.calls:
        dump = job.dump(rank)
        for entry in dump["entries"] if rank in lacking else ():
            for name in names:
                del entry[name]
        dumps.append(read_dump(json.dumps(dump).encode(), rank, "", f"{rank}"))
    return dumps


FIELDS = (
    "input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "profiling_name", "state",
    "process_group", "record_id",
)  # fmt: skip


@each("name", FIELDS)
def test_a_field_that_a_dump_lacks_is_no_mismatch_and_blames_nobody(name: str) -> None:
    for done in (1, 3):
        healthy = judged(without(world(done=done), (2,), name))
        assert (healthy.health, healthy.faults) == ("unknown", [])
    waiting = judged(without(waits(world(), range(4), seq=4), (2,), name))
    assert {(one.kind, *one.ranks) for one in waiting.faults} == {("standing",)}
    assert any("rank 2 lacks calls or fields" in remark for remark in waiting.remarks)


def test_what_dumps_do_not_lack_is_compared() -> None:
    job = waits(waits(world(), (0, 1, 3), seq=4), (2,), seq=4, op="all_gather", out=((7,),))
    for name in ("input_sizes", "output_sizes", "input_dtypes"):
        (fault,) = judged(without(job, (2, 3), name)).faults
        assert (fault.kind, fault.ranks) == ("mismatch", [2])
    (fault,) = judged(without(job, (1,), "output_sizes", "profiling_name")).faults
    assert fault.ranks == []


def test_a_dump_without_entries_shows_nothing() -> None:
    job = waits(world(done=0), (0, 1, 3), seq=1)
    dumps = [job.dump(rank) for rank in range(4)]
    for kind, ranks in (("missing", [2]), ("standing", [])):
        read = [read_dump(pickle.dumps(one, 2), rank, "", "f") for rank, one in enumerate(dumps)]
        assert short(judged(read))[1] == [(kind, ranks, [0, 1, 3])]
        dumps[2].pop("entries", None)


def test_a_group_whose_ranks_a_dump_lacks_is_the_one_that_others_list() -> None:
    job = waits(world(), range(4), seq=4)
    dumps = [job.dump(rank) for rank in range(4)]
    del dumps[2]["pg_config"]["0"]["ranks"]
    document = judged([read_dump(pickle.dumps(one, 2), rank, "", "f") for rank, one in enumerate(dumps)])
    assert short(document) == ("unknown", [("standing", [], [0, 1, 2, 3])])
    assert len(document.groups) == 1
    split = FlightJob({"1": ("TP", (0, 2))}, {0: [Made("1")]}).read()
    split += FlightJob({"1": ("TP", (1, 2))}, {1: [Made("1")], 2: [Made("1")]}).read()
    split[2] = dataclasses.replace(split[2], groups={})
    assert [one.ranks for one in judged(split).groups] == [[0, 2], [1, 2], [2]]


def test_a_dump_under_the_number_of_a_rank_that_is_not_in_its_groups_is_not_judged_as_that_rank() -> None:
    job = waits(world(), (0,), seq=4, op="all_gather")
    (stranger,) = job.read(0)
    document = judged([*world().read(), dataclasses.replace(stranger, rank=9)])
    assert (document.health, document.faults[0].ranks, document.groups[0].ranks) == (
        "unknown",
        [],
        [0, 1, 2, 3],
    )


def test_a_broadcast_that_its_root_has_completed_does_not_excuse_a_rank_that_did_not_call_it() -> None:
    """The root goes on before others come; what an all_reduce completes, all have called."""
    for op, kind, ranks in (("broadcast", "missing", [3]), ("all_reduce", "standing", [])):
        job = waits(world(), (0,), seq=4, op=op, state="completed")
        assert short(judged(waits(job, (1, 2), seq=4, op=op).read()))[1] == [(kind, ranks, [1, 2])]


@each("root", [Made(seq=4, op="broadcast"), Made("1", 1, "broadcast")])
def test_a_root_alone_is_not_called_well(root: Made) -> None:
    for others in (3, 2, 1):
        job = FlightJob(MESH, {rank: [Made(seq=n) for n in range(1, 4)] for rank in range(4)})
        job.calls[0].append(root)
        assert judged(job.read(*range(others + 1))).health == "unknown"
        assert judged(job.read(0)).health == "unknown"
    alone = FlightJob(
        {"0": ("default_pg", (0, 1))}, {0: [Made(seq=1, op="broadcast"), Made(seq=2)], 1: [Made(seq=2)]}
    )
    assert judged(alone.read()).health == "unknown"


def test_calls_that_share_a_number_may_be_cut_where_a_dump_begins_or_ends() -> None:
    both = [Made(seq=3, op="all_gather"), Made(seq=3, op="broadcast"), Made(seq=3, op="coalesced")]
    calls = {rank: [*both, Made(seq=4)] for rank in range(4)}
    job = FlightJob({"0": ("default_pg", (0, 1, 2, 3))}, calls)
    assert judged(job.read()).faults == []
    job.first, job.calls[2] = 2000, calls[2][1:]
    assert judged(job.read()).faults == []
    dumps = job.read()
    dumps[2] = dataclasses.replace(dumps[2], lost=False, gaps=True)
    assert judged(dumps).faults == []
    short_of = [Made(seq=2), *calls[0][1:]], [*calls[0][:1], calls[0][3]], calls[0][1:]
    for job.first, job.calls[2] in zip((2000, 0, 0), short_of, strict=True):
        assert [one.ranks for one in judged(job.read()).faults] == [[2]]
    job.calls = dict.fromkeys(range(4), calls[0][:3]) | {2: calls[0][:1]}
    assert [one.kind for one in judged(job.read()).faults] == []
    job.calls[2] = calls[0][1:2]
    assert [one.ranks for one in judged(job.read()).faults] == [[2]]


_CALLS = st.lists(
    st.builds(
        Made, st.sampled_from(list(MESH)), st.integers(0, 4),
        st.sampled_from(["all_reduce", "all_gather", "send 0->1", "recv 1<-0", "coalesced", "barrier"]),
        st.just(((4,),)), st.sampled_from(["Float", "Int"]),
        st.sampled_from(["scheduled", "started", "completed", "?"]), st.booleans(), st.integers(0, 2),
        st.booleans(), st.floats(0, 9),
    ),
    max_size=6,
)  # fmt: skip


@settings(max_examples=examples(2000))
@given(st.dictionaries(st.integers(0, 3), _CALLS))
def test_any_calls_have_a_verdict_that_names_only_ranks_with_dumps(calls: dict[int, list[Made]]) -> None:
    job = FlightJob(MESH, calls)
    document = judged([dump for rank in calls for dump in job.read(rank)])
    for fault in document.faults:
        assert set(fault.ranks) | set(fault.waiting) <= set(calls)
        assert not set(fault.no_dump) & set(calls)
    assert (document.health == "ok") <= (not document.faults and set(calls) == {0, 1, 2, 3})


@pytest.mark.parametrize("ranks", [256])
def test_a_large_job(ranks: int) -> None:
    job = waits(world(ranks, done=40), [rank for rank in range(ranks) if rank != 77], seq=41)
    document = judged(job.read())
    assert short(document)[1][0][1] == [77]
    assert "and 247 more" in document.why
