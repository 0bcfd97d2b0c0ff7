"""Where PCI devices sit and what lies between two of them, from the paths that sysfs resolves to.

Names of paths follow nvidia-smi. PIX: at most one switch, PXB: several, PHB: through the host bridge of one
root. NODE: between roots of one NUMA node, SYS: between NUMA nodes. NCCL calls NODE PHB.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from wirewatch.core.types import Absent, Why, whole

_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_HEX = re.compile(r"[0-9a-f]{4,8}")
_BELOW = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
ACS_FLAGS = {"ReqRedir": 1 << 2, "CmpltRedir": 1 << 3, "UpstreamFwd": 1 << 4}
"""Bits of the ACS control register that send peer-to-peer packets up to the root (PCI Express base, 7.7.11).

SrcValid alone does not redirect packets, and is set on healthy machines.
"""
_FIRST, _PCI_EXPRESS = 0x34, 0x10
"""Where the list of capabilities begins, and the number of the capability with the sizes of packets."""
_EXTENDED = 0x100
_ACS = 0x000D
_POINTER = 0xFFC
_NO_DEVICE = b"\xff\xff"
LANE_RATES = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""GT/s to PCIe generation."""
MOST_LANES, _NO_LINK, _ALL_ONES = 32, (0, 255), 63
_SPEED = re.compile(r"(\d{1,4}(?:\.\d{1,2})?) GT/s(?: PCIe)?", re.ASCII)
_ERRORS = re.compile(r"(\S.*\S) (\d{1,20})", re.ASCII)


class Path(IntEnum):
    """The PCI path between two devices, nearest first: `min()` is the best."""

    PIX = 0
    PXB = 1
    PHB = 2
    NODE = 3
    SYS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """A device: its address, root complex, the bridges above it from the root down, and its NUMA node.

    `root` is empty in a graph whose reader did not find the place. `numa` is None where neither firmware nor
    hypervisor gives it.
    """

    address: str
    root: str
    bridges: tuple[str, ...]
    numa: int | None


def normal_pci(text: str) -> str:
    """Return an address of NVML or an XID as the kernel writes it; empty for any other text."""
    domain, _, rest = text.strip().lower().partition(":")
    if not _HEX.fullmatch(domain) or not _BELOW.fullmatch(rest):
        return ""
    return f"{int(domain, 16):04x}:{rest}"


def place(resolved: str, numa: str | Absent) -> Place | Absent:
    """The place of a device from its resolved path in sysfs and the text of its `numa_node`."""
    parts = resolved.strip("/").split("/")
    roots = [i for i, part in enumerate(parts) if _ROOT.fullmatch(part)]
    if not roots:
        return Absent(Why.UNSUPPORTED, f"{resolved}: not below a PCI root")
    start, below = roots[-1], []
    for part in parts[start + 1 :]:
        if not _ADDRESS.fullmatch(part):
            break
        below.append(part)
    if not below:
        return Absent(Why.MALFORMED, f"{resolved}: no PCI address")
    known = None if isinstance(numa, Absent) else whole(numa)
    return Place(below[-1], parts[start], tuple(below[:-1]), known)


def hidden(one: Place) -> bool:
    """Return whether a hypervisor shows the device flat on its root, so that its wires are not known."""
    return not one.bridges


def path_between(one: Place | Absent, other: Place | Absent, *, nodes: int | None = None) -> Path | Absent:
    """Return the path; `nodes`: NUMA nodes of the machine. Absent: a place, bridge or NUMA not known."""
    if isinstance(one, Absent):
        return one
    if isinstance(other, Absent):
        return other
    if hidden(one) or hidden(other):
        return Absent(Why.UNSUPPORTED, "the hypervisor does not show the PCI bridges")
    if one.root == other.root:
        return _below_one_root(one, other)
    if nodes == 1 or (one.numa is not None and one.numa == other.numa):
        return Path.NODE
    unknown = Absent(Why.UNSUPPORTED, "different PCI roots, and their NUMA nodes are not known")
    return unknown if one.numa is None or other.numa is None else Path.SYS


def bridges_between(one: Place, other: Place) -> tuple[str, ...]:
    """Return the bridges on a packet's path between two places, none above the point where they meet."""
    if one.root != other.root:
        return (*one.bridges, *other.bridges)
    shared = _shared(one, other)
    return (*one.bridges[shared:], *other.bridges[shared:])


def acs_redirects(config: bytes) -> tuple[str, ...] | Absent:
    """Return the redirect bits that are set in a configuration space; Absent for its first part alone."""
    if config[:2] == _NO_DEVICE:
        return Absent(Why.LOST, "the device does not answer: its configuration space reads all ones")
    if len(config) <= _EXTENDED:
        return Absent(Why.DENIED, "extended PCI configuration space needs CAP_SYS_ADMIN")
    at, seen = _EXTENDED, set[int]()
    while at >= _EXTENDED and at not in seen:
        if at + 8 > len(config):
            return Absent(
                Why.MALFORMED, f"the configuration space ends at {len(config):#x}, before its list does"
            )
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            control = int.from_bytes(config[at + 6 : at + 8], "little")
            return tuple(name for name, bit in ACS_FLAGS.items() if control & bit)
        at = header >> 20 & _POINTER
    return ()


def most_payload(config: bytes | Absent) -> int | None:
    """Return the most bytes of data in a packet, by a configuration space (PCI Express base, 7.5.3.4).

    None for its first 64 bytes alone, which is all that some users may read, and for a device without PCIe.
    """
    at, seen = (config[_FIRST] if isinstance(config, bytes) and len(config) > _FIRST else 0), set[int]()
    while isinstance(config, bytes) and at and at + 10 <= len(config) and at not in seen:
        seen.add(at)
        if config[at] == _PCI_EXPRESS:
            return 128 << (config[at + 8] >> 5)
        at = config[at + 1]
    return None


def generation(speed: str | Absent) -> int | Absent:
    """PCIe generation from the text of `current_link_speed`, such as `32.0 GT/s PCIe`."""
    if isinstance(speed, Absent):
        return speed
    match = _SPEED.fullmatch(speed)
    number = LANE_RATES.get(float(match[1])) if match else None
    if number is None:
        why = Why.UNSUPPORTED if speed.startswith("Unknown") else Why.MALFORMED
        return Absent(why, f"not a PCIe speed: {speed[:40]!r}")
    return number


def width(text: str | Absent) -> int | Absent:
    """Return the lanes of `current_link_width`; 0 and 255: no link, 63: all bits set, the device is lost."""
    if isinstance(text, Absent):
        return text
    lanes = whole(text)
    if lanes is None:
        return Absent(Why.MALFORMED, f"not a PCIe width: {text[:40]!r}")
    if lanes in _NO_LINK:
        return Absent(Why.UNSUPPORTED, f"no PCIe link (width {lanes})")
    if lanes == _ALL_ONES:
        return Absent(Why.LOST, "the device does not answer: its PCIe width reads all ones")
    return lanes if lanes <= MOST_LANES else Absent(Why.MALFORMED, f"no PCIe link has {lanes} lanes")


def aer_total(text: str | Absent) -> int | Absent:
    """Errors of one severity from the text of `aer_dev_correctable` and its like: the kernel's own total."""
    if isinstance(text, Absent):
        return text
    counts = {m[1]: int(m[2]) for m in map(_ERRORS.fullmatch, text.splitlines()) if m}
    totals = [n for name, n in counts.items() if name.startswith("TOTAL_ERR_")]
    if len(counts) != len(text.splitlines()) or not counts:
        return Absent(Why.MALFORMED, f"not a list of PCIe errors: {text[:40]!r}")
    return totals[0] if totals else sum(counts.values())


def _below_one_root(one: Place, other: Place) -> Path:
    shared = _shared(one, other)
    if shared == 0:
        return Path.PHB
    above, below = len(one.bridges) - shared, len(other.bridges) - shared
    # Bridges come as ports and switches in turn: root port, upstream, downstream, upstream, downstream.
    # An even number of shared ones ends with a switch's upstream port: the devices part inside it.
    switches = 1 + above // 2 + below // 2 if shared % 2 == 0 else (above + 1) // 2 + (below + 1) // 2
    return Path.PIX if switches <= 1 else Path.PXB


def _shared(one: Place, other: Place) -> int:
    pairs = zip(one.bridges, other.bridges, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one.bridges), len(other.bridges)))
