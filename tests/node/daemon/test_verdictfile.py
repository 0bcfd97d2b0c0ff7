"""The file of the verdict, as a real daemon keeps it and as its writer survives what hangs."""

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.checks import check
from tests.node.cli.gatefile import gate, now, verdict_of
from tests.node.cli.replies import health
from tests.node.daemon.process import FAST, SOON, Daemon
from tests.node.kubernetes.views import OK
from tests.support import StillClock
from wirewatch.daemon import notify
from wirewatch.daemon.board import ReportSource
from wirewatch.daemon.notify import VerdictFile, verdict_path
from wirewatch.daemon.persistence import write
from wirewatch.documents.health import HealthDocument
from wirewatch.documents.state import HEALTH
from wirewatch.documents.verdictfile import EVERY, FileVerdict
from wirewatch.hw.host import SystemClock

DOCUMENT = HEALTH.validate_python(health(1e9))


def fields(file: Path) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in file.read_text("ascii").splitlines())


def test_a_daemon_keeps_it_beside_its_socket(tmp_path: Path) -> None:
    file = tmp_path / "verdict"
    file.write_text("left behind")
    config = FAST.replace('socket = ""', f'socket = "{tmp_path}/wirewatch.sock"')
    with Daemon(("--replay", "demo-dgx-h200"), tmp_path, config) as daemon:
        daemon.wait("/health", '"health":"ok"')
        await_line(file, "OK")
        assert file.stat().st_mode & 0o777 == 0o644
        assert fields(file)["source"] == "synthetic"
        said, asked = gate(file, "--recording"), check("--cached", "--socket", f"{tmp_path}/wirewatch.sock")
        assert (said.code, said.line) == (asked.code, asked.line)
        assert "not this node" in gate(file).line
        for listed in ("0-3", "9"):
            of_job = ("--gpus", listed, "--of", "8")
            said = gate(file, "--recording", *of_job)
            asked = check("--cached", "--socket", f"{tmp_path}/wirewatch.sock", *of_job)
            assert (said.code, said.line) == (asked.code, asked.line)
        daemon.terminate()
        assert not file.exists()
        assert not list(tmp_path.glob("verdict*"))


def await_line(file: Path, text: str) -> None:
    wait_for(lambda: file.exists() and fields(file).get("line", "").startswith(text))


def wait_for(wanted: Any) -> None:
    end = time.monotonic() + SOON
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_without_a_socket_there_is_none() -> None:
    assert verdict_path("") is None
    assert verdict_path("/run/wirewatch/verdict") is None, "the name of the socket itself"
    assert verdict_path("/run/wirewatch/wirewatch.sock") == Path("/run/wirewatch/verdict")


def test_what_hangs_between_the_verdict_and_the_disk_makes_the_file_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of the time before the verdict was taken; while a write hangs, no other is queued behind it."""
    monkeypatch.setattr(notify, "LOOK", 0.01)
    monkeypatch.setattr(notify, "EVERY", 0.0)
    hanging, released, writes = threading.Event(), threading.Event(), []

    def slow(path: Path, text: bytes, mode: int) -> str:
        writes.append(text)
        hanging.set()
        released.wait(SOON)
        return write(path, text, mode)

    monkeypatch.setattr(notify, "write", slow)

    def late(_: HealthDocument) -> FileVerdict:
        later = now(-0.2).uptime
        wait_for(lambda: now().uptime > later)
        return verdict_of(DOCUMENT)

    async def story() -> None:
        file = VerdictFile(tmp_path / "verdict", late, SystemClock())
        source = ReportSource(lambda: OK, lambda: True, lambda: True, lambda: DOCUMENT)
        running = asyncio.create_task(file.run(source))
        await asyncio.to_thread(hanging.wait, SOON)
        later = now(-0.2).uptime
        await asyncio.to_thread(wait_for, lambda: now().uptime > later)
        assert len(writes) == 1
        assert float(writes[0].split()[5]) < later - 0.35
        running.cancel()
        released.set()
        await asyncio.to_thread(wait_for, (tmp_path / "verdict").exists)

    asyncio.run(story())


def kept(folder: Path) -> VerdictFile:
    return VerdictFile(folder / "verdict", lambda _: verdict_of(DOCUMENT), StillClock())


def test_a_daemon_that_has_ended_leaves_no_file_and_writes_none(tmp_path: Path) -> None:
    file = kept(tmp_path)
    save, path = vars(VerdictFile)["_save"], tmp_path / "verdict"
    assert save(file, path) == ""
    assert not path.exists(), "nothing is known yet"
    vars(file)["_newest"] = (verdict_of(DOCUMENT), now())
    assert save(file, path) == ""
    assert path.exists()
    file.remove()
    assert not path.exists()
    assert save(file, path) == ""
    assert not path.exists()
    file.remove()


def test_an_end_waits_for_a_write_and_not_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "LOOK", 0.01)
    file, path = kept(tmp_path), tmp_path / "verdict"
    vars(file)["_newest"] = (verdict_of(DOCUMENT), now())
    held: list[bool] = []

    def hang(where: Path, text: bytes, mode: int) -> str:
        held.append(vars(file)["_lock"].locked())
        file.remove()
        return write(where, text, mode)

    monkeypatch.setattr(notify, "write", hang)
    assert vars(VerdictFile)["_save"](file, path) == ""
    assert (held, path.exists()) == ([True, True], True)


def test_it_is_written_when_the_verdict_changes_and_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of the last probe alone is no change; what another agent left behind goes at once."""
    monkeypatch.setattr(notify, "LOOK", 0.0)
    monkeypatch.setattr(notify, "SOON", 0.0)
    path, clock, first = tmp_path / "verdict", StillClock(), verdict_of(DOCUMENT)
    path.write_text("left behind")
    changed = replace(first, line="changed")
    steps = [
        (0.0, first), (1.0, replace(first, probe=77)), (2.0, changed),
        (2.0 + EVERY - 0.1, replace(changed, probe=5)), (2.0 + EVERY, changed),
    ]  # fmt: skip
    written: list[float] = []
    polls = [False, False, True]

    def ready() -> bool:
        assert not path.exists()
        return polls.pop(0)

    def taken(_: HealthDocument) -> FileVerdict:
        if not steps:
            raise EOFError
        clock.seconds, verdict = steps.pop(0)
        return verdict

    def saved(where: Path, _text: bytes, _mode: int) -> str:
        if where == path:
            written.append(clock.seconds)
        return ""

    monkeypatch.setattr(notify, "write", saved)
    source = ReportSource(lambda: OK, ready, lambda: True, lambda: DOCUMENT)
    with pytest.raises(EOFError):
        asyncio.run(VerdictFile(path, taken, clock).run(source))
    assert (written, polls) == ([0.0, 2.0, 2.0 + EVERY], [])
