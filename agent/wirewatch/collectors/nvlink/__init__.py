"""NVLink: bytes, errors, state and speed of the links, fabric registration, chip-to-chip links."""

from wirewatch.collectors.nvlink.judge import judge
from wirewatch.collectors.nvlink.policy import NvlinkPolicy
from wirewatch.collectors.nvlink.reading import read
from wirewatch.collectors.nvlink.samples import METRICS, samples
from wirewatch.collectors.nvlink.values import Memory, NvlinkOptions, Reading
from wirewatch.core.collector import Collector
from wirewatch.core.pergpu import Memories
from wirewatch.core.types import Absent


def applicable(reading: Reading) -> bool:
    """Some GPU has links and is not split by MIG (which reports its links as down)."""
    return any(not isinstance(i.value, Absent) and i.value.links and not i.value.mig for i in reading)


COLLECTOR: Collector[Reading, Memories[Memory], NvlinkOptions, NvlinkPolicy] = Collector(
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
)
