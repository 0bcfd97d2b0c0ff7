"""The node's topology against its baseline, as a component; it is learned where there is none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wirewatch.collectors.topology import read_topology
from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import Collector, Options
from wirewatch.core.ports import Hardware
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Sample, Subject, Tier, family
from wirewatch.verdict.drift.baseline import BASELINE, Baseline, against_given, findings_hold, why_not
from wirewatch.verdict.drift.canonical import given_away, graph_of, lent, physical, unlisted, with_away
from wirewatch.verdict.drift.change import RULES
from wirewatch.verdict.drift.watch import DriftPolicy, DriftWatch, counts, findings, fold_drift
from wirewatch.verdict.drift.wiring import Graph

NAME = "drift"
DRIFT = family(
    "topology_drift", ("kind",),
    "Changes since the accepted baseline that no operator has accepted, by kind, information included.",
    "all but lost links of NVSwitch boards", tier=Tier.CORE,
)  # fmt: skip
AGE = family(
    "topology_baseline_timestamp_seconds",
    (),
    "When the topology that this node is compared with was accepted or learned; 0 for not yet.",
    undrawn="`wirewatch topology` says it",
)
METRICS = (DRIFT, AGE)


@dataclass(frozen=True, slots=True)
class DriftOptions(Options):
    """The comparison of the topology with its baseline."""

    interval: Seconds = 300.0
    baseline: str = ""
    """File of `wirewatch topology show --json` that this node must be like, "" to learn the baseline."""


class BaselineHolder(Protocol):
    """Keeps the baseline over restarts; `trouble` says why what was kept cannot be used."""

    @property
    def baseline(self) -> Baseline | None: ...

    @property
    def trouble(self) -> str: ...

    def put(self, baseline: Baseline, over: Baseline | None) -> bool:
        """Put a baseline in the place of `over`; False, and nothing happens, where another baseline holds."""

    def reject(self, baseline: Baseline | None, trouble: str) -> None:
        """Drop a baseline that is not of this node; nothing happens where another baseline holds."""


class BaselineInMemory:
    """Holds the baseline while this process lives; begins with a baseline read from a file."""

    def __init__(self, baseline: Baseline | None = None, trouble: str = "") -> None:
        self.baseline, self.trouble = baseline, trouble

    def put(self, baseline: Baseline, over: Baseline | None) -> bool:
        if self.baseline is not over:
            return False
        self.baseline, self.trouble = baseline, ""
        return True

    def reject(self, baseline: Baseline | None, trouble: str) -> None:
        if self.baseline is baseline:
            self.baseline, self.trouble = None, trouble


@dataclass(frozen=True, slots=True)
class DriftContext:
    """`given`: the operator's baseline of the product. `troubles`: rules of what is wrong on the node."""

    keeps: BaselineHolder = field(default_factory=BaselineInMemory)
    given: Graph | None = None
    troubles: Callable[[], Sequence[str]] = tuple
    foreign: Callable[[Baseline, Graph], str] = lambda _baseline, _graph: ""


@dataclass(frozen=True, slots=True)
class DriftReading:
    """The topology now, and what it is compared with; `away`: keys of parts that a pod or a guest was given.

    `before`: another reading just before, at the start of a daemon: what was FAILED when it ended must not be
    ready until the second reading. `lent`: how many such GPUs and NICs there are, for a product's baseline.
    `unlisted`: what the PCI tree shows of parts that the topology lacks.
    """

    topology: Topology
    baseline: Baseline | None = None
    away: frozenset[str] = frozenset()
    trouble: str = ""
    troubles: tuple[str, ...] = ()
    before: Topology | None = None
    lent: tuple[int, int] = (0, 0)
    unlisted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriftMemory:
    """The `baseline` from now on, the previous `read`, why it is `foreign`, and `doubts` of the reading."""

    watch: DriftWatch = field(default_factory=DriftWatch)
    baseline: Baseline | None = None
    read: Baseline | None = None
    foreign: str = ""
    doubts: tuple[str, ...] = ()


def drift_component(
    options: DriftOptions, policy: DriftPolicy, around: DriftContext
) -> Collector[DriftReading, DriftMemory, DriftOptions, DriftPolicy]:
    return Collector(
        name=NAME,
        about="the topology against the one that was accepted",
        lane="nvml",
        options=options,
        policy=policy,
        metrics=METRICS,
        start=DriftMemory(),
        read=lambda hardware, state, _options: _read(hardware, state, around),
        samples=samples,
        judge=lambda state, ok, used, expect: _judge(state, ok, used, expect, around),
        applicable=lambda reading: bool(reading.topology.gpus),
        rules=RULES,
        series=20,
    )


def _read(hardware: Hardware, state: DriftMemory, around: DriftContext) -> DriftReading | Absent:
    """The topology now; at the start of a daemon, with a baseline, also as it was just before."""
    keeps = around.keeps
    keep(keeps, state)
    baseline, sysfs = keeps.baseline, hardware.sysfs
    readings = [read_topology(hardware)]
    if state.watch.graph is None and baseline is not None:
        readings.append(read_topology(hardware))
    good = [physical(sysfs, topology) for topology in readings if not isinstance(topology, Absent)]
    if len(good) < len(readings):
        return next(topology for topology in readings if isinstance(topology, Absent))
    away = frozenset[str]() if baseline is None else given_away(sysfs, good[-1], baseline.graph)
    before = good[0] if len(good) > 1 else None
    given_to = (0, 0) if around.given is None else lent(sysfs, good[-1])
    return DriftReading(
        good[-1], baseline, away, keeps.trouble, tuple(around.troubles()), before, given_to,
        unlisted(sysfs, good[-1]),
    )  # fmt: skip


def _judge(
    state: DriftMemory, ok: Ok[DriftReading], policy: DriftPolicy, expect: Expect, around: DriftContext
) -> tuple[DriftMemory, tuple[Finding, ...]]:
    reading, baseline = ok.value, ok.value.baseline
    graphs = [_graph(one, reading) for one in (reading.before, reading.topology) if one is not None]
    graph = graphs[-1]
    foreign = "" if baseline is None else around.foreign(baseline, graph)
    compared, watch, new = None if foreign else baseline, state.watch, None
    doubts = why_not(graph_of(reading.topology), expect, reading.unlisted)
    against = (*findings_hold(reading.troubles), *doubts)
    for one in graphs:
        watch, new = fold_drift(watch, compared, one, ok.at, against, policy, reading.away)
    found = [] if compared is None else list(findings(watch, compared, policy, ok.at))
    if around.given is not None:
        found += against_given(around.given, graph_of(reading.topology), reading.lent)
    trouble = foreign or reading.trouble
    if trouble and new is None:
        action = "read the file named here; `wirewatch topology accept` accepts what is there now"
        found.append(Finding(BASELINE, Health.UNKNOWN, Subject(), trouble, action))
    return DriftMemory(watch, new or compared, baseline, foreign, doubts), tuple(found)


def keep(keeps: BaselineHolder, state: DriftMemory) -> None:
    """Keep what the last reading found out about the baseline that it was compared with."""
    if state.foreign:
        keeps.reject(state.read, state.foreign)
    if state.baseline is not None and state.baseline is not state.read:
        keeps.put(state.baseline, None if state.foreign else state.read)


def _graph(topology: Topology, reading: DriftReading) -> Graph:
    graph, baseline = graph_of(topology), reading.baseline
    return graph if baseline is None else with_away(graph, baseline.graph, reading.away)


def samples(_reading: DriftReading, state: DriftMemory) -> Iterator[Sample]:
    """Changes by kind, and the time of the baseline (Unix seconds, 0 for none)."""
    for kind, count in counts(state.watch).items():
        yield DRIFT.sample(count, kind.value)
    yield AGE.sample(state.baseline.said.at if state.baseline else 0)
