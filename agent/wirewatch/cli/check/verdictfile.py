"""What the file of the verdict says: the answer of `wirewatch check --cached` to the same document."""

import math

from wirewatch.cli.check.answer import Terms, decide, line, nothing
from wirewatch.cli.check.daemon import StaleAnswer, grounds_of
from wirewatch.core.types import Health
from wirewatch.documents import health as documents
from wirewatch.documents.health import HEALTH_NAMES, HealthDocument, ProbeStatus
from wirewatch.documents.verdictfile import FileVerdict


def file_verdict(health: HealthDocument, source: str, socket: str) -> FileVerdict:
    """The answer to a document as of its own time; `socket`: where `check` would have asked."""
    try:
        grounds = grounds_of(health, health.at)
    except StaleAnswer as error:
        grounds = nothing(f"{socket}: {error}")
    answer = decide(grounds, Terms(), health.at)
    always = decide(grounds, Terms(frozenset({Health.FAILED})), health.at).fail_on
    return FileVerdict(
        source, HEALTH_NAMES[answer.health], answer.may_start, _names(answer.fail_on), _names(always),
        _age(answer.grounds.probe), grounds.released, line(answer),
    )  # fmt: skip


def _names(healths: frozenset[Health]) -> tuple[documents.Health, ...]:
    return tuple(HEALTH_NAMES[one] for one in sorted(healths))


def _age(probe: ProbeStatus | None) -> int | str:
    if probe is None:
        return "none"
    return "never" if probe.age_seconds is None else math.ceil(probe.age_seconds)
