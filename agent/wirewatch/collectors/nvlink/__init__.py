"""NVLink: bytes, errors, state and speed of the links, fabric registration, chip-to-chip links."""

from wirewatch.collectors.nvlink.judge import judge
from wirewatch.collectors.nvlink.metrics import LINK_SPEED, LINK_UP, METRICS, samples
from wirewatch.collectors.nvlink.model import (
    LINK_STATES,
    NvlinkFacts,
    NvlinkMemory,
    NvlinkOptions,
    NvlinkPolicy,
    NvlinkReading,
)
from wirewatch.collectors.nvlink.read import (
    ERROR_QUESTIONS,
    TRAFFIC_FIELDS,
    error_questions,
    link_speed,
    read,
)
from wirewatch.core.collector import Collector
from wirewatch.core.pergpu import Memories
from wirewatch.core.types import Absent

__all__ = [
    "COLLECTOR", "ERROR_QUESTIONS", "LINK_SPEED", "LINK_STATES", "LINK_UP", "TRAFFIC_FIELDS", "NvlinkFacts",
    "error_questions", "link_speed",
]  # fmt: skip


def applicable(reading: NvlinkReading) -> bool:
    """Some GPU has links and is not split by MIG (which reports its links as down)."""
    return any(not isinstance(i.value, Absent) and i.value.links and not i.value.mig for i in reading)


def facts(reading: NvlinkReading, _memory: Memories[NvlinkMemory]) -> NvlinkFacts:
    """State and speed of every link, for other rooms."""
    known = {item.gpu: item.value for item in reading if not isinstance(item.value, Absent)}
    return NvlinkFacts({gpu: value.links for gpu, value in known.items() if not value.mig})


COLLECTOR: Collector[NvlinkReading, Memories[NvlinkMemory], NvlinkOptions, NvlinkPolicy] = Collector(
    name="nvlink",
    about="NVLink counters, errors, link state and speed, fabric registration",
    lane="nvml",
    options=NvlinkOptions(),
    policy=NvlinkPolicy(),
    metrics=METRICS,
    start={},
    read=read,
    samples=samples,
    judge=judge,
    applicable=applicable,
    facts=facts,
)
