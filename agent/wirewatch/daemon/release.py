"""Getting out of the way: every GPU handle closed for a reset or a driver upgrade, and back by itself."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.types import Absent, Why
from wirewatch.daemon.schedule import Lane
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.probe.remote import HandleRelease, RemoteProber
from wirewatch.probe.runner import ProbeRunner
from wirewatch.server.control import ReleaseDocument

log = logging.getLogger(__name__)

T = TypeVar("T")
WITHIN = 1.8
"""Seconds after which what still holds a GPU is told as such."""
LANE = "nvml"
"""Whose collectors read nothing but GPUs; what they had half read when leave was taken is no reading."""


@dataclass(frozen=True, slots=True)
class Handles:
    """Whoever of ours may hold a GPU: the process that talks to NVML, a probe's worker, another prober."""

    nvml: NvmlClient
    prober: ProbeRunner | None = None
    elsewhere: RemoteProber | None = None

    def close(self, why: str, seconds: float) -> HandleRelease:
        """Close all, within 2 s, for so many seconds; returns what still holds a GPU. Blocks."""
        end = time.monotonic() + WITHIN
        if self.elsewhere is not None:
            self.elsewhere.give_way(why, seconds, WITHIN)
        if self.prober is not None:
            self.prober.give_way(why)
        stuck = self.nvml.release(why)
        worker = None if self.prober is None else self.prober.left(max(0.0, end - time.monotonic()))
        stuck = stuck if worker is None else (*stuck, worker)
        if self.elsewhere is None:
            return HandleRelease(stuck)
        there = self.elsewhere.left(max(0.0, end - time.monotonic()))
        return HandleRelease((*stuck, *there.stuck), there.unsure)

    def rest(self) -> None:
        """Close what is opened again with the next question; nobody is kept from asking. Blocks."""
        self.nvml.close()

    def open(self) -> None:
        """They may be held again. Blocks while a question hangs that cannot be killed."""
        self.nvml.resume()
        if self.prober is not None:
            self.prober.resume()
        self.open_elsewhere()

    def open_elsewhere(self) -> None:
        """The prober may hold GPUs again. Blocks, but not for long."""
        if self.elsewhere is not None:
            self.elsewhere.resume()


class Release:
    """The state of it: one at a time, in the event loop; what blocks has a thread of its own.

    Args:
        changed: told, in the event loop, when handles were closed and when they may be open again.
    """

    def __init__(self, handles: Handles, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        self._handles = handles
        self._clock = clock
        self._changed = changed
        self._lane = Lane("release")
        self._order = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._until = 0.0
        self._turn = 0

    def until(self) -> float:
        """Until when (Unix seconds) nothing is held; 0 when that is not so."""
        return self._until

    async def begin(self, seconds: float, by: str = "") -> ReleaseDocument:
        """Close every handle for so many seconds from now; takes the place of one that holds already."""
        began = self._clock.mono()
        async with self._order:
            self._stop_timer()
            self._turn += 1
            self._until = self._clock.now() + seconds
            why = (
                f"released until {utc(self._until, self._clock.now())} for a reset or driver upgrade; "
                "`wirewatch release --end` takes it back"
            )
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._time_is_up, self._turn)
            log.info("%s (asked by %s)", why, printable(by))
            closed = await self._do(lambda: self._handles.close(why, seconds))
            taken = self._clock.mono() - began
            self._changed()
            if closed.stuck:
                log.error("%s cannot be killed and still hold GPUs after %.2f s", closed.stuck, taken)
            if closed.unsure:
                log.error("whether the prober has let go of GPUs is not known: %s", closed.unsure)
            if closed == HandleRelease():
                log.info("every GPU handle is closed after %.2f s", taken)
            return self._document(taken, closed, why)

    async def end(self, by: str = "") -> ReleaseDocument:
        """Take the GPUs back now."""
        began = self._clock.mono()
        async with self._order:
            if not self._until:
                # But a prober may be, by the word of an agent that ended since.
                await self._do(self._handles.open_elsewhere)
                return self._document(0.0, HandleRelease(), "nothing was released")
            await self._take_back(f"asked by {printable(by)}")
            return self._document(self._clock.mono() - began, HandleRelease(), "taken back")

    def guarded(self, collector: AnyCollector) -> AnyCollector:
        """The collector, whose reading fails as a whole when GPUs were let go while it read them."""
        if collector.lane != LANE:
            return collector

        def read(hardware: Hardware, memory: object, options: object) -> object:
            turn = self._turn
            value = collector.read(hardware, memory, options)
            if isinstance(value, Absent) or (turn == self._turn and not self._until):
                return value
            return Absent(Why.RELEASED, "the GPUs were released in the middle of it")

        return replace(collector, read=read)

    def _time_is_up(self, turn: int) -> None:
        self._ending = asyncio.get_running_loop().create_task(self._end_by_itself(turn))

    async def _end_by_itself(self, turn: int) -> None:
        async with self._order:
            # Another order may have come while this one waited.
            if turn == self._turn:
                await self._take_back("the time is up")

    async def _take_back(self, why: str) -> None:
        self._stop_timer()
        self._turn += 1
        await self._do(self._handles.open)
        self._until = 0.0
        self._changed()
        log.info("GPUs are watched again: %s", why)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _do(self, work: Callable[[], T]) -> T:
        """Work off the loop; what it raises is raised here, since a lane must not end of it."""

        def attempt() -> T | Exception:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - raised by who waits for it
                return error

        done = await self._lane.submit(attempt)
        if isinstance(done, Exception):
            raise done
        return done

    def _document(self, taken: float, closed: HandleRelease, why: str) -> ReleaseDocument:
        return ReleaseDocument(
            "wirewatch.release/1", self._clock.now(), bool(self._until), self._until, taken,
            list(closed.stuck), closed.unsure, why,
        )  # fmt: skip


def utc(moment: float, now: float) -> str:
    """A moment in words, with its date when that is not today's."""
    day, today = (time.strftime("%Y-%m-%d", time.gmtime(one)) for one in (moment, now))
    text = time.strftime("%H:%M:%SZ", time.gmtime(moment))
    return text if day == today else f"{day}T{text}"


def printable(by: str) -> str:
    """Who asks, in one line of a log."""
    return "".join(c for c in by if c.isprintable()) or "somebody"
