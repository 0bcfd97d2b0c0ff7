"""What is true of a job that was made: what holds it up, since when, and by when it must have been named."""

from dataclasses import dataclass

from proof.model.job import World
from proof.model.rings import DEFAULT
from proof.model.shapes import Plan

NOBODY, RANK, REMOTE, WIRE, RAIL, HANG, DEADLOCK, BUSY = (
    "nobody", "rank", "another node", "wire", "rail", "hang", "deadlock", "busy",
)  # fmt: skip
"""NOBODY: no one rank and no wire. BUSY: a rank for which the others wait, and which is at work."""


@dataclass
class Case:
    """A job with its truth. `ranks`: whom it waits for; `onset` in seconds; `limit`: until it must be named.

    `seconds`: how long it is watched. `restarts`: seconds at which its processes end, and new ones begin.
    `ras`: whether NCCL's RAS can be reached. `captured`: its collectives are in CUDA graphs. `drift`,
    `resolution` (nanoseconds) of the GPUs' clocks. `sampling`: which calls its tap times. `since`: when what
    holds it up began, where it costs too little before the onset.
    """

    plan: Plan
    world: World
    kind: str = NOBODY
    ranks: tuple[int, ...] = ()
    onset: float = 0.0
    limit: float = 30.0
    seconds: float = 0.0
    restarts: tuple[float, ...] = ()
    ras: bool = True
    captured: bool = False
    drift: float = 2e-6
    resolution: int = 32
    sampling: str = DEFAULT
    since: float | None = None

    def begun(self, second: float) -> bool:
        """Tell whether what holds it up is there by a second, however little it costs."""
        return second >= (self.onset if self.since is None else self.since)
