"""A GPU's path to the memory of its host as values: the path, its measurements, and PCIe's counters."""

from dataclasses import dataclass
from typing import ClassVar

from wirewatch.core.types import Absent


@dataclass(frozen=True, slots=True)
class Pcie:
    """PCIe generation and lanes that GPU and slot should train to, not their present values."""

    generation: int
    lanes: int


@dataclass(frozen=True, slots=True)
class HostPath:
    """The path from a GPU to the memory of the host.

    `pcie`: the narrowest link of the path, at its full training. `payload`: most bytes of data in a packet,
    None where not readable. `hidden`: a hypervisor hides the bridges, so that the path is not known. `c2c`:
    bytes per second each way of chip-to-chip links in place of PCIe, 0 for none. `uplink`: the root port,
    empty where not known. `cpus`: near the GPU, as the kernel lists them, empty where not known. `nodes`:
    NUMA nodes of the machine.
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
    """Copies between a GPU, by position, and pinned memory of the host: seconds of one copy of `size_bytes`.

    `*_low`: the fastest single copy. `both`: one copy each way at once. `all_*`: while all GPUs of the plan
    copy that way. `runs`: copies each way in all. `near`: whether the memory was allocated on CPUs near the
    GPU. It is None where these are not known, or their NUMA nodes had too little free memory.
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

    `pcie`: the generation and lanes of the link meanwhile.
    """

    gpu: int
    sent: int | None
    received: int | None
    pcie: Pcie | Absent
