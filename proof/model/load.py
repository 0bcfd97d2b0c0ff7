"""What a node shows of a job from outside: its GPUs by NVML, its processes by /proc, and what RAS answers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from proof.model.job import GROUPED, Group, Rank
from proof.model.rings import uuid
from wirewatch.core.jobs import RasCommunicator, RasListener, RasRank, RasReport
from wirewatch.core.ports import Answer, Gpu, NvmlCost, Question
from wirewatch.core.types import Absent, Json, Why

BIN = 0.1
"""Seconds of the grid on which loads are kept."""
IDLE, WAITING, HEIGHT = 122.0, 126.0, 750.0
"""Watts of a GPU without work, of one that waits in a collective, and what computing adds."""
UID, TICKS = 1000, 100


@dataclass(frozen=True)
class Doing:
    """What a process does for a while: the kernel's letter, its share of a core, bytes of files a second."""

    letter: str = "R"
    core: float = 1.0
    files: float = 0.0
    disk: float = 0.0


HOST: Mapping[str, Doing] = {
    "sleep": Doing("S", 0.0),
    "cpu": Doing("R", 1.0),
    "import": Doing("R", 0.9, 40e6),
    "compile": Doing("R", 1.0, 2e4),
    "files": Doing("D", 0.35, 1.2e9, 1.2e9),
    "upload": Doing("S", 0.06, 3e4),
    "mapped": Doing("D", 0.12, 0.0, 6e8),
    "stopped": Doing("T", 0.0),
    "kernel": Doing("D", 0.0),
}
"""By the names of pauses; `mapped`: a checkpoint through mapped pages, whose bytes only disks see."""


@dataclass
class Load:
    """One rank's GPU and process over time, as sums on a grid.

    `busy`: seconds with any kernel, `work`: with one that computes, `waits`: in which it only waits for other
    ranks, `sent`: bytes over NVLink.
    """

    rank: Rank
    gpu: int
    pid: int
    begun: float
    ends: float
    spins: bool
    busy: Sequence[float] = ()
    work: Sequence[float] = ()
    waits: Sequence[float] = ()
    sent: Sequence[float] = ()
    _starts: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        work = [(a, b, 1.0) for a, b in self.rank.busy]
        kernels = [(one.start, one.end, 1.0) for one in self.rank.kernels]
        waits = [(one.start, one.moves, 1.0) for one in self.rank.kernels]
        self.work = _sums(work, self.ends)
        self.busy = _sums(_union(work + kernels), self.ends)
        both = _sums(_union(work + waits), self.ends)
        self.waits = [all_of - of for all_of, of in zip(both, self.work, strict=True)]
        sent = [one for one in self.rank.kernels if one.sent and one.end > one.moves]
        self.sent = _sums(((s.moves, s.end, s.sent / (s.end - s.moves)) for s in sent), self.ends)
        self._starts = [one[0] for one in self.rank.host]

    def alive(self, second: float) -> bool:
        return self.begun <= second < self.ends

    def holds(self, second: float) -> bool:
        """Tell whether it has a context on its GPU."""
        return self.begun + 3.0 <= second < self.ends

    def shares(self, begin: float, end: float) -> tuple[float, float]:
        """The shares of a span in which it only waits for others, and in which nothing runs on it."""
        begin = max(begin, self.begun)
        whole = max(end - begin, 1e-9)
        busy = at(self.busy, end) - at(self.busy, begin)
        return (at(self.waits, end) - at(self.waits, begin)) / whole, max(0.0, 1 - busy / whole)

    def doing(self, second: float) -> Doing:
        at = bisect_right(self._starts, second) - 1
        if at >= 0 and second < self.rank.host[at][1]:
            return HOST[self.rank.host[at][2]]
        return Doing() if self.spins else Doing("S", 0.3)

    def used(self, second: float) -> tuple[float, float, float]:
        """Seconds of CPU, bytes of files and of disks, since the process began."""
        usual = 1.0 if self.spins else 0.3
        core, files, disk = (second - self.begun) * usual, 2e4 * (second - self.begun), 0.0
        for begin, end, what in self.rank.host[: bisect_right(self._starts, second)]:
            spent, did = min(end, second) - begin, HOST[what]
            core += spent * (did.core - usual)
            files += spent * did.files
            disk += spent * did.disk
        return core, files, disk


def _sums(spans: Iterable[tuple[float, float, float]], until: float) -> list[float]:
    """The integral of spans (begin, end, height) at each point of the grid."""
    bins = [0.0] * (int(until / BIN) + 2)
    for begin, end, height in spans:
        stop = min(end, until)
        at = int(begin / BIN)
        while begin < stop:
            edge = min(stop, (at + 1) * BIN)
            bins[at] += (edge - begin) * height
            begin, at = edge, at + 1  # noqa: PLW2901
    return [0.0, *accumulate(bins)]


def _union(spans: Iterable[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    found: list[tuple[float, float, float]] = []
    for begin, end, _ in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end), 1.0)
        else:
            found.append((begin, end, 1.0))
    return found


def at(sums: Sequence[float], second: float) -> float:
    """The integral up to a second."""
    place = max(0.0, min(second / BIN, len(sums) - 1.001))
    low = int(place)
    return sums[low] + (place - low) * (sums[low + 1] - sums[low])


@dataclass
class Node:
    """The ports of a node with eight GPUs, at the second that `clock` shows."""

    loads: Sequence[Load]
    clock: "Clock"
    gpu_count: int = 8

    def on(self, gpu: int) -> Load | None:
        return next((one for one in self.loads if one.gpu == gpu and one.holds(self.clock.second)), None)


@dataclass
class Clock:
    """Simulated time: `second` of the job."""

    unix: float
    first: float
    second: float = 0.0

    def now(self) -> float:
        return self.unix + self.second

    def mono(self) -> float:
        return self.first + self.second


@dataclass
class ModelNvml:
    """NVML of the node: utilisation of the last whole second, power of the last second, bytes of NVLink."""

    node: Node

    def session(self) -> int:
        return 1

    def gpus(self) -> Sequence[Gpu]:
        return [Gpu(n, uuid(n), f"0000:{n:02x}:00.0", "NVIDIA H200") for n in range(self.node.gpu_count)]

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        number = next((n for n in range(self.node.gpu_count) if uuid(n) == gpu), None)
        missing = Absent(Why.UNSUPPORTED, "not supported by this device", 3)
        answers = {} if number is None else self._answers(number)
        return [Answer(answers.get(str(question), missing)) for question in questions]

    def seek(self) -> None:
        """Nothing is lost here."""

    def cost(self) -> NvmlCost:
        return NvmlCost(None, 0.0, 0, 0)

    def _answers(self, number: int) -> Mapping[str, Json]:
        second = self.node.clock.second
        load = self.node.on(number)
        sent = sum(at(one.sent, second) for one in self.node.loads if one.gpu == number)
        whole = float(int(second))
        busy = at(load.busy, whole) - at(load.busy, whole - 1) if load else 0.0
        work = at(load.work, second) - at(load.work, second - 1) if load else 0.0
        any_now = at(load.busy, second) - at(load.busy, second - 1) if load else 0.0
        watts = IDLE + (WAITING - IDLE) * any_now
        watts = min(watts + HEIGHT * work, 600 + 100 * work) if work > 0 else watts
        pids: Json = [{"pid": load.pid, "usedGpuMemory": 60 << 30}] if load else []
        memory: Json = {"total": 141 << 30, "used": (60 << 30) if load else 0, "free": 81 << 30}
        return {
            "ComputeRunningProcesses()": pids, "MPSComputeRunningProcesses()": [],
            "GraphicsRunningProcesses()": [], "UtilizationRates()": {"gpu": round(100 * busy), "memory": 5},
            "PowerUsage()": round(watts * 1000), "PowerManagementDefaultLimit()": 700_000,
            "EnforcedPowerLimit()": 700_000, "MemoryInfo()": memory, "GpmSupported()": False,
            "Field(138,all)": int(sent) // 1024, "Field(139,all)": int(sent) // 1024,
            "ClockInfo(1)": 1980, "CurrentClocksEventReasons()": 0, "MigMode()": [0, 0],
        }  # fmt: skip


@dataclass
class ModelFiles:
    """The job's processes in /proc, and nothing else."""

    node: Node
    cgroup: str

    def read(self, path: str) -> str | Absent:
        found = self._text(path)
        return Absent(Why.MISSING, path, 2) if found is None else found.rstrip()

    def data(self, path: str) -> bytes | Absent:
        found = self._text(path)
        return Absent(Why.MISSING, path, 2) if found is None else found.encode()

    def entries(self, path: str) -> Sequence[str] | Absent:
        alive = [one for one in self.node.loads if one.alive(self.node.clock.second)]
        if path == "/proc":
            return sorted(str(one.pid) for one in alive)
        load = self._load(path)
        if load is not None and path == f"/proc/{load.pid}/task":
            return [str(load.pid)]
        return Absent(Why.MISSING, path, 2)

    def link(self, path: str) -> str | Absent:
        load = self._load(path)
        if load is not None and path.startswith(f"/proc/{load.pid}/ns/"):
            return f"{path.rpartition('/')[2]}:[4026531840]"
        return Absent(Why.MISSING, path, 2)

    def _load(self, path: str) -> Load | None:
        pid = path.removeprefix("/proc/").partition("/")[0]
        now = self.node.clock.second
        return next((one for one in self.node.loads if str(one.pid) == pid and one.alive(now)), None)

    def _text(self, path: str) -> str | None:
        load = self._load(path)
        if load is None:
            return None
        name = path.removeprefix(f"/proc/{load.pid}/").removeprefix(f"task/{load.pid}/")
        second, pid = self.node.clock.second, load.pid
        doing, (core, files, disk) = load.doing(second), load.used(second)
        user = round(core * TICKS)
        stat = [pid, "(python)", doing.letter, 77, pid, pid, 0, -1, 4194560, 900000, 0, 12, 0, user, 0, 0, 0,
                20, 0, 64, round(load.begun * TICKS), 90 << 30, 3 << 20, *[0] * 27, 0]  # fmt: skip
        texts = {
            "stat": " ".join(map(str, stat)),
            "status": f"Name:\tpython\nState:\t{doing.letter}\nUid:\t{UID}\t{UID}\t{UID}\t{UID}\n"
            f"NSpid:\t{pid}\nThreads:\t64\n",
            "io": f"rchar: {round(files * 0.1)}\nwchar: {round(files * 0.9)}\nsyscr: 1\nsyscw: 1\n"
            f"read_bytes: 0\nwrite_bytes: {round(disk)}\ncancelled_write_bytes: 0\n",
            "cgroup": self.cgroup, "children": "", "comm": "python\n", "cmdline": "python\0train.py\0",
            "environ": "NCCL_NVLS_ENABLE=0\0", "schedstat": f"{round(core * 1e9)} 0 1000",
        }  # fmt: skip
        return texts.get(name)


@dataclass
class ModelRas:
    """RAS of the job: what each rank has launched; a stopped process does not answer."""

    node: Node
    groups: Sequence[Group]
    reached: bool
    asked: int = 0

    def ask(self, deadline: float) -> Sequence[RasReport] | Absent:  # noqa: ARG002
        self.asked += 1
        second = self.node.clock.second
        alive = {number: one for number, one in self._ranks() if one.holds(second)}
        if not self.reached or not alive:
            return Absent(Why.MISSING, "nobody listens at [::1]:28028, 127.0.0.1:28028")
        found = tuple(self._communicator(group, alive, second) for group in self.groups)
        return (RasReport("2.28.9", found, 0.02, uid=UID, processes=len(alive)),)

    def listeners(self, pid: int | None = None) -> Sequence[RasListener]:
        if not self.reached:
            return () if pid is None else (RasListener("127.0.0.1:28028", UID, 9, open=False),)
        return (RasListener("127.0.0.1:28028", UID, 7, open=False),)

    def _ranks(self) -> Iterable[tuple[int, Load]]:
        """The local ranks of the processes that live now."""
        now = [one for one in self.node.loads if one.alive(self.node.clock.second)]
        return enumerate(now)

    def _communicator(self, group: Group, alive: Mapping[int, Load], second: float) -> RasCommunicator:
        ranks = []
        for number in group.members:
            load = alive.get(number)
            if load is None:
                continue
            silent = load.doing(second).letter == "T"
            counts: dict[str, int] = {}
            until = bisect_left(load.rank.enqueued, (second,))
            for _, of, op, _ in load.rank.enqueued[:until]:
                if of == group.id and op not in {"send", "recv", GROUPED}:
                    counts[op] = counts.get(op, 0) + 1
            ranks.append(
                RasRank(
                    group.number(number), "node", load.pid, load.gpu, load.gpu, {} if silent else counts,
                    missing="unresponsive" if silent else "",
                )
            )  # fmt: skip
        lost = sum(1 for one in ranks if one.missing)
        return RasCommunicator(f"0x{group.id + 16:x}", "0x1:0x2", group.ranks, tuple(ranks), lost=lost)
