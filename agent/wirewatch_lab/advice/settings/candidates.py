"""Settings that guides recommend: why to leave them alone, with measured figures (candidates.toml)."""

from dataclasses import dataclass
from functools import cache

from wirewatch.busbw.references import Confidence
from wirewatch_lab.advice.rows import rows
from wirewatch_lab.advice.settings.measured import MeasuredSetting

GUIDE = "NCCL user guide, environment variables"


@dataclass(frozen=True, slots=True)
class VariableAdvice:
    """One variable. `value`: null to leave it unset, which is NCCL's own choice.

    `disagree`: where public guides contradict each other or what was measured, both sides. `measured`: the
    variable's values beside NCCL's own choice, by a sweep.
    """

    name: str
    value: str | None
    reason: str
    confidence: Confidence
    when_not: str
    source: str
    disagree: str = ""
    measured: tuple[MeasuredSetting, ...] = ()


def left_alone(
    name: str, reason: str, when_not: str, source: str = GUIDE,
    confidence: Confidence = Confidence.PUBLISHED, disagree: str = "", value: str | None = None,
) -> VariableAdvice:  # fmt: skip
    """Return advice to leave a variable to NCCL; or to set it to `value`."""
    return VariableAdvice(name, value, reason, confidence, when_not, source, disagree)


@dataclass(frozen=True, slots=True)
class SettingCandidate:
    """A row of candidates.toml, which explains each field."""

    name: str
    reason: str
    when_not: str
    source: str = GUIDE
    confidence: str = Confidence.PUBLISHED.value
    disagree: str = ""
    value: str | None = None
    training: str = ""
    roce: str = ""
    ports: bool = False

    def advice(self, *, training: bool, roce: bool) -> VariableAdvice:
        """Return the advice for a job that trains, and for ports that all speak RoCE."""
        reason = (self.training if training else "") or (self.roce if roce else "") or self.reason
        trust = Confidence(self.confidence)
        return left_alone(self.name, reason, self.when_not, self.source, trust, self.disagree, self.value)


@cache
def candidates() -> tuple[SettingCandidate, ...]:
    """Return all rows."""
    return tuple(
        SettingCandidate(name, **fields) for name, fields in rows(__package__, "candidates.toml").items()
    )
