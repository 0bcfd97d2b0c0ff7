"""The prober as a process: it answers questions about GPUs and runs probes over a socket, until a signal."""

import asyncio
import gc
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from wirewatch import __version__
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.daemon.release import Handles, Release
from wirewatch.daemon.schedule import Lane
from wirewatch.probe.gate import Refusal, SkipReason, Stillness, no_gpus, read_facts, watch_users
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.remote import VERSION, FactsAnswer, FactsRequest, ProbeAnswer
from wirewatch.probe.setup import ProbeRequest, ProbeTerms, prepare, read_terms
from wirewatch.server.connections import Bounds, Connections, within_descriptors
from wirewatch.server.control import Probing, prober_application
from wirewatch.server.listener import HttpServer
from wirewatch.server.peer import Peer
from wirewatch.server.reload import WebCounts
from wirewatch.signals import SIGNALS

log = logging.getLogger(__name__)
PATIENCE = 2.0
"""Seconds that a question waits for its turn: a reading takes milliseconds, a probe seconds."""
IDLE = 300.0
"""Seconds without a question after which every GPU handle is closed."""
LAST = 2.0
"""Seconds that closing handles may take after a signal."""
CONNECTIONS = 32
REQUEST_BYTES = 256 << 10
"""Largest body of a request; the agent's requests take 2 KiB."""
REQUEST_SECONDS = 5.0
"""Seconds for a request's head, and for its body."""
ENDING = "the prober ends"
GONE = "the caller is gone"
BUSY = Refusal(SkipReason.LOCKED, "the prober is at work for another caller")
_NO_RELOAD = "SIGHUP: the prober reads its configuration at its start alone; nothing was changed"
T = TypeVar("T")


@dataclass
class _Caller:
    """Why the caller no longer waits, None while it does. The event loop sets it, the lane reads it."""

    gone: str | None = None


class ProberService:
    """Answers in the event loop; blocking work runs in a thread, one question at a time.

    `options`: the limits of this prober's own configuration; `close` closes GPU handles, and blocks.
    """

    def __init__(self, hardware: Hardware, options: ProbeOptions, close: Callable[[], None]) -> None:
        self._hardware, self._options, self._close = hardware, options, close
        self._lane = Lane("prober")
        self._turn = asyncio.Lock()
        self._still = Stillness()
        self._idle: asyncio.TimerHandle | None = None

    async def users(self, order: FactsRequest) -> FactsAnswer:
        """Report which processes use the GPUs, or why that cannot be reported now."""
        mismatch = self._mismatch(order.engine, live=order.live)
        users = None if mismatch else await self._do(lambda: self._users(order.engine))
        return FactsAnswer("", None, mismatch or BUSY) if users is None else users

    async def terms(self, wanted: ProbeRequest) -> ProbeTerms | Absent:
        """The terms of the probe that would run now if the gate were open."""
        options, expect = self._allowed(wanted).options, Expect(nvlink_links=wanted.links)
        terms = await self._do(lambda: read_terms(self._hardware, options, expect, ""))
        return Absent(Why.TIMEOUT, BUSY.detail) if terms is None else terms

    async def attempt(self, wanted: ProbeRequest, gone: Awaitable[object]) -> ProbeAnswer:
        """Run a probe, unless the gate is shut; it is withdrawn as soon as `gone` is done."""
        if (mismatch := self._mismatch(wanted.options.engine, live=wanted.live)) is not None:
            return ProbeAnswer(no_gpus(self._hardware), mismatch, None)
        caller, began = _Caller(), time.monotonic()
        waiting = asyncio.ensure_future(gone)

        def left(_: object) -> None:
            caller.gone = GONE

        waiting.add_done_callback(left)
        came = await self._do(lambda: self._attempt(wanted, caller, began))
        return ProbeAnswer(no_gpus(self._hardware), BUSY, None) if came is None else came

    async def _do(self, work: Callable[[], T]) -> T | None:
        """Work in the lane; None when it does not become free within PATIENCE."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turn.acquire()
        except TimeoutError:
            return None
        if self._idle is not None:
            self._idle.cancel()
        # The turn is held until the work is done, even when the caller no longer waits for it.
        return await asyncio.shield(self._holding_turn(work))

    async def _holding_turn(self, work: Callable[[], T]) -> T:
        try:
            return await self._lane.submit(work)
        finally:
            self._turn.release()
            self._idle = asyncio.get_running_loop().call_later(IDLE, self._close_idle)

    def _close_idle(self) -> None:
        log.info("no question for %g s: every GPU handle is closed until the next one", IDLE)
        self._lane.submit(self._close)

    def _users(self, engine: str) -> FactsAnswer:
        hardware = self._hardware
        name = hardware.probe.engine(engine)
        if engine == "gloo":
            return FactsAnswer(name, no_gpus(hardware), None)
        gpus = hardware.nvml.gpus()
        if isinstance(gpus, Absent):
            self._still = Stillness()
            reason = SkipReason.LOCKED if gpus.why is Why.RELEASED else SkipReason.BLIND
            return FactsAnswer(name, None, Refusal(reason, f"the prober lists no GPUs: {gpus}"))
        facts = read_facts(hardware, gpus, slurm=False)
        self._still = watch_users(self._still, facts)
        return FactsAnswer(name, facts, None)

    def _attempt(self, wanted: ProbeRequest, caller: _Caller, began: float) -> ProbeAnswer:
        prepared = prepare(self._hardware, self._allowed(wanted), self._still)
        self._still = prepared.still
        if isinstance(prepared.order, Refusal):
            return ProbeAnswer(prepared.facts, prepared.order, None)
        left = prepared.order.deadline
        if wanted.within is not None:
            left = min(left, wanted.within - (time.monotonic() - began))
        if caller.gone or left <= 0:
            why = caller.gone or "the checks of the gate have taken all the time"
            return ProbeAnswer(prepared.facts, Refusal(SkipReason.PROBER_AWAY, why), None)
        order = replace(prepared.order, deadline=left, withdrawn=lambda: caller.gone)
        probed = self._hardware.probe.run(order)
        why = f": {probed.why}" if probed.why else ""
        log.info("probe %s in %.1f s%s", probed.outcome, probed.seconds, why)
        return ProbeAnswer(prepared.facts, None, probed)

    def _mismatch(self, engine: str, *, live: bool) -> Refusal | None:
        """A refusal when one side works on a machine and the other on a recording; None otherwise."""
        if engine == "gloo" or live == (self._hardware.source == "live"):
            return None
        prober, caller = ("a recording", "a machine") if live else ("a machine", "a recording")
        return Refusal(SkipReason.PROBER_AWAY, f"the prober works on {prober}, and its caller on {caller}")

    def _allowed(self, wanted: ProbeRequest) -> ProbeRequest:
        """Return the request as the caller gave it, with this prober's limits: they keep jobs safe."""
        ours, asked = self._options, wanted.options
        options = replace(
            asked, unseen_bytes=ours.unseen_bytes, free_bytes=ours.free_bytes, ranks=ours.ranks,
            kill_after=min(ours.kill_after, asked.kill_after),
        )  # fmt: skip
        return replace(wanted, options=options)


async def serve_prober(
    hardware: Hardware, options: ProbeOptions, handles: Handles, listening: socket.socket
) -> None:
    """Run until SIGTERM or SIGINT; returns within a few seconds of either, whatever hangs."""
    prober = ProberService(hardware, options, handles.nvml.close)
    release = Release(handles, hardware.clock)
    group = os.stat(listening.getsockname()).st_gid  # noqa: PTH116 - the name of a socket

    def may(peer: Peer) -> bool:
        return peer.uid in {0, os.geteuid()} or peer.belongs(group)

    probing = Probing(prober.users, prober.attempt, prober.terms, release.begin, release.end, may)
    headers = ((b"connection", b"close"), (VERSION.encode(), __version__.encode()))
    bounds = Bounds(
        connections=CONNECTIONS, of_one=CONNECTIONS, reserved=CONNECTIONS, head=REQUEST_SECONDS,
        patience=REQUEST_SECONDS, body=REQUEST_BYTES,
    )  # fmt: skip
    connections = Connections(WebCounts(), within_descriptors(bounds))
    serving = HttpServer(prober_application(probing), listening, connections, headers=headers)
    await _until_signal(serving, handles)


async def _until_signal(serving: HttpServer, handles: Handles) -> None:
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Future[Any]] = []

    def stop(name: str) -> None:
        log.info("%s: stopping", name)
        # At once, so that a running probe has ended when its caller is answered.
        closing.append(Lane("end").submit(lambda: handles.close(ENDING, 0.0)))
        serving.stop()

    # All that was imported stays: the garbage collector need not walk it again at every full collection.
    gc.collect()
    gc.freeze()
    soon = loop.call_soon_threadsafe
    with SIGNALS.taken(lambda name: soon(stop, name), lambda: soon(log.warning, _NO_RELOAD)):
        await serving.run()
    if closing:
        await asyncio.wait(closing, timeout=LAST)
    handles.end(ENDING)
