"""Time against size of collectives on healthy machines, from 8 B up: tables with their sources, as data.

Each row follows the printed figure with more digits: the time of a small message, the busbw from 64 MiB on.
`busbw.references` takes its points from here where a table is whole. These tables do not say which protocol
NCCL took at which size: advice.times.model has the rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wirewatch.busbw.formulas import Point, factor
from wirewatch.core.probe import (
    ALL_GATHER,
    ALL_REDUCE,
    ALLTOALL,
    BROADCAST,
    MIB,
    REDUCE_SCATTER,
    SENDRECV,
)
from wirewatch.core.topology import WireKind

LARGE = 64 * MIB
"""From this size on a table's busbw has more digits than its time."""
HOPPER = 18 * 26.562e9
"""Bytes per second each way of an H100 or H200 with all its links."""
H200 = "nccl-tests 2.19.6, NCCL 2.28.9, 8 H200, NVLS off, recorded for this project"
H100_4 = "nccl-tests 2.18.3, NCCL 2.29.2, 4 of 8 H100, waynehacking8/nccl-collectives-bench"
H100_8 = "8 H100, NVIDIA/dgxc-benchmarking, nccl/README.md; awslabs' p5 measured 1 to 5 % less"
H100_SCALING = "scaling runs of 2, 4, 6 H100, NCCL 2.29.2, waynehacking8/nccl-collectives-bench"
_H100_JOB = (
    "torch.distributed in bfloat16, a process for each of 4 H100 on a quiet machine, "
    "waynehacking8/nccl-collectives-bench: README.md (to 64 KiB), results/quiet/tp_latency.json"
)
H200_SWEEP = (
    "wirewatch sweep of 2 H200, in place, NVLS off, NCCL 2.28.9, proof/hardware/2026-11-23-h200-advice.md"
)
H200_PROBE = "wirewatch's probe of 2 H200, NVLS off, NCCL 2.28.9, recording h200x2-idle"


@dataclass(frozen=True, slots=True)
class ReferenceCurve:
    """One table: `sizes` in bytes (nccl-tests' S) with seconds of an operation, out of place where it can be.

    `launch`: `eager` is single launches from the host. `graph` is many in one CUDA graph, or launches that
    take less time than the GPUs do. `one_process`: a single process launched on all GPUs, as nccl-tests
    without MPI does; else each GPU had a process. `wire`: bytes per second of one GPU each way. `nvls`:
    whether NCCL could take NVLS. `printed`: busbw in bytes per second where the source prints that.
    """

    op: str
    ranks: int
    sizes: tuple[Point, ...]
    source: str
    launch: str = "eager"
    one_process: bool = True
    kind: WireKind = WireKind.SWITCH
    architecture: str = "Hopper"
    wire: float = HOPPER
    nvls: bool = False
    printed: tuple[tuple[int, float], ...] = ()

    def rates(self, *sizes: int) -> tuple[tuple[int, float], ...]:
        """Return sizes with their busbw as printed; KeyError for a size that is not printed."""
        held = dict(self.printed)
        return tuple((size, held[size]) for size in sizes)


def _table(
    op: str, ranks: int, source: str, us: Sequence[float], gbs: Sequence[float], *, first: int, step: int = 2,
    without: frozenset[int] = frozenset(),
) -> ReferenceCurve:  # fmt: skip
    """Make a whole table from its smallest size on: microseconds, from 64 MiB on GB/s."""
    small = [(first * step**place, value * 1e-6) for place, value in enumerate(us)]
    printed = tuple((LARGE * step**place, value * 1e9) for place, value in enumerate(gbs))
    large = [(size, factor(op, ranks) * size / busbw) for size, busbw in printed]
    points = tuple(point for point in (*small, *large) if point[0] not in without)
    return ReferenceCurve(op, ranks, points, source, printed=printed)


def _eight(op: str, us: Sequence[float], gbs: Sequence[float]) -> ReferenceCurve:
    """Make a table of eight H200: from 64 KiB on, each size four times the last."""
    return _table(op, 8, H200, us, gbs, first=64 << 10, step=4)


def _scaled(ranks: int, source: str, *gbs: float) -> ReferenceCurve:
    """H100 from 256 MiB on, each doubling, in GB/s."""
    printed = tuple((256 * MIB << place, value * 1e9) for place, value in enumerate(gbs))
    points = tuple((size, factor(ALL_REDUCE, ranks) * size / busbw) for size, busbw in printed)
    return ReferenceCurve(ALL_REDUCE, ranks, points, source, printed=printed)


def _few(op: str, *us: float) -> ReferenceCurve:
    """Two H200 in CUDA graphs of fifty."""
    points = tuple((size, value * 1e-6) for size, value in zip((8, 1024, 8192, 65536), us, strict=True))
    return ReferenceCurve(op, 2, points, H200_PROBE, launch="graph")


def _swept(op: str, launch: str, first: int, *us: float) -> ReferenceCurve:
    """Make a table of two H200, each doubling: medians of three processes.

    Eager times start where all three agree within 15 %: below that the launch decides. On the virtual machine
    it took between 10.6 and 33 us for no visible reason.
    """
    points = tuple((first << place, value * 1e-6) for place, value in enumerate(us))
    return ReferenceCurve(op, 2, points, H200_SWEEP, launch)


def _jobs(launch: str, floor: float, *us: float) -> ReferenceCurve:
    """Four H100, a process for each: one time for 1 to 64 KiB, and each doubling from there."""
    flat = tuple((1024 << place, floor * 1e-6) for place in range(7))
    larger = tuple((131072 << place, value * 1e-6) for place, value in enumerate(us))
    return ReferenceCurve(ALL_REDUCE, 4, (*flat, *larger), _H100_JOB, launch, one_process=False)


CURVES: tuple[ReferenceCurve, ...] = (
    _table(
        ALL_REDUCE, 4, H100_4,
        (
            23.30, 23.44, 23.23, 23.34, 23.17, 23.30, 23.27, 23.28, 23.23, 23.17, 23.75, 24.34, 25.05, 25.49,
            26.32, 27.19, 27.88, 26.76, 30.32, 43.43, 63.07, 101.86, 175.81,
        ),
        (305.61, 325.91, 339.44, 347.80, 355.35, 360.85, 363.07, 366.18), first=8,
    ),
    # Without 8 MiB: 57.08 us there, 45.88 in place in the same run and 47.30 in the source's second one.
    _table(
        ALL_GATHER, 4, H100_4,
        (
            16.98, 16.94, 16.80, 16.82, 16.85, 16.84, 16.85, 17.22, 17.78, 18.90, 19.87, 21.18, 22.53, 21.32,
            22.47, 22.58, 38.79, 57.08, 67.42, 109.73,
        ),
        (258.16, 287.39, 305.51, 317.53, 325.27, 334.16, 339.82, 343.92),
        first=64, without=frozenset({8 * MIB}),
    ),
    _table(
        REDUCE_SCATTER, 4, H100_4,
        (
            21.70, 21.38, 21.53, 21.50, 21.62, 21.43, 21.52, 21.91, 22.37, 22.15, 23.07, 24.08, 25.04, 26.12,
            25.98, 25.87, 35.95, 42.89, 62.52, 105.75,
        ),
        (266.04, 289.74, 303.62, 316.60, 330.17, 339.70, 341.21, 350.34), first=64,
    ),
    # nccl-tests with a process for each GPU launches in 6 us. Left out: 32 B and 4 KiB, 68 and 24 us but 13.5
    # and 16.5 in place.
    replace(
        _table(
            ALL_REDUCE, 8, H100_8,
            (
                13.67, 13.00, 68.14, 14.92, 15.87, 16.10, 16.70, 16.94, 17.14, 23.59, 17.40, 17.93, 19.33,
                19.54, 19.89, 20.43, 20.66, 27.37, 42.21, 54.19, 83.04, 123.8, 199.3,
            ),
            (361.67, 400.53, 422.25, 436.79, 466.33, 473.37, 477.24, 480.16),
            first=8, without=frozenset({32, 4096}),
        ),
        launch="graph", one_process=False, nvls=True,
    ),
    _eight(ALL_REDUCE, (49.55, 50.50, 54.69, 59.46, 118.38), (322.74, 347.08, 359.00, 365.20)),
    _eight(ALL_GATHER, (41.28, 44.26, 49.64, 51.62, 66.24), (286.51, 325.86, 344.62, 355.08)),
    _eight(REDUCE_SCATTER, (45.27, 50.49, 52.64, 49.26, 69.73), (293.01, 328.82, 346.25, 356.71)),
    _eight(BROADCAST, (45.42, 42.43, 47.40, 56.03, 80.16), (303.10, 345.78, 359.13, 362.72)),
    _eight(ALLTOALL, (69.57, 73.90, 73.50, 85.97, 90.96), (266.24, 312.21, 330.19, 342.28)),
    _eight(SENDRECV, (46.33, 43.92, 65.08, 64.67, 221.05), (81.52, 303.67, 360.43, 364.65)),
    _swept(ALL_REDUCE, "eager", 2 * MIB,
        30.24, 35.68, 49.42, 77.77, 139.6, 250.2, 470.1, 894.3, 1703.0, 3252.4, 6324.6, 12411, 24616),
    _swept(ALL_REDUCE, "graph", 8,
        6.83, 6.80, 6.91, 7.13, 7.09, 6.98, 7.08, 7.06, 7.39, 7.52, 7.77, 8.01, 8.19, 8.06, 8.75, 9.93,
        11.38, 14.69, 29.00, 33.85, 47.47, 76.19, 136.9, 247.6, 468.7, 894.7, 1699.4, 3255.4, 6311.2,
        12418, 24639),
    _swept(ALL_GATHER, "eager", 8 * MIB,
        36.08, 52.88, 89.85, 153.2, 279.8, 527.3, 978.6, 1850.1, 3523.7, 6946.4, 13702),
    _swept(ALL_GATHER, "graph", 32,
        6.77, 6.54, 6.62, 6.59, 6.69, 6.59, 6.66, 6.76, 7.17, 7.31, 7.41, 7.59, 8.38, 8.90, 9.85, 11.93,
        16.94, 26.17, 34.53, 51.40, 86.50, 151.4, 277.8, 525.5, 976.0, 1849.7, 3549.5, 6993.9, 13606),
    _swept(REDUCE_SCATTER, "eager", 4 * MIB,
        30.75, 34.47, 52.76, 91.80, 160.2, 295.3, 558.4, 1042.3, 1941.6, 3721.3, 7230.1, 14262),
    _swept(REDUCE_SCATTER, "graph", 32,
        6.60, 6.53, 6.54, 6.55, 6.51, 6.53, 6.58, 6.85, 7.03, 7.14, 7.22, 7.47, 8.25, 8.66, 9.64, 11.67,
        16.12, 25.05, 33.68, 50.31, 89.26, 157.4, 293.0, 557.3, 1042.3, 1937.0, 3721.9, 7277.0, 14298),
    _scaled(2, H100_SCALING, 300.56, 314.81, 326.71, 336.31, 345.20, 346.86),
    _scaled(6, f"{H100_SCALING}: Ring, which it takes without NVLS, in place",
            343.11, 352.03, 359.20, 361.05, 365.74, 366.96),
    _few(ALL_REDUCE, 7.08, 6.97, 7.60, 8.05),
    _few(ALL_GATHER, 6.19, 6.23, 6.73, 7.19),
    _few(REDUCE_SCATTER, 6.08, 6.10, 6.65, 6.99),
    _jobs("eager", 23.1),
    _jobs("graph", 13.7, 13.78, 14.17, 16.97, 21.36, 30.56, 43.28),
)  # fmt: skip


def table_of(op: str, ranks: int) -> ReferenceCurve:
    """Return nccl-tests' table of a collective of so many GPUs; StopIteration where there is none."""
    return next(c for c in CURVES if (c.op, c.ranks, c.launch, c.one_process) == (op, ranks, "eager", True))
