"""Collectors that must be apart from others: they run in the gaps that those leave, and delay nobody.

Time is made here: the loop does not wait but moves the clock on, and a lane takes as long as it is told to,
so that hours of turns are some hundred steps and always the same ones.
"""

import asyncio
import itertools
import math
import selectors
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.daemon.test_schedule import collector, run
from tests.patience import HANGS
from tests.rows import each
from tests.support import Node, StillClock
from wirewatch.core.collector import APART, AnyCollector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.daemon.board import Board
from wirewatch.daemon.schedule import ROOM, Lane, Schedule, Timing, until_gap

T = TypeVar("T")
LONG = 900.0
ROUNDING = 1e-6


class Skipping(selectors.DefaultSelector):
    """Never waits: the clock moves on by as long as it would have waited."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._clock.seconds += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """A loop in made time."""

    def __init__(self, clock: StillClock) -> None:
        self._clock = clock
        super().__init__(Skipping(clock))

    def time(self) -> float:
        return self._clock.mono()


class MadeLane(Lane):
    """One job after the other, at once when none is before it, each as long as the next of `takes` says.

    `ended` is told of each end.
    """

    def __init__(self, takes: Iterator[float], ended: Callable[[], None]) -> None:
        self._ended = ended
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False
        self._takes = takes

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def begin() -> None:
            self._busy = True
            loop.call_later(next(self._takes), end, work())

        def end(done: T) -> None:
            if not future.done():
                future.set_result(done)
            self._busy = False
            self._ended()
            if self._waiting:
                self._waiting.popleft()()

        if self._busy:
            self._waiting.append(begin)
        else:
            begin()
        return future


@dataclass
class Made:
    """Collectors over made time; `began` and `ended` are the times of each one's runs, by name.

    `changes`: the collectors that run from a time on.
    """

    seconds: dict[str, Sequence[float]]
    kicks: Sequence[float] = ()
    changes: Mapping[float, Sequence[AnyCollector]] = field(default_factory=dict)
    clock: StillClock = field(default_factory=StillClock)
    began: dict[str, list[float]] = field(default_factory=dict)
    ended: dict[str, list[float]] = field(default_factory=dict)
    _running: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, lane: str, interval: float, apart: tuple[str, ...] = ()) -> AnyCollector:
        made = collector(name, lane, lambda _: 1, deadline=10.0)
        self.began[name], self.ended[name] = [], []

        def read(_hardware: Hardware, _memory: int, _options: object) -> int:
            self.began[name].append(self.clock.mono())
            self._running[lane] = name
            return 1

        return replace(made, read=read, options=replace(made.options, interval=interval), apart=apart)

    def lane(self, name: str) -> Lane:
        def ended() -> None:
            if name in self._running:
                self.ended[self._running.pop(name)].append(self.clock.mono())

        return MadeLane(itertools.cycle(self.seconds.get(name, [0.02])), ended)

    def run(self, collectors: Sequence[AnyCollector], until: float = LONG) -> "Made":
        with asyncio.Runner(loop_factory=lambda: Loop(self.clock)) as runner:
            runner.run(self._run(collectors, until))
        return self

    async def _run(self, collectors: Sequence[AnyCollector], until: float) -> None:
        hardware = replace(Node().hardware, clock=self.clock)
        board = Board(collectors, hardware.clock)
        schedule = Schedule(collectors, hardware, Expect(), board, self.lane)
        task = asyncio.create_task(schedule.run())
        loop = asyncio.get_running_loop()
        for moment in self.kicks:
            loop.call_later(moment, schedule.kick)
        for moment, wanted in self.changes.items():
            loop.call_later(moment, self._change, board, schedule, wanted)
        while self.clock.seconds < until:
            await asyncio.sleep(1.0)
            assert schedule.turning()
        task.cancel()
        ended, _ = await asyncio.wait({task}, timeout=HANGS)
        assert ended

    @staticmethod
    def _change(board: Board, schedule: Schedule, wanted: Sequence[AnyCollector]) -> None:
        board.change(wanted, board.policy)
        schedule.change(wanted, Expect())


def too_near(made: Made, name: str, other: str) -> list[tuple[float, float, float]]:
    """Begins of `name`, with begin and end of a run of `other` that they were too near to.

    A run that a kick brought could not be foreseen.
    """
    bad = []
    runs = itertools.zip_longest(made.began[other], made.ended[other], fillvalue=math.inf)
    for mine, (began, ended) in itertools.product(made.began[name], runs):
        kicked = any(mine < 1000.0 + kick <= began + ROUNDING for kick in made.kicks)
        before, behind = (
            mine < began < mine + APART - ROUNDING,
            began - ROUNDING <= mine < ended + APART - ROUNDING,
        )
        if behind or (before and not kicked):
            bad.append((mine, began, ended))
    return bad


SECONDS = st.lists(st.floats(0.001, 0.4), min_size=1, max_size=7)
"""Of the runs in a lane."""
HANGING = st.lists(st.floats(0.001, 6.0), min_size=1, max_size=7)


@settings(max_examples=examples(150))
@given(SECONDS, SECONDS, st.floats(7.0, 60.0), st.floats(10.0, 120.0))
def test_a_run_keeps_its_distance_and_others_are_as_if_it_were_not_there(
    lane: list[float], probe: list[float], every: float, looks: float
) -> None:
    def scene(*, alone: bool) -> Made:
        made = Made({"nvml": lane[:1], "probe": probe})
        others = [made.of("nvlink", "nvml", every), made.of("probe", "probe", looks)]
        mine = [] if alone else [made.of("lockstep", "nvml", 7.5, ("nvlink", "probe"))]
        return made.run([*others, *mine])

    made, alone = scene(alone=False), scene(alone=True)
    for other in ("nvlink", "probe"):
        assert too_near(made, "lockstep", other) == []
        assert made.began[other] == alone.began[other]
        interval = every if other == "nvlink" else looks
        for began in made.began["lockstep"]:
            # Others are due at each multiple of their interval.
            assert interval - (began - 1000.0) % interval >= APART + ROOM - ROUNDING


def test_with_the_usual_intervals_there_is_a_window_every_seven_and_a_half_seconds() -> None:
    made = Made({})
    made.run([
        made.of("nvlink", "nvml", 15.0), made.of("gpu", "nvml", 15.0), made.of("probe", "probe", 30.0),
        made.of("lockstep", "nvml", 7.5, ("nvlink", "probe")),
    ], until=LONG - 1)  # fmt: skip
    began = made.began["lockstep"]
    assert began[0] - 1000.0 == pytest.approx(APART, abs=0.2)
    assert {round(later - one, 1) for one, later in itertools.pairwise(began)} == {7.5}
    assert len(began) == LONG // 7.5
    assert len(made.began["nvlink"]) == LONG // 15


@settings(max_examples=examples(150))
@given(HANGING, st.lists(st.floats(0.0, LONG), max_size=12))
def test_neither_a_lane_that_is_held_up_nor_a_kick_brings_them_together(
    lane: list[float], kicks: list[float]
) -> None:
    made = Made({"nvml": lane}, sorted(kicks))
    # The first to wake at a kick is the one that must wait.
    made.run([
        made.of("lockstep", "nvml", 7.5, ("nvlink",)), made.of("nvlink", "nvml", 15.0),
        made.of("held", "nvml", 11.0),
    ])  # fmt: skip
    assert too_near(made, "lockstep", "nvlink") == []
    assert len(made.began["nvlink"]) >= LONG / 30


def test_a_gap_that_is_gone_when_its_lane_comes_to_it_is_not_used() -> None:
    made = Made({"nvml": [0.02, 0.02, 5.0]})
    made.run([
        made.of("nvlink", "nvml", 15.0), made.of("held", "nvml", 5.0),
        made.of("lockstep", "nvml", 7.5, ("nvlink",)),
    ])  # fmt: skip
    assert too_near(made, "lockstep", "nvlink") == []
    assert len(made.began["lockstep"]) > 0


def test_who_is_apart_from_nobody_here_does_not_wait() -> None:
    lone = replace(collector("lone", "nvml", lambda _: 1), apart=("nvlink",))
    board, _ = asyncio.run(run([lone], lambda b: b.state.components["lone"].memory >= 3))
    assert board.state.components["lone"].succeeding


def test_who_is_apart_from_one_that_is_taken_away_and_brought_back_waits_only_while_it_runs() -> None:
    made = Made({})
    nvlink, lone = made.of("nvlink", "nvml", 15.0), made.of("lockstep", "nvml", 7.5, ("nvlink",))
    made.changes = {100.0: [lone], 400.0: [nvlink, lone]}
    made.run([nvlink, lone])
    assert sum(1100.0 < began < 1400.0 for began in made.began["lockstep"]) >= 300.0 // 7.5 - 1
    assert too_near(made, "lockstep", "nvlink") == []
    assert made.began["nvlink"][-1] > 1000.0 + LONG - 16.0
    assert made.began["lockstep"][-1] > 1000.0 + LONG - 8.0


def test_a_kick_at_the_very_end_does_not_keep_it_alive() -> None:
    made = Made({}, kicks=[30.0])
    made.run([made.of("nvlink", "nvml", 7.0)], until=30.0)
    assert made.clock.seconds < 40.0


@each(
    ("turns", "wait"),
    [
        ([], 0.0),
        ([Timing(due=20.0)], 0.0),
        ([Timing(due=10.0)], APART),
        ([Timing(due=20.0, running=True)], APART),
        ([Timing(due=20.0, ended=9.0)], 2.0),
        ([Timing(due=20.0, ended=7.0)], 0.0),
        ([Timing(due=13.5)], 0.0),
        ([Timing(due=13.4)], 3.4),
        ([Timing(due=20.0, ended=9.0), Timing(due=12.5)], 2.5),
        ([Timing(due=20.0, ended=9.0), Timing(due=9.0)], APART),
    ],
)
def test_how_long_to_wait_at_ten(turns: list[Timing], wait: float) -> None:
    assert until_gap(turns, 10.0) == pytest.approx(wait)


def test_a_collector_that_fails_runs_again_soon_and_one_that_is_changed_at_once() -> None:
    made = Made({})
    seldom, often = made.of("seldom", "nvml", 600.0), made.of("often", "files", 10.0)

    def failing(one: AnyCollector) -> AnyCollector:
        def read(*asked: Any) -> object:
            came = one.read(*asked)
            return came if len(made.began[one.name]) > 2 else Absent(Why.LOST, "not yet")

        return replace(one, read=read)

    made.changes = {100.0: [seldom, often]}
    made.run([failing(seldom), failing(often)], until=650.0)
    assert [round(began - 1000.0) for began in made.began["seldom"]] == [0, 15, 30, 100]
    assert [round(began - 1000.0) for began in made.began["often"]][:4] == [0, 10, 20, 30]
