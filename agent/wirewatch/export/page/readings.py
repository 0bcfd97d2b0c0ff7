"""The numbers of a state by name and part, and for each that is not there why. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.core.collector import blind_rule
from wirewatch.export.documents import Collector, Series, StateDocument
from wirewatch.export.healthdocuments import Finding
from wirewatch.export.page.words import moment

PREFIX = "wirewatch_"
NOT_TOLD = "this part or its driver does not tell it"
NOT_YET = "it has not been read since the agent started"
Part = Mapping[str, str]
"""Labels that name a part, such as `gpu` and `uuid`, or `device` and `port`."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Series by name without prefix; collectors by name."""

    series: Mapping[str, Sequence[Series]]
    collectors: Mapping[str, Collector]
    at: float

    def of(self, name: str, part: Part) -> Sequence[Series]:
        """The series of one metric that carry these labels."""
        wanted = part.items()
        return [one for one in self.series.get(name, ()) if wanted <= one.labels.items()]

    def value(self, name: str, part: Part) -> float | None:
        """The one number of this name that a part has; None where it is not known."""
        return next((one.value for one in self.of(name, part)), None)

    def by(self, name: str, part: Part, label: str) -> Mapping[str, float]:
        """The numbers of this name that a part has, by one more label."""
        return {one.labels.get(label, ""): one.value for one in self.of(name, part)}

    def state(self, name: str, part: Part) -> str | None:
        """The one of several states that is 1, empty for none of those there are; None for not known."""
        told = self.by(name, part, "state")
        return next((state for state, value in told.items() if value), "") if told else None

    def why(self, collector: str, part: Part | None = None) -> str:
        """Why a collector has no number, of a part or at all."""
        one = self.collectors.get(collector)
        if one is None:
            return f"the collector {collector} is switched off"
        blind = _blind(one, part or {})
        if blind:
            return blind
        if one.overdue_since is not None:
            since = moment(one.overdue_since, self.at)
            return f"{collector} is overdue since {since.text}, {since.ago}"
        if one.error is not None:
            return one.error
        return NOT_TOLD if one.last_success else NOT_YET

    def applies(self, collector: str) -> bool:
        """Whether there may be something for a collector to watch."""
        one = self.collectors.get(collector)
        return one is None or one.applicable is not False or bool(one.findings)


def readings(state: StateDocument) -> Readings:
    series: dict[str, list[Series]] = {}
    for collector in state.collectors:
        for one in collector.samples:
            series.setdefault(one.name.removeprefix(PREFIX), []).append(one)
    return Readings(series, {one.collector: one for one in state.collectors}, state.at)


def _blind(collector: Collector, part: Part) -> str:
    """What the finding says that this part, or all, cannot be read."""
    rule = blind_rule(collector.collector)
    found = [one for one in collector.findings if one.rule == rule]
    return next((one.evidence for one in found if _covers(one, part)), "")


def _covers(finding: Finding, part: Part) -> bool:
    told = finding.subject
    return all(part.get(name, value) == value for name, value in told.items()) and (
        not told or bool(set(told) & set(part))
    )


@dataclass(frozen=True, slots=True)
class GpuName:
    """A GPU of the node: today's index, UUID (empty where not told), PCI address, product."""

    index: str
    uuid: str
    pci: str = ""
    product: str = ""

    @property
    def part(self) -> Part:
        return {"gpu": self.index, "uuid": self.uuid} if self.uuid else {"gpu": self.index}


def order(index: str) -> tuple[int, str]:
    """Numbers by their value, what is none after them."""
    return (int(index), "") if index.isdecimal() and len(index) < 10 else (1 << 30, index)  # noqa: PLR2004


def unique(gpus: Iterable[GpuName]) -> tuple[GpuName, ...]:
    """One of each, the first that is told, by index; none without UUID where its index has one with."""
    found: dict[str, GpuName] = {}
    for one in gpus:
        found.setdefault(one.uuid or f"index {one.index}", one)
    known = {one.index for one in found.values() if one.uuid}
    kept = [one for one in found.values() if one.uuid or one.index not in known]
    return tuple(sorted(kept, key=lambda one: (order(one.index), one.uuid)))
