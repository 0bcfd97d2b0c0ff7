"""A probe from its plan to its document: in memory, and as a process with real pipes."""

import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.groups import dies as gone
from tests.node.worker.memory import MemoryEngine
from tests.node.worker.workerprocess import MEMORY, ROOT, WorkerProcess, document_of
from tests.rows import each
from wirewatch.core.probe import (
    OPS,
    REPORT,
    Case,
    Document,
    ErrorKind,
    Plan,
    Timed,
    WorkerError,
    decode_plan,
    encode_document,
    encode_plan,
    rounds,
)
from wirewatch.worker import __main__ as worker_main
from wirewatch.worker.run import EngineError, Run, marker, reporter

PLAN = Plan(
    "memory", ("one", "two", "three", "four"), ((0, 1, 2, 3), (0, 2)), latency_sizes=(8,),
    bandwidth=((1 << 20, 5), (1 << 22, 3)), copy_bytes=1 << 20,
)  # fmt: skip
MARKS = [f"{op}.{group}" for group in (0, 1) for op in OPS] + ["copies", "micros", "end"]
ORPHAN = """
import os, subprocess, sys, time
pipes, command = sys.argv[1:3], sys.argv[3:]
worker = subprocess.Popen(command + pipes, start_new_session=True, pass_fds=[int(pipe) for pipe in pipes])
print(worker.pid, flush=True)
time.sleep(60)
"""
sizes = st.integers(8, 1 << 30)


@pytest.fixture(autouse=True)
def _frozen_again() -> Iterator[None]:
    """Freeze again what a run lets go: each collective collects garbage, and all of it takes a second."""
    yield
    gc.freeze()


plans = st.builds(
    Plan,
    engine=st.sampled_from(("nccl", "torch", "gloo")),
    gpus=st.lists(st.text(max_size=8), max_size=8).map(tuple),
    groups=st.lists(st.lists(st.integers(0, 7), max_size=8).map(tuple), max_size=3).map(tuple),
    ops=st.lists(st.sampled_from(OPS), unique=True).map(tuple),
    latency_sizes=st.lists(sizes).map(tuple),
    bandwidth=st.lists(st.tuples(sizes, st.integers(1, 9)), unique_by=lambda both: both[0]).map(tuple),
    micro=st.booleans(),
    log=st.text(max_size=8),
    pauses=st.booleans(),
)


@given(plans)
def test_a_plan_survives_the_way_to_the_worker_in_one_line(plan: Plan) -> None:
    line = encode_plan(plan)
    assert "\n" not in line
    assert decode_plan(line) == plan
    assert plan.sizes() == (*plan.latency_sizes, *(size for size, _ in plan.bandwidth))
    assert all(plan.runs(size) == runs for size, runs in plan.bandwidth)


@each("line", ["", "\n", "nonsense", '{"engine": "nccl"}', '{"colour": "red"}'])
def test_what_is_no_plan_is_refused(line: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode_plan(line)


@given(st.integers(0, 17))
def test_in_a_tournament_everybody_meets_everybody_once_and_one_at_a_time(count: int) -> None:
    played = rounds(count)
    met = [frozenset(pair) for pairs in played for pair in pairs]
    assert len(met) == len(set(met)) == count * (count - 1) // 2
    for pairs in played:
        seated = [player for pair in pairs for player in pair]
        assert len(seated) == len(set(seated))
        assert set(seated) <= set(range(count))


def measured(
    plan: Plan, fails: str = "", kind: ErrorKind = "driver"
) -> tuple[Document, list[str], list[str]]:
    """The document, the marks and what the engine was asked; an engine that fails is asked no further."""
    marks: list[str] = []
    run = Run(plan, marks.append, time.monotonic())
    engine = MemoryEngine(plan, fails, kind)
    try:
        run.measure(engine)
    except EngineError as error:
        document = run.document(engine, error)
    else:
        document = run.document(engine, None)
    return document_of(encode_document(document)), marks, engine.asked


def test_everything_that_a_plan_asks_for_is_in_the_document() -> None:
    document, marks, _ = measured(PLAN)
    assert document.error is None
    assert marks == MARKS
    assert [(t.group, t.op, t.size_bytes) for t in document.collectives] == [
        (group, op, size) for group in (0, 1) for op in OPS for size in PLAN.sizes()
    ]
    assert len(document.copies) == 6
    assert [m.gpu for m in document.micros] == [0, 1, 2, 3]
    assert document.engine == "memory"
    assert document.versions == {"memory": "1.0"}


class CollectionsSeen(MemoryEngine):
    """Makes as much garbage as sets the collector off, and counts how often that happens in a collective."""

    def __init__(self, plan: Plan, fails: str = "") -> None:
        super().__init__(plan, fails)
        self.collections = 0
        self.frozen: list[int] = []
        self.begun: set[str] = set()

    def collective(self, case: Case) -> Timed:
        # In the first of each kind, since each count walks through all of them.
        if case.op not in self.begun:
            self.begun.add(case.op)
            self.frozen.append(gc.get_freeze_count())
        before = self._count()
        kept: list[list[object]] = [[] for _ in range(2000)]
        self.collections += self._count() - before
        assert len(kept) == 2000
        return super().collective(case)

    @staticmethod
    def _count() -> int:
        return sum(generation["collections"] for generation in gc.get_stats())


@pytest.mark.parametrize("fails", ["", "copies"])
def test_no_garbage_is_collected_in_the_middle_of_a_collective(fails: str) -> None:
    """On two H200 the first case of each process that had imported torch had a run of 4 ms in it."""
    engine, run = CollectionsSeen(PLAN, fails), Run(PLAN, lambda _: None, time.monotonic())
    with suppress(EngineError):
        run.measure(engine)
    assert engine.collections == 0
    assert min(engine.frozen) > 1000, "what was imported before is looked through each time"
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


def test_garbage_is_collected_before_each_collective() -> None:
    class Litter:
        """Refers to itself, so that the collector alone frees it."""

        def __init__(self) -> None:
            self.own = self

    class Littering(MemoryEngine):
        left: weakref.ref[Litter] | None = None

        def collective(self, case: Case) -> Timed:
            assert self.left is None or self.left() is None
            self.left = weakref.ref(Litter())
            return super().collective(case)

    Run(PLAN, lambda _: None, time.monotonic()).measure(Littering(PLAN))


def test_the_document_says_what_the_probe_cost() -> None:
    began = time.monotonic()
    uses = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cost = measured(PLAN)[0].cost
    assert 0 < cost.imported <= cost.contexts <= cost.communicators <= cost.done <= time.monotonic() - began
    assert cost.kernel_seconds == (0.5,) * 4
    assert cost.cpu_seconds >= sum(use.ru_utime + use.ru_stime for use in uses) > 0
    assert max(use.ru_maxrss for use in uses) << 10 <= cost.host_bytes < 1 << 40


def test_small_sizes_are_asked_for_as_latencies() -> None:
    asked = measured(PLAN)[2]
    assert "all_gather.1.8.graph" in asked
    assert "all_gather.1.1048576.stream" in asked
    assert len(asked) == len(set(asked))


def test_what_a_plan_does_not_ask_for_is_not_done() -> None:
    document, marks, asked = measured(replace(PLAN, copy_bytes=0, micro=False, ops=(), groups=((0,),)))
    assert marks == ["end"]
    assert asked == ["load", "contexts", "communicators"]
    assert not document.collectives
    assert not document.copies
    assert not document.micros


def test_what_the_engine_does_not_have_is_said_and_all_else_is_measured() -> None:
    reported: list[Timed] = []
    cases = tuple(Case(0, op, 8, "graph", 2) for op in ("broadcast", "alltoall"))
    plan = replace(PLAN, cases=cases, copy_bytes=0, micro=False)
    marks: list[str] = []
    run = Run(plan, marks.append, time.monotonic(), reported.append)
    run.measure(engine := MemoryEngine(plan, lacks=("alltoall", "all_gather")))
    assert marks[-2:] == ["cases", "end"]
    document = document_of(encode_document(run.document(engine, None)))
    assert document.not_offered == ("all_gather", "alltoall")
    assert [t.op for t in document.collectives if t.group == 1] == ["all_reduce"] * 3 + ["reduce_scatter"] * 3
    assert [t.op for t in reported] == ["broadcast"]


@each(
    ("step", "marks", "done"),
    [
        ("contexts", 0, ("imported",)),
        ("communicators", 0, ("imported", "contexts")),
        ("all_gather.0.4194304.stream", 2, ("imported", "contexts", "communicators")),
        ("copies", 7, ("imported", "contexts", "communicators")),
        ("micros", 8, ("imported", "contexts", "communicators")),
    ],
)
def test_with_an_error_the_document_holds_what_came_before(
    step: str, marks: int, done: Sequence[str]
) -> None:
    document, marked, asked = measured(PLAN, step, "nccl")
    assert document.error is not None
    assert document.error.kind == "nccl"
    assert document.error.text == f"{step} fails"
    assert asked[-1] == step
    assert marked == MARKS[:marks]
    times = {"imported", "contexts", "communicators", "done"}
    assert {name for name in times if getattr(document.cost, name) > 0} == set(done)
    collectives = [step for step in asked[:-1] if step.count(".") == 3]
    assert len(document.collectives) == len(collectives)
    assert bool(document.copies) == (step == "micros")
    assert not document.micros


def test_without_an_engine_the_document_has_its_error_alone() -> None:
    run = Run(PLAN, lambda _: None, 0.0, times={"imported": 1.0})
    document = run.document(None, EngineError("no_engine", "there is none"))
    assert (document.versions, document.cost.kernel_seconds, document.error) == (
        {}, (), WorkerError("no_engine", "there is none"),
    )  # fmt: skip


def test_a_mark_is_a_line_that_waits_for_an_answer_and_a_report_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    reading, writing = os.pipe()
    marker(writing, pauses=False)("not said")
    marker(writing, pauses=True)("said")
    assert sys.stdin.read() == "", "the answer was read"
    timed = Timed(0, "broadcast", 8, "graph", 2, 3, 2e-3, 1e-3, 2e-3, 3e-3, 0)
    reporter(writing)(timed)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        mark, report = pipe.read().splitlines()
    assert (mark, json.loads(report.removeprefix(REPORT))) == ("said", asdict(timed))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY", "out_of_memory"), ("CUDA error: out of memory\nmore", "out_of_memory"),
        ("an illegal memory access", "internal"),
    ],
)  # fmt: skip
def test_whatever_a_library_raises_is_an_error_of_its_kind_in_one_line(text: str, kind: ErrorKind) -> None:
    class Raising(MemoryEngine):
        def contexts(self) -> None:
            raise RuntimeError(text)

    with pytest.raises(EngineError) as error:
        vars(worker_main)["_measured"](Run(PLAN, lambda _: None, 0.0), Raising(PLAN))
    assert (error.value.kind, str(error.value)) == (kind, f"RuntimeError: {text.splitlines()[0]}")


@each(
    ("fails", "begins"),
    [
        ("contexts", ""), ("communicators", "communicators: "), ("copies", "copies: "),
        ("micros", "micros: "),
        ("all_gather.0.4194304.stream", "all_gather of 4194304 bytes, stream: "),
        ("broadcast.1.8.graph", "broadcast of 8 bytes, graph: "),
    ],
)  # fmt: skip
def test_an_error_begins_with_the_step_in_which_it_came(fails: str, begins: str) -> None:
    run = Run(replace(PLAN, cases=(Case(1, "broadcast", 8, "graph", 2),)), lambda _: None, 0.0)
    with pytest.raises(EngineError) as error:
        vars(worker_main)["_measured"](run, MemoryEngine(PLAN, fails, "nccl"))
    assert (error.value.kind, str(error.value)) == ("nccl", f"{begins}{fails} fails")


def test_a_worker_pauses_at_every_mark_and_then_hands_back_its_document() -> None:
    with WorkerProcess(replace(PLAN, pauses=True), MEMORY) as worker:
        heard = []
        while (mark := worker.mark()) is not None:
            heard.append(mark)
            assert worker.mark(0.02) is None, "it did not wait"
            worker.say()
            if mark == "end":
                break
        document = worker.document()
        assert heard == MARKS
        assert document.error is None
        assert len(document.collectives) == 18
        assert worker.process.returncode == 0


def test_a_worker_that_need_not_pause_marks_nothing_and_prints_to_its_log_alone() -> None:
    with WorkerProcess(PLAN, MEMORY) as worker:
        document = worker.document()
        assert document.error is None
        assert worker.mark() is None
        assert worker.output() == b""


def test_a_worker_to_which_nobody_listens_any_more_ends_at_its_mark() -> None:
    with WorkerProcess(replace(PLAN, pauses=True), MEMORY) as worker:
        worker.until("copies")
        worker.stdin.close()
        assert worker.data(5) == b""
        assert worker.process.returncode == 1


def test_an_engine_that_fails_ends_the_worker_with_a_document() -> None:
    with WorkerProcess(replace(PLAN, log="communicators"), MEMORY) as worker:
        document = worker.document()
        assert document.error is not None
        assert (document.error.kind, document.error.text) == ("driver", "communicators: communicators fails")
        assert document.versions == {"memory": "1.0"}
        assert worker.process.returncode == 0


def test_an_engine_that_fails_while_it_is_loaded_has_no_versions() -> None:
    with WorkerProcess(replace(PLAN, log="load"), MEMORY) as worker:
        document = worker.document()
        assert document.error is not None
        assert document.versions == {}
        assert document.cost.kernel_seconds == ()


def test_an_engine_that_is_not_known_is_none() -> None:
    with WorkerProcess(replace(PLAN, engine="rccl")) as worker:
        document = worker.document()
        assert document.error is not None
        assert document.error.kind == "no_engine"
        assert "rccl" in document.error.text
        assert document.engine == "rccl"
        assert worker.process.returncode == 0


@pytest.mark.parametrize("engine", ["torch", "gloo"])
@pytest.mark.parametrize("error", ["ImportError", "OSError", "RuntimeError"])
def test_an_engine_whose_library_is_broken_is_none(tmp_path: Path, engine: str, error: str) -> None:
    (tmp_path / "torch.py").write_text(f"raise {error}('libtorch is in pieces')\n", "utf-8")
    with WorkerProcess(replace(PLAN, engine=engine), environment={"PYTHONPATH": str(tmp_path)}) as worker:
        document = worker.document()
        assert document.error is not None
        assert document.error.kind == "no_engine"
        assert "in pieces" in document.error.text


@pytest.mark.parametrize("line", ["", "no plan", '{"engine": "memory"}'])
def test_a_worker_without_a_plan_ends_without_a_document(line: str) -> None:
    with WorkerProcess(line, MEMORY) as worker:
        assert worker.data(10) == b""
        assert worker.process.returncode == 1
        assert "Error" in worker.errors()


def test_a_worker_is_killed_with_who_started_it() -> None:
    """Its input stays open, and it waits there: only that its parent is gone can end it."""
    marks, write_marks = os.pipe()
    command = [sys.executable, "-c", ORPHAN, str(write_marks), str(write_marks), *MEMORY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(write_marks,), cwd=ROOT
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        worker = int(starter.stdout.readline())
        starter.stdin.write(f"{encode_plan(replace(PLAN, pauses=True))}\n".encode())
        starter.stdin.flush()
        assert os.read(marks, 100) == b"all_reduce.0\n"
        starter.kill()
        try:
            assert gone(worker)
        finally:
            if not gone(worker, 0):
                os.killpg(worker, signal.SIGKILL)
    os.close(marks)
    os.close(write_marks)


def test_a_document_with_a_time_that_is_no_number_is_never_written() -> None:
    document = measured(PLAN)[0]
    broken = replace(document, collectives=(replace(document.collectives[0], seconds=float("nan")),))
    with pytest.raises(ValueError, match="JSON"):
        encode_document(broken)
    assert json.loads(encode_document(document))["schema"] == "wirewatch.worker/1"
