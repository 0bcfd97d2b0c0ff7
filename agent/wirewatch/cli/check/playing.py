"""A recording played to its end for `check`: the verdict that a daemon would have by then, without waiting.

Every collector is polled at its interval, by a clock that is counted, until what the recording and its
overlays change has begun and has lasted for long enough to be confirmed.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from heapq import heappop, heappush

from wirewatch.cli.check.answer import Grounds, duration
from wirewatch.cli.check.polling import Poll, polls_needed
from wirewatch.cli.hardware import PlayedPorts
from wirewatch.core.collector import AnyCollector, Component, overdue
from wirewatch.core.types import Expect, Health
from wirewatch.daemon.schedule import RETRY
from wirewatch.hw.play import PlayOverdue
from wirewatch.probe.component import PROBE_NAME
from wirewatch.probe.gate import Reason
from wirewatch.probe.judge import confirming
from wirewatch.probe.model import ProbeMemory
from wirewatch.verdict.drift.component import NAME as DRIFT
from wirewatch.verdict.ledger import Ledger, VerdictPolicy
from wirewatch.verdict.node import troubles

HOLD = 300.0
"""Seconds for which a fault must have lasted: longer than every window of minutes in which a rule counts."""
MOST = 3600.0
"""Seconds after which no probe is waited for any more."""
QUIET = {"wirewatch.hw.nvml": logging.CRITICAL, "wirewatch.probe": logging.WARNING}
"""From which level on is logged: a GPU that is left out, and each probe, would be logged again and again."""
PASSING = frozenset({Reason.SETTLING, Reason.BUDGET, Reason.LOCKED})
"""Reasons for which no probe runs now, and one will run soon."""


def lasting(collector: AnyCollector) -> float:
    """Seconds for which the collector must be polled to confirm what has begun."""
    options = asdict(collector.options)
    # `link_detail_interval` counts where `link_detail` is not off.
    names = (n for n in options if n.endswith("interval") and options.get(n.removesuffix("_interval"), True))
    often: list[float] = [options[name] for name in names]
    interval: float = collector.options.interval
    return max(HOLD, 2 * max(often), (polls_needed(collector) + 1) * interval)


class PlayedPoll(Poll):
    """A recording in play, and what is known of it by now.

    Args:
        collectors: the probe's component and that of the drift as well.
        recall: reads the component of the probe from the history; None where none is kept.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], ports: PlayedPorts, expect: Expect, policy: VerdictPolicy,
        ledger: Ledger, recall: Callable[[], Component] | None,
    ) -> None:  # fmt: skip
        super().__init__(collectors, ports.hardware, expect, policy, ledger, recall)
        self._play, self._steady = ports.clock, ports.steady
        self._stopped: set[str] = set()
        self._ended = False

    def run(self, end: float) -> None:
        """Play until all is confirmed, or until `end` (monotonic seconds of the machine)."""
        for name, level in QUIET.items():
            logging.getLogger(name).setLevel(level)
        due = [(0.0, number) for number in range(len(self._collectors))]
        while due:
            if time.monotonic() > end:
                return
            at, number = heappop(due)
            collector = self._collectors[number]
            self._play.move_to(at)
            self._turn(collector)
            if not self._settled(collector):
                heappush(due, (max(self._play.seconds(), at + self._interval(collector)), number))
        self._recall_kept()
        self._ended = True
        self._play.let_go()

    def grounds(self, why: str) -> Grounds:
        """What is known by now; before the play has ended nothing is known to be well."""
        known = super().grounds(f"{why}, played for {duration(self._play.seconds())}")
        return known if self._ended else replace(known, health=max(known.health, Health.UNKNOWN))

    def troubles(self) -> Sequence[str]:
        """The rules of all findings but those of drift itself; while there are any, nothing is learned."""
        return troubles(self._board.node.verdict, DRIFT)

    def _turn(self, collector: AnyCollector) -> None:
        component = self._board.state.components[collector.name]
        deadline = collector.options.deadline
        if collector.lane not in self._stopped:
            try:
                with self._play.within(deadline):
                    self._board.publish(self._poll(collector))
            except PlayOverdue:
                # The thread of its lane waits for ever.
                self._stopped.add(collector.lane)
        if collector.lane in self._stopped and component.overdue_since is None:
            self._board.publish(overdue(component, self._play.now(), deadline))

    def _interval(self, collector: AnyCollector) -> float:
        interval: float = collector.options.interval
        component = self._board.state.components[collector.name]
        return interval if component.succeeding else min(interval, RETRY)

    def _settled(self, collector: AnyCollector) -> bool:
        lasted = self._play.seconds() - self._steady
        if lasted < lasting(collector):
            return False
        memory = self._board.state.components[collector.name].memory
        return not isinstance(memory, ProbeMemory) or lasted > MOST or self._is_probed(memory, collector)

    def _is_probed(self, memory: ProbeMemory, collector: AnyCollector) -> bool:
        """Whether another probe would show nothing more, or none can run."""
        if collector.lane in self._stopped:
            return True
        if memory.refusal is not None and memory.refusal.reason not in PASSING:
            return True
        tried = memory.tried_mono is not None and memory.tried_mono >= self._play.mono_at(self._steady)
        failing = 0 < memory.failures < collector.policy.failures
        return tried and not confirming(memory) and not failing

    def _recall_kept(self) -> None:
        """What the history has, where no probe was played."""
        component = self._board.state.components.get(PROBE_NAME)
        if self._recall is None or component is None or _probed(component):
            return
        kept = self._recalled()
        if kept.findings or _probed(kept):
            self._board.publish(kept)


def _probed(component: Component) -> bool:
    return isinstance(component.memory, ProbeMemory) and component.memory.last is not None
