"""A probe beside others: at the first sight of somebody it ends, and what it measured is dropped."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.groups import dies
from tests.node.probe.rig import PROCESSES, Rig
from tests.patience import HANGS, patient
from wirewatch.core.types import Absent, Json, Why
from wirewatch.probe import runner

AWAY = patient(0.2)
"""Seconds in which the worker is gone; in one of ten, since a busy machine may hold up any one."""
UNREADABLE = Absent(Why.LOST, "GPU is lost", 15)
Comes = Callable[[], Json | Absent]


def process(*pids: int) -> Json:
    return [{"pid": pid, "usedGpuMemory": 1} for pid in pids]


def seconds_to_give_way(rig: Rig, comes: Comes, why: str) -> float:
    """Seconds from a change on GPU 1, half a dozen looks after the worker's start, to the end of it all."""
    looks, since = 0, 0.0

    def change(gpu: str | None, question: str) -> None:
        nonlocal looks, since
        if (gpu, question) == ("GPU-1", PROCESSES):
            looks += 1
            if not since and looks > 6 and rig.pid_file.exists():
                since = time.monotonic()
                rig.nvml.table[gpu, question] = comes()

    rig.pid_file.unlink(missing_ok=True)
    rig.nvml.table["GPU-1", PROCESSES] = []
    rig.nvml.before = change
    probed = rig.run("silent", 5.0)
    passed = time.monotonic() - since
    assert (probed.outcome, probed.why, probed.document) == ("preempted", why, None)
    assert dies(rig.pid(), 0.0)
    return passed


@pytest.mark.parametrize(
    ("comes", "why"),
    [
        (lambda: process(4242), "a process that is not the probe's came to GPU 1: 4242"),
        (lambda: process(9, 10), "a process that is not the probe's came to GPU 1: 10, 9"),
        (lambda: [{"usedGpuMemory": 1}], "a process that is not the probe's came to GPU 1: unknown"),
        (lambda: UNREADABLE, "the processes on GPU 1 cannot be read: lost: GPU is lost"),
    ],
    ids=["somebody", "two", "somebody without a name", "nobody can tell"],
)
def test_at_the_first_sight_of_another_process_the_worker_is_gone(rig: Rig, comes: Comes, why: str) -> None:
    assert any(seconds_to_give_way(rig, comes, why) < AWAY for _ in range(10))


def test_a_multi_process_server_counts_too(rig: Rig) -> None:
    began = time.monotonic()

    def change(gpu: str | None, _question: str) -> None:
        if rig.pid_file.exists():
            rig.nvml.table[gpu, "MPSComputeRunningProcesses()"] = process(77)

    rig.nvml.before = change
    assert rig.run("silent").why.endswith("came to GPU 0: 77")
    assert time.monotonic() - began < HANGS


def test_a_result_that_came_beside_another_process_is_dropped(rig: Rig) -> None:
    """At the last mark, just before the document."""

    def change(_gpu: str | None, question: str) -> None:
        if question == "ClockInfo(1)":
            rig.nvml.table["GPU-0", PROCESSES] = process(4242)

    rig.nvml.before = change
    probed = rig.run("good")
    assert (probed.outcome, probed.document) == ("preempted", None)
    assert dies(rig.pid(), 0.0)


def test_the_worker_itself_is_no_other_process(rig: Rig) -> None:
    def change(gpu: str | None, question: str) -> None:
        if question == "ClockInfo(1)":
            rig.nvml.table[gpu, PROCESSES] = process(rig.pid())

    rig.nvml.before = change
    assert rig.run("good").outcome == "ok"


def test_the_processes_that_the_worker_began_are_its_own_until_the_gpus_have_forgotten_them(rig: Rig) -> None:
    second = rig.pid_file.with_suffix(".second")
    seen = set()

    def change(gpu: str | None, question: str) -> None:
        if question == PROCESSES and second.exists() and second.read_text("utf-8").endswith("\n"):
            seen.add(int(second.read_text("utf-8")))
            rig.nvml.table[gpu, question] = process(rig.pid(), *seen)

    rig.nvml.before = change
    probed = rig.run("ranks")
    assert (probed.outcome, probed.why) == ("ok", "")
    assert len(seen) == 1
    assert probed.account is not None
    assert probed.account.version == "2.28.9"
    assert [one.transport for comm in probed.account.comms for one in comm.connections] == ["P2P/CUMEM"]


def test_a_process_that_came_between_the_gate_and_the_start_counts(rig: Rig) -> None:
    rig.nvml.table["GPU-1", PROCESSES] = process(4242)
    probed = rig.run("silent")
    assert (probed.outcome, probed.why[-4:]) == ("preempted", "4242")


def test_a_forced_probe_runs_beside_those_that_were_there_and_no_others(rig: Rig) -> None:
    rig.nvml.table["GPU-0", PROCESSES] = process(4242)
    assert rig.run("good", forced=True).outcome == "ok"

    def change(_gpu: str | None, question: str) -> None:
        if question == "ClockInfo(1)":
            rig.nvml.table["GPU-0", PROCESSES] = process(4242, rig.pid(), 4243)

    rig.nvml.before = change
    probed = rig.run("good", forced=True)
    assert probed.why == "a process that is not the probe's came to GPU 0: 4243"


def test_a_process_that_was_on_another_gpu_before_counts_on_this_one(rig: Rig) -> None:
    rig.nvml.table["GPU-0", PROCESSES] = process(4242)

    def change(_gpu: str | None, question: str) -> None:
        if question == "ClockInfo(1)":
            rig.nvml.table["GPU-1", PROCESSES] = process(4242)

    rig.nvml.before = change
    probed = rig.run("good", forced=True)
    assert probed.why == "a process that is not the probe's came to GPU 1: 4242"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations are asked more often than in service."""
    monkeypatch.setattr(runner, "ALLOCATIONS_SECONDS", 0.05)


@pytest.mark.usefixtures("often")
def test_a_new_allocation_ends_the_probe(rig: Rig) -> None:
    def asked() -> str | None:
        started = rig.pid_file.exists() and rig.pid_file.read_text("utf-8")
        return "pod default/train was given GPUs: GPU-1" if started else None

    began = time.monotonic()
    probed = rig.run("silent", allocations=asked)
    assert time.monotonic() - began < HANGS
    assert (probed.outcome, probed.why) == ("preempted", "pod default/train was given GPUs: GPU-1")
    assert dies(rig.pid(), 0.0)


@pytest.mark.usefixtures("often")
def test_allocations_that_cannot_be_asked_end_the_probe(rig: Rig) -> None:
    def asked() -> str | None:
        raise RuntimeError("the kubelet speaks in tongues")

    probed = rig.run("silent", allocations=asked)
    assert (probed.outcome, "speaks in tongues" in probed.why) == ("preempted", True)


@pytest.mark.usefixtures("often")
def test_an_answer_on_allocations_that_does_not_come_delays_nothing(rig: Rig, tmp_path: Path) -> None:
    answered = threading.Event()

    def asked() -> str | None:
        (tmp_path / "asked").touch()
        answered.wait(HANGS)
        return None

    began = time.monotonic()
    probed = rig.run("silent", 3.0, allocations=asked)
    assert (probed.outcome, (tmp_path / "asked").exists()) == ("timeout", True)
    assert time.monotonic() - began < HANGS
    answered.set()


@pytest.mark.usefixtures("often")
def test_allocations_are_not_asked_for_once_the_probe_is_over(rig: Rig) -> None:
    asked = 0

    def count() -> str | None:
        nonlocal asked
        asked += 1
        return None

    assert rig.run("silent", 0.3, allocations=count).outcome == "timeout"
    before = asked
    assert before > 0
    time.sleep(0.2)
    assert asked <= before + 1


def test_a_port_that_breaks_ends_the_worker_and_is_a_probe_that_failed(rig: Rig) -> None:
    def change(_gpu: str | None, question: str) -> None:
        if question == "ClockInfo(1)":
            raise RuntimeError("can't start new thread")

    rig.nvml.before = change
    probed = rig.run("good")
    assert (probed.outcome, probed.document) == ("failed", None)
    assert "can't start new thread" in probed.why
    assert dies(rig.pid())
