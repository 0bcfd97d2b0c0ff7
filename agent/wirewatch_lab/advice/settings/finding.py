"""A finding about a setting: severity, text and source; and the evidence to judge it by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from wirewatch.core.types import Health
from wirewatch.nccl.settings import number
from wirewatch_lab.advice.settings.measured import MeasuredSetting
from wirewatch_lab.advice.settings.node import NcclNode
from wirewatch_lab.advice.settings.sources import WrittenSetting


class Trouble(Enum):
    """What a setting does to a job."""

    FAILS = "fails"
    UNKNOWN = "not known"
    SLOWS = "slows"
    VALUE = "read otherwise"
    NAME = "does not exist"
    NOTHING = "does nothing"
    OLD = "deprecated"

    @property
    def health(self) -> Health:
        """Return its severity; deprecated settings still work."""
        return _HEALTHS.get(self, Health.DEGRADED)


_HEALTHS: Mapping[Trouble, Health] = {
    Trouble.FAILS: Health.FAILED, Trouble.UNKNOWN: Health.UNKNOWN, Trouble.OLD: Health.OK,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """One setting with what is wrong with it; `origin`: where it stands."""

    name: str
    value: str
    origin: str
    trouble: Trouble
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Evidence to judge a setting: the node, all effective settings, and a sweep's measurements."""

    node: NcclNode
    settings: Mapping[str, str] = field(default_factory=dict)
    measured: tuple[MeasuredSetting, ...] = ()

    def value(self, name: str) -> str:
        """Return a setting's value, empty where unset."""
        return self.settings.get(name, "")

    def on(self, name: str) -> bool:
        """Return whether a setting is a number other than 0."""
        return number(self.value(name)) != 0


def found(one: WrittenSetting, trouble: Trouble, text: str, source: str) -> SettingFinding:
    """Return a finding about a setting."""
    return SettingFinding(one.name, one.value, one.origin, trouble, text, source)
