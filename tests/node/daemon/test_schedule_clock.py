"""The schedule by a clock that is moved by hand, and what it writes into the log."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.patience import HANGS
from tests.support import Node, StillClock
from wirewatch.core.collector import AnyCollector, Collector, Component, NoPolicy, Options
from wirewatch.core.types import Expect, Finding, Health, Ok, Subject
from wirewatch.daemon.board import Board
from wirewatch.daemon.schedule import SLACK, Lane, Schedule
from wirewatch.hw.host import SystemClock

OPTIONS = Options(interval=0.01, deadline=0.2)
PART = Subject("2", "GPU-2")
HARDWARE = Node().hardware


def collector(turn: Callable[[int], tuple[Finding, ...]], name: str = "one") -> AnyCollector:
    """One whose findings follow from the number of its run, 1 first."""
    runs = iter(range(1, 1_000_000))

    def judge(memory: int, ok: Ok[int], _policy: NoPolicy, _expect: Expect) -> Any:
        return memory + 1, turn(ok.value)

    return Collector(
        name, "a test", "nvml" if name == "one" else "files", OPTIONS, NoPolicy(), (), 0,
        lambda *_: next(runs), lambda *_: (), judge, lambda _: True,
    )  # fmt: skip


def run(collectors: list[AnyCollector], until: Callable[[Board], bool], clock: StillClock) -> Schedule:
    """A schedule over some hardware until the board says so; it turns no more afterwards."""

    async def whole() -> Schedule:
        board = Board(collectors, clock)
        schedule = Schedule(collectors, replace(HARDWARE, clock=clock), Expect(), board)
        task = asyncio.create_task(schedule.run())
        async with asyncio.timeout(HANGS):
            while not until(board):  # noqa: ASYNC110 - it is the board that is looked at
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return schedule

    return asyncio.run(whole())


def component(board: Board, name: str = "one") -> Component:
    return board.state.components[name]


def found(health: Health, evidence: str = "inactive") -> tuple[Finding, ...]:
    return (Finding("nvlink.link_down", health, PART, evidence, "drain"),)


def test_the_log_says_what_comes_what_gets_worse_and_what_is_over_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = {
        1: found(Health.DEGRADED), 2: found(Health.DEGRADED, "still"), 3: found(Health.FAILED),
        4: found(Health.FAILED),
    }  # fmt: skip
    caplog.set_level(logging.INFO, "wirewatch.daemon.schedule")
    run([collector(lambda n: turns.get(n, ()))], lambda board: component(board).memory >= 6, StillClock())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "DEGRADED nvlink.link_down: GPU 2: inactive. drain"),
        ("WARNING", "FAILED nvlink.link_down: GPU 2: inactive. drain"),
        ("INFO", "cleared nvlink.link_down: GPU 2"),
    ]


def test_turns_that_were_missed_are_not_made_up_for() -> None:
    clock = StillClock()

    def turn(number: int) -> tuple[Finding, ...]:
        if number == 1:
            clock.seconds += 1000 * OPTIONS.interval
        return ()

    other = collector(lambda _: (), "other")
    ends = []

    def until(board: Board) -> bool:
        ends.append(component(board).memory)
        return len(ends) >= 20

    run([collector(turn), other], until, clock)
    assert ends[-1] < 100


def test_a_loop_that_has_not_turned_for_long_does_not_turn() -> None:
    clock = StillClock()
    schedule = run([collector(lambda _: ())], lambda board: component(board).memory >= 2, clock)
    clock.seconds += SLACK * OPTIONS.interval + 0.9 * OPTIONS.deadline
    assert schedule.turning()
    clock.seconds += 0.2 * OPTIONS.deadline
    assert not schedule.turning()


def test_all_loops_must_turn() -> None:
    clock = StillClock()
    both = [collector(lambda _: ()), collector(lambda _: (), "other")]
    schedule = run(both, lambda board: component(board, "other").memory >= 2, clock)
    clock.seconds += 1000.0
    turned = vars(schedule)["_turned"]
    for name, turns in (("one", False), ("other", True)):
        turned[name] = clock.mono()
        assert schedule.turning() is turns


def test_what_a_collector_has_of_lost_parts_is_forgotten_before_its_next_run_and_once() -> None:
    """A collector that was changed meanwhile may have nothing to forget with."""
    one, other = collector(lambda _: ()), collector(lambda _: (), "other")
    forgetful = replace(one, forget=lambda memory: memory + 100)
    board = Board([forgetful, other], StillClock())
    schedule = Schedule([forgetful, other], HARDWARE, Expect(), board)
    assert schedule._memory(forgetful) == 0  # noqa: SLF001
    schedule.forget()
    memories = [schedule._memory(each) for each in (other, one, forgetful, forgetful)]  # noqa: SLF001
    assert memories == [0, 0, 100, 100]
    assert (component(board).memory, component(board, "other").memory) == (100, 0)


def test_a_collector_that_is_on_no_board_does_not_run(caplog: pytest.LogCaptureFixture) -> None:
    one, other = collector(lambda _: 1 // 0), collector(lambda _: (), "other")  # type: ignore[arg-type, return-value]
    clock = StillClock()

    async def scenario() -> None:
        board = Board([other], clock)
        task = asyncio.create_task(
            Schedule([one, other], replace(HARDWARE, clock=clock), Expect(), board).run()
        )
        async with asyncio.timeout(HANGS):
            while component(board, "other").memory < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    # On a busy machine the other one may be overdue.
    assert [record.msg for record in caplog.records if "one" in record.getMessage()] == []


def test_a_collector_that_is_taken_away_while_it_hangs_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hang(_number: int) -> tuple[Finding, ...]:
        begun.set()
        may_end.wait(HANGS)
        return ()

    one, other = collector(hang), collector(lambda _: (), "other")
    hasty = replace(one, options=replace(OPTIONS, deadline=0.01))

    async def scenario() -> None:
        board = Board([hasty, other], clock := SystemClock())
        schedule = Schedule([hasty, other], replace(HARDWARE, clock=clock), Expect(), board)
        task = asyncio.create_task(schedule.run())
        await asyncio.to_thread(begun.wait, HANGS)
        board.change([other], board.policy)
        schedule.change([other], Expect())
        waiting = asyncio.create_task(schedule.reading("one"))
        await asyncio.sleep(0.05)
        caplog.clear()
        await asyncio.sleep(0.05)
        may_end.set()
        async with asyncio.timeout(HANGS):
            await waiting
        assert list(board.state.components) == ["other"]
        assert "one" not in vars(schedule)["_turned"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    # On a busy machine the other one may be overdue.
    assert [record.msg for record in caplog.records if "one" in record.getMessage()] == []


def test_a_component_that_could_not_be_published_and_can_again_says_how_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    board = Board([one := collector(lambda _: ())], clock := StillClock())
    schedule = Schedule([one], replace(HARDWARE, clock=clock), Expect(), board)
    vars(schedule)["_lanes"]["nvml"] = Lane("test")
    publish, left = board.publish, [1, 0, 1, 0, 1, 0]

    def refuse(given: Component) -> None:
        if left and left.pop(0):
            raise KeyError("no verdict")
        publish(given)

    board.publish = refuse  # type: ignore[method-assign, assignment]

    async def scenario() -> None:
        for _ in range(4):
            assert await vars(Schedule)["_supervised"](schedule, one)

    asyncio.run(scenario())
    part = "running or publishing the collector one raised"
    assert [one.getMessage() for one in caplog.records if "raised" in one.msg] == [
        part, f"{part} the same 2 more times",
    ]  # fmt: skip


def test_one_of_two_first_polls_is_not_all_of_them() -> None:
    clock = StillClock()
    board = Board([collector(lambda _: ()), collector(lambda _: (), "other")], clock)
    assert not board.first_polls_done()
    board.publish(replace(component(board), outcome=Ok(1, 0.0, 0.0)))
    assert not board.first_polls_done()
    board.publish(replace(component(board, "other"), overdue_since=1.0))
    assert board.first_polls_done()
