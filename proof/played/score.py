"""What a played rank does: the collectives of its job, step by step, and how long they last. Pure."""

import json
import random
from dataclasses import asdict, dataclass

from wirewatch.busbw.formulas import factor
from wirewatch.core.probe import ALL_REDUCE, MIB


@dataclass(frozen=True)
class Score:
    """A job with one collective a step, as each of its ranks plays it.

    Times are seconds. `step`: of one training step. `busbw`: bytes per second of the wire by the
    tap's clock. `late`: the rank that is `late_by` seconds after the others at each collective, -1 for
    none. `jitter`: by how much the ranks differ by chance, the standard deviation. `renew`: after so many
    steps the communicator is finalized and another one made; `fork`: at this step the process forks a child;
    `capture`: from this step on collectives are captured into a CUDA graph, which is replayed; `killed`: at
    this step the last rank is ended by SIGKILL, and the collectives of the others never end. 0: never.
    """

    communicator: int
    ranks: int
    step: float = 0.05
    size_bytes: int = 256 * MIB
    busbw: float = 340e9
    algorithm: str = "RING"
    protocol: str = "SIMPLE"
    channels: int = 16
    late: int = -1
    late_by: float = 0.0
    jitter: float = 20e-6
    renew: int = 0
    fork: int = 0
    capture: int = 0
    killed: int = 0

    @property
    def wire(self) -> float:
        """Seconds of one all_reduce on the wire."""
        return factor(ALL_REDUCE, self.ranks) * self.size_bytes / self.busbw

    def arrivals(self, number: int) -> list[float]:
        """When each rank comes to a collective, in seconds after the step's beginning; alike in all ranks."""
        chance = random.Random(f"{self.communicator} {number}")  # noqa: S311
        drawn = [abs(chance.gauss(0.0, self.jitter)) for _ in range(self.ranks)]
        return [at + (self.late_by if rank == self.late else 0.0) for rank, at in enumerate(drawn)]

    def duration(self, number: int, rank: int) -> float:
        """How long a rank's kernel runs: it waits for the last rank, then all transfer together."""
        arrivals = self.arrivals(number)
        return max(arrivals) - arrivals[rank] + self.wire

    def text(self) -> str:
        """As JSON, for a rank's command line."""
        return json.dumps(asdict(self))


def parsed(text: str) -> Score:
    """The score of a text that `Score.text` made."""
    return Score(**json.loads(text))
