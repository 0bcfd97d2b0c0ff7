"""The board: the published state of the node, replaced by one assignment and safe to read from any thread."""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from wirewatch.core.collector import AnyCollector, Component, NodeState
from wirewatch.core.ports import Clock
from wirewatch.documents.health import HealthDocument
from wirewatch.probe.collector import PROBE_NAME, probe_summary
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import Ledger, Now, Probes, VerdictPolicy
from wirewatch.verdict.node import Judged, judge_node

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReportSource:
    """Source of reporters: the verdict, also as `/health` has it; first polls ended; whether loops turn."""

    node: Callable[[], Judged]
    ready: Callable[[], bool]
    turning: Callable[[], bool]
    health: Callable[[], HealthDocument]


class Board:
    """The node's state, updated with each component; only the event loop changes it.

    `changed` is called with each new ledger, `published` with each new component. `released_until` returns
    until when (Unix seconds) the GPUs are released; 0 when they are not.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], clock: Clock, *, policy: VerdictPolicy | None = None,
        ledger: Ledger | None = None, changed: Callable[[Ledger], None] | None = None,
        published: Callable[[Component], None] | None = None,
        released_until: Callable[[], float] = lambda: 0.0,
    ) -> None:  # fmt: skip
        self._clock = clock
        self.policy = policy or VerdictPolicy()
        self._changed, self._published = changed, published
        self._released_until = released_until
        self._polled_at = 0.0
        self._memories: dict[str, object] = {}
        self._errors = ErrorLog(log)
        self._publish(NodeState({c.name: begun(c, c.start) for c in collectors}), ledger or Ledger())

    @property
    def state(self) -> NodeState:
        """The components as they are now."""
        return self.node.state

    def publish(self, component: Component) -> None:
        """Replace one component and judge the node again."""
        state = self.node.state.with_component(component)
        self._polled_at = self._clock.now()
        self._publish(state, step(self.node.ledger, state, self._now(state), self.policy))
        if self._published is not None:
            self._call("keeping what is known of the machine", self._published, component)

    def change(self, collectors: Sequence[AnyCollector], policy: VerdictPolicy) -> None:
        """Have these components and this policy from now on, and judge the node again.

        A component keeps all that it has; a component that comes back begins with its memory.
        """
        self.policy, known = policy, self.state.components
        wanted = {one.name: one for one in collectors}
        self._memories |= {name: one.memory for name, one in known.items() if name not in wanted}
        made = {
            name: known.get(name) or begun(one, self._memories.pop(name, one.start))
            for name, one in wanted.items()
        }
        state = NodeState(made)
        self._publish(state, step(self.node.ledger, state, self._now(state), policy))

    def order(self, change: Callable[[Judged, VerdictPolicy, Now], Ledger]) -> Judged:
        """Change the ledger as an operator ordered, and judge again; exceptions of `change` pass through."""
        now = self._now(self.state)
        ledger = change(self.node, self.policy, now)
        self._publish(self.state, step(ledger, self.state, now, self.policy))
        return self.node

    def first_polls_done(self) -> bool:
        """Return whether each collector that gates has ended its first run or is overdue with it."""
        parts = (one for one in self.state.components.values() if one.gates)
        return all(c.outcome is not None or c.overdue_since is not None for c in parts)

    def _publish(self, state: NodeState, ledger: Ledger) -> None:
        verdict = judge_node(state, ledger, self.policy.failing())
        self.node = Judged(state, verdict, ledger, self._polled_at, self._released_until())
        if self._changed is not None:
            self._call("keeping what is known of faults", self._changed, ledger)

    def _call(self, part: str, listener: Callable[[T], None], new: T) -> None:
        """A listener that raises costs what it does, and not the verdict."""
        try:
            listener(new)
        except Exception as error:  # noqa: BLE001 - logged, and the verdict goes on
            self._errors.raised(part, error)
        else:
            self._errors.worked(part)

    def _now(self, state: NodeState) -> Now:
        mono = self._clock.mono()
        probe = probe_summary(state.components.get(PROBE_NAME), mono)
        if probe is None:
            return Now(self._clock.now(), mono)
        return Now(self._clock.now(), mono, Probes(probe.complete, probe.clean, probe.watched))


def begun(collector: AnyCollector, memory: object) -> Component:
    """Return the component of a collector that has not run yet."""
    return Component(collector.name, memory, gates=collector.gates)


class ErrorLog:
    """Log of errors of a program's parts: a new error has its traceback, a repeated error is left out.

    Errors are the same when raised at the same place, whatever their texts. When the part works again, or
    raises another error, the repetitions are logged. `failing`: by part, where and how often it last raised.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.failing: dict[str, tuple[object, int]] = {}

    def raised(self, part: str, error: BaseException) -> None:
        frames = traceback.walk_tb(error.__traceback__)
        place = (type(error), *((frame.f_code.co_filename, line) for frame, line in frames))
        last, times = self.failing.get(part, (None, 0))
        if last != place:
            self.worked(part)
            self._log.error("%s raised", part, exc_info=error)
            times = 0
        self.failing[part] = (place, times + 1)

    def worked(self, part: str) -> None:
        _, times = self.failing.pop(part, (None, 0))
        if times > 1:
            self._log.error("%s raised the same %d more times", part, times - 1)
