"""The schedule: each collector runs on its interval, never twice at once, and may become overdue."""

import asyncio
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from wirewatch.core.collector import APART, AnyCollector, Component
from wirewatch.core.fold import Step, after, fold, overdue
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Failed, Ok, Why
from wirewatch.daemon.board import Board, ErrorLog

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
    """When a collector is due and ended last (monotonic seconds); `published`: its component is shown."""

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
            except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                settle = partial(future.set_exception, _raisable(error))
            # The loop may have been closed meanwhile: then nothing waits for the result.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, settle)

        self._jobs.put(job)
        return future

    def _run(self) -> None:
        while True:
            try:
                self._jobs.get()()
            except BaseException:
                # Out of memory, for example: the caller of this job goes on waiting, but the next job runs.
                log.exception("%s: a job was lost", self._thread.name)


class Schedule:
    """Runs collectors for ever, each in its lane, and publishes their components on the board.

    A collector that cannot be run or published has failed: the others go on. If even its failure cannot be
    published, `run` ends, so that no old verdict is served. `lane` makes a lane, given its name.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, board: Board,
        lane: Callable[[str], Lane] = Lane,
    ) -> None:  # fmt: skip
        self._collectors = {one.name: one for one in collectors}
        self._hardware, self._expect, self._board, self._lane = hardware, expect, board, lane
        mono = hardware.clock.mono()
        self._timings = {c.name: Timing(mono) for c in collectors}
        self._turned: dict[str, float] = {}
        self._kick = asyncio.Event()
        self._forgetting: set[str] = set()
        self._errors = ErrorLog(log)
        self._lanes: dict[str, Lane] = {}
        self._loops: set[str] = set()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._begin(self._group)

    def change(self, collectors: Sequence[AnyCollector], expect: Expect) -> None:
        """Run these collectors from now on, each once at once; known names go on with their memory."""
        self._collectors, self._expect = {one.name: one for one in collectors}, expect
        for name in self._collectors:
            self._timings.setdefault(name, Timing(self._hardware.clock.mono()))
        self.kick()
        if self._group is not None:
            self._begin(self._group)

    def turning(self) -> bool:
        """Return whether every loop has turned lately; this says nothing about the hardware."""
        mono = self._hardware.clock.mono()
        return all(
            mono - self._turned.get(c.name, mono) < SLACK * c.options.interval + c.options.deadline
            for c in self._collectors.values()
        )

    def kick(self) -> None:
        """Let every collector run now, because what they know no longer holds."""
        mono = self._hardware.clock.mono()
        for timing in self._timings.values():
            timing.due = min(timing.due, mono)
        kick, self._kick = self._kick, asyncio.Event()
        kick.set()

    async def reading(self, name: str) -> None:
        """Let every collector run now; wait until `name` publishes a run begun after this call."""
        timing = self._timings[name]
        if timing.running:
            await timing.published.wait()
        self.kick()
        await timing.published.wait()

    def forget(self) -> None:
        """Let every collector forget, before its next run, parts that were there and are not."""
        self._forgetting = {one.name for one in self._collectors.values() if one.forget is not None}

    def _begin(self, group: asyncio.TaskGroup) -> None:
        for collector in self._collectors.values():
            if collector.name not in self._loops:
                self._loops.add(collector.name)
                self._lanes.setdefault(collector.lane, self._lane(collector.lane))
                group.create_task(self._every(collector.name), name=collector.name)

    async def _every(self, name: str) -> None:
        clock = self._hardware.clock
        due = clock.mono()
        while (collector := self._collectors.get(name)) is not None:
            due = await self._in_gap(collector, due)
            interval, component = collector.options.interval, self._board.state.components.get(name)
            if component is not None and not component.succeeding:
                interval = min(interval, RETRY)
            # Missed turns are skipped: a collector that was late does not run twice to catch up.
            now = clock.mono()
            due = max(due + interval, now - (now - due) % interval + interval)
            self._timings[name].due = due
            if await self._kicked(collector, due, clock.mono):
                due = clock.mono()
        self._loops.discard(name)
        self._turned.pop(name, None)
        self._timings.pop(name).published.set()

    async def _kicked(self, collector: AnyCollector, due: float, mono: Callable[[], float]) -> bool:
        """Wait until it is due or kicked; returns whether it was kicked."""
        self._turned[collector.name] = mono()
        # Not `wait_for`, which loses a cancellation that comes together with a kick.
        try:
            async with asyncio.timeout(due - mono()):
                return await self._kick.wait()
        except TimeoutError:
            return False

    async def _in_gap(self, collector: AnyCollector, due: float) -> float:
        """Run once, as soon as the others leave a gap; returns when it was due, or when it could run."""
        clock = self._hardware.clock
        while (wait := self._until_gap(collector)) > 0 or not await self._supervised(collector):
            self._turned[collector.name] = clock.mono()
            await asyncio.sleep(max(wait, AGAIN))
            due = clock.mono()
        return due

    async def _supervised(self, collector: AnyCollector) -> bool:
        """Run once; False when the gap that it needs had closed before its lane was free."""
        part = f"running or publishing the collector {collector.name}"
        try:
            ran = await self._once(collector)
        except Exception as error:  # noqa: BLE001 - becomes a finding
            self._errors.raised(part, error)
            clock = self._hardware.clock
            absent = Absent(Why.MALFORMED, f"{part} raised {error!r}")
            self._publish(collector, _failed(None, Failed(absent, clock.now(), clock.mono()), 0.0))
            return True
        self._errors.worked(part)
        return ran

    def _until_gap(self, collector: AnyCollector) -> float:
        """Return seconds until the gap that this collector needs; its lane asks again after the wait."""
        others = map(self._timings.get, collector.apart)
        return until_gap(filter(None, others), self._hardware.clock.mono())

    async def _once(self, collector: AnyCollector) -> bool:
        """Run once and publish, unless it was taken away; as `_supervised`."""
        board, clock, timing = self._board, self._hardware.clock, self._timings[collector.name]
        if collector.name not in board.state.components:
            return True
        memory = self._memory(collector)
        job = Job(collector, self._hardware, self._expect, self._errors)
        timing.running = True
        future = self._lanes[collector.lane].submit(
            lambda: None if self._until_gap(collector) else job.run(memory)
        )
        deadline = collector.options.deadline
        while not (await asyncio.wait({future}, timeout=deadline))[0]:
            self._turned[collector.name] = clock.mono()
            component = board.state.components.get(collector.name)
            if component is not None and component.overdue_since is None:
                log.warning("collector %s is overdue after %g s", collector.name, deadline)
                board.publish(overdue(component, clock.now(), deadline))
        timing.running, timing.ended = False, clock.mono()
        step = future.result()
        if step is None:
            return False
        self._publish(collector, step)
        return True

    def _publish(self, collector: AnyCollector, step: Step) -> None:
        timing, before = self._timings[collector.name], self._board.state.components.get(collector.name)
        if before is not None:
            component = after(before, step)
            if component.findings != before.findings:
                _log_changes(before, component)
            self._board.publish(component)
        published, timing.published = timing.published, asyncio.Event()
        published.set()

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
    errors: ErrorLog | None = None
    """None: each error is logged as if it were the first."""

    def run(self, memory: object) -> Step:
        """Read, judge, and make samples. Never raises."""
        began = time.thread_time()
        step = self._run(memory)
        return replace(step, cpu=time.thread_time() - began)

    def _run(self, memory: object) -> Step:
        clock, part = self.hardware.clock, f"collector {self.collector.name}"
        began = clock.mono()
        try:
            value = self.collector.read(self.hardware, memory, self.collector.options)
            now, mono = clock.now(), clock.mono()
            outcome = Failed(value, now, mono) if isinstance(value, Absent) else Ok(value, now, mono)
            step = fold(self.collector, memory, outcome, clock.mono() - began, self.expect)
        except Exception as error:  # noqa: BLE001 - becomes a finding
            (self.errors or ErrorLog(log)).raised(part, error)
            absent = Absent(Why.MALFORMED, f"{part} raised {error!r}")
            return _failed(memory, Failed(absent, clock.now(), clock.mono()), clock.mono() - began)
        if self.errors is not None:
            self.errors.worked(part)
        return step


def until_gap(others: Iterable[Timing], now: float) -> float:
    """Return how many seconds a run which must be APART from others has to wait; 0 when it may begin.

    The result is never too long, but may be too short: the caller asks again afterwards.
    """
    return max((_wait_for(timing, now) for timing in others), default=0.0)


def _wait_for(timing: Timing, now: float) -> float:
    if timing.running or timing.due <= now:
        return APART
    if now < timing.ended + APART:
        return timing.ended + APART - now
    return timing.due - now if timing.due < now + ROOM + APART else 0.0


def _log_changes(before: Component, now: Component) -> None:
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


def _failed(memory: object, outcome: Failed, seconds: float) -> Step:
    return Step(outcome, seconds, memory, (), (), None)


def _raisable(error: BaseException) -> Exception:
    """Return an error that may be raised in an event loop: the likes of SystemExit would end it."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = RuntimeError(f"a job raised {error!r}")
    found.__cause__ = error
    return found
