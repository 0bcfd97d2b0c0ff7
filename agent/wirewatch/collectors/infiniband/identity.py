"""Who an RDMA device is: looked at now and then, and kept where it cannot be read."""

from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.collectors.infiniband.counters import KNOWN
from wirewatch.collectors.infiniband.values import Identity
from wirewatch.core.ports import Sysfs
from wirewatch.core.tree import DEVICES, RDMA, rdma_address
from wirewatch.core.types import Absent, Why

_NOT_THERE = frozenset({Why.MISSING, Why.UNSUPPORTED})


@dataclass
class _Reader:
    """Reads files below a device, and remembers the first that should be there and could not be read."""

    sysfs: Sysfs
    at: str
    lost: Absent | None = None

    def text(self, file: str, last: str) -> str:
        text = self.sysfs.read(f"{self.at}/{file}")
        return last if self._lost(text) else "" if isinstance(text, Absent) else text

    def names(self, folder: str, last: tuple[str, ...]) -> tuple[str, ...]:
        names = self.sysfs.entries(f"{self.at}/{folder}")
        return last if self._lost(names) else () if isinstance(names, Absent) else tuple(names)

    def address(self, last: str) -> str:
        address = rdma_address(self.sysfs, self.at.rpartition("/")[2])
        return last if self._lost(address) else "" if isinstance(address, Absent) else address

    def _lost(self, value: object) -> bool:
        if isinstance(value, Absent) and value.why not in _NOT_THERE:
            self.lost = self.lost or value
            return True
        return False


def identify(sysfs: Sysfs, name: str, last: Identity | None) -> Identity | None:
    """The device, None for a virtual function: its wire is its card's, and it comes and goes by design."""
    known = last or Identity("", "", "", "", "", "", (), {})
    reader = _Reader(sysfs, f"{RDMA}/{name}")
    address = reader.address(known.pci)
    if address and not isinstance(sysfs.link(f"{DEVICES}/{address}/physfn"), Absent):
        return None
    numa = reader.text("device/numa_node", known.numa)
    ports = reader.names("ports", tuple(known.ports))
    return Identity(
        pci=address,
        numa="" if numa == "-1" else numa,
        firmware=reader.text("fw_ver", known.firmware),
        model=reader.text("hca_type", known.model),
        board=reader.text("board_id", known.board),
        guid=reader.text("node_guid", known.guid),
        netdevs=reader.names("device/net", known.netdevs),
        ports={port: _counters(reader, port, known.ports.get(port, ())) for port in ports},
        lost=reader.lost,
    )


def _counters(reader: _Reader, port: str, last: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for folder in ("counters", "hw_counters"):
        before = tuple(path.partition("/")[2] for path in last if path.startswith(f"{folder}/"))
        found += [f"{folder}/{name}" for name in reader.names(f"ports/{port}/{folder}", before)]
    return tuple(path for path in found if path in KNOWN)


def goes_by_another_name(gone: Identity, listed: Mapping[str, Identity]) -> bool:
    """Whether a device that is not listed any more is there all the same: renamed, or part of a bond."""
    card = gone.pci.partition(".")[0]
    return bool(gone.pci) and any(
        other.pci == gone.pci or ("bond" in name and other.pci.partition(".")[0] == card)
        for name, other in listed.items()
    )
