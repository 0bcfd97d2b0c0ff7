"""The board: the published state of the node, replaced by one assignment and safe to read from any thread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wirewatch.core.collector import AnyCollector, Component, NodeState
from wirewatch.core.ports import Clock
from wirewatch.probe.component import PROBE_NAME, probe_summary
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import Ledger, Now, Probes, VerdictPolicy
from wirewatch.verdict.node import Judged, judge_node


@dataclass(frozen=True, slots=True)
class ReportSource:
    """What reporters read: the verdict, whether the first polls have ended, and whether the loops turn."""

    node: Callable[[], Judged]
    ready: Callable[[], bool]
    turning: Callable[[], bool]


class Board:
    """What is known of the node, updated with each component; only the event loop changes it.

    Args:
        policy: how the verdict is made; None for the default policy.
        ledger: what is remembered from before; None for an empty one.
        changed: called with each new ledger.
        published: called with each new component.
        released_until: returns until when (Unix seconds) the GPUs are released; 0 when they are not.
    """

    def __init__(
        self, collectors: Sequence[AnyCollector], clock: Clock, *, policy: VerdictPolicy | None = None,
        ledger: Ledger | None = None, changed: Callable[[Ledger], None] | None = None,
        published: Callable[[Component], None] | None = None,
        released_until: Callable[[], float] = lambda: 0.0,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._policy = policy or VerdictPolicy()
        self._changed, self._published = changed, published
        self._released_until = released_until
        self._polled_at = 0.0
        self._publish(NodeState({c.name: Component(c.name, c.start) for c in collectors}), ledger or Ledger())

    @property
    def state(self) -> NodeState:
        """The components as they are now."""
        return self.node.state

    def publish(self, component: Component) -> None:
        """Replace one component and judge the node again."""
        state = self.node.state.with_component(component)
        self._polled_at = self._clock.now()
        self._publish(state, step(self.node.ledger, state, self._now(state), self._policy))
        if self._published is not None:
            self._published(component)

    def order(self, change: Callable[[Judged, VerdictPolicy, Now], Ledger]) -> Judged:
        """Change the ledger as an operator ordered, and judge again; exceptions of `change` pass through."""
        now = self._now(self.state)
        ledger = change(self.node, self._policy, now)
        self._publish(self.state, step(ledger, self.state, now, self._policy))
        return self.node

    def first_polls_done(self) -> bool:
        """Return whether each collector has ended its first run or is overdue with it."""
        parts = self.state.components.values()
        return all(c.outcome is not None or c.overdue_since is not None for c in parts)

    def _publish(self, state: NodeState, ledger: Ledger) -> None:
        verdict = judge_node(state, ledger, self._policy.failing())
        self.node = Judged(state, verdict, ledger, self._polled_at, self._released_until())
        if self._changed is not None:
            self._changed(ledger)

    def _now(self, state: NodeState) -> Now:
        mono = self._clock.mono()
        probe = probe_summary(state.components.get(PROBE_NAME), mono)
        if probe is None:
            return Now(self._clock.now(), mono)
        return Now(self._clock.now(), mono, Probes(probe.complete, probe.clean, probe.watched))
