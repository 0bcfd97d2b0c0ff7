"""How each GPU reaches the host's memory, read through the ports."""

from collections.abc import Sequence

from wirewatch.core.hostlink import HostPath, Pcie
from wirewatch.core.nvml import as_count
from wirewatch.core.pci import MOST_LANES, Place, hidden, most_payload
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question, Sysfs
from wirewatch.core.probe import MIB
from wirewatch.core.tree import DEVICES, count_nodes, read_pci_link, read_place
from wirewatch.core.types import Absent, value_or

HOST_BYTES = 32 * MIB
"""Bytes of a copy. The history has rates of this size, and another size would restart it."""
MOST = (Question("MaxPcieLinkGeneration"), Question("MaxPcieLinkWidth"))
NOW = (Question("CurrPcieLinkGeneration"), Question("CurrPcieLinkWidth"))
C2C_LINKS = Question("Field", (170,))
C2C_RATE = 172
"""Field with the line rate of a chip-to-chip link, in MB/s."""
DRAWN = frozenset({"0x1b36", "0x15ad"})
"""Vendors of bridges that QEMU and VMware draw (qemu.org/docs/master/specs/pci-ids.html, pci-ids.ucw.cz)."""
MBYTES = 1e6
MOST_C2C, MOST_MBYTES, MOST_GENERATION = 64, 10_000_000, 15
"""A larger number is an error of the driver."""


def read_paths(hardware: Hardware, gpus: Sequence[Gpu]) -> tuple[HostPath, ...]:
    """Return how each GPU reaches the host's memory, as far as sysfs and the driver show it."""
    nodes = count_nodes(hardware.sysfs)
    return tuple(_path(hardware, gpu, nodes) for gpu in gpus)


def _path(hardware: Hardware, gpu: Gpu, nodes: int | None) -> HostPath:
    sysfs, place = hardware.sysfs, read_place(hardware.sysfs, gpu.pci)
    own = as_pcie(hardware.nvml, gpu)
    c2c = _c2c(hardware.nvml, gpu)
    if isinstance(place, Absent):
        return HostPath(own, c2c=c2c, nodes=nodes)
    cpus = "" if place.numa is None else value_or(sysfs.read(f"{DEVICES}/{place.address}/local_cpulist"), "")
    if hidden(place) or any(sysfs.read(f"{DEVICES}/{one}/vendor") in DRAWN for one in place.bridges):
        return HostPath(own, c2c=c2c, cpus=cpus, nodes=nodes)
    payload = most_payload(sysfs.data(f"{DEVICES}/{place.bridges[-1]}/config"))
    uplink = place.bridges[0]
    return HostPath(_narrowest(sysfs, place, own), payload, False, c2c, uplink, cpus, nodes)  # noqa: FBT003


def as_pcie(nvml: Nvml, gpu: Gpu, questions: Sequence[Question] = MOST) -> Pcie | Absent:
    """Return generation and lanes: the most of card and slot, or what they run at."""
    one, other = (answer.value for answer in nvml.ask(gpu.key, questions))
    generation, lanes = as_count(one, MOST_GENERATION), as_count(other, MOST_LANES)
    if isinstance(generation, Absent):
        return generation
    return lanes if isinstance(lanes, Absent) else Pcie(generation, lanes)


def _narrowest(sysfs: Sysfs, place: Place, own: Pcie | Absent) -> Pcie | Absent:
    """Return the link of least bandwidth, at the full training of both ends.

    Bridges come as ports and switches in turn, so that every second device has a link above it.
    """
    found = [] if isinstance(own, Absent) else [own]
    for address in (*place.bridges, place.address)[::-2]:
        link = read_pci_link(sysfs, address)
        if not isinstance(link.generation_max, Absent) and not isinstance(link.width_max, Absent):
            found.append(Pcie(link.generation_max, link.width_max))
    return min(found, key=lambda one: one.lanes << one.generation, default=own)


def _c2c(nvml: Nvml, gpu: Gpu) -> float:
    """Bytes per second each way of its chip-to-chip links, 0 where it has none."""
    count = value_or(as_count(nvml.ask(gpu.key, [C2C_LINKS])[0].value, MOST_C2C), 0)
    asked = [Question("Field", (C2C_RATE, link)) for link in range(count)]
    answers = nvml.ask(gpu.key, asked) if asked else []
    return sum(value_or(as_count(one.value, MOST_MBYTES), 0) for one in answers) * MBYTES
