"""Folding probes into what is believed: confirmed, and held while none can run. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from wirewatch.busbw.expected import human
from wirewatch.busbw.formulas import NVLS
from wirewatch.core.collector import CONFIRMED, DEGRADED, FAILED, UNKNOWN, Rule
from wirewatch.core.nvml import CLOCK_REASONS
from wirewatch.core.pci import Path
from wirewatch.core.probe import MIB, Clocks, Probed
from wirewatch.core.statistics import Streak
from wirewatch.core.topology import PATHS, WireKind
from wirewatch.core.types import Absent, Finding, Health, Ok, Subject
from wirewatch.nccl.settings import NVLS_ENABLE, slowing_settings
from wirewatch.probe import measurement
from wirewatch.probe.gate import Reason
from wirewatch.probe.measurement import NVLINK, Measured, beside_usual, learn_collectives, measure, on_gpus
from wirewatch.probe.model import (
    Breach,
    Key,
    ProbeMemory,
    ProbeOptions,
    ProbeOutline,
    ProbePolicy,
    ProbeReading,
    spend,
)
from wirewatch.probe.network import by_network
from wirewatch.verdict.straggler.naming import (
    ConfirmedStraggler,
    SlowNode,
    SlowPart,
    StragglerWatch,
    fold_stragglers,
)
from wirewatch.verdict.straggler.signals import Loss, Resource, StragglerPolicy, Unit, signals

BROKEN = frozenset({"failed", "timeout", "garbage", "stuck", "out_of_memory", "no_engine"})
"""Outcomes that say nothing about wires, only that probing does not work here."""
KEPT = 50
"""Probes that are shown in short."""
GB = 1e9
NODE = "straggler.node"
HARMLESS = frozenset({"gpu_idle"})
"""What holds back a GPU between two pieces of work."""
WHAT: Mapping[Resource, str] = {
    Resource.COMPUTE: "matrix products",
    Resource.MEMORY: "copies within its memory",
    Resource.SOURCE: "copies from it to its peers",
    Resource.DESTINATION: "copies from its peers to it",
    Resource.PAIR: "copies",
    Resource.LINK: "a link",
}
ALL: Mapping[Resource, str] = {
    Resource.COMPUTE: "matrix products on all GPUs",
    Resource.MEMORY: "copies within the memory of all GPUs",
    Resource.PAIR: "copies between all pairs of GPUs",
}
DO: Mapping[Resource, str] = {
    Resource.COMPUTE: "look at its clocks, power and temperature (`nvidia-smi -q -d PERFORMANCE,CLOCK`), "
    "then for another process on it; if nothing explains it, return the GPU: `wirewatch findings show` has "
    "what the vendor asks for",
    Resource.MEMORY: "look at its ECC counters, remapped rows and memory temperature; if nothing explains "
    "it, return the GPU: `wirewatch findings show` has what the vendor asks for",
    Resource.SOURCE: "look at its NVLink state, speed and errors, and at PCIe where there is no NVLink",
    Resource.DESTINATION: "look at its NVLink state, speed and errors, and at PCIe where there is no NVLink",
    Resource.PAIR: "look at the links between the two, and at peer access (`nvidia-smi topo -p2p r`)",
    Resource.LINK: "look at this link's errors and state",
}  # fmt: skip
LOOK = "run `wirewatch probe --explain` on the idle node"
SLOW_WIRE = f"keep jobs away; the peer matrix names the slow GPU or pair: {LOOK}"
SLOW_NETWORK = (
    "check rate and errors of the RDMA ports and the PCIe links of the NICs (`wirewatch check`), and "
    "whether GPUDirect helps (`wirewatch probe --transport net --gdr on,off`)"
)
LARGE = 256 * MIB
"""The least message of which a share of the wire is due: published tables have 0.51 and more there."""
LEAST_A_LINK = 64 * MIB
"""Bytes on average from which on a GPU's links are compared where no copies went over all of them: of less a
few small messages decide."""
SURE = 0.5
"""Part of the least plausible share from which on no setting or layout explains it."""
BUSBW = Rule("probe.busbw", CONFIRMED, "BusbwLow")
SLOWER = Rule(
    "probe.slower",
    CONFIRMED,
    means="a collective reached less than 85 % of its usual bandwidth on this node: the median of at least "
    "ten accepted probes, which found nothing, with the same GPUs, engine, NCCL and settings. DEGRADED if "
    "an expected bandwidth is known and still reached; FAILED if none is known and two probes in a row gave "
    "less than 70 % of the lowest accepted one",
    look="`wirewatch probe --explain`, for the usual bandwidth, the peer matrix and settings; also "
    "`straggler.*`, `nvlink.*` and `gpu.throttle`; `wirewatch_probe_busbw_bytes_per_second` over the last "
    "weeks",
    do="find what changed since it was faster: driver, firmware, power limit, a replaced part; keep jobs "
    "away while it is FAILED. If the change was intended, use `wirewatch findings suppress`: a lower "
    "bandwidth does not become the usual one by itself",
    rehearse="it takes a history; `probe-unknown-product` shows a slow probe without one",
)
IMPLAUSIBLE = Rule(
    "probe.implausible",
    CONFIRMED,
    means="a collective of 256 MiB or more reached less of the wire than on any healthy node: under 25 % of "
    "what one GPU can send if NVLink connects every two GPUs, under 5 % otherwise. No expected bandwidth is "
    "known for this topology, and there is no history yet. DEGRADED; FAILED when two probes in a row found "
    "less than "
    "half of that over NVLink",
    look="`wirewatch probe --explain`: what the wire is, NCCL's transport and settings, the peer matrix",
    do="keep jobs away while it is FAILED, and find what is slow: peer access (`nvidia-smi topo -p2p r`), "
    "the fabric, NCCL's settings. If the node is healthy, state what it reaches in `[probe.pins]`",
)
RULES = (
    Rule("probe.wrong_data", FAILED, "WrongData"),
    BUSBW,
    SLOWER,
    IMPLAUSIBLE,
    Rule("probe.transport", CONFIRMED, "ProbePath"),
    Rule("probe.nvls", DEGRADED, "ProbePath"),
    Rule("probe.path", DEGRADED, "ProbePath"),
    Rule("probe.uneven", DEGRADED, "ProbePath"),
    Rule("probe.link_errors", DEGRADED, "NVLinkErrors"),
    Rule("probe.failed", UNKNOWN),
    *(Rule(f"straggler.{part.value}", CONFIRMED, "Straggler") for part in DO if part is not Resource.LINK),
    Rule("straggler.node", CONFIRMED, "Straggler"),
)


def judge(
    options: ProbeOptions, memory: ProbeMemory, ok: Ok[ProbeReading], policy: ProbePolicy
) -> tuple[ProbeMemory, tuple[Finding, ...]]:
    """The memory after one turn, and what is wrong."""
    reading = ok.value
    new = replace(fold_probes(memory, reading.others, policy), seen=reading.seen)
    new = replace(new, still=reading.still, refusal=reading.refusal, engine=reading.engine)
    if reading.late and reading.refusal is not None:
        new = replace(new, late=(ok.mono, reading.refusal))
    new = _count_skip(options, new, ok)
    if reading.probed is not None:
        new = fold_probe(new, reading.probed, ok.mono, policy)
    until = None if new.last_mono is None else new.last_mono + options.fresh
    new = replace(new, fresh=until is not None and ok.mono <= until, fresh_until=until)
    if reading.refusal is not None and reading.refusal.reason is Reason.MIG:
        # The wires are in other use now: what was found says nothing about them.
        watch = StragglerWatch(new.stragglers.references)
        new = replace(new, held=(), streaks={}, failures=0, stragglers=watch)
    return new, (*new.held, *_broken(new, policy))


def fold_probes(
    memory: ProbeMemory, probes: Iterable[tuple[Probed, float]], policy: ProbePolicy
) -> ProbeMemory:
    """The memory after several probes, each with when it ended."""
    for probed, mono in probes:
        memory = fold_probe(memory, probed, mono, policy)
    return memory


def fold_probe(memory: ProbeMemory, probed: Probed, mono: float, policy: ProbePolicy) -> ProbeMemory:
    """The memory after a probe that ended at `mono`; one that was forced changes no verdict."""
    measured = beside_usual(probed, measure(probed), memory.usual, policy.learn)
    held = probed.held_seconds * len(probed.gpus)
    counted = replace(
        memory,
        tried=probed,
        tried_mono=mono,
        skipped={},
        late=None,
        runs={**memory.runs, probed.outcome: memory.runs.get(probed.outcome, 0) + 1},
        gpu_seconds=memory.gpu_seconds + held,
        spent=spend(memory.spent, mono, held),
        past=(*memory.past[1 - KEPT :], _outline(probed, measured)),
    )
    if probed.forced:
        return counted
    if probed.outcome != "ok":
        return replace(counted, failures=counted.failures + (probed.outcome in BROKEN))
    found = breaches(probed, measured, policy)
    streaks, findings = _confirm(memory, found, probed.at, policy)
    watch = fold_stragglers(
        memory.stragglers, signals(probed), probed.at, policy.straggler, accepted=not found
    )
    unconfirmed = any(not b.sure and streaks[_key(b)].count < policy.confirm for b in found)
    nothing = not found and not watch.looks
    usual = learn_collectives(memory.usual, probed, measured) if nothing else memory.usual
    return replace(
        counted, last=probed, last_mono=mono, measured=measured,
        failures=0, streaks=streaks, stragglers=watch, usual=usual,
        held=(*findings, *straggler_findings(watch, probed, policy.straggler)),
        unconfirmed=unconfirmed or watch.unsure(policy.straggler),
        completed=counted.completed + 1, clean=bool(probed.gpus) and nothing,
    )  # fmt: skip


def confirming(memory: ProbeMemory) -> bool:
    """Whether the newest probe found something that another would confirm or clear."""
    return memory.unconfirmed and memory.tried is memory.last


def breaches(probed: Probed, measured: Sequence[Measured], policy: ProbePolicy) -> tuple[Breach, ...]:
    """Everything that a completed probe found wrong, at most one of a rule for a part."""
    return (
        *_wrong_data(measured),
        *too_slow(probed, measured, policy),
        *_detoured(probed),
        *_other_algorithm(probed, measured),
        *_bytes(probed, measured, policy),
        *_uneven(probed, policy),
        *_errors(probed),
    )


def straggler_findings(watch: StragglerWatch, probed: Probed, policy: StragglerPolicy) -> tuple[Finding, ...]:
    """One finding for each part that is slow, one of a rule a part; one for the node where all are."""
    places = {gpu.uuid: gpu.index for gpu in probed.gpus}
    clocks = {probed.gpus[c.gpu].uuid: c for c in probed.clocks if c.gpu < len(probed.gpus)}
    held = watch.held(policy)
    found: dict[tuple[str, Subject], Finding] = {}
    for one in sorted(held, key=lambda one: -one.seen.lost):
        if isinstance(one.seen, SlowPart):
            made = _of_part(one, one.seen, places, clocks.get(one.seen.unit.uuid))
            # Of several pairs that a GPU sends by, only the slowest is a finding.
            found.setdefault(made.key, made)
    return (*found.values(), *_of_node([one for one in held if isinstance(one.seen, SlowNode)]))


def too_slow(probed: Probed, measured: Sequence[Measured], policy: ProbePolicy) -> Iterator[Breach]:
    """At most one breach of each rule, for the node; the evidence names the worst collective."""
    low = [one for one in measured if one.ratio is not None and one.ratio < policy.ratio]
    slower = [one for one in measured if one not in low and _is_slower(one, policy)]
    known = [*low, *slower]
    yield from _below_expected(probed, low, policy)
    yield from _below_usual(probed, slower, policy, found=bool(low))
    yield from _below_wire(probed, [one for one in measured if one not in known], policy)


def slowing(probed: Probed) -> list[tuple[str, str, str]]:
    """NCCL's settings that lower bandwidth, but for the one that the expectation follows."""
    return [one for one in slowing_settings(probed.settings) if one[0] != NVLS_ENABLE]


def measured_text(one: Measured) -> str:
    """What was measured, beside what is expected where that is known."""
    text = f"{one.op} of {human(one.size_bytes)}{on_gpus(one.gpus)}"
    if isinstance(one.expected, Absent):
        return f"{text} {one.busbw / GB:.1f} GB/s"
    return (
        f"{text}: {one.busbw / GB:.1f} GB/s, {one.ratio or 0:.0%} of the "
        f"expected {one.expected.busbw / GB:.1f} GB/s"
    ).replace("%", " %")


def _count_skip(options: ProbeOptions, memory: ProbeMemory, ok: Ok[ProbeReading]) -> ProbeMemory:
    """Count a probe that was due and not run: each reason once in the time between probes."""
    refusal = ok.value.refusal
    if refusal is None or not ok.value.due:
        return memory
    reason = refusal.reason
    if reason in memory.skipped and ok.mono - memory.skipped[reason] < options.every:
        return memory
    skips = {**memory.skips, reason: memory.skips.get(reason, 0) + 1}
    return replace(memory, skips=skips, skipped={**memory.skipped, reason: ok.mono})


def _outline(probed: Probed, measured: Iterable[Measured]) -> ProbeOutline:
    ratios = [one.ratio for one in measured if one.ratio is not None]
    return ProbeOutline(
        probed.at, probed.outcome, probed.why, probed.forced, probed.plan.engine, probed.seconds,
        min(ratios, default=None),
    )  # fmt: skip


def _confirm(
    memory: ProbeMemory, found: tuple[Breach, ...], at: float, policy: ProbePolicy
) -> tuple[dict[Key, Streak], tuple[Finding, ...]]:
    """A breach is DEGRADED until as many probes in a row have found it as it takes to confirm it."""
    streaks = {_key(b): memory.streaks.get(_key(b), Streak()) for b in found}
    streaks = {key: streak.see(present=True) for key, streak in streaks.items()}
    began = {finding.key: finding.since for finding in memory.held}
    findings = []
    for breach in found:
        seen = streaks[_key(breach)].count
        believed = breach.sure or seen >= policy.confirm
        health = breach.worst if believed else min(breach.worst, Health.DEGRADED)
        said = breach.evidence if seen == 1 else f"{breach.evidence} ({seen} probes in a row)"
        since = began.get((breach.rule, breach.subject), at)
        findings.append(Finding(breach.rule, health, breach.subject, said, breach.action, since))
    return streaks, tuple(findings)


def _key(breach: Breach) -> Key:
    return (breach.rule, breach.subject, breach.worst)


def _broken(memory: ProbeMemory, policy: ProbePolicy) -> tuple[Finding, ...]:
    if memory.failures < policy.failures:
        return ()
    last = next((f"{p.outcome}: {p.why}" for p in reversed(memory.past) if p.outcome in BROKEN), "not kept")
    return (
        Finding(
            "probe.failed", Health.UNKNOWN, Subject(),
            f"{memory.failures} probes in a row failed, the last one: {last}",
            "jobs may fail in the same way: run `wirewatch probe` on the idle node and read its error",
        ),
    )  # fmt: skip


def _wrong_data(measured: Sequence[Measured]) -> Iterator[Breach]:
    bad = [one for one in measured if one.wrong]
    if bad:
        texts = "; ".join(f"{one.op} of {human(one.size_bytes)}: {one.wrong} elements" for one in bad)
        yield Breach(
            "probe.wrong_data", Subject(), Health.FAILED, f"collectives gave wrong results: {texts}",
            "drain the node: jobs here compute wrong results; find the GPU with a memory and a link test",
            sure=True,
        )  # fmt: skip


def _detoured(probed: Probed) -> Iterator[Breach]:
    found = measurement.detours(probed)
    if not found:
        return
    pairs = ", ".join(
        f"{a} to {b}" for a, b in dict.fromkeys((f.source_rank, f.destination_rank) for f in found[:8])
    )
    more = ", ..." if len(found) > 8 else ""  # noqa: PLR2004
    transports = ", ".join(dict.fromkeys(f.transport for f in found))
    settings = [f"{name}={value}" for name, value, _ in slowing(probed)]
    because = f"; NCCL runs with {', '.join(settings)}" if settings else ""
    yield Breach(
        "probe.transport", Subject(), Health.FAILED,
        f"NCCL used {measurement.worst_wire(found)} ({transports}) between GPUs that have NVLink: "
            f"ranks {pairs}{more}{because}",
        "check peer access (`nvidia-smi topo -p2p r`), IOMMU and ACS settings, and NCCL's settings",
    )  # fmt: skip


def _other_algorithm(probed: Probed, measured: Sequence[Measured]) -> Iterator[Breach]:
    if not (probed.account and any(device.available for device in probed.account.nvls)):
        # That the driver offers it must be known: in many virtual machines it does not.
        return
    bad = [
        one
        for one in measured
        if one.trusted is not None
        and one.trusted.algorithm == NVLS
        and one.algorithm
        and not one.algorithm.startswith(NVLS.lower())
    ]
    if bad:
        yield Breach(
            "probe.nvls", Subject(), Health.DEGRADED,
            f"NCCL chose {bad[0].algorithm} where NVLink SHARP (NVLS) is expected: {measured_text(bad[0])}",
            "look for a program that holds the fabric's multicast slots, and read the Fabric Manager's log",
        )  # fmt: skip


def _bytes(probed: Probed, measured: Sequence[Measured], policy: ProbePolicy) -> Iterator[Breach]:
    if measurement.detours(probed):
        # Where they went is a finding of its own.
        return
    bad = [
        one
        for one in measurement.crossings(probed, measured)
        if one.share is not None and abs(one.share - 1) > policy.path
    ]
    for gpu in dict.fromkeys(one.gpu for one in bad):
        mine = [one for one in bad if one.gpu == gpu]
        worst = max(mine, key=lambda one: abs((one.share or 0.0) - 1))
        yield Breach(
            "probe.path", _subject(probed, gpu), Health.DEGRADED,
            f"{worst.part}: {(worst.sent or 0) / GB:.2f} GB over NVLink, {worst.due / GB:.2f} GB expected "
            f"({worst.share or 0:.0%})".replace("%", " %"),
            f"traffic takes another path, or another process also uses NVLink: {LOOK}",
        )  # fmt: skip


def _uneven(probed: Probed, policy: ProbePolicy) -> Iterator[Breach]:
    if by_network(probed.plan) or not all(c.group.kind in measurement.EVEN for c in probed.conditions):
        return
    for links in probed.links:
        known = [amount for amount in links.transmit if amount is not None]
        if not probed.plan.copy_bytes and sum(known) < LEAST_A_LINK * len(known):
            continue
        found = measurement.unevenness(links)
        if found is not None and found[1] > policy.uneven:
            link, away = found
            yield Breach(
                "probe.uneven", _subject(probed, links.gpu, str(link)), Health.DEGRADED,
                f"link {link} differs by {away * 100:.0f} % from the average of its GPU's links",
                "check this link's errors and state; one link that carries less slows all of them",
            )  # fmt: skip


def _errors(probed: Probed) -> Iterator[Breach]:
    for gpu, kinds in measurement.new_errors(probed).items():
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield Breach(
            "probe.link_errors", _subject(probed, gpu), Health.DEGRADED,
            f"new NVLink errors under the probe's load: {counts}",
            "look at the errors link by link; reseat or replace the part they point to",
        )  # fmt: skip


def _subject(probed: Probed, position: int, link: str = "") -> Subject:
    gpu = probed.gpus[position]
    return Subject(gpu=str(gpu.index), uuid=gpu.uuid, link=link)


def _of_part(
    held: ConfirmedStraggler, slow: SlowPart, places: Mapping[str, int], clock: Clocks | None
) -> Finding:
    unit = slow.unit
    parts = [f"{_name(unit, places)}: {_rate(unit, slow.rate)}, {_lost(slow)}", _beside(slow)]
    parts.append(f"seen in {held.times} of the last {held.looks} probes" if held.looks > 1 else "")
    if clock is not None and unit.resource is Resource.COMPUTE:
        parts.append(_clock(clock))
    if slow.follows:
        parts.append(f"also slow because of this: {', '.join(_name(one, places) for one in slow.follows)}")
    if slow.undecided:
        ends = " or ".join(_name(one, places) for one in slow.undecided)
        parts.append(f"it cannot be determined whether only this pair is slow, or {ends}")
    return Finding(
        f"straggler.{unit.resource.value}", Health.FAILED if held.failed else Health.DEGRADED,
        Subject(gpu=str(places.get(unit.uuid, "")), uuid=unit.uuid), "; ".join(filter(None, parts)),
        DO[unit.resource], held.since,
    )  # fmt: skip


def _clock(clock: Clocks) -> str:
    """How fast it ran while it multiplied, and what held it back."""
    bits = clock.reasons or 0
    held = [name for name, bit in CLOCK_REASONS.items() if bits & bit and name not in HARMLESS]
    back = f", held back by {', '.join(held)}" if held else ""
    return "" if clock.sm is None else f"its SM clock was {clock.sm / 1e6:.0f} MHz{back}"


def _name(unit: Unit, places: Mapping[str, int]) -> str:
    if unit.resource is Resource.PAIR:
        ends = f"GPU {places.get(unit.uuid, unit.uuid)} to GPU {places.get(unit.peer, unit.peer)}"
        return f"{WHAT[unit.resource]} from {ends}"
    return f"GPU {places.get(unit.uuid, unit.uuid)}, {WHAT[unit.resource]}"


def _rate(unit: Unit, rate: float) -> str:
    """For people: 10^9 bytes per second; a product's time means nothing but beside another's."""
    if unit.resource is Resource.COMPUTE:
        return f"{1e3 / rate:.3f} ms each"
    return f"{rate / GB:.1f} GB/s"


def _lost(slow: SlowPart) -> str:
    against = f"its own history of {slow.probes} probes" if slow.own else "its peers"
    return f"{slow.lost * 100:.0f} % slower than {against} ({_rate(slow.unit, slow.loss.usual)})"


def _beside(slow: SlowPart) -> str:
    """The other comparison, or that there is none."""
    if slow.own:
        return "" if slow.peers is None else f"its peers reach {_rate(slow.unit, slow.peers)}"
    if slow.usual is None:
        return "it has no history of its own yet"
    return f"it has always been this slow: {_rate(slow.unit, slow.usual)} in {slow.probes} probes"


def _of_node(held: Sequence[ConfirmedStraggler]) -> Iterator[Finding]:
    if not held:
        return
    texts = [
        f"{ALL[one.seen.resource]} ({one.seen.units}) are {one.seen.lost * 100:.0f} % slower than they were"
        for one in held
        if isinstance(one.seen, SlowNode)
    ]
    health = Health.FAILED if any(one.failed for one in held) else Health.DEGRADED
    yield Finding(
        NODE, health, Subject(), "; ".join(texts),
        "no single part is at fault: check what all GPUs share: power limits, cooling, clocks, the driver",
        min(one.since for one in held),
    )  # fmt: skip


def _below_expected(probed: Probed, low: Sequence[Measured], policy: ProbePolicy) -> Iterator[Breach]:
    if not low:
        return
    # When single runs were fast enough, something came between; that is no wire that is always slow.
    steady = [one for one in low if (one.best_ratio or 0.0) < policy.ratio]
    worst = min(steady or low, key=lambda one: one.ratio or 0.0)
    evidence = f"{measured_text(worst)}{_more(low)}{_reasons(probed, worst)}{_doubt(steady=bool(steady))}"
    yield Breach(
        "probe.busbw", Subject(), Health.FAILED if steady else Health.DEGRADED, evidence,
        SLOW_NETWORK if by_network(probed.plan) else SLOW_WIRE,
    )  # fmt: skip


def _is_slower(one: Measured, policy: ProbePolicy) -> bool:
    if one.usual is None or one.busbw >= policy.usual * one.usual.rate:
        return False
    noise = max(policy.straggler.noise_pair, one.usual.spread)
    return Loss(1 - one.busbw / one.usual.rate, noise, one.usual.rate).score >= policy.straggler.score


def _below_usual(
    probed: Probed, slower: Sequence[Measured], policy: ProbePolicy, *, found: bool
) -> Iterator[Breach]:
    """With what is expected still reached it is no reason to keep jobs away.

    `found`: something is below what is expected, which says all that such a loss would say.
    """
    alone = [one for one in slower if one.trusted is None]
    if not slower or (found and not alone):
        return
    worst = min(alone or slower, key=_of_usual)
    failed = [one for one in alone if _far_below(one, policy)]
    expected = "" if worst.ratio is None else f"; that is still {_percent(worst.ratio)} of what is expected"
    steady = any(_best_of_usual(one) < policy.usual for one in slower)
    evidence = (
        f"{worst.op} of {human(worst.size_bytes)}{on_gpus(worst.gpus)}: {worst.busbw / GB:.1f} GB/s, "
        f"{_percent(_of_usual(worst))} of its usual {_usual(worst)}{_more(slower)}{expected}"
        f"{_reasons(probed, worst)}{_doubt(steady=steady)}"
    )
    yield Breach("probe.slower", Subject(), Health.FAILED if failed else Health.DEGRADED, evidence, SLOWER.do)


def _below_wire(probed: Probed, rest: Sequence[Measured], policy: ProbePolicy) -> Iterator[Breach]:
    """Where neither what is expected nor what is usual has said anything."""
    low = [
        (one, rate, least)
        for one in rest
        if one.trusted is None and not one.latency and one.size_bytes >= LARGE
        if (rate := _wire_rate(probed, one)) is not None
        if one.busbw < (least := _least_share(probed, one, policy)) * rate
    ]
    if not low:
        return
    worst, rate, least = min(low, key=lambda found: found[0].busbw / found[1] / found[2])
    best = worst.best / rate
    wire = "the fastest copy between two of its GPUs" if isinstance(worst.wire, Absent) else "the wire"
    evidence = (
        f"{worst.op} of {human(worst.size_bytes)}{on_gpus(worst.gpus)}: {worst.busbw / GB:.1f} GB/s, "
        f"{_percent(worst.busbw / rate)} of {wire}, {rate / GB:.1f} GB/s{_more(low)}"
        f"{_reasons(probed, worst)}{_doubt(steady=best < least)}"
    )
    health = Health.FAILED if _is_nvlink(probed, worst) and best < SURE * least else Health.DEGRADED
    yield Breach("probe.implausible", Subject(), health, evidence, IMPLAUSIBLE.do)


def _wire_rate(probed: Probed, one: Measured) -> float | None:
    """The wire; where that is not known, the fastest copy over NVLink, which a collective comes near."""
    kind = probed.conditions[one.group].group.kind if probed.conditions else WireKind.UNKNOWN
    if not isinstance(one.wire, Absent):
        return one.wire.rate if kind is WireKind.SWITCH else one.wire.live
    if kind not in NVLINK:
        return None
    members = probed.plan.groups[one.group]
    copies = probed.document.copies if probed.document else ()
    inside = [copy for copy in copies if copy.source in members and copy.destination in members]
    return max((copy.size_bytes / copy.seconds for copy in inside), default=None)


def _is_nvlink(probed: Probed, one: Measured) -> bool:
    return bool(probed.conditions) and probed.conditions[one.group].group.kind in NVLINK


def _least_share(probed: Probed, one: Measured, policy: ProbePolicy) -> float:
    return policy.wire if _is_nvlink(probed, one) else policy.wire_pcie


def _far_below(one: Measured, policy: ProbePolicy) -> bool:
    """Below the lowest accepted probe too: some nodes have two speeds, by where the worker's memory lies."""
    return one.usual is not None and one.best < policy.ratio * one.usual.lowest


def _of_usual(one: Measured) -> float:
    return one.busbw / one.usual.rate if one.usual else 1.0


def _best_of_usual(one: Measured) -> float:
    return one.best / one.usual.rate if one.usual else 1.0


def _usual(one: Measured) -> str:
    return f"{one.usual.rate / GB:.1f} GB/s in {one.usual.count} accepted probes" if one.usual else ""


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _more(found: Sequence[object]) -> str:
    return f", and {len(found) - 1} more below" if len(found) > 1 else ""


def _doubt(*, steady: bool) -> str:
    return "" if steady else "; single runs were fast enough: not conclusive"


def _reasons(probed: Probed, worst: Measured) -> str:
    """What is known to lower bandwidth here: NCCL's settings, and the wire that joins islands."""
    settings = [f"{name}={value} ({effect})" for name, value, effect in slowing(probed)]
    reasons = f"; NCCL runs with {', '.join(settings)}" if settings else ""
    crossing = probed.conditions[worst.group].group.crossing
    if isinstance(crossing, Path):
        reasons += f"; the ring crosses {PATHS[crossing]}"
    return reasons
