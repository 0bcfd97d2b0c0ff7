"""Reading RDMA devices: sysfs alone tells the state; ibstat is run beside it, to be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from wirewatch.collectors.infiniband.identity import goes_by_another_name, identify
from wirewatch.collectors.infiniband.missing import find_strays, where_is
from wirewatch.collectors.infiniband.values import (
    InfinibandOptions,
    Memory,
    PciLink,
    Port,
    Reading,
    Refusal,
)  # fmt: skip
from wirewatch.core import pci, rdma
from wirewatch.core.ports import Hardware, Sysfs
from wirewatch.core.tree import DEVICES, RDMA, rdma_devices
from wirewatch.core.types import Absent, Why

DAY = 86400.0


def read(hardware: Hardware, memory: Memory, options: InfinibandOptions) -> Reading | Absent:
    sysfs, mono = hardware.sysfs, hardware.clock.mono()
    names = rdma_devices(sysfs)
    if isinstance(names, Absent):
        return names
    allowed = [n for n in names if not _excluded(n, options)]
    due = memory.looked is None or mono - memory.looked >= options.identity_interval
    kept = {n: i for n, i in memory.identities.items() if not due and i.lost is None}
    told = {name: kept.get(name) or identify(sysfs, name, memory.identities.get(name)) for name in allowed}
    identities = {name: identity for name, identity in told.items() if identity is not None}
    devices = tuple(identities)
    refused = dict(memory.refused)
    ports = {
        (name, port): _read_port(sysfs, f"{RDMA}/{name}/ports/{port}", counters, refused, options, mono)
        for name, identity in identities.items()
        for port, counters in identity.ports.items()
    }
    unlisted = {n: i for n, i in memory.identities.items() if n not in allowed and not _excluded(n, options)}
    absent = {n: i for n, i in unlisted.items() if not goes_by_another_name(i, identities)}
    if due:
        strays = find_strays(sysfs, {i.pci for i in (*identities.values(), *absent.values())})
    return Reading(
        devices=devices,
        identities=identities,
        ports=ports,
        links={name: _pcie(sysfs, i.pci) for name, i in identities.items() if i.pci},
        missing={name: where_is(sysfs, identity.pci) for name, identity in absent.items()},
        strays=strays if due else memory.strays,
        refused=refused,
        ibstat=hardware.command.run("ibstat") if _ibstat_due(memory, options, mono) else None,
        looked=mono if due or memory.looked is None else memory.looked,
    )


def _excluded(name: str, options: InfinibandOptions) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in options.exclude)


def _ibstat_due(memory: Memory, options: InfinibandOptions, mono: float) -> bool:
    """When its time has come; at once when it disagreed for the first time, since ports change in between."""
    check = memory.check
    again = bool(check.disagreements) and not check.repeated
    due = check.asked is None or again or mono - check.asked >= options.ibstat_interval
    return options.ibstat and not options.exclude and due


def _read_port(
    sysfs: Sysfs, at: str, counters: Sequence[str], refused: dict[str, Refusal], options: InfinibandOptions,
    mono: float,
) -> Port:  # fmt: skip
    values = {path: _read_counter(sysfs, f"{at}/{path}", refused, options, mono) for path in counters}
    return Port(
        state=rdma.port_state(_always(sysfs.read(f"{at}/state"))),
        physical=rdma.physical_state(_always(sysfs.read(f"{at}/phys_state"))),
        layer=_always(sysfs.read(f"{at}/link_layer")),
        rate=rdma.port_rate(_always(sysfs.read(f"{at}/rate"))),
        lid=rdma.number(sysfs.read(f"{at}/lid")),
        counters=values,
    )


def _always(text: str | Absent) -> str | Absent:
    """What every port has: one that refuses to tell it is not one that does without."""
    if isinstance(text, Absent) and text.why is Why.UNSUPPORTED:
        return replace(text, why=Why.LOST)
    return text


def _read_counter(
    sysfs: Sysfs, path: str, refused: dict[str, Refusal], options: InfinibandOptions, mono: float
) -> int | Absent:
    """A counter, unless the device refused it a short while ago: each refusal is a line in the kernel log."""
    known = refused.get(path)
    if known is not None and mono < known.until:
        return Absent(Why.UNSUPPORTED, f"{path}: refused by the device {known.times} times, left alone")
    value = rdma.counter(sysfs.read(path))
    if isinstance(value, Absent) and value.why is Why.UNSUPPORTED:
        times = known.times + 1 if known else 1
        refused[path] = Refusal(mono + min(options.refused_seconds * 2.0 ** (times - 1), DAY), times)
    else:
        refused.pop(path, None)
    return value


def _pcie(sysfs: Sysfs, address: str) -> PciLink:
    at = f"{DEVICES}/{address}"
    own = (pci.generation(sysfs.read(f"{at}/max_link_speed")), pci.width(sysfs.read(f"{at}/max_link_width")))
    resolved = sysfs.link(at)
    above = "" if isinstance(resolved, Absent) else resolved.rpartition("/")[0].rpartition("/")[2]
    slot: Mapping[str, int | Absent] = {}
    if above.count(":") == 2:  # noqa: PLR2004 - a bridge, not the root
        bridge = f"{DEVICES}/{above}"
        slot = {
            "generation": pci.generation(sysfs.read(f"{bridge}/max_link_speed")),
            "width": pci.width(sysfs.read(f"{bridge}/max_link_width")),
        }
    return PciLink(
        generation=pci.generation(sysfs.read(f"{at}/current_link_speed")),
        width=pci.width(sysfs.read(f"{at}/current_link_width")),
        generation_max=_least(own[0], slot.get("generation")),
        width_max=_least(own[1], slot.get("width")),
    )


def _least(card: int | Absent, slot: int | Absent | None) -> int | Absent:
    """What both ends can; a slot that does not tell limits nothing."""
    if isinstance(card, Absent) or slot is None or isinstance(slot, Absent):
        return card
    return min(card, slot)
