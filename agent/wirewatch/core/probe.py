"""A probe as values: its plan, the worker's measurements, the conditions, and all of them together.

`Plan` travels to the worker as a line of JSON, `Document` is the worker's answer. An expected busbw follows
from `Conditions`. `Probed` is a whole probe, with nothing judged yet: a prober answers it, a recording holds
it, and `wrong_in_probed` checks it. Field names are JSON keys.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from wirewatch.core.account import Account
from wirewatch.core.hostlink import HostCopies, HostMoved, HostPath, Pcie
from wirewatch.core.topology import Group
from wirewatch.core.types import Absent, Why

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
BROADCAST, REDUCE, SCATTER, GATHER = "broadcast", "reduce", "scatter", "gather"
ALLTOALL, SENDRECV = "alltoall", "sendrecv"
OPS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
"""The collectives that a probe measures by itself."""
PRIMITIVES = (*OPS, BROADCAST, REDUCE, SCATTER, GATHER, ALLTOALL, SENDRECV)
"""All measurable primitives, by nccl-tests' names. Primitives with a root use rank 0."""
SEND = "send"
"""Between nodes alone: each rank of a group's first half sends to one of the second; none replies."""
DIVIDED = frozenset({ALL_GATHER, REDUCE_SCATTER, SCATTER, GATHER, ALLTOALL})
"""Primitives whose message has a share for each rank."""
OUT_OF_PLACE = frozenset({ALLTOALL, SENDRECV})
"""Primitives that NCCL runs out of place only, whatever is asked for."""
DTYPES: Mapping[str, int] = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int8": 1, "uint8": 1, "int32": 4, "int64": 8,
}  # fmt: skip
"""Bytes of an element."""
ENGINES = ("nccl", "torch", "distributed", "gloo")
KIB, MIB = 1 << 10, 1 << 20
NOT_KNOWN = Absent(Why.MISSING, "not told")
"""Keep this text: recordings of 0.1 contain it."""
DOCUMENT_SCHEMA: Literal["wirewatch.worker/1"] = "wirewatch.worker/1"
PROBED_SCHEMA: Literal["wirewatch.probed/1"] = "wirewatch.probed/1"
ErrorKind = Literal["no_engine", "no_device", "out_of_memory", "driver", "nccl", "internal"]
Outcome = Literal[
    "ok", "preempted", "no_engine", "out_of_memory", "failed", "timeout", "garbage", "stuck", "away"
]
"""The end of a probe. `ok`: complete, the judge decides. `stuck`: its worker cannot be killed. `away`: the
prober that ran it is gone, or did not answer."""
REPORT = "timed "
"""The beginning of a worker's marked line that has a measurement."""
_STRICT: dict[str, object] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
Launch = Literal["stream", "graph", "host"]


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: a collective of a group at one size in bytes, timed over `iterations` runs.

    `launch` is the requested launch; an engine without it reports its own launch in `Timed`. Where ranks
    share the message, each share is rounded down to a multiple of 16 bytes, as nccl-tests do.
    """

    group: int
    op: str
    size_bytes: int
    launch: Launch
    iterations: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the workers of several nodes meet, each with as many ranks: the first node listens, others come.

    `node`: the number of this node among `nodes`, from 0. Its ranks begin at `node` times their number.
    `patience`: seconds to wait for the others.
    """

    host: str
    port: int
    node: int
    nodes: int
    patience: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Measurements of one probe on `gpus`: UUIDs in rank order. The gloo engine takes any names, one a rank.

    `groups`: positions in `gpus`, one communicator each; with a `meeting` ranks of all its nodes. Sizes are
    nccl-tests' message sizes in bytes (for all_gather and reduce_scatter the whole, over all ranks).
    `latency_sizes` run as CUDA graphs of `latency_iterations`. `bandwidth` has each size with its number of
    timed runs, after `warmup` others. `cases` are measured last, and each is reported at once. Each directed
    pair of GPUs copies `copy_bytes`, 0 for none, `copies` times; `micro` asks for a matrix product and a
    memory copy on each GPU. Each GPU and pinned memory of the host copy `host_bytes`, 0 for none. `near`: the
    CPUs near each GPU as the kernel lists them, empty where not known. `in_place` holds for all primitives
    but alltoall and sendrecv. `registered`: the collectives' buffers are registered with their communicator.
    `environment`: settings of NCCL that override the worker's inherited settings. `log` is the file for
    NCCL's own log. With `pauses` the worker waits for a line on its input at every mark.
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
    dtype: str = "float32"
    in_place: bool = True
    registered: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    cases: tuple[Case, ...] = ()
    meeting: Meeting | None = None
    host_bytes: int = 0
    near: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return len(self.gpus) * (1 if self.meeting is None else self.meeting.nodes)

    @property
    def first_rank(self) -> int:
        """The rank of the first of `gpus`."""
        return 0 if self.meeting is None else len(self.gpus) * self.meeting.node

    def sizes(self) -> tuple[int, ...]:
        """All sizes, in bytes."""
        return (*self.latency_sizes, *(size for size, _ in self.bandwidth))

    def runs(self, size_bytes: int) -> int:
        """The number of timed runs of a size of `bandwidth`."""
        return dict(self.bandwidth)[size_bytes]

    def cases_of(self, group: int, op: str) -> tuple[Case, ...]:
        """The cases of one collective on one group, without `cases`."""
        small = (Case(group, op, size, "graph", self.latency_iterations) for size in self.latency_sizes)
        large = (Case(group, op, size, "stream", runs) for size, runs in self.bandwidth)
        return (*small, *large)


@dataclass(frozen=True, slots=True)
class Timed:
    """One collective at one size: seconds an operation, of `iterations` in a row without a gap.

    `low`, `median`, `high` are over single iterations, and equal where iterations were not timed singly.
    `runs` counts every run, warm-up and check included. `wrong`: wrong elements over all ranks, in a last run
    into a poisoned buffer.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    group: int
    op: str
    size_bytes: int
    launch: Launch
    iterations: int
    runs: int
    seconds: float
    low: float
    median: float
    high: float
    wrong: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between GPUs by position in the plan; `direct`: each reaches the other's memory."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    source: int
    destination: int
    size_bytes: int
    seconds: float
    runs: int
    direct: bool


@dataclass(frozen=True, slots=True)
class Micro:
    """The speed of one GPU alone: seconds of a matrix product and of a copy within its memory.

    `*_seconds` are medians, with the lowest and highest. The product's time means something only beside the
    time of peers and of earlier probes. The means are over all runs in a row, 0 where an older worker sent
    none. Only the means show the time slices of another process on the GPU.
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


@dataclass(frozen=True, slots=True)
class WorkerError:
    """Why the worker stopped early; `text` is one line for people."""

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    kind: ErrorKind
    text: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of the worker: seconds from its start until imports, contexts, communicators and all were done.

    `kernel_seconds`: for each GPU, the time in which it had work. `host_bytes`: the most memory that the
    worker held. `cpu_seconds`: of all its processes.
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
    """All measurements of a worker before an `error`; `not_offered`: primitives that its engine lacks.

    `no_hosts`: why no host link was measured though the plan asks for it.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    schema: Literal["wirewatch.worker/1"]
    engine: str
    versions: dict[str, str] = field(default_factory=dict)
    collectives: tuple[Timed, ...] = ()
    copies: tuple[Copy, ...] = ()
    micros: tuple[Micro, ...] = ()
    cost: Cost = Cost()
    error: WorkerError | None = None
    not_offered: tuple[str, ...] = ()
    hosts: tuple[HostCopies, ...] = ()
    no_hosts: str = ""


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port through which NCCL could leave the node; `card` is its PCI address without the function.

    `state` and `layer` as in sysfs, `rate` in bytes per second. `pcie`: what card and slot should train to.
    `paths`: from each GPU of the group, in its order, as `NicPath` has them.
    """

    device: str
    port: str
    card: str
    state: str
    layer: str
    rate: float | Absent
    pcie: Pcie | Absent
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conditions:
    """All inputs of an expected busbw, for one group of GPUs.

    `link_rate`: bytes per second of one NVLink link each way, as most links of the node show it; used for
    products without data. `links`: links of a GPU, if the operator gave them. `multicast`: whether the driver
    offers the multicast that NVLS needs. `settings`: NCCL's, the environment over nccl.conf. `pins`: the
    operator's busbw in bytes per second, by `op` (for ever larger messages) or `op@bytes`. `network`: the
    node's RDMA ports, read for probes that go over them.
    """

    group: Group
    link_rate: float | Absent = NOT_KNOWN
    links: int | None = None
    pcie: Pcie | Absent = NOT_KNOWN
    multicast: bool | Absent = NOT_KNOWN
    settings: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, float] = field(default_factory=dict)
    network: tuple[RdmaPort, ...] | Absent = ()


@dataclass(frozen=True, slots=True)
class ProbedGpu:
    """A GPU of the plan: bytes in use; `others_memory`: share of time in which others used it before."""

    index: int
    uuid: str
    memory_before: int | None = None
    memory_peak: int | None = None
    memory_after: int | None = None
    others_memory: float | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """The growth of a GPU's NVLink counters in a part of the probe; bytes None where not known."""

    gpu: int
    transmit: int | None
    receive: int | None
    errors: dict[str, int]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the probe, named by its mark: `all_reduce.0`, `copies`, `micros`; `seconds` that it took."""

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
    """A GPU's clocks in Hz and NVML's bits of the reasons that lower them, while the GPU worked alone."""

    gpu: int
    sm: float | None
    memory: float | None
    reasons: int | None


@dataclass(frozen=True, slots=True)
class Probed:
    """A whole probe: its plan, measurements and counters meanwhile, with nothing judged.

    `at` in Unix seconds; `seconds` for all of it, `held_seconds` with contexts on the GPUs. `why` says in
    words what ended it early. `conditions`: one for each group of the plan. `settings`: NCCL's, as the worker
    found them in its environment and in /etc/nccl.conf. `ports`: bytes that each RDMA port and network
    interface sent. `paths`: to the host, one a GPU; `hosts`: PCIe's counters and links meanwhile.
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
    paths: tuple[HostPath, ...] = ()
    hosts: tuple[HostMoved, ...] = ()

    @property
    def shown(self) -> Document:
        """Return the worker's document; an empty document where it wrote none."""
        return self.document or Document("wirewatch.worker/1", self.plan.engine)


@dataclass(frozen=True, slots=True)
class PathBytes:
    """Bytes that a GPU had to send in a part of the probe, and those that its NVLink counters show."""

    part: str
    gpu: int
    due: float
    sent: int | None
    received: int | None

    @property
    def share(self) -> float | None:
        """Return the share that was sent of the bytes that were due."""
        return None if self.sent is None or not self.due else self.sent / self.due


ON, OFF = "with GPUDirect", "without GPUDirect"
"""Names of runs that stand side by side."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`difference`: the share by which the busbw of `run` differs from that of `against`.

    `spread` and `against_spread`: of single timed runs, highest less lowest as a share of the mean, null
    where they were not timed one by one. `beyond_spread`: whether it is more than both, null where one is
    not known.
    """

    op: str
    size_bytes: int
    gpus: str
    run: str
    against: str
    difference: float
    spread: float | None
    against_spread: float | None
    beyond_spread: bool | None


@dataclass(frozen=True, slots=True)
class PastProbe:
    """A probe in short; `worst_ratio`: the lowest of busbw to expected busbw, null where none is known."""

    at: float
    outcome: str
    why: str
    forced: bool
    engine: str
    seconds: float
    worst_ratio: float | None


def encode_plan(plan: Plan) -> str:
    """The plan as one line of JSON."""
    return json.dumps(asdict(plan))


def decode_plan(line: str) -> Plan:
    """Return the plan in a line of `encode_plan`; ValueError or TypeError for another line."""
    try:
        members: Any = json.loads(line)
    except RecursionError as error:
        raise ValueError(f"not a plan: {line[:80]!r}") from error
    if not isinstance(members, dict):
        raise TypeError(f"not a plan: {line[:80]!r}")
    cases = tuple(Case(**case) for case in members.pop("cases", ()))
    met = members.pop("meeting", None)
    meeting = None if met is None else Meeting(**met)
    return Plan(cases=cases, meeting=meeting, **{name: _frozen(value) for name, value in members.items()})


def encode_document(document: Document) -> bytes:
    """Return the document as JSON; ValueError for a time that is not finite."""
    return json.dumps(asdict(document), allow_nan=False).encode()


def rounds(count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return a tournament: rounds of disjoint pairs in which each of `count` meets each other once."""
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    half = len(seats) // 2
    played = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        played.append(tuple((a, b) for a, b in pairs if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(played)


def wrong_in_document(document: Document, plan: Plan) -> str:
    """Return the first mismatch between a worker's document and its plan; empty if all fits.

    A document that passes can be used. Its positions exist and its times are above 0. Without an error it has
    all measurements that the engine offers.
    """
    gpus = range(len(plan.gpus))
    timed = Counter((t.group, t.op, t.size_bytes) for t in document.collectives)
    copied = [(c.source, c.destination) for c in document.copies]
    alone = [m.gpu for m in document.micros]
    hosts = [one.gpu for one in document.hosts]
    asked = Counter(
        (g, op, size) for g in range(len(plan.groups)) for op in plan.ops for size in plan.sizes()
    )
    # An engine that can launch in one way alone measures two cases that differ in that alike.
    asked.update((case.group, case.op, case.size_bytes) for case in plan.cases)
    times = (
        *(t.seconds for t in document.collectives), *(c.seconds for c in document.copies),
        *(m.copy_seconds for m in document.micros),
        *(t for h in document.hosts for t in (h.to_device, h.to_device_low, h.from_device, h.both)),
        *(t for h in document.hosts for t in (h.from_device_low, h.all_to_device, h.all_from_device)),
    )  # fmt: skip
    checks = {
        f"engine {document.engine}": document.engine == plan.engine,
        "collectives that were not asked for": asked.keys() >= timed.keys(),
        "GPUs that are not there": all(
            p in gpus for p in (*alone, *hosts, *(p for pair in copied for p in pair))
        ),
        "the same twice": timed <= asked
        and all(len(keys) == len(set(keys)) for keys in (copied, alone, hosts)),
        "host links of another size": all(one.size_bytes == plan.host_bytes for one in document.hosts),
        "host links that were asked for are missing": document.error is not None
        or sorted(hosts) == [*(gpus if plan.host_bytes and not document.no_hosts else ())],
        "collectives that were asked for are missing": document.error is not None
        or all(timed[key] == n for key, n in asked.items() if key[1] not in document.not_offered),
        "a time that is not above 0": min(times, default=1.0) > 0,
    }
    return next((what for what, good in checks.items() if not good), "")


def wrong_in_probed(probed: Probed) -> str:
    """Return the first mismatch in a probe read from disk or from another process; empty if all fits."""
    plan, count = probed.plan, len(probed.plan.gpus)
    positions = [
        *(m.gpu for part in probed.parts for m in part.moved),
        *(one.gpu for one in probed.links),
        *(one.gpu for one in probed.clocks),
        *(one.gpu for one in probed.hosts),
        *(position for group in plan.groups for position in group),
    ]
    checks = {
        "GPUs that are not there": all(position in range(count) for position in positions),
        "GPUs that the plan does not have": not probed.gpus or len(probed.gpus) == count,
        "ways to the host of other GPUs": len(probed.paths) in {0, count},
        "conditions of other groups": not probed.gpus or len(probed.conditions) == len(plan.groups),
        "a group without GPUs": all(plan.groups),
    }
    found = next((what for what, good in checks.items() if not good), "")
    return found or ("" if probed.document is None else wrong_in_document(probed.document, plan))


def _frozen(value: object) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value
