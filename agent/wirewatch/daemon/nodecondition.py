"""The condition of the Kubernetes node: written from the verdict, in time and not too often."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import random

from wirewatch.core.ports import Clock
from wirewatch.daemon.board import ReportSource
from wirewatch.daemon.schedule import Lane
from wirewatch.kubernetes import apiserver
from wirewatch.kubernetes.apiserver import ApiEndpoint, ConditionReport, Outcome, RequestResult
from wirewatch.kubernetes.condition import Condition, ConditionMemory, Holds, learned, view_of, watch
from wirewatch.verdict.node import Judged

log = logging.getLogger(__name__)
TICK = 5.0
"""Seconds between two checks of the verdict, which cost nothing."""
_REASONS = ("verify_message", "reason", "strerror")


@dataclass(frozen=True, slots=True)
class ConditionOptions:
    """How the condition is written; `recording`: what is played, "" for a live node.

    In seconds the `heartbeat` between two writes when nothing changes, and the `deadline` of a request.
    """

    holds: Holds = field(default_factory=Holds)
    heartbeat: float = 300.0
    deadline: float = 10.0
    recording: str = ""

    @property
    def tick(self) -> float:
        """Seconds between two checks of the verdict."""
        return min(TICK, self.holds.failed / 2)


class ConditionWriter:
    """Writes the condition, in the event loop; requests run in a thread: files, DNS and HTTP may hang."""

    def __init__(
        self, where: ApiEndpoint, options: ConditionOptions, clock: Clock,
        chance: Callable[[], float] = random,
    ) -> None:  # fmt: skip
        self._where, self._options, self._clock, self._chance = where, options, clock, chance
        self._lane = Lane("kubernetes")
        self._reading = False
        self._memory = ConditionMemory()
        self._noticed: Condition | None = None
        self._pace = apiserver.begin(clock.mono(), chance())
        self._last = RequestResult.OK
        self.report = ConditionReport()

    async def run(self, source: ReportSource) -> None:
        """Run until cancelled."""
        while True:
            # Before the first polls nothing is known, and that must not read as a fault.
            if source.ready():
                self.observe(source.node(), turning=source.turning())
                await self.write()
            await asyncio.sleep(self._options.tick)

    def observe(self, judged: Judged, *, turning: bool) -> None:
        """Take the verdict as it is now; `turning`: whether the loops of the daemon turn."""
        now, mono = self._clock.now(), self._clock.mono()
        view = view_of(judged, now, mono, turning=turning, recording=self._options.recording)
        self._memory = watch(self._memory, view, self._options.holds)
        self._schedule_write()

    async def write(self) -> None:
        """Send the next request, if a request is due."""
        mono = self._clock.mono()
        if mono < self._pace.latest:
            return
        if not self._memory.known:
            self._settle(await self._request(apiserver.NOTHING))
            if not self._memory.known:
                return
        mine = self._memory.condition
        if mine is None:
            # No condition is known yet; the first one brings the next request forward.
            self._pace = replace(self._pace, latest=float("inf"))
            return
        outcome = await self._request(apiserver.patch(mine, self._clock.now()))
        self._settle(outcome)
        if outcome.result is RequestResult.OK:
            self.report = replace(self.report, updated_at=self._clock.now())

    def _schedule_write(self) -> None:
        mine, before = self._memory.condition, self._noticed
        self.report = replace(self.report, condition=mine)
        if mine is None or (before and (mine.status, mine.reason) == (before.status, before.reason)):
            return
        new = before is None or mine.status is not before.status
        if new:
            log.info("node condition: %s %s: %s", mine.status.value, mine.reason, mine.message)
        self._noticed = mine
        self._pace = apiserver.changed(self._pace, self._clock.mono(), self._chance(), status=new)

    async def _request(self, body: bytes) -> Outcome:
        """Send one request within the deadline, in a thread; every error becomes an outcome."""
        if self._reading:
            still = "the files of the ServiceAccount, or the name of the API server, are still being read"
            return Outcome(RequestResult.NO_CREDENTIALS, still)
        self._reading = True
        end = time.monotonic() + self._options.deadline
        try:
            async with asyncio.timeout(self._options.deadline):
                outcome, found = await self._lane.submit(lambda: self._send(body, end))
        except TimeoutError:
            return self._overdue()
        if outcome.result is RequestResult.OK and not self._memory.known:
            # The node keeps its condition over a restart of the daemon.
            self._memory = learned(self._memory, found)
            self._noticed = self._memory.condition
            self.report = replace(self.report, condition=self._memory.condition)
        return outcome

    def _send(self, body: bytes, end: float) -> tuple[Outcome, Condition | None]:
        """Send a request, in the lane; returns its outcome and the condition that the node has afterwards."""
        try:
            account = apiserver.credentials(self._where)
        except (OSError, ValueError) as error:
            return Outcome(RequestResult.NO_CREDENTIALS, _why(error)), None
        finally:
            self._reading = False
        try:
            reply, now = apiserver.patch_status(self._where, account, body, end), self._clock.now()
            outcome, node = apiserver.outcome_of(reply, now), self._where.node
            good = outcome.result is RequestResult.OK
            return outcome, apiserver.condition_in(reply.body, node, now) if good else None
        except TimeoutError:
            return self._overdue(), None
        except apiserver.UnexpectedReply as error:
            return Outcome(RequestResult.STRANGE, str(error)), None
        except (OSError, ValueError) as error:
            return Outcome(RequestResult.UNREACHABLE, _why(error)), None

    def _overdue(self) -> Outcome:
        return Outcome(RequestResult.UNREACHABLE, f"no answer within {self._options.deadline:g} s")

    def _settle(self, outcome: Outcome) -> None:
        result, mono = outcome.result, self._clock.mono()
        updates = self.report.updates
        self.report = replace(self.report, updates={**updates, result: updates[result] + 1})
        if result is RequestResult.OK:
            self._pace = apiserver.succeeded(self._pace, mono, self._options.heartbeat, self._chance())
        else:
            self._pace = apiserver.failed(self._pace, mono, outcome, self._chance())
        if result is RequestResult.OK and result is not self._last:
            log.info("node condition: the API server accepts it again")
        elif result is not self._last:
            detail = f" ({outcome.detail})" if outcome.detail else ""
            said = "node condition of %s is not written and will be tried again: %s%s"
            log.warning(said, self._where.node, result.meaning, detail)
        self._last = result


def _why(error: OSError | ValueError) -> str:
    """Return the words of the system or OpenSSL for an error, without words that the other end sent."""
    reason = next(filter(None, (getattr(error, name, "") for name in _REASONS)), "")
    name = getattr(error, "filename", None)
    return f"{f'{name}: ' if name else ''}{reason or str(error) or type(error).__name__}"
