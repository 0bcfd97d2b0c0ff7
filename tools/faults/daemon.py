"""A daemon's own parts on such a machine: schedule, collectors, probe, drift, verdict and what is kept."""

import asyncio
import shutil
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tools.faults.machine import DirectLane, JumpingClock, JumpingLoop, Machine
from wirewatch.catalogue import discover
from wirewatch.core.collector import AnyCollector, NodeState
from wirewatch.core.machine import read_machine
from wirewatch.core.types import Expect, Health
from wirewatch.daemon.baselines import BaselineStore, foreign, read_baseline, save_baseline
from wirewatch.daemon.board import Board
from wirewatch.daemon.machine import MachineWriter, read_kept, recalled
from wirewatch.daemon.operator import TopologyOrders
from wirewatch.daemon.persistence import read_ledger, save_ledger
from wirewatch.daemon.schedule import Schedule
from wirewatch.hw.overlay import AnswerChange
from wirewatch.hw.recording import load_recording
from wirewatch.jobs.surroundings import newest_hint
from wirewatch.probe.collector import due_after_hint, probe_collector
from wirewatch.probe.history import History
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.restore import boot_id, persistent, remember
from wirewatch.verdict.drift.component import DriftContext, DriftOptions, drift_component
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import Ledger
from wirewatch.verdict.node import Judged, Verdict

LEDGER, HISTORY, BASELINE = "latches.json", "probes.sqlite", "baseline.json"
MACHINE = "machine.json"
DOWN = 5.0
"""Seconds for which a daemon is away while it is started again."""
BOOT, KERNEL = 180.0, 30.0
"""Seconds that a machine takes to start again, and those of them since its kernel did."""
ROUND = 4.0
"""Seconds within which each collector has had a turn, also one that waits for a gap."""
SELF = "agent"
"""The collector of the agent's own cost, which is not that of a play."""
_loaded = cache(load_recording)
Shown = frozenset[tuple[str, str, Health, str]]
"""Rule, part, health and stage of each finding that counts."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The verdict from `seconds` of play on."""

    seconds: float
    verdict: Verdict

    @property
    def shown(self) -> Shown:
        return shown(self.verdict)


def shown(verdict: Verdict) -> Shown:
    """What a verdict shows of faults."""
    return frozenset(
        (one.finding.rule, str(one.finding.subject), one.finding.health, one.stage)
        for one in verdict.standings
        if one.has_series
    )


async def _no_reading(_collector: str) -> None:
    """Nobody accepts a topology in a play."""


class ReplayedDaemon:
    """A daemon with its defaults over a recording; `past` are its verdicts, each from when on it held."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.clock = machine, machine.clock
        self.past: list[Moment] = []
        self._folder = self._make_folder()
        self._until: Callable[[Verdict], bool] = lambda _: False
        self._reached = asyncio.Event()
        self._start()
        self.past.append(Moment(self.seconds, self.verdict))

    @classmethod
    def on(cls, recording: str, fault: list[AnswerChange]) -> "ReplayedDaemon":
        """One that was never started before."""
        return cls(Machine(_loaded(recording), JumpingClock(), fault, {}))

    @property
    def verdict(self) -> Verdict:
        return self._board.node.verdict

    @property
    def judged(self) -> Judged:
        """What a scrape shows."""
        return self._board.node

    @property
    def state(self) -> NodeState:
        return self._board.state

    @property
    def seconds(self) -> float:
        return self.clock.seconds

    def fork(self, fault: list[AnswerChange] | None = None) -> "ReplayedDaemon":
        """Another at the same moment, which goes its own way; with another fault where one is given."""
        machine = self.machine
        clock = JumpingClock(machine.clock.seconds)
        other = object.__new__(ReplayedDaemon)
        other.machine = Machine(
            machine.recording, clock, list(machine.fault if fault is None else fault), machine.kept
        )
        other.clock = clock
        other._folder = other._make_folder()
        shutil.copytree(self._folder, other._folder, dirs_exist_ok=True)
        other._until, other._reached = (lambda _: False), asyncio.Event()
        self._keep(other._folder)
        other._start(self.state)
        other._board.node = self._board.node
        other.past = list(self.past)
        return other

    def play(self, seconds: float, until: Callable[[Verdict], bool] = lambda _: False) -> bool:
        """Let it run so long, at the intervals of service, or until a verdict is as wanted: then True."""
        if until(self.verdict):
            return True
        self._until, self._reached = until, asyncio.Event()
        with asyncio.Runner(loop_factory=lambda: JumpingLoop(self.clock)) as runner:
            return runner.run(self._play(seconds))

    def leap(self, seconds: float) -> None:
        """Let so many seconds pass in which nothing is read, and then a round of all collectors."""
        self.clock.seconds += max(0.0, seconds - ROUND)
        self.play(ROUND)

    def restart(self, seconds: float = DOWN) -> None:
        """The daemon ends, and starts again from what it has kept."""
        save_ledger(self._folder / LEDGER, self._board.node.ledger, self.clock.now())
        self._keep(self._folder)
        self.clock.seconds += seconds
        self._start()
        self.past.append(Moment(self.seconds, self.verdict))

    def boot(self) -> None:
        """The machine starts again, and the daemon with it."""
        self.machine.fault[:] = [one for one in self.machine.fault if one.port != "kmsg"]
        recorded, kernel = self.machine.recording.at_unix, self.clock.seconds + BOOT - KERNEL
        self.machine.fault += [
            AnswerChange("host", "BootId()", "set", "another boot"),
            AnswerChange("host", "BootTime()", "set", recorded + kernel),
        ]
        self.restart(BOOT)

    def _make_folder(self) -> Path:
        folder = Path(mkdtemp(prefix="wirewatch-faults-"))
        weakref.finalize(self, shutil.rmtree, folder)
        return folder

    def _start(self, state: NodeState | None = None) -> None:
        """Begin with what is kept, or go on from a state."""
        clock, folder, self.past = self.clock, self._folder, []
        self._hardware = self.machine.hardware()
        boot = boot_id(self._hardware)
        self._store = BaselineStore(None, clock, read_baseline(folder / BASELINE, clock.now()))
        topologies = TopologyOrders(self._store, clock)
        every = self._components(boot, topologies, state)
        kept = read_kept(folder / MACHINE, every, self._hardware, read_machine)
        if kept.wrong or kept.foreign:
            raise AssertionError(kept.wrong or kept.foreign)
        self._collectors = recalled(every, kept)
        self._kept = MachineWriter(None, kept, self._collectors, clock)
        self._board = Board(
            self._collectors, clock, ledger=read_ledger(folder / LEDGER, boot, clock.now(), own=True),
            changed=self._changed, published=self._kept.changed,
        )  # fmt: skip
        topologies.attach(self._board, lambda: None, _no_reading)

    def _components(
        self, boot: str, topologies: TopologyOrders, state: NodeState | None
    ) -> tuple[AnyCollector, ...]:
        """As `wirewatch serve` puts them together."""
        options, policy, expect = ProbeOptions(), ProbePolicy(), Expect()
        history = History.open(self._folder / HISTORY, self.clock)
        # A state has what is remembered of probes, which takes long to read.
        start = remember(history, self.clock, policy) if state is None else None
        probe = probe_collector(options, policy, expect, start)

        def hinted() -> float | None:
            node = topologies.node()
            return None if node is None else newest_hint(node.state)

        probing = due_after_hint(persistent(probe, history, boot, expect), hinted)
        around = DriftContext(self._store, None, topologies.troubles, foreign)
        drifting = drift_component(DriftOptions(), DriftPolicy(), around)
        every = (*discover(), probing, drifting)
        return tuple(one for one in every if one.options.enabled and one.name != SELF)

    def _keep(self, folder: Path) -> None:
        self._kept.save(folder / MACHINE)
        if self._store.baseline is not None:
            save_baseline(folder / BASELINE, self._store.baseline, self.clock.now())

    def _changed(self, _ledger: Ledger) -> None:
        if not self.past:
            return
        now, last = Moment(self.seconds, self.verdict), self.past[-1]
        if (now.shown, now.verdict.health) != (last.shown, last.verdict.health):
            self.past.append(now)
        if self._until(now.verdict):
            self._reached.set()

    async def _play(self, seconds: float) -> bool:
        schedule = Schedule(self._collectors, self._hardware, Expect(), self._board, DirectLane)
        task = asyncio.create_task(schedule.run())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reached.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return self._reached.is_set()
