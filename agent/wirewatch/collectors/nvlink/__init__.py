"""NVLink: bytes, errors, state and speed of the links, fabric registration, chip-to-chip links."""

from wirewatch.collectors.nvlink.judge import RULES, applicable, forget, judge, keep, recall
from wirewatch.collectors.nvlink.metrics import LINK_SPEED, LINK_UP, METRICS, facts, observed, samples
from wirewatch.collectors.nvlink.model import (
    LINK_STATES,
    LastingLinks,
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
    read,
)
from wirewatch.core.collector import Collector, Lasting, Memories

__all__ = [
    "COLLECTOR", "ERROR_QUESTIONS", "LINK_SPEED", "LINK_STATES", "LINK_UP", "TRAFFIC_FIELDS", "NvlinkFacts",
    "error_questions",
]  # fmt: skip

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
    rules=RULES,
    series=128,
    applicable=applicable,
    facts=facts,
    observed=observed,
    lasting=Lasting(LastingLinks, keep, recall),
    forget=forget,
)
