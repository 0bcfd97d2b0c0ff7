"""The JSON documents of `/health` and of `wirewatch check`, which reads the first and writes the second.

Plain dataclasses and the standard library only: importing pydantic takes longer than all of `check`. The
server and docs/schemas make TypeAdapters of these types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wirewatch.core import types
from wirewatch.core.types import OperatorNote

Health = Literal["ok", "degraded", "unknown", "failed"]
Stage = Literal["live", "latched", "probation", "acknowledged", "suppressed"]
HEALTH_NAMES: Mapping[types.Health, Health] = {
    types.Health.OK: "ok",
    types.Health.DEGRADED: "degraded",
    types.Health.UNKNOWN: "unknown",
    types.Health.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """A finding; `subject` by level: gpu, uuid, link, device, port; `since` in Unix seconds."""

    rule: str
    health: Health
    subject: dict[str, str]
    evidence: str
    action: str
    since: float


@dataclass(frozen=True, slots=True)
class SameCause(ReportedFinding):
    """A finding that has the same cause as another, under which it stands; `id` names it."""

    id: str


@dataclass(frozen=True, slots=True)
class NodeFinding(ReportedFinding):
    """A finding as it counts for the node.

    `id` names it for `wirewatch findings`; `times`: how often it came within days; `last`: when an event was
    last seen, 0 for a measurement; `suppressed_until` in Unix seconds, 0 for not suppressed. `same_cause`:
    what cannot be read for the same reason, or since this GPU is lost.
    """

    id: str
    stage: Stage
    times: int
    last: float
    acknowledged: OperatorNote | None
    suppressed: OperatorNote | None
    suppressed_until: float
    same_cause: list[SameCause] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProbeStatus:
    """The newest complete probe: when it began (`at`, 0 for never), how long ago it ended (null for never).

    `fresh`: young enough to count for now, by `[probe] fresh`; `required`: whether a job may start only with
    a fresh probe, by `[policy.verdict] require_fresh_probe`. `no_expectation`: collectives in it of which
    nothing is expected; the node's own history and the wire judge them.
    """

    at: float
    age_seconds: float | None
    fresh: bool
    required: bool
    no_expectation: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HealthDocument:
    """The verdict with its reasons, worst first. Times in Unix seconds, 0 for never or none.

    `polled_at`: the newest poll of any collector; `turning`: all loops of the daemon run; `released_until`:
    the end of `wirewatch release`; `probe` null: switched off, or nothing to probe on this node;
    `probe_exempt`: the latter, so that none can be required. `job_ready`: the next job may start, since
    `health` is none of `fail_on`, which is `[policy.verdict] fail_on`, its default in a document without it.
    `suppressed`: findings that an operator suppressed, so that they do not count.
    """

    schema: Literal["wirewatch.health/1"]
    at: float
    health: Health
    job_ready: bool
    polled_at: float
    turning: bool
    released_until: float
    probe: ProbeStatus | None
    findings: list[NodeFinding]
    fail_on: list[Health] = field(
        default_factory=lambda: [HEALTH_NAMES[one] for one in sorted(types.FAIL_ON)]
    )
    probe_exempt: bool = False
    suppressed: list[NodeFinding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding that counts; `id` and `stage` are empty where neither a daemon nor a poll has set them."""

    id: str
    stage: Stage | Literal[""]
    rule: str
    health: Health
    subject: dict[str, str]
    evidence: str
    action: str
    since: float
    same_cause: list[SameCause] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckDocument:
    """Whether a job may start: it may unless `health` is one of `fail_on`.

    `fail_on` is that of the node's configuration, or of `--fail-on`.

    `source`: the daemon, a demo that runs here, a poll by `check` itself (`own`), or none where nothing
    answered in time; `why`: why it is not the daemon, and further notes, in words. `verdict_at`: when the
    node was polled for the verdict, Unix seconds, 0 for never. `probe` null: switched off, or nothing to
    probe on this node; its `fresh` is by `--max-age` where that was given, its `required` also by
    `--require-fresh-probe`. `probe_exempt`: there is nothing to probe, so that none can be required.
    `suppressed`: findings that an operator suppressed, so that they do not count, and until when.
    """

    schema: Literal["wirewatch.check/1"]
    at: float
    health: Health
    may_start: bool
    fail_on: list[Health]
    source: Literal["daemon", "demo", "own", "none"]
    why: str
    verdict_at: float
    probe: ProbeStatus | None
    findings: list[CheckFinding]
    probe_exempt: bool = False
    suppressed: list[NodeFinding] = field(default_factory=list)
