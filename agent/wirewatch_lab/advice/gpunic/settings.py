"""Job settings that give each rank its ports and processors: variables, options and a script."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from wirewatch.core.probe import RdmaPort
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.nccl.settings import IB_HCA
from wirewatch_lab.advice.gpunic.locality import ETHERNET, Locality, cpu_numbers
from wirewatch_lab.advice.gpunic.mapping import GpuNicMap, NicsOfGpu
from wirewatch_lab.advice.settings.plugins import NetworkPlugin

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_NUMBER = re.compile(r"\d{1,3}", re.ASCII)
_ENTRIES = 32
"""Entries of NCCL_IB_HCA that NCCL reads."""
_LAYERS = frozenset({"InfiniBand", "Ethernet", ""})


@dataclass(frozen=True, slots=True)
class JobSetting:
    """A variable of the whole job, or of the rank with this number on each node.

    `recommended`: whether it does something here that the library does not do by itself.
    """

    name: str
    value: str
    rank: int | None
    recommended: bool
    why: str
    when_not: str


ORDER = "CUDA_DEVICE_ORDER"
_ORDER = JobSetting(
    ORDER, "PCI_BUS_ID", None, recommended=True,
    why="numbers the GPUs as this table does; CUDA's own default begins with the fastest",
    when_not="a rank that takes its GPU by UUID or PCI address",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CpuBinding:
    """Processors near the GPU of a rank, and the command in front of its program."""

    rank: int
    gpu: int
    cpus: str
    command: str


@dataclass(frozen=True, slots=True)
class SlurmBinding:
    """Options of srun, for as many tasks on a node as it has GPUs: task n takes GPU n.

    `mask_cpu`: each task may use all processors near its GPU. `map_cpu`: one processor a task. `map_gpu`: the
    same ranks by number, for a node that shows each task its own GPU alone.
    """

    gpu_bind: str
    mask_cpu: str
    map_cpu: str
    map_gpu: str
    when_not: str


def job_settings(found: GpuNicMap, plugin: NetworkPlugin | None = None) -> tuple[JobSetting, ...]:
    """Return the variables; none where no GPU has a port, or `unsettable` says why."""
    ports = found.ports()
    if plugin and _by_interfaces(found, plugin):
        return (_interfaces(plugin, ports),)
    if not ports or unsettable(found, plugin):
        return ()
    return (_ORDER, *_nccl(found, ports), *_ucx(found), *_nvshmem(found))


def _by_interfaces(found: GpuNicMap, plugin: NetworkPlugin) -> bool:
    """Return whether the ports are network interfaces, without numbers, that the plugin sends by."""
    ports = found.ports()
    return (
        bool(plugin.interfaces and ports) and found.layer == ETHERNET and not any(one.port for one in ports)
    )


def _interfaces(plugin: NetworkPlugin, ports: Sequence[RdmaPort]) -> JobSetting:
    """Return the plugin's variable that chooses network interfaces near GPUs."""
    return JobSetting(
        plugin.interfaces, ",".join(port.device for port in ports), None, recommended=True,
        why=f"{plugin.name} sends by these; the values of its file are those of the machine's maker",
        when_not=f"{plugin.file} names others, or a pod gives interfaces other names",
    )  # fmt: skip


def unsettable(found: GpuNicMap, plugin: NetworkPlugin | None = None) -> str:
    """Return why variables cannot name the ports; empty where they can. `plugin`: the network's plugin."""
    by = (
        f"NCCL reaches ports of link layer {found.layer} by a plugin (EFA)"
        if found.layer not in _LAYERS
        else ""
    )
    if plugin and not plugin.reads_ib:
        by = "EFA's" if found.layer not in _LAYERS else ""
    by = plugin.name if plugin is not None and not plugin.reads_ib else by
    if by and not (plugin and _by_interfaces(found, plugin)):
        return (
            f"NCCL reaches this network by a plugin ({by}), which reads no NCCL_IB_HCA: no settings are shown"
        )
    if not all(is_named(port) for port in found.ports()):
        return "names of devices are not known, or no names for a variable: no settings are shown"
    return ""


def cpu_bindings(found: GpuNicMap, near: Locality) -> tuple[CpuBinding, ...]:
    """Return a binding for each rank with known processors."""
    return tuple(
        CpuBinding(rank, seat.gpu.index, cpus, f"numactl --physcpubind={cpus} --localalloc")
        for rank, seat in enumerate(found.gpus)
        if (cpus := near.cpus.get(seat.gpu.uuid, ""))
    )


def slurm_binding(bindings: Sequence[CpuBinding], ranks: int) -> SlurmBinding | None:
    """Return the options of srun; None unless the processors of every rank are known."""
    if not bindings or len(bindings) < ranks:
        return None
    masks = [f"0x{sum(1 << cpu for cpu in cpu_numbers(one.cpus)):x}" for one in bindings]
    return SlurmBinding(
        "--gpu-bind=none", f"--cpu-bind=mask_cpu:{','.join(masks)}",
        f"--cpu-bind=map_cpu:{','.join(map(str, _single(bindings)))}",
        f"--gpu-bind=map_gpu:{','.join(str(rank) for rank in range(ranks))}",
        "a job that does not have the whole node: Slurm then leaves the binding out, or the step fails. "
        "map_gpu hides the other GPUs from a task, which keeps NCCL from NVLink between processes where "
        "Slurm constrains devices",
    )  # fmt: skip


def _nccl(found: GpuNicMap, ports: Sequence[RdmaPort]) -> Iterator[JobSetting]:
    # The device alone where that is enough.
    several = {name.partition(":")[0] for name, _ in found.left_out if ":" in name}
    names = [port_name(port) if port.device in several else port.device for port in ports]
    if len(names) > _ENTRIES:
        return
    why = (
        "leaves out the ports that do not serve GPUs, by exact names; without = a name is a prefix, "
        "and mlx5_1 means mlx5_10 too"
        if found.active_left
        else "names what NCCL takes by itself: nothing else is up"
    )
    yield JobSetting(
        IB_HCA, f"={','.join(names)}", None, found.active_left, why,
        "nodes on which devices have other names; a network plugin other than NCCL's own (EFA, TCPX)",
    )  # fmt: skip


def _ucx(found: GpuNicMap) -> Iterator[JobSetting]:
    for rank, seat in enumerate(found.gpus):
        if seat.ports:
            yield JobSetting(
                "UCX_NET_DEVICES", ",".join(port_name(one.port) for one in seat.ports), rank, found.visible,
                "the rank's own ports, for MPI and UCX",
                "a job without UCX; UCX takes the nearest by itself where it sees the PCI tree",
            )  # fmt: skip


def _nvshmem(found: GpuNicMap) -> Iterator[JobSetting]:
    first = [port_name(seat.ports[0].port) for seat in found.gpus if seat.ports]
    if len(first) < len(found.gpus):
        return
    runs = [f"{name}:{len(list(same))}" for name, same in groupby(first)]
    why = "PE n of a node on its port; NVSHMEM takes the nearest by itself"
    when_not = "PEs of a node that are not in the order of its GPUs"
    yield JobSetting("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1", None, False, why, when_not)  # noqa: FBT003
    yield JobSetting("NVSHMEM_HCA_PE_MAPPING", ",".join(runs), None, False, why, when_not)  # noqa: FBT003


def is_named(port: RdmaPort) -> bool:
    """Return whether a variable can name the port."""
    return bool(_NAME.fullmatch(port.device)) and bool(_NUMBER.fullmatch(port.port or "1"))


def port_name(port: RdmaPort) -> str:
    """Return device and port, such as `mlx5_0:1`."""
    return f"{port.device}:{port.port or '1'}"


def _single(bindings: Sequence[CpuBinding]) -> Iterator[int]:
    """Yield a processor for each rank; ranks with the same list are spread over it."""
    for one in bindings:
        same = [other.rank for other in bindings if other.cpus == one.cpus]
        numbers = cpu_numbers(one.cpus)
        yield numbers[same.index(one.rank) * len(numbers) // len(same)]


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

    `plugin`: by which NCCL reaches the network, null for its own transports and where that is not known.
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
    plugin: str | None


GPU_NIC = TypeAdapter(GpuNicDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.advise-gpu-nic.1": GPU_NIC}


def document(
    at: float, of: str, found: GpuNicMap, settings: tuple[JobSetting, ...],
    bindings: tuple[CpuBinding, ...], slurm: SlurmBinding | None, remarks: tuple[str, ...],
    plugin: NetworkPlugin | None,
) -> GpuNicDocument:  # fmt: skip
    """Return everything as one value; `at` in Unix seconds, `of` names the machine."""
    cpus = {one.rank: one.cpus for one in bindings}
    return GpuNicDocument(
        schema="wirewatch.advise-gpu-nic/1", at=at, of=of, layer=found.layer, visible=found.visible,
        source=SOURCE, confidence="derived",
        gpus=tuple(_gpu(rank, seat, cpus.get(rank)) for rank, seat in enumerate(found.gpus)),
        left_out=tuple(PortLeftOut(*one) for one in found.left_out),
        settings=settings, cpus=bindings, slurm=slurm, remarks=(*found.remarks, *remarks),
        plugin=plugin.name if plugin and not plugin.reads_ib else None,
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
