"""Runs where torch is: the torch engine over stand-ins for CUDA and NCCL that work on the CPU's tensors.

A plan on standard input, the document on standard output. What the stand-ins refuse is what torch.cuda.nccl
refuses (torch/csrc/cuda/nccl.cpp, check_inputs). Arguments: operations whose results they spoil.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

from wirewatch.core.probe import decode_plan, encode_document
from wirewatch.worker import kernels, torch_engine, torch_gpu
from wirewatch.worker.run import EngineError, Run

Tensors = Sequence[torch.Tensor]


class Stream:
    """Everything is done at once here."""

    def __init__(self, _device: torch.device) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, other: "Stream") -> None:
        assert other is not self


class Event:
    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, _stream: Stream) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, other: "Event") -> float:
        return (other.at - self.at) * 1e3


class Nccl:
    """torch.cuda.nccl; the third element on the second rank comes out wrong of what it spoils."""

    def __init__(self, spoils: Sequence[str], *, in_place: bool) -> None:
        self._spoils, self._in_place = spoils, in_place

    def version(self) -> tuple[int, int, int]:
        return (2, 28, 9)

    def _done(self, op: str, inputs: Tensors, outputs: Tensors, streams: Sequence[Stream]) -> None:
        assert len(inputs) == len(streams) == len(set(streams))
        for sent, received in zip(inputs, outputs, strict=False):
            same = sent.untyped_storage().data_ptr() == received.untyped_storage().data_ptr()
            # A communicator's first collective is of one element, and always in place.
            assert same is self._in_place or sent.numel() == 1
        if op in self._spoils and outputs[0].numel() > 2:
            outputs[-1][2] += 1

    def all_reduce(self, inputs: Tensors, outputs: Tensors, streams: Sequence[Stream]) -> None:
        total = _sum(inputs)
        for output in outputs:
            assert output.shape == total.shape
            output.copy_(total)
        self._done("all_reduce", inputs, outputs, streams)

    def reduce(self, inputs: Tensors, output: torch.Tensor, root: int, streams: Sequence[Stream]) -> None:
        assert root == 0
        assert output.shape == inputs[root].shape
        output.copy_(_sum(inputs))
        self._done("reduce", inputs, [output], streams)

    def broadcast(self, inputs: Tensors, root: int, streams: Sequence[Stream]) -> None:
        for one in inputs:
            assert one.shape == inputs[root].shape
            one.copy_(inputs[root].clone())
        self._done("broadcast", inputs, inputs, streams)

    def all_gather(self, inputs: Tensors, outputs: Tensors, streams: Sequence[Stream]) -> None:
        whole = torch.cat(list(inputs))
        for output in outputs:
            assert output.shape == whole.shape
            output.copy_(whole)
        self._done("all_gather", inputs, outputs, streams)

    def reduce_scatter(self, inputs: Tensors, outputs: Tensors, streams: Sequence[Stream]) -> None:
        total = _sum(inputs)
        for output, part in zip(outputs, total.chunk(len(inputs)), strict=True):
            assert output.numel() * len(inputs) == total.numel()
            output.copy_(part)
        self._done("reduce_scatter", inputs, outputs, streams)


def _sum(inputs: Tensors) -> torch.Tensor:
    """In the type of the inputs, as NCCL adds, one rank after the other."""
    total = inputs[0].clone()
    for one in inputs[1:]:
        total += one
    return total


def _unpinned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Without a GPU torch pins nothing."""

    def empty(*sizes: Any, pin_memory: bool = False, **how: Any) -> torch.Tensor:
        assert pin_memory in {True, False}
        return make(*sizes, **how)

    return empty


def standing_in() -> contextlib.ExitStack:
    """While this is entered, torch's CUDA is the processor, and has NCCL."""
    cuda = {
        "Stream": Stream, "Event": Event, "stream": contextlib.nullcontext,
        "set_device": lambda _device: None,
        "get_device_capability": lambda _device: (9, 0), "can_device_access_peer": lambda a, b: a == b,
    }  # fmt: skip
    stack = contextlib.ExitStack()
    for name, value in cuda.items():
        stack.enter_context(mock.patch.object(torch.cuda, name, value))
    stack.enter_context(mock.patch.object(torch._C, "_nccl_all_reduce", None, create=True))  # noqa: SLF001
    stack.enter_context(mock.patch.object(kernels, "GEMM_SIDE", 64))
    stack.enter_context(mock.patch.object(torch_gpu, "driver_version", return_value="13.0"))
    stack.enter_context(mock.patch.object(torch_gpu.TorchGpu, "smallest", 1 << 15))
    stack.enter_context(mock.patch.object(torch.cuda.nccl, "version", return_value=(2, 28, 9)))
    stack.enter_context(mock.patch.object(torch, "empty", _unpinned(torch.empty)))
    return stack


def main() -> None:
    plan = decode_plan(sys.stdin.readline())
    with standing_in() as stack:
        stack.enter_context(
            mock.patch.object(torch_engine, "nccl", Nccl(sys.argv[1:], in_place=plan.in_place))
        )
        devices = [torch.device("cpu") for _ in plan.gpus]
        stack.enter_context(mock.patch.object(torch_gpu, "devices", return_value=devices))
        run = Run(plan, lambda _mark: None, time.monotonic())
        engine = torch_engine.TorchEngine(plan)
        try:
            run.measure(engine)
        except EngineError as error:
            document = run.document(engine, error)
        else:
            document = run.document(engine, None)
    sys.stdout.write(encode_document(document).decode())


if __name__ == "__main__":
    main()
