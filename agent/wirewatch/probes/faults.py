"""What one probe found wrong. Pure; whether it is believed is for the fold over probes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wirewatch.busbw.expected import human
from wirewatch.busbw.formulas import NVLS
from wirewatch.core.pci import Path
from wirewatch.core.probe import Probed
from wirewatch.core.topology import PATHS
from wirewatch.core.types import Absent, Health, Subject
from wirewatch.nccl.settings import NVLS_ENABLE, slowing_settings
from wirewatch.probes import path
from wirewatch.probes.measure import Measured
from wirewatch.probes.policy import ProbePolicy

GB = 1e9
LOOK = "run `wirewatch probe --explain` on the idle node"


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that one probe broke. `worst`: how bad it gets once confirmed; `sure`: believed at once."""

    rule: str
    subject: Subject
    worst: Health
    evidence: str
    action: str
    sure: bool = False


def breaches(probed: Probed, measured: Sequence[Measured], policy: ProbePolicy) -> tuple[Breach, ...]:
    """Everything that a completed probe found wrong, at most one of a rule for a part."""
    return (
        *_wrong(measured),
        *_slow(probed, measured, policy),
        *_detoured(probed),
        *_other_algorithm(probed, measured),
        *_bytes(probed, measured, policy),
        *_uneven(probed, policy),
        *_errors(probed),
    )


def _wrong(measured: Sequence[Measured]) -> Iterator[Breach]:
    bad = [one for one in measured if one.wrong]
    if bad:
        told = "; ".join(f"{one.op} of {human(one.size_bytes)}: {one.wrong} elements" for one in bad)
        yield Breach(
            "probe.wrong_data", Subject(), Health.FAILED, f"collectives gave wrong results: {told}",
            "drain the node: jobs here compute nonsense; find the GPU with a memory and a link test",
            sure=True,
        )  # fmt: skip


def _slow(probed: Probed, measured: Sequence[Measured], policy: ProbePolicy) -> Iterator[Breach]:
    bad = [one for one in measured if one.ratio is not None and one.ratio < policy.ratio]
    if not bad:
        return
    # When single runs were fast enough, something came between; that is no wire that is always slow.
    steady = [one for one in bad if (one.best_ratio or 0.0) < policy.ratio]
    worst = min(steady or bad, key=lambda one: one.ratio or 0.0)
    others = f", and {len(bad) - 1} more below" if len(bad) > 1 else ""
    evidence = f"{_told(worst)}{others}{_reasons(probed, worst)}"
    if not steady:
        evidence += "; single runs were fast enough: not conclusive"
    yield Breach(
        "probe.busbw", Subject(), Health.FAILED if steady else Health.DEGRADED, evidence,
        f"keep jobs away; the peer matrix names the slow GPU or pair: {LOOK}",
    )  # fmt: skip


def _told(one: Measured) -> str:
    if isinstance(one.expected, Absent):
        return f"{one.op} of {human(one.size_bytes)} {one.busbw / GB:.1f} GB/s"
    where = "" if one.gpus == "all" else f" on GPUs {one.gpus}"
    return (
        f"{one.op} of {human(one.size_bytes)}{where}: {one.busbw / GB:.1f} GB/s, {one.ratio or 0:.0%} of the "
        f"expected {one.expected.busbw / GB:.1f} GB/s"
    ).replace("%", " %")


def _reasons(probed: Probed, worst: Measured) -> str:
    """What is known to lower bandwidth here: NCCL's settings, and the wire that joins islands."""
    told = [f"{name}={value} ({effect})" for name, value, effect in _slowing(probed)]
    reasons = f"; NCCL is told {', '.join(told)}" if told else ""
    crossing = probed.conditions[worst.group].group.crossing
    if isinstance(crossing, Path):
        reasons += f"; the ring crosses {PATHS[crossing]}"
    return reasons


def _slowing(probed: Probed) -> list[tuple[str, str, str]]:
    """NCCL's settings that lower bandwidth, but for the one that the expectation follows."""
    return [told for told in slowing_settings(probed.settings) if told[0] != NVLS_ENABLE]


def _detoured(probed: Probed) -> Iterator[Breach]:
    found = path.detours(probed)
    if not found:
        return
    pairs = ", ".join(
        f"{a} to {b}" for a, b in dict.fromkeys((f.source_rank, f.destination_rank) for f in found[:8])
    )
    more = ", ..." if len(found) > 8 else ""  # noqa: PLR2004
    transports = ", ".join(dict.fromkeys(f.transport for f in found))
    told = [f"{name}={value}" for name, value, _ in _slowing(probed)]
    because = f"; NCCL is told {', '.join(told)}" if told else ""
    yield Breach(
        "probe.transport", Subject(), Health.FAILED,
        f"NCCL went by {path.worst_wire(found)} ({transports}) where NVLink is: ranks {pairs}{more}{because}",
        "look for peer access: `nvidia-smi topo -p2p r`, IOMMU and ACS settings, NCCL's settings",
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
            f"NCCL took {bad[0].algorithm} where NVLink SHARP (NVLS) is due: {_told(bad[0])}",
            "look for a program that holds the fabric's multicast slots, and into the Fabric Manager's log",
        )  # fmt: skip


def _bytes(probed: Probed, measured: Sequence[Measured], policy: ProbePolicy) -> Iterator[Breach]:
    if path.detours(probed):
        # Where they went has been told.
        return
    bad = [
        one
        for one in path.crossings(probed, measured)
        if one.share is not None and abs(one.share - 1) > policy.path
    ]
    for gpu in dict.fromkeys(one.gpu for one in bad):
        mine = [one for one in bad if one.gpu == gpu]
        worst = max(mine, key=lambda one: abs((one.share or 0.0) - 1))
        yield Breach(
            "probe.path", _subject(probed, gpu), Health.DEGRADED,
            f"{worst.part}: {(worst.sent or 0) / GB:.2f} GB by NVLink, {worst.due / GB:.2f} GB were due "
            f"({worst.share or 0:.0%})".replace("%", " %"),
            f"traffic takes another way, or somebody else's takes this one: {LOOK}",
        )  # fmt: skip


def _uneven(probed: Probed, policy: ProbePolicy) -> Iterator[Breach]:
    if not all(c.group.kind in path.EVEN for c in probed.conditions):
        return
    for links in probed.links:
        found = path.unevenness(links)
        if found is not None and found[1] > policy.uneven:
            link, away = found
            yield Breach(
                "probe.uneven", _subject(probed, links.gpu, str(link)), Health.DEGRADED,
                f"link {link} is {away * 100:.0f} % away from what its GPU's links carry on average",
                "look at this link's errors and state; one link that carries less slows all of them",
            )  # fmt: skip


def _errors(probed: Probed) -> Iterator[Breach]:
    for gpu, kinds in path.new_errors(probed).items():
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield Breach(
            "probe.link_errors", _subject(probed, gpu), Health.DEGRADED,
            f"new NVLink errors under the probe's load: {told}",
            "look at the errors link by link; reseat or replace the part they point to",
        )  # fmt: skip


def _subject(probed: Probed, position: int, link: str = "") -> Subject:
    gpu = probed.gpus[position]
    return Subject(gpu=str(gpu.index), uuid=gpu.uuid, link=link)
