"""Makes the document of one finding, with its numbers and those of its peers, from a state. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.nvlink import LINK_SPEED, LINK_UP, NvlinkFacts
from wirewatch.core.collector import Component, NodeState, blind_rule
from wirewatch.core.nvml import UP
from wirewatch.core.probe import Probed
from wirewatch.core.types import LEVELS, Absent, Failed, Kind, Sample, Subject, Why
from wirewatch.core.types import Health as CoreHealth
from wirewatch.documents.finding import FindingDocument, Number, Peers, known_parts, node_facts, part_of
from wirewatch.documents.health import HEALTH_NAMES, Health
from wirewatch.documents.series import PREFIX
from wirewatch.documents.state import standing
from wirewatch.probe.component import BUSBW, EXPECTED, LATENCY, RATIO, results
from wirewatch.probe.measurement import Measured
from wirewatch.probe.model import ProbeMemory as Probes
from wirewatch.verdict.node import SUPPRESSED, Judged, Standing
from wirewatch.verdict.orders import pick
from wirewatch.verdict.straggler.signals import memory_rate, product_seconds

PART_LABELS = (*LEVELS, "src", "dst")
"""Labels that name the part of a series; all others say what is counted."""
_KINDS = (("link", "links"), ("port", "ports"), ("device", "devices"), ("uuid", "GPUs"))
"""The kind of a part in words, by its finest label, finest first."""
_UNITS = (
    ("timestamp_seconds", "unix seconds"),
    ("bytes_per_second", "bytes per second"),
    ("bytes", "bytes"),
    ("seconds", "seconds"),
    ("watts", "watts"),
    ("celsius", "degrees celsius"),
    ("ratio", "ratio"),
)
COLLECTIVES = (BUSBW, EXPECTED, RATIO, LATENCY)
"""Series of a probe that are of the whole node."""
COUNT = "1"
"""The unit of counts, and of states that are 0 or 1."""


@dataclass(frozen=True, slots=True)
class LabelledNumber:
    """A number with all its labels."""

    name: str
    unit: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit, `seconds`, `bytes per second` or `hertz`, or why there is none."""

    name: str
    unit: str
    value: float | Absent


QUANTITY_NAMES = (
    ("matrix_product_seconds", "seconds"),
    ("memory_copy_bytes_per_second", "bytes per second"),
    ("copies_from_it_bytes_per_second", "bytes per second"),
    ("copies_to_it_bytes_per_second", "bytes per second"),
    ("sm_clock_hertz", "hertz"),
)
"""Names and units of the quantities of one GPU; copies are the median over its peers."""


def evidence(judged: Judged, name: str, at: float, source: str) -> FindingDocument:
    """The document of the finding whose id begins with `name`, at `at` (Unix seconds).

    Raises:
        OrderError: no finding has such an id, or several have.
    """
    verdict = judged.verdict
    one = pick(verdict, name)
    here = known_parts(judged.state)
    kind, part = part_of(here, one)
    found, why = numbers(judged.state, one)
    return FindingDocument(
        schema="wirewatch.finding/1", at=at, health=HEALTH_NAMES[verdict.health], job_ready=verdict.job_ready,
        source=source, finding=standing(one), collector=one.collector or None,
        measured=_measured(one.measured), last_seen=_last_seen(judged, one), kind=kind, part=part,
        node=node_facts(here, source),
        numbers_at=read_at(judged.state, one) if found else None, numbers_unknown=why or None, numbers=found,
    )  # fmt: skip


def numbers(state: NodeState, standing: Standing) -> tuple[list[Number], str]:
    """The numbers of a finding's part; and where there are none, why."""
    component = state.components.get(standing.collector)
    if component is None:
        return [], _why_no_collector(standing)
    everything, part = rows(component), standing.finding.subject
    mine = [row for row in everything if _is_of(row, part)]
    found = [_number(row, everything, part) for row in mine]
    if part == Subject() and isinstance(component.memory, Probes):
        found += _over_all_gpus(everything)
    return found, "" if found else _why_no_numbers(component, part)


def read_at(state: NodeState, standing: Standing) -> float | None:
    """When the numbers were read, Unix seconds: by the collector, or when the newest probe began."""
    component = state.components.get(standing.collector)
    if component is None:
        return None
    if isinstance(component.memory, Probes):
        return component.memory.last.at if component.memory.last else None
    return component.last_success or None


def rows(component: Component) -> Sequence[LabelledNumber]:
    """The numbers of a component, without names and versions.

    Those of the probe are of the newest complete one, also when it is too old to be exported.
    """
    found = [_row(sample) for sample in component.samples if sample.metric.kind is not Kind.INFO]
    if isinstance(component.memory, Probes):
        last, measured = component.memory.last, component.memory.measured
        of_gpus = (row for row in found if "uuid" in row.labels)
        return () if last is None else (*_probe_rows(last, measured), *of_gpus)
    return (*found, *_link_rows(component), *_nic_rows(component))


def unit_of(name: str) -> str:
    """The unit of a metric, by the end of its name."""
    plain = name.removesuffix("_total")
    return next((unit for end, unit in _UNITS if plain.endswith(end)), COUNT)


def quantities_of(probed: Probed, uuid: str) -> tuple[Quantity, ...]:
    """What a probe measured of the GPU with this UUID: alone, and as the median over its peers.

    Always the same names in the same order; Absent for what the probe has not measured.
    """
    place = next((i for i, gpu in enumerate(probed.gpus) if gpu.uuid == uuid), None)
    if place is None:
        return tuple(
            Quantity(n, u, Absent(Why.MISSING, "the GPU was not in this probe")) for n, u in QUANTITY_NAMES
        )
    values = (*_measured_alone(probed, place), *_copies(probed, place), _clock(probed, place))
    return tuple(
        Quantity(name, unit, value) for (name, unit), value in zip(QUANTITY_NAMES, values, strict=True)
    )


def _measured(health: CoreHealth | None) -> Health | None:
    return None if health is None else HEALTH_NAMES[health]


def _last_seen(judged: Judged, one: Standing) -> float | None:
    """When it was last found: the time of an event, of the newest reading, or else of the ledger.

    The ledger has the time at which a finding was found to be over.
    """
    if one.finding.last:
        return one.finding.last
    if one.measured is not None:
        return read_at(judged.state, one)
    entry = judged.ledger.entries.get(one.key)
    return entry.last if entry else None


def _is_of(row: LabelledNumber, part: Subject) -> bool:
    """Whether a number is of this part; a number without part labels is the node's.

    The numbers of a single link are not those of its GPU.
    """
    labels = row.labels
    if part.uuid or part.gpu:
        name, value = ("uuid", part.uuid) if part.uuid else ("gpu", part.gpu)
        return labels.get(name) == value and labels.get("link", part.link) == part.link
    if part.device:
        return labels.get("device") == part.device and part.port in {"", labels.get("port", part.port)}
    return not set(labels) & set(PART_LABELS)


def _number(row: LabelledNumber, everything: Iterable[LabelledNumber], part: Subject) -> Number:
    place, what = _split_labels(row)
    finer = {k: v for k, v in place.items() if k not in part.levels() and k != "gpu"}
    kind = _kind_of_part(place)
    if kind is None:
        none = "it is a number of the whole node, which has no peers"
        return Number(row.name, what, row.unit, row.value, None, None, none)
    others = [
        other.value
        for other in everything
        if other.name == row.name and _split_labels(other)[1] == what and not _is_of(other, part)
    ]
    peers = _peers(kind, others)
    alone = None if peers else f"no other of the {kind} has this number"
    return Number(row.name, {**finer, **what}, row.unit, row.value, None, peers, alone)


def _over_all_gpus(everything: Iterable[LabelledNumber]) -> list[Number]:
    """What a probe measured, over all GPUs: for a finding that names none of them."""
    found: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
    for row in everything:
        place, what = _split_labels(row)
        if set(place) == {"gpu", "uuid"}:
            found.setdefault((row.name, row.unit, tuple(what.items())), []).append(row.value)
    why = "the finding names no GPU; the peers are all GPUs"
    return [
        Number(name, dict(what), unit, None, why, _peers("GPUs", values), None)
        for (name, unit, what), values in found.items()
    ]


def _split_labels(row: LabelledNumber) -> tuple[dict[str, str], dict[str, str]]:
    """The labels that name the part, and the others."""
    place = {k: v for k, v in row.labels.items() if k in PART_LABELS}
    return place, {k: v for k, v in row.labels.items() if k not in PART_LABELS}


def _kind_of_part(place: Iterable[str]) -> str | None:
    return next((kind for label, kind in _KINDS if label in place), None)


def _peers(kind: str, values: Sequence[float]) -> Peers | None:
    if not values:
        return None
    return Peers(kind, len(values), min(values), float(median(values)), max(values))


def _why_no_collector(standing: Standing) -> str:
    if standing.collector:
        return f"the collector `{standing.collector}` is switched off"
    if standing.stage == SUPPRESSED:
        return "it is suppressed and not found now: no collector reports it"
    return "no collector measures this"


def _why_no_numbers(component: Component, part: Subject) -> str:
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


def _row(sample: Sample) -> LabelledNumber:
    name = sample.metric.name
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    return LabelledNumber(f"{PREFIX}{name}", unit_of(name), labels, float(sample.value))


def _link_rows(component: Component) -> Iterator[LabelledNumber]:
    """State and speed of each link: they are read at every poll, and have no series by default."""
    known_parts = component.facts
    if not component.samples or any(sample.metric is LINK_UP for sample in component.samples):
        return
    for gpu, links in known_parts.links.items() if isinstance(known_parts, NvlinkFacts) else ():
        for link in links:
            labels = (str(gpu.index), gpu.uuid, str(link.link))
            if not isinstance(link.state, Absent):
                yield _row(LINK_UP.sample(link.state in UP, *labels))
            if not isinstance(link.speed, Absent):
                yield _row(LINK_SPEED.sample(link.speed, *labels))


def _nic_rows(component: Component) -> Iterator[LabelledNumber]:
    """PCIe of the network cards, which has no series."""
    known_parts = component.facts
    for device, link in (
        known_parts.cards.items() if isinstance(known_parts, InfinibandFacts) and component.samples else ()
    ):
        values = {
            "pcie_generation": link.generation, "pcie_generation_max": link.generation_max,
            "pcie_width": link.width, "pcie_width_max": link.width_max,
        }  # fmt: skip
        for name, value in values.items():
            if not isinstance(value, Absent):
                yield LabelledNumber(f"card_{name}", COUNT, {"device": device}, float(value))


def _probe_rows(probed: Probed, measured: Sequence[Measured]) -> Iterator[LabelledNumber]:
    yield from (_row(sample) for sample in results(probed, measured) if sample.metric in COLLECTIVES)
    for gpu in probed.gpus:
        for one in quantities_of(probed, gpu.uuid):
            if not isinstance(one.value, Absent):
                labels = {"gpu": str(gpu.index), "uuid": gpu.uuid}
                yield LabelledNumber(one.name, one.unit, labels, one.value)
    for counted in probed.links:
        gpu = probed.gpus[counted.gpu]
        for name, counts in (
            ("link_transmit_bytes", counted.transmit),
            ("link_receive_bytes", counted.receive),
        ):
            for link, count in zip(counted.links, counts, strict=True):
                if count is not None:
                    labels = {"gpu": str(gpu.index), "uuid": gpu.uuid, "link": str(link)}
                    yield LabelledNumber(name, "bytes", labels, float(count))


def _measured_alone(probed: Probed, place: int) -> tuple[float | Absent, float | Absent]:
    for micro in probed.document.micros if probed.document else ():
        if micro.gpu == place:
            return product_seconds(micro), memory_rate(micro)
    absent = Absent(Why.MISSING, "this probe measured no GPU alone")
    return absent, absent


def _copies(probed: Probed, place: int) -> Iterator[float | Absent]:
    """The median rate of copies from the GPU, and to it."""
    copies = probed.document.copies if probed.document else ()
    for end in ("source", "destination"):
        rates = [one.size_bytes / one.seconds for one in copies if getattr(one, end) == place]
        yield median(rates) if rates else Absent(Why.MISSING, "this probe made no copies between GPUs")


def _clock(probed: Probed, place: int) -> float | Absent:
    sm = next((clock.sm for clock in probed.clocks if clock.gpu == place), None)
    return Absent(Why.MISSING, "the clock was not read") if sm is None else sm
