"""Judge NVLink: the expected links of each GPU, its memory, and its faults."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from wirewatch.collectors.nvlink.model import (
    DEFAULT_LIMITS,
    LINK_STATES,
    NO_FABRIC,
    NO_SIBLINGS,
    START,
    ActiveLinks,
    DueLinks,
    Fabric,
    GpuLinks,
    LastingLinks,
    LinkDetail,
    NvlinkLink,
    NvlinkMemory,
    NvlinkPolicy,
    NvlinkReading,
    Siblings,
    find_siblings,
    seen_active,
    usual_rate,
)
from wirewatch.core.collector import (
    CONFIRMED,
    DEGRADED,
    STARTING,
    GpuMemory,
    Memories,
    Rule,
    filled,
    fold_gpus,
    forget_gone,
    is_lost,
    subject,
    unread,
)
from wirewatch.core.nvml import FABRIC_STATES, FABRIC_SUMMARIES, UP, fabric_troubles
from wirewatch.core.ports import Gpu
from wirewatch.core.statistics import Streak, Window, streaks
from wirewatch.core.topology import BOARD, BOARD_OF_8, RACK, NvlinkProduct, nvlink_product
from wirewatch.core.types import Absent, ErrorLimit, Expect, Finding, Health, Ok, Subject
from wirewatch.core.witnesses import Says, State, Weighed, Witnesses, weigh
from wirewatch.core.words import GB, RESET_GPU

LINK_DOWN = Rule("nvlink.link_down", STARTING, "NVLinkDown")
DOWN = Rule("nvlink.down", STARTING, "NVLinkDown")
LINKS_MISSING = Rule("nvlink.links_missing", STARTING, "NVLinkDown")
LINK_SLOW = Rule("nvlink.link_slow", CONFIRMED, "NVLinkSlow")
SLOW = Rule("nvlink.slow", CONFIRMED, "NVLinkSlow")
BER = Rule("nvlink.ber", DEGRADED, "NVLinkErrors")
C2C_DOWN = Rule("c2c.link_down", CONFIRMED, "NVLinkDown")
FABRIC_STATE = "fabric.state"
LINK_ACTION = (
    f"drain; see `nvidia-smi nvlink -s` and XID 74 or 149 in the kernel log; {RESET_GPU}, then reseat it"
)
ERROR_ACTION = (
    f"watch this link under load; if the count keeps rising, drain, {RESET_GPU}; replace it if that "
    "does not help"
)
FABRIC_ACTION = f"check nvidia-fabricmanager (or IMEX) on this node and its log; once it runs, {RESET_GPU}"
PARTITION_ACTION = (
    "the host may give all GPUs of this virtual machine fewer links: ask whoever runs the host; if that is "
    "intended, set `[expect] nvlink_links`"
)


@dataclass(frozen=True)
class NvlinkCase:
    """One GPU's reading with all inputs of the judgement; rates of our table (`listed`) and `proven` here."""

    gpu: Gpu
    value: GpuLinks
    memory: NvlinkMemory
    policy: NvlinkPolicy
    listed: float
    proven: float
    expected: int | None
    partition: bool
    pattern: frozenset[int]
    siblings: Siblings = NO_SIBLINGS
    more: int = 0

    @property
    def starting(self) -> bool:
        """Return whether fabric and links are coming up, and are still within their time."""
        grace, booted = self.policy.fabric_grace, self.value.booted
        return self.memory.grace.lasts(grace) or 0 <= booted < grace

    def link(self, number: int | None = None) -> Weighed:
        """Return the state of a link that is not up; None for a missing link without a number."""
        memory = self.memory
        known = number in memory.lit or (number in memory.seen_active and not self.starting)
        return weigh(Witnesses(
            nvml=Says.ILL,
            clock=Says.COMING if self.starting else Says.NOTHING,
            memory=Says.DUE if known else Says.NOTHING,
            siblings=Says.AWAY if self.siblings.away else Says.NOTHING,
            product=Says.NOTHING if self.partition else Says.DUE,
        ))  # fmt: skip

    def down_health(self, link: int) -> Health:
        """Return the health for a link that is down: milder where it may be down by design, or not up yet."""
        return self.health(self.link(link).state, f"link:{link}")

    def health(self, state: State, fault: str) -> Health:
        """Return the health of the part that a fault names."""
        if state in {State.STARTING, State.NOT_KNOWN}:
            return Health.UNKNOWN
        return self.confirmed(fault) if state is State.FAULTY else Health.DEGRADED

    def slow_health(self, link: int) -> Health:
        """Return the health for a slow link: a rate that only our table has is no proof."""
        certain = self.slow[link] < self.proven * self.policy.slow_ratio
        return self.confirmed(f"link:{link}") if certain else Health.DEGRADED

    @property
    def usual(self) -> str:
        """Return the reference of a slow link, in words."""
        if self.listed > self.proven:
            return f"{self.listed / GB:.3f} GB/s by wirewatch's product table"
        return f"usual {self.proven / GB:.3f} GB/s"

    def confirmed(self, fault: str) -> Health:
        """Return FAILED for a fault that was seen for enough polls in a row, else DEGRADED."""
        streak = self.memory.streaks.get(fault, Streak())
        return Health.FAILED if streak.count >= self.policy.confirm else Health.DEGRADED

    def of(self, link: int | None = None) -> Subject:
        return subject(self.gpu, link)

    @cached_property
    def down(self) -> list[int]:
        """Return links that should carry traffic and do not.

        Where bridges decide the count, links that were active count. Others count where no choice is left:
        the number of missing links equals the inactive links, or siblings have them active.
        """
        links = self.value.links
        bad = {k.link for k in links if k.state not in UP and not isinstance(k.state, Absent)}
        faulty = {n for n in range(self.value.count) if f"link:{n}" in self.memory.streaks}
        gone = (self.memory.seen_active | faulty) - {k.link for k in links}
        sure = (bad & self.memory.seen_active) | gone
        missing = (self.expected or 0) - (len(links) - len(bad)) - len(sure)
        for likely in (bad - sure, (bad - sure) & self.pattern):
            if 0 < len(likely) <= missing:
                sure |= likely
                break
        return sorted(sure)

    @cached_property
    def c2c_down(self) -> dict[int, str]:
        """Return chip-to-chip links that are inactive or no longer reported, each with the evidence."""
        here = {link.link: link.state for link in self.value.c2c}
        gone = dict.fromkeys(self.memory.c2c_active - set(here), "no longer reported")
        return gone | {n: "inactive" for n, state in here.items() if state == 0}

    @cached_property
    def slow(self) -> dict[int, float]:
        """Return active links that run well under the usual rate, each with its own rate."""
        least = max(self.listed, self.proven) * self.policy.slow_ratio
        known = ((k.link, k.speed) for k in self.value.links if k.state in UP)
        return {link: speed for link, speed in known if not isinstance(speed, Absent) and speed < least}


class FabricFault(NamedTuple):
    """A fault of the fabric; a `mild` one makes NVLink slower and stops no job."""

    rule: str
    evidence: str
    mild: bool = False
    state: State = State.FAULTY


_MILD_TROUBLES = frozenset({"route_recovery", "access_timeout_recovery", "degraded_bandwidth"})
_UNHEALTHY, _LIMITED = FABRIC_SUMMARIES.index("unhealthy"), FABRIC_SUMMARIES.index("limited_capacity")
RULES = (
    LINK_DOWN, DOWN, LINKS_MISSING, LINK_SLOW, SLOW, Rule("nvlink.*_errors", DEGRADED, "NVLinkErrors"), BER,
    Rule(FABRIC_STATE, STARTING, "Fabric"), Rule("fabric.*", CONFIRMED, "Fabric"), C2C_DOWN,
)  # fmt: skip


def judge(
    memories: Memories[NvlinkMemory], ok: Ok[NvlinkReading], policy: NvlinkPolicy, expect: Expect
) -> tuple[dict[str, GpuMemory[NvlinkMemory]], tuple[Finding, ...]]:
    """Judge each GPU by itself and its siblings: return its memory by key, and all findings of now."""
    siblings, due = find_siblings(ok.value, memories)

    def one(memory: NvlinkMemory, gpu: Gpu, value: GpuLinks) -> tuple[NvlinkMemory, tuple[Finding, ...]]:
        alike = siblings.get(gpu.name, NO_SIBLINGS)
        return _judge_gpu(memory, gpu, value, policy, expect, ok.mono, alike, due)

    return fold_gpus("nvlink", memories, ok.value, START, one, NvlinkMemory.rested)


def applicable(reading: NvlinkReading) -> bool:
    """Return whether any GPU has links and is not split by MIG (which reports its links as down)."""
    return any(not isinstance(i.value, Absent) and i.value.links and not i.value.mig for i in reading)


def keep(memories: Memories[NvlinkMemory]) -> LastingLinks:
    known = {one.gpu: one.memory for one in memories.values() if one.gpu.uuid}
    return LastingLinks({
        gpu.uuid: ActiveLinks(
            gpu.index, gpu.name, tuple(sorted(memory.seen_active)), memory.fastest,
            tuple(sorted(memory.c2c_active)), gpu.pci, memory.registered,
        )
        for gpu, memory in known.items()
        if memory.seen_active or memory.c2c_active
    })  # fmt: skip


def recall(kept: LastingLinks) -> Memories[NvlinkMemory]:
    """Return memories of GPUs by their earlier links; other collectors judge whether a GPU is missing."""
    return {
        uuid: GpuMemory(
            Gpu(one.index, uuid, one.slot, one.name),
            NvlinkMemory(
                seen_active=frozenset(one.links),
                c2c_active=frozenset(one.c2c),
                fastest=one.rate,
                registered=one.registered,
            ),
            present=None,
        )
        for uuid, one in kept.gpus.items()
    }


def forget(memories: Memories[NvlinkMemory]) -> Memories[NvlinkMemory]:
    """Return the memories without links that are not active now, and without missing GPUs."""
    here = forget_gone(memories)
    return {key: replace(one, memory=_present(one.memory)) for key, one in here.items()}


def error_limit(policy: NvlinkPolicy, kind: str) -> ErrorLimit | None:
    """The operator's limit for a kind of error, else the default; None when the kind is not judged."""
    return policy.error_limits.get(kind) or DEFAULT_LIMITS.get(kind)


def _judge_gpu(
    memory: NvlinkMemory,
    gpu: Gpu,
    value: GpuLinks,
    policy: NvlinkPolicy,
    expect: Expect,
    mono: float,
    siblings: Siblings,
    due: DueLinks,
) -> tuple[NvlinkMemory, tuple[Finding, ...]]:
    if value.mig:
        return replace(memory.rested(), supported=value.supported, links=value.count), ()
    product = nvlink_product(gpu.name) if siblings.counts else None
    seen = seen_active(memory, value)
    expected = _expected(product, max(len(seen), due.counts.get(gpu.key, 0)), expect, siblings)
    known = _known(value, memory.last)
    registers = isinstance(known.fabric, Fabric) and known.fabric.registers
    new = replace(
        memory, seen_active=seen, expected=expected, last=known,
        c2c_active=memory.c2c_active | {link.link for link in value.c2c if link.state in UP},
        fastest=max(memory.fastest, usual_rate(value)),
        grace=memory.grace.see(mono, waiting=registers or siblings.dark),
        lit=memory.lit | {link.link for link in value.links if link.state in UP},
        registered=memory.registered or (isinstance(value.fabric, Fabric) and value.fabric.completed),
    )  # fmt: skip
    new = _remember(new, value, policy, mono)
    listed = product.link_rate if product else 0.0
    case = NvlinkCase(
        gpu, known, new, policy, listed, _proven(listed, new.fastest, siblings, policy), expected,
        partition=expect.nvlink_links is None and siblings.partition(product),
        pattern=due.patterns.get(gpu.name, frozenset()), siblings=siblings,
        more=0 if expect.nvlink_links else due.more.get(gpu.key, 0),
    )  # fmt: skip
    found = _streaks(case, value)
    if found != new.streaks:
        new = replace(new, streaks=found)
        case = replace(case, memory=new)
    parts = (_links_down, _slow, _errors, _ber, _fabric, _c2c)
    findings = (finding for part in parts for finding in part(case))
    return new, (*findings, *unread("nvlink", gpu, _essential(value)))


def _essential(value: GpuLinks) -> dict[str, object]:
    """Return the values that must be readable; a payload counter at a standstill is a gap, not blindness."""
    lost: dict[str, object] = {f"{k} errors": v for k, v in value.errors.items() if isinstance(v, Absent)}
    for link in value.links:
        if isinstance(link.state, Absent):
            lost[f"state of link {link.link}"] = link.state
        if isinstance(link.speed, Absent):
            lost[f"speed of link {link.link}"] = link.speed
    for link in value.c2c:
        lost |= {f"state of chip-to-chip link {link.link}": link.state}
    lost |= {"fabric": value.fabric, "single links": value.detail, "bytes": value.traffic.lost}
    return lost | {"bit error rate": value.effective_ber}


def _known(value: GpuLinks, last: GpuLinks | None) -> GpuLinks:
    """Return the reading for judging, with unreadable values as they were last."""
    if last is None:
        return value
    known = filled(value, last, "fabric", "effective_ber")
    return replace(known, links=_links(value.links, last.links), c2c=_links(value.c2c, last.c2c))


def _links(now: tuple[NvlinkLink, ...], last: tuple[NvlinkLink, ...]) -> tuple[NvlinkLink, ...]:
    before = {link.link: link for link in last}
    return tuple(filled(link, before.get(link.link), "state", "speed") for link in now)


def _expected(product: NvlinkProduct | None, due: int, expect: Expect, siblings: Siblings) -> int | None:
    """Return how many links should be active; `due`: by its past and siblings, where nothing else says."""
    if expect.nvlink_links is not None:
        return expect.nvlink_links
    if product and len(product.counts) == 1 and not siblings.alone:
        return product.counts[0]
    return due or None


def _proven(listed: float, fastest: float, siblings: Siblings, policy: NvlinkPolicy) -> float:
    """Return the rate that links of this product have shown here; our table's rate if any comes near it."""
    near = siblings.fastest >= listed * policy.slow_ratio
    return max(fastest, siblings.rate, listed if near else 0.0)


def _remember(memory: NvlinkMemory, value: GpuLinks, policy: NvlinkPolicy, mono: float) -> NvlinkMemory:
    windows = dict(memory.errors)
    for kind, count in value.errors.items():
        if not isinstance(count, Absent):
            limit = error_limit(policy, kind)
            length = limit.seconds if limit else 0.0
            windows[kind] = windows.get(kind, Window()).add(count, mono, length)
    return replace(
        memory,
        supported=value.supported,
        links=value.count,
        raw=value.traffic.raw,
        errors=windows,
        detail=_merge(memory.detail, value.detail),
    )


def _merge(old: LinkDetail | None, new: LinkDetail | Absent | None) -> LinkDetail | None:
    """Return the newest reading of single links; a failed reading withdraws the earlier values."""
    if new is None:
        return old
    if isinstance(new, Absent):
        return None
    if old is None or new.transmit:
        return new
    return replace(old, errors={**old.errors, **new.errors})


def _present(memory: NvlinkMemory) -> NvlinkMemory:
    """Return the memory as if its GPU had never had more than it has now."""
    last = memory.last
    if last is None:
        return memory
    seen = frozenset(link.link for link in last.links if link.state in UP)
    c2c = frozenset(link.link for link in last.c2c if link.state in UP)
    joined = isinstance(last.fabric, Fabric) and last.fabric.completed
    return replace(
        memory,
        seen_active=seen,
        c2c_active=c2c,
        fastest=usual_rate(last),
        streaks={},
        lit=seen,
        registered=joined,
    )


def _streaks(case: NvlinkCase, read: GpuLinks) -> dict[str, Streak]:
    """Return every fault that shows now, with the polls in a row that saw it.

    A link that is slow and then goes down, or a fabric with one fault after the other, was faulty all along.
    An unreadable part of `read` counts neither way.
    """
    unread = {f"link:{k.link}" for k in read.links if is_lost(k.state) or is_lost(k.speed)}
    unread |= {f"c2c:{k.link}" for k in read.c2c if is_lost(k.state)}
    unread |= {"fabric"} if is_lost(read.fabric) else set()
    present = {f"link:{n}" for n in case.down} | {f"link:{n}" for n in case.slow}
    present |= {f"c2c:{n}" for n in case.c2c_down}
    present |= {"fabric"} if [*_fabric_faults(case.value.fabric), *_membership(case)] else set()
    present |= {"too_few"} if _too_few(case) else set()
    return streaks(case.memory.streaks, {fault: fault not in unread for fault in sorted(present)})


def _too_few(case: NvlinkCase) -> bool:
    """Return whether fewer links are up than expected; links with a finding of their own count as up."""
    return case.expected is not None and _up(case) + len(case.down) < case.expected


def _up(case: NvlinkCase) -> int:
    """Return the number of links that are up or cannot be read."""
    return sum(link.state in UP or isinstance(link.state, Absent) for link in case.value.links)


def _links_down(case: NvlinkCase) -> Iterator[Finding]:
    down = case.down
    states = {link.link: link.state for link in case.value.links}
    if len(down) > 1 and len(down) == len(case.memory.seen_active | set(states)):
        health = max(case.down_health(n) for n in down)
        action = PARTITION_ACTION if health is Health.DEGRADED and case.partition else LINK_ACTION
        why = _doubt(case, down[0], health)
        yield DOWN.finding(case.of(), f"all {len(down)} links are inactive{why}", health, action)
        return
    for number in down:
        state = states.get(number)
        name = LINK_STATES.get(state, f"state {state}") if isinstance(state, int) else "no longer reported"
        health = case.down_health(number)
        evidence = f"{name}; {_up(case)} of {case.expected} links up{_doubt(case, number, health)}"
        action = PARTITION_ACTION if case.partition and number not in case.memory.seen_active else LINK_ACTION
        yield LINK_DOWN.finding(case.of(number), evidence, health, action)
    if _too_few(case):
        health = case.health(case.link().state, "too_few")
        why = _doubt(case, None, health)
        evidence = f"{_up(case)} of {len(states)} reported links up, {case.expected} expected{why}"
        yield LINKS_MISSING.finding(case.of(), evidence, health, LINK_ACTION)
    elif case.more and not down:
        fewer = weigh(Witnesses(nvml=Says.ILL, siblings=Says.DUE))
        evidence = f"{_up(case)} links up, {case.more} on other pairs of its product; {fewer.reason}"
        yield LINKS_MISSING.finding(case.of(), evidence, case.health(fewer.state, "too_few"), LINK_ACTION)


def _doubt(case: NvlinkCase, link: int | None, health: Health) -> str:
    """Return why a link that is not up may be no fault."""
    return f"; {case.link(link).reason}" if health is Health.UNKNOWN else ""


def _slow(case: NvlinkCase) -> Iterator[Finding]:
    slow = case.slow
    if len(slow) > 1 and len(slow) == sum(link.state in UP for link in case.value.links):
        health = max(map(case.slow_health, slow))
        evidence = f"all {len(slow)} active links at {max(slow.values()) / GB:.3f} GB/s or less, {case.usual}"
        yield SLOW.finding(case.of(), evidence, health, LINK_ACTION)
        return
    for link, speed in slow.items():
        evidence = f"active at {speed / GB:.3f} GB/s, {case.usual}"
        yield LINK_SLOW.finding(case.of(link), evidence, case.slow_health(link), LINK_ACTION)


def _errors(case: NvlinkCase) -> Iterator[Finding]:
    for kind, window in case.memory.errors.items():
        limit = error_limit(case.policy, kind)
        if limit and window.within(limit.seconds) >= limit.events:
            by_link = case.memory.detail.errors.get(kind, {}) if case.memory.detail else {}
            worst = [f"link {link}: {n}" for link, n in sorted(by_link.items(), key=lambda i: -i[1]) if n]
            where = f"; {', '.join(worst[:3])}" if worst else ""
            evidence = f"errors: {window.words(limit.seconds)}, {window.last} since reset{where}"
            yield Finding(f"nvlink.{kind}_errors", Health.DEGRADED, case.of(), evidence, ERROR_ACTION)


def _ber(case: NvlinkCase) -> Iterator[Finding]:
    value = case.value.effective_ber
    if not isinstance(value, Absent) and value > case.policy.effective_ber:
        evidence = f"effective bit error rate {value:.0e}, limit {case.policy.effective_ber:.0e}"
        yield BER.finding(case.of(), evidence, action=ERROR_ACTION)


def _fabric(case: NvlinkCase) -> Iterator[Finding]:
    for fault in (*_fabric_faults(case.value.fabric), *_membership(case)):
        health = Health.DEGRADED if fault.mild else case.health(fault.state, "fabric")
        evidence = fault.evidence
        if fault.rule == FABRIC_STATE and fault.state is State.FAULTY and case.starting:
            health = Health.UNKNOWN
            evidence = f"{evidence}; it may take up to {case.policy.fabric_grace:g} s"
        yield Finding(fault.rule, health, case.of(), evidence, FABRIC_ACTION)


def _membership(case: NvlinkCase) -> Iterator[FabricFault]:
    """Weigh whether a GPU is in the fabric that its product, siblings and past call for."""
    alike, read, product = case.siblings, case.value.fabric, nvlink_product(case.gpu.name)
    fabric = NO_FABRIC if isinstance(read, Absent) else read
    if is_lost(read) or not alike.counts or fabric.registers:
        return
    wants = product.fabric if product else ""
    # A driver that knows of no fabric may be older than that of a board.
    eight = wants == BOARD_OF_8 and alike.node >= BOARD and fabric is read
    said = Witnesses(
        nvml=Says.GONE,
        clock=Says.COMING if case.starting else Says.NOTHING,
        memory=Says.DUE if case.memory.registered and not case.starting else Says.NOTHING,
        siblings=Says.DUE if alike.registered else Says.NOTHING,
        product=Says.DUE if wants == RACK or eight else Says.NOTHING,
    )
    evidence = "registered with no fabric: not_supported"
    if fabric.completed:
        cluster, clique = fabric.place
        same = fabric.place == alike.clique and (cluster or wants != RACK)
        said = Witnesses(nvml=Says.HERE if same else Says.ILL, siblings=Says.DUE)
        evidence = f"clique {clique} of {f'cluster {cluster}' if cluster else 'no cluster'}"
    state, why = weigh(said)
    if state not in {State.PRESENT, State.ABSENT}:
        yield FabricFault(FABRIC_STATE, f"{evidence}; {why}", state=state)


def _fabric_faults(fabric: Fabric | Absent) -> list[FabricFault]:
    if isinstance(fabric, Absent):
        return []
    mask = f"health mask {fabric.mask:#x}"
    faults = [
        FabricFault(f"fabric.{name}", mask, name in _MILD_TROUBLES) for name in fabric_troubles(fabric.mask)
    ]
    if fabric.registers:
        state = FABRIC_STATES[fabric.state]
        faults.append(FabricFault(FABRIC_STATE, f"registration with the fabric manager: {state}"))
    if fabric.completed and fabric.status:
        evidence = f"registration with the fabric manager completed with NVML status {fabric.status}"
        faults.append(FabricFault("fabric.status", evidence))
    if fabric.summary == _UNHEALTHY:
        faults.append(FabricFault("fabric.summary", "health summary: unhealthy"))
    if fabric.summary == _LIMITED:
        faults.append(FabricFault("fabric.summary", "health summary: limited capacity", mild=True))
    return faults


def _c2c(case: NvlinkCase) -> Iterator[Finding]:
    for number, how in sorted(case.c2c_down.items()):
        health = case.confirmed(f"c2c:{number}")
        yield C2C_DOWN.finding(case.of(number), how, health, LINK_ACTION)
