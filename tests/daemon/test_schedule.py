"""Lanes and schedule: a collector that does not return is overdue, the others go on, nobody runs twice."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.support import Node
from wirewatch.cli.hardware import replayed
from wirewatch.core.collector import AnyCollector, Collector, NoPolicy, Options
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Finding, Health, Kind, Metric, Ok, Sample, Subject, Why
from wirewatch.daemon.baselines import BaselineStore
from wirewatch.daemon.board import Board
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.daemon.release import Handles
from wirewatch.daemon.schedule import Lane, Schedule
from wirewatch.daemon.service import Remembered, Sockets, serve
from wirewatch.hw.host import SystemClock
from wirewatch.probe.component import components
from wirewatch.server.sockets import tcp
from wirewatch.verdict.ledger import VerdictPolicy

HELD_UP = 0.05
"""Seconds that ten milliseconds of sleep take when there is something else to do."""
TURNS = Metric("turns_total", Kind.COUNTER, (), "Turns.")


def collector(
    name: str, lane: str, read: Callable[[int], int | Absent], deadline: float = 0.2
) -> AnyCollector:
    """A collector that counts its runs; `read` gets the number of the run."""

    def judge(
        memory: int, ok: Ok[int], _policy: NoPolicy, _expect: Expect
    ) -> tuple[int, tuple[Finding, ...]]:
        return memory + ok.value, ()

    def samples(_reading: int, memory: int) -> Iterator[Sample]:
        yield TURNS.sample(memory)

    runs = iter(range(1, 1_000_000))

    def counted(_hardware: Hardware, _memory: int, _options: Options) -> int | Absent:
        return read(next(runs))

    return Collector(
        name, "a test", lane, Options(interval=0.05, deadline=deadline), NoPolicy(), (TURNS,), 0,
        counted, samples, judge, lambda _: True,
    )  # fmt: skip


async def run(collectors: list[AnyCollector], until: Callable[[Board], bool]) -> tuple[Board, Schedule]:
    hardware = replace(Node().hardware, clock=SystemClock())
    board = Board(collectors, hardware.clock)
    schedule = Schedule(collectors, hardware, Expect(), board)
    task = asyncio.create_task(schedule.run())
    async with asyncio.timeout(10):
        while not until(board):
            before = time.monotonic()
            await asyncio.sleep(0.01)
            # A busy machine that holds up this loop holds up the loops of the schedule too.
            assert schedule.turning() or time.monotonic() - before > HELD_UP
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return board, schedule


def test_collectors_run_again_and_again_and_keep_their_memory() -> None:
    board, _ = asyncio.run(
        run([collector("one", "a", lambda _: 1)], lambda b: b.state.components["one"].memory >= 4)
    )
    component = board.state.components["one"]
    assert component.samples == (TURNS.sample(component.memory),)
    assert component.health is Health.OK
    assert board.first_polls_done()


@pytest.mark.parametrize("busy", [False, True])
def test_a_reading_that_was_ordered_began_after_the_order(*, busy: bool) -> None:
    began: list[float] = []
    may_end, hangs = threading.Event(), threading.Event()

    def read(run: int) -> int:
        began.append(time.monotonic())
        if run == 1 + busy:
            hangs.set()
            may_end.wait(9)
        return 1

    async def scenario() -> None:
        seldom = collector("seldom", "a", read)
        seldom = replace(seldom, options=replace(seldom.options, interval=0.2 if busy else 600.0))
        hardware = replace(Node().hardware, clock=SystemClock())
        board = Board([seldom], hardware.clock)
        schedule = Schedule([seldom], hardware, Expect(), board)
        task = asyncio.create_task(schedule.run())
        await asyncio.to_thread(hangs.wait, 9)
        if not busy:
            may_end.set()
            await schedule.reading("seldom")
        asyncio.get_running_loop().call_later(0.1, may_end.set)
        ordered = time.monotonic()
        async with asyncio.timeout(9):
            await schedule.reading("seldom")
        assert began[-1] > ordered
        assert board.state.components["seldom"].memory == len(began)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_a_collector_that_hangs_is_overdue_once_and_the_other_lane_goes_on() -> None:
    release = threading.Event()
    hanging = collector("hanging", "a", lambda n: int(n == 1 or release.wait(9)))
    turning = collector("turning", "b", lambda _: 1)

    async def scenario() -> None:
        seen: list[int] = []

        def overdue(board: Board) -> bool:
            seen.append(board.state.components["turning"].memory)
            late = board.state.components["hanging"].overdue_since is not None
            return late and seen[-1] >= seen[0] + 12

        board, _ = await run([hanging, turning], overdue)
        component = board.state.components["hanging"]
        assert component.health is Health.UNKNOWN
        assert component.samples == ()
        assert component.failures == 1
        assert board.state.components["turning"].health is Health.OK
        release.set()

    asyncio.run(scenario())


def test_a_late_result_counts_and_clears_the_overdue_state() -> None:
    never = threading.Event()
    late = collector("late", "a", lambda n: int(n > 1 or not never.wait(0.4)), deadline=0.1)
    states: list[bool] = []

    def until(board: Board) -> bool:
        component = board.state.components["late"]
        states.append(component.overdue_since is not None)
        return component.last_success > 0 and component.memory >= 2

    board, _ = asyncio.run(run([late], until))
    assert True in states
    assert board.state.components["late"].overdue_since is None
    assert board.state.components["late"].failures == 1
    assert board.state.components["late"].findings == ()


def test_a_failing_collector_drops_its_samples_and_is_tried_again() -> None:
    failing = collector("failing", "a", lambda n: Absent(Why.DENIED, "no") if n in {2, 3} else 1)
    failed: list[tuple[object, ...]] = []

    def until(board: Board) -> bool:
        component = board.state.components["failing"]
        if component.failures and not component.succeeding:
            failed.append((component.samples, component.health))
        return bool(component.memory >= 2)

    board, _ = asyncio.run(run([failing], until))
    assert set(failed) == {((), Health.UNKNOWN)}
    assert board.state.components["failing"].failures == 2
    assert board.state.components["failing"].findings == ()


def test_a_collector_that_raises_says_so_in_its_finding() -> None:
    def broken(_run: int) -> int:
        raise KeyError("a bug")

    board, _ = asyncio.run(
        run([collector("broken", "a", broken)], lambda b: b.state.components["broken"].failures >= 2)
    )
    (finding,) = board.state.components["broken"].findings
    assert finding.rule == "broken.blind"
    assert "KeyError" in finding.evidence


@pytest.mark.parametrize("name", [c.name for c in components()])
def test_nothing_is_healthy_before_the_first_poll(name: str) -> None:
    board = Board(components(), SystemClock())
    assert board.state.components[name].health is Health.UNKNOWN
    assert not board.first_polls_done()


def test_a_daemon_whose_verdict_breaks_ends_and_does_not_go_on_with_an_old_one() -> None:
    nonsense = VerdictPolicy(plain=(1,))  # type: ignore[arg-type]
    broken = replace(
        collector("one", "a", lambda _: 1),
        judge=lambda memory, _ok, _policy, _expect: (
            memory, (Finding("one.gone", Health.FAILED, Subject(), "it is gone", "look for it"),)
        ),
    )  # fmt: skip
    hardware, nvml = replayed("h200x8", (), loop=False)
    topologies = TopologyOrders(BaselineStore(None, SystemClock()), SystemClock())
    with tcp("127.0.0.1", 0) as server, pytest.raises(ExceptionGroup) as error:
        serve([broken], hardware, Expect(), Sockets(server), Handles(nvml), topologies, Remembered(nonsense))
    assert error.group_contains(TypeError)


def test_a_job_that_raises_fails_its_future_and_not_the_lane() -> None:
    async def run() -> tuple[BaseException | None, int]:
        lane = Lane("test")
        failing, next_one = lane.submit(lambda: 1 // 0), lane.submit(lambda: 7)
        await asyncio.wait({failing, next_one}, timeout=5)
        return failing.exception(), next_one.result()

    error, result = asyncio.run(run())
    assert isinstance(error, ZeroDivisionError)
    assert result == 7
