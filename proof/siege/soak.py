"""A day of service in minutes: the daemon's own parts on a clock that jumps, and what they hold on to.

    python -m proof.siege.soak [--hours HOURS] [--write]

Schedule, board, ledger, history and HTTP server are the daemon's own, at the intervals of service. The lanes
call directly, because the clock jumps where a thread would be waited for; NVML answers without a process. Two
such days are lived at the same time, one under tracemalloc, which takes memory itself. `--write` makes
proof/siege/soak.svg.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import selectors
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proof.hardware import processes
from proof.siege.clients import scrape
from proof.siege.daemon import RECORDING, ROOT
from proof.siege.picture import PICTURE, draw
from proof.siege.results import SOAK
from proof.siege.running import hold
from tools.faults.changes import begun, ended
from tools.faults.machine import EPOCH, DirectChild, DirectLane, JumpingClock
from wirewatch.catalogue import discover
from wirewatch.core.collector import AnyCollector
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Expect
from wirewatch.daemon.baselines import BaselineStore, foreign, read_baseline
from wirewatch.daemon.board import Board
from wirewatch.daemon.machine import KeptMachine, MachineWriter
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.daemon.persistence import LedgerWriter
from wirewatch.daemon.schedule import Schedule
from wirewatch.hw.nvml.client import NvmlClient
from wirewatch.hw.overlay import AnswerChange, Overlay, Player, ReplayNvml, load_overlay
from wirewatch.hw.recording import load_recording
from wirewatch.hw.replay import (
    ReplayCommand,
    ReplayHost,
    ReplayKmsg,
    ReplayKubelet,
    ReplayProbe,
    ReplaySlurm,
    ReplaySysfs,
)
from wirewatch.jobs.surroundings import newest_hint
from wirewatch.probe.collector import due_after_hint, probe_collector
from wirewatch.probe.history import History, HistoryLimits
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.restore import boot_id, persistent, remember
from wirewatch.server.api import DaemonView, application
from wirewatch.server.connections import Bounds, Connections
from wirewatch.server.listener import HttpServer
from wirewatch.verdict.drift.component import DriftContext, DriftOptions, drift_component
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import Ledger

HOUR, MINUTE = 3600.0, 60.0
SCRAPE, SAMPLE = 15.0, 10 * MINUTE
"""Seconds of play between two scrapes, and between two looks at what the process holds."""
FIRST = HOUR
"""Seconds of play after which what grows later is growth."""
FAULTS = ("nvlink-link-slow", "gpu-throttle-thermal", "ib-port-slow", "gpu-busy", "nvlink-replay", "pcie-x8")
"""One an hour, in turn: they come in its 20th minute and are over in its 30th."""
BEGINS, LASTS = 20 * MINUTE, 10 * MINUTE
FORMATS = ("text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0")
TOP = 12
_FILL = """
    WITH RECURSIVE number(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM number WHERE value < ?)
    INSERT INTO probes (at, mono, boot_id, result, forced, started_by, engine, gpu_seconds, folded, document)
    SELECT at - 600 * (? - value), mono - 600 * (? - value), boot_id, result, forced, started_by, engine,
        gpu_seconds, folded, document
    FROM probes, number WHERE id = 1
"""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process holds after `hours` of play; memory and database in bytes."""

    hours: float
    pss: int
    descriptors: int
    threads: int
    database: int
    findings: int
    probes: int


@dataclass(slots=True)
class Lived:
    """A day: its samples, scrapes and those that failed, and where Python's memory grew after an hour."""

    samples: list[Sample] = field(default_factory=list)
    scrapes: int = 0
    failed: int = 0
    seconds: float = 0.0
    grown: list[tuple[str, int, int]] = field(default_factory=list)
    """Place in the code, bytes and blocks more than after the first hour; the greatest first."""


def faults(hours: float) -> tuple[AnswerChange, ...]:
    """The changes to the recording's answers."""
    changes: list[AnswerChange] = []
    for hour in range(int(hours) + 1):
        at = hour * HOUR + BEGINS
        changes += ended(begun(load_overlay(FAULTS[hour % len(FAULTS)]).changes, at), at + LASTS)
    return tuple(changes)


def machine(clock: JumpingClock, hours: float) -> Hardware:
    """The demo node with counters that go on rising, and a fault each hour."""
    overlay = Overlay("the day", "", faults(hours))
    player = Player(load_recording(RECORDING), lambda: clock.seconds, (overlay,), loop=True)
    answers = ReplayNvml(player)
    nvml = NvmlClient(start=lambda _source: DirectChild(answers, clock), mono=clock.mono)
    return Hardware(
        nvml, ReplaySysfs(player), ReplayHost(player, EPOCH), ReplayKmsg(player), ReplayCommand(player),
        ReplayKubelet(player), ReplaySlurm(player), clock, ReplayProbe(player, clock), source="synthetic",
        about=f"recording {RECORDING}",
    )  # fmt: skip


class Day:
    """A daemon as `wirewatch serve` puts it together, and its scraper."""

    def __init__(self, folder: Path, hours: float, *, traced: bool) -> None:
        self.clock, self._hours, self._traced = JumpingClock(), hours, traced
        self._hardware, self._history = machine(self.clock, hours), folder / "probes.sqlite"
        baseline = folder / "baseline.json"
        store = BaselineStore(baseline, self.clock, read_baseline(baseline, self.clock.now()))
        topologies = TopologyOrders(store, self.clock)
        self._collectors = self._components(store, topologies)
        kept = MachineWriter(folder / "machine.json", KeptMachine(), self._collectors, self.clock)
        self._writer = LedgerWriter(folder / "latches.json", self.clock)
        self._board = Board(
            self._collectors, self.clock, ledger=Ledger(boot_id(self._hardware)),
            changed=self._writer.changed, published=kept.changed,
        )  # fmt: skip
        topologies.attach(self._board, lambda: None, _no_reading)
        self.lived = Lived()

    def _components(self, store: BaselineStore, topologies: TopologyOrders) -> tuple[AnyCollector, ...]:
        options, policy, expect = ProbeOptions(), ProbePolicy(), Expect()
        history = History.open(self._history, self.clock)
        boot = boot_id(self._hardware)
        probe = probe_collector(options, policy, expect, remember(history, self.clock, policy, boot=boot))

        def hinted() -> float | None:
            node = topologies.node()
            return None if node is None else newest_hint(node.state)

        probing = due_after_hint(persistent(probe, history, boot, expect), hinted)
        drifting = drift_component(
            DriftOptions(), DriftPolicy(), DriftContext(store, None, topologies.troubles, foreign)
        )
        every = (*discover(), probing, drifting)
        return tuple(one for one in every if one.options.enabled)

    def view(self, schedule: Schedule) -> DaemonView:
        return DaemonView(
            lambda: self._board.node, schedule.turning, self._board.first_polls_done, self.clock.now,
            self.clock.mono, "synthetic",
        )  # fmt: skip

    async def live(self) -> None:
        schedule = Schedule(self._collectors, self._hardware, Expect(), self._board, DirectLane)
        polling = asyncio.create_task(schedule.run())
        gc.collect()
        gc.freeze()
        async with serving(self.view(schedule)) as address:
            first: tracemalloc.Snapshot | None = None
            while self.clock.seconds < self._hours * HOUR:
                await asyncio.sleep(SCRAPE)
                for accept in FORMATS:
                    await self._scrape(address, accept)
                if self.clock.seconds >= (len(self.lived.samples) + 1) * SAMPLE:
                    self.lived.samples.append(self._sample())
                    if self._traced and first is None and self.clock.seconds >= FIRST:
                        first = snapshot()
            if first is not None:
                self.lived.grown = grown(first, snapshot())
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling

    async def _scrape(self, address: tuple[str, int], accept: str) -> None:
        """Over a connection of its own, so that what a connection leaves adds up."""
        self.lived.scrapes += 1
        try:
            streams = await asyncio.open_connection(*address)
            body = await scrape(streams, {"Accept": accept, "Connection": "close"})
            streams[1].close()
            await streams[1].wait_closed()
            self.lived.failed += not body.startswith(b"# HELP")
        except (OSError, EOFError, ValueError):
            self.lived.failed += 1

    def _sample(self) -> Sample:
        gc.collect()
        pid, proc = os.getpid(), Path("/proc/self")
        probe = next(c for c in self._board.state.components.values() if c.name == "probe")
        return Sample(
            round(self.clock.seconds / HOUR, 3), processes.memory(pid)["pss"], len([*proc.glob("fd/*")]),
            len([*proc.glob("task/*")]), self._history.stat().st_size, len(self._board.node.verdict.findings),
            sum(getattr(probe.memory, "runs", {}).values()),
        )  # fmt: skip


async def _no_reading(_collector: str) -> None:
    """Nobody accepts a topology in a play."""


class Jumps(selectors.EpollSelector):
    """Moves the clock on where another would wait; what is sent over loopback is there at once."""

    def __init__(self, clock: JumpingClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout:
            self._clock.seconds += timeout
            found = super().select(0)
        return found


class SoakLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock that jumps, in which servers and clients work too."""

    def __init__(self, clock: JumpingClock) -> None:
        super().__init__(Jumps(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.mono()


@asynccontextmanager
async def serving(view: DaemonView) -> AsyncIterator[tuple[str, int]]:
    """The daemon's HTTP server; its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    made = HttpServer(application(view), listening, Connections(view.web, Bounds()))
    task = asyncio.create_task(made.run())
    try:
        yield address
    finally:
        made.stop()
        await task


def snapshot() -> tracemalloc.Snapshot:
    gc.collect()
    mine = (tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__),)
    return tracemalloc.take_snapshot().filter_traces(mine)


def grown(first: tracemalloc.Snapshot, last: tracemalloc.Snapshot) -> list[tuple[str, int, int]]:
    """Where there is more than before, by line."""
    found = last.compare_to(first, "lineno")[:TOP]
    return [(_place(one.traceback), one.size_diff, one.count_diff) for one in found]


def _place(trace: tracemalloc.Traceback) -> str:
    name = trace[0].filename
    for root in (str(ROOT / "agent"), str(ROOT)):
        name = name.removeprefix(f"{root}/")
    return (
        f"{name.partition('site-packages/')[2] or name.partition('python3.11/')[2] or name}:{trace[0].lineno}"
    )


def prefill(folder: Path) -> None:
    """A history at its bound, as after a fortnight of probes, from the first probe of another day."""
    with tempfile.TemporaryDirectory(prefix="siege-soak-") as name:
        play(Day(Path(name), BEGINS / HOUR, traced=False))
        shutil.copy(Path(name) / "probes.sqlite", folder)
    most = HistoryLimits().max_records
    with closing(sqlite3.connect(folder / "probes.sqlite")) as history, history:
        history.execute(_FILL, (most, most, most))


def play(day: "Day") -> None:
    with asyncio.Runner(loop_factory=lambda: SoakLoop(day.clock)) as runner:
        runner.run(day.live())


def lived(hours: float, *, traced: bool) -> Lived:
    """A day in this process."""
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="siege-soak-") as name:
        prefill(Path(name))
        if traced:
            tracemalloc.start()
        began = time.monotonic()
        day = Day(Path(name), hours, traced=traced)
        play(day)
        day.lived.seconds = round(time.monotonic() - began, 1)
        return day.lived


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--minutes", type=float, default=12.0, help="of a real daemon, at the same time")
    parser.add_argument("--write", action="store_true", help="proof/siege/soak.svg")
    parser.add_argument("--one", choices=["plain", "traced"], help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.one:
        print(json.dumps(asdict(lived(wanted.hours, traced=wanted.one == "traced"))))
        return 0
    command = [sys.executable, "-m", "proof.siege.soak", "--hours", f"{wanted.hours}", "--one"]
    days = {
        name: subprocess.Popen([*command, name], stdout=subprocess.PIPE, cwd=ROOT)
        for name in ("plain", "traced")
    }
    running = [asdict(one) for one in hold(wanted.minutes * MINUTE)]
    found: dict[str, Any] = {name: json.loads(day.communicate()[0]) for name, day in days.items()}
    document = {**found["plain"], "grown": found["traced"]["grown"], "running": running}
    SOAK.parent.mkdir(parents=True, exist_ok=True)
    SOAK.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    if wanted.write:
        draw(document["samples"], PICTURE)
    last = document["samples"][-1]
    print(
        f"{last}; {document['scrapes']} scrapes, {document['failed']} failed; {document['seconds']} s; {SOAK}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
