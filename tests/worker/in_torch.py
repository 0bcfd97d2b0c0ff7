"""Runs where torch is: answers questions about the worker's torch code, a line of JSON each."""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from wirewatch.worker import torch_gpu
from wirewatch.worker.run import EngineError
from wirewatch.worker.torch_gpu import (
    elements,
    engine_errors,
    error_kind,
    fill,
    matching,
    values,
    wrong_elements,
)


def _values(first: int, count: int, rank: int) -> list[float]:
    return [float(value) for value in values(first, count, rank, torch.device("cpu"))]


def _filled(count: int, rank: int) -> bool:
    """Whether a buffer that is filled part by part holds what is made in one."""
    data = torch.full((count,), float("nan"))
    fill(data, rank)
    return bool(torch.equal(data, values(0, count, rank, data.device)))


def _wrong(op: str, data: list[float | None], ranks: int, place: int) -> int:
    """None in the data is a NaN."""
    received = torch.tensor([float("nan") if value is None else value for value in data])
    return int(wrong_elements(op, received, ranks, place).item())


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
    "filled": _filled,
    "elements": elements,
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
