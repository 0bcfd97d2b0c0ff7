"""The GPU's own state as series."""

from collections.abc import Iterable, Iterator, Mapping

from wirewatch.collectors.gpu.reading import EccKey, GpuState, Memory, Reading, Remapped
from wirewatch.core.bits import CLOCK_REASONS, RECOVERY_ACTIONS
from wirewatch.core.pergpu import Memories
from wirewatch.core.types import Absent, Kind, Metric, Sample

GPU = ("gpu", "uuid")

REASON = Metric(
    "clocks_event_active", Kind.GAUGE, (*GPU, "reason"), "1 while this reason holds the GPU's clocks down."
)
REASON_SECONDS = Metric(
    "clocks_event_seconds_total",
    Kind.COUNTER,
    (*GPU, "reason"),
    "Time that this reason held the GPU's clocks down, since the driver was loaded.",
)
TEMPERATURE = Metric("gpu_temperature_celsius", Kind.GAUGE, (*GPU, "sensor"), "Temperature of the GPU.")
POWER = Metric("gpu_power_watts", Kind.GAUGE, GPU, "Power draw of the GPU, averaged by the driver.")
UTILIZATION = Metric(
    "gpu_utilization_ratio",
    Kind.GAUGE,
    GPU,
    "Share of time in which some kernel ran; reads 1 in a job that waits for one slow GPU.",
)
PROCESSES = Metric("gpu_compute_processes", Kind.GAUGE, GPU, "Processes with a compute context on the GPU.")
RECOVERY = Metric(
    "gpu_recovery_action",
    Kind.GAUGE,
    (*GPU, "action"),
    "1 for the action that the driver asks for; `none` when all is well.",
    "every action but none",
)
ECC = Metric(
    "ecc_errors_total",
    Kind.COUNTER,
    (*GPU, "kind", "location"),
    "Memory errors since the driver was loaded.",
    "values other than 0",
)
ECC_LIFETIME = Metric(
    "ecc_errors_lifetime", Kind.GAUGE, (*GPU, "kind", "location"), "Memory errors in the life of the GPU."
)
PENDING = Metric("row_remap_pending", Kind.GAUGE, GPU, "1 when a row remapping waits for a reset.")
FAILED = Metric("row_remap_failed", Kind.GAUGE, GPU, "1 when a row remapping has failed.")
REMAPPED = Metric("rows_remapped", Kind.GAUGE, (*GPU, "kind"), "Memory rows remapped in the life of the GPU.")

METRICS = (
    REASON, REASON_SECONDS, TEMPERATURE, POWER, UTILIZATION, PROCESSES, RECOVERY, ECC, ECC_LIFETIME, PENDING,
    FAILED, REMAPPED,
)  # fmt: skip


def samples(reading: Reading, _memories: Memories[Memory]) -> Iterable[Sample]:
    for item in reading:
        if not isinstance(item.value, Absent):
            yield from _gpu(item.value, (str(item.gpu.index), item.gpu.uuid))


def _gpu(value: GpuState, labels: tuple[str, str]) -> Iterator[Sample]:
    yield from _reasons(value, labels)
    for sensor, degrees in value.temperatures.items():
        if not isinstance(degrees, Absent):
            yield TEMPERATURE.sample(degrees, *labels, sensor)
    for metric, number in (
        (POWER, value.power), (UTILIZATION, value.utilization), (PROCESSES, value.processes),
    ):  # fmt: skip
        if not isinstance(number, Absent):
            yield metric.sample(number, *labels)
    if not isinstance(value.recovery_action, Absent):
        for number, name in enumerate(RECOVERY_ACTIONS):
            yield RECOVERY.sample(value.recovery_action == number, *labels, name)
    yield from _ecc(ECC, value.ecc_volatile, labels)
    yield from _ecc(ECC_LIFETIME, value.ecc_lifetime, labels)
    if not isinstance(value.remapped, Absent):
        yield from _rows(value.remapped, labels)


def _reasons(value: GpuState, labels: tuple[str, str]) -> Iterator[Sample]:
    if not isinstance(value.reasons, Absent):
        supported = -1 if isinstance(value.supported_reasons, Absent) else value.supported_reasons
        for name, bit in CLOCK_REASONS.items():
            if supported & bit:
                yield REASON.sample(bool(value.reasons & bit), *labels, name)
    for name, seconds in value.reason_seconds.items():
        yield REASON_SECONDS.sample(seconds, *labels, name)


def _ecc(metric: Metric, counts: Mapping[EccKey, int | Absent], labels: tuple[str, str]) -> Iterator[Sample]:
    for (kind, location), count in counts.items():
        if not isinstance(count, Absent):
            yield metric.sample(count, *labels, kind, location)


def _rows(rows: Remapped, labels: tuple[str, str]) -> Iterator[Sample]:
    yield PENDING.sample(rows.pending, *labels)
    yield FAILED.sample(rows.failed, *labels)
    yield REMAPPED.sample(rows.corrected, *labels, "corrected")
    yield REMAPPED.sample(rows.uncorrected, *labels, "uncorrected")
