"""A probe as it went: what the worker measured and what was read around it, nothing judged yet.

It is the answer of the `probe` port: recorded, replayed and kept in the history as it stands here.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from wirewatch.core.probing.document import Document
from wirewatch.core.probing.nccllog import Account
from wirewatch.core.probing.plan import Plan
from wirewatch.core.probing.wire import Conditions

_STRICT: dict[str, object] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

SCHEMA: Literal["wirewatch.probed/1"] = "wirewatch.probed/1"

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

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

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
