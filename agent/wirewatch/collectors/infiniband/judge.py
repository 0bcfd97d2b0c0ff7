"""Judging ports: what is remembered of each, what is expected of it, and which devices have gone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from wirewatch.collectors.infiniband import crosscheck, faults
from wirewatch.collectors.infiniband.counters import ERRORS, LINK_DOWNED
from wirewatch.collectors.infiniband.values import (
    InfinibandPolicy,
    Memory,
    Port,
    PortKey,
    PortMemory,
    Reading,
)  # fmt: skip
from wirewatch.core.pergpu import filled, is_lost
from wirewatch.core.rates import Streak, Window
from wirewatch.core.rdma import ACTIVE
from wirewatch.core.types import Absent, Expect, Finding, Ok

JUDGED = {**ERRORS, "link_downed": LINK_DOWNED}


def judge(
    memory: Memory, ok: Ok[Reading], policy: InfinibandPolicy, expect: Expect
) -> tuple[Memory, tuple[Finding, ...]]:
    reading = ok.value
    usual = _usual_rates(memory, reading)
    ports = _same_ports(memory, reading)
    for key, port in reading.ports.items():
        board = reading.identities[key[0]].board
        known = ports.get(key) or PortMemory(port, board)
        ports[key] = _remember(replace(known, board=board), port, usual, policy, expect, ok.mono)
    new = Memory(
        identities={
            **{n: memory.identities[n] for n in reading.missing if memory.identities[n].pci},
            **reading.identities,
        },
        looked=reading.looked,
        away=frozenset(name for name, where in reading.missing.items() if where.away),
        strays=reading.strays,
        refused=reading.refused,
        ports=ports,
        links={
            name: filled(link, memory.links.get(name), "generation", "width", "generation_max", "width_max")
            for name, link in reading.links.items()
        },
        streaks=faults.device_streaks(memory, reading, ports, expect),
        check=crosscheck.compare(memory.check, reading, ok.mono),
    )
    return new, (*faults.findings(new, reading, policy, expect), *crosscheck.findings(new.check))


def _same_ports(memory: Memory, reading: Reading) -> dict[PortKey, PortMemory]:
    """What is remembered of ports that are still the same ones, by the names that they have now.

    A device with another name keeps its past; a name with another card behind it has none. A device without
    a place on PCI, which a command made, is forgotten when it goes. A card that comes back from a pod is as
    the pod left it.
    """
    fresh = {name: i for name, i in reading.identities.items() if name not in memory.identities}
    renamed = {identity.pci: name for name, identity in fresh.items() if identity.pci}
    ports = {}
    for (name, port), known in memory.ports.items():
        before = memory.identities.get(name)
        now = reading.identities.get(name)
        back = name in memory.away and now is not None and not known.streaks
        if before is None or back or (now is not None and not now.same_card(before)):
            continue
        if now is None and name not in reading.missing:
            name = renamed.get(before.pci, "")  # noqa: PLW2901
        if name and (before.pci or now is not None):
            ports[name, port] = known
    return ports


def _rate(port: Port) -> float | None:
    """The rate of a port that is active; of one that is not it says nothing."""
    active = not isinstance(port.state, Absent) and port.state in ACTIVE
    return port.rate.bytes_per_second if active and not isinstance(port.rate, Absent) else None


def _usual_rates(memory: Memory, reading: Reading) -> Mapping[tuple[str, str], float]:
    """The commonest rate of active ports of one board and link layer, where most of them share it."""
    groups: dict[tuple[str, str], list[float]] = {}
    for key, port in reading.ports.items():
        rate, known = _rate(port), memory.ports.get(key)
        best = max(rate or 0.0, known.best if known else 0.0)
        if best and not isinstance(port.layer, Absent):
            groups.setdefault((reading.identities[key[0]].board, port.layer), []).append(best)
    usual = {group: Counter(rates).most_common(1)[0] for group, rates in groups.items()}
    return {group: rate for group, (rate, count) in usual.items() if 2 * count > len(groups[group]) > 1}


def _remember(
    known: PortMemory, port: Port, usual: Mapping[tuple[str, str], float], policy: InfinibandPolicy,
    expect: Expect, mono: float,
) -> PortMemory:  # fmt: skip
    last = filled(port, known.last, "state", "physical", "layer", "rate")
    sure = not is_lost(port.state)
    active = not isinstance(last.state, Absent) and last.state in ACTIVE
    best = max(known.best, _rate(port) or 0.0)
    layer = "" if isinstance(last.layer, Absent) else last.layer
    siblings = usual.get((known.board, layer))
    pinned = expect.rdma_rate_bytes_per_second
    new = _counted(_flapping(known, policy, mono, active=active, sure=sure), port, policy, mono)
    new = replace(
        new, last=last, was_active=known.was_active or (active and sure), best=best,
        expected=pinned or max(best, siblings or 0.0) or None, pinned=pinned is not None,
    )  # fmt: skip
    shown = {
        "down": faults.is_down(new),
        "slow": faults.is_slow(new, policy),
    }
    before = known.streaks
    streaks = {
        f: before.get(f, Streak()).see(present=True, sure=sure) for f, present in shown.items() if present
    }
    return replace(new, streaks=streaks)


def _flapping(
    known: PortMemory, policy: InfinibandPolicy, mono: float, *, active: bool, sure: bool
) -> PortMemory:
    """A port that was down for a while and is up again has flapped once."""
    flaps = tuple(t for t in known.flaps if mono - t < policy.flap_window)
    down_since, flapped = known.down_since, known.flapped
    if sure and active and down_since is not None:
        if mono - down_since >= policy.flap_seconds:
            flaps, flapped = (*flaps, mono), flapped + 1
        down_since = None
    elif sure and not active and known.was_active and down_since is None:
        down_since = mono
    return replace(known, flaps=flaps, flapped=flapped, down_since=down_since)


def _counted(known: PortMemory, port: Port, policy: InfinibandPolicy, mono: float) -> PortMemory:
    windows, ceiling = dict(known.windows), set(known.ceiling)
    stuck = set()
    for kind, counter in JUDGED.items():
        value = port.counters.get(counter.path)
        limit = policy.limit(kind)
        if value is None or isinstance(value, Absent):
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
