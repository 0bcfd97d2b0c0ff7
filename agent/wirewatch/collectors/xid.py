"""XIDs, SXids and other messages of the kernel about wires, from its log or else from NVML's events.

Some stand until a reset, others for a day. The driver's last word on the recovery of a GPU counts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from wirewatch.core import xids
from wirewatch.core.amounts import Seconds
from wirewatch.core.collector import (
    CONFIRMED,
    DEGRADED,
    FAILED,
    STARTING,
    Collector,
    Observed,
    Options,
    Rule,
    Strict,
    subject,
)
from wirewatch.core.collector import UNKNOWN as UNKNOWN_ALONE
from wirewatch.core.kernellog import (
    OFF_BUS,
    SXID,
    TEXTS,
    UNKNOWN,
    XID,
    Event,
    Incidents,
    parse_events,
    parse_record,
    recovery_word,
)
from wirewatch.core.nvml import NO_RECOVERY, RECOVERY_ACTION, as_float, as_int, as_str, member
from wirewatch.core.ports import Gpu, Hardware, KernelLog, Question
from wirewatch.core.tree import is_guest
from wirewatch.core.types import (
    Absent,
    Expect,
    Finding,
    Health,
    Json,
    Ok,
    Sample,
    Subject,
    Tier,
    Why,
    family,
    value_or,
)
from wirewatch.core.words import stamp
from wirewatch.core.xids import RECOVERY_CHANGED, XIDS, Severity, VendorRow, Xid

OVER = "nothing now; if it returns, do what was said while it stood, and give the vendor the kernel log lines"
ELSEWHERE = 5
"""An application's XID is the GPU's own when it comes this many times more often than on any other GPU."""
GPU = ("gpu", "uuid")
UNSEEN = "any XID"

SOURCE = family(
    "xid_source_info", ("source",), "Where XIDs are read: kmsg (the kernel log) or nvml.",
    undrawn="which source is a fact of the installation",
)  # fmt: skip
EVENTS = family(
    "xid_events_total",
    (*GPU, "xid"),
    "XIDs since the machine was started, as far as the kernel log reaches; gpu is empty for a GPU not known.",
    UNSEEN,
    tier=Tier.CORE,
)
LAST = family(
    "xid_last_event_timestamp_seconds", GPU, "When the GPU's last XID was; 0 for never.", UNSEEN,
    tier=Tier.CORE,
)  # fmt: skip
SXIDS = family(
    "sxid_events_total", ("device", "sxid"), "Errors of NVLink switches, by PCI address and SXid.",
    "all of it", tier=Tier.CORE,
)  # fmt: skip
OTHER = family(
    "kernel_events_total", ("kind",),
    "Other messages of the kernel about wires, since the machine was started.", "values above 0",
    undrawn="each becomes a finding",
)  # fmt: skip
MISSED = family(
    "kernel_log_missed_total", (), "Records of the kernel log that were overwritten unread.", tier=Tier.CORE
)
UNPARSED = family(
    "kernel_log_unparsed_total",
    (),
    "Records with an XID, not understood or not the kernel's.",
    tier=Tier.CORE,
)

COUNTED = (OFF_BUS, *(kind for kind, text in TEXTS.items() if not text.ends))
METRICS = (SOURCE, EVENTS, LAST, SXIDS, OTHER, MISSED, UNPARSED)


@dataclass(frozen=True, slots=True)
class XidPolicy(Strict):
    """XIDs that ask for no reset."""

    serious_seconds: Seconds = 86400.0
    """How long such an event is a finding. [seconds]"""
    repeats: int = 10
    """Incidents of an application's XID within that time, on one GPU and no other, that point to the GPU."""


@dataclass(frozen=True, slots=True)
class XidReading:
    """The events since the last reading, from the kernel log or else from NVML.

    `started`: the machine's start in Unix seconds. `missed`: records of the log that were overwritten unread
    since the agent started. `unparsed`: new records that were not of the kernel's form. `odd`: NVML's events
    that are not understood. `well`: cards that need nothing now by the driver, among the cards with an event
    whose text was not read. `guests`: virtual functions.
    """

    source: str
    boot: str
    started: float | Absent
    gpus: tuple[Gpu, ...]
    session: int
    events: tuple[Event, ...]
    after: int
    about: str = ""
    missed: int = 0
    unparsed: int = 0
    odd: int = 0
    well: frozenset[str] = frozenset()
    guests: frozenset[str] = frozenset()


class EventTime(NamedTuple):
    """The time of an event: Unix seconds for people, monotonic seconds for counting, and the log's own clock.

    Setting the clock makes no event older or new. `stamp`: seconds since the machine was started; for an
    event of NVML, the time when it was seen.
    """

    at: float
    mono: float
    stamp: float


@dataclass(frozen=True, slots=True)
class StandingEvent:
    """Events of one kind at one place: the worst of them, the time of the first (Unix seconds), and the last.

    `ended`: the driver has reported that it is over.
    """

    severity: Severity
    incidents: Incidents
    first: float
    last: EventTime
    message: str
    action: str
    ended: bool = False


@dataclass(frozen=True, slots=True)
class RepeatedEvent:
    """Incidents of one XID of an application on one GPU, and the beginnings of the last day's incidents."""

    incidents: Incidents = field(default_factory=Incidents)
    times: tuple[EventTime, ...] = ()


EventPlace = tuple[str, str, str]
"""Rule, PCI address without the function, link."""
Counts = Mapping[tuple[str, int], int]
"""By PCI address without the function, and number."""


@dataclass(frozen=True, slots=True)
class XidMemory:
    """Everything since the machine was started, as far as the log reached back.

    `after`: the last sequence number that was seen, of the log or of NVML's events in `session`. `gpus`:
    every GPU by card, `listed`: the GPUs of this session.
    """

    boot: str = ""
    started: float | Absent = 0.0
    source: str = ""
    after: int = -1
    about: str = ""
    session: int = -1
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    listed: tuple[Gpu, ...] = ()
    xids: Counts = field(default_factory=dict)
    sxids: Counts = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, float] = field(default_factory=dict)
    standing: Mapping[EventPlace, StandingEvent] = field(default_factory=dict)
    repeats: Mapping[tuple[int, str], RepeatedEvent] = field(default_factory=dict)
    recovery: Mapping[str, str] = field(default_factory=dict)
    unparsed: int = 0
    odd: int = 0


def read(hardware: Hardware, memory: XidMemory, _options: Options) -> XidReading | Absent:
    """Read new events; a machine that offers neither source has nothing to watch."""
    new, unread = _new(hardware, memory), {p[1] for p, one in memory.standing.items() if _unread(one)}
    gpus = [gpu for card, gpu in memory.gpus.items() if card in unread]
    if isinstance(new, Absent) or not gpus:
        return new
    asked = ((_card(gpu.pci), hardware.nvml.ask(gpu.key, [RECOVERY_ACTION])[0].value) for gpu in gpus)
    return replace(new, well=frozenset(card for card, said in asked if as_int(said) == NO_RECOVERY))


def _new(hardware: Hardware, memory: XidMemory) -> XidReading | Absent:
    boot, started = _boot(hardware, memory)
    log = _LEFT_OUT if memory.source == _NVML else hardware.kmsg.records(memory.after)
    if not isinstance(log, Absent):
        new = _from_log(log, memory, boot, started, _gpus(hardware, memory), hardware.nvml.session())
        cards = {event.pci for event in new.events if event.kind.startswith("nic_")}
        return replace(new, guests=frozenset(card for card in cards if is_guest(hardware.sysfs, card)))
    if memory.source == _KMSG:
        # What it held is not with _NVML; changing over and back would count everything again.
        return log
    answer = hardware.nvml.ask(None, [_NVML_EVENTS])[0].value
    if isinstance(answer, Absent):
        if answer.why is log.why is Why.UNSUPPORTED:
            return XidReading(_NEITHER, boot, started, (), hardware.nvml.session(), (), -1)
        return Absent(answer.why, f"neither the kernel log ({log}) nor NVML events ({answer}) can be read")
    # The question for events may have begun a session.
    session, gpus = hardware.nvml.session(), _gpus(hardware, memory)
    seen = memory.after if memory.session == session else 0
    events, after, odd = _from_nvml(answer, seen, {g.uuid: g.pci for g in gpus})
    return XidReading(_NVML, boot, started, gpus, session, events, after, odd=odd)


def samples(reading: XidReading, memory: XidMemory) -> Iterable[Sample]:
    yield SOURCE.sample(1, reading.source)
    unknown: dict[str, int] = {}
    for (card, number), count in sorted(memory.xids.items()):
        gpu = memory.gpus.get(card)
        if gpu is None:
            unknown[str(number)] = unknown.get(str(number), 0) + count
        else:
            yield EVENTS.sample(count, str(gpu.index), gpu.uuid, str(number))
    for xid, count in unknown.items():
        yield EVENTS.sample(count, "", "", xid)
    for card, gpu in sorted(memory.gpus.items()):
        yield LAST.sample(memory.last.get(card, 0.0), str(gpu.index), gpu.uuid)
    for (card, number), count in sorted(memory.sxids.items()):
        yield SXIDS.sample(count, card, str(number))
    if reading.source == _KMSG:
        for kind in COUNTED:
            yield OTHER.sample(memory.others.get(kind, 0), kind)
        yield MISSED.sample(reading.missed)
    yield UNPARSED.sample(memory.unparsed)


def observed(reading: XidReading, memory: XidMemory) -> Observed:
    """Return every GPU ever enumerated, and other devices that the kernel names; none without a source."""
    gpus = frozenset(subject(gpu) for gpu in memory.gpus.values())
    return Observed(frozenset(), frozenset()) if reading.source == _NEITHER else Observed(gpus)


def judge(
    memory: XidMemory, ok: Ok[XidReading], policy: XidPolicy, _expect: Expect
) -> tuple[XidMemory, tuple[Finding, ...]]:
    """Fold the new events: fatal events stand until the machine's next start, others for a day."""
    reading = ok.value
    gpus = _named(memory.gpus, reading.gpus)
    new = replace(
        memory, boot=reading.boot, started=reading.started, source=reading.source, after=reading.after,
        about=reading.about, session=reading.session, gpus=gpus, listed=reading.gpus, odd=reading.odd,
        unparsed=memory.unparsed + reading.unparsed + max(0, reading.odd - memory.odd),
    )  # fmt: skip
    # An event from before the agent started was by the log's own clock, any other is of now.
    logged = memory.boot == "" and reading.source != _NVML
    start = value_or(reading.started, ok.at) if logged else ok.at
    standing = {p: one for p, one in new.standing.items() if not (_unread(one) and p[1] in reading.well)}
    new = replace(new, standing=standing)
    for event in reading.events:
        at = min(ok.at, start + event.seconds)
        stamp = ok.mono if reading.source == _NVML else event.seconds
        when = EventTime(at, ok.mono - (ok.at - at), stamp)
        guest = event.pci in reading.guests
        new = _count(new, event, event.pci, when) if guest else _fold(new, event, when)
    new = replace(new, standing=_still(new, policy, ok.mono), repeats=_recent(new, policy, ok.mono))
    return new, (*_standing_findings(new), *_repeated_findings(new, policy))


ALERTS: Mapping[str, str] = {
    xids.REBOOT: "XidReboot",
    xids.RESET: "XidReset",
    f"{xids.RESET}; {xids.SUPPORT}": "XidReset",
    xids.NVLINK: "XidNVLink",
    xids.NVLINK5: "XidNVLink",
    xids.CONVENIENCE: "XidResetLater",
    **dict.fromkeys((xids.RESTART, xids.ENGINE, xids.CONTAINED, xids.MACHINE), "XidRestart"),
}
"""Alerts by the action of an XID; the alert for the others asks to look, and for support."""
_RECOVERY_RULE = f"xid.{RECOVERY_CHANGED}"


def _rule_of(number: int, xid: Xid) -> Rule:
    healths: tuple[Health, ...] = FAILED if xid.severity is Severity.FATAL else DEGRADED
    application = xid.severity is Severity.APPLICATION
    alert = "XidApplication" if application else ALERTS.get(xid.action, "XidSupport")
    healths = STARTING if xid.by_word or number == xids.NVLINK_ERROR else healths
    return Rule(f"xid.{number}", UNKNOWN_ALONE if number in xids.DETAILS else healths, alert)


RULES = (
    *(_rule_of(number, xid) for number, xid in XIDS.items() if xid.severity is not Severity.NOTED),
    Rule(_RECOVERY_RULE, STARTING, "XidRecovery"),
    Rule("xid.*", DEGRADED, "XidSupport"),
    Rule("sxid.*", CONFIRMED, "SwitchError"),
    Rule("kernel.nvlink_training", DEGRADED, "NVLinkErrors"),
    Rule("kernel.peermem_context", DEGRADED, "GPUDirectLost"),
    *(
        Rule(f"kernel.{kind}", DEGRADED, "PortErrors")
        for kind in ("nic_power", "nic_module", "nic_firmware", "nic_timeout", "pcie_fatal", "pcie_link_down")
    ),
    Rule("kernel.nic_failed", CONFIRMED, "PortDown"),
    Rule(
        "kernel.uvm_failed", FAILED, means="the driver's unified memory has met a fatal error",
        do="drain and reboot the node: no CUDA program can use unified memory until then",
    ),
)  # fmt: skip

COLLECTOR: Collector[XidReading, XidMemory, Options, XidPolicy] = Collector(
    name="xid",
    about="XID errors from the kernel log, or as NVML events where the log cannot be read",
    lane="kernel",
    options=Options(interval=5.0, deadline=5.0),
    policy=XidPolicy(),
    metrics=METRICS,
    start=XidMemory(),
    read=read,
    samples=samples,
    judge=judge,
    rules=RULES,
    series=40,
    applicable=lambda reading: bool(reading.gpus),
    observed=observed,
)

_KMSG, _NVML, _NEITHER = "kmsg", "nvml", "none"
_NVML_EVENTS = Question("Events")
_LEFT_OUT = Absent(Why.DENIED, "could not be read when the agent started")
"""Takes the place of the log once _NVML's events are counted: events in both would count twice."""
_BOOT_ID, _BOOT_TIME = Question("BootId"), Question("BootTime")


def _boot(hardware: Hardware, memory: XidMemory) -> tuple[str, float | Absent]:
    """Return the machine's boot id and its start time: asked once, for older records of the log."""
    if memory.boot:
        return memory.boot, memory.started
    boot = value_or(as_str(hardware.host.ask(_BOOT_ID).value), "unknown")
    return boot, as_float(hardware.host.ask(_BOOT_TIME).value)


def _gpus(hardware: Hardware, memory: XidMemory) -> tuple[Gpu, ...]:
    """Return the GPUs as known, asked only in a new session or for a missing name: NVML may hang now."""
    known = memory.listed
    session = hardware.nvml.session()
    unnamed = any(card not in memory.gpus for card, _ in memory.xids)
    if not session or (known and memory.session == session and not unnamed):
        return known
    gpus = hardware.nvml.gpus()
    return known if isinstance(gpus, Absent) else tuple(gpus)


def _from_log(
    log: KernelLog, memory: XidMemory, boot: str, started: float | Absent, gpus: Sequence[Gpu], session: int
) -> XidReading:
    parsed = [parse_record(raw) for raw in log.records]
    records = [r for r in parsed if r is not None]
    events, about = parse_events(records, memory.about)
    after = max((r.sequence for r in records), default=memory.after)
    return XidReading(
        _KMSG, boot, started, tuple(gpus), session, events, after, about, log.missed,
        len(parsed) - len(records),
    )  # fmt: skip


def _from_nvml(answer: Json, seen: int, addresses: dict[str, str]) -> tuple[tuple[Event, ...], int, int]:
    """Return events with a number above `seen`, the highest number, and the count of unknown events."""
    events = []
    after, odd = seen, 0
    for item in answer if isinstance(answer, list | tuple) else (answer,):
        number, xid = as_int(member(item, "number")), as_int(member(item, "xid"))
        uuid = as_str(member(item, "uuid"))
        if isinstance(number, Absent) or isinstance(xid, Absent) or isinstance(uuid, Absent):
            odd += 1
        elif number > seen:
            after = max(after, number)
            events.append(Event(XID, xid, addresses.get(uuid, ""), "", "", 0.0))
    return tuple(events), after, odd


def _named(known: Mapping[str, Gpu], now: Sequence[Gpu]) -> dict[str, Gpu]:
    """Return GPUs by card; an unlisted GPU keeps its name until another has its number."""
    here = {_card(gpu.pci): gpu for gpu in now if gpu.pci}
    taken = {gpu.index for gpu in here.values()}
    return {**{card: gpu for card, gpu in known.items() if gpu.index not in taken}, **here}


def _card(pci: str) -> str:
    return pci.partition(".")[0]


def _fold(memory: XidMemory, event: Event, at: EventTime) -> XidMemory:
    """Take in one event; a sequel counts as its beginning where that was lost."""
    text = TEXTS.get(event.kind)
    card = event.pci if text else _card(event.pci)
    if text and text.ends:
        return _over(memory, card, frozenset(f"kernel.{kind}" for kind in text.ends))
    known = memory.sxids if event.kind == SXID else memory.xids
    details = xids.DETAILS.get(event.number, ()) if event.kind == XID else ()
    begun = any((card, number) in known for number in (*details, event.cause) if number)
    if begun and event.kind == SXID:
        return memory
    counted = _count(memory, event, card, at)
    if event.kind == XID and event.number == xids.RECOVERY_CHANGED:
        return _recover(counted, card, event, at)
    if begun:
        return counted
    return _judged(counted, replace(event, number=event.cause or event.number), card, at)


def _judged(memory: XidMemory, event: Event, card: str, at: EventTime) -> XidMemory:
    row = _row(event)
    if row.severity is Severity.APPLICATION:
        key = (event.number, card)
        known = memory.repeats.get(key) or RepeatedEvent()
        incidents = known.incidents.see(event.process, at.stamp)
        times = (*known.times, at) if incidents.count > known.incidents.count else known.times
        return replace(memory, repeats={**memory.repeats, key: RepeatedEvent(incidents, times)})
    if row.severity is not Severity.UNREAD:
        # Its text is known now.
        standing = {
            p: s for p, s in memory.standing.items() if p[:2] != (_rule(event), card) or not _unread(s)
        }
        memory = replace(memory, standing=standing)
    if row.severity is Severity.NOTED:
        return memory
    return _stand(memory, (_rule(event), card, event.link), row, event, at)


def _count(memory: XidMemory, event: Event, card: str, at: EventTime) -> XidMemory:
    if event.kind == UNKNOWN:
        return replace(memory, unparsed=memory.unparsed + 1)
    here = Counter([(card, event.number)])
    if event.kind == XID:
        return replace(memory, xids=Counter(memory.xids) + here, last={**memory.last, card: at.at})
    if event.kind == SXID:
        return replace(memory, sxids=Counter(memory.sxids) + here)
    return replace(memory, others=Counter(memory.others) + Counter([event.kind]))


def _over(memory: XidMemory, card: str, rules: Collection[str] = ()) -> XidMemory:
    """End the standing events at this card, of these rules or of all; unread events leave nothing."""
    here = {p: s for p, s in memory.standing.items() if p[1] == card and (not rules or p[0] in rules)}
    others = {p: s for p, s in memory.standing.items() if p not in here}
    ended = {p: replace(s, ended=True) for p, s in here.items() if not _unread(s)}
    return replace(memory, standing={**others, **ended})


def _unread(one: StandingEvent) -> bool:
    return one.severity is Severity.UNREAD


def _row(event: Event) -> VendorRow:
    """Return the severity and action of an event; a sequel has no text of its beginning."""
    if event.kind == SXID:
        return xids.switch_row(event.number, event.message)
    if text := TEXTS.get(event.kind):
        return VendorRow(text.severity, text.action)
    if event.kind == UNKNOWN:
        return VendorRow(Severity.NOTED, "")
    number, message = (xids.FELL_OFF, "") if event.kind == OFF_BUS else (event.number, event.message)
    message = "" if event.cause else message
    return VendorRow(xids.severity_of(number, message), xids.action_of(number, message))


def _rule(event: Event) -> str:
    if event.kind in {XID, SXID}:
        return f"{event.kind}.{event.number}"
    return f"xid.{xids.FELL_OFF}" if event.kind == OFF_BUS else f"kernel.{event.kind}"


def _stand(memory: XidMemory, place: EventPlace, row: VendorRow, event: Event, at: EventTime) -> XidMemory:
    before = memory.standing.get(place)
    incidents = (before.incidents if before else Incidents()).see(event.process, at.stamp)
    now = StandingEvent(row.severity, incidents, at.at, at, event.message, row.action)
    if before is not None:
        now = replace(now, first=before.first, message=event.message or before.message)
        if before.severity is Severity.FATAL is not row.severity:
            now = replace(now, severity=before.severity, message=before.message, action=before.action)
    return replace(memory, standing={**memory.standing, place: now})


def _recover(memory: XidMemory, card: str, event: Event, at: EventTime) -> XidMemory:
    """Note the driver's last word on what the GPU needs; `None` ends it, and NVML's events have no text."""
    word = recovery_word(event.message)
    if not event.message:
        return memory
    place: EventPlace = (_RECOVERY_RULE, card, "")
    wish = xids.recovery(word)
    if wish.health is Health.OK:
        over = _over(memory, card)
        standing = {p: one for p, one in over.standing.items() if p != place}
        return replace(over, standing=standing, recovery={**memory.recovery, card: ""})
    severity = next(one for one, health in xids.HEALTH.items() if health is wish.health)
    stood = {p: s for p, s in memory.standing.items() if p != place}
    said = replace(memory, recovery={**memory.recovery, card: word}, standing=stood)
    return _stand(said, place, replace(_row(event), severity=severity), event, at)


def _still(memory: XidMemory, policy: XidPolicy, mono: float) -> dict[EventPlace, StandingEvent]:
    """Return standing events: a fatal event stands until a restart, an ended event stays for a day."""
    return {
        place: one
        for place, one in memory.standing.items()
        if (one.severity is Severity.FATAL and not one.ended) or mono - one.last.mono < policy.serious_seconds
    }


def _recent(memory: XidMemory, policy: XidPolicy, mono: float) -> dict[tuple[int, str], RepeatedEvent]:
    since = mono - policy.serious_seconds
    recent = {key: [t for t in one.times if t.mono > since] for key, one in memory.repeats.items()}
    return {
        key: replace(memory.repeats[key], times=tuple(times[-policy.repeats :]))
        for key, times in recent.items()
        if times
    }


def _standing_findings(memory: XidMemory) -> Iterator[Finding]:
    for (rule, card, link), one in sorted(memory.standing.items()):
        health = Health.DEGRADED if one.ended else xids.HEALTH[one.severity]
        count, lines, when = one.incidents.count, one.incidents.lines, stamp(one.last.at)
        seen = f"seen once, at {when}" if count == 1 else f"seen {count} times, last at {when}"
        seen += f", in {lines} lines" if lines > count else ""
        evidence = f"{_what(memory, rule, card, one)}{seen}"
        evidence += f": {one.message}" if one.message else ""
        said = " (XID 154: None)" if rule.startswith("xid.") else ""
        evidence += f"; the driver says it is over{said}" if one.ended else ""
        yield Finding(
            rule, health, _subject(memory, card, link), evidence, _action(memory, rule, card, one), one.first,
            one.last.at, one.last.stamp,
        )  # fmt: skip


def _what(memory: XidMemory, rule: str, card: str, one: StandingEvent) -> str:
    kind, _, name = rule.partition(".")
    word = memory.recovery.get(card, "")
    if rule == _RECOVERY_RULE and word:
        return f"the driver asks for {xids.recovery(word).name}; "
    if kind == "xid":
        known = xids.lookup(int(name))
        if _unread(one) and known.action != xids.OLDER:
            return f"{known.meaning}; how bad it is, only its text says, which was not read; "
        read = f", {xids.decoded(int(name), one.message)}" if known.by_word else ""
        return f"{known.meaning}{read}; "
    return ""


def _action(memory: XidMemory, rule: str, card: str, one: StandingEvent) -> str:
    word = memory.recovery.get(card, "")
    if one.ended:
        return OVER
    if not rule.startswith("xid.") or not word:
        return one.action
    said = xids.CAUSE if rule == _RECOVERY_RULE else f"the driver's latest request, XID 154: {word}"
    return f"{xids.recovery(word).action}; {said}"


def _subject(memory: XidMemory, card: str, link: str) -> Subject:
    gpu = memory.gpus.get(_card(card))
    return replace(subject(gpu), link=link) if gpu else Subject(device=card, link=link)


def _repeated_findings(memory: XidMemory, policy: XidPolicy) -> Iterator[Finding]:
    """Return findings of repeats on one GPU only, which are not the application's fault."""
    for (number, card), one in sorted(memory.repeats.items(), key=lambda item: item[0]):
        others = (len(two.times) for (n, c), two in memory.repeats.items() if n == number and c != card)
        most = max(others, default=0)
        if len(one.times) >= policy.repeats and len(one.times) >= ELSEWHERE * most:
            others_had = f"at most {most} times on another" if most else "on no other"
            times = f"at least {len(one.times)} times within a day on this GPU and {others_had}"
            evidence = f"{xids.lookup(number).meaning}; {times}"
            action = "run the vendor's diagnostics on this GPU; swap it with another node's to be sure"
            yield Finding(
                f"xid.{number}", Health.DEGRADED, _subject(memory, card, ""), evidence, action,
                one.times[0].at, one.times[-1].at, one.times[-1].stamp,
            )  # fmt: skip
