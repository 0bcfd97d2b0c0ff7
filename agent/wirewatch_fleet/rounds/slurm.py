"""Rounds on Slurm: an `srun` for each pair, as its own job or as a step of our allocation.

`srun` returns the answers itself, so no folder needs to be shared. A job array cannot say which two nodes
each of its jobs gets (ADR 0066).
"""

import math
import os
import re
import secrets
import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wirewatch.core.hostlist import HostlistError, expanded, natural, topology_places
from wirewatch.core.types import Absent
from wirewatch.hw.command import Programs, RunningProgram
from wirewatch.hw.slurm import NODE_NAME, SEARCH
from wirewatch_fleet.rounds.answer import answers_in
from wirewatch_fleet.rounds.engine import (
    NodesError,
    PairNode,
    PairProgress,
    PairState,
    RoundEngineError,
    RoundOrder,
)
from wirewatch_fleet.rounds.plan import encode_pair_plan, pair_plan

PLAN_VARIABLE = "WIREWATCH_PAIR_PLAN"
ASK_SECONDS, HEAR_SECONDS, ANSWER_SECONDS = 3.0, 1.5, 20.0
"""Seconds between two questions to the controller in a round; for an answer to a question, deaf to Ctrl-C;
for an answer between rounds."""
GRACE_SECONDS = 10.0
"""Extra seconds of srun beyond a campaign, after which it gives up if the campaign is gone."""
PARTNER_SECONDS = 8
"""Seconds that srun allows a node of a pair to end after the other, as it may wait for a dead node."""
END_SECONDS = 1.0
"""Seconds that srun may take to end after a request."""
_PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED", "RESV_DEL_HOLD", "REQUEUE_HOLD"})
_IDLE, _RESERVED = frozenset({"idle"}), frozenset({"idle", "reserved", "maint"})
_AWAY = frozenset({"down", "fail", "error", "unknown", "powered_down", "powering_down", "not_responding"})
"""States of a node that runs nothing, even in an allocation."""
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)*?:(\d{1,4})(?=[(,]|$)", re.ASCII)
_FLAGS = {
    "*": "not responding",
    "~": "powered down",
    "#": "powering up",
    "%": "powering down",
    "-": "planned",
}
_RESERVATION_NODES = re.compile(r"(?:^|\s)Nodes=(\S+)")
_FORMAT = "--format=%N|%T|%G|%o"


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """Destination of jobs; empty for Slurm's own default. `nodes`: host lists.

    `command`: wirewatch on the nodes.

    `job`: the allocation in which the pairs are steps, "" to submit jobs. `port`: where pairs meet.
    """

    partition: str = ""
    reservation: str = ""
    account: str = ""
    qos: str = ""
    gres: str = ""
    nodes: tuple[str, ...] = ()
    command: tuple[str, ...] = ("wirewatch",)
    job: str = ""
    port: int = 28700


@dataclass(slots=True)
class _PairStep:
    """An srun: its pair, the name of its job, and its last state at the controller."""

    first: str
    second: str
    name: str
    program: RunningProgram
    state: PairState
    said: str = ""

    def progress(self) -> PairProgress:
        status = self.program.status()
        if status is None:
            return PairProgress(self.first, self.second, self.state, self.said)
        out, errors = self.program.printed()
        if any(answers_in(out)):
            return PairProgress(self.first, self.second, PairState.DONE, f"{out}\n{errors}")
        return PairProgress(self.first, self.second, PairState.FAILED, reason(errors, status))


@dataclass(slots=True)
class SlurmRounds:
    """The engine.

    `environment`: variables for srun and Slurm's other programs, and through srun for the jobs.
    """

    options: SlurmOptions
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    search: str = SEARCH
    _campaign: str = field(default_factory=lambda: f"wirewatch-{secrets.token_hex(4)}")
    _steps: list[_PairStep] = field(default_factory=list)
    _nodes: dict[str, PairNode] = field(default_factory=dict)
    _asked: float = 0.0

    def members(self) -> Sequence[PairNode]:
        wanted = self._wanted()
        leafs = self._leafs()
        text = self._told(["sinfo", "--noheader", "--Node", _FORMAT, *self._sinfo_options(wanted)])
        found = {node.name: node for node in self._read(text, leafs)}
        missing = [name for name in wanted if name not in found]
        if missing and not self._nodes:
            raise NodesError(f"Slurm has no node {', '.join(missing[:8])} there")
        self._nodes = {name: found[name] for name in sorted(found, key=natural)}
        return tuple(self._nodes.values())

    def start(self, order: RoundOrder) -> None:
        self._asked = time.monotonic()
        program = self._srun()
        for place, (first, second) in enumerate(order.pairs):
            plan = pair_plan(first, second, self._meet(order, place), order.work)
            environment = {**self.environment, PLAN_VARIABLE: encode_pair_plan(plan)}
            name = f"{self._campaign}-{order.number}-{place}"
            # A step of ours waits for nobody but ourselves.
            state = PairState.RUNNING if self.options.job else PairState.WAITING
            try:
                started = RunningProgram([program, *self._arguments(order, first, second, name)], environment)
            except OSError as error:
                raise RoundEngineError(f"srun cannot be started: {error.strerror}") from error
            self._steps.append(_PairStep(first, second, name, started, state))

    def poll(self) -> Sequence[PairProgress]:
        live = [one for one in self._steps if one.program.status() is None]
        if live and not self.options.job and time.monotonic() >= self._asked + ASK_SECONDS:
            self._ask(live)
            self._asked = time.monotonic()
        return [one.progress() for one in self._steps]

    def cancel(self) -> None:
        live = [one for one in self._steps if one.program.status() is None]
        for one in live:
            one.program.signal(signal.SIGTERM)
        if live and not self.options.job:
            names = ",".join(one.name for one in live)
            Programs(self.search, self._slurm()).run(["scancel", f"--name={names}"], END_SECONDS)
        late = time.monotonic() + END_SECONDS
        while time.monotonic() < late and any(one.program.status() is None for one in live):
            time.sleep(0.02)
        for one in self._steps:
            one.program.close()
        self._steps = []

    def describe(self, order: RoundOrder) -> Sequence[str]:
        job = self.options.job
        what = f"a step of job {job}" if job else "a job of its own on two whole nodes"
        first, second = order.pairs[0] if order.pairs else ("A", "B")
        arguments = self._arguments(order, first, second, f"{self._campaign}-{order.number}-0")
        return [f"each pair is {what}, such as:", f"  {shlex.join(['srun', *arguments])}"]

    def _arguments(self, order: RoundOrder, first: str, second: str, name: str) -> list[str]:
        chosen = {
            "partition": self.options.partition, "reservation": self.options.reservation,
            "account": self.options.account, "qos": self.options.qos, "gres": self.options.gres,
        }  # fmt: skip
        minutes = math.ceil(order.seconds / 60)
        alone = ["--exclusive", f"--immediate={math.ceil(order.patience + GRACE_SECONDS)}"]
        own = [] if self.options.job else alone
        return [
            "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", f"--nodelist={first},{second}",
            f"--job-name={name}", f"--time={minutes}", "--mem=0", "--cpu-bind=none", "--input=none",
            "--kill-on-bad-exit=0", f"--wait={PARTNER_SECONDS}", *own,
            *(f"--{key}={value}" for key, value in chosen.items() if value),
            *self.options.command, "fleet", "peer",
        ]  # fmt: skip

    def _meet(self, order: RoundOrder, place: int) -> str:
        """Return a pair's meeting point: its first node, on one port where nodes have their own addresses."""
        addresses = [self._address(first) for first, _ in order.pairs[: place + 1]]
        address = addresses.pop()
        port = self.options.port + addresses.count(address)
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    def _address(self, name: str) -> str:
        node = self._nodes.get(name)
        return name if node is None else node.address

    def _ask(self, live: Sequence[_PairStep]) -> None:
        """Ask the controller about the jobs; a missing answer is asked for again later."""
        command = ["squeue", "--noheader", "--all", f"--name={','.join(one.name for one in live)}",
                   "--states=all", "--format=%j|%T|%r"]  # fmt: skip
        output = Programs(self.search, self._slurm()).run(command, HEAR_SECONDS)
        if isinstance(output, Absent) or output.status:
            return
        rows = (line.split("|", 2) for line in output.out.splitlines() if line.count("|") >= 2)  # noqa: PLR2004
        seen = {name.strip(): (state.strip(), why.strip()) for name, state, why in rows}
        for one in live:
            state, why = seen.get(one.name, ("PENDING", "not yet in the queue"))
            one.state = PairState.WAITING if state in _PENDING else PairState.RUNNING
            one.said = why

    def _wanted(self) -> tuple[str, ...]:
        """Return the named nodes, or the reservation's or allocation's; none for a partition's."""
        if self.options.nodes:
            return self._named()
        try:
            if self.options.job:
                return expanded(self.environment.get("SLURM_JOB_NODELIST", ""))
            if self.options.reservation:
                told = self._told(["scontrol", "--oneliner", "show", "reservation", self.options.reservation])
                found = _RESERVATION_NODES.search(told)
                return expanded(found[1]) if found else ()
        except HostlistError as error:
            raise RoundEngineError(str(error)) from error
        return ()

    def _named(self) -> tuple[str, ...]:
        try:
            return tuple(dict.fromkeys(name for text in self.options.nodes for name in expanded(text)))
        except HostlistError as error:
            raise NodesError(f"--nodelist: {error}") from error

    def _sinfo_options(self, wanted: Sequence[str]) -> list[str]:
        named = [f"--nodes={','.join(wanted)}"] if wanted else []
        return [*named, *([f"--partition={self.options.partition}"] if self.options.partition else [])]

    def _leafs(self) -> Mapping[str, str]:
        """Return leaf switches, or blocks, where Slurm knows its topology."""
        output = Programs(self.search, self._slurm()).run(["scontrol", "show", "topology"], ANSWER_SECONDS)
        if isinstance(output, Absent) or output.status:
            return {}
        try:
            leafs, blocks = topology_places(output.out)
        except HostlistError:
            return {}
        return {**blocks, **leafs}

    def _read(self, text: str, leafs: Mapping[str, str]) -> Iterator[PairNode]:
        for line in text.splitlines():
            name, state, gres, address = (*(part.strip() for part in line.split("|")), "", "", "")[:4]
            if not NODE_NAME.fullmatch(name):
                raise RoundEngineError(f"not a node of sinfo: {line[:80]!r}")
            yield PairNode(name, leafs.get(name, ""), gpus_of(gres), self._busy(state), address or name)

    def _busy(self, state: str) -> str:
        word = state.rstrip("*~#!%$@+^-")
        flag = next((why for mark, why in _FLAGS.items() if mark in state[len(word) :]), "")
        if self.options.job:
            return flag or (word if word in _AWAY else "")
        usable = word in (_RESERVED if self.options.reservation else _IDLE)
        return flag or ("" if usable else word or "in no state")

    def _told(self, command: Sequence[str]) -> str:
        """Return a command's output. Raises RoundEngineError where Slurm does not answer."""
        output = Programs(self.search, self._slurm()).run(command, ANSWER_SECONDS)
        if isinstance(output, Absent):
            raise RoundEngineError(f"Slurm: {output}")
        if output.status:
            raise RoundEngineError(f"{command[0]}: {reason(output.err, output.status)}")
        return output.out

    def _srun(self) -> str:
        program = shutil.which("srun", path=self.search)
        if program is None:
            raise RoundEngineError("srun is not installed")
        return program

    def _slurm(self) -> dict[str, str]:
        """Return the environment of Slurm's programs."""
        conf = self.environment.get("SLURM_CONF", "")
        return {"SLURM_CONF": conf} if conf else {}


def gpus_of(gres: str) -> int | None:
    """Return the GPUs of a text: 8 for `gpu:h200:8(S:0-1),nic:2`; None where Slurm counts no GPUs."""
    counts = [int(one) for one in _GPUS.findall(gres)]
    return sum(counts) if counts else None


def reason(errors: str, status: int) -> str:
    """Return why a program of Slurm's ended: its first error, the cause of the rest, or its status."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    first = next((line for line in lines if "error:" in line), "")
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return first or ": ".join([f"it {how}", *lines[-1:]])
