"""What a worker hands back: one JSON document, `wirewatch.worker/1`."""

import json
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Literal

SCHEMA: Literal["wirewatch.worker/1"] = "wirewatch.worker/1"
_STRICT = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

WAYS = 2
"""A copy within a memory reads and writes every byte."""

ErrorKind = Literal["no_engine", "no_device", "out_of_memory", "driver", "nccl", "internal"]


@dataclass(frozen=True, slots=True)
class Timed:
    """One collective at one size: seconds an operation, of `iterations` in a row without a gap.

    `low`, `median`, `high` are over single iterations, equal where those cannot be told apart. `runs` counts
    every time it ran, warm-up and check included. `wrong`: elements that were not what they should be, over
    all ranks, of a last run into a poisoned buffer.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    group: int
    op: str
    size_bytes: int
    launch: Literal["stream", "graph", "host"]
    iterations: int
    runs: int
    seconds: float
    low: float
    median: float
    high: float
    wrong: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy from one GPU's memory into another's, both by position in the plan; `runs` counts all of them.

    `direct` is whether the driver lets the two reach each other's memory.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    source: int
    destination: int
    size_bytes: int
    seconds: float
    runs: int
    direct: bool


@dataclass(frozen=True, slots=True)
class Micro:
    """What one GPU does alone: medians of a matrix product and of a copy within its memory, with spread.

    The product's time tells nothing but whether it is that of the peers and of before. The means, 0 where
    they are not told, are of all runs in a row: somebody else's slices of the GPU's time show in them alone.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    gpu: int
    gemm_seconds: float
    gemm_low: float
    gemm_high: float
    copy_bytes: int
    copy_seconds: float
    copy_low: float
    copy_high: float
    gemm_mean: float = 0.0
    copy_mean: float = 0.0

    @property
    def product(self) -> float:
        """Seconds of a matrix product by which a GPU is judged: the mean where it is told."""
        return self.gemm_mean or self.gemm_seconds

    @property
    def copied(self) -> float:
        """Bytes per second that a copy reads and writes, likewise; 0 where there is no time."""
        seconds = self.copy_mean or self.copy_seconds
        return WAYS * self.copy_bytes / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class WorkerError:
    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    kind: ErrorKind
    text: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds since the process began at which it had imported, had contexts, had communicators, was done.

    `kernel_seconds`: GPU by GPU, the time in which it had work. `host_bytes`: the most memory it held,
    `cpu_seconds`: of all its processes.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    imported: float = 0.0
    contexts: float = 0.0
    communicators: float = 0.0
    done: float = 0.0
    kernel_seconds: tuple[float, ...] = ()
    cpu_seconds: float = 0.0
    host_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """Everything that a worker measured; with `error` as far as it came."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    schema: Literal["wirewatch.worker/1"]
    engine: str
    versions: dict[str, str] = field(default_factory=dict)
    collectives: tuple[Timed, ...] = ()
    copies: tuple[Copy, ...] = ()
    micros: tuple[Micro, ...] = ()
    cost: Cost = Cost()
    error: WorkerError | None = None


def encode_document(document: Document) -> bytes:
    """The document as JSON.

    Raises:
        ValueError: a time that is not a finite number.
    """
    return json.dumps(asdict(document), allow_nan=False).encode()
