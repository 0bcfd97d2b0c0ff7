"""The probe's collector: each turn it reads the gate, and runs a due probe if the gate is open."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from wirewatch.core.collector import Collector, Component, Observed, subject
from wirewatch.core.ports import Gpu, Hardware
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Expect, Kind, Metric, Sample, Tier
from wirewatch.nccl.log import TransportWire, wire
from wirewatch.probe import model
from wirewatch.probe.gate import (
    UNPROBEABLE,
    GateFacts,
    Refusal,
    SkipReason,
    Stillness,
    no_gpus,
    read_facts,
    refuse,
    watch_users,
)
from wirewatch.probe.hostlinks import HOST, host_links
from wirewatch.probe.judge import RULES, confirming, judge
from wirewatch.probe.measurement import Measured, comms_of, without_expectation
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy, ProbeReading
from wirewatch.probe.remote import LostOrder, RemoteProber, lost_probe
from wirewatch.probe.setup import DAEMONS, NOTHING_TO_PROBE, ProbeRequest, Variation, prepare
from wirewatch.verdict.straggler.signals import Resource

log = logging.getLogger(__name__)
PROBE_NAME = "probe"
GUESSED_SECONDS = 6.0
"""Assumed seconds of a probe on each GPU, before any probe has run."""
CONFIRM_SECONDS = 60.0
"""Seconds after which a probe that found something new is repeated, to confirm or clear it."""
ANSWERED, IN_TIME = 0.95, 0.8
"""The prober must answer within this part of the turn's deadline; its worker gets this part of the rest."""
ASK_AGAIN_SECONDS = 300.0
"""Seconds until Slurm, the topology and the lock are asked again after a refusal of any of them."""
SOON = 1e-3
"""Seconds between probes while a probe is wanted: the gate and the budget alone decide."""


ProbeCollector = Collector[ProbeReading, ProbeMemory, ProbeOptions, ProbePolicy]


def due_after_hint(collector: ProbeCollector, hinted: Callable[[], float | None]) -> ProbeCollector:
    """Return the probe's collector, due at once after a hint; it waits for idle GPUs as ever.

    `hinted`: when a hint was last seen, monotonic seconds; None for never.
    """

    def read(hardware: Hardware, memory: ProbeMemory, options: ProbeOptions) -> ProbeReading | Absent:
        mono = hinted()
        wanted = mono is not None and (memory.tried_mono is None or memory.tried_mono < mono)
        return collector.read(hardware, memory, replace(options, probe_interval=SOON) if wanted else options)

    return replace(collector, read=read)


@dataclass(frozen=True, slots=True)
class ProbeSummary:
    """The newest complete probe that counts; forced and broken-off probes do not count.

    `at`: when it began, Unix seconds, 0 for never; `age_seconds`: since it ended, None for never; `fresh`:
    whether its results are still valid now. `complete`: such probes since start; `clean`: the newest was of
    GPUs and found nothing at all. `watched`: False once GPUs to probe or an engine are known to be missing
    here. `pointless`: True once it is known that nothing can be probed here. `no_expectation`: collectives of
    that probe without an expected busbw.
    """

    at: float = 0.0
    age_seconds: float | None = None
    fresh: bool = False
    complete: int = 0
    clean: bool = False
    watched: bool = True
    pointless: bool = False
    no_expectation: tuple[str, ...] = ()


OUTCOMES = ("ok", "preempted", "no_engine", "out_of_memory", "failed", "timeout", "garbage", "stuck", "away")
WORST_FIRST: tuple[TransportWire, ...] = (
    "net_socket", "net_other", "unknown", "net_ib", "net_ib_gdr", "shm", "p2p", "nvls",
)  # fmt: skip
DIRECTIONS = ("to_device", "from_device")
STRAGGLER_RULES = "straggler."
OWN_NAMES = {"probe.uneven": Resource.LINK.value, HOST.name: Resource.HOST.value}
"""The rules that name a slow part, and the signals of parts with a name of their own."""
_AT = ("op", "size_bytes", "ranks", "gpus")
_UNPROVEN = "8 GPUs, islands, NVLink SHARP, PCIe and bridges"
BUSBW = Metric(
    "probe_busbw_bytes_per_second", Kind.GAUGE, _AT,
    "Bus bandwidth as nccl-tests counts it, by size of the message; gpus is `all` or indexes.", _UNPROVEN,
    tier=Tier.CORE,
)  # fmt: skip
EXPECTED = Metric(
    "probe_expected_busbw_bytes_per_second", Kind.GAUGE, _AT,
    "What NCCL's defaults should give on this topology at that size; no series where nothing is known.",
    _UNPROVEN,
    tier=Tier.CORE,
)  # fmt: skip
RATIO = Metric(
    "probe_busbw_ratio", Kind.GAUGE, _AT, "Measured over expected at that size; below 0.7 is a fault.",
    _UNPROVEN,
    tier=Tier.CORE,
)  # fmt: skip
PEAK_RATIO = Metric(
    "probe_busbw_peak_ratio", Kind.GAUGE, _AT,
    "Measured over the wire of one GPU each way, also where nothing is expected; "
    "a healthy ring reaches 0.76, NVLink SHARP may exceed 1.",
    _UNPROVEN,
    tier=Tier.CORE,
)  # fmt: skip
KNOWN = Metric(
    "probe_expected_known",
    Kind.GAUGE,
    _AT,
    "1 when something is expected of this collective; 0 when this node's own history and the wire judge it.",
    undrawn="where nothing is expected there is no ratio",
)
LATENCY = Metric(
    "probe_latency_seconds", Kind.GAUGE, ("op", "ranks", "gpus"),
    "Time of the smallest message, launched as a CUDA graph.", _UNPROVEN, tier=Tier.CORE,
)  # fmt: skip
PATH = Metric(
    "probe_path_info", Kind.INFO, ("op", "ranks", "gpus", "transport", "algorithm", "protocol", "engine"),
    "How NCCL sent the largest message, by its log; transport is the worst between two GPUs.", _UNPROVEN,
    tier=Tier.CORE,
)  # fmt: skip
RUNS = Metric(
    "probe_runs_total", Kind.COUNTER, ("result",), "Probes by how they ended, since start.", tier=Tier.CORE
)
SKIPS = Metric(
    "probe_skips_total", Kind.COUNTER, ("reason",),
    "Times a probe was due and did not run; a lasting reason counts once in the time between probes.",
    tier=Tier.CORE,
)  # fmt: skip
HOLDS = Metric(
    "probe_holds", Kind.GAUGE, (), "Holds by which a scheduler keeps probes off GPUs now.",
    unit="holds", undrawn="probe_skips_total with the reason hold is drawn",
)  # fmt: skip
LAST = Metric(
    "probe_last_success_timestamp_seconds",
    Kind.GAUGE,
    (),
    "When the last complete probe began; 0 for never.",
    tier=Tier.CORE,
)
DURATION = Metric(
    "probe_duration_seconds",
    Kind.GAUGE,
    (),
    "How long the newest probe took, from start to its end.",
    tier=Tier.CORE,
)
SECONDS = Metric(
    "probe_gpu_seconds_total", Kind.COUNTER, (),
    "GPU-seconds for which probes held contexts, since start: seconds times GPUs.", tier=Tier.CORE,
)  # fmt: skip
FRESH = Metric(
    "probe_fresh",
    Kind.GAUGE,
    (),
    "1 while the results of the last complete probe are exported.",
    tier=Tier.CORE,
)
PEER = Metric(
    "peer_bandwidth_bytes_per_second", Kind.GAUGE, ("src", "dst"),
    "Copy between the memories of two GPUs by index, while both directions of disjoint pairs run.", _UNPROVEN,
)  # fmt: skip
HOST_LINK = Metric(
    "probe_host_link_bytes_per_second", Kind.GAUGE, ("gpu", "uuid", "direction"),
    "Copy between a GPU and pinned memory of the host near it: to_device, from_device, both (each way at "
    "once), and all_to_device, all_from_device while all GPUs copy, which is less on a shared uplink.",
    "all of it",
)  # fmt: skip
HOST_EXPECTED = Metric(
    "probe_host_link_expected_bytes_per_second", Kind.GAUGE, ("gpu", "uuid", "direction"),
    "What the narrowest PCIe link of the way should carry at most; no series where it is not known well "
    "enough to judge by it.", "all of it", undrawn="the page has it beside what was measured",
)  # fmt: skip
SCORE = Metric(
    "straggler_score", Kind.GAUGE, ("gpu", "uuid", "signal"),
    "How much slower this part of a GPU is than its own history or its peers, in standard deviations of the "
    "noise; what is above 4 and costs enough is a straggler. Below 0 it is faster.", _UNPROVEN,
)  # fmt: skip
STRAGGLER = Metric(
    "straggler", Kind.GAUGE, ("gpu", "uuid", "signal"),
    "1 for a GPU that is believed to be slow, by the part that is; no series where nothing is.", _UNPROVEN,
    tier=Tier.CORE, undrawn="each is a finding",
)  # fmt: skip
METRICS = (
    BUSBW, EXPECTED, RATIO, PEAK_RATIO, KNOWN, LATENCY, PATH, RUNS, SKIPS, HOLDS, LAST, DURATION, SECONDS,
    FRESH, PEER, HOST_LINK, HOST_EXPECTED, SCORE, STRAGGLER,
)  # fmt: skip


def read(
    hardware: Hardware, memory: ProbeMemory, options: ProbeOptions, *, expect: Expect,
    prober: RemoteProber | None = None, variation: Variation = DAEMONS,
) -> ProbeReading | Absent:  # fmt: skip
    """Run one turn: the gate, and a due probe if it may run; `prober` does both where there is one."""
    until = hardware.clock.mono() + ANSWERED * options.deadline
    gpus: Sequence[Gpu] | Absent = () if options.engine == "gloo" else hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    due = hardware.clock.mono() >= next_due(memory, options, gpus)
    if prober is None:
        facts = read_facts(hardware, gpus, slurm=False) if gpus else no_gpus(hardware)
        engine = hardware.probe.engine(options.engine)
        reading = _gate_reading(memory, options, engine, facts, due=due)
    else:
        reading = _read_remote_gate(hardware, prober, memory, options, gpus, until, due=due)
    if due and reading.refusal is None and memory.late is not None:
        asked_at, refusal = memory.late
        if reading.facts.mono - asked_at < ASK_AGAIN_SECONDS:
            reading = replace(reading, refusal=refusal)
    if not due or reading.refusal is not None:
        return reading
    wanted = ProbeRequest(options, "daemon", expect.nvlink_links, variation=variation)
    with hardware.probe.lock() as other:
        if other is not None:
            return replace(reading, refusal=Refusal(SkipReason.LOCKED, other), late=True)
        if prober is None:
            return _run_here(hardware, wanted, reading)
        return _run_remotely(hardware, prober, wanted, reading, until)


def next_due(memory: ProbeMemory, options: ProbeOptions, gpus: Sequence[Gpu]) -> float:
    """Return when (monotonic seconds) the next probe is due.

    The first comes up to `settle` late, so that nodes that were started together do not ask Slurm together.
    """
    if memory.tried_mono is None:
        seen = min(memory.still.since.values(), default=0.0)
        return seen + model.draw([gpu.key for gpu in gpus], 0) * options.settle
    usual = options.probe_interval
    every = min(CONFIRM_SECONDS, usual) if confirming(memory) else usual
    return model.due(memory.tried_mono, every, options.jitter, [gpu.key for gpu in gpus], memory.count())


def applicable(reading: ProbeReading) -> bool:
    """Return whether this node has both GPUs to probe and an engine."""
    return reading.refusal is None or reading.refusal.reason not in NOTHING_TO_PROBE


def probe_collector(
    options: ProbeOptions, policy: ProbePolicy, expect: Expect, start: ProbeMemory | None = None,
    prober: RemoteProber | None = None,
) -> ProbeCollector:  # fmt: skip
    """Return the collector with an earlier daemon's memory; `prober` runs its probes where there is one."""
    return Collector(
        name=PROBE_NAME,
        about="a short run of NCCL's collectives on idle GPUs, against what this topology should give",
        lane="probe",
        options=options,
        policy=policy,
        metrics=METRICS,
        start=start or ProbeMemory(),
        read=partial(read, expect=expect, prober=prober),
        samples=samples,
        judge=lambda memory, ok, used, _expect: judge(options, memory, ok, used),
        applicable=applicable,
        rules=RULES,
        series=254,
        observed=observed,
    )


def probe_summary(component: Component | None, mono: float) -> ProbeSummary | None:
    """Return the state of the probe's component at `mono`, monotonic seconds; None where probing is off."""
    if component is None or not isinstance(component.memory, ProbeMemory):
        return None
    return summary_of(component.memory, mono, watched=component.applicable is not False)


def summary_of(memory: ProbeMemory, mono: float, *, watched: bool = True) -> ProbeSummary:
    """Return the state in a memory at `mono`, monotonic seconds."""
    pointless = memory.refusal is not None and memory.refusal.reason in UNPROBEABLE
    never = ProbeSummary(complete=memory.completed, watched=watched, pointless=pointless)
    if memory.last is None or memory.last_mono is None:
        return never
    # Asked of the clock: a component that turns no more would be fresh for ever.
    fresh = memory.fresh_until is not None and mono <= memory.fresh_until
    return replace(
        never, at=memory.last.at, age_seconds=max(0.0, mono - memory.last_mono), fresh=fresh,
        clean=memory.clean, no_expectation=without_expectation(memory.measured),
    )  # fmt: skip


def observed(reading: ProbeReading, _memory: ProbeMemory) -> Observed:
    """Return the GPUs that the gate saw; findings of a probe on them stand until the next probe."""
    return Observed(frozenset(subject(use.gpu) for use in reading.facts.uses), frozenset())


def samples(reading: ProbeReading, memory: ProbeMemory) -> Iterator[Sample]:
    """Series of the runs and skips, and of the newest complete probe while it is fresh."""
    for outcome in OUTCOMES:
        yield RUNS.sample(memory.runs.get(outcome, 0), outcome)
    for reason in SkipReason:
        yield SKIPS.sample(memory.skips.get(reason, 0), reason.value)
    if not isinstance(reading.facts.holds, Absent):
        yield HOLDS.sample(len(reading.facts.holds))
    yield LAST.sample(memory.last.at if memory.last else 0)
    yield SECONDS.sample(memory.gpu_seconds)
    yield FRESH.sample(memory.fresh)
    if memory.tried is not None:
        yield DURATION.sample(memory.tried.seconds)
    # For as long as its finding is held, since no probe runs while GPUs are busy.
    for found in memory.held:
        signal = OWN_NAMES.get(found.rule) or found.rule.removeprefix(STRAGGLER_RULES)
        if found.subject.uuid and signal != found.rule:
            yield STRAGGLER.sample(1, found.subject.gpu, found.subject.uuid, signal)
    last = memory.last if memory.fresh else None
    if last is not None:
        yield from results(last, memory.measured)
        places = {gpu.uuid: str(gpu.index) for gpu in last.gpus}
        for unit, score in memory.stragglers.named.scores.items():
            if unit.uuid in places:
                yield SCORE.sample(score, places[unit.uuid], unit.uuid, unit.resource.value)


def results(probed: Probed, measured: Sequence[Measured]) -> Iterator[Sample]:
    """Return the series of the results of one complete probe."""
    for one in measured:
        if not one.latency:
            yield from _bandwidth(one)
    small = sorted((one for one in measured if one.latency), key=lambda one: -one.size_bytes)
    for key, one in _by_group(small).items():
        yield LATENCY.sample(one.seconds, *key)
    large = sorted((one for one in measured if not one.latency), key=lambda one: one.size_bytes)
    for key, one in _by_group(large).items():
        way = transport(probed, (one.group,))
        yield PATH.sample(1, *key, way, one.algorithm, one.protocol, probed.plan.engine)
    names = [str(gpu.index) for gpu in probed.gpus]
    for copy in probed.shown.copies if names else ():
        yield PEER.sample(copy.size_bytes / copy.seconds, names[copy.source], names[copy.destination])
    yield from _hosts(probed)


def _hosts(probed: Probed) -> Iterator[Sample]:
    for link in host_links(probed) if probed.gpus else ():
        gpu = probed.gpus[link.copies.gpu]
        at = (str(gpu.index), gpu.uuid)
        yield HOST_LINK.sample(link.both, *at, "both")
        for direction, way in zip(DIRECTIONS, link.ways, strict=True):
            yield HOST_LINK.sample(way.rate, *at, direction)
            yield HOST_LINK.sample(way.together, *at, f"all_{direction}")
            if way.expected is not None:
                yield HOST_EXPECTED.sample(way.expected, *at, direction)


def transport(probed: Probed, groups: Collection[int]) -> str:
    """Return the worst transport between two GPUs of these groups; empty where NCCL's log does not say."""
    ways = {wire(c.transport) for comm in comms_of(probed, groups) for c in comm.connections}
    return next((way for way in WORST_FIRST if way in ways), "")


def _gate_reading(
    memory: ProbeMemory, options: ProbeOptions, engine: str | Absent, facts: GateFacts, *, due: bool
) -> ProbeReading:
    still = watch_users(memory.still, facts)
    return ProbeReading(facts, still, engine, due, _refusal(memory, options, engine, facts, still))


def _run_here(hardware: Hardware, wanted: ProbeRequest, reading: ProbeReading) -> ProbeReading:
    """Ask the sources that are not asked each turn, then run the probe."""
    prepared = prepare(hardware, wanted, reading.still)
    asked = replace(reading, facts=prepared.facts, still=prepared.still, late=True)
    if isinstance(prepared.order, Refusal):
        return replace(asked, refusal=prepared.order)
    return _logged(asked, hardware.probe.run(prepared.order))


def _read_remote_gate(
    hardware: Hardware, prober: RemoteProber, memory: ProbeMemory, options: ProbeOptions, gpus: Sequence[Gpu],
    until: float, *, due: bool,
) -> ProbeReading:  # fmt: skip
    looked = prober.facts(options.engine, until)
    refusal = looked if isinstance(looked, Refusal) else looked.refusal
    if isinstance(looked, Refusal) or looked.facts is None:
        # Users that are not seen may have changed: the GPUs have to be still again.
        engine = memory.engine if isinstance(looked, Refusal) else looked.engine
        return ProbeReading(no_gpus(hardware), Stillness(), engine, due, refusal)
    reading = _gate_reading(memory, options, looked.engine, _now(hardware, looked.facts), due=due)
    there, here = ({gpu.key for gpu in side} for side in ((use.gpu for use in looked.facts.uses), gpus))
    if there == here:
        return reading
    odd = f"the prober sees {len(there)} GPUs, this agent {len(here)}, and they are not the same"
    return replace(reading, refusal=Refusal(SkipReason.BLIND, odd))


def _run_remotely(
    hardware: Hardware, prober: RemoteProber, wanted: ProbeRequest, reading: ProbeReading, until: float
) -> ProbeReading:
    within = IN_TIME * (until - hardware.clock.mono())
    came = prober.run(replace(wanted, within=within), until)
    asked = replace(reading, late=True)
    if isinstance(came, Refusal):
        return replace(asked, refusal=came)
    if isinstance(came, LostOrder):
        engine = "" if isinstance(reading.engine, Absent) else reading.engine
        gpus = [use.gpu for use in reading.facts.uses]
        return _logged(asked, lost_probe(came, engine, gpus, hardware.clock.now()))
    facts = _now(hardware, came.facts)
    asked = replace(asked, facts=facts, still=watch_users(reading.still, facts), refusal=came.refusal)
    return asked if came.probed is None else _logged(asked, came.probed)


def _now(hardware: Hardware, facts: GateFacts) -> GateFacts:
    """Return facts by this process's clock, which another container may not share."""
    return replace(facts, mono=hardware.clock.mono())


def _logged(reading: ProbeReading, probed: Probed) -> ProbeReading:
    log.info("probe %s in %.1f s%s", probed.outcome, probed.seconds, f": {probed.why}" if probed.why else "")
    return replace(reading, probed=probed)


def _refusal(
    memory: ProbeMemory, options: ProbeOptions, engine: str | Absent, facts: GateFacts, still: Stillness
) -> Refusal | None:
    # The gloo engine touches no GPU, so no process can be in its way.
    found = None if options.engine == "gloo" else refuse(facts, still, options.limits())
    if isinstance(engine, Absent) and (found is None or found.reason not in NOTHING_TO_PROBE):
        return Refusal(SkipReason.NO_ENGINE, engine.detail)
    if found is not None or options.engine == "gloo":
        return found
    held = memory.tried.held_seconds * len(memory.tried.gpus) if memory.tried else 0.0
    cost = held or GUESSED_SECONDS * len(facts.uses)
    left = model.left(memory.spent, facts.mono, len(facts.uses), options.budget)
    # A budget below a single probe still allows one an hour.
    spent = left < cost and model.spent_within(memory.spent, facts.mono)
    why = f"{left:.0f} GPU-seconds are left of this hour, a probe takes {cost:.0f}"
    return Refusal(SkipReason.BUDGET, why) if spent else None


def _bandwidth(one: Measured) -> Iterator[Sample]:
    labels = (one.op, str(one.size_bytes), str(one.ranks), one.gpus)
    yield BUSBW.sample(one.busbw, *labels)
    yield KNOWN.sample(one.trusted is not None, *labels)
    if one.trusted is not None:
        yield EXPECTED.sample(one.trusted.busbw, *labels)
    for metric, ratio in ((RATIO, one.ratio), (PEAK_RATIO, one.peak_ratio)):
        if ratio is not None:
            yield metric.sample(ratio, *labels)


def _by_group(measured: Iterable[Measured]) -> dict[tuple[str, str, str], Measured]:
    """Return the last of each collective over each group of GPUs."""
    return {(one.op, str(one.ranks), one.gpus): one for one in measured}
