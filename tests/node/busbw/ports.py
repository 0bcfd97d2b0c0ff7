"""RDMA ports drawn by hand, for conditions of a network inside one node."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.node.busbw.nodes import H200, switched
from wirewatch.core.hostlink import Pcie
from wirewatch.core.probe import Conditions, RdmaPort
from wirewatch.core.topology import groups, islands

NDR, HDR, RDMA_100G = 50e9, 25e9, 12.5e9
GEN5, GEN4 = Pcie(5, 16), Pcie(4, 16)


def port(number: int, paths: Sequence[str] = (), **changes: Any) -> RdmaPort:
    """Port 1 of a card of its own: NDR, active, in a slot of generation 5, with `changes`."""
    given: dict[str, Any] = {
        "device": f"mlx5_{number}", "port": "1", "card": f"0000:{number + 16:02x}:00", "state": "active",
        "layer": "InfiniBand", "rate": NDR, "pcie": GEN5, "paths": tuple(paths),
    }  # fmt: skip
    return RdmaPort(**{**given, **changes})


def rails(gpus: int, nics: int, **changes: Any) -> tuple[RdmaPort, ...]:
    """As many NICs, each below one switch with its share of the GPUs, and far from the others."""
    each = gpus // nics
    return tuple(
        port(n, ["PIX" if gpu // each == n else "SYS" for gpu in range(gpus)], **changes) for n in range(nics)
    )


def on_switch(gpus: int, ports: Sequence[RdmaPort], settings: Mapping[str, str] | None = None) -> Conditions:
    """GPUs on an NVSwitch, in slots of generation 5."""
    topology = switched(H200, gpus)
    group = groups(topology, islands(topology))[0]
    return Conditions(group, pcie=GEN5, settings=settings or {}, network=tuple(ports))
