"""What is wrong with ports and devices, from what is remembered of them."""

from collections.abc import Iterator, Mapping

from wirewatch.collectors.infiniband.counters import ERRORS, LINK_DOWNED
from wirewatch.collectors.infiniband.values import (
    InfinibandPolicy,
    Memory,
    PciLink,
    Port,
    PortKey,
    PortMemory,
    Reading,
)  # fmt: skip
from wirewatch.core.component import blind_finding
from wirewatch.core.pergpu import is_lost
from wirewatch.core.rates import Streak
from wirewatch.core.rdma import ACTIVE, gigabits
from wirewatch.core.types import Absent, Expect, Finding, Health, Subject, Why

DOWN_ACTIONS: Mapping[str, str] = {
    "polling": "no signal from the other end: check the cable, the transceiver and the switch port",
    "disabled": "the port is switched off: enable it, here or at the switch",
    "sleep": "wake the port; check its power management",
    "training": "the link does not train: exchange the cable or transceiver, then the switch port",
    "recovery": "the link keeps retraining: exchange the cable or transceiver, then the switch port",
    "link_up": "the wire is up, the port is not: look at the subnet manager",
}
DOWN_ACTION = "check cable, transceiver and switch port"
SLOW_ACTION = (
    "check that the cable, the transceiver and the switch port are for the full rate, and reseat them"
)
FLAP_ACTION = "exchange the cable or transceiver; if it goes on, the switch port and then the card"
ERROR_ACTION = (
    "exchange the cable or transceiver of this port if it goes on; compare with the switch's counters"
)
END_ACTION = "look at the node at the other end: jobs that died there and full receive queues make these"
STUCK_ACTION = (
    "look at the port as for its errors, then reset its counters (`perfquery -R`): they count no more"
)
GONE_ACTION = (
    "look in the kernel log for what became of the card; reload its driver or power the node off and on"
)
PCIE_ACTION = "drain, power the node off and reseat the card or its riser"
MISSING_ACTION = "look at the ports named here, then for cards that are not listed at all (`lspci`)"
_SIBLINGS = 3
"""Active ports of one kind of card from which on they say something about the others."""
_ENDS = frozenset({"rnr_retry", "ack_timeout", "efa_unresponsive_remote", "efa_impaired_connection"})


def is_active(port: Port) -> bool:
    return not isinstance(port.state, Absent) and port.state in ACTIVE


def is_down(port: PortMemory) -> bool:
    """Down where it was or should be up: an empty socket is not a fault, an InfiniBand wire that is up is."""
    if isinstance(port.last.state, Absent) or is_active(port.last):
        return False
    wired = port.last.physical == "link_up" and port.last.layer == "InfiniBand"
    return port.was_active or wired


def is_slow(port: PortMemory, policy: InfinibandPolicy) -> bool:
    """Active below what is expected of it; the rate of a port that is down means nothing."""
    rate = port.last.rate
    if not is_active(port.last) or isinstance(rate, Absent) or port.expected is None:
        return False
    return rate.bytes_per_second < policy.slow_ratio * port.expected


def narrow(link: PciLink) -> str:
    """What is less than both ends of the card's PCIe link can, empty for nothing."""
    pairs = (("PCIe generation", link.generation, link.generation_max), ("lanes", link.width, link.width_max))
    less = [
        f"{now} of {most} {name}" if name == "lanes" else f"{name} {now} of {most}"
        for name, now, most in pairs
        if not isinstance(now, Absent) and not isinstance(most, Absent) and now < most
    ]
    return ", ".join(less)


def _active_ports(reading: Reading, ports: Mapping[PortKey, PortMemory]) -> int:
    """Ports that are active, and those of cards that are elsewhere on purpose."""
    active = sum(is_active(ports[key].last) for key in reading.ports)
    away = {name for name, where in reading.missing.items() if where.away}
    lent = sum(key[0] in away and is_active(port.last) for key, port in ports.items())
    return active + lent + sum(bool(where.away) for where in reading.strays.values())


def device_streaks(
    memory: Memory, reading: Reading, ports: Mapping[PortKey, PortMemory], expect: Expect
) -> dict[str, Streak]:
    """Faults of devices and of the node that show now, with the polls in a row for which they were seen."""
    sure = {f"gone:{name}": True for name, where in reading.missing.items() if where.away is False}
    sure |= {
        f"gone:{n}": False
        for n, w in reading.missing.items()
        if w.away is None and f"gone:{n}" in memory.streaks
    }
    for name, link in reading.links.items():
        known = memory.links.get(name)
        lost = is_lost(link.width) or is_lost(link.generation)
        if narrow(link) or (lost and known is not None and narrow(known)):
            sure[f"pcie:{name}"] = not lost
    if expect.rdma_ports is not None and _active_ports(reading, ports) < expect.rdma_ports:
        unread = any(identity.lost for identity in reading.identities.values())
        sure["missing"] = not unread and not any(is_lost(port.state) for port in reading.ports.values())
    before = memory.streaks
    return {fault: before.get(fault, Streak()).see(present=True, sure=s) for fault, s in sorted(sure.items())}


def _confirmed(streak: Streak, policy: InfinibandPolicy) -> Health:
    return Health.FAILED if streak.count >= policy.confirm else Health.DEGRADED


def findings(memory: Memory, reading: Reading, policy: InfinibandPolicy, expect: Expect) -> Iterator[Finding]:
    yield from _ports(memory, reading, policy)
    yield from _inactive(memory, reading, policy)
    yield from _devices(memory, reading, policy)
    if "missing" in memory.streaks:
        health, told = _confirmed(memory.streaks["missing"], policy), _missing(memory, reading, expect)
        yield Finding("infiniband.ports_missing", health, Subject(), told, MISSING_ACTION)


def _ports(memory: Memory, reading: Reading, policy: InfinibandPolicy) -> Iterator[Finding]:
    for key, port in sorted(memory.ports.items()):
        # A card that has gone away with a fault took it along: going away repairs nothing.
        yield from _port(key, port, policy)
        if key[0] not in memory.away:
            yield from _errors(Subject(device=key[0], port=key[1]), port, policy)
        yield from _unread(key, reading)


def _devices(memory: Memory, reading: Reading, policy: InfinibandPolicy) -> Iterator[Finding]:
    for name, identity in reading.identities.items():
        if identity.lost is not None:
            yield blind_finding("infiniband", Subject(device=name), identity.lost)
    for name, where in sorted(reading.missing.items()):
        subject = Subject(device=name)
        if where.away is None and name in memory.identities:
            yield blind_finding("infiniband", subject, Absent(Why.DENIED, where.reason))
        if f"gone:{name}" in memory.streaks:
            health = _confirmed(memory.streaks[f"gone:{name}"], policy)
            yield Finding("infiniband.device_gone", health, subject, where.reason, GONE_ACTION)
    for name, link in sorted(memory.links.items()):
        if f"pcie:{name}" in memory.streaks:
            health = _confirmed(memory.streaks[f"pcie:{name}"], policy)
            evidence = f"the card's PCIe link runs with {narrow(link)}"
            yield Finding("infiniband.pcie", health, Subject(device=name), evidence, PCIE_ACTION)


def _missing(memory: Memory, reading: Reading, expect: Expect) -> str:
    down = [f"{d}/{p}" for (d, p), port in sorted(memory.ports.items()) if not is_active(port.last)]
    told = f"; not active: {', '.join(down)}" if down else ""
    return (
        f"{_active_ports(reading, memory.ports)} of {expect.rdma_ports} expected RDMA ports are active{told}"
    )


def _port(key: PortKey, port: PortMemory, policy: InfinibandPolicy) -> Iterator[Finding]:
    subject = Subject(device=key[0], port=key[1])
    if "down" in port.streaks:
        past = "was active" if port.was_active else "has been so since the agent started"
        evidence = f"{_said(port.last.state)}, physical state {_said(port.last.physical)}; {past}"
        action = DOWN_ACTIONS.get(_said(port.last.physical), DOWN_ACTION)
        yield Finding(
            "infiniband.port_down", _confirmed(port.streaks["down"], policy), subject, evidence, action
        )
    if "slow" in port.streaks and port.expected is not None and not isinstance(port.last.rate, Absent):
        # What siblings have may not be meant for this one; what it had itself, it can.
        own = port.best * policy.slow_ratio > port.last.rate.bytes_per_second
        health = _confirmed(port.streaks["slow"], policy) if own or port.pinned else Health.DEGRADED
        evidence = f"active at {port.last.rate}, expected {gigabits(port.expected)}"
        yield Finding("infiniband.port_slow", health, subject, evidence, SLOW_ACTION)
    if len(port.flaps) >= policy.flaps:
        evidence = f"down and up again {len(port.flaps)} times within {policy.flap_window / 3600:g} h"
        yield Finding("infiniband.port_flapping", Health.FAILED, subject, evidence, FLAP_ACTION)


def _said(value: str | Absent) -> str:
    return "not known" if isinstance(value, Absent) else value


def _errors(subject: Subject, port: PortMemory, policy: InfinibandPolicy) -> Iterator[Finding]:
    for kind, window in port.windows.items():
        limit = policy.limit(kind)
        if limit and window.total() >= limit.events:
            evidence = f"{window.total()} in {limit.seconds:g} s, {window.last} since reset"
            action = END_ACTION if kind in _ENDS else ERROR_ACTION
            yield Finding(f"infiniband.{kind}_errors", Health.DEGRADED, subject, evidence, action)
    if port.stuck:
        told = ", ".join(f"{kind} at {port.windows[kind].last}" for kind in sorted(port.stuck))
        evidence = f"at the ceiling, blind from here on: {told}"
        yield Finding("infiniband.counter_saturated", Health.DEGRADED, subject, evidence, STUCK_ACTION)


def _unread(key: PortKey, reading: Reading) -> Iterator[Finding]:
    """One blind finding for all of a port that should be there and could not be read."""
    port = reading.ports.get(key)
    subject = Subject(device=key[0], port=key[1])
    if port is None:
        if key[0] in reading.devices:
            yield blind_finding(
                "infiniband", subject, Absent(Why.LOST, "was here before, is not listed any more")
            )
        return
    values: dict[str, object] = {"state": port.state, "physical state": port.physical}
    if is_active(port):
        values["rate"] = port.rate
    judged = {"link_downed": LINK_DOWNED, **ERRORS}
    values |= {kind: port.counters[c.path] for kind, c in judged.items() if c.path in port.counters}
    lost = {name: value for name, value in values.items() if isinstance(value, Absent) and is_lost(value)}
    if lost:
        first = next(iter(lost.values()))
        detail = f"{', '.join(lost)}: {first.detail}"
        yield blind_finding("infiniband", subject, Absent(first.why, detail, first.code))


def _inactive(memory: Memory, reading: Reading, policy: InfinibandPolicy) -> Iterator[Finding]:
    """A port that never was active while nearly all others of its kind of card are."""
    boards: dict[str, list[PortKey]] = {}
    for key in reading.ports:
        boards.setdefault(memory.ports[key].board, []).append(key)
    for board, keys in boards.items():
        active = [key for key in keys if is_active(memory.ports[key].last)]
        if not board or len(active) < _SIBLINGS or len(active) < policy.sibling_ratio * len(keys):
            continue
        for key in keys:
            port = memory.ports[key]
            if not port.was_active and not isinstance(port.last.state, Absent) and not is_down(port):
                subject = Subject(device=key[0], port=key[1])
                state = f"{port.last.state}, physical state {_said(port.last.physical)}"
                others = f"{len(active)} of {len(keys)} ports of cards {board} are active"
                evidence = f"{state}, since the agent started; {others}"
                action = f"{DOWN_ACTIONS.get(_said(port.last.physical), DOWN_ACTION)}; or exclude the device"
                yield Finding("infiniband.port_inactive", Health.DEGRADED, subject, evidence, action)
