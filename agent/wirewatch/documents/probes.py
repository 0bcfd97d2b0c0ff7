"""The documents of probes; docs/schemas is made from these types. `probed` has what makes them."""

from dataclasses import dataclass, field
from typing import Any, Literal

from wirewatch.core.probe import Difference, PastProbe, PathBytes
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import Gate, Health, ReportedFinding


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """One collective at one size; bandwidths in bytes per second as nccl-tests' busbw, null where not known.

    `derivation`: how the expectation follows, or the wire and why nothing is expected. `usual_busbw`: the
    median of this node's accepted probes, null while there are too few. `no_reference`: why nothing is
    expected of GPUs, empty where something is.
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
    usual_busbw: float | None = None
    no_reference: str = ""


@dataclass(frozen=True, slots=True)
class NetworkResult:
    """A probe over the node's RDMA ports. `expected_busbw` of large messages, bytes/s, null: no reference.

    `derivation`: how that follows, or why not. `gpudirect`: proven, partly, refuted or not_known, by NCCL's
    log. `sent_bytes`: what each RDMA port and network interface sent meanwhile.
    """

    expected_busbw: float | None
    derivation: list[str]
    gpudirect: str
    sent_bytes: dict[str, int]


@dataclass(frozen=True, slots=True)
class RunResult:
    """One of the probes that stand side by side; `why` it did not come to its end, or did not run.

    `outcome` as of a probe; `no_engine` where the engine is not installed, `skipped` where the gate was shut.

    `problem`: why it is not compared with the others, empty where it is.
    """

    name: str
    engine: str
    outcome: str
    why: str
    problem: str
    versions: dict[str, str]
    transport: str
    gpudirect: str
    environment: dict[str, str]
    results: list[CollectiveResult]
    not_offered: list[str]


@dataclass(frozen=True, slots=True)
class Asymptote:
    """The bandwidth of a collective for large messages, from a fit: busbw in bytes per second."""

    op: str
    gpus: str
    busbw: float


@dataclass(frozen=True, slots=True)
class PeerCopy:
    """A copy between two GPUs, by index; `direct`: whether the driver allows peer access between them."""

    source: int
    destination: int
    bytes_per_second: float
    direct: bool


@dataclass(frozen=True, slots=True)
class HostLinkResult:
    """One GPU's way to pinned memory of the host, by index; rates in bytes per second.

    `both`: each way at once; `all_*`: while all GPUs copy that way. `expected_*`: at most, null where not
    known well enough to judge by it; `ratio`: the lower of both shares of it. `derivation` says how it
    follows, and `link` what PCIe ran at. `near`: whether the memory was made on CPUs near the GPU, null where
    these are not known. `counted`: the share of the bytes that PCIe's counters saw, null without any.
    `shares_with`: GPUs on the same root port.
    """

    gpu: int
    uuid: str
    to_device: float
    from_device: float
    both: float
    all_to_device: float
    all_from_device: float
    expected_to_device: float | None
    expected_from_device: float | None
    ratio: float | None
    confidence: str | None
    derivation: list[str]
    link: str
    near: bool | None
    counted: float | None
    shares_with: list[int]


@dataclass(frozen=True, slots=True)
class GpuResult:
    """One GPU measured alone; its SM clock in Hz meanwhile, and bytes of memory before, at most and after."""

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

    `gpu` and `peer` by index, null where there is none; without `gpu` all parts of the resource are slow.
    `lost`: the part of its speed that is lost against its "own" history or its "peers", as `against` says.
    `score`: standard deviations. `follows`: what else is slow because of it.
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
class ProbeDocument:
    """One probe. `health` is that of this probe alone, not confirmed by others.

    `settings`: NCCL's, `slowing`: those of them that lower bandwidth, in words. Times in seconds.

    `study`: in what it differs from any that a daemon runs, in words: such a probe is not kept and feeds no
    verdict. `environment`: what the probe itself set for NCCL. `not_recorded`: what was asked for and the
    recording does not hold. `unproven`: why it is not what was asked for, mostly by NCCL's log.
    `not_offered`: collectives that the engine does not have. `runs`: probes that stand side by side; all else
    is then of the first that came to its end, but health and findings. `no_hosts`: why the host links were
    not measured though asked for.
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
    results: list[CollectiveResult]
    asymptotes: list[Asymptote]
    copies: list[PeerCopy]
    gpus: list[GpuResult]
    stragglers: list[Straggler]
    path: list[PathBytes]
    findings: list[ReportedFinding]
    study: list[str] = field(default_factory=list)
    dtype: str = "float32"
    in_place: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    not_recorded: list[str] = field(default_factory=list)
    unproven: str = ""
    not_offered: list[str] = field(default_factory=list)
    network: NetworkResult | None = None
    runs: list[RunResult] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    hosts: list[HostLinkResult] = field(default_factory=list)
    no_hosts: str = ""


@dataclass(frozen=True, slots=True)
class ProbesDocument:
    """The gate, the last complete probe, and the newest probes in short, newest first."""

    schema: Literal["wirewatch.probes/1"]
    at: float
    gate: Gate
    fresh: bool
    last: ProbeDocument | None
    past: list[PastProbe]


PROBE = TypeAdapter(ProbeDocument)
PROBES = TypeAdapter(ProbesDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.probe.1": PROBE, "wirewatch.probes.1": PROBES}
