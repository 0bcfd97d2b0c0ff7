"""A node whose daemon keeps a history, with `wirewatch probe` run beside it by way of that history alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tests.node.probe.drawn import of_order
from tests.node.probe.histories import stored
from tests.node.probe.idle import Idle
from wirewatch.core.collector import Component
from wirewatch.core.ports import Order
from wirewatch.core.probe import Outcome, Probed
from wirewatch.core.types import Absent
from wirewatch.probe.collector import probe_collector
from wirewatch.probe.history import History, HistoryLimits, ProbeRecord
from wirewatch.probe.request import ProbeOverrides, ProbeResult, probe_now
from wirewatch.probe.restore import keep, persistent, remember
from wirewatch.probe.setup import ProbeTerms, read_terms
from wirewatch.statefolder import StateFolder

BOOT = "boot-1"


class SharedNode(Idle):
    """`folder` is the state's; the daemon's history is open in `history`, with these limits."""

    def __init__(
        self, folder: Path, count: int = 2, limits: HistoryLimits | None = None, **options: Any
    ) -> None:
        super().__init__(count, **options)
        # Long after the start of its machine, so that what was yesterday has a time of its own.
        self.clock.seconds = 1e6
        self.state, self._limits = StateFolder(folder), limits or HistoryLimits()
        self.history: History | None = None
        self.start()

    def start(self) -> None:
        """The daemon, perhaps again: all that it knows is in the history."""
        self.history = History.open(self.state.history, self.clock, self._limits)
        start = remember(self.history, self.clock, self.rules_used)
        made = probe_collector(self.made, self.rules_used, self.expect, start)
        self.collector = persistent(made, self.history, BOOT, self.expect)
        self.component = Component(self.collector.name, self.collector.start)

    def command(self, **wish: Any) -> ProbeResult:
        """`wirewatch probe`, as a process of its own would run it."""
        told = probe_now(
            self.hardware, self.made, self.rules_used, self.expect, ProbeOverrides(**wish), self.state
        )
        assert told.probed is not None, told.refusal
        return told

    def other(
        self,
        outcome: Outcome = "ok",
        by: Literal["daemon", "command"] = "command",
        boot_id: str = BOOT,
        **knobs: Any,
    ) -> Probed:
        """One probe as the daemon would order it, that another process has run and kept just now."""
        began = self.clock.now()
        self.clock.seconds += 1.5
        probed = of_order(self.order("daemon" if by == "daemon" else "command"), began, outcome, **knobs)
        keep(self.writing(), probed, self.clock.now(), boot_id, by)
        return probed

    def writing(self) -> History:
        """The history as another process opens it."""
        return History.open(self.state.history, self.clock, self._limits)

    def order(self, by: Any = "command") -> Order:
        """What would be ordered now of all that is here."""
        port = replace(self.probes, result=lambda order: of_order(order, 0.0), ordered=[])
        hardware = replace(self.hardware, probe=port)
        probe_now(hardware, self.made, self.rules_used, self.expect, ProbeOverrides(force=True), None)
        return replace(port.ordered[0], by=by, forced=False)

    def terms(self) -> ProbeTerms:
        found = read_terms(self.hardware, self.made, self.expect, BOOT)
        assert not isinstance(found, Absent)
        return found

    def records(self) -> list[ProbeRecord]:
        """All that is kept, oldest first."""
        return stored(self.state.history)
