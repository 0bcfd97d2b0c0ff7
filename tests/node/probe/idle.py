"""A node of idle GPUs on a switch, with the probe's component over it; probes give what `drawn` draws."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.node.collectors.drawn import Gpus, Watched
from tests.node.probe.drawn import LINKS, of_order
from wirewatch.core.collector import Component
from wirewatch.core.nvml import link_speed
from wirewatch.core.ports import Gpu, Order, Question, SlurmJob
from wirewatch.core.probe import Outcome, Probed
from wirewatch.core.types import Absent, Expect, Finding, Health, Json, Why
from wirewatch.probe.collector import probe_collector
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy

DENIED = Absent(Why.DENIED, "no permission", 4)
FREE, USED = 150_000_000_000, 645_000_000


def idle_gpus(count: int) -> Gpus:
    """GPUs of an NVSwitch board that no process uses."""
    gpus = Gpus([f"0000:{n + 6:02x}:00.0" for n in range(count)])
    for n in range(count):
        told: dict[Question, Json] = {
            Question("MemoryInfo"): {"total": FREE + USED, "free": FREE, "used": USED},
            Question("MigMode"): [0, 0],
            Question("ComputeMode"): 0,
            Question("ComputeRunningProcesses"): [],
            Question("MPSComputeRunningProcesses"): [],
            Question("MinorNumber"): n,
            Question("MaxPcieLinkGeneration"): 5,
            Question("MaxPcieLinkWidth"): 16,
            Question("Field", (91,)): LINKS,
        }
        for link in range(LINKS):
            told[Question("Field", (165, link))] = 1
            told[Question("NvLinkRemoteDeviceType", (link,))] = 2
            told[link_speed(link)] = 26562
        gpus.table |= {(f"GPU-{n}", str(question)): value for question, value in told.items()}
    return gpus


class Idle(Watched):
    """`knobs` and `outcome` make the next probes; `during` is called while one runs."""

    def __init__(
        self, count: int = 2, start: ProbeMemory | None = None, expect: Expect | None = None, **options: Any
    ) -> None:
        super().__init__("probe", gpus=idle_gpus(count), expect=expect)
        self.probes.name = "nccl"
        self.probes.result = self._run
        self.knobs: dict[str, Any] = {}
        self.outcome: Outcome = "ok"
        self.during: Callable[[Order], object] = lambda _: None
        self.made, self.rules_used = ProbeOptions(**{"jitter": 0.0, **options}), ProbePolicy()
        self.collector = probe_collector(self.made, self.rules_used, self.expect, start)
        self.component = Component(self.collector.name, self.collector.start)

    def _run(self, order: Order) -> Probed:
        at = self.clock.now()
        self.clock.seconds += 1.5
        self.during(order)
        return of_order(order, at, self.outcome, **self.knobs)

    def answer(self, gpu: int, call: str, value: Json | Absent) -> None:
        self.gpus.table[f"GPU-{gpu}", f"{call}()"] = value

    def busy(self, gpu: int, *pids: int) -> None:
        self.answer(gpu, "ComputeRunningProcesses", [{"pid": pid} for pid in pids])

    def job(self, number: str, *gpus: int) -> None:
        """Slurm says that a job runs; none with no GPUs."""
        self.jobs.told = [SlurmJob(number, "RUNNING", gpus)] if gpus else []

    def listed(self) -> Sequence[Gpu]:
        told = self.gpus.gpus()
        assert not isinstance(told, Absent)
        return told

    @property
    def memory(self) -> ProbeMemory:
        assert isinstance(self.component.memory, ProbeMemory)
        return self.component.memory

    def reason(self) -> str:
        """Why the gate is shut; empty when it is open."""
        refusal = self.memory.refusal
        return refusal.reason.value if refusal else ""

    def probe(self, times: int = 1, every: float = 30.0) -> tuple[Finding, ...]:
        """Turn until so many more probes have run."""
        wanted = len(self.probes.ordered) + times
        for _ in range(1000):
            self.poll(every=every)
            if len(self.probes.ordered) >= wanted:
                return self.component.findings
        raise AssertionError(f"no probe: {self.memory.refusal}")

    def healths(self) -> dict[str, Health]:
        """The worst health of each rule."""
        found: dict[str, Health] = {}
        for one in self.component.findings:
            found[one.rule] = max(one.health, found.get(one.rule, Health.OK))
        return found
