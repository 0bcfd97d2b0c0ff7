"""CUDA C++ of the worker: fill and check buffers, and a matrix product that keeps the tensor cores busy.

Parameters are 64 bits wide, as Python's integers become. Nothing is imported: engine `torch` needs the sizes
without CUDA's bindings. Values of `layout` are compared by bits, so that small types need no header.
"""

GEMM_SIDE = 4096
"""Rows and columns of the product; a multiple of the tile."""
GEMM_SIDE_OLD = 1024
"""The same where there are no bfloat16 tensor cores (before compute capability 8.0)."""
TILE = 128
THREADS = 256
NAMES = ("fill", "check_sums", "check_pieces", "factors", "gemm")
_FLOAT = "union { float value; u32 bits; } one; one.value = (float)n; "
_HALF = "u32 top = 0; while (n >> (top + 1)) top++; "
_TYPES = {
    "float32": ("u32", f"{_FLOAT} return one.bits;"),
    "float64": ("u64", "union { double value; u64 bits; } one; one.value = (double)n; return one.bits;"),
    "bfloat16": ("unsigned short", f"{_FLOAT} return (T)(one.bits >> 16);"),
    "float16": ("unsigned short", f"{_HALF} return (T)((top + 15) << 10 | (n << 11 >> top >> 1 & 1023));"),
    "int8": ("unsigned char", "return (T)n;"),
    "uint8": ("unsigned char", "return (T)n;"),
    "int32": ("u32", "return n;"),
    "int64": ("u64", "return n;"),
}
"""An element as an unsigned integer, and how an integer from 1 on that is exact in the type becomes one."""


def source(dtype: str) -> str:
    """The program whose buffers hold elements of this type."""
    word, encode = _TYPES[dtype]
    return SOURCE.replace("WORD", word).replace("ENCODE", encode)


SOURCE = r"""
typedef unsigned long long u64;
typedef unsigned int u32;
typedef WORD T;

__device__ T encode(u32 n) { ENCODE }

__device__ u32 hash(u64 i) { return ((u32)i * 2654435761u) >> 24; }

__device__ u32 value(u64 i, u32 rank, u32 modulus) { return 1 + (hash(i) + rank) % modulus; }

// The sum of value i over `ranks`: whole rounds of the modulus, and a rest that passes it once at most.
__device__ u32 total(u64 i, u32 ranks, u32 modulus) {
  const u32 first = hash(i) % modulus, rest = ranks % modulus;
  const u32 above = first + rest > modulus ? first + rest - modulus : 0;
  return ranks + ranks / modulus * (modulus * (modulus - 1) / 2) + rest * first + rest * (rest - 1) / 2 -
         modulus * above;
}

extern "C" __global__ void fill(T* data, u64 count, u64 first, u64 rank, u64 modulus) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = encode(value(first + i, rank, modulus));
}

extern "C" __global__ void check_sums(
    const T* data, u64 count, u64 first, u64 ranks, u64 modulus, u64* wrong) {
  u64 step = (u64)gridDim.x * blockDim.x, bad = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    if (data[i] != encode(total(first + i, ranks, modulus))) bad++;
  if (bad) atomicAdd(wrong, bad);
}

extern "C" __global__ void check_pieces(
    const T* data, u64 count, u64 each, u64 first, u64 stride, u64 rank, u64 modulus, u64* wrong) {
  u64 step = (u64)gridDim.x * blockDim.x, bad = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const u64 piece = i / each;
    if (data[i] != encode(value(first + piece * stride + i % each, rank + piece, modulus))) bad++;
  }
  if (bad) atomicAdd(wrong, bad);
}

// What the matrix product multiplies, whatever the type of the collectives.
extern "C" __global__ void factors(float* data, u64 count) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) data[i] = (float)hash(i);
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
