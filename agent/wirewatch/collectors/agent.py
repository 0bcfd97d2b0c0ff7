"""The cost of watching: the agent's own processes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from wirewatch.core.collector import DEGRADED, UNKNOWN, AnyCollector, Collector, NoPolicy, Options, Rule
from wirewatch.core.ports import Hardware, NvmlCost, ProcessUse
from wirewatch.core.types import Absent, Expect, Finding, Ok, Sample, Subject, Tier, family

CPU = family("agent_cpu_seconds_total", ("process",), "CPU time of the agent's processes.", tier=Tier.CORE)
RESIDENT = family(
    "agent_resident_memory_bytes", ("process",), "Resident memory of the agent's processes.", tier=Tier.CORE
)
NVML_SECONDS = family(
    "agent_nvml_seconds_total", (), "Time that the agent has spent inside NVML calls.", tier=Tier.CORE
)
RESTARTS = family(
    "agent_nvml_restarts_total",
    (),
    "Times that the process which talks to NVML was started again after it hung, died or found no driver.",
    tier=Tier.CORE,
)
STUCK = family(
    "agent_nvml_stuck_processes", (), "Killed processes that hang in the driver and cannot die.",
    "a process in state D", tier=Tier.CORE,
)  # fmt: skip
BRAKE = family(
    "brake_active", ("scope",),
    "1 while this node is not fit and stays in use, since the brake of Slurm's scripts holds; by what holds.",
    undrawn="WirewatchBrakeHolds reports it", tier=Tier.CORE,
)  # fmt: skip
NVML_STUCK = Rule("agent.nvml_stuck", UNKNOWN)
UNWRITTEN = Rule(
    "agent.unwritten",
    DEGRADED,
    means="the state folder is not written: what is remembered would be lost with a restart",
    do="make room, or the folder writable for the agent; one that another folder has replaced is not written",
    rehearse="no overlay; move the state folder of a running daemon away and put a file in its place",
)


@dataclass(frozen=True, slots=True)
class AgentReading:
    """CPU and memory of each process by its role, and the cost of NVML's calls.

    `unwritten`: why the state folder is not written now, empty where it is. `held`: why Slurm's scripts may
    not drain this node, empty for no reason.
    """

    processes: Mapping[str, ProcessUse | Absent]
    nvml: NvmlCost
    unwritten: str = ""
    held: str = ""


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
    if reading.held:
        yield BRAKE.sample(1, reading.held)


def judge(
    _memory: None, ok: Ok[AgentReading], _policy: NoPolicy, _expect: Expect
) -> tuple[None, tuple[Finding, ...]]:
    """Find killed processes that cannot leave the driver, and a state folder that is not written."""
    found = []
    if ok.value.nvml.stuck:
        evidence = f"{ok.value.nvml.stuck} killed process(es) cannot leave the NVIDIA driver"
        action = "drain the node and reboot it; nothing else frees a process in state D"
        found.append(NVML_STUCK.finding(Subject(device="nvml"), evidence, action=action))
    if ok.value.unwritten:
        found.append(UNWRITTEN.finding(Subject(device="state"), ok.value.unwritten))
    return None, tuple(found)


def with_state(
    collector: AnyCollector, unwritten: Callable[[], str], held: Callable[[], str] = str
) -> AnyCollector:
    """Return the collector `agent` with the results of both functions in its reading; others as they are."""
    if collector.name != COLLECTOR.name:
        return collector

    def reading(hardware: Hardware, _memory: None, options: Options) -> AgentReading | Absent:
        found = read(hardware, None, options)
        return found if isinstance(found, Absent) else replace(found, unwritten=unwritten(), held=held())

    return replace(collector, read=reading)


COLLECTOR: Collector[AgentReading, None, Options, NoPolicy] = Collector(
    name="agent",
    about="CPU time, memory and NVML time of the agent itself",
    lane="host",
    options=Options(),
    policy=NoPolicy(),
    metrics=(CPU, RESIDENT, NVML_SECONDS, RESTARTS, STUCK, BRAKE),
    start=None,
    read=read,
    samples=samples,
    judge=judge,
    rules=(NVML_STUCK, UNWRITTEN),
    series=15,
    applicable=lambda _reading: False,
)
