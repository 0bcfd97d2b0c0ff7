"""What a probe is told to do, as it travels to the worker."""

import json
from dataclasses import asdict, dataclass
from typing import Any

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
OPS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
ENGINES = ("nccl", "torch", "gloo")
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """A probe of `gpus`, UUIDs in rank order; for the gloo engine any names, one a rank.

    `groups`: positions in `gpus`, one communicator each. Sizes are nccl-tests' message sizes in bytes (for
    all_gather and reduce_scatter the whole, over all ranks). `latency_sizes` run as CUDA graphs of
    `latency_iterations`; `bandwidth` names sizes with how often each runs, after `warmup` others.
    Collectives run in place. A directed pair of GPUs copies `copy_bytes`, 0 for none; `micro` for a GEMM and
    a memory copy on each GPU. `log` is the file for NCCL's own log. With `pauses` the worker waits for a line
    on its input at every mark.
    """

    engine: str
    gpus: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    ops: tuple[str, ...] = OPS
    latency_sizes: tuple[int, ...] = (8, 1 * KIB, 8 * KIB, 64 * KIB)
    bandwidth: tuple[tuple[int, int], ...] = ((64 * MIB, 8), (256 * MIB, 8), (512 * MIB, 5))
    warmup: int = 2
    latency_iterations: int = 50
    copy_bytes: int = 256 * MIB
    copies: int = 2
    micro: bool = True
    log: str = ""
    pauses: bool = False

    def sizes(self) -> tuple[int, ...]:
        """All sizes, in bytes."""
        return (*self.latency_sizes, *(size for size, _ in self.bandwidth))

    def runs(self, size_bytes: int) -> int:
        """How often a size of `bandwidth` runs."""
        return dict(self.bandwidth)[size_bytes]


def encode_plan(plan: Plan) -> str:
    """One line of JSON."""
    return json.dumps(asdict(plan))


def decode_plan(line: str) -> Plan:
    """The plan of such a line.

    Raises:
        ValueError, TypeError: not a plan.
    """
    told: Any = json.loads(line)
    if not isinstance(told, dict):
        raise TypeError(f"not a plan: {line[:80]!r}")
    return Plan(**{name: _frozen(value) for name, value in told.items()})


def _frozen(value: object) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def rounds(count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """A tournament: rounds of disjoint pairs in which every one of `count` meets every other once."""
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    half = len(seats) // 2
    played = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        played.append(tuple((a, b) for a, b in pairs if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(played)
