"""XIDs and what else the kernel says of GPUs, NVLink switches and network cards."""

from wirewatch.collectors.xid.judge import judge
from wirewatch.collectors.xid.reading import read
from wirewatch.collectors.xid.samples import METRICS, samples
from wirewatch.collectors.xid.values import Memory, Reading, XidPolicy
from wirewatch.core.collector import Collector, Options

COLLECTOR: Collector[Reading, Memory, Options, XidPolicy] = Collector(
    name="xid",
    about="XID errors from the kernel log, or as NVML events where the log cannot be read",
    lane="kernel",
    options=Options(interval=5.0, deadline=5.0),
    policy=XidPolicy(),
    metrics=METRICS,
    start=Memory(),
    read=read,
    samples=samples,
    judge=judge,
    applicable=lambda reading: bool(reading.gpus),
)
