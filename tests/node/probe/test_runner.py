"""A probe from its order to its outcome, with workers that do what no worker should."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.groups import dies
from tests.node.probe.rig import NAMES, PLAN, PROCESSES, TALLY, Rig, open_files
from tests.patience import HANGS
from tests.support import EPOCH, StillClock
from wirewatch.core.hostlink import HostMoved, HostPath, Pcie
from wirewatch.core.probe import Clocks, LinkBytes, Probed
from wirewatch.core.types import Absent, Why
from wirewatch.probe import launcher, runner, workfolder
from wirewatch.probe.runner import ProbeRunner, RunnerPorts
from wirewatch.statefolder import open_state

MALFORMED = "not a document of the worker: "
STRANGE = "not a document of this plan: "
NONSENSE = "not what a worker writes: "
OUTCOMES = [
    ("good", "ok", ""),
    ("rushed", "ok", ""),
    ("latin", "ok", ""),
    ("lingering", "ok", ""),
    ("parent", "ok", ""),
    ("garbage", "garbage", f"{MALFORMED}Invalid JSON"),
    ("half", "garbage", f"{MALFORMED}Invalid JSON: EOF"),
    ("stalled", "garbage", f"{MALFORMED}Invalid JSON: EOF"),
    ("nan", "garbage", f"{MALFORMED}cost.done: Input should be a finite number"),
    ("strange", "garbage", f"{STRANGE}GPUs that are not there"),
    ("long", "garbage", f"{NONSENSE}its document is longer than 8388608 bytes"),
    ("flood", "garbage", f"{NONSENSE}it writes more than 1000 lines"),
    ("endless_mark", "garbage", f"{NONSENSE}it writes more than 1000 lines, or one of 4096 bytes and more"),
    ("wordy", "garbage", f"{NONSENSE}it writes more than 1000 lines, or one of 4096 bytes and more"),
    ("many", "ok", ""),
    ("halting", "ok", ""),
    ("silent", "timeout", "no result after 0.6 s; killed: waiting for a driver"),
    ("stubborn", "timeout", "no result after 0.6 s; killed: waiting for a driver"),
    ("deaf", "timeout", "no result after 0.6 s; killed"),
    ("mute", "failed", "the worker hung at its end and wrote nothing"),
    ("crash", "failed", "the worker was ended by SIGSEGV and wrote nothing: Fatal error: wires crossed"),
    ("fallen_parent", "failed", "the worker was ended by SIGSEGV and wrote nothing: Fatal error: wires"),
    (
        "exit3",
        "failed",
        "the worker ended with status 3 and wrote nothing: libnccl.so.2: cannot open [31mshared",
    ),
    ("empty", "failed", "the worker ended with status 0 and wrote nothing"),
    ("talkative", "failed", "the worker ended with status 1 and wrote nothing: the last of many words"),
    ("out_of_memory", "out_of_memory", "GPU 1: 512 MiB cannot be had"),
]
PROBED = TypeAdapter(Probed)


def nothing_left(rig: Rig) -> None:
    assert dies(rig.pid())
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


@pytest.mark.parametrize(("worker", "outcome", "why"), OUTCOMES)
def test_whatever_a_worker_does_there_is_an_outcome_in_time_and_nothing_is_left(
    rig: Rig, worker: str, outcome: str, why: str
) -> None:
    files = open_files()
    probed = rig.run(worker, 0.6 if outcome == "timeout" else 10.0)
    assert (probed.outcome, probed.why[: len(why)]) == (outcome, why)
    assert bool(probed.why) is (outcome != "ok")
    assert (probed.document is not None) is (outcome in {"ok", "out_of_memory"})
    nothing_left(rig)
    assert open_files() <= files
    assert PROBED.validate_json(PROBED.dump_json(probed)) == probed


def test_twenty_probes_leave_no_descriptor(rig: Rig) -> None:
    rig.run("good")
    files = open_files()
    for _ in range(4):
        for worker in ("good", "crash", "parent", "garbage"):
            rig.run(worker)
        rig.run("silent", 0.05)
    assert open_files() <= files
    nothing_left(rig)


def test_what_was_ordered_comes_back_with_the_result(rig: Rig) -> None:
    probed = rig.run("good", forced=True)
    assert (probed.at, probed.by, probed.forced) == (EPOCH, "command", True)
    assert (probed.settings, [g.uuid for g in probed.gpus]) == ({"NCCL_ALGO": "Ring"}, ["GPU-0", "GPU-1"])
    assert (probed.plan, probed.account) == (PLAN, None)
    assert 0 < probed.held_seconds < probed.seconds
    assert probed.document is not None
    assert probed.held_seconds == pytest.approx(probed.seconds - probed.document.cost.imported)


def test_counters_are_read_at_every_mark_in_order(rig: Rig) -> None:
    """The counter of GPU 0 grows by 1 KiB until the first mark, then by 3, 5, 7, ... until the next."""
    reads = 0

    def grow(gpu: str | None, question: str) -> None:
        nonlocal reads
        if (gpu, question) == ("GPU-0", TALLY):
            reads += 1
            rig.nvml.table[gpu, question] = reads**2

    rig.nvml.before = grow
    probed = rig.run("good")
    assert tuple(part.name for part in probed.parts) == NAMES
    assert [part.moved[0].transmit for part in probed.parts] == [n * 1024 for n in (3, 5, 7, 9)]
    assert [part.moved[1].transmit for part in probed.parts] == [0, 0, 0, 0]
    assert all([m.gpu for m in part.moved] == [0, 1] for part in probed.parts)
    assert sum(part.seconds for part in probed.parts) < probed.seconds


def test_a_mark_that_is_no_utf_8_still_names_its_part(rig: Rig) -> None:
    probed = rig.run("latin")
    assert tuple(part.name for part in probed.parts) == ("all_reduce\ufffd.0", *NAMES)


def test_links_memory_and_clocks_are_read_around_the_worker(rig: Rig) -> None:
    asked = 0

    def grow(gpu: str | None, question: str) -> None:
        nonlocal asked
        table = rig.nvml.table
        if (gpu, question) == ("GPU-1", "MemoryInfo()"):
            asked += 1
            # Before, at five marks, and after.
            table[gpu, question] = {"used": [100, 200, 300, 700, 300, 200, 150][asked - 1]}
        if gpu == "GPU-0" and question == "Field(138,1)":
            table[gpu, question] = 1000 + asked

    rig.nvml.before = grow
    probed = rig.run("good")
    assert (probed.gpus[1].memory_before, probed.gpus[1].memory_peak, probed.gpus[1].memory_after) == (
        100,
        700,
        150,
    )
    assert probed.clocks == (Clocks(0, 1.98e9, 2.619e9, 0), Clocks(1, 1.98e9, 2.619e9, 0))
    assert probed.links[0] == LinkBytes(0, (0, 1), (0, 6 * 1024), (0, 0))
    assert probed.links[1] == LinkBytes(1, (0, 1), (0, 0), (0, 0))


def test_pcie_is_read_around_the_host_links_alone(rig: Rig) -> None:
    """Its counters grow with each reading; what came before the part and after it does not count."""
    told = {"CurrPcieLinkGeneration()": 5, "CurrPcieLinkWidth()": 16, "Field(197)": 0, "Field(198)": 0}
    for gpu in ("GPU-0", "GPU-1"):
        rig.nvml.table |= {(gpu, call): value for call, value in told.items()}

    def before(gpu: str | None, question: str) -> None:
        if question in {"Field(197)", "Field(198)"}:
            grown = rig.nvml.table[gpu, question]
            assert isinstance(grown, int)
            rig.nvml.table[gpu, question] = grown + (100 if question == "Field(197)" else 7)

    rig.nvml.before = before
    paths = (HostPath(Pcie(5, 16)), HostPath(Pcie(4, 8)))
    probed = rig.run("good", plan=replace(PLAN, host_bytes=4096), paths=paths)
    assert probed.outcome == "ok"
    assert probed.hosts == tuple(HostMoved(gpu, 100, 7, Pcie(5, 16)) for gpu in (0, 1))
    assert probed.paths == paths
    assert [part.name for part in probed.parts] == [*NAMES, "hosts"]
    assert [one.gpu for one in probed.shown.hosts] == [0, 1]
    assert rig.run("good").hosts == ()


def test_clocks_are_read_when_the_gpus_are_at_work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some time after the last part has begun, which is when it was counted last."""
    monkeypatch.setattr(runner, "CLOCKS_AFTER", 0.1)
    asked: list[tuple[str, float]] = []
    rig.nvml.before = lambda _gpu, question: asked.append((question, time.monotonic()))
    assert rig.run("good").clocks
    first = next(n for n, (question, _) in enumerate(asked) if question.startswith("ClockInfo"))
    assert asked[first][1] - max(at for question, at in asked[:first] if question == TALLY) >= 0.1


def test_links_are_read_before_the_first_part_however_slow_nvml_is(rig: Rig) -> None:
    """GPU 1 is asked first, and the worker waits at its first mark by then."""

    def ask(gpu: str | None, question: str) -> None:
        if (gpu, question) == ("GPU-1", "Field(91)"):
            time.sleep(0.2)

    rig.nvml.before = ask
    probed = rig.run("good")
    assert [links.links for links in probed.links] == [(0, 1), (0, 1)]
    assert tuple(part.name for part in probed.parts) == NAMES


def test_nvml_that_reads_nothing_but_processes_costs_the_proofs_and_no_more(rig: Rig) -> None:
    rig.nvml.table = {("GPU-0", PROCESSES): [], ("GPU-1", PROCESSES): []}
    probed = rig.run("good")
    assert (probed.outcome, probed.links) == ("ok", ())
    assert [m.transmit for part in probed.parts for m in part.moved] == [None] * 2 * len(NAMES)
    assert probed.gpus[0].memory_peak is None
    assert probed.clocks[0] == Clocks(0, None, None, None)


def test_a_probe_gives_way_to_gpus_that_were_lost_meanwhile(rig: Rig) -> None:
    lost = Absent(Why.LOST, "GPU is lost", 15)
    rig.nvml.table = dict.fromkeys(rig.nvml.table, lost)
    probed = rig.run("silent")
    assert (probed.outcome, probed.document) == ("preempted", None)
    assert probed.why == "the processes on GPU 0 cannot be read: lost: GPU is lost"


def test_ports_of_network_cards_are_read_before_and_after(rig: Rig) -> None:
    rig.files.nic("mlx5_0", "0000:18:00.0", "pci0000:15")
    rig.files.set("mlx5_0", counters__port_xmit_data="100")

    def send(_gpu: str | None, question: str) -> None:
        if question == "ClockInfo(1)":
            rig.files.set("mlx5_0", counters__port_xmit_data="350")

    rig.nvml.before = send
    assert rig.run("good").ports == {"mlx5_0:1": 1000}


TRACE = """
import ctypes, os, sys, time
from pathlib import Path
file = Path(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print("up", flush=True)
while not file.exists():
    time.sleep(0.005)
seized = libc.ptrace(0x4206, int(file.read_text()), None, None) == 0
print("held" if seized else os.strerror(ctypes.get_errno()), flush=True)
time.sleep(60)
"""
"""PTRACE_SEIZE: a process that is traced stays, killed or not, until the tracer lets go of it (ptrace(2))."""
ABACUS = replace(PLAN, engine="abacus")


@contextmanager
def tracer(pid_file: Path) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-c", TRACE, str(pid_file)], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("worker", "tells"), [("traced", True), ("traced_silent", False)])
def test_a_worker_that_does_not_die_keeps_another_from_starting_until_it_is_gone(
    rig: Rig, worker: str, *, tells: bool
) -> None:
    with tracer(rig.pid_file) as holder:
        assert holder.stdout is not None
        files = open_files()
        probed = rig.run(worker, 0.6)
        held = holder.stdout.readline().strip()
        if held != "held":
            pytest.skip(f"no process may trace another here: {held}")
        pid = rig.pid()
        assert (probed.outcome, probed.why) == ("stuck", f"process {pid} was killed and does not die")
        assert (probed.document is not None) is tells
        assert open_files() <= files
        again = rig.run("good")
        assert (again.outcome, again.why) == ("stuck", f"process {pid} of an earlier probe does not die")
        assert (again.seconds, again.held_seconds, rig.pid()) == (0.0, 0.0, pid)
    end = time.monotonic() + HANGS
    while (probed := rig.run("good")).outcome == "stuck" and time.monotonic() < end:
        time.sleep(0.01)
    assert (probed.outcome, rig.pid() == pid) == ("ok", False)


def test_without_a_place_for_temporary_files_the_probe_fails_in_words(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    monkeypatch.setattr(workfolder, "SYSTEM", str(tmp_path / "none"))
    probed = rig.run("good")
    assert (probed.outcome, probed.why) == (
        "failed",
        "no place for the worker's log: No such file or directory",
    )


def test_a_worker_that_cannot_be_started_is_a_probe_that_failed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")
    files = open_files()
    probed = rig.run("good")
    assert (probed.outcome, probed.why) == (
        "failed",
        "the worker cannot be started: No such file or directory",
    )
    assert open_files() <= files


def test_the_real_worker_says_that_it_has_no_such_engine(tmp_path: Path) -> None:
    probed = Rig(tmp_path, launcher.WORKER).run(plan=ABACUS)
    assert (probed.outcome, probed.why) == ("no_engine", "there is no engine 'abacus'")
    assert probed.document is not None
    assert probed.document.cost.cpu_seconds > 0


def test_what_lies_in_the_working_folder_is_not_taken_for_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a package of our name, nor one of the standard library's."""
    place = tmp_path / "elsewhere" / "wirewatch" / "worker"
    place.mkdir(parents=True)
    for file in (place.parent / "__init__.py", place / "__init__.py", place / "__main__.py"):
        file.write_text("raise SystemExit('not ours')", "utf-8")
    (tmp_path / "elsewhere" / "json.py").write_text("raise SystemExit('not ours')", "utf-8")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Rig(tmp_path, launcher.WORKER).run(plan=ABACUS).why == "there is no engine 'abacus'"


def test_modules_by_a_relative_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "theirs.py").write_text("raise SystemExit('found')", "utf-8")
    monkeypatch.chdir(tmp_path)
    there = Rig(tmp_path, ("-P", "-m", "theirs"))
    there.inherited["PYTHONPATH"] = "modules"
    assert there.run().why == "the worker ended with status 1 and wrote nothing: found"


def test_settings_of_nccl_are_those_that_the_worker_inherits(rig: Rig) -> None:
    rig.inherited.clear()
    rig.inherited |= {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "WARN", "NCCLX": "1", "LD_LIBRARY_PATH": "/opt"}
    assert rig.prober.settings() == {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "WARN"}


def test_one_of_several_probers_has_the_lock_and_the_others_are_told_whose_it_is(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = open_state(tmp_path / "state")
    around = RunnerPorts(rig.nvml, rig.files, StillClock())
    one, other = ProbeRunner(around, state), ProbeRunner(around, state)
    with one.lock() as nobody, other.lock() as somebody:
        assert nobody is None
        assert somebody is not None
        assert str(state.probe_lock) in somebody
        assert str(os.getpid()) in somebody
    with other.lock() as nobody:
        assert nobody is None
    assert caplog.messages == []  # a lock that is held is let go of
    shutil.rmtree(state.directory)
    for _ in range(2):
        with one.lock() as unknown:
            assert unknown is not None
            assert "No such file or directory" in unknown
    assert caplog.messages == [f"no probe can run: {unknown}"]
    with rig.prober.lock() as stateless:
        assert stateless is None
