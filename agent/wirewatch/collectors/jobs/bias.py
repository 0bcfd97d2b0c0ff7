"""By how much a collective of a job lasts longer than one of nccl-tests."""

from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.core.probe import MIB

BEHIND_WORK = 55e-6 / (256 * MIB)
"""Seconds that each byte of a large collective takes longer behind a job's other kernels than in nccl-tests.

Measured on H200, driver 580.159.04, NCCL 2.28.9. Behind matrix products, 2 GPUs, three operations in place:
43 to 70 us at 256 MiB, 5 to 10 us at 64 MiB (docs/hardware/2026-11-23-h200-jobs.md); all_reduce of 256 MiB on
4 GPUs, in a training step: 52 to 61 us. Back to back, without products, the same kernels are as fast as in
nccl-tests, and a kernel by the tap is within 5 us of CUDA events around it: so it is neither an error of the
clock nor a constant. Collectives are slower behind other work, in proportion to their size.
"""


def bias(size_bytes: int) -> float:
    """Seconds to take off the time of a message before it is held against nccl-tests'; 0 for small ones.

    Small messages are not judged by their bandwidth.
    """
    return BEHIND_WORK * size_bytes if size_bytes >= LEAST_BYTES else 0.0
