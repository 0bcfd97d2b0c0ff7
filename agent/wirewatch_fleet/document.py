"""The document of `wirewatch fleet status --json`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.core.types import Health
from wirewatch.documents import health
from wirewatch.documents.health import HEALTH_NAMES
from wirewatch_fleet.reasons import reason
from wirewatch_fleet.worst import FleetTable

State = Literal["failed", "unknown", "silent", "degraded"]


@dataclass(frozen=True, slots=True)
class BadNodeReport:
    """A node that is not well, by the worst of it.

    `rule` is that of a finding, or a word without a dot where no finding is the reason; `subject` by level:
    gpu, uuid, link, device, port. `rack` and `leaf` are labels of its target, "" where it has none. `since`
    and `heard`, when its agent was last heard, are Unix seconds, null where they are not known. `findings`:
    how many there are on the node.
    """

    cluster: str
    node: str
    rack: str
    leaf: str
    state: State
    rule: str
    subject: dict[str, str]
    since: float | None
    heard: float | None
    findings: int
    means: str
    do: str


@dataclass(frozen=True, slots=True)
class FleetStatusDocument:
    """`nodes` worst first. `health` is that of the worst node, and UNKNOWN where no node is known.

    `counts` of nodes by state, `known` all of them; `clusters` that were asked for, none for all. `warnings`
    of Prometheus: its answer is not whole, and the health at least UNKNOWN.
    """

    schema: Literal["wirewatch.fleet-status/1"]
    at: float
    health: health.Health
    prometheus: str
    clusters: list[str]
    known: int
    counts: dict[str, int]
    warnings: list[str]
    nodes: list[BadNodeReport]


FLEET_STATUS = TypeAdapter(FleetStatusDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.fleet-status.1": FLEET_STATUS}


def document(
    table: FleetTable, at: float, prometheus: str, clusters: Sequence[str], warnings: Sequence[str]
) -> FleetStatusDocument:
    """The table as a document at `at`, Unix seconds; `prometheus` is the address that was asked."""
    worst = max(table.health, Health.UNKNOWN) if warnings else table.health
    nodes = [
        BadNodeReport(
            one.cluster, one.node, one.rack, one.leaf, one.state, one.rule,  # type: ignore[arg-type]
            dict(one.subject), one.since, one.heard, one.findings, *reason(one.rule),
        )
        for one in table.nodes
    ]  # fmt: skip
    return FleetStatusDocument(
        "wirewatch.fleet-status/1", at, HEALTH_NAMES[worst], prometheus, [*clusters], table.known,
        dict(table.counts), [*warnings], nodes,
    )  # fmt: skip
