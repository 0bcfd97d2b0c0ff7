"""By how much a collective of a job lasts longer than one of nccl-tests."""

from collections.abc import Mapping

from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, MIB, REDUCE_SCATTER

_BEHIND_WORK: Mapping[str, float] = {
    op: seconds / (256 * MIB)
    for op, seconds in ((ALL_REDUCE, 57e-6), (ALL_GATHER, 53e-6), (REDUCE_SCATTER, 35e-6))
}
"""Seconds that each byte of a large collective takes longer behind a job's other kernels than in nccl-tests.

Measured on H200, driver 580.159.04, NCCL 2.28.9, behind matrix products, in place, at 256 MiB: all_reduce 65
to 70 us on 2 GPUs and 45 to 61 on 4, all_gather 47 to 62 and 49 to 56, reduce_scatter 43 to 46 and 23 to 26;
at 64 MiB a quarter of that or less (proof/hardware/2026-11-23-h200-jobs.md and 2026-11-26-h200.md). Back to
back, without products, the same kernels are as fast as in nccl-tests, and a kernel by the tap is within 5 us
of CUDA events around it: so it is neither an error of the clock nor a constant. Collectives are slower behind
other work, in proportion to their size.
"""
_OTHERS = sum(_BEHIND_WORK.values()) / len(_BEHIND_WORK)


def bias(op: str, size_bytes: int) -> float:
    """Seconds to take off the time of a message before it is held against nccl-tests'; 0 for small ones.

    Small messages are not judged by their bandwidth.
    """
    return _BEHIND_WORK.get(op, _OTHERS) * size_bytes if size_bytes >= LEAST_BYTES else 0.0
