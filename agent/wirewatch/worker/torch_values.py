"""The worker's values in torch's tensors, on any device: filling what is sent, counting what came wrong."""

from collections.abc import Callable, Iterator

import torch

from wirewatch.worker.layout import Pieces, Sums

CHUNK = 1 << 22
"""Elements made at a time: 64-bit indices of a whole buffer would take twice its memory."""
_WORD = (1 << 32) - 1
_FACTOR = 2654435761 - (1 << 32)
"""Congruent to the kernels' factor modulo 2^32, and small enough that no product leaves 64 bits."""


def values(first: int, count: int, rank: int, modulus: int, device: torch.device) -> torch.Tensor:
    """Elements `first` to `first + count` of what a rank holds: int64, shape (count,)."""
    return _hashes(first, count, device).add_(rank).remainder_(modulus).add_(1)


def totals(first: int, count: int, ranks: int, modulus: int, device: torch.device) -> torch.Tensor:
    """The sums of these elements over all ranks: int64, shape (count,).

    That is whole rounds of the modulus, and a rest that passes it once at most.
    """
    start = _hashes(first, count, device).remainder_(modulus)
    rounds, rest = divmod(ranks, modulus)
    above = (start + (rest - modulus)).clamp_(min=0)
    whole = ranks + rounds * (modulus * (modulus - 1) // 2) + rest * (rest - 1) // 2
    return start.mul_(rest).add_(whole).sub_(above, alpha=modulus)


def fill(data: torch.Tensor, first: int, rank: int, modulus: int) -> None:
    """Write a rank's values, from the one at `first` on, over a tensor of one dimension."""
    for start, part in _parts(data):
        part.copy_(values(first + start, part.numel(), rank, modulus, data.device))


def wrong_elements(data: torch.Tensor, expected: Pieces | Sums, ranks: int, modulus: int) -> torch.Tensor:
    """How many elements are not as expected, NaN among them: int64, shape (), on the data's device."""
    if isinstance(expected, Sums):
        return _differ(data, lambda at, n: totals(expected.first + at, n, ranks, modulus, data.device))
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for number, piece in enumerate(data.split(expected.each)):
        first, rank = expected.first + number * expected.stride, expected.rank + number
        wrong += _differ(piece, lambda at, n: values(first + at, n, rank, modulus, data.device))  # noqa: B023
    return wrong


def _hashes(first: int, count: int, device: torch.device) -> torch.Tensor:
    index = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return index.bitwise_and_(_WORD).mul_(_FACTOR).bitwise_and_(_WORD).bitwise_right_shift_(24)


def _differ(data: torch.Tensor, wanted: Callable[[int, int], torch.Tensor]) -> torch.Tensor:
    """How many elements differ from those that are wanted from a place on, so many at a time."""
    wrong = torch.zeros((), dtype=torch.int64, device=data.device)
    for start, part in _parts(data):
        wrong += (part != wanted(start, part.numel()).to(data.dtype)).sum()
    return wrong


def _parts(data: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for first in range(0, data.numel(), CHUNK):
        yield first, data[first : first + CHUNK]
