"""Expected bandwidth between a GPU and the host's memory: the narrowest PCIe link less the packets' cost.

A packet costs 12 or 16 bytes of header and 8 of framing, sequence and checksum beside its data (Intel AN 456
and AN 708; PCI Express base, 2.2 and 3.6). A GPU writes to the host with addresses of 64 bits, and reads in
completions. Healthy copies reach 82 to 97 % of that, since acknowledgements, credits and the host's memory
cost too. NVIDIA nvbandwidth's own listings: 26 GB/s of 29 over generation 4, 55.6 of 58 over 5.
"""

from dataclasses import dataclass

from wirewatch.busbw.expected import pcie_rate
from wirewatch.busbw.references import Confidence
from wirewatch.core.hostlink import HostPath
from wirewatch.core.types import Absent
from wirewatch.core.words import rate

PROVEN = 5
"""The newest generation with published figures."""
COMPLETION, WRITE = 20, 24
"""Bytes of a packet beside its data, when a GPU reads and when it writes."""
USUAL_PAYLOAD = 256
"""Bytes of data in a packet on most servers, where the configuration space cannot be read."""


@dataclass(frozen=True, slots=True)
class HostExpectation:
    """Most bytes per second to and from the device; LOW confidence is for people, not for verdicts."""

    to_device: float
    from_device: float
    confidence: Confidence
    derivation: tuple[str, ...]


def expect_host(path: HostPath, near: bool | None) -> HostExpectation | Absent:  # noqa: FBT001 - of the document
    """Return the most that a healthy link carries; `near`: whether it was measured from CPUs near the GPU."""
    if path.c2c:
        line = f"chip-to-chip links: {rate(path.c2c)} each way; how much a copy reaches is unproven"
        return HostExpectation(path.c2c, path.c2c, Confidence.LOW, (line,))
    if isinstance(path.pcie, Absent):
        return Absent(path.pcie.why, f"PCIe generation and lanes: {path.pcie.detail}")
    generation, lanes = path.pcie.generation, path.pcie.lanes
    bus = pcie_rate(generation, lanes)
    if isinstance(bus, Absent):
        return bus
    data = path.payload or USUAL_PAYLOAD
    to, back = (bus * data / (data + cost) for cost in (COMPLETION, WRITE))
    given = "" if path.payload else ", which is taken as given"
    doubts = tuple(_doubts(path, near, generation))
    lines = (
        f"the narrowest link: PCIe {generation} x{lanes} = {rate(bus)} each way",
        f"packets of {data} B{given}: {rate(to)} to the GPU, {rate(back)} from it",
        *doubts,
    )
    return HostExpectation(to, back, Confidence.LOW if doubts else Confidence.DERIVED, lines)


def is_placed(path: HostPath, near: bool | None) -> bool:  # noqa: FBT001
    """Return whether the host's memory lies near the GPU, and so compares with other probes and GPUs."""
    return near is True or (near is None and path.nodes == 1)


def _doubts(path: HostPath, near: bool | None, generation: int) -> list[str]:  # noqa: FBT001
    """Return why the figure is no measure of this GPU."""
    found = {
        f"how much a copy reaches over generation {generation} is unproven": generation > PROVEN,
        "a hypervisor shows no real bridges: a narrower link may be on the way": path.hidden,
        "the process may not use the CPUs near the GPU": near is False,
        "whether the memory lay near the GPU is not known": near is None and not is_placed(path, near),
    }
    return [text for text, holds in found.items() if holds]
