"""Findings of a completed probe: wrong results, slow collectives, bytes on another path. Pure."""

from collections.abc import Iterator, Sequence

from wirewatch.busbw.expected import Expectation
from wirewatch.busbw.formulas import NVLS
from wirewatch.busbw.references import Confidence
from wirewatch.core import words
from wirewatch.core.collector import CONFIRMED, DEGRADED, FAILED, Rule
from wirewatch.core.pci import Path
from wirewatch.core.probe import MIB, Probed
from wirewatch.core.statistics import UsualRate, grouped
from wirewatch.core.topology import NVLINK, PATHS, WireKind
from wirewatch.core.types import Absent, Health, Subject
from wirewatch.nccl.settings import NVLS_ENABLE, slowing_settings
from wirewatch.probe import measurement
from wirewatch.probe.measurement import Measured, on_gpus
from wirewatch.probe.model import ProbeFinding, ProbePolicy
from wirewatch.probe.network import by_network
from wirewatch.verdict.straggler.signals import Loss

LOOK = "run `wirewatch probe --explain` on the idle node"
SLOW_WIRE = f"keep jobs away while it is FAILED; the peer matrix names the slow GPU or pair: {LOOK}"
SLOW_NETWORK = (
    "check rate and errors of the RDMA ports and the PCIe links of the NICs (`wirewatch check`), and "
    "whether GPUDirect helps (`wirewatch probe --transport net --gdr on,off`)"
)
LARGE = 256 * MIB
"""The least message that must reach a share of the wire: published tables have 0.51 and more there."""
LEAST_A_LINK = 64 * MIB
"""Least mean bytes on a GPU's links for a comparison of links where no copies went over all of them. Below
it, a few small messages decide."""
CLEARS = 0.03
"""A FAILED collective is over once it is this share of the expectation above the limit."""
SURE = 0.5
"""Below this part of the least plausible share, no setting or layout explains the result."""
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
PROBE_RULES = (
    Rule("probe.wrong_data", FAILED, "WrongData"),
    BUSBW,
    SLOWER,
    IMPLAUSIBLE,
    Rule("probe.transport", CONFIRMED, "ProbePath"),
    Rule("probe.nvls", DEGRADED, "ProbePath"),
    Rule("probe.path", DEGRADED, "ProbePath"),
    Rule("probe.uneven", DEGRADED, "ProbePath"),
    Rule("probe.link_errors", DEGRADED, "NVLinkErrors"),
)


def probe_findings(
    probed: Probed, measured: Sequence[Measured], policy: ProbePolicy
) -> tuple[ProbeFinding, ...]:
    """Return all findings of a completed probe, at most one finding of a rule for a part."""
    due = [(one, one.trusted) for one in measured if one.trusted is not None]
    low = [(one, trusted) for one, trusted in due if _is_low(one, trusted, policy)]
    others = [(one, one.usual) for one in measured if one.usual and (one, one.trusted) not in low]
    slower = [(one, usual) for one, usual in others if _is_slower(one, usual, policy)]
    rest = [one for one in measured if (one, one.usual) not in slower]
    return (
        *_wrong_data(measured),
        *_below_expected(probed, low, policy),
        *_below_usual(probed, slower, policy, found=bool(low)),
        *_below_wire(probed, rest, policy),
        *_detoured(probed),
        *_other_algorithm(probed, measured),
        *_bytes(probed, measured, policy),
        *_uneven(probed, policy),
        *_errors(probed),
    )


def slowing(probed: Probed) -> list[tuple[str, str, str]]:
    """Return NCCL's settings that lower bandwidth, except the setting that the expectation follows."""
    return [one for one in slowing_settings(probed.settings) if one[0] != NVLS_ENABLE]


def measured_text(one: Measured) -> str:
    """Return the measured value in words, beside the expected value where that is known."""
    if isinstance(one.expected, Absent):
        return f"{_collective(one)} {words.rate(one.busbw)}"
    expected = (
        f"{words.percent(one.busbw / one.expected.busbw)} of the expected {words.rate(one.expected.busbw)}"
    )
    return f"{_collective(one)}: {words.rate(one.busbw)}, {expected}"


def _collective(one: Measured) -> str:
    return f"{one.op} of {words.size(one.size_bytes)}{on_gpus(one.gpus)}"


def _wrong_data(measured: Sequence[Measured]) -> Iterator[ProbeFinding]:
    bad = [one for one in measured if one.wrong]
    if bad:
        texts = "; ".join(f"{one.op} of {words.size(one.size_bytes)}: {one.wrong} elements" for one in bad)
        yield ProbeFinding(
            "probe.wrong_data", Subject(), Health.FAILED, f"collectives gave wrong results: {texts}",
            "drain the node: jobs here compute wrong results; find the GPU with a memory and a link test",
            sure=True,
        )  # fmt: skip


def _detoured(probed: Probed) -> Iterator[ProbeFinding]:
    found = measurement.detours(probed)
    if not found:
        return
    pairs = ", ".join(dict.fromkeys(f"{f.source_rank} to {f.destination_rank}" for f in found[:8]))
    more = ", ..." if len(found) > 8 else ""  # noqa: PLR2004
    transports = ", ".join(dict.fromkeys(f.transport for f in found))
    settings = ", ".join(f"{name}={value}" for name, value, _ in slowing(probed))
    because = f"; NCCL runs with {settings}" if settings else ""
    yield ProbeFinding(
        "probe.transport", Subject(), Health.FAILED,
        f"NCCL used {measurement.worst_wire(found)} ({transports}) between GPUs that have NVLink: "
            f"ranks {pairs}{more}{because}",
        "check peer access (`nvidia-smi topo -p2p r`), IOMMU and ACS settings, and NCCL's settings",
    )  # fmt: skip


def _other_algorithm(probed: Probed, measured: Sequence[Measured]) -> Iterator[ProbeFinding]:
    if not (probed.account and any(device.available for device in probed.account.nvls)):
        # That the driver offers it must be known: in many virtual machines it does not.
        return
    bad = [one for one in measured if one.trusted is not None and _falls_back(one, one.trusted)]
    if bad:
        yield ProbeFinding(
            "probe.nvls", Subject(), Health.DEGRADED,
            f"NCCL chose {bad[0].algorithm} where NVLink SHARP (NVLS) is expected: {measured_text(bad[0])}",
            "look for a program that holds the fabric's multicast slots, and read the Fabric Manager's log",
        )  # fmt: skip


def _bytes(probed: Probed, measured: Sequence[Measured], policy: ProbePolicy) -> Iterator[ProbeFinding]:
    if measurement.detours(probed):
        # Where they went is a finding of its own.
        return
    crossed = measurement.crossings(probed, measured)
    known = [(one, one.share) for one in crossed if one.share is not None]
    bad = [(one, share) for one, share in known if abs(share - 1) > policy.path]
    places = {gpu.index: position for position, gpu in enumerate(probed.gpus)}
    for gpu, mine in grouped((found[0].gpu, found) for found in bad).items():
        worst, share = max(mine, key=lambda found: abs(found[1] - 1))
        yield ProbeFinding(
            "probe.path", _subject(probed, places[gpu]), Health.DEGRADED,
            f"{worst.part}: {share * worst.due / words.GB:.2f} GB over NVLink, "
            f"{worst.due / words.GB:.2f} GB expected ({words.percent(share)})",
            f"traffic takes another path, or another process also uses NVLink: {LOOK}",
        )  # fmt: skip


def _uneven(probed: Probed, policy: ProbePolicy) -> Iterator[ProbeFinding]:
    if by_network(probed.plan) or not all(c.group.kind in measurement.EVEN for c in probed.conditions):
        return
    for links in probed.links:
        known = [amount for amount in links.transmit if amount is not None]
        if not probed.plan.copy_bytes and sum(known) < LEAST_A_LINK * len(known):
            continue
        found = measurement.unevenness(links)
        if found is not None and found[1] > policy.uneven:
            link, away = found
            yield ProbeFinding(
                "probe.uneven", _subject(probed, links.gpu, str(link)), Health.DEGRADED,
                f"link {link} differs by {words.percent(away)} from the average of its GPU's links",
                "check this link's errors and state; one link that carries less slows all of them",
            )  # fmt: skip


def _errors(probed: Probed) -> Iterator[ProbeFinding]:
    for gpu, kinds in measurement.new_errors(probed).items():
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield ProbeFinding(
            "probe.link_errors", _subject(probed, gpu), Health.DEGRADED,
            f"new NVLink errors under the probe's load: {counts}",
            "look at the errors link by link; reseat or replace the part they point to",
        )  # fmt: skip


def _subject(probed: Probed, position: int, link: str = "") -> Subject:
    gpu = probed.gpus[position]
    return Subject(gpu=str(gpu.index), uuid=gpu.uuid, link=link)


def _falls_back(one: Measured, due: Expectation) -> bool:
    return due.algorithm == NVLS and bool(one.algorithm) and not one.algorithm.startswith(NVLS.lower())


def _is_low(one: Measured, due: Expectation, policy: ProbePolicy) -> bool:
    """Return whether it is below the limit, or so little above it that noise explains the difference.

    Until a history gives the usual value, the expectation stands for it, except a derived expectation.
    """
    near = policy.ratio
    if one.usual is not None:
        near += CLEARS * (one.usual.rate >= (near + CLEARS) * due.busbw)
    elif one.size_bytes >= LARGE and due.confidence is not Confidence.DERIVED and not _falls_back(one, due):
        near = max(near, policy.usual)
    return one.busbw < policy.ratio * due.busbw or max(one.busbw, one.best) < near * due.busbw


def _below_expected(
    probed: Probed, low: Sequence[tuple[Measured, Expectation]], policy: ProbePolicy
) -> Iterator[ProbeFinding]:
    if not low:
        return
    # When single runs were fast enough, something came between; that is no wire that is always slow.
    steady = [(one, due) for one, due in low if one.best < policy.ratio * due.busbw]
    worst, due = min(steady or low, key=lambda pair: pair[0].busbw / pair[1].busbw)
    doubt = _doubt(steady=bool(steady) or worst.busbw >= policy.ratio * due.busbw)
    evidence = f"{measured_text(worst)}{_more(low)}{_reasons(probed, worst)}{doubt}"
    yield ProbeFinding(
        "probe.busbw", Subject(), Health.FAILED if steady else Health.DEGRADED, evidence,
        SLOW_NETWORK if by_network(probed.plan) else SLOW_WIRE,
    )  # fmt: skip


def _is_slower(one: Measured, usual: UsualRate, policy: ProbePolicy) -> bool:
    if one.busbw >= policy.usual * usual.rate:
        return False
    noise = max(policy.straggler.noise_pair, usual.spread)
    return Loss(1 - one.busbw / usual.rate, noise, usual.rate).score >= policy.straggler.score


def _below_usual(
    probed: Probed, slower: Sequence[tuple[Measured, UsualRate]], policy: ProbePolicy, *, found: bool
) -> Iterator[ProbeFinding]:
    """Find losses against the usual value; they keep no job away while the expectation is reached.

    `found`: something is below its expectation, which covers such a loss too.
    """
    alone = [(one, usual) for one, usual in slower if one.trusted is None]
    if not slower or (found and not alone):
        return
    worst, usual = min(alone or slower, key=lambda pair: pair[0].busbw / pair[1].rate)
    # Below the lowest accepted probe too: some nodes have two speeds, by where the worker's memory lies.
    failed = any(one.best < policy.ratio * usual.lowest for one, usual in alone)
    still = f"; that is still {words.percent(worst.ratio)} of what is expected"
    expected = "" if worst.ratio is None else still
    steady = any(one.best < policy.usual * usual.rate for one, usual in slower)
    evidence = (
        f"{_collective(worst)}: {words.rate(worst.busbw)}, "
        f"{words.percent(worst.busbw / usual.rate)} of its usual {words.rate(usual.rate)} "
        f"in {usual.count} accepted probes{_more(slower)}{expected}{_reasons(probed, worst)}"
        f"{_doubt(steady=steady)}"
    )
    health = Health.FAILED if failed else Health.DEGRADED
    yield ProbeFinding("probe.slower", Subject(), health, evidence, SLOWER.do)


def _below_wire(probed: Probed, rest: Sequence[Measured], policy: ProbePolicy) -> Iterator[ProbeFinding]:
    """Find implausible bandwidths where neither the expectation nor the usual value decides."""
    low = [
        (one, rate, least)
        for one in rest
        if one.trusted is None and not one.latency and one.size_bytes >= LARGE
        if (rate := _wire_rate(probed, one)) is not None
        if one.busbw < (least := policy.wire if _is_nvlink(probed, one) else policy.wire_pcie) * rate
    ]
    if not low:
        return
    worst, rate, least = min(low, key=lambda found: found[0].busbw / found[1] / found[2])
    best = worst.best / rate
    wire = "the fastest copy between two of its GPUs" if isinstance(worst.wire, Absent) else "the wire"
    evidence = (
        f"{_collective(worst)}: {words.rate(worst.busbw)}, "
        f"{words.percent(worst.busbw / rate)} of {wire}, {words.rate(rate)}{_more(low)}"
        f"{_reasons(probed, worst)}{_doubt(steady=best < least)}"
    )
    health = Health.FAILED if _is_nvlink(probed, worst) and best < SURE * least else Health.DEGRADED
    yield ProbeFinding("probe.implausible", Subject(), health, evidence, IMPLAUSIBLE.do)


def _wire_rate(probed: Probed, one: Measured) -> float | None:
    """Return the wire; where it is not known, the fastest copy over NVLink, which a collective comes near."""
    kind = probed.conditions[one.group].group.kind if probed.conditions else WireKind.UNKNOWN
    if not isinstance(one.wire, Absent):
        return one.wire.rate if kind is WireKind.SWITCH else one.wire.live
    if kind not in NVLINK:
        return None
    members = probed.plan.groups[one.group]
    inside = [c for c in probed.shown.copies if c.source in members and c.destination in members]
    return max((copy.size_bytes / copy.seconds for copy in inside), default=None)


def _is_nvlink(probed: Probed, one: Measured) -> bool:
    return probed.conditions[one.group].group.kind in NVLINK


def _more(found: Sequence[object]) -> str:
    return f", and {len(found) - 1} more below" if len(found) > 1 else ""


def _doubt(*, steady: bool) -> str:
    return "" if steady else "; single runs were fast enough: not conclusive"


def _reasons(probed: Probed, worst: Measured) -> str:
    """Return known reasons for low bandwidth here: NCCL's settings, and the wire that joins islands."""
    settings = [f"{name}={value} ({effect})" for name, value, effect in slowing(probed)]
    reasons = f"; NCCL runs with {', '.join(settings)}" if settings else ""
    crossing = probed.conditions[worst.group].group.crossing
    if isinstance(crossing, Path):
        reasons += f"; the ring crosses {PATHS[crossing]}"
    return reasons
