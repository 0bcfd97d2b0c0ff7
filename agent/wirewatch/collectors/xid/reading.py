"""Reading XIDs: the kernel log where it may be read, else NVML's events; never both, they are the same."""

from collections.abc import Sequence

from wirewatch.collectors.xid.values import Memory, Reading
from wirewatch.core.asking import as_float, as_int, as_str, member
from wirewatch.core.collector import Options
from wirewatch.core.kernel import parse_record
from wirewatch.core.kernelevents import XID, Event, parse_events
from wirewatch.core.ports import Gpu, Hardware, KernelLog, Question
from wirewatch.core.types import Absent, Json, Why

KMSG, NVML, NEITHER = "kmsg", "nvml", "none"
EVENTS = Question("Events")
_LEFT = Absent(Why.DENIED, "could not be read when the agent started")
"""Of the log, once NVML's events are counted: what both know would be counted twice."""
BOOT_ID, BOOT_TIME = Question("BootId"), Question("BootTime")


def read(hardware: Hardware, memory: Memory, _options: Options) -> Reading | Absent:
    """What is new; a machine that offers neither source has nothing to watch."""
    boot, started = _boot(hardware, memory)
    gpus = _gpus(hardware, memory)
    same = memory.boot == boot
    log: KernelLog | Absent = _LEFT
    if memory.source != NVML:
        log = hardware.kmsg.records(memory.after if same and memory.source == KMSG else -1)
    session = hardware.nvml.session()
    if not isinstance(log, Absent):
        return _from_log(log, memory, boot, started, gpus, session)
    if memory.source == KMSG:
        # What it held is not with NVML; changing over and back would count everything again.
        return log
    told = hardware.nvml.ask(None, [EVENTS])[0].value
    if isinstance(told, Absent):
        if told.why is log.why is Why.UNSUPPORTED:
            return Reading(NEITHER, boot, started, (), session, (), -1)
        return Absent(told.why, f"neither the kernel log ({log}) nor NVML events ({told}) can be read")
    session = hardware.nvml.session()
    gpus = gpus or _gpus(hardware, memory)
    seen = memory.after if memory.source == NVML and memory.session == session else 0
    events, after, odd = _from_nvml(told, seen, {g.uuid: g.pci for g in gpus})
    return Reading(NVML, boot, started, gpus, session, events, after, odd=odd)


def _boot(hardware: Hardware, memory: Memory) -> tuple[str, float | Absent]:
    """Which start of the machine this is, and when it was: asked once, for what the log holds from before."""
    if memory.boot:
        return memory.boot, memory.started
    boot = as_str(hardware.host.ask(BOOT_ID).value)
    return "unknown" if isinstance(boot, Absent) else boot, as_float(hardware.host.ask(BOOT_TIME).value)


def _gpus(hardware: Hardware, memory: Memory) -> tuple[Gpu, ...]:
    """The GPUs as enumerated; asked only when NVML was initialised anew or one has no name yet.

    Asking waits while NVML hangs, which is when the kernel has most to say.
    """
    known = tuple(memory.gpus.values())
    session = hardware.nvml.session()
    unnamed = any(card not in memory.gpus for card, _ in memory.xids)
    if not session or (known and memory.session == session and not unnamed):
        return known
    gpus = hardware.nvml.gpus()
    return known if isinstance(gpus, Absent) else tuple(gpus)


def _from_log(
    log: KernelLog, memory: Memory, boot: str, started: float | Absent, gpus: Sequence[Gpu], session: int
) -> Reading:
    parsed = [parse_record(raw) for raw in log.records]
    records = [r for r in parsed if r is not None]
    events, about = parse_events(records, memory.about if memory.boot == boot else "")
    after = max((r.sequence for r in records), default=memory.after if memory.source == KMSG else -1)
    return Reading(
        KMSG, boot, started, tuple(gpus), session, events, after, about, log.missed,
        len(parsed) - len(records),
    )  # fmt: skip


def _from_nvml(told: Json, seen: int, addresses: dict[str, str]) -> tuple[tuple[Event, ...], int, int]:
    """Events with a number above `seen`, the highest number, and how many are not understood."""
    events = []
    after, odd = seen, 0
    for item in told if isinstance(told, list | tuple) else (told,):
        number, xid = as_int(member(item, "number")), as_int(member(item, "xid"))
        uuid = as_str(member(item, "uuid"))
        if isinstance(number, Absent) or isinstance(xid, Absent) or isinstance(uuid, Absent):
            odd += 1
        elif number > seen:
            after = max(after, number)
            events.append(Event(XID, xid, addresses.get(uuid, ""), "", "", 0.0))
    return tuple(events), after, odd
