"""All components of the daemon: the collectors, and the probe."""

from wirewatch.collectors import discover
from wirewatch.core.collector import AnyCollector
from wirewatch.core.types import Expect
from wirewatch.probes.collector import probe_component
from wirewatch.probes.policy import ProbeOptions, ProbePolicy


def components() -> tuple[AnyCollector, ...]:
    """Every component with its defaults."""
    return (*discover(), probe_component(ProbeOptions(), ProbePolicy(), Expect()))
