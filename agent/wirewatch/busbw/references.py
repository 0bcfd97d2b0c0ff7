"""Shares of the wire that NCCL's algorithms reach on healthy machines: figures with their sources, as data.

A reference is bus bandwidths at a few sizes, out of place, by nccl-tests. Two or more sizes give an
efficiency and a latency term: seconds = latency + factor * size / (efficiency * wire), as in
busbw.formulas.fit. One size gives an efficiency only, which smaller messages fall short of. A line is trusted
from its smallest size on. Below that, down to `LEAST_BYTES`, NCCL changes protocol. There the line is off by
up to a fifth, B200's by a third, mostly low; still smaller messages measure latency. Beyond its largest size
a line may be 7 % low, NVLS 9 %.

Looked for in public and not found, 2026-11: all_gather and reduce_scatter of A100, of a mesh, of a bridge and
over PCIe; two B200 or GB200; B300 but for its peak; H200 NVL; A800. There the node's own history and the wire
judge (probe.bandwidth). sendrecv of 8 H200 was recorded: 81 GB/s at 64 MiB, 304 at 256 MiB, 360 at 1 GiB. It
has no reference: between 4 and 64 MiB it is so far from any line that healthy nodes would look slow.

The algorithm is that of NCCL's tuner (src/graph/tuning.cc and search.cc, 2.28 to 2.30, large messages). On
Hopper it takes Ring with 2 to 5 GPUs on NVSwitch and NVLS from 6. Source: seen with 2, 4 and 6,
waynehacking8/nccl-collectives-bench. On Blackwell it takes NVLS with 8. For all_gather and reduce_scatter it
rates NVLS half as fast as Ring (208 against 411 GB/s with 8 H100, 177 against 432 in the log of 6). It takes
Ring, unless the caller registers buffers and asks for NCCL_CTA_POLICY=EFFICIENCY.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from wirewatch.busbw.curves import H100_8, H100_SCALING, HOPPER, table_of
from wirewatch.busbw.formulas import DIRECT, NVLS, RING, Line, factor, fit
from wirewatch.core.pci import Path
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, ALLTOALL, BROADCAST, MIB, REDUCE_SCATTER
from wirewatch.core.topology import PATHS, WireKind
from wirewatch.core.types import Absent, Why

GIB = 1024 * MIB
LEAST_BYTES = 16 * MIB
"""No bandwidth is expected of smaller messages."""
SAME_WIRE = 0.01
"""Wires that differ by less than this share are the same."""
NVLS_FROM: Mapping[str, int] = {"Hopper": 6, "Blackwell": 8}
"""The fewest GPUs with which the tuner takes NVLS for all_reduce, by architecture."""


class Confidence(Enum):
    """How far a figure may be trusted; LOW ones are for people, not for verdicts."""

    OPERATOR = "operator"
    MEASURED = "measured"
    PUBLISHED = "published"
    DERIVED = "derived"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Reference:
    """`points`: sizes in bytes with bus bandwidths, `wire` one GPU's each way, both in bytes per second.

    A figure without a size in its source stands at 8 GiB, and `source` says so.

    `fits`: fewest and most ranks for which it holds. `architecture` empty: any. `paths`: its PCI paths.
    """

    kind: WireKind
    algorithm: str
    op: str
    architecture: str
    ranks: int
    fits: tuple[int, int]
    wire: float
    points: tuple[tuple[int, float], ...]
    confidence: Confidence
    source: str
    paths: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class Fitted:
    """Share of the wire that ever larger messages reach; `latency` in seconds, Absent from a single size."""

    efficiency: float
    latency: float | Absent


@cache
def fitted(reference: Reference) -> Fitted:
    """Efficiency and latency term that follow from a reference's points."""
    share = factor(reference.op, reference.ranks)
    line = fit([(size, share * size / busbw) for size, busbw in reference.points])
    if isinstance(line, Line):
        return Fitted(share * line.bytes_per_second / reference.wire, line.intercept)
    return Fitted(reference.points[-1][1] / reference.wire, line)


_ARCHITECTURES: tuple[tuple[str, str], ...] = (
    (r"\bG?B[123]00\b|Blackwell", "Blackwell"),
    (r"\b(G?H[12]00|H800|H20)\b", "Hopper"),
    (r"\b(A100|A800|A40|A30|A10|RTX A\d000)\b", "Ampere"),
    (r"\bV100\b", "Volta"),
    (r"\b(RTX 20\d0|T4)\b|Quadro RTX", "Turing"),
)


@cache
def architecture(product: str) -> str | Absent:
    """The architecture of a product as NVML names it."""
    unknown = Absent(Why.MISSING, f"the architecture of {product or 'a product without name'} is not known")
    return next((name for pattern, name in _ARCHITECTURES if re.search(pattern, product)), unknown)


_AMPERE = 12 * 25e9
_B200 = 18 * 50e9
_B300 = 18 * 53.125e9
_H200_2 = "2xH200, nccl-tests in place, proof/hardware/2026-11-21-h200-probe.md"
_A100 = (
    "8 A100, NCCL 2.10 era, microsoft/superbenchmark tests/data; NVIDIA/nccl-tests#149 has 230, "
    "Azure/AI-benchmarking-guide ND_A100_v4_results.md 213.87 at 256 MiB"
)
_A100_FEW = "{} A100-SXM4-80GB on one switch, NCCL 2.20.5, a public log of nccl-tests"
_A100_BOARD = (
    "4 A100-SXM4-80GB of a board without a switch, nccl-tests 2.13.6, rcgsheffield/sheffield_hpc, "
    "stanage/software/libs/cuda.rst"
)
_B200_8 = (
    "8 B200, acceptance tests of a Vultr cluster of 2026-05; NVIDIA/nccl#1807 has 830; 8 B300 gave 845 "
    "(NVIDIA/nccl#2140)"
)
_B300_RING = "8 B300, NVLS off, size not given, NVIDIA/nccl#2140"
_GB200_4 = (
    "4 GB200 of one host in place, Ring, NCCL 2.25.1, Azure/AI-benchmarking-guide ND_GB200_v6_results.md"
)
_AZURE = "Azure/azurehpc-health-checks asks at least this"


def _table(*gbs: float, first: int = 64 * MIB) -> tuple[tuple[int, float], ...]:
    """Return bus bandwidths in GB/s at `first` bytes, and at four times the size each further."""
    return tuple((first * 4**i, value * 1e9) for i, value in enumerate(gbs))


def _points(*found: tuple[int, float]) -> tuple[tuple[int, float], ...]:
    """Sizes in MiB with bus bandwidths in GB/s."""
    return tuple((size * MIB, value * 1e9) for size, value in found)


def _published(
    kind: WireKind, arch: str, ranks: int, fits: tuple[int, int], wire: float, source: str,
    *found: tuple[int, float],
) -> Reference:  # fmt: skip
    """A public table of all_reduce by Ring, of sizes in MiB and GB/s."""
    points = _points(*found)
    return Reference(kind, RING, ALL_REDUCE, arch, ranks, fits, wire, points, Confidence.PUBLISHED, source)


def _switch(op: str, ranks: int, fits: tuple[int, int], algorithm: str = RING) -> Reference:
    """A whole table over NVSwitch, at 64 MiB, 256 MiB and 1 GiB."""
    table = table_of(op, ranks)
    points = table.rates(64 * MIB, 256 * MIB, GIB)
    return Reference(
        WireKind.SWITCH, algorithm, op, "Hopper", ranks, fits, table.wire, points, Confidence.MEASURED,
        table.source,
    )  # fmt: skip


def _two(op: str, *busbw: float) -> Reference:
    """Make a reference of two H200, at the default plan's sizes: beyond them the line no longer fits."""
    points, kind = _points(*zip((64, 256, 512), busbw, strict=True)), WireKind.SWITCH
    return Reference(kind, RING, op, "Hopper", 2, (2, 2), HOPPER, points, Confidence.MEASURED, _H200_2)


REFERENCES: tuple[Reference, ...] = (
    _switch(ALL_REDUCE, 8, (6, 8)),
    _switch(ALL_GATHER, 8, (6, 8)),
    _switch(REDUCE_SCATTER, 8, (6, 8)),
    _switch(BROADCAST, 8, (6, 8)),
    _switch(ALLTOALL, 8, (6, 8), DIRECT),
    _switch(ALL_REDUCE, 4, (3, 5)),
    _switch(ALL_GATHER, 4, (3, 5)),
    _switch(REDUCE_SCATTER, 4, (3, 5)),
    Reference(
        WireKind.SWITCH, RING, ALL_REDUCE, "Ampere", 8, (3, 16), _AMPERE, _table(200.91, 222.40, 230.29),
        Confidence.MEASURED, _A100,
    ),
    _published(
        WireKind.SWITCH, "Ampere", 2, (2, 2), _AMPERE, _A100_FEW.format(2),
        (128, 156.51), (256, 185.74), (512, 192.43),
    ),
    _published(
        WireKind.SWITCH, "Ampere", 4, (3, 5), _AMPERE, _A100_FEW.format(4),
        (128, 175.93), (256, 186.67), (512, 193.70),
    ),
    _published(
        WireKind.MESH, "Ampere", 4, (4, 4), _AMPERE, _A100_BOARD, (64, 187.32), (128, 206.51)
    ),
    _published(
        WireKind.SWITCH, "Blackwell", 4, (3, 5), _B200, _GB200_4,
        (256, 593.53), (512, 618.74), (1024, 646.87),
    ),
    Reference(
        WireKind.SWITCH, RING, ALL_REDUCE, "Blackwell", 8, (6, 8), _B300,
        ((8 * GIB, 695e9),), Confidence.LOW, _B300_RING,
    ),
    _two(ALL_REDUCE, 263.30, 301.40, 316.68),
    _two(ALL_GATHER, 222.49, 256.96, 275.84),
    _two(REDUCE_SCATTER, 212.66, 242.46, 261.33),
    Reference(
        WireKind.SWITCH, NVLS, ALL_REDUCE, "Hopper", 8, (8, 8), HOPPER,
        _table(361.67, 422.25, 466.33), Confidence.PUBLISHED, H100_8,
    ),
    Reference(
        WireKind.SWITCH, NVLS, ALL_REDUCE, "Hopper", 6, (6, 7), HOPPER,
        ((256 * MIB, 403.22e9), (GIB, 424.24e9), (8 * GIB, 442.96e9)), Confidence.PUBLISHED, H100_SCALING,
    ),
    Reference(
        WireKind.SWITCH, NVLS, ALL_REDUCE, "Hopper", 8, (6, 8), 8 * 26.562e9,
        ((8 * GIB, 215e9),), Confidence.LOW, "8 H800, size not given, NVIDIA/nccl#1374",
    ),
    Reference(
        WireKind.SWITCH, NVLS, ALL_REDUCE, "Blackwell", 8, (8, 8), _B200,
        _table(423.70, 659.23, 722.20), Confidence.PUBLISHED, _B200_8,
    ),
    Reference(
        WireKind.SWITCH, RING, ALL_GATHER, "Blackwell", 8, (6, 8), _B200,
        _table(422.06, 596.21, 632.22), Confidence.PUBLISHED, _B200_8,
    ),
    Reference(
        WireKind.SWITCH, RING, REDUCE_SCATTER, "Blackwell", 8, (6, 8), _B200,
        _table(423.55, 604.14, 647.19), Confidence.PUBLISHED, _B200_8,
    ),
    Reference(
        WireKind.PARTIAL, RING, ALL_REDUCE, "Volta", 8, (8, 8), 6 * 25e9,
        ((8 * GIB, 110e9),), Confidence.LOW, f"8 V100 (ND40rs v2), size not given: {_AZURE}",
    ),
    Reference(
        WireKind.PAIR, RING, ALL_REDUCE, "Ampere", 2, (2, 2), _AMPERE,
        ((16 * GIB, 193e9),), Confidence.PUBLISHED,
        f"2 A100 with three bridges (NC48ads): {_AZURE}; NVIDIA/nccl-tests#178 measured 208",
    ),
    Reference(
        WireKind.PAIR, RING, ALL_REDUCE, "Hopper", 2, (2, 2), 12 * 26.562e9,
        ((8 * GIB, 208e9),), Confidence.PUBLISHED,
        f"2 H100 NVL with three bridges (NC80adis), size not given: {_AZURE}; 2 H100 PCIe gave 116, which "
        "their owner doubts (NVIDIA/nccl-tests#194)",
    ),
    Reference(
        WireKind.PAIR, RING, ALL_REDUCE, "Turing", 2, (2, 2), 2 * 25.781e9,
        ((64 * MIB, 21.4e9),), Confidence.LOW, "2 RTX 2080 Ti with a bridge, NVIDIA/nccl-tests#44",
    ),
    Reference(
        WireKind.PCIE, RING, ALL_REDUCE, "", 4, (2, 16), 16 * 16e9 * 128 / 130 / 8,
        _table(25.15, 25.29, 25.31), Confidence.LOW,
        f"4 RTX 4090 with peer access, PCIe 4 x16, a public log; of 4 A100 (NC96ads) {_AZURE} (25)",
        frozenset({Path.PIX, Path.PXB, Path.PHB}),
    ),
    Reference(
        WireKind.PCIE, RING, ALL_REDUCE, "", 3, (2, 16), 16 * 16e9 * 128 / 130 / 8,
        ((8 * GIB, 20e9),), Confidence.LOW,
        "3 A100, PCIe 4 x16 between host bridges, size not given, NVIDIA/nccl-tests#178",
        frozenset({Path.NODE}),
    ),
    Reference(
        WireKind.PCIE, RING, ALL_REDUCE, "", 8, (2, 16), 16 * 32e9 * 128 / 130 / 8,
        ((8 * GIB, 40e9),), Confidence.LOW,
        "8 H100, PCIe 5 x16, size not given: 35 to 45 by docs.alayanew.com, 2026-05-06",
        frozenset({Path.PIX, Path.PXB, Path.PHB}),
    ),
    Reference(
        WireKind.PCIE, RING, ALL_REDUCE, "", 8, (2, 16), 16 * 32e9 * 128 / 130 / 8,
        _points((32, 22.2)), Confidence.LOW,
        "8 RTX PRO 6000, PCIe 5 x16 on two sockets, NCCL's defaults, voipmonitor/rtx6kpro "
        "hardware/pcie-bandwidth.md; 37.6 with more channels",
        frozenset({Path.SYS}),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReferenceQuery:
    """The query for a reference: `wire` in bytes per second; `path` Absent: the places are not known."""

    kind: WireKind
    algorithm: str
    op: str
    architecture: str | Absent
    ranks: int
    wire: float
    path: Path | Absent | None = None


def find(wanted: ReferenceQuery) -> Reference | Absent:
    """Return the nearest reference by its wire, then by its ranks; Absent where none fits."""
    fitting = [r for r in REFERENCES if _fits(r, wanted)]
    if fitting:
        return min(fitting, key=lambda r: (_apart(r, wanted.wire), abs(r.ranks - wanted.ranks)))
    arch = "" if isinstance(wanted.architecture, Absent) else f" {wanted.architecture}"
    path = f" across {PATHS[wanted.path]}" if isinstance(wanted.path, Path) else ""
    what = f"{wanted.algorithm} {wanted.op} of {wanted.ranks}{arch} GPUs over {wanted.kind.value}{path}"
    return Absent(Why.MISSING, f"no reference for {what}")


def same_wire(reference: Reference, wire: float) -> bool:
    """Return whether a reference was measured on a wire of this rate, in bytes per second."""
    return _apart(reference, wire) == 0.0


def _fits(reference: Reference, wanted: ReferenceQuery) -> bool:
    return (
        (reference.kind, reference.algorithm, reference.op) == (wanted.kind, wanted.algorithm, wanted.op)
        and reference.fits[0] <= wanted.ranks <= reference.fits[1]
        and reference.architecture in {"", wanted.architecture}
        and (not reference.paths or isinstance(wanted.path, Absent) or wanted.path in reference.paths)
    )


def _apart(reference: Reference, wire: float) -> float:
    """Return the share by which the reference's wire differs from this wire; 0 for the same wire."""
    share = abs(reference.wire - wire) / wire
    return 0.0 if share < SAME_WIRE else share
