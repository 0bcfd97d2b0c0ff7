"""A training-like job: GEMMs on each GPU, then an all-reduce over all of them, step after step.

python -m proof.hardware.jobs.steps        READY, then `STEP monotonic-seconds milliseconds` until input ends
"""

import time

import torch
import torch.cuda.nccl

from proof.hardware.jobs.listening import ended, say

MATRIX = 8192
GEMMS = 20
"""About 28 ms of a GPU's time a step."""
REDUCED_BYTES = 256 << 20
WARM_UP = 20


class Work:
    """Operands on each GPU; the sum is of zeros, so that it stays finite for ever."""

    def __init__(self) -> None:
        self.devices = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        shape = (MATRIX, MATRIX)
        self.left = [torch.randn(shape, dtype=torch.bfloat16, device=d) for d in self.devices]
        self.right = [torch.randn(shape, dtype=torch.bfloat16, device=d) for d in self.devices]
        self.product = [torch.empty(shape, dtype=torch.bfloat16, device=d) for d in self.devices]
        self.shared = [torch.zeros(REDUCED_BYTES // 4, dtype=torch.float32, device=d) for d in self.devices]

    def step(self) -> None:
        """One step; returns when every GPU is done."""
        for _ in range(GEMMS):
            for left, right, product in zip(self.left, self.right, self.product, strict=True):
                torch.matmul(left, right, out=product)
        if len(self.devices) > 1:
            torch.cuda.nccl.all_reduce(self.shared)
        for device in self.devices:
            torch.cuda.synchronize(device)


def main() -> None:
    work = Work()
    for _ in range(WARM_UP):
        work.step()
    say("READY", len(work.devices))
    stop = ended()
    while not stop.is_set():
        began = time.monotonic()
        work.step()
        now = time.monotonic()
        say("STEP", f"{now:.6f} {1e3 * (now - began):.4f}")


if __name__ == "__main__":
    main()
