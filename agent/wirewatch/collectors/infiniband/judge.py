"""Judging RDMA ports: what is expected of each, what is wrong with it, and which devices have gone."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from wirewatch.collectors.infiniband.ibstat import IBSTAT_DISAGREES, compare, ibstat_findings
from wirewatch.collectors.infiniband.model import (
    DISABLED,
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
    PortKey,
    PortMemory,
    PortReading,
    RdmaIdentity,
)
from wirewatch.core.collector import (
    CONFIRMED,
    DEGRADED,
    FAILED,
    STARTING,
    Rule,
    blind_finding,
    filled,
    is_lost,
)
from wirewatch.core.rdma import ACTIVE, Rate, gigabits
from wirewatch.core.statistics import Streak, Window, grouped, streaks, usual
from wirewatch.core.tree import PciLink
from wirewatch.core.types import Absent, ErrorLimit, Expect, Finding, Health, Ok, Subject, Why, value_or

PORT_DOWN = Rule("infiniband.port_down", STARTING, "PortDown")
PORT_DISABLED = Rule("infiniband.port_disabled", DEGRADED, "PortDown")
PORT_INACTIVE = Rule("infiniband.port_inactive", DEGRADED, "PortDown")
PORT_LAYER = Rule("infiniband.port_layer", DEGRADED, "PortDown")
PORTS_MISSING = Rule("infiniband.ports_missing", STARTING, "PortDown")
DEVICE_GONE = Rule("infiniband.device_gone", CONFIRMED, "PortDown")
PORT_FLAPPING = Rule("infiniband.port_flapping", FAILED, "PortFlapping")
PORT_SLOW = Rule("infiniband.port_slow", CONFIRMED, "PortSlow")
CARD_PCIE = Rule("infiniband.pcie", CONFIRMED, "PortSlow")
COUNTER_SATURATED = Rule("infiniband.counter_saturated", DEGRADED, "PortErrors")
DOWN_ACTIONS: Mapping[str, str] = {
    "polling": "no signal from the other end: check the cable, the transceiver and the switch port",
    "disabled": "the port is switched off: enable it, here or at the switch",
    "sleep": "wake the port; check its power management",
    "training": "the link does not train: replace the cable or transceiver, then the switch port",
    "recovery": "the link keeps retraining: replace the cable or transceiver, then the switch port",
    "link_up": "the physical link is up, the port is not: check the subnet manager",
}
DOWN_ACTION = "check cable, transceiver and switch port"
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
LAYER_ACTION = (
    "make it InfiniBand again (`mlxconfig -d DEVICE set LINK_TYPE_P1=1`, then reset the card); if it is "
    "Ethernet on purpose, exclude the device"
)
_NEVER = Absent(Why.MISSING, "not read since the agent started")
NOT_READ = PortReading(_NEVER, _NEVER, _NEVER, _NEVER, _NEVER)
"""The reading of a port that is known from another run alone."""
UsualRates = Mapping[tuple[str, str | Absent], float]
"""By board and link layer."""
_NOTHING = Rate(0.0, 0, "")
LANES = 4
"""Lanes of a port of an InfiniBand card."""
_JUDGED = {**ERRORS, "link_downed": LINK_DOWNED}
_SIBLINGS, _MANY = 2, 3
"""Active ports of one kind of card from which on they say something about others that look for a signal, and
about any other."""
_ENDS = frozenset({"rnr_retry", "ack_timeout", "efa_unresponsive_remote", "efa_impaired_connection"})
RULES = (
    PORT_DOWN, PORT_DISABLED, PORT_INACTIVE, PORT_LAYER, PORTS_MISSING, DEVICE_GONE, PORT_FLAPPING, PORT_SLOW,
    CARD_PCIE, Rule("infiniband.*_errors", DEGRADED, "PortErrors"), COUNTER_SATURATED, IBSTAT_DISAGREES,
)  # fmt: skip


def judge(
    memory: InfinibandMemory, ok: Ok[InfinibandReading], policy: InfinibandPolicy, expect: Expect
) -> tuple[InfinibandMemory, tuple[Finding, ...]]:
    """Judge all ports: the memory of ports and devices, and all that is wrong now."""
    reading = ok.value
    rates = _usual_rates(memory, reading)
    ports = _same_ports(memory, reading)
    for key, port in reading.ports.items():
        board = reading.identities[key[0]].board
        known = ports.get(key) or PortMemory(port, board)
        ports[key] = _remember(replace(known, board=board), port, rates, policy, expect, ok.mono)
    for key in ports.keys() - reading.ports.keys():
        ports[key] = _unlisted_port(ports[key], reading.identities.get(key[0]))
    new = InfinibandMemory(
        identities={**{n: card for n, card in reading.gone.items() if card.pci}, **reading.identities},
        looked=reading.looked,
        away=frozenset(name for name, where in reading.missing.items() if where.away),
        gpus=reading.gpus,
        strays=reading.strays,
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
    """All cards, and the ports that were active."""
    cards = {n: LastingCard(i.pci, i.guid, i.model, i.board) for n, i in memory.identities.items() if i.pci}
    active = ((key, port) for key, port in sorted(memory.ports.items()) if port.best and key[0] in cards)
    return LastingFabric(cards, tuple(LastingPort(*key, port.best, port.lanes) for key, port in active))


def recall(kept: LastingFabric) -> InfinibandMemory:
    """A memory that misses cards which are not there and ports which are not active."""
    ports = {
        (one.device, one.port): PortMemory(
            NOT_READ, kept.cards[one.device].board, was_active=True, best=one.rate, lanes=one.lanes
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
    """The memory without cards that are gone, and with each port as it is now."""
    gone = {f.removeprefix("gone:") for f in memory.streaks if f.startswith("gone:")}
    ports = {
        key: replace(
            port, was_active=_is_active(port.last), best=_running(port.last).bytes_per_second,
            lanes=_running(port.last).lanes, streaks={}, down_since=None,
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
    """What is remembered of ports that are still the same, by the names that they have now.

    A device with another name keeps its past; a name with another card behind it has none. A device without
    a place on PCI, which a command made, is forgotten when it goes. A card that comes back from a pod is as
    the pod left it.
    """
    ports = {}
    for (name, port), known in memory.ports.items():
        new = reading.names.get(name, "")
        back = name in memory.away and new in reading.identities and not known.streaks
        lasting = new in reading.identities or (new in reading.gone and reading.gone[new].pci)
        if lasting and not back:
            ports[new, port] = known
    return ports


def _running(port: PortReading) -> Rate:
    """The rate of a port that is active, nothing of any other."""
    return _NOTHING if isinstance(port.rate, Absent) or not _is_active(port) else port.rate


def _usual_rates(memory: InfinibandMemory, reading: InfinibandReading) -> UsualRates:
    """The commonest rate of active ports of one board and link layer, where most of them share it."""
    best = {
        key: max(_running(port).bytes_per_second, memory.ports[key].best if key in memory.ports else 0.0)
        for key, port in reading.ports.items()
    }
    return usual(
        ((reading.identities[key[0]].board, port.layer), best[key])
        for key, port in reading.ports.items()
        if best[key]
    )


def _remember(
    known: PortMemory, port: PortReading, rates: UsualRates, policy: InfinibandPolicy,
    expect: Expect, mono: float,
) -> PortMemory:  # fmt: skip
    last = _filled(port, known.last)
    grace = known.grace.see(mono, waiting=last.coming_up, up=_is_active(last))
    # A subnet manager may start as often as it likes; a wire that trains again and again flaps.
    swept = last.state in SWEPT and grace.lasts(policy.port_grace)
    excused = last.switched_off or swept or grace.excuses(policy.port_grace)
    sure = not is_lost(port.state)
    active = _is_active(last)
    best = max(known.best, _running(port).bytes_per_second)
    # One that has received something, or gone down, was active since the card was started.
    received = any(value_or(port.counters.get(path, 0), 0) for path in (WORDS[1], LINK_DOWNED.path))
    used = known.was_active or active or received
    siblings = rates.get((known.board, last.layer))
    pinned = expect.rdma_rate_bytes_per_second
    flapped = _flapping(known, policy, mono, active=active, sure=sure, excused=excused)
    new = _counted(flapped, port, policy, mono)
    new = replace(
        new, last=last, grace=grace, was_active=used, best=best, lanes=max(known.lanes, _running(port).lanes),
        expected=pinned or max(best, siblings or 0.0) or None, pinned=pinned is not None,
    )  # fmt: skip
    # With fewer lanes than every card for InfiniBand has; a port may be split so on purpose.
    split = last.layer == "InfiniBand" and not new.pinned and 0 < _running(last).lanes < LANES
    shown = {"down": _is_down(new), "slow": _slow(new, policy) is not None, "narrow": split}
    return replace(new, streaks=streaks(known.streaks, {f: sure for f, present in shown.items() if present}))


def _filled(port: PortReading, before: PortReading) -> PortReading:
    """The port for judging; whether its network device was asked followed from what may be lost now."""
    known = filled(port, before, "state", "physical", "layer", "rate", "carrier")
    asked = not is_lost(port.physical) and not is_lost(port.layer)
    return known if asked else replace(known, carrier=before.carrier)


def _unlisted_port(known: PortMemory, card: RdmaIdentity | None) -> PortMemory:
    """A port that is not there any more while its card is; one that is away with its card stays as it was."""
    if card is None or not known.was_active:
        return known
    streak = known.streaks.get("down", Streak()).see(present=True, sure=card.lost is None)
    return replace(known, streaks={**known.streaks, "down": streak}) if streak.count else known


def _flapping(
    known: PortMemory, policy: InfinibandPolicy, mono: float, *, active: bool, sure: bool, excused: bool
) -> PortMemory:
    """A port that was down for a while and is up again has flapped once, unless it was `excused`."""
    flaps = tuple(t for t in known.flaps if mono - t < policy.flap_window)
    down_since, flapped = known.down_since, known.flapped
    if active and down_since is not None:
        if mono - down_since >= policy.flap_seconds:
            flaps, flapped = (*flaps, mono), flapped + 1
        down_since = None
    elif sure and not active and known.was_active and down_since is None and not excused:
        down_since = mono
    return replace(known, flaps=flaps, flapped=flapped, down_since=down_since)


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


def _is_active(port: PortReading) -> bool:
    return port.state in ACTIVE


def _is_down(port: PortMemory) -> bool:
    """Down where it was or should be up: an empty socket is not a fault, an InfiniBand wire that is up is."""
    if isinstance(port.last.state, Absent) or _is_active(port.last) or port.last.switched_off:
        return False
    wired = port.last.physical == "link_up" and port.last.layer == "InfiniBand"
    return port.was_active or wired


def _slow(port: PortMemory, policy: InfinibandPolicy) -> tuple[Rate, float] | None:
    """Return the rate of an active port and the expected one, where it is too low."""
    rate = port.last.rate
    if not _is_active(port.last) or isinstance(rate, Absent) or port.expected is None:
        return None
    return (rate, port.expected) if rate.bytes_per_second < policy.slow_ratio * port.expected else None


def _narrow(link: PciLink) -> str:
    """What is less than both ends of the card's PCIe link can, empty for nothing."""
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
    """Ports that are active, and those of cards that are elsewhere on purpose."""
    active = sum(_is_active(ports[key].last) for key in reading.ports)
    away = {name for name, where in reading.missing.items() if where.away}
    lent = sum(key[0] in away and _is_active(port.last) for key, port in ports.items())
    return active + lent + sum(bool(where.away) for where in reading.strays.values())


def _device_streaks(
    memory: InfinibandMemory, reading: InfinibandReading, ports: Mapping[PortKey, PortMemory], expect: Expect
) -> dict[str, Streak]:
    """Faults of devices and of the node that show now, with the polls in a row for which they were seen."""
    missing = {f"gone:{name}": where.away for name, where in reading.missing.items()}
    sure = {
        fault: away is False
        for fault, away in missing.items()
        if away is False or (away is None and fault in memory.streaks)
    }
    if all(card.pci for card in reading.identities.values()):
        # A device whose place is not known may be any of them.
        sure |= {f"gone:{address}": True for address, where in reading.strays.items() if where.due}
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
    yield from _inactive(memory, reading, policy)
    yield from _layers(memory, reading, policy)
    yield from _devices(memory, reading, policy)
    active = _active_ports(reading, memory.ports)
    due = (expect.rdma_ports or 0) - active
    if due > 0:
        starting = sum(memory.ports[key].grace.lasts(policy.port_grace) for key in reading.ports)
        health = Health.UNKNOWN if starting >= due else _confirmed(memory.streaks["missing"], policy)
        down = [f"{d}/{p}" for (d, p), port in sorted(memory.ports.items()) if not _is_active(port.last)]
        others = f"; not active: {', '.join(down)}" if down else ""
        evidence = f"{active} of {expect.rdma_ports} expected RDMA ports are active{others}"
        yield PORTS_MISSING.finding(Subject(), evidence, health, MISSING_ACTION)


def _ports(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy
) -> Iterator[Finding]:
    certain = _narrower(memory, reading, policy)
    for key, port in sorted(memory.ports.items()):
        # A card that has gone away with a fault took it along: going away repairs nothing.
        yield from _port(key, port, policy, reading.ports, certain=key in certain)
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
            health = _confirmed(memory.streaks[f"gone:{name}"], policy)
            yield DEVICE_GONE.finding(Subject(device=name), reason, health, GONE_ACTION)
    for name, link in sorted(memory.links.items()):
        if f"pcie:{name}" in memory.streaks:
            health = _confirmed(memory.streaks[f"pcie:{name}"], policy)
            evidence = f"the card's PCIe link runs with {_narrow(link)}"
            yield CARD_PCIE.finding(Subject(device=name), evidence, health, PCIE_ACTION)


def _port(
    key: PortKey, port: PortMemory, policy: InfinibandPolicy, listed: Collection[PortKey], *, certain: bool
) -> Iterator[Finding]:
    """Say why a port is wrong; `certain`: it has fewer lanes than it was made for."""
    subject = Subject(device=key[0], port=key[1])
    if "down" in port.streaks:
        past = "was active" if port.was_active else "has been so since the agent started"
        past += f" at {gigabits(port.best)}" if port.best else ""
        evidence = f"{_state(port) if key in listed else 'no longer listed'}; {past}"
        action = DOWN_ACTIONS.get(value_or(port.last.physical, ""), DOWN_ACTION)
        health = _confirmed(port.streaks["down"], policy)
        if port.grace.lasts(policy.port_grace):
            health = Health.UNKNOWN
            evidence = f"{evidence}; it may take up to {policy.port_grace:g} s to come up"
        yield PORT_DOWN.finding(subject, evidence, health, action)
    if port.was_active and port.last.switched_off and not _is_active(port.last):
        yield PORT_DISABLED.finding(subject, f"{_state(port)}; was active", action=DOWN_ACTIONS[DISABLED])
    if slow := _slow(port, policy):
        rate, expected = slow
        # What siblings have may not be meant for this one; what it had itself, it can.
        own = certain or port.best * policy.slow_ratio > rate.bytes_per_second
        sure = _confirmed(port.streaks.get("slow", Streak()), policy)
        health = sure if own or port.pinned else Health.DEGRADED
        evidence = f"active at {rate}, expected {gigabits(expected)}"
        yield PORT_SLOW.finding(subject, evidence, health, SLOW_ACTION)
    elif "narrow" in port.streaks:
        evidence = f"active at {port.last.rate}: {_running(port.last).lanes} of {LANES} lanes"
        health = _confirmed(port.streaks["narrow"], policy) if certain else Health.DEGRADED
        yield PORT_SLOW.finding(subject, evidence, health, NARROW_ACTION)
    if len(port.flaps) >= policy.flaps:
        evidence = f"down and up again {len(port.flaps)} times within {policy.flap_window / 3600:g} h"
        yield PORT_FLAPPING.finding(subject, evidence, action=FLAP_ACTION)


def _state(port: PortMemory) -> str:
    state, physical = (value_or(value, "not known") for value in (port.last.state, port.last.physical))
    return f"{state}, physical state {physical}"


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
    """One blind finding for all of a port that should be there and could not be read."""
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
    if _is_active(port):
        values["rate"] = port.rate
    judged = {"link_downed": LINK_DOWNED, **ERRORS}
    values |= {kind: port.counters[c.path] for kind, c in judged.items() if c.path in port.counters}
    lost = {name: value for name, value in values.items() if is_lost(value)}
    if lost:
        first = next(iter(lost.values()))
        detail = f"{', '.join(lost)}: {first.detail}"
        yield blind_finding("infiniband", subject, replace(first, detail=detail))


def _siblings(
    memory: InfinibandMemory, reading: InfinibandReading
) -> Iterator[tuple[str, Sequence[PortKey]]]:
    """Ports that are made alike, by board: the same port of it, and all beside GPUs or none."""
    # Often only the first of two ports is wired.
    cards = memory.identities
    kinds = grouped(
        ((cards[key[0]].board, cards[key[0]].pci.partition(".")[2], key[1], cards[key[0]].beside_gpu), key)
        for key in reading.ports
    )
    return ((board, keys) for (board, *_), keys in kinds.items() if board)


def _narrower(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy
) -> frozenset[PortKey]:
    """Ports with fewer lanes than most of their siblings, which all have theirs.

    One lane is never meant. Two may be, of a card for storage: not where the GPUs lack a port without it.
    """
    found: set[PortKey] = set()
    for _, keys in _siblings(memory, reading):
        lanes = {key: count for key in keys if (count := _running(memory.ports[key].last).lanes)}
        odd = [key for key in lanes if "narrow" in memory.ports[key].streaks]
        if len(lanes) - len(odd) >= max(_MANY, policy.sibling_ratio * len(lanes)):
            lacks = _lacks(memory, reading, keys, odd)
            found |= {key for key in odd if lacks or lanes[key] == 1}
    return frozenset(found)


def _lacks(
    memory: InfinibandMemory, reading: InfinibandReading, keys: Sequence[PortKey], odd: Sequence[PortKey]
) -> bool:
    """Tell whether the GPUs share these ports evenly only together with the odd ones."""
    beside = memory.identities[keys[0][0]].beside_gpu is not False
    return beside and not reading.missing and len(memory.gpus) % (len(keys) - len(odd)) > 0


def _layers(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy
) -> Iterator[Finding]:
    """Ports that are Ethernet where siblings are InfiniBand and the GPUs lack a port without them."""
    for board, keys in _siblings(memory, reading):
        last = {key: memory.ports[key].last for key in keys}
        sound = sum(port.layer == "InfiniBand" and _is_active(port) for port in last.values())
        odd = [key for key, port in last.items() if port.layer == "Ethernet"]
        if sound >= max(_MANY, policy.sibling_ratio * len(keys)) and _lacks(memory, reading, keys, odd):
            evidence = f"Ethernet, while {sound} of {len(keys)} ports of cards {board} are InfiniBand"
            for device, port in odd:
                yield PORT_LAYER.finding(Subject(device=device, port=port), evidence, action=LAYER_ACTION)


def _inactive(
    memory: InfinibandMemory, reading: InfinibandReading, policy: InfinibandPolicy
) -> Iterator[Finding]:
    """Ports that never were active while others of their kind of card are, or none at all is."""
    for board, keys in _siblings(memory, reading):
        active = [key for key in keys if _is_active(memory.ports[key].last)]
        if len(active) < _SIBLINGS:
            continue
        most = len(active) >= max(_MANY, policy.sibling_ratio * len(keys))
        for key in keys:
            port = memory.ports[key]
            if _never_was(port) and (most or (_searches(port) and 2 * len(active) >= len(keys))):
                others = f"{len(active)} of {len(keys)} ports of cards {board} are active"
                yield _never_active(Subject(device=key[0], port=key[1]), port, others)
    yield from _dark(memory, reading)


def _dark(memory: InfinibandMemory, reading: InfinibandReading) -> Iterator[Finding]:
    """Find cards of one kind whose ports all look for a signal; a few are no fault while others work."""
    boards = grouped((memory.ports[key].board, key) for key in reading.ports)
    working = any(_is_active(memory.ports[key].last) for key in reading.ports)
    least = _MANY + 1 if working else _SIBLINGS
    for board, keys in boards.items():
        ports = [memory.ports[key] for key in keys]
        if len(keys) >= least and all(_never_was(port) and _searches(port) for port in ports):
            names = ", ".join(f"{device}/{port}" for device, port in sorted(keys))
            yield _never_active(
                Subject(), ports[0], f"so are all {len(keys)} ports of cards {board}: {names}"
            )


def _never_was(port: PortMemory) -> bool:
    return not port.was_active and not isinstance(port.last.state, Absent) and not _is_down(port)


def _searches(port: PortMemory) -> bool:
    """Whether it is switched on and looks for the other end."""
    return port.last.physical in {"polling", "training", "recovery"}


def _never_active(subject: Subject, port: PortMemory, others: str) -> Finding:
    evidence = f"{_state(port)}, since the agent started; {others}"
    action = f"{DOWN_ACTIONS.get(value_or(port.last.physical, ''), DOWN_ACTION)}; or exclude the device"
    return PORT_INACTIVE.finding(subject, evidence, action=action)
