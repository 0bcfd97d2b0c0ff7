"""Runs where torch is: answers questions about the worker's torch code, a line of JSON each."""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from wirewatch.worker import torch_gpu
from wirewatch.worker.layout import Pieces, Sums
from wirewatch.worker.run import EngineError
from wirewatch.worker.torch_gpu import (
    engine_errors,
    error_kind,
    fill,
    matching,
    totals,
    values,
    wrong_elements,
)

CPU = torch.device("cpu")


def _values(first: int, count: int, rank: int, modulus: int) -> list[int]:
    return [int(value) for value in values(first, count, rank, modulus, CPU)]


def _totals(first: int, count: int, ranks: int, modulus: int) -> list[int]:
    return [int(value) for value in totals(first, count, ranks, modulus, CPU)]


def _filled(count: int, rank: int) -> bool:
    """Whether a buffer that is filled part by part holds what is made in one."""
    data = torch.full((count,), float("nan"))
    fill(data, 7, rank, 254)
    return bool(torch.equal(data, values(7, count, rank, 254, CPU).to(data.dtype)))


def _wrong(
    dtype: str, data: list[float | None], expected: dict[str, int] | int, ranks: int, modulus: int
) -> int:
    """None in the data is what it is poisoned with; an integer is the first index of sums."""
    wanted = Sums(expected) if isinstance(expected, int) else Pieces(**expected)
    whole = torch.tensor([value or 0 for value in data], dtype=torch.int64).to(getattr(torch, dtype))
    for place, value in enumerate(data):
        if value is None:
            whole[place : place + 1].view(torch.uint8).fill_(0xFF)
    return int(wrong_elements(whole, wanted, ranks, modulus).item())


def _matching(wanted: list[str], seen: dict[str, int]) -> list[int] | str:
    try:
        return matching(wanted, seen)
    except EngineError as error:
        return f"{error.kind}: {error}"


def _told(kind: str, text: str) -> list[str]:
    """How an error of torch is reported."""
    errors: dict[str, Exception] = {
        "runtime": RuntimeError(text),
        "memory": torch.cuda.OutOfMemoryError(text),
        "deferred": torch.cuda.DeferredCudaCallError(text),
        "ours": EngineError("internal", text),
    }
    try:
        with engine_errors():
            raise errors[kind]
    except EngineError as error:
        return [error.kind, str(error)]


def _chunk(size: int) -> int:
    torch_gpu.CHUNK = size
    return size


QUESTIONS: dict[str, Callable[..., Any]] = {
    "values": _values,
    "totals": _totals,
    "filled": _filled,
    "wrong": _wrong,
    "matching": _matching,
    "kind": error_kind,
    "told": _told,
    "chunk": _chunk,
}

if __name__ == "__main__":
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        sys.stdout.write(json.dumps(QUESTIONS[name](*arguments)) + "\n")
        sys.stdout.flush()
