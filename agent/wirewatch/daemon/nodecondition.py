"""What those look at who tell others of the daemon."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import random

from wirewatch.core.ports import Clock
from wirewatch.daemon.schedule import Lane
from wirewatch.kubernetes import api
from wirewatch.kubernetes.api import ApiEndpoint, credentials, patch_status
from wirewatch.kubernetes.condition import Condition, ConditionMemory, Holds, learned, view_of, watch
from wirewatch.kubernetes.outcome import (
    MEANING,
    ConditionReport,
    Outcome,
    RequestResult,
    begin,
    changed,
    failed,
    outcome_of,
    succeeded,
)
from wirewatch.verdict.node import Judged


@dataclass(frozen=True, slots=True)
class Eyes:
    """The verdict; whether the first polls have ended (/readyz); whether the loops turn (/livez)."""

    node: Callable[[], Judged]
    ready: Callable[[], bool]
    turning: Callable[[], bool]


log = logging.getLogger(__name__)
TICK = 5.0
"""Seconds between two looks at the verdict, which cost nothing."""
_SAYS = ("verify_message", "reason", "strerror")


@dataclass(frozen=True, slots=True)
class Manner:
    """How it is told: `heartbeat`, `deadline` of a request in seconds; `recording`: whose verdict it is."""

    holds: Holds = field(default_factory=Holds)
    heartbeat: float = 300.0
    deadline: float = 10.0
    recording: str = ""

    @property
    def tick(self) -> float:
        return min(TICK, self.holds.failed / 2)


class Teller:
    """Of the event loop alone, but for the requests: to read files, to look a name up and to ask may hang.

    Args:
        chance: numbers in [0, 1), so that nodes do not all ask at once.
    """

    def __init__(
        self, where: ApiEndpoint, manner: Manner, clock: Clock, chance: Callable[[], float] = random
    ) -> None:
        self._where, self._manner, self._clock, self._chance = where, manner, clock, chance
        self._lane = Lane("kubernetes")
        self._reading = False
        self._memory = ConditionMemory()
        self._noticed: Condition | None = None
        self._pace = begin(clock.mono(), chance())
        self._last = RequestResult.OK
        self.told = ConditionReport()

    async def run(self, eyes: Eyes) -> None:
        """Until cancelled."""
        while True:
            # Before the first polls nothing is known, which must not look like something that broke.
            if eyes.ready():
                self.look(eyes.node(), turning=eyes.turning())
                await self.write()
            await asyncio.sleep(self._manner.tick)

    def look(self, judged: Judged, *, turning: bool) -> None:
        """One view of the verdict."""
        now, mono = self._clock.now(), self._clock.mono()
        view = view_of(judged, now, mono, turning=turning, recording=self._manner.recording)
        self._memory = watch(self._memory, view, self._manner.holds)
        self._news()

    async def write(self) -> None:
        """A request if one is due."""
        mono = self._clock.mono()
        if mono < self._pace.latest:
            return
        if not self._memory.known:
            self._settle(await self._request(api.NOTHING))
            if not self._memory.known:
                return
        mine = self._memory.condition
        if mine is None:
            # There is nothing to tell yet; the first condition is news.
            self._pace = replace(self._pace, latest=float("inf"))
            return
        outcome = await self._request(api.patch(mine, self._clock.now()))
        self._settle(outcome)
        if outcome.result is RequestResult.OK:
            self.told = replace(self.told, updated_at=self._clock.now())

    def _news(self) -> None:
        """Bring the next request forward when there is something new."""
        mine, before = self._memory.condition, self._noticed
        self.told = replace(self.told, condition=mine)
        if mine is None or (
            before is not None and (mine.status, mine.reason) == (before.status, before.reason)
        ):
            return
        new = before is None or mine.status is not before.status
        if new:
            log.info("node condition: %s %s: %s", mine.status.value, mine.reason, mine.message)
        self._noticed = mine
        self._pace = changed(self._pace, self._clock.mono(), self._chance(), status=new)

    async def _request(self, body: bytes) -> Outcome:
        """One request within the deadline, in a thread; whatever goes wrong is an outcome."""
        if self._reading:
            still = "the files of the ServiceAccount, or the name of the API server, are still being read"
            return Outcome(RequestResult.NO_CREDENTIALS, still)
        self._reading = True
        end = time.monotonic() + self._manner.deadline
        try:
            async with asyncio.timeout(self._manner.deadline):
                outcome, found = await self._lane.submit(lambda: self._ask(body, end))
        except TimeoutError:
            return self._overdue()
        if outcome.result is RequestResult.OK and not self._memory.known:
            # What the node has from before a restart.
            self._memory = learned(self._memory, found)
            self._noticed = self._memory.condition
            self.told = replace(self.told, condition=self._memory.condition)
        return outcome

    def _ask(self, body: bytes, end: float) -> tuple[Outcome, Condition | None]:
        """What became of a request, and the condition that the node has then; in the lane's thread."""
        try:
            who = credentials(self._where)
        except (OSError, ValueError) as error:
            return Outcome(RequestResult.NO_CREDENTIALS, _why(error)), None
        finally:
            self._reading = False
        try:
            reply, now = patch_status(self._where, who, body, end), self._clock.now()
            outcome, node = outcome_of(reply, now), self._where.node
            good = outcome.result is RequestResult.OK
            return outcome, api.condition_in(reply.body, node, now) if good else None
        except TimeoutError:
            return self._overdue(), None
        except api.UnexpectedReply as error:
            return Outcome(RequestResult.STRANGE, str(error)), None
        except (OSError, ValueError) as error:
            return Outcome(RequestResult.UNREACHABLE, _why(error)), None

    def _overdue(self) -> Outcome:
        return Outcome(RequestResult.UNREACHABLE, f"no answer within {self._manner.deadline:g} s")

    def _settle(self, outcome: Outcome) -> None:
        """Count it, say it once, and set when the next request is due."""
        result, mono = outcome.result, self._clock.mono()
        self.told = replace(self.told, updates={**self.told.updates, result: self.told.updates[result] + 1})
        if result is RequestResult.OK:
            self._pace = succeeded(self._pace, mono, self._manner.heartbeat, self._chance())
        else:
            self._pace = failed(self._pace, mono, outcome, self._chance())
        if result is not self._last:
            self._say(outcome)
        self._last = result

    def _say(self, outcome: Outcome) -> None:
        if outcome.result is RequestResult.OK:
            log.info("node condition: the API server takes it again")
            return
        detail = f" ({outcome.detail})" if outcome.detail else ""
        log.warning(
            "node condition of %s is not written, and tried again: %s%s",
            self._where.node, MEANING[outcome.result], detail,
        )  # fmt: skip


def _why(error: OSError | ValueError) -> str:
    """What the system or OpenSSL says, without what the other end sent."""
    told = next(filter(None, (getattr(error, name, "") for name in _SAYS)), "")
    name = getattr(error, "filename", None)
    return f"{f'{name}: ' if name else ''}{told or str(error) or type(error).__name__}"
