"""The component of NICs: once a day each port alone, behind the gate, lock and limits of probes.

A rail is compared with its own past, with rails like it, and with its port's rate where that is due. Only the
past makes it FAILED: the share of its rate that a healthy port reaches was never measured here.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from wirewatch.core import words
from wirewatch.core.collector import CONFIRMED, DEGRADED, FAILED, UNKNOWN, Collector, Observed, Rule
from wirewatch.core.ports import Hardware
from wirewatch.core.probe import ALL_REDUCE, MIB, Probed
from wirewatch.core.statistics import AcceptedRates, Streak, low_median
from wirewatch.core.tree import rdma_devices
from wirewatch.core.types import (
    Absent,
    Expect,
    Finding,
    Health,
    Kind,
    Metric,
    Ok,
    Panel,
    Sample,
    Tier,
    family,
)
from wirewatch.probe import collector
from wirewatch.probe.gate import Stillness
from wirewatch.probe.history import History
from wirewatch.probe.judge import BROKEN, count_probe, fold_gate
from wirewatch.probe.model import NicsOptions, ProbeMemory, ProbeOptions, ProbePolicy, ProbeReading, due
from wirewatch.probe.network import (
    PAIR,
    RailJob,
    RailResult,
    Rails,
    Unmeasured,
    examine,
    gpudirect_asked,
    is_rdma,
    rail_of,
    rdma_rails,
)  # fmt: skip
from wirewatch.probe.remote import RemoteProber
from wirewatch.probe.restore import keep, probe_of
from wirewatch.probe.setup import Variation, read_scene

log = logging.getLogger(__name__)
NICS_NAME = "nics"
AGAIN, RELIST = 60.0, 3600.0
"""Seconds until a new finding or a broken-off probe is probed again, and until ports are listed again."""
SIBLINGS, PORT = 2, 0.5
"""The least number of other rails for a comparison, and the least share of the rate of port and slots."""
REMEMBERED = 400
"""Probes of NICs that a starting daemon reads."""
SLOW = Rule(
    "nics.slow", CONFIRMED, "NicSlow",
    means="NCCL between two GPUs of this node was slow over one port: less than 85 % of what is usual for it "
    "or of the median of two or more ports like it, or less than half of what port and slots carry, where "
    "PCIe switches alone lie between and GPUDirect was proven. FAILED when two probes in a row gave less "
    "than 70 % of the lowest of ten accepted ones. Unproven on InfiniBand and RoCE",
    look="port, GPUs and comparison in the finding; `wirewatch check` for the port and its PCIe link; "
    "whether it is slow without GPUDirect too, which acquits the path between GPU and NIC",
    do="look at the port's rate, errors and slot, and at ACS and IOMMU between GPU and NIC; keep jobs of "
    "many nodes away while it is FAILED",
    rehearse="tests/system/test_rails.py slows one of three rails by tc",
)  # fmt: skip
WRONG = Rule("nics.wrong_data", FAILED, "WrongData")
GPUDIRECT = Rule("gpudirect.unused", DEGRADED, "GPUDirectLost")
UNPROVEN = Rule("nics.unproven", UNKNOWN)
_AT, _UNPROVEN = ("device", "port", "gpudirect"), "InfiniBand and RoCE"
RATE = Metric(
    "probe_nic_bytes_per_second", Kind.GAUGE, _AT,
    "What NCCL carried between two GPUs of this node by this port alone, each way; gpudirect is on, off or "
    "none. Withdrawn when it is twice as old as the time between probes.", _UNPROVEN,
    panel=Panel("NICs one by one, by NCCL"), tier=Tier.CORE,
)  # fmt: skip
MEASURED = Metric(
    "probe_nic_last_success_timestamp_seconds", Kind.GAUGE, ("device", "port"),
    "When a probe last measured this port, with GPUDirect or without it; 0 for never.", _UNPROVEN,
    undrawn="`wirewatch status` has it",
)  # fmt: skip
SECONDS = family(
    "probe_nic_gpu_seconds_total", (), "GPU-seconds for which probes of NICs held contexts, since start.",
    undrawn="`[probe.nics] budget` bounds it",
)  # fmt: skip
DRAIN = "drain the node: jobs here compute wrong results; test the GPUs' memory and the NIC"
MEMORY = "load nvidia_peermem, or take a driver and kernel with DMA-BUF; look at ACS and IOMMU on the path"
TRY = (
    "run `wirewatch probe --transport net`, and `ibv_devinfo` where the prober runs; leave out a port that "
    "no job shall use by NCCL_IB_HCA in /etc/nccl.conf; if no NIC can be probed alone here, switch "
    "`[probe.nics]` off"
)
_SWITCH = {True: "on", False: "off", None: "none"}
_HOW = {True: " with GPUDirect", False: " without GPUDirect", None: " over sockets"}


@dataclass(frozen=True, slots=True)
class NicsReading:
    """The ports at `listed`, Unix seconds, and the turn of the gate for a due probe, if any.

    `known`: the memory that follows from the history, where no daemon remembers it.
    """

    rails: Rails
    listed: float
    job: RailJob | None = None
    turn: ProbeReading | None = None
    known: "NicsMemory | None" = None


@dataclass(frozen=True, slots=True)
class NicsMemory:
    """`gate`: the memory of the gate and the budget. `rails`: as listed at `listed`, Unix seconds.

    `tried`: when each probe ran last; `again`: probes to repeat soon. `failed`: how many in a row showed
    nothing, and why. `results`: the newest, with their times; `streaks`: slow results in a row. `proven`:
    rails that had GPUDirect once; `refuted`: rails that had none when it was last asked for. `looked`: the
    last turn, at `now`, read the gate.
    """

    gate: ProbeMemory = field(default_factory=ProbeMemory)
    rails: Rails | None = None
    listed: float = 0.0
    tried: Mapping[RailJob, float] = field(default_factory=dict)
    again: frozenset[RailJob] = frozenset()
    failed: Mapping[RailJob, tuple[int, Unmeasured]] = field(default_factory=dict)
    results: Mapping[RailJob, tuple[float, RailResult]] = field(default_factory=dict)
    streaks: Mapping[tuple[RailJob, Health], Streak] = field(default_factory=dict)
    proven: frozenset[str] = frozenset()
    refuted: frozenset[str] = frozenset()
    usual: AcceptedRates[tuple[object, ...]] = field(default_factory=AcceptedRates)
    looked: bool = False
    now: float = 0.0


Kept = Callable[..., History]
NicsCollector = Collector[NicsReading, NicsMemory, NicsOptions, ProbePolicy]
Losses = tuple[tuple[Health, str], ...]
"""Failed comparisons of a result: the health of each once confirmed, and in words."""


def jobs_of(rails: Rails) -> tuple[RailJob, ...]:
    """All probes of these rails."""
    switches = {True: (True, False), False: (None,)}
    return tuple(RailJob(rail, direct) for rail in rails.names for direct in switches[is_rdma(rail)])


def next_job(memory: NicsMemory, rails: Rails, options: NicsOptions, now: float) -> RailJob | None:
    """The probe that is due longest at `now`, Unix seconds; None where none is."""

    def since(job: RailJob) -> float:
        tried = memory.tried.get(job)
        if tried is None or tried > now:
            return 0.0
        names, every = (*rails.names, str(job)), AGAIN if job in memory.again else options.probe_interval
        return due(tried, every, 0.0 if job in memory.again else 0.1, names, int(tried))

    first = min(jobs_of(rails), key=since, default=None)
    return first if first is not None and since(first) <= now else None


def list_rails(hardware: Hardware, options: ProbeOptions, expect: Expect) -> Rails | Absent:
    """The RDMA ports that NCCL takes here, and the configured interfaces."""
    found = Rails(())
    gpus = () if options.engine == "gloo" else hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    if len(gpus) >= PAIR:
        settings, pins = hardware.probe.settings(), options.pins
        scene = read_scene(hardware, gpus, settings, expect, pins, network=True)
        if isinstance(scene, Absent):
            return scene
        found = rdma_rails(scene.conditions[0])
    elif options.engine != "gloo":
        return Rails((), ("a NIC is probed between two GPUs, and there are fewer",))
    return Rails((*found.names, *options.nics.interfaces), found.left_out)


def read(
    hardware: Hardware, memory: NicsMemory, options: NicsOptions, *, probe: ProbeOptions, expect: Expect,
    prober: RemoteProber | None, history: Kept | None, boot_id: str,
) -> NicsReading | Absent:  # fmt: skip
    """Run one turn: the longest-due probe, if it may run; a history of its own keeps it."""
    now, rails, listed = hardware.clock.now(), memory.rails, memory.listed
    if rails is None or not 0 <= now - listed < RELIST:
        found = list_rails(hardware, probe, expect)
        if isinstance(found, Absent):
            return found
        if found != rails:
            log.info("NICs to probe: %s", "; ".join((", ".join(found.names) or "none", *found.left_out)))
        rails, listed = found, now
    job = next_job(memory, rails, options, now)
    if job is None:
        return NicsReading(rails, listed)
    # What was seen before a while without looks says nothing of who used the GPUs meanwhile.
    gate = memory.gate if memory.looked else replace(memory.gate, still=Stillness())
    asked = replace(
        probe, probe_interval=collector.SOON, deadline=options.deadline, budget=options.budget,
        ops=(ALL_REDUCE,), latency_sizes=(), bandwidth=((256 * MIB, 5),), copies=False, micro=False,
        ranks=PAIR,
    )  # fmt: skip
    variation = Variation(network=True, gpudirect=job.direct, rail=job.rail)
    turn = collector.read(hardware, gate, asked, expect=expect, prober=prober, variation=variation)
    if isinstance(turn, Absent):
        return turn
    if turn.probed is not None and history is not None:
        keep(history(), turn.probed, hardware.clock.now(), boot_id, "daemon", hardware.clock.mono())
    return NicsReading(rails, listed, job, turn)


def judge(
    memory: NicsMemory, ok: Ok[NicsReading], policy: ProbePolicy, expect: Expect, *, probe: ProbeOptions
) -> tuple[NicsMemory, tuple[Finding, ...]]:
    """Return the memory after one turn, and the findings; an unlisted rail leaves only its past."""
    reading, turn, names = ok.value, ok.value.turn, frozenset(ok.value.rails.names)
    memory = reading.known or memory
    new = replace(
        memory, rails=reading.rails, listed=reading.listed, looked=turn is not None, now=ok.at,
        gate=replace(memory.gate, refusal=None), proven=memory.proven & names,
        tried={job: at for job, at in memory.tried.items() if job.rail in names},
        failed={job: why for job, why in memory.failed.items() if job.rail in names},
        results={job: one for job, one in memory.results.items() if job.rail in names},
    )  # fmt: skip
    if turn is not None:
        new = replace(new, gate=fold_gate(probe, new.gate, Ok(turn, ok.at, ok.mono)))
        if turn.probed is not None:
            new = replace(new, gate=count_probe(new.gate, turn.probed, ok.mono))
            new = fold_rail(new, turn.probed, policy, reading.job)
    return new, findings(new, policy, expect)


def fold_rail(
    memory: NicsMemory, probed: Probed, policy: ProbePolicy, asked: RailJob | None = None
) -> NicsMemory:
    """Return the memory after one probe of a NIC; `asked`: the requested probe, where that is known."""
    ran = RailJob(rail_of(probed.plan), gpudirect_asked(probed.plan))
    job = asked or ran
    memory = replace(memory, tried={**memory.tried, job: probed.at}, again=memory.again | {job})
    if probed.outcome != "ok" and probed.outcome not in BROKEN:
        return memory
    found = examine(probed) if ran == job else Unmeasured("what ran is no probe of this NIC")
    if isinstance(found, Unmeasured):
        count = memory.failed.get(job, (0, found))[0] + 1
        again = memory.again if count < policy.failures else memory.again - {job}
        return replace(memory, failed={**memory.failed, job: (count, found)}, again=again)
    results, key = {**memory.results, found.job: (probed.at, found)}, found.job
    proven, refuted, tried = memory.proven, memory.refuted, memory.tried
    if key.direct:
        proven, refuted = proven | {job.rail}, refuted - {job.rail}
    elif job.direct:
        # It was measured without GPUDirect: the probe that asks for that need not run.
        results.pop(job, None)
        refuted, tried = refuted | {job.rail}, {**tried, key: probed.at}
    failed = {one: why for one, why in memory.failed.items() if one != job}
    new = replace(memory, results=results, proven=proven, refuted=refuted, tried=tried, failed=failed)
    losses = losses_of(new, found, policy)
    rates = {} if losses or found.wrong else {found.past: found.rate}
    worst, streaks = max((health for health, _ in losses), default=Health.OK), dict(new.streaks)
    for level in SLOW.healths:
        streaks[key, level] = streaks.get((key, level), Streak()).see(present=worst >= level)
    again = new.again if 0 < streaks[key, Health.DEGRADED].count < policy.confirm else new.again - {job}
    return replace(new, streaks=streaks, again=again, usual=new.usual.learned("", rates, probed.at))


def losses_of(memory: NicsMemory, one: RailResult, policy: ProbePolicy) -> Losses:
    """Return every failed comparison of a result, by its fastest run."""
    usual = memory.usual.of(one.past, "", policy.learn)
    others = (other for _, other in memory.results.values() if other.job != one.job)
    peers = [other.rate for other in others if other.like == one.like]
    compared: list[tuple[float, float, Health, str]] = []
    if usual is not None:
        worst = Health.FAILED if one.best < policy.ratio * usual.lowest else Health.DEGRADED
        compared.append((usual.rate, policy.usual, worst, f"usual in {usual.count} accepted probes"))
    if len(peers) >= SIBLINGS:
        median = f"the median of {len(peers)} ports like it"
        compared.append((low_median(peers), policy.usual, Health.DEGRADED, median))
    if one.due is not None:
        compared.append((one.due, PORT, Health.DEGRADED, "what port and slots carry"))
    return tuple(
        (health, f"{words.percent(one.rate / rate)} of {words.rate(rate)}, {what}")
        for rate, least, health, what in compared
        if one.best < least * rate
    )


def findings(memory: NicsMemory, policy: ProbePolicy, expect: Expect) -> tuple[Finding, ...]:
    """Return the findings: for each rule and rail the worst, with or without GPUDirect."""
    found = [
        replace(made, since=at)
        for at, one in memory.results.values()
        for made in _of_rail(memory, one, policy, expect)
    ]
    measured = {job.rail for job in memory.results}
    for job, (count, one) in memory.failed.items():
        # A port that is measured in the other way is known, unless this way was known or is asked for.
        known = job.rail in measured and job not in memory.results and not (job.direct and expect.gpudirect)
        if count >= policy.failures and one.ill and not known:
            evidence = f"{job.rail}{_HOW[job.direct]} is not measured: {one.why}"
            made = UNPROVEN.finding(job.subject, evidence, action=TRY)
            found.append(replace(made, since=memory.tried.get(job, 0.0)))
    return tuple({one.key: one for one in sorted(found, key=lambda one: one.health)}.values())


def _of_rail(memory: NicsMemory, one: RailResult, policy: ProbePolicy, expect: Expect) -> Iterator[Finding]:
    losses, rail = losses_of(memory, one, policy), one.job.rail
    if losses:
        sure = memory.streaks.get((one.job, Health.FAILED), Streak()).count >= policy.confirm
        worst = max(health for health, _ in losses) if sure else Health.DEGRADED
        other = memory.results.get(RailJob(rail, not one.job.direct)) if is_rdma(rail) else None
        texts = (_said(one), *(text for _, text in losses), *((_said(other[1]),) if other else ()))
        yield SLOW.finding(one.job.subject, "; ".join(texts), worst)
    if one.wrong:
        yield WRONG.finding(one.job.subject, f"{one.wrong} wrong elements: {_said(one)}", action=DRAIN)
    due = (rail in memory.proven and "an earlier probe had it") or (
        expect.gpudirect and "`[expect]` asks for it"
    )
    if due and rail in memory.refuted and not one.job.direct:
        yield GPUDIRECT.finding(one.job.subject, f"no GPUDirect RDMA, and {due}: {_said(one)}", action=MEMORY)


def _said(one: RailResult) -> str:
    inside = is_rdma(one.job.rail) and not one.crossed
    doubt = "; its counter does not show it: the card may turn it around without the cable" if inside else ""
    return (
        f"{one.job.rail}{_HOW[one.job.direct]}, between {one.between}: {words.rate(one.rate)} each way{doubt}"
    )


def samples(reading: NicsReading, memory: NicsMemory, *, every: float) -> Iterator[Sample]:
    """Return the measurements of each rail while they are not old."""
    yield SECONDS.sample(memory.gate.gpu_seconds)
    for rail in reading.rails.names:
        ends = (at for job, (at, _) in memory.results.items() if job.rail == rail)
        part = RailJob(rail, None).subject
        yield MEASURED.sample(max(ends, default=0.0), part.device, part.port)
    for job in jobs_of(reading.rails):
        part, found = job.subject, memory.results.get(job)
        labels = (part.device, part.port, _SWITCH[job.direct])
        if found and memory.now - found[0] < 2 * every:
            yield RATE.sample(found[1].rate, *labels)


def nics_collector(
    probe: ProbeOptions, policy: ProbePolicy, expect: Expect, prober: RemoteProber | None = None,
    history: Kept | None = None, boot_id: str = "",
) -> NicsCollector:  # fmt: skip
    """Return the collector; `history` opens the probes of earlier daemons, `prober` runs probes if given."""
    return Collector(
        name=NICS_NAME, about="NCCL between two GPUs over one NIC at a time, once a day on an idle node",
        lane="probe", options=probe.nics, policy=policy, metrics=(RATE, MEASURED, SECONDS),
        start=remember_nics(history(read_only=True), policy) if history else NicsMemory(),
        read=partial(read, probe=probe, expect=expect, prober=prober, history=history, boot_id=boot_id),
        samples=partial(samples, every=probe.nics.probe_interval), judge=partial(judge, probe=probe),
        applicable=lambda reading: bool(reading.rails.names), series=25,
        rules=(SLOW, WRONG, GPUDIRECT, UNPROVEN),
        observed=lambda _, memory: Observed(frozenset(), frozenset(job.subject for job in memory.results)),
    )  # fmt: skip


def recalled_nics(
    probe: ProbeOptions, policy: ProbePolicy, expect: Expect, history: History
) -> NicsCollector:
    """Return the collector for use without a daemon: the history of ports that are still here; no probe."""

    def recall(hardware: Hardware, _memory: NicsMemory, _options: NicsOptions) -> NicsReading | Absent:
        devices, known = rdma_devices(hardware.sysfs), remember_nics(history, policy)
        if isinstance(devices, Absent):
            return devices
        tried = dict.fromkeys(job.rail for job in known.tried)
        here = (rail for rail in tried if not is_rdma(rail) or rail.partition(":")[0] in devices)
        return NicsReading(Rails(tuple(here)), hardware.clock.now(), known=known)

    return replace(nics_collector(probe, policy, expect), read=recall)


def remember_nics(history: History, policy: ProbePolicy) -> NicsMemory:
    """Return the memory that follows from the newest probes of NICs; counters begin at 0 again."""
    memory, records = NicsMemory(), history.folded(REMEMBERED)
    for record in () if isinstance(records, Absent) else records:
        probed = probe_of(record)
        if probed is not None:
            memory = fold_rail(memory, probed, policy)
    return memory
