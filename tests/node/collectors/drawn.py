"""A node drawn by hand: files in memory, a kernel log, an ibstat, and one collector over them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tests.support import StillClock
from wirewatch.catalogue import components
from wirewatch.core.collector import Component
from wirewatch.core.fold import after
from wirewatch.core.ports import (
    Answer,
    Gpu,
    Hardware,
    Hold,
    KernelLog,
    NvmlCost,
    Order,
    Output,
    Pod,
    ProcessUse,
    Question,
    SlurmJob,
)
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Expect, Finding, Health, Json, Why
from wirewatch.daemon.schedule import Job

PCI, RDMA = "/sys/bus/pci/devices", "/sys/class/infiniband"
COUNTERS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_data", "port_rcv_data",
    "port_xmit_wait",
)  # fmt: skip
HW_COUNTERS = ("rnr_nak_retry_err", "local_ack_timeout_err", "np_cnp_sent", "lifespan")


written = cache(str)
"""The text of a question, of which there are few and which are asked often."""


@dataclass
class Files:
    """The sysfs port over tables; `opened` remembers every path that was asked for."""

    texts: dict[str, str | bytes | Absent] = field(default_factory=dict)
    links: dict[str, str | Absent] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)

    def read(self, path: str) -> str | Absent:
        found = self._at(path)
        return found.decode() if isinstance(found, bytes) else found

    def data(self, path: str) -> bytes | Absent:
        found = self._at(path)
        return found.encode() if isinstance(found, str) else found

    def _at(self, path: str) -> str | bytes | Absent:
        self.opened.append(path)
        return self.texts.get(path, Absent(Why.MISSING, path, 2))

    def entries(self, path: str) -> Sequence[str] | Absent:
        self.opened.append(path)
        refused = self.texts.get(path)
        if isinstance(refused, Absent):
            return refused
        inside = {
            p[len(path) + 1 :].partition("/")[0]
            for p in (*self.texts, *self.links)
            if p.startswith(f"{path}/")
        }
        return sorted(inside) if inside else Absent(Why.MISSING, path, 2)

    def link(self, path: str) -> str | Absent:
        self.opened.append(path)
        return self.links.get(path, Absent(Why.MISSING, path, 2))

    def forget(self, start: str) -> None:
        """Everything below a path is gone."""
        self.texts = {p: t for p, t in self.texts.items() if not p.startswith(start)}
        self.links = {p: t for p, t in self.links.items() if not p.startswith(start)}

    def device(self, address: str, path: str, numa: str = "0", driver: str = "", **files: str) -> None:
        """A PCI device at a place below /sys/devices."""
        at = f"{PCI}/{address}"
        self.links[at] = f"/sys/devices/{path}/{address}"
        if driver:
            self.links[f"{at}/driver"] = f"/sys/bus/pci/drivers/{driver}"
        told = {"numa_node": numa, "class": "0x020700", "vendor": "0x15b3", **files}
        self.texts |= {f"{at}/{name}": text for name, text in told.items()}

    def nic(self, name: str, address: str, path: str, numa: str = "0", **port: str) -> None:
        """A network card with one port, active at 400 Gb/s unless `port` says otherwise."""
        self.device(
            address, path, numa, "mlx5_core", current_link_speed="32.0 GT/s PCIe", current_link_width="16",
            max_link_speed="32.0 GT/s PCIe", max_link_width="16",
        )  # fmt: skip
        at = f"{RDMA}/{name}"
        self.links[f"{at}/device"] = f"/sys/devices/{path}/{address}"
        identity = {
            "fw_ver": "28.41.1000", "hca_type": "MT4129", "board_id": "MT_0000000838",
            "node_guid": f"0000:0000:0000:{int(address[5:7], 16):04x}", "device/numa_node": numa,
            f"device/net/ib{name[-1]}/address": "00",
        }  # fmt: skip
        state = {
            "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "InfiniBand",
            "rate": "400 Gb/sec (4X NDR)", "lid": "0x12", **port,
        }  # fmt: skip
        self.texts |= {f"{at}/{file}": text for file, text in identity.items()}
        self.texts |= {f"{at}/ports/1/{file}": text for file, text in state.items()}
        self.texts |= {f"{at}/ports/1/counters/{file}": "0" for file in COUNTERS}
        self.texts |= {f"{at}/ports/1/hw_counters/{file}": "0" for file in HW_COUNTERS}

    def set(self, name: str, **files: str) -> None:
        """Change files of a device's first port; a double underscore stands for a slash."""
        for file, text in files.items():
            self.texts[f"{RDMA}/{name}/ports/1/{file.replace('__', '/')}"] = text

    def refuse(self, name: str, file: str, why: Why, code: int) -> None:
        self.texts[f"{RDMA}/{name}/ports/1/{file}"] = Absent(why, file, code)


@dataclass
class Log:
    """The kernel log, a line each `step` seconds; `absent` when it may not be read."""

    lines: list[str] = field(default_factory=list)
    absent: Absent | None = None
    missed: int = 0
    step: float = 1.0
    priority: int = 4

    def records(self, after: int) -> KernelLog | Absent:
        if self.absent is not None:
            return self.absent
        told = [
            f"{self.priority},{n},{round(n * self.step * 1e6)},-;{line}" for n, line in enumerate(self.lines)
        ]
        return KernelLog(tuple(told[after + 1 :]), self.missed)


@dataclass
class Programs:
    """Programs and what they print; `runs` counts how often."""

    printed: Output | Absent = field(default_factory=lambda: Absent(Why.MISSING, "not installed"))
    runs: int = 0

    def run(self, name: str) -> Output | Absent:
        assert name == "ibstat"
        self.runs += 1
        return self.printed


@dataclass
class Pods:
    """The kubelet and what it answers; none here unless a test says otherwise."""

    told: Sequence[Pod] | Absent = field(default_factory=lambda: Absent(Why.MISSING, "no kubelet here"))

    def pods(self) -> Sequence[Pod] | Absent:
        return self.told


@dataclass
class Jobs:
    """Slurm and what it answers; none here unless a test says otherwise."""

    told: Sequence[SlurmJob] | Absent = field(default_factory=lambda: Absent(Why.MISSING, "no Slurm here"))
    asked: int = 0

    def jobs(self) -> Sequence[SlurmJob] | Absent:
        self.asked += 1
        return self.told


@dataclass
class Gpus:
    """An NVML port of GPUs at the addresses given, that answers from a table by GPU and question.

    `listed` counts how often they were enumerated, `sought` how often a GPU was said to be due, `put` how
    often each question came.
    """

    addresses: Sequence[str] = ()
    table: dict[tuple[str | None, str], Json | Absent] = field(default_factory=dict)
    absent: Absent | None = None
    number: int = 1
    listed: int = 0
    sought: int = 0
    put: Counter[str] = field(default_factory=Counter)

    def session(self) -> int:
        return self.number

    def gpus(self) -> Sequence[Gpu] | Absent:
        self.listed += 1
        if self.absent is not None:
            return self.absent
        return [Gpu(i, f"GPU-{i}", address, "NVIDIA H100") for i, address in enumerate(self.addresses)]

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        missing = Absent(Why.UNSUPPORTED, "not supported by this device", 3)
        texts = [written(question) for question in questions]
        self.put.update(texts)
        return [Answer(self.table.get((gpu, text), missing)) for text in texts]

    def seek(self) -> None:
        self.sought += 1

    def cost(self) -> NvmlCost:
        return NvmlCost(None, 0.0, 0, 0)


class Machine:
    """The host port of an x86 machine that was started long ago."""

    def __init__(self) -> None:
        self.told: dict[str, Json] = {"BootId": "boot-1", "BootTime": 1_795_000_000.0, "Machine": "x86_64"}

    def ask(self, question: Question) -> Answer:
        return Answer(self.told[question.call])

    def process(self, pid: int | None) -> ProcessUse | Absent:
        return Absent(Why.MISSING, str(pid))


@dataclass
class Probes:
    """A probe port: `result` makes of an order what came of it; `ordered` are the orders so far."""

    name: str | Absent = field(default_factory=lambda: Absent(Why.MISSING, "no engine"))
    result: Callable[[Order], Probed] | None = None
    holder: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    ordered: list[Order] = field(default_factory=list)
    held: Sequence[Hold] | Absent = ()

    def engine(self, _wanted: str) -> str | Absent:
        return self.name

    def settings(self) -> Mapping[str, str]:
        return self.environment

    @contextmanager
    def lock(self) -> Iterator[str | None]:
        yield self.holder

    def holds(self) -> Sequence[Hold] | Absent:
        return self.held

    def run(self, order: Order) -> Probed:
        assert self.result is not None
        self.ordered.append(order)
        return self.result(order)


class Watched:
    """One component, a collector or the probe, over a drawn node."""

    def __init__(
        self, name: str, files: Files | None = None, gpus: Gpus | None = None, expect: Expect | None = None
    ) -> None:
        self.collector = next(c for c in components() if c.name == name)
        self.files, self.gpus = files or Files(), gpus or Gpus()
        self.log, self.programs, self.host, self.clock = Log(), Programs(), Machine(), StillClock()
        self.pods, self.jobs, self.probes = Pods(), Jobs(), Probes()
        self.expect = expect or Expect()
        self.hardware = Hardware(
            self.gpus, self.files, self.host, self.log, self.programs, self.pods, self.jobs, self.clock,
            self.probes,
        )  # fmt: skip
        self.component = Component(name, self.collector.start)

    def options(self, **values: Any) -> None:
        self.collector = replace(self.collector, options=replace(self.collector.options, **values))

    def policy(self, **values: Any) -> None:
        self.collector = replace(self.collector, policy=replace(self.collector.policy, **values))

    def poll(self, times: int = 1, every: float = 15.0) -> tuple[Finding, ...]:
        for _ in range(times):
            step = Job(self.collector, self.hardware, self.expect).run(self.component.memory)
            self.component = after(self.component, step)
            self.clock.seconds += every
        return self.component.findings

    def rules(self) -> dict[tuple[str, str], Health]:
        """Health by rule and subject."""
        return {(f.rule, str(f.subject)): f.health for f in self.component.findings}

    def series(self, metric: str, **labels: str) -> list[float]:
        def told(names: Sequence[str], values: Sequence[str]) -> Mapping[str, str]:
            return dict(zip(names, values, strict=True))

        return [
            s.value
            for s in self.component.samples
            if s.metric.name == metric and labels.items() <= told(s.metric.labels, s.labels).items()
        ]
