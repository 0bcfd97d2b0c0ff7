"""The JSON documents of `/health`, `wirewatch check` and `wirewatch status`.

Plain dataclasses and the standard library only: importing pydantic takes longer than all of `check`. The
server and docs/schemas make TypeAdapters of these types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wirewatch.core import types
from wirewatch.core.types import OperatorNote

Health = Literal["ok", "degraded", "unknown", "failed"]
Stage = Literal["live", "latched", "probation", "aside", "repaired", "suppressed"]
HEALTH_NAMES: Mapping[types.Health, Health] = {
    types.Health.OK: "ok",
    types.Health.DEGRADED: "degraded",
    types.Health.UNKNOWN: "unknown",
    types.Health.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """A finding; `subject` by level: gpu, uuid, link, device, port; `since` in Unix seconds."""

    rule: str
    health: Health
    subject: dict[str, str]
    evidence: str
    action: str
    since: float


@dataclass(frozen=True, slots=True)
class SameCause(ReportedFinding):
    """A finding that has the same cause as another, under which it stands; `id` names it."""

    id: str


@dataclass(frozen=True, slots=True)
class NodeFinding(ReportedFinding):
    """A finding as it counts for the node.

    `id` names it for `wirewatch findings`; `times`: how often it came within days; `last`: when an event was
    last seen, 0 for a measurement; `suppressed_until` in Unix seconds, 0 for not suppressed. `same_cause`:
    what cannot be read for the same reason, or since this GPU is lost. `others`: UUIDs of GPUs besides the
    subject's that may be at fault, or are at the other end. `acknowledged`: who has seen it, which changes no
    verdict; `repaired`: who said that it is.
    """

    id: str
    stage: Stage
    times: int
    last: float
    acknowledged: OperatorNote | None
    suppressed: OperatorNote | None
    suppressed_until: float
    same_cause: list[SameCause] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    repaired: OperatorNote | None = None


@dataclass(frozen=True, slots=True)
class GateOrder:
    """An operator's order by which something keeps no job away: by whom, why and when, in Unix seconds.

    `what`: the rule and its part, or the change of the topology; `health`: the worst that it was.
    `until`: when the order ends by itself, 0 for not at a date. `undo`: the command that takes it back.
    """

    order: Literal["accept", "repaired", "suppress"]
    what: str
    health: Health
    by: str
    why: str
    at: float
    until: float
    undo: str


@dataclass(frozen=True, slots=True)
class ProbeStatus:
    """The newest complete probe: when it began (`at`, 0 for never), how long ago it ended (null for never).

    `fresh`: young enough to count for now, by `[probe] fresh`; `required`: whether a job may start only with
    a fresh probe, by `[policy.verdict] require_fresh_probe`. `no_expectation`: collectives in it of which
    nothing is expected; the node's own history and the wire judge them.
    """

    at: float
    age_seconds: float | None
    fresh: bool
    required: bool
    no_expectation: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU by all names that a scheduler may use; empty for a name that is not known.

    `gpu`: NVML's number, `minor`: that of the device file. `split`: in MIG mode, null for not known.
    """

    gpu: str
    minor: str
    uuid: str
    pci: str
    split: bool | None


@dataclass(frozen=True, slots=True)
class HealthDocument:
    """The verdict with its reasons, worst first. Times in Unix seconds, 0 for never or none.

    `polled_at`: the newest poll of any collector; `turning`: all loops of the daemon run; `released_until`:
    the end of `wirewatch release`; `probe` null: switched off, or nothing to probe on this node;
    `probe_exempt`: the latter, so that none can be required. `job_ready`: the next job may start, since
    `health` is none of `fail_on`, which is `[policy.verdict] fail_on`, its default in a document without it.
    `suppressed`: findings that an operator suppressed, so that they do not count. `aside`: of running jobs,
    on which no verdict depends.
    `orders`: of operators, by which something keeps no job away. `base`: the health apart from all findings,
    and `gpus`: every GPU that was seen; both null in a document without them. `host`: the node's name,
    empty for a recording.
    """

    schema: Literal["wirewatch.health/1"]
    at: float
    health: Health
    job_ready: bool
    polled_at: float
    turning: bool
    released_until: float
    probe: ProbeStatus | None
    findings: list[NodeFinding]
    fail_on: list[Health] = field(
        default_factory=lambda: [HEALTH_NAMES[one] for one in sorted(types.FAIL_ON)]
    )
    probe_exempt: bool = False
    suppressed: list[NodeFinding] = field(default_factory=list)
    aside: list[NodeFinding] = field(default_factory=list)
    base: Health | None = None
    gpus: list[NodeGpu] | None = None
    orders: list[GateOrder] = field(default_factory=list)
    host: str = ""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding that counts; `id` and `stage` are empty where neither a daemon nor a poll has set them.

    `others`: as of `NodeFinding`.
    """

    id: str
    stage: Stage | Literal[""]
    rule: str
    health: Health
    subject: dict[str, str]
    evidence: str
    action: str
    since: float
    same_cause: list[SameCause] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckDocument:
    """Whether a job may start: it may unless `health` is one of `fail_on`.

    `fail_on` is that of the node's configuration, or of `--fail-on`.

    `source`: the daemon, a demo that runs here, a poll by `check` itself (`own`), or none where nothing
    answered in time; `why`: why it is not the daemon, and further notes, in words. `verdict_at`: when the
    node was polled for the verdict, Unix seconds, 0 for never. `probe` null: switched off, or nothing to
    probe on this node; its `fresh` is by `--max-age` where that was given, its `required` also by
    `--require-fresh-probe`. `probe_exempt`: there is nothing to probe, so that none can be required.
    `suppressed`: findings that an operator suppressed, so that they do not count, and until when.
    `orders`: all orders of operators by which something keeps no job away. `host`: the
    node's name, empty for a recording.

    With `--gpus` or `--without-gpus`: `gpus`, the numbers of the GPUs whose findings count, null where those
    of the whole node do; `left_aside`, findings of other GPUs; `note`, what the line ends with.
    """

    schema: Literal["wirewatch.check/1"]
    at: float
    health: Health
    may_start: bool
    fail_on: list[Health]
    source: Literal["daemon", "demo", "own", "none"]
    why: str
    verdict_at: float
    probe: ProbeStatus | None
    findings: list[CheckFinding]
    probe_exempt: bool = False
    suppressed: list[NodeFinding] = field(default_factory=list)
    gpus: list[str] | None = None
    left_aside: list[CheckFinding] = field(default_factory=list)
    note: str = ""
    orders: list[GateOrder] = field(default_factory=list)
    host: str = ""


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """A GPU, null where a value is not known: degrees Celsius, watts, the share of time in which it worked.

    Links that are up or asleep, and those that it should have; PCIe generation and lanes, and the most that
    are possible.
    """

    gpu: str
    uuid: str
    celsius: float | None
    watts: float | None
    utilisation: float | None
    links: int | None
    links_expected: int | None
    pcie_generation: int | None
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None


@dataclass(frozen=True, slots=True)
class PortStatus:
    """An RDMA port with its state in the kernel's word, its rate and the expected one in bytes/s."""

    device: str
    port: str
    state: str
    bytes_per_second: float | None
    expected_bytes_per_second: float | None


@dataclass(frozen=True, slots=True)
class NicStatus:
    """A port or interface that is probed alone: when it was last, Unix seconds, null for never.

    `bytes_per_second` each way, by `on`, `off` (GPUDirect) or `none` (sockets); empty once it is old.
    """

    device: str
    port: str
    measured: float | None
    bytes_per_second: dict[str, float]


@dataclass(frozen=True, slots=True)
class PathStatus:
    """How a GPU reaches its nearest NICs in the PCI tree: PIX, PXB, PHB or SYS."""

    gpu: str
    path: str
    devices: list[str]


@dataclass(frozen=True, slots=True)
class HeadlineProbe:
    """The collective of the last complete probe that tells most; bandwidths in bytes/s, null for not known.

    `at` in Unix seconds, when it began.
    """

    at: float
    age_seconds: float
    op: str
    size_bytes: int
    ranks: int
    busbw: float
    expected_busbw: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class StatusJob:
    """A running job, on how many GPUs of this node, and the wall that it hits, with the first line about it.

    `shares` of its time by kind, the mean of its GPUs over the last minutes; empty where that is not known.
    """

    job: str
    gpus: int
    wall: str
    sentence: str = ""
    shares: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CollectorAge:
    """A collector: seconds since it last read something, null for never; `error`: why it cannot read now."""

    collector: str
    health: Health | None
    applicable: bool | None
    age_seconds: float | None
    error: str


@dataclass(frozen=True, slots=True)
class Gate:
    """Says if a probe may run now; `reason` and `detail` are empty when it may.

    `holds`: for which jobs a scheduler holds probes off, such as slurm:4711.
    """

    open: bool
    reason: str
    meaning: str
    detail: str
    engine: str | None
    holds: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StatusDocument:
    """A node at a glance. `source`: live, replay or synthetic; `by`: the daemon, a demo, or this command.

    `why`: why it is not the daemon, in words. `product`, `driver`: empty where not known. `gpudirect`: each
    check with its state. `probe` null: none complete yet, or probing is off; `gate`: whether one may run now,
    and why not. `nics`: ports that are probed one by one, none where that is off. `host`: the node's name,
    empty for a recording.
    """

    schema: Literal["wirewatch.status/1"]
    at: float
    health: Health
    job_ready: bool
    source: str
    by: Literal["daemon", "demo", "own"]
    why: str
    product: str
    driver: str
    gpus: list[GpuStatus]
    ports: list[PortStatus]
    paths: list[PathStatus]
    gpudirect: dict[str, str]
    probe: HeadlineProbe | None
    gate: Gate
    jobs: list[StatusJob]
    findings: list[NodeFinding]
    collectors: list[CollectorAge]
    nics: list[NicStatus] = field(default_factory=list)
    host: str = ""
