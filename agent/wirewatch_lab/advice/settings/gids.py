"""The GIDs of an RDMA port: its addresses by index, of which RoCE uses one and InfiniBand the first.

Sources: the kernel's ABI document sysfs-class-infiniband (gids, gid_attrs/types, gid_attrs/ndevs); NCCL's
choice from 2.21 on, src/transport/net_ib (ncclIbGetGidIndex, ncclUpdateGidIndex).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from wirewatch.core.ports import Sysfs
from wirewatch.core.tree import RDMA
from wirewatch.core.types import Absent, Why

ROCE = "Ethernet"
"""Link layer of a RoCE port; InfiniBand needs no index."""
V1, V2 = "IB/RoCE v1", "RoCE v2"
_VERSIONS: Mapping[str, int] = {V1: 1, "RoCE v1": 1, V2: 2}


@dataclass(frozen=True, slots=True)
class Gid:
    """An address of a port. `type` as the kernel writes it: `IB/RoCE v1` or `RoCE v2`, empty where not known.

    `interface`: its network interface, empty where none is named.
    """

    index: int
    address: IPv6Address
    type: str
    interface: str = ""

    @property
    def version(self) -> int | None:
        """Return the version of RoCE: 1 or 2, None where not known."""
        return _VERSIONS.get(self.type)

    @property
    def is_ipv4(self) -> bool:
        """Return whether it stands for an IPv4 address."""
        return self.address.ipv4_mapped is not None

    @property
    def is_link_local(self) -> bool:
        """Return whether it reaches only the next router, as fe80:: addresses do."""
        return self.address.packed[:8] == b"\xfe\x80" + bytes(6)

    def __str__(self) -> str:
        mapped = self.address.ipv4_mapped
        kind = "link-local" if self.is_link_local else "IPv4" if mapped else "IPv6"
        return f"{self.type or 'type not known'}, {kind} {mapped or self.address}"


Gids = Mapping[int, Gid] | Absent
"""Non-empty GIDs by index; absent where they cannot be listed."""


def read_gids(sysfs: Sysfs, device: str, port: str) -> Gids:
    """Return the non-empty GIDs of a port."""
    at = f"{RDMA}/{device}/ports/{port}"
    names = sysfs.entries(f"{at}/gids")
    if isinstance(names, Absent):
        return names
    found = {}
    for index in sorted(int(name) for name in names if name.isascii() and name.isdigit()):
        text = sysfs.read(f"{at}/gids/{index}")
        address = _address(text)
        if isinstance(address, Absent):
            return address
        if int(address):
            kind = sysfs.read(f"{at}/gid_attrs/types/{index}")
            interface = sysfs.read(f"{at}/gid_attrs/ndevs/{index}")
            found[index] = Gid(index, address, _text(kind), _text(interface))
    return found


def usual_gid(gids: Mapping[int, Gid]) -> int:
    """Return the index that NCCL takes on RoCE from 2.21 on: RoCE v2 of an IPv4 address where present."""
    best = 0
    for index in range(1, max(gids, default=0) + 1):
        candidate, current = gids.get(index), gids.get(best)
        if candidate is None or not candidate.is_ipv4:
            continue
        newer = current is not None and candidate.version == 2 != current.version  # noqa: PLR2004
        if newer or current is None or not current.is_ipv4:
            best = index
    return best


def common_index(ports: Sequence[Mapping[int, Gid]]) -> int | None:
    """Return the lowest index that is RoCE v2 of an IPv4 address on every port; None where there is none."""
    fitting = [
        {index for index, gid in gids.items() if gid.version == 2 and gid.is_ipv4}  # noqa: PLR2004
        for gids in ports
    ]
    return min(set.intersection(*fitting), default=None) if fitting else None


def _address(text: str | Absent) -> IPv6Address | Absent:
    if isinstance(text, Absent):
        return text
    try:
        return IPv6Address(text)
    except ValueError:
        return Absent(Why.MALFORMED, f"not a GID: {text[:40]!r}")


def _text(text: str | Absent) -> str:
    """Treat EINVAL as an empty entry; it is not a fault."""
    return "" if isinstance(text, Absent) else text
