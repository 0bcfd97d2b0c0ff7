"""Somebody else's work on one GPU.

python -m proof.hardware.jobs.load KIND GPU OTHER      READY pid, at work until the input ends
"""

import argparse
import os
from collections import deque

import torch

from proof.hardware.jobs.listening import ended, say

MATRIX = 8192
BYTES = 512 << 20
DEEP = 40
"""Pieces of work in the GPU's queue, so that it never runs dry."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("compute", "memory", "peer"))
    parser.add_argument("gpu", type=int)
    parser.add_argument("other", type=int)
    options = parser.parse_args()
    device, other = torch.device("cuda", options.gpu), torch.device("cuda", options.other)
    factor = torch.randn((MATRIX, MATRIX), dtype=torch.bfloat16, device=device)
    product = torch.empty_like(factor)
    out = torch.ones(BYTES, dtype=torch.uint8, device=device)
    into = torch.empty(BYTES, dtype=torch.uint8, device=other if options.kind == "peer" else device)

    def work() -> torch.cuda.Event:
        with torch.cuda.device(device):
            if options.kind == "compute":
                torch.matmul(factor, factor, out=product)
            else:
                into.copy_(out, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        return done

    work().synchronize()
    say("READY", os.getpid())
    stop = ended()
    waiting: deque[torch.cuda.Event] = deque()
    while not stop.is_set():
        waiting.append(work())
        if len(waiting) > DEEP:
            waiting.popleft().synchronize()


if __name__ == "__main__":
    main()
