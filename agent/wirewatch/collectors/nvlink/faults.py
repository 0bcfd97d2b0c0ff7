"""Faults of one GPU's links, as they show in one reading and in what is remembered."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from wirewatch.collectors.nvlink.policy import NvlinkPolicy
from wirewatch.collectors.nvlink.samples import STATES
from wirewatch.collectors.nvlink.values import Detail, Fabric, GpuLinks, Link, Memory
from wirewatch.core.bits import FABRIC_STATES, fabric_troubles
from wirewatch.core.links import UP
from wirewatch.core.pergpu import is_lost, subject
from wirewatch.core.ports import Gpu
from wirewatch.core.rates import Streak
from wirewatch.core.types import Absent, Finding, Health, Subject

LINK_ACTION = (
    "drain; see `nvidia-smi nvlink -s` and XID 74 or 149 in the kernel log; reset the GPU, then reseat it"
)
ERROR_ACTION = (
    "watch this link under load; drain and reset the GPU if the count goes on, replace if it returns"
)
FABRIC_ACTION = "check nvidia-fabricmanager (or IMEX) on this node and its log; reset the GPU once it runs"


@dataclass(frozen=True)
class Case:
    """One GPU's reading with all that judging it takes."""

    gpu: Gpu
    value: GpuLinks
    memory: Memory
    policy: NvlinkPolicy
    usual_rate: float | None
    expected: int | None

    def confirmed(self, fault: str) -> Health:
        streak = self.memory.streaks.get(fault, Streak())
        return Health.FAILED if streak.count >= self.policy.confirm else Health.DEGRADED

    def of(self, link: int | None = None) -> Subject:
        return subject(self.gpu, link)

    @cached_property
    def down(self) -> list[int]:
        """Links that should carry traffic and do not; where bridges decide, those once seen active."""
        links = self.value.links
        every = self.expected is not None and self.expected >= len(links)
        bad = {k.link for k in links if k.state not in UP and not isinstance(k.state, Absent)}
        faulty = {n for n in range(self.value.count) if f"link:{n}" in self.memory.streaks}
        gone = (self.memory.seen_active | faulty) - {k.link for k in links}
        return sorted((bad if every else bad & self.memory.seen_active) | gone)

    @cached_property
    def slow(self) -> list[Link]:
        """Links that are up and run well under the usual rate."""
        least = (self.usual_rate or 0.0) * self.policy.slow_ratio
        known = ((k, k.speed) for k in self.value.links if k.state in UP)
        return [link for link, speed in known if not isinstance(speed, Absent) and speed < least]


def findings(case: Case) -> tuple[Finding, ...]:
    """All that is wrong with this GPU's links now."""
    return (*_links_down(case), *_slow(case), *_errors(case), *_ber(case), *_fabric(case), *_c2c(case))


def _too_few(case: Case) -> bool:
    """Fewer links than expected, those that went down counted as there."""
    there = {link.link for link in case.value.links} | set(case.down)
    return case.expected is not None and len(there) < case.expected


def _fabric_faults(case: Case) -> dict[str, str]:
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


def streaks(case: Case, read: GpuLinks) -> dict[str, Streak]:
    """Every fault that shows now, with the polls in a row for which it was seen.

    A link that is slow and then goes down, or a fabric with one fault after the other, was faulty all along.
    What could not be `read` this time counts neither way.
    """
    unread = {f"link:{k.link}" for k in read.links if is_lost(k.state) or is_lost(k.speed)}
    unread |= {f"c2c:{k.link}" for k in read.c2c if is_lost(k.state)}
    unread |= {"fabric"} if is_lost(read.fabric) else set()
    present = {f"link:{n}" for n in case.down} | {f"link:{k.link}" for k in case.slow}
    present |= {f"c2c:{k.link}" for k in case.value.c2c if k.state == 0}
    present |= {"fabric"} if _fabric_faults(case) else set()
    present |= {"too_few"} if _too_few(case) else set()
    before = case.memory.streaks
    return {f: before.get(f, Streak()).see(present=True, sure=f not in unread) for f in sorted(present)}


def _links_down(case: Case) -> Iterator[Finding]:
    down = case.down
    states = {link.link: link.state for link in case.value.links}
    if len(down) > 1 and len(down) == len(case.memory.seen_active | set(states)):
        health = max(case.confirmed(f"link:{n}") for n in down)
        yield Finding("nvlink.down", health, case.of(), f"all {len(down)} links are inactive", LINK_ACTION)
        return
    for number in down:
        state = states.get(number)
        name = STATES.get(state, f"state {state}") if isinstance(state, int) else "not reported any more"
        evidence = f"{name}; {len(states) - len(down)} of {case.expected} links up"
        yield Finding(
            "nvlink.link_down", case.confirmed(f"link:{number}"), case.of(number), evidence, LINK_ACTION
        )
    if _too_few(case):
        evidence = f"{len(states)} links reported, {case.expected} expected"
        yield Finding("nvlink.links_missing", case.confirmed("too_few"), case.of(), evidence, LINK_ACTION)


def _slow(case: Case) -> Iterator[Finding]:
    slow = case.slow
    usual = f"usual {(case.usual_rate or 0) / 1e9:.3f} GB/s"
    if len(slow) > 1 and len(slow) == sum(link.state in UP for link in case.value.links):
        fastest = max(link.speed for link in slow if not isinstance(link.speed, Absent)) / 1e9
        health = max(case.confirmed(f"link:{link.link}") for link in slow)
        evidence = f"all {len(slow)} active links at {fastest:.3f} GB/s or less, {usual}"
        yield Finding("nvlink.slow", health, case.of(), evidence, LINK_ACTION)
        return
    for link in slow:
        speed = 0.0 if isinstance(link.speed, Absent) else link.speed
        evidence = f"active at {speed / 1e9:.3f} GB/s, {usual}"
        yield Finding(
            "nvlink.link_slow", case.confirmed(f"link:{link.link}"), case.of(link.link), evidence, LINK_ACTION
        )


def _errors(case: Case) -> Iterator[Finding]:
    for kind, window in case.memory.errors.items():
        limit = case.policy.limit(kind)
        if limit and window.total() >= limit.events:
            where = _where(case.memory.detail, kind)
            evidence = f"{window.total()} in {limit.seconds:g} s, {window.last} since reset{where}"
            yield Finding(f"nvlink.{kind}_errors", Health.DEGRADED, case.of(), evidence, ERROR_ACTION)


def _where(detail: Detail | None, kind: str) -> str:
    by_link = detail.errors.get(kind, {}) if detail else {}
    worst = [f"link {link}: {n}" for link, n in sorted(by_link.items(), key=lambda i: -i[1]) if n][:3]
    return f"; {', '.join(worst)}" if worst else ""


def _ber(case: Case) -> Iterator[Finding]:
    value = case.value.effective_ber
    if not isinstance(value, Absent) and value > case.policy.effective_ber:
        evidence = f"effective bit error rate {value:.0e}, limit {case.policy.effective_ber:.0e}"
        yield Finding("nvlink.ber", Health.DEGRADED, case.of(), evidence, ERROR_ACTION)


_MILD = frozenset({"fabric.route_recovery", "fabric.access_timeout_recovery", "fabric.degraded_bandwidth"})


def _fabric(case: Case) -> Iterator[Finding]:
    for fault, evidence in _fabric_faults(case).items():
        mild = fault in _MILD or (isinstance(case.value.fabric, Fabric) and evidence == "limited capacity")
        health = Health.DEGRADED if mild else case.confirmed("fabric")
        yield Finding(fault, health, case.of(), evidence, FABRIC_ACTION)


def _c2c(case: Case) -> Iterator[Finding]:
    for link in case.value.c2c:
        if link.state == 0:
            health = case.confirmed(f"c2c:{link.link}")
            yield Finding("c2c.link_down", health, case.of(link.link), "inactive", LINK_ACTION)
