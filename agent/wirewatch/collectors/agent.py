"""What watching costs: the agent's own processes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wirewatch.core.collector import UNKNOWN, Collector, NoPolicy, Options, Rule
from wirewatch.core.ports import Hardware, NvmlCost, ProcessUse
from wirewatch.core.types import Absent, Expect, Finding, Ok, Sample, Subject, Tier, family

CPU = family("agent_cpu_seconds_total", ("process",), "CPU time of the agent's processes.", tier=Tier.CORE)
RESIDENT = family(
    "agent_resident_memory_bytes", ("process",), "Resident memory of the agent's processes.", tier=Tier.CORE
)
NVML_SECONDS = family("agent_nvml_seconds_total", (), "Time that the agent has spent inside NVML calls.")
RESTARTS = family(
    "agent_nvml_restarts_total",
    (),
    "Times that the process which talks to NVML was started again after it hung, died or found no driver.",
    tier=Tier.CORE,
)
STUCK = family(
    "agent_nvml_stuck_processes",
    (),
    "Killed processes that hang in the driver and cannot die.",
    "a process in state D",
)
NVML_STUCK = Rule("agent.nvml_stuck", UNKNOWN)


@dataclass(frozen=True, slots=True)
class AgentReading:
    """CPU and memory of each process by its role, and what talking to NVML has cost."""

    processes: Mapping[str, ProcessUse | Absent]
    nvml: NvmlCost


def read(hardware: Hardware, _memory: None, _options: Options) -> AgentReading | Absent:
    cost = hardware.nvml.cost()
    processes = {"agent": hardware.host.process(None)}
    for name, pid in (("nvml", cost.pid), ("jobs", hardware.watcher())):
        if pid is not None:
            processes[name] = hardware.host.process(pid)
    return AgentReading(processes, cost)


def samples(reading: AgentReading, _memory: None) -> Iterable[Sample]:
    for name, use in reading.processes.items():
        if not isinstance(use, Absent):
            yield CPU.sample(use.cpu_seconds, name)
            yield RESIDENT.sample(use.resident_bytes, name)
    yield NVML_SECONDS.sample(reading.nvml.seconds)
    yield RESTARTS.sample(reading.nvml.restarts)
    yield STUCK.sample(reading.nvml.stuck)


def judge(
    _memory: None, ok: Ok[AgentReading], _policy: NoPolicy, _expect: Expect
) -> tuple[None, tuple[Finding, ...]]:
    """A killed process that cannot leave the driver is the only thing to find."""
    if not ok.value.nvml.stuck:
        return None, ()
    evidence = f"{ok.value.nvml.stuck} killed process(es) cannot leave the NVIDIA driver"
    action = "drain the node and reboot it; nothing else frees a process in state D"
    return None, (NVML_STUCK.finding(Subject(device="nvml"), evidence, action=action),)


COLLECTOR: Collector[AgentReading, None, Options, NoPolicy] = Collector(
    name="agent",
    about="CPU time, memory and NVML time of the agent itself",
    lane="host",
    options=Options(),
    policy=NoPolicy(),
    metrics=(CPU, RESIDENT, NVML_SECONDS, RESTARTS, STUCK),
    start=None,
    read=read,
    samples=samples,
    judge=judge,
    rules=(NVML_STUCK,),
    series=14,
    applicable=lambda _reading: False,
)
