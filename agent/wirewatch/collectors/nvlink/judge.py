"""What is wrong with NVLink: links down or slow, errors, bit error rate, fabric."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import mode
from typing import ClassVar

from wirewatch.collectors.nvlink.reading import START, Detail, Fabric, GpuLinks, Link, Memory, Reading
from wirewatch.collectors.nvlink.samples import STATES, UP
from wirewatch.core.bits import FABRIC_STATES, fabric_troubles
from wirewatch.core.pergpu import GpuMemory, Memories, fold_gpus, subject, unread
from wirewatch.core.ports import Gpu
from wirewatch.core.products import NvlinkProduct, nvlink_product
from wirewatch.core.rates import Streak, Window
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Subject

LINK_ACTION = "drain; `nvidia-smi nvlink -s`, XID 74 or 149 in the kernel log; reset the GPU, reseat or replace if it stays"
ERROR_ACTION = "watch this link under load; drain and reset the GPU if the count goes on, replace if it returns"
FABRIC_ACTION = "check nvidia-fabricmanager (or IMEX) on this node and its log; reset the GPU once it runs"


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """`events` or more within `seconds` are a finding of `health`."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    events: int
    seconds: float = 3600.0


DEFAULT_LIMITS: Mapping[str, ErrorLimit] = {
    # DCGM's health watch: one replay or recovery is a finding, CRC from 100 a second.
    "replay": ErrorLimit(1),
    "recovery": ErrorLimit(1),
    "crc": ErrorLimit(6000, 60.0),
    "crc_data": ErrorLimit(6000, 60.0),
    "ecc_data": ErrorLimit(1),
    # NVLink 5: recoveries and malformed traffic; symbol errors are normal on PAM4 and judged by BER.
    "recovery_successful": ErrorLimit(1),
    "recovery_failed": ErrorLimit(1),
    "malformed": ErrorLimit(1),
    "buffer_overrun": ErrorLimit(1),
    "local_integrity": ErrorLimit(1),
}


@dataclass(frozen=True, slots=True)
class NvlinkPolicy:
    """`confirm`: polls in a row before a link or fabric fault is FAILED; `slow_ratio` of the usual rate."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}

    confirm: int = 3
    slow_ratio: float = 0.9
    effective_ber: float = 1e-12
    error_limits: Mapping[str, ErrorLimit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Case:
    """One GPU's reading with all that judging it takes."""

    gpu: Gpu
    value: GpuLinks
    memory: Memory
    policy: NvlinkPolicy
    mono: float
    usual_rate: float | None
    expected: int | None

    def confirmed(self, fault: str) -> Health:
        streak = self.memory.streaks.get(fault, Streak())
        return Health.FAILED if streak.count >= self.policy.confirm else Health.DEGRADED

    def of(self, link: int | None = None) -> Subject:
        return subject(self.gpu, link)


def judge(
    memories: Memories[Memory], ok: Ok[Reading], policy: NvlinkPolicy, expect: Expect
) -> tuple[dict[str, GpuMemory[Memory]], tuple[Finding, ...]]:
    rates = _usual_rates(ok.value)

    def one(memory: Memory, gpu: Gpu, value: GpuLinks) -> tuple[Memory, tuple[Finding, ...]]:
        return _judge_gpu(memory, gpu, value, policy, expect, ok.mono, rates.get(gpu.name))

    return fold_gpus("nvlink", memories, ok.value, START, one)


def _judge_gpu(
    memory: Memory,
    gpu: Gpu,
    value: GpuLinks,
    policy: NvlinkPolicy,
    expect: Expect,
    mono: float,
    peers_rate: float | None,
) -> tuple[Memory, tuple[Finding, ...]]:
    if value.mig:
        return Memory(supported=value.supported), ()
    product = nvlink_product(gpu.name)
    seen = memory.seen_active | {link.link for link in value.links if link.state in UP}
    expected = _expected(product, len(seen), expect)
    usual = product.link_rate if product else peers_rate
    new = _remember(replace(memory, seen_active=frozenset(seen), expected=expected), value, policy, mono)
    case = _Case(gpu, value, new, policy, mono, usual, expected)
    new = replace(new, streaks=_streaks(case))
    case = replace(case, memory=new)
    findings = (*_links_down(case), *_slow(case), *_errors(case), *_ber(case), *_fabric(case), *_c2c(case))
    return new, (*findings, *unread("nvlink", gpu, _essential(value)))


def _essential(value: GpuLinks) -> dict[str, object]:
    """What must be readable; a payload counter at a standstill is a gap in a series, not blindness."""
    essential: dict[str, object] = {f"{kind} errors": v for kind, v in value.errors.items()}
    essential |= {f"state of link {link.link}": link.state for link in value.links}
    essential |= {f"speed of link {link.link}": link.speed for link in value.links}
    essential |= {"fabric": value.fabric, "single links": value.detail}
    if not value.traffic.raw:
        essential |= {"transmitted bytes": value.traffic.transmit, "received bytes": value.traffic.receive}
    return essential


def _expected(product: NvlinkProduct | None, most_seen: int, expect: Expect) -> int | None:
    if expect.nvlink_links is not None:
        return expect.nvlink_links
    if product and len(product.counts) == 1:
        return product.counts[0]
    return most_seen or None


def _usual_rates(reading: Reading) -> dict[str, float]:
    """The commonest link rate of each product on this node."""
    speeds: dict[str, list[float]] = {}
    for item in reading:
        if not isinstance(item.value, Absent):
            known = [k.speed for k in item.value.links if k.state in UP and not isinstance(k.speed, Absent)]
            speeds.setdefault(item.gpu.name, []).extend(known)
    return {name: mode(found) for name, found in speeds.items() if found}


def _remember(memory: Memory, value: GpuLinks, policy: NvlinkPolicy, mono: float) -> Memory:
    windows = dict(memory.errors)
    for kind, count in value.errors.items():
        if not isinstance(count, Absent):
            limit = _limit(policy, kind)
            length = limit.seconds if limit else 0.0
            windows[kind] = windows.get(kind, Window()).add(count, mono, length)
    return replace(
        memory,
        supported=value.supported,
        links=value.count or 0,
        raw=value.traffic.raw,
        errors=windows,
        detail=_merge(memory.detail, value.detail),
    )


def _merge(old: Detail | None, new: Detail | Absent | None) -> Detail | None:
    """The newest reading of single links; a failed one withdraws what was known before."""
    if new is None:
        return old
    if isinstance(new, Absent):
        return None
    if old is None or new.transmit:
        return new
    return replace(old, errors={**old.errors, **new.errors})


def _limit(policy: NvlinkPolicy, kind: str) -> ErrorLimit | None:
    return policy.error_limits.get(kind) or DEFAULT_LIMITS.get(kind)


def _down(case: _Case) -> list[int]:
    """Links that should carry traffic and do not; where bridges decide, those once seen active."""
    states = {link.link: link.state for link in case.value.links}
    every = case.expected is not None and case.expected >= len(case.value.links)
    should = (set(states) if every else set()) | case.memory.seen_active
    unknown = {number for number, state in states.items() if isinstance(state, Absent)}
    return sorted(n for n in should - unknown if states.get(n) not in UP)


def _slow_links(case: _Case) -> list[Link]:
    usual = case.usual_rate
    return [
        link
        for link in case.value.links
        if usual and link.state in UP
        and not isinstance(link.speed, Absent) and link.speed < usual * case.policy.slow_ratio
    ]  # fmt: skip


def _too_few(case: _Case) -> bool:
    """Fewer links than expected though none that we know of went down."""
    states = [link.state for link in case.value.links]
    up = sum(state in UP for state in states)
    unknown = sum(isinstance(state, Absent) for state in states)
    return case.expected is not None and up + unknown < case.expected and not _down(case)


def _fabric_faults(case: _Case) -> dict[str, str]:
    fabric = case.value.fabric
    if isinstance(fabric, Absent):
        return {}
    faults = {f"fabric.{name}": f"health mask {fabric.mask:#x}" for name in fabric_troubles(fabric.mask)}
    if 0 < fabric.state < len(FABRIC_STATES) - 1:
        faults["fabric.state"] = f"registration {FABRIC_STATES[fabric.state]}"
    if FABRIC_STATES[min(fabric.state, 3)] == "completed" and fabric.status:
        faults["fabric.status"] = f"registration completed with NVML status {fabric.status}"
    if fabric.summary in (2, 3):
        faults["fabric.summary"] = "unhealthy" if fabric.summary == 2 else "limited capacity"  # noqa: PLR2004
    return faults


def _streaks(case: _Case) -> dict[str, Streak]:
    present = {f"down:{n}" for n in _down(case)} | {f"slow:{k.link}" for k in _slow_links(case)}
    present |= set(_fabric_faults(case)) | {f"c2c:{k.link}" for k in case.value.c2c if k.state == 0}
    present |= {"too_few"} if _too_few(case) else set()
    before = case.memory.streaks
    return {fault: before.get(fault, Streak()).see(present=True) for fault in present}


def _links_down(case: _Case) -> Iterator[Finding]:
    down = _down(case)
    states = {link.link: link.state for link in case.value.links}
    if len(down) > 1 and len(down) == len(case.memory.seen_active | set(states)):
        health = max(case.confirmed(f"down:{n}") for n in down)
        yield Finding("nvlink.down", health, case.of(), f"all {len(down)} links are inactive", LINK_ACTION)
        return
    for number in down:
        state = states.get(number)
        name = STATES.get(state, f"state {state}") if isinstance(state, int) else "not reported any more"
        evidence = f"{name}; {len(states) - len(down)} of {case.expected} links up"
        yield Finding(
            "nvlink.link_down", case.confirmed(f"down:{number}"), case.of(number), evidence, LINK_ACTION
        )
    if _too_few(case):
        evidence = f"{len(states)} links reported, {case.expected} expected"
        yield Finding("nvlink.links_missing", case.confirmed("too_few"), case.of(), evidence, LINK_ACTION)


def _slow(case: _Case) -> Iterator[Finding]:
    slow = _slow_links(case)
    usual = f"usual {(case.usual_rate or 0) / 1e9:.3f} GB/s"
    if len(slow) > 1 and len(slow) == sum(link.state in UP for link in case.value.links):
        fastest = max(link.speed for link in slow if not isinstance(link.speed, Absent)) / 1e9
        health = max(case.confirmed(f"slow:{link.link}") for link in slow)
        evidence = f"all {len(slow)} active links at {fastest:.3f} GB/s or less, {usual}"
        yield Finding("nvlink.slow", health, case.of(), evidence, LINK_ACTION)
        return
    for link in slow:
        speed = 0.0 if isinstance(link.speed, Absent) else link.speed
        evidence = f"active at {speed / 1e9:.3f} GB/s, {usual}"
        yield Finding(
            "nvlink.link_slow", case.confirmed(f"slow:{link.link}"), case.of(link.link), evidence, LINK_ACTION
        )


def _errors(case: _Case) -> Iterator[Finding]:
    for kind, window in case.memory.errors.items():
        limit = _limit(case.policy, kind)
        if limit and window.total() >= limit.events:
            where = _where(case.memory.detail, kind)
            evidence = f"{window.total()} in {limit.seconds:g} s, {window.last} since reset{where}"
            yield Finding(f"nvlink.{kind}_errors", Health.DEGRADED, case.of(), evidence, ERROR_ACTION)


def _where(detail: Detail | None, kind: str) -> str:
    by_link = detail.errors.get(kind, {}) if detail else {}
    worst = [f"link {link}: {n}" for link, n in sorted(by_link.items(), key=lambda i: -i[1]) if n][:3]
    return f"; {', '.join(worst)}" if worst else ""


def _ber(case: _Case) -> Iterator[Finding]:
    value = case.value.effective_ber
    if not isinstance(value, Absent) and value > case.policy.effective_ber:
        evidence = f"effective bit error rate {value:.0e}, limit {case.policy.effective_ber:.0e}"
        yield Finding("nvlink.ber", Health.DEGRADED, case.of(), evidence, ERROR_ACTION)


_MILD = frozenset({"fabric.route_recovery", "fabric.access_timeout_recovery", "fabric.degraded_bandwidth"})


def _fabric(case: _Case) -> Iterator[Finding]:
    for fault, evidence in _fabric_faults(case).items():
        mild = fault in _MILD or (isinstance(case.value.fabric, Fabric) and evidence == "limited capacity")
        health = Health.DEGRADED if mild else case.confirmed(fault)
        yield Finding(fault, health, case.of(), evidence, FABRIC_ACTION)


def _c2c(case: _Case) -> Iterator[Finding]:
    for link in case.value.c2c:
        if link.state == 0:
            health = case.confirmed(f"c2c:{link.link}")
            yield Finding("c2c.link_down", health, case.of(link.link), "inactive", LINK_ACTION)
