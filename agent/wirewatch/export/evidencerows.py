"""All numbers that a component holds now, as rows that can be compared between parts. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.nvlink import LINK_SPEED, LINK_UP, NvlinkFacts
from wirewatch.core.collector import Component
from wirewatch.core.nvml import UP
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Kind, Sample
from wirewatch.export.evidenceprobe import of_gpu
from wirewatch.probe.measurement import Measured
from wirewatch.probe.metrics import BUSBW, EXPECTED, LATENCY, RATIO, results
from wirewatch.probe.model import Memory as Probes

PREFIX = "wirewatch_"
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
"""What a probe says of the node as a whole."""
COUNT = "1"
"""The unit of what is counted, and of states that are 0 or 1."""


@dataclass(frozen=True, slots=True)
class Row:
    """A number and all its labels, those that name the part among them."""

    name: str
    unit: str
    labels: Mapping[str, str]
    value: float


def rows(component: Component) -> Sequence[Row]:
    """The numbers that a component holds; names and versions are none.

    Those of the probe are of the newest complete one, also when it is too old to be exported.
    """
    told = [_row(sample) for sample in component.samples if sample.metric.kind is not Kind.INFO]
    if isinstance(component.memory, Probes):
        last, measured = component.memory.last, component.memory.measured
        of_gpus = (row for row in told if "uuid" in row.labels)
        return () if last is None else (*_probed(last, measured), *of_gpus)
    return (*told, *_links(component), *_cards(component))


def unit_of(name: str) -> str:
    """The unit of a metric, by the end of its name."""
    plain = name.removesuffix("_total")
    return next((unit for end, unit in _UNITS if plain.endswith(end)), COUNT)


def _row(sample: Sample) -> Row:
    name = sample.metric.name
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    return Row(f"{PREFIX}{name}", unit_of(name), labels, float(sample.value))


def _links(component: Component) -> Iterator[Row]:
    """State and speed of each link, which are read at every poll and are no series by default."""
    known = component.facts
    if not component.samples or any(sample.metric is LINK_UP for sample in component.samples):
        return
    for gpu, links in known.links.items() if isinstance(known, NvlinkFacts) else ():
        for link in links:
            labels = (str(gpu.index), gpu.uuid, str(link.link))
            if not isinstance(link.state, Absent):
                yield _row(LINK_UP.sample(link.state in UP, *labels))
            if not isinstance(link.speed, Absent):
                yield _row(LINK_SPEED.sample(link.speed, *labels))


def _cards(component: Component) -> Iterator[Row]:
    """PCIe of the network cards, which has no series."""
    known = component.facts
    for device, link in (
        known.cards.items() if isinstance(known, InfinibandFacts) and component.samples else ()
    ):
        told = {
            "pcie_generation": link.generation, "pcie_generation_max": link.generation_max,
            "pcie_width": link.width, "pcie_width_max": link.width_max,
        }  # fmt: skip
        for name, value in told.items():
            if not isinstance(value, Absent):
                yield Row(f"card_{name}", COUNT, {"device": device}, float(value))


def _probed(probed: Probed, measured: Sequence[Measured]) -> Iterator[Row]:
    yield from (_row(sample) for sample in results(probed, measured) if sample.metric in COLLECTIVES)
    for gpu in probed.gpus:
        for one in of_gpu(probed, gpu.uuid):
            if not isinstance(one.value, Absent):
                labels = {"gpu": str(gpu.index), "uuid": gpu.uuid}
                yield Row(one.name, one.unit, labels, one.value)
    for told in probed.links:
        gpu = probed.gpus[told.gpu]
        for name, counts in (("link_transmit_bytes", told.transmit), ("link_receive_bytes", told.receive)):
            for link, count in zip(told.links, counts, strict=True):
                if count is not None:
                    labels = {"gpu": str(gpu.index), "uuid": gpu.uuid, "link": str(link)}
                    yield Row(name, "bytes", labels, float(count))
