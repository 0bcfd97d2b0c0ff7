"""The JSON documents of the HTTP interface (docs/schemas)."""

from typing import Any

from wirewatch.core.component import Component, NodeState
from wirewatch.core.types import Failed, Finding
from wirewatch.verdict.node import judge_node


def health(state: NodeState, at: float) -> dict[str, Any]:
    """`wirewatch.health/1`: the verdict with its reasons."""
    verdict = judge_node(state)
    return {
        "schema": "wirewatch.health/1",
        "at": at,
        "health": verdict.health.name.lower(),
        "job_ready": verdict.job_ready,
        "findings": [finding(f) for f in verdict.findings],
    }


def state(node: NodeState, at: float, source: str) -> dict[str, Any]:
    """`wirewatch.state/1`: the verdict, and each collector with its findings, age and samples."""
    verdict = judge_node(node)
    return {
        "schema": "wirewatch.state/1",
        "at": at,
        "health": verdict.health.name.lower(),
        "job_ready": verdict.job_ready,
        "source": source,
        "collectors": [_component(c) for c in node.components.values()],
    }


def finding(one: Finding) -> dict[str, Any]:
    """A finding; its subject holds only the levels that apply."""
    part = one.subject
    levels = {"gpu": part.gpu, "uuid": part.uuid, "link": part.link, "device": part.device, "port": part.port}
    return {
        "rule": one.rule,
        "health": one.health.name.lower(),
        "subject": {name: value for name, value in levels.items() if value},
        "evidence": one.evidence,
        "action": one.action,
        "since": one.since,
    }


def _component(component: Component) -> dict[str, Any]:
    failed = component.outcome.absent if isinstance(component.outcome, Failed) else None
    return {
        "collector": component.name,
        "health": None if component.health is None else component.health.name.lower(),
        "applicable": component.applicable,
        "success": component.succeeding,
        "error": None if failed is None else str(failed),
        "overdue_since": component.overdue_since,
        "last_success": component.last_success,
        "duration_seconds": component.duration,
        "failures": component.failures,
        "findings": [finding(f) for f in component.findings],
        "samples": [
            {
                "name": f"wirewatch_{s.metric.name}",
                "labels": dict(zip(s.metric.labels, s.labels, strict=True)),
                "value": s.value,
            }
            for s in component.samples
        ],
    }
