"""NVLink counters, processes, memory and clocks around a probe, all through the NVML port."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirewatch.collectors.nvlink import ERROR_QUESTIONS, TRAFFIC_FIELDS, error_questions
from wirewatch.core.hostlink import HostMoved
from wirewatch.core.nvml import Supported, as_int, ask_gpu, count_links, member
from wirewatch.core.ports import Gpu, Nvml, Question, Sysfs
from wirewatch.core.probe import NOT_KNOWN, Clocks, LinkBytes, Moved
from wirewatch.core.tree import NET, RDMA, rdma_devices
from wirewatch.core.types import Absent, value_or, whole
from wirewatch.probe.hostpaths import NOW, as_pcie

SM, MEMORY = 1, 2
"""NVML's numbers of the clock domains."""
MHZ = 1e6
CLOCKS = (
    Question("ClockInfo", (SM,)),
    Question("ClockInfo", (MEMORY,)),
    Question("CurrentClocksEventReasons"),
)
PCIE_BYTES = (Question("Field", (197,)), Question("Field", (198,)))
"""Bytes that the GPU sent and received (NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES of nvml.h)."""
WRAPS = 1 << 32
"""The largest value ever seen; nvml.h says that the counters wrap. Host links move a seventh of it."""
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
    """Return the growth between two readings; a counter that stood still beside a moving twin is absent."""
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
        both = dict(enumerate(zip(values[::2], values[1::2], strict=True)))
        if found := {n: moved for n, moved in both.items() if moved != (None, None)}:
            return found
    return {}


def links_moved(
    gpu: int,
    before: Mapping[int, tuple[int | None, int | None]],
    after: Mapping[int, tuple[int | None, int | None]],
) -> LinkBytes:
    """Bytes that each link of the GPU at a position has carried between two readings."""
    links = tuple(n for n in before if n in after)
    sent, received = (tuple(_grown(before[n][way], after[n][way]) for n in links) for way in (0, 1))
    return LinkBytes(gpu, links, sent, received)


def clocks(nvml: Nvml, position: int, gpu: Gpu) -> Clocks:
    """Clocks of a GPU now, in Hz, with the driver's reasons for holding them back."""
    sm, memory, reasons = (value_or(as_int(a.value), None) for a in nvml.ask(gpu.key, CLOCKS))
    hertz, memory_hertz = (None if clock is None else clock * MHZ for clock in (sm, memory))
    return Clocks(position, hertz, memory_hertz, reasons)


def host_moved(nvml: Nvml, gpus: Sequence[Gpu], before: Sequence[HostMoved] = ()) -> tuple[HostMoved, ...]:
    """Return the PCIe counters of each GPU, and its link; with a reading `before`, their growth."""
    found = []
    for n, gpu in enumerate(gpus):
        sent, received = (value_or(as_int(one.value), None) for one in nvml.ask(gpu.key, PCIE_BYTES))
        known = before[n] if before else HostMoved(n, 0, 0, NOT_KNOWN)
        grown = _wrapped(known.sent, sent), _wrapped(known.received, received)
        found.append(HostMoved(n, *grown, as_pcie(nvml, gpu, NOW)))
    return tuple(found)


def _wrapped(before: int | None, after: int | None) -> int | None:
    """Return the growth of a counter that wraps at WRAPS; None for a counter that stood still."""
    return None if before is None or after is None else (after - before) % WRAPS or None


def memory_used(nvml: Nvml, gpu: Gpu) -> int | None:
    """Return the bytes in use by NVML's count, which includes the driver's own."""
    return value_or(as_int(member(nvml.ask(gpu.key, [MEMORY_INFO])[0].value, "used")), None)


def memory_use(nvml: Nvml, gpu: Gpu) -> float | None:
    """Return the share of the last moments in which any process read or wrote memory, 0 to 1.

    None where it is not known, or where the GPU was idle: NVML lags by about a second, so that a process that
    is there has come since.
    """
    rates = nvml.ask(gpu.key, [UTILIZATION])[0].value
    busy, memory = as_int(member(rates, "gpu")), as_int(member(rates, "memory"))
    return None if isinstance(memory, Absent) or busy == 0 else memory / 100


_FAULTY = re.compile("err|discard|drop|downed|recover|out_of_sequence|timeout|overrun|retrans")
"""Parts of counter names that mean faults, of RDMA ports and of network interfaces."""
_CONGESTED = re.compile("xmit_wait|cnp|ecn|pause", re.IGNORECASE)
"""Parts of counter names that mean a full network: credits, congestion notices, ECN marks, pause frames."""
_BYTES = {"port_xmit_data": "sent", "port_rcv_data": "received", "tx_bytes": "sent", "rx_bytes": "received"}
_IN_WORDS = frozenset({"port_xmit_data", "port_rcv_data"})


def nic_counts(sysfs: Sysfs) -> Mapping[tuple[str, str], int]:
    """Return counters of RDMA ports (`mlx5_0:1`) and interfaces by name and kind: bytes, faults, congestion.

    The kind is sent, received, or the kernel's name of a counter. Unreadable counters are left out.
    """
    found: dict[tuple[str, str], int] = {}
    for name, folder in _nics(sysfs):
        for kind in value_or(sysfs.entries(folder), ()):
            if kind in _BYTES or _FAULTY.search(kind) or is_congestion(kind):
                value = _count(sysfs, f"{folder}/{kind}")
                if value is not None:
                    found[name, _BYTES.get(kind, kind)] = value * (LANES if kind in _IN_WORDS else 1)
    return found


def is_congestion(kind: str) -> bool:
    """Return whether this counter grows in a full network and is no sign of a fault."""
    return _CONGESTED.search(kind) is not None


def _nics(sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    """Folders of counters, with the name of the port or interface."""
    for name, folder in _ports(sysfs):
        yield from ((name, f"{folder}/{kind}") for kind in ("counters", "hw_counters"))
    for interface in value_or(sysfs.entries(NET), ()):
        if interface != "lo":
            yield interface, f"{NET}/{interface}/statistics"


def sent_bytes(sysfs: Sysfs) -> Mapping[str, int]:
    """Return bytes sent so far by RDMA port (`device:port`) and interface, without unreadable counters."""
    interfaces = [name for name in value_or(sysfs.entries(NET), ()) if name != "lo"]
    sent = {name: _count(sysfs, f"{NET}/{name}/statistics/tx_bytes") for name in interfaces}
    words = {name: _count(sysfs, f"{folder}/counters/port_xmit_data") for name, folder in _ports(sysfs)}
    sent |= {name: None if count is None else count * LANES for name, count in words.items()}
    return {name: count for name, count in sent.items() if count is not None}


def _ports(sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    """Return each RDMA port as `device:port`, with its folder."""
    for device in value_or(rdma_devices(sysfs), ()):
        for port in value_or(sysfs.entries(f"{RDMA}/{device}/ports"), ()):
            yield f"{device}:{port}", f"{RDMA}/{device}/ports/{port}"


def _count(sysfs: Sysfs, path: str) -> int | None:
    return whole(value_or(sysfs.read(path), ""))


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Bytes by name between two readings, without counters that are gone or have shrunk."""
    return {name: after[name] - sent for name, sent in before.items() if after.get(name, -1) >= sent}


def _believed(grown: int, twin: int, proof: int) -> int | None:
    return None if grown < 0 or (grown == 0 and twin >= proof) else grown


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before
