"""Who has launched what: each rule of a mismatch, of a circle and of the job's own ranks alone."""

from collections.abc import Mapping, Sequence

import pytest

from tests.node.jobs.ras.reports import HOST
from wirewatch.core.jobs import RasCommunicator, RasCrowd, RasRank, RasReport
from wirewatch.jobs.hangs.launches import launches, mismatch, world_ranks

Counts = Mapping[str, int]


def comm(name: str, *counts: Counts, pids: Sequence[int] = (), listed: bool = True) -> RasCommunicator:
    """A communicator whose ranks have launched so much, of the processes 900, 901 and so on."""
    known = pids or range(900, 900 + len(counts))
    ranks = tuple(
        RasRank(number, HOST, pid, number, number, some)
        for number, (pid, some) in enumerate(zip(known, counts, strict=True))
    )
    return RasCommunicator(name, "0x1:0x2", len(counts), ranks, listed=listed)


def report(*comms: RasCommunicator) -> RasReport:
    return RasReport("2.28.9", comms, 0.01)


def ops(reduced: int, gathered: int) -> Counts:
    return {"all_reduce": reduced, "all_gather": gathered}


MOST, ODD = ops(201, 100), ops(200, 101)


@pytest.mark.parametrize(
    ("guard", "counts", "groups", "few"),
    [
        ("one of eight calls another operation", [MOST] * 5 + [ODD] + [MOST] * 2,
         [[0, 1, 2, 3, 4, 6, 7], [5]], [[5]]),
        ("three of eight do", [MOST] * 5 + [ODD] * 3, [[0, 1, 2, 3, 4], [5, 6, 7]], [[5, 6, 7]]),
        ("half of them do: nobody is named", [MOST] * 4 + [ODD] * 4, [[0, 1, 2, 3], [4, 5, 6, 7]], []),
        ("one of two does: nobody is named", [MOST, ODD], [[0], [1]], []),
        ("others ran ahead by different numbers", [ops(201 + n, 100) for n in range(7)] + [ODD],
         [[0], [1], [2], [3], [4], [5], [6], [7]], [[7]]),
        ("three parts, each against the others", [ops(9, 1)] * 3 + [ops(8, 2)] * 3 + [ops(7, 3)] * 2,
         [[0, 1, 2], [3, 4, 5], [6, 7]], []),
        ("half are against two, and two are behind all", [MOST] * 4 + [ODD] * 2 + [ops(200, 100)] * 2,
         [[0, 1, 2, 3], [4, 5]], []),
        ("one is behind in both", [MOST] * 7 + [ops(200, 99)], None, None),
        ("one is behind in one, and level in the other", [MOST] * 7 + [ops(200, 100)], None, None),
        ("all are equal", [MOST] * 8, None, None),
        ("an operation that only one counts", [{"all_reduce": 5}, {"all_reduce": 4, "all_gather": 9}],
         None, None),
        ("of one no counts are known", [MOST] * 7 + [{}], None, None),
        ("more groups than are compared", [ops(n, 99 - n) for n in range(65)], None, None),
        ("as many as are compared", [ops(n, 99 - n) for n in range(64)], [[n] for n in range(64)], []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_rule_alone_decides_what_is_a_mismatch_and_who_is_few(
    guard: str, counts: Sequence[Counts], groups: list[list[int]] | None, few: list[list[int]] | None
) -> None:
    found = mismatch(report(comm("0xa", MOST, MOST), comm("0xb", *counts)))
    if groups is None:
        assert found is None, guard
        return
    assert found is not None, guard
    assert found.communicator.hash == "0xb"
    assert [[rank.rank for rank in one.ranks] for one in found.groups] == groups, guard
    assert [[rank.rank for rank in one.ranks] for one in found.few] == few, guard


def test_a_group_s_operations_are_those_in_which_it_is_ahead() -> None:
    found = mismatch(report(comm("0xb", MOST, MOST, ODD)))
    assert found is not None
    assert [one.ops for one in found.groups] == [("all_reduce",), ("all_gather",)]


LATER, SOONER = {"all_reduce": 6}, {"all_reduce": 5}


@pytest.mark.parametrize(
    ("guard", "comms", "circle"),
    [
        ("two communicators in opposite order", [comm("0xa", LATER, SOONER), comm("0xb", SOONER, LATER)],
         [(1, "0xb", 0), (0, "0xa", 1)]),
        ("three in a ring", [
            comm("0xa", LATER, SOONER, pids=(900, 901)), comm("0xb", LATER, SOONER, pids=(901, 902)),
            comm("0xc", LATER, SOONER, pids=(902, 900)),
        ], [(0, "0xb", 1), (0, "0xc", 1), (0, "0xa", 1)]),
        ("a rank outside the circle waits for it", [
            comm("0xw", LATER, SOONER, pids=(904, 905)), comm("0x1", LATER, SOONER, pids=(905, 900)),
            comm("0xa", LATER, SOONER), comm("0xb", SOONER, LATER),
        ], [(0, "0xa", 1), (1, "0xb", 0)]),
        ("one of them waits for nobody", [comm("0xa", LATER, SOONER), comm("0xb", SOONER, SOONER)], []),
        ("the process of one is not known",
         [comm("0xa", LATER, SOONER, pids=(900, -1)), comm("0xb", SOONER, LATER, pids=(900, -1))], []),
        ("nobody is behind", [comm("0xa", LATER, LATER)], []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_rule_alone_decides_whether_ranks_wait_in_a_circle(
    guard: str, comms: Sequence[RasCommunicator], circle: list[tuple[int, str, int]]
) -> None:
    edges = launches(report(*comms)).cycle()
    assert [(one.waits.rank, one.communicator.hash, one.waited.rank) for one in edges] == circle, guard


def test_a_rank_that_is_not_listed_ends_a_circle() -> None:
    """The text of an old NCCL lists only ranks that stand out."""
    late = RasRank(0, HOST, 900, 0, 0, {"all_reduce": 5, "broadcast": 1})
    crowds = (RasCrowd("all_reduce", 7, 6), RasCrowd("broadcast", 7, 0))
    found = launches(report(RasCommunicator("0xa", "", 8, (late,), crowds, listed=False)))
    assert (list(found.behind), found.roots, found.cycle()) == ([(HOST, 900)], [], ())


@pytest.mark.parametrize(
    ("guard", "comms", "ranks"),
    [
        ("that of a communicator of all", [comm("0xt", SOONER, SOONER, pids=(902, 903)),
                                           comm("0xw", *[SOONER] * 4)], {900: 0, 901: 1, 902: 2, 903: 3}),
        ("there is none of all", [comm("0xt", SOONER, SOONER, pids=(900, 901)),
                                  comm("0xu", SOONER, SOONER, pids=(902, 903))], {}),
        ("its ranks are not all listed", [comm("0xw", SOONER, SOONER, listed=False)], {}),
        ("a job of one", [comm("0xw", SOONER)], {}),
        ("no process is known", [comm("0xw", SOONER, SOONER, pids=(-1, -1))], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_rule_alone_decides_the_job_s_own_ranks(
    guard: str, comms: Sequence[RasCommunicator], ranks: Mapping[int, int]
) -> None:
    assert world_ranks(report(*comms)) == {(HOST, pid): rank for pid, rank in ranks.items()}, guard
