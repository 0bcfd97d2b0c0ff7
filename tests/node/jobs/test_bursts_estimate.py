"""Plateau, duty and period of a job, by looks at real counters and at drawn ones."""

import math
import random
import statistics
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.jobs.burstlooks import DrawnJob, recorded, recorded_looks
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.bursts.estimate import (
    LONG_ENOUGH,
    Burst,
    BurstFigures,
    CounterRead,
    bursts_of,
    figures,
)

RATE = 320e9
SEEDS = range(20)


def seen(look: list[CounterRead]) -> BurstFigures:
    found = figures(look)
    assert isinstance(found, BurstFigures)
    return found


def known(value: float | Absent) -> float:
    assert not isinstance(value, Absent), value
    return value


def test_a_real_job_is_seen_as_its_own_cuda_events_say() -> None:
    looks = [seen(look) for look in recorded_looks()]
    truth, lasts = recorded()["busbw_bytes_per_second"], recorded()["collective_seconds"]
    plateaus = [known(one.plateau) for one in looks]
    # 1.28 ms is one or two reads: a lower bound, and yet no look is further off than a tenth.
    assert all(
        not one.long and 0.9 < plateau / truth < 1.1 for one, plateau in zip(looks, plateaus, strict=True)
    )
    assert statistics.median(plateaus) == pytest.approx(truth, rel=0.08)
    assert all(0.01 < one.error < 0.05 for one in looks)
    assert [known(one.period) for one in looks] == pytest.approx([7.73e-3] * 5, rel=0.01)
    assert [known(one.length) for one in looks] == pytest.approx([lasts] * 5, rel=0.12)
    assert [known(one.duty) for one in looks] == pytest.approx([lasts / 7.73e-3] * 5, rel=0.12)


def test_the_bytes_of_a_real_burst_are_exact() -> None:
    for look in recorded_looks():
        times, sent = [one.seconds for one in look], [one.sent for one in look]
        whole = [burst.bytes_ for burst in bursts_of(times, sent) if burst.whole]
        # Ring, 4 GPUs: 2 (n - 1) / n of 256 MiB, and what is on the wire besides.
        assert all(size == pytest.approx(1.5 * (256 << 20), rel=0.03) for size in whole)
        assert seen(look).bursts == len(whole) >= 31


@pytest.mark.parametrize("milliseconds", [3.0, 4.0, 6.0, 12.0, 25.0, 60.0])
@pytest.mark.parametrize("compute", [4e-3, 6e-3, 30e-3])
def test_a_collective_of_three_milliseconds_or_more_is_measured_within_a_tenth(
    milliseconds: float, compute: float
) -> None:
    job = DrawnJob(RATE, int(RATE * milliseconds * 1e-3), compute)
    for seed in SEEDS:
        assert known(seen(job.look(seed)).plateau) == pytest.approx(RATE, rel=0.1), seed


@pytest.mark.parametrize("milliseconds", [4.0, 12.0, 25.0])
def test_duty_and_period_are_those_of_the_job(milliseconds: float) -> None:
    job = DrawnJob(RATE, int(RATE * milliseconds * 1e-3), 20e-3)
    looks = [seen(job.look(seed)) for seed in SEEDS]
    assert all(one.long for one in looks)
    assert [known(one.period) for one in looks] == pytest.approx([job.step] * len(SEEDS), rel=0.02)
    # A look of a quarter of a second holds parts of steps.
    assert statistics.mean(known(one.duty) for one in looks) == pytest.approx(job.on_wire / job.step, rel=0.1)


@pytest.mark.parametrize("milliseconds", [0.2, 0.5, 1.0])
def test_a_short_collective_gives_a_lower_bound_and_says_so(milliseconds: float) -> None:
    job = DrawnJob(RATE, int(RATE * milliseconds * 1e-3), 8e-3)
    for seed in SEEDS:
        one = seen(job.look(seed))
        assert not one.long
        assert known(one.plateau) < 1.1 * RATE
        assert one.size == pytest.approx(job.size, rel=0.01)


def test_pauses_that_a_read_can_see_do_not_lower_the_plateau() -> None:
    job = DrawnJob(RATE, int(RATE * 12e-3), 1.5e-3)
    plateaus = [known(seen(job.look(seed)).plateau) for seed in SEEDS]
    assert statistics.median(plateaus) == pytest.approx(RATE, rel=0.03)
    assert min(plateaus) > 0.9 * RATE


def test_collectives_one_after_another_without_a_pause_are_one_long_burst() -> None:
    one = seen(DrawnJob(RATE, int(RATE * 10e-3), 0.0).look())
    assert one.plateau == pytest.approx(RATE, rel=0.02)
    assert one.duty == pytest.approx(1.0, abs=0.02)
    assert (one.bursts, one.long) == (0, True)
    assert isinstance(one.period, Absent)


def test_a_hung_or_computing_job_has_no_plateau_and_no_duty() -> None:
    one = seen([CounterRead(k * 0.8e-3, 0, 0) for k in range(300)])
    assert (one.moved, one.duty, one.bursts) == (0, 0.0, 0)
    assert one.plateau == Absent(Why.MISSING, "no bytes moved over NVLink")
    assert one.length == one.plateau
    assert isinstance(one.period, Absent)


def test_a_burst_that_neither_began_nor_ended_in_a_look_and_is_too_short_for_a_slope_is_not_known() -> None:
    one = seen([CounterRead(k * 0.8e-3, k * 1000, k * 1000) for k in range(4)])
    assert one.plateau == Absent(Why.MISSING, "no burst was whole")
    assert one.duty == one.plateau
    assert not one.long


@pytest.mark.parametrize("received", [0.0, 0.5, 0.85])
def test_the_direction_with_more_bytes_is_measured(received: float) -> None:
    job = DrawnJob(RATE, int(RATE * 6e-3), 20e-3, received)
    look = job.look()
    mirrored = [CounterRead(one.seconds, one.received, one.sent) for one in look]
    assert known(seen(look).plateau) == pytest.approx(RATE, rel=0.05)
    assert seen(mirrored) == seen(look)


def test_a_few_bytes_between_bursts_do_not_join_them() -> None:
    look = DrawnJob(RATE, int(RATE * 6e-3), 20e-3).look()
    noisy = [
        CounterRead(one.seconds, one.sent + k * 2048, one.received + k * 2048) for k, one in enumerate(look)
    ]
    assert seen(noisy).bursts == seen(look).bursts > 5
    assert known(seen(noisy).plateau) == pytest.approx(RATE, rel=0.05)


def test_a_slower_wire_is_a_lower_plateau_at_the_same_bytes() -> None:
    before, after = (DrawnJob(rate, 2 << 30, 10e-3) for rate in (RATE, 0.8 * RATE))
    for seed in SEEDS:
        fast, slow = seen(before.look(seed)), seen(after.look(seed))
        assert known(slow.plateau) / known(fast.plateau) == pytest.approx(0.8, rel=0.05)
        assert slow.size == pytest.approx(fast.size, rel=0.01)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_reads_are_no_look(count: int) -> None:
    found = figures([CounterRead(float(k), k, k) for k in range(count)])
    assert isinstance(found, Absent)
    assert found.why is Why.MALFORMED


GAPS = st.floats(1e-6, 3e-3)
GROWTH = st.integers(0, 1 << 30)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(GAPS, GROWTH, GROWTH), min_size=2, max_size=60))
def test_any_reads_have_figures_that_can_be(rows: list[tuple[float, int, int]]) -> None:
    look = [CounterRead(0.0, 0, 0)]
    for gap, sent, received in rows:
        last = look[-1]
        look.append(CounterRead(last.seconds + gap, last.sent + sent, last.received + received))
    one = seen(look)
    assert one.moved == max(look[-1].sent, look[-1].received)
    if not isinstance(one.plateau, Absent):
        assert 0 < one.plateau < float("inf")
        assert known(one.length) > 0
        assert 0 <= known(one.duty) <= 1
        assert not one.long or known(one.length) >= LONG_ENOUGH
    assert isinstance(one.period, Absent) or 0 < one.period <= one.seconds / 3 + 1e-3


def test_a_look_of_whole_milliseconds_has_figures_however_its_seconds_are_rounded() -> None:
    """A sum of milliseconds may be a little more than the time of the last read."""
    look = [CounterRead((891 + 1000 * k) / 1e6, k * 10**8, 0) for k in range(73)]
    assert look[0].seconds + 72 * 1e-3 > look[-1].seconds
    assert seen(look).moved == 72 * 10**8


def moving(*bytes_: int) -> list[CounterRead]:
    """A read each millisecond, between which so many bytes were sent."""
    return [CounterRead(k * 1e-3, sent, 0) for k, sent in enumerate(accumulate(bytes_, initial=0))]


@pytest.mark.parametrize(
    ("guard", "bytes_", "bursts"),
    [
        ("it begins and ends in the look", (0, 500, 500, 0), [Burst(1, 3, 1000, whole=True)]),
        ("it had begun before", (500, 500, 0), [Burst(0, 2, 1000, whole=False)]),
        ("it goes on", (0, 500, 500), [Burst(1, 3, 1000, whole=False)]),
        ("it is the whole look", (500, 500), [Burst(0, 2, 1000, whole=False)]),
        ("a hundredth between two does not join them", (0, 500, 5, 500, 0),
         [Burst(1, 2, 500, whole=True), Burst(3, 4, 500, whole=True)]),
        ("more between them does", (0, 500, 8, 500, 0), [Burst(1, 4, 1008, whole=True)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_burst_is_what_moves_from_read_to_read(
    guard: str, bytes_: tuple[int, ...], bursts: list[Burst]
) -> None:
    look = moving(*bytes_)
    found = bursts_of([one.seconds for one in look], [one.sent for one in look])
    assert list(found) == bursts, guard


@pytest.mark.parametrize(
    ("guard", "bytes_", "fitted"),
    [
        ("six reads within one burst", (0, *(500,) * 7, 0), True),
        ("five reads", (0, *(500,) * 6, 0), False),
        ("five, and two in another", (0, *(500,) * 6, 0, *(500,) * 3, 0), True),
        ("five, and single ones in others", (0, *(500,) * 6, *(0, 500, 500, 0) * 3), False),
        ("single ones alone", (0, 500, 500, 0) * 8, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_slope_needs_six_reads_that_lie_with_others_in_a_burst(
    guard: str, bytes_: tuple[int, ...], fitted: object
) -> None:
    """Without one the plateau is a lower bound, however long a burst is."""
    one = seen(moving(*bytes_))
    assert math.isfinite(one.error) is fitted, guard
    assert one.plateau == pytest.approx(500_000)
    assert known(one.length) >= LONG_ENOUGH or "single ones alone" in guard
    assert one.long is fitted


def test_a_burst_that_cuts_would_leave_no_read_of_keeps_its_slope() -> None:
    """Every second stretch of it is slower than a pause may be."""
    assert math.isfinite(seen(moving(0, *(900, 100) * 6, 0)).error)


def test_three_reads_are_a_look() -> None:
    assert seen(moving(0, 500)).moved == 500


def test_the_error_of_a_plateau_is_that_of_a_regression() -> None:
    """Of one burst whose reads come a little early or late."""
    rng = random.Random(3)  # noqa: S311 - the same reads each time
    times = [k * 1e-3 + rng.uniform(-2e-4, 2e-4) for k in range(30)]
    sent = [min(max(k - 3, 0), 20) * 10**6 for k in range(30)]
    one = seen([CounterRead(time, value, 0) for time, value in zip(times, sent, strict=True)])
    within = slice(4, 23)
    slope, begin = statistics.linear_regression(sent[within], times[within])
    left = [t - begin - slope * x for x, t in zip(sent[within], times[within], strict=True)]
    spread = statistics.variance(sent[within]) * (len(left) - 1)
    assert one.plateau == pytest.approx(1 / slope)
    assert one.error == pytest.approx(math.sqrt(sum(v * v for v in left) / (len(left) - 2) / spread) / slope)


def test_of_bursts_of_which_none_is_whole_the_longest_counts() -> None:
    one = seen(moving(*(500,) * 8, 0, *(500,) * 3))
    assert (one.bursts, one.size, one.long) == (0, 0, True)
    assert one.length == pytest.approx(8e-3)


@pytest.mark.parametrize("step", [4e-3, 5e-3, 6e-3])
def test_a_step_of_a_few_milliseconds_is_seen(step: float) -> None:
    job = DrawnJob(RATE, int(RATE * step / 2), step / 2)
    assert known(seen(job.look()).period) == pytest.approx(step, rel=0.01)


def test_a_smaller_burst_in_the_middle_of_a_step_does_not_halve_it() -> None:
    step = (*(300,) * 4, *(0,) * 6, *(150,) * 4, *(0,) * 6)
    assert known(seen(moving(*step * 12)).period) == pytest.approx(20e-3)
