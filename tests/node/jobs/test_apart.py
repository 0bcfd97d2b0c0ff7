"""Collectors of running jobs in a process of their own: the same answers, its limits, and its ends."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.node.collectors.drawn import Gpus
from tests.node.jobs.ringfiles import RingWriter, Written, later
from tests.support import Node
from wirewatch.catalogue import discover
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.fold import after
from wirewatch.core.ports import Hardware
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent, Expect, Json, Ok, Why
from wirewatch.daemon.schedule import Job
from wirewatch.hw.files import SystemSysfs
from wirewatch.hw.host import SystemClock
from wirewatch.jobs.apart.child import BADNESS, COLLECTORS, LINES, MEMORY
from wirewatch.jobs.apart.messages import ASKED, JobPlaces, PortQuestion, Ran, RunOrder
from wirewatch.jobs.apart.process import CALM, SHARED, Start, Watcher, answer, start
from wirewatch.jobs.ledger import LedgerFacts, LedgerSurroundings, Spent
from wirewatch.jobs.running import JobSurroundings
from wirewatch.jobs.surroundings import with_surroundings
from wirewatch.jobs.tap.here import RecordedSysfs, RingsHere
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.verdict.node import judge_state

LANES = tuple(one.lane for one in COLLECTORS.values())
NODE = Node("h200x4-idle")
PORTS = replace(NODE.hardware, clock=SystemClock())
Watching = Callable[..., Watcher]


def order(name: str = "jobs") -> RunOrder:
    one = COLLECTORS[name]
    return RunOrder(name, one.options, one.policy)


def changed(code: str) -> Start:
    """Start the process with some Python of the test before it begins."""

    def begin(places: JobPlaces, descriptors: Iterable[int]) -> "subprocess.Popen[bytes]":
        handed = tuple(descriptors)
        head = "import os, signal, sys\nfrom wirewatch.jobs.apart import child"
        text = f"{head}\n{code}\nchild.main(sys.argv[1:])"
        words = [sys.executable, "-c", text, json.dumps(asdict(places)), *map(str, handed)]
        return subprocess.Popen(words, pass_fds=handed, stdin=subprocess.DEVNULL)

    return begin


READS = "child.COLLECTORS = {**child.COLLECTORS, 'jobs': child.replace(child.COLLECTORS['jobs'], read=read)}"
"""Puts a `read` of the test in the place of that of jobs."""


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    with ExitStack() as stack:

        def made(begin: Start = start, **given: object) -> Watcher:
            watcher = Watcher(JobPlaces(live=False, rings=str(tmp_path)), LANES, begin, **given)  # type: ignore[arg-type]
            stack.callback(watcher.close)
            return watcher

        yield made


def uuids_of(state: NodeState) -> list[str]:
    """UUIDs of the GPUs in the order of their numbers."""
    topology = state.facts(Topology)
    assert topology is not None
    return [gpu.uuid for gpu in sorted(topology.gpus, key=lambda gpu: gpu.index)]


def refused(found: Ran | Absent) -> tuple[Why, str]:
    assert isinstance(found, Absent)
    return found.why, found.detail


def test_the_process_runs_every_collector_that_does_not_gate_and_no_other() -> None:
    assert set(COLLECTORS) == {one.name for one in discover() if not one.gates}
    assert set(COLLECTORS) == {"bursts", "hangs", "jobs", "ledger", "lockstep"}


def test_collectors_find_there_what_they_find_here(watching: Watching, tmp_path: Path) -> None:
    """Two ranks write rings; each collector runs in the process and here, and shows the same."""
    node = Node("h200x4-idle", only=("topology",))
    judged, sysfs, rings = judge_state(node.poll()), node.hardware.sysfs, RingsHere(FileRings(tmp_path))
    beside = replace(PORTS, rings=rings, sysfs=RecordedSysfs(sysfs, SystemSysfs(), rings))
    watcher = watching()
    plain_ones = [with_surroundings(one, lambda: judged, None, {}) for one in COLLECTORS.values()]
    apart_ones = [with_surroundings(one, lambda: judged, None, {}, watcher) for one in COLLECTORS.values()]
    here = {name: Component(name, one.start) for name, one in COLLECTORS.items()}
    there = dict(here)
    uuids = uuids_of(judged.state)
    with (
        RingWriter(tmp_path / "a.ring", ranks=2, uuid=uuids[0]) as first,
        RingWriter(tmp_path / "b.ring", ranks=2, rank=1, uuid=uuids[1]) as second,
    ):
        for number in range(3):
            for ring in (first, second):
                ring.put(later(Written(), number))
                ring.by_function(0, 2, number + 1)
            for made, ports, known in ((plain_ones, beside, here), (apart_ones, PORTS, there)):
                for one in made:
                    step = Job(one, ports, Expect()).run(known[one.name].memory)
                    known[one.name] = after(known[one.name], step)
    for name, plain in here.items():
        found = there[name]
        assert type(found.outcome) is type(plain.outcome), name
        assert (found.applicable, found.samples) == (plain.applicable, plain.samples)
        assert [one.key for one in found.findings] == [one.key for one in plain.findings]
        assert (type(found.facts), found.observed) == (type(plain.facts), plain.observed)
    assert isinstance(there["jobs"].outcome, Ok)
    counted = [one.value for one in there["jobs"].samples if "job_collectives" in one.metric.name]
    assert sum(counted) == 6, "three of each rank"


class Sessions(Gpus):
    """GPUs that count how often it is asked in which session they are, and that are then in the next one."""

    counted = 0

    def session(self) -> int:
        self.counted += 1
        return self.counted


def test_the_session_of_nvml_is_asked_once_a_run_and_anew_in_the_next(watching: Watching) -> None:
    nvml = Sessions(["0000:01:00.0", "0000:02:00.0"])
    nvml.table |= {(f"GPU-{n}", "ComputeRunningProcesses()"): [] for n in range(2)}
    watcher = watching()
    for count in (1, 2):
        ran = watcher.run("jobs", order("lockstep"), replace(PORTS, nvml=nvml))
        assert isinstance(ran, Ran)
        assert isinstance(ran.step.outcome, Ok)
        assert nvml.counted == count


def test_the_ledger_folds_there_with_what_it_is_given(watching: Watching) -> None:
    """Two looks at GPUs on which this process computes; owners come from the agent."""
    nvml, pid = Gpus(["0000:01:00.0", "0000:02:00.0"]), os.getpid()
    for number in range(2):
        answers: dict[str, Json] = {
            "ComputeRunningProcesses()": [{"pid": pid}], "UtilizationRates()": {"gpu": 0},
            "PowerUsage()": 120_000, "PowerManagementDefaultLimit()": 700_000,
        }  # fmt: skip
        nvml.table |= {(f"GPU-{number}", question): answer for question, answer in answers.items()}
    around = LedgerSurroundings(owners={pid: "slurm:7"})
    watcher = watching()
    for _ in range(2):
        ran = watcher.run("jobs", replace(order("ledger"), around=around), replace(PORTS, nvml=nvml))
    assert isinstance(ran, Ran)
    facts = ran.step.facts
    assert isinstance(facts, LedgerFacts)
    (job,) = facts.jobs
    assert (job.name, job.pids) == ("slurm:7", (pid,))
    assert [one.shares for one in job.short] == [{Spent.IDLE: 1.0}] * 2
    assert job.short[0].seconds > 0


def test_what_lasts_of_a_memory_is_handed_to_a_process_that_is_new(watching: Watching) -> None:
    hangs = COLLECTORS["hangs"]
    assert hangs.lasting is not None
    kept = hangs.lasting.keep(hangs.start)
    found = watching().run("hangs", replace(order("hangs"), kept=kept), PORTS)
    assert isinstance(found, Ran)
    assert type(found.kept) is type(kept)


def test_a_line_of_the_log_and_an_exception_come_with_the_run(watching: Watching) -> None:
    code = f"def read(*_):\n    raise ValueError('odd')\n{READS}"
    found = watching(changed(code)).run("jobs", order(), PORTS)
    assert isinstance(found, Ran)
    assert "ValueError('odd')" in str(found.step.outcome)
    assert ["ValueError: odd" in one.text for one in found.logged] == [True]


def test_a_killed_process_costs_a_run_and_is_started_again_after_a_while(watching: Watching) -> None:
    now = [0.0]
    watcher = watching(mono=lambda: now[0])
    assert isinstance(watcher.run("jobs", order(), PORTS), Ran)
    first = watcher.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert refused(watcher.run("jobs", order(), PORTS)) == (
        Why.LOST, "the process that watches jobs ended (SIGKILL)",
    )  # fmt: skip
    now[0] += 0.9
    assert refused(watcher.run("hangs", order("hangs"), PORTS))[0] is Why.LOST, "not at once"
    now[0] += 0.2
    assert isinstance(watcher.run("jobs", order(), PORTS), Ran)
    assert watcher.pid not in {first, None}


def test_of_a_run_that_logs_without_end_some_lines_come(watching: Watching) -> None:
    code = "def read(*_):\n    for n in range(1000):\n        child.logging.getLogger('x').info('line %d', n)"
    watcher = watching(changed(f"{code}\n    return child.Absent(child.Why.MISSING)\n{READS}"))
    found = watcher.run("jobs", order(), PORTS)
    assert isinstance(found, Ran)
    assert [one.text for one in found.logged] == [f"line {number}" for number in range(LINES)]


def test_failures_are_forgotten_once_the_process_has_run_for_long(watching: Watching) -> None:
    now = [0.0]
    watcher = watching(mono=lambda: now[0])

    def killed() -> None:
        assert isinstance(watcher.run("jobs", order(), PORTS), Ran)
        assert watcher.pid is not None
        os.kill(watcher.pid, signal.SIGKILL)
        assert isinstance(watcher.run("jobs", order(), PORTS), Absent)

    for wait in (1.0, 2.0):
        killed()
        now[0] += wait - 0.1
        assert isinstance(watcher.run("jobs", order(), PORTS), Absent)
        now[0] += 0.2
    assert isinstance(watcher.run("jobs", order(), PORTS), Ran)
    now[0] += CALM + 1.0
    killed()
    now[0] += 1.1
    assert isinstance(watcher.run("jobs", order(), PORTS), Ran)


@pytest.mark.parametrize(("lane", "name"), [("jobs", "jobs"), (SHARED, "bursts")])
def test_a_process_that_does_not_answer_is_killed(watching: Watching, lane: str, name: str) -> None:
    stopped = changed("os.kill(os.getpid(), signal.SIGSTOP)")
    watcher = watching(stopped, overdue=0.2)
    assert refused(watcher.run(lane, order(name), PORTS))[0] is Why.TIMEOUT
    assert watcher.pid is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (f"def read(*_):\n    return bytearray(1 << 28)\n{READS}", "more memory than it may have"),
        (f"child.CPU = 0\ndef read(*_):\n    while True: pass\n{READS}", "more CPU time than it may have"),
        (f"def read(*_):\n    os._exit(7)\n{READS}", "ended (7)"),
    ],
    ids=["memory", "CPU time", "exit"],
)
def test_a_run_that_takes_too_much_ends_the_process_in_words(
    watching: Watching, code: str, words: str
) -> None:
    watcher = watching(changed(code))
    why, detail = refused(watcher.run("jobs", order(), PORTS))
    assert words in detail
    assert why is (Why.LOST if "ended" in words else Why.EXHAUSTED)
    assert watcher.pid is None


def test_the_limits_are_those_of_the_process(watching: Watching) -> None:
    watcher = watching()
    assert isinstance(watcher.run("jobs", order(), PORTS), Ran)
    place = Path(f"/proc/{watcher.pid}")
    limits = {line[:25].strip(): line.split()[-3] for line in (place / "limits").read_text().splitlines()[1:]}
    assert limits["Max data size"] == str(MEMORY)
    assert limits["Max core file size"] == "0"
    assert (place / "oom_score_adj").read_text().strip() == BADNESS


def test_the_process_ends_with_the_agent(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = start(JobPlaces(live=False, rings=str(tmp_path)), [theirs.fileno()])
    ours.close()
    assert process.wait(60) == 0


def test_a_watcher_that_is_closed_starts_no_process(watching: Watching) -> None:
    watcher = watching()
    assert isinstance(watcher.run("jobs", order(), PORTS), Ran)
    watcher.close()
    assert watcher.pid is None
    assert refused(watcher.run("jobs", order(), PORTS))[1].endswith("is ended")


def test_a_process_that_cannot_be_started_is_a_limit_of_the_agent(watching: Watching) -> None:
    def begin(_places: JobPlaces, _handed: Iterable[int]) -> "subprocess.Popen[bytes]":
        raise OSError(24, "Too many open files")

    assert refused(watching(begin).run("jobs", order(), PORTS))[0] is Why.EXHAUSTED


def test_without_descriptors_none_is_started_and_that_is_a_limit_of_the_agent(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, left = socket.socketpair, iter([1])

    def one_pair() -> object:
        if next(left, None) is None:
            raise OSError(24, "Too many open files")
        return pair()

    monkeypatch.setattr(socket, "socketpair", one_pair)
    assert refused(watching().run("jobs", order(), PORTS))[0] is Why.EXHAUSTED


def test_an_answer_that_is_none_ends_the_process(watching: Watching) -> None:
    code = "child.LaneWorker.run = lambda self, order: print"
    watcher = watching(changed(code))
    with pytest.raises(AttributeError):
        watcher.run("jobs", order(), PORTS)
    assert watcher.pid is None


def test_an_answer_that_breaks_off_hangs_nobody(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of a message, three bytes of it, and nothing more."""
    monkeypatch.setattr("wirewatch.jobs.apart.process.LIMIT", struct.pack("ll", 0, 200_000))
    half = "os.write(int(sys.argv[-1]), bytes([0, 0, 1, 0, 1, 2, 3]))"
    code = f"import time\nchild.LaneWorker.run = lambda *_: [{half}, time.sleep(600)]"
    watcher = watching(changed(code))
    lane = max(LANES)
    assert refused(watcher.run(lane, order(), PORTS))[0] is Why.LOST
    assert watcher.pid is None


class Undying:
    """A process that hangs in a driver: no signal ends it, until `dead`."""

    pid, dead = 1234567, False

    def poll(self) -> int | None:
        return 0 if self.dead else None

    def kill(self) -> None:
        """Have no effect."""

    def wait(self, timeout: float) -> int:
        raise subprocess.TimeoutExpired("it", timeout)


def test_beside_a_process_that_does_not_die_no_other_is_started(watching: Watching) -> None:
    stuck, started, now = Undying(), list[int](), [0.0]

    def begin(places: JobPlaces, handed: Iterable[int]) -> "subprocess.Popen[bytes]":
        started.append(1)
        return stuck if len(started) == 1 else start(places, handed)  # type: ignore[return-value]

    watcher = watching(begin, mono=lambda: now[0])
    assert isinstance(watcher.run("jobs", order(), PORTS), Absent), "nobody holds its other ends"
    now[0] += 100.0
    assert refused(watcher.run("jobs", order(), PORTS))[1].endswith("no other is started")
    stuck.dead = True
    assert isinstance(watcher.run("jobs", order(), PORTS), Ran)
    assert len(started) == 2


def test_only_what_reads_can_be_asked_from_there() -> None:
    for port, methods in ASKED.items():
        for method in methods:
            assert callable(getattr(getattr(PORTS, port), method))
    for port, method in (("nvml", "close"), ("nvml", "cost"), ("probe", "run"), ("sysfs", "__init__")):
        assert "is nothing to ask" in answer(PORTS, PortQuestion(port, method, ())).error
    assert answer(PORTS, PortQuestion("nvml", "gpus", ())).value == PORTS.nvml.gpus()


def test_a_port_that_raises_raises_there(watching: Watching) -> None:
    def refuse() -> Hardware:
        class Broken:
            def gpus(self) -> object:
                raise RuntimeError("no such moment")

        return replace(PORTS, nvml=Broken())  # type: ignore[arg-type]

    found = watching().run("hangs", order("hangs"), refuse())
    assert isinstance(found, Ran)
    assert "no such moment" in str(found.step.outcome)


def test_surroundings_are_handed_to_what_judges_by_them(watching: Watching, tmp_path: Path) -> None:
    """A ring names its GPU by the UUID; only the surroundings know that it is GPU 0."""
    state = Node("h200x4-idle", only=("topology",)).poll()
    topology, uuid = state.facts(Topology), uuids_of(state)[0]
    assert topology is not None
    with RingWriter(tmp_path / "a.ring", ranks=1, uuid=uuid) as ring:
        for around, known in ((None, set()), (JobSurroundings(topology=topology), {"0"})):
            watcher = watching()
            for number in range(2):
                ring.by_function(0, 2, ring.written + number)
                found = watcher.run("jobs", replace(order(), around=around), PORTS)
            assert isinstance(found, Ran)
            assert {label for one in found.step.samples for label in one.labels} & {"0"} == known
