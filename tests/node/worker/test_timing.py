"""What is timed and by what it is divided, on queues whose time is counted by hand."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from wirewatch.core.probe import Plan, rounds
from wirewatch.worker.timing import Queue, copy_all, in_queue, micro, slowest


class Counted(Queue):
    """A queue in which each run takes a number of seconds; `now` is its own clock."""

    def __init__(self, rank: int, takes: Sequence[float]) -> None:
        super().__init__(rank)
        self.now, self.waits, self._takes = 0.0, 0, iter(takes)

    def work(self) -> None:
        self.now += next(self._takes)

    def event(self) -> float:
        return self.now

    def wait(self) -> None:
        self.waits += 1

    @staticmethod
    def span(first: float, second: float) -> float:
        return second - first


def both(*queues: Counted) -> Callable[[], None]:
    def run() -> None:
        for queue in queues:
            queue.work()

    return run


def test_so_many_runs_are_timed_as_the_time_is_divided_by_and_no_warm_up_is() -> None:
    first, second = Counted(0, [9.0, 9.0, 1.0, 2.0, 6.0]), Counted(1, [9.0, 9.0, 4.0, 4.0, 4.0])
    taken = in_queue([first, second], both(first, second), warmup=2, count=3)
    assert (taken.iterations, taken.runs) == (3, 5)
    assert taken.seconds == pytest.approx(4.0)
    assert (taken.low, taken.median, taken.high) == (1.0, 2.0, 6.0)
    assert first.seconds == 27.0
    assert second.seconds == 30.0


class Launched(Counted):
    """A queue whose work begins when the host has launched it; a launch takes the host 1 s."""

    host = 0.0

    def work(self) -> None:
        self.host += 1.0
        self.now = max(self.now, self.host) + next(self._takes)

    def wait(self) -> None:
        self.host = max(self.host, self.now)


@pytest.mark.parametrize("late", [(1000.0,), (1000.0, 300.0), (1000.0, 0.1, 300.0)])
def test_warm_up_runs_that_take_long_do_not_hide_what_later_launches_take(late: tuple[float, ...]) -> None:
    """On two H200 the first case of a process, 8 B, took 12 us, and 16 B after it 18."""
    queue = Launched(0, [*late, *[0.1] * 15])
    warmup = 1 + len(late)
    taken = in_queue([queue], queue.work, warmup=warmup, count=10)
    assert taken.seconds == pytest.approx(1.0)


def test_work_is_waited_for_and_its_time_is_counted_once() -> None:
    queue = Counted(0, [2.0, 3.0])
    for _ in range(2):
        queue.begin()
        queue.work()
        queue.end()
        queue.settle()
    assert (queue.seconds, queue.waits) == (5.0, 2)


def test_a_single_run_is_its_own_lowest_and_highest() -> None:
    one = Counted(0, [5.0, 0.5])
    taken = in_queue([one], one.work, warmup=1, count=1)
    assert (taken.seconds, taken.low, taken.high, taken.runs) == (0.5, 0.5, 0.5, 2)


def test_the_slowest_member_s_time_is_the_collective_s() -> None:
    members = [Counted(rank, []) for rank in range(3)]
    assert slowest(members, [0.0, 1.0, 2.0], [2.0, 2.0, 7.0]) == 5.0


def test_a_copy_s_time_is_of_the_timed_ones_and_its_runs_are_all() -> None:
    plan = Plan("x", ("a", "b", "c"), (), copy_bytes=1000, copies=4)
    queues = [Counted(rank, [50.0, *[1.0 + rank] * 4] * 4) for rank in range(3)]
    done: list[tuple[int, int]] = []

    def copy(source: Counted, destination: Counted, size: int) -> None:
        assert size == 1000
        done.append((source.rank, destination.rank))
        source.work()

    found = copy_all(queues, plan, copy, lambda a, b: (a.rank, b.rank) != (0, 2))
    ways = [way for pairs in rounds(3) for a, b in pairs for way in ((a, b), (b, a))]
    assert [(one.source, one.destination) for one in found] == ways
    assert sorted(done) == sorted(way for way in ways for _ in range(5))
    # Each copies to two others: once untimed and four times timed.
    assert [queue.seconds for queue in queues] == [2 * (50.0 + 4 * (1.0 + rank)) for rank in range(3)]
    for one in found:
        assert (one.seconds, one.runs, one.size_bytes) == (1.0 + one.source, 5, 1000)
        assert one.direct is ((one.source, one.destination) != (0, 2))


def test_a_gpu_s_own_runs_are_reported_by_their_middle_and_their_ends() -> None:
    told = micro(3, 4096, [3.0, 1.0, 2.0, 6.0, 8.0], [0.3, 0.1, 0.2])
    assert (told.gpu, told.copy_bytes) == (3, 4096)
    assert (told.gemm_low, told.gemm_seconds, told.gemm_high, told.gemm_mean) == (1.0, 3.0, 8.0, 4.0)
    assert (told.copy_low, told.copy_seconds, told.copy_high) == (0.1, 0.2, 0.3)
    assert told.copy_mean == pytest.approx(0.2)


def test_time_between_marks_is_of_each_to_the_next() -> None:
    marks = [0.0, 1.0, 3.0, 3.5]
    assert Counted(0, []).spans(marks) == [b - a for a, b in pairwise(marks)]
