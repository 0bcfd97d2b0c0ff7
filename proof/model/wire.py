"""How long a collective of a healthy node is on the wire, by the GPUs' own clock: H200 without NVLS.

The figures are those of jobs: 256 MiB in 958 microseconds on two GPUs and in 1,240 on four, 32 MiB in 140 on
two, 8 KiB in 7.6 on four. Of eight GPUs only nccl-tests was measured, which is 57 microseconds faster.
"""

from collections.abc import Mapping

RATES: Mapping[int, float] = {2: 287e9, 4: 330e9, 8: 340e9}
"""Bytes per second that a GPU sends in an all-reduce of large messages, by GPUs of the node."""
DIVIDED: Mapping[int, float] = {2: 0.93, 4: 0.905, 8: 0.95}
"""Of that, what all_gather and reduce_scatter reach."""
NETWORK = 46e9
"""Bytes per second between nodes, for one GPU: a rail of 400 Gb/s."""
BEGIN, LOW_BEGIN = 22e-6, 7e-6
"""Seconds that a message takes at least, by the protocol of large messages and by the one of small."""
LOW_RATE = 0.2
"""What the protocol of small messages reaches, of the rate of large ones."""


def share(op: str, ranks: int) -> float:
    """Return the bytes that a rank sends, as a share of the message."""
    rest = (ranks - 1) / ranks
    return {"all_reduce": 2 * rest, "broadcast": 1.0, "reduce": 1.0}.get(op, rest)


def seconds(op: str, size: int, ranks: int, here: int, nodes: int) -> float:
    """Return the time on the wire of a message, as nccl-tests counts its size."""
    local = min(here, 8)
    rate = RATES[max(one for one in RATES if one <= max(local, 2))]
    if op in {"all_gather", "reduce_scatter"}:
        rate *= DIVIDED[max(one for one in DIVIDED if one <= max(local, 2))]
    if nodes > 1:
        rate = min(rate, NETWORK * max(1, local))
    begin = 2 if nodes > 1 else 1
    sent = share(op, ranks) * size
    return min(begin * BEGIN + sent / rate, begin * LOW_BEGIN + sent / (rate * LOW_RATE))
