"""Wires between this network namespace and another, and the component of NICs over them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tests.system.cluster import tool
from wirewatch.core.collector import Component
from wirewatch.core.fold import after
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Finding
from wirewatch.daemon.schedule import Job
from wirewatch.hw.host import SystemClock
from wirewatch.probe.model import NicsOptions, ProbeOptions, ProbePolicy
from wirewatch.probe.nics import NicsMemory, nics_collector
from wirewatch.probe.runner import ProbeRunner, RunnerPorts

ROOT = Path(__file__).parents[2]
TWO_ENDS = Path(__file__).with_name("twoends.py")
DAY = 86_400.0


def run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@dataclass(frozen=True)
class Rails:
    """Wires from here to a namespace; each has one name at both ends."""

    far: str
    names: tuple[str, ...]

    def hold(self, rail: str, rate: float) -> None:
        """Hold what both ends send to this rate, in bits per second."""
        held = ("tbf", "rate", f"{rate:.0f}bit", "burst", "1mb", "latency", "50ms")
        here = (tool("tc"), "qdisc", "replace", "dev", rail, "root", *held)
        run(*here)
        run(tool("nsenter"), f"--net=/run/netns/{self.far}", *here)


@contextmanager
def laid(number: int, rate: float) -> Iterator[Rails]:
    """So many rails, each held to a rate in bits per second."""
    tag, ip = f"{os.getpid() % 10000:04d}", tool("ip")
    made = Rails(f"wwf{tag}", tuple(f"wwr{tag}{n}" for n in range(number)))
    try:
        run(ip, "netns", "add", made.far)
        for n, rail in enumerate(made.names):
            run(ip, "link", "add", rail, "type", "veth", "peer", "name", rail, "netns", made.far)
            subnet = f"10.{120 + os.getpid() % 100}.{n}"
            for within, host in (((), 1), (("-n", made.far), 2)):
                run(ip, *within, "addr", "add", f"{subnet}.{host}/24", "dev", rail)
                run(ip, *within, "link", "set", rail, "up")
            made.hold(rail, rate)
        yield made
    finally:
        subprocess.run([ip, "netns", "del", made.far], check=False, capture_output=True, timeout=20)
        for rail in made.names:
            subprocess.run([ip, "link", "del", rail], check=False, capture_output=True, timeout=20)


@dataclass
class Ahead:
    """The clock of this machine, which a test may put forward."""

    by: float = 0.0
    clock: SystemClock = field(default_factory=SystemClock)

    def now(self) -> float:
        return self.clock.now() + self.by

    def mono(self) -> float:
        return self.clock.mono() + self.by


class NamedEngine(ProbeRunner):
    """Its torch may be that of another environment, in which the worker runs."""

    def engine(self, wanted: str) -> str | Absent:
        return wanted


class Watched:
    """The component of NICs over interfaces of this machine, with workers as they are.

    `python` has torch. The second rank is in the namespace `far`; with an empty one both are here.
    """

    def __init__(
        self, hardware: Hardware, names: tuple[str, ...], far: str, *,
        engine: Literal["gloo", "distributed", "nccl"] = "gloo", python: str = sys.executable,
    ) -> None:  # fmt: skip
        self.clock = Ahead()
        inherited = {**os.environ, "PYTHONPATH": str(ROOT / "agent")}
        around = RunnerPorts(hardware.nvml, hardware.sysfs, self.clock)
        runner = NamedEngine(around, None, inherited, (str(TWO_ENDS), python, far))
        self.hardware = replace(hardware, clock=self.clock, probe=runner)
        nics = NicsOptions(enabled=True, interfaces=names, budget=1.0)
        self.collector = nics_collector(ProbeOptions(engine=engine, nics=nics), ProbePolicy(), Expect())
        self.component = Component("nics", self.collector.start)

    @property
    def memory(self) -> NicsMemory:
        assert isinstance(self.component.memory, NicsMemory)
        return self.component.memory

    def day(self) -> tuple[Finding, ...]:
        """All probes of a day, with those that are repeated."""
        for _ in range(60):
            step = Job(self.collector, self.hardware, Expect()).run(self.component.memory)
            self.component = after(self.component, step)
            if not self.memory.looked and not self.memory.again:
                break
            if not self.memory.looked or self.memory.gate.refusal is not None:
                self.clock.by += 60.0
        self.clock.by += 1.2 * DAY
        return self.component.findings

    def rates(self) -> dict[str, float]:
        return {job.rail: one.rate for job, (_, one) in self.memory.results.items()}
