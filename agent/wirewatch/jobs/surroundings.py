"""Hand values between running jobs and the rest of the node.

Jobs are judged in their surroundings: the knowledge of other components about the wires. The newest hint of a
job makes a probe due.

A slow wire of a job alone is a hint: compute beside collectives slows them too. This module decides which
faults confirm it: of links, of PCIe, of the probe, of the way between GPUs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from wirewatch.collectors.gpu import GpuFacts
from wirewatch.collectors.nvlink import NvlinkFacts
from wirewatch.core.collector import AnyCollector, NodeState
from wirewatch.core.jobs import RingState
from wirewatch.core.ports import Hardware
from wirewatch.core.statistics import grouped
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent, Health, Ok, Why, value_or
from wirewatch.jobs import ledger, lockstep, running
from wirewatch.jobs.apart.process import Watcher, apart
from wirewatch.jobs.bursts import BurstFacts
from wirewatch.jobs.hangs import HangFacts, HangKind
from wirewatch.jobs.ledger import CountedCommunicator, GpuActivity, LedgerSurroundings, TimedJob
from wirewatch.jobs.lockstep import LockstepFacts
from wirewatch.jobs.running import JobSurroundings, NvlinkSent, Witness
from wirewatch.jobs.times import CommunicatorTimes, JobsFacts, RunningJob, TimesDoubt
from wirewatch.verdict.node import LIVE, Judged, Verdict


def newest_hint(state: NodeState) -> float | None:
    """Return when a hint was last seen, in monotonic seconds, by all collectors of jobs; None for never."""
    lockstep, bursts, jobs = state.facts(LockstepFacts), state.facts(BurstFacts), state.facts(JobsFacts)
    hints = [None if known is None else known.last_hint for known in (bursts, jobs)]
    seen = [hint.mono for hint in hints if hint is not None]
    if lockstep is not None and lockstep.last_hint is not None:
        seen.append(lockstep.last_hint.last.mono)
    return max(seen, default=None)


WITNESSES = (
    "nvlink.*", "pcie.*", "xid.*", "sxid.*", "gpu.throttle", "topology.nvlink_*", "topology.island",
    "topology.pcie_*", "topology.numa", "probe.busbw", "probe.slower",
    "probe.implausible", "probe.transport", "probe.nvls", "probe.path", "probe.uneven", "probe.link_errors",
    "straggler.source", "straggler.destination", "straggler.pair", "straggler.node",
)  # fmt: skip
"""Rules of findings that say of a wire between GPUs that it is slow, or why it may be.

Rules of NICs and of replaced GPUs are not among them: they slow no wire between the GPUs here."""
MOST = 8
"""Witnesses that are handed on, the worst first."""
_CONTRADICT = frozenset({TimesDoubt.TWICE, TimesDoubt.UNLIKE, TimesDoubt.SAME_GPU})
"""Rings whose counts cannot be compared."""
_FAULTY = frozenset({Health.DEGRADED, Health.FAILED})
_NOT_YET = Absent(Why.MISSING, "the topology is not read yet")
_NO_LINK = Absent(Why.MISSING, "no link is up")


def surroundings(
    state: NodeState, verdict: Verdict, links: int | None, pins: Mapping[str, float]
) -> JobSurroundings:
    """Return the facts of a node's components by now; `links`, `pins`: as the operator states them."""
    topology, nvlink = state.facts(Topology), state.facts(NvlinkFacts)
    now = known.now if (known := state.facts(GpuFacts)) else {}
    held = grouped((pid, uuid) for uuid, one in now.items() for pid in value_or(one.pids, ()))
    return JobSurroundings(
        topology=_NOT_YET if topology is None else topology,
        link_rate=_NO_LINK if nvlink is None else _rate(nvlink),
        links=links,
        pins=pins,
        nvlink=_sent(state),
        witnesses=tuple(witnesses(verdict))[:MOST],
        gpus={pid: gpus[0] for pid, gpus in held.items() if len(gpus) == 1},
    )


def ledger_surroundings(state: NodeState) -> LedgerSurroundings:
    """Return what a node's components know of running jobs by now, for the waiting ledger."""
    jobs, hangs, steps = state.facts(JobsFacts), state.facts(HangFacts), state.facts(LockstepFacts)
    made, sent = LedgerSurroundings(), _sent(state)
    if sent.sent:
        made = replace(made, sent=sent.sent, sent_at=sent.mono)
    if jobs is not None:
        made = replace(made, jobs=tuple(map(_timed, (j for j in jobs.jobs if j.live))), counted=jobs.mono)
    if hangs is not None:
        # A hang that is only suspected is what GPUs look like: nobody has said that they communicate.
        hanging = tuple(tuple(one.processes) for one in hangs.now if one.kind is not HangKind.SUSPECTED)
        made = replace(made, owners=hangs.owners, hanging=hanging)
    outcome = state.components[lockstep.NAME].outcome if steps is not None else None
    if steps is not None and isinstance(outcome, Ok):
        activity = {key: GpuActivity(one.seconds, one.graphics, one.sm) for key, one in steps.windows.items()}
        in_step = tuple(steps.windows) if steps.in_step else ()
        made = replace(made, activity=activity, seen=outcome.mono, in_step=in_step)
    return made


def _sent(state: NodeState) -> NvlinkSent:
    """Return the bytes that GPUs have sent over NVLink, as they were counted last."""
    facts = state.facts(NvlinkFacts)
    outcome = state.components["nvlink"].outcome if "nvlink" in state.components else None
    return NvlinkSent(outcome.mono, facts.sent) if isinstance(outcome, Ok) and facts else NvlinkSent()


def _timed(job: RunningJob) -> TimedJob:
    spans: dict[str, tuple[float, float]] = {}
    for one in job.communicators:
        if one.fresh and one.newest is not None:
            begin, end = one.newest.started, one.newest.started + one.newest.seconds
            for gpu in (str(rank.gpu) for rank in one.here):
                known = spans.get(gpu, (begin, end))
                spans[gpu] = min(begin, known[0]), max(end, known[1])
    gpus = {one.gpu: replace(one, calls={}, bytes={}) for one in job.gpus}
    untimed = (one for one in job.communicators if one.sends or one.captured)
    partly = frozenset(str(rank.gpu) for one in untimed for rank in one.here)
    linked = (one.here for one in job.communicators if one.doubt not in _CONTRADICT)
    return TimedJob(
        job.name, job.pids, tuple(_counted(job.communicators)), gpus, spans, partly,
        tuple(tuple(str(rank.gpu) for rank in here) for here in linked),
    )  # fmt: skip


def _counted(some: Iterable[CommunicatorTimes]) -> Iterator[CountedCommunicator]:
    """Yield running communicators whose ranks here count the same calls."""
    for one in some:
        here = [replace(rank, settings={}) for rank in one.here if rank.state is not RingState.FINALIZED]
        live = any(rank.state is RingState.LIVE for rank in here)
        if live and not one.source and one.doubt not in _CONTRADICT:
            yield CountedCommunicator(one.id, tuple(here))


def witnesses(verdict: Verdict) -> Iterator[Witness]:
    """Faults that hold now and would slow a wire, worst first."""
    for one in verdict.every:
        found = one.finding
        counts = one.stage == LIVE and found.health in _FAULTY
        if counts and any(fnmatchcase(found.rule, name) for name in WITNESSES):
            yield Witness(found.rule, found.subject, found.evidence)


def with_surroundings(
    collector: AnyCollector, node: Callable[[], Judged | None], links: int | None, pins: Mapping[str, float],
    watcher: Watcher | None = None,
) -> AnyCollector:  # fmt: skip
    """Return a collector as this node runs it.

    Some collectors of jobs judge by what `node` shows when they read. Collectors that do not gate run in the
    watcher's process where there is one.
    """
    wants: Mapping[str, Callable[[Judged], object]] = {
        running.NAME: lambda judged: surroundings(judged.state, judged.verdict, links, pins),
        ledger.NAME: lambda judged: ledger_surroundings(judged.state),
    }
    made = wants.get(collector.name)

    def around() -> object | None:
        judged = None if made is None else node()
        return None if made is None or judged is None else made(judged)

    def read(hardware: Hardware, memory: Any, options: Any) -> object:
        reading, now = collector.read(hardware, memory, options), around()
        return reading if isinstance(reading, Absent) or now is None else replace(reading, around=now)

    if watcher is not None and not collector.gates:
        return apart(collector, watcher, around)
    return replace(collector, read=read) if made is not None else collector


def _rate(nvlink: NvlinkFacts) -> float | Absent:
    """Bytes per second of a link each way, as most links that are up show it."""
    speeds = [link.speed for links in nvlink.links.values() for link in links]
    seen = Counter(speed for speed in speeds if not isinstance(speed, Absent) and speed > 0)
    return seen.most_common(1)[0][0] if seen else _NO_LINK
