"""InfiniBand, RoCE and EFA ports: state, rate, bytes, errors, outages, and places of missing cards."""

from collections.abc import Iterable, Iterator

from wirewatch.collectors.infiniband.judge import RULES, forget, judge, keep, recall
from wirewatch.collectors.infiniband.model import (
    CONGESTION,
    EFA_BYTES,
    ERRORS,
    LINK_DOWNED,
    WORDS,
    InfinibandFacts,
    InfinibandMemory,
    InfinibandOptions,
    InfinibandPolicy,
    InfinibandReading,
    LastingFabric,
    PortKey,
    PortReading,
)
from wirewatch.collectors.infiniband.read import read
from wirewatch.core.collector import Collector, Lasting, Observed
from wirewatch.core.rdma import ACTIVE, WORD
from wirewatch.core.types import Absent, Sample, Subject, Tier, family, value_or

PORT = ("device", "port")
UNSEEN = "all of it"
SHOWN = ("down", "init", "armed", "active")
SHOWN_PHYSICAL = ("polling", "disabled", "training", "link_up", "recovery")
INFO = family(
    "rdma_port_info", (*PORT, "link_layer", "pci", "numa", "netdev", "model", "firmware", "guid", "lid"),
    "Names, versions and place of an RDMA port.", UNSEEN, tier=Tier.CORE,
)  # fmt: skip
STATE = family(
    "rdma_port_state", (*PORT, "state"),
    "1 for the port's logical state; deferred counts as active, and in the reserved state all are 0.", UNSEEN,
    tier=Tier.CORE, core=("active",),
)  # fmt: skip
PHYSICAL_STATE = family(
    "rdma_port_physical_state", (*PORT, "state"),
    "1 for the port's physical state, among those seen in practice.", UNSEEN,
    undrawn="the port's state says whether it carries anything",
)  # fmt: skip
RATE = family(
    "rdma_port_rate_bytes_per_second", PORT,
    "Line rate each way; a port that is down has none here, whatever sysfs shows.", UNSEEN, tier=Tier.CORE,
)  # fmt: skip
EXPECTED = family(
    "rdma_port_rate_expected_bytes_per_second", PORT,
    "From the configuration, else the best that this port or most of its siblings had.", UNSEEN,
    tier=Tier.CORE,
)  # fmt: skip
TRANSMIT = family("rdma_port_transmit_bytes_total", PORT, "Bytes sent by RDMA.", UNSEEN, tier=Tier.CORE)
RECEIVE = family("rdma_port_receive_bytes_total", PORT, "Bytes received by RDMA.", UNSEEN, tier=Tier.CORE)
ERROR = family(
    "rdma_port_errors_total", (*PORT, "kind"), "Errors of a port; old ones are not faults.", UNSEEN
)
DOWNED = family(
    "rdma_port_link_downed_total", PORT, "Times that the wire failed to retrain and went down.", UNSEEN,
    tier=Tier.CORE,
)  # fmt: skip
CONGESTED = family(
    "rdma_port_congestion_total", (*PORT, "kind"),
    "Signs of a congested network, in the kind's own unit; not a fault of the node.", UNSEEN,
)  # fmt: skip
FLAPS = family(
    "rdma_port_flaps_total", PORT,
    "Outages of the port that are over, since the agent started.", UNSEEN,
    tier=Tier.CORE,
)  # fmt: skip
SATURATED = family(
    "rdma_port_counters_saturated", PORT,
    "Error counters that have reached their maximum and count nothing until they are reset.", UNSEEN,
    undrawn="each is a finding, infiniband.counter_saturated",
)  # fmt: skip
AWAY = family(
    "rdma_device_away_info", ("device", "pci", "reason"),
    "A device that was here and has been given to a pod or a virtual machine.", UNSEEN,
    undrawn="a card that a pod has is no fault",
)  # fmt: skip
UNPARSED = family(
    "rdma_ibstat_lines_unparsed_total", (), "Lines of ibstat that were not understood.", UNSEEN,
    tier=Tier.CORE,
)  # fmt: skip
METRICS = (
    INFO, STATE, PHYSICAL_STATE, RATE, EXPECTED, TRANSMIT, RECEIVE, ERROR, DOWNED, CONGESTED, FLAPS,
    SATURATED, AWAY, UNPARSED,
)  # fmt: skip


def samples(reading: InfinibandReading, memory: InfinibandMemory) -> Iterable[Sample]:
    for key, port in reading.ports.items():
        one = reading.identities[key[0]]
        names = (one.pci, one.numa, ",".join(one.netdevs), one.model, one.firmware, one.guid)
        layer, lid = value_or(port.layer, ""), str(value_or(port.lid, ""))
        yield INFO.sample(1, *key, layer, *names, lid)
        yield from _states(key, port)
        yield from _counters(key, port)
        known = memory.ports[key]
        if known.expected is not None:
            yield EXPECTED.sample(known.expected, *key)
        yield FLAPS.sample(known.flapped, *key)
        yield SATURATED.sample(len(known.ceiling | known.stuck), *key)
    for name, where in reading.missing.items():
        if where.away:
            yield AWAY.sample(1, name, reading.gone[name].pci, where.reason)
    if reading.ports:
        yield UNPARSED.sample(memory.check.unparsed)


def facts(reading: InfinibandReading, memory: InfinibandMemory) -> InfinibandFacts:
    known = {key: one for key, one in reading.ports.items() if not isinstance(one.state, Absent)}
    inactive = frozenset(key for key, port in known.items() if port.state not in ACTIVE)
    rates = ((key, port.rate) for key, port in known.items() if key not in inactive)
    speeds = {key: rate.bytes_per_second for key, rate in rates if not isinstance(rate, Absent)}
    return InfinibandFacts(memory.identities, memory.links, inactive, speeds)


def observed(reading: InfinibandReading, memory: InfinibandMemory) -> Observed:
    """Return the ports that were read, the places of their cards, and devices that need not be here."""
    ports = (Subject(device=name, port=port) for name, port in reading.ports)
    places = (card.pci for card in reading.identities.values() if card.pci)
    others = (Subject(device=one) for one in (*places, *memory.forgotten))
    return Observed(frozenset(), frozenset((*ports, *others)))


def _states(key: PortKey, port: PortReading) -> Iterator[Sample]:
    if not isinstance(port.state, Absent):
        state = "active" if port.state in ACTIVE else port.state
        for name in SHOWN:
            yield STATE.sample(state == name, *key, name)
    if not isinstance(port.physical, Absent):
        for name in SHOWN_PHYSICAL:
            yield PHYSICAL_STATE.sample(port.physical == name, *key, name)
    up = port.state in {"active", "active_defer", "armed", "init"}
    if up and not isinstance(port.rate, Absent):
        yield RATE.sample(port.rate.bytes_per_second, *key)


def _counters(key: PortKey, port: PortReading) -> Iterator[Sample]:
    known = {path: count for path, count in port.counters.items() if not isinstance(count, Absent)}
    for metric, words, plain in ((TRANSMIT, WORDS[0], EFA_BYTES[0]), (RECEIVE, WORDS[1], EFA_BYTES[1])):
        path, scale = (words, WORD) if words in port.counters else (plain, 1)
        if path in known:
            yield metric.sample(known[path] * scale, *key)
    if LINK_DOWNED.path in known:
        yield DOWNED.sample(known[LINK_DOWNED.path], *key)
    errors = {kind: counter.path for kind, counter in ERRORS.items()}
    for metric, paths in ((ERROR, errors), (CONGESTED, CONGESTION)):
        yield from (metric.sample(known[at], *key, kind) for kind, at in paths.items() if at in known)


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
