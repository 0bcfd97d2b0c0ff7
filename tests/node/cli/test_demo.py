"""`wirewatch demo`: a fault and its verdict, found by the other commands, and nothing left at its end."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.node.cli.checks import Checked
from tests.node.cli.checks import check as checked
from tests.node.daemon.process import FAST, SOON, Daemon
from tests.patience import HANGS
from tests.processes import Process, run_wirewatch
from tests.rows import each
from wirewatch.catalogue import discover
from wirewatch.cli import cli
from wirewatch.cli import demo as module
from wirewatch.cli import serve as serving
from wirewatch.cli.check import daemon
from wirewatch.cli.check.daemon import OF_DEMO, daemon_address
from wirewatch.cli.demo import CONFIG, LEAD, DemoReport, own_name, private_folder
from wirewatch.config import load
from wirewatch.core.types import Health
from wirewatch.hw.overlay import Overlay, bundled_overlays, load_overlay
from wirewatch.server.sockets import ListenError, demo_path

OK, FAILED, UNKNOWN, USAGE, UNUSABLE = 0, 2, 3, 64, 78
LISTEN = ("--listen", "127.0.0.1:0")
END = "Ctrl-C ends the demo"


Demo = tuple[Process, list[str], dict[str, str]]


@contextmanager
def running(folder: Path, *words: str, until: str = END) -> Iterator[Demo]:
    """A demo of its own user, once it has said `until`; the process, its lines and its environment."""
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    out, err = folder / "out", folder / "err"
    with out.open("wb") as told, err.open("wb") as wrong:
        process = Process(("wirewatch", "demo", *words), told, wrong, env)
    try:
        end = time.monotonic() + SOON
        while until not in out.read_text("utf-8"):
            late = process.poll() is not None or time.monotonic() > end
            assert not late, (out.read_text("utf-8"), err.read_text("utf-8"))
            time.sleep(0.05)
        yield process, out.read_text("utf-8").splitlines(), env
    finally:
        process.kill()
        process.wait()


def asked(env: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return run_wirewatch(*words, env=env)


def test_a_fault_comes_to_its_verdict_and_the_other_commands_find_it(tmp_path: Path) -> None:
    with running(tmp_path, "nvlink-link-down", *LISTEN) as (process, lines, env):
        text = "\n".join(lines)
        assert text.startswith("A recorded node of eight H200, not this machine; fault nvlink-link-down")
        assert "nvlink.link_down GPU 2 link 7: inactive; 17 of 18 links up" in " ".join(text.split())
        assert max(map(len, lines)) <= 80
        for words in ("check", "findings list", "topology show", "explain", "status", "top"):
            assert f"  wirewatch {words} " in text
        assert re.search(r"  http://127\.0\.0\.1:\d+/  ", text)

        done = asked(env, "check")
        assert done.returncode == FAILED
        assert done.stdout.startswith("FAILED (demo) nvlink.link_down GPU 2 link 7: inactive")
        done = asked(env, "check", "--json")
        told = Checked(done.returncode, done.stdout, done.stderr)
        assert (told.document["source"], told.document["why"]) == ("demo", OF_DEMO)

        for command in (("findings", "list"), ("topology", "show"), ("status",), ("top", "--once")):
            done = asked(env, *command)
            assert done.stderr == f"wirewatch: {OF_DEMO}\n", command
            assert "UNKNOWN" not in done.stdout
        assert asked(env, "explain").stderr.splitlines()[0] == f"wirewatch: {OF_DEMO}"
        listed = json.loads(asked(env, "findings", "list", "--json").stdout)
        identity = listed["findings"][0]["id"]
        done = asked(env, "findings", "suppress", identity, "--for", "1h", "--yes", "--why", "to try it")
        assert (done.returncode, done.stderr) == (OK, f"wirewatch: {OF_DEMO}\n")

        process.send_signal(signal.SIGINT)
        assert process.wait(SOON) == OK
        assert (tmp_path / "err").read_text("utf-8") == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err", "out"]


def test_a_healthy_node_lists_the_faults_to_try(tmp_path: Path) -> None:
    with running(tmp_path, *LISTEN, until="has a sentence about each") as (process, lines, _):
        words = set(" ".join(lines).split())
        assert set(bundled_overlays()) <= words
        assert any("OK" in line and "a job may start" in line for line in lines)
        assert "FAILED" not in words
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON) == OK


def test_a_real_daemon_wins(tmp_path: Path) -> None:
    with running(tmp_path, "nvlink-link-down", *LISTEN) as (_, _, env):
        place = f"{tmp_path}/wirewatch/wirewatch.sock"
        config = FAST.replace('socket = ""', f'socket = "{place}"')
        (tmp_path / "daemon").mkdir()
        with Daemon(("--replay", "h200x4-idle"), tmp_path / "daemon", config) as real:
            real.ready()
            env["RUNTIME_DIRECTORY"] = f"{tmp_path}/wirewatch"
            done = asked(env, "findings", "list")
            assert (OF_DEMO in done.stderr, "nvlink.link_down" in done.stdout) == (False, False)
        # It has left its socket behind, and answers no more.
        assert asked(env, "findings", "list").stderr == f"wirewatch: {OF_DEMO}\n"


@contextmanager
def made_run(folder: Path, env: dict[str, str]) -> Iterator[Process]:
    """What `make run` starts on a machine without GPUs, once it listens; its log is `folder`/log."""
    log = folder / "log"
    with log.open("wb") as told:
        process = Process(("wirewatch", "demo", "--here", *LISTEN), None, told, env)
    try:
        end = time.monotonic() + SOON
        while "/api/v1/state" not in log.read_text("utf-8"):
            late = process.poll() is not None or time.monotonic() > end
            assert not late, log.read_text("utf-8")
            time.sleep(0.05)
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON) == OK
    finally:
        process.kill()
        process.wait()


def test_the_other_commands_find_what_make_run_starts_without_gpus(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with made_run(tmp_path, env):
        end = time.monotonic() + SOON
        while asked(env, "check", "--cached").returncode != OK:
            assert time.monotonic() < end, (tmp_path / "log").read_text("utf-8")
        assert asked(env, "check").stdout.startswith("OK (demo)")
        for command in (("status",), ("findings", "list"), ("topology", "show")):
            done = asked(env, *command)
            assert (done.returncode, done.stderr) == (OK, f"wirewatch: {OF_DEMO}\n"), command
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_demo_that_runs_already_stays_the_one_that_is_asked(tmp_path: Path) -> None:
    with running(tmp_path, *LISTEN, until="has a sentence about each") as (_, _, env):
        with made_run(tmp_path, env):
            pass
        told = (tmp_path / "log").read_text("utf-8")
        assert "commands without --socket do not find this one: a demo runs already" in told
        assert asked(env, "check").returncode == OK


def test_where_no_folder_can_be_made_it_answers_over_http_alone(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    with made_run(tmp_path, {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "taken")}):
        pass
    assert "do not find this one: cannot make" in (tmp_path / "log").read_text("utf-8")


def test_a_second_demo_is_refused_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path, *LISTEN, until="has a sentence about each") as (_, _, env):
        done = asked(env, "demo", *LISTEN)
        assert done.returncode == UNUSABLE
        (line,) = done.stderr.splitlines()
        assert "a demo runs already" in line
        # It has not taken anything from the first one.
        assert asked(env, "check").returncode == OK


def test_a_busy_port_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        done = asked(env, "demo", "xid-79", "--listen", f"127.0.0.1:{port}")
    assert done.returncode == UNUSABLE
    (line,) = done.stderr.splitlines()
    assert f"127.0.0.1:{port}: another program uses that port; choose one, such as --listen" in line
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_address_is_wrong_usage() -> None:
    done = run_wirewatch("demo", "--listen", "here")
    assert (done.returncode, done.stderr) == (USAGE, "wirewatch: --listen: 'here' is not HOST:PORT\n")


def test_its_configuration_keeps_what_confirms_a_fault() -> None:
    """Hurried are times alone: a fault is confirmed by as many looks as everywhere."""
    config, collectors = load(CONFIG, discover())
    usual, every = load(None, discover())
    # Between hurried polls there is no time for GPM, of which the recording has nothing anyway.
    assert {c.name for c in collectors} == {c.name for c in every} - {"lockstep"}
    judging = ("nvlink", "pcie", "gpu", "infiniband", "inventory", "gpudirect")
    assert {c.name for c in collectors if c.options.interval <= 2.0} >= {*judging, "topology", "xid", "jobs"}
    for name in judging:
        mine, theirs = (getattr(one.policy, name).confirm for one in (config, usual))
        assert mine == theirs
    assert config.policy.verdict == usual.policy.verdict


def test_no_gate_asks_a_demo_on_a_machine_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(daemon, "SYSTEM", str(tmp_path / "system.sock"))
    Path(demo_path()).parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(demo_path())
        listening.listen()
        monkeypatch.setattr(daemon, "_DRIVER", ("/nowhere",))
        assert daemon_address(None, None, gate=True).demo
        monkeypatch.setattr(daemon, "_DRIVER", ("/proc",))
        assert not daemon_address(None, None, gate=True).demo
        assert daemon_address(None, None).demo
        config = tmp_path / "wirewatch.toml"
        config.write_text("", "utf-8")
        assert not daemon_address(None, config).demo


def test_a_check_without_a_terminal_is_a_gate() -> None:
    done = checked("--cached", "--socket", "")
    assert done.code == UNKNOWN


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ListenError, match="not a folder of this user alone"), private_folder(folder):
        pass
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(ListenError, match="not a folder of this user alone"), private_folder(folder):
        pass


def test_the_folder_of_a_user_without_one_is_named_by_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert demo_path() == "/tmp/wirewatch-demo-1234/wirewatch.sock"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert demo_path() == "/run/wirewatch-demo/wirewatch.sock"


def test_the_commands_to_type_are_those_that_the_shell_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_name(".venv/bin/wirewatch") == ".venv/bin/wirewatch"
    assert own_name("/usr/lib/python3/wirewatch/__main__.py") == "wirewatch"
    (tmp_path / "wirewatch").write_text("", "utf-8")
    (tmp_path / "wirewatch").chmod(0o755)
    assert own_name(".venv/bin/wirewatch") == "wirewatch"


# --- what the demo says


def health(job_ready: bool = True, node: str = "ok", **found: str) -> Any:  # noqa: FBT001, FBT002
    """A document with findings: each with its rule and health; `job` stands aside."""
    findings = [
        SimpleNamespace(rule=rule, health=health, subject={}, evidence=f"{rule} seen", action="look")
        for rule, health in found.items()
    ]
    aside = [one for one in findings if one.rule == "job"]
    counted = [one for one in findings if one.rule != "job"]
    return SimpleNamespace(health=node, job_ready=job_ready, findings=counted, aside=aside, at=0.0)


def report(overlay: Any, *documents: Any, patience: float = HANGS, jobs: bool = False) -> list[str]:
    """What is said until no document is left; of the last one three times."""
    said: list[str] = []
    shown = iter((*documents, documents[-1], documents[-1]))
    polls = iter((False, True))
    source = SimpleNamespace(
        ready=lambda: next(polls), health=lambda: next(shown), node=lambda: SimpleNamespace(state=None)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AGAIN", 0.0)
        patch.setattr(module, "ENOUGH", patience)
        found = SimpleNamespace(jobs=[1] if jobs else [])
        patch.setattr("wirewatch.documents.judged.jobs", lambda *_: found)
        one = DemoReport(overlay, time.monotonic(), said.append)
        one.answers_at("http://h:1")
        with pytest.raises(RuntimeError):  # no document is left
            asyncio.run(one.run(source))  # type: ignore[arg-type]
    return said


def test_a_change_is_said_once_and_a_confirmed_one_again() -> None:
    bad = health(False, "failed", gpu="degraded", nic="failed")  # noqa: FBT003
    said = report(None, health(), health(), bad, health(False, "failed", gpu="failed", nic="failed"))  # noqa: FBT003
    words = [re.sub(r"^\d+ s ", "", " ".join(one.split())) for one in said]
    changes = [one for one in words if one.startswith(("OK", "FAILED", "gpu", "nic", "->"))]
    assert changes == [
        "OK a job may start", "FAILED no job may start", "gpu node: gpu seen", "-> look",
        "nic node: nic seen", "-> look", "FAILED no job may start",
        "gpu node: confirmed, FAILED",
    ]  # fmt: skip


FAULT: Any = SimpleNamespace(
    name="f", about="a fault", findings=[SimpleNamespace(rule="gpu", health=Health.FAILED)]
)
HANG: Any = SimpleNamespace(
    name="h", about="a hang", findings=[SimpleNamespace(rule="job", health=Health.DEGRADED)]
)


@each(
    ("overlay", "late", "found", "told"),
    [
        (None, False, {}, True),
        (FAULT, False, {}, False),
        (FAULT, False, {"gpu": "degraded"}, False),
        (FAULT, False, {"nic": "failed"}, False),
        (FAULT, False, {"gpu": "failed", "nic": "failed"}, True),
        (FAULT, True, {}, True),
        (HANG, False, {"job": "degraded"}, True),
        (SimpleNamespace(name="f", about="a", findings=[]), False, {}, False),
        (SimpleNamespace(name="f", about="a", findings=[]), True, {}, True),
    ],
)
def test_the_next_commands_are_said_once_the_fault_is_found_or_the_time_is_up(
    overlay: Any, found: dict[str, str], *, late: bool, told: bool
) -> None:
    said = report(overlay, health(True, "ok", **found), patience=-1.0 if late else HANGS)  # noqa: FBT003
    assert sum("from another terminal" in one for one in said) == told
    assert any("http://h:1/metrics" in one for one in said) is told
    assert any("demo overlays" in one for one in said) is (told and overlay is None)
    assert any(END in one for one in said) is (told and overlay is not None)


def test_a_person_waits_twelve_seconds_for_the_next_commands_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the report's own pauses move, of a fifth of a second each."""
    clock, slept, said = [100.0], list[float](), list[tuple[float, str]]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds
        if clock[0] > 120.0:
            raise TimeoutError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("wirewatch.documents.judged.jobs", lambda *_: SimpleNamespace(jobs=[]))
    source: Any = SimpleNamespace(ready=lambda: True, health=health, node=lambda: SimpleNamespace(state=None))
    one = DemoReport(FAULT, 100.0, lambda text: said.append((clock[0], text)))
    with pytest.raises(TimeoutError):
        asyncio.run(one.run(source))
    (at,) = [at for at, text in said if "from another terminal" in text]
    assert 112.0 < at < 112.5
    assert set(slept) == {0.2}


@pytest.mark.parametrize("jobs", [False, True])
def test_explain_is_offered_with_whether_a_job_runs(jobs: bool) -> None:  # noqa: FBT001
    text = "\n".join(report(None, health(), jobs=jobs))
    assert ("as it is; none runs here" in text) is not jobs


@pytest.mark.parametrize(("overlay", "words"), [(None, "nothing is wrong"), (FAULT, "fault f: a fault")])
def test_it_begins_with_what_is_shown(monkeypatch: pytest.MonkeyPatch, overlay: Any, words: str) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    said: list[str] = []
    DemoReport(overlay, 0.0, said.append).begin()
    (text,) = said
    assert " ".join(text.split()) == f"A recorded node of eight H200, not this machine; {words}."
    assert max(map(len, text.split("\n"))) <= 60
    assert text.endswith("\n")


@pytest.mark.parametrize(("columns", "most"), [("50", 58), ("100", 100)])
def test_a_paragraph_is_no_narrower_than_can_be_read(
    monkeypatch: pytest.MonkeyPatch, columns: str, most: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said: list[str] = []
    DemoReport(None, 0.0, said.append)._paragraph("head".ljust(18), "word " * 40)  # noqa: SLF001
    lines = said[0].split("\n")
    assert most - 5 < max(map(len, lines)) <= most
    assert all(line.startswith(" " * 18) for line in lines[1:])
    DemoReport(None, 0.0, said.append)._paragraph("head", "")  # noqa: SLF001
    assert said[-1] == "head"


def demo_run(patch: pytest.MonkeyPatch, *words: str, began: float | None = 7.0) -> tuple[Any, str]:
    """The options of the daemon that would run, and what is printed."""
    noted: list[Any] = []
    patch.setattr(
        serving, "run_serve", lambda given, reporters, listening: noted.append((given, reporters, listening))
    )
    done = CliRunner().invoke(cli, words, obj=began)
    return (noted[0] if noted else None), done.output


@pytest.mark.parametrize(("fault", "overlays"), [((), ()), (("xid-79",), ("xid-79",))])
def test_a_demo_is_a_daemon_on_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: tuple[str, ...], overlays: tuple[str, ...]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (given, reporters, listening), text = demo_run(monkeypatch, "demo", *fault)
    assert (given.replay, given.overlays, given.loop, given.lead) == ("demo-dgx-h200", overlays, True, LEAD)
    assert (given.listen, given.socket) == ("127.0.0.1:9410", demo_path())
    assert text.startswith("A recorded node")
    assert (reporters.demo._began, listening) == (7.0, reporters.demo.answers_at)  # noqa: SLF001
    assert (reporters.demo._overlay is None) is not bool(fault)  # noqa: SLF001
    before = time.monotonic()
    (_, reporters, _), _ = demo_run(monkeypatch, "-v", "demo", began=None)
    assert before <= reporters.demo._began <= time.monotonic()  # noqa: SLF001
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_this_users_and_goes_with_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a" / "demo"
    with private_folder(folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "x.sock").write_text("")
    assert not folder.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ListenError, match="cannot make"), private_folder(tmp_path / "file"):
        pass
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(ListenError, match="not a folder of this user alone"), private_folder(folder):
        pass


# --- overlays for somebody who waits


def times(overlay: Overlay) -> list[tuple[float, float]]:
    return sorted({(one.start, one.until) for one in overlay.changes})


def test_a_hurried_fault_begins_soon_and_keeps_its_order() -> None:
    flapping = load_overlay("ib-port-flapping").hurried(LEAD)
    told = [(start, until) for start, until in times(flapping) if start]
    assert told == [(3.0, 5.25), (6.0, 8.25), (9.0, 11.25)]


@each("name", bundled_overlays())
def test_every_hurried_fault_has_begun_within_seconds(name: str) -> None:
    written, hurried = load_overlay(name), load_overlay(name).hurried(LEAD)
    assert hurried.begun <= LEAD + 6.0
    assert hurried.findings == written.findings
    for before, now in zip(written.changes, hurried.changes, strict=True):
        assert (before.start == 0.0) == (now.start == 0.0)
        assert now.start < now.until
        assert (before.action, before.argument, before.match) == (now.action, now.argument, now.match)
