"""NVLink: bytes, errors, state and speed of the links, fabric registration, chip-to-chip links."""

from collections.abc import Iterable, Iterator

from wirewatch.collectors.nvlink.judge import RULES, applicable, forget, judge, keep, recall
from wirewatch.collectors.nvlink.model import (
    LINK_STATES,
    Fabric,
    GpuLinks,
    LastingLinks,
    LinkDetail,
    NvlinkFacts,
    NvlinkLink,
    NvlinkMemory,
    NvlinkOptions,
    NvlinkPolicy,
    NvlinkReading,
)
from wirewatch.collectors.nvlink.read import ERROR_QUESTIONS, TRAFFIC_FIELDS, error_questions, read
from wirewatch.core.collector import Collector, Lasting, Memories, Observed, known_samples, observed_gpus
from wirewatch.core.nvml import FABRIC_STATES, FABRIC_SUMMARIES, UP
from wirewatch.core.types import Absent, Sample, Tier, family

GPU = ("gpu", "uuid")
LINK = (*GPU, "link")
BLACKWELL = "kinds of NVLink 5 (Blackwell): field numbers from nvml.h"
TRANSMIT = family(
    "nvlink_transmit_bytes_total", GPU, "Payload bytes sent over all NVLinks of the GPU.", tier=Tier.CORE
)
RECEIVE = family(
    "nvlink_receive_bytes_total", GPU, "Payload bytes received over all NVLinks of the GPU.", tier=Tier.CORE
)
ERRORS = family(
    "nvlink_errors_total", (*GPU, "kind"), "NVLink errors over all links of the GPU.", BLACKWELL,
    tier=Tier.CORE,
)  # fmt: skip
BER = family(
    "nvlink_effective_ber", GPU, "Bit error rate after forward error correction, all links of the GPU.",
    "NVLink 5 (Blackwell) only",
)  # fmt: skip
LINKS = family(
    "nvlink_links", (*GPU, "state"), "NVLinks of the GPU in each state.", tier=Tier.CORE,
    core=("active", "sleep"),
)  # fmt: skip
EXPECTED = family(
    "nvlink_links_expected",
    GPU,
    "Active NVLinks that the GPU should have: the operator's number, the product's, or the most seen.",
    tier=Tier.CORE,
)
PEAK = family(
    "nvlink_peak_bytes_per_second", GPU,
    "Line rate of all active NVLinks of the GPU together, one direction.", tier=Tier.CORE,
)  # fmt: skip
FABRIC_STATE = family(
    "fabric_state", (*GPU, "state"), "1 for the state of the GPU's fabric registration.", tier=Tier.CORE,
    core=("completed", "not_supported"),
)  # fmt: skip
FABRIC_HEALTH = family(
    "fabric_health", (*GPU, "state"), "1 for the fabric's own summary of its health.",
    "bare-metal fabrics; the virtual machine seen reports not_supported",
    undrawn="a finding says it in words; the state is drawn",
)  # fmt: skip
FABRIC_INFO = family(
    "fabric_info", (*GPU, "clique", "cluster_uuid"),
    "Clique and cluster of the GPU's fabric; GPUs reach each other over NVLink within one of each.",
    "values other than 0", undrawn="cliques are for racks, which nobody has drawn yet",
)  # fmt: skip
C2C_LINKS = family(
    "c2c_links", (*GPU, "state"), "Chip-to-chip links to the CPU in each state.", "Grace",
    undrawn="Grace only",
)  # fmt: skip
C2C_PEAK = family(
    "c2c_peak_bytes_per_second", GPU, "Line rate of all active chip-to-chip links.", "Grace",
    undrawn="Grace only",
)  # fmt: skip
LINK_TRANSMIT = family("nvlink_link_transmit_bytes_total", LINK, "Payload bytes sent, one link.")
LINK_RECEIVE = family(
    "nvlink_link_receive_bytes_total", LINK, "Payload bytes received, one link.",
    undrawn="what one link sends is drawn",
)  # fmt: skip
LINK_ERRORS = family("nvlink_link_errors_total", (*LINK, "kind"), "NVLink errors, one link.", BLACKWELL)
LINK_UP = family("nvlink_link_up", LINK, "1 when the link is active or asleep, else 0.")
LINK_SPEED = family("nvlink_link_speed_bytes_per_second", LINK, "Line rate of the link, one direction.")
METRICS = (
    TRANSMIT, RECEIVE, ERRORS, BER, LINKS, EXPECTED, PEAK, FABRIC_STATE, FABRIC_HEALTH, FABRIC_INFO,
    C2C_LINKS, C2C_PEAK, LINK_TRANSMIT, LINK_RECEIVE, LINK_ERRORS, LINK_UP, LINK_SPEED,
)  # fmt: skip


def samples(reading: NvlinkReading, memories: Memories[NvlinkMemory]) -> Iterable[Sample]:
    for item in reading:
        if not isinstance(item.value, Absent):
            memory = memories[item.gpu.key].memory
            yield from _gpu(item.value, memory, (str(item.gpu.index), item.gpu.uuid))


def facts(reading: NvlinkReading, _memory: Memories[NvlinkMemory]) -> NvlinkFacts:
    """Return state and speed of every link, and their sent bytes, for other rooms."""
    known = {item.gpu: item.value for item in reading if not isinstance(item.value, Absent)}
    whole = {gpu: value for gpu, value in known.items() if not value.mig}
    sent = {gpu.uuid: value.traffic.transmit for gpu, value in whole.items()}
    return NvlinkFacts(
        {gpu: value.links for gpu, value in whole.items()},
        {uuid: count for uuid, count in sent.items() if not isinstance(count, Absent)},
    )


def observed(reading: NvlinkReading, _memory: Memories[NvlinkMemory]) -> Observed:
    """Return the GPUs whose links were read; the driver shows no links of a GPU split by MIG."""
    return observed_gpus([one for one in reading if isinstance(one.value, Absent) or not one.value.mig])


def _gpu(value: GpuLinks, memory: NvlinkMemory, labels: tuple[str, str]) -> Iterator[Sample]:
    if value.mig:
        return
    yield from known_samples(labels, (TRANSMIT, value.traffic.transmit), (RECEIVE, value.traffic.receive))
    for kind, errors in value.errors.items():
        yield from known_samples((*labels, kind), (ERRORS, errors))
    yield from known_samples(labels, (BER, value.effective_ber))
    yield from _links(value.links, memory, labels)
    yield from _c2c(value.c2c, labels)
    if not isinstance(value.fabric, Absent):
        yield from _fabric(value.fabric, labels)
    if memory.detail is not None:
        yield from _detail(memory.detail, value.links, labels)


def _links(links: tuple[NvlinkLink, ...], memory: NvlinkMemory, labels: tuple[str, str]) -> Iterator[Sample]:
    known = [link.state for link in links if not isinstance(link.state, Absent)]
    if known:
        for number, name in LINK_STATES.items():
            yield LINKS.sample(known.count(number), *labels, name)
        yield PEAK.sample(_rate(links), *labels)
    if memory.expected is not None:
        yield EXPECTED.sample(memory.expected, *labels)


def _c2c(links: tuple[NvlinkLink, ...], labels: tuple[str, str]) -> Iterator[Sample]:
    known = [link.state for link in links if not isinstance(link.state, Absent)]
    if known:
        yield C2C_LINKS.sample(known.count(0), *labels, "inactive")
        yield C2C_LINKS.sample(known.count(1), *labels, "active")
        yield C2C_PEAK.sample(_rate(links), *labels)


def _rate(links: tuple[NvlinkLink, ...]) -> float:
    """Return bytes per second of all active links with a known speed."""
    return sum(link.speed for link in links if link.state in UP and not isinstance(link.speed, Absent))


def _fabric(fabric: Fabric, labels: tuple[str, str]) -> Iterator[Sample]:
    """Yield nothing for unsupported parts: a GPU without a fabric, a fabric without a summary."""
    if fabric.state:
        for number, name in enumerate(FABRIC_STATES):
            yield FABRIC_STATE.sample(fabric.state == number, *labels, name)
        yield FABRIC_INFO.sample(1, *labels, str(fabric.clique), fabric.cluster)
    if fabric.state and fabric.summary:
        for number, name in enumerate(FABRIC_SUMMARIES):
            yield FABRIC_HEALTH.sample(fabric.summary == number, *labels, name)


def _detail(detail: LinkDetail, links: tuple[NvlinkLink, ...], labels: tuple[str, str]) -> Iterator[Sample]:
    for metric, counts in ((LINK_TRANSMIT, detail.transmit), (LINK_RECEIVE, detail.receive)):
        for number, count in counts.items():
            yield metric.sample(count, *labels, str(number))
    for kind, by_link in detail.errors.items():
        for number, count in by_link.items():
            yield LINK_ERRORS.sample(count, *labels, str(number), kind)
    for link in links:
        if not isinstance(link.state, Absent):
            yield LINK_UP.sample(link.state in UP, *labels, str(link.link))
        yield from known_samples((*labels, str(link.link)), (LINK_SPEED, link.speed))


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
