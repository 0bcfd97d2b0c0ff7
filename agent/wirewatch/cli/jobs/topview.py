"""Lines of `wirewatch top` for a terminal: GPUs, jobs, processes and findings. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wirewatch.cli.jobs.topprocesses import PLAYED, HostProcesses
from wirewatch.core.types import Absent, Subject, value_or
from wirewatch.core.words import GB, GIB, count, printable
from wirewatch.core.words import UNKNOWN as NOT_KNOWN
from wirewatch.documents.jobs import ExplainedJob
from wirewatch.documents.state import FindingsDocument, StateDocument
from wirewatch.documents.status import NodeSnapshot
from wirewatch.jobs.explain.evidence import JobEvidence, Wall
from wirewatch.jobs.explain.wires import timed_rows
from wirewatch.jobs.explain.words import operation

WIDTH = 80
LEAST_WIDTH = 60
SENT, RECEIVED = "wirewatch_nvlink_transmit_bytes_total", "wirewatch_nvlink_receive_bytes_total"
SORTS = ("gpu", "utilisation", "nvlink", "waiting", "findings")
"""Sort orders of GPUs; the first is the order of their numbers."""
ORDERS = ("gpu", "memory", "cpu", "user")
"""Sort orders of processes."""
HELP = (
    ("Keys", ""),
    ("q", "end"),
    ("s", f"sort the GPUs: {', '.join(SORTS)}"),
    ("o", f"order the processes: {', '.join(ORDERS)}"),
    ("f or /", "filter: words that are all in a row, as alice,"),
    ("", "slurm:4711, gpu=3, user=bob, pid=81; also job, command"),
    ("escape", "leave the line of the filter, or drop the filter"),
    ("p", "pause, and go on"),
    ("tab, arrows", "go to the next part, and scroll it"),
    ("h or ?", "show and hide this help"),
    ("Columns", ""),
    ("GiB", "memory that processes hold on the GPU, by the driver"),
    ("wait", "share of the time in which the GPU waits for a rank"),
    ("!", "findings about the GPU"),
    ("CPU", "of one core: 800% are eight cores"),
)
"""Rows of the help; a name without a text is a heading."""
CUT = "…"
BAD = frozenset({Wall.HANG, Wall.STANDING, Wall.SLOW_WIRE, Wall.LATE_RANK})


@dataclass(frozen=True, slots=True)
class LinkRates:
    """NVLink bytes per second of each GPU (UUID), sent and received, between two polls of its counters.

    Of a recording: between two of its moments.

    `polled`: Unix seconds of the newest poll; `bytes` at it. A counter that shrank was reset: no rate.
    """

    polled: float = 0.0
    bytes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def after(self, state: StateDocument) -> "LinkRates":
        """Return the rates after this state; the same rates while the counters were not read again."""
        collector = next((one for one in state.collectors if one.collector == "nvlink"), None)
        if collector is None or not collector.success:
            return LinkRates()
        sent, received = ({s.labels["uuid"]: s.value for s in collector.samples if s.name == name}
                          for name in (SENT, RECEIVED))  # fmt: skip
        now = {uuid: (sent[uuid], received[uuid]) for uuid in sent if uuid in received}
        seconds = collector.last_success - self.polled
        # A recording has the same counters until its next moment: the node was not read again.
        again = state.source in PLAYED and now == self.bytes
        if seconds <= 0 or again:
            return self
        rates = {
            uuid: ((now[uuid][0] - was[0]) / seconds, (now[uuid][1] - was[1]) / seconds)
            for uuid, was in self.bytes.items()
            if uuid in now and all(b >= a for a, b in zip(was, now[uuid], strict=True))
        }
        return LinkRates(collector.last_success, now, rates)


@dataclass(frozen=True, slots=True)
class GpuLine:
    """One GPU; shares of time 0 to 1, bytes per second, None where not known. `links`: as `up/expected`."""

    index: str
    utilisation: float | None = None
    power: float | None = None
    celsius: float | None = None
    memory: float | None = None
    links: str = NOT_KNOWN
    sent: float | None = None
    received: float | None = None
    busbw: float | None = None
    waiting: float | None = None
    job: str = ""
    findings: int = 0
    health: str = "ok"


@dataclass(frozen=True, slots=True)
class ProcessLine:
    """A process on one GPU; bytes of the GPU's memory, share of one core, None or empty where not known."""

    gpu: str
    pid: int
    user: str = ""
    memory: int | None = None
    cpu: float | None = None
    job: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class TopChoice:
    """A viewer's choice: the order of GPUs and of processes, and the words of a filter."""

    sort: str = SORTS[0]
    order: str = ORDERS[0]
    wanted: str = ""

    def has(self, **fields: str) -> bool:
        """Return whether all words of the filter are in these fields: `gpu` and `pid` as a whole."""
        return all(self._in(word.casefold(), fields) for word in self.wanted.split())

    def _in(self, word: str, fields: Mapping[str, str]) -> bool:
        name, equals, value = word.partition("=")
        if equals and name in _FIELDS:
            return name in fields and _matches(name, value, fields[name])
        return any(_matches(of, word, one) for of, one in fields.items())


@dataclass(frozen=True, slots=True)
class TopLine:
    """A line of text, and its tone: `head`, `ok`, `degraded`, `unknown`, `failed`, or `quiet`."""

    text: str
    tone: str = "ok"


@dataclass(frozen=True, slots=True)
class TopView:
    """The lines of the screen, each at most as wide as asked."""

    title: TopLine
    gpus: tuple[TopLine, ...]
    jobs: tuple[TopLine, ...]
    findings: tuple[TopLine, ...]
    processes: tuple[TopLine, ...]

    @property
    def lines(self) -> tuple[TopLine, ...]:
        """All of them, from top to bottom."""
        return (self.title, *self.gpus, *self.jobs, *self.findings, *self.processes)


CHOSEN, NO_PROCESSES = TopChoice(), HostProcesses()


def view(
    snapshot: NodeSnapshot, rates: LinkRates, width: int = WIDTH, choice: TopChoice = CHOSEN,
    host: HostProcesses = NO_PROCESSES,
) -> TopView:  # fmt: skip
    """Return the screen for a snapshot. Texts of others are made printable, and lines cut at the width.

    A filter leaves processes, and the GPUs and jobs that it names or that have such a process.
    """
    wide = max(LEAST_WIDTH, width)
    every = process_lines(snapshot, host)
    shown = [
        one for one in every
        if choice.has(gpu=one.gpu, pid=str(one.pid), user=one.user, job=one.job, command=one.command)
    ]  # fmt: skip
    gpus, names = {one.gpu for one in shown}, {one.job for one in shown}
    lines = [
        one
        for one in gpu_lines(snapshot, rates)
        if one.index in gpus or choice.has(gpu=one.index, job=one.job)
    ]
    jobs = [
        one for one in snapshot.jobs.jobs
        if one.evidence.name in names or choice.has(job=one.evidence.name)
    ]  # fmt: skip
    return TopView(
        _title(snapshot, wide),
        tuple(_gpus(lines, wide, choice.sort)),
        tuple(_jobs(jobs, wide)),
        tuple(_findings(snapshot.findings, wide)),
        tuple(_processes(shown, len(every), wide, choice, _unread(snapshot, host))),
    )


def help_lines() -> tuple[TopLine, ...]:
    """All keys, and columns that do not explain themselves."""
    lines = (TopLine(f"{name:<12} {text}") if text else TopLine(name, "head") for name, text in HELP)
    return (*lines, TopLine("any key goes back", "quiet"))


def process_lines(snapshot: NodeSnapshot, host: HostProcesses) -> list[ProcessLine]:
    """Each process on each of its GPUs."""
    found = []
    for job in snapshot.jobs.jobs:
        for gpu in job.evidence.gpus:
            for pid in gpu.pids:
                line = ProcessLine(
                    gpu.index or gpu.uuid, pid, memory=gpu.memory.get(pid), job=job.evidence.name
                )
                one = host.known.get(pid)
                found.append(replace(line, user=one.user, cpu=one.cpu, command=one.command) if one else line)
    return found


def gpu_lines(snapshot: NodeSnapshot, rates: LinkRates) -> list[GpuLine]:
    """Every GPU that has a series, by its number."""
    series = _Samples(snapshot.state)
    found = []
    for uuid, index in series.gpus().items():
        sent, received = rates.rates.get(uuid, (None, None))
        here = [one for one in snapshot.findings.findings if one.subject.get("uuid") == uuid]
        worst = min((one.health for one in here), key=_RANK.index, default="ok")
        line = GpuLine(
            index, series.value("gpu_utilization_ratio", uuid), series.value("gpu_power_watts", uuid),
            series.value("gpu_temperature_celsius", uuid, sensor="core"), _memory(snapshot, uuid),
            series.links(uuid), sent, received, findings=len(here), health=worst,
        )  # fmt: skip
        found.append(_of_job(line, uuid, snapshot.jobs.jobs))
    return sorted(found, key=lambda one: int(one.index) if one.index.isdigit() else 1 << 30)


def _memory(snapshot: NodeSnapshot, uuid: str) -> float | None:
    """Bytes that processes hold on a GPU; None unless all of their numbers are known."""
    gpus = [gpu for job in snapshot.jobs.jobs for gpu in job.evidence.gpus if gpu.uuid == uuid]
    used = [gpu.memory.get(pid) for gpu in gpus for pid in gpu.pids]
    known = [one for one in used if one is not None]
    return sum(known) if known and len(known) == len(used) else None


class _Samples:
    """The newest samples of a state, by name and GPU; a collector that cannot read now has none."""

    def __init__(self, state: StateDocument) -> None:
        self._by_gpu: dict[tuple[str, str], list[tuple[Mapping[str, str], float]]] = {}
        self._gpus: dict[str, str] = {}
        for collector in state.collectors:
            for one in collector.samples:
                uuid = one.labels.get("uuid")
                if uuid:
                    self._gpus.setdefault(uuid, one.labels.get("gpu", ""))
                    name = one.name.removeprefix("wirewatch_")
                    self._by_gpu.setdefault((name, uuid), []).append((one.labels, one.value))

    def gpus(self) -> Mapping[str, str]:
        """The number of each GPU by its UUID."""
        return {uuid: index for uuid, index in self._gpus.items() if index}

    def value(self, name: str, uuid: str, **labels: str) -> float | None:
        """The value of a GPU's series with these labels; None where there is none."""
        series = self._by_gpu.get((name, uuid), ())
        return next((value for own, value in series if labels.items() <= own.items()), None)

    def links(self, uuid: str) -> str:
        """Return the active and the expected number of links."""
        up = self.value("nvlink_links", uuid, state="active")
        due = self.value("nvlink_links_expected", uuid)
        if up is None:
            return NOT_KNOWN
        asleep = self.value("nvlink_links", uuid, state="sleep") or 0.0
        return f"{up + asleep:.0f}/{due:.0f}" if due is not None else f"{up + asleep:.0f}"


def _of_job(line: GpuLine, uuid: str, jobs: Sequence[ExplainedJob]) -> GpuLine:
    for one in jobs:
        if all(gpu.uuid != uuid for gpu in one.evidence.gpus):
            continue
        waiting = None
        if not isinstance(one.evidence.job, Absent):
            waiting = next((gpu.waiting for gpu in one.evidence.job.gpus if gpu.gpu == uuid), None)
        return replace(line, job=one.evidence.name, waiting=waiting, busbw=_got(one.evidence)[0])
    return line


def _got(evidence: JobEvidence) -> tuple[float | None, float | None, str]:
    """Return got and expected bytes per second of the operation that takes most time, and its name."""
    rows = timed_rows(evidence.job)
    row = next((one for one in rows if not isinstance(one.busbw, Absent)), None)
    if row is None:
        return None, None, operation(rows[0].op, rows[0].bytes) if rows else ""
    return value_or(row.busbw, None), value_or(row.expected, None), operation(row.op, row.bytes)


def _title(snapshot: NodeSnapshot, width: int) -> TopLine:
    findings = snapshot.findings
    ready = "a job may start" if findings.job_ready else "no job may start"
    bad = sum(one.stage not in {"repaired", "suppressed"} for one in findings.findings)
    source = "" if snapshot.state.source == "live" else f", {snapshot.state.source}"
    text = (
        f"wirewatch{source}: {findings.health.upper()}, {ready}; {count(len(snapshot.jobs.jobs), 'job')}, "
        f"{count(bad, 'finding')}{f'; on {findings.host}' if findings.host else ''}"
    )
    return TopLine(_cut(text, width), findings.health)


def _gpus(lines: Sequence[GpuLine], width: int, sort: str) -> Iterator[TopLine]:
    head = (
        "GPU",
        "util",
        "power",
        "temp",
        "GiB",
        "links",
        "NVLink out",
        "in GB/s",
        "busbw",
        "wait",
        "!",
        "job",
    )
    ordered = sorted(lines, key=_ORDERS[sort]) if sort in _ORDERS else list(lines)
    rows = [head, *map(_gpu_cells, ordered)]
    tones = ["head", *(one.health for one in ordered)]
    yield from _table(rows, tones, width, left=(11,))
    if not lines:
        yield TopLine("no GPU has been read", "unknown")


def _gpu_cells(one: GpuLine) -> tuple[str, ...]:
    return (
        one.index, _percent(one.utilisation), _whole(one.power, "W"), _whole(one.celsius, "C"),
        _gib(one.memory), one.links, _rate(one.sent), _rate(one.received), _rate(one.busbw),
        _percent(one.waiting), str(one.findings) if one.findings else "", one.job,
    )  # fmt: skip


def _jobs(jobs: Sequence[ExplainedJob], width: int) -> Iterator[TopLine]:
    head = ("JOB", "GPUs", "operation", "got", "of GB/s", "costs", "wall")
    rows, tones = [head], ["head"]
    sentences = []
    for one in jobs:
        got, due, what = _got(one.evidence)
        cost, wall = value_or(one.answer.cost, None), one.answer.wall
        rows.append((
            one.evidence.name, str(len(one.evidence.gpus)), what, _rate(got), _rate(due), _percent(cost),
            wall.value,
        ))  # fmt: skip
        tones.append("failed" if wall in BAD else "unknown" if wall is Wall.NOT_KNOWN else "ok")
        sentences.append(TopLine(_cut(f"  {one.answer.sentence}", width), "quiet"))
    lines = list(_table(rows, tones, width, left=(0, 2, 6)))
    yield lines[0]
    for line, sentence in zip(lines[1:], sentences, strict=True):
        yield line
        yield sentence
    if not jobs:
        yield TopLine("no job is seen on these GPUs", "quiet")


def _processes(
    lines: Sequence[ProcessLine], of: int, width: int, choice: TopChoice, unread: str
) -> Iterator[TopLine]:
    head = ("GPU", "PID", "user", "GiB", "CPU", "job", "command")
    ordered = sorted(lines, key=_PROCESS_ORDERS[choice.order])
    rows = [head] + [
        (
            one.gpu, str(one.pid), one.user or NOT_KNOWN, _gib(one.memory), _percent(one.cpu), one.job,
            one.command or NOT_KNOWN,
        )
        for one in ordered
    ]  # fmt: skip
    yield from _table(rows, ["head", *["ok"] * len(lines)], width, left=(2, 5, 6))
    if choice.wanted:
        yield TopLine(
            _cut(f"{len(lines)} of {count(of, 'process', 'processes')}: {choice.wanted}", width), "quiet"
        )
    elif not lines:
        yield TopLine("no process is seen on these GPUs", "quiet")
    if unread:
        yield TopLine(_cut(unread, width), "quiet")


def _unread(snapshot: NodeSnapshot, host: HostProcesses) -> str:
    """Return why users, CPU and commands of some processes are not known; empty where all are."""
    if snapshot.state.source in PLAYED and not host.known:
        some = any(gpu.pids for job in snapshot.jobs.jobs for gpu in job.evidence.gpus)
        return "users, CPU and commands are not in a recording" if some else ""
    why = next(iter(host.unread.values()), None)
    return "" if why is None else f"{count(len(host.unread), 'process', 'processes')} not read here: {why}"


def _findings(document: FindingsDocument, width: int) -> Iterator[TopLine]:
    yield TopLine(_cut("FINDINGS", width), "head")
    for one in document.findings:
        stage = "" if one.stage == "live" else f" ({one.stage})"
        text = f"{one.health.upper():<9}{one.rule} {Subject.of(one.subject)}{stage}: {one.evidence}"
        quiet = one.stage in {"repaired", "suppressed"}
        yield TopLine(_cut(text, width), "quiet" if quiet else one.health)
    if not document.findings:
        yield TopLine("none", "quiet")


def _table(
    rows: Sequence[Sequence[str]], tones: Sequence[str], width: int, left: Sequence[int]
) -> Iterator[TopLine]:
    """Return rows with aligned columns, to the left where `left` says so; each line is cut at the width."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row, tone in zip(rows, tones, strict=True):
        cells = (
            cell.ljust(wide) if n in left else cell.rjust(wide)
            for n, (cell, wide) in enumerate(zip(row, widths, strict=True))
        )
        yield TopLine(_cut(" ".join(cells).rstrip(), width), tone)


def _cut(text: str, width: int) -> str:
    plain = printable(text)
    return plain if len(plain) <= width else f"{plain[: width - 1]}{CUT}"


def _percent(share: float | None) -> str:
    return _whole(None if share is None else 100 * share, "%")


def _whole(value: float | None, unit: str) -> str:
    return NOT_KNOWN if value is None else f"{value:.0f}{unit}"


def _matches(field: str, word: str, value: str) -> bool:
    return word == value if field in _WHOLE else word in value.casefold()


def _gib(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value / GIB:.1f}"


def _rate(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value / GB:.1f}"


_WHOLE = frozenset({"gpu", "pid"})
_FIELDS = _WHOLE | {"user", "job", "command"}
_PROCESS_ORDERS: Mapping[str, Callable[[ProcessLine], tuple[float | str, float]]] = {
    "gpu": lambda one: (float(one.gpu) if one.gpu.isdigit() else 1e9, one.pid),
    "memory": lambda one: (-(one.memory or 0.0), one.pid),
    "cpu": lambda one: (-(one.cpu or 0.0), one.pid),
    "user": lambda one: (one.user, one.pid),
}
_RANK = ("failed", "unknown", "degraded", "ok")
_ORDERS: Mapping[str, Callable[[GpuLine], tuple[float, float]]] = {
    "utilisation": lambda one: (-(one.utilisation or 0.0), 0),
    "nvlink": lambda one: (-(one.sent or 0.0) - (one.received or 0.0), 0),
    "waiting": lambda one: (-(one.waiting or 0.0), 0),
    "findings": lambda one: (_RANK.index(one.health), -one.findings),
}
