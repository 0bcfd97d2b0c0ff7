"""Work as a CUDA graph."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

Work = Callable[[], None]


@dataclass(frozen=True)
class Captured:
    """A CUDA graph with the work it was captured from.

    The graph has the addresses of the work's buffers and does not keep them: when the work is collected, the
    next capture gives their memory back to the driver, and a replay is an illegal access.
    """

    graph: torch.cuda.CUDAGraph
    work: Work

    def __call__(self) -> None:
        self.graph.replay()


def captured(work: Work, warm: Work, times: int = 1) -> Captured:
    """The work as one CUDA graph, after `warm` ran a few times outside of one."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            warm()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog of torch asks about events from another thread meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return Captured(graph, work)
