"""The node's verdict: the worst of the components that take part; knowing nothing is UNKNOWN."""

from dataclasses import dataclass

from wirewatch.core.component import NodeState
from wirewatch.core.types import Finding, Health

JOB_READY = frozenset({Health.OK, Health.DEGRADED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """`findings` worst first; `job_ready` says whether the next job may start here."""

    health: Health
    findings: tuple[Finding, ...]

    @property
    def job_ready(self) -> bool:
        return self.health in JOB_READY


def judge_node(state: NodeState) -> Verdict:
    """The verdict of a state. A node on which nothing at all is watched is UNKNOWN, not OK."""
    known = [c.health for c in state.components.values() if c.health is not None]
    findings = [f for c in state.components.values() for f in c.findings]
    ranked = sorted(findings, key=lambda f: (-f.health, f.rule, f.subject))
    takes_part = any(c.applicable or c.outcome is None for c in state.components.values())
    health = max(known, default=Health.UNKNOWN)
    return Verdict(health if takes_part else max(health, Health.UNKNOWN), tuple(ranked))
