"""`wirewatch explain` as a process: by a running daemon, by none, of a recording; what it reads itself."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from tests.node.cli.replies import reply as http
from tests.node.cli.replies import replying, server
from tests.node.cli.schemas import complaints
from tests.node.daemon.process import FAST, Daemon
from tests.node.jobs.explain.cases import CASES
from tests.node.jobs.explain.drawn import NOW, evidence, job, late, row, waiting
from tests.processes import run_wirewatch
from wirewatch.cli.jobs import explain as module
from wirewatch.cli.jobs.explain import (
    ancestors,
    busiest,
    cpu_seconds,
    read_processes,
    selected,
    settings_of,
)
from wirewatch.cli.jobs.explained import PageLayout, page
from wirewatch.core.types import Absent, Why
from wirewatch.documents.jobs import JOBS, ExplainedJob, JobsDocument, explain
from wirewatch.hw.files import SystemSysfs
from wirewatch.jobs.explain.evidence import EvidenceSource, JobEvidence, JobGpu, Wall
from wirewatch.jobs.explain.walls import decide

OK, USAGE, NO_ANSWER = 0, 64, 69


def document(*jobs: JobEvidence) -> bytes:
    """The answer of a daemon on a node with these jobs."""
    made = [ExplainedJob(decide(one), one) for one in jobs]
    return JOBS.dump_json(JobsDocument("wirewatch.jobs/1", NOW, "replay", made))


def asked(folder: Path, body: bytes, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command beside a daemon that gives this answer."""
    with server(folder, replying(http(body))) as path:
        return run_wirewatch("explain", "--socket", path, *arguments)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, str]]:
    folder = tmp_path_factory.mktemp("explain")
    path = f"{folder}/w.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"') + "[probe]\nenabled = false\n"
    with Daemon(("--replay", "h200x4-idle", "--overlay", "gpu-busy"), folder, config) as running:
        running.ready()
        yield running, path


@pytest.mark.parametrize("case", CASES)
def test_a_job_with_its_ledger_is_of_its_schema_and_is_read_again(case: str) -> None:
    body = document(CASES[case]())
    assert complaints("wirewatch.jobs.1", body.decode()) == []
    (read,) = JOBS.validate_json(body).jobs
    assert read.evidence == CASES[case]()
    wrong = json.loads(body)
    wrong["jobs"][0]["evidence"]["ledger"]["long"][0]["shares"]["resting"] = 0.1
    assert complaints("wirewatch.jobs.1", json.dumps(wrong))


def test_the_daemon_s_jobs_are_of_their_schema(daemon: tuple[Daemon, str]) -> None:
    running, _ = daemon
    text = running.get("/api/v1/jobs").text
    assert complaints("wirewatch.jobs.1", text) == []
    made = JOBS.validate_json(text)
    assert [one.evidence.name for one in made.jobs] == ["pid:4711"]
    assert made.jobs[0].answer == decide(made.jobs[0].evidence)


def test_a_process_of_a_gpu_is_explained_by_the_daemon(daemon: tuple[Daemon, str]) -> None:
    _, path = daemon
    done = run_wirewatch("explain", "4711", "--socket", path, "--json")
    assert (done.returncode, done.stderr) == (OK, "")
    assert complaints("wirewatch.explain.1", done.stdout) == []
    shown = json.loads(done.stdout)
    assert (shown["name"], shown["answer"]["certainty"]) == ("pid:4711", "low")
    text = run_wirewatch("explain", "--socket", path).stdout
    assert text.splitlines()[0] == shown["sentence"]
    assert "collectives (tap): install the tap" in " ".join(text.split())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["4712"], "process 4712 belongs to no job on this node's GPUs; known are pid:4711"),
        (["slurm:99"], "no job slurm:99 runs on this node's GPUs; known are pid:4711"),
        (["train.py"], "'train.py' names no job: slurm:ID, pod:UID, container:ID or a process id"),
        (["slurm:"], "'slurm:' names no job: slurm:ID, pod:UID, container:ID or a process id"),
    ],
)
def test_a_selector_that_matches_no_job(
    daemon: tuple[Daemon, str], given: list[str], said: str
) -> None:  # fmt: skip
    done = run_wirewatch("explain", *given, "--socket", daemon[1])
    assert (done.returncode, done.stdout, done.stderr) == (USAGE, "", f"wirewatch: {said}\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "2 jobs run here: name one of them: slurm:4711, slurm:4711"),
        (["slurm:4711"], "slurm:4711 is part of several jobs: slurm:4711, slurm:4711"),
    ],
)
def test_several_jobs_need_a_name(tmp_path: Path, given: list[str], said: str) -> None:
    done = asked(tmp_path, document(evidence(job()), evidence(job())), *given)
    assert (done.returncode, done.stderr) == (USAGE, f"wirewatch: {said}\n")


def test_without_a_daemon_it_says_so(tmp_path: Path) -> None:
    done = run_wirewatch("explain", "--socket", f"{tmp_path}/none.sock")
    assert (done.returncode, done.stdout) == (NO_ANSWER, "")
    (line,) = done.stderr.splitlines()
    assert "no such socket; is the daemon running?; only the daemon knows which jobs run" in line


@pytest.mark.parametrize("body", [b"", b"{}", b'{"schema": "wirewatch.jobs/1"}', b"[" * 5000, b"\xff"])
def test_an_answer_that_is_none_is_no_daemon(tmp_path: Path, body: bytes) -> None:
    done = asked(tmp_path, body)
    assert done.returncode == NO_ANSWER
    (line,) = done.stderr.splitlines()
    assert "not from this version of wirewatch" in line


def test_by_slurm_id_the_late_rank_is_the_first_line(tmp_path: Path) -> None:
    done = asked(tmp_path, document(evidence(job(late=late(), waiting=0.12))), "slurm:4711")
    assert done.returncode == OK
    first = "Collectives: 3 of 4 ranks wait for rank 2 on GPU 2, which costs 12 % of the time."
    assert done.stdout.splitlines()[0] == first


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    done = run_wirewatch("explain", "--overlay", "gpu-busy")
    assert (done.returncode, "give --replay too" in done.stderr) == (USAGE, True)
    done = run_wirewatch("explain", "--replay", "h200x4-idle", "--socket", f"{tmp_path}/x")
    assert (done.returncode, "either --replay or --socket" in done.stderr) == (USAGE, True)
    done = run_wirewatch("explain", "--replay", "h200x4-idle")
    assert (done.returncode, done.stderr) == (USAGE, "wirewatch: no job runs on this node's GPUs\n")


def test_a_recording_is_explained_without_a_daemon() -> None:
    done = run_wirewatch("explain", "--replay", "h200x4-idle", "--overlay", "gpu-busy")
    assert done.returncode == OK
    assert "a recording that was changed" in done.stdout


# --- the page


def shown(one: JobEvidence) -> list[str]:
    return page(explain(one, NOW, "live"), 80)


def test_the_page_has_all_that_was_measured() -> None:
    read = {"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO"}
    lines = shown(evidence(job(late=late(), waiting=0.12, settings=read)))
    text = " ".join(" ".join(lines).split())
    for part in (
        "slurm:4711, 4 ranks on 1 node, 4 GPUs of this node, user 1001, since 2.0 h",
        "all_reduce of 256 MiB RING, SIMPLE, 24 channels 4 64",
        "330 GB/s 340 GB/s 97 %",
        "expected of all_reduce of 256 MiB: 4 GPUs behind an NVSwitch",
        "who waits for whom: all for rank 2 on GPU 2, last in 64 of 65 collectives",
    ):
        assert part in text


@pytest.mark.parametrize("width", [60, 80, 110])
def test_no_line_but_the_answer_is_wider_than_the_terminal(width: int) -> None:
    read = {"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO"}
    whole = evidence(job(row(), row(op="reduce_scatter"), late=late(), waiting=0.12, settings=read))
    lines = page(explain(whole, NOW, "replay"), width)
    assert [line for line in lines[1:] if len(line) > width] == []
    wide = page(explain(whole, NOW, "replay"), 400)
    assert set(" ".join(wide).split()) == set(" ".join(lines).split())


def test_a_table_that_is_too_wide_goes_on_below_with_its_first_column() -> None:
    rows = [("GPU", "late", "throttled"), ("0", "8.8 %", "sw_thermal"), ("1", "0 %", "no")]
    assert list(PageLayout(18).titled("Ranks", rows)) == [
        "", "Ranks",
        "  GPU   late", "  0    8.8 %", "  1      0 %", "",
        "  GPU   throttled", "  0    sw_thermal", "  1            no",
    ]  # fmt: skip
    assert list(PageLayout(24).titled("Ranks", rows))[2:] == [
        "  GPU   late   throttled", "  0    8.8 %  sw_thermal", "  1      0 %          no",
    ]  # fmt: skip


def test_a_process_prints_it_as_wide_as_it_is_told(tmp_path: Path) -> None:
    """Without a terminal 80 characters, where COLUMNS says nothing else."""
    done = asked(tmp_path, document(evidence(job(late=late(), waiting=0.12))))
    assert max(len(line) for line in done.stdout.splitlines()[1:]) <= 80


def test_settings_that_cannot_be_read_are_said_to_be() -> None:
    lines = shown(evidence(job(), missing=[EvidenceSource.SETTINGS]))
    assert any("NCCL settings of its processes: not watched" in line for line in lines)


def test_a_job_whose_texts_are_hostile_is_printed_in_its_lines(tmp_path: Path) -> None:
    one = evidence(job(name="\x1b[2J\nfake: all is well", captured=1))
    done = asked(tmp_path, document(one))
    assert "\x1b" not in done.stdout
    assert not any(line.startswith("fake") for line in done.stdout.splitlines())


# --- what the command reads itself


def test_nccl_s_settings_of_an_own_process_are_read_and_nothing_else() -> None:
    environment = {"NCCL_PROTO": "LL", "SECRET_TOKEN": "x", "PATH": os.environ["PATH"]}
    code = [sys.executable, "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = settings_of(SystemSysfs(), child.pid)
        child.communicate(b"\n")
    assert found == {"NCCL_PROTO": "LL"}


def test_a_process_of_another_user_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    found = settings_of(SystemSysfs(), os.getpid())
    assert isinstance(found, Absent)
    assert found.why is Why.DENIED
    assert f"process {os.getpid()} belongs to user" in found.detail


def test_the_process_that_started_a_job_means_it() -> None:
    """As torchrun's id, which the shell shows: it computes on no GPU itself."""
    code = "import subprocess; subprocess.run(['sh', '-c', 'echo $$; read x; true'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        rank = int(launcher.stdout.readline())
        assert ancestors(rank)[:2] == [launcher.pid, os.getpid()]
        one = JobEvidence("slurm:7", NOW, (JobGpu("GPU-0", "0", (rank,)),), Absent(Why.MISSING))
        other = JobEvidence("slurm:8", NOW, (JobGpu("GPU-1", "1", (2**22 + 1,)),), Absent(Why.MISSING))
        assert selected((one, other), str(launcher.pid), ancestors) is one
        with pytest.raises(click.UsageError, match="belongs to several jobs: slurm:7, slurm:9"):
            selected((one, replace(one, name="slurm:9")), str(launcher.pid), ancestors)
        with pytest.raises(click.UsageError, match="process 1 belongs to no job"):
            selected((one, other), "1", ancestors)
        launcher.communicate("\n")
    assert ancestors(2**22 + 1) == []


@pytest.mark.parametrize("source", ["live", "replay"])
def test_only_processes_of_this_machine_are_read(monkeypatch: pytest.MonkeyPatch, source: Any) -> None:
    read: list[str] = []
    started: list[Any] = []

    def reading(one: JobEvidence) -> JobEvidence:
        read.append(one.name)
        return one

    def chosen(jobs: Sequence[JobEvidence], _given: str | None, started_by: Any) -> JobEvidence:
        started.append(started_by)
        return jobs[0]

    monkeypatch.setattr(module, "read_processes", reading)
    monkeypatch.setattr(module, "selected", chosen)
    one = evidence(job())
    known = JobsDocument("wirewatch.jobs/1", NOW, source, [ExplainedJob(decide(one), one)])
    assert vars(module)["_explained"](known, None).source == source
    live = source == "live"
    assert (read, started) == ([one.name] * live, [ancestors if live else None])


@pytest.mark.parametrize(("age", "holds"), [(5.0, True), (15.0, False)])
def test_what_the_daemon_shows_holds_though_the_command_knows_more(
    monkeypatch: pytest.MonkeyPatch, age: float, *, holds: bool
) -> None:
    monkeypatch.setattr(module, "read_processes", lambda one: one)
    one = evidence(job(), book=waiting(1, 0.3))
    shown = replace(decide(one), wall=Wall.SLOW_WIRE, sentence="The daemon says this.", gpu="")
    known = JobsDocument("wirewatch.jobs/1", NOW, "live", [ExplainedJob(shown, one, NOW - age)])
    said = vars(module)["_explained"](known, None)
    assert (said.sentence == "The daemon says this.") is holds
    assert said.answer == (shown if holds else decide(one))


def test_a_process_that_is_gone_is_missing() -> None:
    found = settings_of(SystemSysfs(), 2**22 + 1)
    assert isinstance(found, Absent)
    assert found.why is Why.MISSING


def test_a_thread_that_computes_and_one_that_sleeps() -> None:
    code = "import threading\nprint(1, flush=True)\nwhile True: pass"
    sleeps = "print(1, flush=True)\ninput()"
    shares = {}
    for name, text in (("busy", code), ("idle", sleeps)):
        with subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            one = JobEvidence(
                "pid", NOW, (JobGpu("GPU-0", "0", (child.pid,)),), Absent(Why.MISSING)
            )  # fmt: skip
            (gpu,) = read_processes(one).gpus
            child.kill()
        assert not isinstance(gpu.thread, Absent)
        shares[name] = gpu.thread
    assert shares["busy"] > 0.1
    assert shares["idle"] < 0.1


@pytest.mark.parametrize(("processes", "read", "seconds"), [(0, 0, 0.0), (1, 1, 1.0), (65, 64, 1.0)])
def test_threads_are_watched_for_a_second_and_those_of_many_processes_are_not(
    monkeypatch: pytest.MonkeyPatch, processes: int, read: int, seconds: float
) -> None:
    slept: list[float] = []
    gone = Absent(Why.MISSING, "gone")
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append, monotonic=lambda: 0.0))
    monkeypatch.setattr(module, "settings_of", lambda *_: gone)
    monkeypatch.setattr(module, "thread_times", lambda *_: gone)
    gpu = JobGpu("GPU-0", "0", tuple(range(100, 100 + processes)))
    found = read_processes(JobEvidence("pid", NOW, (gpu,), Absent(Why.MISSING)))
    assert ([one.pid for one in found.settings], slept) == (list(range(100, 100 + read)), [seconds])


def test_the_busiest_thread_counts_and_new_ones_do_not() -> None:
    assert busiest({"1": 1.0, "2": 5.0}, {"1": 1.9, "2": 5.1, "3": 90.0}, 1.0) == pytest.approx(0.9)
    gone = Absent(Why.MISSING, "gone")
    assert busiest(gone, {}, 1.0) is gone
    assert isinstance(busiest({"1": 1.0}, {"2": 1.0}, 1.0), Absent)


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 5", 200),
        ("7 (x) S 1", None), ("", None), ("7 (x) S " + "a " * 20, None),
    ],
)  # fmt: skip
def test_cpu_seconds_of_a_stat(text: str, ticks: int | None) -> None:
    seconds = cpu_seconds(text)
    assert seconds == (None if ticks is None else ticks / os.sysconf("SC_CLK_TCK"))
