"""What a check rests on, what it was asked for, and what it answers. Imported in milliseconds."""

from dataclasses import dataclass
from typing import Literal

from wirewatch.core.types import Finding, Health
from wirewatch.documents.health import HEALTH_NAMES, CheckFinding, Probe, Stage

HEALTHS = {name: health for health, name in HEALTH_NAMES.items()}
EXIT = {Health.OK: 0, Health.DEGRADED: 1, Health.FAILED: 2, Health.UNKNOWN: 3}
SUPPRESSED = "suppressed"
Source = Literal["daemon", "own", "none"]


def found(finding: Finding, name: str = "", stage: Stage | Literal[""] = "") -> CheckFinding:
    """A finding as `check` prints it; without `name` and `stage` where nobody has given it one."""
    health, subject = HEALTH_NAMES[finding.health], finding.subject.levels()
    return CheckFinding(
        name, stage, finding.rule, health, subject, finding.evidence, finding.action, finding.since
    )


@dataclass(frozen=True, slots=True)
class Grounds:
    """What is known of the node, by whose word, and why not by the daemon's.

    `verdict_at`: Unix seconds, 0 for no verdict. `probe` None: probing is off, or there is nothing to probe.
    `required`: the policy wants a fresh probe. `released`: nothing may be asked of the GPUs now.
    """

    health: Health
    source: Source
    why: str = ""
    verdict_at: float = 0.0
    findings: tuple[CheckFinding, ...] = ()
    probe: Probe | None = None
    required: bool = False
    released: bool = False


def nothing(why: str, *, required: bool = False) -> Grounds:
    """Nobody has told anything."""
    return Grounds(Health.UNKNOWN, "none", why, required=required)


@dataclass(frozen=True, slots=True)
class Terms:
    """When a job may start.

    `fail_on` always holds FAILED; `max_age` of a probe in seconds, None: as the daemon has it; `require`:
    without a fresh probe no job starts.
    """

    fail_on: frozenset[Health] = frozenset({Health.FAILED})
    max_age: float | None = None
    require: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered at `at`, Unix seconds; `fail_on` and `grounds.probe` are those that were applied."""

    at: float
    health: Health
    fail_on: frozenset[Health]
    required: bool
    grounds: Grounds

    @property
    def may_start(self) -> bool:
        return self.health not in self.fail_on

    @property
    def code(self) -> int:
        """The exit code."""
        return 0 if self.may_start else EXIT[self.health]
