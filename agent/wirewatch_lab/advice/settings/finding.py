"""What is found of one setting: how bad it is, in words, with its source; and what it is judged by."""

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
        """How bad it is; what is deprecated still works."""
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
    """What a setting is judged by: the node, all settings that count, and what a sweep measured."""

    node: NcclNode
    settings: Mapping[str, str] = field(default_factory=dict)
    measured: tuple[MeasuredSetting, ...] = ()

    def value(self, name: str) -> str:
        """Of a setting, empty where it is not made."""
        return self.settings.get(name, "")

    def on(self, name: str) -> bool:
        """Whether a setting is a number that is not 0."""
        return number(self.value(name)) != 0


def found(one: WrittenSetting, trouble: Trouble, text: str, source: str) -> SettingFinding:
    """A finding about a setting."""
    return SettingFinding(one.name, one.value, one.origin, trouble, text, source)
