"""A GPU's way to the memory of its host as values: what it is, what was measured of it, what PCIe showed."""

from dataclasses import dataclass
from typing import ClassVar

from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class Pcie:
    """PCIe generation and lanes that GPU and slot should train to, not those that they show now."""

    generation: int
    lanes: int


@dataclass(frozen=True, slots=True)
class HostPath:
    """How a GPU reaches the memory of the host.

    `pcie`: the narrowest link of the way, as it should train. `payload`: most bytes of data in a packet, None
    where not readable. `hidden`: a hypervisor hides the bridges, so that the way is not known. `c2c`: bytes
    per second each way of chip-to-chip links in place of PCIe, 0 for none. `uplink`: the root port, empty
    where not known. `cpus`: near the GPU, as the kernel lists them, empty where not known. `nodes`: NUMA
    nodes of the machine.
    """

    pcie: Pcie | Absent
    payload: int | None = None
    hidden: bool = True
    c2c: float = 0.0
    uplink: str = ""
    cpus: str = ""
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class HostCopies:
    """Copies between a GPU, by position, and pinned memory of the host: seconds of one of `size_bytes`.

    `*_low`: of the fastest single copy. `both`: of one each way at once. `all_*`: while all GPUs of the plan
    copy that way. `runs`: copies each way in all. `near`: whether the memory was made on CPUs near the GPU,
    None where these are not known, or their NUMA nodes had too little free memory.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }

    gpu: int
    size_bytes: int
    to_device: float
    to_device_low: float
    from_device: float
    from_device_low: float
    both: float
    all_to_device: float
    all_from_device: float
    runs: int
    near: bool | None


@dataclass(frozen=True, slots=True)
class HostMoved:
    """PCIe of a GPU, by position, while host links were measured: bytes counted, None where not known.

    `pcie`: what the link ran at.
    """

    gpu: int
    sent: int | None
    received: int | None
    pcie: Pcie | Absent
