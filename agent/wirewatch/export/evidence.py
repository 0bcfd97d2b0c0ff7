"""The evidence for one finding, for a hardware return: from the published state alone. Pure."""

from wirewatch.core.types import Health as CoreHealth
from wirewatch.export.documents import standing
from wirewatch.export.evidencedocuments import FindingDocument
from wirewatch.export.evidencenumbers import numbers, read_at
from wirewatch.export.evidenceparts import known, node_facts, part_of
from wirewatch.export.healthdocuments import HEALTH_NAMES, Health
from wirewatch.verdict.node import Judged, Standing
from wirewatch.verdict.orders import pick


def evidence(judged: Judged, name: str, at: float, source: str) -> FindingDocument:
    """The document of the finding whose id begins so, at `at` Unix seconds.

    Raises:
        OrderError: no finding has such an id, or several have.
    """
    verdict = judged.verdict
    one = pick(verdict, name)
    here = known(judged.state)
    kind, part = part_of(here, one)
    found, why = numbers(judged.state, one)
    return FindingDocument(
        schema="wirewatch.finding/1", at=at, health=HEALTH_NAMES[verdict.health], job_ready=verdict.job_ready,
        source=source, finding=standing(one), collector=one.collector or None,
        measured=_measured(one.measured), last_seen=_last_seen(judged, one), kind=kind, part=part,
        node=node_facts(here, source),
        numbers_at=read_at(judged.state, one) if found else None, numbers_unknown=why or None, numbers=found,
    )  # fmt: skip


def _measured(health: CoreHealth | None) -> Health | None:
    return None if health is None else HEALTH_NAMES[health]


def _last_seen(judged: Judged, one: Standing) -> float | None:
    """When it was last there: an event's own time, that of the reading that finds it, or as is remembered.

    What is remembered of one that is over is when it was found to be.
    """
    if one.finding.last:
        return one.finding.last
    if one.measured is not None:
        return read_at(judged.state, one)
    entry = judged.ledger.entries.get(one.key)
    return entry.last if entry else None
