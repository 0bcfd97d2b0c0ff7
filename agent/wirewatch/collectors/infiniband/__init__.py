"""InfiniBand, RoCE and EFA ports: state, rate, bytes, errors, flaps, and where missing cards are."""

from wirewatch.collectors.infiniband.judge import judge
from wirewatch.collectors.infiniband.reading import read
from wirewatch.collectors.infiniband.samples import METRICS, samples
from wirewatch.collectors.infiniband.values import InfinibandOptions, InfinibandPolicy, Memory, Reading
from wirewatch.core.collector import Collector

COLLECTOR: Collector[Reading, Memory, InfinibandOptions, InfinibandPolicy] = Collector(
    name="infiniband",
    about="InfiniBand, RoCE and EFA ports from sysfs, compared with ibstat where that is installed",
    lane="files",
    options=InfinibandOptions(),
    policy=InfinibandPolicy(),
    metrics=METRICS,
    start=Memory(),
    read=read,
    samples=samples,
    judge=judge,
    applicable=lambda reading: bool(reading.ports or reading.missing),
)
