"""What XIDs mean: which stand until a reset, which are told for a day, and what the driver's last word is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from wirewatch.collectors.xid.reading import NVML
from wirewatch.collectors.xid.values import Memory, Place, Reading, Standing, Time, XidPolicy
from wirewatch.core import xids
from wirewatch.core.kernelevents import OFF_BUS, SXID, UNKNOWN, XID, Event, recovery_word
from wirewatch.core.pergpu import subject
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Subject
from wirewatch.core.xids import Severity

K = TypeVar("K")

SXID_ACTION = (
    "drain all GPUs of this NVLink domain; look at the link named here from both ends, restart the fabric "
    "manager after a reset, and have the switch board replaced if it returns"
)
OTHER_ACTIONS = {
    "nvlink_training": "look at the GPU's NVLink links; reset the GPU if one is not up",
    "peermem_context": "a job lost its GPU memory registration; reload nvidia_peermem if it repeats",
    "nic_power": "the slot gives the card too little power: check riser, cabling and the BIOS setting",
    "nic_module": "replace or cool the cable or transceiver of this card's port",
}
"""Messages that are told; a kind without an action here is counted only."""


def judge(
    memory: Memory, ok: Ok[Reading], policy: XidPolicy, _expect: Expect
) -> tuple[Memory, tuple[Finding, ...]]:
    reading = ok.value
    known = memory if memory.boot in {"", reading.boot} else Memory()
    gpus = _named(known.gpus, reading.gpus)
    new = replace(
        known, boot=reading.boot, started=reading.started, source=reading.source, after=reading.after,
        about=reading.about, session=reading.session, gpus=gpus, odd=reading.odd,
        unparsed=known.unparsed + reading.unparsed + max(0, reading.odd - known.odd),
    )  # fmt: skip
    first = memory.boot == ""
    for event in reading.events:
        at = _when(reading, event, ok.at) if first else ok.at
        new = _fold(new, event, Time(at, ok.mono - (ok.at - at)))
    new = replace(new, standing=_still(new, policy, ok.mono), repeats=_recent(new, policy, ok.mono))
    return new, (*_standing(new), *_repeated(new, policy))


def _named(known: Mapping[str, Gpu], now: Sequence[Gpu]) -> dict[str, Gpu]:
    """GPUs by card; one that is not enumerated any more keeps its name until another has its number."""
    here = {_card(gpu.pci): gpu for gpu in now if gpu.pci}
    taken = {gpu.index for gpu in here.values()}
    return {**{card: gpu for card, gpu in known.items() if gpu.index not in taken}, **here}


def _card(pci: str) -> str:
    return pci.partition(".")[0]


def _when(reading: Reading, event: Event, now: float) -> float:
    """When an event of before our time was; what comes while we look is of now."""
    if reading.source == NVML or isinstance(reading.started, Absent):
        return now
    return min(now, reading.started + event.seconds)


def _fold(memory: Memory, event: Event, at: Time) -> Memory:
    card = _card(event.pci)
    counted = _count(memory, event, card, at)
    if event.kind == XID and event.number == xids.RECOVERY_CHANGED:
        return _recover(counted, card, event, at)
    severity = _severity(event)
    if severity is Severity.APPLICATION:
        key = (event.number, card)
        return replace(counted, repeats={**counted.repeats, key: (*counted.repeats.get(key, ()), at)})
    if severity is Severity.NOTED:
        return counted
    return _stand(counted, (_rule(event), card, event.link), severity, event, at)


def _count(memory: Memory, event: Event, card: str, at: Time) -> Memory:
    if event.kind == UNKNOWN:
        return replace(memory, unparsed=memory.unparsed + 1)
    if event.kind == XID:
        counts = _more(memory.xids, (card, event.number))
        return replace(memory, xids=counts, last={**memory.last, card: at.at})
    if event.kind == SXID:
        return replace(memory, sxids=_more(memory.sxids, (card, event.number)))
    return replace(memory, others=_more(memory.others, event.kind))


def _severity(event: Event) -> Severity:
    if event.kind == XID:
        return xids.severity_of(event.number, event.message)
    if event.kind == SXID:
        return xids.by_word(event.message, Severity.SERIOUS)
    if event.kind == OFF_BUS:
        return Severity.FATAL
    return Severity.SERIOUS if event.kind in OTHER_ACTIONS else Severity.NOTED


def _rule(event: Event) -> str:
    if event.kind in {XID, SXID}:
        return f"{event.kind}.{event.number}"
    return f"xid.{xids.FELL_OFF}" if event.kind == OFF_BUS else f"kernel.{event.kind}"


def _more(counts: Mapping[K, int], key: K) -> dict[K, int]:
    return {**counts, key: counts.get(key, 0) + 1}


def _stand(memory: Memory, place: Place, severity: Severity, event: Event, at: Time) -> Memory:
    known = memory.standing.get(place) or Standing(severity, 0, at.at, at.at, "")
    worse = Severity.FATAL if Severity.FATAL in {severity, known.severity} else severity
    now = Standing(worse, known.count + 1, known.first, at.at, event.message or known.message, at.mono)
    return replace(memory, standing={**memory.standing, place: now})


def _recover(memory: Memory, card: str, event: Event, at: Time) -> Memory:
    """The driver's word on what the GPU needs; the last one holds, and `None` ends what stood before.

    NVML's event has no words: what the driver asks for is then with the recovery action of the GPU.
    """
    word = recovery_word(event.message)
    if not event.message:
        return memory
    place: Place = (f"xid.{xids.RECOVERY_CHANGED}", card, "")
    if word == "none":
        over = {p: replace(s, ended=True) if p[1] == card else s for p, s in memory.standing.items()}
        over.pop(place, None)
        return replace(memory, standing=over, recovery={**memory.recovery, card: ""})
    severity = Severity.SERIOUS if word == "drain p2p" else Severity.FATAL
    recovery = {**memory.recovery, card: word} if word else memory.recovery
    stood = {p: s for p, s in memory.standing.items() if p != place}
    return _stand(replace(memory, recovery=recovery, standing=stood), place, severity, event, at)


def _still(memory: Memory, policy: XidPolicy, mono: float) -> dict[Place, Standing]:
    """A fatal event stands until the machine is started anew; what is over is told for a day."""
    return {
        place: one
        for place, one in memory.standing.items()
        if (one.severity is Severity.FATAL and not one.ended) or mono - one.mono < policy.serious_seconds
    }


def _recent(memory: Memory, policy: XidPolicy, mono: float) -> dict[tuple[int, str], tuple[Time, ...]]:
    kept = {
        key: tuple(t for t in times if mono - t.mono < policy.serious_seconds)[-policy.repeats :]
        for key, times in memory.repeats.items()
    }
    return {key: times for key, times in kept.items() if times}


def _standing(memory: Memory) -> Iterator[Finding]:
    for (rule, card, link), one in sorted(memory.standing.items()):
        health = Health.DEGRADED if one.ended else xids.HEALTH[one.severity]
        evidence = f"{_what(rule)}{_times(one.count, one.last)}"
        evidence += f": {one.message}" if one.message else ""
        evidence += "; over, says the driver (XID 154: None)" if one.ended else ""
        yield Finding(
            rule, health, _subject(memory, card, link), evidence, _action(memory, rule, card), one.first,
            one.last,
        )  # fmt: skip


def _what(rule: str) -> str:
    kind, _, name = rule.partition(".")
    if kind == "xid":
        known = xids.lookup(int(name))
        decoded = ", registers not decoded" if known.by_word else ""
        return f"{known.meaning}{decoded}; "
    return ""


def _times(count: int, last: float) -> str:
    told = datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"seen once, at {told}" if count == 1 else f"seen {count} times, last at {told}"


def _action(memory: Memory, rule: str, card: str) -> str:
    kind, _, name = rule.partition(".")
    if kind == "sxid":
        return SXID_ACTION
    if kind == "kernel":
        return OTHER_ACTIONS[name]
    word = memory.recovery.get(card, "")
    if word:
        return f"{xids.RECOVERY.get(word, f'drain; {word}')} (the driver's last word, XID 154: {word})"
    return xids.lookup(int(name)).action


def _subject(memory: Memory, card: str, link: str) -> Subject:
    gpu = memory.gpus.get(card)
    return replace(subject(gpu), link=link) if gpu else Subject(device=card, link=link)


def _repeated(memory: Memory, policy: XidPolicy) -> Iterator[Finding]:
    """An application's XID again and again on one GPU only is not the application's."""
    for (number, card), times in sorted(memory.repeats.items()):
        elsewhere = any(n == number and c != card for n, c in memory.repeats)
        if len(times) >= policy.repeats and not elsewhere:
            known = xids.lookup(number)
            evidence = (
                f"{known.meaning}; at least {len(times)} times within a day on this GPU and on no other"
            )
            action = "run the vendor's diagnostics on this GPU; exchange it with another node's to be sure"
            yield Finding(
                f"xid.{number}", Health.DEGRADED, _subject(memory, card, ""), evidence, action, times[0].at,
                times[-1].at,
            )  # fmt: skip
