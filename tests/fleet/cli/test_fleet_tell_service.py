"""What pairs of nodes found out, told to a running daemon: shown, kept, cleared, refused."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.node.daemon.process import FAST, Daemon
from tests.processes import run_wirewatch
from wirewatch.client import request
from wirewatch.core.pairs import Measure, PartKind, Way
from wirewatch_fleet.cli import tell as tell_module
from wirewatch_fleet.pairs.document import PAIRS, MemberEntry, PairsDocument, SlowEntry
from wirewatch_fleet.pairs.model import WayLoss
from wirewatch_fleet.pairs.naming import TypicalRate

DEMO = ("--replay", "demo-dgx-h200")
OK, DEGRADED, FAILED, UNKNOWN, USAGE, NO_ANSWER = 0, 1, 2, 3, 64, 69


def slow(loss: float, kind: PartKind = PartKind.NODE, rail: str = "mlx5_3", peer: str = "") -> SlowEntry:
    losses = [WayLoss(Way.SENDS, loss, loss - 0.01, loss + 0.01, 3, 4, 3, 40.0)]
    members = ["n1", *filter(None, [peer])]
    return SlowEntry(
        kind, "n1", peer, rail, across=False, measure=Measure.RAILS, losses=losses, members=members,
        action="look",
    )  # fmt: skip


def result(folder: Path, *named: SlowEntry, at: float, partners: tuple[str, ...] = ("n2",)) -> str:
    members = [
        MemberEntry("n1", 3, 3, 0.1, None, list(partners)), MemberEntry("n2", 3, 3, None, None, ["n1"]),
        MemberEntry("n3", 3, 0, None, None), MemberEntry("c1", 3, 3, None, None, ["n1"], ["tray0", "tray1"]),
    ]  # fmt: skip
    made = PairsDocument(
        "wirewatch.fleet-pairs/1", at, "failed" if named else "ok", 3, 6, 6, list(named), [], [], [], [],
        [TypicalRate(Measure.RAILS, across=True, rate=46e9)], 0.006, 0.03, members, None,
    )  # fmt: skip
    path = folder / f"result-{at:.0f}.json"
    path.write_bytes(PAIRS.dump_json(made))
    return str(path)


def daemon(folder: Path, more: str = "") -> Daemon:
    text = FAST.replace('socket = ""', f'socket = "{folder}/w.sock"')
    config = (
        f'{text}\n[state]\ndirectory = "{folder}/state"\n[pairs]\ninterval = 0.3\n[probe]\nenabled = false\n'
        f"[policy.verdict]\nsettle = 0.5\n{more}"
    )
    return Daemon(DEMO, folder, config)


def tell(folder: Path, file: str, *words: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of `wirewatch fleet tell`, as n1 by its variable."""
    return ran(folder, "fleet", "tell", file, *words)


def ran(folder: Path, *words: str) -> tuple[int, str, str]:
    done = run_wirewatch(
        *words, "--socket", f"{folder}/w.sock",
        env={**os.environ, "SUDO_USER": "night-shift", "SLURMD_NODENAME": "n1"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def rules(running: Daemon) -> dict[str, tuple[str, str]]:
    found = running.get("/api/v1/findings").json()["findings"]
    return {one["rule"]: (one["health"], one["stage"]) for one in found}


def test_a_slow_rail_is_shown_everywhere_kept_over_a_restart_and_ended_by_a_newer_result(
    tmp_path: Path,
) -> None:
    at = time.time() - 600
    with daemon(tmp_path) as running:
        running.ready()
        code, text, _ = tell(
            tmp_path, result(tmp_path, slow(0.1), slow(0.2, PartKind.PAIR, peer="n2"), at=at)
        )
        told, answer, *_ = text.splitlines()
        assert (code, told) == (OK, "told: as n1, 2 parts are slow")
        assert answer.startswith("DEGRADED, the next job may start: pairs.route mlx5_3: n1 to n2: 20")
        assert "pairs.slow  mlx5_3  live" in text
        assert (
            "as n1: sends 10.0% slower (9.0% to 11.0%) in 3 of 4 runs with 3 partners on rail mlx5_3" in text
        )
        assert rules(running) == {"pairs.slow": ("degraded", "live"), "pairs.route": ("degraded", "live")}
        done = run_wirewatch("check", "--socket", f"{tmp_path}/w.sock", "--cached")
        assert (done.returncode, done.stdout.startswith("DEGRADED pairs.")) == (OK, True)
        assert "n1 to n2: 20.0% slower" in running.get("/").text
        series = running.get("/metrics").series()
        assert series["wirewatch_pairs_loss_ratio", frozenset({("kind", "node"), ("way", "sends")})] == 0.1
        assert series["wirewatch_pairs_loss_ratio", frozenset({("kind", "pair"), ("way", "sends")})] == 0.2
        severe = [dict(labels) for name, labels in series if name == "wirewatch_finding_severity"]
        assert not any("n2" in labels.values() for labels in severe)
        assert running.terminate()[0] == 0
    # A check of its own, without a daemon, reads what was told.
    done = run_wirewatch("check", "--config", f"{tmp_path}/wirewatch.toml", *DEMO)
    assert done.stdout.startswith("DEGRADED pairs.route mlx5_3: n1 to n2: 20")
    with daemon(tmp_path) as again:
        again.ready()
        again.wait("/api/v1/findings", '"pairs.slow"')
        code, text, _ = tell(tmp_path, result(tmp_path, at=at + 60))
        assert (code, text.splitlines()[0]) == (OK, "told: as n1, nothing is slow between the nodes")
        assert rules(again) == {}
        assert (
            again.get("/metrics").series()["wirewatch_pairs_result_timestamp_seconds", frozenset()] == at + 60
        )
        assert "night-shift: pairs of nodes: as n1, nothing is slow" in again.log


def test_from_30_percent_on_no_job_may_start_until_it_is_mended(tmp_path: Path) -> None:
    at = time.time() - 600
    with daemon(tmp_path) as running:
        running.ready()
        code, text, _ = tell(tmp_path, result(tmp_path, slow(0.4), at=at))
        assert (code, text.splitlines()[1].startswith("FAILED, no job may start: pairs.slow")) == (OK, True)
        tell(tmp_path, result(tmp_path, at=at + 60))
        running.wait("/health", '"stage":"probation"')
        assert rules(running) == {"pairs.slow": ("degraded", "probation")}
        assert running.get("/health").status == 200


@pytest.mark.parametrize(("loss", "after"), [(0.1, {}), (0.4, {"pairs.slow": ("degraded", "probation")})])
def test_an_operator_says_that_it_is_over_and_the_same_result_does_not_bring_it_back(
    tmp_path: Path, loss: float, after: dict[str, tuple[str, str]]
) -> None:
    at = time.time() - 600
    file = result(tmp_path, slow(loss), at=at)
    with daemon(tmp_path) as running:
        running.ready()
        assert tell(tmp_path, file)[0] == OK
        (one,) = running.get("/api/v1/findings").json()["findings"]
        code, _, error = ran(tmp_path, "findings", "repaired", one["id"], "--yes", "--why", "cable replaced")
        assert (code, error) == (OK, "")
        assert tell(tmp_path, file)[0] == OK
        running.wait("/metrics", "wirewatch_pairs_result_timestamp_seconds")
        assert {rule: said for rule, said in rules(running).items() if said[1] != "repaired"} == after
        running.terminate()
    with daemon(tmp_path) as again:
        again.ready()
        assert rules(again) == after
        assert tell(tmp_path, result(tmp_path, slow(loss), at=at + 60))[0] == OK
        assert rules(again)["pairs.slow"] == ("failed" if loss > 0.3 else "degraded", "live")


def test_what_the_daemon_does_not_take(tmp_path: Path) -> None:
    now = time.time()
    with daemon(tmp_path, "[policy.pairs]\nlasts = 3600.0\n") as running:
        running.ready()
        for at, wrong in (
            (now + 500, "s in the future: look at the clocks"),
            (now - 7200, "older than 1 hours"),
        ):
            code, _, error = tell(tmp_path, result(tmp_path, slow(0.4), at=at))
            assert (code, error.count("\n"), wrong in error) == (USAGE, 1, True), error
        assert tell(tmp_path, result(tmp_path, slow(0.1), at=now - 60))[0] == OK
        code, _, error = tell(tmp_path, result(tmp_path, at=now - 120))
        assert (code, "a newer result is known here" in error) == (USAGE, True)
        assert rules(running) == {"pairs.slow": ("degraded", "live")}
        odd = [
            b"null",
            b"{}",
            b'{"by": "x", "result": {}}',
            b'{"by": "x", "result": {"at": NaN}}',
            b"[" * 9999,
        ]
        order = json.dumps({"by": "x", "result": {
            "at": now, "member": "n1", "nodes": 1, "judged": True, "parts": [], "measured": [],
            "partners": [],
        }})  # fmt: skip
        odd += [order.replace('"n1"', name).encode() for name in ('""', f'"{"n" * 999}"', '"\\u001b[2J"')]
        for body in odd:
            status, _ = request(f"{tmp_path}/control.sock", "POST", "/pairs", body, 10.0, known=True)
            assert status in {400, 409, 422}, body
        assert "Traceback" not in running.log


def test_who_cannot_be_told_and_when_there_is_nothing_to_tell(tmp_path: Path) -> None:
    file = result(tmp_path, at=time.time())
    assert tell(tmp_path, file)[0] == NO_ANSWER, "no daemon answers"
    code, text, _ = tell(tmp_path, file, "--node", "n3")
    assert (code, text) == (OK, "nothing to tell: n3 gave no answer in 3 runs\n")
    code, _, error = tell(tmp_path, file, "--node", "n9")
    assert (code, error.count("\n"), "no member is called n9; give --node" in error) == (USAGE, 1, True)
    (tmp_path / "torn.json").write_text('{"schema": "wirewatch.fleet-pairs/1"')
    code, _, error = tell(tmp_path, str(tmp_path / "torn.json"))
    assert (code, error.count("\n")) == (USAGE, 1)
    with daemon(tmp_path) as running:
        running.ready()
        code, text, _ = tell(tmp_path, file, "--node", "tray1", "--json")
        assert (code, json.loads(text)["schema"]) == (OK, "wirewatch.findings/1")
        assert "as c1, nothing is slow" in running.log


def test_a_torn_file_is_put_aside_and_what_was_told_is_not_taken_for_well(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    kept = tmp_path / "state" / "pairs.json"
    kept.write_text('{"version": 1, "at": 17')
    with daemon(tmp_path) as running:
        running.wait("/api/v1/findings", '"pairs.kept"')
        assert rules(running) == {"pairs.kept": ("unknown", "live")}
        assert (running.get("/health").status, list(kept.parent.glob("pairs.json.corrupt-*")) != []) == (
            503,
            True,
        )
        assert tell(tmp_path, result(tmp_path, at=time.time()))[0] == OK
        assert rules(running) == {}
        running.terminate()
    assert json.loads(kept.read_text())["result"]["member"] == "n1"


def test_a_result_ends_with_its_age(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.ready()
        assert tell(tmp_path, result(tmp_path, slow(0.1), at=time.time() - 600))[0] == OK
        assert "pairs.slow" in rules(running)
        running.terminate()
    with daemon(tmp_path, "[policy.pairs]\nlasts = 300.0\n") as later:
        later.ready()
        assert rules(later) == {}


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ((), "nothing is slow between the nodes"), ((slow(0.1),), "1 part is slow"),
        ((slow(0.1), slow(0.2, PartKind.PAIR, peer="n2")), "2 parts are slow"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("node", "by"), [(None, None), ("n1", "night-shift")], ids=["by its variable", "by its name"]
)
def test_what_is_told_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[SlowEntry, ...], told: str,
    node: str | None, by: str | None,
) -> None:  # fmt: skip
    """The daemon's answer is played: its findings follow the line, or are the only output."""
    orders: list[tuple[str, Any]] = []

    def order(_socket: object, target: str, body: Any) -> dict[str, object]:
        orders.append((target, body))
        return {"health": "ok"}

    monkeypatch.setattr(tell_module, "order", order)
    monkeypatch.setattr(tell_module, "listing", lambda document: f"all: {document['health']}")
    monkeypatch.setattr(tell_module, "user", lambda: "the-user")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    words = [*(("--node", node) if node else ()), *(("--by", by) if by else ())]
    file = result(tmp_path, *named, at=time.time())
    done = CliRunner().invoke(tell_module.tell, [file, *words])
    assert done.stdout == f"told: as n1, {told}\nall: ok\n"
    done = CliRunner().invoke(tell_module.tell, [file, "--json", *words])
    assert json.loads(done.stdout) == {"health": "ok"}
    assert [(target, body["by"], body["result"]["member"]) for target, body in orders] == [
        ("/pairs", by or "the-user", "n1")
    ] * 2
    done = CliRunner().invoke(tell_module.tell, [file, "--json", "--node", "n3"])
    assert (done.stdout, done.stderr) == ("", "nothing to tell: n3 gave no answer in 3 runs\n")


def test_a_node_that_does_not_listen_says_so(tmp_path: Path) -> None:
    file = result(tmp_path, slow(0.4), at=time.time())
    text = FAST.replace('socket = ""', f'socket = "{tmp_path}/w.sock"')
    with Daemon(DEMO, tmp_path, f"{text}\n[pairs]\nenabled = false\n[probe]\nenabled = false\n") as running:
        running.ready()
        code, _, error = tell(tmp_path, file)
        assert (code, "[pairs] is switched off" in error) == (USAGE, True)
