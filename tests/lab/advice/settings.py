"""Nodes and sweeps for advice on NCCL's settings, drawn by hand."""

import math
from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address
from random import Random

from tests.support import EPOCH
from wirewatch.core.pci import Place
from wirewatch.core.probe import Conditions, RdmaPort
from wirewatch.core.topology import GpuPart, Group, WireKind
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.variables import Version
from wirewatch_lab.advice.settings.gids import V1, V2, Gid, Gids
from wirewatch_lab.advice.settings.node import NcclNode
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB)
NDR, HUNDRED = 400e9 / 8, 100e9 / 8
LOCAL, MAPPED = "fe80::1", "::ffff:10.0.0.1"
USUAL = ((LOCAL, V1), (LOCAL, V2), (MAPPED, V1), (MAPPED, V2))
"""GIDs as mlx5 has them with one IPv4 address."""


def gids(*texts: tuple[str, str]) -> dict[int, Gid]:
    return {n: Gid(n, IPv6Address(text), kind) for n, (text, kind) in enumerate(texts)}


def port(
    device: str, paths: Sequence[str] = ("PIX", "PIX"), layer: str = "InfiniBand", rate: float = NDR,
    state: str = "active",
) -> RdmaPort:  # fmt: skip
    return RdmaPort(device, "1", f"0000:{device}", state, layer, rate, Absent(Why.MISSING), tuple(paths))


def node(
    *ports: RdmaPort, tables: Mapping[str, Gids] | None = None, nccl: Version | None = None,
    kind: WireKind = WireKind.SWITCH, multicast: bool | Absent = Absent(Why.MISSING),  # noqa: B008 - it is frozen
) -> NcclNode:  # fmt: skip
    """Two GPUs with these ports; `tables`: GIDs of ports that are not as usual, by device."""
    gpus = tuple(GpuPart(f"GPU-{n}", n, "NVIDIA H200", Place("", "", (), None)) for n in range(2))
    group = Group(gpus, kind, (18, 18), whole=True)
    conditions = Conditions(group, network=ports, multicast=multicast)
    known = {one.device: gids(*USUAL) for one in ports if one.layer == "Ethernet"} | dict(tables or {})
    return NcclNode(
        "a node", conditions, ports, {(name, "1"): table for name, table in known.items()}, (), nccl=nccl
    )


def swept(
    *variants: tuple[Configuration, Mapping[int, float]], repeats: int = 5, noise: float = 0.002,
    seed: int = 1, op: str = "all_reduce", settings: str = "none",
) -> Study:  # fmt: skip
    """NCCL's own choice and variants of it; each takes a share of its time more, by the least size."""
    random = Random(seed)  # noqa: S311 - noise
    curves = []
    for configuration, slower in ((Configuration(4), {}), *variants):
        points = []
        for size in SIZES:
            more = next((slower[least] for least in sorted(slower, reverse=True) if size >= least), 0.0)
            usual = (20e-6 + size / 300e9) * (1 + more)
            times = tuple(usual * math.exp(random.gauss(0, noise)) for _ in range(repeats))
            points.append(CurvePoint(size, times))
        curves.append(Curve(op, configuration, tuple(points)))
    return Study(EPOCH, "a sweep", {"nccl_settings": settings, "nccl": "2.28.9"}, curves)
