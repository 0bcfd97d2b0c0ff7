"""Copies from each GPU to the next, plain peer copies; on one GPU, GEMMs and copies within it.

python -m proof.hardware.jobs.ring --copies 64 --mib 512     warm-up, READY, a line, DONE {...}, end of input
python -m proof.hardware.jobs.ring --loop                    warm-up, READY, copies until the input ends
"""

import argparse
import json
import time
from typing import Any

import torch

from proof.hardware.jobs.listening import ended, say, wait_for_line

MATRIX = 4096
ROUND = 8
"""Copies a GPU between two looks at the clock, in the loop."""


class Ring:
    """A buffer to send from and one to receive into on each GPU, and streams for both.

    Each pair has streams of its own: on the default ones every copy would wait for its neighbour's.
    """

    def __init__(self, mib: int) -> None:
        self.devices = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        size = mib << 20
        self.out = [torch.randint(0, 256, (size,), dtype=torch.uint8, device=d) for d in self.devices]
        self.into = [torch.empty(size, dtype=torch.uint8, device=d) for d in self.devices]
        self.sending = [torch.cuda.Stream(d) for d in self.devices]
        self.receiving = [torch.cuda.Stream(d) for d in self.devices]
        alone = self.devices if len(self.devices) == 1 else []
        self.factors = [torch.randn((MATRIX, MATRIX), dtype=torch.bfloat16, device=d) for d in alone]
        self.bytes_each = 0

    def copy(self, times: int) -> None:
        """So many copies from every GPU to the next, all pairs at once; returns when they are done."""
        count = len(self.devices)
        for _ in range(times):
            for i, source in enumerate(self.out):
                after = (i + 1) % count
                with torch.cuda.stream(self.receiving[after]), torch.cuda.stream(self.sending[i]):
                    self.into[after].copy_(source, non_blocking=True)
            for factor in self.factors:
                torch.matmul(factor, factor)
        self.wait()
        self.bytes_each += times * self.out[0].numel()

    def wait(self) -> None:
        for device in self.devices:
            torch.cuda.synchronize(device)

    def whole(self) -> bool:
        """Whether what arrived is what was sent."""
        count = len(self.devices)
        return all(
            bool(torch.equal(self.into[(i + 1) % count][:4096].cpu(), self.out[i][:4096].cpu()))
            for i in range(count)
        )


def _once(ring: Ring, copies: int) -> dict[str, Any]:
    ring.bytes_each = 0
    began = time.perf_counter()
    ring.copy(copies)
    return {
        "bytes_each": ring.bytes_each,
        "seconds": time.perf_counter() - began,
        "devices": len(ring.devices),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--copies", type=int, default=64)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--loop", action="store_true")
    options = parser.parse_args()
    ring = Ring(options.mib)
    ring.wait()
    ring.copy(2)
    if not ring.whole():
        raise SystemExit("the copies did not arrive whole")
    say("READY", len(ring.devices))
    if options.loop:
        stop = ended()
        while not stop.is_set():
            ring.copy(ROUND)
        say("DONE", json.dumps({"bytes_each": ring.bytes_each}))
        return
    if wait_for_line():
        say("DONE", json.dumps(_once(ring, options.copies)))
        wait_for_line()


if __name__ == "__main__":
    main()
