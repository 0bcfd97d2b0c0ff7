"""Judge RDMA ports: the expected state of each, its faults, and missing devices."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from wirewatch.collectors.infiniband import siblings
from wirewatch.collectors.infiniband.ibstat import IBSTAT_DISAGREES, compare, ibstat_findings
from wirewatch.collectors.infiniband.model import (
    BOOT_GRACE,
    ERRORS,
    LINK_DOWNED,
    SWEPT,
    WORDS,
    InfinibandMemory,
    InfinibandPolicy,
    InfinibandReading,
    LastingCard,
    LastingFabric,
    LastingPort,
    Outage,
    PortKey,
    PortMemory,
    PortReading,
    RdmaIdentity,
)
from wirewatch.core.collector import (
    CONFIRMED,
    DEGRADED,
    STARTING,
    Rule,
    blind_finding,
    filled,
    is_lost,
)
from wirewatch.core.rdma import Rate, gigabits
from wirewatch.core.statistics import Streak, Window, delta, streaks, usual
from wirewatch.core.tree import PciLink
from wirewatch.core.types import Absent, ErrorLimit, Expect, Finding, Health, Ok, Subject, Why, value_or

PORT_DOWN = Rule("infiniband.port_down", STARTING, "PortDown")
PORT_DISABLED = Rule("infiniband.port_disabled", DEGRADED, "PortDown")
PORTS_MISSING = Rule("infiniband.ports_missing", STARTING, "PortDown")
DEVICE_GONE = Rule("infiniband.device_gone", STARTING, "PortDown")
PORT_FLAPPING = Rule("infiniband.port_flapping", CONFIRMED, "PortFlapping")
PORT_SLOW = Rule("infiniband.port_slow", STARTING, "PortSlow")
CARD_PCIE = Rule("infiniband.pcie", CONFIRMED, "PortSlow")
COUNTER_SATURATED = Rule("infiniband.counter_saturated", DEGRADED, "PortErrors")
SLOW_ACTION = (
    "check that the cable, the transceiver and the switch port support the full rate, and reseat them"
)
FLAP_ACTION = "replace the cable or transceiver; if the port still flaps, then the switch port, then the card"
ERROR_ACTION = (
    "if the errors continue, replace this port's cable or transceiver; compare with the switch's counters"
)
END_ACTION = (
    "check the node at the other end: jobs that died there and full receive queues cause these errors"
)
STUCK_ACTION = (
    "check the cable as for other port errors, then reset the counters (`perfquery -R`): they have stopped "
    "counting"
)
GONE_ACTION = (
    "look in the kernel log for what happened to the card; reload its driver, or power the node off and on"
)
PCIE_ACTION = "drain, power the node off and reseat the card or its riser"
MISSING_ACTION = "check the ports named here, then look for cards that are not listed at all (`lspci`)"
NARROW_ACTION = (
    f"{SLOW_ACTION}; if these ports are split on purpose, set `[expect] rdma_rate_bytes_per_second`"
)
_NEVER = Absent(Why.MISSING, "not read since the agent started")
NOT_READ = PortReading(_NEVER, _NEVER, _NEVER, _NEVER, _NEVER)
"""The reading of a port that is known from another run alone."""
UsualRates = Mapping[tuple[siblings.Role, str | Absent], float]
"""By role and link layer."""
_JUDGED = {**ERRORS, "link_downed": LINK_DOWNED}
_ENDS = frozenset({"rnr_retry", "ack_timeout", "efa_unresponsive_remote", "efa_impaired_connection"})
RULES = (
    PORT_DOWN, PORT_DISABLED, siblings.PORT_INACTIVE, siblings.PORT_LAYER, PORTS_MISSING, DEVICE_GONE,
    PORT_FLAPPING, PORT_SLOW, CARD_PCIE, Rule("infiniband.*_errors", DEGRADED, "PortErrors"),
    COUNTER_SATURATED, IBSTAT_DISAGREES,
)  # fmt: skip


def judge(
    memory: InfinibandMemory, ok: Ok[InfinibandReading], policy: InfinibandPolicy, expect: Expect
) -> tuple[InfinibandMemory, tuple[Finding, ...]]:
    """Judge all ports: return the memory of ports and devices, and all findings of now."""
    reading = ok.value
    rates = _usual_rates(memory, reading)
    ports = _same_ports(memory, reading)
    for key, port in reading.ports.items():
        card = reading.identities[key[0]]
        known = replace(ports.get(key) or PortMemory(port), board=card.board)
        usually = rates.get((siblings.role(card, key[1]), value_or(port.layer, known.last.layer)), 0.0)
        ports[key] = _remember(known, port, usually, policy, expect, ok.mono)
    for key in ports.keys() - reading.ports.keys():
        ports[key] = _unlisted_port(ports[key], reading.identities.get(key[0]))
    new = InfinibandMemory(
        identities={**{n: card for n, card in reading.gone.items() if card.pci}, **reading.identities},
        looked=reading.looked,
        away=frozenset(name for name, where in reading.missing.items() if where.away),
        gpus=reading.gpus,
        strays=reading.strays,
        bare=reading.bare,
        refused=reading.refused,
        ports=ports,
        links={
            name: filled(link, memory.links.get(name), "generation", "width", "generation_max", "width_max")
            for name, link in reading.links.items()
        },
        streaks=_device_streaks(memory, reading, ports, expect),
        check=compare(memory.check, reading, ok.mono),
        forgotten=memory.forgotten - reading.identities.keys(),
    )
    return new, (*_findings(new, reading, policy, expect), *ibstat_findings(new.check))


def keep(memory: InfinibandMemory) -> LastingFabric:
    """Return all cards, and the ports that were active or were accepted as they are."""
    cards = {n: LastingCard(i.pci, i.guid, i.model, i.board) for n, i in memory.identities.items() if i.pci}
    known = ((key, one) for key, one in sorted(memory.ports.items()) if one.best or one.accepted)
    ports = (LastingPort(*key, one.best, one.lanes, one.accepted) for key, one in known if key[0] in cards)
    return LastingFabric(cards, tuple(ports))


def recall(kept: LastingFabric) -> InfinibandMemory:
    """Return a memory that misses absent cards and inactive ports."""
    ports = {
        (one.device, one.port): PortMemory(
            NOT_READ,
            kept.cards[one.device].board,
            was_active=one.rate > 0,
            best=one.rate,
            lanes=one.lanes,
            accepted=one.accepted,
        )
        for one in kept.ports
        if one.device in kept.cards
    }
    return InfinibandMemory(
        identities={
            name: RdmaIdentity(
                card.pci, "", "", card.model, card.board, card.guid, (),
                {port: () for device, port in ports if device == name},
            )
            for name, card in kept.cards.items()
        },
        ports=ports,
    )  # fmt: skip


def forget(memory: InfinibandMemory) -> InfinibandMemory:
    """Return the memory without missing cards, and with each port as it is now."""
    gone = {f.removeprefix("gone:") for f in memory.streaks if f.startswith("gone:")}
    ports = {
        key: replace(
            port, was_active=port.last.is_active, best=port.last.running.bytes_per_second,
            lanes=port.last.running.lanes, streaks={}, down_since=None, accepted=True,
        )
        for key, port in memory.ports.items()
        if port.last is not NOT_READ
    }  # fmt: skip
    return replace(
        memory,
        identities={name: card for name, card in memory.identities.items() if name not in gone},
        ports=ports,
        streaks={},
        forgotten=memory.forgotten | gone,
    )


def error_limit(policy: InfinibandPolicy, kind: str) -> ErrorLimit | None:
    """The operator's limit for a kind of error, else the default; None when the kind is not judged."""
    default = LINK_DOWNED if kind == "link_downed" else ERRORS[kind]
    return policy.error_limits.get(kind) or default.limit


def _same_ports(memory: InfinibandMemory, reading: InfinibandReading) -> dict[PortKey, PortMemory]:
    """Return the memories of ports that are still the same, by their present names.

    A device with another name keeps its past; a name with another card behind it has none. A device without a
    place on PCI, which a command made, is forgotten when it goes. A card that comes back from a pod is in the
    state that the pod left.
    """
    ports = {}
    for (name, port), known in memory.ports.items():
        new = reading.names.get(name, "")
        back = name in memory.away and new in reading.identities and not known.streaks
        lasting = new in reading.identities or (new in reading.gone and reading.gone[new].pci)
        if lasting and not back:
            ports[new, port] = known
    return ports


def _usual_rates(memory: InfinibandMemory, reading: InfinibandReading) -> UsualRates:
    """The commonest rate of active ports of one role and link layer, where most of them share it."""
    best = {
        key: max(port.running.bytes_per_second, memory.ports[key].best if key in memory.ports else 0.0)
        for key, port in reading.ports.items()
    }
    return usual(
        ((siblings.role(reading.identities[key[0]], key[1]), port.layer), best[key])
        for key, port in reading.ports.items()
        if best[key]
    )


def _remember(
    known: PortMemory, port: PortReading, usually: float, policy: InfinibandPolicy,
    expect: Expect, mono: float,
) -> PortMemory:  # fmt: skip
    last = _filled(port, known.last)
    grace = known.grace.see(mono, waiting=last.coming_up, up=last.is_active)
    # A subnet manager may start as often as it likes; a wire that trains again and again flaps.
    swept = last.state in SWEPT and grace.lasts(policy.port_grace)
    excused = last.switched_off or swept or grace.excuses(policy.port_grace)
    sure = not is_lost(port.state)
    active = last.is_active
    best = max(known.best, port.running.bytes_per_second)
    # One that has received something, or gone down, was active since the card was started.
    received = any(value_or(port.counters.get(path, 0), 0) for path in (WORDS[1], LINK_DOWNED.path))
    used = known.was_active or active or received
    pinned = expect.rdma_rate_bytes_per_second
    counted = _counted(known, port, policy, mono)
    new = _flapping(counted, known, policy, mono, active=active, sure=sure, excused=excused)
    new = replace(
        new, last=last, grace=grace, was_active=used, best=best, lanes=max(known.lanes, port.running.lanes),
        expected=pinned or max(best, usually) or None, pinned=pinned is not None,
    )  # fmt: skip
    # With fewer lanes than every card for InfiniBand has; a port may be split so on purpose.
    split = last.layer == "InfiniBand" and not new.pinned and 0 < last.running.lanes < siblings.LANES
    # Other drivers than those of InfiniBand show any physical state of an active port.
    odd = last.layer == "InfiniBand" and active and last.physical != "link_up"
    shown = {
        "down": new.is_down, "slow": _slow(new, policy) is not None, "narrow": split,
        "odd": odd and not isinstance(last.physical, Absent),
    }  # fmt: skip
    return replace(new, streaks=streaks(known.streaks, {f: sure for f, present in shown.items() if present}))


def _filled(port: PortReading, before: PortReading) -> PortReading:
    """Return the port for judging; `carrier` is kept where the reason to ask for it may be lost now."""
    known = filled(port, before, "state", "physical", "layer", "rate", "carrier")
    asked = not is_lost(port.physical) and not is_lost(port.layer)
    return known if asked else replace(known, carrier=before.carrier)


def _unlisted_port(known: PortMemory, card: RdmaIdentity | None) -> PortMemory:
    """Return a port that is missing while its card is here; a port away with its card stays as it was."""
    if card is None or not known.was_active:
        return known
    streak = known.streaks.get("down", Streak()).see(present=True, sure=card.lost is None)
    return replace(known, streaks={**known.streaks, "down": streak}) if streak.count else known


def _flapping(
    new: PortMemory, known: PortMemory, policy: InfinibandPolicy, mono: float, *, active: bool, sure: bool,
    excused: bool,
) -> PortMemory:  # fmt: skip
    """Return the port with one more outage if an outage is over, unless it was `excused`.

    An outage lies between two polls with an active port: a poll saw it down, or only its counter shows it.
    """
    outages = tuple(one for one in known.outages if mono - one.end < policy.flap_window)
    down_since, flapped = known.down_since, known.flapped
    between = active and known.last.is_active and _went_down(known, new)
    if active and (down_since is not None or between):
        seconds = 0.0 if down_since is None else mono - down_since
        outages, flapped = (*outages, Outage(mono, seconds)), flapped + 1
        down_since = None
    elif sure and not active and known.was_active and down_since is None and not excused:
        down_since = mono
    return replace(new, outages=outages, flapped=flapped, down_since=down_since)


def _went_down(before: PortMemory, now: PortMemory) -> bool:
    """Return whether its counter shows that the wire went down since the last reading."""
    old, new = before.windows.get("link_downed"), now.windows.get("link_downed")
    return bool(old and new and old.last is not None and delta(old.last, new.last or 0))


def _counted(known: PortMemory, port: PortReading, policy: InfinibandPolicy, mono: float) -> PortMemory:
    windows, ceiling = dict(known.windows), set(known.ceiling)
    stuck = set()
    for kind, counter in _JUDGED.items():
        value = port.counters.get(counter.path, _NEVER)
        limit = error_limit(policy, kind)
        if isinstance(value, Absent):
            stuck |= {kind} & known.stuck
            continue
        window = windows.get(kind)
        if counter.saturated(value):
            if window is None:
                ceiling.add(kind)
            elif kind not in ceiling:
                stuck.add(kind)
        else:
            ceiling.discard(kind)
        windows[kind] = (window or Window()).add(value, mono, limit.seconds if limit else 0.0)
    return replace(known, windows=windows, ceiling=frozenset(ceiling), stuck=frozenset(stuck))


def _slow(port: PortMemory, policy: InfinibandPolicy) -> tuple[Rate, float] | None:
    """Return the rate of an active port and the expected one, where it is too low."""
    rate = port.last.rate
    if not port.last.is_active or isinstance(rate, Absent) or port.expected is None:
        return None
    return (rate, port.expected) if rate.bytes_per_second < policy.slow_ratio * port.expected else None


def _narrow(link: PciLink) -> str:
    """Return how the card's PCIe link is below the most of both its ends, in words; empty for nothing."""
    pairs = (
        ("PCIe generation ", link.generation, link.generation_max, ""),
        ("", link.width, link.width_max, " lanes"),
    )
    return ", ".join(
        f"{name}{now} of {most}{unit}"
        for name, now, most, unit in pairs
        if not isinstance(now, Absent) and not isinstance(most, Absent) and now < most
    )


def _active_ports(reading: InfinibandReading, ports: Mapping[PortKey, PortMemory]) -> int:
    """Return the number of active ports, including ports of cards that are elsewhere on purpose."""
    active = sum(ports[key].last.is_active for key in reading.ports)
    away = {name for name, where in reading.missing.items() if where.away}
    lent = sum(key[0] in away and port.last.is_active for key, port in ports.items())
    return active + lent + sum(bool(where.away) for where in reading.strays.values())


def _settled(reading: InfinibandReading, ports: Mapping[PortKey, PortMemory], expect: Expect) -> bool:
    """Return whether as many ports are active as the operator expects, so that no other is missed."""
    return expect.rdma_ports is not None and _active_ports(reading, ports) >= expect.rdma_ports


def _device_streaks(
    memory: InfinibandMemory, reading: InfinibandReading, ports: Mapping[PortKey, PortMemory], expect: Expect
) -> dict[str, Streak]:
    """Return present faults of devices and of the node, with the polls in a row that saw them."""
    settled = _settled(reading, ports, expect)
    missing = {f"gone:{name}": where.away for name, where in reading.missing.items()}
    sure = {
        fault: away is False
        for fault, away in missing.items()
        if away is False or (away is None and fault in memory.streaks)
    }
    if all(card.pci for card in reading.identities.values()):
        # A device whose place is not known may be any of them.
        due = ((at, where.driver) for at, where in reading.strays.items() if where.due)
        sure |= {f"gone:{at}": True for at, driver in due if driver or not settled}
    for name, link in reading.links.items():
        known = memory.links.get(name)
        lost = is_lost(link.width) or is_lost(link.generation)
        if _narrow(link) or (lost and known is not None and _narrow(known)):
            sure[f"pcie:{name}"] = not lost
    if _active_ports(reading, ports) < (expect.rdma_ports or 0):
        unread = any(identity.lost for identity in reading.identities.values())
        sure["missing"] = not unread and not any(is_lost(port.state) for port in reading.ports.values())
    return streaks(memory.streaks, dict(sorted(sure.items())))


def _confirmed(streak: Streak, policy: InfinibandPolicy) -> Health:
    return Health.FAILED if streak.count >= policy.confirm else Health.DEGRADED


def _findings(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy, expect: Expect
) -> Iterator[Finding]:
    yield from _ports(memory, reading, policy)
    active, settled = _active_ports(reading, memory.ports), _settled(reading, memory.ports, expect)
    yield from siblings.inactive(memory, reading, policy, settled=settled)
    yield from siblings.layers(memory, reading, policy)
    yield from _devices(memory, reading, policy)
    if reading.bare and not (settled or reading.missing or memory.forgotten):
        action = f"{MISSING_ACTION}; {siblings.MEANT}"
        yield PORTS_MISSING.finding(Subject(), reading.bare, Health.UNKNOWN, action)
    due = (expect.rdma_ports or 0) - active
    if due > 0:
        starting = sum(_starts(memory.ports[key], reading, policy) for key in reading.ports)
        health = Health.UNKNOWN if starting >= due else _confirmed(memory.streaks["missing"], policy)
        down = [f"{d}/{p}" for (d, p), port in sorted(memory.ports.items()) if not port.last.is_active]
        others = f"; not active: {', '.join(down)}" if down else ""
        evidence = f"{active} of {expect.rdma_ports} expected RDMA ports are active{others}"
        yield PORTS_MISSING.finding(Subject(), evidence, health, MISSING_ACTION)


def _starts(port: PortMemory, reading: InfinibandReading, policy: InfinibandPolicy) -> bool:
    return (reading.starting and not port.last.is_active) or port.grace.lasts(policy.port_grace)


def _ports(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy
) -> Iterator[Finding]:
    beside = siblings.compare_rates(memory, reading, policy)
    for key, port in sorted(memory.ports.items()):
        # A card that has gone away with a fault took it along: going away repairs nothing.
        yield from _down(key, port, policy, reading)
        yield from _rate(key, port, policy, beside)
        if key[0] not in memory.away:
            yield from _errors(Subject(device=key[0], port=key[1]), port, policy)
        yield from _unread(key, reading, down="down" in port.streaks)


def _devices(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy
) -> Iterator[Finding]:
    for name, identity in reading.identities.items():
        if identity.lost is not None:
            yield blind_finding("infiniband", Subject(device=name), identity.lost)
    gone = [(name, where, where.reason) for name, where in sorted(reading.missing.items())]
    strays = sorted(reading.strays.items())
    gone += [(at, where, f"{where.reason}, though it should") for at, where in strays]
    for name, where, reason in gone:
        if where.away is None and name in memory.identities:
            yield blind_finding("infiniband", Subject(device=name), Absent(Why.DENIED, reason))
        if f"gone:{name}" in memory.streaks:
            # One that was never here may be kept from its driver on purpose.
            unsure = reading.starting or (name in reading.strays and not where.driver)
            health = Health.UNKNOWN if unsure else _confirmed(memory.streaks[f"gone:{name}"], policy)
            yield DEVICE_GONE.finding(Subject(device=name), reason, health, GONE_ACTION)
    for name, link in sorted(memory.links.items()):
        if f"pcie:{name}" in memory.streaks:
            health = _confirmed(memory.streaks[f"pcie:{name}"], policy)
            evidence = f"the card's PCIe link runs with {_narrow(link)}"
            yield CARD_PCIE.finding(Subject(device=name), evidence, health, PCIE_ACTION)


def _down(
    key: PortKey, port: PortMemory, policy: InfinibandPolicy, reading: InfinibandReading
) -> Iterator[Finding]:
    """Return why a port is not active as it should be, or not always."""
    subject = Subject(device=key[0], port=key[1])
    action = siblings.DOWN_ACTIONS.get(value_or(port.last.physical, ""), siblings.DOWN_ACTION)
    if "down" in port.streaks:
        past = "was active" if port.was_active else "has been so since the agent started"
        past += f" at {gigabits(port.best)}" if port.best else ""
        evidence = f"{port.last.words if key in reading.ports else 'no longer listed'}; {past}"
        health = _confirmed(port.streaks["down"], policy)
        if _starts(port, reading, policy):
            health = Health.UNKNOWN
            seconds = BOOT_GRACE if reading.starting else policy.port_grace
            evidence = f"{evidence}; it may take up to {seconds:g} s to come up"
        yield PORT_DOWN.finding(subject, evidence, health, action)
    if port.streaks.get("odd", Streak()).count >= policy.confirm:
        evidence = f"{port.last.words}, for long; both cannot be so"
        yield PORT_DOWN.finding(subject, evidence, Health.UNKNOWN, action)
    if port.was_active and port.last.switched_off and not port.last.is_active:
        yield PORT_DISABLED.finding(subject, f"{port.last.words}; was active", action=action)
    if len(port.outages) >= policy.flaps:
        long = sum(one.seconds >= policy.flap_seconds for one in port.outages)
        health = Health.FAILED if long >= policy.flaps else Health.DEGRADED
        evidence = (
            f"down and up again {len(port.outages)} times within {policy.flap_window / 3600:g} h, "
            f"{long} of them for {policy.flap_seconds:g} s or longer"
        )
        yield PORT_FLAPPING.finding(subject, evidence, health, FLAP_ACTION)


def _rate(
    key: PortKey, port: PortMemory, policy: InfinibandPolicy, compared: siblings.Beside
) -> Iterator[Finding]:
    """Return why a port is slower than it can be, and how sure that is."""
    subject, at = Subject(device=key[0], port=key[1]), f"active at {port.last.rate}"
    beside, others = compared.get(key, (Health.DEGRADED, ""))
    health = max(Health.DEGRADED, beside)
    if slow := _slow(port, policy):
        rate, expected = slow
        # A port can run as it ran before. The rate of its siblings may not be meant for it.
        own = port.pinned or port.best * policy.slow_ratio > rate.bytes_per_second
        if own or health is Health.FAILED:
            health = _confirmed(port.streaks.get("slow", Streak()), policy)
        yield PORT_SLOW.finding(subject, f"{at}, expected {gigabits(expected)}", health, SLOW_ACTION)
    elif others or ("narrow" in port.streaks and beside is not Health.OK):
        if health is Health.FAILED:
            health = _confirmed(port.streaks.get("narrow", Streak()), policy)
        others = others or f"{port.last.running.lanes} of {siblings.LANES} lanes"
        yield PORT_SLOW.finding(subject, f"{at}: {others}", health, NARROW_ACTION)


def _errors(subject: Subject, port: PortMemory, policy: InfinibandPolicy) -> Iterator[Finding]:
    for kind, window in port.windows.items():
        limit = error_limit(policy, kind)
        if limit and window.within(limit.seconds) >= limit.events:
            evidence = f"errors: {window.words(limit.seconds)}, {window.last} since reset"
            action = END_ACTION if kind in _ENDS else ERROR_ACTION
            yield Finding(f"infiniband.{kind}_errors", Health.DEGRADED, subject, evidence, action)
    if port.stuck:
        counters = ", ".join(f"{kind} at {port.windows[kind].last}" for kind in sorted(port.stuck))
        evidence = f"counters at their maximum, further errors are not counted: {counters}"
        yield COUNTER_SATURATED.finding(subject, evidence, action=STUCK_ACTION)


def _unread(key: PortKey, reading: InfinibandReading, *, down: bool) -> Iterator[Finding]:
    """Return a blind finding for all unreadable values of an expected port."""
    port = reading.ports.get(key)
    subject = Subject(device=key[0], port=key[1])
    if port is None:
        if key[0] in reading.devices and not down:
            gone = Absent(Why.LOST, "was here before, is no longer listed")
            yield blind_finding("infiniband", subject, gone)
        return
    values: dict[str, object] = {"state": port.state, "physical state": port.physical}
    if not (isinstance(port.carrier, Absent) and port.carrier.why is Why.MISSING):
        values["carrier"] = port.carrier
    if port.is_active:
        values["rate"] = port.rate
    judged = {"link_downed": LINK_DOWNED, **ERRORS}
    values |= {kind: port.counters[c.path] for kind, c in judged.items() if c.path in port.counters}
    lost = {name: value for name, value in values.items() if is_lost(value)}
    if lost:
        first = next(iter(lost.values()))
        detail = f"{', '.join(lost)}: {first.detail}"
        yield blind_finding("infiniband", subject, replace(first, detail=detail))
