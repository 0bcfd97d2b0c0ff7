"""A job of a process a GPU, drawn: what its GPUs show, its processes in /proc, and what its RAS answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.node.collectors.drawn import Files, Gpus, Watched
from tests.node.jobs.ras.reports import HOST
from wirewatch.core.jobs import RasCommunicator, RasListener, RasPhase, RasRank, RasReport
from wirewatch.core.types import Absent, Finding, Json, Why

UID, FIRST, INNER = 1000, 4000, 900
"""The user of the job, the id of its first process here, and inside its own namespace."""
WORK, WAIT, REST = (1.0, 693.0), (1.0, 125.0), (0.0, 122.0)
"""Use and watts of a GPU, as measured on H200: at work, waiting in a collective, with nothing to do."""
GIB = 1 << 30
EVERY = 2.0
"""Seconds from poll to poll, as by default."""


@dataclass
class Rank:
    """One rank: what its GPU shows, its process' state, bytes of files, what it has launched.

    `memory`: per cent of time in which its GPU's memory is read or written. `cpu`: seconds of CPU time.
    """

    load: tuple[float, float] = WORK
    sent: int = 0
    state: str = "R"
    files: int = 0
    launched: int = 0
    missing: str = ""
    phase: RasPhase = RasPhase.RUNNING
    errors: tuple[str, ...] = ()
    ended: bool = False
    memory: int = 0
    cpu: float = 0.0
    faults: int = 0


@dataclass
class Asked:
    """The RAS port in memory; `asked` counts the looks that made a job talk."""

    answer: Callable[[], Sequence[RasReport] | Absent]
    own: Sequence[RasListener] | Absent = (RasListener("127.0.0.1:28028", UID, 7, open=False),)
    theirs: Sequence[RasListener] | Absent | None = None
    asked: int = 0

    def ask(self, deadline: float) -> Sequence[RasReport] | Absent:
        assert 0 < deadline <= 15
        self.asked += 1
        return self.answer()

    def listeners(self, pid: int | None = None) -> Sequence[RasListener] | Absent:
        return self.own if pid is None or self.theirs is None else self.theirs


@dataclass
class HungJob:
    """A job on so many GPUs, over one collector.

    `foreign`: NVML names processes as another pid namespace does, as in a sandbox; RAS as this one does.
    `hidden`: files of processes in /proc that may not be read. `without`: questions that no GPU answers.
    `single`: one process has all GPUs.
    """

    gpus: int = 4
    op: str = "all_reduce"
    owner: str = "0::/system.slice/slurmstepd.scope/job_41/step_0/user/task_0\n"
    ranks: list[Rank] = field(default_factory=list)
    answer: Sequence[RasReport] | Absent | None = None
    remote: tuple[RasRank, ...] = ()
    owners: dict[int, str] = field(default_factory=dict)
    foreign: bool = False
    hidden: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    single: bool = False

    def __post_init__(self) -> None:
        self.ranks = [Rank() for _ in range(self.gpus)]
        self.files, self.table = Files(), Gpus([f"0000:{n:02x}:00.0" for n in range(self.gpus)])
        self.ras = Asked(lambda: self.reports() if self.answer is None else self.answer)
        self.watched = Watched("hangs", self.files, self.table)
        self.watched.hardware = replace(self.watched.hardware, ras=self.ras)

    def pid(self, number: int) -> int:
        return (INNER if self.foreign else FIRST) + (0 if self.single else number)

    def reports(self) -> Sequence[RasReport]:
        ranks = tuple(
            RasRank(
                number, HOST, INNER + number, number, number, {} if one.missing else {self.op: one.launched},
                one.errors, one.missing, one.phase,
            )
            for number, one in enumerate(self.ranks)
        )  # fmt: skip
        size = len(ranks) + len(self.remote)
        lost = sum(bool(one.missing) for one in ranks)
        comm = RasCommunicator("0x17fa", "0x1:0x2", size, (*ranks, *self.remote), lost=lost)
        return (RasReport("2.28.9", (comm,), 0.01, uid=UID, processes=size),)

    def poll(self, times: int = 1, **polled: float) -> tuple[Finding, ...]:
        """So many polls of the job as it is; what happens between them is `work`'s."""
        found: tuple[Finding, ...] = ()
        for _ in range(times):
            self.draw()
            found = self.watched.poll(1, polled.get("every", EVERY))
        return found

    def work(self, times: int = 3, moved: int = 20 * GIB, launched: int = 300) -> tuple[Finding, ...]:
        """A job at work: bytes move and collectives are launched before each poll."""
        found: tuple[Finding, ...] = ()
        for _ in range(times):
            for one in self.ranks:
                one.sent += moved
                one.launched += launched
            found = self.poll()
        return found

    def wait(self, *but: int) -> None:
        """Every rank waits in a collective, but for these, which have nothing to do."""
        for number, one in enumerate(self.ranks):
            one.load = REST if number in but else WAIT

    def rules(self) -> Mapping[str, Finding]:
        return {one.rule: one for one in self.watched.component.findings}

    def draw(self) -> None:
        """Write what a poll reads."""
        for number, one in enumerate(self.ranks):
            gpu, pid = f"GPU-{number}", self.pid(number)
            busy, watts = one.load
            listed = 1_000_000 + number if self.foreign else pid
            answers: dict[str, Json] = {
                "ComputeRunningProcesses()": [] if one.ended else [{"pid": listed, "usedGpuMemory": GIB}],
                "UtilizationRates()": {"gpu": round(busy * 100), "memory": one.memory},
                "PowerUsage()": round(watts * 1000),
                "PowerManagementDefaultLimit()": 700_000,
                "Field(138,all)": one.sent // 1024,
            }
            for question, answer in answers.items():
                if question in self.without:
                    continue
                self.table.table[gpu, question] = answer
            self.files.texts |= {
                f"/proc/{pid}/cgroup": self.owners.get(number, self.owner),
                f"/proc/{pid}/stat": f"{pid} (pt main) thread) {one.state} 77 77 77 0 -1 4194304 0 0 "
                f"{one.faults} 0 {round(one.cpu * 100)} 0 0 0 20 0 1 0 1",
                f"/proc/{pid}/status": f"Name:\tpython\nUid:\t{UID}\t{UID}\t{UID}\t{UID}\n"
                f"NSpid:\t{pid}\t{INNER + number}\n",
                f"/proc/{pid}/io": f"rchar: {one.files}\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n",
            }
            for name in self.hidden:
                self.files.texts[f"/proc/{pid}/{name}"] = Absent(Why.DENIED, "not ours")


NOBODY = Absent(Why.MISSING, "nobody listens at [::1]:28028, 127.0.0.1:28028")
