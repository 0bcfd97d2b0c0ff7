"""The document of `wirewatch advise gpu-nic --json`."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch_lab.advice.gpunic.mapping import GpuNicMap, NicsOfGpu
from wirewatch_lab.advice.gpunic.settings import CpuBinding, JobSetting, SlurmBinding

SOURCE = "rates of the RDMA ports and of PCIe links, shared by the GPUs that use them"


@dataclass(frozen=True, slots=True)
class AdvisedPort:
    """A port of a GPU. `path`: empty where it is not known. `gpus`: how many use it."""

    device: str
    port: str
    layer: str
    path: str
    rate_bytes_per_second: float | None
    gpus: int


@dataclass(frozen=True, slots=True)
class AdvisedGpu:
    """A GPU: `rank` of it on the node; `share`: what its ports leave it each way while all GPUs send.

    `healthy_share`: the same with all ports up; `loss` says in words what is missing, empty for nothing.
    """

    rank: int
    gpu: int
    uuid: str
    pci: str
    numa: int | None
    cpus: str | None
    ports: tuple[AdvisedPort, ...]
    share_bytes_per_second: float | None
    healthy_share_bytes_per_second: float | None
    loss: str


@dataclass(frozen=True, slots=True)
class PortLeftOut:
    """A port or device that no GPU uses, and why."""

    port: str
    why: str


@dataclass(frozen=True, slots=True)
class GpuNicDocument:
    """The whole. `visible`: whether any path is nearer than another; without it the mapping is by number.

    `confidence` of the shares, as of references: what a healthy node reaches of them is unproven.
    """

    schema: Literal["wirewatch.advise-gpu-nic/1"]
    at: float
    of: str
    layer: str
    visible: bool
    source: str
    confidence: Literal["derived"]
    gpus: tuple[AdvisedGpu, ...]
    left_out: tuple[PortLeftOut, ...]
    settings: tuple[JobSetting, ...]
    cpus: tuple[CpuBinding, ...]
    slurm: SlurmBinding | None
    remarks: tuple[str, ...]


GPU_NIC = TypeAdapter(GpuNicDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-gpu-nic.1": GPU_NIC}


def document(
    at: float, of: str, found: GpuNicMap, settings: tuple[JobSetting, ...],
    bindings: tuple[CpuBinding, ...], slurm: SlurmBinding | None, remarks: tuple[str, ...],
) -> GpuNicDocument:  # fmt: skip
    """Everything as one value; `at` in Unix seconds, `of` names the machine."""
    cpus = {one.rank: one.cpus for one in bindings}
    return GpuNicDocument(
        schema="wirewatch.advise-gpu-nic/1", at=at, of=of, layer=found.layer, visible=found.visible,
        source=SOURCE, confidence="derived",
        gpus=tuple(_gpu(rank, seat, cpus.get(rank)) for rank, seat in enumerate(found.gpus)),
        left_out=tuple(PortLeftOut(*one) for one in found.left_out),
        settings=settings, cpus=bindings, slurm=slurm, remarks=(*found.remarks, *remarks),
    )  # fmt: skip


def _gpu(rank: int, seat: NicsOfGpu, cpus: str | None) -> AdvisedGpu:
    ports = tuple(
        AdvisedPort(
            one.port.device, one.port.port, one.port.layer, one.path,
            one.port.rate if isinstance(one.port.rate, float) else None, one.gpus,
        )
        for one in seat.ports
    )  # fmt: skip
    gpu = seat.gpu
    return AdvisedGpu(
        rank, gpu.index, gpu.uuid, gpu.place.address, gpu.place.numa, cpus, ports, seat.share, seat.healthy,
        seat.loss,
    )  # fmt: skip
