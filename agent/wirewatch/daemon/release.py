"""Release: every GPU handle is closed for a reset or a driver upgrade, and opened again by itself."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.types import Absent, Why
from wirewatch.core.words import day, stamp
from wirewatch.daemon.schedule import Lane
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.probe.remote import HandleRelease, RemoteProber
from wirewatch.probe.runner import ProbeRunner
from wirewatch.server.control import ReleaseDocument

log = logging.getLogger(__name__)
WITHIN = 1.8
"""Seconds after which a process that still holds a GPU is reported as stuck."""
LAST = 0.5
"""Seconds in which a probe that was killed takes its folder along."""
LANE = "nvml"
"""The lane whose collectors read nothing but GPUs; a release in the middle of a read spoils the reading."""


@dataclass(frozen=True, slots=True)
class Handles:
    """Holders of GPUs: the process that talks to NVML, a probe's worker, a remote prober."""

    nvml: NvmlClient
    prober: ProbeRunner | None = None
    elsewhere: RemoteProber | None = None

    def close(self, why: str, seconds: float) -> HandleRelease:
        """Close all handles within 2 s, for so many seconds; returns what still holds a GPU. Blocks."""
        end = time.monotonic() + WITHIN
        if self.elsewhere is not None:
            self.elsewhere.give_way(why, seconds, WITHIN)
        if self.prober is not None:
            self.prober.give_way(why)
        stuck = self.nvml.release(why)
        worker = None if self.prober is None else self.prober.left(max(0.0, end - time.monotonic()))
        stuck = (*stuck, *filter(None, (worker,)))
        if self.elsewhere is None:
            return HandleRelease(stuck)
        remote = self.elsewhere.left(max(0.0, end - time.monotonic()))
        return HandleRelease((*stuck, *remote.stuck), remote.unsure)

    def end(self, why: str) -> None:
        """Kill a probe that runs here, and wait a moment until nothing of it is left on the disk."""
        if self.prober is not None:
            self.prober.give_way(why)
            self.prober.finished(LAST)

    def open(self) -> None:
        """Let handles be held again. Blocks while a question hangs that cannot be killed."""
        self.nvml.resume()
        if self.prober is not None:
            self.prober.resume()
        self.open_elsewhere()

    def open_elsewhere(self) -> None:
        """Let the remote prober hold GPUs again. Blocks, but not for long."""
        if self.elsewhere is not None:
            self.elsewhere.resume()


class Release:
    """Releases, one at a time, in the event loop; `changed` is called when handles closed or may open."""

    def __init__(self, handles: Handles, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        self._handles, self._clock, self._changed = handles, clock, changed
        self._lane = Lane("release")
        self._order = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._until = 0.0
        self._turn = 0

    def until(self) -> float:
        """Until when (Unix seconds) the GPUs are released; 0 when they are not."""
        return self._until

    async def begin(self, seconds: float, by: str = "") -> ReleaseDocument:
        """Close every handle for so many seconds from now; this replaces a release under way."""
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
            closed = await self._lane.submit(lambda: self._handles.close(why, seconds))
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
                # A remote prober may still be released, by the order of an agent that has ended since.
                await self._lane.submit(self._handles.open_elsewhere)
                return self._document(0.0, HandleRelease(), "nothing was released")
            await self._take_back(f"asked by {printable(by)}")
            return self._document(self._clock.mono() - began, HandleRelease(), "taken back")

    def guarded(self, collector: AnyCollector) -> AnyCollector:
        """The collector, changed so that a reading fails when the GPUs were released in the middle of it."""
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
        await self._lane.submit(self._handles.open)
        self._until = 0.0
        self._changed()
        log.info("GPUs are watched again: %s", why)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _document(self, taken: float, closed: HandleRelease, why: str) -> ReleaseDocument:
        return ReleaseDocument(
            "wirewatch.release/1", self._clock.now(), bool(self._until), self._until, taken,
            list(closed.stuck), closed.unsure, why,
        )  # fmt: skip


def utc(moment: float, now: float) -> str:
    """Return the Unix seconds `moment` as UTC, with the date when it is not that of `now`."""
    return stamp(moment).removeprefix(f"{day(now)}T")


def printable(by: str) -> str:
    """The name of who gave an order, fit for one line of a log."""
    return "".join(c for c in by if c.isprintable()) or "an unnamed caller"
