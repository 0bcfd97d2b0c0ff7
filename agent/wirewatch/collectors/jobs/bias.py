"""By how much a single collective of a job lasts longer than one in a back-to-back series."""

from wirewatch.busbw.references import LEAST_BYTES

SINGLE_BIAS = 59e-6
"""Seconds that a single large collective of a job takes longer than one in a back-to-back series.

nccl-tests divides the time of a whole series by its number, so that the start and end of one operation
overlap with its neighbours; the tap times each alone, from the first block of a channel to the last.
Measured on H200, driver 580.159.04, NCCL 2.28.9, all_reduce of 256 MiB in place: 1,235 to 1,244 us against
1,183 on 4 GPUs, 958 against 895 on 2, so 55 and 63 us; this is the middle of the two. It is no error of
the clock: a kernel by the tap is within 5 us of CUDA events around it (docs/hardware/2026-11-23-h200-tap.md).
"""


def bias(size_bytes: int) -> float:
    """Seconds to take off the time of a message before it is held against a series'; 0 for smaller ones.

    Smaller messages are not judged by their bandwidth, and what of their time is bias was not measured.
    """
    return SINGLE_BIAS if size_bytes >= LEAST_BYTES else 0.0
