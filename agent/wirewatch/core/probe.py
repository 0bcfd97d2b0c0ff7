"""What a probe is told to do, as it travels to the worker."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from wirewatch.core.account import Account
from wirewatch.core.topology import Group
from wirewatch.core.types import Absent, Why

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


DOCUMENT_SCHEMA: Literal["wirewatch.worker/1"] = "wirewatch.worker/1"
_STRICT_DOCUMENT = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
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

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT_DOCUMENT

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

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT_DOCUMENT

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

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT_DOCUMENT

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
    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT_DOCUMENT

    kind: ErrorKind
    text: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds since the process began at which it had imported, had contexts, had communicators, was done.

    `kernel_seconds`: GPU by GPU, the time in which it had work. `host_bytes`: the most memory it held,
    `cpu_seconds`: of all its processes.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT_DOCUMENT

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

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT_DOCUMENT

    schema: Literal["wirewatch.worker/1"]
    engine: str
    versions: dict[str, str] = field(default_factory=dict)
    collectives: tuple[Timed, ...] = ()
    copies: tuple[Copy, ...] = ()
    micros: tuple[Micro, ...] = ()
    cost: Cost = Cost()
    error: WorkerError | None = None


NOT_TOLD = Absent(Why.MISSING, "not told")


@dataclass(frozen=True, slots=True)
class Pcie:
    """Generation and lanes that the card and its slot should train to, not those that they show now."""

    generation: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that an expectation follows from.

    `link_rate`: of one NVLink link each way in bytes per second, as most links of the node show it; used for
    products without data. `links`: the operator's count of links a GPU. `multicast`: whether the driver
    offers what NVLS needs. `settings`: NCCL's, the environment over nccl.conf. `pins`: the operator's bus
    bandwidths in bytes per second, by `op` (of ever larger messages) or `op@bytes`.
    """

    group: Group
    link_rate: float | Absent = NOT_TOLD
    links: int | None = None
    pcie: Pcie | Absent = NOT_TOLD
    multicast: bool | Absent = NOT_TOLD
    settings: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, float] = field(default_factory=dict)


_STRICT_PROBED: dict[str, object] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
PROBED_SCHEMA: Literal["wirewatch.probed/1"] = "wirewatch.probed/1"
Outcome = Literal[
    "ok", "preempted", "no_engine", "out_of_memory", "failed", "timeout", "garbage", "stuck", "away"
]
"""`ok`: it came to its end, and the judge says what it means. `stuck`: it cannot be killed. `away`: who ran
it is gone, or did not tell."""


@dataclass(frozen=True, slots=True)
class ProbedGpu:
    """A GPU of the plan, by position; bytes of memory in use before, at most while it ran, and after.

    `others_memory`: of a forced probe, the part of the time before it in which those who are there used the
    memory.
    """

    index: int
    uuid: str
    memory_before: int | None = None
    memory_peak: int | None = None
    memory_after: int | None = None
    others_memory: float | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """By how much a GPU's NVLink counters grew in a part of the probe; bytes None where not known."""

    gpu: int
    transmit: int | None
    receive: int | None
    errors: dict[str, int]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the probe, named by its mark: `all_reduce.0`, `copies`, `micros`; seconds it took."""

    name: str
    seconds: float
    moved: tuple[Moved, ...]


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """Bytes that each link of a GPU sent and received over the whole probe; None where not known."""

    gpu: int
    links: tuple[int, ...]
    transmit: tuple[int | None, ...]
    receive: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Clocks:
    """A GPU's clocks in Hz and NVML's bits of what holds them back, while it worked alone."""

    gpu: int
    sm: float | None
    memory: float | None
    reasons: int | None


@dataclass(frozen=True, slots=True)
class Probed:
    """`at` in Unix seconds; `held_seconds`: how long contexts were held; `ports`: bytes that RDMA ports sent.

    `conditions`: what the expectation starts from, one a group of the plan. `settings`: NCCL's, as the worker
    found them in its environment and in /etc/nccl.conf. `why` says in words what ended it early.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT_PROBED

    schema: Literal["wirewatch.probed/1"]
    at: float
    by: Literal["daemon", "command", "recording"]
    forced: bool
    outcome: Outcome
    why: str
    plan: Plan
    gpus: tuple[ProbedGpu, ...]
    conditions: tuple[Conditions, ...]
    settings: dict[str, str]
    seconds: float
    held_seconds: float
    document: Document | None = None
    account: Account | None = None
    parts: tuple[Part, ...] = ()
    links: tuple[LinkBytes, ...] = ()
    clocks: tuple[Clocks, ...] = ()
    ports: dict[str, int] | None = None


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


def encode_document(document: Document) -> bytes:
    """The document as JSON.

    Raises:
        ValueError: a time that is not a finite number.
    """
    return json.dumps(asdict(document), allow_nan=False).encode()


def strange(document: Document, plan: Plan) -> str:
    """What cannot be of this plan, so that whoever reckons with a document need not look; empty: nothing."""
    gpus = range(len(plan.gpus))
    timed = [(t.group, t.op, t.size_bytes) for t in document.collectives]
    copied = [(c.source, c.destination) for c in document.copies]
    alone = [m.gpu for m in document.micros]
    asked = {(g, op, size) for g in range(len(plan.groups)) for op in plan.ops for size in plan.sizes()}
    times = (
        *(t.seconds for t in document.collectives), *(c.seconds for c in document.copies),
        *(m.copy_seconds for m in document.micros),
    )  # fmt: skip
    checks = {
        f"engine {document.engine}": document.engine == plan.engine,
        "collectives that were not asked for": asked.issuperset(timed),
        "GPUs that are not there": all(p in gpus for p in (*alone, *(p for pair in copied for p in pair))),
        "the same twice": all(len(told) == len(set(told)) for told in (timed, copied, alone)),
        "a time that is not above 0": min(times, default=1.0) > 0,
    }
    return next((what for what, good in checks.items() if not good), "")


def unsound(probed: Probed) -> str:
    """What does not fit in a result that was kept or recorded; empty: everything does."""
    plan, count = probed.plan, len(probed.plan.gpus)
    told = [
        *(m.gpu for part in probed.parts for m in part.moved),
        *(one.gpu for one in probed.links),
        *(one.gpu for one in probed.clocks),
        *(position for group in plan.groups for position in group),
    ]
    checks = {
        "GPUs that are not there": all(position in range(count) for position in told),
        "GPUs that the plan does not have": not probed.gpus or len(probed.gpus) == count,
        "conditions of other groups": not probed.gpus or len(probed.conditions) == len(plan.groups),
        "a group of nobody": all(plan.groups),
    }
    found = next((what for what, good in checks.items() if not good), "")
    return found or ("" if probed.document is None else strange(probed.document, plan))


def _frozen(value: object) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value
