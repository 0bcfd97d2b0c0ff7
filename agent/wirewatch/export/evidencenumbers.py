"""The numbers of the part that a finding is about, beside the same numbers of its peers. Pure."""

from collections.abc import Iterable, Sequence
from statistics import median

from wirewatch.core.collector import Component, NodeState, blind_rule
from wirewatch.core.types import LEVELS, Failed, Subject
from wirewatch.export.evidencedocuments import Number, Peers
from wirewatch.export.evidencerows import Row, rows
from wirewatch.probe.model import Memory as Probes
from wirewatch.verdict.node import SUPPRESSED, Standing

PLACE = (*LEVELS, "src", "dst")
"""Labels that say of which part a series is; all others say what it counts."""
_KINDS = (("link", "links"), ("port", "ports"), ("device", "devices"), ("uuid", "GPUs"))
"""What parts are called by the finest label that they have, finest first."""


def numbers(state: NodeState, standing: Standing) -> tuple[list[Number], str]:
    """The numbers; where there are none, why."""
    component = state.components.get(standing.collector)
    if component is None:
        return [], _nobody(standing)
    everything, part = rows(component), standing.finding.subject
    mine = [row for row in everything if _of(row, part)]
    told = [_number(row, everything, part) for row in mine]
    if part == Subject() and isinstance(component.memory, Probes):
        told += _of_all(everything)
    return told, "" if told else _none(component, part)


def read_at(state: NodeState, standing: Standing) -> float | None:
    """When the numbers were read, Unix seconds: by the collector, or when the newest probe began."""
    component = state.components.get(standing.collector)
    if component is None:
        return None
    if isinstance(component.memory, Probes):
        return component.memory.last.at if component.memory.last else None
    return component.last_success or None


def _of(row: Row, part: Subject) -> bool:
    """Whether a number is of this part; one without any part is the node's.

    Numbers of single links are of the links alone: a GPU has many.
    """
    labels = row.labels
    if part.uuid or part.gpu:
        name, value = ("uuid", part.uuid) if part.uuid else ("gpu", part.gpu)
        return labels.get(name) == value and labels.get("link", part.link) == part.link
    if part.device:
        return labels.get("device") == part.device and part.port in {"", labels.get("port", part.port)}
    return not set(labels) & set(PLACE)


def _number(row: Row, everything: Iterable[Row], part: Subject) -> Number:
    place, what = _split(row)
    finer = {k: v for k, v in place.items() if k not in part.levels() and k != "gpu"}
    kind = _kind(place)
    if kind is None:
        none = "it is of the whole node, which has no peers here"
        return Number(row.name, what, row.unit, row.value, None, None, none)
    others = [
        other.value
        for other in everything
        if other.name == row.name and _split(other)[1] == what and not _of(other, part)
    ]
    peers = _peers(kind, others)
    alone = None if peers else f"no other of the {kind} has this number"
    return Number(row.name, {**finer, **what}, row.unit, row.value, None, peers, alone)


def _of_all(everything: Iterable[Row]) -> list[Number]:
    """What a probe measured of each GPU, taken together: no single one is named."""
    found: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
    for row in everything:
        place, what = _split(row)
        if set(place) == {"gpu", "uuid"}:
            found.setdefault((row.name, row.unit, tuple(what.items())), []).append(row.value)
    why = "the finding names no GPU; beside it are all of them"
    return [
        Number(name, dict(what), unit, None, why, _peers("GPUs", values), None)
        for (name, unit, what), values in found.items()
    ]


def _split(row: Row) -> tuple[dict[str, str], dict[str, str]]:
    """Labels that say of which part, and those that say what."""
    place = {k: v for k, v in row.labels.items() if k in PLACE}
    return place, {k: v for k, v in row.labels.items() if k not in PLACE}


def _kind(place: Iterable[str]) -> str | None:
    return next((kind for label, kind in _KINDS if label in place), None)


def _peers(kind: str, values: Sequence[float]) -> Peers | None:
    if not values:
        return None
    return Peers(kind, len(values), min(values), float(median(values)), max(values))


def _nobody(standing: Standing) -> str:
    if standing.collector:
        return f"the collector `{standing.collector}` is switched off"
    if standing.stage == SUPPRESSED:
        return "it is suppressed and not there now: no collector tells of it"
    return "no collector measures this"


def _none(component: Component, part: Subject) -> str:
    if isinstance(component.memory, Probes) and component.memory.last is None:
        return "no complete probe is known"
    if component.overdue_since is not None:
        return f"the collector `{component.name}` is overdue: the driver or a file does not answer"
    if isinstance(component.outcome, Failed):
        return f"the collector `{component.name}` cannot read: {component.outcome.absent}"
    blind = blind_rule(component.name)
    for finding in component.findings:
        if finding.rule == blind and finding.subject in {part, Subject(gpu=part.gpu, uuid=part.uuid)}:
            return f"the part cannot be read: {finding.evidence}"
    return f"the collector `{component.name}` has no numbers of this part alone"
