"""XIDs as series."""

from collections.abc import Iterable

from wirewatch.collectors.xid.reading import KMSG
from wirewatch.collectors.xid.values import Memory, Reading
from wirewatch.core.kernelevents import OFF_BUS, OTHERS
from wirewatch.core.types import Kind, Metric, Sample

GPU = ("gpu", "uuid")
UNSEEN = "any XID"

SOURCE = Metric(
    "xid_source_info", Kind.INFO, ("source",), "Where XIDs are read: kmsg (the kernel log) or nvml."
)
EVENTS = Metric(
    "xid_events_total",
    Kind.COUNTER,
    (*GPU, "xid"),
    "XIDs since the machine was started, as far as the kernel log reaches; gpu is empty for a GPU not known.",
    UNSEEN,
)
LAST = Metric(
    "xid_last_event_timestamp_seconds", Kind.GAUGE, GPU, "When the GPU's last XID was; 0 for never.", UNSEEN
)
SXIDS = Metric(
    "sxid_events_total",
    Kind.COUNTER,
    ("device", "sxid"),
    "Errors of NVLink switches, by PCI address and SXid.",
    "all of it",
)
OTHER = Metric(
    "kernel_events_total",
    Kind.COUNTER,
    ("kind",),
    "Other messages of the kernel about wires, since the machine was started.",
    "values above 0",
)
MISSED = Metric(
    "kernel_log_missed_total", Kind.COUNTER, (), "Records of the kernel log that were overwritten unread."
)
UNPARSED = Metric(
    "kernel_log_unparsed_total", Kind.COUNTER, (), "Records that speak of an XID and were not understood."
)
METRICS = (SOURCE, EVENTS, LAST, SXIDS, OTHER, MISSED, UNPARSED)


def samples(reading: Reading, memory: Memory) -> Iterable[Sample]:
    yield SOURCE.sample(1, reading.source)
    unknown: dict[str, int] = {}
    for (card, number), count in sorted(memory.xids.items()):
        gpu = memory.gpus.get(card)
        if gpu is None:
            unknown[str(number)] = unknown.get(str(number), 0) + count
        else:
            yield EVENTS.sample(count, str(gpu.index), gpu.uuid, str(number))
    for xid, count in unknown.items():
        yield EVENTS.sample(count, "", "", xid)
    for card, gpu in sorted(memory.gpus.items()):
        yield LAST.sample(memory.last.get(card, 0.0), str(gpu.index), gpu.uuid)
    for (card, number), count in sorted(memory.sxids.items()):
        yield SXIDS.sample(count, card, str(number))
    if reading.source == KMSG:
        for kind in (OFF_BUS, *OTHERS):
            yield OTHER.sample(memory.others.get(kind, 0), kind)
        yield MISSED.sample(reading.missed)
    yield UNPARSED.sample(memory.unparsed)
