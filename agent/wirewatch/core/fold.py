"""The pure folds over a collector's runs.

`fold` makes a `Step` of one run; `after` and `overdue` take the `Component` from one run to the next.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from wirewatch.core.collector import AnyCollector, Component, Observed, blind_finding, blind_rule
from wirewatch.core.types import Absent, Expect, Failed, Finding, Ok, Sample, Subject, Why


@dataclass(frozen=True, slots=True)
class Step:
    """The yield of one run of a collector; `duration` and `cpu` in seconds, `cpu` of this process alone."""

    outcome: Ok[Any] | Failed
    duration: float
    memory: Any
    findings: tuple[Finding, ...]
    samples: tuple[Sample, ...]
    applicable: bool | None
    cpu: float = 0.0
    facts: object = None
    observed: Observed = field(default_factory=Observed)


def fold(
    collector: AnyCollector, memory: object, outcome: Ok[Any] | Failed, duration: float, expect: Expect
) -> Step:
    """Fold an outcome into its component: pure, so that histories are tests."""
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
        observed=Observed() if collector.observed is None else collector.observed(outcome.value, new),
    )


def after(component: Component, step: Step) -> Component:
    """Return the component after a run."""
    failed = isinstance(step.outcome, Failed)
    found = _held(component, step.outcome.absent) if isinstance(step.outcome, Failed) else step.findings
    ended = replace(
        component,
        outcome=step.outcome,
        overdue_since=None,
        samples=() if failed else step.samples,
        findings=_since(component.findings, found, step.outcome.at),
        duration=step.duration,
        cpu=component.cpu + step.cpu,
    )
    if failed:
        return replace(ended, failures=component.failures + (component.overdue_since is None))
    return replace(
        ended,
        memory=step.memory,
        applicable=step.applicable,
        last_success=step.outcome.at,
        facts=step.facts,
        observed=step.observed,
    )


def overdue(component: Component, at: float, deadline: float) -> Component:
    """Return the component while a run is overdue; `at` in Unix seconds, `deadline` in seconds."""
    absent = Absent(Why.TIMEOUT, f"no result after {deadline:g} s; still waiting")
    return replace(
        component,
        overdue_since=at,
        samples=(),
        findings=_since(component.findings, _held(component, absent), at),
        failures=component.failures + 1,
    )


def _held(component: Component, absent: Absent) -> tuple[Finding, ...]:
    """Return the blind finding and all others: going blind repairs nothing."""
    blind = (blind_rule(component.name), Subject())
    others = (f for f in component.findings if (f.rule, f.subject) != blind)
    return (*others, blind_finding(component.name, Subject(), absent))


def _since(before: tuple[Finding, ...], now: tuple[Finding, ...], at: float) -> tuple[Finding, ...]:
    started = {f.key: f.since for f in before}
    return tuple(replace(f, since=started.get(f.key, f.since or at)) for f in now)
