"""`python -m tests.node.worker.ranks_on_cpu`: a worker whose engine `distributed` has gloo for NCCL.

CUDA's stand-ins are those of cuda_on_cpu. FULL names a rank whose GPU has no memory left.
"""

import os
from unittest import mock

import torch
import torch.distributed as dist

from tests.node.worker.cuda_on_cpu import standing_in
from wirewatch.worker import distributed_engine, torch_gpu
from wirewatch.worker.__main__ import main
from wirewatch.worker.distributed_engine import GpuRanks
from wirewatch.worker.torch_gpu import TorchGpu


class Gpu(TorchGpu):
    """A GPU, full on one rank."""

    def open(self, data_bytes: int, apart_bytes: int = 0) -> None:
        if os.environ["FULL"] == str(self.rank):
            raise RuntimeError("CUDA out of memory. Tried to allocate 512.00 MiB.")
        super().open(data_bytes, apart_bytes)


if __name__ == "__main__":
    with standing_in() as stack:
        stack.enter_context(mock.patch.object(dist, "is_nccl_available", return_value=True))
        stack.enter_context(mock.patch.object(GpuRanks, "backend", "gloo"))
        stack.enter_context(mock.patch.object(distributed_engine, "TorchGpu", Gpu))
        devices = [torch.device("cpu")] * 4
        stack.enter_context(mock.patch.object(torch_gpu, "devices", return_value=devices))
        main()
