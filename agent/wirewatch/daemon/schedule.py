"""The schedule: each collector runs on its interval, never twice at once, and may become overdue."""

import asyncio
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from wirewatch.core.collector import APART, AnyCollector, Component, Step, after, fold, overdue
from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.types import Absent, Expect, Failed, Ok, Why
from wirewatch.daemon.board import Board

log = logging.getLogger(__name__)
SLACK = 3.0
"""A loop that has not turned for this many of its intervals (plus its deadline) has stopped."""
RETRY = 15.0
"""Seconds after which a collector that failed runs again, when its interval is longer."""
ROOM = 0.5
"""Seconds that a run apart from others may take: it must end APART before they are due."""
AGAIN = 0.05
"""Seconds until a collector tries again whose gap had closed when its lane was free."""
T = TypeVar("T")
_Job = Callable[[], None]


@dataclass(slots=True)
class Timing:
    """When a collector is due, whether it runs, and when it last ended (monotonic seconds).

    `published`: set when the component of the run under way, or of the next one, is on the board.
    """

    due: float
    running: bool = False
    ended: float = -math.inf
    published: asyncio.Event = field(default_factory=asyncio.Event)


class Lane:
    """A thread that runs jobs one after the other and never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"lane-{name}", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue `work`; returns a future of the running loop for what it returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(settle: Callable[[], None]) -> None:
            if not future.done():
                settle()

        def job() -> None:
            try:
                settle = partial(future.set_result, work())
            except Exception as error:  # noqa: BLE001 - raised where the future is awaited
                settle = partial(future.set_exception, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, settle)

        self._jobs.put(job)
        return future

    def _run(self) -> None:
        while True:
            self._jobs.get()()


class Schedule:
    """Runs collectors for ever, each in its lane, and publishes their components on the board.

    Args:
        lane: makes a lane, given its name.
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
        self._timings = {c.name: Timing(mono) for c in collectors}
        self._turned: dict[str, float] = {}
        self._kick = asyncio.Event()
        self._forgetting: set[str] = set()

    async def run(self) -> None:
        """Run until cancelled."""
        lanes: Mapping[str, Lane] = {name: self._lane(name) for name in {c.lane for c in self._collectors}}
        async with asyncio.TaskGroup() as group:
            for collector in self._collectors:
                group.create_task(self._every(collector, lanes[collector.lane]), name=collector.name)

    def turning(self) -> bool:
        """Return whether every loop has turned lately; this says nothing about the hardware."""
        mono = self._hardware.clock.mono()
        return all(
            mono - self._turned.get(c.name, mono) < SLACK * c.options.interval + c.options.deadline
            for c in self._collectors
        )

    def kick(self) -> None:
        """Let every collector run now, because what they know no longer holds."""
        mono = self._hardware.clock.mono()
        for timing in self._timings.values():
            timing.due = min(timing.due, mono)
        kick, self._kick = self._kick, asyncio.Event()
        kick.set()

    async def reading(self, name: str) -> None:
        """Let every collector run now, and wait until one has published a run that began after this call."""
        timing = self._timings[name]
        if timing.running:
            await timing.published.wait()
        self.kick()
        await timing.published.wait()

    def forget(self) -> None:
        """Let every collector forget, before its next run, parts that were there and are not."""
        self._forgetting = {one.name for one in self._collectors if one.forget is not None}

    async def _every(self, collector: AnyCollector, lane: Lane) -> None:
        clock = self._hardware.clock
        due = clock.mono()
        while True:
            due = await self._in_gap(collector, lane, due)
            interval = self._interval(collector)
            # Missed turns are skipped: a collector that was late does not run twice to catch up.
            now = clock.mono()
            due = max(due + interval, now - (now - due) % interval + interval)
            self._timings[collector.name].due = due
            if await self._kicked(collector, due, clock.mono):
                due = clock.mono()

    def _interval(self, collector: AnyCollector) -> float:
        """Seconds to the next run; a collector that failed is retried early."""
        interval: float = collector.options.interval
        component = self._board.state.components[collector.name]
        return interval if component.succeeding else min(interval, RETRY)

    async def _kicked(self, collector: AnyCollector, due: float, mono: Callable[[], float]) -> bool:
        """Wait until it is due or kicked; returns whether it was kicked."""
        self._turned[collector.name] = mono()
        # Not `wait_for`, which loses a cancellation that comes together with a kick.
        try:
            async with asyncio.timeout(due - mono()):
                return await self._kick.wait()
        except TimeoutError:
            return False

    async def _in_gap(self, collector: AnyCollector, lane: Lane, due: float) -> float:
        """Run once, as soon as the others leave a gap; returns when it was due, or when it could run."""
        clock = self._hardware.clock
        while (wait := self._until_gap(collector)) > 0 or not await self._once(collector, lane):
            self._turned[collector.name] = clock.mono()
            await asyncio.sleep(max(wait, AGAIN))
            due = clock.mono()
        return due

    def _until_gap(self, collector: AnyCollector) -> float:
        """Seconds until the gap that this one needs; its lane asks again, since it may have waited long."""
        others = [self._timings[name] for name in collector.apart if name in self._timings]
        return until_gap(others, self._hardware.clock.mono())

    async def _once(self, collector: AnyCollector, lane: Lane) -> bool:
        """Run once; False when the gap that it needs had closed before its lane was free."""
        board, clock, timing = self._board, self._hardware.clock, self._timings[collector.name]
        memory = self._memory(collector)
        job = Job(collector, self._hardware, self._expect)
        timing.running = True
        future = lane.submit(lambda: None if self._until_gap(collector) else job.run(memory))
        deadline = collector.options.deadline
        while not (await asyncio.wait({future}, timeout=deadline))[0]:
            self._turned[collector.name] = clock.mono()
            component = board.state.components[collector.name]
            if component.overdue_since is None:
                log.warning("collector %s is overdue after %g s", collector.name, deadline)
                board.publish(overdue(component, clock.now(), deadline))
        timing.running, timing.ended = False, clock.mono()
        step = future.result()
        if step is None:
            return False
        component = after(board.state.components[collector.name], step)
        if component.findings != board.state.components[collector.name].findings:
            _log_changes(board.state.components[collector.name], component)
        board.publish(component)
        published, timing.published = timing.published, asyncio.Event()
        published.set()
        return True

    def _memory(self, collector: AnyCollector) -> object:
        """The memory for the next run, which no run is using now."""
        component = self._board.state.components[collector.name]
        if collector.name in self._forgetting and collector.forget is not None:
            self._forgetting.discard(collector.name)
            component = replace(component, memory=collector.forget(component.memory))
            self._board.publish(component)
        return component.memory


@dataclass(frozen=True, slots=True)
class Job:
    """One collector with everything that a run of it needs."""

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


def until_gap(others: Iterable[Timing], now: float, apart: float = APART, room: float = ROOM) -> float:
    """Seconds that a run which must be `apart` from others has to wait; 0 when it may begin.

    The result is never too long, but may be too short: the caller asks again afterwards.
    """
    return max((_wait_for(timing, now, apart, room) for timing in others), default=0.0)


def _wait_for(timing: Timing, now: float, apart: float, room: float) -> float:
    if timing.running or timing.due <= now:
        return apart
    if now < timing.ended + apart:
        return timing.ended + apart - now
    return timing.due - now if timing.due < now + room + apart else 0.0


def _log_changes(before: Component, now: Component) -> None:
    """Log findings that came, went or changed their health."""
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
