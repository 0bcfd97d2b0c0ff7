"""What a look or a probe of our own takes: configuration, ports, and what is known from before. Heavy."""

import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wirewatch.cli.checking.look import Look
from wirewatch.cli.hardware import elsewhere, live, replayed
from wirewatch.cli.topologies import given_graph
from wirewatch.collectors import discover
from wirewatch.config import Config, expectations, load
from wirewatch.core.collector import AnyCollector, Component
from wirewatch.core.types import Finding
from wirewatch.daemon.baselines import Loaded, foreign
from wirewatch.daemon.baselines import read as read_baseline
from wirewatch.daemon.persistence import read
from wirewatch.probe.component import ProbeSummary, probe_summary
from wirewatch.probe.persistence import boot_id, recall
from wirewatch.probe.request import Asked, Wish, ask
from wirewatch.probe.statefolder import State, StateError, open_state, state_directory
from wirewatch.verdict.drift.component import Around, Unkept, drift_component
from wirewatch.verdict.ledger import Ledger

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Which:
    """Which node: this one, configured as its daemon is, or a recording."""

    config: Path | None = None
    replay: str | None = None
    overlays: Sequence[str] = ()


class Node:
    """A node that can be looked at; its NVML process is started with the first question."""

    def __init__(self, which: Which, *, keep: bool) -> None:
        """With `keep` the state folder is made where there is none, since a probe is kept there.

        Raises:
            Unusable: the configuration, the recording or an overlay.
        """
        self._config, self._collectors = load(which.config, discover())
        self._state = (
            None if which.replay and not self._config.state.directory else _state(self._config, keep=keep)
        )
        if which.replay:
            self._hardware, self._nvml = replayed(which.replay, which.overlays, loop=False)
        else:
            self._hardware, self._nvml = live(self._config, state=self._state)
        self._expect = expectations(self._config)
        self._prober = elsewhere(self._config, self._hardware)

    def look(self) -> Look:
        """A look that can begin. What the daemon remembered is read only: it may still run."""
        config, clock = self._config, self._hardware.clock
        boot = boot_id(self._hardware)
        ledger = read(self._state.latches, boot, clock.now()).ledger if self._state else Ledger(boot)
        recalls = self._recall if config.probe.enabled else None
        policy = config.policy.verdict
        collectors = (*self._collectors, *self._drift())
        return Look(collectors, self._hardware, self._expect, policy, ledger, recalls)

    def _drift(self) -> Sequence[AnyCollector]:
        """The topology against its baseline, where there is one; it is neither learned nor written here."""
        options = self._config.drift
        loaded = read_baseline(self._state.baseline) if self._state else Loaded(None)
        if not options.enabled or (loaded == Loaded(None) and not options.baseline):
            return ()
        given = given_graph(options.baseline) if options.baseline else None
        around = Around(Unkept(loaded.baseline, loaded.trouble), given, foreign=foreign)
        return (drift_component(options, self._config.policy.drift, around),)

    def _recall(self) -> Component:
        config, history = self._config, self._state.history if self._state else None
        return recall(history, self._hardware, config.probe, config.policy.probe, self._expect, self._prober)

    def probed(self) -> tuple[ProbeSummary | None, tuple[Finding, ...]]:
        """The newest complete probe of the history, None where probing is off, and what it found."""
        if not self._config.probe.enabled:
            return None, ()
        component = self._recall()
        return probe_summary(component, self._hardware.clock.mono()), component.findings

    def probe(self, owner: str, end: float) -> Asked:
        """One probe for who holds the GPUs, over by `end` (monotonic), and again to confirm what it finds."""
        config, wish = self._config, Wish(owner=owner)
        return ask(
            self._hardware, config.probe, config.policy.probe, self._expect, wish, self._state, end,
            self._prober,
        )  # fmt: skip

    def stop(self) -> None:
        self._nvml.stop()

    def shoot(self) -> None:
        """Kill what may hang, and wait for nothing."""
        pid = self._nvml.cost().pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _state(config: Config, *, keep: bool) -> State | None:
    """The state folder, None where there is none that can be used: a verdict can be had without."""
    try:
        folder = state_directory(config.state.directory)
        if keep:
            return open_state(folder)
    except StateError as error:
        log.warning("%s: no probe is kept, and no lock is looked at", error)
        return None
    return State(folder) if folder.is_dir() else None
