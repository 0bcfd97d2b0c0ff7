"""Host links: the speed of each beside its expectation, and the slow links. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wirewatch.busbw.hostlink import HostExpectation, expect_host, is_placed
from wirewatch.busbw.references import Confidence
from wirewatch.core import words
from wirewatch.core.collector import CONFIRMED, Rule
from wirewatch.core.hostlink import HostCopies, HostMoved, HostPath, Pcie
from wirewatch.core.probe import NOT_KNOWN, Probed
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, Health, Subject
from wirewatch.probe.measurement import Collective, CollectiveRates
from wirewatch.probe.model import ProbeFinding, ProbePolicy
from wirewatch.verdict.straggler.signals import Loss

TO, FROM = "host to device", "device to host"
SURE = 0.5
"""Below this part of the least share, no layout explains the result, whatever the other GPUs reach."""
HOST = Rule(
    "probe.host_link",
    CONFIRMED,
    means="copies between a GPU and pinned memory of the host, made on CPUs near it, reached less than 70 % "
    "of what the narrowest PCIe link of the way should carry. FAILED when two probes in a row found it and "
    "most other GPUs reach it, or less than half of that. DEGRADED where most GPUs are below, where those of "
    "one socket and no others are, or, without a "
    "GPU named, where GPUs that copy at once get less than 85 % of their usual share",
    look="`wirewatch probe --explain`: each direction, the link and what follows from it, who shares an "
    "uplink; `wirewatch check` for `pcie.*`; `wirewatch_probe_host_link_bytes_per_second`",
    do="reseat the GPU or its riser, and check the slot's generation and lanes in the BIOS; then the IOMMU, "
    "and whether the prober may use the CPUs near the GPU. Loading data and checkpoints are slow meanwhile",
)


class HostWay(NamedTuple):
    """One direction, bytes per second: in a row, of the fastest copy, while all GPUs copy, and expected."""

    name: str
    rate: float
    best: float
    together: float
    expected: float | None


@dataclass(frozen=True, slots=True)
class HostLink:
    """The measurement of one GPU's host link.

    `expected` is LOW, and for people alone, where too little is known of the path to judge by it.
    """

    copies: HostCopies
    path: HostPath
    expected: HostExpectation | Absent
    moved: HostMoved | None

    @property
    def both(self) -> float:
        """Bytes per second each way while both directions copy."""
        return self.copies.size_bytes / self.copies.both

    @property
    def ways(self) -> tuple[HostWay, HostWay]:
        """To the device, and from it."""
        one, due = self.copies, self.expected
        sure = None if isinstance(due, Absent) or due.confidence is Confidence.LOW else due
        to = [one.size_bytes / t for t in (one.to_device, one.to_device_low, one.all_to_device)]
        back = [one.size_bytes / t for t in (one.from_device, one.from_device_low, one.all_from_device)]
        return (
            HostWay(TO, to[0], to[1], to[2], sure.to_device if sure else None),
            HostWay(FROM, back[0], back[1], back[2], sure.from_device if sure else None),
        )

    @property
    def worst(self) -> tuple[float, HostWay] | None:
        """Return the direction with the least share of its expectation, and that share; None: not known."""
        return min(((way.rate / way.expected, way) for way in self.ways if way.expected), default=None)

    @property
    def ran_at(self) -> str:
        """Generation and lanes right after the copies, empty where not known."""
        now = self.moved.pcie if self.moved else NOT_KNOWN
        return f"PCIe {now.generation} x{now.lanes}" if isinstance(now, Pcie) else ""

    @property
    def counted(self) -> float | None:
        """The share of its bytes that PCIe's counters saw, of both directions together; None: not counted."""
        if self.moved is None or self.moved.sent is None or self.moved.received is None:
            return None
        due = 2 * self.copies.size_bytes * self.copies.runs
        return (self.moved.sent + self.moved.received) / due


def host_links(probed: Probed) -> tuple[HostLink, ...]:
    """Return the measurement of each GPU's host link; nothing for a probe that was broken off."""
    moved = {one.gpu: one for one in probed.hosts}
    found = []
    for one in probed.shown.hosts if probed.outcome == "ok" else ():
        path = probed.paths[one.gpu] if probed.paths else HostPath(NOT_KNOWN)
        found.append(HostLink(one, path, expect_host(path, one.near), moved.get(one.gpu)))
    return tuple(found)


def uplinks(probed: Probed) -> tuple[tuple[int, ...], ...]:
    """Return groups of GPUs, by position, that share one known root port."""
    known = grouped((path.uplink, gpu) for gpu, path in enumerate(probed.paths) if path.uplink)
    return tuple(tuple(gpus) for gpus in known.values() if len(gpus) > 1)


def shares(probed: Probed) -> dict[Collective, float]:
    """Return by direction and GPUs their joint rate while all copy, as a share of their rates alone.

    So a GPU that is slow by itself is not slow here too.
    """
    links = {one.copies.gpu: one for one in host_links(probed)}
    found: dict[Collective, float] = {}
    for gpus in (tuple(links), *uplinks(probed)) if probed.gpus and len(links) > 1 else ():
        members = [links[gpu] for gpu in gpus]
        uuids = tuple(probed.plan.gpus[gpu] for gpu in gpus)
        for ways in zip(*(one.ways for one in members), strict=True):
            if all(is_placed(one.path, one.copies.near) for one in members):
                key = Collective(ways[0].name, members[0].copies.size_bytes, uuids, probed.plan.engine)
                found[key] = sum(one.together for one in ways) / sum(one.rate for one in ways)
    return found


def unjudged(probed: Probed) -> frozenset[str]:
    """Return UUIDs of GPUs whose requested host links could not be compared with an expectation.

    "" is among them where the node cannot be judged either.
    """
    judged = {probed.plan.gpus[one.copies.gpu] for one in host_links(probed) if one.worst}
    blind = {*probed.plan.gpus, *(() if judged or shares(probed) else ("",))} - judged
    return frozenset(blind if probed.plan.host_bytes else ())


def host_findings(probed: Probed, usual: CollectiveRates, policy: ProbePolicy) -> tuple[ProbeFinding, ...]:
    """Return findings of host links below their expectation, and of shared links below their past."""
    return (*_below_expected(probed, policy), *_below_share(probed, usual, policy))


def _below_expected(probed: Probed, policy: ProbePolicy) -> Iterator[ProbeFinding]:
    """Return a finding for each GPU below; one finding for all if most are, as the figure may be wrong."""
    judged = [(one, *one.worst) for one in host_links(probed) if one.worst]
    low = sorted((found for found in judged if found[1] < policy.ratio), key=lambda found: found[1])
    few, alone = 2 * len(low) <= len(judged), len(low) == 1
    paths = [one.path for one, *_ in low], [one.path for one, share, _ in judged if share >= policy.ratio]
    port, socket = (_shared(kind, *paths) for kind in ("uplink", "cpus"))
    group = f"below {port}" if port else f"near CPUs {socket}" if socket else ""
    common = f": all those {group} and no other, so that they may share a cause" if group else ""
    for one, share, way in low if few else low[:1]:
        due = way.expected or 0.0
        steady, gpu = way.best < policy.ratio * due, probed.gpus[one.copies.gpu]
        named = Subject(gpu=str(gpu.index), uuid=gpu.uuid) if few or alone else Subject()
        worst = "" if named.gpu else f", GPU {gpu.index} the slowest"
        doubt = "" if steady else "; single copies were fast enough: not conclusive"
        evidence = (
            f"{way.name}: {words.rate(way.rate)}, {words.percent(share)} of the expected {words.rate(due)}; "
            f"{len(low)} of {len(judged)} GPUs so slow{common}{worst}{_link(one)}{doubt}"
        )
        failed = steady and ((few and (bool(port) or not socket)) or way.best < SURE * policy.ratio * due)
        yield ProbeFinding(
            "probe.host_link", named, Health.FAILED if failed else Health.DEGRADED, evidence, HOST.do
        )


def _shared(kind: str, slow: Sequence[HostPath], others: Sequence[HostPath]) -> str:
    """Return the value of this field that several slow paths share, and no other path; empty for none."""
    found, rest = ({getattr(path, kind) for path in paths} for paths in (slow, others))
    return found.pop() if len(slow) > 1 == len(found) and others and not found & rest else ""


def _below_share(probed: Probed, usual: CollectiveRates, policy: ProbePolicy) -> Iterator[ProbeFinding]:
    found = []
    for key, share in shares(probed).items():
        known = usual.of(key, "", policy.learn)
        if known is not None and share < policy.usual * known.rate:
            loss = Loss(1 - share / known.rate, max(policy.straggler.noise_host, known.spread), known.rate)
            if loss.score >= policy.straggler.score:
                found.append((loss.part, share, known, key))
    for _, share, known, key in sorted(found, key=lambda one: one[0])[-1:]:
        gpus = ", ".join(str(gpu.index) for gpu in probed.gpus if gpu.uuid in key.gpus)
        evidence = (
            f"{key.op}: while all GPUs copy, GPUs {gpus} get {words.percent(share)} of what they get alone, "
            f"and {words.percent(known.rate)} in {known.count} accepted probes"
        )
        yield ProbeFinding("probe.host_link", Subject(), Health.DEGRADED, evidence, HOST.do)


def _link(one: HostLink) -> str:
    """Return the state of its PCIe link in words, where that is less than it should be."""
    due = one.path.pcie
    if one.moved is None or one.moved.pcie == due or isinstance(due, Absent) or not one.ran_at:
        return ""
    return f"; its link runs at {one.ran_at}, the way allows {due.generation} x{due.lanes}"
