"""Judging NVLink: what is expected of each GPU, what is remembered of it, and what is wrong."""

from dataclasses import replace
from statistics import mode

from wirewatch.collectors.nvlink.faults import Case, findings, streaks
from wirewatch.collectors.nvlink.policy import NvlinkPolicy
from wirewatch.collectors.nvlink.values import START, Detail, GpuLinks, Link, Memory, Reading
from wirewatch.core.links import UP
from wirewatch.core.pergpu import GpuMemory, Memories, filled, fold_gpus, is_lost, unread
from wirewatch.core.ports import Gpu
from wirewatch.core.products import NvlinkProduct, nvlink_product
from wirewatch.core.rates import Window
from wirewatch.core.types import Absent, Expect, Finding, Ok


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
    expected = _expected(product if value.links else None, len(seen), expect)
    usual = product.link_rate if product else peers_rate
    known = _known(value, memory.last)
    new = replace(memory, seen_active=frozenset(seen), expected=expected, last=known)
    new = _remember(new, value, policy, mono)
    case = Case(gpu, known, new, policy, usual, expected)
    found = streaks(case, value)
    if found != new.streaks:
        new = replace(new, streaks=found)
        case = replace(case, memory=new)
    wrong = findings(case)
    return new, (*wrong, *unread("nvlink", gpu, _essential(value)))


def _essential(value: GpuLinks) -> dict[str, object]:
    """What must be readable and is not; a payload counter at a standstill is a gap, not blindness."""
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
    """The reading for judging, with what could not be read as it was last."""
    if last is None:
        return value
    known = filled(value, last, "fabric", "effective_ber")
    return replace(known, links=_links(value.links, last.links), c2c=_links(value.c2c, last.c2c))


def _links(now: tuple[Link, ...], last: tuple[Link, ...]) -> tuple[Link, ...]:
    if not any(is_lost(link.state) or is_lost(link.speed) for link in now):
        return now
    before = {link.link: link for link in last}
    return tuple(filled(link, before.get(link.link), "state", "speed") for link in now)


def _expected(product: NvlinkProduct | None, most_seen: int, expect: Expect) -> int | None:
    """Active links that this GPU should have; `product` None also for a GPU that reports no links at all."""
    if expect.nvlink_links is not None:
        return expect.nvlink_links
    if product and len(product.counts) == 1:
        return product.counts[0]
    return most_seen or None


def _usual_rates(reading: Reading) -> dict[str, float]:
    """The commonest link rate on this node of each product that is not listed."""
    speeds: dict[str, list[float]] = {}
    for item in reading:
        if not isinstance(item.value, Absent) and nvlink_product(item.gpu.name) is None:
            known = [k.speed for k in item.value.links if k.state in UP and not isinstance(k.speed, Absent)]
            speeds.setdefault(item.gpu.name, []).extend(known)
    return {name: mode(found) for name, found in speeds.items() if found}


def _remember(memory: Memory, value: GpuLinks, policy: NvlinkPolicy, mono: float) -> Memory:
    windows = dict(memory.errors)
    for kind, count in value.errors.items():
        if not isinstance(count, Absent):
            limit = policy.limit(kind)
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


def _merge(old: Detail | None, new: Detail | Absent | None) -> Detail | None:
    """The newest reading of single links; a failed one withdraws what was known before."""
    if new is None:
        return old
    if isinstance(new, Absent):
        return None
    if old is None or new.transmit:
        return new
    return replace(old, errors={**old.errors, **new.errors})
