"""Each guard of tracing alone: what a process's records show of the time between two collectives."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.node.jobs.ringjobs import uuid
from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingState, TimedCollective
from wirewatch.jobs.running.grouping import RingGroup, ring_groups
from wirewatch.jobs.running.join import RankRecords, join
from wirewatch.jobs.running.model import (
    CommunicatorKey,
    CommunicatorMemory,
    JoinedCollective,
    ProcessKey,
    ProcessSpan,
    RingProgress,
)
from wirewatch.jobs.running.trace import ProcessTimeline, Tracer
from wirewatch.jobs.times import ELSEWHERE

ONE, TWO = ("user:1", 1), ("user:1", 2)
MANY = {"all_reduce": 1000}
Times = tuple[int, float, float]
"""Number, start and end."""


def call(number: int, start: float, end: float) -> TimedCollective:
    return TimedCollective(
        number + 1, "all_reduce", number, 1 << 26, "bfloat16", "RING", "SIMPLE", 24, end - start, start, end,
        start,
    )  # fmt: skip


def line(
    *calls: tuple[CommunicatorKey, int, float, float], known: Sequence[ProcessSpan] = ()
) -> ProcessTimeline:
    return ProcessTimeline(known, [(key, call(number, start, end)) for key, number, start, end in calls])


FRONT = (ONE, "all_reduce", 1)
OWN = [(ONE, 0, 0.0, 1.0), (ONE, 1, 2.0, 3.0), (ONE, 2, 8.0, 9.0)]


@pytest.mark.parametrize(
    ("guard", "others", "often", "whole"),
    [
        ("nothing else", [], (), True),
        ("each call of the other", [(TWO, 4, 0.5, 0.6), (TWO, 5, 4.0, 5.0), (TWO, 6, 9.1, 9.2)], (), True),
        ("one is missing in between", [(TWO, 4, 0.5, 0.6), (TWO, 6, 4.0, 5.0)], (), False),
        ("one is missing, and the next is after it", [(TWO, 4, 0.5, 0.6), (TWO, 6, 9.1, 9.2)], (), False),
        ("one is missing since before its own timing", [(TWO, 4, -2.0, -1.0), (TWO, 6, 4.0, 5.0)], (), True),
        ("one is missing before", [(TWO, 4, 0.5, 0.6), (TWO, 6, 2.5, 2.6), (TWO, 7, 4.0, 5.0)], (), True),
        ("one is missing after", [(TWO, 4, 0.5, 0.6), (TWO, 5, 8.5, 8.6), (TWO, 7, 9.0, 9.5)], (), True),
        ("the first record of the other one is after its own", [(TWO, 6, 4.0, 5.0)], (), False),
        ("a frequent one has no record since", [(TWO, 4, 0.5, 0.6)], (TWO,), False),
        ("a rare one has none", [(TWO, 4, 0.5, 0.6)], (), True),
        ("a frequent one has one since", [(TWO, 4, 0.5, 0.6), (TWO, 5, 9.0, 9.5)], (TWO,), True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_whether_all_of_an_interval_is_seen(
    guard: str, others: Sequence[tuple[CommunicatorKey, int, float, float]],
    often: Sequence[CommunicatorKey], whole: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    assert line(*OWN, *others).is_whole(FRONT, 3.0, 8.0, often) is whole, guard


def test_what_goes_on_beside_the_next_collective_does_not_hold_it_up() -> None:
    found = line(*OWN, (TWO, 0, 2.5, 2.9), (TWO, 1, 4.0, 5.0), (TWO, 2, 7.0, 8.5)).between(ONE, 3.0, 8.0)
    assert [one.key[2] for one in found] == [1]


def test_a_process_keeps_what_the_next_poll_needs() -> None:
    made = line(*OWN, (TWO, 0, 4.0, 5.0), (TWO, 1, 9.5, 9.6), (TWO, 2, 9.7, 9.8))
    assert [one.key for one in made.newest({ONE, TWO}, 99)] == [
        (ONE, "all_reduce", 2), (TWO, "all_reduce", 1), (TWO, "all_reduce", 2),
    ]  # fmt: skip
    assert [one.key[0] for one in made.newest({TWO}, 99)] == [ONE, TWO], "of one that is idle the last alone"
    assert len(made.newest({ONE, TWO}, 1)) == 2
    again = line((TWO, 4, 10.0, 11.0), (ONE, 3, 12.0, 13.0), known=made.newest({ONE, TWO}, 99))
    assert again.is_whole((ONE, "all_reduce", 2), 9.0, 12.0) is False, "number 3 of the other one is missing"
    assert [one.since for one in again.spans if one.key[0] == ONE] == [0.0, 0.0]


def ring(communicator: int, rank: int, ranks: int, process: int, nodes: int = 1) -> Ring:
    return Ring(
        name=f"{process}-{communicator}", communicator=communicator, ranks=ranks, rank=rank, nodes=nodes,
        gpu=uuid(process), pid=process, host_pid=process, uid=1, created=0.0, state=RingState.LIVE,
        counts=RingCounts(), on=1.0, period=1.0,
    )  # fmt: skip


Drawn = Mapping[tuple[int, int], Sequence[Times]]
"""By communicator and process its calls."""


def tracer(
    drawn: Drawn, nodes: Mapping[int, int] | None = None, sends: int = 0, source: str = ""
) -> tuple[Tracer, dict[CommunicatorKey, RingGroup]]:
    members: dict[int, list[int]] = {}
    for communicator, process in drawn:
        members.setdefault(communicator, []).append(process)
    readings = []
    for (communicator, process), calls in drawn.items():
        mine, over = members[communicator], (nodes or {}).get(communicator, 1)
        made = ring(communicator, mine.index(process), len(mine) * over, process, over)
        found = tuple(call(*one) for one in calls)
        readings.append(RingReading(replace(made, source=source), found))
    groups = {group.key: group for group in ring_groups(readings)[0]}
    complete = {
        key: join(
            CommunicatorMemory(), tuple(RankRecords(one.ring.rank, one.calls) for one in group.rings),
            group.shape.here, 1,
        )
        for key, group in groups.items()
    }  # fmt: skip
    rings = {one.ring.name: RingProgress(calls=MANY, sends=sends) for one in readings}
    known: dict[ProcessKey, Sequence[ProcessSpan]] = {}
    return Tracer(groups, complete, rings, known), groups


def traced(drawn: Drawn, communicator: int = 1, **but: object) -> list[JoinedCollective]:
    made, groups = tracer(drawn, **but)  # type: ignore[arg-type]
    return made.traced(next(key for key in groups if key[1] == communicator))


HELD: Drawn = {
    (1, 0): [(0, -2.0, 1.0), (1, 3.0, 10.0), (2, 11.0, 12.0)],
    (1, 1): [(0, 98.0, 101.0), (1, 109.0, 110.0), (2, 111.0, 112.0)],
    (2, 1): [(0, 99.0, 99.5), (1, 102.0, 108.0), (2, 111.1, 111.2)],
    (2, 2): [(0, 209.0, 209.5), (1, 217.0, 218.0), (2, 221.1, 221.2)],
}
"""Process 1 came 6 s late to its second collective with process 0, since it waited 5 s for process 2."""


def test_who_waited_in_another_communicator_is_not_late_and_its_cause_is() -> None:
    _, held, _ = traced(HELD)
    assert held.seconds == {0: 7.0, 1: 1.0}
    assert held.own == {0: 1.0, 1: 1.0}, "both computed two seconds"
    assert held.causes is not None
    assert held.causes[uuid(1)] == 0.0
    assert held.causes[uuid(2)] == pytest.approx(5 / 6), "one second was on the wire"


def test_own_time_is_a_rank_s_own_lateness() -> None:
    """Of six seconds five were its own, in front of a collective of one second with process 2."""
    own = {**HELD, (2, 1): [(0, 99.0, 99.5), (1, 107.0, 108.0), (2, 111.1, 111.2)]}
    _, held, _ = traced(own)
    assert held.own == {0: 6.0, 1: 1.0}
    assert held.causes is not None
    assert held.causes[uuid(1)] == pytest.approx(5 / 6)
    assert held.before == pytest.approx(4.5), "the mean of what they computed"


def test_a_rank_is_late_at_most_by_what_is_waited_for_it() -> None:
    """Process 1 computed for longer, and others were held up as long: nobody waited for it."""
    even = {
        (1, 0): [(0, 0.0, 1.0), (1, 9.0, 10.0)],
        (1, 1): [(0, 100.0, 101.0), (1, 109.0, 110.0)],
        (2, 0): [(0, -1.0, -0.5), (1, 2.0, 8.0), (2, 9.1, 9.2)],
        (2, 2): [(0, 99.0, 99.5), (1, 107.0, 108.0), (2, 109.1, 109.2)],
        (3, 1): [(0, 99.0, 99.5), (1, 102.0, 102.1), (2, 109.1, 109.2)],
        (3, 3): [(0, 99.0, 99.5), (1, 102.0, 102.1), (2, 109.1, 109.2)],
    }
    assert traced(even)[1].own == {0: 1.0, 1: 1.0}


def test_a_rank_alone_on_its_node_waited_elsewhere() -> None:
    alone = {key: calls for key, calls in HELD.items() if key != (2, 2)}
    _, held, _ = traced(alone, nodes={2: 2})
    assert held.causes == {uuid(1): 0.0, ELSEWHERE: 1.0}


@pytest.mark.parametrize(
    ("guard", "change"),
    [
        ("a number is missing in the other communicator", {(2, 1): [(0, 99.0, 99.5), (3, 102.0, 108.0)]}),
        ("its last record is before", {(2, 1): [(0, 99.0, 99.5)], (2, 2): [(0, 209.0, 209.5)]}),
    ],
)
def test_where_records_do_not_show_it_nobody_is_late(guard: str, change: Drawn) -> None:
    assert [one.own for one in traced({**HELD, **change})][1] == {}, guard
    assert [one.causes for one in traced({**HELD, **change})][1] == {}, guard


def test_sends_between_and_lines_of_inspector_show_nothing() -> None:
    assert [one.own for one in traced(HELD, sends=100)][1] == {0: 1.0, 1: 1.0}
    assert [one.own for one in traced(HELD, sends=101)] == [{}, {}, {}]
    assert [one.own for one in traced(HELD, source="NCCL Inspector")] == [{}, {}, {}]
    one_alone = {key: calls for key, calls in HELD.items() if key[0] == 1}
    assert [one.own for one in traced(one_alone, source="NCCL Inspector")][1] == {0: 7.0, 1: 1.0}


def test_the_first_collective_of_several_communicators_has_no_meeting_before_it() -> None:
    assert traced(HELD)[0].own == {}
    one_alone = {key: calls for key, calls in HELD.items() if key[0] == 1}
    first = traced(one_alone)[0]
    assert first.own == first.seconds


def test_a_process_of_one_communicator_is_not_followed() -> None:
    made, _ = tracer(HELD)
    assert {process[1] for process in made.spans()} == {uuid(1)}, "the others have one communicator"


NUMBERS = some.lists(
    some.tuples(some.integers(0, 4), some.floats(0, 50), some.floats(0.01, 5)), min_size=0, max_size=6
)


@given(some.dictionaries(some.tuples(some.integers(1, 3), some.integers(0, 2)), NUMBERS, max_size=9))
def test_any_records_make_lateness_within_what_was_waited(drawn: dict[tuple[int, int], list[Times]]) -> None:
    """Made-up clocks too, that lead in circles."""
    calls = {
        key: [(number, start, start + long) for number, start, long in some] for key, some in drawn.items()
    }
    made, groups = tracer(calls)
    for key in groups:
        for one in made.traced(key):
            assert set(one.own) in (set(), set(one.seconds))
            longest = max(one.seconds.values())
            assert all(one.wire - 1e-9 <= own <= longest + 1e-9 for own in one.own.values())
            causes = one.causes or {}
            assert sum(causes.values()) <= 1 + 1e-9
            assert all(share >= 0 for share in causes.values())
    assert all(len(spans) <= 512 + 9 for spans in made.spans().values())
