"""Plays a job through the collectors of running jobs, with a clock of its own, and keeps what was said."""

import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from proof.model import shapes
from proof.model.job import Job
from proof.model.load import Clock, Load, ModelFiles, ModelNvml, ModelRas, Node
from proof.model.rings import Clocks, RingFile, Writer, uuid
from proof.model.truth import Case
from wirewatch.collectors.gpu import GpuFacts, GpuNow
from wirewatch.collectors.nvlink import NvlinkFacts
from wirewatch.collectors.nvlink.model import NvlinkLink
from wirewatch.core.collector import AnyCollector, Component, NodeState
from wirewatch.core.fold import after, fold
from wirewatch.core.jobs import RingReading, RingsReading
from wirewatch.core.pci import Place
from wirewatch.core.ports import Gpu, Hardware, Question
from wirewatch.core.topology import SWITCH, GpuPart, NvlinkWires, Topology
from wirewatch.core.types import Absent, Expect, Failed, Health, Ok
from wirewatch.documents.jobs import ExplainedJob
from wirewatch.documents.judged import jobs
from wirewatch.jobs.apart.child import COLLECTORS
from wirewatch.jobs.surroundings import with_surroundings
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.verdict.node import Judged, Verdict

UNIX, MONO = 1_795_223_090.0, 1000.0
FIRST_PID = 4000
EVERY = 2.0
"""Seconds from one look at the first line to the next."""
LINK_RATE = 26.562e9
LINKS = tuple(NvlinkLink(n, 1, LINK_RATE) for n in range(18))
GPUS_EVERY = 15.0
OWNER = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"
SHM = Path("/dev/shm")
"""As on a node, rings lie in memory."""


@dataclass(frozen=True)
class Look:
    """What the daemon said of the jobs at a second of the job."""

    second: float
    jobs: tuple[ExplainedJob, ...]
    facts: tuple[object, ...]


@dataclass
class Played:
    """A job that was made: its ranks by life of its processes, its loads, and all that was said meanwhile."""

    case: Case
    lives: list[Job]
    loads: list[Load]
    looks: list[Look]


@dataclass
class ModelRings:
    """The real reader of rings; who holds a lock is the process that the model says it is."""

    real: FileRings
    files: list[RingFile]
    clock: Clock

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        for one in self.files:
            one.grow(self.clock.second)
        found = self.real.poll(after)
        if isinstance(found, Absent):
            return found
        return replace(found, rings=tuple(self._held(one) for one in found.rings))

    def _held(self, one: RingReading) -> RingReading:
        ring = one.ring
        return (
            one if isinstance(ring.host_pid, Absent) else replace(one, ring=replace(ring, host_pid=ring.pid))
        )


def play(case: Case, seed: str) -> Played:
    """Run a job, then the collectors over it."""
    lives = list(_lives(case))
    folder = Path(tempfile.mkdtemp(prefix="rings", dir=SHM if SHM.is_dir() else None))
    rings: ModelRings | None = None
    try:
        draw = random.Random(f"around {seed}")  # noqa: S311
        clock = Clock(UNIX, MONO)
        loads, files = _seen(case, lives, folder, draw)
        rings = ModelRings(FileRings(folder, clock.mono), files, clock)
        watched = Watch(case, Node(loads, clock), rings)
        return Played(case, lives, loads, list(watched.looks(draw)))
    finally:
        if rings is not None:
            rings.real.close()
            for one in rings.files:
                one.close()
        shutil.rmtree(folder)


def _ends(case: Case) -> list[tuple[float, float]]:
    edges = [0.0, *case.restarts, case.seconds + 5.0]
    return list(pairwise(edges))


def _lives(case: Case) -> Iterator[Job]:
    for begun, end in _ends(case):
        plan = replace(case.plan, begun=begun)
        job = Job(case.world, {rank: shapes.program(plan, rank) for rank in plan.everyone})
        job.run(end)
        yield job


def _seen(
    case: Case, lives: list[Job], folder: Path, draw: random.Random
) -> tuple[list[Load], list[RingFile]]:
    plan = case.plan
    clocks = Clocks(
        UNIX, MONO, {gpu: draw.randrange(10**18) for gpu in plan.gpus},
        {gpu: draw.uniform(-case.drift, case.drift) for gpu in plan.gpus}, case.resolution,
    )  # fmt: skip
    writer = Writer(folder, clocks, draw, case.sampling, case.captured)
    loads: list[Load] = []
    files: list[RingFile] = []
    for life, (job, (begun, end)) in enumerate(zip(lives, _ends(case), strict=True)):
        last = end if life < len(lives) - 1 else end + 1e3
        for number in plan.ranks:
            rank = job.ranks[number]
            pid, gpu = FIRST_PID + 100 * life + number, plan.gpus[number]
            loads.append(Load(rank, gpu, pid, begun, last, plan.spins))
            files += writer.rings(plan.groups, number, rank, gpu, pid, last)
    return loads, files


class Watch:
    """The collectors of running jobs, and what else of the node's state they and `explain` read."""

    def __init__(self, case: Case, node: Node, rings: ModelRings) -> None:
        self.case, self.node, self.rings = case, node, rings
        none = cast("Any", None)
        self.hardware = Hardware(
            ModelNvml(node), ModelFiles(node, OWNER), none, none, none, none, none, node.clock, none,
            rings=rings, ras=ModelRas(node, case.plan.groups, case.ras),
        )  # fmt: skip
        self.collectors = {
            name: with_surroundings(one, self._judged, None, {})
            for name, one in COLLECTORS.items()
            if one.options.enabled
        }
        begun = [Component(name, one.start, gates=one.gates) for name, one in self.collectors.items()]
        self.state = NodeState({one.name: one for one in begun})
        self._around("topology", topology())

    def _judged(self) -> Judged:
        return Judged(self.state, Verdict(Health.OK, ()))

    def looks(self, draw: random.Random) -> Iterator[Look]:
        """Each collector runs on its own interval, from a moment of its own on."""
        due = {name: draw.uniform(0.0, one.options.interval) for name, one in self.collectors.items()}
        due["gpu"] = draw.uniform(0.0, GPUS_EVERY)
        look = draw.uniform(0.0, EVERY)
        while look < self.case.seconds:
            name = min(due, key=lambda one: due[one])
            if due[name] > look:
                self.node.clock.second = look
                yield self._look()
                look += EVERY
                continue
            self.node.clock.second = due[name]
            if name == "gpu":
                self._gpus()
                due[name] += GPUS_EVERY
            else:
                self._run(self.collectors[name])
                due[name] += self.collectors[name].options.interval

    def _look(self) -> Look:
        clock = self.node.clock
        found = jobs(self.state, clock.now(), "live").jobs
        facts = tuple(one.facts for one in self.state.components.values())
        return Look(clock.second, tuple(found), facts)

    def _run(self, collector: AnyCollector) -> None:
        component, clock = self.state.components[collector.name], self.node.clock
        value = collector.read(self.hardware, component.memory, collector.options)
        now, mono = clock.now(), clock.mono()
        outcome = Failed(value, now, mono) if isinstance(value, Absent) else Ok(value, now, mono)
        step = fold(collector, component.memory, outcome, 0.0, Expect())
        self.state = self.state.with_component(after(component, step))

    def _gpus(self) -> None:
        """What the collectors of GPUs and of NVLink make of the same answers of NVML."""
        questions = [
            Question("UtilizationRates"),
            Question("PowerUsage"),
            Question("ComputeRunningProcesses"),
        ]
        now, links = dict[str, GpuNow](), dict[Gpu, tuple[NvlinkLink, ...]]()
        for gpu in self.hardware.nvml.gpus():  # type: ignore[union-attr]
            use, power, held = (cast("Any", one.value) for one in self.hardware.nvml.ask(gpu.uuid, questions))
            pids = frozenset(int(one["pid"]) for one in held)
            now[gpu.uuid] = GpuNow(gpu.index, use["gpu"] / 100, power / 1000, (), pids)
            links[gpu] = LINKS
        self._around("gpu", GpuFacts(frozenset(now), now))
        self._around("nvlink", NvlinkFacts(links))

    def _around(self, name: str, facts: object) -> None:
        clock = self.node.clock
        outcome = Ok(None, clock.now(), clock.mono())
        self.state = self.state.with_component(Component(name, None, outcome, facts=facts, applicable=True))


def topology(gpus: int = 8) -> Topology:
    """Eight GPUs on one NVSwitch, all links up."""
    parts = tuple(
        GpuPart(uuid(n), n, "NVIDIA H200", Place(f"0000:{n:02x}:00.0", "pci0000:00", (), 0))
        for n in range(gpus)
    )
    return Topology(
        parts, (), tuple(NvlinkWires(uuid(n), SWITCH, tuple(range(18))) for n in range(gpus)), (), 2, ()
    )
