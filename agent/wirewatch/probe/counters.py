"""NVLink counters, processes, memory and clocks around a probe, all through the NVML port."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.collectors.nvlink import ERROR_QUESTIONS, TRAFFIC_FIELDS, error_questions
from wirewatch.core.nvml import Supported, as_int, ask_gpu, count_links, member
from wirewatch.core.ports import Gpu, Nvml, Question, Sysfs
from wirewatch.core.probe import Clocks, LinkBytes, Moved
from wirewatch.core.tree import NET, RDMA, rdma_devices
from wirewatch.core.types import Absent, whole

SM, MEMORY = 1, 2
"""NVML's numbers of the clock domains."""
MHZ = 1e6
CLOCKS = (
    Question("ClockInfo", (SM,)),
    Question("ClockInfo", (MEMORY,)),
    Question("CurrentClocksEventReasons"),
)
MEMORY_INFO = Question("MemoryInfo")
UTILIZATION = Question("UtilizationRates")


@dataclass(frozen=True, slots=True)
class Counters:
    """One GPU at one moment: bytes and their twins by all links, errors by kind."""

    bytes: tuple[int, int, int, int] | None
    proof: int
    errors: Mapping[str, int]


class CounterReader:
    """Reads the all-links counters of some GPUs again and again, asking only what each supports."""

    def __init__(self, nvml: Nvml, gpus: Sequence[Gpu]) -> None:
        self._nvml = nvml
        self._gpus = gpus
        self._supported = {gpu.key: Supported() for gpu in gpus}

    def read(self) -> list[Counters | Absent]:
        """The counters of each GPU, in their order."""
        return [self._one(gpu) for gpu in self._gpus]

    def _one(self, gpu: Gpu) -> Counters | Absent:
        errors = tuple(q for questions in ERROR_QUESTIONS.values() for q in questions if len(q.args) > 1)
        traffic = tuple(q for t in TRAFFIC_FIELDS for q in t.questions())
        asked = ask_gpu(self._nvml, gpu.key, (*traffic, *errors), self._supported[gpu.key])
        if isinstance(asked, Absent):
            return asked
        self._supported[gpu.key] = asked.supported
        kinds = {kind: asked.whole(q) for kind, q in error_questions(asked.supported.skip)}
        counted = {kind: value for kind, value in kinds.items() if not isinstance(value, Absent)}
        for one in TRAFFIC_FIELDS:
            values = [asked.whole(q) for q in one.questions()]
            whole = [v * one.scale for v in values if not isinstance(v, Absent)]
            if len(whole) == len(values):
                return Counters((whole[0], whole[1], whole[2], whole[3]), one.twin_proof * one.scale, counted)
        return Counters(None, 0, counted)


LANES = 4
"""port_xmit_data counts 4-byte words (InfiniBand, volume 1, PortCounters)."""


def moved(gpu: int, before: Counters | Absent, after: Counters | Absent) -> Moved:
    """What grew between two readings; a counter that stood still beside a moving twin is no measurement."""
    if isinstance(before, Absent) or isinstance(after, Absent):
        return Moved(gpu, None, None, {})
    errors = {k: v - before.errors[k] for k, v in after.errors.items() if v >= before.errors.get(k, v + 1)}
    if before.bytes is None or after.bytes is None:
        return Moved(gpu, None, None, errors)
    sent, received, twin_sent, twin_received = (b - a for a, b in zip(before.bytes, after.bytes, strict=True))
    return Moved(
        gpu, _believed(sent, twin_sent, after.proof), _believed(received, twin_received, after.proof), errors
    )


def link_bytes(nvml: Nvml, gpu: Gpu) -> Mapping[int, tuple[int | None, int | None]]:
    """Bytes sent and received so far by each link; a job of some 40 ms."""
    count = count_links(nvml, gpu.key)
    for one in TRAFFIC_FIELDS:
        questions = [Question("Field", (f, n)) for n in range(count) for f in (one.transmit, one.receive)]
        answers = [as_int(a.value) for a in nvml.ask(gpu.key, questions)]
        values = [None if isinstance(v, Absent) else v * one.scale for v in answers]
        found = {n: (values[2 * n], values[2 * n + 1]) for n in range(count)}
        found = {n: both for n, both in found.items() if both != (None, None)}
        if found:
            return found
    return {}


def links_moved(
    gpu: int,
    before: Mapping[int, tuple[int | None, int | None]],
    after: Mapping[int, tuple[int | None, int | None]],
) -> LinkBytes:
    """Bytes that each link of the GPU at a position has carried between two readings."""
    links = tuple(n for n in before if n in after)
    pairs = [(before[n], after[n]) for n in links]
    return LinkBytes(
        gpu, links, tuple(_grown(a[0], b[0]) for a, b in pairs), tuple(_grown(a[1], b[1]) for a, b in pairs)
    )


def clocks(nvml: Nvml, position: int, gpu: Gpu) -> Clocks:
    """Clocks of a GPU now, in Hz, with the driver's reasons for holding them back."""
    answers = [as_int(a.value) for a in nvml.ask(gpu.key, CLOCKS)]
    sm, memory, reasons = (None if isinstance(v, Absent) else v for v in answers)
    return Clocks(
        position, None if sm is None else sm * MHZ, None if memory is None else memory * MHZ, reasons
    )


def memory_used(nvml: Nvml, gpu: Gpu) -> int | None:
    """Bytes in use as NVML counts them, what the driver keeps for itself included."""
    used = as_int(member(nvml.ask(gpu.key, [MEMORY_INFO])[0].value, "used"))
    return None if isinstance(used, Absent) else used


def memory_use(nvml: Nvml, gpu: Gpu) -> float | None:
    """The part of the last moments in which any process read or wrote memory, 0 to 1.

    None where it is not known, or where the GPU was idle: NVML is about a second late, so that a process that
    is there has come since.
    """
    rates = nvml.ask(gpu.key, [UTILIZATION])[0].value
    busy, memory = as_int(member(rates, "gpu")), as_int(member(rates, "memory"))
    return None if isinstance(memory, Absent) or busy == 0 else memory / 100


_FAULTY = re.compile("err|discard|drop|downed|recover|out_of_sequence|timeout|overrun|retrans")
"""In the names of counters of faults, of RDMA ports and of network interfaces."""
_BYTES = {"port_xmit_data": "sent", "port_rcv_data": "received", "tx_bytes": "sent", "rx_bytes": "received"}
_IN_WORDS = frozenset({"port_xmit_data", "port_rcv_data"})


def nic_counts(sysfs: Sysfs) -> Mapping[tuple[str, str], int]:
    """Counters of RDMA ports (`mlx5_0:1`) and network interfaces by name and kind: bytes, and faults.

    The kind is sent, received, or the kernel's name of a counter. What cannot be read is left out.
    """
    found: dict[tuple[str, str], int] = {}
    for name, folder in _nics(sysfs):
        kinds = sysfs.entries(folder)
        for kind in () if isinstance(kinds, Absent) else kinds:
            if kind in _BYTES or _FAULTY.search(kind):
                value = _count(sysfs, f"{folder}/{kind}")
                if value is not None:
                    found[name, _BYTES.get(kind, kind)] = value * (LANES if kind in _IN_WORDS else 1)
    return found


def _nics(sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    """Folders of counters, with the name of the port or interface."""
    for name, folder in _ports(sysfs):
        yield from ((name, f"{folder}/{kind}") for kind in ("counters", "hw_counters"))
    interfaces = sysfs.entries(NET)
    for interface in () if isinstance(interfaces, Absent) else interfaces:
        if interface != "lo":
            yield interface, f"{NET}/{interface}/statistics"


def sent_bytes(sysfs: Sysfs) -> Mapping[str, int]:
    """Bytes sent so far by `device:port`; what cannot be read is left out."""
    sent = {name: _count(sysfs, f"{folder}/counters/port_xmit_data") for name, folder in _ports(sysfs)}
    return {name: words * LANES for name, words in sent.items() if words is not None}


def _ports(sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    """Return each RDMA port as `device:port`, with its folder."""
    devices = rdma_devices(sysfs)
    for device in () if isinstance(devices, Absent) else devices:
        ports = sysfs.entries(f"{RDMA}/{device}/ports")
        for port in () if isinstance(ports, Absent) else ports:
            yield f"{device}:{port}", f"{RDMA}/{device}/ports/{port}"


def _count(sysfs: Sysfs, path: str) -> int | None:
    text = sysfs.read(path)
    return whole(text) if isinstance(text, str) else None


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Bytes by name between two readings, without counters that are gone or have shrunk."""
    return {name: after[name] - sent for name, sent in before.items() if after.get(name, -1) >= sent}


def _believed(grown: int, twin: int, proof: int) -> int | None:
    return None if grown < 0 or (grown == 0 and twin >= proof) else grown


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before
