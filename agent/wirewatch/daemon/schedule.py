"""When collectors run: each on its interval, never twice at once, overdue when it does not return."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from wirewatch.core.collector import AnyCollector
from wirewatch.core.component import Component, after, overdue
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Expect
from wirewatch.daemon.board import Board
from wirewatch.daemon.lane import Lane
from wirewatch.daemon.run import Job

log = logging.getLogger(__name__)

SLACK = 3.0
"""A loop that has not turned for this many of its intervals (plus its deadline) does not turn."""

RETRY = 15.0
"""Seconds after which a collector that failed runs again, when its interval is longer."""


class Schedule:
    """Runs collectors for ever, each in its lane, and publishes what they know."""

    def __init__(
        self, collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, board: Board
    ) -> None:
        self._collectors = collectors
        self._hardware = hardware
        self._expect = expect
        self._board = board
        self._turned: dict[str, float] = {}
        self._kick = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        lanes: Mapping[str, Lane] = {name: Lane(name) for name in {c.lane for c in self._collectors}}
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
        kick, self._kick = self._kick, asyncio.Event()
        kick.set()

    async def _every(self, collector: AnyCollector, lane: Lane) -> None:
        clock = self._hardware.clock
        due = clock.mono()
        while True:
            await self._once(collector, lane)
            interval = self._interval(collector)
            # Missed turns are skipped: a collector that was late does not run twice to catch up.
            now = clock.mono()
            due = max(due + interval, now - (now - due) % interval + interval)
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
        try:
            return await asyncio.wait_for(self._kick.wait(), max(0.0, due - mono()))
        except TimeoutError:
            return False

    async def _once(self, collector: AnyCollector, lane: Lane) -> None:
        board, clock = self._board, self._hardware.clock
        memory = board.state.components[collector.name].memory
        job = Job(collector, self._hardware, self._expect)
        future = lane.submit(lambda: job.run(memory))
        deadline = collector.options.deadline
        while not (await asyncio.wait({future}, timeout=deadline))[0]:
            self._turned[collector.name] = clock.mono()
            component = board.state.components[collector.name]
            if component.overdue_since is None:
                log.warning("collector %s is overdue after %g s", collector.name, deadline)
                board.publish(overdue(component, clock.now(), deadline))
        component = after(board.state.components[collector.name], future.result())
        if component.findings != board.state.components[collector.name].findings:
            _tell(board.state.components[collector.name], component)
        board.publish(component)


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
