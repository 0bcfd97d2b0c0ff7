"""`wirewatch check` over the socket of a daemon that answers, and its own look where none does."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli import replies
from tests.node.cli.checks import Checked, check, check_machine, overlay
from tests.node.cli.replies import finding, health, reply, replying, server
from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import CONFIG, USAGE, refused
from tests.node.verdict.drift.test_diff_recordings import recorded
from tests.patience import patient
from wirewatch.core.types import OperatorNote
from wirewatch.daemon.baselines import save_baseline
from wirewatch.verdict.drift.baseline import Baseline

WORD = OperatorNote("ada", "as delivered", 1e9)
NO_DRIVER = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="about a machine without GPUs")
LINK_DOWN = ("nvml", "gpu2/Field(165,7)", "set = 0")
DEMO = ("--replay", "demo-dgx-h200", "--deadline", "20s")


def answering(folder: Path, told: str = "ok", *findings: dict[str, Any], **changes: Any) -> Any:
    body = json.dumps(health(time.time(), told, *findings, **changes)).encode()
    return server(folder, replying(reply(body, "200 OK" if told in {"ok", "degraded"} else "503 No")))


@pytest.mark.parametrize(
    ("told", "fail_on", "code"),
    [
        ("ok", "failed,unknown,degraded", 0), ("degraded", "failed", 0), ("degraded", "degraded", 1),
        ("failed", "failed", 2), ("failed", "unknown", 2), ("unknown", "failed", 0),
        ("unknown", "Failed, Unknown", 3),
    ],
)  # fmt: skip
def test_the_daemons_word_is_passed_on(tmp_path: Path, told: str, fail_on: str, code: int) -> None:
    findings = [] if told == "ok" else [finding(told)]
    with answering(tmp_path, told, *findings) as socket:
        done = check("--socket", socket, "--fail-on", fail_on)
    assert (done.code, done.err) == (code, "")
    more = "" if told == "ok" else " nvlink.link_down GPU 3 link 5: down in 3 polls. reset the GPU"
    assert done.line == told.upper() + more


def test_the_document_names_the_source_of_each_answer(tmp_path: Path) -> None:
    began = time.time()
    with answering(tmp_path, "failed", finding()) as socket:
        done = check("--socket", socket, "--json", "--max-age", "5m")
    told = done.document
    assert (done.code, told["health"], told["may_start"], told["source"]) == (2, "failed", False, "daemon")
    assert (told["why"], told["fail_on"]) == ("", ["unknown", "failed"])
    assert began - 5 < told["verdict_at"] < told["at"] <= time.time()
    assert told["probe"]["fresh"] is False
    assert [(f["id"], f["stage"], f["rule"]) for f in told["findings"]] == [
        ("0123abcd", "live", "nvlink.link_down")
    ]


@pytest.mark.parametrize(
    ("options", "required", "code", "line"),
    [
        ((), False, 0, "OK"),
        (("--max-age", "5m"), False, 0, "OK; the last probe is 10 min old"),
        (("--max-age", "5m", "--require-fresh-probe"), False, 3, "UNKNOWN; the last probe is 10 min old"),
        (("--max-age", "5m"), True, 3, "UNKNOWN; the last probe is 10 min old"),
        (("--require-fresh-probe",), True, 0, "OK"),
    ],
)  # fmt: skip
def test_an_old_probe_is_reported_and_blocks_where_it_is_required(
    tmp_path: Path,
    options: tuple[str, ...],
    required: object,
    code: int,
    line: str,
) -> None:
    probe = {"at": 1.0, "age_seconds": 600.0, "fresh": True, "required": required}
    with answering(tmp_path, probe=probe) as socket:
        done = check("--socket", socket, *options)
    assert (done.code, done.line) == (code, line)


def test_the_socket_is_that_of_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "wirewatch.toml"
    with answering(tmp_path) as socket:
        config.write_text(f'[listen]\nsocket = "{socket}"\n', "utf-8")
        assert check("--config", str(config), "--cached").line == "OK"
        config.write_text('[listen]\nsocket = ""\n[policy.verdict]\nrequire_fresh_probe = true\n', "utf-8")
        done = check("--config", str(config), "--cached")
        assert (done.code, done.line.partition(";")[0]) == (3, "UNKNOWN")
        assert "the configuration names no socket" in done.line
        assert check("--config", str(config), "--socket", socket, "--cached").line == "OK"


def test_without_a_configuration_it_is_where_the_service_manager_put_it(tmp_path: Path) -> None:
    with answering(tmp_path):
        assert check("--cached", RUNTIME_DIRECTORY=str(tmp_path)).line == "OK"


def test_released_gpus_are_not_looked_at(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "turning": False,
        "polled_at": time.time() - 600,
        "released_until": time.time() + 300,
    }
    with answering(tmp_path, **changes) as socket:
        done = check("--socket", socket, "--owner", "slurm:7", "--deadline", "1h", "--json")
    told = done.document
    assert (done.code, told["health"], told["source"]) == (3, "unknown", "daemon")
    assert told["why"].startswith("released for another ")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"polled_at": 1000.0}, "last polled"),
        ({"turning": False}, "a loop of the daemon has stopped"),
        ({"schema": "wirewatch.health/9"}, "its schema is"),
    ],
)
def test_a_daemon_that_does_not_watch_is_not_believed(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    with answering(tmp_path, **changes) as socket:
        done = check("--socket", socket, "--cached", "--json", "--fail-on", "unknown")
    told = done.document
    assert (done.code, told["health"], told["source"], told["verdict_at"]) == (3, "unknown", "none", 0.0)
    assert why in told["why"]


def test_what_answers_something_else_is_not_believed(tmp_path: Path) -> None:
    with server(tmp_path, replying(reply(b"{}", "404 Not Found"))) as socket:
        assert "HTTP status 404" in check("--socket", socket, "--cached").line


def test_a_look_of_our_own_finds_nothing_wrong() -> None:
    done = check(*DEMO, "--json", "--fail-on", "unknown,degraded")
    told = done.document
    assert (done.code, told["health"], told["source"], done.err) == (0, "ok", "own", "")
    assert (told["why"], told["findings"]) == ("a poll of recording demo-dgx-h200, played for 21 min", [])
    assert told["at"] - 20 < told["verdict_at"] <= told["at"]
    assert (told["probe"]["fresh"], told["probe"]["required"], told["probe_exempt"]) == (True, False, False)


def test_a_look_of_our_own_sees_a_fault_as_often_as_it_takes(tmp_path: Path) -> None:
    done = check(*DEMO, *overlay(tmp_path, LINK_DOWN), "--json")
    told = done.document
    assert (done.code, told["health"], told["may_start"]) == (2, "failed", False)
    (found,) = told["findings"]
    assert (found["rule"], found["stage"], len(found["id"])) == ("nvlink.link_down", "live", 8)
    assert found["subject"]["link"] == "7"


@pytest.mark.parametrize(
    ("recording", "changes", "config", "code"),
    [
        ("h200x1-idle", (), "", 0), ("h200x2-idle", (("nvml", "gpu*/MigMode()", "set = [1, 1]"),), "", 0),
        ("h200x2-idle", (("nvml", "gpu*/MigMode()", "code = 4"),), "", 3),
        ("h200x2-idle", (("nvml", "gpu1/ComputeRunningProcesses()", "set = [{ pid = 7 }]"),), "", 3),
        ("h200x2-idle", (), "[probe]\nenabled = false\n", 3), ("h200x2-idle", (), "", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["option", "policy"])
@pytest.mark.parametrize("played", [True, False])
def test_where_nothing_can_be_probed_no_probe_is_required(
    tmp_path: Path, recording: str, changes: tuple[tuple[str, str, str], ...], config: str, code: int | None,
    how: str, *, played: bool,
) -> None:  # fmt: skip
    """Before, the option and the policy gave two answers: with the option one GPU and MIG were UNKNOWN."""
    file = tmp_path / "wirewatch.toml"
    policy = "" if how == "option" else "[policy.verdict]\nrequire_fresh_probe = true\n"
    file.write_text(f"{config}{policy}", "utf-8")
    option = ("--require-fresh-probe",) if how == "option" else ()
    words = ("--config", str(file), "--fail-on", "failed", *option, "--deadline", "20s")
    changed = overlay(tmp_path, *changes, ("host", "Kernel()", "slow = 0"))
    if played:
        done = check("--replay", recording, *changed, *words)
    else:
        done = check_machine(recording, changed, *words)
    # A play makes a probe where one can be made; a poll does not.
    assert done.code == ((0 if played else 3) if code is None else code), done.line


def test_without_time_to_see_it_again_a_fault_is_not_yet_believed(tmp_path: Path) -> None:
    config = tmp_path / "wirewatch.toml"
    config.write_text("[policy.nvlink]\nconfirm = 10_000_000\n", "utf-8")
    deadline = f"{patient(1.0):.1f}s"
    done = check(*DEMO[:2], *overlay(tmp_path, LINK_DOWN), "--config", str(config), "--deadline", deadline)
    assert (done.code, done.line.split()[:2]) == (3, ["UNKNOWN", "nvlink.link_down"])


@NO_DRIVER
def test_where_no_daemon_answers_the_look_says_why(tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = check(
        "--socket", str(tmp_path / "none.sock"), "--json", "--deadline", "20s", STATE_DIRECTORY=str(state)
    )
    told = done.document
    assert (done.code, told["source"], told["health"]) == (3, "own", "unknown")
    assert (
        told["why"]
        == f"a poll without the daemon, since {tmp_path}/none.sock: no such socket; is the daemon running?"
    )
    assert not state.exists()


def test_what_was_latched_counts_in_a_look_of_our_own(tmp_path: Path) -> None:
    """A recording has a state folder when it is told to."""
    config = tmp_path / "wirewatch.toml"
    config.write_text(f'[state]\ndirectory = "{tmp_path}"\n', "utf-8")
    (tmp_path / "latches.json").write_text("no JSON", "utf-8")
    (tmp_path / "probes.sqlite").write_text("no database", "utf-8")
    done = check(*DEMO, "--config", str(config), "--json", "--fail-on", "unknown")
    assert (done.code, [f["rule"] for f in done.document["findings"]]) == (3, ["verdict.latches"])
    # Somebody else's: nothing is repaired or put out of the way.
    assert {path.name for path in tmp_path.iterdir()} == {"wirewatch.toml", "latches.json", "probes.sqlite"}


def drifting(folder: Path, *words: str) -> Checked:
    """A look with the baseline of the demo node, where nobody but drift tells of links."""
    assert (
        save_baseline(folder / "baseline.json", Baseline(recorded(DEMO[1]), WORD, "learned"), WORD.at) == ""
    )
    config = folder / "wirewatch.toml"
    config.write_text(f'[state]\ndirectory = "{folder}"\n[collectors.nvlink]\nenabled = false\n', "utf-8")
    return check(*DEMO, *words, "--config", str(config), "--json", "--fail-on", "failed,unknown")


def test_a_look_of_our_own_compares_with_the_baseline(tmp_path: Path) -> None:
    assert drifting(tmp_path).code == 0
    done = drifting(tmp_path, *overlay(tmp_path, LINK_DOWN))
    (found,) = done.document["findings"]
    assert (done.code, found["rule"], found["health"]) == (2, "topology.nvlink_lost", "failed")
    assert "link 7 down" in found["evidence"]
    assert {one.name for one in tmp_path.iterdir()} == {"baseline.json", "overlay.toml", "wirewatch.toml"}


def test_a_baseline_that_cannot_be_used_is_reported_and_left_where_it_is(tmp_path: Path) -> None:
    config, path = tmp_path / "wirewatch.toml", tmp_path / "baseline.json"
    config.write_text(f'[state]\ndirectory = "{tmp_path}"\n', "utf-8")
    path.write_text("no JSON", "utf-8")
    done = check(*DEMO, "--config", str(config), "--json", "--fail-on", "unknown")
    assert (done.code, [f["rule"] for f in done.document["findings"]]) == (3, ["topology.baseline"])
    assert path.read_text("utf-8") == "no JSON"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--deadline", "soon"), "'soon' is not a duration"),
        (("--deadline", "0s"), "--deadline: '0s' is not a duration above 0"),
        (("--fail-on", "failed,sick"), "'sick' is not one of failed, unknown, degraded"),
        (("--fail-on", ""), "'' is not one of failed, unknown, degraded"),
        (("--owner", "user:7"), "--owner: 'user:7' is neither slurm:ID nor pod:UID"),
        (("--overlay", "gpu-lost"), "give --replay too"),
        (("--cached", "--owner", "slurm:7"), "--cached polls nothing"),
        (("--cached", "--replay", "h200x8"), "--cached polls nothing"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(USAGE, "check", *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[", "wirewatch.toml: "),
        ("[listen]\nsocket = 5", "listen.socket: not a string: 5"),
        ("[policy.verdict]\nrequire_fresh_probe = 1", "require_fresh_probe: not true or false: 1"),
    ],
)
def test_a_wrong_configuration_is_reported_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "wirewatch.toml"
    config.write_text(text, "utf-8")
    assert words in refused(CONFIG, "check", "--config", str(config), "--cached")


def test_what_a_look_needs_is_reported_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "wirewatch.toml"
    config.write_text("[probe]\nevry = 60.0\n", "utf-8")
    look = ("check", "--socket", str(tmp_path / "none.sock"), "--deadline", "20s")
    assert "unknown key 'probe.evry'" in refused(CONFIG, *look, "--config", str(config))
    assert "No such file" in refused(CONFIG, "check", "--config", str(tmp_path / "none.toml"))
    assert "no recording 'h100x3'" in refused(CONFIG, *look, "--replay", "h100x3")


def test_the_fake_daemon_says_what_the_real_one_says() -> None:
    """Else these tests would test nothing."""
    told = replies.health(time.time(), "failed", replies.finding())
    assert complaints("wirewatch.health.1", json.dumps(told)) == []
