"""The GPU itself: clock event reasons, memory errors, recovery action, temperature, power, use."""

from wirewatch.collectors.gpu.judge import GpuPolicy, judge
from wirewatch.collectors.gpu.reading import Memory, Reading, read
from wirewatch.collectors.gpu.samples import METRICS, samples
from wirewatch.core.collector import Collector, Options
from wirewatch.core.pergpu import Memories

COLLECTOR: Collector[Reading, Memories[Memory], Options, GpuPolicy] = Collector(
    name="gpu",
    about="clock event reasons, memory errors, recovery action, temperature, power, processes",
    lane="nvml",
    options=Options(),
    policy=GpuPolicy(),
    metrics=METRICS,
    start={},
    read=read,
    samples=samples,
    judge=judge,
    applicable=bool,
)
