"""Lanes and schedule: a collector that does not return is overdue, the others go on, nobody runs twice."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.patience import HANGS, patient
from tests.rows import each
from tests.support import Node
from wirewatch.catalogue import components
from wirewatch.cli.hardware import replayed
from wirewatch.core.collector import AnyCollector, Collector, NoPolicy, Options
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Finding, Health, Kind, Metric, Ok, Sample, Subject, Why
from wirewatch.daemon.baselines import BaselineStore
from wirewatch.daemon.board import Board
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.daemon.release import Handles
from wirewatch.daemon.schedule import Lane, Schedule
from wirewatch.daemon.service import Sockets, serve
from wirewatch.hw.host import SystemClock
from wirewatch.server.sockets import tcp
from wirewatch.verdict.ledger import VerdictPolicy

HELD_UP, CATCHES_UP = 0.05, 0.5
"""Seconds that ten milliseconds of sleep take beside other work, and after which all loops turn again."""
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


async def run(
    collectors: list[AnyCollector], until: Callable[[Board], bool], policy: VerdictPolicy | None = None
) -> tuple[Board, Schedule]:
    hardware = replace(Node().hardware, clock=SystemClock())
    board = Board(collectors, hardware.clock, policy=policy)
    schedule = Schedule(collectors, hardware, Expect(), board)
    task = asyncio.create_task(schedule.run())
    before = time.monotonic()
    late = before - HANGS
    async with asyncio.timeout(HANGS):
        while not until(board):
            await asyncio.sleep(0.01)
            now = time.monotonic()
            # What holds up this loop holds up the loops of the schedule too, which then catch up.
            late = now if now - before > HELD_UP else late
            before = now
            assert schedule.turning() or now - late < patient(CATCHES_UP)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return board, schedule


def test_collectors_run_again_and_again_and_keep_their_memory() -> None:
    board, _ = asyncio.run(
        run([collector("one", "nvml", lambda _: 1)], lambda b: b.state.components["one"].memory >= 4)
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
            may_end.wait(HANGS)
        return 1

    async def scenario() -> None:
        seldom = collector("seldom", "nvml", read)
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
        async with asyncio.timeout(HANGS):
            await schedule.reading("seldom")
        assert began[-1] > ordered
        assert board.state.components["seldom"].memory == len(began)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_a_collector_that_hangs_is_overdue_once_and_the_other_lane_goes_on() -> None:
    release = threading.Event()
    hanging = collector("hanging", "nvml", lambda n: int(n == 1 or release.wait(HANGS)))
    turning = collector("turning", "files", lambda _: 1)

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
    late = collector("late", "nvml", lambda n: int(n > 1 or not never.wait(0.4)), deadline=0.1)
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
    failing = collector("failing", "nvml", lambda n: Absent(Why.DENIED, "no") if n in {2, 3} else 1)
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
        run([collector("broken", "nvml", broken)], lambda b: b.state.components["broken"].failures >= 2)
    )
    (finding,) = board.state.components["broken"].findings
    assert finding.rule == "broken.blind"
    assert "KeyError" in finding.evidence


@each("name", [c.name for c in components()])
def test_nothing_is_healthy_before_the_first_poll(name: str) -> None:
    board = Board(components(), SystemClock())
    assert board.state.components[name].health is Health.UNKNOWN
    assert not board.first_polls_done()


class StoppedClock(SystemClock):
    """A clock that cannot be read any more from its `last` reading on."""

    def __init__(self, last: float = math.inf) -> None:
        self.last = last

    def now(self) -> float:
        self.last -= 1
        if self.last < 0:
            raise OSError("no clock")
        return super().now()


def test_a_daemon_whose_verdict_breaks_ends_and_does_not_go_on_with_an_old_one() -> None:
    hardware, nvml = replayed("h200x8", (), loop=False)
    clock = StoppedClock()

    def read(run: int) -> int:
        clock.last = 0 if run > 1 else clock.last
        return 1

    topologies = TopologyOrders(BaselineStore(None, SystemClock()), SystemClock())
    with tcp("127.0.0.1", 0) as server:
        daemon = serve(
            [collector("one", "nvml", read)], replace(hardware, clock=clock), Expect(), Sockets(server),
            Handles(nvml), topologies,
        )  # fmt: skip
        with pytest.raises(ExceptionGroup) as error:
            asyncio.run(daemon)
    assert error.group_contains(OSError, match="no clock")


def test_findings_of_which_no_verdict_can_be_made_cost_their_collector_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nonsense = VerdictPolicy(plain=(1,))  # type: ignore[arg-type]
    broken = replace(
        collector("one", "nvml", lambda _: 1),
        judge=lambda memory, _ok, _policy, _expect: (
            memory, (Finding("one.gone", Health.FAILED, Subject(), "it is gone", "look for it"),)
        ),
    )  # fmt: skip
    other = collector("other", "files", lambda _: 1)
    board, _ = asyncio.run(
        run(
            [broken, other],
            lambda b: b.state.components["one"].failures >= 3 and b.state.components["other"].memory >= 3,
            nonsense,
        )
    )
    assert board.node.verdict.health is Health.UNKNOWN
    assert [f.rule for f in board.node.verdict.findings] == ["one.blind"]
    told = [one.getMessage() for one in caplog.records if one.exc_info]
    assert told == ["running or publishing the collector one raised"]


def test_a_listener_that_raises_costs_neither_the_verdict_nor_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, turning = SystemClock(), collector("one", "nvml", lambda _: 1)
    told: list[object] = []

    def listener(new: object) -> None:
        told.append(new)
        raise TypeError(f"number {len(told)}")

    board = Board([turning], clock, changed=listener, published=listener)
    for _ in range(3):
        board.publish(board.state.components["one"])
    assert len(told) == 7
    assert len([one for one in caplog.records if one.exc_info]) == 2
    assert board.node.verdict.health is Health.UNKNOWN


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), MemoryError()])
def test_whatever_a_job_raises_reaches_the_one_that_waits_and_the_lane_goes_on(error: BaseException) -> None:
    def fails() -> None:
        raise error

    async def scenario() -> tuple[BaseException | None, int]:
        lane = Lane("test")
        failing, next_one = lane.submit(fails), lane.submit(lambda: 7)
        result = await asyncio.wait_for(next_one, HANGS)
        return failing.exception(), result

    found, result = asyncio.run(scenario())
    assert isinstance(found, Exception)
    assert type(error).__name__ in repr(found)
    assert result == 7


def test_a_lane_outlives_the_loop_that_waited_for_it() -> None:
    lane, may_end = Lane("test"), threading.Event()

    async def leave() -> None:
        lane.submit(lambda: may_end.wait(HANGS))

    async def ask() -> int:
        return await asyncio.wait_for(lane.submit(lambda: 7), HANGS)

    asyncio.run(leave())
    may_end.set()
    assert asyncio.run(ask()) == 7


def test_a_collector_that_ends_its_thread_is_blind_and_the_others_of_its_lane_go_on() -> None:
    def leaves(_run: int) -> int:
        raise SystemExit

    collectors = [collector("leaves", "nvml", leaves), collector("stays", "nvml", lambda _: 1)]
    board, _ = asyncio.run(
        run(
            collectors,
            lambda b: b.state.components["leaves"].failures >= 2 and b.state.components["stays"].memory >= 3,
        )
    )
    (finding,) = board.state.components["leaves"].findings
    assert (finding.rule, "SystemExit" in finding.evidence) == ("leaves.blind", True)


def test_a_collector_that_raises_at_each_poll_logs_one_traceback_for_each_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(run: int) -> int:
        if run < 5:
            raise KeyError(run)
        if run < 8:
            raise ValueError(run)
        return 1

    asyncio.run(
        run([collector("broken", "nvml", broken)], lambda b: b.state.components["broken"].memory >= 1)
    )
    own = [one for one in caplog.records if one.name == "wirewatch.daemon.schedule"]
    assert [(one.getMessage(), one.exc_info is not None) for one in own if "raised" in one.msg] == [
        ("collector broken raised", True), ("collector broken raised the same 3 more times", False),
        ("collector broken raised", True), ("collector broken raised the same 2 more times", False),
    ]  # fmt: skip


def test_a_change_keeps_memory_takes_collectors_away_and_brings_them_back() -> None:
    first, second = collector("one", "nvml", lambda _: 1), collector("two", "files", lambda _: 1)

    async def scenario() -> None:
        hardware = replace(Node().hardware, clock=SystemClock())
        board = Board([first, second], hardware.clock)
        schedule = Schedule([first, second], hardware, Expect(), board)
        task = asyncio.create_task(schedule.run())

        def change(*collectors: AnyCollector) -> None:
            board.change(collectors, VerdictPolicy(fail_on=("failed",)))
            schedule.change(collectors, Expect())

        async def memory(name: str, least: int) -> int:
            async with asyncio.timeout(HANGS):
                while board.state.components[name].memory < least:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            return int(board.state.components[name].memory)

        before = await memory("one", 2)
        change(replace(first, options=Options(interval=600.0)))
        assert list(board.state.components) == ["one"]
        assert board.node.verdict.fail_on == frozenset({Health.FAILED})
        # At once, and not again before the new interval is over.
        rests = await memory("one", before + 1)
        change(replace(first, options=Options(interval=600.0)), second)
        assert await memory("two", 3) > 2
        assert await memory("one", rests) <= rests + 1
        assert schedule.turning()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_a_job_that_raises_fails_its_future_and_not_the_lane() -> None:
    async def run() -> tuple[BaseException | None, int]:
        lane = Lane("test")
        failing, next_one = lane.submit(lambda: 1 // 0), lane.submit(lambda: 7)
        await asyncio.wait({failing, next_one}, timeout=HANGS)
        return failing.exception(), next_one.result()

    error, result = asyncio.run(run())
    assert isinstance(error, ZeroDivisionError)
    assert result == 7
