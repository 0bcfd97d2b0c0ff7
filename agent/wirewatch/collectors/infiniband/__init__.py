"""InfiniBand, RoCE and EFA ports: state, rate, bytes, errors, flaps, and where missing cards are."""

from wirewatch.collectors.infiniband.judge import RULES, forget, judge, keep, recall
from wirewatch.collectors.infiniband.metrics import METRICS, facts, observed, samples
from wirewatch.collectors.infiniband.model import (
    InfinibandFacts,
    InfinibandMemory,
    InfinibandOptions,
    InfinibandPolicy,
    InfinibandReading,
    LastingFabric,
)
from wirewatch.collectors.infiniband.read import read
from wirewatch.core.collector import Collector, Lasting

__all__ = ["COLLECTOR", "InfinibandFacts"]

COLLECTOR: Collector[InfinibandReading, InfinibandMemory, InfinibandOptions, InfinibandPolicy] = Collector(
    name="infiniband",
    about="InfiniBand, RoCE and EFA ports from sysfs, compared with ibstat where that is installed",
    lane="files",
    options=InfinibandOptions(),
    policy=InfinibandPolicy(),
    metrics=METRICS,
    start=InfinibandMemory(),
    read=read,
    samples=samples,
    judge=judge,
    rules=RULES,
    series=241,
    applicable=lambda reading: bool(reading.ports or reading.missing),
    facts=facts,
    observed=observed,
    lasting=Lasting(LastingFabric, keep, recall),
    forget=forget,
)
