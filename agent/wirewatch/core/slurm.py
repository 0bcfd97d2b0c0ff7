"""What squeue and scontrol print about one node, and which of its GPUs each job holds.

Source: man scontrol and squeue, and what Slurm 22.05 printed. Users write into these lines: a job may be
called `x JobState=COMPLETED GRES=gpu:0`, with line ends too. States therefore come from squeue, which prints
nothing of theirs, groups of GPUs are added up, and what the node counts as used is held against the sum.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wirewatch.core.ports import Output, SlurmJob
from wirewatch.core.types import Absent, Why

UNSEEN = "UNSEEN"
"""State of what holds GPUs of the node and is no job that we are shown (slurm.conf, PrivateData=jobs)."""
COMPLETING = "COMPLETING"
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_HOLDS_NOTHING = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
    "OUT_OF_MEMORY", "PENDING", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "RESV_DEL_HOLD", "REVOKED", "SPECIAL_EXIT", "TIMEOUT",
})  # fmt: skip
"""States of jobs that have ended or not begun; any other word holds the node, also one not known to us."""
_BUSY = frozenset({"ALLOCATED", "MIXED", COMPLETING})
_GPU_GRES = frozenset({"gpu", "mps", "shard"})
"""Generic resources that are GPUs or parts of them, numbered alike."""
_QUEUED = re.compile(r"(\d+) ([A-Z_]+)", re.ASCII)
_ITEM = re.compile(r"([^,()]+)(?:\(([^()]*)\))?")
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_GROUP = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(\S*)")
_GONE = re.compile(r"invalid job id", re.IGNORECASE)
_REFUSALS = (
    (re.compile(r"invalid node name|node \S+ not found", re.IGNORECASE), Why.MISSING),
    (re.compile(r"timed out", re.IGNORECASE), Why.TIMEOUT),
    (re.compile(r"denied|authentication|munge", re.IGNORECASE), Why.DENIED),
)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as the controller sees it: words of its state, whether GPUs are counted there, which are used.

    `used` is None where Slurm counts GPUs there but does not tell which (gres.conf without File).
    """

    state: frozenset[str]
    counts: bool
    used: tuple[int, ...] | None

    @property
    def idle(self) -> bool:
        """Whether surely nothing is held; never so where GPUs are not counted: suspended jobs do not show."""
        return self.counts and self.used == () and "IDLE" in self.state and not self.state & _BUSY


def parse_node(text: str) -> SlurmNode | Absent:
    """The one line of `scontrol -d -o show node NODE`."""
    told = {name: re.search(rf"(?:^|\s){name}=(\S*)", text) for name in ("State", "Gres", "GresUsed")}
    state, gres, used = told["State"], told["Gres"], told["GresUsed"]
    if state is None or gres is None:
        return Absent(Why.MALFORMED, f"not a node of Slurm: {text[:200]!r}")
    words = frozenset(re.findall(r"[A-Z_]+", state[1]))
    if gpu_numbers(gres[1]) == ():
        return SlurmNode(words, counts=False, used=())
    return SlurmNode(words, counts=True, used=gpu_numbers(used[1]) if used else None)


def parse_queue(text: str) -> Sequence[tuple[str, str]] | Absent:
    """Id and state of the jobs that hold the node, of `squeue -h -t all -o '%A %T'`."""
    found = []
    for line in text.splitlines():
        match = _QUEUED.fullmatch(line.strip())
        if not match:
            return Absent(Why.MALFORMED, f"not a job of squeue: {line[:200]!r}")
        if match[2] not in _HOLDS_NOTHING:
            found.append((match[1], match[2]))
    return found


def parse_job(text: str, job: str, node: str) -> tuple[int, ...] | None:
    """The numbers of a job's GPUs on a node, of `scontrol -d -o show job ID`; None where that is not told.

    For the first task of an array Slurm prints the other tasks too.
    """
    held: set[int] = set()
    seen = False
    for part in re.split(r"^JobId=", text, flags=re.MULTILINE)[1:]:
        if not re.match(rf"{job}\b", part):
            continue
        for nodes, gres in _GROUP.findall(part):
            if in_hostlist(node, nodes):
                numbers = gpu_numbers(gres)
                if numbers is None:
                    return None
                held.update(numbers)
                seen = True
    return tuple(sorted(held)) if seen else None


def gpu_numbers(gres: str) -> tuple[int, ...] | None:
    """`gpu:h200:3(IDX:0,2-3),nic:1` to (0, 2, 3); None where GPUs are counted and not numbered."""
    numbers: set[int] = set()
    for words, place in _ITEM.findall(gres):
        name, *rest = words.split(":")
        if name not in _GPU_GRES:
            continue
        if place.startswith("IDX:") and place != "IDX:N/A":
            told = _numbers(place.removeprefix("IDX:"))
            if told is None:
                return None
            numbers.update(told)
        elif not rest or rest[-1] != "0":
            return None
    return tuple(sorted(numbers))


def _numbers(text: str) -> set[int] | None:
    """`0,2-3` to 0, 2, 3."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            return None
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found or None


def in_hostlist(node: str, hosts: str) -> bool:
    """Whether a list such as `login,gpu[01-03,07]-ib[0-1]` names a node."""
    return any(_names(node, host) for host in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", hosts))


def _names(node: str, host: str) -> bool:
    before, bracket, rest = host.partition("[")
    if not bracket:
        return node == host
    inside, _, after = rest.partition("]")
    if not node.startswith(before):
        return False
    left = node[len(before) :]
    digits = len(left) - len(left.lstrip("0123456789"))
    return any(_in_ranges(left[:n], inside) and _names(left[n:], after) for n in range(1, digits + 1))


def _in_ranges(digits: str, ranges: str) -> bool:
    """Whether `03` is in `01-03,7`: a number has the width that its range is written with."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        match = _RANGE.fullmatch(part)
        if match and int(first) <= int(digits) <= int(last or first):
            width = len(first) if first.startswith("0") else 0
            if digits == str(int(digits)).zfill(width):
                return True
    return False


def unseen(node: SlurmNode, jobs: Sequence[SlurmJob]) -> SlurmJob | None:
    """What holds GPUs of the node beside these jobs, if anything does."""
    if any(job.gpus is None for job in jobs):
        return None
    if not node.counts:
        return None if jobs or not node.state & _BUSY else SlurmJob("unknown", UNSEEN, None)
    if node.used is None:
        return SlurmJob("unknown", UNSEEN, None)
    hidden = set(node.used).difference(*(job.gpus or () for job in jobs))
    if hidden:
        return SlurmJob("unknown", UNSEEN, tuple(sorted(hidden)))
    ended = COMPLETING in node.state and not any(job.state == COMPLETING for job in jobs)
    return SlurmJob("unknown", UNSEEN, None) if ended else None


def refusal(output: Output) -> Absent:
    """Why Slurm did not answer, of what a program of its printed before it failed."""
    words = f"{output.err}\n{output.out}".strip()
    line = words.splitlines()[-1] if words else f"exit status {output.status}"
    why = next((why for pattern, why in _REFUSALS if pattern.search(words)), Why.LOST)
    return Absent(why, line[:200])


def gone(output: Output) -> bool:
    """Whether a job that was asked for is no longer known."""
    return output.status != 0 and bool(_GONE.search(output.err + output.out))
