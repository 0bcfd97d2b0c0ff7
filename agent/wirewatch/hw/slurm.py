"""The slurm port: squeue and scontrol, asked about this node only and as little as the answer allows.

An idle node costs the controller one small request. A working node costs two, and one more for each job that
may hold GPUs. Call it at intervals of minutes.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from wirewatch.core.ports import Output, SlurmJob
from wirewatch.core.types import Absent, Why
from wirewatch.hw.command import Programs
from wirewatch.hw.files import SystemSysfs
from wirewatch.hw.interpreter import absolute

DEADLINE = 20.0
"""Seconds for all of one answer; scontrol itself gives an unreachable controller 10."""
SEARCH = "/usr/bin:/bin:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin"
_SHOW = ("scontrol", "--all", "--local", "--details", "--oneliner", "show")
_QUEUE = ("squeue", "--noheader", "--all", "--local", "--states=all", "--format=%A %T")
UNSEEN = "UNSEEN"
"""State of a GPU holder that is no visible job (slurm.conf, PrivateData=jobs)."""
COMPLETING = "COMPLETING"
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_HOLDS_NOTHING = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
    "OUT_OF_MEMORY", "PENDING", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "RESV_DEL_HOLD", "REVOKED", "SPECIAL_EXIT", "TIMEOUT",
})  # fmt: skip
"""States of jobs that have ended or not begun; any other word holds the node, also an unknown word."""
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
SCOPES = frozenset({"cluster", "pool", "rack", "stock"})
"""Names of the units whose brake of deploy/slurm may hold."""


def held_by(path: str) -> str:
    """Return the unit of the brake by the file of Slurm's scripts; "" where it does not hold.

    A file that says something else, or cannot be read, gives "unknown": the brake holds.
    """
    found = SystemSysfs().read(path) if path else ""
    if isinstance(found, Absent):
        return "" if found.why is Why.MISSING else "unknown"
    word = found.partition("\n")[0]
    return word if word in SCOPES or not path else "unknown"


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node by the controller: words of its state, whether it counts GPUs, and the GPUs in use.

    `used` is None where Slurm does not name them (gres.conf without File).
    """

    state: frozenset[str]
    counts: bool
    used: tuple[int, ...] | None

    @property
    def idle(self) -> bool:
        """Return whether surely nothing is held; never without counted GPUs: suspended jobs do not show."""
        return self.counts and self.used == () and "IDLE" in self.state and not self.state & _BUSY


class SystemSlurm:
    """Slurm as this node sees it: its NodeName, and the path of slurm.conf; "" to find them out."""

    def __init__(
        self, node: str = "", conf: str = "", search: str = SEARCH, deadline: float = DEADLINE
    ) -> None:
        conf = conf or os.environ.get("SLURM_CONF", "")
        self._programs = Programs(search, {"SLURM_CONF": absolute(conf)} if conf else {})
        self._node = node
        self._deadline = deadline

    def jobs(self) -> Sequence[SlurmJob] | Absent:
        end = time.monotonic() + self._deadline
        name = self._name(end)
        if isinstance(name, Absent):
            return name
        text = self._text((*_SHOW, "node", name), end)
        node = text if isinstance(text, Absent) else parse_node(text)
        if isinstance(node, Absent):
            return node
        if node.idle:
            return ()
        found = self._held(name, node, end)
        if isinstance(found, Absent) and found.why is Why.MISSING:
            # The node is Slurm's: what is missing now is not Slurm.
            return Absent(Why.LOST, found.detail, found.code)
        return found

    def _name(self, end: float) -> str | Absent:
        """The NodeName of this machine; its short host name where slurm.conf names no node for it."""
        if self._node:
            names = [self._node]
        else:
            aliases = self._text(("scontrol", "show", "aliases"), end)
            if isinstance(aliases, Absent):
                return aliases
            names = aliases.split() or [os.uname().nodename.partition(".")[0]]
        if len(names) > 1:
            several = ", ".join(names)
            return Absent(Why.UNSUPPORTED, f"several Slurm nodes on this machine ({several}): name one")
        if not NODE_NAME.fullmatch(names[0]):
            return Absent(Why.MALFORMED, f"not the name of a Slurm node: {names[0]!r}")
        return names[0]

    def _held(self, name: str, node: SlurmNode, end: float) -> Sequence[SlurmJob] | Absent:
        text = self._text((*_QUEUE, f"--nodelist={name}"), end)
        queue = text if isinstance(text, Absent) else parse_queue(text)
        if isinstance(queue, Absent):
            return queue
        jobs = []
        for number, state in queue:
            job = self._job(number, state, name, node, end)
            if isinstance(job, Absent):
                return job
            jobs += [job] if job else []
        more = unseen(node, jobs)
        return (*jobs, more) if more else tuple(jobs)

    def _job(self, job: str, state: str, name: str, node: SlurmNode, end: float) -> SlurmJob | Absent | None:
        """The job with its GPUs; None when it has ended meanwhile."""
        if not node.counts or state == COMPLETING:
            # Slurm takes the GPUs off a job's record before its epilog has run.
            return SlurmJob(job, state, None)
        if node.used == ():
            return SlurmJob(job, state, ())
        output = self._output((*_SHOW, "job", job), end)
        if isinstance(output, Absent):
            return output
        if gone(output):
            return None
        return refusal(output) if output.status else SlurmJob(job, state, parse_job(output.out, job, name))

    def _text(self, command: Sequence[str], end: float) -> str | Absent:
        output = self._output(command, end)
        if isinstance(output, Absent):
            return output
        return refusal(output) if output.status else output.out

    def _output(self, command: Sequence[str], end: float) -> Output | Absent:
        left = end - time.monotonic()
        if left <= 0:
            return Absent(Why.TIMEOUT, f"Slurm did not answer within {self._deadline:g} s")
        return self._programs.run(command, left)


def parse_node(text: str) -> SlurmNode | Absent:
    """Return the node of the single line of `scontrol -d -o show node NODE`."""
    found = {name: re.search(rf"(?:^|\s){name}=(\S*)", text) for name in ("State", "Gres", "GresUsed")}
    state, gres, used = found["State"], found["Gres"], found["GresUsed"]
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
        job = _QUEUED.fullmatch(line.strip())
        if job is None:
            return Absent(Why.MALFORMED, f"not a job of squeue: {line[:200]!r}")
        found.append((job[1], job[2]))
    return [job for job in found if job[1] not in _HOLDS_NOTHING]


def parse_job(text: str, job: str, node: str) -> tuple[int, ...] | None:
    """Return a job's GPUs on a node, of `scontrol -d -o show job ID`; None where Slurm does not say."""
    held: set[int] = set()
    seen = False
    for part in re.split(r"^JobId=", text, flags=re.MULTILINE)[1:]:
        # It prints the other tasks of an array too.
        for nodes, gres in _GROUP.findall(part) if re.match(rf"{job}\b", part) else ():
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
            listed = _numbers(place.removeprefix("IDX:"))
            if listed is None:
                return None
            numbers.update(listed)
        elif not rest or rest[-1] != "0":
            return None
    return tuple(sorted(numbers))


def in_hostlist(node: str, hosts: str) -> bool:
    """Return whether a list such as `login,gpu[01-03,07]-ib[0-1]` names a node."""
    return any(_names(node, host) for host in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", hosts))


def unseen(node: SlurmNode, jobs: Sequence[SlurmJob]) -> SlurmJob | None:
    """Return the holders of GPUs of the node beside these jobs, if there are any."""
    known = [job.gpus for job in jobs if job.gpus is not None]
    if len(known) < len(jobs):
        return None
    if not node.counts:
        return SlurmJob("unknown", UNSEEN, None) if node.state & _BUSY else None
    if node.used is None:
        return SlurmJob("unknown", UNSEEN, None)
    hidden = set(node.used).difference(*known)
    if hidden:
        return SlurmJob("unknown", UNSEEN, tuple(sorted(hidden)))
    # A job whose epilog runs does not say which GPUs it holds, so that all jobs here have none.
    return SlurmJob("unknown", UNSEEN, None) if COMPLETING in node.state else None


def refusal(output: Output) -> Absent:
    """Return why Slurm did not answer, from the output of a failed program."""
    words = f"{output.err}\n{output.out}".strip()
    line = words.splitlines()[-1] if words else f"exit status {output.status}"
    why = next((why for pattern, why in _REFUSALS if pattern.search(words)), Why.LOST)
    return Absent(why, line[:200])


def gone(output: Output) -> bool:
    """Return whether a job that was asked for is no longer known."""
    return output.status != 0 and bool(_GONE.search(output.err + output.out))


def _numbers(text: str) -> set[int] | None:
    """`0,2-3` to 0, 2, 3."""
    found: set[int] = set()
    for part in text.split(","):
        if not (match := _RANGE.fullmatch(part)):
            return None
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found or None


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
    """Return whether `03` is in `01-03,7`: a number has the width that its range is written with."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        match = _RANGE.fullmatch(part)
        inside = match and int(first) <= int(digits) <= int(last or first)
        if inside and digits == str(int(digits)).zfill(len(first)):
            return True
    return False
