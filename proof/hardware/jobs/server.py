"""The start-up of an inference server, as far as memory goes: it reads what is free, loads, reads again.

python -m proof.hardware.jobs.server GPU     READY, with torch imported; a line; DONE {...}; end of input
"""

import json
import sys
import time

import torch

from proof.hardware.jobs.listening import say, wait_for_line

BETWEEN = 1.0
"""Seconds between the two readings."""
WEIGHTS = 64 << 20


def start_up(gpu: int) -> dict[str, float]:
    """Bytes free at both readings and of its own between them, and moments of the monotonic clock."""
    began = time.monotonic()
    device = torch.device("cuda", gpu)
    torch.cuda.set_device(device)
    # The first reading makes the context.
    first = torch.cuda.mem_get_info(device)[0]
    read = time.monotonic()
    weights = torch.ones(WEIGHTS, dtype=torch.uint8, device=device)
    while time.monotonic() < read + BETWEEN:
        weights.add_(1)
        torch.cuda.synchronize(device)
    second = torch.cuda.mem_get_info(device)[0]
    return {
        "began": began, "first_at": read, "second_at": time.monotonic(), "first": first, "second": second,
        "own": torch.cuda.memory_reserved(device),
    }  # fmt: skip


def main() -> None:
    gpu = int(sys.argv[1])
    say("READY")
    if wait_for_line():
        say("DONE", json.dumps(start_up(gpu)))
        wait_for_line()


if __name__ == "__main__":
    main()
