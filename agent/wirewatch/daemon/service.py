"""The daemon: schedule and HTTP in one event loop, until a signal."""

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Clock, Hardware
from wirewatch.core.types import Expect, Tier, Unusable
from wirewatch.daemon.board import Board, ReportSource
from wirewatch.daemon.machine import MachineWriter
from wirewatch.daemon.notify import NO_REPORTERS, Reporters
from wirewatch.daemon.operator import FindingOrders, TopologyOrders
from wirewatch.daemon.pairsresult import PairsOrders, PairsResultStore
from wirewatch.daemon.persistence import FolderWatch, LedgerWriter
from wirewatch.daemon.release import Handles, Release
from wirewatch.daemon.schedule import Lane, Schedule
from wirewatch.documents.judged import health
from wirewatch.documents.process import PROCESS
from wirewatch.page.content import NO_CONTEXT, PageContext
from wirewatch.server.api import DaemonView, application
from wirewatch.server.connections import LOCAL, Bounds, Connections, within_descriptors
from wirewatch.server.control import Control, control_application
from wirewatch.server.guard import Application, PortGuard, guarded
from wirewatch.server.listener import HttpServer
from wirewatch.signals import SIGNALS
from wirewatch.statefolder import HeldFolder
from wirewatch.verdict.ledger import Ledger, VerdictPolicy

log = logging.getLogger(__name__)
LAST_WRITE = 1.0
"""Seconds that the state folder may take for what is not written yet when the daemon ends."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The memory of faults, how it is judged, and what keeps it; None to keep nothing.

    `folder`: where all of it is; `baseline`: has the accepted topology written there again.
    """

    policy: VerdictPolicy = field(default_factory=VerdictPolicy)
    ledger: Ledger = field(default_factory=Ledger)
    path: Path | None = None
    machine: MachineWriter | None = None
    pairs: PairsResultStore | None = None
    folder: HeldFolder | None = None
    baseline: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Sockets:
    """Listening sockets: the port that `web` guards, and local sockets; `tier` of the exported metrics."""

    port: socket.socket
    web: PortGuard = field(default_factory=PortGuard)
    questions: socket.socket | None = None
    orders: socket.socket | None = None
    tier: Tier = Tier.FULL


@dataclass(frozen=True, slots=True)
class Reread:
    """A configuration that was read again; `restart`: changed keys that need a restart."""

    components: Sequence[AnyCollector]
    expect: Expect
    policy: VerdictPolicy
    restart: Sequence[str] = ()


class Reloader:
    """Reads the configuration in a lane, since a file may hang; `apply` takes it over in the event loop."""

    def __init__(self, read: Callable[[], Reread], apply: Callable[[Reread], None]) -> None:
        self._read, self._apply = read, apply
        self._lane: Lane | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def reload(self) -> None:
        """Read it soon; once more, if it is being read."""
        if self._task is not None and not self._task.done():
            self._again = True
            return
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        self._lane = self._lane or Lane("configuration")
        self._again = True
        while self._again:
            self._again = False
            try:
                read = await self._lane.submit(self._read)
                self._apply(read)
            except Unusable as error:
                self._refuse(str(error))
            except Exception as error:
                log.exception("this is a bug of wirewatch")
                self._refuse(repr(error))
            else:
                PROCESS.reloaded(good=True)
                for key in read.restart:
                    log.warning("configuration: the change of %s needs a restart", key)
                log.info("configuration: read again")

    def _refuse(self, why: str) -> None:
        PROCESS.reloaded(good=False)
        log.error("configuration: %s; nothing was changed", why)


def _nothing_to_read() -> Reread:
    raise Unusable("there is no configuration file to read again")


async def serve(
    collectors: Sequence[AnyCollector], hardware: Hardware, expect: Expect, sockets: Sockets,
    handles: Handles, topologies: TopologyOrders, remembered: Remembered = Remembered(),
    place: PageContext = NO_CONTEXT, reporters: Reporters = NO_REPORTERS,
    reread: Callable[[], Reread] = _nothing_to_read,
) -> None:  # fmt: skip
    """Run until SIGTERM or SIGINT; `reread` reads the configuration again, at SIGHUP."""
    release = Release(handles, hardware.clock, lambda: schedule.kick())  # noqa: PLW0108 - it is made below
    collectors = [release.guarded(collector) for collector in collectors]
    writer = LedgerWriter(remembered.path, hardware.clock)
    board = _board(collectors, hardware.clock, remembered, writer, release)
    schedule = Schedule(collectors, hardware, expect, board)
    topologies.attach(board, schedule.kick, schedule.reading, schedule.forget)
    status = DaemonView(
        lambda: board.node, schedule.turning, board.first_polls_done, hardware.clock.now, hardware.clock.mono,
        hardware.source, released_until=release.until, policy=lambda: board.policy, place=place,
        web=sockets.web.counts, tier=sockets.tier, condition=reporters.condition,
    )  # fmt: skip
    servers = _query_servers(application(status), sockets)
    if sockets.orders is not None:
        store = remembered.pairs or PairsResultStore(None, hardware.clock)
        pairs = PairsOrders(store, board, hardware.clock, schedule.reading)
        orders = FindingOrders(board, hardware.clock, pairs.repaired)
        control = Control(release.begin, release.end, orders.carry_out, topologies.accept, pairs.tell)
        servers.append(_local(control_application(control), sockets.orders, sockets.web))

    def apply(read: Reread) -> None:
        components = [release.guarded(one) for one in read.components]
        board.change(components, read.policy)
        schedule.change(components, read.expect)

    source = ReportSource(
        lambda: board.node, board.first_polls_done, schedule.turning,
        lambda: health(board.node, status.daemon()),
    )  # fmt: skip
    with reporters.reporting(source):
        await _until_signal(schedule, servers, reporters.stopping, Reloader(reread, apply).reload)
    writers = (writer, remembered.machine, remembered.pairs)
    under_way = [asyncio.ensure_future(one.flush()) for one in writers if one is not None]
    await asyncio.wait(under_way, timeout=LAST_WRITE)


def _board(
    collectors: Sequence[AnyCollector], clock: Clock, remembered: Remembered, writer: LedgerWriter,
    release: Release,
) -> Board:  # fmt: skip
    stores = (writer, remembered.machine, remembered.pairs)
    again = (*(one.submit for one in stores if one is not None), remembered.baseline)
    watch = FolderWatch(remembered.folder, again, clock) if remembered.folder else None

    def changed(ledger: Ledger) -> None:
        writer.changed(ledger)
        if watch is not None:
            watch.look()

    return Board(
        collectors, clock, policy=remembered.policy, ledger=remembered.ledger,
        changed=changed, released_until=release.until,
        published=remembered.machine.changed if remembered.machine else None,
    )  # fmt: skip


def _local(app: Application, listening: socket.socket, web: PortGuard) -> HttpServer:
    """Return a server on a local socket, whose file mode guards it."""
    return HttpServer(app, listening, Connections(web.counts, within_descriptors(LOCAL)))


def _query_servers(app: Application, sockets: Sockets) -> list[HttpServer]:
    """Return the servers of the API: on the port, guarded, and on the local socket."""
    web, questions = sockets.web, sockets.questions
    connections = Connections(web.counts, within_descriptors(Bounds()))
    port = HttpServer(guarded(app, web), sockets.port, connections, web)
    return [port] if questions is None else [port, _local(app, questions, web)]


async def _until_signal(
    schedule: Schedule, servers: Sequence[HttpServer], stopping: Callable[[], None],
    reload: Callable[[], None],
) -> None:  # fmt: skip
    """Poll and serve until a signal; when polling ends the daemon ends, so that it is started again."""
    loop = asyncio.get_running_loop()

    def stop(why: str) -> None:
        log.info("%s: stopping", why)
        stopping()
        for running in servers:
            running.stop()

    # All that was imported stays: the garbage collector need not walk it again at every full collection.
    gc.collect()
    gc.freeze()
    soon = loop.call_soon_threadsafe
    with SIGNALS.taken(lambda name: soon(stop, name), lambda: soon(reload)):
        polling = asyncio.create_task(schedule.run())
        polling.add_done_callback(lambda _: stop("polling has ended"))
        await asyncio.gather(*(running.run() for running in servers))
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await polling
