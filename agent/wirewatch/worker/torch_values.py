"""What buffers hold, how much of them a collective uses, what it should leave: kernels.py's values in torch.

Works on any device; nothing here waits for a GPU.
"""

from collections.abc import Iterator

import torch

from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER

CHUNK = 1 << 22
"""Elements made at a time: 64-bit indices of a whole buffer would take twice its memory."""
FLOAT32_BYTES = 4
_WORD = (1 << 32) - 1
_FACTOR = 2654435761 - (1 << 32)
"""Congruent to the kernels' factor modulo 2^32, and small enough that no product leaves 64 bits."""


def values(first: int, count: int, rank: int, device: torch.device) -> torch.Tensor:
    """Elements `first` to `first + count` of what a rank holds: float32, shape (count,)."""
    index = torch.arange(first, first + count, dtype=torch.int64, device=device)
    index.bitwise_and_(_WORD).mul_(_FACTOR).bitwise_and_(_WORD).bitwise_right_shift_(24)
    return index.add_(rank).to(torch.float32)


def fill(data: torch.Tensor, rank: int) -> None:
    """Write a rank's values over a float32 buffer of one dimension."""
    for first, part in _parts(data):
        part.copy_(values(first, part.numel(), rank, data.device))


def elements(op: str, size_bytes: int, ranks: int) -> tuple[int, int]:
    """How many elements each rank sends, and receives, at one of nccl-tests' message sizes."""
    count = size_bytes // FLOAT32_BYTES
    each = max(1, count // ranks)
    return {
        ALL_REDUCE: (count, count),
        ALL_GATHER: (each, each * ranks),
        REDUCE_SCATTER: (each * ranks, each),
    }[op]


def pieces(
    op: str, data: torch.Tensor, size_bytes: int, ranks: int, place: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a rank sends and where it receives in a buffer of its values, when both are in it."""
    sent, received = elements(op, size_bytes, ranks)
    first = place * sent if op == ALL_GATHER else 0
    into = place * received if op == REDUCE_SCATTER else 0
    return data[first : first + sent], data[into : into + received]


def wrong_elements(op: str, data: torch.Tensor, ranks: int, place: int) -> torch.Tensor:
    """How many elements of what one rank received are wrong, NaN among them: int64, shape (), on its device.

    `place` is the rank in its communicator.
    """
    if op == ALL_GATHER:
        each = data.numel() // ranks
        parts = enumerate(data.chunk(ranks))
        return torch.stack([_differ(piece, rank * each, rank) for rank, piece in parts]).sum()
    return _differ_from_sum(data, place * data.numel() if op == REDUCE_SCATTER else 0, ranks)


def _differ(data: torch.Tensor, start: int, rank: int) -> torch.Tensor:
    """How many elements are not what a rank holds from `start` on."""
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for first, part in _parts(data):
        wrong += (part != values(start + first, part.numel(), rank, data.device)).sum()
    return wrong


def _differ_from_sum(data: torch.Tensor, start: int, ranks: int) -> torch.Tensor:
    """How many elements are not the sum over the ranks of what they hold from `start` on."""
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for first, part in _parts(data):
        total = values(start + first, part.numel(), 0, data.device).mul_(ranks)
        wrong += (part != total.add_(ranks * (ranks - 1) // 2)).sum()
    return wrong


def _parts(data: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for first in range(0, data.numel(), CHUNK):
        yield first, data[first : first + CHUNK]
