"""The worker's kernels as they are, compiled for the processor and run thread by thread."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

from tests.node.worker.gpus import Memory
from tests.patience import HANGS
from wirewatch.core.probe import DTYPES
from wirewatch.worker import kernels

AROUND = """
struct Three { unsigned x, y, z; };
extern "C" { Three gridDim, blockDim, blockIdx, threadIdx; }
static void atomicAdd(unsigned long long* sum, unsigned long long more) { *sum += more; }
#define __device__ static
#define __global__
#define __CUDA_ARCH__ 750
"""
"""What the compiler for GPUs knows by itself; of the matrix products the one without its instructions."""
BLOCKS, THREADS = 2, 3


class CompiledKernels:
    """The kernels for elements of one type."""

    def __init__(self, memory: Memory, dtype: str) -> None:
        self._memory, self._element = memory, DTYPES[dtype]
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, "kernels.cc"), Path(folder, "kernels.so")
            source.write_text(AROUND + kernels.source(dtype), "utf-8")
            command = ["g++", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source)]
            subprocess.run(command, check=True, timeout=HANGS)
            self._library = ctypes.CDLL(str(library))

    def __getattr__(self, name: str) -> Callable[..., None]:
        kernel = self._library[name]

        def run(data: int, count: int, *others: int) -> None:
            self._memory.check(data, count * self._element)
            for block, thread in product(range(BLOCKS), range(THREADS)):
                for place, number in (
                    ("gridDim", BLOCKS), ("blockDim", THREADS), ("blockIdx", block), ("threadIdx", thread)
                ):  # fmt: skip
                    ctypes.c_uint.in_dll(self._library, place).value = number
                kernel(*(ctypes.c_uint64(one) for one in (data, count, *others)))

        return run
