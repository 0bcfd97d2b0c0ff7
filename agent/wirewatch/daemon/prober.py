"""The prober as a process: a desk behind a socket, until it is told to stop."""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from wirewatch import __version__
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.daemon.release import Handles, Release
from wirewatch.daemon.schedule import Lane
from wirewatch.probe.comparability import ProbeTerms, read_terms
from wirewatch.probe.gate import Reason, Refusal, Stillness, nobody, read_facts, watch_users
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.remote import VERSION, Came, Looked, LookOrder
from wirewatch.probe.setup import Wanted, prepare
from wirewatch.server.connections import Server, server
from wirewatch.server.control import Probing, prober_application
from wirewatch.server.peer import PROBER_CONNECTIONS, Peer, ProberProtocol

log = logging.getLogger(__name__)
ENDING = "the prober ends"
LAST = 2.0
"""Seconds that closing handles may take once we are told to stop."""
T = TypeVar("T")
PATIENCE = 2.0
"""Seconds that a question waits for its turn: a look takes milliseconds, a probe seconds."""
IDLE = 300.0
"""Seconds without a question after which every GPU handle is closed."""
GONE = "whoever asked for it is gone"
BUSY = Refusal(Reason.LOCKED, "the prober is at work for somebody else")


@dataclass
class _Asker:
    """Whether somebody still waits; told in the event loop, looked at by the thread that probes."""

    gone: str | None = field(default=None)


class Desk:
    """Of the event loop; what blocks has a thread of its own.

    Args:
        options: what this prober's own configuration allows.
        close: closes what holds GPUs between questions; blocks.
    """

    def __init__(self, hardware: Hardware, options: ProbeOptions, close: Callable[[], None]) -> None:
        self._hardware, self._options, self._close = hardware, options, close
        self._lane = Lane("prober")
        self._turn = asyncio.Lock()
        self._still = Stillness()
        self._idle: asyncio.TimerHandle | None = None

    async def look(self, order: LookOrder) -> Looked:
        """Who uses the GPUs."""
        strange = self._strange(order.engine, live=order.live)
        looked = None if strange else await self._do(lambda: self._look(order.engine))
        return Looked("", None, strange or BUSY) if looked is None else looked

    async def terms(self, wanted: Wanted) -> ProbeTerms | Absent:
        """The terms of the probe that would be run now, if the gate were open."""
        options, expect = self._allowed(wanted).options, Expect(nvlink_links=wanted.links)
        terms = await self._do(lambda: read_terms(self._hardware, options, expect, ""))
        return Absent(Why.TIMEOUT, BUSY.detail) if terms is None else terms

    async def attempt(self, wanted: Wanted, gone: Awaitable[object]) -> Came:
        """A probe, unless the gate is shut; it ends at once when `gone` does, since nobody waits for it."""
        strange = self._strange(wanted.options.engine, live=wanted.live)
        if strange is not None:
            return Came(nobody(self._hardware), strange, None)
        asker, began = _Asker(), time.monotonic()
        waiting = asyncio.ensure_future(gone)

        def left(_: object) -> None:
            asker.gone = asker.gone or GONE

        waiting.add_done_callback(left)
        try:
            came = await self._do(lambda: self._attempt(wanted, asker, began))
        finally:
            waiting.remove_done_callback(left)
        return Came(nobody(self._hardware), BUSY, None) if came is None else came

    async def _do(self, work: Callable[[], T]) -> T | None:
        """Work in the lane when it is free; None when it is not within PATIENCE."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turn.acquire()
        except TimeoutError:
            return None
        if self._idle is not None:
            self._idle.cancel()

        def attempt() -> T | Exception:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - raised by who waits for it
                return error

        # Not let go of before the work is done, even where nobody waits for it any more.
        done = await asyncio.shield(self._worked(attempt))
        if isinstance(done, Exception):
            raise done
        return done

    async def _worked(self, work: Callable[[], T]) -> T:
        try:
            return await self._lane.submit(work)
        finally:
            self._turn.release()
            self._idle = asyncio.get_running_loop().call_later(IDLE, self._rest)

    def _rest(self) -> None:
        """Nobody asks: nothing is held for them."""
        log.info("nobody has asked for %g s: every GPU handle is closed until somebody does", IDLE)
        self._lane.submit(self._close)

    def _look(self, engine: str) -> Looked:
        hardware = self._hardware
        name = hardware.probe.engine(engine)
        if engine == "gloo":
            return Looked(name, nobody(hardware), None)
        gpus = hardware.nvml.gpus()
        if isinstance(gpus, Absent):
            self._still = Stillness()
            reason = Reason.LOCKED if gpus.why is Why.RELEASED else Reason.BLIND
            return Looked(name, None, Refusal(reason, f"the prober lists no GPUs: {gpus}"))
        facts = read_facts(hardware, gpus, slurm=False)
        self._still = watch_users(self._still, facts)
        return Looked(name, facts, None)

    def _attempt(self, wanted: Wanted, asker: _Asker, began: float) -> Came:
        prepared = prepare(self._hardware, self._allowed(wanted), self._still)
        self._still = prepared.still
        if isinstance(prepared.order, Refusal):
            return Came(prepared.facts, prepared.order, None)
        left = prepared.order.deadline
        if wanted.within is not None:
            left = min(left, wanted.within - (time.monotonic() - began))
        if asker.gone or left <= 0:
            late = Refusal(Reason.PROBER_AWAY, asker.gone or "to ask everybody has taken all the time")
            return Came(prepared.facts, late, None)
        order = replace(prepared.order, deadline=left, withdrawn=lambda: asker.gone)
        probed = self._hardware.probe.run(order)
        log.info(
            "probe %s in %.1f s%s", probed.outcome, probed.seconds, f": {probed.why}" if probed.why else ""
        )
        return Came(prepared.facts, None, probed)

    def _strange(self, engine: str, *, live: bool) -> Refusal | None:
        """A demo may not work real GPUs, nor a node be judged by what was recorded elsewhere."""
        if engine == "gloo" or live == (self._hardware.source == "live"):
            return None
        here, there = ("a recording", "a machine") if live else ("a machine", "a recording")
        return Refusal(Reason.PROBER_AWAY, f"the prober has {here} before it, and its asker {there}")

    def _allowed(self, wanted: Wanted) -> Wanted:
        """What to measure is the asker's word; what harms nobody is this prober's own configuration's."""
        own, told = self._options, wanted.options
        options = replace(
            told, unseen_bytes=own.unseen_bytes, free_bytes=own.free_bytes, ranks=own.ranks,
            kill_after=min(own.kill_after, told.kill_after),
        )  # fmt: skip
        return replace(wanted, options=options)


def serve_prober(
    hardware: Hardware, options: ProbeOptions, handles: Handles, listening: socket.socket
) -> None:
    """Run until SIGTERM or SIGINT; returns within a few seconds of either, whatever hangs."""
    asyncio.run(_serve(hardware, options, handles, listening))


async def _serve(
    hardware: Hardware, options: ProbeOptions, handles: Handles, listening: socket.socket
) -> None:
    desk = Desk(hardware, options, handles.rest)
    release = Release(handles, hardware.clock)
    group = os.stat(listening.getsockname()).st_gid  # noqa: PTH116 - a socket's name, no path to walk

    def may(peer: Peer) -> bool:
        return peer.uid in {0, os.geteuid()} or peer.belongs(group)

    app = prober_application(Probing(desk.look, desk.attempt, desk.terms, release.begin, release.end, may))
    serving = server(
        app,
        http=ProberProtocol,
        limit_concurrency=PROBER_CONNECTIONS,
        headers=[("connection", "close"), (VERSION, __version__)],
    )
    await _until_told(serving, handles, listening)


async def _until_told(serving: Server, handles: Handles, listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Future[Any]] = []

    def stop(name: str) -> None:
        log.info("%s: stopping", name)
        # At once, so that a probe that runs is over when its asker is answered.
        closing.append(Lane("end").submit(lambda: handles.close(ENDING, 0.0)))
        serving.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    # All that was imported stays: the garbage collector need not walk it again at every full collection.
    gc.collect()
    gc.freeze()
    await serving.serve(sockets=[listening])
    if closing:
        await asyncio.wait(closing, timeout=LAST)
