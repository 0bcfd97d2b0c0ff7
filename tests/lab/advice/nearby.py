"""Nodes of GPUs and RDMA ports drawn by hand."""

from collections.abc import Sequence
from typing import Any

from tests.node.busbw.ports import port
from wirewatch.core.pci import Place
from wirewatch.core.probe import RdmaPort
from wirewatch.core.topology import GpuPart
from wirewatch_lab.advice.gpunic.locality import Locality

DGX_H100 = (0, 3, 4, 5, 6, 9, 10, 11)
"""The mlx5 devices near GPU 0, 1, ...: `nvidia-smi topo -m` of a DGX H100; the others are for storage."""


def gpus(count: int) -> tuple[GpuPart, ...]:
    return tuple(
        GpuPart(f"GPU-{n}", n, "NVIDIA H100 80GB HBM3", Place(f"0000:{n + 1:02x}:00.0", "pci", (), n // 4))
        for n in range(count)
    )


def node(ports: Sequence[RdmaPort], count: int | None = None, **changes: Any) -> Locality:
    """As many GPUs as the ports have paths from."""
    number = len(ports[0].paths) if count is None else count
    return Locality(gpus(number), tuple(ports), **{"stated": True, **changes})


def dgx_h100(**changes: dict[str, Any]) -> Locality:
    """Twelve ports, as on a DGX H100; `changes` of single devices by name."""
    ports = []
    for number in range(12):
        near = DGX_H100.index(number) if number in DGX_H100 else None
        socket = 0 if number < 6 else 1
        paths = ["PXB" if gpu == near else "NODE" if gpu // 4 == socket else "SYS" for gpu in range(8)]
        ports.append(port(number, paths, **changes.get(f"mlx5_{number}", {})))
    return node(ports)
