"""Questions about a GPU that several rooms ask: its links, their states and rates, and who computes on it."""

from functools import cache

from wirewatch.core.asking import as_int, member
from wirewatch.core.ports import Gpu, Nvml, Question
from wirewatch.core.types import Absent, Why

LINK_COUNT = Question("Field", (91,))
PROCESSES = (Question("ComputeRunningProcesses"), Question("MPSComputeRunningProcesses"))
OLD_LINKS = 18
"""Links that are asked for where a driver does not tell how many there are."""
UP = frozenset({1, 2})
"""Active and asleep, as NVML numbers link states."""


def count_links(nvml: Nvml, gpu: str) -> int:
    """How many links a GPU has, up or down; OLD_LINKS where its driver does not say."""
    count = as_int(nvml.ask(gpu, [LINK_COUNT])[0].value)
    return OLD_LINKS if isinstance(count, Absent) else count


@cache
def state(link: int) -> Question:
    """The question for the state of a link, as NVML numbers it."""
    return Question("Field", (165, link))


@cache
def old_state(link: int) -> Question:
    """The same from drivers that have no such field."""
    return Question("NvLinkState", (link,))


@cache
def link_speed(link: int) -> Question:
    """The question for the line rate of a link, in MB/s each way."""
    return Question("Field", (164, link))


def compute_processes(nvml: Nvml, gpu: Gpu) -> frozenset[int | None] | Absent:
    """Ids of the processes that compute on a GPU; None stands for a process without an id."""
    own, shared = (answer.value for answer in nvml.ask(gpu.key, PROCESSES))
    if isinstance(shared, Absent) and shared.why in {Why.UNSUPPORTED, Why.MISSING}:
        shared = ()  # Old drivers do not list the clients of MPS, and without MPS there are none.
    found: set[int | None] = set()
    for listed in (own, shared):
        if isinstance(listed, Absent):
            return listed
        if not isinstance(listed, list | tuple):
            return Absent(Why.MALFORMED, f"not a list of processes: {listed!r}")
        pids = (as_int(member(entry, "pid")) for entry in listed)
        found.update(None if isinstance(pid, Absent) else pid for pid in pids)
    return frozenset(found)
