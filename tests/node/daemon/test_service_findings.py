"""Faults that come and go in a running daemon: what it holds, what an operator may say, what is kept."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.schemas import complaints
from tests.node.daemon.process import FAST, Daemon
from tests.processes import run_wirewatch

DEMO = ("--replay", "demo-dgx-h200")
LINK = '[[change]]\nport = "nvml"\nmatch = "gpu2/Field(165,7)"\nfrom = 0\nuntil = {until}\nset = 0\n'
XID = """
[[change]]
port = "kmsg"
match = "Records()"
set = ["4,2000,100000000000,-;NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=a, GPU has fallen off the bus."]
"""
NO_ANSWER, USAGE = 69, 64


def config(folder: Path, settle: float = 0.5) -> str:
    text = FAST.replace('socket = ""', f'socket = "{folder}/w.sock"')
    return (
        f'{text}\n[state]\ndirectory = "{folder}/state"\n[collectors.xid]\ninterval = 0.3\n'
        f"[probe]\nenabled = false\n[policy.verdict]\nsettle = {settle}\n"
    )


def daemon(folder: Path, overlay: str = "", settle: float = 0.5) -> Daemon:
    file = folder / "fault.toml"
    file.write_text(f'about = "a fault"\n{overlay}', "utf-8")
    change = ("--overlay", str(file)) if overlay else ()
    return Daemon((*DEMO, *change), folder, config(folder, settle))


def order(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of `wirewatch findings`."""
    done = run_wirewatch(
        "findings", *words, "--socket", f"{folder}/w.sock", env={**os.environ, "SUDO_USER": "night-shift"}
    )
    return done.returncode, done.stdout, done.stderr


def _checked(folder: Path, *words: str) -> str:
    """What `wirewatch check` says by the daemon."""
    return run_wirewatch("check", "--socket", f"{folder}/w.sock", "--cached", *words).stdout


def listed(running: Daemon) -> list[dict[str, Any]]:
    text = running.get("/api/v1/findings").text
    assert complaints("wirewatch.findings.1", text) == []
    document: dict[str, Any] = json.loads(text)
    return list(document["findings"])


def only(running: Daemon) -> dict[str, Any]:
    (finding,) = listed(running)
    return finding


def test_a_link_that_comes_back_is_on_probation_and_a_restart_forgets_nothing(tmp_path: Path) -> None:
    with daemon(tmp_path, LINK.format(until=6)) as running:
        running.wait("/health", '"health":"failed"')
        live = only(running)
        assert (live["rule"], live["stage"]) == ("nvlink.link_down", "live")
        reply = running.wait("/health", '"stage":"probation"', 30)
        assert reply.status == 200
        assert reply.json()["job_ready"] is True
        assert complaints("wirewatch.health.1", reply.text) == []
        series = running.get("/metrics").series()
        assert series["wirewatch_findings", frozenset({("stage", "probation")})] == 1
        running.terminate()
    with daemon(tmp_path) as again:
        again.ready()
        found = only(again)
        assert (found["id"], found["stage"], found["health"]) == (live["id"], "probation", "degraded")
        assert found["since"] == live["since"]
        code, text, _ = order(tmp_path, "repaired", found["id"], "--why", "cable replaced")
        assert (code, text.splitlines()[1]) == (0, "OK, the next job may start")
        assert "and the node is OK: jobs may start; it counts again if it comes back" in text
        assert listed(again) == []
        assert "night-shift: repaired" in again.log


def test_what_is_measured_now_is_not_talked_away_and_suppressing_shows(tmp_path: Path) -> None:
    with daemon(tmp_path, LINK.format(until=9999)) as running:
        running.wait("/health", '"health":"failed"')
        name = only(running)["id"]
        code, _, error = order(tmp_path, "repaired", name, "--yes", "--why", "I say so")
        assert (code, error.count("\n")) == (USAGE, 1)
        assert "is measured at this moment" in error
        assert running.get("/health").status == 503
        words = ("suppress", name, "--for", "2h", "--why", "part is ordered")
        code, text, error = order(tmp_path, *words)
        assert (code, text, error.count("\n")) == (USAGE, "", 1)
        assert "is FAILED; with this order" in error
        assert "does not count, and the node is OK: jobs may start; until 20" in error
        assert error.endswith("order it with --yes\n")
        assert running.get("/health").status == 503
        code, text, _ = order(tmp_path, *words, "--yes")
        assert code == 0
        assert text.startswith(f"{name} does not count, and the node is OK: jobs may start; until 20")
        assert "suppressed until" in text
        assert "by night-shift" in text
        document = running.get("/health").json()
        assert (document["health"], [one["id"] for one in document["suppressed"]]) == ("ok", [name])
        done = run_wirewatch("check", "--socket", f"{tmp_path}/w.sock", "--cached")
        assert (done.returncode, done.stdout.startswith("OK; suppressed until 20")) == (0, True)
        assert ": FAILED nvlink.link_down GPU 2 link 7" in done.stdout
        done = run_wirewatch("check", "--socket", f"{tmp_path}/w.sock", "--cached", "--json")
        (kept,) = json.loads(done.stdout)["suppressed"]
        assert (kept["id"], kept["suppressed"]["by"]) == (name, "night-shift")
        assert kept["suppressed_until"] > kept["suppressed"]["at"]
        series = running.get("/metrics").series()
        assert series["wirewatch_findings", frozenset({("stage", "suppressed")})] == 1
        assert not [key for key in series if key[0] == "wirewatch_finding_severity"]
        code, text, _ = order(tmp_path, "unsuppress", name, "--why", "part is here")
        told = "FAILED, no job may start: nvlink.link_down GPU 2 link 7: "
        assert (code, text.splitlines()[1].startswith(told)) == (0, True)


def test_a_fatal_xid_stands_until_an_operator_says_that_it_was_repaired(tmp_path: Path) -> None:
    with daemon(tmp_path, XID) as running:
        running.ready()
        # The kernel's log is read before it is known which GPU is at the address.
        running.wait("/health", '"rule":"xid.79","health":"failed","subject":{"gpu":')
        name = next(f["id"] for f in listed(running) if f["rule"] == "xid.79")
        for _ in range(2):
            code, text, error = order(tmp_path, "ack", name[:5], "--why", "seen, looking at it")
            assert (code, error) == (0, "")
            assert "counts as FAILED as before, and no job may start" in text
            assert running.get("/health").status == 503
        words = ("repaired", name[:5], "--why", "reset by hand")
        code, text, error = order(tmp_path, *words)
        assert (code, text) == (USAGE, "")
        assert "xid.79 GPU 5 is FAILED; with this order" in error
        assert running.get("/health").status == 503
        code, text, error = order(tmp_path, *words, "--yes")
        assert (code, error) == (0, "")
        assert "repaired by night-shift: reset by hand" in text
        assert running.get("/health").status == 200
        document = json.loads(_checked(tmp_path, "--json"))
        (given,) = document["orders"]
        assert (given["order"], given["by"], given["why"]) == ("repaired", "night-shift", "reset by hand")
        assert given["what"].startswith("xid.79 ")
        assert "; repaired by night-shift: xid.79 " in _checked(tmp_path)
        assert given["undo"] == f"wirewatch findings repaired {name} --undo"
        assert order(tmp_path, *given["undo"].split()[2:], "--why", "it was another node")[0] == 0
        assert running.get("/health").status == 503
        assert order(tmp_path, *words, "--yes")[0] == 0
        running.terminate()
    with daemon(tmp_path, XID) as again:
        # The kernel log still tells of it: it is the same event.
        again.ready()
        assert next(f for f in listed(again) if f["rule"] == "xid.79")["stage"] == "probation"
        assert again.get("/health").status == 200


def test_a_file_that_is_not_understood_is_put_aside_and_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/latches.json").write_text('{"version": 1, "entr', "utf-8")
    with daemon(tmp_path) as running:
        running.ready()
        found = only(running)
        assert (found["rule"], found["health"], found["stage"]) == ("verdict.latches", "unknown", "latched")
        (kept,) = (tmp_path / "state").glob("latches.json.corrupt-*")
        assert str(kept) in found["evidence"]
        assert kept.read_text("utf-8") == '{"version": 1, "entr'
        assert running.get("/health").status == 503
        assert order(tmp_path, "repaired", found["id"], "--why", "looked at it")[0] == 0
        assert running.get("/health").status == 200


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ack", "00000000", "--why", "x"), USAGE, "no finding has an id that begins with '00000000'"),
        (("ack", "00", "--why", "x"), USAGE, "at least 4 digits"),
        (("ack", "../..", "--why", "x"), USAGE, "is not the id"),
        (("suppress", "00000000", "--why", "x"), USAGE, "give either --until or --for"),
        (("ack", "00000000"), USAGE, "--why"),
    ],
)
def test_wrong_orders_get_one_line(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    with daemon(tmp_path) as running:
        running.ready()
        got, output, error = order(tmp_path, *words)
        assert (got, output) == (code, "")
        assert said in error
        assert error.count("\n") == 1


def test_nobody_there_is_one_line(tmp_path: Path) -> None:
    for words in (("list",), ("ack", "00000000", "--why", "x")):
        code, output, error = order(tmp_path, *words)
        assert (code, output, error.count("\n")) == (NO_ANSWER, "", 1)
        assert str(tmp_path) in error
