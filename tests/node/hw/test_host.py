"""The machine and its processes, as they are here."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from wirewatch.core.ports import ProcessUse, Question
from wirewatch.core.types import Absent, Why
from wirewatch.hw.host import CATALOGUE, SystemClock, SystemHost


@pytest.mark.parametrize("question", CATALOGUE, ids=str)
def test_every_question_of_the_catalogue_has_an_answer(question: Question) -> None:
    value = SystemHost().ask(question).value
    assert isinstance(value, str | int | float)
    assert value


def test_the_boot_id_is_the_kernel_s() -> None:
    value = SystemHost().ask(Question("BootId")).value
    assert isinstance(value, str)
    assert str(uuid.UUID(value)) == value


def test_the_machine_booted_before_now() -> None:
    value = SystemHost().ask(Question("BootTime")).value
    assert isinstance(value, float)
    assert 0 < value < time.time() + 1


def test_a_boot_time_that_the_kernel_does_not_show_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before: psutil's RuntimeError made the collector of XIDs blind in some sandboxes."""
    (tmp_path / "stat").write_text("cpu  1 2 3 4\n", "ascii")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    answer = SystemHost().ask(Question("BootTime")).value
    assert isinstance(answer, Absent)
    assert answer.why is Why.MISSING


def test_an_unknown_question_is_unsupported() -> None:
    value = SystemHost().ask(Question("Weather")).value
    assert isinstance(value, Absent)
    assert value.why is Why.UNSUPPORTED


def test_our_own_process_is_reported_with_and_without_its_number() -> None:
    host = SystemHost()
    for pid in (None, os.getpid()):
        use = host.process(pid)
        assert isinstance(use, ProcessUse)
        assert use.cpu_seconds > 0
        assert use.resident_bytes > 1_000_000


def test_cpu_seconds_of_a_process_only_grow() -> None:
    host = SystemHost()
    before = host.process(None)
    assert isinstance(before, ProcessUse)
    while time.process_time() < before.cpu_seconds + 0.05:
        pass
    after = host.process(None)
    assert isinstance(after, ProcessUse)
    assert after.cpu_seconds > before.cpu_seconds


def test_a_process_that_has_ended_is_missing_also_when_it_was_known() -> None:
    host = SystemHost()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert isinstance(host.process(process.pid), ProcessUse)
    for _ in range(2):
        absent = host.process(process.pid)
        assert isinstance(absent, Absent)
        assert absent.why is Why.MISSING


def test_the_clock_has_unix_time_and_a_time_that_never_goes_back() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    assert clock.mono() <= clock.mono()
