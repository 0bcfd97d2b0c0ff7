"""Read RDMA devices: sysfs alone decides their state; ibstat runs beside it for comparison."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from wirewatch.collectors.infiniband.model import (
    BOOT_GRACE,
    DISABLED,
    KNOWN,
    CounterRefusal,
    InfinibandMemory,
    InfinibandOptions,
    InfinibandReading,
    PortKey,
    PortReading,
    RdmaIdentity,
    names_now,
)
from wirewatch.core import rdma
from wirewatch.core.collector import since_boot
from wirewatch.core.pci import Path, Place, hidden, path_between
from wirewatch.core.ports import Hardware, Sysfs
from wirewatch.core.statistics import grouped
from wirewatch.core.tree import (
    NET,
    RDMA,
    find_strays,
    gpu_places,
    is_virtual,
    rdma_address,
    rdma_devices,
    read_pci_link,
    read_place,
    where_is,
)
from wirewatch.core.types import Absent, Why, value_or


def read(
    hardware: Hardware, memory: InfinibandMemory, options: InfinibandOptions
) -> InfinibandReading | Absent:
    """Read every port; Absent when the RDMA devices cannot even be listed."""
    sysfs, mono, names = hardware.sysfs, hardware.clock.mono(), rdma_devices(hardware.sysfs)
    if isinstance(names, Absent):
        return names
    allowed = [n for n in names if not _excluded(n, options)]
    due = mono - memory.looked >= options.identity_interval
    kept = {n: i for n, i in memory.identities.items() if not due and _is_same(sysfs, n, i, memory)}
    gpus = gpu_places(sysfs) if due else memory.gpus
    found = {n: kept.get(n) or _identify(sysfs, n, memory.identities.get(n), gpus) for n in allowed}
    identities = {name: identity for name, identity in found.items() if identity is not None}
    refused = dict(memory.refused)
    known = {n: i for n, i in memory.identities.items() if not _excluded(n, options)}
    now = names_now(known, identities)
    lost = ((n, i) for n, i in known.items() if n not in now and not _is_taken(i, identities))
    gone = {i.pci if n in identities else n: i for n, i in lost}
    # Cards that are gone while another has their name go by their PCI address.
    left = {n: n if n in gone else i.pci for n, i in known.items() if n in gone or gone.get(i.pci) is i}
    claimed = {i.pci for i in (*identities.values(), *gone.values())}
    others = {*names} - identities.keys() if due else ()
    cards = claimed | {value_or(rdma_address(sysfs, name), "") for name in others} - {""}
    strays = find_strays(sysfs, cards) if due else memory.strays
    return InfinibandReading(
        devices=tuple(identities),
        identities=identities,
        ports=_read_ports(sysfs, identities, refused, options, mono),
        links={name: read_pci_link(sysfs, i.pci) for name, i in identities.items() if i.pci},
        gone=gone,
        missing={name: where_is(sysfs, identity.pci) for name, identity in gone.items()},
        names={**now, **left},
        strays={at: where for at, where in strays.items() if at not in claimed},
        refused=refused,
        ibstat=hardware.command.run("ibstat") if _ibstat_due(memory, options, mono) else None,
        looked=mono if due else memory.looked,
        gpus=gpus,
        bare=_bare(sysfs, gpus, cards | strays.keys()) if due else memory.bare,
        starting=0 <= since_boot(hardware) < BOOT_GRACE,
    )


T = TypeVar("T")
_DAY = 86400.0
_MOST, _MANY = 0.75, 3
"""Share and number of GPUs with equally many cards, from which on a GPU with fewer cards lacks some."""
_NOT_THERE = frozenset({Why.MISSING, Why.UNSUPPORTED})


def _bare(sysfs: Sysfs, gpus: Sequence[Place], cards: Collection[str]) -> str:
    """Return which GPUs have fewer cards below their root port than nearly all others; empty for none."""
    found = {card.partition(".")[0]: read_place(sysfs, card) for card in cards}.values()
    below = Counter((one.root, *one.bridges[:1]) for one in found if not isinstance(one, Absent))
    here = {gpu.address: below[gpu.root, *gpu.bridges[:1]] for gpu in gpus if gpu.bridges and not hidden(gpu)}
    usual, share = next(iter(Counter(here.values()).most_common(1)), (0, 0))
    lack = [gpu for gpu, count in here.items() if count < usual]
    most = f"{share} of {len(here)} GPUs have {usual} network cards below their root port"
    return f"{most}, not so {', '.join(lack)}" if lack and share >= max(_MANY, _MOST * len(here)) else ""


def _excluded(name: str, options: InfinibandOptions) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in options.exclude)


def _ibstat_due(memory: InfinibandMemory, options: InfinibandOptions, mono: float) -> bool:
    """Return whether ibstat is due, at once after a first difference, since ports change in between."""
    check = memory.check
    again = bool(check.disagreements) and not check.repeated
    due = check.asked is None or again or mono - check.asked >= options.ibstat_interval
    return options.ibstat and not options.exclude and due


def _read_ports(
    sysfs: Sysfs, identities: Mapping[str, RdmaIdentity], refused: dict[str, CounterRefusal],
    options: InfinibandOptions, mono: float,
) -> dict[PortKey, PortReading]:  # fmt: skip
    """Return every port of these devices; updates `refused`."""
    ports = {
        (name, port): _read_port(sysfs, f"{RDMA}/{name}/ports/{port}", counters, refused, options, mono)
        for name, identity in identities.items()
        for port, counters in identity.ports.items()
    }
    return {key: _with_carrier(sysfs, identities[key[0]], port) for key, port in ports.items()}


def _read_port(
    sysfs: Sysfs,
    at: str,
    counters: Sequence[str],
    refused: dict[str, CounterRefusal],
    options: InfinibandOptions,
    mono: float,
) -> PortReading:
    return PortReading(
        state=rdma.port_state(_always(sysfs.read(f"{at}/state"))),
        physical=rdma.physical_state(_always(sysfs.read(f"{at}/phys_state"))),
        layer=_always(sysfs.read(f"{at}/link_layer")),
        rate=rdma.port_rate(_always(sysfs.read(f"{at}/rate"))),
        lid=rdma.number(sysfs.read(f"{at}/lid")),
        counters={path: _read_counter(sysfs, f"{at}/{path}", refused, options, mono) for path in counters},
    )


def _with_carrier(sysfs: Sysfs, identity: RdmaIdentity, port: PortReading) -> PortReading:
    """Return the port with the signal of its network device, where only that shows why it is disabled."""
    if port.layer != "Ethernet" or port.physical != DISABLED or len(identity.netdevs) != 1:
        return port
    return replace(port, carrier=sysfs.read(f"{NET}/{identity.netdevs[0]}/carrier"))


def _always(text: str | Absent) -> str | Absent:
    """Read a file that every port has: an unreadable file is not a missing file."""
    if isinstance(text, Absent) and text.why is Why.UNSUPPORTED:
        return replace(text, why=Why.LOST)
    return text


def _read_counter(
    sysfs: Sysfs, path: str, refused: dict[str, CounterRefusal], options: InfinibandOptions, mono: float
) -> int | Absent:
    """Read a counter, unless the device refused it recently: each refusal is a line in the kernel log."""
    known = refused.get(path)
    if known is not None and mono < known.until:
        return Absent(Why.UNSUPPORTED, f"{path}: refused by the device {known.times} times, left alone")
    value = rdma.counter(sysfs.read(path))
    if isinstance(value, Absent) and value.why is Why.UNSUPPORTED:
        times = known.times + 1 if known else 1
        refused[path] = CounterRefusal(mono + min(options.refused_seconds * 2.0 ** (times - 1), _DAY), times)
    else:
        refused.pop(path, None)
    return value


@dataclass
class _DeviceReader:
    """Reads files below a device, and remembers a required file that could not be read."""

    sysfs: Sysfs
    at: str
    lost: Absent | None = None

    def text(self, file: str, last: str) -> str:
        """Return a file's text; the `last` text where it cannot be read, empty where there is none."""
        return self._known(self.sysfs.read(f"{self.at}/{file}"), last, "")

    def names(self, folder: str, last: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in a folder; the `last` names where it cannot be listed."""
        return tuple(self._known(self.sysfs.entries(f"{self.at}/{folder}"), last, ()))

    def address(self, last: str) -> str:
        """Return the device's PCI address; the `last` address if unreadable, empty where it has none."""
        return self._known(rdma_address(self.sysfs, self.at.rpartition("/")[2]), last, "")

    def _known(self, value: T | Absent, last: T, none: T) -> T:
        if isinstance(value, Absent) and value.why not in _NOT_THERE:
            self.lost = value
            return last
        return none if isinstance(value, Absent) else value


def _identify(
    sysfs: Sysfs, name: str, last: RdmaIdentity | None, gpus: Sequence[Place]
) -> RdmaIdentity | None:
    """Return the device, None for a virtual function: its card has the wire, and it comes and goes."""
    known = last or RdmaIdentity("", "", "", "", "", "", (), {})
    reader = _DeviceReader(sysfs, f"{RDMA}/{name}")
    address = reader.address(known.pci)
    if is_virtual(sysfs, address):
        return None
    numa = reader.text("device/numa_node", known.numa)
    ports = reader.names("ports", tuple(known.ports))
    place = read_place(sysfs, address)
    paths = {value_or(path_between(place, gpu), None) for gpu in gpus}
    return RdmaIdentity(
        pci=address,
        numa="" if numa == "-1" else numa,
        firmware=reader.text("fw_ver", known.firmware),
        model=reader.text("hca_type", known.model),
        board=reader.text("board_id", known.board),
        guid=reader.text("node_guid", known.guid),
        netdevs=reader.names("device/net", known.netdevs),
        ports={port: _counters(reader, port, known.ports.get(port, ())) for port in ports},
        lost=reader.lost,
        beside_gpu=True if paths & {Path.PIX, Path.PXB} else None if None in paths else False,
    )


def _counters(reader: _DeviceReader, port: str, last: tuple[str, ...]) -> tuple[str, ...]:
    before = grouped((path.partition("/")[0], path.partition("/")[2]) for path in last)
    names = {
        at: reader.names(f"ports/{port}/{at}", tuple(before.get(at, ())))
        for at in ("counters", "hw_counters")
    }
    return tuple(path for at, found in names.items() for name in found if (path := f"{at}/{name}") in KNOWN)


def _is_taken(before: RdmaIdentity, listed: Mapping[str, RdmaIdentity]) -> bool:
    """Return whether another card, or a bond with it, is in the place of the card."""
    card = before.pci.partition(".")[0]
    return any(
        other.pci == before.pci or ("bond" in name and other.pci.partition(".")[0] == card)
        for name, other in listed.items()
    )


def _is_same(sysfs: Sysfs, name: str, identity: RdmaIdentity, memory: InfinibandMemory) -> bool:
    """Return whether it is still the same card with all its ports, so that no identity need be read again."""
    ports = {port for device, port in memory.ports if device == name}
    guid = sysfs.read(f"{RDMA}/{name}/node_guid")
    same = guid == identity.guid or isinstance(guid, Absent)
    return same and identity.lost is None and ports <= identity.ports.keys()
