"""The values of the probe's component: options, policy, reading and memory; the budget of GPU-seconds."""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt, Le
from pydantic import Field

from wirewatch.core.amounts import TIME, Bytes, Seconds
from wirewatch.core.collector import Options
from wirewatch.core.probe import OPS, PastProbe, Plan, Probed
from wirewatch.core.statistics import Streak
from wirewatch.core.types import Absent, Finding, Health, Subject, whole
from wirewatch.probe.gate import GateFacts, GateLimits, Refusal, SkipReason, Stillness
from wirewatch.probe.history import HistoryCursor
from wirewatch.probe.holds import FOLDER
from wirewatch.probe.measurement import CollectiveRates, Measured
from wirewatch.verdict.straggler.naming import StragglerWatch
from wirewatch.verdict.straggler.signals import StragglerPolicy

GIB = 1 << 30
ELEMENT = 4
"""Bytes of a float32."""
_DEFAULT = Plan("", (), ())
_SIZES = "sizes are multiples of 4 B, each once, runs are above 0"


@dataclass(frozen=True, slots=True)
class NicsOptions(Options):
    """Probes of NICs: NCCL between two GPUs over one port of this node at a time (docs/studies.md).

    Gate, engine and limits are those of `[probe]`.
    """

    enabled: bool = False
    """Whether NICs are probed; `[probe]` must be enabled too."""
    interval: Seconds = 60.0
    deadline: Seconds = 120.0
    """Time after which a probe is overdue; above `kill_after` of `[probe]`. [seconds]"""
    probe_interval: Annotated[float, Gt(0), TIME] = 86400.0
    """Time between two probes of one port, with GPUDirect RDMA and without it. [seconds]"""
    budget: Annotated[float, Gt(0), Le(1)] = 0.002
    """Share of the GPUs' time that these probes may hold, beside that of `[probe]`. [share]"""
    interfaces: tuple[Annotated[str, Field(pattern=r"^[^:/,=^\s]{1,15}$")], ...] = ()
    """Network interfaces to probe too, over sockets.

    Inside one network namespace the kernel turns such traffic around, and nothing is measured.
    """

    @property
    def longest(self) -> float:
        """Return the longest time of one run: a look, and now and then a probe."""
        return self.probe_interval


@dataclass(frozen=True, slots=True)
class ProbeOptions(Options):
    """How probes run."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    interval: Seconds = 30.0
    """Time from one look at the GPUs, whether a probe may run, to the next. [seconds]"""
    deadline: Seconds = 120.0
    """Time after which a probe is overdue; above `kill_after`. [seconds]"""
    engine: Literal["auto", "nccl", "torch", "distributed", "gloo"] = "auto"
    """What runs the collectives; `auto` takes nccl where it is installed, else torch."""
    probe_interval: Seconds = 600.0
    """Time between two probes. [seconds]"""
    jitter: float = 0.1
    """Share of `probe_interval` by which that time varies, so that nodes do not probe in step. [share]"""
    settle: Seconds = 120.0
    """Time for which the GPUs must have been left alone before a probe. [seconds]"""
    budget: float = 0.01
    """Share of the GPUs' time that probes may hold. [share]"""
    kill_after: Seconds = 60.0
    """Time after which a worker is killed. [seconds]"""
    fresh: Seconds = 7200.0
    """Age from which on a result is old and withdrawn. [seconds]"""
    ops: tuple[str, ...] = OPS
    """Collectives of a probe."""
    bandwidth: tuple[tuple[Bytes, int], ...] = _DEFAULT.bandwidth
    """Pairs of message size in bytes and number of runs, for bandwidth."""
    latency_sizes: tuple[Bytes, ...] = _DEFAULT.latency_sizes
    """Message sizes for latency. [bytes]"""
    copies: bool = True
    """Whether a probe copies between all pairs of GPUs."""
    micro: bool = True
    """Whether a probe multiplies matrices and copies within each GPU."""
    host_links: bool = True
    """Whether a probe copies between each GPU and pinned memory of the host."""
    unseen_bytes: Bytes = 2 * GIB
    """Memory in use on a GPU, by no process that can be seen, from which on the GPU is busy. [bytes]"""
    free_bytes: Bytes = 3 * GIB
    """Memory that must be free on each GPU. [bytes]"""
    pins: dict[str, float] = field(default_factory=dict)
    """Bus bandwidth of a healthy node, if you know it.

    By collective (`all_reduce`, of ever larger messages) or by collective and size (`all_reduce@268435456`).
    [bytes/s]
    """
    ranks: int = 4
    """Processes of the engine gloo, which needs no GPU."""
    prober: str = ""
    """Socket of `wirewatch prober`, where that runs the probes; "" where the agent runs them itself."""
    nics: NicsOptions = field(default_factory=NicsOptions)
    """Probes of NICs: the table below."""

    holds: str = FOLDER
    """Folder in which schedulers hold probes off, "" for none: docs/giving-way.md."""

    @property
    def longest(self) -> float:
        """Return the longest time of one run: a look, and now and then a probe."""
        return self.probe_interval

    def wrong(self) -> str:
        """Return the first value that cannot be used, in words; empty when all can."""
        above = {
            "interval": self.interval, "deadline": self.deadline, "probe_interval": self.probe_interval,
            "kill_after": self.kill_after, "fresh": self.fresh,
        }  # fmt: skip
        room = {"unseen_bytes": self.unseen_bytes, "free_bytes": self.free_bytes}
        checks = (
            (unknown_ops(self.ops), f"ops are {', '.join(OPS)}, each once"),
            ([name for name, value in above.items() if not 0 < value < math.inf], "must be above 0"),
            ([self.jitter] if not 0 <= self.jitter < 1 else [], "jitter must be from 0 to below 1"),
            ([self.budget] if not 0 < self.budget <= 1 else [], "budget must be above 0 and at most 1"),
            (["settle"] if not 0 <= self.settle < math.inf else [], "must not be below 0"),
            (bad_sizes(self.latency_sizes, self.bandwidth), _SIZES),
            ([name for name, value in room.items() if value < 0], "must not be below 0"),
            ([self.ranks] if self.ranks < 1 else [], "ranks must be above 0"),
            (bad_pins(self.pins), "pins are named OP or OP@BYTES and above 0 B/s"),
            (["deadline"] if self.deadline <= self.kill_after else [], "must be above kill_after"),
            (["nics.deadline"] if self.nics.deadline <= self.kill_after else [], "must be above kill_after"),
            (["nics.interval"] if self.nics.interval <= 0 else [], "must be above 0"),
        )
        return "; ".join(f"{text}: {bad[0]!r}" for bad, text in checks if bad)

    def limits(self) -> GateLimits:
        """Return the limits of the gate."""
        return GateLimits(self.settle, self.unseen_bytes, self.free_bytes)


@dataclass(frozen=True, slots=True)
class ProbePolicy:
    """When what a probe finds is a fault."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    ratio: float = 0.7
    """Least share of the expected bus bandwidth (ADR 0008).

    Where nothing is expected, less than this share of the lowest accepted probe is FAILED. [share]
    """
    usual: float = 0.85
    """Least share of what accepted probes of this node gave (ADR 0028). [share]"""
    learn: int = 10
    """Accepted probes that make that usual value."""
    wire: float = 0.25
    """Least share of the wire that is plausible where nothing is expected.

    It holds for NVLink between every two GPUs; half of it is FAILED. [share]
    """
    wire_pcie: float = 0.05
    """The same over any other wire. [share]"""
    confirm: int = 2
    """Probes in a row that must find the same before it is FAILED."""
    failures: int = 3
    """Probes in a row that could not be done before that is a finding."""
    path: float = 0.1
    """How far NVLink's bytes may be from those of the algorithm. [share]"""
    uneven: float = 0.2
    """How far a link's bytes may be from the mean of its GPU. [share]"""
    straggler: StragglerPolicy = field(default_factory=StragglerPolicy)
    """When a part is slow: the table below."""

    def wrong(self) -> str:
        """Return the first value that cannot be used, in words; empty when all can."""
        counts = {"confirm": self.confirm, "failures": self.failures, "learn": self.learn}
        parts = {
            "ratio": self.ratio, "usual": self.usual, "wire": self.wire, "wire_pcie": self.wire_pcie,
            "path": self.path, "uneven": self.uneven,
        }  # fmt: skip
        checks = (
            ([name for name, value in counts.items() if value < 1], "must be above 0"),
            ([name for name, value in parts.items() if not 0 < value <= 1], "must be above 0 and at most 1"),
        )
        wrong = [f"{text}: {bad[0]!r}" for bad, text in checks if bad]
        inner = self.straggler.wrong()
        return "; ".join([*wrong, *([f"straggler: {inner}"] if inner else [])])


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """A finding of one probe, before another confirms it.

    `worst`: its health once confirmed; `sure`: believed at once.
    """

    rule: str
    subject: Subject
    worst: Health
    evidence: str
    action: str
    sure: bool = False


HOUR = 3600.0
Spent = tuple[tuple[float, float], ...]
"""A time (monotonic seconds) and the GPU-seconds held."""
Key = tuple[str, Subject, Health]
"""Rule, subject, and health once confirmed: an inconclusive probe confirms nothing worse."""


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """One reading of the gate, and the probe that ran when it was open. `engine`: the engine for `auto` here.

    `late`: the refusal came after Slurm, the topology or the lock was asked, which is not done each turn.
    `others`: probes that other processes ran earlier, each with its end (monotonic seconds). `seen`: the
    newest row of the history that was looked at, None where there is none.
    """

    facts: GateFacts
    still: Stillness
    engine: str | Absent
    due: bool
    refusal: Refusal | None
    probed: Probed | None = None
    late: bool = False
    others: tuple[tuple[Probed, float], ...] = ()
    seen: HistoryCursor | None = None


@dataclass(frozen=True, slots=True)
class ProbeMemory:
    """`last`: the newest probe that came to its end, at `last_mono` seconds, and its measurements.

    `tried`: the newest at all, at `tried_mono`.

    `streaks` count probes in a row with the same fault; `unconfirmed`: another probe would show more;
    `failures`: probes in a row that could not be done. `past`: the newest probes in short, newest last.
    `held`: findings of the newest complete probe, which stay while none can run. `stragglers`: slow parts,
    and the history that judges them. `usual`: that of collectives. `gpu_seconds` since start. `skipped`: when
    (monotonic seconds) each reason was last counted. `late`: the time and reason of a refusal after all
    sources were asked. `completed`: probes since start that came to their end and count. `clean`: the newest
    of them was of GPUs and found nothing. `holds`: the last holders. `fresh_until`: monotonic seconds at
    which its results are withdrawn. `seen`: the newest row of the history that is in here.
    """

    still: Stillness = field(default_factory=Stillness)
    last: Probed | None = None
    last_mono: float | None = None
    measured: tuple[Measured, ...] = ()
    tried_mono: float | None = None
    tried: Probed | None = None
    runs: Mapping[str, int] = field(default_factory=dict)
    skips: Mapping[SkipReason, int] = field(default_factory=dict)
    skipped: Mapping[SkipReason, float] = field(default_factory=dict)
    late: tuple[float, Refusal] | None = None
    gpu_seconds: float = 0.0
    spent: Spent = ()
    streaks: Mapping[Key, Streak] = field(default_factory=dict)
    unconfirmed: bool = False
    failures: int = 0
    held: tuple[Finding, ...] = ()
    stragglers: StragglerWatch = field(default_factory=StragglerWatch)
    usual: CollectiveRates = field(default_factory=CollectiveRates)
    refusal: Refusal | None = None
    engine: str | Absent = ""
    fresh: bool = False
    fresh_until: float | None = None
    completed: int = 0
    clean: bool = False
    seen: HistoryCursor | None = None
    past: tuple[PastProbe, ...] = ()
    holds: tuple[str, ...] = ()

    def count(self) -> int:
        """Probes so far, however they ended."""
        return sum(self.runs.values())


def unknown_ops(ops: tuple[str, ...]) -> list[str]:
    """Return ops that no engine runs, or that are named twice; one entry if there is no op at all."""
    return [op for op in ops if op not in OPS or ops.count(op) > 1] or ([] if ops else ["none"])


def bad_sizes(latency: tuple[int, ...], bandwidth: tuple[tuple[int, int], ...]) -> list[object]:
    """Return sizes (bytes) that are no whole elements or stand twice, and sizes with fewer than one run."""
    every = [*latency, *(size for size, _ in bandwidth)]
    found: list[object] = [size for size in every if size < ELEMENT or size % ELEMENT]
    # Two results of one size would be one series.
    found += sorted({size for size in every if every.count(size) > 1})
    return found + [list(b) for b in bandwidth if b[1] < 1]


def bad_pins(pins: dict[str, float]) -> list[str]:
    """Return names of pins that are not OP or OP@BYTES, or whose bytes per second are not above 0."""

    def good(name: str) -> bool:
        op, at, size = name.partition("@")
        return op in OPS and (not at or whole(size) is not None)

    return [name for name, value in pins.items() if not good(name) or not 0 < value < math.inf]


def spend(spent: Spent, mono: float, gpu_seconds: float) -> Spent:
    """Return the account with one more probe and without entries over an hour old."""
    return (*((at, amount) for at, amount in spent if mono - at < HOUR), (mono, gpu_seconds))


def left(spent: Spent, mono: float, gpus: int, fraction: float) -> float:
    """GPU-seconds that may still be held within this hour."""
    return max(0.0, gpus * HOUR * fraction - spent_within(spent, mono))


def spent_within(spent: Spent, mono: float) -> float:
    """GPU-seconds held in the last hour."""
    return sum(amount for at, amount in spent if mono - at < HOUR)


def due(last: float, every: float, jitter: float, names: Sequence[str], count: int) -> float:
    """Return when (monotonic seconds) the next probe is due.

    `jitter`: part of `probe_interval` by which it may come earlier or later. The names of the node's GPUs and
    the number of the probe give it, so that nodes that start together do not probe together.
    """
    return last + every * (1 + jitter * (2 * draw(names, count) - 1))


def draw(names: Sequence[str], count: int) -> float:
    """A number from 0 to 1 that is the same for the same names and count."""
    return zlib.crc32(" ".join((*names, str(count))).encode()) / 0xFFFFFFFF
