"""When collectors run: each on its interval, never twice at once, overdue when it does not return."""

import asyncio
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from wirewatch.core.collector import APART, AnyCollector, Component, Step, after, fold, overdue
from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.types import Absent, Expect, Failed, Ok, Why
from wirewatch.daemon.board import Board

log = logging.getLogger(__name__)
SLACK = 3.0
"""A loop that has not turned for this many of its intervals (plus its deadline) does not turn."""
RETRY = 15.0
"""Seconds after which a collector that failed runs again, when its interval is longer."""
ROOM = 0.5
"""Seconds that a run which must be apart from others is given: it has to end APART before they are due."""
AGAIN = 0.05
"""Seconds until it tries again when the gap was gone as its lane came to it."""


@dataclass(slots=True)
class Turn:
    """Where a collector stands: when it is due, whether it runs, when it last ended (monotonic seconds)."""

    due: float
    running: bool = False
    ended: float = -math.inf


T = TypeVar("T")
_Job = Callable[[], None]


class Lane:
    """Runs jobs in order in a thread that never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"lane-{name}", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """A future of the running loop for what `work` returns; `work` must not raise."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: T) -> None:
            if not future.done():
                future.set_result(result)

        def job() -> None:
            result = work()
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, result)

        self._jobs.put(job)
        return future

    def _run(self) -> None:
        while True:
            self._jobs.get()()


class Schedule:
    """Runs collectors for ever, each in its lane, and publishes what they know.

    Args:
        lane: makes the lane of a name.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, board: Board,
        lane: Callable[[str], Lane] = Lane,
    ) -> None:  # fmt: skip
        self._collectors = collectors
        self._hardware = hardware
        self._expect = expect
        self._board = board
        self._lane = lane
        mono = hardware.clock.mono()
        self._turns = {c.name: Turn(mono) for c in collectors}
        self._turned: dict[str, float] = {}
        self._kick = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        lanes: Mapping[str, Lane] = {name: self._lane(name) for name in {c.lane for c in self._collectors}}
        async with asyncio.TaskGroup() as group:
            for collector in self._collectors:
                group.create_task(self._every(collector, lanes[collector.lane]), name=collector.name)

    def turning(self) -> bool:
        """Whether every loop has turned lately; says nothing about the hardware."""
        mono = self._hardware.clock.mono()
        return all(
            mono - self._turned.get(c.name, mono) < SLACK * c.options.interval + c.options.deadline
            for c in self._collectors
        )

    def kick(self) -> None:
        """Let every collector run now: what they know has just ceased to be so."""
        mono = self._hardware.clock.mono()
        for turn in self._turns.values():
            turn.due = min(turn.due, mono)
        kick, self._kick = self._kick, asyncio.Event()
        kick.set()

    async def _every(self, collector: AnyCollector, lane: Lane) -> None:
        clock = self._hardware.clock
        due = clock.mono()
        while True:
            due = await self._in_gap(collector, lane, due)
            interval = self._interval(collector)
            # Missed turns are skipped: a collector that was late does not run twice to catch up.
            now = clock.mono()
            due = max(due + interval, now - (now - due) % interval + interval)
            self._turns[collector.name].due = due
            if await self._kicked(collector, due, clock.mono):
                due = clock.mono()

    def _interval(self, collector: AnyCollector) -> float:
        """Seconds to the next run; one that failed is not blind for longer than it must."""
        interval: float = collector.options.interval
        component = self._board.state.components[collector.name]
        return interval if component.succeeding else min(interval, RETRY)

    async def _kicked(self, collector: AnyCollector, due: float, mono: Callable[[], float]) -> bool:
        """Wait until it is due, or until a kick; whether it was a kick."""
        self._turned[collector.name] = mono()
        # Not `wait_for`, which loses a cancellation that comes together with a kick.
        try:
            async with asyncio.timeout(due - mono()):
                return await self._kick.wait()
        except TimeoutError:
            return False

    async def _in_gap(self, collector: AnyCollector, lane: Lane, due: float) -> float:
        """One run, as soon as the others leave a gap; returns when it was due, or else could run."""
        clock = self._hardware.clock
        while (wait := self._until_gap(collector)) > 0 or not await self._once(collector, lane):
            self._turned[collector.name] = clock.mono()
            await asyncio.sleep(max(wait, AGAIN))
            due = clock.mono()
        return due

    def _until_gap(self, collector: AnyCollector) -> float:
        """Seconds until the gap that this one needs; asked in its lane too, where it may have waited long."""
        others = [self._turns[name] for name in collector.apart if name in self._turns]
        return until_gap(others, self._hardware.clock.mono())

    async def _once(self, collector: AnyCollector, lane: Lane) -> bool:
        """One run; False when the gap that it needs was gone before its lane came to it."""
        board, clock, turn = self._board, self._hardware.clock, self._turns[collector.name]
        memory = board.state.components[collector.name].memory
        job = Job(collector, self._hardware, self._expect)
        turn.running = True
        future = lane.submit(lambda: None if self._until_gap(collector) else job.run(memory))
        deadline = collector.options.deadline
        while not (await asyncio.wait({future}, timeout=deadline))[0]:
            self._turned[collector.name] = clock.mono()
            component = board.state.components[collector.name]
            if component.overdue_since is None:
                log.warning("collector %s is overdue after %g s", collector.name, deadline)
                board.publish(overdue(component, clock.now(), deadline))
        turn.running, turn.ended = False, clock.mono()
        step = future.result()
        if step is None:
            return False
        component = after(board.state.components[collector.name], step)
        if component.findings != board.state.components[collector.name].findings:
            _tell(board.state.components[collector.name], component)
        board.publish(component)
        return True


@dataclass(frozen=True, slots=True)
class Job:
    """A collector with all that a run of it takes."""

    collector: AnyCollector
    hardware: Hardware
    expect: Expect

    def run(self, memory: object) -> Step:
        """Read, judge, and make samples. Never raises."""
        began = time.thread_time()
        step = self._run(memory)
        return replace(step, cpu=time.thread_time() - began)

    def _run(self, memory: object) -> Step:
        clock = self.hardware.clock
        began = clock.mono()
        try:
            value = self.collector.read(self.hardware, memory, self.collector.options)
            outcome = _outcome(value, clock)
            return fold(self.collector, memory, outcome, clock.mono() - began, self.expect)
        except Exception as error:
            log.exception("collector %s raised", self.collector.name)
            absent = Absent(Why.MALFORMED, f"collector {self.collector.name} raised {error!r}")
            failed = Failed(absent, clock.now(), clock.mono())
            return fold(self.collector, memory, failed, clock.mono() - began, self.expect)


def until_gap(others: Iterable[Turn], now: float, apart: float = APART, room: float = ROOM) -> float:
    """Seconds for which a run that must be `apart` from those of others has to wait; 0 when it may begin.

    It is never too long, and may be too short: ask again then.
    """
    return max((_until_gap(turn, now, apart, room) for turn in others), default=0.0)


def _until_gap(turn: Turn, now: float, apart: float, room: float) -> float:
    if turn.running or turn.due <= now:
        return apart
    if now < turn.ended + apart:
        return turn.ended + apart - now
    return turn.due - now if turn.due < now + room + apart else 0.0


def _tell(before: Component, now: Component) -> None:
    """Log findings as they come and go, and when they get worse."""
    old = {f.key: f for f in before.findings}
    new = {f.key: f for f in now.findings}
    for key, finding in new.items():
        if key not in old or old[key].health != finding.health:
            log.warning(
                "%s %s: %s: %s. %s", finding.health.name, finding.rule, finding.subject, finding.evidence,
                finding.action,
            )  # fmt: skip
    for key, finding in old.items():
        if key not in new:
            log.info("cleared %s: %s", finding.rule, finding.subject)


def _outcome(value: object, clock: Clock) -> Ok[object] | Failed:
    now, mono = clock.now(), clock.mono()
    return Failed(value, now, mono) if isinstance(value, Absent) else Ok(value, now, mono)
