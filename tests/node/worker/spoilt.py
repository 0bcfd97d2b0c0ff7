"""`python -m tests.node.worker.spoilt`: a worker whose collectives by torch.distributed come out wrong.

SPOILT=element: the third element of the last rank that receives. SPOILT=nothing: nothing is sent at all.
SPOILT=late: the last rank never opens what it works with.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

from wirewatch.worker import distributed_engine as engine
from wirewatch.worker.__main__ import main
from wirewatch.worker.layout import Layout

_operation = engine.operation


def spoilt(layout: Layout, group: Any, queue: Any, place: int, peer: int = 0) -> Callable[[], object]:
    """In the place of the operation."""
    one = _operation(layout, group, queue, place, peer)
    if os.environ["SPOILT"] == "nothing":
        return lambda: None
    if place != max(rank for rank in range(layout.ranks) if layout.receives(rank)):
        return one
    _, receive = queue.ends(layout, place)

    def wrong() -> None:
        one()
        receive[2:3] -= 1

    return wrong


class Late(engine.CpuRanks):
    """Its last rank waits."""

    def queue(self) -> Any:
        if self._rank == self._ranks - 1:
            signal.pause()
        return super().queue()


if __name__ == "__main__":
    engine.operation = spoilt
    if os.environ["SPOILT"] == "late":
        vars(engine)["CpuRanks"] = Late
    main()
