"""Which GPU reaches which NIC how."""

from collections.abc import Iterator, Mapping, Sequence

from wirewatch.core.pci import Path, Place, path_between
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent

Places = Sequence[tuple[Gpu, Place | Absent]]
NEAR = frozenset({Path.PIX, Path.PXB})
"""Paths that do not cross the root: NCCL uses GPUDirect over these by default."""


def near_pairs(
    gpus: Places, nics: Mapping[str, Place | Absent], nodes: int | None
) -> tuple[tuple[Place, Place], ...]:
    """GPU and NIC that talk below the root."""
    return tuple(
        (gpu, nic)
        for _, gpu in gpus
        for nic in nics.values()
        if not isinstance(gpu, Absent)
        and not isinstance(nic, Absent)
        and path_between(gpu, nic, nodes=nodes) in NEAR
    )


def all_paths(
    gpus: Places, nics: Mapping[str, Place | Absent], nodes: int | None
) -> Iterator[tuple[Gpu, str, Path | Absent, bool]]:
    """GPU, NIC, path, and whether it is among the nearest of that GPU."""
    for gpu, place in gpus:
        paths = {name: path_between(place, nic, nodes=nodes) for name, nic in nics.items()}
        best = min((p for p in paths.values() if not isinstance(p, Absent)), default=None)
        for name, one in paths.items():
            yield gpu, name, one, not isinstance(one, Absent) and one is best


def hidden(gpus: Places, nics: Mapping[str, Place | Absent], nodes: int | None) -> bool:
    """Whether nothing can be told of any pair, as in a virtual machine with a flat PCI bus."""
    return all(isinstance(one, Absent) for _, _, one, _ in all_paths(gpus, nics, nodes))
