"""The types of the JSON documents of probes; docs/schemas is made from them."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.export.healthdocuments import Finding, Health


@dataclass(frozen=True, slots=True)
class Result:
    """One collective at one size; bandwidths in bytes per second as nccl-tests' busbw, null where not known.

    `derivation` says how the expectation follows; with one line saying why where there is none.
    """

    op: str
    size_bytes: int
    ranks: int
    gpus: str
    seconds: float
    busbw: float
    best: float
    lowest: float
    wrong: int
    algorithm: str
    protocol: str
    expected_busbw: float | None
    ratio: float | None
    peak_ratio: float | None
    expected_algorithm: str | None
    confidence: str | None
    derivation: list[str]


@dataclass(frozen=True, slots=True)
class Asymptote:
    op: str
    gpus: str
    busbw: float


@dataclass(frozen=True, slots=True)
class PeerCopy:
    """GPUs by index; `direct`: whether the driver lets them reach each other's memory."""

    source: int
    destination: int
    bytes_per_second: float
    direct: bool


@dataclass(frozen=True, slots=True)
class GpuResult:
    """One GPU alone, with its clocks in Hz at that moment, and bytes of memory before, at most and after."""

    gpu: int
    uuid: str
    gemm_seconds: float | None
    memory_copy_bytes_per_second: float | None
    sm_clock: float | None
    clocks_event_reasons: int | None
    memory_before: int | None
    memory_peak: int | None
    memory_after: int | None


@dataclass(frozen=True, slots=True)
class Straggler:
    """A part that is slow by this probe alone; rates in matrix products or bytes per second.

    `gpu` and `peer` by index, None where there is none; without `gpu` it is all parts of the resource alike.
    `lost`: the part of its speed, against `against`: "own" history or "peers". `score`: standard deviations.
    `follows`: what else is slow because of it.
    """

    resource: str
    gpu: int | None
    uuid: str
    peer: int | None
    lost: float
    score: float | None
    against: str
    rate: float | None
    own: float | None
    peers: float | None
    probes: int
    follows: list[str]


@dataclass(frozen=True, slots=True)
class PathBytes:
    """Bytes that a GPU had to send in a part of the probe, and those that NVLink counted."""

    part: str
    gpu: int
    due: float
    sent: int | None
    received: int | None


@dataclass(frozen=True, slots=True)
class ProbeDocument:
    """One probe. `health` is that of this probe alone, nothing confirmed by others.

    `settings`: NCCL's, `slowing`: those of them that lower bandwidth, in words. Times in seconds.
    """

    schema: Literal["wirewatch.probe/1"]
    at: float
    health: Health
    outcome: str
    why: str
    by: str
    forced: bool
    engine: str
    versions: dict[str, str]
    seconds: float
    held_seconds: float
    kernel_seconds: list[float]
    cpu_seconds: float | None
    host_bytes: int | None
    transport: str
    settings: dict[str, str]
    slowing: list[str]
    results: list[Result]
    asymptotes: list[Asymptote]
    copies: list[PeerCopy]
    gpus: list[GpuResult]
    stragglers: list[Straggler]
    path: list[PathBytes]
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether a probe may run now; `reason` and `detail` empty when it may."""

    open: bool
    reason: str
    meaning: str
    detail: str
    engine: str | None


@dataclass(frozen=True, slots=True)
class PastProbe:
    at: float
    outcome: str
    why: str
    forced: bool
    engine: str
    seconds: float
    worst_ratio: float | None


@dataclass(frozen=True, slots=True)
class ProbesDocument:
    """What is known of probes: the gate, the last complete one, and the newest in short, newest first."""

    schema: Literal["wirewatch.probes/1"]
    at: float
    gate: Gate
    fresh: bool
    last: ProbeDocument | None
    past: list[PastProbe]


PROBE = TypeAdapter(ProbeDocument)
PROBES = TypeAdapter(ProbesDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.probe.1": PROBE, "wirewatch.probes.1": PROBES}
