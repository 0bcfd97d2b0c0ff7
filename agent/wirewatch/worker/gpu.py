"""GPUs through cuda.core: contexts, memory, events, our kernels."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, EventOptions, LaunchConfig, Program, ProgramOptions, StreamOptions, launch

from wirewatch.core.probe import ErrorKind, Micro
from wirewatch.worker.run import EngineError
from wirewatch.worker.timing import COPIES, PRODUCTS, Event, Queue, micro

BF16_TENSOR_CORES = 8
"""First major compute capability with bfloat16 in its tensor cores."""
ELEMENT = 4
"""Bytes of a float32."""
_BLOCKS = 1024
GEMM_SIDE = 4096
"""Rows and columns of the product; a multiple of the tile."""
GEMM_SIDE_OLD = 1024
"""The same where there are no bfloat16 tensor cores (before compute capability 8.0)."""
TILE = 128
THREADS = 256
SOURCE = r"""
typedef unsigned long long u64;
typedef unsigned int u32;

// The value of element i on a rank: an integer, so that sums over ranks are exact in float32.
__device__ float value(u64 i, u64 rank) { return (float)(((((u32)i) * 2654435761u) >> 24) + rank); }

extern "C" __global__ void fill(float* data, u64 count, u64 rank) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) data[i] = value(i, rank);
}

// Sums over `ranks` of what they hold at `first + i`.
extern "C" __global__ void check_sum(const float* data, u64 count, u64 first, u64 ranks, u64* wrong) {
  u64 step = (u64)gridDim.x * blockDim.x, bad = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = ranks * value(first + i, 0) + (float)(ranks * (ranks - 1) / 2);
    if (!(data[i] == sum)) bad++;
  }
  if (bad) atomicAdd(wrong, bad);
}

// Pieces of `each` elements, one of every rank in its own place.
extern "C" __global__ void check_pieces(const float* data, u64 count, u64 each, u64* wrong) {
  u64 step = (u64)gridDim.x * blockDim.x, bad = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    if (!(data[i] == value(i, i / each))) bad++;
  if (bad) atomicAdd(wrong, bad);
}

#if __CUDA_ARCH__ >= 800
__device__ void multiply(float* c, const u32* a, const u32* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// C = A * B^T, all `side` squared, A and B bfloat16 by rows. A block makes a tile of 128 x 128 with 2 x 4
// warps of 64 x 32; rows of 32 are kept 40 apart, so that a warp's 32 words fall into 32 banks.
extern "C" __global__ void gemm(const unsigned short* A, const unsigned short* B, float* C, u64 side) {
  __shared__ __align__(16) unsigned short as[128][40];
  __shared__ __align__(16) unsigned short bs[128][40];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 4 * 64, col = warp % 4 * 32, group = lane / 4, pair = lane % 4 * 2;
  const u64 top = (u64)blockIdx.y * 128, left = (u64)blockIdx.x * 128;
  float c[4][4][4] = {};
  for (u64 k = 0; k < side; k += 32) {
    for (int piece = threadIdx.x; piece < 512; piece += 256) {
      const int r = piece / 4, q = piece % 4 * 8;
      *(uint4*)&as[r][q] = *(const uint4*)&A[(top + r) * side + k + q];
      *(uint4*)&bs[r][q] = *(const uint4*)&B[(left + r) * side + k + q];
    }
    __syncthreads();
    for (int s = 0; s < 32; s += 16) {
      u32 a[4][4], b[4][2];
      for (int m = 0; m < 4; m++)
        for (int h = 0; h < 4; h++)
          a[m][h] = *(u32*)&as[row + m * 16 + group + h % 2 * 8][s + pair + h / 2 * 8];
      for (int n = 0; n < 4; n++)
        for (int h = 0; h < 2; h++) b[n][h] = *(u32*)&bs[col + n * 8 + group][s + pair + h * 8];
      for (int m = 0; m < 4; m++)
        for (int n = 0; n < 4; n++) multiply(c[m][n], a[m], b[n]);
    }
    __syncthreads();
  }
  for (int m = 0; m < 4; m++)
    for (int n = 0; n < 4; n++)
      for (int h = 0; h < 4; h++)
        C[(top + row + m * 16 + group + h / 2 * 8) * side + left + col + n * 8 + pair + h % 2] = c[m][n][h];
}
#else
// The same in float32, without tensor cores: each thread makes one column of 64 of the tile.
extern "C" __global__ void gemm(const float* A, const float* B, float* C, u64 side) {
  const u64 col = (u64)blockIdx.x * 128 + threadIdx.x % 128;
  const u64 first = (u64)blockIdx.y * 128 + threadIdx.x / 128 * 64;
  for (u64 r = first; r < first + 64; r++) {
    float sum = 0;
    for (u64 k = 0; k < side; k++) sum += A[r * side + k] * B[k * side + col];
    C[r * side + col] = sum;
  }
}
#endif
"""


class CudaGpu(Queue):
    """One GPU with a stream and one buffer, `data`.

    Collectives run in place, which takes half the memory. Copies go from its first half to the second half of
    another GPU's.
    """

    def __init__(self, device: Any, rank: int) -> None:
        super().__init__(rank)
        self.device = device
        self.data = self._wrong = 0
        self._kernels: dict[str, Any] = {}

    def open(self, buffer_bytes: int) -> None:
        """Make the context, the stream and the buffer."""
        self.device.set_current()
        self.context = done(driver.cuCtxGetCurrent())
        self.stream = self.device.create_stream(options=StreamOptions(nonblocking=True))
        self.handle = int(self.stream.handle)
        self.data = int(done(driver.cuMemAlloc(buffer_bytes)))
        self._wrong = int(done(driver.cuMemAlloc(8)))

    def load(self, code: Any) -> None:
        """Load the compiled kernels into the context."""
        self.device.set_current()
        for name in ("fill", "check_sum", "check_pieces", "gemm"):
            self._kernels[name] = code.get_kernel(name)

    def fill(self, count: int, rank: int) -> None:
        """Put the values of a rank into the first `count` elements."""
        self.device.set_current()
        self._launch("fill", _BLOCKS, self.data, count, rank)

    def _launch(self, kernel: str, grid: int | tuple[int, int], *arguments: int) -> None:
        config = LaunchConfig(grid=grid, block=THREADS)
        launch(self.stream, config, self._kernels[kernel], *arguments)

    def event(self) -> Event:
        """An event at this place in the stream; it belongs to the context that is current."""
        self.device.set_current()
        event = self.device.create_event(EventOptions(timing_enabled=True))
        self.stream.record(event)
        return event

    def wait(self) -> None:
        self.stream.sync()

    @staticmethod
    def span(first: Event, second: Event) -> float:
        return float(second - first) * 1e-3

    def check(self, kernel: str, first: int, *arguments: int) -> None:
        """Count wrong elements from the `first` on; `wrong` returns how many."""
        self.device.set_current()
        done(driver.cuMemsetD32Async(self._wrong, 0, 2, self.handle))
        self._launch(kernel, _BLOCKS, self.data + first * ELEMENT, *arguments, self._wrong)

    def wrong(self) -> int:
        """How many wrong elements the last check has counted; waits for it."""
        self.device.set_current()
        self.stream.sync()
        count = bytearray(8)
        done(driver.cuMemcpyDtoH(count, self._wrong, 8))
        return int.from_bytes(count, "little")

    def micro(self, position: int, copy_bytes: int) -> Micro:
        """A matrix product and a copy within the memory, several times each."""
        major = self.device.compute_capability[0]
        side = GEMM_SIDE if major >= BF16_TENSOR_CORES else GEMM_SIDE_OLD
        tiles = (side // TILE, side // TILE)
        # Two factors of at most 4 bytes an element, and their product behind them.
        other, product_at = self.data + side * side * ELEMENT, self.data + 2 * side * side * ELEMENT
        self.fill(2 * side * side, 0)
        product = self._times(
            PRODUCTS, lambda: self._launch("gemm", tiles, self.data, other, product_at, side)
        )
        copied = self._times(
            COPIES,
            lambda: done(
                driver.cuMemcpyDtoDAsync(self.data + copy_bytes, self.data, copy_bytes, self.handle)
            ),
        )
        return micro(position, copy_bytes, product, copied)

    def _times(self, count: int, work: Callable[[], object]) -> list[float]:
        self.begin()
        work()
        marks = [self.event()]
        for _ in range(count):
            work()
            marks.append(self.event())
        self.end()
        self.settle()
        return self.spans(marks)


def done(result: Sequence[Any]) -> Any:
    """The value of a driver call.

    Raises:
        EngineError: the call failed.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        kind: ErrorKind = "out_of_memory" if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else "driver"
        raise EngineError(kind, f"the CUDA driver says {status.name}")
    return values[0] if values else None


def devices(uuids: Sequence[str]) -> list[Any]:
    """The devices of these UUIDs, in their order.

    Raises:
        EngineError: CUDA cannot be started, or does not show one of them.
    """
    done(driver.cuInit(0))
    found = {f"GPU-{device.uuid}".lower(): device for device in Device.get_all_devices()}
    missing = [uuid for uuid in uuids if uuid.lower() not in found]
    if missing:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        limited = f"; CUDA_VISIBLE_DEVICES is {seen}" if seen else ""
        raise EngineError("no_device", f"CUDA does not show {', '.join(missing)}{limited}")
    return [found[uuid.lower()] for uuid in uuids]


def at_once(work: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread of its own; the first error is raised here."""
    errors: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def compile_kernels(device: Any) -> Any:
    """Our kernels for the architecture of a device; needs no context."""
    return Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
