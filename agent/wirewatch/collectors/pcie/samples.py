"""PCIe as series."""

from collections.abc import Iterable

from wirewatch.collectors.pcie.reading import Memory, Reading
from wirewatch.core.pergpu import Memories
from wirewatch.core.types import Absent, Kind, Metric, Sample

GPU = ("gpu", "uuid")

GENERATION = Metric(
    "pcie_generation", Kind.GAUGE, GPU, "PCIe generation of the GPU's link now; falls when idle, by design."
)
GENERATION_MAX = Metric("pcie_generation_max", Kind.GAUGE, GPU, "Highest PCIe generation of GPU and slot.")
WIDTH = Metric("pcie_width", Kind.GAUGE, GPU, "PCIe lanes of the GPU's link now.")
WIDTH_MAX = Metric("pcie_width_max", Kind.GAUGE, GPU, "Most PCIe lanes of GPU and slot.")
REPLAYS = Metric(
    "pcie_replays_total", Kind.COUNTER, GPU, "PCIe packets sent again, since reset.", "values above 0"
)
ERRORS = Metric(
    "pcie_errors_total",
    Kind.COUNTER,
    (*GPU, "severity"),
    "PCIe errors that the kernel counted for the GPU (AER): correctable, nonfatal, fatal.",
    "all of it",
)
METRICS = (GENERATION, GENERATION_MAX, WIDTH, WIDTH_MAX, REPLAYS, ERRORS)


def samples(reading: Reading, _memories: Memories[Memory]) -> Iterable[Sample]:
    for item in reading:
        if isinstance(item.value, Absent):
            continue
        value, labels = item.value, (str(item.gpu.index), item.gpu.uuid)
        for metric, number in (
            (GENERATION, value.generation),
            (GENERATION_MAX, value.most_generation),
            (WIDTH, value.width),
            (WIDTH_MAX, value.most_width),
            (REPLAYS, value.replays),
        ):
            if not isinstance(number, Absent):
                yield metric.sample(number, *labels)
        for severity, count in value.aer.items():
            if not isinstance(count, Absent):
                yield ERRORS.sample(count, *labels, severity)
