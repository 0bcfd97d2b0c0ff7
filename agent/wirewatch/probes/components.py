"""All components of the daemon: the collectors, the probe, and the topology's drift."""

from wirewatch.collectors import discover
from wirewatch.core.collector import AnyCollector
from wirewatch.core.types import Expect
from wirewatch.probes.collector import probe_component
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.verdict.drift.component import Around, DriftOptions, drift_component
from wirewatch.verdict.drift.policy import DriftPolicy


def components() -> tuple[AnyCollector, ...]:
    """Every component with its defaults."""
    return (
        *discover(),
        probe_component(ProbeOptions(), ProbePolicy(), Expect()),
        drift_component(DriftOptions(), DriftPolicy(), Around()),
    )
