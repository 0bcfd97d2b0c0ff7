"""A component: what the daemon knows from one collector, moved forward by pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from wirewatch.core.collector import AnyCollector
from wirewatch.core.types import Absent, Expect, Failed, Finding, Health, Ok, Sample, Subject, Why, worst

F = TypeVar("F")

BLIND_ACTION: Mapping[Why, str] = {
    Why.MISSING: "install or load what is missing; until then this node cannot be judged",
    Why.UNSUPPORTED: "this driver or device does not offer what is read; update it or disable the collector",
    Why.DENIED: "give the agent the permission named here",
    Why.LOST: "drain the node and reset the part, or reboot; look for XID 79 in the kernel log",
    Why.TIMEOUT: "the driver does not answer; drain the node, look for a hung nvidia-smi, reboot if it stays",
    Why.MALFORMED: "report this with a `wirewatch record`; the answer was not understood",
    Why.RELEASED: "none: the GPUs are watched again when the release ends",
}


@dataclass(frozen=True, slots=True)
class Step:
    """What one run of a collector yielded; `duration` and `cpu` in seconds, `cpu` of this process alone."""

    outcome: Ok[Any] | Failed
    duration: float
    memory: Any
    findings: tuple[Finding, ...]
    samples: tuple[Sample, ...]
    applicable: bool | None
    cpu: float = 0.0
    facts: object = None


@dataclass(frozen=True, slots=True)
class Component:
    """State of one collector; `applicable` None means "never yet known".

    `memory` is for the collector's next run alone; what others may know of it are `facts`, `samples` and
    `findings`. Facts are held while the collector cannot read; None until it has read once.
    """

    name: str
    memory: Any
    outcome: Ok[Any] | Failed | None = None
    overdue_since: float | None = None
    findings: tuple[Finding, ...] = ()
    samples: tuple[Sample, ...] = ()
    applicable: bool | None = None
    failures: int = 0
    duration: float = 0.0
    cpu: float = 0.0
    last_success: float = 0.0
    facts: object = None

    @property
    def succeeding(self) -> bool:
        return isinstance(self.outcome, Ok) and self.overdue_since is None

    @property
    def health(self) -> Health | None:
        """None when there is nothing to watch and nothing wrong: it takes no part."""
        if self.findings:
            return worst(self.findings)
        if self.outcome is None:
            return Health.UNKNOWN
        return Health.OK if self.applicable else None


@dataclass(frozen=True, slots=True)
class NodeState:
    """Everything that exporters may read; replaced by one assignment, never changed."""

    components: Mapping[str, Component] = field(default_factory=dict)

    def facts(self, kind: type[F]) -> F | None:
        """The facts of this type, from whichever collector offers them; None while there are none."""
        return next((one.facts for one in self.components.values() if isinstance(one.facts, kind)), None)

    def with_component(self, component: Component) -> "NodeState":
        return NodeState({**self.components, component.name: component})


def fold(
    collector: AnyCollector, memory: object, outcome: Ok[Any] | Failed, duration: float, expect: Expect
) -> Step:
    """What this outcome means: pure, so that histories are tests."""
    if isinstance(outcome, Failed):
        return Step(outcome, duration, memory, (), (), None)
    new, findings = collector.judge(memory, outcome, collector.policy, expect)
    return Step(
        outcome,
        duration,
        new,
        findings,
        tuple(collector.samples(outcome.value, new)),
        collector.applicable(outcome.value) or bool(findings),
        facts=None if collector.facts is None else collector.facts(outcome.value, new),
    )


def after(component: Component, step: Step) -> Component:
    """The component once a run has ended."""
    if isinstance(step.outcome, Failed):
        blind = _blind(component.name, step.outcome.absent)
        return replace(
            component,
            outcome=step.outcome,
            overdue_since=None,
            samples=(),
            findings=_since(component.findings, (*_held(component), blind), step.outcome.at),
            failures=component.failures + (component.overdue_since is None),
            duration=step.duration,
            cpu=component.cpu + step.cpu,
        )
    return replace(
        component,
        memory=step.memory,
        outcome=step.outcome,
        overdue_since=None,
        samples=step.samples,
        findings=_since(component.findings, step.findings, step.outcome.at),
        applicable=step.applicable,
        duration=step.duration,
        cpu=component.cpu + step.cpu,
        last_success=step.outcome.at,
        facts=step.facts,
    )


def overdue(component: Component, at: float, deadline: float) -> Component:
    """The component while a run is out for longer than its deadline (seconds)."""
    absent = Absent(Why.TIMEOUT, f"no result after {deadline:g} s; still waiting")
    return replace(
        component,
        overdue_since=at,
        samples=(),
        findings=_since(component.findings, (*_held(component), _blind(component.name, absent)), at),
        failures=component.failures + 1,
    )


def blind_rule(collector: str) -> str:
    """The rule of the finding that says "this collector, or a part it watches, cannot be read"."""
    return f"{collector}.blind"


def blind_finding(collector: str, subject: Subject, absent: Absent) -> Finding:
    return Finding(blind_rule(collector), Health.UNKNOWN, subject, str(absent), BLIND_ACTION[absent.why])


def _blind(collector: str, absent: Absent) -> Finding:
    return blind_finding(collector, Subject(), absent)


def _held(component: Component) -> tuple[Finding, ...]:
    """Going blind repairs nothing: what was wrong stays wrong."""
    return tuple(
        f for f in component.findings if (f.rule, f.subject) != (blind_rule(component.name), Subject())
    )


def _since(before: tuple[Finding, ...], now: tuple[Finding, ...], at: float) -> tuple[Finding, ...]:
    started = {f.key: f.since for f in before}
    return tuple(replace(f, since=started.get(f.key, f.since or at)) for f in now)
