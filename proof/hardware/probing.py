"""Probes from within the kit: through the library as the daemon does it, and with the command."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proof.hardware import processes
from proof.hardware.job import NO_MULTICAST
from proof.hardware.kit import KitError, Report, tail
from wirewatch.cli.hardware import live
from wirewatch.config import Config
from wirewatch.core.nvml import gpu_processes
from wirewatch.core.ports import Gpu, Hardware, Order
from wirewatch.core.probe import MIB, Plan, Probed, Timed
from wirewatch.core.types import Absent, Expect
from wirewatch.documents.probed import probe as document_of
from wirewatch.documents.probes import PROBE
from wirewatch.probe.counters import memory_used
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.launcher import WORKER
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy
from wirewatch.probe.restore import PROBED
from wirewatch.probe.runner import ProbeRunner, RunnerPorts
from wirewatch.probe.setup import plan_of, read_scene

MODULE = "wirewatch.worker"
"""What the workers of probes are known by among the processes."""
LONG: Mapping[str, Any] = {"bandwidth": ((512 * MIB, 120),) * 8}
"""Changes to the default plan that make it last for some 4 s on two H200s."""
COMMAND_WITHIN = 180.0
FREE_WITHIN = 5.0


@dataclass
class Probing:
    """Probes of this machine's GPUs. Every one is kept in the report as it went."""

    report: Report
    hardware: Hardware
    gpus: tuple[Gpu, ...]
    worker: Sequence[str] = WORKER
    known_by: str = MODULE
    """An argument that every worker has."""

    def prober(
        self, changes: Mapping[str, str] | None = None, worker: Sequence[str] | None = None, holds: str = ""
    ) -> ProbeRunner:
        """With changes to the environment, another program in the worker's place, or a folder of holds."""
        around = RunnerPorts(self.hardware.nvml, self.hardware.sysfs, self.hardware.clock)
        places = os.pathsep.join((str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")))
        environment = {**os.environ, "PYTHONPATH": places, **(changes or {})}
        return ProbeRunner(around, None, environment, worker or self.worker, holds)

    def order(self, prober: ProbeRunner, engine: str = "nccl", deadline: float = 60.0, **plan: Any) -> Order:
        """The default plan with changes.

        Raises:
            KitError: the topology cannot be read.
        """
        scene = read_scene(self.hardware, self.gpus, prober.settings(), Expect(), {})
        if isinstance(scene, Absent):
            raise KitError(f"the topology cannot be read: {scene}")
        made: Plan = replace(plan_of(ProbeOptions(), engine, scene), **plan)
        return Order(
            made, scene.gpus, scene.conditions, scene.settings, lambda: None, "command", deadline=deadline,
            paths=scene.paths,
        )  # fmt: skip

    def run(
        self, what: str, *, changes: Mapping[str, str] | None = None, worker: Sequence[str] | None = None,
        heard: Callable[[Timed], None] = lambda _: None, **order: Any,
    ) -> Probed:  # fmt: skip
        """One probe, kept under the name `what`; `heard` gets each of its cases as soon as it is measured."""
        prober = self.prober(changes, worker)
        probed = prober.run(replace(self.order(prober, **order), heard=heard))
        self.keep(what, probed)
        return probed

    def keep(self, what: str, probed: Probed) -> None:
        raw = {"what": what, **PROBED.dump_python(probed, mode="json")}
        self.report.data.setdefault("probes", []).append(raw)

    def must(self, what: str, **order: Any) -> Probed:
        """One probe that comes to its end; raises KitError when it does not."""
        probed = self.run(what, **order)
        if probed.outcome != "ok":
            raise KitError(f"probe {what}: {probed.outcome}: {probed.why}")
        return probed

    def used(self) -> list[int | None]:
        """Bytes in use on each GPU."""
        return [memory_used(self.hardware.nvml, gpu) for gpu in self.gpus]

    def foreign(self) -> set[int | None]:
        """Processes that compute on any GPU."""
        told = [gpu_processes(self.hardware.nvml, gpu) for gpu in self.gpus]
        return {pid for one in told if not isinstance(one, Absent) for pid in one[0]}

    def pid(self, within: float = 10.0) -> int:
        """The worker of the probe that is about to start; raises KitError when there is none in time."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            found = processes.with_argument(self.known_by)
            if found:
                return found[0]
            time.sleep(0.005)
        raise KitError(f"no worker was started within {within:g} s")

    def up(self, pid: int, within: float = 20.0) -> None:
        """Wait until NVML shows its contexts; raises KitError when it does not in time."""
        end = time.monotonic() + within
        while pid not in self.foreign():
            if time.monotonic() > end or not processes.alive(pid):
                raise KitError(f"NVML told of no context of the worker, process {pid}")
            time.sleep(0.005)

    def left(self, before: Sequence[int | None], within: float = FREE_WITHIN) -> str:
        """What a probe has left behind, in words; empty when within so many seconds there is nothing."""
        end = time.monotonic() + within
        while True:
            pids, used = processes.with_argument(self.known_by), self.used()
            more = any((now or 0) > (then or 0) for now, then in zip(used, before, strict=True))
            if not pids and not more:
                return ""
            if time.monotonic() > end:
                return f"workers {pids}, memory in use {used} after {list(before)}"
            time.sleep(0.05)


def loaded(kind: str, gpu: int, other: int = 0) -> tuple[str, ...]:
    """Return the interpreter's arguments for a worker that loads `gpu` itself (proof.hardware.loaded)."""
    return ("-m", "proof.hardware.loaded", kind, str(gpu), str(other))


@contextmanager
def probing(report: Report, least: int = 2) -> Iterator[Probing]:
    """This machine.

    Raises:
        KitError: NVML does not tell of so many GPUs.
    """
    for name, value in NO_MULTICAST.items():
        os.environ.setdefault(name, value)
    hardware, nvml = live(Config())
    try:
        gpus = hardware.nvml.gpus()
        if isinstance(gpus, Absent) or len(gpus) < least:
            raise KitError(f"{least} GPUs are needed: {gpus if isinstance(gpus, Absent) else len(gpus)}")
        yield Probing(report, hardware, tuple(gpus))
    finally:
        nvml.stop()


def as_document(probed: Probed) -> dict[str, Any]:
    """The document of one probe, with what one such probe finds wrong."""
    memory = fold_probe(ProbeMemory(), probed, 0.0, ProbePolicy())
    made = document_of(probed, memory.measured, memory.held)
    document: dict[str, Any] = PROBE.dump_python(made, mode="json")
    return document


def command(
    *arguments: str, changes: Mapping[str, str] | None = None, within: float = COMMAND_WITHIN,
    user: int | None = None,
) -> tuple[int, dict[str, Any], float]:  # fmt: skip
    """`wirewatch probe --json`: exit status, document, seconds; its state goes to a folder of its own.

    `user`: number of the user and group that it runs as, which takes root; None for ours.

    Raises:
        KitError: it took too long or printed something else.
    """
    line = [sys.executable, "-m", "wirewatch", "probe", "--json", *arguments]
    with tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as folder:
        around = {**os.environ, "STATE_DIRECTORY": folder, **(changes or {})}
        if user is not None:
            os.chown(folder, user, user)
        began = time.monotonic()
        try:
            done = subprocess.run(
                line, capture_output=True, text=True, timeout=within, check=False, env=around,
                user=user, group=user, extra_groups=None if user is None else (),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise KitError(f"{' '.join(line[1:])}: {error}") from error
        seconds = time.monotonic() - began
    try:
        return done.returncode, json.loads(done.stdout), seconds
    except ValueError as error:
        said = tail(done.stdout + done.stderr)
        raise KitError(f"{' '.join(line[1:])}: status {done.returncode}: {said}") from error
