"""The kit's part `tap`: what it joins, what it compares, and that nothing timed passes no limit."""

from collections import Counter
from pathlib import Path

import pytest

from proof.hardware import tap
from proof.hardware.kit import Report
from wirewatch.core.jobs import Ring, RingCounts, RingReading, RingState, TimedCollective
from wirewatch.core.probe import ALL_REDUCE, MIB

SIZE = 256 * MIB


def reading(rank: int, seconds: dict[int, float], communicator: int = 7) -> RingReading:
    """One rank of two, with the seconds of each sequence number."""
    ring = Ring(
        f"{communicator}-{rank}", communicator, 2, rank, 1, f"GPU-{rank}", 10 + rank, 10 + rank, 0, 0.0,
        RingState.LIVE, RingCounts(),
    )  # fmt: skip
    calls = tuple(
        TimedCollective(
            number, ALL_REDUCE, number, SIZE, "float32", "RING", "SIMPLE", 24, each, 0.0, each, float(number)
        )
        for number, each in seconds.items()
    )
    return RingReading(ring, calls)


def test_only_what_all_ranks_timed_is_joined() -> None:
    joined = tap.join([reading(0, {1: 0.9, 2: 0.5, 3: 0.5}), reading(1, {2: 0.7, 3: 0.4, 4: 0.1})])
    assert [(one.key, one.wire, one.late) for one in joined] == [
        ((ALL_REDUCE, SIZE), 0.5, 0),
        ((ALL_REDUCE, SIZE), 0.4, 1),
    ]


def test_equal_numbers_of_two_communicators_are_two_collectives() -> None:
    pairs = [(0, 7), (1, 7), (0, 8), (1, 8)]
    joined = tap.join([reading(rank, {1: 1.0 + rank}, communicator) for rank, communicator in pairs])
    assert Counter(one.wire for one in joined) == {1.0: 2}


class Played:
    """Taps whose jobs have shown this."""

    def __init__(self, *readings: RingReading) -> None:
        self._readings = readings

    def poll(self) -> tuple[RingReading, ...]:
        return self._readings


@pytest.mark.parametrize(
    ("readings", "names"),
    [
        ((), 2),
        ((reading(0, {1: 1e-3}), reading(1, {1: 1.2e-3})), 1),
        ((reading(0, {1: 2e-3}), reading(1, {1: 2.2e-3})), 2),
    ],
)
def test_a_size_that_was_not_timed_or_is_far_off_fails(
    tmp_path: Path, readings: tuple[RingReading, ...], names: int
) -> None:
    """1 ms beside 1 ms holds at 256 MiB; nothing of 64 MiB was timed."""
    report = Report("tap", tmp_path)
    theirs = {(ALL_REDUCE, SIZE): 1e-3}
    tap.compare_sizes(report, "series", by_key(readings), theirs, 2)
    assert sum(not check["ok"] for check in report.checks) == names


def by_key(readings: tuple[RingReading, ...]) -> dict[tap.Key, list[tap.Joined]]:
    return tap.by_key(tap.join(readings))


def test_the_late_rank_is_the_one_that_waits_least() -> None:
    played = Played(
        reading(0, dict.fromkeys(range(1, 6), 1e-3)), reading(1, dict.fromkeys(range(1, 6), 4e-3))
    )
    timed, votes, wire, _ = tap.votes(played)
    assert (timed, votes, round(wire)) == (5, {0: 5}, 1000)
