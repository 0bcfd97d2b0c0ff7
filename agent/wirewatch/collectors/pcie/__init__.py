"""PCIe of each GPU: generation, width, replays, and the errors that the kernel counts."""

from wirewatch.collectors.pcie.judge import PciePolicy, judge
from wirewatch.collectors.pcie.reading import Memory, Reading, read
from wirewatch.collectors.pcie.samples import METRICS, samples
from wirewatch.core.collector import Collector, Options
from wirewatch.core.pergpu import Memories

COLLECTOR: Collector[Reading, Memories[Memory], Options, PciePolicy] = Collector(
    name="pcie",
    about="PCIe generation, width, replays and errors of each GPU",
    lane="nvml",
    options=Options(interval=30.0),
    policy=PciePolicy(),
    metrics=METRICS,
    start={},
    read=read,
    samples=samples,
    judge=judge,
    applicable=bool,
)
